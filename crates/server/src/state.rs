//! The parts of a server, and the state that its handlers share.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use axum::extract::FromRef;
use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use toolscout_index::ToolId;
use toolscout_index::memory::Source;

use super::access::Access;
use super::agent::{PageToken, Runs};
use super::dropin::{self as model_api, BodyBudget, KnownConversations};
use super::evaluations::Evaluations;
use super::mcp::McpServices;
use super::served::{DefaultSearch, OpenCatalog, ServedCatalogs};
use super::tasks::Tasks;
use crate::access::audit::AuditLogs;
use crate::access::key_watch::KeyWatch;
use crate::access::profiles::Profiles;
use crate::catalogs::enrich::{Enriching, write_by_itself};
use crate::catalogs::stream::Streams;
use crate::evaluations::judgings::Judgings;
use crate::process::descriptors;
use crate::process::limits::Limits;
use crate::process::shutdown::Shutdown;
use crate::request::error::{self, ApiError, ApiResult};
use crate::request::threads::blocking;
use crate::search::feedback::RateLimit;
use crate::served::tokens::TokenSavings;
use toolscout_agent::{Agent, Agents};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::principal::OwnerScope;
use toolscout_base::telemetry::{Metrics, StateLabels};
use toolscout_dropin::DropIn;
use toolscout_gate::gate::{Answer, Approvals, Gate, WaitingApproval};
use toolscout_gate::tools::Toolset;
use toolscout_gate::usage::Recorder;
use toolscout_mcp::gateway::Ledgers;
use toolscout_mcp::pool::ConnectionState;
use toolscout_mcp::{CatalogSink, Pool};
use toolscout_state::feedback::{FeedbackRecord, FeedbackStore};
use toolscout_state::keys::{KeyStore, Scope};
use toolscout_state::shared::SharedStore;

/// How long a cancelled task may take for its next step, one commit of at most 500 tools.
const LAST_STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How often copies of catalogs are looked for that other nodes have deleted.
const SWEEP: Duration = Duration::from_secs(2);

/// What a server is made of, each part finished.
pub struct Parts {
    /// The store of the catalogs that several nodes share, if there is one.
    pub store: Option<Arc<dyn SharedStore>>,
    /// The figures of all parts.
    pub metrics: Arc<Metrics>,
    /// The threads for searches and other CPU work.
    pub cpu_pool: CpuPool,
    /// The API keys.
    pub keys: KeyStore,
    /// What clients say of the answers to their searches.
    pub feedback: FeedbackStore,
    /// The catalogs, none of them open yet.
    pub catalogs: Arc<ServedCatalogs>,
    /// The catalog of routes that name none; created when it does not exist.
    pub default_catalog: String,
    /// Its search, which agents and gateway have.
    pub default_search: DefaultSearch,
    /// What every call of a tool passes.
    pub gate: Arc<Gate>,
    /// Records the use of tools.
    pub usage: Recorder,
    /// The agents of the `/v1/agent` routes; without any they answer 503.
    pub agents: Option<Agents>,
    /// The scope of keys that may ask them.
    pub agent_scope: Scope,
    /// The MCP servers whose tools are synced to the default catalog and called.
    pub mcp_pool: Pool,
    /// Answers the `/mcp` routes.
    pub mcp: McpServices,
    /// Calls of its clients that wait for a person.
    pub client_approvals: Arc<Approvals>,
    /// Counts the tokens that search saves.
    pub token_savings: TokenSavings,
    /// Parts of catalogs that requests may be limited to.
    pub profiles: Profiles,
    /// Answers requests to the model provider; without one they are answered with 503.
    pub dropin: Option<DropIn>,
    /// Writes texts of tools.
    pub enriching: Enriching,
    /// Host names of this server, besides `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API.
    pub allowed_origins: Vec<String>,
    /// Whether the API may be open to a network without keys.
    pub exposure: Exposure,
    /// How much the server accepts and keeps open.
    pub limits: Limits,
}

/// Who may reach a server that has no API keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Clients on this machine.
    #[default]
    Loopback,
    /// Anyone who can reach the address.
    AnyoneWithoutKeys,
}

/// The state that all handlers share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppState>);

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// Lets handlers take a part alone, as `State<CpuPool>`.
macro_rules! handed_out {
    ($($part:ty: $field:ident,)*) => {$(
        impl FromRef<App> for $part {
            fn from_ref(app: &App) -> Self {
                app.$field.clone()
            }
        }
    )*};
}

handed_out! {
    Arc<Access>: access,
    CpuPool: cpu_pool,
    Judgings: judgings,
    KeyWatch: key_watch,
    Arc<AuditLogs>: audit_logs,
    Arc<Tasks>: tasks,
}

/// When the server was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub at: SystemTime,
    pub clock: Instant,
}

impl Started {
    /// Now.
    pub fn now() -> Self {
        Started {
            at: SystemTime::now(),
            clock: Instant::now(),
        }
    }
}

/// The state behind an [`App`]: the parts, and what goes on.
pub struct AppState {
    parts: Parts,
    pub(super) started: Started,
    pub(super) audit_logs: Arc<AuditLogs>,
    pub(super) access: Arc<Access>,
    /// What goes on for each key.
    pub(super) key_watch: KeyWatch,
    pub(super) feedback_rate: RateLimit,
    pub(super) streams: Streams,
    pub(super) tasks: Arc<Tasks>,
    pub(super) evaluations: Evaluations,
    pub(super) judgings: Judgings,
    /// One permit for each body of tools that is being read.
    pub(super) bulk_bodies: Semaphore,
    pub(super) runs: Runs,
    pub(super) page_token: PageToken,
    pub(super) agent_conversations: KnownConversations,
    /// The memory for bodies of requests to the model provider.
    pub(super) model_bodies: BodyBudget,
    /// The calls that were tried out, counted against the limits of a run.
    pub(super) ledgers: Ledgers,
    /// The tasks that belong to no request.
    pub(super) background: TaskTracker,
    pub(super) shutdown: Shutdown,
}

impl std::ops::Deref for AppState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl App {
    /// A server of these parts. [`App::open_catalogs`] opens the catalogs later.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(parts: Parts, shutdown: Shutdown) -> anyhow::Result<Self> {
        let limits = &parts.limits;
        let audit_logs =
            AuditLogs::new(parts.catalogs.data(), parts.store.clone(), shutdown.clone());
        let key_watch = KeyWatch::default();
        let access = Access::new(
            parts.keys.clone(),
            key_watch.clone(),
            Arc::clone(&parts.catalogs),
            parts.default_catalog.clone(),
        );
        Ok(App(Arc::new(AppState {
            started: Started::now(),
            audit_logs: Arc::new(audit_logs),
            access: Arc::new(access),
            key_watch,
            feedback_rate: RateLimit::default(),
            streams: Streams::new(Arc::clone(&parts.metrics), shutdown.clone()),
            tasks: Arc::new(Tasks::over(parts.store.clone())),
            evaluations: Evaluations::default(),
            judgings: Judgings::default(),
            bulk_bodies: Semaphore::new(limits.bulk_bodies),
            runs: Runs::new(limits.max_runs, limits.max_runs_per_key),
            page_token: PageToken::random()?,
            agent_conversations: KnownConversations::default(),
            model_bodies: BodyBudget::new(limits.model_body_bytes, limits.search_patience),
            ledgers: Ledgers::default(),
            background: TaskTracker::new(),
            shutdown,
            parts,
        })))
    }

    /// Opens every catalog and creates the default one. The server is ready from then on.
    ///
    /// # Errors
    /// When the data directory cannot be read or the default catalog cannot be opened.
    pub async fn open_catalogs(&self) -> anyhow::Result<()> {
        if let Some(store) = &self.store {
            Arc::clone(store).follow(self.audit_logs.path(), self.usage.local());
        }
        let opened = match self.catalogs.create(&self.default_catalog).await {
            Ok((catalog, _)) => {
                self.default_search.open(Arc::clone(&catalog));
                // Connecting continues in the background; a slow server does not delay the start.
                self.mcp_pool.start(catalog as Arc<dyn CatalogSink>);
                self.catalogs.open_all(&self.default_catalog).await
            }
            // A damaged default catalog does not keep the others from being served. Its own routes
            // answer with what is wrong.
            Err(_) if self.is_default_damaged() => {
                self.catalogs.open_all(&self.default_catalog).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            bail!("{}", error.detail.unwrap_or(error.message));
        }
        model_api::warn_of_missing_keys(self).await;
        self.access.become_ready();
        // Until the shutdown.
        self.background.spawn(self.clone().look_at_names());
        self.background.spawn(self.clone().look_at_keys());
        self.background.spawn(write_by_itself(self.clone()));
        if self.store.is_some() {
            self.background.spawn(self.clone().sweep());
        }
        Ok(())
    }

    /// Ends what keys have begun that are no longer valid, until the shutdown.
    async fn look_at_keys(self) {
        let looking = self.key_watch.look(&self.keys);
        self.shutdown.token().run_until_cancelled(looking).await;
    }

    /// Gives up what the store no longer has, until the shutdown.
    async fn sweep(self) {
        let sweeping = async {
            loop {
                tokio::time::sleep(SWEEP).await;
                if let Err(error) = self.forget_deleted().await {
                    let reason = error.detail.unwrap_or(error.message);
                    tracing::warn!(reason, "copies of deleted catalogs stay for now");
                }
            }
        };
        self.shutdown.token().run_until_cancelled(sweeping).await;
    }

    /// Gives up copies of catalogs that other nodes have deleted, and what is recorded of their use here.
    async fn forget_deleted(&self) -> ApiResult<()> {
        let deleted = self.catalogs.sweep().await?;
        if deleted.is_empty() {
            return Ok(());
        }
        let usage = self.usage.clone();
        let forget = move || {
            for name in &deleted {
                usage.forget(name);
            }
        };
        blocking(forget).await
    }

    /// Checks that the server takes requests.
    ///
    /// # Errors
    /// 503 until the catalogs are open, during the shutdown, and when file descriptors run out.
    pub(super) fn require_ready(&self) -> ApiResult<()> {
        if self.shutdown.is_triggered() {
            return Err(ApiError::shutting_down());
        }
        self.access.require_ready()?;
        // Without descriptors nothing can be accepted or opened, so load balancers should use another
        // server.
        if let Some(limit) = self.limits.descriptors
            && descriptors::are_nearly_used(limit)
        {
            let message =
                "the server has nearly used up its file descriptors; raise its limit (`ulimit -n`)";
            return Err(ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "descriptors_low",
                message,
            ));
        }
        Ok(())
    }

    fn is_default_damaged(&self) -> bool {
        self.catalogs.damaged().contains_key(&self.default_catalog)
    }

    /// The agents, once the default catalog is open.
    pub(super) fn agents(&self) -> Option<&Agents> {
        match self.default_search.is_open() {
            true => self.agents.as_ref(),
            false => None,
        }
    }

    /// The agent of questions that choose none. It knows the runs and approvals of all agents.
    pub(super) fn agent(&self) -> Option<&Agent> {
        self.agents().map(Agents::default_agent)
    }

    /// Calls within this scope that wait for a person here, the most urgent first.
    pub(super) fn waiting_approvals(&self, scope: &OwnerScope) -> Vec<WaitingApproval> {
        let mut waiting = self.client_approvals.waiting_within(scope);
        if let Some(agent) = self.agent() {
            waiting.extend(agent.waiting_approvals(scope));
        }
        waiting.sort_by_key(|waiting| waiting.open.expires_in_ms);
        waiting
    }

    /// Decides about a call that waits, of an MCP client or of a run of the agent. Returns whether it still waited.
    ///
    /// # Errors
    /// 503 if the call may wait on another node and the store cannot be reached.
    pub(super) async fn decide_approval(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: Answer,
    ) -> ApiResult<bool> {
        if self.client_approvals.answer(scope, id, answer.clone()) {
            return Ok(true);
        }
        match self.agent() {
            Some(agent) => agent
                .answer_approval_anywhere(scope, id, answer)
                .await
                .map_err(error::store_unavailable),
            None => Ok(false),
        }
    }

    /// What answers the `/mcp` routes.
    ///
    /// # Errors
    /// 503 until the default catalog is open.
    pub(super) fn mcp(&self) -> ApiResult<&McpServices> {
        match self.default_search.is_open() {
            true => Ok(&self.mcp),
            false => Err(error::not_ready()),
        }
    }

    /// Looks for names in flags and profiles that no tool has, once the MCP servers are connected, until
    /// the shutdown.
    async fn look_at_names(self) {
        let looking = async {
            self.mcp.settled().await;
            let agent = self.agents().map(Agents::default_agent);
            let pins = agent.map_or_else(Vec::new, |agent| agent.config().pins.clone());
            self.mcp.warn_of_unknown_names(pins).await;
            self.profiles.warn_of_mistakes().await;
        };
        self.shutdown.token().run_until_cancelled(looking).await;
    }

    /// The connections to the servers of this catalog: only the default one has any.
    pub(super) fn pool_of(&self, catalog: &OpenCatalog) -> Option<&Pool> {
        (catalog.name == self.default_catalog).then_some(&self.mcp_pool)
    }

    /// What calls the tools of this catalog.
    pub(super) fn toolset_of(&self, catalog: &OpenCatalog) -> Option<Arc<dyn Toolset>> {
        let pool = self.pool_of(catalog)?;
        Some(match self.agent() {
            Some(agent) => Arc::new(agent.clone()),
            None => Arc::new(pool.clone()),
        })
    }

    /// Waits for runs of the agent, tasks and streamed loads up to the grace period, ends the MCP
    /// servers, and writes every queued change.
    pub(super) async fn close(&self) {
        // Runs end first, since they call tools of the servers.
        if let Some(agent) = self.agent() {
            agent.close(self.limits.grace).await;
        }
        // The servers end next, since they must not write to catalogs that are being closed.
        self.mcp_pool.close().await;
        let loads = async { tokio::join!(self.tasks.finished(), self.streams.finished()) };
        tokio::pin!(loads);
        if timeout(self.limits.grace, &mut loads).await.is_err() {
            tracing::warn!(
                "loads were still running at the end of the grace period; they stop after their next step"
            );
            self.tasks.cancel_all();
            if timeout(LAST_STEP_TIMEOUT, loads).await.is_err() {
                tracing::error!(
                    "loads did not end after their next step; what they committed stays"
                );
            }
        }
        if let Some(dropin) = &self.dropin {
            dropin.close().await;
        }
        // They end with the shutdown, and must not use catalogs or the store while these close.
        self.background.close();
        if timeout(LAST_STEP_TIMEOUT, self.background.wait())
            .await
            .is_err()
        {
            tracing::error!("work in the background did not end with the shutdown");
        }
        // Only after the last call and the last search, since it records their use.
        let usage = self.usage.clone();
        if let Err(error) = blocking(move || usage.end()).await {
            tracing::error!(detail = error.detail, "use of tools was not written");
        }
        if let Err(error) = self.catalogs.close().await {
            tracing::error!(detail = error.detail, "catalogs were not closed");
        }
        // The store comes last, since queued changes are committed to it.
        if let Some(store) = &self.store {
            store.close().await;
        }
    }

    /// Stores feedback, and lets the catalog's usage memory learn from it. Returns whether the
    /// memory stored it.
    ///
    /// # Errors
    /// 500 when a database fails.
    pub(super) async fn record_feedback(
        &self,
        catalog: Arc<OpenCatalog>,
        record: FeedbackRecord,
        tool: &ToolId,
        source: Source,
    ) -> ApiResult<bool> {
        let learned = record.learned_query().map(str::to_owned);
        let (store, name) = (self.feedback.clone(), catalog.name.clone());
        let stored = blocking(move || store.insert(&name, &record, SystemTime::now())).await?;
        stored?;
        let mut remembered = false;
        if let Some(query) = learned {
            let (tool, at_ms) = (tool.clone(), unix_ms(SystemTime::now()));
            let learn = move || catalog.remember(&query, &tool, at_ms, &source);
            remembered = self.change_memory(learn).await?;
        }
        self.metrics.feedback.inc();
        Ok(remembered)
    }

    /// Changes a usage memory: on a thread for CPU work, since requests are embedded; with a store on
    /// one that may wait.
    ///
    /// # Errors
    /// Those of the change.
    pub(super) async fn change_memory<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        match self.store {
            Some(_) => blocking(change).await?,
            None => self.cpu_pool.run(change).await?,
        }
    }

    /// Deletes a catalog, the feedback on it and the record of its use.
    ///
    /// # Errors
    /// 404 when it does not exist; feedback that an interrupted delete has left is deleted even then.
    pub(super) async fn delete_catalog(&self, name: String) -> ApiResult<()> {
        let deleted = self.catalogs.delete(&name).await;
        let is_gone = match &deleted {
            Ok(()) => true,
            Err(error) => error.status == StatusCode::NOT_FOUND,
        };
        // If the catalog is still there, its feedback stays too.
        if is_gone {
            let (store, usage) = (self.feedback.clone(), self.usage.clone());
            let forget = move || {
                usage.forget(&name);
                store.forget(&name)
            };
            blocking(forget).await??;
        }
        deleted
    }

    /// Counts the MCP servers by their states.
    pub(super) fn measure_servers(&self) {
        let statuses = self.mcp_pool.statuses();
        if statuses.is_empty() {
            return;
        }
        // All states are set, so that a state without servers becomes 0.
        for state in ConnectionState::ALL {
            let servers = statuses.iter().filter(|status| status.state == state);
            let labels = StateLabels {
                state: state.as_str(),
            };
            let gauge = self.metrics.mcp_servers.of(labels);
            gauge.set(servers.count() as i64);
        }
    }

    /// Updates the gauges that are computed from the open catalogs and the store.
    pub(super) fn measure_catalogs(&self) {
        if let Some(store) = &self.store {
            store.measure();
        }
        let open = self.catalogs.all_open();
        let (mut tools, mut pending) = (0, 0);
        for catalog in &open {
            let searcher = catalog.searcher();
            tools += catalog.tool_count() as i64;
            pending += searcher.pending_embeddings() as i64;
        }
        self.metrics.catalogs.set(open.len() as i64);
        self.metrics.tools.set(tools);
        self.metrics.pending_embeddings.set(pending);
    }
}
