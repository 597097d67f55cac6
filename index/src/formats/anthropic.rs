//! Anthropic: client tools, and references to deferred ones.

use serde_json::{Map, Value, json};

use super::write_back;
use crate::tool::Tool;

/// The fields that the API accepts besides name, description and schema; it rejects others.
const FIELDS: [&str; 6] = [
    "cache_control",
    "defer_loading",
    "strict",
    "input_examples",
    "allowed_callers",
    "eager_input_streaming",
];

/// A client tool.
pub(super) fn tool(tool: &Tool, name: &str) -> Value {
    let mut fields = Map::new();
    if tool.metadata.get("type").and_then(Value::as_str) == Some("custom") {
        fields.insert("type".into(), "custom".into());
    }
    fields.insert("name".into(), name.into());
    fields.insert("description".into(), tool.shown_description().into());
    fields.insert("input_schema".into(), tool.shown_input_schema().into());
    write_back(tool, &FIELDS, &mut fields);
    Value::Object(fields)
}

/// A content block in a tool search result that loads one deferred tool.
pub(super) fn reference(name: &str) -> Value {
    json!({ "type": "tool_reference", "tool_name": name })
}

#[cfg(test)]
mod tests {
    use super::super::{Emit, Format, ReadOptions, emit, parse};
    use super::*;

    #[test]
    fn every_field_of_the_api_comes_back() {
        let input = json!([{"type": "custom", "name": "send", "description": "Sends.",
            "input_schema": {"type": "object", "properties": {}},
            "cache_control": {"type": "ephemeral"}, "defer_loading": true, "strict": false,
            "input_examples": [{}], "allowed_callers": ["direct"], "eager_input_streaming": true}]);
        let parsed = parse(input.to_string().as_bytes(), &ReadOptions::default()).unwrap();
        assert_eq!(parsed.format, Format::Anthropic);
        assert_eq!(emit(&[&parsed.tools[0]], Emit::Anthropic), input);
        assert_eq!(
            emit(&[&parsed.tools[0]], Emit::AnthropicReference),
            json!([{"type": "tool_reference", "tool_name": "send"}])
        );
    }

    #[test]
    fn fields_of_other_formats_stay_out() {
        let mut other = Tool::new("s", "t").unwrap();
        other.metadata.insert("_meta".into(), json!({"a": 1}));
        other.metadata.insert("type".into(), "function".into());
        let written = tool(&other, "t");
        let fields: Vec<&String> = written.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["name", "description", "input_schema"]);
    }
}
