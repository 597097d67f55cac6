//! The parts of a server, and which of them a handler can take.

use std::sync::Arc;

use axum::extract::FromRef;
use tokio_util::task::TaskTracker;

use crate::access::audit::AuditLogs;
use crate::access::key_watch::KeyWatch;
use crate::access::profiles::Profiles;
use crate::access::{Access, Exposure};
use crate::admin::figure_keeper::FigureKeeper;
use crate::admin::gauges::Gauges;
use crate::admin::service::HealthCheck;
use crate::admin::stats::{Started, StatsSources};
use crate::admin::usage::UsageReports;
use crate::agent::approvals::WaitingCalls;
use crate::agent::{AgentRuns, PageToken, Runs};
use crate::catalogs::calls::ToolCalls;
use crate::catalogs::enrich::{Enriching, TextWriter};
use crate::catalogs::stream::Streams;
use crate::catalogs::tools::body::BulkBodies;
use crate::default_catalog::DefaultCatalog;
use crate::dropin::{BodyBudget, DropInEndpoint, KnownConversations};
use crate::evaluations::Evaluations;
use crate::evaluations::judgings::Judgings;
use crate::layers::guard::AllowedSites;
use crate::mcp::McpServices;
use crate::process::limits::Limits;
use crate::process::shutdown::Shutdown;
use crate::search::SearchParts;
use crate::search::feedback::Feedback;
use crate::served::tokens::TokenSavings;
use crate::served::{DefaultSearch, ServedCatalogs};
use crate::tasks::Tasks;
use toolscout_agent::Agents;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::Metrics;
use toolscout_dropin::DropIn;
use toolscout_gate::gate::{Approvals, Gate};
use toolscout_gate::usage::Recorder;
use toolscout_mcp::Pool;
use toolscout_mcp::gateway::Ledgers;
use toolscout_state::feedback::FeedbackStore;
use toolscout_state::keys::{KeyStore, Scope};
use toolscout_state::shared::SharedStore;

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

/// What the router hands out: a handler takes the parts that it needs, as `State<CpuPool>`. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<AppState>);

impl std::ops::Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// Every part that a handler can take.
pub struct AppState {
    pub access: Arc<Access>,
    pub agents: Arc<AgentRuns>,
    pub allowed: Arc<AllowedSites>,
    pub audit_logs: Arc<AuditLogs>,
    /// The tasks that belong to no request.
    pub background: TaskTracker,
    pub bulk_bodies: Arc<BulkBodies>,
    pub calls: Arc<ToolCalls>,
    pub catalogs: Arc<ServedCatalogs>,
    pub cpu_pool: CpuPool,
    pub default_catalog: Arc<DefaultCatalog>,
    pub dropin: Arc<DropInEndpoint>,
    pub evaluations: Arc<Evaluations>,
    pub exposure: Exposure,
    pub feedback: Arc<Feedback>,
    pub feedback_store: FeedbackStore,
    pub figure_keeper: FigureKeeper,
    pub gate: Arc<Gate>,
    pub gauges: Gauges,
    pub health: HealthCheck,
    pub judgings: Judgings,
    /// What goes on for each key.
    pub key_watch: KeyWatch,
    pub keys: KeyStore,
    pub limits: Arc<Limits>,
    pub mcp: Arc<McpServices>,
    pub metrics: Arc<Metrics>,
    pub page_token: Arc<PageToken>,
    pub profiles: Profiles,
    pub search: SearchParts,
    pub shutdown: Shutdown,
    pub stats: StatsSources,
    pub store: Option<Arc<dyn SharedStore>>,
    pub streams: Arc<Streams>,
    pub tasks: Arc<Tasks>,
    pub text_writer: TextWriter,
    pub token_savings: TokenSavings,
    pub usage: Recorder,
    pub usage_reports: UsageReports,
    pub waiting_calls: Arc<WaitingCalls>,
}

/// Lets handlers take a part alone.
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
    Arc<AgentRuns>: agents,
    Arc<AllowedSites>: allowed,
    Arc<AuditLogs>: audit_logs,
    TaskTracker: background,
    Arc<BulkBodies>: bulk_bodies,
    Arc<ToolCalls>: calls,
    Arc<ServedCatalogs>: catalogs,
    CpuPool: cpu_pool,
    Arc<DefaultCatalog>: default_catalog,
    Arc<DropInEndpoint>: dropin,
    Arc<Evaluations>: evaluations,
    Exposure: exposure,
    Arc<Feedback>: feedback,
    FeedbackStore: feedback_store,
    FigureKeeper: figure_keeper,
    Arc<Gate>: gate,
    Gauges: gauges,
    HealthCheck: health,
    Judgings: judgings,
    KeyWatch: key_watch,
    KeyStore: keys,
    Arc<Limits>: limits,
    Arc<McpServices>: mcp,
    Arc<Metrics>: metrics,
    Arc<PageToken>: page_token,
    Profiles: profiles,
    SearchParts: search,
    Shutdown: shutdown,
    StatsSources: stats,
    Arc<Streams>: streams,
    Arc<Tasks>: tasks,
    TextWriter: text_writer,
    TokenSavings: token_savings,
    Recorder: usage,
    UsageReports: usage_reports,
    Arc<WaitingCalls>: waiting_calls,
}

impl App {
    /// A server of these parts, whose catalogs are not open yet.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(parts: Parts, shutdown: Shutdown) -> anyhow::Result<Self> {
        let limits = Arc::new(parts.limits);
        let Parts {
            store,
            metrics,
            cpu_pool,
            keys,
            catalogs,
            gate,
            usage,
            profiles,
            token_savings,
            ..
        } = parts;
        let key_watch = KeyWatch::default();
        let streams = Arc::new(Streams::new(Arc::clone(&metrics), shutdown.clone()));
        let tasks = Arc::new(Tasks::over(store.clone()));
        let audit_logs = AuditLogs::new(catalogs.data(), store.clone(), shutdown.clone());
        let evaluations =
            Evaluations::new(Arc::clone(&catalogs), cpu_pool.clone(), shutdown.clone());
        let access = Arc::new(Access::new(
            keys.clone(),
            key_watch.clone(),
            Arc::clone(&catalogs),
            parts.default_catalog.clone(),
        ));
        let default_catalog = Arc::new(DefaultCatalog::new(
            parts.default_catalog,
            parts.default_search,
            parts.agents,
            parts.mcp_pool,
        ));
        let agents = Arc::new(AgentRuns {
            default_catalog: Arc::clone(&default_catalog),
            profiles: profiles.clone(),
            running: Runs::new(limits.max_runs, limits.max_runs_per_key),
            key_watch: key_watch.clone(),
            metrics: Arc::clone(&metrics),
            shutdown: shutdown.clone(),
            scope: parts.agent_scope,
            heartbeat: limits.heartbeat,
        });
        let calls = Arc::new(ToolCalls {
            gate: Arc::clone(&gate),
            ledgers: Ledgers::default(),
            default_catalog: Arc::clone(&default_catalog),
            cpu_pool: cpu_pool.clone(),
        });
        let bodies = BodyBudget::new(
            limits.model_body_bytes,
            limits.search_patience,
            Arc::clone(&metrics),
        );
        let dropin = DropInEndpoint {
            provider: parts.dropin,
            agents: Arc::clone(&agents),
            conversations: KnownConversations::default(),
            bodies,
            access: Arc::clone(&access),
            catalogs: Arc::clone(&catalogs),
            calls: Arc::clone(&calls),
            usage: usage.clone(),
        };
        let feedback = Arc::new(Feedback::new(parts.feedback.clone(), Arc::clone(&metrics)));
        let gauges = Gauges {
            metrics: Arc::clone(&metrics),
            catalogs: Arc::clone(&catalogs),
            default_catalog: Arc::clone(&default_catalog),
            store: store.clone(),
        };
        Ok(App(Arc::new(AppState {
            allowed: Arc::new(AllowedSites {
                hosts: parts.allowed_hosts,
                origins: parts.allowed_origins,
            }),
            audit_logs: Arc::new(audit_logs),
            background: TaskTracker::new(),
            bulk_bodies: Arc::new(BulkBodies::new(
                limits.bulk_bodies,
                Arc::clone(&metrics),
                cpu_pool.clone(),
            )),
            dropin: Arc::new(dropin),
            evaluations: Arc::new(evaluations),
            exposure: parts.exposure,
            feedback_store: parts.feedback,
            figure_keeper: FigureKeeper::open(
                catalogs.data(),
                gauges.clone(),
                token_savings.clone(),
            ),
            health: HealthCheck {
                access: Arc::clone(&access),
                catalogs: Arc::clone(&catalogs),
                store: store.clone(),
                descriptors: limits.descriptors,
                shutdown: shutdown.clone(),
            },
            judgings: Judgings::default(),
            mcp: Arc::new(parts.mcp),
            page_token: Arc::new(PageToken::random()?),
            search: SearchParts {
                cpu_pool: cpu_pool.clone(),
                feedback: Arc::clone(&feedback),
                metrics: Arc::clone(&metrics),
                usage: usage.clone(),
                token_savings: token_savings.clone(),
            },
            stats: StatsSources {
                gauges: gauges.clone(),
                started: Started::now(),
                limits: Arc::clone(&limits),
                cpu_pool: cpu_pool.clone(),
                token_savings: token_savings.clone(),
                tasks: Arc::clone(&tasks),
                streams: Arc::clone(&streams),
                runs: agents.running.clone(),
            },
            text_writer: TextWriter {
                enriching: Arc::new(parts.enriching),
                catalogs: Arc::clone(&catalogs),
                shutdown: shutdown.clone(),
            },
            usage_reports: UsageReports {
                recorder: usage.clone(),
                catalogs: Arc::clone(&catalogs),
                store: store.clone(),
            },
            waiting_calls: Arc::new(WaitingCalls {
                of_clients: parts.client_approvals,
                default_catalog: Arc::clone(&default_catalog),
            }),
            access,
            agents,
            calls,
            catalogs,
            cpu_pool,
            default_catalog,
            feedback,
            gate,
            gauges,
            key_watch,
            keys,
            limits,
            metrics,
            profiles,
            shutdown,
            store,
            streams,
            tasks,
            token_savings,
            usage,
        })))
    }
}
