//! OpenAI: chat tools (nested) and Responses tools (flat).

use serde_json::{Map, Value, json};

use super::write_back;
use crate::tool::Tool;

/// Moves the fields of a nested function to the top level, where they replace fields of the same
/// name.
pub(super) fn flatten(mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.shift_remove("type");
    match fields.shift_remove("function") {
        Some(Value::Object(function)) => fields.extend(function),
        // Not a function: it stays and becomes metadata, as any unknown field.
        Some(other) => drop(fields.insert("function".into(), other)),
        None => {}
    }
    fields
}

/// A chat completions tool. `strict` is the only further field the API takes.
pub(super) fn chat(tool: &Tool, name: &str) -> Value {
    let mut function = function(tool, name);
    write_back(tool, &["strict"], &mut function);
    json!({ "type": "function", "function": function })
}

/// A Responses tool. The API takes a missing `strict` for true and then refuses most schemas, so it
/// is always written.
pub(super) fn responses(tool: &Tool, name: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("type".into(), "function".into());
    fields.extend(function(tool, name));
    fields.insert("strict".into(), false.into());
    write_back(tool, &["strict", "defer_loading"], &mut fields);
    Value::Object(fields)
}

fn function(tool: &Tool, name: &str) -> Map<String, Value> {
    let mut function = Map::new();
    function.insert("name".into(), name.into());
    function.insert("description".into(), tool.shown_description().into());
    function.insert("parameters".into(), tool.shown_input_schema().into());
    function
}

#[cfg(test)]
mod tests {
    use super::super::{Emit, Format, ReadOptions, emit, parse};
    use super::*;

    fn read(value: &Value) -> Vec<Tool> {
        let parsed = parse(value.to_string().as_bytes(), &ReadOptions::default()).unwrap();
        assert!(parsed.skipped.is_empty(), "{:?}", parsed.skipped);
        parsed.tools
    }

    #[test]
    fn strict_comes_back_inside_the_function_and_inside_the_flat_tool() {
        let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let nested = json!([{"type": "function", "function":
            {"name": "send", "description": "Sends.", "parameters": schema, "strict": true}}]);
        let flat = json!([{"type": "function", "name": "send", "description": "Sends.", "parameters": schema,
            "strict": true}]);
        let (from_nested, from_flat) = (read(&nested), read(&flat));
        assert_eq!(from_nested, from_flat);
        assert_eq!(emit(&[&from_flat[0]], Emit::Openai), nested);
        assert_eq!(emit(&[&from_nested[0]], Emit::OpenaiResponses), flat);
    }

    #[test]
    fn a_namespace_is_the_server_and_its_description_is_kept() {
        let input = json!([{"type": "namespace", "name": "crm", "description": "Customers.", "tools": [
            {"type": "function", "name": "find", "parameters": null, "defer_loading": true},
            {"type": "function", "name": "drop"}
        ]}]);
        let parsed = parse(input.to_string().as_bytes(), &ReadOptions::default()).unwrap();
        assert_eq!(parsed.format, Format::OpenaiResponses);
        let ids: Vec<&str> = parsed.tools.iter().map(|tool| tool.id.as_str()).collect();
        assert_eq!(ids, ["crm/find", "crm/drop"]);
        assert_eq!(
            parsed.tools[0].metadata["namespace"]["description"],
            "Customers."
        );
        assert_eq!(responses(&parsed.tools[0], "find")["defer_loading"], true);
    }
}
