//! Long results of calls, kept so that a model can read on where they were cut.

mod error;
mod part;
mod shape;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use toolscout_base::printable::excerpt;
use toolscout_index::Tool;
use uuid::Uuid;

pub use self::error::ReadMoreError;
use crate::llm::ToolSpec;
use crate::tools::{Arguments, cut};

/// The name of the tool that reads on.
pub const READ_MORE: &str = "read_more";
/// Most results that are kept; the oldest are dropped first.
const MAX_RESULTS: usize = 32;
/// Most bytes of all that are kept.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Bytes before a match that are shown with it.
const BEFORE_MATCH: usize = 500;

/// The results that were cut, oldest first.
#[derive(Clone, Debug, Default)]
pub struct LongResults {
    kept: VecDeque<LongResult>,
    /// How many there were in all, which numbers them.
    count: usize,
    has_secret_names: bool,
    /// The tool through which the model calls the one that reads on, if it does not see that one.
    read_through: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct LongResult {
    name: String,
    long: LongText,
}

/// A long text, and what is in it. Making one reads the whole text.
#[derive(Clone, Debug)]
pub struct LongText {
    source: String,
    text: Arc<str>,
    /// Its keys, types and numbers of elements, if it is JSON.
    shape: Option<String>,
    /// The arguments that select its elements, if it is JSON.
    select: Option<String>,
}

/// A part of a long result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The tool that gave the result.
    pub source: String,
    /// The part, with a note that says how to go on.
    pub text: String,
}

/// The definition of the tool for a model.
pub fn read_more_spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "output": { "type": "string", "description": "The result's name, as the note at its end gives it." },
            "select": {
                "type": "string",
                "description": "A part of a result in JSON, as a JSON Pointer: `/items/3/title`. `*` stands for every element \
                                (`/items/*/title`), and `20:40` for elements 20 to 39.",
            },
            "fields": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Only these fields of the selected objects.",
            },
            "find": { "type": "string", "description": "Go to the next place after `from` with exactly this text, in this case." },
            "from": { "type": "integer", "minimum": 0, "description": "The first byte, 0 if left out." },
            "bytes": { "type": "integer", "minimum": 1, "description": "How many bytes; as many as are shown at once if left out." },
        },
        "required": ["output"],
    });
    let description =
        "Reads on in a result that was too long to be shown whole, or selects a part of it.";
    ToolSpec::new(READ_MORE, description, parameters)
}

/// The same as a tool that is described to clients.
pub fn read_more_tool() -> Tool {
    let spec = read_more_spec();
    let mut tool = Tool::new("", READ_MORE).expect("the name is valid");
    tool.input_schema = spec.parameters;
    tool.annotations.read_only_hint = Some(true);
    tool.with_description(spec.description)
}

impl LongText {
    /// The text of a tool's result.
    pub fn of(source: &str, text: String) -> Self {
        // A longer one is not kept.
        let value = match text.len() > MAX_KEPT_BYTES {
            true => None,
            false => json_of(&text),
        };
        LongText {
            source: source.to_owned(),
            text: text.into(),
            shape: value.as_ref().map(shape::of),
            select: value.as_ref().map(example_of_selection),
        }
    }
}

impl LongResults {
    /// With names that nobody can guess, for results of several readers who may not read each other's.
    pub fn with_secret_names(mut self) -> Self {
        self.has_secret_names = true;
        self
    }

    /// With notes for a model that calls [`READ_MORE`] through this tool.
    pub fn read_through(mut self, tool: &'static str) -> Self {
        self.read_through = Some(tool);
        self
    }

    /// True until a result was cut.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the results that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|result| result.long.text.len()).sum()
    }

    /// Keeps a result and returns its first page of at most this many bytes, with a note that says
    /// what is in the result. A result that is too long to be kept is cut for good.
    pub fn keep(&mut self, long: LongText, page_bytes: usize) -> String {
        if long.text.len() > MAX_KEPT_BYTES {
            return cut(long.text.to_string(), page_bytes);
        }
        self.count += 1;
        let name = match self.has_secret_names {
            true => format!("output_{}", Uuid::new_v4().simple()),
            false => format!("output_{}", self.count),
        };
        let result = LongResult { name, long };
        let LongText { text, shape, .. } = &result.long;
        let page = self.page(&result, "", text, 0, page_bytes);
        let page = match shape {
            Some(shape) => with_shape(&page, shape),
            None => page,
        };
        self.kept.push_back(result);
        while self.kept.len() > MAX_RESULTS || self.bytes() > MAX_KEPT_BYTES {
            self.kept.pop_front();
        }
        page
    }

    /// The part that the model asks for.
    ///
    /// # Errors
    /// [`ReadMoreError`].
    pub fn read(&self, arguments: &Arguments, page_bytes: usize) -> Result<Page, ReadMoreError> {
        let result = self.named(arguments)?;
        let name = &result.name;
        let (selected, whole) = match part::Part::of(arguments)? {
            Some(part) => {
                let Some(of_result) = json_of(&result.long.text) else {
                    return Err(ReadMoreError::NotJson(name.clone()));
                };
                (part.arguments(), Cow::from(part.select(&of_result)?))
            }
            None => (String::new(), Cow::from(&*result.long.text)),
        };
        let known = ["output", "select", "fields", "find", "from", "bytes"];
        if let Some(unknown) = arguments.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(ReadMoreError::Argument {
                given: excerpt(unknown, 50),
                known: known.join(", "),
            });
        }
        let from = number(arguments, "from")?.unwrap_or(0);
        let bytes = number(arguments, "bytes")?.unwrap_or(page_bytes);
        let bytes = bytes.min(page_bytes);
        let all = whole.len();
        // What is selected may be empty, as the list of no elements is.
        if from >= all && from > 0 {
            return Err(ReadMoreError::PastEnd {
                name: name.clone(),
                bytes: all,
            });
        }
        let mut from = whole.floor_char_boundary(from);
        if let Some(wanted) = arguments.get("find").and_then(Value::as_str) {
            let Some(found) = whole[from..].find(wanted) else {
                return Err(ReadMoreError::NotFound {
                    wanted: excerpt(wanted, 100),
                    name: name.clone(),
                    from,
                });
            };
            // In a short part, the match itself has to be shown.
            let before = BEFORE_MATCH.min(bytes / 4);
            from = whole.floor_char_boundary((from + found).saturating_sub(before).max(from));
        }
        Ok(Page {
            source: result.long.source.clone(),
            text: self.page(result, &selected, &whole, from, bytes),
        })
    }

    /// The part of a text from a byte on, which begins a character, with a note. `selected` are the
    /// arguments that selected the text, each with a comma after it.
    fn page(
        &self,
        result: &LongResult,
        selected: &str,
        text: &str,
        from: usize,
        bytes: usize,
    ) -> String {
        let name = &result.name;
        let all = text.len();
        let end = text.floor_char_boundary(from.saturating_add(bytes));
        // At least one character, or the model would read the same page again and again.
        let end = end.max(text.ceil_char_boundary(all.min(from + 1)));
        let part = &text[from..end];
        let of_selection = if selected.is_empty() {
            ""
        } else {
            "the selection of "
        };
        if end == all {
            return format!("{part}\n[bytes {from} to {end}, the end of {of_selection}{name}]");
        }
        let next = format!("{{\"output\": \"{name}\", {selected}\"from\": {end}}}");
        let next = match self.read_through {
            Some(tool) => {
                format!("{tool} with {{\"name\": \"{READ_MORE}\", \"arguments\": {next}}}")
            }
            None => format!("{READ_MORE} with {next}"),
        };
        let others = match (selected, &result.long.select) {
            ("", Some(select)) => {
                format!(", \"find\": \"TEXT\" goes to a text, {select} selects a part")
            }
            _ => ", \"find\": \"TEXT\" goes to a text".to_owned(),
        };
        format!("{part}\n[truncated: bytes {from} to {end} of {all}; {next} goes on{others}]")
    }

    fn named(&self, arguments: &Arguments) -> Result<&LongResult, ReadMoreError> {
        let Some(name) = arguments.get("output").and_then(Value::as_str) else {
            return Err(ReadMoreError::NoOutput);
        };
        if let Some(result) = self.kept.iter().find(|result| result.name == name) {
            return Ok(result);
        }
        let name = excerpt(name, 50);
        let kept = self.kept.iter().map(|result| result.name.as_str());
        let kept: Vec<&str> = kept.collect();
        Err(match kept.is_empty() {
            true => ReadMoreError::NothingKept(name),
            false if self.has_secret_names => ReadMoreError::Gone(name),
            false => ReadMoreError::GoneBeside {
                name,
                kept: kept.join(", "),
            },
        })
    }
}

/// The value of a text in JSON with parts, or of lines of JSON.
fn json_of(text: &str) -> Option<Value> {
    // Most texts are none, and are not read whole to find out.
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut values = Vec::new();
    for line in text.lines() {
        if !line.trim().is_empty() {
            values.push(serde_json::from_str(line).ok()?);
        }
    }
    (values.len() > 1).then_some(Value::Array(values))
}

/// The arguments that select every element of a value, as an example.
fn example_of_selection(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("\"select\": \"/*\"{}", example_of_fields(items)),
        Value::Object(fields) => {
            // A list is most often what is long about a result.
            let list = fields.iter().find(|(_, value)| value.is_array());
            let (name, several, items) = match list.or(fields.iter().next()) {
                Some((name, Value::Array(items))) => (name.as_str(), "/*", items.as_slice()),
                Some((name, _)) => (name.as_str(), "", [].as_slice()),
                None => ("", "", [].as_slice()),
            };
            let name = excerpt(name, 50).replace('~', "~0").replace('/', "~1");
            let pointer = json!(format!("/{name}{several}"));
            format!("\"select\": {pointer}{}", example_of_fields(items))
        }
        _ => "\"select\": \"\"".to_owned(),
    }
}

fn example_of_fields(items: &[Value]) -> String {
    if let Some(Value::Object(fields)) = items.first()
        && let Some(field) = fields.keys().next()
    {
        return format!(", \"fields\": [{}]", json!(excerpt(field, 50)));
    }
    String::new()
}

/// A number of bytes. Models also write numbers as texts.
fn number(arguments: &Arguments, name: &'static str) -> Result<Option<usize>, ReadMoreError> {
    let given = match arguments.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => Some(whole),
            // Models write `100.0` too.
            (None, Some(number)) if number.fract() == 0.0 && number >= 0.0 => Some(number as u64),
            _ => None,
        },
        Some(_) => None,
    };
    let given = given.and_then(|number| usize::try_from(number).ok());
    match given {
        Some(number) => Ok(Some(number)),
        None => Err(ReadMoreError::Bytes(name)),
    }
}

/// The page with a line about the shape of the whole result before its note.
fn with_shape(page: &str, shape: &str) -> String {
    match page.rsplit_once('\n') {
        Some((part, note)) => format!("{part}\n[shape: {shape}]\n{note}"),
        None => page.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Arguments {
        value.as_object().unwrap().clone()
    }

    fn keep(results: &mut LongResults, text: impl Into<String>, page_bytes: usize) -> String {
        results.keep(LongText::of("a/tool", text.into()), page_bytes)
    }

    fn body(page: &str) -> &str {
        page.rsplit_once("\n[").unwrap().0
    }

    #[test]
    fn all_pages_together_are_the_result() {
        let text: String = (0..400).map(|n| format!("é{n} ")).collect();
        let mut results = LongResults::default();
        let mut page = keep(&mut results, text.clone(), 100);
        assert!(
            page.contains("read_more with {\"output\": \"output_1\", \"from\": "),
            "{page}"
        );
        let mut read = body(&page).to_owned();
        while !page.ends_with("the end of output_1]") {
            let next = results.read(
                &arguments(json!({ "output": "output_1", "from": read.len() })),
                100,
            );
            let next = next.unwrap();
            assert_eq!(next.source, "a/tool");
            page = next.text;
            read.push_str(body(&page));
        }
        assert_eq!(read, text);
    }

    #[test]
    fn a_text_is_found_after_a_place() {
        let mut results = LongResults::default();
        keep(
            &mut results,
            format!("{}needle{}needle", "x".repeat(9_000), "y".repeat(9_000)),
            10,
        );
        let find = |from: usize| {
            let wanted = json!({ "output": "output_1", "from": from, "find": "needle" });
            results.read(&arguments(wanted), 600)
        };
        assert!(find(0).unwrap().text.contains("xneedle"));
        let short = json!({ "output": "output_1", "find": "needle", "bytes": 40 });
        let short = results.read(&arguments(short), 600).unwrap().text;
        assert!(short.starts_with("xxxxxxxxxxneedley"), "{short}");
        assert!(find(9_001).unwrap().text.contains("yneedle"));
        assert!(
            find(18_007)
                .unwrap_err()
                .to_string()
                .contains("is not in output_1 after byte 18007")
        );
    }

    #[test]
    fn a_result_in_json_shows_its_shape_and_gives_parts() {
        let items: Vec<Value> = (0..200)
            .map(|n| json!({ "id": n, "title": format!("title {n}"), "body": "x".repeat(100) }))
            .collect();
        let mut results = LongResults::default().read_through("call_tool");
        let text = json!({ "items": items, "total": 200 }).to_string();
        let first = keep(&mut results, text, 300);
        let (rest, note) = first.rsplit_once('\n').unwrap();
        let shape =
            "[shape: {items: [200 of {id: number, title: string, body: string}], total: number}]";
        assert!(rest.ends_with(shape), "{first}");
        let next = r#"call_tool with {"name": "read_more", "arguments": {"output": "output_1", "from": 300}} goes on"#;
        assert!(note.contains(next), "{note}");
        assert!(
            note.contains(r#""select": "/items/*", "fields": ["id"] selects a part"#),
            "{note}"
        );

        let select = |from: usize| {
            let part = json!({ "output": "output_1", "select": "/items/150:", "fields": ["id"], "from": from });
            results.read(&arguments(part), 300).unwrap().text
        };
        let page = select(0);
        assert!(page.starts_with("{\"id\":150}\n{\"id\":151}\n"), "{page}");
        let next =
            r#"{"output": "output_1", "select": "/items/150:", "fields": ["id"], "from": 300}"#;
        assert!(page.contains(next), "{page}");
        let end = select(300);
        assert!(
            end.ends_with("{\"id\":199}\n[bytes 300 to 549, the end of the selection of output_1]"),
            "{end}"
        );

        keep(&mut results, "plain ".repeat(100), 300);
        let part = json!({ "output": "output_2", "select": "/items" });
        let error = results.read(&arguments(part), 300).unwrap_err().to_string();
        assert_eq!(
            error,
            "output_2 is not JSON; read it with `from` and `find`"
        );
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let mut results = LongResults::default();
        keep(&mut results, "x".repeat(1_000), 100);
        let read = |given: Value| results.read(&arguments(given), 100);
        let page = read(json!({ "output": "output_1", "from": "300", "bytes": 20.0 })).unwrap();
        assert!(
            page.text.contains("bytes 300 to 320 of 1000"),
            "{}",
            page.text
        );
        for (given, expected) in [
            (
                json!({ "output": "output_1", "from": 1.5 }),
                "`from` must be a number of bytes",
            ),
            (
                json!({ "output": "output_1", "from": -1 }),
                "`from` must be a number of bytes",
            ),
            (
                json!({ "output": "output_1", "bytes": [1] }),
                "`bytes` must be a number of bytes",
            ),
            (
                json!({ "output": "output_1", "limit": 3 }),
                "there is no argument \"limit\"; there are output, ",
            ),
            (json!({ "from": 3 }), "give `output`, the name in the note"),
        ] {
            let error = read(given).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn lines_of_json_are_a_list() {
        let mut results = LongResults::default();
        let lines: String = (0..100).map(|n| format!("{{\"n\": {n}}}\n")).collect();
        let page = keep(&mut results, lines, 50);
        assert!(page.contains("[shape: [100 of {n: number}]]"), "{page}");
        assert!(
            page.contains(r#""select": "/*", "fields": ["n"] selects"#),
            "{page}"
        );
        let part = json!({ "output": "output_1", "select": "/98:/n" });
        assert!(
            results
                .read(&arguments(part), 50)
                .unwrap()
                .text
                .starts_with("98\n99\n")
        );
    }

    #[test]
    fn secret_names_are_not_told() {
        let mut results = LongResults::default().with_secret_names();
        let page = keep(&mut results, "x".repeat(100), 10);
        let name = page
            .split('"')
            .find(|text| text.starts_with("output_"))
            .unwrap();
        assert_eq!(name.len(), "output_".len() + 32, "{page}");
        let read = |name: &str| results.read(&arguments(json!({ "output": name })), 10);
        let wrong = read("output_1").unwrap_err().to_string();
        assert_eq!(
            wrong,
            "there is no output \"output_1\" any more; call the tool again"
        );
        assert!(read(name).is_ok());
    }

    #[test]
    fn outputs_are_bounded_and_those_dropped_are_named() {
        let mut results = LongResults::default();
        for n in 0..20 {
            keep(&mut results, n.to_string().repeat(3 << 20), 10);
        }
        assert!(results.bytes() <= MAX_KEPT_BYTES && !results.kept.is_empty());
        let error = results
            .read(&arguments(json!({ "output": "output_1" })), 10)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no output \"output_1\" any more; there are output_"),
            "{error}"
        );
        let past = results.read(
            &arguments(json!({ "output": "output_20", "from": u64::MAX })),
            10,
        );
        assert!(
            past.unwrap_err()
                .to_string()
                .contains("`from` must be less")
        );
        let whole = keep(&mut results, "z".repeat(50 << 20), 10);
        assert!(
            whole.ends_with(
                "[truncated: 52428800 bytes in all, the first 10 are shown; ask for less]"
            ),
            "{whole}"
        );
    }
}
