//! The settings of a server, and the state that its handlers share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use anyhow::bail;
use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolscout_index::memory::Source;
use toolscout_index::{DataDir, Options, ToolId};

use super::agent::{PageToken, Runs};
use super::audit::AuditCheck;
use super::embedders::{EmbedderSource, EmbeddersOf};
use super::enrich::account::Account;
use super::enrich::{Enriching, write_by_itself};
use super::error::{self, ApiResult};
use super::evaluations::Evaluations;
use super::feedback::RateLimit;
use super::judgings::Judgings;
use super::key_watch::KeyWatch;
use super::limits::Limits;
use super::mcp::McpServices;
use super::profiles::{self, Profiles};
use super::proxy::{self as model_api, BodyBudget, KnownConversations};
use super::registry::{COPIES, OpenCatalog, Registry, ServedSnapshots};
use super::stats::Started;
use super::stream::Streams;
use super::tasks::Tasks;
use super::threads::blocking;
use super::tokens::TokenSavings;
use crate::shutdown::Shutdown;
use toolscout_agent::{Agent, Agents};
use toolscout_base::clock::unix_ms;
use toolscout_base::config::EnrichSettings;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::Metrics;
use toolscout_dropin::{Proxy, ProxyConfig};
use toolscout_finder::enrich::wanted::Wanted;
use toolscout_finder::finder::ToolSearch;
use toolscout_finder::profiles::ToolProfile;
use toolscout_gate::gate::{Approvals, AuditLog, Gate, Policies, audit};
use toolscout_gate::llm::ChatModel;
use toolscout_gate::tools::Toolset;
use toolscout_mcp::gateway::Ledgers;
use toolscout_mcp::{CatalogSink, Gateway, GatewayConfig, Pool};
use toolscout_state::feedback::{FeedbackRecord, FeedbackStore};
use toolscout_state::keys::{KeyError, KeyStore, Scope};
use toolscout_state::shared::SharedStore;

/// How long a cancelled task may take for its next step, one commit of at most 500 tools.
const LAST_STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How often copies of catalogs are looked for that other nodes have deleted.
const SWEEP: Duration = Duration::from_secs(2);

/// Most keys that the store is asked for at a time: whoever invents keys must not take all of its
/// connections.
const MAX_KEY_LOOKUPS: usize = 2;

/// How the API is served.
pub struct Settings {
    /// The directory of catalogs, keys and feedback.
    pub data: PathBuf,
    /// The store of the catalogs that several nodes share; without one they are in `data`.
    pub store: Option<Arc<dyn SharedStore>>,
    /// The catalog of routes that name none; created when it does not exist.
    pub default_catalog: String,
    /// How catalogs are opened that name no embedders.
    pub catalog_options: Options,
    /// Loads those of catalogs that name others; without it all catalogs have the same.
    pub embedder_source: Option<EmbedderSource>,
    /// Host names of this server, besides `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API.
    pub allowed_origins: Vec<String>,
    /// Whether the API may be open to a network without keys.
    pub exposure: Exposure,
    /// Creates the agent of the `/v1/agent` routes; without one they answer 503.
    pub agent: Option<AgentSource>,
    /// The scope of keys that may ask the agent.
    pub agent_scope: Scope,
    /// The MCP servers whose tools are synced to the default catalog and called; none by default.
    pub upstream: Pool,
    /// How the `/mcp` route shows the default catalog.
    pub gateway: GatewayConfig,
    /// Parts of catalogs that requests may be limited to.
    pub profiles: Vec<ToolProfile>,
    /// The model provider behind the routes of its API; without one they answer 503.
    pub proxy: Option<ProxyConfig>,
    /// When the model of `enricher` writes texts of tools.
    pub enrich: EnrichSettings,
    /// The model that writes them; without one nobody here does.
    pub enricher: Option<Arc<dyn ChatModel>>,
    /// How much the server accepts and keeps open.
    pub limits: Limits,
}

/// The keys of the data directory, or of the store with a copy in it.
///
/// # Errors
/// When the database of keys cannot be used.
pub(super) fn open_keys(
    data: &Path,
    store: Option<&Arc<dyn SharedStore>>,
) -> Result<KeyStore, KeyError> {
    match store {
        Some(store) => Arc::clone(store).keys(Some(&data.join(COPIES))),
        None => KeyStore::open(data),
    }
}

/// The feedback of the data directory, or of the store.
fn open_feedback(
    data: &Path,
    store: Option<&Arc<dyn SharedStore>>,
) -> anyhow::Result<FeedbackStore> {
    let local = FeedbackStore::open(data)?;
    Ok(match store {
        Some(store) => Arc::clone(store).feedback(local),
        None => local,
    })
}

/// Creates the agents over the tools of the default catalog.
pub type AgentSource = Box<dyn Fn(Arc<dyn ToolSearch>) -> anyhow::Result<Agents> + Send + Sync>;

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

/// The state behind an [`App`].
pub struct AppState {
    pub(super) catalogs: Registry,
    pub(super) store: Option<Arc<dyn SharedStore>>,
    pub(super) default_catalog: String,
    pub(super) exposure: Exposure,
    pub(super) started: Started,
    pub(super) audit_check: AuditCheck,
    pub(super) token_savings: TokenSavings,
    pub(super) keys: KeyStore,
    /// What goes on for each key.
    pub(super) key_watch: KeyWatch,
    /// One permit for each key that the store is asked for.
    pub(super) key_lookups: Semaphore,
    pub(super) feedback: FeedbackStore,
    pub(super) feedback_rate: RateLimit,
    pub(super) streams: Streams,
    pub(super) tasks: Arc<Tasks>,
    pub(super) evaluations: Evaluations,
    pub(super) judgings: Judgings,
    pub(super) enriching: Enriching,
    pub(super) cpu_pool: CpuPool,
    /// One permit for each body of tools that is being read.
    pub(super) bulk_bodies: Semaphore,
    pub(super) metrics: Arc<Metrics>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) allowed_origins: Vec<String>,
    pub(super) limits: Limits,
    agent_source: Option<AgentSource>,
    pub(super) agent_scope: Scope,
    /// Set once the default catalog is open.
    pub(super) agents: OnceLock<Agents>,
    pub(super) runs: Runs,
    pub(super) page_token: PageToken,
    upstream: Pool,
    gateway: GatewayConfig,
    /// Answers requests to the model provider.
    pub(super) proxy: Option<Proxy>,
    pub(super) agent_conversations: KnownConversations,
    /// The memory for bodies of requests to the model provider.
    pub(super) model_bodies: BodyBudget,
    /// What every call of a tool passes. Set once the default catalog is open.
    pub(super) gate: OnceLock<Arc<Gate>>,
    /// The calls that were tried out, counted against the limits of a run.
    pub(super) ledgers: Ledgers,
    /// Calls of MCP clients that wait for a person.
    pub(super) client_approvals: Arc<Approvals>,
    /// Set once the default catalog is open.
    pub(super) mcp: OnceLock<McpServices>,
    pub(super) profiles: Profiles,
    ready: AtomicBool,
    pub(super) shutdown: Shutdown,
}

impl App {
    /// Opens the databases of keys and feedback. [`App::open_catalogs`] opens the catalogs later.
    ///
    /// # Errors
    /// When the data directory cannot be used.
    pub fn new(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Self> {
        let Settings {
            data,
            store,
            default_catalog,
            catalog_options,
            embedder_source,
            allowed_hosts,
            allowed_origins,
            exposure,
            agent,
            agent_scope,
            upstream,
            gateway,
            profiles,
            proxy,
            enrich,
            enricher,
            limits,
        } = settings;
        let mut metrics = Metrics::new();
        if let Some(store) = &store {
            metrics.add(|registry| store.figures().register(registry));
        }
        let metrics = Arc::new(metrics);
        let cpu_pool = CpuPool::new(
            limits.search_threads,
            limits.search_queue,
            limits.search_patience,
            metrics.search_queue.clone(),
        );
        let start_proxy = |config| {
            let folder = data.join(toolscout_dropin::CATALOGS_FOLDER);
            // A client waits for its tools, so slow embedders are left out.
            let mut options = Options::new(catalog_options.embedders.clone());
            options.embedders.retain(|embedder| embedder.is_instant());
            Proxy::new(
                config,
                folder,
                options,
                Arc::clone(&metrics),
                cpu_pool.clone(),
            )
        };
        let proxy = proxy.map(start_proxy).transpose()?;
        let enriching = Enriching {
            account: Account::new(&data, store.as_ref()),
            model: enricher,
            wanted: Wanted::new(None, &enrich.languages)
                .map_err(|problem| anyhow::anyhow!("enrich.languages: {problem}"))?,
            settings: enrich,
        };
        Ok(App(Arc::new(AppState {
            keys: open_keys(&data, store.as_ref())?,
            key_watch: KeyWatch::default(),
            key_lookups: Semaphore::new(MAX_KEY_LOOKUPS),
            feedback: open_feedback(&data, store.as_ref())?,
            feedback_rate: RateLimit::default(),
            streams: Streams::default(),
            catalogs: Registry::new(
                DataDir::new(data),
                EmbeddersOf::new(catalog_options, embedder_source),
                &limits,
                Arc::clone(&metrics),
                store.clone(),
            ),
            tasks: Arc::new(Tasks::over(store.clone())),
            store,
            default_catalog,
            exposure,
            started: Started::now(),
            audit_check: AuditCheck::default(),
            token_savings: TokenSavings::start(),
            enriching,
            evaluations: Evaluations::default(),
            judgings: Judgings::default(),
            cpu_pool,
            bulk_bodies: Semaphore::new(limits.bulk_bodies),
            model_bodies: BodyBudget::new(limits.model_body_bytes, limits.search_patience),
            runs: Runs::new(limits.max_runs, limits.max_runs_per_key),
            page_token: PageToken::random()?,
            metrics,
            allowed_hosts,
            allowed_origins,
            limits,
            agent_source: agent,
            agent_scope,
            agents: OnceLock::new(),
            upstream,
            gateway,
            proxy,
            agent_conversations: KnownConversations::default(),
            gate: OnceLock::new(),
            ledgers: Ledgers::default(),
            client_approvals: Arc::default(),
            mcp: OnceLock::new(),
            profiles: Profiles::new(profiles),
            ready: AtomicBool::new(false),
            shutdown,
        })))
    }

    /// Opens every catalog and creates the default one. The server is ready from then on.
    ///
    /// # Errors
    /// When the data directory cannot be read or the default catalog cannot be opened.
    pub async fn open_catalogs(&self) -> anyhow::Result<()> {
        if let Some(store) = &self.store {
            let audit_log = self.catalogs.data().join(audit::FILE_NAME);
            Arc::clone(store).follow(&audit_log);
        }
        let opened = match self.catalogs.create(&self.default_catalog).await {
            Ok((catalog, _)) => {
                self.start_agent(&catalog)?;
                self.start_mcp(&catalog)?;
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
        self.ready.store(true, Ordering::Release);
        tokio::spawn(self.clone().look_at_profiles());
        tokio::spawn(self.clone().look_at_keys());
        tokio::spawn(write_by_itself(self.clone()));
        if self.store.is_some() {
            tokio::spawn(self.clone().sweep());
        }
        Ok(())
    }

    /// Ends what keys have begun that are no longer valid, until the shutdown.
    async fn look_at_keys(self) {
        let looking = self.key_watch.look(&self);
        self.shutdown.token().run_until_cancelled(looking).await;
    }

    /// Gives up what the store no longer has, until the shutdown.
    async fn sweep(self) {
        let sweeping = async {
            loop {
                tokio::time::sleep(SWEEP).await;
                if let Err(error) = self.catalogs.sweep().await {
                    let reason = error.detail.unwrap_or(error.message);
                    tracing::warn!(reason, "copies of deleted catalogs stay for now");
                }
            }
        };
        self.shutdown.token().run_until_cancelled(sweeping).await;
    }

    fn is_default_damaged(&self) -> bool {
        self.catalogs.damaged().contains_key(&self.default_catalog)
    }

    fn start_agent(&self, catalog: &Arc<OpenCatalog>) -> anyhow::Result<()> {
        let Some(source) = &self.agent_source else {
            return Ok(());
        };
        let catalog = Arc::clone(catalog);
        let agents = source(Arc::new(ServedSnapshots::of(
            catalog,
            self.cpu_pool.clone(),
        )))?;
        // The catalogs are opened once, so nothing is set yet.
        let _ = self.agents.set(agents);
        Ok(())
    }

    /// The agent of questions that choose none. It knows the runs and approvals of all agents.
    pub(super) fn agent(&self) -> Option<&Agent> {
        self.agents.get().map(Agents::default_agent)
    }

    /// Connects to the MCP servers and enables the `/mcp` route. Its calls go through the agent's
    /// gate, so that both have the same policies and one audit log.
    fn start_mcp(&self, catalog: &Arc<OpenCatalog>) -> anyhow::Result<()> {
        let agent = self.agent();
        let gate = match agent {
            Some(agent) => Arc::clone(agent.gate()),
            None => {
                let audit = AuditLog::open(&self.catalogs.data().join(audit::FILE_NAME))?;
                Arc::new(Gate::new(Policies::default()).with_audit(Arc::new(audit)))
            }
        };
        // The catalogs are opened once, so nothing is set yet.
        let _ = self.gate.set(Arc::clone(&gate));
        let toolset = agent.map(|agent| Arc::new(agent.clone()) as Arc<dyn Toolset>);
        // Connecting continues in the background; a slow server does not delay the start.
        self.upstream
            .start(Arc::clone(catalog) as Arc<dyn CatalogSink>);
        let searched = ServedSnapshots::of(Arc::clone(catalog), self.cpu_pool.clone());
        let search = self.token_savings.counting(searched);
        let gateway = Gateway::of_server(
            Arc::new(search),
            self.upstream.clone(),
            gate,
            toolset,
            Some(Arc::clone(&self.client_approvals)),
            self.gateway.clone(),
        );
        let services = McpServices::new(gateway, &self.limits, self.shutdown.token());
        // The catalogs are opened once, so nothing is set yet.
        let _ = self.mcp.set(services);
        Ok(())
    }

    /// Looks at the profiles once the MCP servers are connected, until the shutdown.
    async fn look_at_profiles(self) {
        let looking = async {
            self.upstream.settled(self.gateway.settle).await;
            profiles::warn_of_mistakes(self.clone()).await;
        };
        self.shutdown.token().run_until_cancelled(looking).await;
    }

    /// The connections to the servers of this catalog: only the default one has any.
    pub(super) fn pool_of(&self, catalog: &OpenCatalog) -> Option<&Pool> {
        (catalog.name == self.default_catalog).then_some(&self.upstream)
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
        // Runs first: they call tools of the servers.
        if let Some(agent) = self.agent() {
            agent.close(self.limits.grace).await;
        }
        // The servers next: they must not write to catalogs that are being closed.
        self.upstream.close().await;
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
        if let Err(error) = self.catalogs.close().await {
            tracing::error!(detail = error.detail, "catalogs were not closed");
        }
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

    /// Deletes a catalog and the feedback on it.
    ///
    /// # Errors
    /// 404 when it does not exist; feedback that an interrupted delete has left is deleted even then.
    pub(super) async fn delete_catalog(&self, name: String) -> ApiResult<()> {
        let deleted = self.catalogs.delete(&name).await;
        let is_gone = match &deleted {
            Ok(()) => true,
            Err(error) => error.status == StatusCode::NOT_FOUND,
        };
        if is_gone {
            let store = self.feedback.clone();
            let forgotten = blocking(move || store.forget(&name)).await?;
            forgotten?;
        }
        deleted
    }

    /// Passes once the catalogs are open.
    ///
    /// # Errors
    /// 503 before that.
    pub(super) fn require_ready(&self) -> ApiResult<()> {
        if self.ready.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(error::not_ready())
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
