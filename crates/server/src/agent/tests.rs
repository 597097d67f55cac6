use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use toolscout_index::{DataDir, Options, Tool};

use crate::process::shutdown::Shutdown;
use crate::{
    DefaultSearch, EmbeddersOf, Enriching, Exposure, Limits, McpServices, Parts, Profiles,
    ServedCatalogs, TokenSavings, serve,
};
use toolscout_agent::{Agent, AgentConfig, Agents, ServedAgent};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::Metrics;
use toolscout_finder::finder::ToolSearch;
use toolscout_gate::gate::{Gate, Policies};
use toolscout_gate::llm::ScriptedModel;
use toolscout_gate::llm::script::Script;
use toolscout_gate::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_mcp::{Gateway, Pool};
use toolscout_state::feedback::FeedbackStore;
use toolscout_state::keys::{KeyStore, Scope};

/// Hangs until the end of its run, and says when it is called and dropped.
#[derive(Clone, Default)]
struct Hangs {
    called: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl Callable for Hangs {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        let _on_drop = OnDrop(self.dropped.clone());
        self.called.notify_one();
        std::future::pending().await
    }
}

impl UserTool for Hangs {
    fn definition(&self) -> Tool {
        Tool::new("", "hangs").unwrap()
    }
}

struct Server {
    address: SocketAddr,
    hangs: Hangs,
    client: Client,
    shutdown: Shutdown,
    _data: tempfile::TempDir,
}

impl Server {
    async fn with(script: Option<&str>) -> Self {
        Server::start(
            script.map(|script| (script, Policies::permissive())),
            Limits::default(),
        )
        .await
    }

    async fn limited(script: Option<&str>, limits: Limits) -> Self {
        Server::start(
            script.map(|script| (script, Policies::permissive())),
            limits,
        )
        .await
    }

    async fn with_policies(script: &str, policies: Policies) -> Self {
        Server::start(Some((script, policies)), Limits::default()).await
    }

    async fn start(agent: Option<(&str, Policies)>, limits: Limits) -> Self {
        let hangs = Hangs::default();
        let agents = |search| agent.map(|(script, policies)| one(script, policies, &hangs, search));
        Server::serving(agents, hangs.clone(), limits).await
    }

    /// A server of several agents, each with its script. They recommend questions.
    async fn with_agents(scripts: &[(&str, &str)]) -> Self {
        let hangs = Hangs::default();
        let agents = |search| Some(several(scripts, &hangs, &search));
        Server::serving(agents, hangs.clone(), Limits::default()).await
    }

    async fn serving(
        agents: impl FnOnce(Arc<dyn ToolSearch>) -> Option<Agents>,
        hangs: Hangs,
        limits: Limits,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
        let parts = parts(data.path(), agents, limits, &shutdown);
        tokio::spawn(serve(listener, parts, shutdown.clone()));
        let server = Server {
            address,
            hangs,
            client: toolscout_base::tls::client().no_proxy().build().unwrap(),
            shutdown,
            _data: data,
        };
        while server
            .client
            .get(server.url("/readyz"))
            .send()
            .await
            .is_ok_and(|ready| !ready.status().is_success())
        {
            tokio::task::yield_now().await;
        }
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn post(&self, path: &str, body: Value) -> Response {
        self.client
            .post(self.url(path))
            .json(&body)
            .send()
            .await
            .unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.client
            .get(self.url(path))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    }
}

/// A tool that says nothing of itself.
#[derive(Clone)]
struct Harmful;

#[async_trait]
impl Callable for Harmful {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(json!("done"))
    }
}

impl UserTool for Harmful {
    fn definition(&self) -> Tool {
        let mut tool = Tool::new("", "harmful").unwrap();
        tool.input_schema = json!({ "properties": { "n": { "type": "integer" } } })
            .as_object()
            .unwrap()
            .clone();
        tool
    }
}

fn parts(
    data: &Path,
    agents: impl FnOnce(Arc<dyn ToolSearch>) -> Option<Agents>,
    limits: Limits,
    shutdown: &Shutdown,
) -> Parts {
    let metrics = Arc::new(Metrics::new());
    let queue = metrics.search_queue.clone();
    let (threads, patience) = (limits.search_threads, limits.search_patience);
    let cpu_pool = CpuPool::new(threads, limits.search_queue, patience, queue);
    let default_search = DefaultSearch::new(cpu_pool.clone());
    let search: Arc<dyn ToolSearch> = Arc::new(default_search.clone());
    let gate = Arc::new(Gate::new(Policies::default()));
    let mcp_pool = Pool::default();
    let gateway = Gateway::new(
        Arc::clone(&search),
        mcp_pool.clone(),
        Arc::clone(&gate),
        Default::default(),
    );
    Parts {
        store: None,
        keys: KeyStore::open(data).unwrap(),
        feedback: FeedbackStore::open(data).unwrap(),
        catalogs: Arc::new(ServedCatalogs::new(
            DataDir::new(data.to_owned()),
            EmbeddersOf::new(Options::default(), None),
            &limits,
            Arc::clone(&metrics),
            None,
            None,
        )),
        default_catalog: "default".into(),
        default_search,
        agents: agents(search),
        agent_scope: Scope::Search,
        mcp_pool,
        mcp: McpServices::new(gateway, &limits, shutdown.token()),
        client_approvals: Default::default(),
        token_savings: TokenSavings::start(),
        profiles: Profiles::default(),
        dropin: None,
        usage: Default::default(),
        enriching: Enriching::new(None, Default::default(), data, None).unwrap(),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        exposure: Exposure::Loopback,
        metrics,
        cpu_pool,
        gate,
        limits,
    }
}

fn one(script: &str, policies: Policies, hangs: &Hangs, search: Arc<dyn ToolSearch>) -> Agents {
    let turns = Script::parse("script", script).unwrap().turns;
    let config = AgentConfig {
        recommend_within: None,
        count_tokens: str::len,
        policies,
        ..AgentConfig::default()
    };
    let builder = Agent::builder()
        .llm(ScriptedModel::new("script", turns))
        .shared_catalog(search)
        .tool(hangs.clone())
        .tool(Harmful);
    builder.config(config).build().unwrap().into()
}

/// A tool that quotes a page.
#[derive(Clone)]
struct Quotes;

#[async_trait]
impl Callable for Quotes {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(
            json!({ "results": [{ "url": "https://a.example/", "title": "A", "content": "a page" }] }),
        )
    }
}

impl UserTool for Quotes {
    fn definition(&self) -> Tool {
        Tool::new("", "quotes").unwrap()
    }
}

/// Agents with these names and scripts; the first answers questions that choose none.
fn several(scripts: &[(&str, &str)], hangs: &Hangs, search: &Arc<dyn ToolSearch>) -> Agents {
    let mut served: Vec<ServedAgent> = Vec::new();
    for (name, script) in scripts {
        let turns = Script::parse(name, script).unwrap().turns;
        let config = AgentConfig {
            name: (*name).to_owned(),
            recommend_within: Some(Duration::from_secs(60)),
            count_tokens: str::len,
            policies: Policies::permissive(),
            ..AgentConfig::default()
        };
        let mut builder = Agent::builder()
            .llm(ScriptedModel::new(*name, turns))
            .shared_catalog(Arc::clone(search))
            .tool(hangs.clone())
            .tool(Quotes);
        let mut missing = Vec::new();
        if let Some(first) = served.first() {
            builder = builder.sharing(&first.agent);
            missing.push("a tool is missing".to_owned());
        }
        served.push(ServedAgent {
            agent: builder.config(config).build().unwrap(),
            description: format!("Says {name}."),
            missing,
        });
    }
    let default = served.remove(0);
    Agents::new(default, served)
}

/// The events of a whole stream as they came: id and data.
async fn events(response: Response) -> Vec<(u64, Value)> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = timeout(Duration::from_secs(60), response.text())
        .await
        .unwrap()
        .unwrap();
    let field = |event: &str, name: &str| -> String {
        event
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned()
    };
    let blocks = text.split("\n\n").filter(|block| block.contains("data:"));
    blocks
        .map(|block| {
            (
                field(block, "id:").parse().unwrap(),
                serde_json::from_str(&field(block, "data:")).unwrap(),
            )
        })
        .collect()
}

fn types(events: &[(u64, Value)]) -> Vec<&str> {
    let mut types: Vec<&str> = events
        .iter()
        .map(|(_, event)| event["type"].as_str().unwrap())
        .collect();
    types.dedup();
    types
}

async fn error_code(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["error"]["code"].as_str().unwrap().to_owned())
}

const HANGING: &str = r#"{"reply":{"text":"wait ","calls":[{"name":"hangs","arguments":{}}]}}
{"reply":{"text":"next"}}"#;

#[tokio::test]
async fn a_question_is_answered_as_numbered_events_and_stored() {
    let server = Server::with(Some(r#"{"reply":{"thinking":"hm ","text":"good day"}}"#)).await;
    let response = server
        .post(
            "/v1/agent/chat",
            json!({ "query": "hello", "conversation": "c 1/ü" }),
        )
        .await;
    let events = events(response).await;
    assert_eq!(types(&events), ["thinking", "text", "done"]);
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(at, (id, _))| *id == at as u64 + 1)
    );
    assert_eq!(events.last().unwrap().1["status"], "answered");

    let listed = server.get("/v1/agent/conversations").await;
    assert_eq!(listed["conversations"][0]["title"], "hello");
    let path = "/v1/agent/conversations/c%201%2F%C3%BC";
    assert_eq!(server.get(path).await["turns"][0]["answer"], "good day");
    let deleted = server.client.delete(server.url(path)).send().await.unwrap();
    assert_eq!(deleted.status(), 204);
    let again = server.client.delete(server.url(path)).send().await.unwrap();
    assert_eq!(
        error_code(again).await,
        (404, "unknown_conversation".into())
    );
}

#[tokio::test]
async fn the_predecessors_route_takes_the_question_in_the_query_string() {
    let server = Server::with(Some(r#"{"reply":{"text":"hi"}}"#)).await;
    let token: Value = server
        .post("/v1/agent/token", json!({}))
        .await
        .json()
        .await
        .unwrap();
    let question = format!(
        "query=hello%20there&conversationId=c1&token={}",
        token["token"].as_str().unwrap()
    );
    let url = server.url(&format!("/agent/chat/stream?{question}"));
    let response = server.client.get(url).send().await.unwrap();
    assert_eq!(response.headers()["x-conversation-id"], "c1");
    assert_eq!(types(&events(response).await), ["text", "done"]);
    assert_eq!(
        server.get("/v1/agent/conversations/c1").await["turns"][0]["question"],
        "hello there"
    );
}

/// A question on the compatible route, with the token.
async fn asked_by_query(server: &Server, query: &str) -> Response {
    let token = server.post("/v1/agent/token", json!({})).await;
    let token: Value = token.json().await.unwrap();
    let token = token["token"].as_str().unwrap();
    let url = server.url(&format!("/agent/chat/stream?{query}&token={token}"));
    server.client.get(url).send().await.unwrap()
}

/// The event of this type.
fn event<'a>(events: &'a [(u64, Value)], kind: &str) -> &'a Value {
    let found = events.iter().find(|(_, event)| event["type"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind} in {events:?}")).1
}

#[tokio::test]
async fn the_predecessors_route_has_lists_as_texts_and_the_other_route_as_lists() {
    let script = r#"{"reply":{"calls":[{"name":"quotes","arguments":{}}]}}
{"reply":{"text":"found"}}
{"for":"recommend","reply":{"text":"[\"a?\",\"b?\",\"c?\"]"}}"#;
    let twice = [script, script].join("\n");
    let server = Server::with_agents(&[("default", &twice)]).await;
    let by_query = events(asked_by_query(&server, "query=q").await).await;
    let body = json!({ "query": "q" });
    let by_body = events(server.post("/v1/agent/chat", body).await).await;
    for (kind, count) in [("reference", 1), ("recommend", 3)] {
        let (text, list) = (event(&by_query, kind), event(&by_body, kind));
        assert_eq!(
            (&text["count"], &list["count"]),
            (&json!(count), &json!(count))
        );
        assert_eq!(list["content"].as_array().unwrap().len(), count);
        let parsed: Value = serde_json::from_str(text["content"].as_str().unwrap()).unwrap();
        assert_eq!(parsed, list["content"]);
    }
}

#[tokio::test]
async fn a_question_chooses_its_agent_and_the_conversation_keeps_it() {
    let says = |text: &str| format!("{{\"reply\":{{\"text\":\"{text}\"}}}}\n").repeat(4);
    let (default, files) = (says("default"), says("files"));
    let server = Server::with_agents(&[("default", &default), ("files", &files)]).await;
    let listed = server.get("/v1/agents").await;
    let names: Vec<&Value> = listed["agents"].as_array().unwrap().iter().collect();
    assert_eq!(
        names.iter().map(|agent| &agent["name"]).collect::<Vec<_>>(),
        ["default", "files"]
    );
    assert_eq!(names[1]["ready"], false);
    assert_eq!(names[1]["missing"], json!(["a tool is missing"]));

    let ask = |body: Value| server.post("/v1/agent/chat", body);
    let answer = async |response: Response| -> String {
        event(&events(response).await, "text")["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let in_c = json!({ "query": "q", "conversation": "c", "agent": "files" });
    assert_eq!(answer(ask(in_c).await).await, "files");
    // A later question goes on with the agent of the conversation.
    assert_eq!(
        answer(ask(json!({ "query": "q", "conversation": "c" })).await).await,
        "files"
    );
    assert_eq!(
        answer(asked_by_query(&server, "query=q&agent=files").await).await,
        "files"
    );
    assert_eq!(answer(ask(json!({ "query": "q" })).await).await, "default");

    let other = json!({ "query": "q", "conversation": "c", "agent": "default" });
    let unknown = json!({ "query": "q", "agent": "slides" });
    let refused = ask(other).await;
    assert_eq!(error_code(refused).await, (409, "other_agent".into()));
    let refused = ask(unknown).await;
    assert_eq!(refused.status(), 404);
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "unknown_agent");
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("it has default, files")
    );
    let both = server.post(
        "/v1/agent/chat?agent=default",
        json!({ "query": "q", "agent": "files" }),
    );
    assert_eq!(error_code(both.await).await, (422, "two_agents".into()));

    let conversation = server.get("/v1/agent/conversations/c").await;
    assert_eq!(conversation["agent"], "files");
    let listed = server.get("/v1/agent/conversations").await;
    let agents = listed["conversations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["agent"]);
    assert_eq!(agents.filter(|agent| **agent == "files").count(), 2);
}

#[tokio::test]
async fn a_further_agent_is_a_model_of_its_own_and_its_runs_are_stopped_as_any() {
    let files = format!("{HANGING}\n{}", r#"{"reply":{"text":"files"}}"#);
    let server = Server::with_agents(&[
        ("default", r#"{"reply":{"text":"default"}}"#),
        ("files", &files),
    ])
    .await;
    let body = json!({ "query": "go", "conversation": "c", "agent": "files" });
    let running = server.post("/v1/agent/chat", body).await;
    server.hangs.called.notified().await;
    let stopped = server
        .post("/v1/agent/stop", json!({ "conversation": "c" }))
        .await;
    assert_eq!(
        stopped.json::<Value>().await.unwrap(),
        json!({ "stopped": true })
    );
    assert_eq!(event(&events(running).await, "done")["status"], "stopped");

    let models = server.get("/v1/models").await;
    let ids: Vec<&Value> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(ids, ["toolscout/agent", "toolscout/agent/files"]);
    let ask = async |model: &str| {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
        server.post("/v1/chat/completions", body).await
    };
    let answer: Value = ask("toolscout/agent/files").await.json().await.unwrap();
    assert_eq!(
        answer["choices"][0]["message"]["content"], "next",
        "{answer}"
    );
    assert_eq!(answer["model"], "toolscout/agent/files");
    let unknown = ask("toolscout/agent/slides").await;
    assert_eq!(unknown.status(), 404);
}

#[tokio::test]
async fn ag_ui_clients_send_their_input_and_get_their_events() {
    let server = Server::with(Some("{\"reply\":{\"text\":\"hi\"}}\n{\"fail\":\"down\"}")).await;
    let input = json!({
        "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{ "id": "m1", "role": "user", "content": "hello" }],
    });
    let answered = events(
        server
            .post("/v1/agent/chat?protocol=ag-ui", input.clone())
            .await,
    )
    .await;
    assert_eq!(
        types(&answered),
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    assert_eq!(
        (&answered[0].1["threadId"], &answered[0].1["runId"]),
        (&json!("t1"), &json!("r1"))
    );
    let failed = events(server.post("/v1/agent/chat?protocol=ag-ui", input).await).await;
    assert_eq!(types(&failed), ["RUN_STARTED", "RUN_ERROR"]);
}

#[tokio::test]
async fn a_busy_conversation_is_refused_until_it_is_stopped() {
    let server = Server::with(Some(HANGING)).await;
    let question = || {
        server.post(
            "/v1/agent/chat",
            json!({ "query": "go", "conversation": "c" }),
        )
    };
    let running = question().await;
    server.hangs.called.notified().await;
    assert_eq!(
        error_code(question().await).await,
        (409, "conversation_busy".into())
    );
    let stopped: Value = server
        .post("/v1/agent/stop", json!({ "conversation": "c" }))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(stopped, json!({ "stopped": true }));
    let events_of_stopped = events(running).await;
    assert_eq!(
        types(&events_of_stopped),
        ["text", "tool_call", "tool_result", "done"]
    );
    assert_eq!(events_of_stopped.last().unwrap().1["status"], "stopped");
    assert_eq!(types(&events(question().await).await), ["text", "done"]);
    let stopped: Value = server
        .post("/v1/agent/stop", json!({ "conversation": "c" }))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(stopped, json!({ "stopped": false }));
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_run() {
    let server = Server::with(Some(HANGING)).await;
    let response = server
        .post("/v1/agent/chat", json!({ "query": "go" }))
        .await;
    server.hangs.called.notified().await;
    drop(response);
    timeout(Duration::from_secs(60), server.hangs.dropped.notified())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_shows_that_it_lives() {
    let limits = Limits {
        heartbeat: Duration::from_millis(5),
        ..Limits::default()
    };
    let server = Server::limited(Some(HANGING), limits).await;
    let mut response = server
        .post("/v1/agent/chat", json!({ "query": "go" }))
        .await;
    server.hangs.called.notified().await;
    let mut text = String::new();
    while !text.contains("\n:\n") {
        let chunk = timeout(Duration::from_secs(60), response.chunk())
            .await
            .unwrap()
            .unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream goes on")).unwrap());
    }
}

#[tokio::test]
async fn a_server_that_ends_sends_the_terminal_event() {
    let server = Server::with(Some(HANGING)).await;
    let response = server
        .post("/v1/agent/chat", json!({ "query": "go" }))
        .await;
    server.hangs.called.notified().await;
    server.shutdown.trigger();
    let events = events(response).await;
    assert_eq!(events.last().unwrap().1["status"], "stopped");
}

/// The next event of a stream that is read while it goes on.
async fn next_event(response: &mut Response, rest: &mut String) -> Value {
    loop {
        if let Some((block, after)) = rest.split_once("\n\n") {
            let data = block
                .lines()
                .find_map(|line| line.strip_prefix("data: "))
                .map(str::to_owned);
            *rest = after.to_owned();
            if let Some(data) = data {
                return serde_json::from_str(&data).unwrap();
            }
            continue;
        }
        let chunk = timeout(Duration::from_secs(60), response.chunk())
            .await
            .unwrap()
            .unwrap()
            .expect("another event");
        rest.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

#[tokio::test]
async fn a_call_waits_for_its_approval_and_each_is_good_once() {
    for (approve, expected) in [(true, Value::Null), (false, json!("denied"))] {
        let script = r#"{"reply":{"calls":[{"name":"harmful","arguments":{"n":"7,000"}}]}}
{"reply":{"text":"so be it"}}"#;
        let server = Server::with_policies(script, Policies::default()).await;
        let mut response = server
            .post(
                "/v1/agent/chat",
                json!({ "query": "go", "identity": "ada" }),
            )
            .await;
        let mut rest = String::new();
        let asked = loop {
            let event = next_event(&mut response, &mut rest).await;
            if event["type"] == "approval_required" {
                break event;
            }
        };
        assert_eq!(
            (&asked["tool"], &asked["arguments"]),
            (&json!("harmful"), &json!({ "n": 7000 }))
        );
        assert_eq!(
            (&asked["class"], &asked["expires_in_ms"]),
            (&json!("state_changing"), &json!(300_000))
        );
        let wrong = server
            .post(
                "/v1/agent/approve",
                json!({ "id": "guess", "approve": true }),
            )
            .await;
        assert_eq!(error_code(wrong).await, (404, "unknown_approval".into()));
        let answer = json!({ "id": asked["id"], "approve": approve, "reason": "too risky" });
        assert_eq!(
            server
                .post("/v1/agent/approve", answer.clone())
                .await
                .status(),
            200
        );
        assert_eq!(
            error_code(server.post("/v1/agent/approve", answer).await).await,
            (404, "unknown_approval".into())
        );
        let result = loop {
            let event = next_event(&mut response, &mut rest).await;
            if event["type"] == "tool_result" {
                break event;
            }
        };
        assert_eq!(result["error_code"], expected, "{result}");
    }
}

#[tokio::test]
async fn bad_requests_get_the_one_shape_of_errors() {
    let server = Server::with(Some("")).await;
    let long = "x".repeat(300);
    for (path, body, expected) in [
        (
            "/v1/agent/chat",
            json!({ "query": " " }),
            (422, "empty_question"),
        ),
        (
            "/v1/agent/chat",
            json!({ "query": "x".repeat(300 << 10) }),
            (413, "question_too_long"),
        ),
        (
            "/v1/agent/chat",
            json!({ "query": "q", "conversation": long }),
            (422, "invalid_conversation_id"),
        ),
        (
            "/v1/agent/chat?protocol=ag-ui",
            json!({ "threadId": "t", "runId": "r", "messages": [] }),
            (422, "no_question"),
        ),
    ] {
        let (status, code) = error_code(server.post(path, body).await).await;
        assert_eq!((status, code.as_str()), expected, "{path}");
    }
    let unknown = server
        .post("/v1/agent/chat", json!({ "query": "q", "querry": 1 }))
        .await;
    assert_eq!(unknown.status(), 422);
    assert!(unknown.text().await.unwrap().contains("querry"));
}

#[tokio::test]
async fn a_server_without_an_agent_says_so() {
    let server = Server::with(None).await;
    let response = server.post("/v1/agent/chat", json!({ "query": "q" })).await;
    assert_eq!(error_code(response).await, (503, "agent_not_ready".into()));
}

/// The first event of this type in a stream that is read while it goes on.
async fn first_of(response: &mut Response, rest: &mut String, kind: &str) -> Value {
    loop {
        let event = next_event(response, rest).await;
        if event["type"] == kind {
            return event;
        }
    }
}

/// The types of events, each once in a row.
fn types_of(events: &Value) -> Vec<&str> {
    let all = events["events"].as_array().unwrap().iter();
    all.map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_run_that_its_client_left_shows_what_happened_and_what_waits() {
    let script = r#"{"reply":{"text":"I do it.","calls":[{"name":"harmful","arguments":{"n":"7,000","password":"hidden"}}]}}
{"reply":{"text":"so be it"}}"#;
    let server = Server::with_policies(script, Policies::default()).await;
    let question = json!({ "query": "go", "conversation": "c", "detached": true });
    let mut response = server.post("/v1/agent/chat", question).await;
    let asked = first_of(&mut response, &mut String::new(), "approval_required").await;
    drop(response);

    let (conversation, events) = (
        "/v1/agent/conversations/c",
        "/v1/agent/conversations/c/turns/1/events",
    );
    let waiting = server.get(conversation).await;
    assert_eq!(
        (&waiting["running"], &waiting["turns"][0]["status"]),
        (&json!(true), &json!("running"))
    );
    let open = &waiting["approvals"][0];
    assert_eq!(
        (&open["id"], &open["call"], &open["arguments"]),
        (&asked["id"], &asked["call"], &asked["arguments"])
    );
    assert!(open["expires_in_ms"].as_u64().unwrap() > 200_000);
    let so_far = server.get(events).await;
    assert_eq!(types_of(&so_far), ["text", "tool_call"]);
    assert_eq!(
        so_far["events"][1]["arguments"],
        json!({ "n": "7,000", "password": "[redacted]" })
    );

    let approval = json!({ "id": open["id"], "approve": true });
    assert_eq!(
        server.post("/v1/agent/approve", approval).await.status(),
        200
    );
    let ended = timeout(Duration::from_secs(60), async {
        loop {
            let conversation = server.get(conversation).await;
            if conversation["running"] == false {
                return conversation;
            }
            tokio::task::yield_now().await;
        }
    });
    let ended = ended.await.unwrap();
    assert_eq!(ended["approvals"], json!([]));
    assert_eq!(ended["turns"][0]["answer"], "so be it");
    let kept = server.get(events).await;
    assert_eq!(
        types_of(&kept),
        ["text", "tool_call", "gate", "tool_result"]
    );
    assert_eq!(
        (&kept["events"][2]["answer"]["answer"], &kept["truncated"]),
        (&json!("approved"), &json!(false))
    );
    assert!(!kept.to_string().contains("hidden"), "{kept}");

    for (path, code) in [
        ("/v1/agent/conversations/c/turns/2/events", "unknown_turn"),
        (
            "/v1/agent/conversations/d/turns/1/events",
            "unknown_conversation",
        ),
    ] {
        let answer = server.client.get(server.url(path)).send().await.unwrap();
        assert_eq!(error_code(answer).await, (404, code.into()));
    }
}

#[tokio::test]
async fn the_agent_names_its_model_and_no_agent_says_so() {
    let server = Server::with(Some("")).await;
    assert_eq!(
        server.get("/v1/agent").await,
        json!({ "available": true, "model": "script", "tool_budget_tokens": 8_000 })
    );
    let none = Server::with(None).await;
    assert_eq!(
        none.get("/v1/agent").await,
        json!({ "available": false, "model": null, "tool_budget_tokens": null })
    );
}
