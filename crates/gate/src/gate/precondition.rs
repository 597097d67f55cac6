//! Preconditions of calls: a check by another tool, and optionally a call that establishes the
//! condition if the check fails. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

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
    /// Values that the check's result must contain, by JSON pointer. If empty, `true`, `"true"` and
    /// `{"exists": true}` mean yes, and so does any other result that is not false, null or blank.
    #[serde(default)]
    pub expect: BTreeMap<String, Value>,
    /// The call that establishes the condition; without one, the original call is refused.
    #[serde(default)]
    pub otherwise: Option<SubCall>,
    /// Arguments of the original call that get a value of the result of `otherwise`, by JSON
    /// pointer; that of the check, where it holds and has the value. Until then they may be missing.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// What happens to the call if the check itself fails. The older name of the key is accepted too.
    #[serde(default, alias = "on_failed_check")]
    pub on_error: OnError,
}

/// What happens to a call whose check fails with an error, so that nobody knows whether the condition
/// holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The call is refused.
    #[default]
    Refuse,
    /// The call is made with a warning. A check that a rule or a person denied refuses it still.
    Continue,
    /// The condition counts as not met, as with servers that answer 404 for a missing item.
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
        let data = parsed(&result.data);
        if self.expect.is_empty() {
            return means_yes(&data);
        }
        for (pointer, expected) in &self.expect {
            if data.pointer(pointer) != Some(expected) {
                return false;
            }
        }
        true
    }

    /// True when the check would ask about an argument that is missing or blank, and that `otherwise`
    /// brings: there is nothing to check yet.
    pub fn lacks_its_subject(&self, call: &Arguments) -> bool {
        if self.otherwise.is_none() {
            return false;
        }
        for value in self.check.arguments.values() {
            if let Some(name) = reference(value)
                && self.set.contains_key(name)
                && substitute(value, call).is_none()
            {
                return true;
            }
        }
        false
    }

    /// The arguments that a result sets. A blank value sets none.
    pub fn values_of(&self, result: &ToolResult) -> Arguments {
        let data = parsed(&result.data);
        let mut values = Arguments::new();
        for (name, pointer) in &self.set {
            if let Some(value) = data.pointer(pointer)
                && !is_blank(value)
            {
                values.insert(name.clone(), value.clone());
            }
        }
        values
    }
}

impl SubCall {
    /// The arguments, with the references filled in from the original call. References to missing
    /// and blank arguments are left out.
    pub fn arguments_for(&self, call: &Arguments) -> Arguments {
        let mut arguments = Arguments::new();
        for (name, value) in &self.arguments {
            if let Some(value) = substitute(value, call) {
                arguments.insert(name.clone(), value);
            }
        }
        arguments
    }
}

/// What follows the `$` of a reference.
fn reference(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix('$')
}

fn substitute(value: &Value, call: &Arguments) -> Option<Value> {
    let Some(path) = reference(value) else {
        return Some(value.clone());
    };
    let mut steps = path.split('.');
    let mut found = call.get(steps.next()?)?;
    for step in steps {
        found = found.get(step)?;
    }
    (!is_blank(found)).then(|| found.clone())
}

/// The result, or the JSON in it: many MCP servers give their result as JSON in a text.
fn parsed(data: &Value) -> Cow<'_, Value> {
    if let Value::String(text) = data
        && let Ok(inner) = serde_json::from_str(text)
    {
        return Cow::Owned(inner);
    }
    Cow::Borrowed(data)
}

/// True for a text of white space only, which stands for a missing value.
pub(super) fn is_blank(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// True for an answer that means yes.
fn means_yes(answer: &Value) -> bool {
    match answer {
        Value::Null | Value::Bool(false) => false,
        // Any number, 0 too: `expect` can ask for a certain one.
        Value::Bool(true) | Value::Number(_) => true,
        Value::String(text) => {
            let text = text.trim();
            !text.is_empty() && !text.eq_ignore_ascii_case("false")
        }
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => match stated_in(fields) {
            Some(stated) => means_yes(stated),
            None => !fields.is_empty(),
        },
    }
}

/// The answer in an object that is made for one: the field `exists`, or the only field `result`, in
/// which FastMCP wraps a value.
fn stated_in(fields: &Map<String, Value>) -> Option<&Value> {
    match fields.get("exists") {
        None if fields.len() == 1 => fields.get("result"),
        stated => stated,
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
    fn yes_and_no_are_understood_without_expected_values() {
        let check: Precondition =
            toml::from_str("before = \"*\"\ncheck = { tool = \"exists\" }").unwrap();
        for yes in [
            json!(true),
            json!("true"),
            json!("True"),
            json!({ "exists": true }),
            json!({ "exists": "true", "userId": "ada" }),
            json!("{\"exists\": true}"),
            json!({ "result": true }),
            json!({ "id": 7, "active": false }),
            json!([1]),
            json!("ada"),
        ] {
            assert!(check.holds(&ToolResult::ok(yes.clone())), "{yes}");
        }
        for no in [
            json!(false),
            json!("false"),
            json!(" FALSE\n"),
            json!({ "exists": false }),
            json!({ "exists": "false" }),
            json!({ "exists": null, "userId": "ada" }),
            json!({ "exists": " " }),
            json!("{\"exists\": false}"),
            json!({ "result": false }),
            json!({ "result": { "exists": false } }),
            json!(null),
            json!("null"),
            json!(""),
            json!(" \n"),
            json!([]),
            json!("[]"),
            json!({}),
        ] {
            assert!(!check.holds(&ToolResult::ok(no.clone())), "{no}");
        }
    }

    #[test]
    fn json_in_a_text_is_compared_and_gives_values_too() {
        let text = "before = \"*\"\ncheck = { tool = \"t\" }\nexpect = { \"/exists\" = true }\n\
                    set = { userId = \"/id\", tier = \"/tier\" }";
        let precondition: Precondition = toml::from_str(text).unwrap();
        let result = ToolResult::ok(json!("{\"exists\": true, \"id\": \"u7\", \"tier\": \" \"}"));
        assert!(precondition.holds(&result));
        assert_eq!(
            Value::from(precondition.values_of(&result)),
            json!({ "userId": "u7" })
        );
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
        let call = json!({ "user": { "id": 7 }, "n": 1, "blank": " " })
            .as_object()
            .unwrap()
            .clone();
        let sub: SubCall = toml::from_str(
            "tool = \"t\"\narguments = { id = \"$user.id\", kind = \"new\", x = \"$missing\", y = \"$blank\" }",
        )
        .unwrap();
        assert_eq!(
            Value::from(sub.arguments_for(&call)),
            json!({ "id": 7, "kind": "new" })
        );
    }
}
