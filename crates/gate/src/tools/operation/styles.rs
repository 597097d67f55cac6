//! The styles in which OpenAPI writes values into a request (RFC 6570, and `deepObject`). Pure.

use serde_json::{Map, Value};
use toolscout_index::formats::BodyKind;

use crate::tools::text_of;

/// How a parameter, or a field of a form, is written.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    kind: &'a str,
    explodes: bool,
    separator: char,
    allows_reserved: bool,
    is_json: bool,
}

/// One name with its value in a query or form: the value's items, and what stands between them.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    pub name: String,
    items: Vec<String>,
    separator: char,
    allows_reserved: bool,
}

impl<'a> Style<'a> {
    /// As declared; `usual` is the style of parameters at this place.
    pub fn of(declared: &'a Map<String, Value>, usual: &'static str) -> Self {
        let text = |key: &str| declared.get(key).and_then(Value::as_str);
        let kind = text("style").unwrap_or(usual);
        let format = text("collectionFormat");
        let separator = match (kind, format) {
            ("spaceDelimited", _) | (_, Some("ssv")) => ' ',
            ("pipeDelimited", _) | (_, Some("pipes")) => '|',
            (_, Some("tsv")) => '\t',
            _ => ',',
        };
        // A `collectionFormat` is of version 2, where only `multi` repeats the name.
        let usually_explodes = kind == "form" && matches!(format, None | Some("multi"));
        let explodes = declared.get("explode").and_then(Value::as_bool);
        let content_type = text("content_type").or(text("contentType"));
        Style {
            kind,
            explodes: explodes.unwrap_or(usually_explodes),
            separator,
            allows_reserved: declared.get("allowReserved") == Some(&Value::Bool(true)),
            is_json: content_type.map(BodyKind::of) == Some(BodyKind::Json),
        }
    }

    /// The same, but as JSON.
    pub fn as_json(self) -> Self {
        Style {
            is_json: true,
            ..self
        }
    }

    /// True where the value is written as JSON.
    pub fn is_json(self) -> bool {
        self.is_json
    }

    /// A value in a query or form. Nothing for null, which has no form there.
    pub fn pairs(self, name: &str, value: &Value) -> Vec<Pair> {
        if value.is_null() {
            return Vec::new();
        }
        if self.is_json {
            return vec![self.pair(name, vec![value.to_string()])];
        }
        match value {
            _ if self.kind == "deepObject" => {
                let mut pairs = Vec::new();
                self.add_deep(name, value, &mut pairs);
                pairs
            }
            Value::Array(items) if self.explodes => {
                let items = texts(items);
                items.map(|item| self.pair(name, vec![item])).collect()
            }
            // The names are those of the fields; that of the parameter does not occur.
            Value::Object(fields) if self.explodes => {
                let fields = members(fields);
                let pairs = fields.map(|(key, value)| self.pair(key, vec![text_of(value)]));
                pairs.collect()
            }
            // A list without items is no value at all.
            Value::Array(items) if items.is_empty() => Vec::new(),
            Value::Object(fields) if fields.is_empty() => Vec::new(),
            other => vec![self.pair(name, items_of(other))],
        }
    }

    /// `filter[size][gte]=1`, at any depth; lists are numbered from 0.
    fn add_deep(self, name: &str, value: &Value, pairs: &mut Vec<Pair>) {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                for (key, inner) in fields {
                    self.add_deep(&format!("{name}[{key}]"), inner, pairs);
                }
            }
            Value::Array(items) => {
                for (at, inner) in items.iter().enumerate() {
                    self.add_deep(&format!("{name}[{at}]"), inner, pairs);
                }
            }
            scalar => pairs.push(self.pair(name, vec![text_of(scalar)])),
        }
    }

    fn pair(self, name: &str, items: Vec<String>) -> Pair {
        Pair {
            name: name.to_owned(),
            items,
            separator: self.separator,
            allows_reserved: self.allows_reserved,
        }
    }

    /// A value in a header or cookie, where items are separated and not repeated.
    pub fn text(self, value: &Value) -> String {
        if self.is_json {
            return value.to_string();
        }
        self.listed(value, str::to_owned)
            .join(&self.separator.to_string())
    }

    /// A value as part of a path, percent-encoded but for what the style puts between its items.
    pub fn in_path(self, name: &str, value: &Value) -> String {
        if self.is_json {
            return encoded(&value.to_string());
        }
        let items = self.listed(value, encoded);
        let name = encoded(name);
        let is_list = matches!(value, Value::Array(_));
        match (self.kind, self.explodes) {
            ("label", true) => format!(".{}", items.join(".")),
            ("label", false) => format!(".{}", items.join(",")),
            ("matrix", true) if is_list => {
                items.iter().map(|item| format!(";{name}={item}")).collect()
            }
            ("matrix", true) if value.is_object() => format!(";{}", items.join(";")),
            // RFC 6570 leaves out the `=` before an empty value.
            ("matrix", _) if items.iter().all(String::is_empty) => format!(";{name}"),
            ("matrix", _) => format!(";{name}={}", items.join(",")),
            _ => items.join(&encoded_separator(self.separator)),
        }
    }

    /// The items of a value, each encoded; the members of an exploded object as `name=value`.
    fn listed(self, value: &Value, encode: fn(&str) -> String) -> Vec<String> {
        match value {
            Value::Object(fields) if self.explodes => {
                let mut listed = Vec::with_capacity(fields.len());
                for (key, value) in members(fields) {
                    listed.push(format!("{}={}", encode(key), encode(&text_of(value))));
                }
                listed
            }
            other => items_of(other).iter().map(|item| encode(item)).collect(),
        }
    }
}

impl Pair {
    /// The value without any encoding.
    pub fn value(&self) -> String {
        self.items.join(&self.separator.to_string())
    }

    /// `name=value` for a query or an urlencoded body.
    pub fn encoded(&self) -> String {
        let encode = match self.allows_reserved {
            true => encoded_but_reserved,
            false => encoded,
        };
        let items: Vec<String> = self.items.iter().map(|item| encode(item)).collect();
        let separator = encoded_separator(self.separator);
        format!("{}={}", encoded(&self.name), items.join(&separator))
    }
}

/// Pairs as the text of a query or of an urlencoded body.
pub fn joined(pairs: &[Pair]) -> String {
    let encoded: Vec<String> = pairs.iter().map(Pair::encoded).collect();
    encoded.join("&")
}

/// The items of a list, the names and values of an object, or the value itself.
fn items_of(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => texts(items).collect(),
        Value::Object(fields) => {
            let members = members(fields);
            let items = members.flat_map(|(key, value)| [key.clone(), text_of(value)]);
            items.collect()
        }
        scalar => vec![text_of(scalar)],
    }
}

fn texts(items: &[Value]) -> impl Iterator<Item = String> {
    items.iter().filter(|item| !item.is_null()).map(text_of)
}

fn members(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.iter().filter(|(_, value)| !value.is_null())
}

/// Percent-encodes everything but unreserved characters (RFC 3986).
pub fn encoded(text: &str) -> String {
    encoded_except(text, &[])
}

/// As [`encoded`], but reserved characters stay that mean nothing else in a query, and so do escapes.
fn encoded_but_reserved(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        safe.push_str(&encoded_except(before, b":/?@!$'()*,;="));
        let length = match escape.as_bytes() {
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => 3,
            _ => 1,
        };
        // A percent sign that begins no escape is encoded itself.
        safe.push_str(if length == 3 { &escape[..3] } else { "%25" });
        rest = &escape[length..];
    }
    safe.push_str(&encoded_except(rest, b":/?@!$'()*,;="));
    safe
}

fn encoded_except(text: &str, kept: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                safe.push(byte.into())
            }
            byte if kept.contains(&byte) => safe.push(byte.into()),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

/// A comma stands as it is between items; other separators are not allowed in a URL.
fn encoded_separator(separator: char) -> String {
    match separator {
        ',' => ",".to_owned(),
        other => encoded(&other.to_string()),
    }
}
