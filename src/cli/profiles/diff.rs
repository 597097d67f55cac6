//! What differs between the settings of two versions of a profile.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::config::ProfileSettings;

/// In place of a value that may be a secret.
const MASK: &str = "[redacted]";
/// Tables of a tool whose values may be secrets: models see none of the first, and any may hold a key.
const HIDDEN: [&str; 2] = ["arguments", "defaults"];
/// Deepest level of keys that is compared: `tools`, the tool, `arguments`, the argument.
const LEVELS: usize = 4;

/// A key whose value differs.
#[derive(Debug, PartialEq, serde::Serialize)]
pub struct Difference {
    /// The path of the key.
    pub key: String,
    /// Its value before, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value after, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The keys whose values differ, in order, without the values of arguments.
pub fn differences(from: &ProfileSettings, to: &ProfileSettings) -> Vec<Difference> {
    let (from, to) = (keys(from), keys(to));
    let paths: BTreeSet<&Path> = from.keys().chain(to.keys()).collect();
    let mut differences = Vec::new();
    for path in paths {
        let (before, after) = (from.get(path), to.get(path));
        if before == after {
            continue;
        }
        let shown = |value: &Value| match is_hidden(path) {
            true => MASK.into(),
            false => value.clone(),
        };
        differences.push(Difference {
            key: path.join("."),
            before: before.map(shown),
            after: after.map(shown),
        });
    }
    differences
}

/// The names of the keys that lead to a value.
type Path = Vec<String>;

/// Whether a value is one of an argument: `tools`, the tool, the table, the argument.
fn is_hidden(path: &Path) -> bool {
    path[0] == "tools" && path.get(2).is_some_and(|table| HIDDEN.contains(&&**table))
}

fn keys(settings: &ProfileSettings) -> BTreeMap<Path, Value> {
    let mut keys = BTreeMap::new();
    if let Ok(Value::Object(settings)) = serde_json::to_value(settings) {
        for (key, value) in settings {
            add(vec![key], value, &mut keys);
        }
    }
    keys
}

fn add(path: Path, value: Value, keys: &mut BTreeMap<Path, Value>) {
    match value {
        Value::Null => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(fields) if path.len() < LEVELS && !fields.is_empty() => {
            for (name, value) in fields {
                let mut path = path.clone();
                path.push(name);
                add(path, value, keys);
            }
        }
        value => {
            keys.insert(path, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_key_with_its_values_and_without_secrets() {
        let of = |text: &str| -> ProfileSettings { toml::from_str(text).unwrap() };
        let from = of(
            "limit = 3\n[tools.\"a/token\"]\ndescription = 'Old.'\narguments = { headers = { Authorization = 'one' }, at = 1 }",
        );
        let to = of(
            "[tools.\"a/token\"]\ndescription = 'New.'\narguments = { headers = { Authorization = 'two' }, at = 1 }",
        );
        let found = differences(&from, &to);
        let shown = serde_json::to_value(&found).unwrap();
        let expected = serde_json::json!([
            { "key": "limit", "before": 3 },
            { "key": "tools.a/token.arguments.headers", "before": MASK, "after": MASK },
            { "key": "tools.a/token.description", "before": "Old.", "after": "New." },
        ]);
        assert_eq!(shown, expected);
        assert!(differences(&to, &to).is_empty());
    }
}
