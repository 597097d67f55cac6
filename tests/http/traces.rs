//! Spans over OTLP, as a collector receives them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::program::Program;
use super::server::tool;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// What was posted to `/v1/traces`, as it came.
type Received = Arc<Mutex<Vec<Bytes>>>;

async fn collector() -> (String, Received) {
    let received = Received::default();
    let keep = Arc::clone(&received);
    let take = move |body: Bytes| {
        let keep = Arc::clone(&keep);
        async move { keep.lock().await.push(body) }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/v1/traces", post(take))).await
    });
    (url, received)
}

fn spans(bodies: &[Bytes]) -> Vec<Span> {
    let requests = bodies
        .iter()
        .map(|body| ExportTraceServiceRequest::decode(body.clone()).expect("OTLP"));
    let resources = requests.flat_map(|request| request.resource_spans);
    resources
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_is_a_span_below_its_request_which_is_below_the_caller() {
    let (endpoint, received) = collector().await;
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), &["--otlp-endpoint", &endpoint]).await;
    let tools = json!([tool("mail", "send", "Sends a letter.")]);
    let url = |path: &str| format!("{}{path}", program.url);
    toolscout::tls::client()
        .build()
        .unwrap()
        .post(url("/v1/catalogs/default/tools"))
        .json(&tools)
        .send()
        .await
        .unwrap();
    let search = toolscout::tls::client()
        .build()
        .unwrap()
        .post(url("/v1/search"))
        .json(&json!({ "query": "letter of confidence" }));
    search
        .header("traceparent", format!("00-{TRACE_ID}-{CALLER}-01"))
        .send()
        .await
        .unwrap();
    program.signal("-TERM");
    assert!(program.wait().success());

    let bodies = received.lock().await;
    let spans = spans(&bodies);
    let named = |name: &str| {
        spans
            .iter()
            .find(|span| span.name == name)
            .unwrap_or_else(|| panic!("{name}: {spans:?}"))
    };
    let (request, search) = (named("POST /v1/search"), named("search"));
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE_ID.to_owned(), CALLER.to_owned())
    );
    assert_eq!(search.parent_span_id, request.span_id);
    let has = |span: &Span, key: &str| span.attributes.iter().any(|attribute| attribute.key == key);
    assert!(
        has(request, "http.response.status_code") && has(search, "search.lexical_ms"),
        "{spans:?}"
    );
    let told = bodies
        .iter()
        .any(|body| body.windows(10).any(|window| window == b"confidence"));
    assert!(!told, "a span holds the text of a query");
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_named() {
    for endpoint in ["collector:4318", "not a url", "ftp://127.0.0.1"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolscout"))
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--otlp-endpoint",
                endpoint,
            ])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains(endpoint),
            "{stderr}"
        );
    }
}
