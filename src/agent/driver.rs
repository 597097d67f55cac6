//! The only async part: carries out what a run asks for, under its limits, and tells what happens.
//!
//! Each turn is one task. It ends when the run does, at its time to live, when it is stopped, or
//! when nobody listens any more; whichever it is, the turn is saved and the stream ends in one
//! [`Event::Done`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::{Tool, ToolId};

use crate::agent::context::Context;
use crate::agent::event::Event;
use crate::agent::recommend;
use crate::agent::reference::References;
use crate::agent::reply::{Reply, ReplyBuilder};
use crate::agent::run::{Outcome, Run, Step};
use crate::agent::think::Piece;
use crate::agent::{AgentState, Question, RunningTurn};
use crate::finder::Style;
use crate::finder::search::{Found, SearchRequest};
use crate::finder::toolbox::{Toolbox, ToolboxConfig, ToolboxState};
use crate::gate::{
    Answer, ApprovalRequest, Approver, Call, Caller, Decision, Directory, Ledger, Passage, Passed,
};
use crate::llm::{ChatRequest, LlmError};
use crate::session::{ConversationId, Figures, SessionError, Sessions, TurnEnd, TurnStatus};
use crate::tools::Callable;

/// Events that wait for a slow listener before the run waits too.
const EVENT_QUEUE: usize = 256;
/// Longest wait for a listener that does not read; then it counts as gone.
const LISTENER_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a turn in a task of its own, which holds what is `held` to its end.
pub(super) fn start(slot: RunningTurn, question: Question, held: impl Send + 'static) -> RunStream {
    let (events, receiver) = mpsc::channel(EVENT_QUEUE);
    let conversation = slot.conversation.clone();
    let guard = (!question.detached).then(|| slot.token.clone().drop_guard());
    let listener = Listener {
        events,
        token: slot.token.clone(),
        detached: question.detached,
    };
    tokio::spawn(async move {
        conduct(slot, question, listener).await;
        drop(held);
    });
    RunStream {
        conversation,
        receiver,
        next_id: 1,
        ended: false,
        _stop_on_drop: guard,
    }
}

/// The events of one run, numbered from 1.
#[derive(Debug)]
pub struct RunStream {
    conversation: ConversationId,
    receiver: mpsc::Receiver<Event>,
    next_id: u64,
    ended: bool,
    /// Stops the run when the stream is dropped; none for a detached one.
    _stop_on_drop: Option<DropGuard>,
}

impl RunStream {
    /// The conversation that answers.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }

    /// The next event with its number, `None` after [`Event::Done`].
    pub async fn next(&mut self) -> Option<(u64, Event)> {
        if self.ended {
            return None;
        }
        let event = self
            .receiver
            .recv()
            .await
            .unwrap_or_else(|| self.broken_off());
        self.ended = matches!(event, Event::Done { .. });
        let id = self.next_id;
        self.next_id += 1;
        Some((id, event))
    }

    /// The terminal event of a run whose task died: a bug, but the listener's stream still ends
    /// properly.
    fn broken_off(&self) -> Event {
        done(
            &self.conversation,
            0,
            TurnStatus::Failed,
            Figures::default(),
        )
    }
}

/// Who is told.
struct Listener {
    events: mpsc::Sender<Event>,
    token: CancellationToken,
    detached: bool,
}

impl Listener {
    async fn tell(&self, event: Event) {
        let sent = timeout(LISTENER_TIMEOUT, self.events.send(event)).await;
        if !matches!(sent, Ok(Ok(()))) && !self.detached {
            self.token.cancel();
        }
    }

    async fn tell_all(&self, events: Vec<Event>) {
        for event in events {
            self.tell(event).await;
        }
    }
}

/// One turn from the saved question to the terminal event.
async fn conduct(slot: RunningTurn, question: Question, listener: Listener) {
    let started = Instant::now();
    let (shared, conversation) = (slot.shared.clone(), slot.conversation.clone());
    let caller = question.caller(&conversation);
    let question = question.text;
    let (number, run) = match prepare(&shared, &caller, &conversation, &question).await {
        Ok((number, run)) => (number, run.through(shared.gate.clone(), caller.clone())),
        Err(error) => {
            listener.tell(Event::Error { content: error }).await;
            drop(slot);
            return listener
                .tell(done(
                    &conversation,
                    0,
                    TurnStatus::Failed,
                    Figures::default(),
                ))
                .await;
        }
    };
    let catalog_tokens = {
        let shared = shared.clone();
        spawn_blocking(move || shared.catalog_tokens())
    };
    let mut turn = Turn::new(&shared, &listener, caller, run, started);
    let (status, error) = turn.follow(&slot.token).await;
    let end = turn.end(status, error, catalog_tokens).await;
    let (answer, mut figures) = (end.answer.clone(), end.figures.clone());
    save(&shared.sessions, &conversation, number, end, &listener).await;
    // From here on the next question may come: nothing that follows changes the answer.
    let token = slot.token.clone();
    drop(slot);
    if status == TurnStatus::Answered {
        let questions = recommended(&shared, &question, &answer, &token).await;
        figures.recommended =
            tell_recommended(&shared, &conversation, number, questions, &listener).await;
    }
    listener
        .tell(done(&conversation, number, status, figures))
        .await;
}

fn done(conversation: &ConversationId, turn: i64, status: TurnStatus, figures: Figures) -> Event {
    Event::Done {
        conversation: conversation.to_string(),
        turn,
        status,
        figures: Box::new(figures),
    }
}

/// Saves the question, then loads what the conversation remembers.
///
/// # Errors
/// What cannot be saved or read, for people.
async fn prepare(
    shared: &Arc<AgentState>,
    caller: &Caller,
    conversation: &ConversationId,
    question: &str,
) -> Result<(i64, Run), String> {
    let (shared, conversation, question) =
        (shared.clone(), conversation.clone(), question.to_owned());
    let owner = caller.who.clone();
    let prepared = spawn_blocking(move || {
        let number = shared
            .sessions
            .begin_turn(&conversation, &owner, &question)?;
        let history = shared
            .sessions
            .history(&conversation, number, shared.config.run.window)?;
        let state = shared.sessions.toolbox(&conversation)?;
        let state = state
            .and_then(|state| serde_json::from_value(state).ok())
            .unwrap_or_default();
        let context = Context::new(history, question, shared.config.run.window);
        Ok::<_, SessionError>((number, new_run(&shared, &state, context)))
    });
    match prepared.await {
        Ok(prepared) => prepared.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the turn could not be prepared: {error}")),
    }
}

fn new_run(shared: &AgentState, state: &ToolboxState, context: Context) -> Run {
    let mut config = shared.config.run.clone();
    if config.environment.is_empty() {
        config.environment = format!("Date: {} (UTC)", date(SystemTime::now()));
    }
    let dispatch = config.style == Style::Dispatch;
    let budget_tokens = if dispatch {
        usize::MAX
    } else {
        shared.config.toolbox.budget_tokens
    };
    let mut toolbox = Toolbox::new(
        ToolboxConfig {
            budget_tokens,
            ..shared.config.toolbox
        },
        shared.config.count_tokens,
    );
    pinned(shared)
        .into_iter()
        .for_each(|tool| toolbox.pin(tool));
    if shared.search.count() < shared.config.search_from_tools {
        config.find = None;
        shared
            .search
            .tools()
            .into_iter()
            .for_each(|tool| toolbox.pin(tool));
        return Run::new(config, shared.config.count_tokens, toolbox, context);
    }
    let toolbox = toolbox.restore(state, |id| shared.search.tool(id));
    Run::new(config, shared.config.count_tokens, toolbox, context)
}

/// The user's own tools, then the pins of the settings.
fn pinned(shared: &AgentState) -> Vec<Arc<Tool>> {
    let mut tools = shared.own_tools.clone();
    if !shared.config.pins.is_empty() {
        let request = SearchRequest {
            select: shared.config.pins.clone(),
            limit: 1,
            ..SearchRequest::default()
        };
        tools.extend(
            shared
                .search
                .search(&request)
                .hits
                .into_iter()
                .map(|hit| hit.tool),
        );
    }
    tools
}

async fn save(
    sessions: &Arc<Sessions>,
    conversation: &ConversationId,
    number: i64,
    end: TurnEnd,
    listener: &Listener,
) {
    let (sessions, conversation) = (sessions.clone(), conversation.clone());
    let saved = spawn_blocking(move || sessions.end_turn(&conversation, number, &end)).await;
    if let Ok(Err(error)) = saved {
        listener
            .tell(Event::Error {
                content: error.to_string(),
            })
            .await;
    }
}

/// Three questions, or none when the model gives none in time.
async fn recommended(
    shared: &AgentState,
    question: &str,
    answer: &str,
    token: &CancellationToken,
) -> Option<Vec<String>> {
    let within = shared.config.recommend_within?;
    let asked = timeout(within, words(shared, recommend::request(question, answer)));
    let text = tokio::select! {
        biased;
        () = token.cancelled() => return None,
        text = asked => text.ok()?.ok()?,
    };
    recommend::read(&text)
}

async fn tell_recommended(
    shared: &AgentState,
    conversation: &ConversationId,
    number: i64,
    questions: Option<Vec<String>>,
    listener: &Listener,
) -> Vec<String> {
    let Some(questions) = questions else {
        return Vec::new();
    };
    let (sessions, conversation, kept) = (
        shared.sessions.clone(),
        conversation.clone(),
        questions.clone(),
    );
    let saved = spawn_blocking(move || sessions.recommend(&conversation, number, &kept)).await;
    if let Ok(Err(error)) = saved {
        tracing::warn!(%error, "recommended questions were not kept");
    }
    listener
        .tell(Event::Recommend {
            count: questions.len(),
            content: questions.clone(),
        })
        .await;
    questions
}

/// A model's whole text, unseen by the listener.
async fn words(shared: &AgentState, request: ChatRequest) -> Result<String, LlmError> {
    let mut deltas = shared.model.stream(request).await?;
    let mut builder = ReplyBuilder::default();
    while let Some(delta) = deltas.next().await {
        builder.push(delta?);
        if builder.is_overlong() {
            break;
        }
    }
    Ok(builder.finish().1.text)
}

/// A turn under way.
struct Turn<'a> {
    shared: &'a Arc<AgentState>,
    listener: &'a Listener,
    caller: Caller,
    ledger: Ledger,
    run: Run,
    started: Instant,
    first_token_ms: Option<u64>,
    /// What the user has been told in this round: the answer, should it break off here.
    said: String,
    references: References,
}

impl<'a> Turn<'a> {
    fn new(
        shared: &'a Arc<AgentState>,
        listener: &'a Listener,
        caller: Caller,
        run: Run,
        started: Instant,
    ) -> Self {
        let (first_token_ms, said, references) = (None, String::new(), References::default());
        Turn {
            shared,
            listener,
            caller,
            ledger: Ledger::default(),
            run,
            started,
            first_token_ms,
            said,
            references,
        }
    }

    /// Goes round by round until something ends it.
    async fn follow(&mut self, token: &CancellationToken) -> (TurnStatus, Option<String>) {
        let time_to_live = self.shared.config.time_to_live;
        let outcome = tokio::select! {
            biased;
            () = token.cancelled() => Err(TurnStatus::Stopped),
            () = sleep(time_to_live) => Err(TurnStatus::Expired),
            outcome = self.rounds() => Ok(outcome),
        };
        match outcome {
            Ok(Outcome::Answered(answer)) => {
                self.said = answer;
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
            let events = match self.run.next_step() {
                Step::Done(outcome) => return outcome,
                Step::CallModel(request) => match self.ask(request).await {
                    Ok(reply) => self.run.model_answered(reply),
                    Err(error) => return Outcome::Failed(error.to_string()),
                },
                Step::CallTools(work) => {
                    let told: Vec<_> = work
                        .calls
                        .iter()
                        .map(|call| (call.id.clone(), call.tool.id.clone()))
                        .collect();
                    let (founds, passed) =
                        tokio::join!(self.search(work.searches), self.call(work.calls));
                    let mut results = Vec::with_capacity(passed.len());
                    for ((id, tool), passed) in told.into_iter().zip(passed) {
                        self.references.collect(&passed.result.data);
                        self.listener
                            .tell_all(gated(id, tool, &passed).into_iter().collect())
                            .await;
                        results.push(passed.result);
                    }
                    self.run.tools_answered(founds, results)
                }
            };
            for event in events {
                self.tell(event).await;
            }
        }
    }

    async fn ask(&mut self, request: ChatRequest) -> Result<Reply, LlmError> {
        self.said.clear();
        let mut deltas = self.shared.model.stream(request).await?;
        let mut builder = ReplyBuilder::default();
        while let Some(delta) = deltas.next().await {
            let pieces = builder.push(delta?);
            self.show(pieces).await;
            if builder.is_overlong() {
                let reason = "the answer does not end".to_owned();
                return Err(LlmError::Garbage {
                    reason,
                    excerpt: crate::printable::excerpt(&self.said, 120),
                });
            }
        }
        let (pieces, reply) = builder.finish();
        self.show(pieces).await;
        Ok(reply)
    }

    async fn show(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Thinking(content) => self.tell(Event::Thinking { content }).await,
                Piece::Text(content) if self.run.streams_text() => {
                    self.tell(Event::Text { content }).await
                }
                Piece::Text(_) => {}
            }
        }
    }

    async fn tell(&mut self, event: Event) {
        if let Event::Text { content } = &event {
            self.said.push_str(content);
        }
        if self.first_token_ms.is_none()
            && matches!(event, Event::Text { .. } | Event::Thinking { .. })
        {
            self.first_token_ms = Some(elapsed_ms(self.started));
        }
        self.listener.tell(event).await;
    }

    async fn search(&self, searches: Vec<SearchRequest>) -> Vec<Found> {
        if searches.is_empty() {
            return Vec::new();
        }
        let search = self.shared.search.clone();
        let found = spawn_blocking(move || {
            searches
                .iter()
                .map(|request| search.search(request))
                .collect()
        });
        found.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a search panicked");
            Vec::new()
        })
    }

    /// What became of these calls at the gate, in call order.
    async fn call(&self, calls: Vec<Call>) -> Vec<Passed> {
        let config = &self.shared.config;
        let directory: &AgentState = self.shared;
        let asker = Asker {
            shared: self.shared,
            listener: self.listener,
            caller: &self.caller,
        };
        let passage = Passage {
            caller: &self.caller,
            ledger: &self.ledger,
            directory,
            approver: &asker,
            call_timeout: config.call_timeout,
        };
        let passing = stream::iter(calls).map(|call| self.shared.gate.pass(passage, call));
        passing
            .buffered(config.parallel_calls.max(1))
            .collect()
            .await
    }

    /// What is kept of the turn, after telling its last events but one.
    async fn end(
        mut self,
        status: TurnStatus,
        error: Option<String>,
        catalog_tokens: JoinHandle<usize>,
    ) -> TurnEnd {
        let cancelled = self.run.cancel();
        self.listener.tell_all(cancelled).await;
        let idle = self.run.end_turn();
        self.listener.tell_all(idle.into_iter().collect()).await;
        if let Some(content) = error.clone() {
            self.listener.tell(Event::Error { content }).await;
        }
        let references = self.references.into_vec();
        if !references.is_empty() {
            self.listener
                .tell(Event::Reference {
                    count: references.len(),
                    content: references.clone(),
                })
                .await;
        }
        let mut figures = self.run.figures().clone();
        figures.first_token_ms = self.first_token_ms;
        figures.total_ms = elapsed_ms(self.started);
        let whole = catalog_tokens.await.unwrap_or_default() as i64 * i64::from(figures.rounds);
        figures.tokens_saved = whole - self.run.shown_tokens() as i64;
        figures.references = references;
        let toolbox = serde_json::to_value(self.run.toolbox().state()).unwrap_or_default();
        TurnEnd {
            status,
            answer: self.said,
            error,
            figures,
            toolbox,
        }
    }
}

/// Asks whoever listens.
struct Asker<'a> {
    shared: &'a AgentState,
    listener: &'a Listener,
    caller: &'a Caller,
}

#[async_trait]
impl Approver for Asker<'_> {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        let Some(pending) = self.shared.approvals.open(&self.caller.who) else {
            let reason = "too many questions are open; answer some first".to_owned();
            return Answer::Refused {
                by: "the gate".into(),
                reason,
            };
        };
        let within = self.shared.gate.policies().approval_timeout_s.duration();
        let expires_in_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (id, request) = (pending.id().to_owned(), Box::new(request));
        self.listener
            .tell(Event::ApprovalRequired {
                id,
                expires_in_ms,
                request,
            })
            .await;
        pending.answer(within).await
    }
}

impl Directory for AgentState {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let own = self.own_tools.iter().find(|tool| tool.id == *id);
        own.cloned().or_else(|| self.search.tool(id))
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.toolsets.iter().find_map(|toolset| toolset.find(id))
    }
}

/// What is told of a call's way through the gate: nothing where it was let through as it is.
fn gated(id: String, tool: ToolId, passed: &Passed) -> Option<Event> {
    let report = &passed.report;
    if report.ruling.decision == Decision::Allow && report.changes.is_empty() {
        return None;
    }
    Some(Event::Gate {
        id,
        tool,
        class: report.ruling.class,
        decision: report.ruling.decision,
        rule: report.ruling.rule.clone(),
        changes: report.changes.clone(),
        answer: report.answer.clone(),
    })
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The day as `YYYY-MM-DD`, by Howard Hinnant's civil-from-days.
fn date(now: SystemTime) -> String {
    let days = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_735_689_599, "2024-12-31"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
