//! The round as a state machine without I/O: it says what to do next and is told what came of it.
//!
//! ```text
//! CallModel -> model_answered -> CallTools -> tools_answered -> CallModel ... -> Done
//! ```
//! Every call of the model gets exactly one result, in call order and under its id, whatever
//! happened to it.

mod plan;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use toolscout_index::{Tool, ToolId};

use crate::agent::context::{Context, DEFAULT_WINDOW, Fact};
use crate::agent::event::{Event, EvictionReason};
use crate::agent::plan::Execution;
use crate::agent::prompt::{self, Fence};
use crate::agent::reply::{RawCall, Reply};
use crate::finder::meta_tools::{self, FindConfig, Style};
use crate::finder::model_names::{self, CALL_TOOL, TOOL_SEARCH};
use crate::finder::search::{Found, SearchRequest};
use crate::finder::toolbox::{Injection, TokenCounter, Toolbox, spec_tokens};
use crate::gate::{Call, Caller, Gate, Policies};
use crate::llm::{ChatRequest, Message, Purpose, ToolCall, ToolSpec, Usage};
use crate::printable;
use crate::printable::excerpt;
use crate::session::Figures;
use crate::tools::arguments::{self, MAX_ARGUMENT_BYTES};
use crate::tools::{Arguments, ErrorCode, ToolResult};

/// Characters of a result that an event shows; the model is given more.
const PREVIEW_CHARS: usize = 2_000;
/// Names offered for one that no visible tool has.
const MAX_NEAREST: usize = 5;
/// Unloaded tools that a model is told of when a turn begins.
const MAX_MISSED: usize = 10;

/// How a model is asked to call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// By function calling.
    #[default]
    Native,
    /// By a JSON answer, for models without function calling.
    Manual,
    /// By one plan of all calls, checked and shown before it is carried out.
    Plan,
}

/// The limits and manners of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// How the model calls tools.
    pub protocol: Protocol,
    /// How found tools come into its hands.
    pub style: Style,
    /// What the agent is told of itself.
    pub role: String,
    /// What it is told of its surroundings.
    pub environment: String,
    /// Answers of the model at most; in the last one tools are withheld.
    pub max_rounds: u32,
    /// Rounds of searching in a row at most.
    pub max_searches: u32,
    /// Calls of one answer that are carried out at most.
    pub max_calls: usize,
    /// Bytes of a result that the model is given at most.
    pub max_result_bytes: usize,
    /// Rounds after which the context is cleared down to question, facts and plan.
    pub refresh_interval: Option<u32>,
    /// Messages the model sees at most.
    pub window: usize,
    /// What it may search for; `None` takes `tool_search` away.
    pub find: Option<FindConfig>,
    /// The boundary around what comes from outside; `None` for a new one with each run, as it
    /// should be wherever tools are not one's own.
    pub fence: Option<Fence>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            protocol: Protocol::Native,
            style: Style::Inject,
            role: prompt::DEFAULT_ROLE.into(),
            environment: String::new(),
            max_rounds: 5,
            max_searches: 3,
            max_calls: 16,
            max_result_bytes: 64 << 10,
            refresh_interval: None,
            window: DEFAULT_WINDOW,
            find: Some(FindConfig::default()),
            fence: None,
        }
    }
}

/// What to do next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Ask the model and report to [`Run::model_answered`].
    CallModel(ChatRequest),
    /// Search and call, and report to [`Run::tools_answered`].
    CallTools(Work),
    /// Nothing: the run is over.
    Done(Outcome),
}

/// The searches and calls of one answer; either may be empty.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Searches, in call order.
    pub searches: Vec<SearchRequest>,
    /// Calls of visible tools, in call order, for the gate to judge.
    pub calls: Vec<Call>,
}

/// How a run ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this answer.
    Answered(String),
    /// Without one, for this reason.
    Failed(String),
}

/// One question on its way to an answer.
#[derive(Clone, Debug)]
pub struct Run {
    config: RunConfig,
    count: TokenCounter,
    toolbox: Toolbox,
    context: Context,
    state: State,
    round: u32,
    searches_in_a_row: u32,
    used_ids: BTreeSet<String>,
    /// The empty answer has been pointed out once.
    nudged: bool,
    figures: Figures,
    /// Tokens of all tools shown so far.
    shown_tokens: usize,
    /// Checks plans.
    gate: Arc<Gate>,
    caller: Caller,
    /// The plan under way.
    execution: Option<Execution>,
    /// What was wrong with the last plan, if it was refused.
    refused_for: Vec<String>,
    /// The model has been told what its plan came to.
    is_outcome_told: bool,
    /// What it came to, should the model not say.
    told_summary: String,
}

#[derive(Clone, Debug)]
enum State {
    AskModel,
    Carry(Vec<PlannedCall>),
    Over(Outcome),
}

/// One call of the model and what is to become of it.
#[derive(Clone, Debug)]
struct PlannedCall {
    call: ToolCall,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Search(SearchRequest),
    Call(Arc<Tool>, Arguments),
    /// Nothing more: it was refused.
    Settled(ToolResult),
}

/// What a call gave, and who gave it.
struct Given {
    source: String,
    text: String,
}

/// The source of results that are this program's own words.
const OWN_WORDS: &str = "toolscout";

/// Why a call is not carried out, with words for the model.
type CallError = (ErrorCode, String);

impl Run {
    /// Begins a run; the toolbox's turn begins with it. The model is told what it called in earlier
    /// turns and does not see any more.
    pub fn new(
        config: RunConfig,
        count: TokenCounter,
        mut toolbox: Toolbox,
        mut context: Context,
    ) -> Self {
        toolbox.begin_turn();
        if let Some(fence) = &config.fence {
            context = context.with_fence(fence.clone());
        }
        let missed = toolbox.missed(MAX_MISSED);
        if config.find.is_some() && !missed.is_empty() {
            context = context.with_notice(meta_tools::missed_notice(&missed));
        }
        let mut run = Run {
            config,
            count,
            toolbox,
            context,
            state: State::AskModel,
            round: 0,
            searches_in_a_row: 0,
            used_ids: BTreeSet::new(),
            nudged: false,
            figures: Figures::default(),
            shown_tokens: 0,
            gate: Arc::new(Gate::new(Policies::default())),
            caller: Caller::default(),
            execution: None,
            refused_for: Vec::new(),
            is_outcome_told: false,
            told_summary: String::new(),
        };
        run.state = run.first_state();
        run
    }

    /// The same run, its plans checked by this gate.
    pub fn through(mut self, gate: Arc<Gate>, caller: Caller) -> Self {
        (self.gate, self.caller) = (gate, caller);
        self
    }

    /// What to do next. Asking twice gives the same.
    pub fn next_step(&self) -> Step {
        match &self.state {
            State::AskModel => Step::CallModel(self.request()),
            State::Carry(slots) => Step::CallTools(work_of(slots)),
            State::Over(outcome) => Step::Done(outcome.clone()),
        }
    }

    /// Takes the model's answer.
    pub fn model_answered(&mut self, reply: Reply) -> Vec<Event> {
        if !matches!(self.state, State::AskModel) {
            return Vec::new();
        }
        self.account(&reply);
        let last_round = self.is_last_round();
        self.round += 1;
        if self.config.protocol == Protocol::Plan {
            return self.plan_answered(reply.text, last_round);
        }
        let (text, calls, mut events) = self.read(reply);
        if calls.is_empty() || last_round {
            self.conclude(text, last_round);
            return events;
        }
        let slots: Vec<PlannedCall> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| self.slot(index, call))
            .collect();
        self.remember_calls(text, &slots);
        self.begin(&slots);
        events.extend(slots.iter().flat_map(announced));
        let settled = slots
            .iter()
            .all(|slot| matches!(slot.what, What::Settled(_)));
        self.state = State::Carry(slots);
        if settled {
            events.extend(self.tools_answered(Vec::new(), Vec::new()));
        }
        events
    }

    /// Takes what the searches found and the calls gave, each in the order of the [`Work`]. What is
    /// missing counts as failed.
    pub fn tools_answered(&mut self, founds: Vec<Found>, results: Vec<ToolResult>) -> Vec<Event> {
        let State::Carry(slots) = &mut self.state else {
            return Vec::new();
        };
        let slots = std::mem::take(slots);
        self.state = State::AskModel;
        let injection = self.toolbox.inject(&meta_tools::merged(&founds));
        let mut events = Vec::new();
        let (mut founds, mut results) = (founds.into_iter(), results.into_iter());
        let mut told = injection.clone();
        let mut texts = Vec::with_capacity(slots.len());
        for PlannedCall { call, what } in slots {
            let given = match what {
                What::Search(request) => {
                    let found = founds.next().unwrap_or_default();
                    events.push(search_event(&call.id, &request, &found));
                    self.figures.searches += 1;
                    let answer = meta_tools::answer(&found, &told, self.config.style).to_string();
                    // One telling of what was unloaded is enough.
                    told.evicted.clear();
                    Given {
                        source: TOOL_SEARCH.into(),
                        text: answer,
                    }
                }
                What::Call(tool, _) => {
                    self.toolbox.close_call(&tool.id);
                    let missing =
                        || ToolResult::error(ErrorCode::Failed, "the call gave no result");
                    let result = results.next().unwrap_or_else(missing);
                    self.record_step(result.clone());
                    let source = source_of(&tool, &result);
                    self.settle(&call, source, result, &mut events)
                }
                What::Settled(result) => self.settle(&call, OWN_WORDS.into(), result, &mut events),
            };
            texts.push((call, given));
        }
        events.extend(self.injected(&injection));
        self.remember_results(texts);
        self.refresh_when_due();
        events.extend(self.next_plan_step());
        events
    }

    /// Ends the run before its time; open calls get their result too.
    pub fn cancel(&mut self) -> Vec<Event> {
        let over = State::Over(Outcome::Failed("stopped".into()));
        let State::Carry(slots) = std::mem::replace(&mut self.state, over) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        for PlannedCall { call, what } in slots {
            let result = match what {
                What::Settled(result) => result,
                What::Search(_) => continue,
                What::Call(tool, _) => {
                    self.toolbox.close_call(&tool.id);
                    ToolResult::error(ErrorCode::Cancelled, "the run was stopped")
                }
            };
            events.push(result_event(&call, &result));
        }
        events
    }

    /// Ends the turn: idle tools go.
    pub fn end_turn(&mut self) -> Option<Event> {
        let tools = self.toolbox.end_turn();
        self.figures.tools_evicted += tools.len();
        (!tools.is_empty()).then_some(Event::ToolsEvicted {
            tools,
            reason: EvictionReason::Idle,
        })
    }

    /// True when the model's words are for the user as they come; else they are a protocol and come
    /// with
    /// [`Run::model_answered`].
    pub fn streams_text(&self) -> bool {
        self.config.protocol == Protocol::Native
    }

    /// The toolbox as it is now.
    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// The figures so far; times, references and what was saved are the driver's to fill in.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Tokens of the tools shown in all rounds so far.
    pub fn shown_tokens(&self) -> usize {
        self.shown_tokens
    }

    fn is_last_round(&self) -> bool {
        let last = self.round + 1 >= self.config.max_rounds;
        // A plan needs one round, whatever the limit.
        if self.config.protocol == Protocol::Plan {
            self.is_outcome_told || (last && self.round > 0)
        } else {
            last
        }
    }

    fn request(&self) -> ChatRequest {
        let specs = self.visible_specs();
        let messages = self.messages(&specs);
        let tools = match self.config.protocol {
            Protocol::Native => specs.into_iter().map(Cow::into_owned).collect(),
            Protocol::Manual | Protocol::Plan => Vec::new(),
        };
        ChatRequest {
            purpose: Purpose::Round,
            messages,
            tools,
        }
    }

    /// The messages of a round in which these tools are visible.
    fn messages(&self, specs: &[Cow<'_, ToolSpec>]) -> Vec<Message> {
        let RunConfig {
            role, environment, ..
        } = &self.config;
        let fence = self.context.fence();
        let described = || specs.iter().map(AsRef::as_ref).collect::<Vec<&ToolSpec>>();
        let system = match self.config.protocol {
            Protocol::Native => prompt::native_system(role, environment, fence),
            Protocol::Manual => prompt::manual_system(role, &described(), environment, fence),
            Protocol::Plan => prompt::plan_system(role, &described(), environment, fence),
        };
        let mut messages = vec![Message::system(system)];
        messages.extend(self.context.messages());
        if self.is_last_round() {
            messages.push(Message::user(prompt::LAST_ROUND));
        }
        messages
    }

    /// The tools of this round, in their stable order; none in the last one.
    fn visible_specs(&self) -> Vec<Cow<'_, ToolSpec>> {
        if self.is_last_round() {
            return Vec::new();
        }
        let mut specs = Vec::new();
        if self.config.protocol == Protocol::Plan {
            specs.extend(self.toolbox.specs().map(Cow::Borrowed));
            return specs;
        }
        if self.config.find.is_some() {
            specs.push(Cow::Owned(meta_tools::search_spec()));
        }
        match (self.config.style, self.config.find.is_some()) {
            (Style::Dispatch, true) => {
                specs.push(Cow::Owned(meta_tools::dispatch_spec()));
                specs.extend(self.toolbox.pinned_specs().map(Cow::Borrowed));
            }
            _ => specs.extend(self.toolbox.specs().map(Cow::Borrowed)),
        }
        specs
    }

    fn account(&mut self, reply: &Reply) {
        let tool_tokens = self.tool_tokens();
        self.shown_tokens += tool_tokens;
        self.figures.rounds += 1;
        let Usage { input, output } = reply.usage.unwrap_or_else(|| {
            self.figures.tokens_estimated = true;
            self.estimate(reply, tool_tokens)
        });
        self.figures.tokens_in += input;
        self.figures.tokens_out += output;
    }

    /// Tokens of the tools of this round. Those of held tools are known; ten thousand of them are
    /// not counted anew.
    fn tool_tokens(&self) -> usize {
        if self.is_last_round() {
            return 0;
        }
        let of = |spec: ToolSpec| spec_tokens(&spec, self.count);
        match (self.config.find.is_some(), self.config.style) {
            (false, _) => self.toolbox.tokens(),
            (true, Style::Inject) => of(meta_tools::search_spec()) + self.toolbox.tokens(),
            (true, Style::Dispatch) => {
                of(meta_tools::search_spec())
                    + of(meta_tools::dispatch_spec())
                    + self.toolbox.pinned_tokens()
            }
        }
    }

    /// What the round cost, counted here: every message, its calls, and the tools.
    fn estimate(&self, reply: &Reply, tool_tokens: usize) -> Usage {
        let count = |text: &str| (self.count)(text) as u64;
        // Without function calling the tools are part of the system message and counted there.
        let (specs, apart) = match self.config.protocol {
            Protocol::Native => (Vec::new(), tool_tokens as u64),
            Protocol::Manual | Protocol::Plan => (self.visible_specs(), 0),
        };
        let input = apart
            + self
                .messages(&specs)
                .iter()
                .flat_map(Message::texts)
                .map(count)
                .sum::<u64>();
        let calls = reply
            .calls
            .iter()
            .flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
        Usage {
            input,
            output: count(&reply.text) + calls.map(count).sum::<u64>(),
        }
    }

    /// The text, the calls, and the words to show, by the protocol.
    fn read(&self, reply: Reply) -> (String, Vec<RawCall>, Vec<Event>) {
        if self.config.protocol == Protocol::Native {
            return (reply.text, reply.calls, Vec::new());
        }
        let manual = prompt::read_manual(&reply.text);
        let mut events = Vec::new();
        if !manual.thought.is_empty() {
            events.push(Event::Thinking {
                content: manual.thought,
            });
        }
        let acts = !manual.actions.is_empty() && !self.is_last_round();
        let answer = manual.final_answer.filter(|_| !acts).unwrap_or_default();
        if !answer.is_empty() {
            events.push(Event::Text {
                content: answer.clone(),
            });
        }
        let calls = manual.actions.into_iter().map(|action| RawCall {
            id: None,
            name: action.name,
            argument_bytes: action.arguments.len(),
            arguments: action.arguments,
        });
        let calls: Vec<RawCall> = calls.collect();
        (if acts { reply.text } else { answer }, calls, events)
    }

    fn conclude(&mut self, text: String, last_round: bool) {
        if !text.trim().is_empty() {
            self.state = State::Over(Outcome::Answered(text));
        } else if !self.nudged && !last_round && self.round + 1 < self.config.max_rounds {
            self.nudged = true;
            self.context.push(Message::user(prompt::EMPTY_ANSWER));
        } else {
            let rounds = self.round;
            self.state = State::Over(Outcome::Failed(format!(
                "the model gave no answer in {rounds} round(s); ask more narrowly, raise the limit of rounds, or choose another model"
            )));
        }
    }

    fn slot(&mut self, index: usize, raw: &RawCall) -> PlannedCall {
        let id = self.unused_id(index, raw.id.as_deref());
        let what = self
            .classify(index, raw)
            .unwrap_or_else(|(code, message)| What::Settled(ToolResult::error(code, message)));
        PlannedCall {
            call: ToolCall {
                id,
                name: raw.name.clone(),
                arguments: raw.arguments.clone(),
            },
            what,
        }
    }

    /// The model's id where it is one and new, else one of ours.
    fn unused_id(&mut self, index: usize, wanted: Option<&str>) -> String {
        let made = format!("call_{}_{index}", self.round);
        let candidates = wanted
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .into_iter()
            .chain([made.clone()]);
        let numbered = (2..).map(|number| format!("{made}_{number}"));
        let id = candidates
            .chain(numbered)
            .find(|id| !self.used_ids.contains(id))
            .unwrap_or(made);
        self.used_ids.insert(id.clone());
        id
    }

    /// What a call amounts to.
    ///
    /// # Errors
    /// Why the call is refused.
    fn classify(&self, index: usize, raw: &RawCall) -> Result<What, CallError> {
        if index >= self.config.max_calls {
            let most = self.config.max_calls;
            let message =
                format!("only {most} calls in one answer are carried out; make this one again");
            return Err((ErrorCode::Limit, message));
        }
        if raw.argument_bytes > raw.arguments.len() {
            let bytes = raw.argument_bytes;
            let message = format!(
                "the arguments have {bytes} bytes, {MAX_ARGUMENT_BYTES} are allowed; send less"
            );
            return Err(invalid(message));
        }
        let arguments = arguments::parse(&raw.arguments).map_err(invalid)?;
        match (raw.name.as_str(), &self.config.find) {
            (TOOL_SEARCH, Some(find)) => self.search(&arguments, find),
            (CALL_TOOL, Some(_)) if self.config.style == Style::Dispatch => {
                let (name, arguments) = dispatched(arguments).map_err(invalid)?;
                self.call(&name, arguments)
            }
            (name, _) => self.call(name, arguments),
        }
    }

    fn search(&self, arguments: &Arguments, config: &FindConfig) -> Result<What, CallError> {
        let most = self.config.max_searches;
        if self.searches_in_a_row >= most {
            let message = format!(
                "{most} searches in a row are allowed; call one of the visible tools or answer with what you have"
            );
            return Err((ErrorCode::Limit, message));
        }
        meta_tools::parse(arguments, config)
            .map(What::Search)
            .map_err(invalid)
    }

    fn call(&self, name: &str, arguments: Arguments) -> Result<What, CallError> {
        let tool = self
            .toolbox
            .find(name)
            .ok_or_else(|| (ErrorCode::UnknownTool, self.unknown(name)))?
            .clone();
        Ok(What::Call(tool, arguments))
    }

    /// What the model is told of a name that no visible tool has.
    fn unknown(&self, name: &str) -> String {
        let searches = self.config.find.is_some();
        let mut message = format!("no visible tool is called {:?}", excerpt(name, 100));
        if searches && self.toolbox.unloaded(name).is_some() {
            message.push_str(&format!(
                "; it was unloaded; `{TOOL_SEARCH}` with `select:{name}` brings it back"
            ));
            return message;
        }
        let nearest = model_names::nearest(
            name,
            self.toolbox.specs().map(|spec| spec.name.as_str()),
            MAX_NEAREST,
        );
        if !nearest.is_empty() {
            message.push_str(&format!("; near it are {}", nearest.join(", ")));
        }
        if searches {
            message.push_str(&format!("; `{TOOL_SEARCH}` finds others"));
        }
        message
    }

    /// Counts the searches and opens the calls of these slots.
    fn begin(&mut self, slots: &[PlannedCall]) {
        let calls: Vec<&ToolId> = slots.iter().filter_map(called).collect();
        let searches = slots
            .iter()
            .any(|slot| matches!(slot.what, What::Search(_)));
        match (calls.is_empty(), searches) {
            (false, _) => self.searches_in_a_row = 0,
            (true, true) => self.searches_in_a_row += 1,
            (true, false) => {}
        }
        for id in calls {
            self.toolbox.open_call(id);
            if !self
                .figures
                .tools_used
                .iter()
                .any(|used| used == id.as_str())
            {
                self.figures.tools_used.push(id.to_string());
            }
        }
    }

    fn settle(
        &self,
        call: &ToolCall,
        source: String,
        result: ToolResult,
        events: &mut Vec<Event>,
    ) -> Given {
        let result = result.truncated(self.config.max_result_bytes);
        events.push(result_event(call, &result));
        Given {
            source,
            text: result.to_model_text(),
        }
    }

    fn injected(&mut self, injection: &Injection) -> Vec<Event> {
        let mut events = Vec::new();
        if !injection.evicted.is_empty() {
            self.figures.tools_evicted += injection.evicted.len();
            events.push(Event::ToolsEvicted {
                tools: injection.evicted.clone(),
                reason: EvictionReason::Budget,
            });
        }
        if !injection.added.is_empty() {
            self.figures.tools_injected += injection.added.len();
            let tokens = self.toolbox.tokens_of(&injection.added);
            events.push(Event::ToolsInjected {
                tools: injection.added.clone(),
                tokens,
            });
        }
        events
    }

    fn remember_calls(&mut self, text: String, slots: &[PlannedCall]) {
        let tool_calls = match self.config.protocol {
            Protocol::Native => slots.iter().map(|slot| slot.call.clone()).collect(),
            Protocol::Manual | Protocol::Plan => Vec::new(),
        };
        self.context.push(Message::Assistant {
            content: text,
            tool_calls,
        });
    }

    fn remember_results(&mut self, results: Vec<(ToolCall, Given)>) {
        let fence = self.context.fence().clone();
        let fenced = |given: &Given| fence.around(&given.source, &given.text);
        if self.config.protocol == Protocol::Manual {
            let mut lines = Vec::with_capacity(results.len());
            for (at, (call, given)) in results.iter().enumerate() {
                // The model wrote the name.
                let name = printable::name(&call.name);
                lines.push(format!("{}. {name}:\n{}", at + 1, fenced(given)));
            }
            self.context.push(Message::user(format!(
                "Results of your actions:\n{}",
                lines.join("\n")
            )));
        }
        for (
            ToolCall {
                id,
                name,
                arguments,
            },
            given,
        ) in results
        {
            if self.config.protocol == Protocol::Native {
                self.context.push(Message::Tool {
                    tool_call_id: id,
                    content: fenced(&given),
                });
            }
            if name != TOOL_SEARCH {
                let Given {
                    source,
                    text: result,
                } = given;
                self.context.remember(Fact {
                    name,
                    source,
                    arguments,
                    result,
                });
            }
        }
    }

    fn refresh_when_due(&mut self) {
        if self
            .config
            .refresh_interval
            .is_some_and(|interval| interval > 0 && self.round.is_multiple_of(interval))
        {
            self.context.refresh();
        }
    }
}

/// Who a result's words are from: the tool, or this program where it was not called or did not
/// answer.
fn source_of(tool: &Tool, result: &ToolResult) -> String {
    match result.error_code {
        // A precondition quotes what other tools have said.
        None | Some(ErrorCode::Failed | ErrorCode::Panicked | ErrorCode::Precondition) => {
            tool.id.to_string()
        }
        Some(_) => OWN_WORDS.to_owned(),
    }
}

fn invalid(message: String) -> CallError {
    (ErrorCode::InvalidArguments, message)
}

fn work_of(slots: &[PlannedCall]) -> Work {
    let mut work = Work::default();
    for PlannedCall { call, what } in slots {
        match what {
            What::Search(request) => work.searches.push(request.clone()),
            What::Call(tool, arguments) => {
                work.calls.push(Call {
                    id: call.id.clone(),
                    tool: tool.clone(),
                    arguments: arguments.clone(),
                });
            }
            What::Settled(_) => {}
        }
    }
    work
}

fn called(slot: &PlannedCall) -> Option<&ToolId> {
    match &slot.what {
        What::Call(tool, _) => Some(&tool.id),
        _ => None,
    }
}

/// The name and arguments inside a `call_tool` call.
fn dispatched(mut outer: Arguments) -> Result<(String, Arguments), String> {
    let Some(Value::String(name)) = outer.remove("name") else {
        return Err("`name` is missing; give the name of a tool that `tool_search` found".into());
    };
    let arguments = match outer.remove("arguments") {
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => arguments::parse(&text)?,
        None | Some(Value::Null) => Arguments::new(),
        Some(other) => {
            return Err(format!(
                "`arguments` must be an object, not {}",
                excerpt(&other.to_string(), 80)
            ));
        }
    };
    Ok((name, arguments))
}

fn announced(slot: &PlannedCall) -> Option<Event> {
    if matches!(slot.what, What::Search(_)) {
        return None;
    }
    let ToolCall {
        id,
        name,
        arguments,
    } = slot.call.clone();
    let arguments = serde_json::from_str(&arguments)
        .unwrap_or_else(|_| excerpt(&arguments, PREVIEW_CHARS).into());
    Some(Event::ToolCall {
        id,
        name,
        arguments,
    })
}

fn search_event(id: &str, request: &SearchRequest, found: &Found) -> Event {
    Event::ToolSearch {
        id: id.to_owned(),
        queries: request.queries.clone(),
        select: request.select.clone(),
        hits: found.hits.iter().map(|hit| hit.tool.id.clone()).collect(),
        no_match: found
            .no_match
            .as_ref()
            .map(|no_match| no_match.reason.clone()),
    }
}

fn result_event(call: &ToolCall, result: &ToolResult) -> Event {
    Event::ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        status: result.status,
        error_code: result.error_code,
        content: match &result.error_message {
            Some(message) => excerpt(message, PREVIEW_CHARS),
            None => excerpt(&result.to_model_text(), PREVIEW_CHARS),
        },
        took_ms: result.took_ms,
        truncated_from_bytes: result.truncated_from_bytes,
    }
}

#[cfg(test)]
mod tests;
