//! How the arguments of an operation are written into its request: the kind of the body, its encodings
//! and files, the styles of parameters, and what a request never carries.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::refs::{DATA_KEYWORDS, NAME_KEYWORDS};

/// Headers that the client sets itself, or that OpenAPI describes by other fields.
const CLIENTS_HEADERS: [&str; 11] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];
/// Of these OpenAPI itself says that a parameter is ignored, so nobody needs to hear of it.
const IGNORED_HEADERS: [&str; 3] = ["accept", "authorization", "content-type"];
/// Keywords whose schemas describe the same value.
const BRANCHES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// How a field of a form may be declared.
const ENCODING_KEYS: [&str; 4] = ["style", "explode", "allowReserved", "contentType"];
/// What a model reads about an argument that is a file.
const HOW_TO_GIVE_A_FILE: &str = "A file: a path in the folder for files, a data: URL, or an object with `path` or \
                                  `base64`, and if wanted `filename` and `content_type`.";
/// Longest quotation in a warning, in characters.
const QUOTED_CHARS: usize = 80;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// As JSON.
    Json,
    /// As `application/x-www-form-urlencoded`.
    Form,
    /// As `multipart/form-data`.
    Multipart,
    /// As the one argument has it: a text or a file.
    Plain,
}

impl BodyKind {
    /// The kind of a media type, whatever its parameters and case.
    pub fn of(content_type: &str) -> Self {
        match essence(content_type).as_str() {
            "" | "*/*" | "application/*" => BodyKind::Json,
            "application/x-www-form-urlencoded" => BodyKind::Form,
            "multipart/form-data" | "multipart/*" => BodyKind::Multipart,
            kind if kind.ends_with("/json") || kind.ends_with("+json") => BodyKind::Json,
            _ => BodyKind::Plain,
        }
    }

    fn has_fields(self) -> bool {
        matches!(self, BodyKind::Form | BodyKind::Multipart)
    }
}

/// A media type in lower case, without its parameters.
fn essence(content_type: &str) -> String {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// The media type that a request is best written in, if several are offered: the lowest.
pub(super) fn preference(content_type: &str) -> u8 {
    let kind = essence(content_type);
    match BodyKind::of(content_type) {
        BodyKind::Json if kind.contains('*') => 1,
        BodyKind::Json => 0,
        BodyKind::Form => 2,
        BodyKind::Multipart => 3,
        BodyKind::Plain if kind.starts_with("text/") => 4,
        BodyKind::Plain => 5,
    }
}

/// The media type of a Swagger 2.0 body.
pub(super) fn body_type<'a>(consumes: &[&'a str]) -> &'a str {
    let bodies = consumes
        .iter()
        .filter(|kind| !BodyKind::of(kind).has_fields());
    let best = bodies.min_by_key(|kind| preference(kind));
    best.copied().unwrap_or("application/json")
}

/// The media type of a Swagger 2.0 form.
pub(super) fn form_type<'a>(consumes: &[&'a str], has_file: bool) -> &'a str {
    let forms = consumes.iter().filter(|kind| match BodyKind::of(kind) {
        // A file has no place between `&` and `=`.
        BodyKind::Form => !has_file,
        BodyKind::Multipart => true,
        BodyKind::Json | BodyKind::Plain => false,
    });
    let best = forms.min_by_key(|kind| preference(kind));
    best.copied().unwrap_or(match has_file {
        true => "multipart/form-data",
        false => "application/x-www-form-urlencoded",
    })
}

/// Whether a parameter is an argument of the tool.
pub(super) enum Placement {
    /// It is.
    Argument,
    /// It is not, as OpenAPI says.
    Ignored,
    /// It is not, and here is what to say about it.
    LeftOut(String),
}

impl Placement {
    pub(super) fn of(name: &str, place: &str) -> Self {
        // Names of headers have no case.
        let lower = name.to_ascii_lowercase();
        let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
        match place {
            "header" if IGNORED_HEADERS.contains(&lower.as_str()) => Placement::Ignored,
            "header" if CLIENTS_HEADERS.contains(&lower.as_str()) => {
                Placement::left_out(name, "the client sets this header itself")
            }
            "header" if !is_token => Placement::left_out(name, "no header can have this name"),
            "path" | "query" | "header" | "cookie" | "body" | "formData" => Placement::Argument,
            other => {
                let reason = format!("a request has no place {:?}", cut(other));
                Placement::left_out(name, &reason)
            }
        }
    }

    fn left_out(name: &str, reason: &str) -> Self {
        let name = quoted(name);
        Placement::LeftOut(format!("the parameter {name} is left out: {reason}"))
    }
}

/// True for the bytes of a header's name (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// True for a style in which a parameter at this place can be written.
fn is_style(style: &str, place: &str) -> bool {
    match place {
        "path" => ["simple", "label", "matrix"].contains(&style),
        "header" => style == "simple",
        "cookie" => style == "form",
        _ => ["form", "spaceDelimited", "pipeDelimited", "deepObject"].contains(&style),
    }
}

/// Adds how a parameter is written to its target. Returns a warning for a style that does not exist there; the usual
/// one is taken.
pub(super) fn add_style(
    target: &mut Map<String, Value>,
    parameter: &Value,
    content_type: Option<&str>,
) -> Option<String> {
    let place = target["in"].as_str().unwrap_or_default().to_owned();
    for key in ["explode", "allowReserved", "collectionFormat"] {
        if let Some(value) = parameter.get(key) {
            target.insert(key.to_owned(), value.clone());
        }
    }
    // Only a Swagger 2.0 parameter has a type of its own.
    if let Some(kind) = parameter.get("type")
        && kind == "array"
        && !target.contains_key("collectionFormat")
    {
        target.insert("collectionFormat".into(), "csv".into());
    }
    if let Some(content_type) = content_type {
        target.insert("content_type".into(), content_type.into());
    }
    let style = parameter.get("style")?;
    if let Some(known) = style.as_str()
        && is_style(known, &place)
    {
        target.insert("style".into(), known.into());
        return None;
    }
    let name = target["name"].as_str().unwrap_or_default();
    Some(format!(
        "the parameter {} is written in the usual style of a {place} parameter: its style {} does not exist there",
        quoted(name),
        cut(&style.to_string())
    ))
}

/// What a body's request needs beside its schema, which is changed to what the caller gives: without
/// what only the server writes, and with a file for binary content.
pub(super) fn add_content(
    target: &mut Map<String, Value>,
    schema: &mut Value,
    encoding: Option<&Value>,
) -> Option<String> {
    remove_read_only(schema);
    // A null body is no body, and the caller leaves it out instead.
    if let Value::Object(fields) = schema {
        fields.remove("nullable");
    }
    let content_type = target["content_type"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    match BodyKind::of(&content_type) {
        BodyKind::Json => None,
        BodyKind::Plain => {
            if replace_files(schema) {
                target.insert("file".into(), true.into());
                return None;
            }
            if !declares(schema, "object") && !declares(schema, "array") {
                return None;
            }
            Some(format!(
                "its body is {content_type}, which is not built from fields: a call fails unless the body is given \
                 as text"
            ))
        }
        kind => {
            let is_object = declares(schema, "object") || schema.get("type").is_none();
            if let Some(declared) = encoding.map(encodings)
                && !declared.is_empty()
            {
                target.insert("encoding".into(), declared.into());
            }
            if kind == BodyKind::Multipart {
                let mut files = BTreeSet::new();
                add_files(schema, encoding, &mut files);
                if !files.is_empty() {
                    target.insert("files".into(), files.into_iter().collect());
                }
            }
            if is_object {
                return None;
            }
            Some(format!(
                "its body is {content_type}, whose fields are those of an object, and its schema is none"
            ))
        }
    }
}

fn declares(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        // Since OpenAPI 3.1 a value may be of several types.
        Some(Value::Array(all)) => all.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => kind == "object" && schema.get("properties").is_some(),
    }
}

/// How each field of a form is written, where the document says so.
fn encodings(encoding: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    for (name, declared) in encoding.as_object().into_iter().flatten() {
        let mut of_field = Map::new();
        for key in ENCODING_KEYS {
            if let Some(value) = declared.get(key) {
                of_field.insert(key.to_owned(), value.clone());
            }
        }
        if !of_field.is_empty() {
            kept.insert(name.clone(), of_field.into());
        }
    }
    kept
}

/// Adds the fields of a multipart body that are files, of all branches. Their schemas then say how a file
/// is given.
fn add_files(schema: &mut Value, encoding: Option<&Value>, files: &mut BTreeSet<String>) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        let content_type = encoding.and_then(|all| all.get(name)?.get("contentType")?.as_str());
        // Since OpenAPI 3.1 a field without a type is a file if its media type is that of one.
        let is_untyped = is_open(property) && content_type.is_some_and(is_of_file);
        if is_untyped || is_named_file(name, property) {
            *property = file_schema(property);
            files.insert(name.clone());
        } else if replace_files(property) {
            files.insert(name.clone());
        }
    }
    for keyword in BRANCHES {
        let branches = schema.get_mut(keyword).and_then(Value::as_array_mut);
        for branch in branches.into_iter().flatten() {
            add_files(branch, encoding, files);
        }
    }
}

/// True for a schema that says nothing of what the value may be.
fn is_open(schema: &Value) -> bool {
    let mut keywords = ["type", "properties"].into_iter().chain(BRANCHES);
    keywords.all(|keyword| schema.get(keyword).is_none())
}

/// True for a plain text called `file`, as some documents have the file that the form is there for.
fn is_named_file(name: &str, property: &Value) -> bool {
    let is_plain = ["format", "enum", "const", "pattern"]
        .iter()
        .all(|key| property.get(*key).is_none());
    name == "file" && is_plain && declares(property, "string")
}

fn is_of_file(content_type: &str) -> bool {
    let first = content_type.split(',').next().unwrap_or_default();
    BodyKind::of(first) == BodyKind::Plain && !essence(first).starts_with("text/")
}

/// Replaces schemas of binary content, which JSON cannot hold, by the schema of a file. Returns true
/// if there were any.
pub(super) fn replace_files(schema: &mut Value) -> bool {
    if is_binary(schema) {
        *schema = file_schema(schema);
        return true;
    }
    let mut found = false;
    if let Some(items) = schema.get_mut("items") {
        found |= replace_files(items);
    }
    for keyword in BRANCHES {
        let branches = schema.get_mut(keyword).and_then(Value::as_array_mut);
        for branch in branches.into_iter().flatten() {
            found |= replace_files(branch);
        }
    }
    found
}

fn is_binary(schema: &Value) -> bool {
    let is_text = schema.get("type").is_none() || declares(schema, "string");
    let is_encoded = schema.get("contentEncoding").is_some();
    let is_binary_text = schema.get("format").and_then(Value::as_str) == Some("binary");
    // Swagger 2.0 has the type `file`, OpenAPI 3.0 a format, and 3.1 a media type.
    declares(schema, "file")
        || is_text && is_binary_text
        || is_text && !is_encoded && is_media_of_file(schema)
}

fn is_media_of_file(schema: &Value) -> bool {
    let media = schema.get("contentMediaType").and_then(Value::as_str);
    media.is_some_and(is_of_file)
}

fn file_schema(declared: &Value) -> Value {
    let own = declared.get("description").and_then(Value::as_str);
    let description = match own {
        Some(text) => format!("{} {HOW_TO_GIVE_A_FILE}", text.trim_end()),
        None => HOW_TO_GIVE_A_FILE.to_owned(),
    };
    // No properties: a small document may have very many files.
    json!({ "type": ["string", "object"], "description": description })
}

/// Removes the properties that only the server writes, at any depth: a request has to leave them out.
pub(super) fn remove_read_only(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(remove_read_only),
        Value::Object(fields) => {
            let mut names = BTreeSet::new();
            collect_read_only(fields, &mut names);
            if !names.is_empty() {
                leave_out(fields, &names);
            }
            for (keyword, value) in fields.iter_mut() {
                if DATA_KEYWORDS.contains(&keyword.as_str()) {
                    continue;
                }
                match value {
                    Value::Object(named) if NAME_KEYWORDS.contains(&keyword.as_str()) => {
                        named.values_mut().for_each(remove_read_only);
                    }
                    _ => remove_read_only(value),
                }
            }
        }
        _ => {}
    }
}

/// The read-only properties of an object, which several branches of `allOf` may describe together.
fn collect_read_only(schema: &Map<String, Value>, names: &mut BTreeSet<String>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if is_read_only(property) {
            names.insert(name.clone());
        }
    }
    for branch in branches(schema, "allOf").filter_map(Value::as_object) {
        collect_read_only(branch, names);
    }
}

fn is_read_only(property: &Value) -> bool {
    let Some(fields) = property.as_object() else {
        return false;
    };
    fields.get("readOnly") == Some(&Value::Bool(true))
        || branches(fields, "allOf").any(is_read_only)
}

fn branches<'a>(
    schema: &'a Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let all = schema.get(keyword).and_then(Value::as_array);
    all.into_iter().flatten()
}

/// Removes these properties from an object's schema and from all branches that describe it too.
fn leave_out(schema: &mut Map<String, Value>, names: &BTreeSet<String>) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| !names.contains(name));
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| match name {
            Value::String(name) => !names.contains(name),
            _ => true,
        });
    }
    for keyword in BRANCHES {
        let branches = schema.get_mut(keyword).and_then(Value::as_array_mut);
        for branch in branches.into_iter().flatten() {
            if let Value::Object(fields) = branch {
                leave_out(fields, names);
            }
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", cut(name))
}

fn cut(text: &str) -> String {
    super::super::cut(text, QUOTED_CHARS)
}
