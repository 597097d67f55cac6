//! What the drop-in endpoint adds to a request of a model, at 50, 500 and 5,000 tools.
//!
//! The provider is a server on loopback that answers at once. `provider_alone` sends it the whole
//! request; `seen` sends the same through the program, which knows the list of tools, and `streamed`
//! measures until the first byte of a stream. `first_time` has a list that was never seen. The
//! overhead is the difference to `provider_alone`. No search is made, since that is a round of the
//! model more; `searched` has one, in a list whose catalog is open.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use divan::Bencher;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use toolscout::assembly::{self, Settings};
use toolscout::dropin::{DropInConfig, ProviderConfig};
use toolscout::shutdown::Shutdown;
use toolscout_index::Options;
use toolscout_index::embed::StaticTable;

const TOOLS: [usize; 3] = [50, 500, 5_000];
/// In a message that makes the provider search, once.
const SEARCHES: &str = "search first";

fn main() {
    divan::main();
}

#[divan::bench(args = TOOLS, sample_count = 200)]
fn provider_alone(bencher: Bencher, tools: usize) {
    let world = World::new();
    let body = request(tools, 0, "hi", false);
    bencher.bench(|| world.send(&world.provider, &body));
}

#[divan::bench(args = TOOLS, sample_count = 200)]
fn seen(bencher: Bencher, tools: usize) {
    let world = World::new();
    let body = request(tools, 0, "hi", false);
    world.warm(&body);
    bencher.bench(|| world.send(&world.server, &body));
}

#[divan::bench(args = TOOLS, sample_count = 200)]
fn streamed(bencher: Bencher, tools: usize) {
    let world = World::new();
    let body = request(tools, 0, "hi", true);
    world.warm(&body);
    bencher.bench(|| world.first_byte(&world.server, &body));
}

#[divan::bench(args = TOOLS, sample_count = 200)]
fn searched(bencher: Bencher, tools: usize) {
    let world = World::new();
    let body = request(tools, 0, SEARCHES, false);
    world.warm(&body);
    bencher.bench(|| world.send(&world.server, &body));
}

#[divan::bench(args = TOOLS, sample_count = 10)]
fn first_time(bencher: Bencher, tools: usize) {
    let world = World::new();
    let next = AtomicUsize::new(1);
    bencher
        .with_inputs(|| {
            let version = next.fetch_add(1, Ordering::Relaxed);
            request(tools, version, "hi", false)
        })
        .bench_values(|body| world.send(&world.server, &body));
}

struct World {
    runtime: Runtime,
    client: reqwest::Client,
    provider: String,
    server: String,
    _data: TempDir,
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let data = tempfile::tempdir().unwrap();
        let (provider, server) = runtime.block_on(start(&data));
        World {
            runtime,
            client: toolscout::tls::client().no_proxy().build().unwrap(),
            provider,
            server,
            _data: data,
        }
    }

    /// Sends a request until its list is known and indexed.
    fn warm(&self, body: &str) {
        let searching = body.replace("\"hi\"", &format!("\"{SEARCHES}\""));
        for body in [searching.as_str(), body] {
            self.send(&self.server, body);
        }
    }

    fn send(&self, url: &str, body: &str) -> usize {
        self.runtime.block_on(async {
            let answer = self.post(url, body).await;
            answer.bytes().await.unwrap().len()
        })
    }

    fn first_byte(&self, url: &str, body: &str) -> usize {
        self.runtime.block_on(async {
            let mut answer = self.post(url, body).await;
            let first = answer.chunk().await.unwrap().map_or(0, |chunk| chunk.len());
            // To its end, so that the connection is used again.
            while answer.chunk().await.unwrap().is_some() {}
            first
        })
    }

    async fn post(&self, url: &str, body: &str) -> reqwest::Response {
        let url = format!("{url}/v1/chat/completions");
        let request = self.client.post(url).body(body.to_owned());
        let request = request.header("content-type", "application/json");
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        answer
    }
}

async fn start(data: &TempDir) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let settings = Settings {
        catalog_options: Options::new(vec![StaticTable::bundled().unwrap()]),
        dropin: Some(DropInConfig::new(ProviderConfig::new(format!(
            "{provider}/v1"
        )))),
        ..Settings::new(data.path())
    };
    tokio::spawn(assembly::serve(listener, settings, Shutdown::new()));
    let client = toolscout::tls::client().no_proxy().build().unwrap();
    while !client
        .get(format!("{server}/readyz"))
        .send()
        .await
        .is_ok_and(|answer| answer.status().is_success())
    {
        tokio::task::yield_now().await;
    }
    (provider, server)
}

/// The provider: answers at once, after a search where the request says so.
async fn answer(request: Request) -> Response {
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let text = std::str::from_utf8(&body).unwrap();
    let searches = text.contains(SEARCHES) && !text.contains("\"tool_call_id\"");
    if text.contains("\"stream\":true") {
        let chunk = json!({ "id": "c", "choices": [{ "index": 0,
            "delta": { "role": "assistant", "content": "Hello" }, "finish_reason": "stop" }] });
        return Response::builder()
            .header("content-type", "text/event-stream")
            .body(Body::from(format!("data: {chunk}\n\ndata: [DONE]\n\n")))
            .unwrap();
    }
    let message = match searches {
        true => json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "s",
            "type": "function", "function": { "name": "tool_search",
            "arguments": "{\"query\":\"create an item of number 7\"}" } }] }),
        false => json!({ "role": "assistant", "content": "Hello" }),
    };
    let finish = if searches { "tool_calls" } else { "stop" };
    let body = json!({ "id": "c", "choices": [{ "index": 0, "message": message,
        "finish_reason": finish }] });
    Response::builder()
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// A request with so many tools of usual size, about 800 bytes each. Lists of another version have
/// other tools.
fn request(tools: usize, version: usize, text: &str, streams: bool) -> String {
    let tools: Vec<Value> = (0..tools)
        .map(|number| {
            let field = |what: &str| {
                json!({ "type": "string", "description": format!("The {what} of the item, as it is shown to people.") })
            };
            json!({ "type": "function", "function": {
                "name": format!("group{}_create_item_{number}_{version}", number / 40),
                "description": format!("Creates an item of kind {number} in the list that is named. \
                    Use it when somebody wants to write down something new about number {number}."),
                "parameters": { "type": "object", "required": ["title"], "properties": {
                    "title": field("title"), "notes": field("notes"), "owner": field("owner"),
                    "due": field("last day") } },
            } })
        })
        .collect();
    let body = json!({ "model": "m", "stream": streams, "tools": tools,
        "messages": [{ "role": "user", "content": text }] });
    body.to_string()
}
