//! What servers ask clients of the gateway for: folders, forms, and input by a result; and the tools
//! that only apps call.
#![expect(deprecated, reason = "clients of these versions have no other way")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientConfig,
    CustomRequest, CustomResult, ElicitRequestParams, ElicitResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, InputRequiredResult, ListRootsResult,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, RequestContext, RoleClient, RunningService,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolscout::config::UsageSettings;
use toolscout::gate::{Gate, Policies};
use toolscout::mcp::config::Beginning;
use toolscout::mcp::pool::ConnectionState;
use toolscout::mcp::tool_edits::ToolEdits;
use toolscout::mcp::{Gateway, GatewayConfig, ServerConfig};
use toolscout::usage::{Recorder, UsageDatabase};

use super::world::{
    PATIENCE, Upstream, becomes, double, double_with, object, replace, text, until,
};

/// A client with folders, whose person answers forms.
#[derive(Clone)]
struct Person(Value);

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = serde_json::from_value(self.0.clone()).unwrap();
        info
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let roots = json!({ "roots": [{ "uri": "file:///notes", "name": "notes" }] });
        Ok(serde_json::from_value(roots).unwrap())
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        assert_eq!(request.method, "elicitation/create");
        let question = request.params.unwrap();
        assert_eq!(question["message"], "\"a\" asks: Which?");
        let colour = &question["requestedSchema"]["properties"]["colour"];
        assert_eq!(colour["swatches"], json!([["red", 1], { "of": "blue" }]));
        let answer = json!({ "action": "accept", "content": { "colour": ["red"] } });
        Ok(CustomResult::new(answer))
    }
}

type Running = RunningService<RoleClient, Person>;

async fn client(gateway: &Gateway, capabilities: Value, lifecycle: ClientLifecycleMode) -> Running {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let (read, write) = tokio::io::split(theirs);
        gateway.serve(read, write, CancellationToken::new()).await
    });
    let person = Person(capabilities);
    let serving = person.serve_with_lifecycle(tokio::io::split(ours), lifecycle);
    serving.await.expect("a connection")
}

async fn with_session(gateway: &Gateway, capabilities: Value) -> Running {
    client(gateway, capabilities, ClientLifecycleMode::Initialize).await
}

async fn without_session(gateway: &Gateway, capabilities: Value) -> Running {
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    client(gateway, capabilities, lifecycle).await
}

fn gateway_with(upstream: &Upstream, policies: Policies) -> Gateway {
    Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        Arc::new(Gate::new(policies)),
        GatewayConfig::default(),
    )
}

fn gateway(upstream: &Upstream) -> Gateway {
    gateway_with(upstream, Policies::permissive())
}

fn params(tool: &str) -> CallToolRequestParams {
    CallToolRequestParams::new("call_tool").with_arguments(object(json!({ "name": tool })))
}

async fn call(client: &Running, params: CallToolRequestParams) -> CallToolResult {
    match timeout(PATIENCE, client.peer().call_tool_once(params)).await {
        Ok(Ok(CallToolResponse::Complete(result))) => result,
        other => panic!("{other:?}"),
    }
}

async fn asked(client: &Running, params: CallToolRequestParams) -> InputRequiredResult {
    match timeout(PATIENCE, client.peer().call_tool_once(params)).await {
        Ok(Ok(CallToolResponse::InputRequired(asked))) => asked,
        other => panic!("{other:?}"),
    }
}

fn json_of(result: CallToolResult) -> Value {
    let text = text(result);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn modern(behaviours: &[&str]) -> ServerConfig {
    ServerConfig {
        beginning: Beginning::Discovery,
        ..double("a", behaviours)
    }
}

#[tokio::test]
async fn servers_get_the_folders_of_the_only_client_and_of_no_other() {
    let start = async |passes: bool| {
        let set = |config: &mut toolscout::mcp::PoolConfig| config.passes_roots = passes;
        Upstream::start_with(vec![double("a", &["folders"])], set).await
    };
    let upstream = start(true).await;
    let own = with_session(&gateway(&upstream), json!({ "roots": {} })).await;
    let folders = json_of(call(&own, params("a/folders")).await);
    assert_eq!(folders["roots"][0]["uri"], "file:///notes", "{folders}");

    let upstream = start(false).await;
    let one_of_many = with_session(&gateway(&upstream), json!({ "roots": {} })).await;
    let refused = json_of(call(&one_of_many, params("a/folders")).await);
    assert!(refused.get("roots").is_none(), "{refused}");
}

#[tokio::test]
async fn what_a_server_with_a_handshake_asks_is_the_result_of_a_call_without_a_session() {
    let upstream = Upstream::start(vec![double("a", &["inquires"])]).await;
    let gateway = gateway(&upstream);
    let capabilities = json!({ "elicitation": {}, "sampling": {} });
    let client = without_session(&gateway, capabilities.clone()).await;
    let again = |question: &InputRequiredResult, key: &str, answer: Value| {
        let mut again = params("a/inquires");
        again.input_responses = Some(BTreeMap::from([(key.to_owned(), answer)]));
        again.request_state.clone_from(&question.request_state);
        again
    };
    let form = asked(&client, params("a/inquires")).await;
    let shown = json!(form.input_requests);
    let message = &shown["question_1"]["params"]["message"];
    assert_eq!(message, "\"a\" asks: Who are you?", "{shown}");
    let person = json!({ "action": "accept", "content": { "name": "Ada" } });
    let named = again(&form, "question_1", person.clone());
    let question = asked(&client, named.clone()).await;
    let shown = json!(question.input_requests);
    assert_eq!(shown["question_2"]["params"]["maxTokens"], 10, "{shown}");
    let words = json!({ "type": "text", "text": "Hello" });
    let model = json!({ "role": "assistant", "content": words, "model": "m" });
    let said = json_of(call(&client, again(&question, "question_2", model)).await);
    assert_eq!(said[0], person);
    assert_eq!(said[1]["content"]["text"], "Hello");

    // An answer counts once, and only for the call that asked.
    let mut other = params("a/echo");
    other.request_state.clone_from(&form.request_state);
    for call in [named, other] {
        let refused = timeout(PATIENCE, client.peer().call_tool_once(call)).await;
        let refused = refused.unwrap().unwrap_err();
        assert!(
            refused.to_string().contains("no open question"),
            "{refused}"
        );
    }

    // A client that takes no questions is not asked.
    let mute = without_session(&gateway, json!({})).await;
    let said = json_of(call(&mute, params("a/inquires")).await);
    assert_eq!(said[0], json!({ "action": "cancel" }));
}

/// The call of `a/inquires` with this person's answer to the first question.
fn named(question: &InputRequiredResult) -> CallToolRequestParams {
    let mut named = params("a/inquires");
    let person = json!({ "action": "accept", "content": { "name": "Ada" } });
    named.input_responses = Some(BTreeMap::from([("question_1".to_owned(), person)]));
    named.request_state.clone_from(&question.request_state);
    named
}

#[tokio::test]
async fn a_call_from_the_beginning_ends_the_same_one_that_waits_for_an_answer() {
    let upstream = Upstream::start(vec![double("a", &["inquires"])]).await;
    let client = without_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let former = asked(&client, params("a/inquires")).await;
    let latter = asked(&client, params("a/inquires")).await;
    let refused = timeout(PATIENCE, client.peer().call_tool_once(named(&former))).await;
    let refused = refused.unwrap().unwrap_err().to_string();
    assert!(refused.contains("no open question"), "{refused}");
    let said = json_of(call(&client, named(&latter)).await);
    assert_eq!(said[0]["content"]["name"], "Ada", "{said}");
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_its_call() {
    let set = |config: &mut toolscout::mcp::PoolConfig| {
        config.limits.idle_stop = Duration::from_millis(100);
    };
    let upstream = Upstream::start_with(vec![double("a", &["inquires"])], set).await;
    let mut policies = Policies::permissive();
    policies.approval_timeout_s.0 = 1;
    let gateway = gateway_with(&upstream, policies);
    let client = without_session(&gateway, json!({ "elicitation": {} })).await;
    asked(&client, params("a/inquires")).await;
    // A server with an open call is not stopped.
    becomes("the call has ended", || {
        upstream.pool.statuses()[0].state == ConnectionState::Idle
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_question_a_person_reads_is_not_stopped() {
    let servers = vec![double("a", &["inquires"]), double("idles", &[])];
    let set = |config: &mut toolscout::mcp::PoolConfig| {
        config.limits.idle_stop = Duration::from_millis(300);
    };
    let upstream = Upstream::start_with(servers, set).await;
    let client = without_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let question = asked(&client, params("a/inquires")).await;
    let state = |server: &str| {
        let statuses = upstream.pool.statuses();
        let status = statuses.iter().find(|status| status.server == server);
        status.expect("a server").state
    };
    // Several times as long as a server without a call is kept.
    for _ in 0..3 {
        becomes("one is stopped", || state("idles") == ConnectionState::Idle).await;
        upstream.echo("idles").await;
    }
    let said = json_of(call(&client, named(&question)).await);
    assert_eq!(said[0]["content"]["name"], "Ada", "{said}");
    becomes("it is stopped", || state("a") == ConnectionState::Idle).await;
}

#[tokio::test]
async fn pinned_tools_count_as_loaded_when_a_client_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start(folder.path(), "main", &UsageSettings::default());
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let gateway = Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        Arc::new(Gate::new(Policies::permissive()).with_usage(recorder.clone())),
        GatewayConfig {
            pins: vec!["a/echo".into()],
            ..GatewayConfig::default()
        },
    );
    let client = without_session(&gateway, json!({})).await;
    let injections = || {
        recorder.flush();
        let store = UsageDatabase::open_existing(folder.path());
        let tools = store.unwrap().unwrap().tools("main", 0).unwrap();
        tools["a/echo"].injections
    };
    let search = CallToolRequestParams::new("tool_search");
    let search = search.with_arguments(object(json!({ "query": "echo" })));
    let found = json_of(call(&client, search).await);
    assert_eq!(found["already_visible"], json!(["a__echo"]), "{found}");
    assert_eq!(injections(), 0);
    for _ in 0..2 {
        client.list_all_tools().await.unwrap();
        assert_eq!(injections(), 1);
    }
}

#[tokio::test]
async fn a_server_with_a_handshake_gets_the_folders_of_a_client_without_a_session() {
    let set = |config: &mut toolscout::mcp::PoolConfig| config.passes_roots = true;
    let upstream = Upstream::start_with(vec![double("a", &["folders"])], set).await;
    let client = without_session(&gateway(&upstream), json!({ "roots": {} })).await;
    let question = asked(&client, params("a/folders")).await;
    let mut again = params("a/folders");
    let folders = json!({ "roots": [{ "uri": "file:///notes", "name": "notes" }] });
    again.input_responses = Some(BTreeMap::from([("question_1".to_owned(), folders)]));
    again.request_state = question.request_state;
    let folders = json_of(call(&client, again).await);
    assert_eq!(folders["roots"][0]["uri"], "file:///notes", "{folders}");
}

#[tokio::test]
async fn a_form_of_a_later_version_reaches_the_person_as_it_came() {
    let upstream = Upstream::start(vec![double("a", &["colours"])]).await;
    let client = with_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let said = json_of(call(&client, params("a/colours")).await);
    let expected = json!({ "action": "accept", "content": { "colour": ["red"] } });
    assert_eq!(said, expected);

    let mute = with_session(&gateway(&upstream), json!({})).await;
    let said = json_of(call(&mute, params("a/colours")).await);
    assert_eq!(said, json!({ "action": "cancel" }));
}

#[tokio::test]
async fn a_prompt_is_known_by_its_plain_name_if_only_one_server_has_it() {
    let upstream = Upstream::start(vec![double("a", &["offers"])]).await;
    let client = with_session(&gateway(&upstream), json!({})).await;
    let greet = |name: &str| {
        let arguments = object(json!({ "who": "Ann" }));
        GetPromptRequestParams::new(name).with_arguments(arguments)
    };
    for name in ["greet", "a__greet"] {
        let prompt = client.get_prompt(greet(name)).await.unwrap();
        assert_eq!(json!(prompt.messages)[0]["content"]["text"], "Greet Ann");
    }
    let upstream = Upstream::start(vec![double("a", &["offers"]), double("b", &["offers"])]).await;
    let client = with_session(&gateway(&upstream), json!({})).await;
    let refused = client.get_prompt(greet("greet")).await.unwrap_err();
    assert!(refused.to_string().contains("no prompt"), "{refused}");
}

#[tokio::test]
async fn input_that_a_server_requires_comes_from_clients_of_all_versions() {
    let upstream = Upstream::start(vec![modern(&["modern", "needs"])]).await;
    let expected = json!([{ "who": { "action": "accept", "content": { "name": "Ada" } } }, "one"]);

    // While it waits for the result.
    let old = with_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    assert_eq!(json_of(call(&old, params("a/needs")).await), expected);

    // By making the call again.
    let new = without_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let question = asked(&new, params("a/needs")).await;
    assert_eq!(question.request_state.as_deref(), Some("one"));
    let again = repeated(&question, "who", json!({ "name": "Ada" }));
    assert_eq!(json_of(call(&new, again).await), expected);
}

/// The call with an answer to this question.
fn repeated(asked: &InputRequiredResult, key: &str, content: Value) -> CallToolRequestParams {
    assert!(asked.input_requests.as_ref().unwrap().contains_key(key));
    let mut again = params("a/needs");
    let answer = json!({ "action": "accept", "content": content });
    again.input_responses = Some(BTreeMap::from([(key.to_owned(), answer)]));
    again.request_state.clone_from(&asked.request_state);
    again
}

#[tokio::test]
async fn a_call_that_a_person_has_approved_is_not_approved_again_for_the_input() {
    let upstream = Upstream::start(vec![modern(&["modern", "needs"])]).await;
    let gateway = gateway_with(&upstream, Policies::default());
    let client = without_session(&gateway, json!({ "elicitation": {} })).await;
    let approval = asked(&client, params("a/needs")).await;
    let approved = repeated(&approval, "approve", json!({ "approve": true }));
    let question = asked(&client, approved).await;
    // The server's state stays here, with the approval.
    assert_ne!(question.request_state.as_deref(), Some("one"));
    let again = repeated(&question, "who", json!({ "name": "Ada" }));
    let expected = json!([{ "who": { "action": "accept", "content": { "name": "Ada" } } }, "one"]);
    assert_eq!(json_of(call(&client, again.clone()).await), expected);
    // The approval was for one call.
    let question = timeout(PATIENCE, client.peer().call_tool_once(again)).await;
    match question.unwrap().unwrap() {
        CallToolResponse::Complete(refused) => assert_eq!(refused.is_error, Some(true)),
        CallToolResponse::InputRequired(_) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tools_for_apps_are_listed_to_clients_that_show_apps_and_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("tools.json");
    let tool = |name: &str, visibility: Value| {
        let ui = json!({ "resourceUri": "ui://a/page", "visibility": visibility });
        let schema = json!({ "type": "object" });
        json!({ "name": name, "description": "Zebra", "inputSchema": schema, "_meta": { "ui": ui } })
    };
    let tools = [
        tool("refresh", json!(["app"])),
        tool("show", json!(["model", "app"])),
    ];
    replace(&state, &json!(tools));
    let state = state.to_str().unwrap();
    let upstream = Upstream::start(vec![double_with("a", &[], &[("STATE", state)])]).await;
    assert_eq!(upstream.ids(), ["a/show"], "what models find");

    let gateway = gateway(&upstream);
    let apps = json!({ "extensions": { "io.modelcontextprotocol/ui": {} } });
    let host = with_session(&gateway, apps).await;
    let listed = host.list_all_tools().await.unwrap();
    let refresh = listed.iter().find(|tool| tool.name == "refresh").unwrap();
    let meta = &refresh.meta.as_ref().unwrap().0;
    assert_eq!(meta["ui"]["visibility"], json!(["app"]));
    for name in ["refresh", "a__refresh", "show"] {
        let called = call(&host, CallToolRequestParams::new(name)).await;
        assert!(text(called).ends_with("was called"), "{name}");
    }

    let other = with_session(&gateway, json!({})).await;
    let listed = other.list_all_tools().await.unwrap();
    assert!(listed.iter().all(|tool| tool.name != "refresh"));
    let refused = other
        .peer()
        .call_tool_once(CallToolRequestParams::new("refresh"))
        .await;
    assert!(refused.is_err(), "{refused:?}");
    let refused = call(&other, params("a/refresh")).await;
    assert_eq!(refused.is_error, Some(true));

    // It is for models from now on.
    replace(
        folder.path().join("tools.json").as_path(),
        &json!([tool("refresh", json!(["model"]))]),
    );
    until("models find it", || async {
        upstream.ids() == ["a/refresh"]
    })
    .await;
}

#[tokio::test]
async fn input_that_a_prompt_requires_comes_from_clients_of_all_versions() {
    let upstream = Upstream::start(vec![modern(&["modern", "offers", "needs"])]).await;
    let greet = || GetPromptRequestParams::new("a__greet").with_arguments(object(json!({})));
    let old = with_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let prompt = old.get_prompt(greet()).await.unwrap();
    assert_eq!(json!(prompt.messages)[0]["content"]["text"], "Greet Ada");

    let new = without_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let question = match new.peer().get_prompt_once(greet()).await.unwrap() {
        GetPromptResponse::InputRequired(question) => question,
        other => panic!("{other:?}"),
    };
    let mut again = greet();
    let answer = json!({ "action": "accept", "content": { "name": "Eve" } });
    again.input_responses = Some(BTreeMap::from([("who".to_owned(), answer)]));
    again.request_state = question.request_state;
    let prompt = match new.peer().get_prompt_once(again).await.unwrap() {
        GetPromptResponse::Complete(prompt) => prompt,
        other => panic!("{other:?}"),
    };
    assert_eq!(json!(prompt.messages)[0]["content"]["text"], "Greet Eve");
}

#[tokio::test]
async fn what_a_server_with_a_handshake_asks_for_a_prompt_or_a_resource_reaches_all_clients() {
    let upstream = Upstream::start(vec![double("a", &["offers", "curious"])]).await;
    let greet = || GetPromptRequestParams::new("a__greet").with_arguments(object(json!({})));
    let memo = || ReadResourceRequestParams::new("memo:all");
    let old = with_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let prompt = old.get_prompt(greet()).await.unwrap();
    assert_eq!(json!(prompt.messages)[0]["content"]["text"], "Greet Ada");
    let read = old.read_resource(memo()).await.unwrap();
    assert_eq!(json!(read.contents)[0]["text"], "memo:all for Ada");

    let gateway = gateway(&upstream);
    let new = without_session(&gateway, json!({ "elicitation": {} })).await;
    let person = json!({ "action": "accept", "content": { "name": "Eve" } });
    let answers = BTreeMap::from([("question_1".to_owned(), person)]);
    let question = match new.peer().get_prompt_once(greet()).await.unwrap() {
        GetPromptResponse::InputRequired(question) => question,
        other => panic!("{other:?}"),
    };
    let shown = json!(question.input_requests);
    let message = &shown["question_1"]["params"]["message"];
    assert_eq!(message, "\"a\" asks: Who are you?", "{shown}");
    // The answer is for the prompt, and not for a resource.
    let mut other = memo();
    other.input_responses = Some(answers.clone());
    other.request_state.clone_from(&question.request_state);
    let refused = new.peer().read_resource_once(other).await.unwrap_err();
    assert!(
        refused.to_string().contains("no open question"),
        "{refused}"
    );
    let mut again = greet();
    again.input_responses = Some(answers.clone());
    again.request_state = question.request_state;
    let prompt = match new.peer().get_prompt_once(again).await.unwrap() {
        GetPromptResponse::Complete(prompt) => prompt,
        other => panic!("{other:?}"),
    };
    assert_eq!(json!(prompt.messages)[0]["content"]["text"], "Greet Eve");

    let question = match new.peer().read_resource_once(memo()).await.unwrap() {
        ReadResourceResponse::InputRequired(question) => question,
        other => panic!("{other:?}"),
    };
    let mut again = memo();
    again.input_responses = Some(answers);
    again.request_state = question.request_state;
    let read = match new.peer().read_resource_once(again).await.unwrap() {
        ReadResourceResponse::Complete(read) => read,
        other => panic!("{other:?}"),
    };
    assert_eq!(json!(read.contents)[0]["text"], "memo:all for Eve");
}

#[tokio::test]
async fn a_person_is_shown_what_the_owner_of_the_server_adds_to_a_call() {
    let mut server = modern(&["modern", "needs"]);
    let edits = json!({ "needs": {
        "arguments": { "owner": "acme", "auth": { "token": "hidden-of-the-owner-1" } },
        "defaults": { "state": "open" },
    } });
    server.edits = ToolEdits::read(Some(edits), None, &|text| Ok(text.to_owned())).unwrap();
    let upstream = Upstream::start(vec![server]).await;
    let gateway = gateway_with(&upstream, Policies::default());
    let client = without_session(&gateway, json!({ "elicitation": {} })).await;
    let question = json!(asked(&client, params("a/needs")).await);
    let message = question["inputRequests"]["approve"]["params"]["message"].to_string();
    for shown in [
        "\\\"owner\\\": \\\"acme\\\"",
        "\\\"state\\\": \\\"open\\\"",
        "[redacted]",
        "Set by the owner of the server: /owner",
    ] {
        assert!(message.contains(shown), "{shown} is not in {message}");
    }
    assert!(!message.contains("hidden-of-the-owner"), "{message}");
}

#[tokio::test]
async fn the_state_of_a_server_that_is_such_a_gateway_too_goes_back_to_it() {
    let mut server = double_with(
        "a",
        &["modern", "needs"],
        &[("REQUEST_STATE", "toolscout:1")],
    );
    server.beginning = Beginning::Discovery;
    let upstream = Upstream::start(vec![server]).await;
    let client = without_session(&gateway(&upstream), json!({ "elicitation": {} })).await;
    let question = asked(&client, params("a/needs")).await;
    let again = repeated(&question, "who", json!({ "name": "Ada" }));
    let answer = json!({ "who": { "action": "accept", "content": { "name": "Ada" } } });
    assert_eq!(
        json_of(call(&client, again).await),
        json!([answer, "toolscout:1"])
    );
}

#[tokio::test]
async fn the_result_of_a_task_has_the_fields_that_the_owner_wants() {
    let done = r#"{"number":7,"body":"long"}"#;
    let mut server = double_with("a", &["modern", "later"], &[("DONE", done)]);
    server.beginning = Beginning::Discovery;
    let edits = json!({ "later": { "name": "in/time", "fields": ["number"] } });
    server.edits = ToolEdits::read(Some(edits), None, &|text| Ok(text.to_owned())).unwrap();
    let upstream = Upstream::start(vec![server]).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = without_session(&gateway(&upstream), tasks).await;
    let task = match timeout(PATIENCE, client.peer().call_tool_once(params("a/in/time"))).await {
        Ok(Ok(CallToolResponse::Task(created))) => created.task,
        other => panic!("{other:?}"),
    };
    let state = client.get_task(GetTaskParams::new(task.task_id)).await;
    let state = json!(state.unwrap());
    assert_eq!(state["result"]["content"][0]["text"], "{\"number\":7}");
}

#[tokio::test]
async fn a_task_is_asked_for_at_its_server() {
    let upstream = Upstream::start(vec![modern(&["modern", "later"])]).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let client = without_session(&gateway(&upstream), tasks).await;
    let task = match timeout(PATIENCE, client.peer().call_tool_once(params("a/later"))).await {
        Ok(Ok(CallToolResponse::Task(created))) => created.task,
        other => panic!("{other:?}"),
    };
    assert_eq!(task.task_id, "a/later/7");
    let state = client
        .get_task(GetTaskParams::new("a/later/7"))
        .await
        .unwrap();
    let state = json!(state);
    assert_eq!(state["taskId"], "a/later/7", "{state}");
    assert_eq!(state["result"]["content"][0]["text"], "at last", "{state}");
    client
        .cancel_task(CancelTaskParams::new("a/later/7"))
        .await
        .unwrap();
    let unknown = client.get_task(GetTaskParams::new("b/later/7")).await;
    let unknown = unknown.unwrap_err().to_string();
    assert!(unknown.contains("no task \"b/later/7\""), "{unknown}");

    // A client that takes no tasks gets none.
    let other = without_session(&gateway(&upstream), json!({})).await;
    let called = timeout(PATIENCE, other.peer().call_tool_once(params("a/later"))).await;
    assert!(called.unwrap().is_err());
}
