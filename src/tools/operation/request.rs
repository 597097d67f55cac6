//! Builds a request from arguments, by the index's metadata of an OpenAPI operation. Pure.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value};

use crate::printable::excerpt;
use crate::tools::{Arguments, text_of};

/// Headers that only the client may set, since they change the meaning of a request.
const FORBIDDEN_HEADERS: [&str; 9] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "authorization",
    "proxy-authorization",
    "upgrade",
    "accept-encoding",
];

/// The parts of a request.
#[derive(Debug)]
pub struct Parts {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<(String, Vec<u8>)>,
}

/// Builds the request for these arguments.
///
/// # Errors
/// A message for the model about an invalid argument.
pub fn parts(call: &Value, base: &Url, arguments: &Arguments) -> Result<Parts, String> {
    let method = call.get("method").and_then(Value::as_str).unwrap_or("GET");
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| format!("{method:?} is not an HTTP method"))?;
    let mut path = call
        .get("path")
        .and_then(Value::as_str)
        .unwrap_or("/")
        .to_owned();
    let (mut query, mut headers, mut cookies, mut form) =
        (Vec::new(), HeaderMap::new(), Vec::new(), Vec::new());
    for (argument, target) in parameters(call) {
        let Some(value) = arguments.get(argument).filter(|value| !value.is_null()) else {
            continue;
        };
        let name = target
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or(argument);
        match target.get("in").and_then(Value::as_str).unwrap_or_default() {
            "path" => path = path.replace(&format!("{{{name}}}"), &segment(argument, value)?),
            "query" => query.extend(pairs(name, target, value)),
            "header" => add_header(&mut headers, argument, name, &simple(value))?,
            "cookie" => cookies.push(format!("{}={}", encoded(name), encoded(&simple(value)))),
            "formData" => form.extend(pairs(name, target, value)),
            _ => {}
        }
    }
    if let Some(left) = path.split('{').nth(1) {
        return Err(format!("the argument for {{{left} in the path is missing"));
    }
    if !cookies.is_empty() {
        add_header(&mut headers, "cookie", "cookie", &cookies.join("; "))?;
    }
    let url = joined(base, &path, &query)?;
    let body = body(call, arguments, form)?;
    Ok(Parts {
        method,
        url,
        headers,
        body,
    })
}

/// The operation's parameters by the name of their argument.
fn parameters(call: &Value) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    let declared = call
        .get("parameters")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    declared.filter_map(|(argument, target)| Some((argument, target.as_object()?)))
}

/// The base URL with this path below its own, and this query.
fn joined(base: &Url, path: &str, query: &[(String, String)]) -> Result<Url, String> {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    // `set_path` resolves `..` in the document's own path too.
    if !url.path().starts_with(base.path().trim_end_matches('/')) {
        return Err("the arguments lead out of the service's own paths".into());
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Ok(url)
}

/// A value as one segment of a path.
fn segment(argument: &str, value: &Value) -> Result<String, String> {
    let text = simple(value);
    if text.is_empty() || text == "." || text == ".." {
        return Err(format!(
            "`{argument}` is {text:?}, which is not a valid part of a path"
        ));
    }
    Ok(encoded(&text))
}

/// Percent-encodes everything but unreserved characters (RFC 3986).
fn encoded(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                safe.push(byte.into())
            }
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

/// A value in OpenAPI's style `simple`: items separated by commas.
fn simple(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name},{}", text_of(value)))
            .collect::<Vec<_>>()
            .join(","),
        other => text_of(other),
    }
}

/// A query or form parameter, in its style.
fn pairs(name: &str, target: &Map<String, Value>, value: &Value) -> Vec<(String, String)> {
    let style = target
        .get("style")
        .and_then(Value::as_str)
        .unwrap_or("form");
    let format = target.get("collectionFormat").and_then(Value::as_str);
    let separator = match (style, format) {
        ("spaceDelimited", _) | (_, Some("ssv")) => " ",
        ("pipeDelimited", _) | (_, Some("pipes")) => "|",
        (_, Some("tsv")) => "\t",
        _ => ",",
    };
    let declared = target.get("explode").and_then(Value::as_bool);
    let explodes =
        declared.unwrap_or(style == "form" && format.is_none_or(|format| format == "multi"));
    let named = |value: String| (name.to_owned(), value);
    match value {
        Value::Array(items) if explodes => items.iter().map(|item| named(text_of(item))).collect(),
        Value::Array(items) => vec![named(
            items
                .iter()
                .map(text_of)
                .collect::<Vec<_>>()
                .join(separator),
        )],
        Value::Object(fields) if style == "deepObject" => fields
            .iter()
            .map(|(key, value)| (format!("{name}[{key}]"), text_of(value)))
            .collect(),
        Value::Object(fields) if explodes => fields
            .iter()
            .map(|(key, value)| (key.clone(), text_of(value)))
            .collect(),
        other => vec![named(simple(other))],
    }
}

fn add_header(
    headers: &mut HeaderMap,
    argument: &str,
    name: &str,
    value: &str,
) -> Result<(), String> {
    // Header names have no case, so `Host` is forbidden as `host` is.
    let lower = name.to_ascii_lowercase();
    if FORBIDDEN_HEADERS.contains(&lower.as_str()) {
        return Err(format!(
            "`{argument}` would set the header {name}, which is not for arguments to set"
        ));
    }
    let parsed = HeaderName::from_bytes(lower.as_bytes())
        .ok()
        .zip(HeaderValue::from_str(value).ok());
    let (name, value) = parsed.ok_or_else(|| {
        format!(
            "`{argument}` is {:?}, which is not valid in a header",
            excerpt(value, 60)
        )
    })?;
    headers.insert(name, value);
    Ok(())
}

/// The body and its content type, if the operation has one and arguments for it were given.
fn body(
    call: &Value,
    arguments: &Arguments,
    form: Vec<(String, String)>,
) -> Result<Option<(String, Vec<u8>)>, String> {
    let Some(declared) = call.get("body") else {
        return Ok(None);
    };
    let content_type = declared
        .get("content_type")
        .and_then(Value::as_str)
        .unwrap_or("application/json");
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if declared.get("form").is_some() {
        return Ok(Some(form_body(&form)));
    }
    let Some(content) = content(declared, arguments) else {
        return Ok(None);
    };
    if kind == "application/x-www-form-urlencoded" {
        let fields = content.as_object().into_iter().flatten();
        let form: Vec<(String, String)> = fields
            .flat_map(|(name, value)| pairs(name, &Map::new(), value))
            .collect();
        return Ok(Some(form_body(&form)));
    }
    if kind == "application/json" || kind.ends_with("+json") || kind == "*/*" {
        let kind = if kind == "*/*" {
            "application/json"
        } else {
            kind
        };
        return Ok(Some((kind.to_owned(), content.to_string().into_bytes())));
    }
    match content {
        Value::String(text) => Ok(Some((kind.to_owned(), text.into_bytes()))),
        _ => Err(format!(
            "a body of type {kind} cannot be built from these arguments"
        )),
    }
}

/// The body's content; `None` if no argument of it was given and it is not required.
fn content(declared: &Value, arguments: &Arguments) -> Option<Value> {
    if let Some(argument) = declared.get("argument").and_then(Value::as_str) {
        return arguments.get(argument).cloned();
    }
    let names = declared
        .get("properties")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let fields: Map<String, Value> = names
        .filter_map(|name| Some((name.to_owned(), arguments.get(name)?.clone())))
        .collect();
    let required = declared.get("required") == Some(&Value::Bool(true));
    (required || !fields.is_empty()).then_some(Value::Object(fields))
}

fn form_body(form: &[(String, String)]) -> (String, Vec<u8>) {
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    (
        "application/x-www-form-urlencoded".to_owned(),
        pairs.collect::<Vec<_>>().join("&").into_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(call: Value, arguments: Value) -> Result<Parts, String> {
        let base = Url::parse("https://api.test/v1/").unwrap();
        parts(&call, &base, arguments.as_object().unwrap())
    }

    fn url(call: Value, arguments: Value) -> String {
        made(call, arguments).unwrap().url.to_string()
    }

    #[test]
    fn arguments_are_placed_in_their_declared_styles() {
        let call = json!({ "method": "GET", "path": "/users/{id}/orders", "parameters": {
            "id": { "in": "path", "name": "id" },
            "tag": { "in": "query", "name": "tag" },
            "ids": { "in": "query", "name": "ids", "explode": false },
            "where": { "in": "query", "name": "where", "style": "deepObject" },
            "lang": { "in": "header", "name": "X-Lang" },
            "sid": { "in": "cookie", "name": "sid" },
        } });
        let parts = made(
            call,
            json!({ "id": "a b/ü", "tag": ["x", "y&z"], "ids": [1, 2], "where": { "k": true }, "lang": "de", "sid": "1;2" }),
        )
        .unwrap();
        assert_eq!(
            parts.url.as_str(),
            "https://api.test/v1/users/a%20b%2F%C3%BC/orders?tag=x&tag=y%26z&ids=1%2C2&where%5Bk%5D=true"
        );
        assert_eq!(
            (&parts.headers["x-lang"], &parts.headers["cookie"]),
            (&"de".parse().unwrap(), &"sid=1%3B2".parse().unwrap())
        );
    }

    #[test]
    fn path_arguments_cannot_leave_their_segment() {
        let call = || json!({ "path": "/users/{id}", "parameters": { "id": { "in": "path", "name": "id" } } });
        for id in ["..", ".", ""] {
            assert!(
                made(call(), json!({ "id": id }))
                    .unwrap_err()
                    .contains("not a valid part of a path"),
                "{id:?}"
            );
        }
        for (id, expected) in [
            ("../admin", "/v1/users/..%2Fadmin"),
            ("%2e%2e", "/v1/users/%252e%252e"),
            ("a?b#c", "/v1/users/a%3Fb%23c"),
            ("//evil.test/x", "/v1/users/%2F%2Fevil.test%2Fx"),
        ] {
            assert_eq!(
                url(call(), json!({ "id": id })),
                format!("https://api.test{expected}")
            );
        }
        assert!(made(call(), json!({})).unwrap_err().contains("{id}"));
    }

    #[test]
    fn headers_cannot_be_injected_or_overridden() {
        let call = |name: &str| json!({ "path": "/", "parameters": { "h": { "in": "header", "name": name } } });
        assert!(
            made(call("X-A"), json!({ "h": "a\r\nHost: evil" }))
                .unwrap_err()
                .contains("not valid in a header")
        );
        for name in ["Host", "Authorization", "Transfer-Encoding"] {
            assert!(
                made(call(name), json!({ "h": "x" }))
                    .unwrap_err()
                    .contains("not for arguments to set"),
                "{name}"
            );
        }
    }

    #[test]
    fn bodies_are_built_from_arguments() {
        let flat = json!({ "method": "POST", "path": "/", "body": { "content_type": "application/json", "required": true, "properties": ["a", "b"] } });
        let body = |call: Value, arguments: Value| {
            made(call, arguments)
                .unwrap()
                .body
                .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(
            body(flat.clone(), json!({ "a": 1, "c": 2 })).as_deref(),
            Some(r#"{"a":1}"#)
        );
        assert_eq!(body(flat, json!({})).as_deref(), Some("{}"));
        let whole = json!({ "path": "/", "body": { "content_type": "application/json", "argument": "body" } });
        assert_eq!(
            body(whole.clone(), json!({ "body": [1] })).as_deref(),
            Some("[1]")
        );
        assert_eq!(body(whole, json!({})), None);
        let form = json!({ "path": "/", "body": { "content_type": "application/x-www-form-urlencoded", "properties": ["a"] } });
        assert_eq!(
            body(form, json!({ "a": "x&y=z" })).as_deref(),
            Some("a=x%26y%3Dz")
        );
    }
}
