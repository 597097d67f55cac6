//! Secrets kept out of what is written down. Pure.

use serde_json::{Map, Value};

use crate::gate::normalize::Change;
use crate::gate::pattern::Pattern;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";
/// Parts of a name, in lower-case letters and digits alone, whose value is a secret.
const SECRET_PARTS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "cookie",
    "credential",
    "signature",
    "pincode",
];
/// Longest text that is written down; of a longer one the beginning is.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Most fields or items of one object or array that are written down.
const MAX_ITEMS: usize = 256;

/// Which names hold secrets.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    patterns: Vec<Pattern>,
}

impl Redaction {
    /// The usual names, and those that fit a pattern.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Redaction { patterns }
    }

    /// The arguments as they may be written down: without secrets, and bounded.
    pub fn arguments(&self, arguments: &Map<String, Value>) -> Value {
        Value::Object(self.fields(arguments))
    }

    /// Changes as they may be written down.
    pub fn changes(&self, changes: &[Change]) -> Vec<Change> {
        changes.iter().map(|change| self.change(change)).collect()
    }

    fn change(&self, change: &Change) -> Change {
        let secret = change.path.split('/').any(|step| self.is_secret(step));
        let written = |value: &Value| match (secret, value) {
            (_, Value::Null) => Value::Null,
            (true, _) => REDACTED.into(),
            (false, value) => self.value(value),
        };
        Change { path: change.path.clone(), from: written(&change.from), to: written(&change.to), why: change.why }
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let written = fields.iter().take(MAX_ITEMS).map(|(name, value)| {
            let secret = !value.is_null() && self.is_secret(name);
            (cut(name), if secret { REDACTED.into() } else { self.value(value) })
        });
        written.collect()
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) => items.iter().take(MAX_ITEMS).map(|item| self.value(item)).collect(),
            Value::String(text) => self.text(text),
            other => other.clone(),
        }
    }

    /// JSON inside a text may hold secrets too.
    fn text(&self, text: &str) -> Value {
        if text.trim_start().starts_with(['{', '['])
            && let Ok(inner) = serde_json::from_str::<Value>(text)
        {
            return cut(&self.value(&inner).to_string()).into();
        }
        cut(text).into()
    }

    fn is_secret(&self, name: &str) -> bool {
        let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        SECRET_PARTS.iter().any(|part| plain.contains(part))
            || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    format!("{}[… {} bytes in all]", &text[..end], text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::normalize::Why;

    #[test]
    fn secrets_are_redacted_by_name_wherever_they_are() {
        let arguments = json!({
            "user": "ada", "Api-Key": "k", "headers": { "X-Auth-Token": "t", "accept": "a" }, "card_no": 4,
            "list": [{ "passWord": { "old": 1 } }], "body": "{\"client_secret\":\"x\",\"a\":1}", "token": null,
        });
        let redaction = Redaction::new(vec![Pattern::new("card*")]);
        assert_eq!(
            redaction.arguments(arguments.as_object().unwrap()),
            json!({
                "user": "ada", "Api-Key": REDACTED, "headers": { "X-Auth-Token": REDACTED, "accept": "a" },
                "card_no": REDACTED, "list": [{ "passWord": REDACTED }],
                "body": "{\"client_secret\":\"[redacted]\",\"a\":1}", "token": null,
            })
        );
        let change = Change { path: "/a/secretNumber".into(), from: "7".into(), to: 7.into(), why: Why::Number };
        let written = &redaction.changes(&[change])[0];
        assert_eq!((&written.from, &written.to), (&REDACTED.into(), &REDACTED.into()));
    }

    #[test]
    fn what_is_written_down_is_bounded() {
        let arguments = json!({ "a": "é".repeat(9_000), "b": vec![0; 9_000] });
        let written = Redaction::default().arguments(arguments.as_object().unwrap());
        assert!(written.to_string().len() < 6_000, "{}", written.to_string().len());
        assert!(written["a"].as_str().unwrap().ends_with("[… 18000 bytes in all]"));
    }
}
