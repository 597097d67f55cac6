//! A tool on one line, for people, and for models that choose a tool before they load its schema.

use serde_json::{Map, Value};

use super::cut;
use crate::tool::Tool;

/// Parameters shown; 99% of public tools have fewer.
const MAX_PARAMETERS: usize = 16;
const MAX_ENUM_VALUES: usize = 4;
const MAX_VALUE_CHARS: usize = 24;
const MAX_NAME_CHARS: usize = 80;
const MAX_SUMMARY_CHARS: usize = 160;
/// Longest signature without the summary, in characters.
const MAX_CALL_CHARS: usize = 480;

/// `server/name(required: type, optional?: type = default) — first sentence`, at most 650
/// characters on one line.
pub fn signature(tool: &Tool) -> String {
    let call = call_signature(tool);
    match first_sentence(tool.shown_description()) {
        summary if summary.is_empty() => call,
        summary => format!("{call} — {summary}"),
    }
}

/// A tool's id and parameters in one line of bounded length, without its description.
pub fn call_signature(tool: &Tool) -> String {
    let call = format!(
        "{}({})",
        cut(tool.id.as_str(), MAX_NAME_CHARS),
        parameters(&tool.input_schema)
    );
    // Cut before lines are joined, so that no huge text is split into words.
    one_line(&cut(&call, MAX_CALL_CHARS))
}

fn parameters(schema: &Map<String, Value>) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return String::new();
    };
    let required: Vec<&str> = match schema.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut shown = Vec::new();
    for (name, schema) in properties.iter().take(MAX_PARAMETERS) {
        let mark = match required.contains(&name.as_str()) {
            true => "",
            false => "?",
        };
        shown.push(parameter(name, mark, schema));
    }
    if properties.len() > MAX_PARAMETERS {
        shown.push(format!("… {} more", properties.len() - MAX_PARAMETERS));
    }
    shown.join(", ")
}

fn parameter(name: &str, mark: &str, schema: &Value) -> String {
    let default = match schema.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(value) => format!(" = {}", cut(&value.to_string(), MAX_VALUE_CHARS)),
    };
    format!(
        "{}{mark}: {}{default}",
        cut(name, MAX_NAME_CHARS),
        type_name(schema)
    )
}

fn type_name(schema: &Value) -> String {
    if let Some(Value::Array(values)) = schema.get("enum") {
        return enumeration(values);
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => match schema.get("items").map(plain_type) {
            Some(item) => format!("{item}[]"),
            None => "array".to_owned(),
        },
        _ => plain_type(schema),
    }
}

fn plain_type(schema: &Value) -> String {
    match schema.get("type") {
        Some(Value::String(name)) => cut(name, MAX_VALUE_CHARS),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names
                .iter()
                .filter_map(Value::as_str)
                .take(MAX_ENUM_VALUES)
                .collect();
            names.join("|")
        }
        _ if schema.get("properties").is_some() => "object".to_owned(),
        _ => "any".to_owned(),
    }
}

fn enumeration(values: &[Value]) -> String {
    let mut shown = Vec::new();
    for value in values.iter().take(MAX_ENUM_VALUES) {
        shown.push(cut(&value.to_string(), MAX_VALUE_CHARS));
    }
    if values.len() > MAX_ENUM_VALUES {
        shown.push("…".to_owned());
    }
    shown.join("|")
}

/// The text up to the first full stop that ends a word, or the end of the first line. CJK full
/// stops count too. At most 160 characters.
pub fn first_sentence(text: &str) -> String {
    let text = text.trim();
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let mut end = paragraph.len();
    // A sentence that ends later is cut anyway.
    for (at, c) in paragraph.char_indices().take(MAX_SUMMARY_CHARS) {
        let after = at + c.len_utf8();
        let rest = &paragraph[after..];
        // An abbreviation ends it too: knowing them takes a list for every language.
        let is_end = match c {
            '。' | '！' | '？' => true,
            '.' | '!' | '?' => rest.is_empty() || rest.starts_with(char::is_whitespace),
            _ => false,
        };
        if is_end {
            end = after;
            break;
        }
    }
    cut(&one_line(&paragraph[..end]), MAX_SUMMARY_CHARS)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_types_defaults_and_the_first_sentence() {
        let mut tool = Tool::new("mail", "send")
            .unwrap()
            .with_description("Sends e.g. a\nletter. More text.");
        tool.input_schema = match json!({"properties": {
            "to": {"type": "array", "items": {"type": "string"}},
            "format": {"enum": ["plain", "html"], "default": "plain"},
            "size": {"type": ["integer", "null"]}, "extra": true
        }, "required": ["to"]})
        {
            Value::Object(schema) => schema,
            _ => unreachable!(),
        };
        let expected = "mail/send(to: string[], format?: \"plain\"|\"html\" = \"plain\", size?: integer|null, \
                        extra?: any) — Sends e.g.";
        assert_eq!(signature(&tool), expected);
        assert_eq!(first_sentence("查询天气。再说"), "查询天气。");
    }

    #[test]
    fn stays_short_and_on_one_line_whatever_the_tool() {
        let mut tool = Tool::new("s", &"n".repeat(500))
            .unwrap()
            .with_description("word\n".repeat(10_000));
        let properties = (0..1000).map(|i| {
            (
                "p\n".repeat(200) + &i.to_string(),
                json!({"enum": vec!["v"; 100]}),
            )
        });
        tool.input_schema
            .insert("properties".into(), Value::Object(properties.collect()));
        let line = signature(&tool);
        assert!(
            line.chars().count() <= 650 && !line.contains('\n'),
            "{line}"
        );
    }
}
