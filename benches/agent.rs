//! The overhead of the agent, measured with a scripted model that answers at once.
//!
//! `first_event`: from a question to its first event, the saved question included.
//! `hundred_rounds_with_a_call`: rounds with a call of a tool that does nothing, the overhead that
//! every round of a real model carries. `hundred_rounds_with_a_search`: the same with a
//! `tool_search` among 1,000 tools. `sse_decode` and `inject_five_tools` are the parts that grow with
//! what comes in.
//!
//! Tokens are counted with the real tokenizer. Conversations are kept in memory, so no disk is
//! measured.

use std::sync::Arc;

use async_trait::async_trait;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use toolscout::agent::{Agent, AgentConfig, Event, Question};
use toolscout::finder::toolbox::{Toolbox, ToolboxConfig, o200k};
use toolscout::gate::Policies;
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::llm::stream::ReplyDecoder;
use toolscout::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_index::{Catalog, DataDir, Options, Tool};

/// Tools of the catalog.
const TOOLS: usize = 1_000;
/// Rounds of one measured run. Divide the reported time by it for one round.
const ROUNDS: u32 = 100;

fn main() {
    // Build the tokenizer's tables first, which takes a fraction of a second once per process.
    o200k("warm");
    divan::main();
}

#[divan::bench]
fn first_event(bencher: Bencher) {
    let fixture = Fixture::new();
    bencher
        .with_inputs(|| fixture.agent(vec![Reply::text("done")]))
        .bench_refs(|agent| {
            fixture.runtime.block_on(async {
                let mut stream = agent.start(Question::new("a question")).ok()?;
                black_box(stream.next().await)
            })
        });
}

#[divan::bench]
fn hundred_rounds_with_a_call(bencher: Bencher) {
    let fixture = Fixture::new();
    bencher
        .with_inputs(|| fixture.agent(rounds(|_| Reply::default().call("nothing", json!({})))))
        .bench_refs(|agent| {
            fixture.runtime.block_on(finished(agent));
        });
}

#[divan::bench]
fn hundred_rounds_with_a_search(bencher: Bencher) {
    let fixture = Fixture::new();
    let search = |round| {
        Reply::default().call(
            "tool_search",
            json!({ "query": format!("work on topic{}", round % 50) }),
        )
    };
    bencher
        .with_inputs(|| fixture.agent(rounds(search)))
        .bench_refs(|agent| {
            fixture.runtime.block_on(finished(agent));
        });
}

#[divan::bench]
fn sse_decode(bencher: Bencher) {
    let chunk = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"some words \"}}]}\n\n";
    let stream = format!("{}data: [DONE]\n\n", chunk.repeat(1_000));
    bencher
        .counter(BytesCount::of_str(&stream))
        .bench(|| ReplyDecoder::default().push(stream.as_bytes()));
}

#[divan::bench]
fn inject_five_tools(bencher: Bencher) {
    let tools: Vec<Arc<Tool>> = (0..5).map(tool).map(Arc::new).collect();
    bencher
        .with_inputs(|| Toolbox::new(ToolboxConfig::default(), o200k))
        .bench_refs(|toolbox| toolbox.inject(&tools));
}

/// A catalog and a runtime for agents.
struct Fixture {
    runtime: Runtime,
    catalog: Catalog,
    _directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let catalog = DataDir::new(directory.path())
            .open_or_create("bench", Options::default())
            .expect("a catalog");
        let mut writer = catalog.writer().expect("the only writer");
        writer
            .upsert(&(0..TOOLS).map(tool).collect::<Vec<_>>())
            .expect("valid tools");
        writer.commit().expect("a commit");
        drop(writer);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        Fixture {
            runtime,
            catalog,
            _directory: directory,
        }
    }

    fn agent(&self, replies: Vec<Reply>) -> Agent {
        let mut config = AgentConfig {
            recommend_within: None,
            policies: Policies::permissive(),
            ..AgentConfig::default()
        };
        config.run.max_searches = ROUNDS + 1;
        let model = ScriptedModel::new("bench", replies);
        let builder = Agent::builder()
            .llm(model)
            .catalog(self.catalog.clone())
            .tool(NoopTool)
            .config(config);
        builder
            .max_rounds(ROUNDS + 2)
            .build()
            .expect("a whole agent")
    }
}

fn rounds(reply: impl Fn(u32) -> Reply) -> Vec<Reply> {
    (0..ROUNDS)
        .map(reply)
        .chain([Reply::text("done")])
        .collect()
}

async fn finished(agent: &Agent) {
    let mut stream = agent
        .start(Question::new("a question"))
        .expect("a free conversation");
    while let Some((_, event)) = stream.next().await {
        if let Event::Error { content } = black_box(event) {
            panic!("{content}");
        }
    }
}

fn tool(number: usize) -> Tool {
    let mut tool = Tool::new("bench", &format!("tool_{number}")).expect("a valid name");
    tool.description = format!(
        "Does the work number {number} on topic{} for somebody who asked for it.",
        number % 50
    );
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string", "description": "What to work on." } } });
    if let Value::Object(schema) = schema {
        tool.input_schema = schema;
    }
    tool
}

struct NoopTool;

#[async_trait]
impl Callable for NoopTool {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(Value::Null)
    }
}

impl UserTool for NoopTool {
    fn definition(&self) -> Tool {
        Tool::new("", "nothing").expect("a valid name")
    }
}
