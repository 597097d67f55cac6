//! Drives a run: calls the model and the tools within the limits, and sends the events. The only
//! async part of the agent.
//!
//! Each turn is one task. It ends when the run ends, at its time to live, when it is stopped, or
//! when the stream is dropped. In every case the turn is saved, and the stream ends with one
//! [`Event::Done`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::ToolId;

use crate::config::RunConfig;
use crate::context::{Context, MAX_PAST_TURNS};
use crate::event::{Event, InjectedTool};
use crate::hooks::Stop;
use crate::lease::LeasedTurn;
use crate::prompt::Fence;
use crate::recommend;
use crate::record::Record;
use crate::reference::References;
use crate::run::{Outcome, Run, Step, Work, WorkDone};
use crate::turn_tools::TurnTools;
use crate::{AgentState, Question, RunningTurn};
use toolscout_base::clock::millis;
use toolscout_finder::finder::search::{Found, SearchRequest, off_async_threads, why_not_searched};
use toolscout_finder::finder::toolbox::{Toolbox, ToolboxConfig, ToolboxState};
use toolscout_finder::finder::{Style, recorded, trail};
use toolscout_gate::gate::{
    Answer, ApprovalRequest, Approver, Call, CallOutcome, Caller, Gate, GateContext, Ledger, Report,
};
use toolscout_gate::llm::reply::{Reply, ReplyBuilder, complete};
use toolscout_gate::llm::think::Piece;
use toolscout_gate::llm::{ChatRequest, LlmError};
use toolscout_gate::tools::ToolResult;
use toolscout_gate::usage::Origin;
use toolscout_state::session::{
    ConversationId, Figures, PastTurn, SessionError, Sessions, TurnEnd, TurnStatus,
};

/// Events queued for a slow receiver before the run waits for it.
const EVENT_QUEUE: usize = 256;
/// Longest wait for a receiver that does not read; then it counts as gone.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Earlier turns whose questions are not recommended again.
const EARLIER_QUESTIONS: usize = 5;

/// Starts a turn in its own task, which drops `guard` when it ends.
pub(super) fn start(
    running: RunningTurn,
    question: Question,
    guard: impl Send + 'static,
) -> RunStream {
    let (sender, receiver) = mpsc::channel(EVENT_QUEUE);
    let conversation = running.conversation.clone();
    let origin = question.caller(&conversation).origin();
    let stop_on_drop = (!question.detached).then(|| running.token.clone().drop_guard());
    let events = EventSender {
        sender,
        token: running.token.clone(),
        detached: question.detached,
        record: running.record.clone(),
        gate: running.shared.gate.clone(),
        origin,
    };
    let tasks = running.shared.tasks.clone();
    tasks.spawn(async move {
        run_turn(running, question, events).await;
        drop(guard);
    });
    RunStream {
        conversation,
        receiver,
        next_id: 1,
        ended: false,
        _stop_on_drop: stop_on_drop,
    }
}

/// The events of one run, numbered from 1.
#[derive(Debug)]
pub struct RunStream {
    conversation: ConversationId,
    receiver: mpsc::Receiver<Event>,
    next_id: u64,
    ended: bool,
    /// Stops the run when the stream is dropped; `None` for a detached run.
    _stop_on_drop: Option<DropGuard>,
}

impl RunStream {
    /// The conversation of the run.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// The next event with its number, `None` after [`Event::Done`].
    pub async fn next(&mut self) -> Option<(u64, Event)> {
        if self.ended {
            return None;
        }
        let event = self.receiver.recv().await.unwrap_or_else(|| self.aborted());
        self.ended = matches!(event, Event::Done { .. });
        let id = self.next_id;
        self.next_id += 1;
        Some((id, event))
    }

    /// The last event of a run whose task panicked. That is a bug, but the stream still ends
    /// properly.
    fn aborted(&self) -> Event {
        failed_event(&self.conversation)
    }
}

/// Sends the events of a run to its stream.
struct EventSender {
    sender: mpsc::Sender<Event>,
    token: CancellationToken,
    detached: bool,
    /// What is kept of the events.
    record: Arc<Mutex<Record>>,
    /// Knows which arguments are secrets, and records the use of tools.
    gate: Arc<Gate>,
    /// Who asks.
    origin: Origin,
}

impl EventSender {
    /// Sends an event. Stops the run if nobody receives it, unless the run is detached.
    async fn send(&self, event: Event) {
        self.record.lock().push(&event, self.gate.redaction());
        if let Event::ToolsInjected { tokens_by_tool, .. } = &event {
            let mut loaded = Vec::with_capacity(tokens_by_tool.len());
            for InjectedTool { tool, tokens } in tokens_by_tool {
                loaded.push((tool.clone(), *tokens));
            }
            self.gate.usage().loaded(&self.origin, loaded);
        }
        // A dropped receiver fails at once. The timeout is for one that is kept and not read.
        let sent = timeout(RECEIVER_TIMEOUT, self.sender.send(event)).await;
        if !matches!(sent, Ok(Ok(()))) && !self.detached {
            self.token.cancel();
        }
    }

    async fn send_all(&self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.send(event).await;
        }
    }
}

/// Runs one turn, from saving the question to the last event.
async fn run_turn(running: RunningTurn, question: Question, events: EventSender) {
    let started = Instant::now();
    let (shared, conversation) = (running.shared.clone(), running.conversation.clone());
    let caller = question.caller(&conversation);
    let tools = TurnTools::new(shared.clone(), question.tools);
    let question = question.text;
    let prepared = match prepare(&shared, &tools, &caller, &conversation, &question).await {
        Ok(prepared) => prepared,
        Err(error) => {
            events.send(Event::Error { content: error }).await;
            // Before the last event: whoever has seen it may ask the next question at once.
            drop(running);
            return events.send(failed_event(&conversation)).await;
        }
    };
    let (number, run) = prepared;
    running.turn.store(number, Ordering::Release);
    let lease = LeasedTurn {
        sessions: shared.sessions.clone(),
        conversation: conversation.clone(),
        number,
        token: running.token.clone(),
        record: running.record.clone(),
    }
    .keep();
    // Counting a large catalog takes a second, so it runs in parallel to the turn.
    let catalog_tokens = {
        let tools = tools.clone();
        spawn_blocking(move || tools.tokens())
    };
    let mut turn = Turn::new(&shared, &tools, &events, caller, run, started);
    let (status, error) = turn.run_to_end(&running.token).await;
    let end = turn.end(number, status, error, catalog_tokens).await;
    let (answer, mut figures) = (end.answer.clone(), end.figures.clone());
    save(&shared.sessions, &conversation, number, end, &events).await;
    drop(lease);
    // The conversation accepts its next question from here on: the answer is final.
    let token = running.token.clone();
    drop(running);
    if status == TurnStatus::Answered
        && let Some(within) = shared.config.recommend_within
        && let Some(questions) = {
            let earlier = earlier_questions(&shared, &conversation, number).await;
            let request = recommend::request(&earlier, &question, &answer);
            recommended_questions(&shared, request, within, &token).await
        }
    {
        save_recommended(&shared.sessions, &conversation, number, questions.clone()).await;
        figures.recommended = questions.clone();
        events
            .send(Event::Recommend {
                count: questions.len(),
                content: questions,
            })
            .await;
    }
    events
        .send(done(&conversation, number, status, figures))
        .await;
}

/// The last event of a turn that failed before it had a number.
fn failed_event(conversation: &ConversationId) -> Event {
    done(conversation, 0, TurnStatus::Failed, Figures::default())
}

fn done(conversation: &ConversationId, turn: i64, status: TurnStatus, figures: Figures) -> Event {
    Event::Done {
        conversation: conversation.to_string(),
        turn,
        status,
        figures: Box::new(figures),
    }
}

/// Saves the question, then loads the conversation's history and toolbox.
///
/// # Errors
/// A message for the user: what cannot be saved or read.
async fn prepare(
    shared: &Arc<AgentState>,
    tools: &TurnTools,
    caller: &Caller,
    conversation: &ConversationId,
    question: &str,
) -> Result<(i64, Run), String> {
    let (shared, tools, caller, conversation, question) = (
        shared.clone(),
        tools.clone(),
        caller.clone(),
        conversation.clone(),
        question.to_owned(),
    );
    let prepared = spawn_blocking(move || {
        // The question is saved first, so that a turn that fails is in the history too.
        let number = shared.sessions.begin_turn(
            &conversation,
            &caller.who,
            &shared.config.name,
            &question,
        )?;
        let state = shared.sessions.toolbox(&conversation)?;
        // A state that cannot be read costs some searches, which is better than losing the
        // conversation.
        let state: ConversationState = state
            .and_then(|state| serde_json::from_value(state).ok())
            .unwrap_or_default();
        let numbers = state.first_turn..number;
        let history = shared
            .sessions
            .past_turns(&conversation, numbers, MAX_PAST_TURNS)?;
        let run = &shared.config.run;
        let context = Context::new(question, state.fence(run), shared.config.count_tokens)
            .after(&history, run.context_tokens / 2);
        let run = new_run(&shared, &tools, &state.toolbox, context, caller);
        Ok::<_, SessionError>((number, run))
    });
    match prepared.await {
        Ok(prepared) => prepared.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the turn could not be prepared: {error}")),
    }
}

/// What an agent keeps of a conversation for its next turn, besides questions and answers.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ConversationState {
    #[serde(flatten)]
    toolbox: ToolboxState,
    /// The marker around untrusted text. The same in all turns, since it is in the system prompt,
    /// with which every prompt begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    marker: Option<String>,
    /// The first turn that the model still sees.
    #[serde(default)]
    first_turn: i64,
}

impl ConversationState {
    fn fence(&self, config: &RunConfig) -> Fence {
        let known = self.marker.as_deref().map(Fence::with_marker);
        config.fence.clone().or(known).unwrap_or_default()
    }
}

fn new_run(
    shared: &AgentState,
    tools: &TurnTools,
    state: &ToolboxState,
    context: Context,
    caller: Caller,
) -> Run {
    let mut config = shared.config.run.clone();
    // The date and not the time, so that the prompt stays the same for a day and providers can
    // cache it.
    if config.environment.is_empty() {
        config.environment = format!("Date: {} (UTC)", chrono::Utc::now().format("%F"));
    }
    // In dispatch style the found tools take no room in the list of tools.
    let budget_tokens = match config.style {
        Style::Dispatch => usize::MAX,
        Style::Inject => shared.config.toolbox.budget_tokens,
    };
    let mut toolbox = Toolbox::new(
        ToolboxConfig {
            budget_tokens,
            ..shared.config.toolbox
        },
        shared.config.count_tokens,
    );
    for tool in tools.pinned() {
        toolbox.pin(tool);
    }
    if tools.search().count() < shared.config.search_from_tools {
        // A small catalog is shown whole, as far as the filter lets its tools be found.
        config.shows_all = true;
        let filter = config.find.as_ref().map(|find| &find.filter);
        for tool in tools.search().tools() {
            if filter.is_none_or(|filter| filter.accepts(&tool)) {
                toolbox.pin(tool);
            }
        }
    } else {
        toolbox = toolbox.restore(state, |id| tools.search().tool(id));
    }
    Run::new(
        config,
        shared.config.count_tokens,
        toolbox,
        context,
        shared.gate.clone(),
        caller,
    )
}

async fn save(
    sessions: &Arc<Sessions>,
    conversation: &ConversationId,
    number: i64,
    end: TurnEnd,
    events: &EventSender,
) {
    let (sessions, conversation) = (sessions.clone(), conversation.clone());
    let saved = spawn_blocking(move || sessions.end_turn(&conversation, number, &end)).await;
    if let Ok(Err(error)) = saved {
        let content = error.to_string();
        events.send(Event::Error { content }).await;
    }
}

/// The last turns before this one, to recommend what was not asked yet.
async fn earlier_questions(
    shared: &Arc<AgentState>,
    conversation: &ConversationId,
    number: i64,
) -> Vec<PastTurn> {
    let (sessions, conversation) = (shared.sessions.clone(), conversation.clone());
    let read =
        spawn_blocking(move || sessions.past_turns(&conversation, 0..number, EARLIER_QUESTIONS));
    // Without them a question may be repeated, which is no error of the turn.
    read.await.ok().and_then(Result::ok).unwrap_or_default()
}

/// Asks the model for three further questions. `None` when it gives none in time.
async fn recommended_questions(
    shared: &AgentState,
    request: ChatRequest,
    within: Duration,
    token: &CancellationToken,
) -> Option<Vec<String>> {
    let text = tokio::select! {
        biased;
        () = token.cancelled() => return None,
        text = timeout(within, complete(&*shared.model, request)) => text.ok()?.ok()?.text,
    };
    recommend::parse(&text)
}

async fn save_recommended(
    sessions: &Arc<Sessions>,
    conversation: &ConversationId,
    number: i64,
    questions: Vec<String>,
) {
    let (sessions, conversation) = (sessions.clone(), conversation.clone());
    let saved = spawn_blocking(move || sessions.recommend(&conversation, number, &questions)).await;
    // The user sees them anyway, so this is not an error of the turn.
    if let Ok(Err(error)) = saved {
        tracing::warn!(%error, "the recommended questions were not saved");
    }
}

/// A search that was made.
struct Searched {
    hits: Found,
    /// Its queries, where the catalog learns from calls.
    queries: Option<Vec<String>>,
}

/// A call that was made.
struct Called {
    id: String,
    tool: ToolId,
    result: ToolResult,
    /// The gate's, if it was asked.
    report: Option<Report>,
}

/// Why a model's reply is missing.
enum NoReply {
    /// A hook stopped the run, for this reason.
    Stopped(String),
    /// The model gave none.
    Failed(LlmError),
}

impl NoReply {
    fn of_hook(Stop(reason): Stop) -> Self {
        NoReply::Stopped(reason)
    }
}

/// A running turn.
struct Turn<'a> {
    shared: &'a Arc<AgentState>,
    tools: &'a TurnTools,
    events: &'a EventSender,
    caller: Caller,
    ledger: Ledger,
    run: Run,
    started: Instant,
    first_token_ms: Option<u64>,
    /// The text sent in this round. It becomes the answer if the turn is stopped now.
    text: String,
    references: References,
}

impl<'a> Turn<'a> {
    fn new(
        shared: &'a Arc<AgentState>,
        tools: &'a TurnTools,
        events: &'a EventSender,
        caller: Caller,
        run: Run,
        started: Instant,
    ) -> Self {
        Turn {
            shared,
            tools,
            events,
            caller,
            ledger: Ledger::default(),
            run,
            started,
            first_token_ms: None,
            text: String::new(),
            references: References::default(),
        }
    }

    /// Runs round by round until the run ends, is stopped, or reaches its time to live.
    async fn run_to_end(&mut self, token: &CancellationToken) -> (TurnStatus, Option<String>) {
        let time_to_live = self.shared.config.time_to_live;
        // In this order: a stop wins over an answer that is ready at the same moment. `rounds` is
        // dropped at its current await, which aborts its requests; `end` then gives the open calls
        // a result.
        let outcome = tokio::select! {
            biased;
            () = token.cancelled() => Err(TurnStatus::Stopped),
            () = sleep(time_to_live) => Err(TurnStatus::Expired),
            outcome = self.rounds() => Ok(outcome),
        };
        match outcome {
            Ok(Outcome::Answered(answer)) => {
                self.text = answer;
                (TurnStatus::Answered, None)
            }
            Ok(Outcome::Failed(error)) => (TurnStatus::Failed, Some(error)),
            Err(TurnStatus::Expired) => {
                let seconds = time_to_live.as_secs_f64();
                (
                    TurnStatus::Expired,
                    Some(format!(
                        "no answer within {seconds} s; ask more narrowly or raise the time to live"
                    )),
                )
            }
            Err(status) => (status, None),
        }
    }

    async fn rounds(&mut self) -> Outcome {
        loop {
            if let Some(compacted) = self.run.fit_context() {
                self.send(compacted).await;
            }
            let events = match self.run.next_step() {
                Step::Done(outcome) => return outcome,
                Step::CallModel(request) => match self.call_model(request).await {
                    Ok(reply) => self.run.model_answered(reply),
                    Err(NoReply::Stopped(reason)) => return Outcome::Failed(reason),
                    Err(NoReply::Failed(error)) => match self.recover(&error) {
                        Some(compacted) => vec![compacted],
                        None => return Outcome::Failed(error.to_string()),
                    },
                },
                Step::CallTools(work) => match self.call_tools(work).await {
                    Ok(events) => events,
                    Err(Stop(reason)) => return Outcome::Failed(reason),
                },
            };
            for event in events {
                self.send(event).await;
            }
        }
    }

    /// Runs the searches and calls of one answer in parallel.
    async fn call_tools(&mut self, work: Work) -> Result<Vec<Event>, Stop> {
        let (search_results, called) =
            tokio::join!(self.search(work.searches), self.call(work.calls));
        let called = called?;
        let mut results = Vec::with_capacity(called.len());
        let mut used_tools = Vec::new();
        for Called {
            id,
            tool,
            result,
            report,
        } in called
        {
            self.references.collect(&result.data);
            if let Some(report) = report {
                if report.is_of_call(&result) {
                    used_tools.extend(self.shared.trails.called(self.conversation(), &tool));
                }
                self.events.send(gate_event(id, tool, &report)).await;
            }
            results.push(result);
        }
        trail::teach(Arc::clone(self.tools.search()), used_tools).await;
        // After the calls of the same answer, which were made for what was found before.
        let mut found = Vec::with_capacity(search_results.len());
        for Searched { queries, hits } in search_results {
            if let Some(queries) = queries {
                let trails = &self.shared.trails;
                trails.found(self.conversation(), &queries, &hits);
            }
            found.push(hits);
        }
        Ok(self.run.tools_answered(WorkDone {
            searches: found,
            calls: results,
        }))
    }

    /// Who asks, and in which conversation.
    fn conversation(&self) -> (&str, &str) {
        (&self.caller.who, &self.caller.conversation)
    }

    /// Asks the model, with the hooks around it.
    ///
    /// # Errors
    /// Why there is no reply.
    async fn call_model(&mut self, mut request: ChatRequest) -> Result<Reply, NoReply> {
        let hooks = &self.shared.hooks;
        let before = hooks.before_model(&self.caller, &mut request).await;
        before.map_err(NoReply::of_hook)?;
        let reply = self.stream_reply(request).await;
        let mut reply = reply.map_err(NoReply::Failed)?;
        let hooks = &self.shared.hooks;
        let after = hooks.after_model(&self.caller, &mut reply).await;
        after.map_err(NoReply::of_hook)?;
        Ok(reply)
    }

    /// Makes a prompt shorter that was too long for the model, so that it is sent once more.
    fn recover(&mut self, error: &LlmError) -> Option<Event> {
        match error {
            LlmError::ContextTooLong { limit, .. } => self.run.context_refused(*limit),
            _ => None,
        }
    }

    async fn stream_reply(&mut self, request: ChatRequest) -> Result<Reply, LlmError> {
        self.text.clear();
        let mut deltas = self.shared.model.stream(request).await?;
        let mut builder = ReplyBuilder::default();
        while let Some(delta) = deltas.next().await {
            let pieces = builder.push(delta?);
            self.send_pieces(pieces).await;
            if builder.is_overlong() {
                return Err(LlmError::malformed("the answer does not end", &self.text));
            }
        }
        let (pieces, reply) = builder.finish();
        self.send_pieces(pieces).await;
        Ok(reply)
    }

    async fn send_pieces(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Thinking(content) => self.send(Event::Thinking { content }).await,
                Piece::Text(content) if self.run.streams_text() => {
                    self.send(Event::Text { content }).await
                }
                // Text in another protocol is JSON; the run extracts what the user sees.
                Piece::Text(_) => {}
            }
        }
    }

    async fn send(&mut self, event: Event) {
        if let Event::Text { content } = &event {
            self.text.push_str(content);
        }
        if self.first_token_ms.is_none()
            && matches!(event, Event::Text { .. } | Event::Thinking { .. })
        {
            self.first_token_ms = Some(elapsed_ms(self.started));
        }
        self.events.send(event).await;
    }

    async fn search(&self, searches: Vec<SearchRequest>) -> Vec<Searched> {
        if searches.is_empty() {
            return Vec::new();
        }
        let wanted = searches.len();
        let absent = self.shared.absent_servers();
        let (usage, origin) = (self.shared.gate.usage().clone(), self.caller.origin());
        let found = off_async_threads(self.tools.search(), move |search| {
            let learns = search.learns();
            let searched = |request: SearchRequest| {
                let mut hits = search.search(&request);
                hits.note_absent(&request.filter, absent.clone());
                // The definitions are recorded when they are loaded.
                recorded::searched(&usage, origin.clone(), &request, &hits, None);
                let queries = learns.then_some(request.queries);
                Searched { queries, hits }
            };
            searches.into_iter().map(searched).collect()
        });
        found.await.unwrap_or_else(|error| {
            let reason = why_not_searched(&error);
            let nothing = || Searched {
                hits: Found::nothing(reason),
                queries: None,
            };
            std::iter::repeat_with(nothing).take(wanted).collect()
        })
    }

    /// Makes these calls through the hooks and the gate. The results are in call order.
    async fn call(&self, calls: Vec<Call>) -> Result<Vec<Called>, Stop> {
        let config = &self.shared.config;
        let approver = EventApprover {
            shared: self.shared,
            events: self.events,
            caller: &self.caller,
        };
        let context = GateContext {
            caller: &self.caller,
            ledger: &self.ledger,
            directory: self.tools,
            approver: &approver,
            call_timeout: config.call_timeout,
        };
        stream::iter(calls)
            .map(|call| self.call_one(context, call))
            // Not `buffer_unordered`: the run takes the results in call order.
            .buffered(config.parallel_calls.max(1))
            .try_collect()
            .await
    }

    async fn call_one(&self, context: GateContext<'_>, mut call: Call) -> Result<Called, Stop> {
        let hooks = &self.shared.hooks;
        // As the model made it: a hook may change the call.
        let (id, tool) = (call.id.clone(), call.tool.id.clone());
        let answered = hooks.before_call(&self.caller, &mut call).await?;
        let (mut result, report) = match answered {
            Some(result) => (result, None),
            None => {
                let CallOutcome { result, report, .. } =
                    self.shared.gate.pass(context, call.clone()).await;
                (result, Some(report))
            }
        };
        hooks.after_call(&self.caller, &call, &mut result).await?;
        Ok(Called {
            id,
            tool,
            result,
            report,
        })
    }

    /// Sends the last events except [`Event::Done`], and returns what is saved of the turn.
    async fn end(
        mut self,
        number: i64,
        status: TurnStatus,
        error: Option<String>,
        catalog_tokens: JoinHandle<usize>,
    ) -> TurnEnd {
        self.events.record.lock().drop_answer(&self.text);
        self.events.send_all(self.run.cancel()).await;
        self.events.send_all(self.run.end_turn()).await;
        if let Some(content) = error.clone() {
            self.events.send(Event::Error { content }).await;
        }
        let references = self.references.into_vec();
        if !references.is_empty() {
            self.events
                .send(Event::Reference {
                    count: references.len(),
                    content: references.clone(),
                })
                .await;
        }
        let mut figures = self.run.figures().clone();
        figures.first_token_ms = self.first_token_ms;
        figures.total_ms = elapsed_ms(self.started);
        // Showing the whole catalog would have cost its tokens in every round.
        let whole = catalog_tokens.await.unwrap_or_default() as u64 * u64::from(figures.rounds);
        let shown = self.run.shown_tokens() as u64;
        figures.tokens_saved = whole as i64 - shown as i64;
        self.shared.count_turn(whole, shown);
        figures.references = references;
        let state = ConversationState {
            toolbox: self.run.toolbox().state(),
            marker: Some(self.run.context().fence().marker().to_owned()),
            first_turn: self.run.context().first_turn().unwrap_or(number),
        };
        let toolbox = serde_json::to_value(state).unwrap_or_default();
        TurnEnd {
            status,
            answer: self.text,
            error,
            figures,
            toolbox,
            events: self.events.record.lock().so_far(),
        }
    }
}

/// Requests approval by an event in the run's stream.
struct EventApprover<'a> {
    shared: &'a AgentState,
    events: &'a EventSender,
    caller: &'a Caller,
}

#[async_trait]
impl Approver for EventApprover<'_> {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        let within = self.shared.gate.policies().approval_timeout_s.duration();
        let approvals = &self.shared.approvals;
        let opened = approvals.open_anywhere(self.caller, request.clone(), within);
        let Some(pending) = opened.await else {
            return Answer::Refused {
                by: "the gate".into(),
                reason: "too many requests for approval are open; answer some first".into(),
            };
        };
        self.events
            .send(Event::ApprovalRequired {
                id: pending.id().to_owned(),
                expires_in_ms: millis(within),
                request: Box::new(request),
            })
            .await;
        pending.answer(within).await
    }
}

/// The event that reports the gate's decision.
fn gate_event(id: String, tool: ToolId, report: &Report) -> Event {
    let applied = &report.applied_rule;
    Event::Gate {
        id,
        tool,
        class: applied.class,
        decision: applied.decision,
        rule: applied.rule.clone(),
        changes: report.changes.clone(),
        answer: report.answer.clone(),
        warnings: report.warnings.clone(),
    }
}

fn elapsed_ms(since: Instant) -> u64 {
    millis(since.elapsed())
}
