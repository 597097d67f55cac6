//! The connections to all servers, each maintained by a task of its own, and the one function that
//! calls their tools.

mod subscriptions;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{CallToolResult, ServerCapabilities};
use rmcp::service::{Peer, RoleServer};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, broadcast, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

use crate::Limits;
use crate::changes::{ApprovedBefore, ComparedTools, Flag, OnChange};
use crate::config::{ServerConfig, Transport};
use crate::connection::{
    CallContext, CallError, Connection, Connector, Level, ListError, ListedTools, Notice, Offers,
};
use crate::inspect::inspect_text;
use crate::login::{Logins, has_authorization};
use crate::outcome::Outcome;
use crate::server_logs::ServerLogs;
use crate::sink::CatalogSink;
use crate::sync::{self, Synced};
use crate::tool_edits::ServerCall;
use subscriptions::Subscriptions;
use toolscout_gate::tools::{AbsentServer, Arguments, Callable, Called, ToolFailure, Toolset};
use toolscout_state::approved::Approved;

pub use subscriptions::Subscription;

/// Shortest time between two lists of a server's tools, whatever asks for the second.
const MIN_REFRESH: Duration = Duration::from_millis(200);
/// Longest pause after which a change that a server reports is looked at.
const MAX_CHANGE_PAUSE: Duration = Duration::from_secs(20);
/// Pause before a list that could not be written to the catalog is tried again.
const SYNC_RETRY: Duration = Duration::from_secs(5);
/// How often a connected server looks for decisions about its tools that another process has
/// written.
const LOOK_FOR_DECISIONS: Duration = Duration::from_secs(5);
/// After a connection that lasted this long, the pause before a reconnect starts at the shortest.
const STABLE: Duration = Duration::from_secs(30);
/// JSON-RPC's code of an error of this program.
const INTERNAL_ERROR: i32 = -32603;
/// Most skipped tools of one list that are logged one by one.
const MAX_LOGGED_SKIPS: usize = 5;

/// The configuration of a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolConfig {
    /// The servers to connect to; of two with one name the last is used.
    pub servers: Vec<ServerConfig>,
    /// How changed tools are handled.
    pub on_change: OnChange,
    /// What one server may send, and how long it may take.
    pub limits: Limits,
    /// The logins at servers.
    pub logins: Logins,
    /// Whether servers may ask for the folders of the client (roots), the only one.
    pub passes_roots: bool,
    /// Where the standard error of servers is kept.
    pub logs: ServerLogs,
}

impl PoolConfig {
    /// What connects to the servers.
    pub fn connector(&self) -> Connector {
        let connector = Connector {
            limits: self.limits,
            logins: self.logins.clone(),
            logs: self.logs.clone(),
            ..Connector::default()
        };
        if self.passes_roots {
            connector.roots.pass();
        }
        connector
    }
}

/// The connections to all servers. Cheap to clone; dropping the last clone closes them all.
///
/// - Guarantee: a server that fails or hangs delays no other. It is connected again until the pool
///   is closed.
/// - Cost: one task and one connection a server; how much it may send and how long it may take is
///   bounded by [`Limits`].
/// - Failure: [`CallError`] names the server and why it cannot be called; [`Pool::statuses`] tells it
///   without a call.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolState>,
}

struct PoolState {
    servers: BTreeMap<String, Arc<Server>>,
    connector: Connector,
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
    _stops_on_drop: DropGuard,
}

/// One server and the state of its connection.
struct Server {
    config: ServerConfig,
    limits: Limits,
    on_change: OnChange,
    state: watch::Sender<ServerState>,
    /// Tools that must not be called, with the reason.
    blocked: Mutex<BTreeMap<ToolId, String>>,
    /// Tools of the last list that are always in the tool lists of models.
    always_loaded: Mutex<Vec<ToolId>>,
    /// Notified when a call failed in a way that may mean a lost connection.
    recheck: Notify,
    calls: Semaphore,
    /// Notified when a call needs the server that was stopped.
    wanted: Notify,
    /// How to use its tools, as it said when it was connected last.
    instructions: Mutex<Option<Arc<str>>>,
    /// When it was last called.
    last_used: Mutex<Instant>,
    /// What it offered besides tools when it was stopped.
    kept_offers: Mutex<Arc<Offers>>,
    /// What it can do; `None` until it was connected for the first time.
    capabilities: Mutex<Option<ServerCapabilities>>,
    subscriptions: Subscriptions,
    /// Its tools that only apps call.
    for_apps: Mutex<Vec<Arc<Tool>>>,
    /// When the state of the connection began, and what was synced last.
    progress: Mutex<Progress>,
    /// Held while a list is written or a person's decision is, so that neither undoes the other.
    writing: Arc<tokio::sync::Mutex<()>>,
}

/// How far a server is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// When it was connected, or lost, or the program began to connect.
    since: SystemTime,
    /// When its last list of tools was written to the catalog.
    synced_at: Option<SystemTime>,
}

/// The state of one server's connection.
#[derive(Clone)]
enum ServerState {
    /// No attempt has ended yet.
    New,
    /// Its tools are in the catalog and can be called.
    Ready(Arc<Connection>),
    /// It is being reconnected.
    Down {
        reason: String,
        since: Instant,
        needs_login: bool,
    },
    /// It was stopped since nobody called it. Its tools are those of its last list, and a call starts it.
    Idle,
    /// A call starts it again.
    Waking,
}

/// How a server is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// The first attempt has not ended yet.
    Connecting,
    /// Its tools can be called.
    Connected,
    /// It went down or could not be reached, and is tried again and again.
    Reconnecting,
    /// It is connected once somebody has logged in: `toolscout mcp login`.
    NeedsLogin,
    /// Its process was stopped since nobody called it; the next call starts it.
    Idle,
}

impl ConnectionState {
    /// All of them.
    pub const ALL: [ConnectionState; 5] = [
        ConnectionState::Connecting,
        ConnectionState::Connected,
        ConnectionState::Reconnecting,
        ConnectionState::NeedsLogin,
        ConnectionState::Idle,
    ];

    /// The state in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::Reconnecting => "reconnecting",
            ConnectionState::NeedsLogin => "needs_login",
            ConnectionState::Idle => "idle",
        }
    }
}

/// The state of a server, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The server's name in the settings.
    pub server: String,
    /// How it is connected.
    pub state: ConnectionState,
    /// Whether its tools can be called.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
    /// When the state began.
    pub since: SystemTime,
    /// When its last list of tools was written to the catalog.
    pub synced_at: Option<SystemTime>,
}

impl Default for Pool {
    fn default() -> Self {
        Pool::new(PoolConfig::default())
    }
}

impl Pool {
    /// A pool of these servers, none of them connected yet. Of two with one name the last is used.
    pub fn new(config: PoolConfig) -> Self {
        let connector = config.connector();
        let PoolConfig {
            servers,
            on_change,
            limits,
            ..
        } = config;
        let mut by_name = BTreeMap::new();
        for config in servers {
            let name = config.name.clone();
            by_name.insert(name, Arc::new(Server::new(config, on_change, limits)));
        }
        let stop = CancellationToken::new();
        let shared = PoolState {
            servers: by_name,
            connector,
            _stops_on_drop: stop.clone().drop_guard(),
            stop,
            tasks: Mutex::default(),
        };
        Pool {
            shared: Arc::new(shared),
        }
    }

    /// Connects to every server and syncs its tools to the sink, until the pool is closed.
    /// Needs a Tokio runtime.
    pub fn start(&self, sink: Arc<dyn CatalogSink>) {
        let mut tasks = self.tasks();
        for server in self.shared.servers.values() {
            let task = ConnectionTask {
                server: Arc::clone(server),
                sink: Arc::clone(&sink),
                connector: self.shared.connector.clone(),
                stop: self.shared.stop.clone(),
            };
            tasks.spawn(task.run());
        }
    }

    /// Waits until every server is connected or has failed once, at most this long.
    pub async fn settled(&self, patience: Duration) {
        let settling = async {
            for server in self.shared.servers.values() {
                let mut state = server.state.subscribe();
                let _ = state
                    .wait_for(|state| !matches!(state, ServerState::New))
                    .await;
            }
        };
        let _ = timeout(patience, settling).await;
    }

    /// Every server's state, by name.
    pub fn statuses(&self) -> Vec<Status> {
        let mut statuses = Vec::with_capacity(self.shared.servers.len());
        for (name, server) in &self.shared.servers {
            let reason = server.unavailable();
            let Progress { since, synced_at } = *server.progress.lock();
            statuses.push(Status {
                server: name.clone(),
                state: server.connection_state(),
                available: reason.is_none(),
                reason,
                since,
                synced_at,
            });
        }
        statuses
    }

    /// Keeps lists of this server from being written while the guard lives, so that a person's
    /// decision about its tools is not undone. `None` for a server that is not connected here.
    pub async fn hold(&self, server: &str) -> Option<OwnedMutexGuard<()>> {
        let writing = Arc::clone(&self.shared.servers.get(server)?.writing);
        Some(writing.lock_owned().await)
    }

    /// Takes note of what a person has decided about a tool: why it is blocked, or that it is not.
    /// Its server's tools are listed anew.
    pub fn decided(&self, id: &ToolId, blocked: Option<&str>) {
        let Some(server) = self.shared.servers.get(id.server()) else {
            return;
        };
        match blocked {
            Some(reason) => server.blocked.lock().insert(id.clone(), reason.to_owned()),
            None => server.blocked.lock().remove(id),
        };
        server.recheck.notify_one();
    }

    /// Why the tools of this server cannot be called right now; `None` when they can.
    pub fn unavailable(&self, server: &str) -> Option<String> {
        match self.shared.servers.get(server) {
            Some(server) => server.unavailable(),
            None => Some("it is not connected here".into()),
        }
    }

    /// Why this tool cannot be called right now: its server is not available, or it changed after
    /// it was approved. `None` when it can.
    pub fn unavailable_tool(&self, id: &ToolId) -> Option<String> {
        if let Some(reason) = self.unavailable(id.server()) {
            return Some(reason);
        }
        let reason = self.blocked(id)?;
        Some(format!("{reason}, and nobody has accepted it since"))
    }

    /// Why this tool is blocked; `None` when it is not.
    pub fn blocked(&self, id: &ToolId) -> Option<String> {
        self.shared.servers.get(id.server())?.blocked(id)
    }

    /// How to use the tools of a server, as it said when it was connected last.
    pub fn instructions(&self, server: &str) -> Option<Arc<str>> {
        self.shared.servers.get(server)?.instructions.lock().clone()
    }

    /// Whether the owner wants tools of a server to be always loaded that has not been connected yet.
    pub fn awaits_pins(&self) -> bool {
        let mut servers = self.shared.servers.values();
        servers.any(|server| {
            server.config.edits.has_pins() && matches!(&*server.state.borrow(), ServerState::New)
        })
    }

    /// Tools that are always in the tool lists of models, because the owner or the server says so.
    pub fn always_loaded(&self) -> Vec<ToolId> {
        let mut tools = Vec::new();
        for server in self.shared.servers.values() {
            tools.extend(server.always_loaded.lock().iter().cloned());
        }
        tools
    }

    /// Whether this server is one of these, connected or not.
    pub fn has(&self, server: &str) -> bool {
        self.shared.servers.contains_key(server)
    }

    /// Tells when the prompts or resources of any server may have changed.
    pub fn offers_changed(&self) -> watch::Receiver<u64> {
        self.shared.connector.offers_changed.subscribe()
    }

    /// The tools of these servers that only apps call.
    pub fn tools_for_apps(&self, is_wanted: impl Fn(&Tool) -> bool) -> Vec<Arc<Tool>> {
        let mut tools = Vec::new();
        for server in self.shared.servers.values() {
            let of_server = server.for_apps.lock();
            tools.extend(of_server.iter().filter(|tool| is_wanted(tool)).cloned());
        }
        tools
    }

    /// What servers tell clients unasked, from now on.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.shared.connector.notices.listen()
    }

    /// What each of these servers can do; `None` for one that was never connected.
    pub fn capabilities(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<Option<ServerCapabilities>> {
        let mut capabilities = Vec::new();
        for (name, server) in &self.shared.servers {
            if is_wanted(name) {
                capabilities.push(server.capabilities.lock().clone());
            }
        }
        capabilities
    }

    /// Notes from which level on a session reads log messages, and tells it to the servers.
    pub async fn set_log_level(&self, session: &str, level: Level) {
        let levels = &self.shared.connector.log_levels;
        levels.set(session, level);
        let lowest = levels.lowest().unwrap_or(level);
        let mut setting = Vec::new();
        for server in self.shared.servers.values() {
            if let Some(connection) = server.ready_connection() {
                setting.push(async move { connection.set_log_level(lowest).await });
            }
        }
        join_all(setting).await;
    }

    /// Forgets the level of a session that has ended.
    pub fn forget_log_level(&self, session: &str) {
        self.shared.connector.log_levels.forget(session);
    }

    /// Sets the client whose folders servers may ask for, where they may.
    pub async fn set_client_with_roots(&self, client: Peer<RoleServer>) {
        self.shared.connector.roots.set_client(client);
        self.roots_changed().await;
    }

    /// Tells the servers that the folders of the client have changed.
    pub async fn roots_changed(&self) {
        if !self.shared.connector.roots.are_passed() {
            return;
        }
        let mut telling = Vec::new();
        for server in self.shared.servers.values() {
            if let Some(connection) = server.ready_connection() {
                telling.push(async move { connection.roots_changed().await });
            }
        }
        join_all(telling).await;
    }

    /// Subscribes a client to a resource of a server.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn subscribe(&self, server: &str, uri: String) -> Result<Subscription, CallError> {
        match self.shared.servers.get(server) {
            Some(server) => server.subscribe(uri).await,
            None => Err(CallError::NoServer {
                server: server.to_owned(),
            }),
        }
    }

    /// The names of all servers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.servers.keys().map(String::as_str)
    }

    /// What each server offers besides tools that is connected, or was stopped since nobody called it.
    pub async fn offers(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(String, Arc<Offers>)> {
        let mut asked = Vec::new();
        for (name, server) in &self.shared.servers {
            let connection = match &*server.state.borrow() {
                ServerState::Ready(connection) => Some(Arc::clone(connection)),
                ServerState::Idle | ServerState::Waking => None,
                ServerState::New | ServerState::Down { .. } => continue,
            };
            if is_wanted(name) {
                asked.push(async move {
                    let offers = match connection {
                        Some(connection) => connection.offers().await,
                        None => server.kept_offers(),
                    };
                    (name.clone(), offers)
                });
            }
        }
        join_all(asked).await
    }

    /// The connection to a server. Waits for one that is being made, or that was lost a moment ago.
    ///
    /// # Errors
    /// [`CallError`] if there is none.
    pub async fn connection(&self, server: &str) -> Result<Arc<Connection>, CallError> {
        match self.shared.servers.get(server) {
            Some(server) => server.connection().await,
            None => Err(CallError::NoServer {
                server: server.to_owned(),
            }),
        }
    }

    /// What calls a tool, where its server is one of these.
    pub fn callable(&self, id: &ToolId, calling: CallContext) -> Option<Arc<dyn Callable>> {
        if !self.has(id.server()) {
            return None;
        }
        Some(Arc::new(UpstreamTool {
            pool: self.clone(),
            id: id.clone(),
            calling,
        }))
    }

    /// Calls a tool. Every call of an MCP tool, by the agent or through the gateway, comes through
    /// here.
    ///
    /// # Errors
    /// [`CallError`]. A failure reported by the tool is a result with `is_error`.
    pub async fn call(
        &self,
        id: &ToolId,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let Some(server) = self.shared.servers.get(id.server()) else {
            return Err(CallError::UnknownServer {
                server: id.server().to_owned(),
                tool: id.to_string(),
            });
        };
        server.call(id, arguments, context).await
    }

    /// Closes every connection, and waits until the processes of the servers have ended.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks());
        // Each task closes its connection, which waits for the server's process.
        while tasks.join_next().await.is_some() {}
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.shared.tasks.lock()
    }
}

impl Toolset for Pool {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.callable(id, CallContext::default())
    }

    fn always_loaded(&self) -> Vec<ToolId> {
        Pool::always_loaded(self)
    }

    fn absent_servers(&self) -> Vec<AbsentServer> {
        let mut absent = Vec::new();
        for status in self.statuses() {
            // Only a server that cannot be called has a reason.
            if let Some(reason) = status.reason {
                absent.push(AbsentServer {
                    server: status.server,
                    reason,
                    since: status.since,
                });
            }
        }
        absent
    }
}

/// What a server answers to a call: the form of its own that a call of an MCP tool keeps.
pub type ServerAnswer = Result<CallToolResult, CallError>;

/// A tool of a server, as the agent and the gateway call it.
struct UpstreamTool {
    pool: Pool,
    id: ToolId,
    calling: CallContext,
}

#[async_trait]
impl Callable for UpstreamTool {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        self.call_in_own_form(arguments).await.outcome
    }

    async fn call_in_own_form(&self, arguments: Arguments) -> Called {
        let answer = self.pool.call(&self.id, arguments, &self.calling).await;
        Called {
            outcome: data_of(&answer),
            own: Some(Box::new(answer)),
        }
    }

    /// The server's limits extend with its progress.
    fn limits_itself(&self) -> bool {
        true
    }
}

/// The result with the fields that the owner of the server file wants.
async fn viewed(call: &ServerCall<'_>, result: CallToolResult) -> ServerAnswer {
    let view = call.view();
    match spawn_blocking(move || view(result)).await {
        Ok(result) => Ok(result),
        Err(error) => {
            tracing::error!(%error, "reading a result panicked");
            Err(CallError::Refused {
                code: INTERNAL_ERROR,
                message: "the tool was called, and its result cannot be shown".into(),
                data: None,
            })
        }
    }
}

/// The answer as data for a model.
fn data_of(answer: &ServerAnswer) -> Result<Value, ToolFailure> {
    let result = match answer {
        Ok(result) => result,
        Err(error) => return Err(ToolFailure::new(error.to_string())),
    };
    let outcome = Outcome::of(result);
    if outcome.is_error {
        return Err(ToolFailure::new(outcome.failure()));
    }
    Ok(outcome.to_value())
}

impl Server {
    fn new(config: ServerConfig, on_change: OnChange, limits: Limits) -> Self {
        let limits = config.limits(limits);
        let calls = Semaphore::new(limits.calls_at_once);
        let (state, _) = watch::channel(ServerState::New);
        Server {
            config,
            limits,
            on_change,
            state,
            blocked: Mutex::default(),
            always_loaded: Mutex::default(),
            recheck: Notify::new(),
            calls,
            wanted: Notify::new(),
            instructions: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
            kept_offers: Mutex::default(),
            capabilities: Mutex::default(),
            subscriptions: Subscriptions::default(),
            for_apps: Mutex::default(),
            progress: Mutex::new(Progress {
                since: SystemTime::now(),
                synced_at: None,
            }),
            writing: Arc::default(),
        }
    }

    fn connection_state(&self) -> ConnectionState {
        match &*self.state.borrow() {
            ServerState::Ready(_) => ConnectionState::Connected,
            ServerState::New | ServerState::Waking => ConnectionState::Connecting,
            ServerState::Idle => ConnectionState::Idle,
            ServerState::Down {
                needs_login: true, ..
            } => ConnectionState::NeedsLogin,
            ServerState::Down { .. } => ConnectionState::Reconnecting,
        }
    }

    fn unavailable(&self) -> Option<String> {
        match &*self.state.borrow() {
            ServerState::Ready(_) | ServerState::Idle | ServerState::Waking => None,
            ServerState::New => Some("it is still being connected".into()),
            ServerState::Down { reason, .. } => Some(reason.clone()),
        }
    }

    async fn call(
        &self,
        id: &ToolId,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let connection = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
            connection = self.connection() => connection?,
        };
        if let Some(reason) = self.blocked(id) {
            return Err(CallError::Blocked {
                tool: id.to_string(),
                reason,
            });
        }
        let edited = self.config.edits.call(id.name(), arguments);
        let call = edited.map_err(|reason| CallError::NotCalled {
            tool: id.to_string(),
            reason,
        })?;
        let total = self.limits.call.total;
        // The semaphore is never closed, so this fails only by the timeout.
        let Ok(_permit) = timeout(total, self.calls.acquire()).await else {
            return Err(CallError::Timeout { limit: total });
        };
        let arguments = call.arguments.clone();
        let called = connection.call(call.name, arguments, context).await;
        self.used();
        // Listing the tools again finds out whether the connection is still usable.
        if matches!(
            called,
            Err(CallError::Lost { .. }
                | CallError::NeedsLogin { .. }
                | CallError::Unavailable { .. })
        ) {
            self.recheck.notify_one();
        }
        match called {
            Ok(result) if call.has_view() => viewed(&call, result).await,
            called => called,
        }
    }

    /// Why a tool of the catalog must not be called; `None` if it may be.
    fn blocked(&self, id: &ToolId) -> Option<String> {
        let offered = self.config.edits.id_at_server(id);
        self.blocked.lock().get(&offered).cloned()
    }

    /// The connection. Waits for one that is being made, or that was lost a moment ago.
    async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.used();
        let mut state = self.state.subscribe();
        // A server that is down for long fails at once: the wait is for a restart that takes a
        // moment.
        let is_started = matches!(&*state.borrow(), ServerState::Idle | ServerState::Waking);
        if is_started {
            self.wanted.notify_one();
        }
        let patience = match &*state.borrow() {
            ServerState::Ready(connection) if connection.is_alive() => {
                return Ok(Arc::clone(connection));
            }
            ServerState::New | ServerState::Idle | ServerState::Waking => self.limits.connect,
            ServerState::Ready(_) => self.limits.call_patience,
            // A person takes longer than a call can wait.
            ServerState::Down {
                needs_login: true, ..
            } => Duration::ZERO,
            ServerState::Down { since, .. } => {
                self.limits.call_patience.saturating_sub(since.elapsed())
            }
        };
        let is_ready = |state: &ServerState| matches!(state, ServerState::Ready(connection) if connection.is_alive());
        // What cannot be started is told at once.
        let is_decided = |state: &ServerState| {
            is_ready(state) || (is_started && matches!(state, ServerState::Down { .. }))
        };
        if let Ok(Ok(state)) = timeout(patience, state.wait_for(is_decided)).await
            && let ServerState::Ready(connection) = &*state
        {
            return Ok(Arc::clone(connection));
        }
        let server = self.config.name.clone();
        let needs_login = self.connection_state() == ConnectionState::NeedsLogin;
        let reason = self
            .unavailable()
            .unwrap_or_else(|| "it was lost again".into());
        Err(match needs_login {
            true => CallError::NeedsLogin { server, reason },
            false => CallError::Unavailable { server, reason },
        })
    }

    /// The connection, if there is one now.
    fn ready_connection(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            ServerState::Ready(connection) => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    fn kept_offers(&self) -> Arc<Offers> {
        let kept = self.kept_offers.lock();
        Arc::clone(&kept)
    }

    fn used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// How long it has not been called; zero while it is, or while a client waits for changes.
    fn unused_for(&self) -> Duration {
        if !self.subscriptions.is_empty() {
            return Duration::ZERO;
        }
        if self.calls.available_permits() < self.limits.calls_at_once {
            return Duration::ZERO;
        }
        let last_used = self.last_used.lock();
        last_used.elapsed()
    }

    /// Whether it is stopped if nobody calls it.
    fn may_be_idle(&self) -> bool {
        matches!(self.config.transport, Transport::Stdio { .. }) && !self.limits.idle_stop.is_zero()
    }
}

/// The list that was synced last.
#[derive(Clone, Copy)]
struct SyncedList {
    hash: u64,
    /// The last decision of a person that it was compared with.
    decision: i64,
}

/// Why a connection has ended, or was not made.
struct End {
    reason: String,
    needs_login: bool,
    /// It was stopped since nobody called it.
    is_idle: bool,
}

impl End {
    fn of(reason: String) -> Self {
        End {
            reason,
            needs_login: false,
            is_idle: false,
        }
    }
}

/// The changes that a server reports. One that reports them all the time, or at every list, is listed
/// less and less often.
#[derive(Default)]
struct ReportedChanges {
    /// How long after a list the next report is looked at.
    pause: Duration,
}

impl ReportedChanges {
    /// Waits for a report, and for its turn. Cancelled by dropping it, it loses none.
    async fn next(&mut self, connection: &Connection) {
        sleep(self.pause).await;
        let quiet_since = Instant::now();
        connection.list_changed().await;
        self.pause = match quiet_since.elapsed() {
            quiet if quiet > self.pause.max(MIN_REFRESH) => Duration::ZERO,
            _ => (self.pause * 2).clamp(2 * MIN_REFRESH, MAX_CHANGE_PAUSE),
        };
    }
}

/// Maintains the connection to one server, and syncs its tools to the catalog.
struct ConnectionTask {
    server: Arc<Server>,
    sink: Arc<dyn CatalogSink>,
    connector: Connector,
    stop: CancellationToken,
}

impl ConnectionTask {
    async fn run(self) {
        let stop = self.stop.clone();
        let limits = self.server.limits;
        let mut pause = limits.first_pause;
        let mut logged = String::new();
        loop {
            let started = Instant::now();
            let opening = Connection::open(&self.server.config, &self.connector);
            let End {
                reason,
                needs_login,
                is_idle,
            } = match stop.run_until_cancelled(opening).await {
                None => return,
                Some(Err(error)) => End {
                    reason: error.to_string(),
                    needs_login: error.needs_login(),
                    is_idle: false,
                },
                Some(Ok(connection)) => self.serve(Arc::new(connection)).await,
            };
            if stop.is_cancelled() {
                return;
            }
            if is_idle {
                if stop
                    .run_until_cancelled(self.wanted_again())
                    .await
                    .is_none()
                {
                    return;
                }
                (pause, logged) = (limits.first_pause, String::new());
                continue;
            }
            // A server that stays down for the same reason is logged once.
            if reason != logged {
                tracing::warn!(
                    server = self.name(),
                    reason,
                    "MCP server is down; reconnecting"
                );
                logged.clone_from(&reason);
            }
            self.down_since_now();
            // Tools stay in the catalog: they can be found, and a call says why it is not made.
            self.server.state.send_replace(ServerState::Down {
                reason,
                since: Instant::now(),
                needs_login,
            });
            // Only a connection that lasted resets the pause, or a server that crashes right after
            // its handshake would be restarted at the shortest pause for ever.
            if started.elapsed() >= STABLE {
                (pause, logged) = (limits.first_pause, String::new());
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.login_changed(needs_login) => {}
                () = sleep(jittered(pause)) => {}
            }
            pause = (pause * 2).min(limits.longest_pause);
        }
    }

    /// Returns once nobody has called the server for so long that its process is stopped.
    async fn idle(&self) {
        if !self.server.may_be_idle() {
            return std::future::pending().await;
        }
        let limit = self.server.limits.idle_stop;
        loop {
            let unused = self.server.unused_for();
            if unused >= limit {
                return;
            }
            sleep(limit - unused).await;
        }
    }

    /// Keeps what the server offers, before it is stopped. `None` if it was called meanwhile.
    async fn stop_idle(&self, connection: &Arc<Connection>) -> Option<End> {
        let server = &self.server;
        let offers = connection.offers().await;
        *server.kept_offers.lock() = offers;
        server.state.send_replace(ServerState::Idle);
        // A call notes that it uses the server before it looks at the state. So it is seen here, or it
        // sees that the server is stopped.
        if server.unused_for() < server.limits.idle_stop {
            server
                .state
                .send_replace(ServerState::Ready(Arc::clone(connection)));
            return None;
        }
        tracing::info!(
            server = self.name(),
            idle_s = server.limits.idle_stop.as_secs(),
            "MCP server is stopped, since nobody calls it; the next call starts it"
        );
        server.progress.lock().since = SystemTime::now();
        Some(End {
            is_idle: true,
            ..End::of("nobody calls it".into())
        })
    }

    /// Returns once a call needs the server, or somebody has decided about its tools.
    async fn wanted_again(&self) {
        let server = &self.server;
        tokio::select! {
            () = server.recheck.notified() => {}
            () = async {
                // A notification may be left from a call that did not need it.
                loop {
                    server.wanted.notified().await;
                    if server.unused_for() < server.limits.idle_stop {
                        return;
                    }
                }
            } => {}
        }
        server.state.send_replace(ServerState::Waking);
    }

    /// Returns once somebody has logged in or out, if that is waited for.
    async fn login_changed(&self, is_waited_for: bool) {
        let logins = &self.connector.logins;
        match &self.server.config.transport {
            Transport::Http { url, .. } if is_waited_for => logins.changed(url).await,
            _ => std::future::pending().await,
        }
    }

    /// Returns once somebody has logged out.
    async fn logged_out(&self) {
        match &self.server.config.transport {
            Transport::Http { url, headers, .. } if !has_authorization(headers) => {
                self.connector.logins.ended(url).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Notes that the server went down now, unless it is down already.
    fn down_since_now(&self) {
        let state = self.server.connection_state();
        if !matches!(
            state,
            ConnectionState::Reconnecting | ConnectionState::NeedsLogin
        ) {
            self.server.progress.lock().since = SystemTime::now();
        }
    }

    /// Syncs tools until the connection ends.
    async fn serve(&self, connection: Arc<Connection>) -> End {
        let end = self
            .stop
            .run_until_cancelled(self.refresh_until_end(&connection))
            .await;
        connection.close().await;
        match end {
            Some(end) => end,
            None => End::of("the program ends".into()),
        }
    }

    /// Lists the tools at every change, until the connection ends.
    async fn refresh_until_end(&self, connection: &Arc<Connection>) -> End {
        // `None` until a list was written to the catalog.
        let mut synced = None;
        let mut changes = ReportedChanges::default();
        loop {
            // Together, so that a server is ready as soon as it was with its tools alone.
            let (listed, offers) = tokio::join!(connection.list_tools(), connection.offers());
            match listed {
                Ok(listed) => {
                    self.sync_if_changed(listed, &offers, &mut synced).await;
                }
                Err(error) => {
                    return End {
                        needs_login: matches!(error, ListError::NeedsLogin(_)),
                        ..End::of(error.to_string())
                    };
                }
            }
            // Also when the list could not be written: the tools in the catalog are those of the
            // last list, and can be called.
            self.ready(connection).await;
            let refresh = if synced.is_some() {
                self.server.limits.refresh
            } else {
                SYNC_RETRY
            };
            tokio::select! {
                () = connection.ended() => return End::of(connection.end_reason()),
                // The next attempt finds no token.
                () = self.logged_out() => return End::of("somebody has logged out".into()),
                () = changes.next(connection) => {}
                () = self.server.recheck.notified() => {}
                () = self.decided_elsewhere(&synced) => {}
                () = self.idle() => {
                    if let Some(end) = self.stop_idle(connection).await {
                        return end;
                    }
                }
                () = sleep(refresh) => {}
            }
            sleep(MIN_REFRESH).await;
        }
    }

    async fn ready(&self, connection: &Arc<Connection>) {
        let is_new = self.server.ready_connection().is_none();
        if is_new {
            // Before clients can see it.
            *self.server.capabilities.lock() = Some(connection.capabilities());
            if let Some(level) = self.connector.log_levels.lowest() {
                connection.set_log_level(level).await;
            }
            // Apart, since a server may take its time for each.
            let (server, connection) = (Arc::clone(&self.server), Arc::clone(connection));
            tokio::spawn(async move { server.subscriptions.renew(&connection).await });
        }
        self.server.state.send_if_modified(|state| {
            if matches!(state, ServerState::Ready(_)) {
                return false;
            }
            tracing::info!(server = self.name(), "MCP server is connected");
            // Starting it took time in which nobody could call it.
            self.server.used();
            self.server.progress.lock().since = SystemTime::now();
            *self.server.instructions.lock() = self.instructions_of(connection);
            *state = ServerState::Ready(Arc::clone(connection));
            true
        });
    }

    /// What the server says about the use of its tools, unless it tries to instruct the model otherwise.
    fn instructions_of(&self, connection: &Connection) -> Option<Arc<str>> {
        let text = connection.about().instructions?;
        let findings = inspect_text(&text);
        if findings.is_empty() {
            return Some(text.into());
        }
        let kinds: Vec<&str> = findings.iter().map(|kind| kind.described()).collect();
        let what = kinds.join(", ");
        tracing::warn!(
            server = self.name(),
            what,
            "the instructions of an MCP server are not shown"
        );
        None
    }

    /// Returns once a person has decided on the server's tools after the list that was synced last:
    /// another process may have written the decision.
    async fn decided_elsewhere(&self, synced: &Option<SyncedList>) {
        let Some(SyncedList { decision, .. }) = *synced else {
            return std::future::pending().await;
        };
        loop {
            sleep(LOOK_FOR_DECISIONS).await;
            // What cannot be read is reported by the next list.
            if self.last_decision().await.unwrap_or(decision) != decision {
                return;
            }
        }
    }

    async fn last_decision(&self) -> Option<i64> {
        let (sink, server) = (Arc::clone(&self.sink), Arc::clone(&self.server));
        let reading = spawn_blocking(move || {
            let approved = Approved::open_existing(sink.approved()).ok()??;
            approved.last_decision(&server.config.name).ok()
        });
        reading.await.ok()?
    }

    /// Syncs a list to the sink, unless it is the one that was synced last.
    async fn sync_if_changed(
        &self,
        listed: ListedTools,
        offers: &Offers,
        last: &mut Option<SyncedList>,
    ) {
        let limits = &self.server.limits;
        let (mut hash, offered) = (
            hash_of(&listed.entries),
            sync::read_tools(self.name(), listed, limits),
        );
        let offered = offered.with_offers(self.name(), offers, limits);
        for item in &offered.others {
            hash = hash.rotate_left(1) ^ hash_of(&[json!(item)]);
        }
        if let Some(synced) = last
            && synced.hash == hash
            // Blocked tools may have been accepted meanwhile, also by another process.
            && self.server.blocked.lock().is_empty()
            && self.last_decision().await.unwrap_or_default() == synced.decision
        {
            return;
        }
        match self.write(offered).await {
            Ok((synced, decision)) => {
                *last = Some(SyncedList { hash, decision });
                log_sync(&synced);
            }
            Err(error) => {
                *last = None;
                tracing::warn!(
                    server = self.name(),
                    error,
                    "the tools of an MCP server were not synced; trying again"
                );
            }
        }
    }

    /// Writes a list. Tools are blocked before the new list is visible, and changes are logged
    /// before a changed tool can be called. Also returns the decision that it was compared with.
    async fn write(&self, offered: sync::OfferedTools) -> Result<(Synced, i64), String> {
        let _held = self.server.writing.lock().await;
        let edits = &self.server.config.edits;
        let mut warnings = edits.unknown_tools(&offered.tools);
        let compared = self.compare(offered).await?;
        *self.server.blocked.lock() = compared.0.blocked();
        let (
            ComparedTools {
                tools,
                for_apps,
                flags: flagged,
                decision,
                ..
            },
            skipped,
        ) = compared;
        log_changes(&flagged);
        let for_apps = edits.apply(for_apps).tools;
        *self.server.for_apps.lock() = for_apps.into_iter().map(Arc::new).collect();
        let edited = edits.apply(tools);
        warnings.extend(edited.warnings);
        let changes = self.sink.sync(self.name(), edited.tools).await?;
        *self.server.always_loaded.lock() = edited.always_loaded;
        self.server.progress.lock().synced_at = Some(SystemTime::now());
        let synced = Synced {
            server: self.name().to_owned(),
            changes,
            flagged,
            skipped,
            warnings,
        };
        Ok((synced, decision))
    }

    /// Compares an offer with the approved definitions, and stores the new approved ones.
    async fn compare(
        &self,
        offered: sync::OfferedTools,
    ) -> Result<(ComparedTools, Vec<String>), String> {
        let (sink, server) = (Arc::clone(&self.sink), Arc::clone(&self.server));
        let comparing = spawn_blocking(move || {
            let (name, most_records) = (&server.config.name, server.limits.definitions);
            let mut approved =
                Approved::open(sink.approved()).map_err(|error| error.to_string())?;
            let remembered = approved.of(name).map_err(|error| error.to_string())?;
            let searcher = sink.searcher();
            let before = ApprovedBefore::of(name, Some(&searcher), remembered, most_records);
            let (compared, skipped) = sync::compare(offered, server.on_change, &before)?;
            // Before the list is in the catalog: a process that dies in between compares the next
            // list with these records.
            let stored = approved.remember(name, &compared.update, compared.decision);
            stored.map_err(|error| error.to_string())?;
            Ok((compared, skipped))
        });
        comparing.await.map_err(|error| error.to_string())?
    }

    fn name(&self) -> &str {
        &self.server.config.name
    }
}

fn log_sync(synced: &Synced) {
    let Synced {
        server,
        changes,
        skipped,
        warnings,
        ..
    } = synced;
    for warning in warnings.iter().take(MAX_LOGGED_SKIPS) {
        tracing::warn!(server, "{warning}");
    }
    for reason in skipped.iter().take(MAX_LOGGED_SKIPS) {
        tracing::warn!(server, reason, "a tool was skipped");
    }
    if skipped.len() > MAX_LOGGED_SKIPS {
        tracing::warn!(
            server,
            more = skipped.len() - MAX_LOGGED_SKIPS,
            "more tools were skipped"
        );
    }
    let (added, changed, removed) = (
        changes.added.len(),
        changes.changed.len(),
        changes.removed.len(),
    );
    tracing::info!(server, added, changed, removed, "tools synced");
}

fn log_changes(flags: &[Flag]) {
    for flag in flags {
        let (tool, what, blocked) = (&flag.id, flag.described(), flag.blocked);
        tracing::warn!(%tool, what, blocked, "a person should look at a tool: toolscout review");
    }
}

fn hash_of(entries: &[Value]) -> u64 {
    // Compared only within this process, so the hash need not be stable across versions.
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        entry.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// The pause minus a random part of up to a quarter, so that servers that went down together are
/// not reconnected together.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0];
    // Without random bytes the pause is whole, which does no harm.
    let _ = getrandom::fill(&mut random);
    pause.mul_f64(1.0 - f64::from(random[0]) / 255.0 / 4.0)
}
