//! Arguments that name a user, held to the identity of the caller. Pure.

use serde_json::{Map, Value};
use toolscout_index::Tool;

use crate::gate::normalize::{Change, Why};
use crate::gate::policy::Policies;
use crate::llm::excerpt;
use crate::tools::Arguments;

/// In settings, what stands for the caller's identity.
const IDENTITY: &str = "$identity";

/// Fills in what is left out and refuses what names somebody else, at any depth.
///
/// # Errors
/// Words for the model, naming the argument; never the identity of the caller.
pub fn enforce(
    policies: &Policies,
    tool: &Tool,
    identity: Option<&str>,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) -> Result<(), String> {
    for (name, wanted) in bindings(policies, tool, identity) {
        check(&name, wanted, arguments, "")?;
        fill_in(&name, wanted, tool, arguments, changes)?;
    }
    Ok(())
}

/// Refuses arguments that name somebody else, once they have their final form: defaults of the schema, and JSON that was
/// inside a text, are looked at too.
///
/// # Errors
/// As [`enforce`].
pub fn confirm(policies: &Policies, tool: &Tool, identity: Option<&str>, arguments: &Arguments) -> Result<(), String> {
    bindings(policies, tool, identity).try_for_each(|(name, wanted)| check(&name, wanted, arguments, ""))
}

/// The names that are bound in this tool's arguments, without their spelling, and what they have to be.
fn bindings<'a>(
    policies: &'a Policies,
    tool: &Tool,
    identity: Option<&'a str>,
) -> impl Iterator<Item = (String, Option<&'a str>)> {
    let unbound = policies.unbound_tools.iter().any(|pattern| pattern.matches(tool.id.as_str()));
    let wanted = move |wanted: &'a String| if wanted == IDENTITY { identity } else { Some(wanted.as_str()) };
    policies.bind.iter().filter(move |_| !unbound).map(move |(name, to_be)| (plain(name), wanted(to_be)))
}

/// Refuses an argument of this name that says something else.
fn check(name: &str, wanted: Option<&str>, fields: &Map<String, Value>, path: &str) -> Result<(), String> {
    for (key, value) in fields {
        let path = format!("{path}/{key}");
        if plain(key) == name && !value.is_null() {
            let Some(wanted) = wanted else { return Err(nobody(&path)) };
            if !says(value, wanted) {
                return Err(format!(
                    "{path} names {}, and only the caller may be named here; leave it out, and it is filled in",
                    excerpt(&value.to_string(), 60)
                ));
            }
        }
        check_inside(name, wanted, value, &path)?;
    }
    Ok(())
}

fn check_inside(name: &str, wanted: Option<&str>, value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(fields) => check(name, wanted, fields, path),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| check_inside(name, wanted, item, &format!("{path}/{at}"))),
        // What a server may unpack again is looked into as well.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            serde_json::from_str(text).map_or(Ok(()), |inner: Value| check_inside(name, wanted, &inner, path))
        }
        _ => Ok(()),
    }
}

/// Gives the tool's own parameter of this name its value.
fn fill_in(
    name: &str,
    wanted: Option<&str>,
    tool: &Tool,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) -> Result<(), String> {
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    for declared in properties.into_iter().flat_map(Map::keys).filter(|key| plain(key) == name) {
        if arguments.get(declared).is_some_and(|value| !value.is_null()) {
            continue;
        }
        let path = format!("/{declared}");
        let Some(wanted) = wanted else { return Err(nobody(&path)) };
        arguments.insert(declared.clone(), wanted.into());
        changes.push(Change { path, from: Value::Null, to: wanted.into(), why: Why::Identity });
    }
    Ok(())
}

fn nobody(path: &str) -> String {
    format!("{path} has to name the caller, and it is not known who that is; ask for it to be said with the question")
}

/// A name without its spelling: letters and digits in lower case.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn says(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::gate::pattern::Pattern;

    fn enforced(identity: Option<&str>, arguments: Value) -> Result<Value, String> {
        let mut tool = Tool::new("shop", "order").unwrap();
        tool.input_schema = json!({ "properties": { "user_id": {}, "item": {} } }).as_object().unwrap().clone();
        let bind = BTreeMap::from([("userId".to_owned(), IDENTITY.to_owned())]);
        let policies = Policies { bind, unbound_tools: vec![Pattern::new("admin/*")], ..Policies::default() };
        let mut arguments = arguments.as_object().unwrap().clone();
        enforce(&policies, &tool, identity, &mut arguments, &mut Vec::new()).map(|()| arguments.into())
    }

    #[test]
    fn what_is_left_out_is_filled_in_and_what_is_right_stays() {
        let filled = enforced(Some("7"), json!({ "item": 1 })).unwrap();
        assert_eq!(filled, json!({ "item": 1, "user_id": "7" }));
        for right in [json!({ "user_id": "7" }), json!({ "user_id": 7 })] {
            assert_eq!(enforced(Some("7"), right.clone()), Ok(right));
        }
        assert_eq!(enforced(Some("7"), json!({ "user_id": null })), Ok(json!({ "user_id": "7" })));
    }

    #[test]
    fn nobody_else_can_be_named_in_any_spelling_or_depth() {
        for arguments in [
            json!({ "user_id": "8" }),
            json!({ "userId": "8" }),
            json!({ "USER-ID": "8" }),
            json!({ "user_id": "7", "userId": "8" }),
            json!({ "user_id": " 7" }),
            json!({ "user_id": ["7"] }),
            json!({ "user_id": { "$ne": "" } }),
            json!({ "user_id": true }),
            json!({ "items": [{ "order": { "userid": "8" } }] }),
            json!({ "item": "{\"userId\":\"8\"}" }),
        ] {
            let message = enforced(Some("7"), arguments.clone()).unwrap_err();
            assert!(message.contains("only the caller may be named"), "{arguments}: {message}");
        }
    }

    #[test]
    fn without_an_identity_nobody_is_named() {
        assert!(enforced(None, json!({})).unwrap_err().contains("/user_id has to name the caller"));
    }
}
