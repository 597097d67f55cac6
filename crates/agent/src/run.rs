//! A run as a state machine without I/O: it returns the next step and takes the step's outcome.
//!
//! ```text
//! CallModel -> model_answered -> CallTools -> tools_answered -> CallModel ... -> Done
//! ```
//! Every call of the model gets exactly one result, in call order and under its id, even if the
//! call is refused, fails or is cancelled.

mod calls;
mod plan;
mod prompts;

use std::collections::BTreeSet;
use std::sync::Arc;

use toolscout_index::Tool;

use crate::announce;
use crate::config::{Protocol, RunConfig};
use crate::context::{Context, Output, ResultForm};
use crate::event::{Event, EvictionReason, InjectedTool, ToolBudget};
use crate::prompt;
use toolscout_base::config::ResultFormat;
use toolscout_base::printable::{counted, excerpt};
use toolscout_finder::finder::SearchHistory;
use toolscout_finder::finder::meta_tools::{self, Style};
use toolscout_finder::finder::model_names::{self, TOOL_SEARCH};
use toolscout_finder::finder::search::{Found, SearchRequest};
use toolscout_finder::finder::toolbox::{Injection, TokenCounter, Toolbox};
use toolscout_gate::gate::{Call, Caller, Gate};
use toolscout_gate::llm::calls::RawCall;
use toolscout_gate::llm::reply::Reply;
use toolscout_gate::llm::{ChatRequest, Message, ToolCall};
use toolscout_gate::plan::Execution;
use toolscout_gate::tools::long_results::{LongResults, LongText, Page};
use toolscout_gate::tools::{Arguments, ErrorCode, ToolResult};
use toolscout_state::session::Figures;

/// Characters of a result in an event; the model gets more.
const PREVIEW_CHARS: usize = 2_000;
/// Unloaded tools that the model is reminded of when a turn begins.
const MAX_MISSED: usize = 10;

/// The next step of a run.
#[derive(Clone, Debug)]
pub enum Step {
    /// Call the model, then [`Run::model_answered`].
    CallModel(ChatRequest),
    /// Search and call tools, then [`Run::tools_answered`].
    CallTools(Work),
    /// The run has ended.
    Done(Outcome),
}

/// The searches and calls of one answer; either may be empty.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Searches, in call order.
    pub searches: Vec<SearchRequest>,
    /// Calls of visible tools, in call order, not yet checked by the gate.
    pub calls: Vec<Call>,
}

/// What came of a [`Work`], each list in its order.
#[derive(Clone, Debug, Default)]
pub struct WorkDone {
    /// What the searches found. A missing one found nothing.
    pub searches: Vec<Found>,
    /// The results of the calls. A missing one counts as failed.
    pub calls: Vec<ToolResult>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The model gave this answer.
    Answered(String),
    /// The model gave no answer, for this reason.
    Failed(String),
}

/// The processing of one question.
#[derive(Clone, Debug)]
pub struct Run {
    config: RunConfig,
    count: TokenCounter,
    toolbox: Toolbox,
    context: Context,
    state: RunState,
    round: u32,
    searches_in_a_row: u32,
    history: SearchHistory,
    used_ids: BTreeSet<String>,
    /// Results that were too long to be shown whole.
    long_results: LongResults,
    /// The model was asked once to replace its empty answer.
    asked_for_answer: bool,
    /// The model called tools in the last round, though it must not: they are withheld.
    withholds_tools: bool,
    /// The round in which the provider refused a prompt as too long.
    refused_in: Option<u32>,
    figures: Figures,
    /// Tokens of the tools shown in all rounds so far.
    shown_tokens: usize,
    /// Checks plans.
    gate: Arc<Gate>,
    caller: Caller,
    /// The plan being executed.
    execution: Option<Execution>,
    /// The problems of the last plan, if it was refused.
    plan_problems: Vec<String>,
    /// The summary of the plan's results, once the model has been asked to report on them.
    plan_summary: Option<String>,
}

/// What the model may do in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Call tools, or answer.
    WithTools,
    /// Only answer.
    Last,
}

#[derive(Clone, Debug)]
enum RunState {
    CallModel,
    CallTools(Vec<PlannedCall>),
    Ended(Outcome),
}

/// One call of the model and how it is handled.
#[derive(Clone, Debug)]
struct PlannedCall {
    call: ToolCall,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Search(SearchRequest),
    Call(Arc<Tool>, Arguments),
    /// A part of an earlier result.
    Read(Page),
    /// The call was refused with this result.
    Refused(ToolResult),
}

impl Action {
    /// Whether there is something to search or to call.
    fn is_work(&self) -> bool {
        matches!(self, Action::Search(_) | Action::Call(..))
    }
}

/// What came of a call, as its [`Action`] was.
enum Answered {
    Search(SearchRequest, Box<Found>),
    Call(Arc<Tool>, ToolResult),
    Read(Page),
    Refused(ToolResult),
}

/// A result's text and its source.
struct SourcedText {
    source: String,
    text: String,
}

/// The source of messages that this program writes itself.
const OWN_SOURCE: &str = "toolscout";

impl Run {
    /// Starts a run and a turn of its toolbox. The model is reminded of tools that it called in
    /// earlier turns and that were unloaded since.
    /// `gate` checks the plans of `caller`.
    pub fn new(
        config: RunConfig,
        count: TokenCounter,
        mut toolbox: Toolbox,
        mut context: Context,
        gate: Arc<Gate>,
        caller: Caller,
    ) -> Self {
        toolbox.begin_turn();
        // Without a search the model could not bring them back.
        let missed = toolbox.missed(MAX_MISSED);
        if config.find.is_some() && !missed.is_empty() {
            context = context.with_notice(&meta_tools::missed_notice(&missed));
        }
        let mut run = Run {
            config,
            count,
            toolbox,
            context,
            state: RunState::CallModel,
            round: 0,
            searches_in_a_row: 0,
            history: SearchHistory::default(),
            used_ids: BTreeSet::new(),
            long_results: LongResults::default(),
            asked_for_answer: false,
            withholds_tools: false,
            refused_in: None,
            figures: Figures::default(),
            shown_tokens: 0,
            gate,
            caller,
            execution: None,
            plan_problems: Vec::new(),
            plan_summary: None,
        };
        run.state = run.first_state();
        run
    }

    /// The next step. Changes nothing, so it can be called again.
    pub fn next_step(&self) -> Step {
        match &self.state {
            RunState::CallModel => Step::CallModel(self.request()),
            RunState::CallTools(planned) => {
                Step::CallTools(work_of(planned, self.execution.is_some()))
            }
            RunState::Ended(outcome) => Step::Done(outcome.clone()),
        }
    }

    /// Takes the model's answer.
    pub fn model_answered(&mut self, reply: Reply) -> Vec<Event> {
        if !matches!(self.state, RunState::CallModel) {
            return Vec::new();
        }
        // Both look at the round that was just answered, so they come before the counter moves.
        self.count_tokens(&reply);
        let round = self.kind_of_round();
        self.round += 1;
        self.toolbox.begin_round();
        if self.config.protocol == Protocol::Plan {
            return self.plan_answered(reply.text, round);
        }
        let (text, calls, mut events) = self.parse_reply(reply);
        // A model may call tools that it was not shown; in the last round such calls are not made.
        if round == Round::Last && text.trim().is_empty() && self.withhold_tools(&calls) {
            return events;
        }
        if calls.is_empty() || round == Round::Last {
            self.finish(text, round);
            return events;
        }
        let mut planned = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            planned.push(self.plan_call(index, call));
        }
        self.remember_calls(text, &planned);
        self.open_calls(&planned);
        events.extend(planned.iter().flat_map(|call| self.call_events(call)));
        let has_work = planned.iter().any(|planned| planned.action.is_work());
        self.state = RunState::CallTools(planned);
        if !has_work {
            // Nothing to call: the model gets the results at once.
            events.extend(self.tools_answered(WorkDone::default()));
        }
        events
    }

    /// Takes the results of the searches and calls.
    pub fn tools_answered(&mut self, done: WorkDone) -> Vec<Event> {
        let RunState::CallTools(planned) = &mut self.state else {
            return Vec::new();
        };
        let planned = std::mem::take(planned);
        self.state = RunState::CallModel;
        // The searches of one answer are injected together, and before the results, so that each
        // search's answer can name what was loaded and unloaded.
        let injection = self.toolbox.inject(&meta_tools::merged(&done.searches));
        let mut described = injection.clone();
        let mut events = Vec::new();
        let mut outputs = Vec::with_capacity(planned.len());
        let mut has_called = false;
        for (call, answer) in answered(planned, done) {
            let said = match answer {
                Answered::Search(request, found) => {
                    let said =
                        self.search_text(&call.id, &request, *found, &described, &mut events);
                    // Only the first answer lists the unloaded tools.
                    described.evicted.clear();
                    said
                }
                Answered::Call(tool, result) => {
                    has_called = true;
                    self.toolbox.close_call(&tool.id);
                    self.record_step(result.clone());
                    let source = source_of(&tool, &result);
                    self.result_text(&call, source, result, &mut events)
                }
                Answered::Read(page) => {
                    let shown = ToolResult::ok(page.text.clone().into());
                    events.push(result_event(&call, &shown));
                    SourcedText {
                        source: page.source,
                        text: page.text,
                    }
                }
                Answered::Refused(result) => {
                    self.result_text(&call, OWN_SOURCE.into(), result, &mut events)
                }
            };
            outputs.push(Output {
                call_id: call.id,
                name: call.name,
                arguments: call.arguments,
                source: said.source,
                text: said.text,
            });
        }
        if has_called {
            self.history.called();
        }
        events.extend(self.injection_events(&injection));
        self.remember_results(outputs);
        self.refresh_when_due();
        events.extend(self.next_plan_step());
        events
    }

    /// Ends the run early. Open calls get a result too.
    pub fn cancel(&mut self) -> Vec<Event> {
        let ended = RunState::Ended(Outcome::Failed("stopped".into()));
        let RunState::CallTools(planned) = std::mem::replace(&mut self.state, ended) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        for PlannedCall { call, action } in planned {
            let result = match action {
                Action::Refused(result) => result,
                Action::Read(page) => ToolResult::ok(page.text.into()),
                // A search is announced by the event with its hits, so there is nothing to end.
                Action::Search(_) => continue,
                Action::Call(tool, _) => {
                    self.toolbox.close_call(&tool.id);
                    ToolResult::error(ErrorCode::Cancelled, "the run was stopped")
                }
            };
            events.push(result_event(&call, &result));
        }
        events
    }

    /// Ends the turn and evicts idle tools.
    pub fn end_turn(&mut self) -> Option<Event> {
        let tools = self.toolbox.end_turn();
        if tools.is_empty() {
            return None;
        }
        self.figures.tools_evicted += tools.len();
        Some(Event::ToolsEvicted {
            tools,
            reason: EvictionReason::Idle,
            budget: self.budget(self.toolbox.tokens()),
        })
    }

    /// True when the model's text is for the user as it streams. Otherwise it is JSON, from which
    /// [`Run::model_answered`] extracts the text.
    pub fn streams_text(&self) -> bool {
        self.config.protocol == Protocol::Native
    }

    /// What the model sees of the conversation.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The current toolbox.
    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// The figures so far, without times, references and saved tokens, which the driver adds.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Tokens of the tools shown in all rounds so far.
    pub fn shown_tokens(&self) -> usize {
        self.shown_tokens
    }

    /// The kind of the round that is next, or that is being answered.
    fn kind_of_round(&self) -> Round {
        let at_limit = self.round + 1 >= self.config.max_rounds;
        // A plan needs one round with tools, even if the limit is 1.
        let is_last = if self.config.protocol == Protocol::Plan {
            self.plan_summary.is_some() || (at_limit && self.round > 0)
        } else {
            at_limit
        };
        if is_last {
            Round::Last
        } else {
            Round::WithTools
        }
    }

    fn is_last_round(&self) -> bool {
        self.kind_of_round() == Round::Last
    }

    /// Whether `tool_search` is among the tools that the model sees.
    fn offers_search(&self) -> bool {
        self.config.find.is_some() && !self.config.shows_all
    }

    /// Whether there is a long result to read on in. A plan gets its results all at once.
    fn can_read_more(&self) -> bool {
        !self.long_results.is_empty() && self.config.protocol != Protocol::Plan
    }

    /// Repeats the last round without tools if a model calls them there instead of answering, which
    /// some servers cannot prevent. False if that was done already.
    fn withhold_tools(&mut self, calls: &[RawCall]) -> bool {
        let repeats = !calls.is_empty() && !self.withholds_tools;
        self.withholds_tools |= repeats;
        repeats
    }

    /// Ends the run with an answer, or asks once more for one that is not empty.
    fn finish(&mut self, text: String, round: Round) {
        if !text.trim().is_empty() {
            self.state = RunState::Ended(Outcome::Answered(text));
        } else if !self.asked_for_answer
            && round == Round::WithTools
            && self.round + 1 < self.config.max_rounds
        {
            self.asked_for_answer = true;
            self.context.push(Message::user(prompt::EMPTY_ANSWER));
        } else {
            let rounds = counted(self.round, "round");
            self.state = RunState::Ended(Outcome::Failed(format!(
                "the model gave no answer in {rounds}; ask more narrowly, raise the limit of rounds, or choose another model"
            )));
        }
    }

    /// Opens the calls in the toolbox and counts searches in a row, which a call resets.
    fn open_calls(&mut self, planned: &[PlannedCall]) {
        let (mut has_calls, mut has_searches) = (false, false);
        for PlannedCall { action, .. } in planned {
            match action {
                Action::Search(_) => has_searches = true,
                Action::Read(_) | Action::Refused(_) => {}
                Action::Call(tool, _) => {
                    has_calls = true;
                    self.toolbox.open_call(&tool.id);
                    let id = tool.id.to_string();
                    if !self.figures.tools_used.contains(&id) {
                        self.figures.tools_used.push(id);
                    }
                }
            }
        }
        if has_calls {
            self.searches_in_a_row = 0;
        } else if has_searches {
            self.searches_in_a_row += 1;
        }
    }

    /// The announcement of a search on the web, and the event of the call.
    fn call_events(&self, planned: &PlannedCall) -> Vec<Event> {
        let mut events = Vec::new();
        if let Action::Call(tool, arguments) = &planned.action
            && let announced = &self.config.announced
            && announced
                .iter()
                .any(|name| model_names::denotes(name, &tool.id))
            && let Some(content) = announce::of_search(self.context.question(), arguments)
        {
            events.push(Event::Thinking { content });
        }
        events.extend(call_event(planned));
        events
    }

    /// The result's text for the model, after its event. A long one is kept to be read on in.
    fn search_text(
        &mut self,
        call_id: &str,
        request: &SearchRequest,
        mut found: Found,
        injection: &Injection,
        events: &mut Vec<Event>,
    ) -> SourcedText {
        self.history.note(&request.queries, &mut found);
        events.push(search_event(call_id, request, &found));
        self.figures.searches += 1;
        let more = self.config.find.as_ref().map(|find| find.more);
        let more = more.unwrap_or_default();
        let answer = meta_tools::answer(&found, injection, self.config.style, more);
        SourcedText {
            source: TOOL_SEARCH.into(),
            text: answer.to_string(),
        }
    }

    fn result_text(
        &mut self,
        call: &ToolCall,
        source: String,
        result: ToolResult,
        events: &mut Vec<Event>,
    ) -> SourcedText {
        let max_bytes = self.config.max_result_bytes;
        let result = match self.config.result_format {
            ResultFormat::Json => result,
            ResultFormat::Compact => result.compacted(max_bytes),
        };
        let result = match self.config.protocol {
            // The model of a plan cannot read on.
            Protocol::Plan => result.truncated(max_bytes),
            Protocol::Native | Protocol::Manual => result.shortened(max_bytes, |text| {
                self.long_results
                    .keep(LongText::of(&source, text), max_bytes)
            }),
        };
        events.push(result_event(call, &result));
        SourcedText {
            source,
            text: result.to_model_text(),
        }
    }

    fn injection_events(&mut self, injection: &Injection) -> Vec<Event> {
        let mut events = Vec::new();
        let used = self.toolbox.tokens();
        let added = self.toolbox.tokens_by_tool(&injection.added);
        let tokens = added.iter().map(|(_, tokens)| tokens).sum();
        if !injection.evicted.is_empty() {
            self.figures.tools_evicted += injection.evicted.len();
            events.push(Event::ToolsEvicted {
                tools: injection.evicted.clone(),
                reason: EvictionReason::Budget,
                // The toolbox has the new tools already; their event comes next.
                budget: self.budget(used.saturating_sub(tokens)),
            });
        }
        if !injection.added.is_empty() {
            self.figures.tools_injected += injection.added.len();
            let by_tool = |(tool, tokens)| InjectedTool { tool, tokens };
            events.push(Event::ToolsInjected {
                tools: injection.added.clone(),
                tokens,
                tokens_by_tool: added.into_iter().map(by_tool).collect(),
                budget: self.budget(used),
            });
        }
        events
    }

    /// The budget of which these tokens are used.
    fn budget(&self, used: usize) -> ToolBudget {
        let limit = match self.config.style {
            Style::Inject => Some(self.toolbox.budget_tokens()),
            Style::Dispatch => None,
        };
        ToolBudget { used, limit }
    }

    fn remember_calls(&mut self, text: String, planned: &[PlannedCall]) {
        // Without function calling the calls are JSON in the text. `tool_calls` would require
        // results with the role `tool`.
        let tool_calls = match self.config.protocol {
            Protocol::Native => planned.iter().map(|planned| planned.call.clone()).collect(),
            Protocol::Manual | Protocol::Plan => Vec::new(),
        };
        self.context.push(Message::Assistant {
            content: text,
            tool_calls,
        });
    }

    fn remember_results(&mut self, outputs: Vec<Output>) {
        let form = match self.config.protocol {
            Protocol::Native => ResultForm::Separate,
            Protocol::Manual => ResultForm::Together,
            // The results of all steps go into one message at the end of the plan.
            Protocol::Plan => return,
        };
        self.context.push_results(outputs, form);
    }

    fn refresh_when_due(&mut self) {
        let Some(interval) = self.config.refresh_interval else {
            return;
        };
        // A plan is read once more when its results are there.
        if self.config.protocol == Protocol::Plan {
            return;
        }
        if interval > 0 && self.round.is_multiple_of(interval) {
            self.context.refresh();
        }
    }
}

/// The source of a result: the tool, or this program if the tool was not called or did not answer.
fn source_of(tool: &Tool, result: &ToolResult) -> String {
    match result.error_code {
        // A failed precondition quotes the results of other tools, which are untrusted too.
        None | Some(ErrorCode::Failed | ErrorCode::Panicked | ErrorCode::Precondition) => {
            tool.id.to_string()
        }
        Some(_) => OWN_SOURCE.to_owned(),
    }
}

fn work_of(planned: &[PlannedCall], are_plan_steps: bool) -> Work {
    let mut work = Work::default();
    for PlannedCall { call, action } in planned {
        match action {
            Action::Search(request) => work.searches.push(request.clone()),
            Action::Call(tool, arguments) => {
                work.calls.push(Call {
                    id: call.id.clone(),
                    tool: tool.clone(),
                    arguments: arguments.clone(),
                    is_plan_step: are_plan_steps,
                });
            }
            Action::Read(_) | Action::Refused(_) => {}
        }
    }
    work
}

/// Each call with what came of it.
fn answered(planned: Vec<PlannedCall>, done: WorkDone) -> Vec<(ToolCall, Answered)> {
    let (mut found, mut results) = (done.searches.into_iter(), done.calls.into_iter());
    let mut all = Vec::with_capacity(planned.len());
    for PlannedCall { call, action } in planned {
        let answer = match action {
            Action::Search(request) => {
                let found = found.next().unwrap_or_default();
                Answered::Search(request, Box::new(found))
            }
            Action::Call(tool, _) => {
                let result = results.next().unwrap_or_else(|| {
                    ToolResult::error(ErrorCode::Failed, "the call gave no result")
                });
                Answered::Call(tool, result)
            }
            Action::Read(page) => Answered::Read(page),
            Action::Refused(result) => Answered::Refused(result),
        };
        all.push((call, answer));
    }
    all
}

/// The event that announces a call. `None` for a search, whose event comes with its hits.
fn call_event(planned: &PlannedCall) -> Option<Event> {
    if matches!(planned.action, Action::Search(_)) {
        return None;
    }
    let ToolCall {
        id,
        name,
        arguments,
    } = planned.call.clone();
    // Invalid JSON is shown as text, cut, since the model may have written megabytes.
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
        matched: found.matched,
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
