//! Servers of the old transport: one stream of events, and a URL that messages are posted to.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use toolscout::mcp::config::{HttpProtocol, Transport, parse_server};
use toolscout::mcp::{CallError, ServerConfig};

use super::authorization::result;
use super::world::{Upstream, becomes, double};

/// A server with one client at a time.
#[derive(Clone)]
struct OldServer {
    base: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// The URL that the stream names.
    endpoint: Mutex<String>,
    /// The open stream.
    stream: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    streams: Mutex<usize>,
    /// What messages are answered with.
    status: Mutex<StatusCode>,
}

impl OldServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let server = OldServer {
            base,
            shared: Arc::new(Shared {
                endpoint: Mutex::new("/messages?session=1".into()),
                stream: Mutex::default(),
                streams: Mutex::default(),
                status: Mutex::new(StatusCode::ACCEPTED),
            }),
        };
        let router = Router::new()
            .route("/sse", get(open))
            .route("/messages", post(take))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// As a file of servers would name it, with a type or without.
    fn config(&self, kind: Option<&str>) -> ServerConfig {
        let mut config = parse_server(&format!("old={}/sse", self.base), &|_| None).unwrap();
        if kind == Some("sse") {
            let Transport::Http { protocol, .. } = &mut config.transport else {
                panic!("{config:?}")
            };
            *protocol = HttpProtocol::Sse;
        }
        config
    }

    fn send(&self, bytes: impl Into<Bytes>) {
        if let Some(stream) = &*self.shared.stream.lock().unwrap() {
            let _ = stream.send(bytes.into());
        }
    }

    fn streams(&self) -> usize {
        *self.shared.streams.lock().unwrap()
    }

    fn end(&self) {
        *self.shared.stream.lock().unwrap() = None;
    }
}

async fn open(State(server): State<OldServer>) -> Response {
    #[expect(clippy::disallowed_methods, reason = "the test reads all of it")]
    let (sender, receiver) = mpsc::unbounded_channel();
    *server.shared.stream.lock().unwrap() = Some(sender);
    *server.shared.streams.lock().unwrap() += 1;
    let endpoint = server.shared.endpoint.lock().unwrap().clone();
    server.send(format!(
        ": welcome\r\nevent: endpoint\r\ndata: {endpoint}\r\n\r\n"
    ));
    let events = stream::unfold(receiver, |mut receiver| async {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(bytes), receiver))
    });
    (
        [(CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(events),
    )
        .into_response()
}

async fn take(State(server): State<OldServer>, Json(message): Json<Value>) -> StatusCode {
    let status = *server.shared.status.lock().unwrap();
    if !status.is_success() {
        return status;
    }
    let said = message["params"]["arguments"]["text"].as_str();
    let answer = match result(&message) {
        None => return status,
        Some(_) if said == Some("huge") => {
            let text = "x".repeat(20 << 20);
            json!({ "content": [{ "type": "text", "text": text }] })
        }
        Some(result) => result,
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer });
    server.send(format!("event: message\ndata: {answer}\n\n"));
    status
}

#[tokio::test]
async fn old_servers_are_recognised_and_called() {
    for kind in [None, Some("sse")] {
        let server = OldServer::start().await;
        let upstream = Upstream::start(vec![server.config(kind), double("other", &[])]).await;
        assert_eq!(upstream.reason("old"), "", "{kind:?}");
        assert_eq!(upstream.echo("old").await, "hello");
        assert!(upstream.ids().contains(&"old/echo".to_owned()));
        server.send("event: message\ndata: {\"jsonrpc\": \"2.0\",\ndata: \"method\": \"notifications/tools/list_changed\"}\n\n");
        server.send("event: ping\ndata: 2026-01-01\n\ndata: no JSON\n\n: nothing\n\n");
        assert_eq!(upstream.echo("old").await, "hello");
        assert_eq!(server.streams(), 1);
    }
}

#[tokio::test]
async fn a_result_that_is_too_long_fails_its_call_alone() {
    let server = OldServer::start().await;
    let upstream = Upstream::start(vec![server.config(Some("sse"))]).await;
    let huge = upstream.call("old/echo", json!({ "text": "huge" })).await;
    let said = huge.unwrap_err().to_string();
    assert!(said.contains("16777216 are allowed"), "{said}");
    assert_eq!(upstream.echo("old").await, "hello");
    assert_eq!(server.streams(), 1);
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_and_a_refused_message_fails_its_call() {
    let server = OldServer::start().await;
    let upstream = Upstream::start(vec![server.config(Some("sse"))]).await;
    server.end();
    becomes("there is a new stream", || server.streams() == 2).await;
    assert_eq!(upstream.echo("old").await, "hello");
    *server.shared.status.lock().unwrap() = StatusCode::INTERNAL_SERVER_ERROR;
    let failed = upstream.call("old/echo", json!({})).await.unwrap_err();
    assert!(
        matches!(&failed, CallError::Lost { reason, .. } if reason.contains("HTTP 500")),
        "{failed}"
    );
}

#[tokio::test]
async fn streams_that_lead_elsewhere_or_nowhere_are_refused() {
    let other = OldServer::start().await;
    for (endpoint, expected) in [
        (
            format!("{}/messages", other.base),
            "is no URL of http://127.0.0.1",
        ),
        ("https://user@evil.example/m".into(), "is no URL of"),
        ("x".repeat(100_000), "names no URL for messages"),
    ] {
        let server = OldServer::start().await;
        *server.shared.endpoint.lock().unwrap() = endpoint;
        let servers = vec![server.config(Some("sse")), double("other", &[])];
        let upstream = Upstream::start(servers).await;
        let reason = upstream.reason("old");
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(upstream.echo("other").await, "hello");
    }
    // Whole, but without the empty line that ends the event: it is waited for, and not for ever.
    let server = OldServer::start().await;
    *server.shared.endpoint.lock().unwrap() = "/m".into();
    let router = Router::new().route(
        "/sse",
        get(|| async {
            let silence = stream::pending::<Result<Bytes, Infallible>>();
            (
                [(CONTENT_TYPE, "text/event-stream")],
                Body::from_stream(silence),
            )
                .into_response()
        }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = server.config(Some("sse"));
    if let Transport::Http { url, .. } = &mut config.transport {
        url.set_port(Some(listener.local_addr().unwrap().port()))
            .unwrap();
    }
    tokio::spawn(async move { axum::serve(listener, router).await });
    let upstream = Upstream::start_with(vec![config], |config| {
        config.limits.connect = Duration::from_millis(200);
    })
    .await;
    assert!(upstream.reason("old").contains("no handshake within"));
}
