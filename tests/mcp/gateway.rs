//! The gateway as a client sees it, over a pipe within the process.

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ElicitRequestParams, ElicitResult,
    ErrorData, GetPromptRequestParams, ProgressNotificationParam, ReadResourceRequestParams,
};
use rmcp::service::{
    NotificationContext, RequestContext, RoleClient, RunningService, ServiceError,
};
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
use toolscout::mcp::config::Transport;
use toolscout::mcp::connection::{ModelAnswer, ModelQuestion};
use toolscout::mcp::{Gateway, GatewayConfig};
use toolscout_index::memory::Switch;

use super::world::{PATIENCE, Upstream, double, object};

/// A client and what it was told.
#[derive(Clone, Default)]
pub struct Ears {
    list_changed: Arc<Notify>,
    progressed: Arc<Notify>,
    prompts_changed: Arc<Notify>,
    resources_changed: Arc<Notify>,
}

impl ClientHandler for Ears {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.prompts_changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.resources_changed.notify_one();
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progressed.notify_one();
    }
}

/// A gate that asks nobody: what it does is tested elsewhere.
fn open_gate() -> Arc<Gate> {
    Arc::new(Gate::new(Policies::permissive()))
}

pub fn gateway(upstream: &Upstream, config: GatewayConfig) -> Gateway {
    Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        open_gate(),
        config,
    )
}

pub async fn client(gateway: &Gateway) -> RunningService<RoleClient, Ears> {
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

pub async fn call(
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

/// The list of a client for which these tools were found.
fn own_tools_and(found: &[&str]) -> Vec<String> {
    let own = [
        "tool_search",
        "describe_tool",
        "list_tools",
        "call_tool",
        "run_plan",
    ];
    own.iter()
        .chain(found)
        .map(|name| (*name).to_owned())
        .collect()
}

pub fn words(result: &CallToolResult) -> String {
    result.content[0].as_text().expect("text").text.clone()
}

/// Tokens of what a client's model is shown.
#[derive(Debug)]
pub struct Cost {
    /// The list of tools.
    pub tools: usize,
    /// The answer to a search for five tools, the median of these requests.
    pub search: usize,
    /// The same with schemas.
    pub with_schemas: usize,
}

/// Requests for tools of the public servers that the tests run.
const REQUESTS: [&str; 21] = [
    "current time in a timezone",
    "convert 9 am in London to Tokyo time",
    "read a text file",
    "read several files at once",
    "create a folder",
    "list a directory with sizes",
    "find files by name",
    "rename a file",
    "replace lines in a file",
    "which folders may I use",
    "show what was committed last",
    "stage changes",
    "commit what is staged",
    "create a branch",
    "difference between two branches",
    "switch to another branch",
    "add two numbers",
    "repeat a message",
    "run something that takes long",
    "image for testing",
    "print the environment",
];

fn median(mut counts: Vec<usize>) -> usize {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

impl Cost {
    pub async fn of(upstream: &Upstream) -> Self {
        let client = client(&gateway(upstream, GatewayConfig::default())).await;
        let tools = client.list_all_tools().await.expect("a list");
        let shown = |tool: &rmcp::model::Tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema });
        let shown: Value = tools.iter().map(shown).collect();
        let search = async |detail: &str| {
            let mut counts = Vec::new();
            for query in REQUESTS {
                let given = json!({ "query": query, "limit": 5, "detail": detail });
                let answer = call(&client, "tool_search", given).await;
                counts.push(budget::count(&words(&answer)));
            }
            median(counts)
        };
        Cost {
            tools: budget::count(&shown.to_string()),
            search: search("signature").await,
            with_schemas: search("schema").await,
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
async fn a_client_finds_tools_and_calls_them() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    assert_eq!(names(&client).await, own_tools_and(&[]));

    let found: Value = serde_json::from_str(&words(
        &call(&client, "tool_search", json!({ "query": "says it again" })).await,
    ))
    .unwrap();
    let lines = found["tools"].as_array().unwrap();
    for line in [
        "a/echo(text?: string) — Says it again.",
        "b/echo(text?: string) — Says it again.",
    ] {
        assert!(lines.contains(&json!(line)), "{found}");
    }

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
async fn a_call_that_succeeded_teaches_the_memory_the_query_that_found_its_tool() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let memory = upstream.catalog.memory();
    let echo = |text: Value| json!({ "name": "a/echo", "arguments": { "text": text } });
    let search = async |query: &str| {
        call(&client, "tool_search", json!({ "query": query })).await;
    };
    let remembered = || -> Vec<(String, String)> {
        let entries = memory.entries(None, 100).unwrap();
        let pairs = entries.into_iter();
        pairs
            .map(|entry| (entry.query, entry.tool.to_string()))
            .collect()
    };
    search("says it again").await;
    call(&client, "call_tool", echo(json!("hi"))).await;
    assert_eq!(remembered(), [], "the memory is off");

    memory.set_switch(Switch::On).unwrap();
    call(&client, "call_tool", echo(json!("hi"))).await;
    assert_eq!(remembered(), [], "nothing was searched for since");
    search("says no").await;
    let failed = call(&client, "call_tool", json!({ "name": "a/fail" })).await;
    assert_eq!(failed.is_error, Some(true), "{failed:?}");
    assert_eq!(remembered(), [], "the call failed");
    search("says it again").await;
    for _ in 0..2 {
        call(&client, "call_tool", echo(json!("hi"))).await;
    }
    let entries = memory.entries(None, 100).unwrap();
    assert_eq!((entries.len(), entries[0].times), (1, 1), "{entries:?}");
    assert_eq!(
        remembered(),
        [("says it again".to_owned(), "a/echo".to_owned())]
    );
    // A step of a plan is a call too.
    search("repeat what it says").await;
    let plan = json!({ "steps": [{ "tool": "a/echo", "arguments": { "text": "hi" } }] });
    let answer = words(&call(&client, "run_plan", plan).await);
    assert_eq!(remembered().len(), 2, "{answer}");
    // Another client has not searched.
    let other = self::client(&gateway(&upstream, GatewayConfig::default())).await;
    call(&other, "call_tool", echo(json!("hi"))).await;
    assert_eq!(remembered().len(), 2);
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
    assert_eq!(names(&client).await, own_tools_and(&["a__echo"]));
    assert_eq!(
        words(&call(&client, "a__echo", json!({ "text": "hi" })).await),
        "hi"
    );
    assert_eq!(
        names(&other).await,
        own_tools_and(&[]),
        "another session has a list of its own"
    );

    let answer = words(&call(&client, "tool_search", json!({ "query": "select:a/fail" })).await);
    timeout(PATIENCE, client.service().list_changed.notified())
        .await
        .expect("the client is told again");
    assert_eq!(
        names(&client).await,
        own_tools_and(&["a__fail"]),
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
        answer.contains(r#""unavailable":{"a/echo":"it is not connected here"}"#),
        "{answer}"
    );
    let refused = call(&client, "call_tool", json!({ "name": "a/echo" })).await;
    assert!(
        words(&refused).contains("no connected server offers it"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_client_that_searches_in_circles_is_told_until_it_calls_a_tool() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let search = async |query: &str| -> Value {
        let answer = call(&client, "tool_search", json!({ "query": query })).await;
        serde_json::from_str(&words(&answer)).unwrap()
    };
    let first = search("says it again").await;
    assert_eq!(first.get("repeated"), None, "{first}");
    let names = |answer: &Value| {
        let tools = answer["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool.as_str().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    let second = search("say it again").await;
    assert!(
        second["repeated"]
            .as_str()
            .unwrap()
            .contains("found the same tools"),
        "{second}"
    );
    assert!(names(&second).contains(&"a__echo".to_owned()), "{second}");
    assert!(second["tools"].to_string().len() < first["tools"].to_string().len());
    let third = search("says it again").await;
    assert!(
        third["repeated"]
            .as_str()
            .unwrap()
            .contains("Stop searching: call one of them"),
        "{third}"
    );
    let given = json!({ "name": "a__echo", "arguments": { "text": "hi" } });
    assert_eq!(words(&call(&client, "call_tool", given).await), "hi");
    let later = search("says it again").await;
    assert_eq!(later.get("repeated"), None, "{later}");
}

#[tokio::test]
async fn a_search_names_the_servers_that_are_not_there() {
    let mut broken = double("broken", &[]);
    let Transport::Stdio { command, .. } = &mut broken.transport else {
        unreachable!("a double is a process")
    };
    *command = "/no/such/program".into();
    let upstream = Upstream::start(vec![double("a", &[]), broken]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let search = async |given: Value| -> Value {
        let answer = call(&client, "tool_search", given).await;
        serde_json::from_str(&words(&answer)).unwrap()
    };
    let away = |answer: &Value| answer.get("servers_away").map(Value::to_string);
    let asked = search(json!({ "query": "says it again", "server": "broken" })).await;
    let text = away(&asked).expect("the server is named");
    assert!(
        text.contains("broken: ") && text.contains(" (for "),
        "{text}"
    );
    let other = search(json!({ "query": "says it again", "server": "a" })).await;
    assert_eq!(away(&other), None, "{other}");
    let open = search(json!({ "query": "book a flight to the moon" })).await;
    assert!(away(&open).is_some(), "{open}");
}

#[tokio::test]
async fn prompts_and_resources_of_all_servers_pass() {
    let saying = |name: &str| {
        let mut server = double(name, &["offers", "links"]);
        let Transport::Stdio { env, .. } = &mut server.transport else {
            unreachable!("a double is a process")
        };
        env.insert("SAYS".into(), format!("{name} has "));
        server
    };
    let servers = vec![saying("a"), saying("b"), double("plain", &[])];
    let upstream = Upstream::start(servers).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;

    let prompts = client.list_all_prompts().await.expect("prompts");
    let prompts: Vec<Value> = prompts.iter().map(|prompt| json!(prompt)).collect();
    assert_eq!(prompts.len(), 2);
    assert_eq!(prompts[0]["name"], "a__greet");
    assert_eq!(prompts[0]["title"], "Greeting");
    assert_eq!(
        prompts[0]["arguments"],
        json!([{ "name": "who", "required": true }])
    );
    assert_eq!(prompts[1]["_meta"]["toolscout"]["server"], "b");
    let params = GetPromptRequestParams::new("b__greet");
    let params = params.with_arguments(object(json!({ "who": "Ada" })));
    let prompt = client.get_prompt(params).await.expect("a prompt");
    assert_eq!(json!(prompt)["messages"][0]["content"]["text"], "Greet Ada");
    let unknown = client
        .get_prompt(GetPromptRequestParams::new("c__greet"))
        .await;
    assert!(unknown.unwrap_err().to_string().contains("no prompt"));

    let resources = client.list_all_resources().await.expect("resources");
    let resources: Vec<Value> = resources.iter().map(|resource| json!(resource)).collect();
    assert_eq!(resources.len(), 2);
    assert_eq!(resources[0]["uri"], "memo:all");
    assert_eq!(resources[0]["mimeType"], "text/plain");
    assert_eq!(resources[0]["_meta"]["own"], 1);
    let other = resources[1]["uri"].as_str().unwrap();
    let templates = client
        .list_all_resource_templates()
        .await
        .expect("templates");
    assert_eq!(json!(templates)[1]["uriTemplate"], "memo:{day}/list");
    let read = async |uri: &str| {
        let read = client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await;
        read.map(|result| json!(result)["contents"][0].clone())
    };
    let expected = json!({ "uri": "memo:all", "text": "a has memo:all", "_meta": { "own": 2 } });
    assert_eq!(read("memo:all").await.unwrap(), expected);
    let of_other = read(other).await.unwrap();
    assert_eq!(
        (&of_other["uri"], &of_other["text"]),
        (&json!(other), &json!("b has memo:all"))
    );
    let by_template = read("memo:monday/list").await.unwrap();
    assert_eq!(by_template["text"], "a has memo:monday/list");
    let unknown = read("notes:7").await.unwrap_err().to_string();
    assert!(
        unknown.contains("no connected server has the resource"),
        "{unknown}"
    );
    call(&client, "call_tool", json!({ "name": "b/links" })).await;
    assert_eq!(read("notes:7").await.unwrap()["text"], "b has notes:7");

    let completed = client.complete_prompt_simple("b__greet", "who", "Ad").await;
    assert_eq!(completed.expect("a completion"), ["Ad-done"]);
    let completed = client
        .complete_resource_simple("memo:{day}/list", "day", "mon")
        .await;
    assert_eq!(completed.expect("a completion"), ["mon-done"]);
}

#[tokio::test]
async fn a_client_is_told_when_prompts_and_resources_change() {
    let upstream = Upstream::start(vec![double("a", &["offers", "links"])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    call(&client, "call_tool", json!({ "name": "a/links" })).await;
    let ears = client.service();
    for told in [&ears.prompts_changed, &ears.resources_changed] {
        timeout(PATIENCE, told.notified())
            .await
            .expect("a notification");
    }
}

/// A client whose person gives a name and whose model greets.
#[derive(Clone, Default)]
struct Answering {
    asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities =
            serde_json::from_value(json!({ "elicitation": {}, "sampling": {} })).unwrap();
        info
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = question else {
            return Err(ErrorData::invalid_params("only forms", None));
        };
        self.asked.lock().unwrap().push(message);
        let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn create_message(
        &self,
        question: ModelQuestion,
        _: RequestContext<RoleClient>,
    ) -> Result<ModelAnswer, ErrorData> {
        assert_eq!(json!(question)["maxTokens"], 10);
        let words = json!({ "type": "text", "text": "Hello" });
        let answer = json!({ "role": "assistant", "content": words, "model": "m" });
        Ok(serde_json::from_value(answer).unwrap())
    }
}

#[tokio::test]
async fn what_a_server_asks_during_a_call_reaches_the_client_of_the_call() {
    let upstream = Upstream::start(vec![double("a", &["inquires"])]).await;
    let gateway = gateway(&upstream, GatewayConfig::default());
    let handler = Answering::default();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let (read, write) = tokio::io::split(theirs);
        gateway.serve(read, write, CancellationToken::new()).await
    });
    let client = handler.clone().serve(tokio::io::split(ours)).await.unwrap();
    let params = CallToolRequestParams::new("call_tool");
    let params = params.with_arguments(object(json!({ "name": "a/inquires" })));
    let result = timeout(PATIENCE, client.call_tool(params))
        .await
        .unwrap()
        .unwrap();
    let said: Value = serde_json::from_str(&words(&result)).unwrap();
    assert_eq!(
        said[0],
        json!({ "action": "accept", "content": { "name": "Ada" } }),
        "{said}"
    );
    assert_eq!(said[1]["content"]["text"], "Hello", "{said}");
    assert_eq!(*handler.asked.lock().unwrap(), ["\"a\" asks: Who are you?"]);
}

#[tokio::test]
async fn what_is_said_besides_a_call_passes_in_both_directions() {
    let upstream = Upstream::start(vec![double("a", &["told", "page"])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let asked = async |name: &str| {
        let params = CallToolRequestParams::new("call_tool");
        let mut params = params.with_arguments(object(json!({ "name": name })));
        let meta = json!({ "traceparent": "00-1-2-01", "progressToken": 7 });
        params.meta = Some(serde_json::from_value(meta).unwrap());
        timeout(PATIENCE, client.call_tool(params))
            .await
            .expect("in time")
    };
    let told: Value = serde_json::from_str(&words(&asked("a/told").await.unwrap())).unwrap();
    assert_eq!(told["traceparent"], "00-1-2-01", "{told}");
    let Err(ServiceError::McpError(error)) = asked("a/page").await else {
        panic!("the error of the server")
    };
    assert_eq!((error.code.0, &*error.message), (-32042, "visit the page"));
    let page = &error.data.unwrap()["elicitations"][0]["url"];
    assert_eq!(page, "https://x.example");
}

#[tokio::test]
async fn reading_a_resource_passes_the_gate() {
    let upstream = Upstream::start(vec![double("a", &["offers"])]).await;
    let policies = toml::from_str("[[rules]]\nserver = \"a\"\ndecision = \"deny\"").unwrap();
    let gateway = Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        Arc::new(Gate::new(policies)),
        GatewayConfig::default(),
    );
    let client = client(&gateway).await;
    let read = client
        .read_resource(ReadResourceRequestParams::new("memo:all"))
        .await;
    let refused = read.unwrap_err().to_string();
    assert!(
        refused.contains("deny") || refused.contains("denied"),
        "{refused}"
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
async fn a_definition_is_given_whole_on_request_and_after_wrong_arguments() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let given = json!({ "names": ["a/echo", "b__echo", "a/ecko"] });
    let described: Value =
        serde_json::from_str(&words(&call(&client, "describe_tool", given).await)).unwrap();
    let text = &described["tools"][0]["input_schema"]["properties"]["text"];
    assert_eq!(text["type"], "string", "{described}");
    assert_eq!(described["tools"][1]["server"], "b");
    let problem = described["problems"][0].as_str().unwrap();
    assert!(problem.contains("names like it: a/echo"), "{problem}");

    let given = json!({ "query": "select:a/echo", "detail": "schema" });
    let found = words(&call(&client, "tool_search", given).await);
    assert!(found.contains("input_schema"), "{found}");

    let wrong = json!({ "name": "a/echo", "arguments": { "text": [3] } });
    let refused = call(&client, "call_tool", wrong).await;
    let definition = &refused.content[1].as_text().expect("text").text;
    assert!(definition.contains("input_schema"), "{definition}");

    for (given, expected) in [
        (json!({}), "give `names`"),
        (
            json!({ "names": vec!["a/echo"; 17] }),
            "17 names are too many",
        ),
        (json!({ "names": ["a/ecko"] }), "names like it: a/echo"),
    ] {
        let refused = call(&client, "describe_tool", given).await;
        assert!(words(&refused).contains(expected), "{refused:?}");
    }
    let given = json!({ "query": "echo", "detail": "all" });
    let refused = call(&client, "tool_search", given).await;
    assert!(words(&refused).contains("must be signature or schema"));
}

#[tokio::test]
async fn the_servers_are_named_and_all_tools_of_one_are_listed() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let gateway = gateway(
        &upstream,
        GatewayConfig {
            answer_tokens: 64,
            pins: vec!["b/echo".into(), "b/gone".into()],
            ..GatewayConfig::default()
        },
    );
    let client = client(&gateway).await;
    let tools = client.list_all_tools().await.expect("a list");
    let search = tools[0].description.as_deref().unwrap();
    assert!(
        search.contains("- a (") && search.contains("- b ("),
        "{search}"
    );
    assert_eq!(
        names(&client).await,
        own_tools_and(&["b__echo"]),
        "what is pinned and there"
    );
    let given = json!({ "text": "hi" });
    assert_eq!(words(&call(&client, "b__echo", given).await), "hi");
    let found = words(&call(&client, "tool_search", json!({ "query": "echo" })).await);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["already_visible"], json!(["b__echo"]), "{found}");

    let list = async |given: Value| -> Value {
        let answer = words(&call(&client, "list_tools", given).await);
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"))
    };
    let servers = list(json!({})).await;
    assert_eq!(servers["servers"][1]["server"], "b", "{servers}");

    let mut pages = vec![list(json!({ "server": "a" })).await];
    while let Some(next) = pages.last().unwrap()["next"].as_str() {
        let given = json!({ "server": "a", "after": next });
        pages.push(list(given).await);
    }
    assert!(pages.len() > 1, "{pages:?}");
    let listed: Vec<&str> = pages
        .iter()
        .flat_map(|page| page["tools"].as_array().unwrap())
        .map(|line| line.as_str().unwrap().split(' ').next().unwrap())
        .collect();
    let searcher = upstream.catalog.searcher();
    let of_a: Vec<String> = searcher
        .tools()
        .filter(|tool| tool.id.server() == "a")
        .map(|tool| tool.id.name().to_owned())
        .collect();
    assert_eq!(listed, of_a);
    assert_eq!(pages[0]["total"], of_a.len());

    let unknown = call(&client, "list_tools", json!({ "server": "c" })).await;
    assert!(words(&unknown).contains("no server is called \"c\"; there are: a, b"));
}

#[tokio::test]
async fn a_long_result_comes_in_parts() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let config = GatewayConfig {
        result_bytes: 1_000,
        pins: vec!["a/echo".into()],
        ..GatewayConfig::default()
    };
    let gateway = gateway(&upstream, config);
    let (reader, other) = (client(&gateway).await, client(&gateway).await);
    let items: Vec<Value> = (0..100)
        .map(|n| json!({ "id": n, "title": format!("issue {n}"), "body": "x".repeat(50) }))
        .collect();
    let text = json!({ "items": items }).to_string();
    let echo = json!({ "text": text });
    let dispatched = json!({ "name": "a/echo", "arguments": echo });
    for first in [
        call(&reader, "call_tool", dispatched).await,
        call(&reader, "a__echo", echo.clone()).await,
    ] {
        let first = words(&first);
        assert!(first.starts_with(&text[..1_000]), "{first}");
        let shape = "[shape: {items: [100 of {id: number, title: string, body: string}]}]";
        assert!(first.contains(shape), "{first}");
    }

    let part = json!({ "output": "output_1", "select": "/items/50:52", "fields": ["id", "title"] });
    let part = json!({ "name": "read_more", "arguments": part });
    let selected = words(&call(&reader, "call_tool", part.clone()).await);
    let rows =
        "{\"id\":50,\"title\":\"issue 50\"}\n{\"id\":51,\"title\":\"issue 51\"}\n[bytes 0 to ";
    assert!(selected.starts_with(rows), "{selected}");
    let found = json!({ "output": "output_2", "find": "issue 77", "from": 1_000 });
    let found = words(&call(&reader, "read_more", found).await);
    assert!(found.contains("issue 77\""), "{found}");

    let given = json!({ "names": ["read_more"] });
    let described = words(&call(&reader, "describe_tool", given).await);
    assert!(described.contains("JSON Pointer"), "{described}");

    let refused = call(&other, "call_tool", part).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(
        words(&refused).contains("there is no output"),
        "{refused:?}"
    );
    let long = json!({ "tool": "a/echo", "arguments": echo });
    let plan = call(
        &other,
        "run_plan",
        json!({ "steps": [long, { "tool": "a/echo" }] }),
    )
    .await;
    let plan: Value = serde_json::from_str(&words(&plan)).unwrap();
    let step = &plan["steps"][0];
    assert!(step["result"].to_string().contains("output_1"), "{step}");
    assert_eq!(own_tools_and(&["a__echo"]), names(&other).await);
}

#[tokio::test]
async fn several_calls_are_one_plan() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &[])]).await;
    let client = client(&gateway(&upstream, GatewayConfig::default())).await;
    let run = async |steps: Value| call(&client, "run_plan", json!({ "steps": steps })).await;
    let steps = json!([
        { "tool": "a/echo", "arguments": { "text": "{\"who\": \"Ann\"}" } },
        { "tool": "b__echo", "arguments": { "text": "for ${1.who}" } },
        { "id": "bad", "tool": "a/fail" },
        { "tool": "a/echo", "arguments": { "text": "never" }, "after": ["bad"] },
    ]);
    let ran = run(steps).await;
    assert_ne!(ran.is_error, Some(true), "{ran:?}");
    let report: Value = serde_json::from_str(&words(&ran)).unwrap();
    let step = |at: usize| &report["steps"][at];
    assert_eq!(step(0)["status"], "ok");
    assert!(step(0).get("result").is_none(), "another step has used it");
    assert!(step(1).to_string().contains("for Ann"), "{report}");
    assert!(
        step(2)["error"].as_str().unwrap().contains("no, not today"),
        "{report}"
    );
    assert!(
        step(3)["error"]
            .as_str()
            .unwrap()
            .contains("step bad did not succeed")
    );

    let with_mistakes = json!([
        { "tool": "a/echo", "arguments": { "text": "hi" } },
        { "tool": "a/ecko" },
        { "tool": "a/echo", "arguments": { "text": [3] } },
        { "tool": "a/echo", "arguments": { "text": "${2}" } },
    ]);
    let skipping = json!({ "steps": with_mistakes, "on_invalid_step": "skip" });
    let skipped = call(&client, "run_plan", skipping).await;
    assert_ne!(skipped.is_error, Some(true), "{skipped:?}");
    let report: Value = serde_json::from_str(&words(&skipped)).unwrap();
    assert_eq!(report["steps"][0]["status"], "ok", "{report}");
    for (at, tool, expected) in [
        (1, "a/ecko", "names like it: a/echo"),
        (2, "a/echo", "at /text"),
        (3, "a/echo", "step 2 did not succeed"),
    ] {
        let step = &report["steps"][at];
        assert_eq!(step["tool"], tool);
        assert!(step["error"].as_str().unwrap().contains(expected), "{step}");
    }
    let unknown = json!({ "steps": [{ "tool": "a/echo" }], "on_invalid_step": "ask" });
    let unknown = words(&call(&client, "run_plan", unknown).await);
    assert!(
        unknown.contains("\"ask\" is not one of refuse, skip"),
        "{unknown}"
    );

    for (steps, expected) in [
        (json!([]), "not an array with steps"),
        (json!([{ "tool": "a/ecko" }]), "names like it: a/echo"),
        (
            json!([{ "tool": "a/echo", "arguments": { "text": [3] } }]),
            "at /text",
        ),
        (
            json!([{ "tool": "a/echo", "arguments": { "text": "${2}" } }]),
            "which the plan does not have",
        ),
        (
            json!(vec![json!({ "tool": "a/echo" }); 1_000]),
            "32 are allowed",
        ),
    ] {
        let refused = run(steps).await;
        assert_eq!(refused.is_error, Some(true), "{refused:?}");
        let words = words(&refused);
        assert!(
            words.contains("nothing was done") && words.contains(expected),
            "{words}"
        );
    }
}
