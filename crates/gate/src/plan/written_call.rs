//! Calls that a model writes as JSON in its text, in the field names of many protocols. Pure.
//!
//! The arguments stand in a field of their own, or beside the tool's name: `{"tool": "get_weather",
//! "arguments": {"city": "Oslo"}}` and `{"tool": "get_weather", "city": "Oslo"}` are the same call.

use serde_json::{Map, Value};

/// Fields that name the tool, in the order in which they count: beside `tool`, a `name` is an argument.
const NAMES: [&str; 4] = ["tool", "tool_name", "action", "name"];
/// Fields that hold all arguments.
const CONTAINERS: [&str; 5] = ["arguments", "args", "parameters", "action_input", "input"];
/// Fields that are never arguments: what a model writes about the call.
const RESERVED: [&str; 4] = ["thought", "thinking", "reasoning", "final_answer"];

/// A call as a model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenCall {
    /// The tool's name.
    pub name: String,
    /// Its arguments: an object, null if there are none, or what the model gave in place of them.
    pub arguments: Value,
}

impl WrittenCall {
    /// Reads a call; `None` if no tool is named. `reserved` are further fields that are no arguments.
    pub fn of(fields: &Map<String, Value>, reserved: &[&str]) -> Option<Self> {
        let is_given = |key: &&str| !matches!(fields.get(*key), None | Some(Value::Null));
        let named_by = NAMES.into_iter().find(is_given)?;
        // The first name counts, whatever it is: a later field would be an argument.
        let name = fields[named_by].as_str()?.trim();
        if name.is_empty() {
            return None;
        }
        let is_reserved =
            |key: &str| key == named_by || RESERVED.contains(&key) || reserved.contains(&key);
        Some(WrittenCall {
            name: name.to_owned(),
            arguments: arguments_of(fields, is_reserved),
        })
    }
}

fn arguments_of(fields: &Map<String, Value>, is_reserved: impl Fn(&str) -> bool) -> Value {
    let mut held: Vec<&Value> = Vec::new();
    for key in CONTAINERS {
        if !is_reserved(key) {
            held.extend(fields.get(key));
        }
    }
    for value in &held {
        if holds_arguments(value) {
            return (*value).clone();
        }
    }
    let mut beside = Map::new();
    for (key, value) in fields {
        if !is_reserved(key) && !is_empty(key, value) {
            beside.insert(key.clone(), value.clone());
        }
    }
    // `args` may be an argument of a tool, but alone it is meant to be all of them.
    if beside.keys().all(|key| CONTAINERS.contains(&key.as_str())) {
        let given = held.into_iter().find(|value| !value.is_null());
        return given.cloned().unwrap_or_default();
    }
    Value::Object(beside)
}

/// True for an object with fields, also as a text of JSON.
fn holds_arguments(value: &Value) -> bool {
    match value {
        Value::Object(arguments) => !arguments.is_empty(),
        Value::String(text) => match text.trim_start().strip_prefix('{') {
            Some(rest) => rest.trim() != "}",
            None => false,
        },
        _ => false,
    }
}

/// True for a field of all arguments that holds none.
fn is_empty(key: &str, value: &Value) -> bool {
    CONTAINERS.contains(&key)
        && match value {
            Value::Null => true,
            Value::Object(arguments) => arguments.is_empty(),
            Value::String(text) => matches!(text.trim(), "" | "{}"),
            _ => false,
        }
}

/// Removes commas before closing brackets, outside strings.
pub fn without_trailing_commas(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if !in_string && matches!(c, '}' | ']') {
            let end = repaired.trim_end().len();
            if repaired[..end].ends_with(',') {
                repaired.truncate(end - 1);
            }
        }
        // A quote after a backslash does not end the string, unless the backslash is escaped
        // itself.
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
        repaired.push(c);
    }
    repaired
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(written: Value) -> Option<(String, Value)> {
        let call = WrittenCall::of(written.as_object().unwrap(), &["after"])?;
        Some((call.name, call.arguments))
    }

    #[test]
    fn arguments_beside_the_name_are_those_in_a_field_of_their_own() {
        let weather = Some((
            "get_weather".to_owned(),
            json!({ "city": "北京", "days": 2 }),
        ));
        for written in [
            json!({ "tool": "get_weather", "city": "北京", "days": 2 }),
            json!({ "action": "get_weather", "city": "北京", "days": 2, "thought": "hm" }),
            json!({ "name": "get_weather", "city": "北京", "days": 2, "arguments": {} }),
            json!({ "tool": "get_weather", "city": "北京", "days": 2, "args": null, "after": ["1"] }),
            json!({ "tool": "get_weather", "arguments": { "city": "北京", "days": 2 }, "id": "c1" }),
            json!({ "tool": "get_weather", "args": { "city": "北京", "days": 2 } }),
            json!({ "tool": "get_weather", "parameters": { "city": "北京", "days": 2 } }),
            json!({ "action": "get_weather", "action_input": { "city": "北京", "days": 2 } }),
        ] {
            assert_eq!(call(written.clone()), weather, "{written}");
        }
        assert_eq!(
            call(json!({ "tool": "查询天气", "城市": "北京", "日期": "明天" })),
            Some(("查询天气".into(), json!({ "城市": "北京", "日期": "明天" })))
        );
    }

    #[test]
    fn names_and_containers_can_be_arguments_themselves() {
        for (written, arguments) in [
            (
                json!({ "tool": "t", "name": "Ada", "action": "add" }),
                json!({ "name": "Ada", "action": "add" }),
            ),
            (
                json!({ "tool": "t", "command": "ls", "args": ["-l"] }),
                json!({ "command": "ls", "args": ["-l"] }),
            ),
            (
                json!({ "tool": "t", "note": null, "final_answer": null }),
                json!({ "note": null }),
            ),
            (json!({ "tool": "t" }), Value::Null),
            (json!({ "tool": "t", "arguments": "{}" }), json!("{}")),
            (
                json!({ "tool": "t", "arguments": "{\"n\":1}" }),
                json!("{\"n\":1}"),
            ),
            (json!({ "tool": "t", "arguments": [1] }), json!([1])),
            (
                json!({ "tool": "t", "action_input": "北京" }),
                json!("北京"),
            ),
        ] {
            let expected = Some(("t".to_owned(), arguments));
            assert_eq!(call(written.clone()), expected, "{written}");
        }
        for none in [
            json!({ "city": "Oslo" }),
            json!({ "tool": 7 }),
            json!({ "tool": " " }),
        ] {
            assert_eq!(call(none.clone()), None, "{none}");
        }
    }
}
