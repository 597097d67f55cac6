//! Bytes to JSON values: UTF-8, then JSON, NDJSON or YAML, each failure with its place.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Brackets that YAML may leave open at once. libyaml looks at every open one on each token: 300 kB of `[` took it six
/// minutes. Far above serde's 128 levels, since unmatched brackets in prose are counted too.
const MAX_OPEN_BRACKETS: usize = 2_000;

/// What the bytes are.
pub(super) enum Input {
    Document(Value),
    Lines(Vec<Line>),
}

/// One line of NDJSON.
pub(super) struct Line {
    /// 1-based.
    pub number: usize,
    pub value: Result<Value>,
}

/// Decodes an input.
///
/// # Errors
/// [`Error::Parse`] with line and column.
pub(super) fn read(bytes: &[u8], source_name: &str) -> Result<Input> {
    let source = Source { name: source_name };
    let text = source.decode(bytes)?;
    match text.trim_start().chars().next() {
        None => Err(source.error(None, "the input is empty; tools in JSON, NDJSON or YAML were expected".into())),
        Some('{' | '[') => source.json_or_lines(text),
        Some(_) => source.yaml(text).map(Input::Document),
    }
}

/// Names the input in errors.
struct Source<'a> {
    name: &'a str,
}

impl Source<'_> {
    fn decode<'t>(&self, bytes: &'t [u8]) -> Result<&'t str> {
        let invalid = |error: std::str::Utf8Error| {
            let offset = error.valid_up_to();
            let before = &bytes[..offset];
            let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
            let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
            let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
            let reason = format!("not valid UTF-8 at byte offset {offset}; convert the file to UTF-8");
            self.error(Some((line, column)), reason)
        };
        let text = std::str::from_utf8(bytes).map_err(invalid)?;
        Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
    }

    fn json_or_lines(&self, text: &str) -> Result<Input> {
        match serde_json::from_str(text) {
            Ok(value) => Ok(Input::Document(value)),
            Err(_) if is_ndjson(text) => Ok(Input::Lines(self.lines(text))),
            Err(error) => Err(self.json_error(&error, 0)),
        }
    }

    fn lines(&self, text: &str) -> Vec<Line> {
        let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parse = |(above, line)| Line {
            number: above + 1,
            value: serde_json::from_str(line).map_err(|error| self.json_error(&error, above)),
        };
        numbered.map(parse).collect()
    }

    fn json_error(&self, error: &serde_json::Error, lines_above: usize) -> Error {
        let message = error.to_string();
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        let reason = match what.starts_with("recursion limit") {
            true => "the JSON is nested deeper than 128 levels; flatten it".to_owned(),
            false => format!("malformed JSON: {what}"),
        };
        self.error(Some((lines_above + error.line(), error.column())), reason)
    }

    fn yaml(&self, text: &str) -> Result<Value> {
        if let Some(line) = line_of_excess_brackets(text) {
            let reason = format!("malformed YAML (and not JSON): more than {MAX_OPEN_BRACKETS} brackets are open");
            return Err(self.error(Some((line, 1)), reason));
        }
        // Without aliases the cost of a document never exceeds its length, so only aliases can spend the rest.
        let budget = Cell::new(text.len().saturating_mul(4).saturating_add(1 << 20));
        let deserializer = serde_yaml_ng::Deserializer::from_str(text);
        BoundedValue { budget: &budget }.deserialize(deserializer).map_err(|error| {
            let place = error.location().map(|location| (location.line(), location.column()));
            let message = error.to_string();
            let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
            self.error(place, format!("malformed YAML (and not JSON): {what}"))
        })
    }

    fn error(&self, place: Option<(usize, usize)>, reason: String) -> Error {
        let (line, column) = place.unzip();
        Error::Parse { source_name: self.name.to_owned(), line, column, reason }
    }
}

/// Whether text that is not one JSON value is one a line. The second line decides where the first is the broken one.
fn is_ndjson(text: &str) -> bool {
    let is_value = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|v| v.is_object() || v.is_array());
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let (first, second) = (lines.next(), lines.next());
    second.is_some_and(|second| first.is_some_and(is_value) || (second.starts_with('{') && is_value(second)))
}

/// The 1-based line on which more brackets are open than YAML may have.
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

/// Builds a JSON value from YAML while a budget of nodes and text bytes lasts: aliases can make a page of YAML into
/// gigabytes, and serde_yaml_ng bounds only the number of jumps.
#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    budget: &'a Cell<usize>,
}

impl BoundedValue<'_> {
    fn spend<E: serde::de::Error>(self, cost: usize) -> Result<(), E> {
        let left = self.budget.get().checked_sub(cost + 1);
        self.budget
            .set(left.ok_or_else(|| E::custom("its aliases expand to far more than the document; remove them"))?);
        Ok(())
    }

    fn scalar<E: serde::de::Error>(self, value: impl Into<Value>) -> Result<Value, E> {
        self.spend(0)?;
        Ok(value.into())
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
        f.write_str("a value that JSON has too")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.scalar(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.scalar(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.spend(key.len())?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice in one mapping")));
            }
            map.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(bytes: &[u8]) -> String {
        match read(bytes, "in") {
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
            (b"[{}]\n\xe5\xa4\xa9 \xff", "in:2:3: not valid UTF-8 at byte offset 9"),
            (b"{\n  \"tools\": [,]\n}", "in:2:13: malformed JSON: expected value"),
            (b"{\"tools\": [", "in:1:11: malformed JSON: EOF"),
            ("[".repeat(5000).as_bytes(), "nested deeper than 128 levels"),
            (b"openapi: 3.0.0\npaths:\n  - a\n b: c", "in:4:2: malformed YAML"),
            (b"a: 1\na: 2", "occurs twice"),
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
        assert!(failure(text.as_bytes()).contains("in:2:1: malformed YAML (and not JSON): more than 2000 brackets"));
    }

    #[test]
    fn an_alias_bomb_of_wide_leaves_is_refused() {
        let leaves = "x, ".repeat(2000);
        let jumps = |name: &str| format!("*{name}, ").repeat(300);
        let text = format!("a: &a [{leaves}]\nb: &b [{}]\nc: [{}]\n", jumps("a"), jumps("b"));
        assert!(failure(text.as_bytes()).contains("aliases"));
    }

    #[test]
    fn yaml_numbers_as_keys_and_ordinary_aliases_are_read() {
        let text = "base: &b {type: string}\nresponses:\n  200: *b\n  default: {}\n";
        let Ok(Input::Document(value)) = read(text.as_bytes(), "in") else { panic!("not read") };
        assert_eq!(value["responses"]["200"]["type"], "string");
    }

    #[test]
    fn ndjson_names_the_line_of_the_file() {
        let text = "\u{feff}{\"name\":\"a\"}\r\n\n{\"name\":}\n{\"name\":\"b\"}\n";
        let Ok(Input::Lines(lines)) = read(text.as_bytes(), "in") else { panic!("no lines") };
        assert_eq!(
            lines.iter().map(|line| (line.number, line.value.is_ok())).collect::<Vec<_>>(),
            [(1, true), (3, false), (4, true)]
        );
        let message = lines[1].value.as_ref().unwrap_err().to_string();
        assert!(message.starts_with("in:3:9: malformed JSON"), "{message}");
    }
}
