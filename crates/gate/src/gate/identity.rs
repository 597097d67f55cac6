//! Arguments that name a user may name only the caller. Pure.
//!
//! Whatever a server may unpack is checked too: JSON inside a string, at any depth and under
//! escapes. Duplicate fields are all checked, since a server may use the one that this program's
//! parser drops.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use thiserror::Error;
use toolscout_index::Tool;

use crate::gate::defaults;
use crate::gate::normalize::{Change, ChangeReason};
use crate::gate::pattern::fold;
use crate::gate::policy::Policies;
use crate::gate::precondition::is_blank;
use crate::llm::calls::MAX_ARGUMENT_BYTES;
use crate::tools::Arguments;
use toolscout_base::printable::excerpt;

/// The placeholder in settings for the caller's identity.
const IDENTITY: &str = "$identity";
/// Levels of JSON inside strings that are checked; deeper nesting is refused if it may name a user.
const MAX_ENCODINGS: usize = 8;
/// Layers of escapes that are decoded, since escapes can be escaped.
const MAX_UNESCAPES: usize = 4;
/// Longest HTML entity that is decoded, `&#x0010ffff;`.
const MAX_ENTITY_BYTES: usize = 12;
/// Bytes of JSON inside strings that one check parses, unpacked JSON included: eight times the
/// longest arguments. This bounds the time of a check.
const MAX_READ_BYTES: usize = 8 * MAX_ARGUMENT_BYTES;

/// An argument that may name another user, in words for the model. It names the argument, but never the caller's
/// identity.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The argument names another user.
    #[error(
        "{path} names {value}, and only the caller may be named here; leave it out, and it is filled in"
    )]
    NamesAnother {
        /// JSON pointer to the argument.
        path: String,
        /// The beginning of what it names.
        value: String,
    },
    /// The argument has to name the caller, and nobody knows the caller.
    #[error(
        "{path} has to name the caller, and the caller is unknown; ask for the identity to be given with the question"
    )]
    UnknownCaller {
        /// JSON pointer to the argument.
        path: String,
    },
    /// The argument is encoded too deeply, or in no JSON that can be read.
    #[error(
        "{path} may name a user in a form that cannot be checked, and only the caller may be named; \
        give it as plain JSON, or leave the user out"
    )]
    Uncheckable {
        /// JSON pointer to the argument.
        path: String,
    },
    /// A default of the schema names another user.
    #[error("the server would use a default of the tool's schema, and {0}")]
    Default(Box<IdentityError>),
}

/// Fills in the caller where an argument is left out or blank, and refuses arguments that name
/// another user, at any depth.
///
/// # Errors
/// [`IdentityError`].
pub fn enforce(
    policies: &Policies,
    tool: &Tool,
    identity: Option<&str>,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) -> Result<(), IdentityError> {
    for binding in bindings(policies, tool, identity) {
        // Before the check, to which a blank name is one of another user.
        binding.fill_in(tool, arguments, changes)?;
        binding.check_all(arguments)?;
    }
    Ok(())
}

/// Refuses arguments in their final form that name another user. JSON unpacked from a string is checked
/// too, and so are the defaults that the server assumes for what is left out.
///
/// # Errors
/// As [`enforce`].
pub fn confirm(
    policies: &Policies,
    tool: &Tool,
    identity: Option<&str>,
    arguments: &Arguments,
) -> Result<(), IdentityError> {
    let mut bindings = bindings(policies, tool, identity).peekable();
    if bindings.peek().is_none() {
        return Ok(());
    }
    let assumed = defaults::assumed(&tool.input_schema, arguments);
    for binding in bindings {
        binding.check_all(arguments)?;
        if let Err(problem) = binding.check_all(&assumed) {
            return Err(IdentityError::Default(Box::new(problem)));
        }
    }
    Ok(())
}

/// The argument names that are bound for this tool.
fn bindings<'a>(
    policies: &'a Policies,
    tool: &Tool,
    identity: Option<&'a str>,
) -> impl Iterator<Item = Binding<'a>> {
    let mut unbound = policies.unbound_tools.iter();
    let is_unbound = unbound.any(|pattern| pattern.matches(tool.id.as_str()));
    let bound = (!is_unbound).then_some(&policies.bind);
    bound
        .into_iter()
        .flatten()
        .map(move |(name, value)| Binding {
            name: normalized_name(name),
            // Without an identity a bound argument has no valid value, and a call that names anybody is
            // refused.
            required: match value.as_str() {
                IDENTITY => identity,
                fixed => Some(fixed),
            },
            unread_bytes: Cell::new(MAX_READ_BYTES),
        })
}

/// An argument name that may have one value only.
struct Binding<'a> {
    /// The [normalized](normalized_name) name.
    name: String,
    /// The value it must have; `None` when the caller is unknown.
    required: Option<&'a str>,
    /// What is left of [`MAX_READ_BYTES`].
    unread_bytes: Cell<usize>,
}

impl Binding<'_> {
    fn check_all(&self, arguments: &Arguments) -> Result<(), IdentityError> {
        for (key, value) in arguments {
            self.check_field(key, &Node::of(value), "", 0)?;
        }
        Ok(())
    }

    /// Refuses a field of this name with another value, and checks the value itself.
    fn check_field(
        &self,
        key: &str,
        value: &Node,
        path: &str,
        encodings: usize,
    ) -> Result<(), IdentityError> {
        // Names are compared without case and separators and with escapes decoded, since a server
        // may read `user\u005fid` as `user_id`.
        let path = format!("{path}/{key}");
        if normalized_name(&unescaped(key)) == self.name && !matches!(value, Node::Null) {
            let Some(required) = self.required else {
                return Err(IdentityError::UnknownCaller { path });
            };
            if !value.equals(required) {
                return Err(IdentityError::NamesAnother {
                    path,
                    value: excerpt(&value.to_string(), 60),
                });
            }
        }
        self.check(value, &path, encodings)
    }

    fn check(&self, value: &Node, path: &str, encodings: usize) -> Result<(), IdentityError> {
        match value {
            Node::Null | Node::Scalar(_) => Ok(()),
            Node::Text(text) => self.check_text(text, path, encodings),
            Node::Items(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.check(item, &format!("{path}/{at}"), encodings)?;
                }
                Ok(())
            }
            Node::Fields(fields) => {
                for (key, value) in fields {
                    self.check_field(key, value, path, encodings)?;
                }
                Ok(())
            }
        }
    }

    /// Checks a string that may hold JSON, as it is and with each layer of escapes decoded.
    fn check_text(&self, text: &str, path: &str, encodings: usize) -> Result<(), IdentityError> {
        let mut form = text.to_owned();
        // Every layer is checked, not only the last: which one a server decodes is not known.
        for _ in 0..=MAX_UNESCAPES {
            self.check_form(&form, path, encodings)?;
            let next = unescaped_once(&form);
            if next == form {
                return Ok(());
            }
            form = next;
        }
        // Still escaped after the last round: refuse it only if it may name a user.
        if self.is_mentioned_in(&form) {
            Err(uncheckable(path))
        } else {
            Ok(())
        }
    }

    fn check_form(&self, text: &str, path: &str, encodings: usize) -> Result<(), IdentityError> {
        // Some parsers skip a byte order mark, as they skip whitespace.
        let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        if !text.starts_with(['{', '[', '"']) {
            return Ok(());
        }
        // Unpacked JSON may contain JSON again; without a budget a short argument could cost much
        // time.
        let Some(left) = self.unread_bytes.get().checked_sub(text.len()) else {
            return Err(uncheckable(path));
        };
        self.unread_bytes.set(left);
        match serde_json::from_str::<Node>(text) {
            Ok(inner) if encodings < MAX_ENCODINGS => self.check(&inner, path, encodings + 1),
            // A more lenient parser may read what this one rejects: several values, comments,
            // single quotes.
            _ if self.is_mentioned_in(text) => Err(uncheckable(path)),
            _ => Ok(()),
        }
    }

    /// True for a string that may contain a field of this name.
    fn is_mentioned_in(&self, text: &str) -> bool {
        text.contains('{')
            && text.contains([':', '='])
            && normalized_name(text).contains(&self.name)
    }

    /// Sets the tool's parameters of this name that were left out, or are blank.
    fn fill_in(
        &self,
        tool: &Tool,
        arguments: &mut Arguments,
        changes: &mut Vec<Change>,
    ) -> Result<(), IdentityError> {
        let Some(Value::Object(properties)) = tool.input_schema.get("properties") else {
            return Ok(());
        };
        for declared in properties.keys() {
            if normalized_name(declared) != self.name {
                continue;
            }
            if let Some(given) = arguments.get(declared)
                && !given.is_null()
                && !is_blank(given)
            {
                continue;
            }
            let path = format!("/{declared}");
            let Some(required) = self.required else {
                return Err(IdentityError::UnknownCaller { path });
            };
            let from = arguments.insert(declared.clone(), required.into());
            changes.push(Change {
                path,
                from: from.unwrap_or_default(),
                to: required.into(),
                why: ChangeReason::Identity,
            });
        }
        Ok(())
    }
}

/// A JSON value that keeps duplicate fields.
enum Node {
    Null,
    /// A number or a boolean, as written.
    Scalar(String),
    Text(String),
    Items(Vec<Node>),
    Fields(Vec<(String, Node)>),
}

impl Node {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Node::Null,
            Value::Bool(_) | Value::Number(_) => Node::Scalar(value.to_string()),
            Value::String(text) => Node::Text(text.clone()),
            Value::Array(items) => Node::Items(items.iter().map(Node::of).collect()),
            Value::Object(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(key, value)| (key.clone(), Node::of(value)));
                Node::Fields(fields.collect())
            }
        }
    }

    fn equals(&self, required: &str) -> bool {
        match self {
            Node::Text(text) => text == required,
            // A number may name a user whose id is one; `true` names nobody.
            Node::Scalar(scalar) => {
                scalar == required && required.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            }
            _ => false,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Null => f.write_str("null"),
            Node::Scalar(text) => f.write_str(text),
            Node::Text(text) => write!(f, "{}", Value::from(text.as_str())),
            Node::Items(_) => f.write_str("a list"),
            Node::Fields(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Value::from(value).to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Node::Items(items))
    }

    // A list of pairs and no map, which would keep only one of two equal fields.
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = from.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Fields(fields))
    }
}

fn uncheckable(path: &str) -> IdentityError {
    IdentityError::Uncheckable {
        path: path.to_owned(),
    }
}

/// A name's letters and digits only, without case, characters that look alike folded into one.
fn normalized_name(name: &str) -> String {
    fold(name).chars().filter(|c| c.is_alphanumeric()).collect()
}

/// The text with all layers of escapes decoded.
fn unescaped(text: &str) -> String {
    let mut form = text.to_owned();
    for _ in 0..MAX_UNESCAPES {
        form = unescaped_once(&form);
    }
    form
}

/// The text with one layer of escapes decoded: `%7B`, `&#123;`, `&quot;`, `\u007b`.
fn unescaped_once(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['%', '&', '\\']) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some((byte, length)) = percent(rest) {
            bytes.push(byte);
            rest = &rest[length..];
        } else if let Some((c, length)) = entity(rest).or_else(|| unicode_escape(rest)) {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[length..];
        } else {
            // Not an escape: the character stands for itself. All three are one byte long.
            bytes.push(rest.as_bytes()[0]);
            rest = &rest[1..];
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes a percent escape at the start of the text: its byte and its length.
fn percent(text: &str) -> Option<(u8, usize)> {
    let digits = text.strip_prefix('%')?.get(..2)?;
    Some((hexadecimal(digits)? as u8, 3))
}

/// Decodes an HTML entity at the start of the text: its character and its length.
fn entity(text: &str) -> Option<(char, usize)> {
    let end = text
        .bytes()
        .take(MAX_ENTITY_BYTES)
        .position(|byte| byte == b';')?;
    let inner = text.strip_prefix('&')?.get(..end - 1)?;
    let number = inner.strip_prefix('#');
    let c = match (inner, number) {
        ("quot", _) => '"',
        ("apos", _) => '\'',
        ("amp", _) => '&',
        ("lt", _) => '<',
        ("gt", _) => '>',
        (_, Some(number)) => match number.strip_prefix(['x', 'X']) {
            Some(digits) => char::from_u32(hexadecimal(digits)?)?,
            None => char::from_u32(number.parse().ok()?)?,
        },
        _ => return None,
    };
    Some((c, inner.len() + 2))
}

/// Decodes `\uXXXX` at the start of the text: its character and its length.
fn unicode_escape(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    Some((char::from_u32(hexadecimal(digits)?)?, 6))
}

/// The number of hexadecimal digits. A sign is none, which `from_str_radix` would take.
fn hexadecimal(digits: &str) -> Option<u32> {
    match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => u32::from_str_radix(digits, 16).ok(),
        false => None,
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
        tool.input_schema = json!({ "properties": { "user_id": {}, "item": {} } })
            .as_object()
            .unwrap()
            .clone();
        let bind = BTreeMap::from([("userId".to_owned(), IDENTITY.to_owned())]);
        let policies = Policies {
            bind,
            unbound_tools: vec![Pattern::new("admin/*")],
            ..Policies::default()
        };
        let mut arguments = arguments.as_object().unwrap().clone();
        enforce(&policies, &tool, identity, &mut arguments, &mut Vec::new())
            .map(|()| arguments.into())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn missing_arguments_are_filled_in_and_correct_ones_are_kept() {
        let filled = enforced(Some("7"), json!({ "item": 1 })).unwrap();
        assert_eq!(filled, json!({ "item": 1, "user_id": "7" }));
        for right in [json!({ "user_id": "7" }), json!({ "user_id": 7 })] {
            assert_eq!(enforced(Some("7"), right.clone()), Ok(right));
        }
        assert_eq!(
            enforced(Some("7"), json!({ "user_id": null })),
            Ok(json!({ "user_id": "7" }))
        );
    }

    #[test]
    fn other_users_are_refused_in_any_spelling_and_depth() {
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
            assert!(
                message.contains("only the caller may be named"),
                "{arguments}: {message}"
            );
        }
    }

    /// A value encoded as a JSON string this many times.
    fn encoded(value: Value, times: usize) -> Value {
        (0..times).fold(value, |value, _| value.to_string().into())
    }

    fn percent_encoded(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    #[test]
    fn no_encoding_hides_another_user() {
        let other = || json!({ "userId": "8" });
        let inside = other().to_string();
        let html: String = inside
            .chars()
            .map(|c| format!("&#{};", u32::from(c)))
            .collect();
        let mut rows = vec![
            (
                "in JSON with the field twice, the right one last",
                json!(r#"{"userId":"8","userId":"7"}"#),
            ),
            (
                "in JSON with the field twice, the right one first",
                json!(r#"{"userId":"7","userId":"8"}"#),
            ),
            (
                "in JSON after a byte order mark",
                json!(format!("\u{feff} {inside}")),
            ),
            ("in an escaped name", json!(r#"{"\u0075serId":"8"}"#)),
            (
                "in two JSON values one after the other",
                json!(format!("{{}}{inside}")),
            ),
            ("in JSON with comments", json!(r#"{/* no */ userId: '8'}"#)),
            (
                "in JSON with a trailing comma",
                json!(r#"[{"userId":"8",}]"#),
            ),
            (
                "in JSON with escaped quotes",
                json!(r#"{\"userId\":\"8\"}"#),
            ),
            ("in percent escapes", json!(percent_encoded(&inside))),
            (
                "in percent escapes twice",
                json!(percent_encoded(&percent_encoded(&inside))),
            ),
            ("in HTML entities", json!(html)),
            ("in named entities", json!(inside.replace('"', "&quot;"))),
            (
                "in named entities, escaped",
                json!(inside.replace('"', "&amp;quot;")),
            ),
        ];
        for times in 1..=12 {
            rows.push(("in JSON in texts in texts", encoded(other(), times)));
            rows.push((
                "in lists of texts",
                encoded(json!([[encoded(other(), times)]]), 1),
            ));
        }
        for name in [
            "ｕｓｅｒＩｄ",
            "𝐮𝐬𝐞𝐫𝐈𝐝",
            "user\u{200b}Id",
            "user\u{ad}id",
            "usеrId",
            "USΕR_ΙD",
            "uѕerIԁ",
            "us\u{301}erId",
            "ＵＳＥＲ－ＩＤ",
            "user%49d",
            "user&#73;d",
            "user%2549d",
            "USER.ID",
            "user id",
            "user\u{3164}id",
        ] {
            rows.push(("under another spelling", json!({ name: "8" })));
            rows.push((
                "under another spelling in a text",
                json!({ name: "8" }).to_string().into(),
            ));
        }
        let mut wrong = Vec::new();
        for (how, value) in &rows {
            match enforced(Some("7"), json!({ "item": value })) {
                Err(message) if message.contains("only the caller may be named") => {}
                other => wrong.push(format!("{how}: {value} gives {other:?}")),
            }
        }
        assert!(
            wrong.is_empty(),
            "{} of {} rows:\n{}",
            wrong.len(),
            rows.len(),
            wrong.join("\n")
        );
    }

    #[test]
    fn texts_that_name_no_user_pass() {
        for text in [
            "[x] the user id is missing",
            "{",
            "100 % sure & done",
            "{\"a\":\"%7B\"}",
            "\"quoted\" words",
            "{name}: a template",
            "see userId=8 in the log",
            "C:\\users",
            "[1, 2",
        ] {
            assert!(
                enforced(Some("7"), json!({ "item": text })).is_ok(),
                "{text}"
            );
        }
        for times in 1..=12 {
            assert!(
                enforced(
                    Some("7"),
                    json!({ "item": encoded(json!({ "a": 1 }), times) })
                )
                .is_ok()
            );
            assert!(
                enforced(
                    Some("7"),
                    json!({ "item": encoded(json!({ "userId": "7" }), times.min(7)) })
                )
                .is_ok()
            );
        }
    }

    #[test]
    fn a_text_of_escapes_takes_bounded_time() {
        let mut text = percent_encoded("[\"x\"]").repeat(1_000);
        for _ in 0..6 {
            text = json!([text.replace('%', "%25"), 1]).to_string();
        }
        // The result does not matter; the check has to end.
        let _ = enforced(
            Some("7"),
            json!({ "item": text, "other": "&amp;".repeat(100_000) }),
        );
    }

    #[test]
    fn without_an_identity_a_bound_argument_is_refused() {
        assert!(
            enforced(None, json!({}))
                .unwrap_err()
                .contains("/user_id has to name the caller")
        );
    }
}
