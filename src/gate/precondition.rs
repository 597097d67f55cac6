//! What has to hold before a call: another tool is asked first, and a third one called where the
//! answer is no. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::gate::pattern::Pattern;
use crate::tools::{Arguments, ToolResult};

/// A condition on calls of some tools.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Tools it is about.
    pub before: Pattern,
    /// The call that tells whether it holds.
    pub check: SubCall,
    /// What the check's result has to hold, by JSON pointer. Left out, any result will do that is
    /// not false, null or empty.
    #[serde(default)]
    pub expect: BTreeMap<String, Value>,
    /// The call that makes it hold; left out, the call is refused instead.
    #[serde(default)]
    pub otherwise: Option<SubCall>,
    /// What a check says that fails.
    #[serde(default)]
    pub on_failed_check: OnFailedCheck,
}

/// What a check says that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailedCheck {
    /// Nothing: the call is refused.
    #[default]
    Refuse,
    /// No: for servers that answer 404 for what is not there.
    No,
}

/// A call of the gate's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubCall {
    /// The tool's id.
    pub tool: String,
    /// Its arguments; `$name` stands for the argument of that name of the call in question,
    /// `$name.inner` for what is inside it.
    #[serde(default)]
    pub arguments: Arguments,
}

impl Precondition {
    /// Whether the check's result says that the condition holds. A failed check says no.
    pub fn holds(&self, result: &ToolResult) -> bool {
        if result.error_code.is_some() {
            return false;
        }
        if self.expect.is_empty() {
            return is_something(&result.data);
        }
        self.expect
            .iter()
            .all(|(pointer, wanted)| result.data.pointer(pointer) == Some(wanted))
    }
}

impl SubCall {
    /// The arguments for a call with these arguments. What it lacks is left out.
    pub fn arguments_for(&self, call: &Arguments) -> Arguments {
        let given = self
            .arguments
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), filled(value, call)?)));
        given.collect()
    }
}

fn filled(value: &Value, call: &Arguments) -> Option<Value> {
    let Some(path) = value.as_str().and_then(|text| text.strip_prefix('$')) else {
        return Some(value.clone());
    };
    let mut steps = path.split('.');
    let first = call.get(steps.next()?)?;
    steps
        .try_fold(first, |value, step| value.get(step))
        .cloned()
}

fn is_something(data: &Value) -> bool {
    match data {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::ErrorCode;

    #[test]
    fn a_result_is_held_against_what_is_expected() {
        let text =
            "before = \"*\"\ncheck = { tool = \"exists\" }\nexpect = { \"/user/exists\" = true }";
        let exists: Precondition = toml::from_str(text).unwrap();
        assert!(exists.holds(&ToolResult::ok(json!({ "user": { "exists": true } }))));
        for no in [
            json!({ "user": { "exists": "true" } }),
            json!({}),
            json!(true),
        ] {
            assert!(!exists.holds(&ToolResult::ok(no)));
        }
        assert!(!exists.holds(&ToolResult::error(ErrorCode::Failed, "down")));
        let any = Precondition {
            expect: BTreeMap::new(),
            ..exists
        };
        assert!(any.holds(&ToolResult::ok(json!([1]))) && !any.holds(&ToolResult::ok(json!([]))));
    }

    #[test]
    fn arguments_are_taken_from_the_call() {
        let call = json!({ "user": { "id": 7 }, "n": 1 })
            .as_object()
            .unwrap()
            .clone();
        let sub: SubCall = toml::from_str(
            "tool = \"t\"\narguments = { id = \"$user.id\", kind = \"new\", x = \"$missing\" }",
        )
        .unwrap();
        assert_eq!(
            Value::from(sub.arguments_for(&call)),
            json!({ "id": 7, "kind": "new" })
        );
    }
}
