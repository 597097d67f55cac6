//! A server of one's own, on a free port, with a data directory that goes away at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use toolscout::assembly::{self, Settings};
use toolscout::keys::{KeyStore, NewKey, Scope, Scopes};
use toolscout::shutdown::Shutdown;
use toolscout_index::embed::Hashing;
use toolscout_index::{DataDir, Options, Tool, ToolId};

use super::shared_store::{self, Shared};

/// Nothing here takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    pub url: String,
    pub dir: TempDir,
    pub shutdown: Shutdown,
    client: reqwest::Client,
    serving: JoinHandle<anyhow::Result<()>>,
    shared: Option<Shared>,
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
        server.add(tools).await;
        server
    }

    pub async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut settings = Settings::new(dir.path());
        change(&mut settings);
        let shared = Shared::of(&settings.data);
        settings.store = shared.as_ref().map(|shared| Arc::clone(&shared.store));
        let runtime = shared_store::handle_of(shared.as_ref());
        let binding = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = binding.await.expect("no panic").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shutdown = Shutdown::new();
        let serving = runtime.spawn(assembly::serve(listener, settings, shutdown.clone()));
        let mut server = Server {
            url,
            dir,
            shutdown,
            client: toolscout::tls::client().build().unwrap(),
            serving,
            shared,
        };
        tokio::time::timeout(PATIENCE, server.become_ready())
            .await
            .expect("the server becomes ready");
        server
    }

    async fn become_ready(&mut self) {
        let (client, url) = (self.client.clone(), format!("{}/readyz", self.url));
        let ready = async {
            // A server that ends does not answer; why it ended says more.
            while !client
                .get(&url)
                .send()
                .await
                .is_ok_and(|answer| answer.status() == 200)
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = ready => {}
            ended = &mut self.serving => panic!("the server ended at its start: {ended:?}"),
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

    /// Adds tools to the default catalog. Many are embedded by a task.
    pub async fn add(&self, tools: &[Value]) {
        let path = "/v1/catalogs/default/tools";
        let answer = self.post(path, &json!(tools)).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    /// Waits until all of the default catalog is embedded.
    pub async fn embedded(&self) {
        let path = "/v1/catalogs/default";
        self.wait_for(path, |catalog| catalog["pending_embeddings"] == 0)
            .await;
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        read(self.request(Method::PUT, path).json(body)).await
    }

    /// What the server itself has of a catalog: the catalog, or a copy of the one in its store.
    pub fn folder(&self, catalog: &str) -> PathBuf {
        let data = self.dir.path();
        let place = match &self.shared {
            Some(_) => data.join("followed"),
            None => data.to_owned(),
        };
        place.join("catalogs").join(catalog)
    }

    /// A key made as the command line makes it.
    pub fn key(&self, scope: Scope, catalogs: &str) -> String {
        self.make_key(scope.into(), catalogs)
    }

    /// As [`Server::key`], with several scopes.
    pub fn make_key(&self, scopes: Scopes, catalogs: &str) -> String {
        let key = make_key(self.dir.path(), &scopes, catalogs, None);
        self.until_refused(None);
        key
    }

    /// As [`Server::key`], with all that a key may have.
    pub fn add_key(&self, new: &NewKey) -> String {
        let key = with_keys(self.dir.path(), |keys| {
            let made = keys.add(new.clone(), SystemTime::now());
            made.expect("a key").token
        });
        self.until_refused(None);
        key
    }

    /// Revokes a key as the command line does.
    pub fn revoke(&self, key: &str) {
        let id = key.split('_').nth(1).expect("an id");
        with_keys(self.dir.path(), |keys| {
            keys.revoke(id, SystemTime::now()).expect("it is revoked");
        });
        self.until_refused(Some(key));
    }

    /// Waits until the server has learnt from its store what was done to keys.
    fn until_refused(&self, key: Option<&str>) {
        if self.shared.is_none() {
            return;
        }
        let url = format!("{}/v1/catalogs", self.url);
        shared_store::blocking(|| {
            let client = toolscout::tls::blocking_client().build().expect("a client");
            let begun = Instant::now();
            loop {
                let request = client.get(&url);
                let request = match key {
                    Some(key) => request.bearer_auth(key),
                    None => request,
                };
                if request.send().expect("an answer").status() == 401 {
                    return;
                }
                assert!(begun.elapsed() < PATIENCE, "it learns nothing of keys");
            }
        });
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
    make_key(data, &scope.into(), catalogs, lifetime)
}

fn make_key(data: &Path, scopes: &Scopes, catalogs: &str, lifetime: Option<Duration>) -> String {
    with_keys(data, |keys| {
        let catalogs = catalogs.parse().expect("catalogs");
        let made = keys.create(scopes.clone(), catalogs, lifetime, SystemTime::now());
        made.expect("a key").token
    })
}

/// Works with the keys of the servers of a data directory, as the command line does.
pub fn with_keys<T: Send>(data: &Path, work: impl Fn(&KeyStore) -> T + Send + Sync) -> T {
    let shared = shared_store::with(data, |store| work(&store.keys(None).expect("its keys")));
    shared.unwrap_or_else(|| work(&KeyStore::open(data).expect("a key store")))
}

/// The ids of the tools of the default catalog, as a process reads them that is no server.
pub fn stored_ids(data: &Path) -> Vec<ToolId> {
    let tools = stored_tools(data).into_iter();
    tools.map(|tool| tool.id).collect()
}

/// The tools of the default catalog, as a process reads them that is no server.
pub fn stored_tools(data: &Path) -> Vec<Tool> {
    let read = |data: &Path| -> Vec<Tool> {
        let catalog = DataDir::new(data).open("default", Options::default());
        let searcher = catalog.expect("a catalog").searcher();
        searcher.tools().map(|tool| Tool::clone(&tool)).collect()
    };
    let shared = shared_store::with(data, |store| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let export = DataDir::new(folder.path());
        let exported = store.block_on(store.export(&export, "default"));
        exported.expect("it is exported");
        read(folder.path())
    });
    shared.unwrap_or_else(|| read(data))
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
