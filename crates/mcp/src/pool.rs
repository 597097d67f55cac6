//! The connections to all servers, each maintained by a task of its own, and the one function that
//! calls their tools.

mod connection_task;
mod server;
mod subscriptions;
mod upstream_tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{CallToolResult, ServerCapabilities};
use rmcp::service::{Peer, RoleServer};
use serde::Serialize;
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

use crate::Limits;
use crate::changes::OnChange;
use crate::config::ServerConfig;
use crate::connection::{
    CallContext, CallError, Connection, Connector, Level, LogMessage, Offers, Updated,
};
use crate::login::Logins;
use crate::masking::Masking;
use crate::server_logs::ServerLogs;
use crate::sink::CatalogSink;
use connection_task::ConnectionTask;
use subscriptions::Subscriptions;
use toolscout_gate::tools::{AbsentServer, Arguments, Callable, Toolset};
use upstream_tool::{UpstreamTool, finished};

pub use subscriptions::Subscription;
pub use upstream_tool::{ServerAnswer, viewed};

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
    /// What it offered besides tools when it was listed last.
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

    /// What servers write to their logs, from now on.
    pub fn log_messages(&self) -> broadcast::Receiver<Arc<LogMessage>> {
        self.shared.connector.notices.logs()
    }

    /// Which resources of servers change, from now on.
    pub fn resource_updates(&self) -> broadcast::Receiver<Updated> {
        self.shared.connector.notices.updates()
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

    /// Whether a server has skills, as far as it has told.
    pub fn has_skills(&self, server: &str) -> bool {
        let Some(server) = self.shared.servers.get(server) else {
            return false;
        };
        let capabilities = server.capabilities.lock();
        let capabilities = capabilities.as_ref();
        capabilities.is_some_and(ServerCapabilities::supports_skills)
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

    /// Whether the results of a tool are changed before clients get them.
    pub fn edits_results_of(&self, id: &ToolId) -> bool {
        match self.shared.servers.get(id.server()) {
            Some(server) => {
                let view = server.config.edits.view_of(id.name());
                view.is_some() || !server.config.masking.is_empty()
            }
            None => false,
        }
    }

    /// A result of a tool that came later, as that of a call.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn finished(&self, id: &ToolId, result: CallToolResult) -> ServerAnswer {
        let Some(server) = self.shared.servers.get(id.server()) else {
            return Ok(result);
        };
        let view = server.config.edits.view_of(id.name());
        finished(view, &server.config.masking, result).await
    }

    /// What is masked in the answers of a server.
    pub fn masking(&self, server: &str) -> Masking {
        match self.shared.servers.get(server) {
            Some(server) => server.config.masking.clone(),
            None => Masking::default(),
        }
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
