//! A client's own search for tools, for providers that have none: the model sees the tools that the
//! client has found, and texts in place of references to them.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::wire::json::{self, Fields};

/// The type of a block that refers to a tool.
const REFERENCE: &str = "tool_reference";

/// The request with the deferred tools that it refers to, and without the others; `None` where it
/// has none.
pub fn translated(dialect: Dialect, request: &Fields) -> Option<Bytes> {
    // References are blocks of Anthropic's messages.
    if dialect != Dialect::Messages {
        return None;
    }
    let tools = json::items(request.get("tools")?)?;
    let mut messages = request.value("messages")?;
    let (mut named, mut has_changed) = (BTreeSet::new(), false);
    for message in messages.as_array_mut()? {
        let blocks = message.get_mut("content").and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten() {
            // A tool that was called stays, however it was found.
            if block["type"] == "tool_use"
                && let Some(name) = block["name"].as_str()
            {
                named.insert(name.to_owned());
            }
            if block["type"] == "tool_result"
                && let Some(content) = block.get_mut("content").and_then(Value::as_array_mut)
            {
                has_changed |= replace_references(content, &mut named);
            }
        }
    }
    let choice = request.value("tool_choice").unwrap_or_default();
    named.extend(choice["name"].as_str().map(str::to_owned));
    let mut shown = Vec::with_capacity(tools.len());
    for tool in tools {
        let mut fields = Fields::read(&tool)?;
        let Some(is_deferred) = fields.flag("defer_loading") else {
            shown.push(tool);
            continue;
        };
        has_changed = true;
        let name = fields.text("name").unwrap_or_default();
        if !is_deferred || named.contains(&name) {
            fields.remove("defer_loading");
            shown.push(fields.to_json());
        }
    }
    if !has_changed {
        return None;
    }
    let mut translated = request.clone();
    translated.set("tools", json::list(&shown));
    translated.set("messages", json::bytes(&messages));
    Some(translated.to_json())
}

/// Writes the references of a result as one text, and notes what they name. Returns whether there
/// were any.
fn replace_references(content: &mut Vec<Value>, named: &mut BTreeSet<String>) -> bool {
    let mut found = Vec::new();
    content.retain(|block| {
        let is_reference = block["type"] == REFERENCE;
        if is_reference && let Some(name) = block["tool_name"].as_str() {
            found.push(name.to_owned());
        }
        !is_reference
    });
    if found.is_empty() {
        return false;
    }
    let text = format!("These tools can be called now: {}", found.join(", "));
    content.push(json!({ "type": "text", "text": text }));
    named.extend(found);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(request: &Value) -> Option<Value> {
        let fields = Fields::read(&json::bytes(request)).unwrap();
        let translated = translated(Dialect::Messages, &fields)?;
        Some(serde_json::from_slice(&translated).unwrap())
    }

    fn tool(name: &str, defer_loading: Value) -> Value {
        let mut tool = json!({ "name": name, "input_schema": { "type": "object" } });
        if !defer_loading.is_null() {
            tool["defer_loading"] = defer_loading;
        }
        tool
    }

    #[test]
    fn found_tools_are_shown_and_references_are_texts() {
        let result = json!({ "type": "tool_result", "tool_use_id": "1", "content": [
            { "type": "tool_reference", "tool_name": "b" }, { "type": "tool_reference", "tool_name": "gone" } ] });
        let request = json!({ "model": "m", "max_tokens": 5,
            "tools": [tool("ToolSearch", Value::Null), tool("a", json!(true)), tool("b", json!(true)),
                tool("c", json!(false)), tool("d", json!(true))],
            "messages": [{ "role": "user", "content": "q" },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": "0", "name": "d", "input": {} }] },
                { "role": "user", "content": [result] }] });
        let translated = of(&request).unwrap();
        let names: Vec<&Value> = translated["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| &tool["name"])
            .collect();
        assert_eq!(names, ["ToolSearch", "b", "c", "d"]);
        assert!(!translated.to_string().contains("defer_loading"));
        let content = &translated["messages"][2]["content"][0]["content"];
        assert_eq!(
            content,
            &json!([{ "type": "text", "text": "These tools can be called now: b, gone" }])
        );
        assert_eq!(translated["max_tokens"], 5);
    }

    #[test]
    fn a_request_without_marks_and_references_is_left_alone() {
        let request = json!({ "tools": [tool("a", Value::Null)], "messages": [{ "role": "user", "content": "q" }] });
        assert_eq!(of(&request), None);
        assert_eq!(of(&json!({ "tools": 1, "messages": [] })), None);
    }
}
