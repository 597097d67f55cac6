//! Long results of calls, kept so that a model can read on where they were cut.

mod part;
mod shape;

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use toolscout_base::printable::excerpt;
use uuid::Uuid;

use crate::llm::ToolSpec;
use crate::tools::{Arguments, cut};

/// The name of the tool that reads on.
pub const READ_MORE: &str = "read_more";
/// Most results that are kept; the oldest are dropped first.
const MAX_RESULTS: usize = 8;
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
    source: String,
    text: Arc<str>,
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
            "find": { "type": "string", "description": "Go to the next place after `from` with exactly this text." },
            "from": { "type": "integer", "minimum": 0, "description": "The first byte, 0 if left out." },
        },
        "required": ["output"],
    });
    let description =
        "Reads on in a result that was too long to be shown whole, or selects a part of it.";
    ToolSpec::new(READ_MORE, description, parameters)
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
        self.kept.iter().map(|result| result.text.len()).sum()
    }

    /// Keeps a result and returns its first page of at most this many bytes, with a note that says
    /// what is in the result. A result that is too long to be kept is cut for good.
    pub fn keep(&mut self, source: &str, text: String, page_bytes: usize) -> String {
        if text.len() > MAX_KEPT_BYTES {
            return cut(text, page_bytes);
        }
        self.count += 1;
        let result = LongResult {
            name: match self.has_secret_names {
                true => format!("output_{}", Uuid::new_v4().simple()),
                false => format!("output_{}", self.count),
            },
            source: source.to_owned(),
            text: text.into(),
        };
        let page = self.page(&result.name, "", &result.text, 0, page_bytes);
        let page = match shape::of_json(&result.text) {
            Some(shape) => with_shape(&page, &shape),
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
    /// A message for the model.
    pub fn read(&self, arguments: &Arguments, page_bytes: usize) -> Result<Page, String> {
        let result = self.named(arguments)?;
        let name = &result.name;
        let (selected, whole) = match part::Part::of(arguments)? {
            Some(part) => {
                let of_result: Value = serde_json::from_str(&result.text)
                    .map_err(|_| format!("{name} is not JSON; read it with `from` and `find`"))?;
                (part.arguments(), part.select(&of_result)?)
            }
            None => (String::new(), result.text.to_string()),
        };
        let from = arguments.get("from").and_then(Value::as_u64).unwrap_or(0);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let all = whole.len();
        // What is selected may be empty, as the list of no elements is.
        if from >= all && from > 0 {
            return Err(format!("{name} has {all} bytes; `from` must be less"));
        }
        let mut from = whole.floor_char_boundary(from);
        if let Some(wanted) = arguments.get("find").and_then(Value::as_str) {
            let found = whole[from..].find(wanted).ok_or_else(|| {
                format!(
                    "{:?} is not in {name} after byte {from}",
                    excerpt(wanted, 100)
                )
            })?;
            from = whole.floor_char_boundary((from + found).saturating_sub(BEFORE_MATCH).max(from));
        }
        Ok(Page {
            source: result.source.clone(),
            text: self.page(name, &selected, &whole, from, page_bytes),
        })
    }

    /// The part of a text from a byte on, which begins a character, with a note. `selected` are the
    /// arguments that selected the text, each with a comma after it.
    fn page(&self, name: &str, selected: &str, text: &str, from: usize, bytes: usize) -> String {
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
        let others = match selected {
            "" => {
                ", \"find\": \"TEXT\" goes to a text, \"select\": \"/items/*\" and \"fields\": [\"id\"] give a part of JSON"
            }
            _ => "",
        };
        format!("{part}\n[truncated: bytes {from} to {end} of {all}; {next} goes on{others}]")
    }

    fn named(&self, arguments: &Arguments) -> Result<&LongResult, String> {
        let name = arguments.get("output").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        if let Some(result) = self.kept.iter().find(|result| result.name == name) {
            return Ok(result);
        }
        let name = excerpt(name, 50);
        let kept: Vec<&str> = self
            .kept
            .iter()
            .map(|result| result.name.as_str())
            .collect();
        Err(match kept.is_empty() {
            true => format!("there is no output {name:?}; call the tool again"),
            false if self.has_secret_names => {
                format!("there is no output {name:?} any more; call the tool again")
            }
            false => format!(
                "there is no output {name:?} any more; there are {}; else call the tool again",
                kept.join(", ")
            ),
        })
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

    fn body(page: &str) -> &str {
        page.rsplit_once("\n[").unwrap().0
    }

    #[test]
    fn all_pages_together_are_the_result() {
        let text: String = (0..400).map(|n| format!("é{n} ")).collect();
        let mut results = LongResults::default();
        let mut page = results.keep("a/tool", text.clone(), 100);
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
        results.keep(
            "a/tool",
            format!("{}needle{}needle", "x".repeat(9_000), "y".repeat(9_000)),
            10,
        );
        let find = |from: usize| {
            let wanted = json!({ "output": "output_1", "from": from, "find": "needle" });
            results.read(&arguments(wanted), 600)
        };
        assert!(find(0).unwrap().text.contains("xneedle"));
        assert!(find(9_001).unwrap().text.contains("yneedle"));
        assert!(
            find(18_007)
                .unwrap_err()
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
        let first = results.keep("a/tool", text, 300);
        let (rest, note) = first.rsplit_once('\n').unwrap();
        let shape =
            "[shape: {items: [200 of {id: number, title: string, body: string}], total: number}]";
        assert!(rest.ends_with(shape), "{first}");
        let next = r#"call_tool with {"name": "read_more", "arguments": {"output": "output_1", "from": 300}} goes on"#;
        assert!(note.contains(next), "{note}");

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

        results.keep("a/tool", "plain ".repeat(100), 300);
        let part = json!({ "output": "output_2", "select": "/items" });
        let error = results.read(&arguments(part), 300).unwrap_err();
        assert_eq!(
            error,
            "output_2 is not JSON; read it with `from` and `find`"
        );
    }

    #[test]
    fn secret_names_are_not_told() {
        let mut results = LongResults::default().with_secret_names();
        let page = results.keep("a/tool", "x".repeat(100), 10);
        let name = page
            .split('"')
            .find(|text| text.starts_with("output_"))
            .unwrap();
        assert_eq!(name.len(), "output_".len() + 32, "{page}");
        let read = |name: &str| results.read(&arguments(json!({ "output": name })), 10);
        let wrong = read("output_1").unwrap_err();
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
            results.keep("a/tool", n.to_string().repeat(3 << 20), 10);
        }
        assert!(results.bytes() <= MAX_KEPT_BYTES && !results.kept.is_empty());
        let error = results
            .read(&arguments(json!({ "output": "output_1" })), 10)
            .unwrap_err();
        assert!(
            error.contains("no output \"output_1\" any more; there are output_"),
            "{error}"
        );
        let past = results.read(
            &arguments(json!({ "output": "output_20", "from": u64::MAX })),
            10,
        );
        assert!(past.unwrap_err().contains("`from` must be less"));
        let whole = results.keep("a/tool", "z".repeat(50 << 20), 10);
        assert!(
            whole.ends_with(
                "[truncated: 52428800 bytes in all, the first 10 are shown; ask for less]"
            ),
            "{whole}"
        );
    }
}
