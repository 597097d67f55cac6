//! A server of one's own, on a free port, with a data directory that goes away at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use toolscout::http::{self, Exposure, Limits, Settings};
use toolscout::keys::{KeyStore, Scope};
use toolscout::shutdown::Shutdown;
use toolscout_index::Options;
use toolscout_index::embed::Hashing;

/// Nothing here takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    pub url: String,
    pub dir: TempDir,
    pub shutdown: Shutdown,
    client: reqwest::Client,
    serving: JoinHandle<anyhow::Result<()>>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn error_code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("no error")
    }

    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    /// Every content security policy that it was sent with.
    pub fn policy(&self) -> String {
        let policies = self.headers.get_all("content-security-policy");
        let policies: Vec<&str> = policies
            .iter()
            .map(|policy| policy.to_str().unwrap())
            .collect();
        policies.join("; ")
    }
}

impl Server {
    /// Without a model and without keys.
    pub async fn start() -> Self {
        Server::start_with(|_| {}).await
    }

    /// With the deterministic embedder.
    pub async fn start_dense() -> Self {
        Server::start_with(|settings| {
            settings.catalog_options = Options::new(vec![Arc::new(Hashing::new(64))])
        })
        .await
    }

    /// With these tools in the default catalog.
    pub async fn with_tools(tools: &[Value]) -> Self {
        let server = Server::start().await;
        let answer = server
            .post("/v1/catalogs/default/tools", &json!(tools))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        server
    }

    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut settings = Settings {
            data: dir.path().to_owned(),
            store: None,
            default_catalog: "default".into(),
            catalog_options: Options::default(),
            embedder_source: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            exposure: Exposure::Loopback,
            limits: Limits::default(),
            agent: None,
            upstream: Default::default(),
            gateway: Default::default(),
            profiles: Vec::new(),
            proxy: None,
        };
        change(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(http::serve(listener, settings, shutdown.clone()));
        let server = Server {
            url,
            dir,
            shutdown,
            client: toolscout::tls::client().build().unwrap(),
            serving,
        };
        tokio::time::timeout(PATIENCE, server.ready())
            .await
            .expect("the server becomes ready");
        server
    }

    async fn ready(&self) {
        while self.get("/readyz").await.status != 200 {
            tokio::task::yield_now().await;
        }
    }

    /// Ends it as a signal would, and waits for it.
    pub async fn stop(self) -> TempDir {
        self.shutdown.trigger();
        let ended = tokio::time::timeout(PATIENCE, self.serving)
            .await
            .expect("the server ends");
        ended.expect("no panic").expect("no error");
        self.dir
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        read(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        read(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        read(self.request(Method::POST, path).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        read(self.request(Method::PUT, path).json(body)).await
    }

    /// A key made as the command line makes it.
    pub fn key(&self, scope: Scope, catalogs: &str) -> String {
        key_in(self.dir.path(), scope, catalogs, None)
    }

    /// Asks until the answer is as wished.
    pub async fn wait_for(&self, path: &str, wished: impl Fn(&Value) -> bool) -> Value {
        let asking = async {
            loop {
                let answer = self.get(path).await;
                if wished(&answer.body) {
                    return answer.body;
                }
            }
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .expect("it comes to be")
    }
}

pub fn key_in(data: &Path, scope: Scope, catalogs: &str, lifetime: Option<Duration>) -> String {
    let store = KeyStore::open(data).expect("a key store");
    let catalogs = catalogs.parse().expect("catalogs");
    store
        .create(scope, catalogs, lifetime, SystemTime::now())
        .expect("a key")
        .token
}

pub async fn read(request: RequestBuilder) -> Answer {
    read_response(request.send().await.expect("an answer")).await
}

pub async fn read_response(response: Response) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("a whole body");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer {
        status,
        headers,
        body,
    }
}

pub fn tool(server: &str, name: &str, description: &str) -> Value {
    json!({
        "server": server,
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
    })
}

pub fn ids(answer: &Answer) -> Vec<&str> {
    answer.body["hits"]
        .as_array()
        .expect("hits")
        .iter()
        .filter_map(|hit| hit["id"].as_str())
        .collect()
}
