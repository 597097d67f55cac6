//! Preconditions of calls: a check by another tool, and optionally a call that establishes the
//! condition if the check fails. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::gate::pattern::Pattern;
use crate::tools::{Arguments, ToolResult};

/// A condition that must hold before calls of some tools.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Ids of the tools whose calls it restricts.
    pub before: Pattern,
    /// The call that checks the condition.
    pub check: SubCall,
    /// Values that the check's result must contain, by JSON pointer. If empty, any result counts
    /// that is not false, null or empty.
    #[serde(default)]
    pub expect: BTreeMap<String, Value>,
    /// The call that establishes the condition; without one, the original call is refused.
    #[serde(default)]
    pub otherwise: Option<SubCall>,
    /// Arguments of the original call that get a value of the result of `otherwise`, by JSON
    /// pointer; that of the check, where it holds and has the value. Until then they may be missing.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// What a check means that fails with an error.
    #[serde(default)]
    pub on_failed_check: OnFailedCheck,
}

/// What a check means that fails with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailedCheck {
    /// It is unknown whether the condition holds: the call is refused.
    #[default]
    Refuse,
    /// The condition does not hold, as with servers that answer 404 for a missing item.
    No,
}

/// A call that the gate makes itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubCall {
    /// The tool's id.
    pub tool: String,
    /// Its arguments. `$name` is replaced by the original call's argument of that name,
    /// `$name.inner` by a value inside that argument.
    #[serde(default)]
    pub arguments: Arguments,
}

impl Precondition {
    /// True when the check's result meets the condition. Never for a check that failed.
    pub fn holds(&self, result: &ToolResult) -> bool {
        if result.error_code.is_some() {
            return false;
        }
        if self.expect.is_empty() {
            return is_truthy(&result.data);
        }
        self.expect
            .iter()
            .all(|(pointer, expected)| result.data.pointer(pointer) == Some(expected))
    }
}

impl Precondition {
    /// The arguments that a result sets.
    pub fn values_of(&self, result: &ToolResult) -> Arguments {
        let value = |pointer: &String| result.data.pointer(pointer).cloned();
        let set = self.set.iter();
        set.filter_map(|(name, pointer)| Some((name.clone(), value(pointer)?)))
            .collect()
    }
}

impl SubCall {
    /// The arguments, with the references filled in from the original call. References to missing
    /// arguments are left out.
    pub fn arguments_for(&self, call: &Arguments) -> Arguments {
        self.arguments
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), substitute(value, call)?)))
            .collect()
    }
}

fn substitute(value: &Value, call: &Arguments) -> Option<Value> {
    let Some(path) = value.as_str().and_then(|text| text.strip_prefix('$')) else {
        return Some(value.clone());
    };
    let mut steps = path.split('.');
    let first = call.get(steps.next()?)?;
    steps
        .try_fold(first, |value, step| value.get(step))
        .cloned()
}

fn is_truthy(data: &Value) -> bool {
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
    fn a_result_is_compared_with_the_expected_values() {
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
    fn values_of_a_result_are_found_by_their_pointers() {
        let text = "before = \"*\"\ncheck = { tool = \"t\" }\nset = { userId = \"/user/id\", tier = \"/tier\" }";
        let precondition: Precondition = toml::from_str(text).unwrap();
        let result = ToolResult::ok(json!({ "user": { "id": 7 } }));
        assert_eq!(
            Value::from(precondition.values_of(&result)),
            json!({ "userId": 7 })
        );
    }

    #[test]
    fn references_are_filled_in_from_the_call() {
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
