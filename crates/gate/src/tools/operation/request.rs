//! Builds a request from arguments, by the index's metadata of an OpenAPI operation. Pure.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value};
use toolscout_index::formats::BodyKind;

use crate::tools::Arguments;
use crate::tools::operation::body::{Body, Field, body};
use crate::tools::operation::error::RequestError;
use crate::tools::operation::styles::{Pair, Style, encoded};
use crate::tools::percent::decoded;

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

/// How often a path may be percent-encoded on top of itself.
const MAX_DECODINGS: usize = 3;

/// The parts of a request.
#[derive(Debug)]
pub struct Parts {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Body>,
}

/// Builds the request for these arguments.
///
/// # Errors
/// [`RequestError`] for an argument that does not fit.
pub fn parts(call: &Value, base: &Url, arguments: &Arguments) -> Result<Parts, RequestError> {
    let method = call.get("method").and_then(Value::as_str).unwrap_or("GET");
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return Err(RequestError::Method(method.to_owned()));
    };
    refuse_unknown(call, arguments)?;
    let mut placed = Placed::default();
    for (argument, target) in parameters(call) {
        match arguments.get(argument) {
            // The gate has said that such a null is left out.
            None | Some(Value::Null) => {}
            Some(value) => placed.add(argument, target, value)?,
        }
    }
    if !placed.cookies.is_empty() {
        let cookies = placed.cookies.join("; ");
        add_header(&mut placed.headers, "cookie", "cookie", &cookies)?;
    }
    let template = call.get("path").and_then(Value::as_str).unwrap_or("/");
    let template = Template::of(template);
    let path = template.path(&placed.segments)?;
    let url = joined(
        base,
        &path,
        &template.query(&placed.segments, &placed.query),
    )?;
    Ok(Parts {
        method,
        url,
        headers: placed.headers,
        body: body(call, arguments, &placed.form)?,
    })
}

/// The arguments that are null at a place where nothing stands for it: a parameter, or a field of a
/// form. The request leaves them out.
pub fn unwritable_nulls(call: &Value, arguments: &Arguments) -> Vec<String> {
    let mut places: Vec<&str> = parameters(call).map(|(name, _)| name.as_str()).collect();
    if let Some(Value::String(content_type)) = call.pointer("/body/content_type")
        && matches!(
            BodyKind::of(content_type),
            BodyKind::Form | BodyKind::Multipart
        )
    {
        places.extend(body_properties(call));
    }
    places.retain(|name| arguments.get(*name) == Some(&Value::Null));
    places.into_iter().map(str::to_owned).collect()
}

/// The arguments that are fields of the body.
fn body_properties(call: &Value) -> impl Iterator<Item = &str> {
    let properties = call.pointer("/body/properties").and_then(Value::as_array);
    let properties = properties.into_iter().flatten();
    properties.filter_map(Value::as_str)
}

/// Arguments where they belong in a request.
#[derive(Default)]
struct Placed<'a> {
    /// Encoded values of the path's placeholders.
    segments: BTreeMap<&'a str, String>,
    query: Vec<Pair>,
    headers: HeaderMap,
    cookies: Vec<String>,
    form: Vec<Field<'a>>,
}

impl<'a> Placed<'a> {
    fn add(
        &mut self,
        argument: &'a str,
        target: &'a Map<String, Value>,
        value: &'a Value,
    ) -> Result<(), RequestError> {
        let declared_name = target.get("name").and_then(Value::as_str);
        let name = declared_name.unwrap_or(argument);
        let place = target.get("in").and_then(Value::as_str);
        match place.unwrap_or_default() {
            "path" => {
                let segment = Style::of(target, "simple").in_path(name, value);
                if segment.is_empty() {
                    return Err(not_a_segment(argument, &segment));
                }
                self.segments.insert(name, segment);
            }
            "query" => self
                .query
                .extend(Style::of(target, "form").pairs(name, value)),
            "header" => {
                let text = Style::of(target, "simple").text(value);
                add_header(&mut self.headers, argument, name, &text)?;
            }
            "cookie" => {
                let text = Style::of(target, "simple").text(value);
                self.cookies
                    .push(format!("{}={}", encoded(name), encoded(&text)));
            }
            "formData" => self.form.push(Field {
                name,
                declared: target,
                is_file: target.contains_key("file"),
                value,
            }),
            _ => {}
        }
        Ok(())
    }
}

/// The operation's parameters by the name of their argument.
fn parameters(call: &Value) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    let declared = call.get("parameters").and_then(Value::as_object);
    let declared = declared.into_iter().flatten();
    declared.filter_map(|(argument, target)| Some((argument, target.as_object()?)))
}

/// Refuses an argument that has no place in the request: it would be lost without a word.
fn refuse_unknown(call: &Value, arguments: &Arguments) -> Result<(), RequestError> {
    let mut known: Vec<&str> = parameters(call).map(|(name, _)| name.as_str()).collect();
    known.extend(body_properties(call));
    // A body that is no object is one argument as a whole.
    known.extend(call.pointer("/body/argument").and_then(Value::as_str));
    let mut names = arguments.keys();
    let Some(unknown) = names.find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    Err(RequestError::UnknownArgument {
        name: unknown.clone(),
        known: known.into_iter().map(str::to_owned).collect(),
    })
}

/// A path of a document, which may hold a query, and a fragment that tells apart operations of one
/// address and is never sent.
struct Template {
    path: String,
    query: String,
}

impl Template {
    fn of(declared: &str) -> Self {
        let mut plain = declared.to_owned();
        // The parts of a URI template that stand for parameters of the query, which are declared too.
        while let Some(start) = ["{?", "{&", "{#"].iter().find_map(|open| plain.find(open)) {
            match plain[start..].find('}') {
                Some(length) => plain.replace_range(start..=start + length, ""),
                None => plain.truncate(start),
            }
        }
        let address = plain.split('#').next().unwrap_or_default();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        Template {
            path: path.to_owned(),
            query: query.to_owned(),
        }
    }

    /// The path with its placeholders filled in. No argument leaves its segment.
    fn path(&self, values: &BTreeMap<&str, String>) -> Result<String, RequestError> {
        let mut segments = Vec::new();
        for declared in self.path.split('/') {
            let segment = filled(declared, values)?;
            // A segment that the document itself has may be empty.
            let is_plain = segment == declared;
            if !is_plain && ["", ".", ".."].contains(&segment.as_str()) {
                return Err(not_a_segment(declared, &segment));
            }
            segments.push(segment);
        }
        Ok(segments.join("/"))
    }

    /// The query of the path itself and that of the arguments, which count before it.
    fn query(&self, values: &BTreeMap<&str, String>, given: &[Pair]) -> String {
        let own = self.query.split('&').filter(|pair| !pair.is_empty());
        let mut query: Vec<String> = Vec::new();
        for pair in own {
            let name = pair.split('=').next().unwrap_or_default();
            let is_given = given.iter().any(|one| one.name == name);
            // A placeholder without a value belongs to a parameter of the query that was not given.
            if !is_given && let Ok(pair) = filled(pair, values) {
                query.push(pair);
            }
        }
        query.extend(given.iter().map(Pair::encoded));
        query.join("&")
    }
}

/// A text with the placeholders `{name}` filled in.
fn filled(template: &str, values: &BTreeMap<&str, String>) -> Result<String, RequestError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let Some(value) = values.get(name) else {
            return Err(RequestError::MissingPlaceholder(name.to_owned()));
        };
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn not_a_segment(argument: &str, text: &str) -> RequestError {
    RequestError::Segment {
        argument: argument.to_owned(),
        text: text.to_owned(),
    }
}

/// The base URL with this path below its own, and this query after its own.
fn joined(base: &Url, path: &str, query: &str) -> Result<Url, RequestError> {
    let mut url = base.clone();
    if path.split('/').any(leads_elsewhere) {
        return Err(RequestError::LeadsOut(path.to_owned()));
    }
    let slash = if path.is_empty() || path.starts_with('/') {
        ""
    } else {
        "/"
    };
    let own = base.path().trim_end_matches('/');
    url.set_path(&format!("{own}{slash}{path}"));
    let mut queries = vec![base.query().unwrap_or_default(), query];
    queries.retain(|query| !query.is_empty());
    if !queries.is_empty() {
        url.set_query(Some(&queries.join("&")));
    }
    Ok(url)
}

/// Whether a segment may be read as one that leads to another folder. Servers decode in many ways.
fn leads_elsewhere(segment: &str) -> bool {
    let mut text = segment.to_owned();
    for _ in 0..MAX_DECODINGS {
        text = decoded(&text);
    }
    text.contains(char::is_control) || text.split(['/', '\\']).any(is_step)
}

fn is_step(part: &str) -> bool {
    // Some servers cut parameters off a segment: `..;a=b` is `..` to them.
    let name = part.split(';').next().unwrap_or_default();
    matches!(name.trim(), "." | "..")
}

fn add_header(
    headers: &mut HeaderMap,
    argument: &str,
    name: &str,
    value: &str,
) -> Result<(), RequestError> {
    // Header names have no case, so `Host` is forbidden as `host` is.
    let lower = name.to_ascii_lowercase();
    if FORBIDDEN_HEADERS.contains(&lower.as_str()) {
        return Err(RequestError::ForbiddenHeader {
            argument: argument.to_owned(),
            header: name.to_owned(),
        });
    }
    let name = HeaderName::from_bytes(lower.as_bytes());
    let (Ok(name), Ok(parsed)) = (name, HeaderValue::from_str(value)) else {
        return Err(RequestError::HeaderValue {
            argument: argument.to_owned(),
            value: value.to_owned(),
        });
    };
    headers.insert(name, parsed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(call: Value, arguments: Value) -> Result<Parts, String> {
        let base = Url::parse("https://api.test/v1/").unwrap();
        parts(&call, &base, arguments.as_object().unwrap()).map_err(|error| error.to_string())
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
            "https://api.test/v1/users/a%20b%2F%C3%BC/orders?tag=x&tag=y%26z&ids=1,2&where%5Bk%5D=true"
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
            ("a/b", "/v1/users/a%2Fb"),
            ("a?b#c", "/v1/users/a%3Fb%23c"),
            ("//evil.test/x", "/v1/users/%2F%2Fevil.test%2Fx"),
        ] {
            assert_eq!(
                url(call(), json!({ "id": id })),
                format!("https://api.test{expected}")
            );
        }
        // Servers decode in many ways.
        for id in ["../admin", "%2e%2e", "a\\..\\b"] {
            let refused = made(call(), json!({ "id": id })).unwrap_err();
            assert!(refused.contains("leads out of"), "{id}: {refused}");
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
            made(call, arguments).unwrap().body.map(|body| match body {
                Body::Bytes(_, bytes) => String::from_utf8(bytes).unwrap(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(
            body(flat.clone(), json!({ "a": 1 })).as_deref(),
            Some(r#"{"a":1}"#)
        );
        let message = made(flat.clone(), json!({ "a": 1, "c": 2 })).unwrap_err();
        assert!(message.contains("\"c\" is no argument"), "{message}");
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
