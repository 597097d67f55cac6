use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolscout_index::{Embedder, EmbedderProfile, Options, Result};

use super::server::{PATIENCE, Server, tool};

/// Embeds tools at once, and queries only when it is let.
struct Gate {
    waiting: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

impl Embedder for Gate {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("gate", 1)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let _ = self.waiting.lock().unwrap().send(());
        let _ = self.open.lock().unwrap().recv();
        self.embed_tools(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|_| vec![1.0]).collect())
    }
}

/// Embeds queries at once, and as many tools as it is let.
struct Slow {
    left: Mutex<usize>,
    go_on: Mutex<Receiver<()>>,
}

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("slow", 1)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|_| vec![1.0]).collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let mut left = self.left.lock().unwrap();
        if *left < texts.len() {
            let _ = self.go_on.lock().unwrap().recv();
        }
        *left = left.saturating_sub(texts.len());
        self.embed_queries(texts)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedding_shows_its_progress_before_it_ends() {
    let (go_on, is_let) = channel::<()>();
    let embedder = Slow {
        left: Mutex::new(1500),
        go_on: Mutex::new(is_let),
    };
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![Arc::new(embedder)]);
    })
    .await;
    let tools: Vec<_> = (0..2000)
        .map(|n| tool("s", &format!("tool_{n}"), "Does something."))
        .collect();
    server.add(&tools).await;
    let pending = |catalog: &Value| catalog["pending_embeddings"].as_u64().unwrap();
    // It stays there until it is let go on.
    server
        .wait_for("/v1/catalogs/default", |catalog| {
            (1..2000).contains(&pending(catalog)) && catalog["tools"] == 2000
        })
        .await;
    drop(go_on);
    server
        .wait_for("/v1/catalogs/default", |catalog| pending(catalog) == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_beyond_the_queue_are_refused_and_the_rest_answered() {
    let (waiting, is_waiting) = channel();
    let (open, gate) = channel();
    let embedder = Gate {
        waiting: Mutex::new(waiting),
        open: Mutex::new(gate),
    };
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![Arc::new(embedder)]);
        settings.limits.search_threads = 1;
        settings.limits.search_queue = 2;
        settings.limits.search_patience = PATIENCE;
    })
    .await;
    server.add(&[tool("s", "t", "Does a thing.")]).await;
    server.embedded().await;

    let server = Arc::new(server);
    let search = |n: usize| {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            server
                .post("/v1/search", &json!({ "query": format!("thing {n}") }))
                .await
        })
    };
    let mut running = vec![search(0)];
    tokio::task::spawn_blocking(move || is_waiting.recv().map(|()| is_waiting))
        .await
        .unwrap()
        .unwrap();
    running.extend([search(1), search(2)]);
    server
        .wait_for("/metrics", |metrics| {
            metrics.as_str().unwrap().contains("search_queue_depth 2")
        })
        .await;

    let refused = search(3).await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (503, "overloaded")
    );
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(server.get("/livez").await.status, 200);
    for _ in 0..3 {
        open.send(()).unwrap();
    }
    for search in running {
        assert_eq!(search.await.unwrap().status, 200);
    }
    let metrics = server.get("/metrics").await;
    assert!(
        metrics
            .body
            .as_str()
            .unwrap()
            .contains(r#"toolscout_rejected_total{reason="search_queue"} 1"#)
    );
}

#[tokio::test]
async fn slow_clients_are_given_up() {
    let server = Server::start_with(|settings| {
        // Long enough for what comes at once on a busy machine.
        settings.limits.header_timeout = Duration::from_millis(500);
        settings.limits.body_stall = Duration::from_millis(500);
    })
    .await;
    let address = server.url.trim_start_matches("http://").to_owned();
    let begun = async |bytes: &str| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer))
            .await
            .expect("it is closed");
        answer
    };
    let headers = begun("GET /livez HTTP/1.1\r\nHost: loc").await;
    assert!(
        headers.is_empty() || headers.starts_with("HTTP/1.1 408"),
        "{headers}"
    );
    let body = begun(
        "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    )
    .await;
    assert!(
        body.starts_with("HTTP/1.1 408") && body.contains("body_timeout"),
        "{body}"
    );
}

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let server = Server::start().await;
    let address = server.url.trim_start_matches("http://");
    let many: String = (0..500).map(|n| format!("X-H{n}: v\r\n")).collect();
    let large = format!("X-Large: {}\r\n", "v".repeat(200 << 10));
    for (headers, may_be_cut_off) in [(many, false), (large, true)] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = [0; 12];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
            .await
            .expect("it is answered or closed");
        // A server that closes before it has read everything resets the connection, and the reset
        // may overtake the answer.
        if read.is_ok() || !may_be_cut_off {
            assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 431");
        }
    }
    assert_eq!(server.get("/livez").await.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_permit() {
    let server = Server::start_with(|settings| settings.limits.max_connections = 2).await;
    let address = server.url.trim_start_matches("http://").to_owned();
    // Two requests whose bodies do not end.
    let begun = async || {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = "POST /v1/catalogs/default/tools HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n";
        let body = r#"{"name":"t","inputSchema":{}}"#;
        let chunk = format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\n\r\n",
            body.len() + 1
        );
        stream.write_all(chunk.as_bytes()).await.unwrap();
        // The begin of its answer shows that it is in progress.
        let mut answer = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
            .await
            .expect("in time")
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
        stream
    };
    let (_first, second) = (begun().await, begun().await);
    let mut third = TcpStream::connect(&address).await.unwrap();
    third
        .write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    let mut reading = Box::pin(third.read_to_string(&mut answer));
    assert!(futures_util::poll!(&mut reading).is_pending());
    drop(second);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("in time")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
