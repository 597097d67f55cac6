//! What clients post to `/mcp`, read before the SDK reads it, and what the SDK answers, as clients of
//! every version understand it.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt;
use serde_json::{Value, json};

use crate::request::error::ApiError;
use crate::request::extract::broken_body;

/// The header with the version of the protocol, of every request after the handshake.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The first version whose clients expect a stream to begin with an event without a message. Older
/// ones try to read it as one.
const FIRST_WITH_PRIMING: &str = "2025-11-25";
/// What a client accepts that leaves it to the server.
const ANY_ANSWER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// Most bytes of an error of the SDK.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The SDK's words for a message that is valid JSON and nothing that it knows.
const UNREADABLE: &str = "fail to deserialize request body";

/// Codes of JSON-RPC and of MCP.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INTERNAL_ERROR: i32 = -32603;
const NO_SESSION: i32 = -32001;
const TOO_MANY_SESSIONS: i32 = -32000;

/// What is known of a request when it is answered.
pub struct Asked {
    /// The id of its message; null where it has none.
    id: Value,
    /// Whether its client expects a stream to begin with an event without a message.
    expects_priming: bool,
}

/// Reads the message of a request, and accepts on behalf of its client what that leaves open.
///
/// # Errors
/// The answer to a request whose body is no message.
pub async fn read(mut request: Request, max_bytes: usize) -> Result<(Request, Asked), Response> {
    accept_any(request.headers_mut());
    let mut asked = Asked {
        id: Value::Null,
        expects_priming: has_priming(version_of(request.headers())),
    };
    if request.method() != Method::POST {
        return Ok((request, asked));
    }
    let (parts, body) = request.into_parts();
    let body = read_body(body, max_bytes).await;
    let body = body.map_err(IntoResponse::into_response)?;
    let message = message_of(&body).map_err(IntoResponse::into_response)?;
    // The handshake has its version in the params. The header comes with later requests only.
    if message["method"] == "initialize" {
        asked.expects_priming = has_priming(message["params"]["protocolVersion"].as_str());
    }
    asked.id = message["id"].clone();
    Ok((Request::from_parts(parts, Body::from(body)), asked))
}

/// The answer of the SDK: an error always as one of JSON-RPC, and a stream for an older client
/// without the event that has no message.
pub async fn answer(response: Response, asked: Asked) -> Response {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        if is_of_type(&response, b"application/json") {
            return response;
        }
        return as_error(response, asked.id).await;
    }
    if asked.expects_priming || !is_of_type(&response, b"text/event-stream") {
        return response;
    }
    let (parts, body) = response.into_parts();
    // The SDK writes an event at a time.
    let events = body.into_data_stream();
    let events = events.try_filter(|event| std::future::ready(!is_without_message(event)));
    Response::from_parts(parts, Body::from_stream(events))
}

/// Without what follows the type, such as `; charset=utf-8`.
fn is_of_type(response: &Response, kind: &[u8]) -> bool {
    match response.headers().get(CONTENT_TYPE) {
        Some(given) => given.as_bytes().starts_with(kind),
        None => false,
    }
}

/// The answer to a request for which there is no place.
pub fn too_many_sessions(asked: Asked, reason: String) -> Response {
    let refusal = Refusal {
        status: StatusCode::TOO_MANY_REQUESTS,
        ..Refusal::of(TOO_MANY_SESSIONS, asked.id, reason)
    };
    let mut answer = refusal.into_response();
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn version_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROTOCOL_VERSION)?.to_str().ok()
}

/// Versions are dates.
fn has_priming(version: Option<&str>) -> bool {
    version.is_some_and(|version| version >= FIRST_WITH_PRIMING)
}

/// Says what a client accepts that names no kinds, or all of them. The SDK wants both kinds named.
fn accept_any(headers: &mut HeaderMap) {
    let mut given: Vec<&str> = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            // The quality is dropped: a type of low quality is still accepted.
            given.push(range.split(';').next().unwrap_or_default().trim());
        }
    }
    let takes_json = has_one_of(&given, ["*/*", "application/*", "application/json"]);
    let takes_events = has_one_of(&given, ["*/*", "text/*", "text/event-stream"]);
    if given.is_empty() || (takes_json && takes_events) {
        headers.insert(ACCEPT, ANY_ANSWER);
    }
}

fn has_one_of(given: &[&str], ranges: [&str; 3]) -> bool {
    let mut given = given.iter();
    given.any(|given| ranges.iter().any(|range| given.eq_ignore_ascii_case(range)))
}

/// Why a body is no message.
struct Refusal {
    status: StatusCode,
    code: i32,
    id: Value,
    message: String,
}

impl Refusal {
    fn of(code: i32, id: Value, message: impl Into<String>) -> Self {
        Refusal {
            status: StatusCode::BAD_REQUEST,
            code,
            id,
            message: message.into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "message": self.message });
        let body = json!({ "jsonrpc": "2.0", "id": self.id, "error": error });
        (self.status, axum::Json(body)).into_response()
    }
}

async fn read_body(body: Body, max_bytes: usize) -> Result<Bytes, Refusal> {
    let error = match to_bytes(body, max_bytes).await {
        Ok(body) => return Ok(body),
        Err(error) => error,
    };
    let ApiError {
        status, message, ..
    } = broken_body(&error);
    Err(Refusal {
        status,
        ..Refusal::of(INVALID_REQUEST, Value::Null, message)
    })
}

/// The message in a body.
fn message_of(body: &[u8]) -> Result<Value, Refusal> {
    if body.starts_with("\u{feff}".as_bytes()) {
        let message = "the body begins with a byte order mark; send the JSON without it";
        return Err(Refusal::of(PARSE_ERROR, Value::Null, message));
    }
    let message: Value = match serde_json::from_slice(body) {
        Ok(message) => message,
        Err(error) => {
            let message = format!("the body is not valid JSON: {error}");
            return Err(Refusal::of(PARSE_ERROR, Value::Null, message));
        }
    };
    // One version of the protocol had batches, and the SDK does not read them.
    if message.is_array() {
        let message = "the body is a list; send each message in a request of its own";
        return Err(Refusal::of(INVALID_REQUEST, Value::Null, message));
    }
    let is_message = ["method", "result", "error"]
        .iter()
        .any(|field| message.get(field).is_some());
    if message["jsonrpc"] != "2.0" || !is_message {
        let text = "the body is no message of JSON-RPC; send an object with `jsonrpc` \"2.0\" and a `method`";
        return Err(Refusal::of(INVALID_REQUEST, message["id"].clone(), text));
    }
    Ok(message)
}

async fn as_error(response: Response, id: Value) -> Response {
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let (code, message) = match parts.status {
        StatusCode::NOT_FOUND => (NO_SESSION, text),
        // The reason is logged and not sent, since it is about the inside of the server.
        status if status.is_server_error() => {
            tracing::error!(%status, reason = text, "a request of an MCP client failed");
            let message = "the server could not answer; begin a new session and try again";
            (INTERNAL_ERROR, message.to_owned())
        }
        _ => match text.strip_prefix(UNREADABLE) {
            Some(reason) => {
                parts.status = StatusCode::BAD_REQUEST;
                let message = format!("the message cannot be read: {}", reason.trim());
                (INVALID_REQUEST, message)
            }
            None => (INVALID_REQUEST, text),
        },
    };
    let refusal = Refusal {
        status: parts.status,
        ..Refusal::of(code, id, message)
    };
    let mut answer = refusal.into_response();
    // These two describe the body that is replaced. The other headers stay.
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.remove(CONTENT_LENGTH);
    answer.headers_mut().extend(parts.headers);
    answer
}

/// Whether an event of a stream has data, and none of it says anything.
fn is_without_message(event: &[u8]) -> bool {
    let mut has_data = false;
    for line in event.split(|byte| *byte == b'\n') {
        let Some(data) = line.strip_prefix(b"data:") else {
            continue;
        };
        if !data.trim_ascii().is_empty() {
            return false;
        }
        has_data = true;
    }
    has_data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_leaves_open_is_accepted() {
        let accepted = |given: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            accept_any(&mut headers);
            headers.get(ACCEPT) == Some(&ANY_ANSWER)
        };
        for given in [
            &[][..],
            &["*/*"],
            &["*/*;q=0.8"],
            &["application/json", "text/*"],
            &["text/html, */*; q=0.1"],
            &["Application/JSON, Text/Event-Stream"],
        ] {
            assert!(accepted(given), "{given:?}");
        }
        for given in [
            &["application/json"][..],
            &["text/html"],
            &["text/event-stream"],
        ] {
            assert!(!accepted(given), "{given:?}");
        }
    }

    #[test]
    fn only_events_without_a_message_are_left_out() {
        for (event, expected) in [
            ("id: 0\nretry: 3000\ndata: \n\n", true),
            ("data:\nid: 0/1\n\n", true),
            ("data: {}\nid: 1\n\n", false),
            (":\n\n", false),
        ] {
            assert_eq!(is_without_message(event.as_bytes()), expected, "{event:?}");
        }
    }
}
