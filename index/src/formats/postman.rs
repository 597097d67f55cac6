//! Postman collections v2.0 and v2.1 as OpenAPI documents.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::foreign::{insert_operation, text};

/// Folders within folders that are read.
const MAX_FOLDERS: usize = 32;
/// Variables of a collection that are filled in: each text is searched for each of them.
const MAX_VARIABLES: usize = 1_000;
/// Variables of variables that are filled in.
const MAX_ROUNDS: usize = 8;
/// Longest text that variables make.
const MAX_FILLED_BYTES: usize = 8 << 10;
/// Levels of an example that become a schema.
const MAX_EXAMPLE_LEVELS: usize = 32;
/// Headers that a client sets itself.
const CLIENTS_HEADERS: [&str; 3] = ["authorization", "content-type", "content-length"];

/// The OpenAPI document of the same requests: folders are tags, and what a request has as an example is
/// an argument.
pub(super) fn to_openapi(collection: &Value) -> Value {
    // Answers of Postman's API have the collection inside.
    let collection = collection.get("collection").unwrap_or(collection);
    let mut conversion = Conversion {
        variables: variables(collection),
        paths: Map::new(),
        schemes: Map::new(),
    };
    let root = Folder {
        names: Vec::new(),
        auth: collection.get("auth"),
    };
    conversion.items(collection, &root);
    let info = collection.get("info").unwrap_or(&Value::Null);
    json!({
        "openapi": "3.1.0",
        "info": { "title": text(info, "name"), "version": "1" },
        "paths": conversion.paths,
        "components": { "securitySchemes": conversion.schemes },
    })
}

/// The folders around a request, and the authentication that the nearest of them declares.
#[derive(Clone)]
struct Folder<'a> {
    names: Vec<&'a str>,
    auth: Option<&'a Value>,
}

struct Conversion {
    variables: Map<String, Value>,
    paths: Map<String, Value>,
    schemes: Map<String, Value>,
}

fn variables(owner: &Value) -> Map<String, Value> {
    let named = list(owner, "variable").filter_map(variable);
    named.take(MAX_VARIABLES).collect()
}

/// The name and the value of a variable; `None` for one that cannot be filled in.
fn variable(declared: &Value) -> Option<(String, Value)> {
    if is_disabled(declared) {
        return None;
    }
    let name = declared.get("key").or(declared.get("id"))?.as_str()?;
    let value = plain(declared.get("value")?)?;
    Some((name.to_owned(), Value::String(value)))
}

/// The authentication that a request or a folder declares itself.
fn own_auth(owner: &Value) -> Option<&Value> {
    owner.get("auth").filter(|auth| !auth.is_null())
}

/// A value of an authentication of this kind.
fn auth_detail<'a>(auth: &'a Value, kind: &str, key: &str) -> Option<&'a str> {
    let value = match auth.get(kind)? {
        // Version 2.1 has a list of keys and values there, 2.0 an object.
        Value::Array(listed) => {
            let named = listed.iter().find(|field| text(field, "key") == key)?;
            named.get("value")?
        }
        fields => fields.get(key)?,
    };
    value.as_str()
}

impl Conversion {
    fn items(&mut self, owner: &Value, folder: &Folder<'_>) {
        for item in list(owner, "item") {
            // Folders that are nested more deeply are not read: this recurses.
            if item.get("item").is_some() && folder.names.len() < MAX_FOLDERS {
                let mut inner = folder.clone();
                inner.names.push(text(item, "name"));
                inner.auth = own_auth(item).or(folder.auth);
                self.items(item, &inner);
            }
            match item.get("request") {
                Some(Value::String(url)) => {
                    let request = json!({ "method": "GET", "url": url });
                    self.request(item, &request, folder);
                }
                Some(request) if request.is_object() => self.request(item, request, folder),
                _ => {}
            }
        }
    }

    fn request(&mut self, item: &Value, request: &Value, folder: &Folder<'_>) {
        let url = Address::of(request.get("url").unwrap_or(&Value::Null), &self.variables);
        let mut parameters = url.parameters;
        parameters.extend(self.headers(request));
        let mut operation = json!({
            "operationId": as_name(text(item, "name")),
            "summary": text(item, "name"),
            "description": description(request).or(description(item)).unwrap_or_default(),
            "tags": folder.names,
            "parameters": parameters,
        });
        if !url.base.is_empty() {
            operation["servers"] = json!([{ "url": url.base }]);
        }
        if let Some(body) = request.get("body")
            && let Some(body) = self.body(body)
        {
            operation["requestBody"] = body;
        }
        if let Some(auth) = own_auth(request).or(folder.auth)
            && let Some(security) = self.security(auth)
        {
            operation["security"] = security;
        }
        let method = match text(request, "method") {
            "" => "get".to_owned(),
            method => method.to_ascii_lowercase(),
        };
        let is_known = super::openapi::METHODS.contains(&method.as_str());
        if is_known {
            insert_operation(&mut self.paths, url.path, &method, operation);
        } else {
            let others = json!({ method.to_ascii_uppercase(): operation });
            insert_operation(&mut self.paths, url.path, "additionalOperations", others);
        }
    }

    fn headers(&self, request: &Value) -> Vec<Value> {
        let mut headers = Vec::new();
        for header in list(request, "header") {
            let name = text(header, "key").to_ascii_lowercase();
            if is_disabled(header) || name.is_empty() || CLIENTS_HEADERS.contains(&name.as_str()) {
                continue;
            }
            headers.push(self.parameter(header, "header"));
        }
        headers
    }

    fn parameter(&self, declared: &Value, place: &str) -> Value {
        parameter(declared, place, &self.variables)
    }

    fn body(&self, body: &Value) -> Option<Value> {
        let (media_type, schema) = match text(body, "mode") {
            "raw" => self.raw(body),
            "urlencoded" => (
                "application/x-www-form-urlencoded",
                self.form(list(body, "urlencoded")),
            ),
            "formdata" => ("multipart/form-data", self.form(list(body, "formdata"))),
            "graphql" => {
                let query = text(body.get("graphql")?, "query");
                let properties = json!({
                    "query": { "type": "string", "examples": [query] },
                    "variables": { "type": "object" },
                });
                let schema =
                    json!({ "type": "object", "properties": properties, "required": ["query"] });
                ("application/json", schema)
            }
            "file" => (
                "application/octet-stream",
                json!({ "type": "string", "format": "binary" }),
            ),
            _ => return None,
        };
        Some(json!({ "required": true, "content": { media_type: { "schema": schema } } }))
    }

    fn raw(&self, body: &Value) -> (&'static str, Value) {
        let raw = text(body, "raw");
        let language = body
            .pointer("/options/raw/language")
            .and_then(Value::as_str);
        let as_json = match serde_json::from_str::<Value>(raw) {
            Ok(example) => Some(example),
            // A variable in place of a number is not JSON.
            Err(_) => serde_json::from_str(&filled(raw, &self.variables)).ok(),
        };
        match (as_json, language) {
            (Some(example), _) if example.is_object() || example.is_array() => {
                ("application/json", schema_of(&example, 0))
            }
            (_, Some("json")) => (
                "application/json",
                json!({ "description": example_text(raw) }),
            ),
            (_, Some("xml")) => (
                "application/xml",
                json!({ "type": "string", "examples": [raw] }),
            ),
            _ => ("text/plain", json!({ "type": "string", "examples": [raw] })),
        }
    }

    fn form<'a>(&self, fields: impl Iterator<Item = &'a Value>) -> Value {
        let mut properties = Map::new();
        for field in fields {
            if is_disabled(field) {
                continue;
            }
            let mut schema = match text(field, "type") {
                "file" => json!({ "type": "string", "format": "binary" }),
                _ => self.parameter(field, "query")["schema"].take(),
            };
            if let Some(text) = description(field) {
                schema["description"] = text.into();
            }
            properties.insert(text(field, "key").to_owned(), schema);
        }
        json!({ "type": "object", "properties": properties })
    }

    /// The security of a request; `None` for a kind that no profile can send.
    fn security(&mut self, auth: &Value) -> Option<Value> {
        let kind = text(auth, "type");
        let scheme = match kind {
            "noauth" => return Some(json!([])),
            "bearer" => json!({ "type": "http", "scheme": "bearer" }),
            "basic" => json!({ "type": "http", "scheme": "basic" }),
            "apikey" => json!({
                "type": "apiKey",
                "name": auth_detail(auth, kind, "key").unwrap_or("X-API-Key"),
                "in": auth_detail(auth, kind, "in").unwrap_or("header"),
            }),
            "oauth2" => json!({ "type": "oauth2" }),
            _ => return None,
        };
        self.schemes.insert(kind.to_owned(), scheme);
        Some(json!([{ kind: [] }]))
    }
}

/// A URL in its parts.
struct Address {
    /// Scheme and host; empty where a variable without a value stands for them.
    base: String,
    path: String,
    parameters: Vec<Value>,
}

impl Address {
    fn of(url: &Value, variables: &Map<String, Value>) -> Self {
        let raw = match url {
            Value::String(raw) => raw.clone(),
            url => match text(url, "raw") {
                "" => joined(url),
                raw => raw.to_owned(),
            },
        };
        let (address, query) = match raw.split_once('?') {
            Some((address, query)) => (address, query.split('#').next().unwrap_or_default()),
            None => (raw.split('#').next().unwrap_or_default(), ""),
        };
        let (base, path) = split_base(address, variables);
        let mut parameters = Vec::new();
        let declared = list(url, "variable");
        let path = templated(
            &path,
            &declared.collect::<Vec<_>>(),
            variables,
            &mut parameters,
        );
        parameters.extend(query_parameters(url, query, variables));
        let mut seen = BTreeSet::new();
        parameters
            .retain(|one| seen.insert((text(one, "in").to_owned(), text(one, "name").to_owned())));
        Address {
            base,
            path,
            parameters,
        }
    }
}

/// The parameters of a URL's query: as they are listed, or else as they are written.
fn query_parameters(url: &Value, written: &str, variables: &Map<String, Value>) -> Vec<Value> {
    let mut parameters = Vec::new();
    if url.get("query").is_some() {
        for listed in list(url, "query") {
            if !is_disabled(listed) {
                parameters.push(parameter(listed, "query", variables));
            }
        }
        return parameters;
    }
    for pair in written.split('&') {
        if pair.is_empty() {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let declared = json!({ "key": key, "value": value });
        parameters.push(parameter(&declared, "query", variables));
    }
    parameters
}

/// A part of a URL, whether it is written as a whole or as a list.
fn part(url: &Value, field: &str, between: &str) -> String {
    match url.get(field) {
        Some(Value::Array(parts)) => {
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
            parts.join(between)
        }
        Some(Value::String(whole)) => whole.clone(),
        _ => String::new(),
    }
}

/// The URL of its parts, where it is not written out.
fn joined(url: &Value) -> String {
    let protocol = match text(url, "protocol") {
        "" => String::new(),
        protocol => format!("{protocol}://"),
    };
    let port = match text(url, "port") {
        "" => String::new(),
        port => format!(":{port}"),
    };
    let host = part(url, "host", ".");
    let path = part(url, "path", "/");
    let path = path.trim_start_matches('/');
    format!("{protocol}{host}{port}/{path}")
}

/// The server's part of an address, with variables filled in, and its path.
fn split_base(address: &str, variables: &Map<String, Value>) -> (String, String) {
    let after_scheme = match address.find("://") {
        Some(at) => at + "://".len(),
        None => 0,
    };
    let slash = address[after_scheme..].find('/');
    let (base, path) = match slash {
        Some(at) => address.split_at(after_scheme + at),
        None => (address, ""),
    };
    let base = filled(base, variables);
    let path = if path.is_empty() { "/" } else { path };
    // The value of a variable may have a path of its own, which belongs to the base.
    let base = match base.contains("{{") {
        true => String::new(),
        false if base.is_empty() || base.contains("://") => base,
        false => format!("https://{base}"),
    };
    (base.trim_end_matches('/').to_owned(), path.to_owned())
}

/// The path with `{name}` for `:name` and `{{name}}`, which become parameters.
fn templated(
    path: &str,
    declared: &[&Value],
    variables: &Map<String, Value>,
    parameters: &mut Vec<Value>,
) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        let Some(name) = named_segment(segment) else {
            // A variable without a value within a segment becomes a parameter of the path too.
            let filled = filled(segment, variables);
            segments.push(filled.replace("{{", "{").replace("}}", "}"));
            continue;
        };
        let known = declared.iter().find(|one| text(one, "key") == name);
        let value = variables.get(name).cloned().unwrap_or_default();
        let unknown = json!({ "key": name, "value": value });
        let declared = known.copied().unwrap_or(&unknown);
        parameters.push(parameter(declared, "path", variables));
        segments.push(format!("{{{name}}}"));
    }
    segments.join("/")
}

/// The name of a segment that stands for a value: `:name` or `{{name}}`.
fn named_segment(segment: &str) -> Option<&str> {
    match segment.strip_prefix(':') {
        Some(name) if !name.is_empty() => Some(name),
        _ => segment.strip_prefix("{{")?.strip_suffix("}}"),
    }
}

/// A key and its value as a parameter. The value is an example, and no default: nobody said that the
/// service assumes it.
fn parameter(declared: &Value, place: &str, variables: &Map<String, Value>) -> Value {
    let mut schema = json!({ "type": "string" });
    let value = declared.get("value").and_then(plain).unwrap_or_default();
    let value = filled(&value, variables);
    if !value.is_empty() && !value.contains("{{") {
        schema["examples"] = json!([value]);
    }
    let mut parameter = json!({
        "name": text(declared, "key"),
        "in": place,
        "required": place == "path",
        "schema": schema,
    });
    if let Some(text) = description(declared) {
        parameter["description"] = text.into();
    }
    parameter
}

/// The text with variables filled in, as far as they have values.
fn filled(template: &str, variables: &Map<String, Value>) -> String {
    let mut text = template.to_owned();
    for _ in 0..MAX_ROUNDS {
        if !text.contains("{{") {
            break;
        }
        let before = text.clone();
        for (name, value) in variables {
            let placeholder = format!("{{{{{name}}}}}");
            let value = value.as_str().unwrap_or_default();
            if value.is_empty() || !text.contains(&placeholder) {
                continue;
            }
            // Before replacing, since variables of variables double a text again and again.
            if text.len() + text.matches(&placeholder).count() * value.len()
                > MAX_FILLED_BYTES.max(template.len())
            {
                return text;
            }
            text = text.replace(&placeholder, value);
        }
        if text == before {
            break;
        }
    }
    text
}

/// The schema of values like this one.
fn schema_of(example: &Value, level: usize) -> Value {
    if level > MAX_EXAMPLE_LEVELS {
        return json!({});
    }
    match example {
        Value::Object(fields) => {
            let mut properties = Map::new();
            for (name, value) in fields {
                properties.insert(name.clone(), schema_of(value, level + 1));
            }
            json!({ "type": "object", "properties": properties })
        }
        Value::Array(items) => {
            let of_items = match items.first() {
                Some(item) => schema_of(item, level + 1),
                None => json!({}),
            };
            json!({ "type": "array", "items": of_items })
        }
        // A variable may stand for any value.
        Value::String(value) if value.contains("{{") => json!({}),
        Value::String(_) => json!({ "type": "string", "examples": [example] }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(number) => match number.is_f64() {
            true => json!({ "type": "number" }),
            false => json!({ "type": "integer" }),
        },
        Value::Null => json!({}),
    }
}

fn example_text(raw: &str) -> String {
    format!("For example: {}", super::cut(raw, 500))
}

/// The name of a request as that of a tool: its words joined by `_`.
fn as_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("_")
}

fn description(owner: &Value) -> Option<&str> {
    let described = owner.get("description")?;
    let text = match described {
        Value::String(text) => text.as_str(),
        // An object has the text with its media type.
        described => described.get("content")?.as_str()?,
    };
    if text.trim().is_empty() {
        return None;
    }
    Some(text)
}

fn list<'a>(owner: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let items = owner.get(field).and_then(Value::as_array);
    items.into_iter().flatten()
}

fn is_disabled(one: &Value) -> bool {
    one.get("disabled") == Some(&Value::Bool(true))
}

/// A value that stands in a URL or a form.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}
