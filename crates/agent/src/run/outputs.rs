//! Long results of a run, kept so that the model can read on where they were cut.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use toolscout_base::printable::excerpt;
use toolscout_gate::llm::ToolSpec;
use toolscout_gate::tools::{Arguments, cut};

/// The name of the tool that reads on.
pub const READ_MORE: &str = "read_more";
/// Most results that are kept; the oldest are dropped first.
const MAX_OUTPUTS: usize = 8;
/// Most bytes of all that are kept.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Bytes before a match that are shown with it.
const BEFORE_MATCH: usize = 500;

/// The results that were cut, oldest first.
#[derive(Clone, Debug, Default)]
pub struct LongOutputs {
    kept: VecDeque<LongOutput>,
    /// How many there were in all, which numbers them.
    count: usize,
}

#[derive(Clone, Debug)]
struct LongOutput {
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
            "from": { "type": "integer", "minimum": 0, "description": "The first byte, 0 if left out." },
            "find": { "type": "string", "description": "Go to the next place after `from` with exactly this text." },
        },
        "required": ["output"],
    });
    let description = "Reads on in a result that was too long to be shown whole.";
    ToolSpec::new(READ_MORE, description, parameters)
}

impl LongOutputs {
    /// True until a result was cut.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps a result and returns its first page of at most this many bytes. A result that is too
    /// long to be kept is cut for good.
    pub fn keep(&mut self, source: &str, text: String, page_bytes: usize) -> String {
        if text.len() > MAX_KEPT_BYTES {
            return cut(text, page_bytes);
        }
        self.count += 1;
        let output = LongOutput {
            name: format!("output_{}", self.count),
            source: source.to_owned(),
            text: text.into(),
        };
        let page = output.page(0, page_bytes);
        self.kept.push_back(output);
        while self.kept.len() > MAX_OUTPUTS || self.bytes() > MAX_KEPT_BYTES {
            self.kept.pop_front();
        }
        page
    }

    /// The part that the model asks for.
    ///
    /// # Errors
    /// A message for the model.
    pub fn read(&self, arguments: &Arguments, page_bytes: usize) -> Result<Page, String> {
        let name = arguments
            .get("output")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let Some(output) = self.kept.iter().find(|output| output.name == name) else {
            let kept: Vec<&str> = self
                .kept
                .iter()
                .map(|output| output.name.as_str())
                .collect();
            return Err(format!(
                "there is no output {:?} any more; there are {}; else call the tool again",
                excerpt(name, 50),
                kept.join(", ")
            ));
        };
        let from = arguments.get("from").and_then(Value::as_u64).unwrap_or(0);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let all = output.text.len();
        if from >= all {
            return Err(format!("{name} has {all} bytes; `from` must be less"));
        }
        let mut from = output.text.floor_char_boundary(from);
        if let Some(wanted) = arguments.get("find").and_then(Value::as_str) {
            let found = output.text[from..].find(wanted).ok_or_else(|| {
                format!(
                    "{:?} is not in {name} after byte {from}",
                    excerpt(wanted, 100)
                )
            })?;
            from = output
                .text
                .floor_char_boundary((from + found).saturating_sub(BEFORE_MATCH).max(from));
        }
        Ok(Page {
            source: output.source.clone(),
            text: output.page(from, page_bytes),
        })
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|output| output.text.len()).sum()
    }
}

impl LongOutput {
    /// The part from a byte on, which begins a character.
    fn page(&self, from: usize, bytes: usize) -> String {
        let (name, all) = (&self.name, self.text.len());
        let end = self.text.floor_char_boundary(from.saturating_add(bytes));
        // At least one character, or the model would read the same page again and again.
        let end = end.max(self.text.ceil_char_boundary(from + 1));
        let part = &self.text[from..end];
        if end == all {
            return format!("{part}\n[bytes {from} to {end}, the end of {name}]");
        }
        format!(
            "{part}\n[truncated: bytes {from} to {end} of {all}; {READ_MORE} with {{\"output\": \"{name}\", \"from\": {end}}} goes on, \"find\" goes to a text]"
        )
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
        let mut outputs = LongOutputs::default();
        let mut page = outputs.keep("a/tool", text.clone(), 100);
        assert!(
            page.contains("read_more with {\"output\": \"output_1\", \"from\": "),
            "{page}"
        );
        let mut read = body(&page).to_owned();
        while !page.ends_with("the end of output_1]") {
            let next = outputs.read(
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
        let mut outputs = LongOutputs::default();
        outputs.keep(
            "a/tool",
            format!("{}needle{}needle", "x".repeat(9_000), "y".repeat(9_000)),
            10,
        );
        let find = |from: usize| {
            let wanted = json!({ "output": "output_1", "from": from, "find": "needle" });
            outputs.read(&arguments(wanted), 600)
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
    fn outputs_are_bounded_and_those_dropped_are_named() {
        let mut outputs = LongOutputs::default();
        for n in 0..20 {
            outputs.keep("a/tool", n.to_string().repeat(3 << 20), 10);
        }
        assert!(outputs.bytes() <= MAX_KEPT_BYTES && !outputs.kept.is_empty());
        let error = outputs
            .read(&arguments(json!({ "output": "output_1" })), 10)
            .unwrap_err();
        assert!(
            error.contains("no output \"output_1\" any more; there are output_"),
            "{error}"
        );
        let past = outputs.read(
            &arguments(json!({ "output": "output_20", "from": u64::MAX })),
            10,
        );
        assert!(past.unwrap_err().contains("`from` must be less"));
        let whole = outputs.keep("a/tool", "z".repeat(50 << 20), 10);
        assert!(
            whole.ends_with(
                "[truncated: 52428800 bytes in all, the first 10 are shown; ask for less]"
            ),
            "{whole}"
        );
    }
}
