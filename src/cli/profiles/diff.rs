//! What differs between the settings of two versions of a profile.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::ProfileSettings;
use crate::gate::redact::names_secret;

/// In place of a value that may be a secret.
const MASK: &str = "[redacted]";
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

/// The keys whose values differ, in order, without the values of secrets.
pub fn differences(from: &ProfileSettings, to: &ProfileSettings) -> Vec<Difference> {
    let (from, to) = (keys(from), keys(to));
    let mut all: Vec<&String> = from.keys().chain(to.keys()).collect();
    all.sort();
    all.dedup();
    let mut differences = Vec::new();
    for key in all {
        let (before, after) = (from.get(key), to.get(key));
        if before == after {
            continue;
        }
        let shown = |value: &Value| match names_secret(key) {
            true => MASK.into(),
            false => value.clone(),
        };
        differences.push(Difference {
            key: key.clone(),
            before: before.map(shown),
            after: after.map(shown),
        });
    }
    differences
}

fn keys(settings: &ProfileSettings) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    if let Ok(Value::Object(settings)) = serde_json::to_value(settings) {
        for (key, value) in settings {
            add(&key, value, LEVELS - 1, &mut keys);
        }
    }
    keys
}

fn add(key: &str, value: Value, levels: usize, keys: &mut BTreeMap<String, Value>) {
    match value {
        Value::Null => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(fields) if levels > 0 && !fields.is_empty() => {
            for (name, value) in fields {
                add(&format!("{key}.{name}"), value, levels - 1, keys);
            }
        }
        value => {
            keys.insert(key.to_owned(), value);
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
            "limit = 3\n[tools.\"a/b\"]\ndescription = 'Old.'\narguments = { api_key = 'one', at = 1 }",
        );
        let to =
            of("[tools.\"a/b\"]\ndescription = 'New.'\narguments = { api_key = 'two', at = 1 }");
        let found = differences(&from, &to);
        let shown = serde_json::to_value(&found).unwrap();
        let expected = serde_json::json!([
            { "key": "limit", "before": 3 },
            { "key": "tools.a/b.arguments.api_key", "before": MASK, "after": MASK },
            { "key": "tools.a/b.description", "before": "Old.", "after": "New." },
        ]);
        assert_eq!(shown, expected);
        assert!(differences(&to, &to).is_empty());
    }
}
