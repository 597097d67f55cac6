//! Which request an answer over HTTP belongs to. Servers that cannot read a request, or do not know
//! its session, answer with an error whose id is missing, null or made up; the SDK finds no request
//! for such an error, and the request would wait until its time is up.

use std::num::NonZeroUsize;
use std::sync::Arc;

use futures_util::StreamExt;
use lru::LruCache;
use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcError, JsonRpcMessage, JsonRpcRequest,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::StreamableHttpPostResponse as Answer;
use serde_json::{Value, json};
use sse_stream::Sse;

use super::{HttpError, refused_status};

/// The statuses with which servers refuse a session that they do not know.
const NO_SESSION_STATUSES: [u16; 4] = [400, 404, 409, 410];
/// The codes of errors of the protocol's transport, which a tool's own errors rarely have.
const TRANSPORT_CODES: [i32; 3] = [-32000, -32001, -32600];
/// What servers say of a session that has ended, beside the word session.
const ENDED: [&str; 21] = [
    "not found",
    "no valid",
    "not valid",
    "invalid",
    "expired",
    "unknown",
    "missing",
    "terminated",
    "exist",
    "initialized",
    "initialised",
    "closed",
    "no active",
    "not active",
    "inactive",
    "required",
    "no session",
    "no longer",
    "stale",
    "lost",
    "ended",
];
/// The whole message of an error that is about the session of the protocol, even where it has the
/// id of its request, as an error of a tool has.
const ABOUT_SESSION: [&str; 7] = [
    "session not found",
    "session expired",
    "session terminated",
    "invalid session",
    "unknown session",
    "server not initialized",
    "no valid session",
];

/// Most requests that are remembered; a session rarely ends while as many are open.
const MAX_RENEWALS: NonZeroUsize = NonZeroUsize::new(1_024).expect("is not zero");

/// The requests for which a session was renewed. Cheap to clone.
#[derive(Clone)]
pub struct Renewals(Arc<Mutex<LruCache<RequestId, ()>>>);

impl Default for Renewals {
    fn default() -> Self {
        Renewals(Arc::new(Mutex::new(LruCache::new(MAX_RENEWALS))))
    }
}

impl Renewals {
    /// The error of a request whose session has ended, in the words of its server. After the first
    /// one of a request, the SDK makes a new session and sends it once more.
    fn ended(&self, request: &RequestId, words: &str) -> HttpError {
        let mut renewed = self.0.lock();
        match renewed.put(request.clone(), ()) {
            None => HttpError::SessionExpired,
            Some(()) => {
                let error = ErrorData::internal_error(words.to_owned(), None);
                HttpError::ReinitializationFailed(error)
            }
        }
    }
}

/// The answer to a message as the SDK can tell it apart: what answers a request has its id, and
/// what says that its session has ended is an error that renews it, once.
pub fn assigned(
    message: &ClientJsonRpcMessage,
    renewals: Option<&Renewals>,
    answer: Result<Answer, HttpError>,
) -> Result<Answer, HttpError> {
    let JsonRpcMessage::Request(request) = message else {
        return answer;
    };
    match answer {
        Ok(Answer::Json(message, session)) => {
            let message = answer_to(request, renewals, message)?;
            Ok(Answer::Json(message, session))
        }
        Ok(Answer::Sse(events, session)) => {
            let id = request.id.clone();
            let events = events.map(move |event| event.map(|event| assigned_event(event, &id)));
            Ok(Answer::Sse(events.boxed(), session))
        }
        // With a session the result may come over the stream that all requests share.
        Ok(Answer::Accepted) if renewals.is_none() => {
            Err(unexpected("it accepted the request without an answer"))
        }
        Err(error) => Err(match renewals {
            Some(renewals) if refuses_session(&error) => {
                renewals.ended(&request.id, &words_of(&error))
            }
            _ => error,
        }),
        answer => answer,
    }
}

fn answer_to(
    request: &JsonRpcRequest<ClientRequest>,
    renewals: Option<&Renewals>,
    message: ServerJsonRpcMessage,
) -> Result<ServerJsonRpcMessage, HttpError> {
    match message {
        JsonRpcMessage::Error(error) => {
            let is_own = match &error.id {
                Some(id) => is_of(&request.id, id),
                None => false,
            };
            let ends_session = match is_own {
                true => is_about_session(error.error.code.0, &error.error.message),
                false => says_session_ended(&error.error.message),
            };
            if let Some(renewals) = renewals
                && ends_session
            {
                return Err(renewals.ended(&request.id, &error.error.message));
            }
            // The SDK drops an error whose id is of no request.
            let id = Some(request.id.clone());
            Ok(JsonRpcMessage::Error(JsonRpcError { id, ..error }))
        }
        JsonRpcMessage::Response(response) if !is_of(&request.id, &response.id) => {
            let (own, other) = (&request.id, &response.id);
            Err(unexpected(&format!(
                "it answered the request {own} with the result of {other}"
            )))
        }
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => Err(unexpected(
            "it answered the request with a message that is no answer",
        )),
        response => Ok(response),
    }
}

/// An event of the stream that answers this request alone: an error in it is the request's, whatever
/// its id.
fn assigned_event(event: Sse, id: &RequestId) -> Sse {
    let Some(data) = &event.data else {
        return event;
    };
    match assigned_data(data, id) {
        Some(data) => Sse {
            data: Some(data),
            ..event
        },
        None => event,
    }
}

/// The data of an event with the id of this request; `None` where it stays as it is.
fn assigned_data(data: &str, id: &RequestId) -> Option<String> {
    let mut message: Value = serde_json::from_str(data).ok()?;
    // Requests and notifications of the server have ids of their own, or none.
    if message.get("method").is_some() {
        return None;
    }
    if let Some(given) = message.get("id")
        && let Ok(given) = serde_json::from_value(given.clone())
        && is_of(id, &given)
    {
        return None;
    }
    if message.get("result").is_some() {
        let text = "the server answered with the result of another request";
        message = json!({ "jsonrpc": "2.0", "error": { "code": -32603, "message": text } });
    }
    message.get("error")?;
    message["id"] = id.clone().into_json_value();
    Some(message.to_string())
}

/// Whether an answer with this id is to this request: some servers write a number as text.
pub fn is_of(request: &RequestId, answer: &RequestId) -> bool {
    request == answer || request.to_string() == answer.to_string()
}

/// Whether a refusal that is no JSON-RPC error says that the session has ended, as any 404 does.
fn refuses_session(error: &HttpError) -> bool {
    if matches!(error, HttpError::SessionExpired) {
        return true;
    }
    match refused_status(error) {
        Some(status) if NO_SESSION_STATUSES.contains(&status) => {
            says_session_ended(&error.to_string())
        }
        _ => false,
    }
}

fn words_of(error: &HttpError) -> String {
    match error {
        HttpError::UnexpectedServerResponse(text) => text.clone().into_owned(),
        // The SDK does not keep the body.
        HttpError::SessionExpired => "HTTP 404".to_owned(),
        error => error.to_string(),
    }
}

fn says_session_ended(message: &str) -> bool {
    let message = message.to_lowercase();
    let is_uninitialized = message.contains("not initialized") || message.contains("uninitialized");
    let says_ended = ENDED.iter().any(|words| message.contains(words));
    is_uninitialized || (message.contains("session") && says_ended)
}

/// Stricter than for an error without the id of its request: a tool may have sessions of its own.
fn is_about_session(code: i32, message: &str) -> bool {
    let message = message.to_lowercase();
    let message = message
        .trim_start_matches("bad request:")
        .trim_start_matches("not found:")
        .trim_matches(|c: char| c.is_whitespace() || c.is_ascii_punctuation());
    let names_header = message.contains("mcp-session-id") || message.contains("mcp session");
    let is_whole = ABOUT_SESSION.contains(&message) || message.starts_with("no valid session id");
    TRANSPORT_CODES.contains(&code) && says_session_ended(message) && (names_header || is_whole)
}

fn unexpected(reason: &str) -> HttpError {
    HttpError::UnexpectedServerResponse(reason.to_owned().into())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use rmcp::model::PingRequest;

    use super::*;

    fn request() -> ClientJsonRpcMessage {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        ClientJsonRpcMessage::request(ping, RequestId::Number(7))
    }

    fn error(id: Value, code: i32, message: &str) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
    }

    fn answered(has_session: bool, message: &Value) -> Result<Value, HttpError> {
        let message = serde_json::from_value(message.clone()).unwrap();
        let renewals = has_session.then(Renewals::default);
        match assigned(
            &request(),
            renewals.as_ref(),
            Ok(Answer::Json(message, None)),
        )? {
            Answer::Json(message, _) => Ok(serde_json::to_value(message).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_with_any_id_is_that_of_its_request() {
        for id in [
            json!(null),
            json!("server-error"),
            json!(99),
            json!("7"),
            json!(7),
        ] {
            let answer = answered(true, &error(id.clone(), -32602, "no such tool")).unwrap();
            assert_eq!(answer["id"], 7, "{id}");
            assert_eq!(answer["error"]["message"], "no such tool");
        }
        let missing = json!({ "jsonrpc": "2.0", "error": { "code": -32700, "message": "x" } });
        assert_eq!(answered(false, &missing).unwrap()["id"], 7);
    }

    #[test]
    fn an_error_of_the_session_ends_it_and_one_of_a_tool_does_not() {
        for (id, message, ends) in [
            (
                json!(null),
                "Bad Request: No valid session ID provided",
                true,
            ),
            (json!("server-error"), "Session not found", true),
            (json!(null), "Bad Request: Server not initialized", true),
            (
                json!(null),
                "Bad Request: Mcp-Session-Id header is required",
                true,
            ),
            (json!(0), "Session has been terminated", true),
            (json!(7), "Session not found", true),
            (json!(7), "Bad Request: No valid session ID provided", true),
            (json!(7), "browser session b-1 not found", false),
            (json!(7), "your login session has expired", false),
            (json!(null), "Parse error", false),
        ] {
            let answer = answered(true, &error(id.clone(), -32000, message));
            let expired = matches!(answer, Err(HttpError::SessionExpired));
            assert_eq!(expired, ends, "{id} {message}");
            // Without a session there is none to renew.
            assert!(answered(false, &error(id, -32000, message)).is_ok());
        }
        for (text, ends) in [
            ("HTTP 400 Bad Request: No valid session ID provided", true),
            ("HTTP 404 Not Found: Invalid session ID", true),
            ("HTTP 410 Gone: session expired", true),
            ("HTTP 400 Bad Request: unknown field", false),
            ("HTTP 500 Internal Server Error: session not found", false),
        ] {
            let answer = assigned(
                &request(),
                Some(&Renewals::default()),
                Err(unexpected(text)),
            );
            let expired = matches!(answer, Err(HttpError::SessionExpired));
            assert_eq!(expired, ends, "{text}");
        }
    }

    #[test]
    fn a_session_is_renewed_once_for_a_request_and_then_the_server_is_quoted() {
        for words in [
            "HTTP 400 Bad Request: No valid session ID provided",
            "HTTP 410 Gone: session expired",
            "HTTP 404",
        ] {
            let refusal = || match words {
                "HTTP 404" => HttpError::SessionExpired,
                words => unexpected(words),
            };
            let renewals = Renewals::default();
            let first = assigned(&request(), Some(&renewals), Err(refusal()));
            assert!(matches!(first, Err(HttpError::SessionExpired)), "{first:?}");
            let second = assigned(&request(), Some(&renewals), Err(refusal()));
            let second = second.unwrap_err().to_string();
            assert!(second.contains(words), "{second}");
        }
    }

    #[test]
    fn what_is_no_answer_to_the_request_fails_it() {
        let other = json!({ "jsonrpc": "2.0", "id": 8, "result": {} });
        let asks = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
        for (message, expected) in [(other, "the result of 8"), (asks, "no answer")] {
            let said = answered(true, &message).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        let accepted = assigned(&request(), None, Ok(Answer::Accepted));
        assert!(
            accepted
                .unwrap_err()
                .to_string()
                .contains("without an answer")
        );
        assert!(assigned(&request(), Some(&Renewals::default()), Ok(Answer::Accepted)).is_ok());
        let text = json!({ "jsonrpc": "2.0", "id": "7", "result": {} });
        assert!(answered(true, &text).is_ok());
    }

    #[tokio::test]
    async fn errors_in_the_stream_of_a_request_are_its_own() {
        let progress =
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} });
        let result = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
        for (sent, expected) in [
            (error(json!(null), -32000, "no"), json!("no")),
            (error(json!("x"), -32000, "no"), json!("no")),
            (
                json!({ "jsonrpc": "2.0", "id": 3, "result": {} }),
                json!("the server answered with the result of another request"),
            ),
            (progress, Value::Null),
            (result, Value::Null),
        ] {
            let event = Sse::default().data(sent.to_string());
            let events = stream::iter([Ok(Sse::default()), Ok(event)]).boxed();
            let answer = assigned(&request(), None, Ok(Answer::Sse(events, None))).unwrap();
            let Answer::Sse(events, _) = answer else {
                panic!("{answer:?}")
            };
            let events: Vec<Sse> = events.map(Result::unwrap).collect().await;
            assert_eq!(events[0].data, None);
            let message: Value = serde_json::from_str(events[1].data.as_ref().unwrap()).unwrap();
            assert_eq!(message["error"]["message"], expected, "{message}");
            if message.get("error").is_some() {
                assert_eq!(message["id"], 7);
            }
        }
    }
}
