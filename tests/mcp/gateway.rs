//! The gateway as a client sees it, over a pipe within the process.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, CallToolResult, ProgressNotificationParam};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolscout::budget;
use toolscout::finder::Style;
use toolscout::finder::toolbox::{Eviction, ToolboxConfig};
use toolscout::gate::{Gate, Policies};
use toolscout::mcp::{Gateway, GatewayConfig};

use super::world::{PATIENCE, Upstream, double, object};

/// A client and what it was told.
#[derive(Clone, Default)]
struct Ears {
    list_changed: Arc<Notify>,
    progressed: Arc<Notify>,
}

impl ClientHandler for Ears {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progressed.notify_one();
    }
}

/// A gate that asks nobody: what it does is tested elsewhere.
fn open_gate() -> Arc<Gate> {
    Arc::new(Gate::new(Policies::permissive()))
}

fn gateway(upstream: &Upstream, config: GatewayConfig) -> Gateway {
    Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        open_gate(),
        config,
    )
}

async fn client(gateway: &Gateway) -> RunningService<RoleClient, Ears> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let (read, write) = tokio::io::split(theirs);
        gateway.serve(read, write, CancellationToken::new()).await
    });
    Ears::default()
        .serve(tokio::io::split(ours))
        .await
        .expect("a handshake")
}

async fn call(
    client: &RunningService<RoleClient, Ears>,
    name: &str,
    arguments: Value,
) -> CallToolResult {
    let params = CallToolRequestParams::new(name.to_owned()).with_arguments(object(arguments));
    timeout(PATIENCE, client.call_tool(params))
        .await
        .expect("in time")
        .expect("a result")
}

async fn names(client: &RunningService<RoleClient, Ears>) -> Vec<String> {
    let tools = client.list_all_tools().await.expect("a list");
    tools
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect()
}

fn words(result: &CallToolResult) -> String {
    result.content[0].as_text().expect("text").text.clone()
}

/// Tokens of what a client's model is shown.
#[derive(Debug)]
pub struct Cost {
    /// The list of tools.
    pub tools: usize,
    /// The answer to a search for five tools.
    pub search: usize,
}

impl Cost {
    pub async fn of(upstream: &Upstream) -> Self {
        let client = client(&gateway(upstream, GatewayConfig::default())).await;
        let tools = client.list_all_tools().await.expect("a list");
        let shown = |tool: &rmcp::model::Tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema });
        let shown: Value = tools.iter().map(shown).collect();
        let answer = call(
            &client,
            "tool_search",
            json!({ "query": "current time in a timezone", "limit": 5 }),
        )
        .await;
        Cost {
            tools: budget::count(&shown.to_string()),
            search: budget::count(&words(&answer)),
        }
    }
}

#[tokio::test]
async fn a_call_before_any_search_waits_for_servers_that_start() {
    let upstream = Upstream::begin(vec![double("a", &[])], |_| {});
    let client = client(&gateway(
        &upstream,
        GatewayConfig {
            settle: PATIENCE,
            ..GatewayConfig::default()
        },
    ))
    .await;
    let given = json!({ "name": "a/echo", "arguments": { "text": "hi" } });
    assert_eq!(words(&call(&client, "call_tool", given).await), "hi");
}

#[tokio::test]
async fn a_client_sees_two_tools_finds_others_and_calls_them() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    assert_eq!(names(&client).await, ["tool_search", "call_tool"]);

    let found: Value = serde_json::from_str(&words(
        &call(&client, "tool_search", json!({ "query": "says it again" })).await,
    ))
    .unwrap();
    let servers: Vec<&Value> = found["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["server"])
        .collect();
    assert!(
        servers.contains(&&json!("a")) && servers.contains(&&json!("b")),
        "{found}"
    );

    for (name, server) in [("a/echo", "a"), ("b__echo", "b")] {
        let given = json!({ "name": name, "arguments": { "text": "hi" } });
        let result = call(&client, "call_tool", given).await;
        assert_eq!(words(&result), "hi");
        assert_eq!(
            result.meta.unwrap().0["toolscout"],
            json!({ "server": server, "name": "echo" })
        );
    }
}

#[tokio::test]
async fn mistakes_are_results_that_teach() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    for (tool, given, expected) in [
        ("tool_search", json!({}), "the search is empty"),
        ("call_tool", json!({}), "give `name`"),
        (
            "call_tool",
            json!({ "name": "echo" }),
            "say which: a/echo, b/echo",
        ),
        (
            "call_tool",
            json!({ "name": "a/ecko" }),
            "names like it: a/echo",
        ),
        (
            "call_tool",
            json!({ "name": "a/echo", "arguments": { "text": [3] } }),
            "at /text",
        ),
        ("call_tool", json!({ "name": "a/fail" }), "no, not today"),
    ] {
        let result = call(&client, tool, given).await;
        assert_eq!(result.is_error, Some(true), "{result:?}");
        assert!(words(&result).contains(expected), "{result:?}");
    }
    let unknown = client
        .call_tool(CallToolRequestParams::new("nope"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("no tool is called \"nope\" here; find tools with tool_search"),
        "{unknown}"
    );
}

#[tokio::test]
async fn injected_tools_join_the_list_of_their_session_and_leave_it_again() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let toolbox = ToolboxConfig {
        budget_tokens: 60,
        eviction: Eviction::Lru,
        idle_turns: 3,
    };
    let config = GatewayConfig {
        style: Style::Inject,
        toolbox,
        ..GatewayConfig::default()
    };
    let gateway = gateway(&upstream, config);
    let (client, other) = (client(&gateway).await, client(&gateway).await);

    call(&client, "tool_search", json!({ "query": "select:a/echo" })).await;
    timeout(PATIENCE, client.service().list_changed.notified())
        .await
        .expect("the client is told");
    assert_eq!(
        names(&client).await,
        ["tool_search", "call_tool", "a__echo"]
    );
    assert_eq!(
        words(&call(&client, "a__echo", json!({ "text": "hi" })).await),
        "hi"
    );
    assert_eq!(
        names(&other).await,
        ["tool_search", "call_tool"],
        "another session has a list of its own"
    );

    let answer = words(&call(&client, "tool_search", json!({ "query": "select:a/fail" })).await);
    timeout(PATIENCE, client.service().list_changed.notified())
        .await
        .expect("the client is told again");
    assert_eq!(
        names(&client).await,
        ["tool_search", "call_tool", "a__fail"],
        "{answer}"
    );
    assert!(
        answer.contains(r#""removed_from_your_list":["a__echo"]"#),
        "{answer}"
    );
}

#[tokio::test]
async fn progress_reaches_the_client_that_asked_for_it() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    assert_eq!(
        words(&call(&client, "call_tool", json!({ "name": "a/progress" })).await),
        "done"
    );
    timeout(PATIENCE, client.service().progressed.notified())
        .await
        .expect("progress");
}

#[tokio::test]
async fn a_tool_of_a_disconnected_server_is_marked_as_unavailable() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    upstream.pool.close().await;
    let empty = toolscout::mcp::Pool::default();
    let gateway = Gateway::new(
        Arc::new(upstream.catalog.clone()),
        empty,
        open_gate(),
        GatewayConfig::default(),
    );
    let client = client(&gateway).await;
    let answer = words(&call(&client, "tool_search", json!({ "query": "select:a/echo" })).await);
    assert!(
        answer.contains(r#""unavailable":"it is not connected here""#),
        "{answer}"
    );
    let refused = call(&client, "call_tool", json!({ "name": "a/echo" })).await;
    assert!(
        words(&refused).contains("no connected server offers it"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn unknown_methods_garbage_and_messages_beyond_the_limit_leave_the_session_alive() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let gateway = gateway(&upstream, GatewayConfig::default());
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move {
        let (read, write) = tokio::io::split(theirs);
        gateway.serve(read, write, CancellationToken::new()).await
    });
    let (read, mut write) = tokio::io::split(ours);
    let mut lines = BufReader::new(read).lines();
    let info = json!({ "name": "raw", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let big = json!({ "jsonrpc": "2.0", "id": 8, "method": "ping", "params": { "x": "y".repeat(5 << 20) } });
    for line in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }).to_string(),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string(),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "no/such/method" }).to_string(),
        "{ this is no JSON".to_owned(),
        big.to_string(),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" }).to_string(),
    ] {
        write
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 3 {
        let line = timeout(PATIENCE, lines.next_line())
            .await
            .expect("in time")
            .unwrap()
            .expect("a line");
        let answer: Value = serde_json::from_str(&line).unwrap();
        answers.extend(answer["id"].as_u64().map(|id| (id, answer)));
    }
    assert_eq!(answers[&1]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[&2]["error"]["code"], -32601);
    assert_eq!(answers[&3]["result"], json!({}));
    // The client vanishes.
    drop((write, lines));
    timeout(PATIENCE, serving)
        .await
        .expect("the session ends")
        .expect("no panic")
        .expect("no error");
}

#[tokio::test]
async fn there_are_no_more_sessions_than_allowed() {
    let upstream = Upstream::start(Vec::new()).await;
    let gateway = gateway(
        &upstream,
        GatewayConfig {
            max_sessions: 1,
            ..GatewayConfig::default()
        },
    );
    let first = gateway.session().unwrap();
    let message = gateway.session().err().unwrap().to_string();
    assert!(message.contains("there are 1 MCP sessions"), "{message}");
    drop(first);
    assert!(gateway.session().is_ok());
}
