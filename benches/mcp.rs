//! What a call through this program costs over a direct one, with servers that others wrote.
//!
//! Each server is called directly and through `toolscout mcp`, in turn and by the same client code
//! over stdio, so that a busy machine slows both; what counts is the ratio of the medians. Then 100
//! calls over 4 servers at once, directly and through, and the tokens that a model is shown either
//! way.
//!
//!     scripts/mcp_peers.sh && cargo bench --bench mcp

#![allow(clippy::print_stdout, reason = "the figures are this program's output")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use toolscout::budget;
use toolscout::mcp::config::{ServerConfig, parse_server};
use toolscout::mcp::{CallContext, Pool, PoolConfig, SingleWriterSink};
use toolscout::tools::Arguments;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{DataDir, Options, ToolId};

/// Calls of each kind to each server.
const CALLS: usize = 300;
/// Calls at once.
const AT_ONCE: usize = 100;
/// Nobody is asked, and no limit is reached.
const PROFILE: &str = "
    [gate.defaults]
    state_changing = \"allow\"
    destructive = \"allow\"
    [gate.limits]
    calls = 1000000
    state_changing = 1000000
    destructive = 1000000";

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let peers = std::env::var_os("TOOLSCOUT_TEST_MCP_PEERS")
        .map_or(root.join("target/mcp-peers"), PathBuf::from);
    if !peers.join("venv/bin/python").exists() {
        eprintln!(
            "skipped: {} is empty; run scripts/mcp_peers.sh first",
            peers.display()
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(measure(root, &peers));
    runtime.shutdown_timeout(Duration::from_secs(2));
}

async fn measure(root: &Path, peers: &Path) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let servers = servers(root, peers, dir.path());
    let file = dir.path().join("servers.json");
    std::fs::write(&file, configuration(peers, root, dir.path()).to_string()).expect("written");
    let profile = dir.path().join("profile.toml");
    std::fs::write(&profile, PROFILE).expect("written");
    let ours = format!(
        "ours='{}' --data '{}' --embedder none mcp --mcp '{}' --profile '{}'",
        env!("CARGO_BIN_EXE_toolscout"),
        dir.path().join("theirs").display(),
        file.display(),
        profile.display()
    );
    let ours = parse_server(&ours, &|_| None).expect("a command line");
    let direct = Clients::start(&dir.path().join("direct"), servers).await;
    let through = Clients::start(&dir.path().join("through"), vec![ours]).await;

    for (id, arguments) in calls(dir.path()) {
        compare(&direct, &through, id, &arguments).await;
    }
    at_once(&direct, &through, dir.path()).await;
    tokens(&direct, &through).await;
    direct.pool.close().await;
    through.pool.close().await;
}

/// A client with connections to some servers.
struct Clients {
    pool: Pool,
    catalog: toolscout_index::Catalog,
}

impl Clients {
    async fn start(data: &Path, servers: Vec<ServerConfig>) -> Self {
        let catalog = DataDir::new(data)
            .open_or_create("default", Options::default())
            .expect("a catalog");
        let pool = Pool::new(PoolConfig {
            servers,
            ..PoolConfig::default()
        });
        pool.start(Arc::new(SingleWriterSink::new(catalog.clone())));
        pool.settled(Duration::from_secs(60)).await;
        Clients { pool, catalog }
    }

    async fn call(&self, id: &str, arguments: &Value) -> Duration {
        let id = ToolId::parse(id).expect("an id");
        let arguments = object(arguments);
        let started = Instant::now();
        let result = self
            .pool
            .call(&id, arguments, &CallContext::default())
            .await
            .expect("an answer");
        assert_ne!(result.is_error, Some(true), "{id}: {result:?}");
        started.elapsed()
    }

    async fn call_through(&self, id: &str, arguments: &Value) -> Duration {
        self.call(
            "ours/call_tool",
            &json!({ "name": id, "arguments": arguments }),
        )
        .await
    }
}

async fn compare(direct: &Clients, through: &Clients, id: &str, arguments: &Value) {
    // The first calls meet servers that are still being connected, and cold code.
    for _ in 0..10 {
        direct.call(id, arguments).await;
        through.call_through(id, arguments).await;
    }
    let (mut alone, mut proxied) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        alone.push(direct.call(id, arguments).await);
        proxied.push(through.call_through(id, arguments).await);
    }
    let (alone, proxied) = (median(alone), median(proxied));
    let ratio = proxied.as_secs_f64() / alone.as_secs_f64();
    // Where the server itself takes most of the time, the way through can be the quicker one by chance.
    let added = (proxied.as_secs_f64() - alone.as_secs_f64()) * 1e3;
    println!(
        "{id}: direct {alone:.2?}, through us {proxied:.2?}, ratio {ratio:.2}, added {added:.2} ms"
    );
}

async fn at_once(direct: &Clients, through: &Clients, folder: &Path) {
    let calls = calls(folder);
    let numbered = || (0..AT_ONCE).map(|number| &calls[number % calls.len()]);
    let started = Instant::now();
    let alone = join_all(numbered().map(|(id, arguments)| direct.call(id, arguments)))
        .await
        .len();
    let direct_took = started.elapsed();
    let started = Instant::now();
    let proxied = join_all(numbered().map(|(id, arguments)| through.call_through(id, arguments)))
        .await
        .len();
    let through_took = started.elapsed();
    println!(
        "{AT_ONCE} calls at once over {} servers: direct {alone} answered in {direct_took:.2?}, through us {proxied} in {through_took:.2?}",
        calls.len()
    );
}

async fn tokens(direct: &Clients, through: &Clients) {
    let shown = |clients: &Clients| {
        let searcher = clients.catalog.searcher();
        let tools: Vec<_> = searcher.tools().collect();
        let list: Vec<_> = tools.iter().map(AsRef::as_ref).collect();
        (
            tools.len(),
            budget::count(&formats::emit(&list, Emit::Anthropic).to_string()),
        )
    };
    let ((tools, all), (ours, two)) = (shown(direct), shown(through));
    println!(
        "tokens before the first question: {all} for {tools} tools directly, {two} for {ours} through us"
    );
    let id = ToolId::parse("ours/tool_search").expect("an id");
    for query in [
        "current time in a timezone",
        "read the text of a file",
        "commit history of a repository",
    ] {
        let arguments = object(&json!({ "query": query }));
        let answer = through
            .pool
            .call(&id, arguments, &CallContext::default())
            .await
            .expect("an answer");
        let text = answer
            .content
            .first()
            .and_then(|block| block.as_text())
            .map(|text| text.text.clone());
        println!(
            "tokens of a search for {query:?}: {}",
            budget::count(&text.unwrap_or_default())
        );
    }
}

fn calls(folder: &Path) -> Vec<(&'static str, Value)> {
    vec![
        ("everything/echo", json!({ "message": "hello" })),
        (
            "filesystem/read_text_file",
            json!({ "path": folder.join("notes.txt") }),
        ),
        ("time/get_current_time", json!({ "timezone": "Asia/Tokyo" })),
        ("generated/tag_trees_west", json!({ "text": "hello" })),
    ]
}

fn servers(root: &Path, peers: &Path, folder: &Path) -> Vec<ServerConfig> {
    std::fs::write(folder.join("notes.txt"), "buy umbrellas").expect("written");
    let servers = configuration(peers, root, folder);
    let path = folder.join("direct.json");
    std::fs::write(&path, servers.to_string()).expect("written");
    toolscout::mcp::config::load(&path, &|_| None).expect("a configuration")
}

fn configuration(peers: &Path, root: &Path, folder: &Path) -> Value {
    let bin = peers.join("node_modules/.bin");
    json!({ "mcpServers": {
        "everything": { "command": "node", "args": [bin.join("mcp-server-everything")] },
        "filesystem": { "command": "node", "args": [bin.join("mcp-server-filesystem"), folder] },
        "time": { "command": peers.join("venv/bin/mcp-server-time"), "args": ["--local-timezone=UTC"] },
        "git": { "command": peers.join("venv/bin/mcp-server-git"), "args": [] },
        "generated": { "command": peers.join("venv/bin/python"), "args": [root.join("tests/mcp/peers/fastmcp_server.py")] },
    } })
}

fn object(value: &Value) -> Arguments {
    value.as_object().cloned().unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
