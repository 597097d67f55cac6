//! Secrets kept out of what is written down. Pure.
//!
//! What is left out for its length leaves its length and SHA-256, so that who has the original can
//! show that it is what was sent. Secrets leave nothing: a hash of a short one could be guessed.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

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
        Change {
            path: change.path.clone(),
            from: written(&change.from),
            to: written(&change.to),
            why: change.why,
        }
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut written = Map::new();
        for (name, value) in fields.iter().take(MAX_ITEMS) {
            let secret = !value.is_null() && self.is_secret(name);
            written.insert(
                cut(name),
                if secret {
                    REDACTED.into()
                } else {
                    self.value(value)
                },
            );
        }
        if fields.len() > MAX_ITEMS {
            let rest: Map<String, Value> = fields
                .iter()
                .skip(MAX_ITEMS)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            written.insert("[…]".to_owned(), left_out(rest.len(), &Value::Object(rest)));
        }
        written
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) => {
                let mut written: Vec<Value> = items
                    .iter()
                    .take(MAX_ITEMS)
                    .map(|item| self.value(item))
                    .collect();
                if items.len() > MAX_ITEMS {
                    let rest = items[MAX_ITEMS..].to_vec();
                    written.push(left_out(rest.len(), &Value::Array(rest)));
                }
                Value::Array(written)
            }
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
        let plain: String = name
            .chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect();
        SECRET_PARTS.iter().any(|part| plain.contains(part))
            || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

/// A text, or its beginning with the length and the hash of the whole.
fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    format!(
        "{}[… {} bytes in all, sha256 {}]",
        &text[..end],
        text.len(),
        sha256(text)
    )
}

/// What stands for fields or items that are left out: their number, and length and hash of their
/// JSON.
fn left_out(count: usize, rest: &Value) -> Value {
    let text = rest.to_string();
    format!(
        "[… {count} more, {} bytes, sha256 {}]",
        text.len(),
        sha256(&text)
    )
    .into()
}

fn sha256(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
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
        let change = Change {
            path: "/a/secretNumber".into(),
            from: "7".into(),
            to: 7.into(),
            why: Why::Number,
        };
        let written = &redaction.changes(&[change])[0];
        assert_eq!(
            (&written.from, &written.to),
            (&REDACTED.into(), &REDACTED.into())
        );
    }

    #[test]
    fn what_is_written_down_is_bounded() {
        let arguments = json!({ "a": "é".repeat(9_000), "b": vec![0; 9_000] });
        let written = Redaction::default().arguments(arguments.as_object().unwrap());
        assert!(
            written.to_string().len() < 6_000,
            "{}",
            written.to_string().len()
        );
        assert!(
            written["a"]
                .as_str()
                .unwrap()
                .contains("[… 18000 bytes in all, sha256 ")
        );
    }

    #[test]
    fn what_is_left_out_leaves_its_hash() {
        let written = |arguments: Value| {
            Redaction::default()
                .arguments(arguments.as_object().unwrap())
                .to_string()
        };
        let texts = |end: &str| json!({ "a": format!("{}{end}", "x".repeat(5_000)) });
        let items = |end: &str| {
            let items = [vec![json!(0); 300], vec![json!(end)]].concat();
            json!({ "a": items })
        };
        let fields = |end: &str| -> Value {
            let fields = (0..300).map(|number| {
                (
                    format!("f{number}"),
                    json!(if number == 299 { end } else { "" }),
                )
            });
            Value::Object(fields.collect())
        };
        let inside = |end: &str| json!({ "a": json!({ "b": format!("{}{end}", "x".repeat(5_000)) }).to_string() });
        for arguments in [texts as fn(&str) -> Value, items, fields, inside] {
            let (one, other) = (written(arguments("pay ada")), written(arguments("pay eve")));
            assert!(one.contains("sha256 ") && !one.contains("pay ada"), "{one}");
            assert_ne!(
                one, other,
                "what differs where nothing is written down has another hash"
            );
        }
        assert!(
            written(texts("")).contains(&sha256(&"x".repeat(5_000))),
            "it is the hash of the whole text"
        );
    }
}
