mod long_conversations;

use std::future;
use std::pin::pin;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use toolscout_index::memory::{Entry, Source, Switch};
use toolscout_index::{DataDir, Options, ToolId};

use super::*;
use toolscout_finder::finder::search::doubles::ListedTools;
use toolscout_finder::profiles::{ProfiledSearch, ToolProfile};
use toolscout_gate::llm::script::{Reply, Script};
use toolscout_gate::llm::{ChatRequest, DeltaStream, LlmError, ScriptedModel};
use toolscout_gate::tools::{Arguments, Callable, ScriptedTools, ToolFailure};
use toolscout_state::session::{Figures, Turn, TurnStatus};

fn ten(_: &str) -> usize {
    10
}

fn listed_tools() -> ListedTools {
    ListedTools::of(&[
        ("weather/forecast", "weather forecast for a city"),
        ("mail/send", "send mail to a person"),
        ("web/search", "search the web"),
    ])
}

fn config() -> AgentConfig {
    let policies = Policies::permissive();
    AgentConfig {
        search_from_tools: 0,
        recommend_within: None,
        count_tokens: ten,
        policies,
        ..AgentConfig::default()
    }
}

/// An agent with a scripted model and [`listed_tools`].
fn agent(script: &str) -> Agent {
    agent_with(script, config())
}

fn agent_with(script: &str, config: AgentConfig) -> Agent {
    let script = Script::parse("script", script).unwrap();
    let tools = ScriptedTools::new(script.tools);
    let model = ScriptedModel::new("script", script.turns);
    Agent::builder()
        .llm(model)
        .catalog(listed_tools())
        .tools(tools)
        .config(config)
        .build()
        .unwrap()
}

async fn events(agent: &Agent, question: Question) -> Vec<Event> {
    let mut stream = agent.start(question).unwrap();
    let mut events = Vec::new();
    while let Some((id, event)) = stream.next().await {
        events.push(event);
        assert_eq!(id, events.len() as u64);
    }
    events
}

async fn ask(agent: &Agent, question: &str) -> Vec<Event> {
    events(
        agent,
        Question::new(question).in_conversation(conversation()),
    )
    .await
}

fn conversation() -> ConversationId {
    ConversationId::new("c").unwrap()
}

fn names(events: &[Event]) -> Vec<&'static str> {
    let mut names: Vec<&str> = events.iter().map(Event::name).collect();
    names.dedup();
    names
}

fn text(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| {
            if let Event::Text { content } = event {
                content.as_str()
            } else {
                ""
            }
        })
        .collect()
}

fn errors(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| {
            if let Event::Error { content } = event {
                Some(content.as_str())
            } else {
                None
            }
        })
        .collect()
}

fn ended(events: &[Event]) -> (TurnStatus, &Figures) {
    match events.last() {
        Some(Event::Done {
            status, figures, ..
        }) => (*status, figures),
        other => panic!("the last event is {other:?}"),
    }
}

const TWO_STEPS: &str = r#"
{"expect_tools":["tool_search"],"reply":{"thinking":"I need the weather. ","calls":[{"name":"tool_search","arguments":{"query":"weather forecast","limit":1}}]}}
{"expect_tools":["tool_search","weather__forecast"],"reply":{"text":"Looking. ","calls":[{"name":"weather__forecast","arguments":{}},{"name":"weather__forecast","arguments":{}}]}}
{"reply":{"text":"It rains.","usage":{"input":90,"output":3}}}
{"tool":"weather/forecast","result":{"results":[{"url":"https://w.example/1","title":"Rain","content":"rain"}]}}
"#;

/// The first turn of the conversation, as it is stored.
fn first_turn(agent: &Agent) -> Turn {
    let turns = agent.sessions().turns(&OwnerScope::All, &conversation());
    turns.unwrap().swap_remove(0)
}

#[tokio::test]
async fn a_question_of_a_profile_sees_finds_and_calls_its_tools_alone() {
    const SCRIPT: &str = r#"
{"expect_tools":["tool_search"],"reply":{"calls":[{"name":"tool_search","arguments":{"query":"weather forecast"}},{"name":"tool_search","arguments":{"query":"select:weather/forecast,mail/send"}}]}}
{"expect_tools":["tool_search","mail__send"],"reply":{"calls":[{"name":"mail__send","arguments":{}},{"name":"weather__forecast","arguments":{}},{"name":"hidden","arguments":{}}]}}
{"reply":{"text":"Sent."}}
{"tool":"mail/send","result":{"sent":true,"trace":"t-7"}}
{"tool":"weather/forecast","result":{"rain":true}}
"#;
    let script = Script::parse("script", SCRIPT).unwrap();
    let agent = Agent::builder()
        .llm(ScriptedModel::new("script", script.turns))
        .catalog(listed_tools())
        .tool(FaultyTool("hidden", Behavior::Huge))
        .tools(ScriptedTools::new(script.tools))
        .config(config())
        .build()
        .unwrap();
    let settings =
        toml::from_str("[tools]\n'mail/*' = {}\n'mail/send' = { fields = ['sent'] }").unwrap();
    let profile = Arc::new(ToolProfile::new("office", &settings));
    let (catalog, gate) = (Arc::new(listed_tools()), Arc::clone(agent.gate()));
    let search = ProfiledSearch::new(catalog, Arc::clone(&profile), gate);
    let tools = QuestionTools {
        profile,
        search: Arc::new(search),
        other_catalog: None,
    };
    let question = Question::new("write to Ada").limited_to(tools);
    let events = events(&agent, question).await;
    assert_eq!(ended(&events).0, TurnStatus::Answered, "{events:?}");
    let told = serde_json::to_string(&events).unwrap();
    assert!(told.contains("sent"), "{told}");
    assert!(!told.contains("rain"), "{told}");
    // The profile keeps one field of the result.
    assert!(!told.contains("t-7"), "{told}");
    assert!(!told.contains("weather forecast for a city"), "{told}");
}

#[tokio::test]
async fn a_question_goes_through_search_and_calls_to_its_answer() {
    let agent = agent(TWO_STEPS);
    let events = ask(&agent, "will it rain?").await;
    assert_eq!(
        names(&events),
        [
            "thinking",
            "tool_search",
            "tools_injected",
            "text",
            "tool_call",
            "gate",
            "tool_result",
            "text",
            "reference",
            "done"
        ]
    );
    let (status, figures) = ended(&events);
    assert_eq!(
        (
            status,
            figures.rounds,
            figures.searches,
            figures.tools_injected
        ),
        (TurnStatus::Answered, 3, 1, 1)
    );
    // Three tools of ten tokens in three rounds, against search alone and then search and one tool
    // twice.
    assert_eq!(figures.tokens_saved, 90 - 50);
    assert_eq!(figures.references[0].url, "https://w.example/1");
    let turns = agent
        .sessions()
        .turns(&OwnerScope::All, &conversation())
        .unwrap();
    assert_eq!(
        (turns[0].question.as_str(), turns[0].answer.as_str()),
        ("will it rain?", "It rains.")
    );
    assert_eq!(&turns[0].figures, figures);
}

/// Searches and calls `mail/send`, which succeeds where the script says so, in each of some turns.
async fn remembered_after(tool: &str, policies: Policies, turns: usize) -> Vec<Entry> {
    let directory = tempfile::tempdir().unwrap();
    let catalog = DataDir::new(directory.path())
        .open_or_create("c", Options::default())
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    let send = Tool::new("mail", "send").unwrap();
    writer
        .upsert(&[send.with_description("send mail to a person")])
        .unwrap();
    writer.commit().unwrap();
    catalog.memory().set_switch(Switch::On).unwrap();
    let turn = concat!(
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"mail it to Ada"}}]}}"#,
        "\n",
        r#"{"reply":{"calls":[{"name":"mail__send","arguments":{}}]}}"#,
        "\n",
        r#"{"reply":{"text":"Done."}}"#,
        "\n",
    );
    let script = Script::parse("script", &format!("{tool}\n{}", turn.repeat(turns))).unwrap();
    let agent = Agent::builder()
        .llm(ScriptedModel::new("script", script.turns))
        .catalog(catalog.clone())
        .tools(ScriptedTools::new(script.tools))
        .config(AgentConfig {
            policies,
            ..config()
        })
        .build()
        .unwrap();
    for _ in 0..turns {
        let question = Question::new("mail it").in_conversation(conversation());
        let question = question.asked_by("key:k1");
        events(&agent, question).await;
    }
    catalog.memory().entries(None, 10).unwrap()
}

#[tokio::test]
async fn a_call_that_succeeded_is_remembered_once_a_conversation_as_the_vote_of_its_key() {
    let works = r#"{"tool":"mail/send","result":"sent"}"#;
    let entries = remembered_after(works, Policies::permissive(), 3).await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    let Entry {
        query,
        tool,
        times,
        taught_by,
        ..
    } = &entries[0];
    assert_eq!(
        (query.as_str(), tool.as_str(), *times),
        ("mail it to Ada", "mail/send", 1)
    );
    assert_eq!(taught_by, &[Source::key("k1")]);
}

#[tokio::test]
async fn calls_that_failed_were_refused_or_only_tried_teach_nothing() {
    let works = r#"{"tool":"mail/send","result":"sent"}"#;
    let fails = r#"{"tool":"mail/send","error":"no connection"}"#;
    let policies = |text: &str| -> Policies { toml::from_str(text).unwrap() };
    for (tool, policies) in [
        (fails, Policies::permissive()),
        (works, policies("[[rules]]\ndecision = \"deny\"")),
        (works, policies("[[rules]]\ndecision = \"dry_run\"")),
    ] {
        let entries = remembered_after(tool, policies, 1).await;
        assert!(entries.is_empty(), "{entries:?}");
    }
}

#[tokio::test]
async fn a_conversation_remembers_its_turns_and_its_toolbox() {
    let model = Arc::new(ScriptedModel::new(
        "script",
        [
            Reply::default().call("tool_search", json!({ "query": "select:mail/send" })),
            Reply::text("loaded"),
            Reply::text("still there"),
        ],
    ));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.db");
    let build = || {
        let sessions = Arc::new(Sessions::open(&path).unwrap());
        let builder = Agent::builder()
            .shared_llm(model.clone())
            .catalog(listed_tools())
            .sessions(sessions);
        builder.config(config()).build().unwrap()
    };
    ask(&build(), "first").await;
    ask(&build(), "second").await;
    let requests = model.requests();
    let last = requests.last().unwrap();
    let contents: Vec<&str> = last
        .messages
        .iter()
        .skip(1)
        .map(|message| message.content())
        .collect();
    assert_eq!(contents, ["first", "loaded", "second"]);
    let tools: Vec<&str> = last.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["tool_search", "mail__send"]);
}

#[tokio::test]
async fn a_failing_model_gives_one_error_and_the_next_question_works() {
    for failing in [
        r#"{"fail":"overloaded"}"#,
        r#"{"reply":{"text":"half an ","cut":true}}"#,
        r#"{"chunks":["garbage"]}"#,
        r#"{"chunks":[{"error":{"message":"context length"}}]}"#,
    ] {
        let agent = agent(&format!("{failing}\n{{\"reply\":{{\"text\":\"fine\"}}}}"));
        let broken = ask(&agent, "first").await;
        assert_eq!(
            (errors(&broken).len(), ended(&broken).0),
            (1, TurnStatus::Failed),
            "{failing}"
        );
        let turn = &first_turn(&agent);
        assert_eq!(
            (turn.status, turn.error.as_deref()),
            (TurnStatus::Failed, Some(errors(&broken)[0]))
        );
        assert_eq!(turn.answer, text(&broken));
        let fine = ask(&agent, "second").await;
        assert_eq!(
            (text(&fine).as_str(), ended(&fine).0),
            ("fine", TurnStatus::Answered)
        );
    }
}

/// What a faulty tool does.
#[derive(Clone, Copy)]
enum Behavior {
    Panic,
    Hang,
    Huge,
    Fail,
}

/// A tool with a name and a faulty behavior.
struct FaultyTool(&'static str, Behavior);

#[async_trait]
impl Callable for FaultyTool {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        match self.1 {
            Behavior::Panic => panic!("a bug in the tool"),
            Behavior::Hang => future::pending().await,
            Behavior::Huge => Ok(Value::String("x".repeat(50 << 20))),
            Behavior::Fail => Err(ToolFailure::new("no such city")),
        }
    }
}

impl UserTool for FaultyTool {
    fn definition(&self) -> Tool {
        let id = ToolId::parse(self.0).unwrap();
        Tool::new(id.server(), id.name()).unwrap()
    }
}

#[tokio::test]
async fn tools_that_hang_panic_fail_or_flood_give_results_in_call_order() {
    let calls = ["hangs", "panics", "floods", "fails", "web__search"];
    let reply = calls
        .iter()
        .fold(Reply::default(), |reply, name| reply.call(*name, json!({})));
    let model = Arc::new(ScriptedModel::new("script", [reply, Reply::text("done")]));
    let config = AgentConfig {
        // Enough for the flood on a busy machine.
        call_timeout: Duration::from_secs(2),
        pins: vec!["web/search".into()],
        ..config()
    };
    let agent = Agent::builder()
        .shared_llm(model.clone())
        .catalog(listed_tools())
        .config(config)
        .tool(FaultyTool("hangs", Behavior::Hang))
        .tool(FaultyTool("panics", Behavior::Panic))
        .tool(FaultyTool("floods", Behavior::Huge))
        .tool(FaultyTool("fails", Behavior::Fail))
        .build()
        .unwrap();
    let events = ask(&agent, "go").await;
    assert_eq!(
        (text(&events).as_str(), ended(&events).0),
        ("done", TurnStatus::Answered)
    );
    let last = model.requests().pop().unwrap();
    let results: Vec<&str> = last
        .messages
        .iter()
        .rev()
        .take(5)
        .map(|message| message.content())
        .collect();
    for (result, expected) in results.iter().rev().zip([
        "no result within 2 s",
        "the tool crashed",
        "[truncated: 52428800 bytes",
        "no such city",
        "web/search can be found but not called",
    ]) {
        assert!(
            result.contains(expected),
            "{} should contain {expected}",
            toolscout_base::printable::excerpt(result, 200)
        );
    }
}

/// A tool that waits to be opened, and notifies when it is called or dropped.
#[derive(Clone, Default)]
struct WaitingTool {
    called: Arc<Notify>,
    open: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl Callable for WaitingTool {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        let _dropped = NotifyOnDrop(self.dropped.clone());
        self.called.notify_one();
        self.open.notified().await;
        Ok(json!("through"))
    }
}

impl UserTool for WaitingTool {
    fn definition(&self) -> Tool {
        Tool::new("", "gate").unwrap()
    }
}

fn agent_with_waiting_tool(gate: &WaitingTool, config: AgentConfig) -> Agent {
    let first = Reply {
        text: "Wait. ".into(),
        ..Reply::default()
    }
    .call("gate", json!({}));
    let model = ScriptedModel::new("script", [first, Reply::text("after"), Reply::text("next")]);
    Agent::builder()
        .llm(model)
        .catalog(listed_tools())
        .config(config)
        .tool(gate.clone())
        .build()
        .unwrap()
}

async fn within_timeout<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), pin!(work))
        .await
        .expect("it should be over by now")
}

#[tokio::test]
async fn one_run_per_conversation_and_stop_ends_it_at_once() {
    let gate = WaitingTool::default();
    let agent = agent_with_waiting_tool(&gate, config());
    let question = || Question::new("go").in_conversation(conversation());
    let mut stream = agent.start(question()).unwrap();
    gate.called.notified().await;
    assert_eq!(
        agent.start(question()).unwrap_err(),
        StartError::Busy(conversation())
    );
    let other = ConversationId::new("other").unwrap();
    assert!(!agent.stop(&OwnerScope::All, &other));
    assert!(agent.stop(&OwnerScope::All, &conversation()));
    let mut seen = Vec::new();
    while let Some((_, event)) = within_timeout(stream.next()).await {
        seen.push(event);
    }
    within_timeout(gate.dropped.notified()).await;
    assert_eq!(names(&seen), ["text", "tool_call", "tool_result", "done"]);
    assert_eq!(ended(&seen).0, TurnStatus::Stopped);
    assert_eq!(first_turn(&agent).answer, "Wait. ");
    assert_eq!(text(&within_timeout(ask(&agent, "again")).await), "after");
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_run() {
    let gate = WaitingTool::default();
    let agent = agent_with_waiting_tool(&gate, config());
    let stream = agent
        .start(Question::new("go").in_conversation(conversation()))
        .unwrap();
    gate.called.notified().await;
    drop(stream);
    within_timeout(gate.dropped.notified()).await;
}

#[tokio::test]
async fn a_detached_run_goes_on_without_its_client() {
    let gate = WaitingTool::default();
    let agent = agent_with_waiting_tool(&gate, config());
    drop(
        agent
            .start(
                Question::new("go")
                    .in_conversation(conversation())
                    .detached(),
            )
            .unwrap(),
    );
    gate.called.notified().await;
    gate.open.notify_one();
    let answered = async {
        while first_turn(&agent).status == TurnStatus::Running {
            tokio::task::yield_now().await;
        }
    };
    within_timeout(answered).await;
    assert_eq!(first_turn(&agent).answer, "after");
}

#[tokio::test]
async fn a_forgotten_run_ends_at_its_time_to_live() {
    let config = AgentConfig {
        time_to_live: Duration::from_millis(50),
        ..config()
    };
    let events = within_timeout(ask(
        &agent_with_waiting_tool(&WaitingTool::default(), config),
        "go",
    ))
    .await;
    assert_eq!(ended(&events).0, TurnStatus::Expired);
    assert!(errors(&events)[0].contains("no answer within 0.05 s"));
}

#[tokio::test]
async fn calls_run_in_parallel_up_to_the_bound() {
    let gate = WaitingTool::default();
    let three = Reply::default()
        .call("gate", json!({}))
        .call("gate", json!({}))
        .call("gate", json!({}));
    let model = ScriptedModel::new("script", [three, Reply::text("done")]);
    let config = AgentConfig {
        parallel_calls: 2,
        ..config()
    };
    let agent = Agent::builder()
        .llm(model)
        .catalog(listed_tools())
        .config(config)
        .tool(gate.clone())
        .build()
        .unwrap();
    let run = tokio::spawn(async move { ask(&agent, "go").await });
    // Two are let through together; the third comes only after one of them.
    within_timeout(gate.called.notified()).await;
    within_timeout(gate.called.notified()).await;
    assert!(
        timeout(Duration::from_millis(20), gate.called.notified())
            .await
            .is_err()
    );
    gate.open.notify_one();
    within_timeout(gate.called.notified()).await;
    gate.open.notify_one();
    gate.open.notify_waiters();
    let events = async {
        loop {
            gate.open.notify_one();
            tokio::task::yield_now().await;
            if run.is_finished() {
                break run.await.unwrap();
            }
        }
    };
    assert_eq!(text(&within_timeout(events).await), "done");
}

#[tokio::test]
async fn recommended_questions_come_after_the_answer_is_kept_and_failing_to_does_no_harm() {
    let recommending = AgentConfig {
        // Enough for a scripted answer on a busy machine.
        recommend_within: Some(Duration::from_secs(1)),
        ..config()
    };
    let three = r#"{"for":"recommend","reply":{"text":"[\"a?\",\"b?\",\"c?\"]"}}"#;
    for (line, expected) in [
        (three, 3),
        (r#"{"for":"recommend","fail":"no"}"#, 0),
        (r#"{"for":"recommend","hang":true}"#, 0),
    ] {
        let agent = agent_with(
            &format!("{{\"reply\":{{\"text\":\"yes\"}}}}\n{line}"),
            recommending.clone(),
        );
        let events = ask(&agent, "q").await;
        assert_eq!(
            (text(&events).as_str(), ended(&events).0),
            ("yes", TurnStatus::Answered),
            "{line}"
        );
        assert_eq!(ended(&events).1.recommended.len(), expected, "{line}");
        assert_eq!(first_turn(&agent).figures.recommended.len(), expected);
        assert!(errors(&events).is_empty());
    }
}

#[tokio::test]
async fn a_next_question_need_not_wait_for_recommended_ones() {
    let config = AgentConfig {
        recommend_within: Some(Duration::from_secs(60)),
        ..config()
    };
    let agent = agent_with(
        "{\"reply\":{\"text\":\"one\"}}\n{\"reply\":{\"text\":\"two\"}}\n{\"for\":\"recommend\",\"hang\":true}",
        config,
    );
    let question = || Question::new("q").in_conversation(conversation());
    let _recommending = agent.start(question()).unwrap();
    let second = async {
        loop {
            match agent.start(question()) {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let mut second = within_timeout(second).await;
    assert_eq!(
        within_timeout(second.next()).await.unwrap().1,
        Event::Text {
            content: "two".into()
        }
    );
}

/// A model whose answer never ends.
struct EndlessModel;

#[async_trait]
impl ChatModel for EndlessModel {
    fn name(&self) -> &str {
        "endless"
    }

    async fn stream(&self, _: ChatRequest) -> Result<DeltaStream, LlmError> {
        let words = futures_util::stream::repeat_with(|| {
            Ok(toolscout_gate::llm::Delta::Thinking("and ".repeat(20_000)))
        });
        Ok(Box::pin(words))
    }
}

#[tokio::test]
async fn a_model_that_never_stops_talking_is_stopped() {
    let agent = Agent::builder()
        .llm(EndlessModel)
        .catalog(listed_tools())
        .config(config())
        .build()
        .unwrap();
    let events = ask(&agent, "go").await;
    assert_eq!(ended(&events).0, TurnStatus::Failed);
    assert!(errors(&events)[0].contains("the answer does not end"));
}

#[tokio::test]
async fn small_catalogs_are_shown_whole() {
    let config = AgentConfig {
        search_from_tools: 30,
        ..config()
    };
    let script = r#"{"expect_tools":["weather__forecast","mail__send","web__search"],"reply":{"text":"ok"}}"#;
    assert_eq!(text(&ask(&agent_with(script, config), "q").await), "ok");
}

#[tokio::test]
async fn a_small_catalog_is_shown_as_far_as_the_filter_allows() {
    let mut config = AgentConfig {
        search_from_tools: 30,
        ..config()
    };
    let find = config.run.find.as_mut().unwrap();
    find.filter.servers = std::collections::BTreeSet::from(["mail".to_owned()]);
    let script = r#"{"expect_tools":["mail__send"],"reply":{"text":"ok"}}"#;
    assert_eq!(text(&ask(&agent_with(script, config), "q").await), "ok");
}

#[tokio::test]
async fn what_cannot_be_a_question_is_refused() {
    let agent = agent("");
    assert_eq!(
        agent.start(Question::new(" \n")).unwrap_err(),
        StartError::Empty
    );
    let long = "x".repeat(MAX_QUESTION_BYTES + 1);
    assert_eq!(
        agent.start(Question::new(long)).unwrap_err(),
        StartError::TooLong {
            bytes: MAX_QUESTION_BYTES + 1
        }
    );
}

#[test]
fn an_agent_without_its_parts_says_what_is_missing() {
    assert!(matches!(Agent::builder().build(), Err(BuildError::NoModel)));
    assert!(matches!(
        Agent::builder().llm(EndlessModel).build(),
        Err(BuildError::NoCatalog)
    ));
}

/// Writes down what passes, changes arguments and results, and stops at a tool.
struct Witness {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
    stops_at: Option<&'static str>,
}

impl Witness {
    fn note(&self, what: impl std::fmt::Display) {
        self.seen.lock().push(format!("{}: {what}", self.name));
    }
}

#[async_trait]
impl Hook for Witness {
    async fn before_model(&self, _: &Caller, request: &mut ChatRequest) -> Result<(), hooks::Stop> {
        self.note(format_args!("asks with {}", request.tools.len()));
        Ok(())
    }

    async fn after_model(
        &self,
        _: &Caller,
        reply: &mut toolscout_gate::llm::reply::Reply,
    ) -> Result<(), hooks::Stop> {
        self.note(format_args!("answered with {}", reply.calls.len()));
        reply.text = reply.text.replace("rains", "pours");
        Ok(())
    }

    async fn before_call(
        &self,
        caller: &Caller,
        call: &mut toolscout_gate::gate::Call,
    ) -> Result<Option<toolscout_gate::tools::ToolResult>, hooks::Stop> {
        let before = call
            .arguments
            .insert(self.name.to_owned(), caller.who.clone().into());
        self.note(format_args!("calls {} {}", call.tool.id, before.is_none()));
        if self.stops_at == Some(call.tool.id.as_str()) {
            return Err(hooks::Stop::new("not today"));
        }
        Ok(None)
    }

    async fn after_call(
        &self,
        _: &Caller,
        call: &toolscout_gate::gate::Call,
        result: &mut toolscout_gate::tools::ToolResult,
    ) -> Result<(), hooks::Stop> {
        let given: Vec<&String> = call.arguments.keys().collect();
        self.note(format_args!("got {given:?}"));
        result.data = json!({ "seen": true });
        Ok(())
    }
}

fn witnessed(script: &str, stops_at: Option<&'static str>) -> (Agent, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let witness = |name, stops_at| Witness {
        name,
        seen: Arc::clone(&seen),
        stops_at,
    };
    let script = Script::parse("script", script).unwrap();
    let agent = Agent::builder()
        .llm(ScriptedModel::new("script", script.turns))
        .catalog(listed_tools())
        .tools(ScriptedTools::new(script.tools))
        .config(config())
        .hook(witness("a", None))
        .hook(witness("b", stops_at))
        .build()
        .unwrap();
    (agent, seen)
}

const ONE_CALL: &str = r#"
{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"select:weather/forecast"}}]}}
{"reply":{"calls":[{"name":"weather__forecast","arguments":{}}]}}
{"reply":{"text":"It rains."}}
{"tool":"weather/forecast","result":"rain"}
"#;

#[tokio::test]
async fn hooks_see_and_change_a_run_in_their_order() {
    let (agent, seen) = witnessed(ONE_CALL, None);
    let events = ask(&agent, "will it rain?").await;
    assert_eq!(ended(&events).0, TurnStatus::Answered);
    let expected = [
        "a: asks with 1",
        "b: asks with 1",
        "a: answered with 1",
        "b: answered with 1",
        "a: asks with 2",
        "b: asks with 2",
        "a: answered with 1",
        "b: answered with 1",
        "a: calls weather/forecast true",
        "b: calls weather/forecast true",
        "a: got [\"a\", \"b\"]",
        "b: got [\"a\", \"b\"]",
        "a: asks with 2",
        "b: asks with 2",
        "a: answered with 0",
        "b: answered with 0",
    ];
    assert_eq!(*seen.lock(), expected);
    let result = events.iter().find_map(|event| match event {
        Event::ToolResult { content, .. } => Some(content.as_str()),
        _ => None,
    });
    assert_eq!(result, Some("{\"seen\":true}"));
    let turns = agent.sessions().past_turns(&conversation(), 0..i64::MAX, 1);
    assert_eq!(turns.unwrap()[0].answer, "It pours.");
}

#[tokio::test]
async fn a_hook_stops_a_run_with_its_reason() {
    let (agent, seen) = witnessed(ONE_CALL, Some("weather/forecast"));
    let events = ask(&agent, "will it rain?").await;
    assert_eq!(ended(&events).0, TurnStatus::Failed);
    assert_eq!(errors(&events), ["not today"]);
    assert_eq!(
        seen.lock().last().unwrap(),
        "b: calls weather/forecast true"
    );
}

/// A model that answers by a script, and refuses prompts of more messages than it takes.
struct Narrow {
    script: ScriptedModel,
    max_bytes: usize,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

#[async_trait]
impl ChatModel for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        self.requests.lock().push(request.clone());
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content().len())
            .sum();
        if bytes > self.max_bytes {
            return Err(LlmError::ContextTooLong {
                url: String::new(),
                message: format!("{bytes} bytes"),
                limit: None,
            });
        }
        self.script.stream(request).await
    }
}

/// An agent with a [`Narrow`] model, and the requests that the model gets.
fn narrow(script: &str, max_bytes: usize) -> (Agent, Arc<Mutex<Vec<ChatRequest>>>) {
    let script = Script::parse("script", script).unwrap();
    let requests = Arc::default();
    let model = Narrow {
        script: ScriptedModel::new("script", script.turns),
        max_bytes,
        requests: Arc::clone(&requests),
    };
    let agent = Agent::builder()
        .llm(model)
        .catalog(listed_tools())
        .tools(ScriptedTools::new(script.tools))
        .config(AgentConfig {
            count_tokens: |text| text.len(),
            ..config()
        })
        .build();
    (agent.unwrap(), requests)
}

#[tokio::test]
async fn a_prompt_that_is_too_long_for_the_model_is_sent_once_more_shorter() {
    let page = "page ".repeat(2_000);
    let script = format!(
        "{}\n{}\n{}\n{}\n{}",
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"search the web"}}]}}"#,
        r#"{"reply":{"calls":[{"name":"web__search","arguments":{}}]}}"#,
        r#"{"reply":{"calls":[{"name":"web__search","arguments":{}}]}}"#,
        r#"{"reply":{"text":"Found."}}"#,
        json!({ "tool": "web/search", "result": { "page": page } }),
    );
    let (agent, requests) = narrow(&script, 16_000);
    let events = ask(&agent, "what is new?").await;
    assert_eq!(text(&events), "Found.");
    let compacted = events.iter().find_map(|event| match event {
        Event::ContextCompacted {
            reason: event::CompactionReason::Refused,
            tokens_before,
            tokens,
            ..
        } => Some((*tokens_before, *tokens)),
        _ => None,
    });
    let (before, after) = compacted.unwrap();
    assert!(after <= before / 2, "{before} to {after}");
    let seen = requests.lock().clone();
    assert_eq!(seen.len(), 5);
    let shorter = &seen[4].messages;
    // The question, what was found before, and the last call with a part of its result.
    assert_eq!(shorter[1], seen[3].messages[1]);
    assert!(
        shorter[2]
            .content()
            .starts_with("Facts found so far:\n- web__search({}):")
    );
    assert!(
        shorter[4]
            .content()
            .contains("more bytes were removed to make room")
    );

    // Where nothing can be left out, the error says what to change.
    let (agent, requests) = narrow("", 10);
    let events = ask(&agent, "what is new?").await;
    assert_eq!(ended(&events).0, TurnStatus::Failed);
    assert!(
        errors(&events)[0].contains("set --context-tokens"),
        "{events:?}"
    );
    assert_eq!(requests.lock().len(), 1);
}

#[tokio::test]
async fn a_later_turn_begins_as_the_one_before_and_knows_what_tools_returned() {
    let script = format!("{TWO_STEPS}\n{}", r#"{"reply":{"text":"Yes."}}"#);
    let (agent, requests) = narrow(&script, usize::MAX);
    ask(&agent, "will it rain?").await;
    ask(&agent, "sure?").await;
    let seen = requests.lock();
    let (last, next) = (&seen[2], &seen[3]);
    // The system prompt with its marker, and the question.
    assert_eq!(last.messages[..2], next.messages[..2]);
    assert_eq!(last.tools, next.tools);
    let contents: Vec<&str> = next
        .messages
        .iter()
        .map(|message| message.content())
        .collect();
    assert!(contents[2].starts_with("[What tools returned, in short:]\n- weather__forecast({}):"));
    assert!(
        contents[2].contains("https://w.example/1"),
        "{}",
        contents[2]
    );
    assert_eq!(contents[3..], ["It rains.", "sure?"]);
    let marker = contents[0]
        .rsplit(' ')
        .next()
        .unwrap()
        .trim_end_matches('.');
    assert!(contents[2].contains(&format!("<<data {marker} from weather__forecast>>")));
}
