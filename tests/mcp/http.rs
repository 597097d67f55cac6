//! HTTP servers whose answers are not as the protocol has them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolscout::mcp::config::{Transport, parse_server};
use toolscout::mcp::{CallError, ServerConfig};

use super::authorization::result;
use super::world::{Upstream, double};

/// What a server does with a call; `None` for what any server does.
type Calls = dyn Fn(&Value) -> Option<Response> + Send + Sync;

/// A server with one session at a time.
#[derive(Clone)]
struct Odd {
    base: String,
    shared: Arc<Shared>,
}

struct Shared {
    calls: Box<Calls>,
    /// How a request without the session of the moment is refused.
    no_session: Mutex<Refusal>,
    /// The number of the session; each handshake begins one.
    session: AtomicUsize,
    handshakes: AtomicUsize,
    calls_made: AtomicUsize,
}

/// Status, type of the content, and body, in which `$id` is the id of the request.
type Refusal = (u16, &'static str, &'static str);

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

impl Odd {
    async fn start(calls: impl Fn(&Value) -> Option<Response> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Odd {
            base: format!("http://{}", listener.local_addr().expect("an address")),
            shared: Arc::new(Shared {
                calls: Box::new(calls),
                no_session: Mutex::new((404, TEXT, "Session not found")),
                session: AtomicUsize::new(0),
                handshakes: AtomicUsize::new(0),
                calls_made: AtomicUsize::new(0),
            }),
        };
        let router = Router::new()
            .route("/mcp", post(take))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    fn config(&self, name: &str) -> ServerConfig {
        at(name, &format!("{}/mcp", self.base))
    }

    /// Forgets its session, as a server does that was started anew.
    fn forget(&self, refusal: Refusal) {
        *self.shared.no_session.lock().unwrap() = refusal;
        self.shared.session.fetch_add(1, Ordering::SeqCst);
    }

    fn handshakes(&self) -> usize {
        self.shared.handshakes.load(Ordering::SeqCst)
    }
}

fn at(name: &str, url: &str) -> ServerConfig {
    parse_server(&format!("{name}={url}"), &|_| None).expect("a server")
}

fn answered((status, kind, body): Refusal, id: &Value) -> Response {
    let body = body.replace("$id", &id.to_string());
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}

async fn take(State(server): State<Odd>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).expect("JSON");
    let shared = &server.shared;
    let session = |number: usize| format!("session-{number}");
    let current = session(shared.session.load(Ordering::SeqCst));
    let begins = message["method"] == "initialize";
    if begins {
        shared.handshakes.fetch_add(1, Ordering::SeqCst);
    } else if headers.get("mcp-session-id").map(|id| id.as_bytes()) != Some(current.as_bytes()) {
        return answered(*shared.no_session.lock().unwrap(), &message["id"]);
    }
    if message["method"] == "tools/call" {
        shared.calls_made.fetch_add(1, Ordering::SeqCst);
        if let Some(answer) = (shared.calls)(&message) {
            return answer;
        }
    }
    let Some(result) = result(&message) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    ([("mcp-session-id", current)], Json(answer)).into_response()
}

/// The error of a call, which has to come at once.
async fn fails(upstream: &Upstream, server: &str) -> CallError {
    let begun = Instant::now();
    let called = upstream.call(&format!("{server}/echo"), json!({})).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{called:?}");
    called.unwrap_err()
}

#[tokio::test]
async fn an_error_with_any_id_is_the_failure_of_its_call() {
    let refused = |id: &str| {
        format!(r#"{{"jsonrpc": "2.0"{id}, "error": {{"code": -32602, "message": "not today"}}}}"#)
    };
    let ids = [
        "",
        r#", "id": null"#,
        r#", "id": "server-error""#,
        r#", "id": 99999"#,
    ];
    for (status, is_stream) in [(200, false), (400, false), (404, false), (200, true)] {
        for id in ids {
            let body = refused(id);
            let server = Odd::start(move |_| {
                let (kind, body) = match is_stream {
                    true => ("text/event-stream", format!("data: {body}\n\n")),
                    false => (JSON, body.clone()),
                };
                let status = StatusCode::from_u16(status).expect("a status");
                Some((status, [(CONTENT_TYPE, kind)], body).into_response())
            })
            .await;
            let upstream = Upstream::start(vec![server.config("s"), double("b", &[])]).await;
            let error = fails(&upstream, "s").await.to_string();
            // With a session, any 404 says that it has ended.
            let expected = if status == 404 {
                "session"
            } else {
                "not today"
            };
            assert!(error.contains(expected), "{status} {id}: {error}");
            assert_eq!(upstream.echo("b").await, "hello");
        }
    }
}

#[tokio::test]
async fn answers_that_answer_nothing_fail_their_call() {
    let cases: [(u16, &str, &str, &str); 7] = [
        (
            200,
            JSON,
            r#"{"jsonrpc": "2.0", "id": 4711, "result": {}}"#,
            "result of 4711",
        ),
        (
            200,
            JSON,
            r#"{"jsonrpc": "2.0", "method": "notifications/x"}"#,
            "is no answer",
        ),
        (
            200,
            "text/event-stream",
            "data: {\"jsonrpc\": \"2.0\", \"id\": 4711, \"result\": {}}\n\n",
            "another request",
        ),
        (
            200,
            "text/event-stream",
            ": nothing\n\n",
            "may or may not have been executed",
        ),
        (200, "text/html", "<html>", "it answers with text/html"),
        (200, JSON, "{}", "{}"),
        (503, TEXT, "away", "503"),
    ];
    for (status, kind, body, expected) in cases {
        let server =
            Odd::start(move |message| Some(answered((status, kind, body), &message["id"])));
        let upstream = Upstream::start(vec![server.await.config("s")]).await;
        let error = fails(&upstream, "s").await.to_string();
        assert!(error.contains(expected), "{body}: {error}");
        assert!(!error.contains("Some("), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_has_ended_is_renewed_once_and_the_call_made() {
    for refusal in [
        (
            400,
            JSON,
            r#"{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}"#,
        ),
        (
            400,
            JSON,
            r#"{"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Bad Request: Missing session ID"}}"#,
        ),
        (
            400,
            JSON,
            r#"{"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Server not initialized"}}"#,
        ),
        (
            400,
            JSON,
            r#"{"jsonrpc": "2.0", "id": $id, "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}"#,
        ),
        (
            200,
            JSON,
            r#"{"jsonrpc": "2.0", "id": $id, "error": {"code": -32001, "message": "Session not found"}}"#,
        ),
        (
            404,
            JSON,
            r#"{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}"#,
        ),
        (400, TEXT, "Invalid session ID"),
        (400, JSON, r#"{"error": "Invalid or missing session ID"}"#),
        (410, TEXT, "session expired"),
        (404, TEXT, "Not Found"),
    ] {
        let server = Odd::start(|_| None).await;
        let upstream = Upstream::start(vec![server.config("s")]).await;
        assert_eq!(upstream.echo("s").await, "hello");
        server.forget(refusal);
        assert_eq!(upstream.echo("s").await, "hello", "{refusal:?}");
        assert_eq!(server.handshakes(), 2, "{refusal:?}");
        let calls = server.shared.calls_made.load(Ordering::SeqCst);
        assert_eq!(calls, 2, "{refusal:?}");
    }
}

#[tokio::test]
async fn a_session_that_never_holds_fails_its_call_and_an_error_of_a_tool_ends_none() {
    let never = |message: &Value| {
        let body = r#"{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "No valid session ID provided"}}"#;
        Some(answered((400, JSON, body), &message["id"]))
    };
    let server = Odd::start(never).await;
    let upstream = Upstream::start(vec![server.config("s")]).await;
    let error = fails(&upstream, "s").await;
    assert!(
        matches!(&error, CallError::Unavailable { reason, .. } if reason.contains("refuses a new one: No valid session ID provided")),
        "{error}"
    );
    assert_eq!(server.handshakes(), 2);
    let of_tool = |message: &Value| {
        let body = r#"{"jsonrpc": "2.0", "id": $id, "error": {"code": -32000, "message": "browser session b7 not found"}}"#;
        Some(answered((200, JSON, body), &message["id"]))
    };
    let server = Odd::start(of_tool).await;
    let upstream = Upstream::start(vec![server.config("s")]).await;
    let error = fails(&upstream, "s").await.to_string();
    assert!(error.contains("browser session b7"), "{error}");
    assert_eq!(server.handshakes(), 1);
}

#[tokio::test]
async fn a_redirect_that_keeps_message_and_server_is_followed_and_others_are_named() {
    let server = Odd::start(|_| None).await;
    let target = format!("{}/mcp", server.base);
    for (status, to, expected) in [
        (307, "/inner", None),
        (308, "/inner", None),
        (301, "/inner", Some("/inner (301)")),
        (302, "/inner", Some("/inner (302)")),
        (303, "/inner", Some("/inner (303)")),
        (307, target.as_str(), Some("/mcp (307)")),
        (
            308,
            "https://mcp.example.com/mcp",
            Some("https://mcp.example.com/mcp (308)"),
        ),
        (307, "/mcp", Some("redirects more than 5 times")),
    ] {
        let to = to.to_owned();
        let redirect = move || {
            let to = to.clone();
            async move {
                let status = StatusCode::from_u16(status).expect("a status");
                (status, [(LOCATION, to)], Body::empty())
            }
        };
        let router = Router::new()
            .route("/mcp", any(redirect))
            .route("/inner", post(take))
            .with_state(server.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = at("s", &format!("http://{address}/mcp"));
        assert!(matches!(config.transport, Transport::Http { .. }));
        let upstream = Upstream::start(vec![config]).await;
        match expected {
            None => assert_eq!(upstream.echo("s").await, "hello"),
            Some(expected) => {
                let reason = upstream.reason("s");
                assert!(reason.contains(expected), "{status}: {reason}");
                assert!(!reason.contains("error following"), "{reason}");
            }
        }
    }
}
