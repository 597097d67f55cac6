//! Conversations of a hundred rounds over a whole catalog, with a model that searches, forgets and
//! fails, by a seed. `TOOLSCOUT_TEST_TOOLS` names another file or folder of tools.

use std::fmt;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use serde_json::Map;
use toolscout_index::formats::{self, ReadOptions, model_name};

use super::*;
use toolscout_finder::finder::model_names::TOOL_SEARCH;
use toolscout_finder::finder::search::doubles::numbers;
use toolscout_gate::llm::{CallFragment, Delta, Message, ToolChoice, Usage};

const ROUNDS: u32 = 100;
/// Rounds between the wish for a tool and its call: searches that the last calls leave no room for,
/// a call of a tool that was unloaded, and one that fails.
const MOST_ROUNDS_PER_WISH: u32 = 6;

#[tokio::test]
async fn a_hundred_rounds_never_lock_up_and_keep_the_beginning_of_the_prompt() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = DataDir::new(directory.path())
        .open_or_create("c", Options::default())
        .unwrap();
    let tools = read_tools();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();

    for budget_tokens in [2_000, 8_000] {
        for (seed, turns) in [(1, 1), (2, 3)] {
            let model = Arc::new(Forgetful::new(seed, tools.clone(), budget_tokens));
            let mut config = AgentConfig {
                search_from_tools: 0,
                time_to_live: Duration::from_secs(3_600),
                policies: Policies::permissive(),
                ..AgentConfig::default()
            };
            config.run.max_rounds = ROUNDS;
            config.run.context_tokens = 24_000;
            config.toolbox.budget_tokens = budget_tokens;
            let agent = Agent::builder()
                .shared_llm(model.clone())
                .catalog(catalog.clone())
                .tools(Failing(AtomicI64::new(seed as i64)))
                .config(config)
                .build()
                .unwrap();
            let mut compactions = 0;
            for turn in 1..=turns {
                model.begin_turn();
                let events = ask(&agent, &format!("long task {turn}")).await;
                assert_eq!(
                    ended(&events).0,
                    TurnStatus::Answered,
                    "{:?}",
                    errors(&events)
                );
                let names = events.iter().map(Event::name);
                compactions += names.filter(|name| *name == "context_compacted").count();
            }
            let seen = model.seen();
            eprintln!("{budget_tokens} tokens, seed {seed}, turns {turns}: {seen}");
            assert_eq!(seen.rounds, ROUNDS * turns);
            assert!(seen.slowest_wish <= MOST_ROUNDS_PER_WISH, "{seen}");
            assert!(seen.called_again > 0, "{seen}");
            assert_eq!(seen.breaks.unexplained, 0, "{seen}");
            assert_eq!(seen.breaks.compacted, compactions, "{seen}");
        }
    }
}

fn read_tools() -> Vec<Tool> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tools");
    let path = std::env::var_os("TOOLSCOUT_TEST_TOOLS").map_or(default, PathBuf::from);
    let mut files = vec![path.clone()];
    if path.is_dir() {
        let entries = std::fs::read_dir(&path).unwrap();
        files = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
    }
    let mut tools = Vec::new();
    for file in files {
        let options = ReadOptions {
            source_name: file.display().to_string(),
            default_server: Some(file.file_stem().unwrap().to_string_lossy().into_owned()),
            ..ReadOptions::default()
        };
        tools.extend(
            formats::parse(&std::fs::read(&file).unwrap(), &options)
                .unwrap()
                .tools,
        );
    }
    tools
}

/// Tools of which every fifth call fails.
struct Failing(AtomicI64);

struct Answering {
    fails: bool,
}

impl Toolset for Failing {
    fn find(&self, _: &ToolId) -> Option<Arc<dyn Callable>> {
        let fails = self.0.fetch_add(1, Ordering::Relaxed) % 5 == 0;
        Some(Arc::new(Answering { fails }))
    }
}

#[async_trait]
impl Callable for Answering {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        if self.fails {
            return Err(ToolFailure::new("the service is away"));
        }
        Ok("a result of some words. ".repeat(40).into())
    }
}

/// A model that wants one tool after the other.
struct Forgetful {
    state: Mutex<Memory>,
}

struct Memory {
    random: Box<dyn FnMut(usize) -> usize + Send>,
    tools: Vec<Arc<Tool>>,
    budget_tokens: usize,
    wish: Arc<Tool>,
    wished_in: u32,
    called: Vec<Arc<Tool>>,
    last: Option<ChatRequest>,
    begins_turn: bool,
    seen: Seen,
}

/// What was seen in all requests.
#[derive(Clone, Debug, Default)]
struct Seen {
    rounds: u32,
    searches: u32,
    /// Most rounds between a wish and its call.
    slowest_wish: u32,
    /// Tools that were called, unloaded, found and called again.
    called_again: u32,
    breaks: Breaks,
}

/// How often the prompt did not begin with that of the round before, by cause.
#[derive(Clone, Copy, Debug, Default)]
struct Breaks {
    /// Tools were unloaded.
    evicted: usize,
    /// Tools were added at the end of their list, which comes before the messages.
    injected: usize,
    /// Messages were shortened, to stay within the limit of tokens.
    compacted: usize,
    /// The end of a turn, after its question.
    turn_ended: usize,
    unexplained: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breaks {
            evicted,
            injected,
            compacted,
            turn_ended,
            unexplained,
        } = self.breaks;
        write!(
            f,
            "{} rounds, {} searches, a tool called at most {} rounds after it was wanted, {} found and called again; \
             breaks of the prompt's beginning: {injected} tools added, {evicted} evictions, {compacted} compactions, \
             {turn_ended} ends of turns, {unexplained} unexplained",
            self.rounds, self.searches, self.slowest_wish, self.called_again
        )
    }
}

impl Forgetful {
    fn new(seed: u64, tools: Vec<Arc<Tool>>, budget_tokens: usize) -> Self {
        let memory = Memory {
            random: Box::new(numbers(seed)),
            wish: tools[0].clone(),
            wished_in: 0,
            tools,
            budget_tokens,
            called: Vec::new(),
            last: None,
            begins_turn: true,
            seen: Seen::default(),
        };
        Forgetful {
            state: Mutex::new(memory),
        }
    }

    fn begin_turn(&self) {
        self.state.lock().begins_turn = true;
    }

    fn seen(&self) -> Seen {
        self.state.lock().seen.clone()
    }
}

#[async_trait]
impl ChatModel for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        let mut memory = self.state.lock();
        memory.compare(&request);
        let mut deltas = memory.answer(&request);
        // Without it the agent counts the tokens of every prompt.
        deltas.push(Delta::Usage(Usage::default()));
        memory.last = Some(request);
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

impl Memory {
    fn answer(&mut self, request: &ChatRequest) -> Vec<Delta> {
        self.seen.rounds += 1;
        if request.tool_choice == ToolChoice::None {
            return vec![Delta::Text("Done.".into())];
        }
        let mut fragments = Vec::new();
        // A model that calls many tools at once.
        let calls = 1 + (self.random)(4);
        for _ in 0..calls {
            match self.next_call(request) {
                Some(fragment) => fragments.push(fragment),
                None => break,
            }
        }
        if fragments.is_empty() {
            fragments.push(self.search());
        }
        let numbered = fragments.into_iter().enumerate();
        let delta = |(index, fragment)| {
            Delta::Call(CallFragment {
                index: Some(index),
                ..fragment
            })
        };
        numbered.map(delta).collect()
    }

    /// A call of the wanted tool, if it is visible; then the next one is wanted.
    fn next_call(&mut self, request: &ChatRequest) -> Option<CallFragment> {
        let name = model_name(&self.wish.id);
        let is_visible = request.tools.iter().any(|tool| tool.name == name);
        // Now and then it forgets that a tool was unloaded.
        if !is_visible && (self.random)(8) > 0 {
            return None;
        }
        let arguments = Value::Object(smallest(&self.wish.input_schema));
        if is_visible {
            self.fulfil();
        }
        Some(fragment(&name, &arguments))
    }

    fn fulfil(&mut self) {
        let waited = self.seen.rounds - self.wished_in;
        self.seen.slowest_wish = self.seen.slowest_wish.max(waited);
        if waited > 1 && self.called.iter().any(|tool| tool.id == self.wish.id) {
            self.seen.called_again += 1;
        }
        self.called.push(self.wish.clone());
        self.wished_in = self.seen.rounds;
        loop {
            // A tool that it called before, every third time.
            let wish = match (self.random)(3) {
                0 => self.called[(self.random)(self.called.len())].clone(),
                _ => self.tools[(self.random)(self.tools.len())].clone(),
            };
            let spec = model_names::spec(&wish);
            if toolbox::spec_tokens(&spec, toolbox::o200k) < self.budget_tokens / 3 {
                self.wish = wish;
                return;
            }
        }
    }

    fn search(&mut self) -> CallFragment {
        self.seen.searches += 1;
        let query = format!("select:{}", self.wish.id);
        let mut queries = vec![Value::from(query)];
        // A search in words as well finds what is not needed.
        if (self.random)(2) == 0 && !self.wish.description.is_empty() {
            queries.push(
                self.wish
                    .description
                    .chars()
                    .take(200)
                    .collect::<String>()
                    .into(),
            );
        }
        fragment(TOOL_SEARCH, &json!({ "queries": queries }))
    }

    /// Looks for the place where this prompt differs from the one before.
    fn compare(&mut self, now: &ChatRequest) {
        let begins_turn = std::mem::take(&mut self.begins_turn);
        let Some(last) = &self.last else {
            return;
        };
        let breaks = &mut self.seen.breaks;
        if last.messages[0] != now.messages[0] {
            breaks.unexplained += 1;
        }
        if now.tools.len() > last.tools.len() && now.tools.starts_with(&last.tools) {
            breaks.injected += 1;
        } else if now.tools != last.tools {
            breaks.evicted += 1;
        }
        let same = common(&last.messages, &now.messages);
        if begins_turn {
            breaks.turn_ended += 1;
            // Everything to the last question is the same.
            let question = last.messages.iter().rposition(is_question).unwrap();
            if same <= question {
                breaks.compacted += 1;
            }
            return;
        }
        if same < last.messages.len() {
            match is_shorter(&last.messages[same..], &now.messages[same..]) {
                true => breaks.compacted += 1,
                false => breaks.unexplained += 1,
            }
        }
    }
}

fn is_question(message: &Message) -> bool {
    matches!(message, Message::User { content } if content.starts_with("long task"))
}

/// Whether the messages that were there before are shorter now.
fn is_shorter(before: &[Message], now: &[Message]) -> bool {
    let length = |messages: &[Message]| -> usize {
        messages.iter().flat_map(Message::texts).map(str::len).sum()
    };
    length(&now[..now.len().min(before.len())]) < length(before)
}

fn common(a: &[Message], b: &[Message]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn fragment(name: &str, arguments: &Value) -> CallFragment {
    CallFragment {
        name: Some(name.to_owned()),
        arguments: Some(arguments.to_string()),
        ..CallFragment::default()
    }
}

/// Arguments with the required parameters only.
fn smallest(schema: &Map<String, Value>) -> Map<String, Value> {
    let required = schema.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| (name.to_owned(), "x".into())).collect()
}
