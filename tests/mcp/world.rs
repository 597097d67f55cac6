//! Servers that do as they are told, and what is needed to watch them.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use toolscout::mcp::config::Transport;
use toolscout::mcp::outcome::Outcome;
use toolscout::mcp::{
    CallContext, CallError, CatalogSink, Pool, PoolConfig, ServerConfig, SingleWriterSink,
};
use toolscout::tools::Arguments;
use toolscout_index::{Catalog, DataDir, Options, ToolId};

use super::followed_sink::FollowedSink;
use super::shared_store::Shared;

/// Nothing here takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A double with these behaviours; see `doubles/server.py`.
pub fn double(name: &str, behaviours: &[&str]) -> ServerConfig {
    double_with(name, behaviours, &[])
}

pub fn double_with(name: &str, behaviours: &[&str], env: &[(&str, &str)]) -> ServerConfig {
    let script = root()
        .join("tests/mcp/doubles/server.py")
        .display()
        .to_string();
    let args = std::iter::once(script)
        .chain(behaviours.iter().map(|text| text.to_string()))
        .collect();
    let env: BTreeMap<String, String> = env
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    ServerConfig::new(
        name,
        Transport::Stdio {
            command: "python3".into(),
            args,
            env,
            cwd: None,
            sandbox: None,
        },
    )
}

/// The same as an `mcpServers` file.
pub fn configuration(servers: &[ServerConfig]) -> Value {
    let entry = |server: &ServerConfig| match &server.transport {
        Transport::Stdio {
            command, args, env, ..
        } => json!({ "command": command, "args": args, "env": env }),
        Transport::Http { url, .. } => json!({ "type": "http", "url": url.as_str() }),
        Transport::Incomplete { reason } => panic!("{reason}"),
    };
    let servers: serde_json::Map<String, Value> = servers
        .iter()
        .map(|server| (server.name.clone(), entry(server)))
        .collect();
    json!({ "mcpServers": servers })
}

/// Tells when processes begin and end, by connections that they hold.
pub struct Lifeline(TcpListener);

/// A process that is known to run.
pub struct Life {
    pub name: String,
    connection: BufReader<TcpStream>,
}

impl Lifeline {
    pub async fn new() -> Self {
        Lifeline(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    pub fn port(&self) -> String {
        self.0.local_addr().expect("an address").port().to_string()
    }

    pub async fn begun(&self) -> Life {
        let (connection, _) = timeout(PATIENCE, self.0.accept())
            .await
            .expect("a process starts")
            .expect("no error");
        let mut connection = BufReader::new(connection);
        let mut name = String::new();
        connection.read_line(&mut name).await.expect("its name");
        Life {
            name: name.trim().into(),
            connection,
        }
    }
}

impl Life {
    pub async fn ended(mut self) {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, self.connection.read_to_end(&mut rest)).await;
        // A process that was killed may reset its connection.
        let _ = ended.unwrap_or_else(|_| panic!("{} did not end", self.name));
    }
}

/// A pool at work and the catalog it fills.
pub struct Upstream {
    pub pool: Pool,
    pub catalog: Catalog,
    _dir: TempDir,
    _shared: Option<Shared>,
}

impl Upstream {
    pub async fn start(servers: Vec<ServerConfig>) -> Self {
        Upstream::start_with(servers, |_| {}).await
    }

    pub async fn start_with(
        servers: Vec<ServerConfig>,
        change: impl FnOnce(&mut PoolConfig),
    ) -> Self {
        let upstream = Upstream::begin(servers, change);
        upstream.pool.settled(PATIENCE).await;
        upstream
    }

    /// Does not wait for the servers.
    pub fn begin(servers: Vec<ServerConfig>, change: impl FnOnce(&mut PoolConfig)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut config = PoolConfig {
            servers,
            ..PoolConfig::default()
        };
        config.limits.exit_timeout = Duration::from_millis(200);
        change(&mut config);
        let catalog = DataDir::new(dir.path())
            .open_or_create("default", Options::default())
            .expect("a catalog");
        let shared = Shared::of(dir.path());
        let sink: Arc<dyn CatalogSink> = match &shared {
            None => Arc::new(SingleWriterSink::new(catalog.clone())),
            Some(shared) => Arc::new(FollowedSink::new(&shared.store, catalog.clone())),
        };
        let pool = Pool::new(config);
        pool.start(sink);
        Upstream {
            pool,
            catalog,
            _dir: dir,
            _shared: shared,
        }
    }

    pub async fn call(&self, id: &str, arguments: Value) -> Result<CallToolResult, CallError> {
        self.call_in(id, arguments, &CallContext::default()).await
    }

    pub async fn call_in(
        &self,
        id: &str,
        arguments: Value,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let id = ToolId::parse(id).expect("an id");
        let calling = self.pool.call(&id, object(arguments), context);
        timeout(PATIENCE, calling).await.expect("the call ends")
    }

    /// Calls the `echo` of a double.
    pub async fn echo(&self, server: &str) -> String {
        let result = self
            .call(&format!("{server}/echo"), json!({ "text": "hello" }))
            .await;
        text(result.unwrap_or_else(|error| panic!("{error}")))
    }

    pub fn ids(&self) -> Vec<String> {
        self.catalog
            .searcher()
            .ids_after(None)
            .map(ToString::to_string)
            .collect()
    }

    pub fn description(&self, id: &str) -> String {
        let id = ToolId::parse(id).expect("an id");
        self.catalog
            .searcher()
            .tool(&id)
            .map(|tool| tool.description.clone())
            .unwrap_or_default()
    }

    pub fn reason(&self, server: &str) -> String {
        self.pool.unavailable(server).unwrap_or_default()
    }
}

/// Waits for a change of the catalog or of a file, as [`until`] does.
pub async fn becomes(what: &str, wished: impl Fn() -> bool) {
    until(what, || std::future::ready(wished())).await;
}

/// Asks again and again until the answer is yes.
///
/// For what sends no event to a test: a process of its own that starts to listen, or a pool that
/// has written a list of tools or made a new connection. Everything else is awaited.
pub async fn until<F: Future<Output = bool>>(what: &str, wished: impl Fn() -> F) {
    let waiting = async {
        while !wished().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("it did not come to be that {what}"));
}

pub fn object(value: Value) -> Arguments {
    value.as_object().expect("an object").clone()
}

pub fn text(result: CallToolResult) -> String {
    Outcome::of(&result).text.join("\n")
}

/// A tool as a double's state file has it.
pub fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

/// Replaces a file whole, as a server that reads it meanwhile needs it.
pub fn replace(path: &Path, content: &Value) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content.to_string()).expect("written");
    std::fs::rename(&fresh, path).expect("renamed");
}
