//! Decodes bytes: UTF-8, then JSON, NDJSON or YAML. Errors name line and column.
//!
//! Text is parsed lazily: a list is walked item by item ([`items`], [`fields`]), and only an item
//! that looks like a tool becomes a [`Value`], within a memory [`Budget`].

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Open brackets allowed in YAML. libyaml visits every open bracket on each token: 300 kB of `[`
/// took six minutes. The limit is far above serde's 128 levels because unmatched brackets in prose
/// count too.
const MAX_OPEN_BRACKETS: usize = 2_000;
/// Bytes that the YAML parser holds for each key, scalar and collection until the end of the
/// document.
const YAML_NODE_BYTES: usize = 150;
/// Memory allowed for each byte of input. Ordinary sets of tools need 8 to 15; `[0,0,…]` needed
/// 310.
const MEMORY_PER_BYTE: usize = 24;
/// Memory allowed for any input, however short.
const MEMORY_OF_ANY: usize = 64 << 20;

/// The decoded input. The text is valid JSON.
pub(super) enum Input<'t> {
    Document(Cow<'t, str>),
    /// One value per line; some lines may be malformed.
    Lines(&'t str),
}

/// Decodes an input.
///
/// # Errors
/// [`Error::Parse`] with line and column.
pub(super) fn read<'t>(bytes: &'t [u8], source: Source<'_>) -> Result<Input<'t>> {
    let text = source.decode(bytes)?;
    match text.trim_start().chars().next() {
        None => Err(source.error(
            None,
            "the input is empty; tools in JSON, NDJSON or YAML were expected".into(),
        )),
        Some('{' | '[') => source.json_or_lines(text),
        // A set of tools is a list or an object, so in JSON it begins with a bracket.
        Some(_) => Ok(Input::Document(source.yaml(text)?.into())),
    }
}

/// The non-blank lines of NDJSON with their 1-based numbers.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(numbered)
}

/// A line under so many others, with its number; `None` for a blank one.
fn numbered((above, line): (usize, &str)) -> Option<(usize, &str)> {
    // Files that were joined have the byte order mark of each.
    let line = line.trim_start_matches('\u{feff}').trim();
    (!line.is_empty()).then_some((above + 1, line))
}

/// The items of a JSON list, as text.
pub(super) fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = list.trim_start().strip_prefix('[').unwrap_or_default();
    std::iter::from_fn(move || {
        let item = take_value(&mut rest)?;
        rest = after(rest, ',');
        Some(item)
    })
}

/// The fields of a JSON object: names, and values as text.
pub(super) fn fields(object: &str) -> impl Iterator<Item = (String, &str)> {
    let mut rest = object.trim_start().strip_prefix('{').unwrap_or_default();
    std::iter::from_fn(move || {
        let name = take_value(&mut rest)?;
        // A name that is not valid text, such as half of a surrogate pair, is reported when the
        // object is parsed.
        let name = serde_json::from_str(name).unwrap_or_else(|_| name.to_owned());
        rest = after(rest, ':');
        let value = take_value(&mut rest)?;
        rest = after(rest, ',');
        Some((name, value))
    })
}

/// Removes the first value from the text; `None` at the end of a list or an object.
fn take_value<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let text = rest.trim_start();
    // Skipped without being built, so that walking a list takes no memory.
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (value, after) = text.split_at(values.byte_offset());
    *rest = after;
    Some(value)
}

/// The text after a leading separator; empty without one.
fn after(text: &str, separator: char) -> &str {
    text.trim_start()
        .strip_prefix(separator)
        .unwrap_or_default()
}

/// An estimate of the memory that the parsed values of an input take, with an upper bound.
pub(super) struct Budget {
    // A cell, since serde's visitors share the budget by reference.
    left: Cell<usize>,
    total: usize,
}

impl Budget {
    /// The budget of an input of this length.
    pub fn of(input_bytes: usize) -> Self {
        let total = input_bytes
            .saturating_mul(MEMORY_PER_BYTE)
            .saturating_add(MEMORY_OF_ANY);
        Budget {
            left: Cell::new(total),
            total,
        }
    }

    /// Bytes spent so far.
    pub fn spent(&self) -> usize {
        self.total - self.left.get()
    }

    /// Returns to an earlier state, for values that were parsed and dropped.
    pub fn return_to(&self, spent: usize) {
        self.left.set(self.total - spent);
    }

    /// True once a value exceeded the budget.
    pub fn is_exceeded(&self) -> bool {
        self.left.get() == 0
    }

    /// Takes bytes out of the budget.
    pub fn spend(&self, bytes: usize) -> Result<(), String> {
        self.left.set(self.left.get().saturating_sub(bytes));
        if !self.is_exceeded() {
            return Ok(());
        }
        let mib = self.total >> 20;
        Err(format!(
            "its values would take more than {mib} MiB of memory, far more than its length; split it"
        ))
    }
}

/// Names the input in errors.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub name: &'a str,
}

impl Source<'_> {
    fn decode<'t>(&self, bytes: &'t [u8]) -> Result<&'t str> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let offset = error.valid_up_to();
                let place = place_of(&String::from_utf8_lossy(&bytes[..offset]));
                let reason =
                    format!("not valid UTF-8 at byte offset {offset}; convert the file to UTF-8");
                return Err(self.error(Some(place), reason));
            }
        };
        // Editors put a byte order mark before UTF-8, which JSON does not allow.
        Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
    }

    fn json_or_lines<'t>(&self, text: &'t str) -> Result<Input<'t>> {
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Ok(Input::Document(Cow::Borrowed(text))),
            Err(_) if is_ndjson(text) => Ok(Input::Lines(text)),
            Err(error) => Err(self.json_error(&error, (1, 1))),
        }
    }

    /// Checks one line of NDJSON.
    ///
    /// # Errors
    /// [`Error::Parse`] with this line and the column.
    pub fn check_line(&self, line: &str, number: usize) -> Result<()> {
        match serde_json::from_str::<IgnoredAny>(line) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.json_error(&error, (number, 1))),
        }
    }

    /// Reads a part of a text into a value. The text begins at this line of the input.
    ///
    /// # Errors
    /// [`Error::Parse`] with line and column for a value that is nested too deeply or exceeds the budget.
    pub fn value(
        &self,
        part: &str,
        (whole, first_line): (&str, usize),
        budget: &Budget,
    ) -> Result<Value> {
        let mut deserializer = serde_json::Deserializer::from_str(part);
        let error = match (BoundedValue { budget }).deserialize(&mut deserializer) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        // `part` is a slice of `whole`, so the difference of their addresses is its offset. For any
        // other text the place is that of the beginning.
        let offset = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        let (line, column) = place_of(whole.get(..offset).unwrap_or_default());
        Err(self.json_error(&error, (first_line - 1 + line, column)))
    }

    /// An error in a text that begins at this line and column.
    fn json_error(&self, error: &serde_json::Error, (line, column): (usize, usize)) -> Error {
        let message = error.to_string();
        let what = without_place(&message);
        let reason = match error.classify() {
            serde_json::error::Category::Data => what.to_owned(),
            _ if what.starts_with("recursion limit") => {
                "the JSON is nested deeper than 128 levels; flatten it".to_owned()
            }
            _ => format!("malformed JSON: {what}"),
        };
        // The column is counted within the part, and only its first line begins further right.
        let on_first_line = if error.line() == 1 { column - 1 } else { 0 };
        self.error(
            Some((line - 1 + error.line(), on_first_line + error.column())),
            reason,
        )
    }

    /// YAML as JSON.
    fn yaml(&self, text: &str) -> Result<String> {
        if let Some(line) = line_of_excess_brackets(text) {
            let reason = format!(
                "malformed YAML (and not JSON): more than {MAX_OPEN_BRACKETS} brackets are open"
            );
            return Err(self.error(Some((line, 1)), reason));
        }
        // Before parsing: the parser holds all nodes at once.
        let nodes = text
            .bytes()
            .filter(|byte| b",:[{?\n".contains(byte))
            .count();
        let budget = Budget::of(text.len());
        if let Err(reason) = budget.spend(nodes.saturating_mul(YAML_NODE_BYTES)) {
            let reason = format!("the YAML has too many values for its length: {reason}");
            return Err(self.error(None, reason));
        }
        // Without aliases the JSON is hardly longer than the YAML, so only aliases can exceed the
        // rest.
        let max_bytes = text.len().saturating_mul(4).saturating_add(1 << 20);
        let mut json = String::new();
        let transcribed = Transcriber {
            into: &mut json,
            max_bytes,
        };
        match transcribed.deserialize(serde_yaml_ng::Deserializer::from_str(text)) {
            Ok(()) => Ok(json),
            Err(error) => Err(self.yaml_error(&error)),
        }
    }

    fn yaml_error(&self, error: &serde_yaml_ng::Error) -> Error {
        if let Some(reason) = super::foreign::file_without_tools(self.name) {
            return self.error(None, reason);
        }
        let place = error
            .location()
            .map(|location| (location.line(), location.column()));
        let message = error.to_string();
        let what = match without_place(&message) {
            what if what.contains("more than one document") => {
                "it has several documents, with `---` between them; write each to a file"
            }
            what => what,
        };
        self.error(place, format!("malformed YAML (and not JSON): {what}"))
    }

    fn error(&self, place: Option<(usize, usize)>, reason: String) -> Error {
        let (line, column) = place.unzip();
        Error::Parse {
            source_name: self.name.to_owned(),
            line,
            column,
            reason,
        }
    }
}

/// The message of a parser without the place at its end, which our errors name themselves.
fn without_place(message: &str) -> &str {
    match message.rsplit_once(" at line ") {
        Some((what, _)) => what,
        None => message,
    }
}

/// The 1-based line and column of the position after this text.
fn place_of(before: &str) -> (usize, usize) {
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    (line, in_line.chars().count() + 1)
}

/// Whether text that is not a single JSON value has one value per line. The second line decides
/// when the first one is malformed.
fn is_ndjson(text: &str) -> bool {
    let mut lines = lines(text);
    let (Some((_, first)), Some((_, second))) = (lines.next(), lines.next()) else {
        return false;
    };
    is_list_or_object(first) || (second.starts_with('{') && is_list_or_object(second))
}

fn is_list_or_object(line: &str) -> bool {
    line.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(line).is_ok()
}

/// The 1-based line that exceeds the limit of open brackets.
fn line_of_excess_brackets(text: &str) -> Option<usize> {
    let (mut open, mut line) = (0_usize, 1);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' => line += 1,
            _ => {}
        }
        if open > MAX_OPEN_BRACKETS {
            return Some(line);
        }
    }
    None
}

/// Bytes that the allocator adds to each text.
const ALLOCATION_BYTES: usize = 16;
/// Bytes of a map entry: key, value, hash, and its slot in the table.
const ENTRY_BYTES: usize = size_of::<String>() + size_of::<Value>() + 2 * size_of::<usize>();

/// The estimated heap memory of a value.
pub(super) fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + ALLOCATION_BYTES,
        Value::Array(items) => {
            let mut bytes = items.len() * size_of::<Value>();
            for item in items {
                bytes += weight(item);
            }
            bytes
        }
        Value::Object(fields) => {
            let mut bytes = 2 * ENTRY_BYTES;
            for (name, value) in fields {
                bytes += ENTRY_BYTES + ALLOCATION_BYTES + name.len() + weight(value);
            }
            bytes
        }
        _ => 0,
    }
}

/// Parses a value within the budget. Growing lists and maps are charged for their capacity.
#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    budget: &'a Budget,
}

impl BoundedValue<'_> {
    fn spend<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        self.budget.spend(bytes).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len() + ALLOCATION_BYTES)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            if list.len() == list.capacity() {
                self.spend(list.len().max(4) * size_of::<Value>())?;
            }
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        // As the map itself grows: 3, 7, 14 entries and so on.
        let mut capacity = 0;
        while let Some(key) = entries.next_key::<String>()? {
            self.spend(key.len() + ALLOCATION_BYTES)?;
            if map.len() == capacity {
                let more = capacity.max(3);
                self.spend(more * ENTRY_BYTES)?;
                capacity += more;
            }
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

/// Writes YAML down as JSON of at most so many bytes: aliases can make a page of YAML into
/// gigabytes, and serde_yaml_ng bounds only the number of jumps.
struct Transcriber<'a> {
    into: &'a mut String,
    max_bytes: usize,
}

impl Transcriber<'_> {
    fn nested(&mut self) -> Transcriber<'_> {
        Transcriber {
            into: self.into,
            max_bytes: self.max_bytes,
        }
    }

    fn write<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        if self.into.len() + text.len() > self.max_bytes {
            return Err(E::custom(
                "its aliases expand to far more than the document; remove them",
            ));
        }
        self.into.push_str(text);
        Ok(())
    }

    fn write_key<E: serde::de::Error>(&mut self, key: &str, is_first: bool) -> Result<(), E> {
        if !is_first {
            self.write(",")?;
        }
        self.write(&Value::from(key).to_string())?;
        self.write(":")
    }

    fn scalar<E: serde::de::Error>(mut self, value: impl Into<Value>) -> Result<(), E> {
        self.write(&value.into().to_string())
    }
}

impl<'de> DeserializeSeed<'de> for Transcriber<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Transcriber<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has too")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_i128<E: serde::de::Error>(mut self, value: i128) -> Result<(), E> {
        self.write(&value.to_string())
    }

    fn visit_u128<E: serde::de::Error>(mut self, value: u128) -> Result<(), E> {
        self.write(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        if !value.is_finite() {
            let written = if value.is_nan() { ".nan" } else { ".inf" };
            return Err(E::custom(format!(
                "`{written}` is no number in JSON; leave the keyword out, or quote a text"
            )));
        }
        self.scalar(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.scalar(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.scalar(value)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom(
            "a value has a tag of its own, as `!Ref name` has, which JSON does not have; remove the tag",
        ))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.write("[")?;
        let first = self.into.len();
        loop {
            let item = self.into.len();
            // Written before it is known whether an item follows, and taken back if none does.
            if item > first {
                self.write(",")?;
            }
            if items.next_element_seed(self.nested())?.is_none() {
                self.into.truncate(item);
                return self.write("]");
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        self.write("{")?;
        let mut keys = HashSet::new();
        let mut merged = None;
        while let Some(key) = entries.next_key::<String>()? {
            // JSON's reader would silently keep the last of two.
            if keys.contains(&key) || (key == MERGE_KEY && merged.is_some()) {
                return Err(A::Error::custom(format!(
                    "the key {key:?} occurs twice in one mapping"
                )));
            }
            if key == MERGE_KEY {
                merged = Some(entries.next_value_seed(Merged {
                    max_bytes: self.max_bytes.saturating_sub(self.into.len()),
                })?);
                continue;
            }
            self.write_key(&key, keys.is_empty())?;
            keys.insert(key);
            entries.next_value_seed(self.nested())?;
        }
        let mappings = merged.iter().flat_map(|merged| merged_mappings(merged));
        for (key, value) in mappings.flat_map(fields) {
            // The mapping's own keys win, and of several merged mappings the first.
            if keys.contains(&key) {
                continue;
            }
            self.write_key(&key, keys.is_empty())?;
            self.write(value)?;
            keys.insert(key);
        }
        self.write("}")
    }
}

/// The key whose value, a mapping or a list of them, is merged into its mapping.
const MERGE_KEY: &str = "<<";

/// Reads the value of a merge key, written down as JSON.
struct Merged {
    max_bytes: usize,
}

impl<'de> DeserializeSeed<'de> for Merged {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let mut json = String::new();
        let transcriber = Transcriber {
            into: &mut json,
            max_bytes: self.max_bytes,
        };
        transcriber.deserialize(deserializer)?;
        if merged_mappings(&json).any(|mapping| !mapping.starts_with('{')) {
            return Err(D::Error::custom(
                "the value of the merge key `<<` must be a mapping or a list of mappings",
            ));
        }
        Ok(json)
    }
}

fn merged_mappings(json: &str) -> impl Iterator<Item = &str> {
    let single = (!json.starts_with('[')).then_some(json);
    single.into_iter().chain(items(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source<'_> = Source { name: "in" };

    fn failure(bytes: &[u8]) -> String {
        match read(bytes, SOURCE) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{:?} was accepted", String::from_utf8_lossy(bytes)),
        }
    }

    #[test]
    fn malformed_input_is_named_with_its_place() {
        let nested_yaml = format!("a: {}", "[".repeat(500));
        for (bytes, expected) in [
            (b"".as_slice(), "in: the input is empty"),
            (b"\xef\xbb\xbf \n", "in: the input is empty"),
            (
                b"[{}]\n\xe5\xa4\xa9 \xff",
                "in:2:3: not valid UTF-8 at byte offset 9",
            ),
            (
                b"{\n  \"tools\": [,]\n}",
                "in:2:13: malformed JSON: expected value",
            ),
            (b"{\"tools\": [", "in:1:11: malformed JSON: EOF"),
            (
                "[".repeat(5000).as_bytes(),
                "in:1:5000: malformed JSON: EOF",
            ),
            (
                b"openapi: 3.0.0\npaths:\n  - a\n b: c",
                "in:4:2: malformed YAML",
            ),
            (b"a: 1\na: 2", "occurs twice"),
            (b"a: !Ref b", "has a tag of its own"),
            (b"a: 1\n---\na: 2", "it has several documents"),
            (nested_yaml.as_bytes(), "malformed YAML"),
        ] {
            let message = failure(bytes);
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        }
    }

    #[test]
    fn deep_yaml_is_refused_soon() {
        let text = format!("a: {}{}", "[".repeat(500), "]".repeat(500));
        assert!(failure(text.as_bytes()).contains("recursion limit exceeded"));
        let text = format!("a:\n  {}", "[".repeat(1 << 20));
        assert!(
            failure(text.as_bytes())
                .contains("in:2:1: malformed YAML (and not JSON): more than 2000 brackets")
        );
    }

    #[test]
    fn an_alias_bomb_of_wide_leaves_is_refused() {
        let leaves = "x, ".repeat(2000);
        let jumps = |name: &str| format!("*{name}, ").repeat(300);
        let text = format!(
            "a: &a [{leaves}]\nb: &b [{}]\nc: [{}]\n",
            jumps("a"),
            jumps("b")
        );
        assert!(failure(text.as_bytes()).contains("aliases"));
    }

    #[test]
    fn yaml_numbers_as_keys_and_ordinary_aliases_are_read() {
        let text = "base: &b {type: string}\nresponses:\n  200: *b\n  default: {}\n";
        let Ok(Input::Document(json)) = read(text.as_bytes(), SOURCE) else {
            panic!("not read")
        };
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["responses"]["200"]["type"], "string");
    }

    #[test]
    fn yaml_is_transcribed_to_equal_json() {
        for (yaml, json) in [
            ("a: []", r#"{"a":[]}"#),
            (
                "a: {}\nb: [1, [], {c: -2.5}, ~]",
                r#"{"a":{},"b":[1,[],{"c":-2.5},null]}"#,
            ),
            (
                "a: \"x\\n\\\"y\"\n\"b c\": true",
                r#"{"a":"x\n\"y","b c":true}"#,
            ),
        ] {
            let Ok(Input::Document(read)) = read(yaml.as_bytes(), SOURCE) else {
                panic!("{yaml:?} was not read")
            };
            assert_eq!(read, json);
        }
    }

    fn transcribed(yaml: &str) -> Value {
        let Ok(Input::Document(json)) = read(yaml.as_bytes(), SOURCE) else {
            panic!("{yaml:?} was not read")
        };
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn integers_of_any_length_are_the_numbers_that_json_makes_of_them() {
        let long = "9".repeat(200);
        for digits in [
            "9223372036854775807",
            "-9223372036854776000",
            "18446744073709551616",
            "-170141183460469231731687303715884105728",
            "340282366920938463463374607431768211455",
            "99999999999999999999999999999999999999999999",
            &long,
        ] {
            let as_json: Value = serde_json::from_str(digits).unwrap();
            assert_eq!(transcribed(&format!("a: {digits}"))["a"], as_json);
        }
    }

    #[test]
    fn what_is_no_number_in_json_is_an_error_with_its_place() {
        for (yaml, expected) in [
            ("a:\n  b: .inf", "in:2:6: malformed YAML"),
            ("a: [1, -.inf]", "in:1:8: malformed YAML"),
            ("a: .NaN", "`.nan` is no number"),
            ("a: {<<: {b: .Inf}}", "`.inf` is no number"),
        ] {
            let message = failure(yaml.as_bytes());
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn merge_keys_are_merged_and_own_keys_win() {
        for (yaml, json) in [
            ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", r#"{"b":3,"a":1}"#),
            ("x: &x {a: 1}\ny: {b: 2, <<: *x}", r#"{"b":2,"a":1}"#),
            (
                "x: &x {a: 1}\nz: &z {a: 2, c: 3}\ny: {<<: [*x, *z]}",
                r#"{"a":1,"c":3}"#,
            ),
            (
                "x: &x {a: 1}\nz: &z {<<: *x, c: 3}\ny: {<<: *z}",
                r#"{"c":3,"a":1}"#,
            ),
            ("x: &x {}\ny: {<<: *x, b: 1}", r#"{"b":1}"#),
            (
                "x: &x {a: {p: 1}}\ny: {<<: *x, a: {q: 2}}",
                r#"{"a":{"q":2}}"#,
            ),
        ] {
            let expected: Value = serde_json::from_str(json).unwrap();
            assert_eq!(transcribed(yaml)["y"], expected, "{yaml}");
        }
        for yaml in ["a: {<<: 1}", "a: {<<: [{b: 1}, text]}", "a: {<<: ~}"] {
            let message = failure(yaml.as_bytes());
            assert!(message.contains("merge key `<<` must be"), "{message}");
        }
        let twice = failure(b"x: &x {a: 1}\ny: {<<: *x, <<: *x}");
        assert!(twice.contains("occurs twice"), "{twice}");
    }

    #[test]
    fn merges_that_multiply_are_refused() {
        let first = format!("a0: &a0 {{k: [{}]}}\n", "x, ".repeat(2000));
        let next = |n: usize| {
            let jumps: Vec<String> = (0..20)
                .map(|jump| format!("k{jump}: {{<<: *a{}}}", n - 1))
                .collect();
            format!("a{n}: &a{n} {{{}}}\n", jumps.join(", "))
        };
        let bomb: String = std::iter::once(first).chain((1..6).map(next)).collect();
        assert!(failure(bomb.as_bytes()).contains("aliases"));
    }

    #[test]
    fn a_text_is_walked_as_serde_reads_it() {
        let list = " [ 1 ,\"a,]\" , [ {\"b\":[]} ],-2e3,null, {} ]";
        assert_eq!(
            items(list).collect::<Vec<_>>(),
            ["1", "\"a,]\"", "[ {\"b\":[]} ]", "-2e3", "null", "{}"]
        );
        assert_eq!(
            items("[]").count() + items("[ ]").count() + fields("{ }").count(),
            0
        );
        let object = "{\"a\\n\" : 1, \"b\":{\"c\" :[2]}\n}";
        assert_eq!(
            fields(object).collect::<Vec<_>>(),
            [("a\n".to_owned(), "1"), ("b".to_owned(), "{\"c\" :[2]}")]
        );
    }

    #[test]
    fn a_value_that_cannot_be_read_is_named_with_its_place_in_the_whole() {
        let text = format!("[{{}},\n  {}{}]", "[".repeat(200), "]".repeat(200));
        let second = items(&text).nth(1).unwrap();
        let message = SOURCE
            .value(second, (&text, 1), &Budget::of(0))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("in:2:130: the JSON is nested deeper than 128 levels"),
            "{message}"
        );
    }

    #[test]
    fn ndjson_names_the_line_of_the_file() {
        let text = "\u{feff}{\"name\":\"a\"}\r\n\n{\"name\":}\n\u{feff}{\"name\":\"b\"}\n";
        let Ok(Input::Lines(text)) = read(text.as_bytes(), SOURCE) else {
            panic!("no lines")
        };
        let read: Vec<_> = lines(text)
            .map(|(number, line)| (number, SOURCE.check_line(line, number)))
            .collect();
        assert_eq!(
            read.iter()
                .map(|(number, line)| (*number, line.is_ok()))
                .collect::<Vec<_>>(),
            [(1, true), (3, false), (4, true)]
        );
        let message = read[1].1.as_ref().unwrap_err().to_string();
        assert!(message.starts_with("in:3:9: malformed JSON"), "{message}");
    }
}
