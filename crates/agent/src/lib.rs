//! The agent: a model that sees one tool at first, `tool_search`, and the rest when it needs them.
//!
//! A question becomes a [`Run`](run::Run), a state machine without I/O. The [driver] executes its
//! steps and sends its [events](event::Event). The agent uses the index through the trait
//! [`ToolSearch`].

mod agents;
mod announce;
pub mod event;
pub mod hooks;
pub mod prompt;
pub mod context;
pub mod config;
pub mod recommend;
pub mod profile;
mod record;
mod lease;
pub mod reference;
pub mod run;
pub mod skills;
mod turn_tools;
pub mod driver;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolscout_index::Version;
use toolscout_index::{Tool, ToolId};

pub use agents::{Agents, ServedAgent};
pub use config::{AgentConfig, Protocol, RunConfig};
pub use driver::RunStream;
pub use event::Event;
pub use turn_tools::QuestionTools;

use hooks::{Hook, Hooks};
use record::Record;

use toolscout_base::principal::OwnerScope;
use toolscout_finder::finder::toolbox;
use toolscout_finder::finder::{SearchTrails, ToolSearch, model_names};
use toolscout_gate::gate::{
    Answer, ApprovalBoard, Approvals, AuditLog, BoardError, Caller, Gate, OpenApproval, Policies,
    WaitingApproval,
};
use toolscout_gate::llm::ChatModel;
use toolscout_gate::tools::{AbsentServer, Callable, Registry, Toolset, UserTool};
use toolscout_gate::usage::Recorder;
use toolscout_state::session::{ConversationId, SessionError, Sessions, TurnEvents};

/// Longest question, in bytes.
pub const MAX_QUESTION_BYTES: usize = 256 << 10;

/// How long a stopped run may take to save its turn.
const SAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers questions with tools. Cheap to clone; clones share conversations and running turns.
///
/// - Guarantee: a conversation has one run at a time, and every run ends with [`Event::Done`].
///   Every call passes the [`Gate`].
/// - Cost: a run is a task, with at most [`RunConfig::max_rounds`] rounds of the model and its
///   calls.
/// - Failure: a question that cannot begin is a [`StartError`]. What fails later is an event, and
///   the turn is saved as failed.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<AgentState>,
}

/// What all turns of an agent share.
struct AgentState {
    turns: Arc<Turns>,
    model: Arc<dyn ChatModel>,
    search: Arc<dyn ToolSearch>,
    toolsets: Vec<Arc<dyn Toolset>>,
    /// Decides on every call.
    gate: Arc<Gate>,
    /// The user's own tools: always visible.
    own_tools: Vec<Arc<Tool>>,
    hooks: Hooks,
    config: AgentConfig,
    /// Tokens of the whole catalog at a version. Cached, since counting ten thousand tools takes a
    /// second.
    catalog_tokens: Mutex<Option<(Version, usize)>>,
}

/// The turns of an agent, or of several that share them.
struct Turns {
    /// The open requests for approval.
    approvals: Approvals,
    sessions: Arc<Sessions>,
    /// The tasks of all runs, so that closing can wait for them.
    tasks: TaskTracker,
    /// One run per conversation.
    running: Mutex<BTreeMap<ConversationId, Running>>,
    tool_tokens: Mutex<ToolTokens>,
    /// What the searches of conversations found, where that teaches a usage memory.
    trails: SearchTrails,
}

impl std::ops::Deref for AgentState {
    type Target = Turns;

    fn deref(&self) -> &Turns {
        &self.turns
    }
}

/// Tokens of tool definitions in all turns since the agent was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolTokens {
    /// Number of turns.
    pub turns: u64,
    /// Tokens, if the whole catalog had been shown in every round.
    pub catalog: u64,
    /// Tokens of the tools that were shown, in all rounds.
    pub shown: u64,
}

/// A run in progress.
struct Running {
    /// The person or key that asked.
    owner: String,
    /// Stops the run.
    token: CancellationToken,
    /// The number of its turn; 0 until its question is saved.
    turn: Arc<AtomicI64>,
    /// Its events so far.
    record: Arc<Mutex<Record>>,
}

/// A question to an agent.
#[derive(Clone, Debug)]
pub struct Question {
    text: String,
    conversation: Option<ConversationId>,
    detached: bool,
    who: String,
    identity: Option<String>,
    tools: Option<QuestionTools>,
}

impl Question {
    /// A question that begins a conversation.
    pub fn new(text: impl Into<String>) -> Self {
        Question {
            text: text.into(),
            conversation: None,
            detached: false,
            who: "library".into(),
            identity: None,
            tools: None,
        }
    }

    /// Continues this conversation.
    pub fn in_conversation(mut self, id: ConversationId) -> Self {
        self.conversation = Some(id);
        self
    }

    /// Sets the person or key that asks: the owner of the conversation, who is named in the audit
    /// log.
    pub fn asked_by(mut self, who: impl Into<String>) -> Self {
        self.who = who.into();
        self
    }

    /// Sets the user on whose behalf the question is asked. Arguments that the policies bind may
    /// name no other user.
    pub fn on_behalf_of(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Limits the answer to the tools of a profile, if there is one. The user's own tools are left
    /// out, unless the profile names them.
    pub fn limited_to(mut self, tools: impl Into<Option<QuestionTools>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// Continues the run to its end even after the stream is dropped.
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    fn caller(&self, conversation: &ConversationId) -> Caller {
        let mut caller = Caller {
            who: self.who.clone(),
            identity: self.identity.clone(),
            conversation: conversation.to_string(),
            ..Caller::default()
        };
        if let Some(QuestionTools { profile, .. }) = &self.tools {
            caller.classes = profile.classes();
            caller.place = profile.place();
        }
        caller
    }
}

/// Why a run cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The conversation is answering another question.
    #[error("conversation {0} is still answering; wait for its end or stop it")]
    Busy(ConversationId),
    /// The conversation is answering a question of another owner.
    #[error("conversation {0} is not yours; leave its id out to begin a new one")]
    NotOwned(ConversationId),
    /// The question is empty.
    #[error("the question is empty; say what is wanted")]
    Empty,
    /// The question is too long.
    #[error(
        "the question has {bytes} bytes, {MAX_QUESTION_BYTES} are allowed; put long material where a tool can read it"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl Agent {
    /// Starts to build an agent.
    ///
    /// ```no_run
    /// # fn example(model: toolscout_gate::llm::Endpoint, catalog: toolscout_index::Catalog) -> Result<(), toolscout_agent::BuildError> {
    /// let agent = toolscout_agent::Agent::builder().llm(model).catalog(catalog).max_rounds(5).build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    /// Starts to answer a question. The events come through the stream. Needs a Tokio runtime.
    ///
    /// Dropping the stream stops the run unless the question is detached.
    ///
    /// # Errors
    /// [`StartError`]; [`StartError::Busy`] while the conversation answers another question.
    pub fn start(&self, question: Question) -> Result<RunStream, StartError> {
        self.start_with_guard(question, ())
    }

    /// As [`Agent::start`]. Drops `guard` when the run ends, even if the stream was dropped before.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn start_with_guard(
        &self,
        mut question: Question,
        guard: impl Send + 'static,
    ) -> Result<RunStream, StartError> {
        if question.text.trim().is_empty() {
            return Err(StartError::Empty);
        }
        if question.text.len() > MAX_QUESTION_BYTES {
            return Err(StartError::TooLong {
                bytes: question.text.len(),
            });
        }
        let conversation = question
            .conversation
            .take()
            .unwrap_or_else(ConversationId::fresh);
        let running = self.register(&conversation, &question.who)?;
        Ok(driver::start(running, question, guard))
    }

    /// Stops a conversation's run; false when none within `scope` is in progress.
    pub fn stop(&self, scope: &OwnerScope, conversation: &ConversationId) -> bool {
        match self.shared.running.lock().get(conversation) {
            // To anyone else it looks as if nothing ran.
            Some(run) if scope.covers(&run.owner) => {
                run.token.cancel();
                true
            }
            _ => false,
        }
    }

    /// Waits for all runs to end, detached ones too. Those that are still running after `grace` are
    /// stopped, and their turns saved.
    pub async fn close(&self, grace: Duration) {
        let tasks = &self.shared.tasks;
        tasks.close();
        if timeout(grace, tasks.wait()).await.is_ok() {
            return;
        }
        for run in self.shared.running.lock().values() {
            run.token.cancel();
        }
        // A run that was stopped still saves its turn.
        if timeout(SAVE_TIMEOUT, tasks.wait()).await.is_err() {
            tracing::warn!(
                runs = tasks.len(),
                "runs did not end when they were stopped"
            );
        }
    }

    /// Answers an [`Event::ApprovalRequired`]; false when no request with this id is open within
    /// reach.
    pub fn answer_approval(&self, scope: &OwnerScope, id: &str, answer: Answer) -> bool {
        self.shared.approvals.answer(scope, id, answer)
    }

    /// As [`Agent::answer_approval`], for requests of every node that shares the store.
    ///
    /// # Errors
    /// [`BoardError`].
    pub async fn answer_approval_anywhere(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: Answer,
    ) -> Result<bool, BoardError> {
        let approvals = &self.shared.approvals;
        approvals.answer_anywhere(scope, id, answer).await
    }

    /// True while a run of a conversation is in progress within `scope`.
    pub fn is_running(&self, scope: &OwnerScope, conversation: &ConversationId) -> bool {
        match self.shared.running.lock().get(conversation) {
            Some(run) => scope.covers(&run.owner),
            None => false,
        }
    }

    /// The open requests for approval of this owner's run in a conversation, on any node that shares
    /// the store.
    pub async fn open_approvals(
        &self,
        owner: &str,
        conversation: &ConversationId,
    ) -> Vec<OpenApproval> {
        let approvals = &self.shared.approvals;
        approvals
            .waiting_anywhere(owner, conversation.as_str())
            .await
    }

    /// The open requests for approval of runs of this process, within `scope`.
    pub fn waiting_approvals(&self, scope: &OwnerScope) -> Vec<WaitingApproval> {
        self.shared.approvals.waiting_within(scope)
    }

    /// The events so far of a turn that runs; `None` if it does not, within `scope`.
    pub fn running_events(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        turn: i64,
    ) -> Option<TurnEvents> {
        let running = self.shared.running.lock();
        let run = running.get(conversation)?;
        if !scope.covers(&run.owner) || run.turn.load(Ordering::Acquire) != turn {
            return None;
        }
        Some(run.record.lock().so_far())
    }

    /// The name by which a question chooses it.
    pub fn name(&self) -> &str {
        &self.config().name
    }

    /// Its settings.
    pub fn config(&self) -> &AgentConfig {
        &self.shared.config
    }

    /// The gate that decides on every call.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.shared.gate
    }

    /// Tokens of tool definitions in all turns so far.
    pub fn tool_tokens(&self) -> ToolTokens {
        *self.shared.tool_tokens()
    }

    /// The stored conversations.
    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.shared.sessions
    }

    /// The model's name.
    pub fn model_name(&self) -> &str {
        self.shared.model.name()
    }

    /// Marks a conversation as running, so that it answers one question at a time.
    fn register(
        &self,
        conversation: &ConversationId,
        owner: &str,
    ) -> Result<RunningTurn, StartError> {
        match self.shared.running.lock().entry(conversation.clone()) {
            // Before `Busy`: another owner learns only that the id is taken.
            Entry::Occupied(run) if run.get().owner != owner => {
                Err(StartError::NotOwned(conversation.clone()))
            }
            Entry::Occupied(_) => Err(StartError::Busy(conversation.clone())),
            Entry::Vacant(vacant) => {
                let run = Running {
                    owner: owner.to_owned(),
                    token: CancellationToken::new(),
                    turn: Arc::default(),
                    record: Arc::default(),
                };
                let run = vacant.insert(run);
                Ok(RunningTurn {
                    shared: self.shared.clone(),
                    conversation: conversation.clone(),
                    token: run.token.clone(),
                    turn: run.turn.clone(),
                    record: run.record.clone(),
                })
            }
        }
    }
}

impl Toolset for Agent {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.shared.callable(id)
    }

    fn absent_servers(&self) -> Vec<AbsentServer> {
        self.shared.absent_servers()
    }
}

impl Turns {
    fn tool_tokens(&self) -> MutexGuard<'_, ToolTokens> {
        self.tool_tokens.lock()
    }

    /// Counts the tool definitions of a turn.
    fn count_turn(&self, catalog: u64, shown: u64) {
        let mut tokens = self.tool_tokens();
        tokens.turns += 1;
        tokens.catalog += catalog;
        tokens.shown += shown;
    }
}

impl AgentState {
    /// The user's own tool with this id.
    fn own_tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.own_tools.iter().find(|tool| tool.id == *id).cloned()
    }

    /// What calls the tool with this id.
    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.toolsets.iter().find_map(|toolset| toolset.find(id))
    }

    /// The servers of its tools that cannot be called now.
    fn absent_servers(&self) -> Vec<AbsentServer> {
        let toolsets = self.toolsets.iter();
        toolsets
            .flat_map(|toolset| toolset.absent_servers())
            .collect()
    }

    /// Tools that are always visible, because their sets say so.
    fn always_loaded(&self) -> Vec<String> {
        let mut tools = Vec::new();
        for toolset in &self.toolsets {
            tools.extend(toolset.always_loaded().iter().map(ToString::to_string));
        }
        tools
    }

    fn tokens_of(&self, tools: &[Arc<Tool>]) -> usize {
        let count = self.config.count_tokens;
        let tokens = tools
            .iter()
            .map(|tool| toolbox::spec_tokens(&model_names::spec(tool), count));
        tokens.sum()
    }

    /// Tokens of all tools of the catalog.
    fn catalog_tokens(&self) -> usize {
        // The lock is held while counting: turns that start together wait for one count, on
        // blocking threads, and do not make one each.
        let mut cached = self.catalog_tokens.lock();
        let version = self.search.version();
        if let Some((counted_at, tokens)) = &*cached
            && *counted_at == version
        {
            return *tokens;
        }
        let tokens = self.tokens_of(&self.search.tools());
        *cached = Some((version, tokens));
        tokens
    }
}

/// The registration of a conversation's run. Dropping it lets the conversation answer again.
struct RunningTurn {
    shared: Arc<AgentState>,
    conversation: ConversationId,
    token: CancellationToken,
    turn: Arc<AtomicI64>,
    record: Arc<Mutex<Record>>,
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        // Runs also when the turn's task panics, so that a bug does not leave the conversation
        // busy.
        self.shared.running.lock().remove(&self.conversation);
    }
}

/// Builds an agent.
#[derive(Default)]
pub struct AgentBuilder {
    model: Option<Arc<dyn ChatModel>>,
    search: Option<Arc<dyn ToolSearch>>,
    toolsets: Vec<Arc<dyn Toolset>>,
    registry: Registry,
    turns: Option<Arc<Turns>>,
    sessions: Option<Arc<Sessions>>,
    audit: Option<Arc<AuditLog>>,
    gate: Option<Arc<Gate>>,
    usage: Recorder,
    board: Option<Arc<dyn ApprovalBoard>>,
    hooks: Hooks,
    config: AgentConfig,
}

/// Why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No model was given.
    #[error("an agent needs a model; give one with `llm`")]
    NoModel,
    /// No catalog was given.
    #[error("an agent needs a catalog; give one with `catalog`")]
    NoCatalog,
    /// The database of conversations cannot be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl AgentBuilder {
    /// Sets the model.
    pub fn llm(self, model: impl ChatModel + 'static) -> Self {
        self.shared_llm(Arc::new(model))
    }

    /// Sets a model that is shared with other agents.
    pub fn shared_llm(mut self, model: Arc<dyn ChatModel>) -> Self {
        self.model = Some(model);
        self
    }

    /// Sets the catalog to search.
    pub fn catalog(self, catalog: impl ToolSearch + 'static) -> Self {
        self.shared_catalog(Arc::new(catalog))
    }

    /// Sets a catalog that is shared with other agents.
    pub fn shared_catalog(mut self, catalog: Arc<dyn ToolSearch>) -> Self {
        self.search = Some(catalog);
        self
    }

    /// Adds code around the model and the tools of each run.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.0.push(Arc::new(hook));
        self
    }

    /// Adds a tool of the user's own. It is always visible and need not be in the catalog.
    pub fn tool(mut self, tool: impl UserTool + 'static) -> Self {
        self.registry = self.registry.with(tool);
        self
    }

    /// Adds tools of the user's own, each as with [`AgentBuilder::tool`].
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = self.registry.joined(registry);
        self
    }

    /// Adds a set of tool implementations. The first set that has a tool is used.
    pub fn tools(mut self, toolset: impl Toolset + 'static) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Stores conversations here instead of in memory.
    pub fn sessions(mut self, sessions: Arc<Sessions>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Shares conversations, running turns and open approvals with another agent, which then stops
    /// the runs of both and answers their approvals. Its sessions and its board of approvals count.
    pub fn sharing(mut self, other: &Agent) -> Self {
        self.turns = Some(other.shared.turns.clone());
        self
    }

    /// Sets the audit log. Without one, calls are not logged.
    pub fn audit(mut self, audit: Arc<AuditLog>) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Records searches and calls of this agent, unless its gate is shared: that has a record of its own.
    pub fn usage(mut self, usage: Recorder) -> Self {
        self.usage = usage;
        self
    }

    /// Sets a gate that is shared with others, in place of one with the policies and the audit log of
    /// this agent.
    pub fn gate(mut self, gate: Arc<Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Lets other nodes see and answer open requests for approval.
    pub fn approval_board(mut self, board: Arc<dyn ApprovalBoard>) -> Self {
        self.board = Some(board);
        self
    }

    /// Sets the gate's policies.
    pub fn policies(mut self, policies: Policies) -> Self {
        self.config.policies = policies;
        self
    }

    /// Replaces all settings. Setters called later change single ones.
    pub fn config(mut self, config: AgentConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the maximum number of the model's answers per question; at least 1.
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.config.run.max_rounds = rounds.max(1);
        self
    }

    /// Sets the token budget of the visible tools.
    pub fn tool_budget_tokens(mut self, tokens: usize) -> Self {
        self.config.toolbox.budget_tokens = tokens;
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// [`BuildError`] naming what is missing.
    pub fn build(self) -> Result<Agent, BuildError> {
        let own_tools = self.registry.definitions().cloned().map(Arc::new).collect();
        // The user's own tools come first, so that no other set can take their ids.
        let mut toolsets: Vec<Arc<dyn Toolset>> = vec![Arc::new(self.registry)];
        toolsets.extend(self.toolsets);
        let turns = match self.turns {
            Some(turns) => turns,
            None => Arc::new(Turns {
                approvals: Approvals::over(self.board),
                sessions: match self.sessions {
                    Some(sessions) => sessions,
                    None => Arc::new(Sessions::in_memory()?),
                },
                tasks: TaskTracker::new(),
                running: Mutex::default(),
                tool_tokens: Mutex::default(),
                trails: SearchTrails::default(),
            }),
        };
        let gate = match self.gate {
            Some(gate) => gate,
            None => {
                let gate = Gate::new(self.config.policies.clone()).with_usage(self.usage);
                Arc::new(match self.audit {
                    Some(audit) => gate.with_audit(audit),
                    None => gate,
                })
            }
        };
        let shared = AgentState {
            gate,
            turns,
            model: self.model.ok_or(BuildError::NoModel)?,
            search: self.search.ok_or(BuildError::NoCatalog)?,
            toolsets,
            own_tools,
            hooks: self.hooks,
            config: self.config,
            catalog_tokens: Mutex::default(),
        };
        Ok(Agent {
            shared: Arc::new(shared),
        })
    }
}

#[cfg(test)]
mod tests;
