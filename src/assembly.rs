//! Puts a server together, each part of those before it:
//!
//! 1. what is kept: keys, feedback, catalogs, audit log, conversations;
//! 2. the gate, of the default agent's policies and the audit log;
//! 3. the agents, which call tools through the gate;
//! 4. the MCP gateway, through the same gate and with the agent's tools;
//! 5. the drop-in endpoint.
//!
//! All that search do it on the threads of one [`CpuPool`]. The catalogs are opened once the server
//! listens. Agents and gateway need the default one before, so they get its [`DefaultSearch`].

mod one_client;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use toolscout_index::{DataDir, Options, database};

use crate::agent::{AgentBuilder, AgentConfig, Agents, ServedAgent};
use crate::config::{
    DEFAULT_CATALOG, EnrichSettings, ExternalMode, ExternalSettings, UsageSettings,
};
use crate::cpu_pool::CpuPool;
use crate::dropin::{self, DropIn, DropInConfig};
use crate::external::ExternalCatalog;
use crate::feedback::FeedbackStore;
use crate::finder::ToolSearch;
use crate::gate::{AuditLog, Gate, Policies, audit};
use crate::http::{
    self, COPIES, DefaultSearch, Elsewhere, EmbedderSource, EmbeddersOf, Enriching, Exposure,
    Limits, McpServices, OpenElsewhere, Parts, Profiles, ServedCatalogs, ShadowedCatalog,
    TokenSavings,
};
use crate::keys::{KeyError, KeyStore, Scope};
use crate::llm::ChatModel;
use crate::mcp::{Gateway, GatewayConfig, GatewayParts, Pool};
use crate::profiles::ToolProfile;
use crate::session::Sessions;
use crate::shadow::{self, Plan};
use crate::shared::{PushedTools, SharedStore, StoreError};
use crate::shutdown::Shutdown;
use crate::store::{PostgresStore, SharedApprovals, SharedSessions};
use crate::telemetry::Metrics;
use crate::tools::Toolset;
use crate::tools::operation::Operations;
use crate::usage::Recorder;
use crate::usage::shadow::Shadow;

pub use one_client::{ClientSettings, OneClient};

/// The database of conversations, in the data directory.
const SESSIONS_FILE: &str = "agent.db";

/// What a server is to be.
pub struct Settings {
    /// The directory of catalogs, keys and feedback.
    pub data: PathBuf,
    /// The store of the catalogs that several nodes share; without one they are in `data`.
    pub store: Option<Arc<PostgresStore>>,
    /// Catalogs whose tools are in a search engine that somebody else runs, by name.
    pub external: BTreeMap<String, ExternalSettings>,
    /// The catalog of routes that name none; created when it does not exist.
    pub default_catalog: String,
    /// How catalogs are opened that name no embedders.
    pub catalog_options: Options,
    /// Loads those of catalogs that name others; without it all catalogs have the same.
    pub embedder_source: Option<EmbedderSource>,
    /// Host names of the server, besides `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API.
    pub allowed_origins: Vec<String>,
    /// Whether the API may be open to a network without keys.
    pub exposure: Exposure,
    /// The agents of the `/v1/agent` routes; without any they answer 503.
    pub agents: Option<AgentPlans>,
    /// The scope of keys that may ask the agents.
    pub agent_scope: Scope,
    /// The MCP servers whose tools are synced to the default catalog and called; none by default.
    pub mcp_pool: Pool,
    /// How the `/mcp` route shows the default catalog.
    pub gateway: GatewayConfig,
    /// Parts of catalogs that requests may be limited to.
    pub profiles: Vec<ToolProfile>,
    /// The model provider behind the routes of its API; without one they answer 503.
    pub dropin: Option<DropInConfig>,
    /// When the model of `enricher` writes texts of tools.
    pub enrich: EnrichSettings,
    /// What is recorded of the use of tools.
    pub usage: UsageSettings,
    /// What is compared on live searches, if anything.
    pub shadow: Option<Plan>,
    /// The model that writes them; without one nobody here does.
    pub enricher: Option<Arc<dyn ChatModel>>,
    /// How much the server accepts and keeps open.
    pub limits: Limits,
}

impl Settings {
    /// A server for this machine, over a data directory, without embedders, agents, MCP servers and provider.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Settings {
            data: data.into(),
            store: None,
            external: BTreeMap::new(),
            default_catalog: DEFAULT_CATALOG.to_owned(),
            catalog_options: Options::default(),
            embedder_source: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            exposure: Exposure::Loopback,
            agents: None,
            agent_scope: Scope::Search,
            mcp_pool: Pool::default(),
            gateway: GatewayConfig::default(),
            profiles: Vec::new(),
            dropin: None,
            enrich: EnrichSettings::default(),
            usage: UsageSettings::default(),
            shadow: None,
            enricher: None,
            limits: Limits::default(),
        }
    }
}

/// An agent without what it shares with others: the catalog, the gate, conversations, MCP servers.
#[derive(Default)]
pub struct AgentPlan {
    /// The model, and tools of its own.
    pub builder: AgentBuilder,
    /// Its settings.
    pub config: AgentConfig,
    /// The operations of APIs that it may call.
    pub operations: Operations,
    /// What it is for.
    pub description: String,
    /// What it needs and does not have, each with how to get it.
    pub missing: Vec<String>,
}

/// The agents of a server.
pub struct AgentPlans {
    /// That of questions that choose none.
    pub default: AgentPlan,
    /// Those that a question may choose.
    pub others: Vec<AgentPlan>,
}

impl From<AgentPlan> for AgentPlans {
    fn from(default: AgentPlan) -> Self {
        AgentPlans {
            default,
            others: Vec::new(),
        }
    }
}

/// What agents share.
pub struct AgentParts<'a> {
    /// The directory of their conversations, without a store.
    pub data: &'a Path,
    /// The store of their conversations and open approvals.
    pub store: Option<&'a Arc<PostgresStore>>,
    /// The log of their calls.
    pub audit: &'a Arc<AuditLog>,
    /// The gate of the default one. Others have policies of their own.
    pub gate: &'a Arc<Gate>,
    /// The catalog.
    pub search: Arc<dyn ToolSearch>,
    /// The MCP servers.
    pub pool: &'a Pool,
}

impl AgentPlans {
    /// Builds the agents.
    ///
    /// # Errors
    /// If the conversations cannot be opened.
    pub fn build(self, parts: &AgentParts<'_>) -> Result<Agents> {
        let mut default = self.default;
        default.builder = parts.stored(default.builder.gate(Arc::clone(parts.gate)))?;
        let default = default.build(parts)?;
        let mut others = Vec::new();
        for mut other in self.others {
            // Not the gate of the default one, whose policies are not theirs.
            let builder = other.builder.audit(Arc::clone(parts.audit));
            let builder = builder.usage(parts.gate.usage().clone());
            other.builder = builder.sharing(&default.agent);
            others.push(other.build(parts)?);
        }
        Ok(Agents::new(default, others))
    }
}

impl AgentParts<'_> {
    /// Keeps conversations in the data directory, or in the store.
    fn stored(&self, builder: AgentBuilder) -> Result<AgentBuilder> {
        let Some(store) = self.store else {
            let sessions = Sessions::open(&self.data.join(SESSIONS_FILE))?;
            return Ok(builder.sessions(Arc::new(sessions)));
        };
        let sessions = Sessions::over(SharedSessions::new(Arc::clone(store)));
        Ok(builder
            .sessions(Arc::new(sessions))
            .approval_board(Arc::new(SharedApprovals::new(store))))
    }
}

impl AgentPlan {
    fn build(self, parts: &AgentParts<'_>) -> Result<ServedAgent> {
        let search = Arc::clone(&parts.search);
        let operations = self.operations;
        let operations = operations.found_by(Arc::new(move |id| search.tool(id)));
        let builder = self
            .builder
            .config(self.config)
            .shared_catalog(Arc::clone(&parts.search))
            // Where several offer a tool, the first is called: those of the agent come before.
            .tools(operations)
            .tools(parts.pool.clone());
        Ok(ServedAgent {
            agent: builder.build()?,
            description: self.description,
            missing: self.missing,
        })
    }
}

/// Opens the audit log of a data directory, which is created if it does not exist.
///
/// # Errors
/// If the directory or the log cannot be used.
pub fn audit_log(data: &Path) -> Result<Arc<AuditLog>> {
    database::create_private_dir(data).with_context(|| format!("create {}", data.display()))?;
    Ok(Arc::new(AuditLog::open(&data.join(audit::FILE_NAME))?))
}

/// The gate of the default agent, and of those who call tools without an agent.
pub fn gate(agents: Option<&AgentPlans>, audit: &Arc<AuditLog>, usage: Recorder) -> Arc<Gate> {
    let policies = match agents {
        Some(agents) => agents.default.config.policies.clone(),
        None => Policies::default(),
    };
    let gate = Gate::new(policies).with_audit(Arc::clone(audit));
    Arc::new(gate.with_usage(usage))
}

/// Binds the address of a server, unless that would open it without keys to a network.
///
/// # Errors
/// As [`http::bind`].
pub async fn bind(address: SocketAddr, settings: &Settings) -> Result<TcpListener> {
    let store = settings.store.clone();
    let store = store.map(|store| store as Arc<dyn SharedStore>);
    let keys = || open_keys(&settings.data, store.as_ref());
    http::bind(address, settings.exposure, keys).await
}

/// Puts a server together and serves until the shutdown, as [`http::serve`].
///
/// # Errors
/// If the data directory cannot be used.
pub async fn serve(listener: TcpListener, settings: Settings, shutdown: Shutdown) -> Result<()> {
    let parts = parts(settings, &shutdown)?;
    http::serve(listener, parts, shutdown).await
}

/// Builds the parts of a server.
fn parts(settings: Settings, shutdown: &Shutdown) -> Result<Parts> {
    let Settings { data, limits, .. } = settings;
    let shared = settings.store.clone();
    let shared = shared.map(|store| store as Arc<dyn SharedStore>);
    let audit = audit_log(&data)?;
    let usage = Recorder::start(&data, &settings.default_catalog, &settings.usage);
    let metrics = metrics(shared.as_ref(), &usage);
    let cpu_pool = cpu_pool(&limits, &metrics);

    let enriching = Enriching::new(settings.enricher, settings.enrich, &data, shared.as_ref())?;
    let keys = open_keys(&data, shared.as_ref())?;
    let feedback = open_feedback(&data, shared.as_ref())?;
    let endpoint_options = instant_embedders(&settings.catalog_options);
    let embedders = EmbeddersOf::new(settings.catalog_options, settings.embedder_source);
    let (folder, counted) = (DataDir::new(data.clone()), Arc::clone(&metrics));
    let elsewhere = elsewhere(settings.external, shared.is_some(), &cpu_pool)?;
    let catalogs = ServedCatalogs::new(
        folder,
        embedders,
        &limits,
        counted,
        shared.clone(),
        elsewhere,
    );
    let catalogs = Arc::new(catalogs);
    let shadow = start_shadow(
        settings.shadow,
        &data,
        &settings.default_catalog,
        &catalogs,
        &cpu_pool,
    )?;
    let usage = usage.with_shadow(shadow);
    // It stands in for the default catalog until the server listens and opens it.
    let default_search = DefaultSearch::new(cpu_pool.clone());

    let gate = gate(settings.agents.as_ref(), &audit, usage.clone());
    let (default, profiles) = (&settings.default_catalog, settings.profiles);
    let profiles = Profiles::new(profiles, default, &catalogs, &gate, &cpu_pool);
    let agent_parts = AgentParts {
        data: &data,
        store: settings.store.as_ref(),
        audit: &audit,
        gate: &gate,
        search: Arc::new(default_search.clone()),
        pool: &settings.mcp_pool,
    };
    let agents = settings.agents;
    let agents = agents
        .map(|agents| agents.build(&agent_parts))
        .transpose()?;

    let token_savings = TokenSavings::start();
    let client_approvals = Arc::default();
    let agent = agents.as_ref().map(Agents::default_agent).cloned();
    let gateway = Gateway::of_server(GatewayParts {
        toolset: agent.map(|agent| Arc::new(agent) as Arc<dyn Toolset>),
        approvals: Some(Arc::clone(&client_approvals)),
        ..GatewayParts::new(
            Arc::new(token_savings.counting(default_search.clone())),
            settings.mcp_pool.clone(),
            Arc::clone(&gate),
            settings.gateway,
        )
    });

    let new_dropin = |config| {
        let folder = data.join(dropin::CATALOGS_FOLDER);
        let (metrics, cpu_pool) = (Arc::clone(&metrics), cpu_pool.clone());
        DropIn::new(config, folder, endpoint_options, metrics, cpu_pool)
    };
    let dropin = settings.dropin.map(new_dropin).transpose()?;

    Ok(Parts {
        mcp: McpServices::new(gateway, &limits, shutdown.token()),
        profiles,
        store: shared,
        default_catalog: settings.default_catalog,
        agent_scope: settings.agent_scope,
        mcp_pool: settings.mcp_pool,
        allowed_hosts: settings.allowed_hosts,
        allowed_origins: settings.allowed_origins,
        exposure: settings.exposure,
        metrics,
        cpu_pool,
        keys,
        feedback,
        catalogs,
        default_search,
        gate,
        usage,
        agents,
        client_approvals,
        token_savings,
        dropin,
        enriching,
        limits,
    })
}

/// Starts the shadow of the settings, and discards what is left of others.
fn start_shadow(
    plan: Option<Plan>,
    data: &Path,
    default_catalog: &str,
    catalogs: &Arc<ServedCatalogs>,
    cpu_pool: &CpuPool,
) -> Result<Option<Shadow>> {
    // No settings name the others any more.
    shadow::discard_all_but(data, plan.as_ref());
    let Some(plan) = plan else {
        return Ok(None);
    };
    let shadowed = ShadowedCatalog::new(catalogs, &plan.identity().catalog, cpu_pool);
    let started = shadow::start(data, default_catalog, plan, Box::new(shadowed));
    Ok(Some(started.context("start the shadow of the settings")?))
}

/// The catalogs that are only read from a search engine that somebody else runs.
fn elsewhere(
    mut external: BTreeMap<String, ExternalSettings>,
    has_store: bool,
    cpu_pool: &CpuPool,
) -> Result<Option<Elsewhere>> {
    external.retain(|_, settings| settings.mode == ExternalMode::Read);
    let Some(first) = external.keys().next() else {
        return Ok(None);
    };
    if has_store {
        bail!(
            "catalogs.{first} is in another search engine, and --store has all catalogs of this server; use one of them"
        );
    }
    let runtime = Handle::current();
    let names = external.keys().cloned().collect();
    let (of_catalogs, cpu_pool) = (runtime.clone(), cpu_pool.clone());
    let open: OpenElsewhere = Box::new(move |name, weights| {
        let settings = external.get(name).cloned();
        let settings = settings.ok_or(StoreError::Deleted)?;
        let opened = ExternalCatalog::open(settings, weights, &of_catalogs, cpu_pool.clone())?;
        Ok(Arc::new(opened) as Arc<dyn PushedTools>)
    });
    Ok(Some(Elsewhere {
        names,
        open,
        runtime,
    }))
}

/// The figures of a server, those of its store, and those of the use of tools.
fn metrics(store: Option<&Arc<dyn SharedStore>>, usage: &Recorder) -> Arc<Metrics> {
    let mut metrics = Metrics::new();
    metrics.add(|registry| usage.register(registry));
    if let Some(store) = store {
        metrics.add(|registry| store.figures().register(registry));
    }
    Arc::new(metrics)
}

fn cpu_pool(limits: &Limits, metrics: &Metrics) -> CpuPool {
    CpuPool::new(
        limits.search_threads,
        limits.search_queue,
        limits.search_patience,
        metrics.search_queue.clone(),
    )
}

/// The embedders of the drop-in endpoint. A client waits for its tools, so slow ones are left out.
fn instant_embedders(options: &Options) -> Options {
    let mut options = Options::new(options.embedders.clone());
    options.embedders.retain(|embedder| embedder.is_instant());
    options
}

/// The keys of the data directory, or of the store with a copy in it.
fn open_keys(data: &Path, store: Option<&Arc<dyn SharedStore>>) -> Result<KeyStore, KeyError> {
    match store {
        Some(store) => Arc::clone(store).keys(Some(&data.join(COPIES))),
        None => KeyStore::open(data),
    }
}

/// The feedback of the data directory, or of the store.
fn open_feedback(data: &Path, store: Option<&Arc<dyn SharedStore>>) -> Result<FeedbackStore> {
    let local = FeedbackStore::open(data)?;
    Ok(match store {
        Some(store) => Arc::clone(store).feedback(local),
        None => local,
    })
}
