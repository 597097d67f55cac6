//! Removes secrets from arguments before they are logged. Pure.
//!
//! Long values are replaced by their length and SHA-256, so that the original can be proven later.
//! Secrets are replaced without a hash, since a short secret could be guessed from it.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::gate::normalize::Change;
use crate::gate::pattern::Pattern;
use toolscout_base::known_secrets;
use toolscout_base::printable::excerpt;

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";
/// Substrings of names whose values are secrets. Names are compared by lower-case letters and
/// digits only.
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
/// Longest text that is logged; longer ones are cut.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Longest name that is looked for in text.
const MAX_NAME_BYTES: usize = 40;
/// Maximum number of fields or items of one object or array that are logged.
const MAX_ITEMS: usize = 256;

/// Decides which values are secrets, by their names.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    patterns: Vec<Pattern>,
}

impl Redaction {
    /// Redacts the built-in names and those that match a pattern.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Redaction { patterns }
    }

    /// The arguments for the log: without secrets, and bounded.
    pub fn arguments(&self, arguments: &Map<String, Value>) -> Value {
        Value::Object(self.fields(arguments))
    }

    /// The changes for the log.
    pub fn changes(&self, changes: &[Change]) -> Vec<Change> {
        changes.iter().map(|change| self.change(change)).collect()
    }

    /// The beginning of a text that a tool or a model wrote, without secrets. Of text that is not
    /// JSON, or whose end is missing, what follows the name of a secret is left out: the rest of its
    /// line, or of the whole text where lines do not separate values.
    pub fn excerpt(&self, text: &str, max_chars: usize) -> String {
        let text = &*known_secrets::mask(text);
        if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
            return excerpt(&self.value(&value).to_string(), max_chars);
        }
        let text = excerpt(text, max_chars);
        if text.trim_start().starts_with(['{', '[']) || text.contains("PRIVATE KEY") {
            return self.without_secret(&text);
        }
        let lines: Vec<String> = text.lines().map(|line| self.without_secret(line)).collect();
        lines.join("\n")
    }

    /// The text up to the first value that follows the name of a secret, as in `token: …`.
    fn without_secret(&self, text: &str) -> String {
        let mut ends = text.match_indices([':', '=']).map(|(at, _)| at);
        let named = ends.find(|at| self.is_secret(name_before(&text[..*at])));
        let first = named.into_iter().chain(text.find("PRIVATE KEY")).min();
        match first {
            Some(at) => format!("{} {REDACTED}", &text[..=at]),
            None => text.to_owned(),
        }
    }

    fn change(&self, change: &Change) -> Change {
        let is_secret = change.path.split('/').any(|step| self.is_secret(step));
        Change {
            path: change.path.clone(),
            from: self.value_of(is_secret, &change.from),
            to: self.value_of(is_secret, &change.to),
            why: change.why,
        }
    }

    fn value_of(&self, is_secret: bool, value: &Value) -> Value {
        match value {
            // Null means "not given" and reveals nothing.
            Value::Null => Value::Null,
            _ if is_secret => REDACTED.into(),
            value => self.value(value),
        }
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let mut redacted = Map::new();
        for (name, value) in fields.iter().take(MAX_ITEMS) {
            // Names are the model's text too, and may be as long as values.
            redacted.insert(cut(name), self.value_of(self.is_secret(name), value));
        }
        if fields.len() > MAX_ITEMS {
            let mut rest = Map::new();
            for (name, value) in fields.iter().skip(MAX_ITEMS) {
                rest.insert(name.clone(), value.clone());
            }
            redacted.insert("[…]".to_owned(), omitted(rest.len(), &Value::Object(rest)));
        }
        redacted
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) => {
                let shown = items.iter().take(MAX_ITEMS);
                let mut redacted: Vec<Value> = shown.map(|item| self.value(item)).collect();
                if items.len() > MAX_ITEMS {
                    let rest = items[MAX_ITEMS..].to_vec();
                    redacted.push(omitted(rest.len(), &Value::Array(rest)));
                }
                Value::Array(redacted)
            }
            Value::String(text) => self.text(text),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> Value {
        // JSON inside a string may contain secrets too.
        if text.trim_start().starts_with(['{', '['])
            && let Ok(inner) = serde_json::from_str::<Value>(text)
        {
            return cut(&self.value(&inner).to_string()).into();
        }
        cut(text).into()
    }

    fn is_secret(&self, name: &str) -> bool {
        names_secret(name) || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

/// Whether the value of this name is a secret, whatever the settings say.
pub fn names_secret(name: &str) -> bool {
    // `API-Key`, `api_key` and `apiKey` are one name here.
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    let normalized: String = letters.flat_map(char::to_lowercase).collect();
    SECRET_PARTS.iter().any(|part| normalized.contains(part))
}

/// The name at the end of a text, without quotes: `API key` in `"API key"`.
fn name_before(text: &str) -> &str {
    // Quotes of JSON and of shells, escaped ones too, and the stars of Markdown.
    let text = text.trim_end_matches(|letter: char| {
        letter.is_whitespace() || ['"', '\'', '`', '\\', '*'].contains(&letter)
    });
    let from = text.floor_char_boundary(text.len().saturating_sub(MAX_NAME_BYTES));
    let near = &text[from..];
    match near.rfind(|letter: char| !is_in_name(letter)) {
        Some(at) => &near[near.ceil_char_boundary(at + 1)..],
        None => near,
    }
}

fn is_in_name(letter: char) -> bool {
    letter.is_alphanumeric() || ['_', '-', '.', ' '].contains(&letter)
}

/// The text, or its beginning followed by length and hash of the whole text.
fn cut(text: &str) -> String {
    let text = &*known_secrets::mask(text);
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

/// Replaces omitted fields or items: their number, and length and hash of their JSON.
fn omitted(count: usize, rest: &Value) -> Value {
    let text = rest.to_string();
    format!(
        "[… {count} more, {} bytes, sha256 {}]",
        text.len(),
        sha256(&text)
    )
    .into()
}

fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::normalize::ChangeReason;

    #[test]
    fn secrets_are_redacted_by_name_at_any_depth() {
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
            why: ChangeReason::Number,
        };
        let written = &redaction.changes(&[change])[0];
        assert_eq!(
            (&written.from, &written.to),
            (&REDACTED.into(), &REDACTED.into())
        );
    }

    #[test]
    fn excerpts_of_text_have_no_secrets() {
        let redaction = Redaction::new(vec![Pattern::new("card*")]);
        for (text, expected) in [
            (
                r#"{"token": "x", "a": 1}"#,
                r#"{"token":"[redacted]","a":1}"#,
            ),
            (
                r#"{"a": 1, "Api-Key" : "x", "b"#,
                r#"{"a": 1, "Api-Key" : [redacted]"#,
            ),
            (r#"[{\"secret\": \"x"#, r#"[{\"secret\": [redacted]"#),
            ("é Password: x\nnext: 1", "é Password: [redacted]\nnext: 1"),
            ("card_no=4 a=1", "card_no= [redacted]"),
            ("-----BEGIN PRIVATE KEY-----\nx", "-----BEGIN P [redacted]"),
            ("at 10:30, rain", "at 10:30, rain"),
        ] {
            assert_eq!(redaction.excerpt(text, 100), expected);
        }
        assert_eq!(redaction.excerpt("éé: x", 2), "éé…");
    }

    #[test]
    fn logged_values_are_bounded() {
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
    fn omitted_values_are_replaced_by_their_hash() {
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
                "values that differ in the omitted part have different hashes"
            );
        }
        assert!(
            written(texts("")).contains(&sha256(&"x".repeat(5_000))),
            "the hash covers the whole text"
        );
    }
}
