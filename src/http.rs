//! The HTTP API: every route, the state they share and the bounds they keep.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::routing::{any, get, post, put};
use axum::{Router, middleware};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use toolscout_index::{DataDir, Embedder};
use tower_http::cors::CorsLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::agent::Agent;
use crate::finder::ToolSearch;
use crate::finder::snapshot::Newest;
use crate::gate::{AuditLog, Gate, Policies, audit};
use crate::keys::KeyStore;
use crate::mcp::{CatalogSink, GatewayConfig, Pool};
use crate::shutdown::Shutdown;
use crate::telemetry::Metrics;
use crate::tools::Toolset;

mod access;
#[allow(
    unused_qualifications,
    reason = "in what utoipa's macro makes of query parameters"
)]
mod agent;
mod catalogs;
mod connection;
mod descriptors;
mod envelope;
mod error;
mod extract;
mod feedback;
mod guard;
mod mcp;
#[allow(
    unused_qualifications,
    reason = "in what utoipa's macro makes of query parameters"
)]
mod memory;
mod openapi;
mod pool;
mod registry;
#[allow(
    unused_qualifications,
    reason = "in what utoipa's macro makes of query parameters"
)]
mod search;
mod servers;
mod service;
mod settings;
mod stream;
mod tasks;
#[allow(
    unused_qualifications,
    reason = "in what utoipa's macro makes of query parameters"
)]
mod tools;
mod wire;
mod write_queue;

pub use descriptors::raise_descriptor_limit;
use error::{ApiError, ApiResult};
pub use feedback::{FILE_NAME as FEEDBACK_FILE, FeedbackStore};
use pool::SearchPool;
use registry::{OpenCatalog, Registry};
use tasks::Tasks;

/// Every route of the API.
pub fn router(app: App) -> Router {
    let limits = &app.limits;
    let bulk = DefaultBodyLimit::max(limits.bulk_body_bytes);
    let routes = Router::new()
        .route("/v1/search", post(search::search_default))
        .route("/v1/catalogs", get(catalogs::list).post(catalogs::create))
        .route(
            "/v1/catalogs/{catalog}",
            get(catalogs::show)
                .put(catalogs::ensure)
                .delete(catalogs::delete),
        )
        .route(
            "/v1/catalogs/{catalog}/settings",
            get(catalogs::settings).put(catalogs::set_settings),
        )
        .route("/v1/catalogs/{catalog}/stats", get(catalogs::stats))
        .route(
            "/v1/catalogs/{catalog}/search",
            get(search::search_by_query).post(search::search),
        )
        .route("/v1/catalogs/{catalog}/feedback", post(feedback::record))
        .route(
            "/v1/catalogs/{catalog}/memory",
            get(memory::list).put(memory::switch).delete(memory::forget),
        )
        .route("/v1/catalogs/{catalog}/memory/export", get(memory::export))
        .route(
            "/v1/catalogs/{catalog}/tools",
            get(tools::list)
                .post(tools::upsert)
                .delete(tools::remove_matching)
                .layer(bulk),
        )
        .route(
            "/v1/catalogs/{catalog}/tools/{*id}",
            get(tools::show)
                .put(tools::put)
                .delete(tools::remove)
                .layer(bulk),
        )
        .route(
            "/v1/catalogs/{catalog}/servers/{server}/tools",
            put(servers::sync).layer(bulk),
        )
        .route("/v1/tasks/{id}", get(tasks::show).delete(tasks::cancel))
        .route(mcp::PATH, any(mcp::serve))
        .route("/livez", get(service::livez))
        .route("/readyz", get(service::readyz))
        .route("/healthz", get(service::healthz))
        .route("/version", get(service::version))
        .route("/metrics", get(service::metrics))
        .route("/openapi.json", get(service::openapi))
        .route("/docs", get(service::docs))
        .merge(agent::routes())
        .fallback(service::no_route);
    // From the inside out: the last layer meets a request first.
    routes
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .layer(RequestBodyTimeoutLayer::new(limits.body_stall))
        .layer(cors(&app.allowed_origins))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .layer(middleware::from_fn_with_state(
            app.clone(),
            envelope::envelope,
        ))
        .with_state(app)
}

/// How the API is served.
pub struct Settings {
    /// Where catalogs, keys and feedback are kept.
    pub data: PathBuf,
    /// The catalog of the routes without one; made when it is not there.
    pub default_catalog: String,
    /// The dense legs; none means lexical search.
    pub embedders: Vec<Arc<dyn Embedder>>,
    /// Names this server goes by, beside `localhost` and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API.
    pub allowed_origins: Vec<String>,
    /// Whether the API may be open to a network without keys.
    pub exposure: Exposure,
    /// Makes the agent of the `/v1/agent` routes; without one they say so.
    pub agent: Option<AgentSource>,
    /// The MCP servers whose tools are kept in the default catalog and called; none by default.
    pub upstream: Pool,
    /// How the `/mcp` route shows the default catalog.
    pub gateway: GatewayConfig,
    /// The bounds.
    pub limits: Limits,
}

/// Makes an agent over the tools of the default catalog.
pub type AgentSource = Box<dyn Fn(Arc<dyn ToolSearch>) -> anyhow::Result<Agent> + Send + Sync>;

/// Who may reach the server while no keys are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// This machine alone.
    #[default]
    Loopback,
    /// Whoever reaches the address.
    AnyoneWithoutKeys,
}

/// The bounds of everything a client can make the server hold, or wait for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. For one more, that without a request which waited longest is closed; while
    /// all of them have requests, more wait in the system's backlog.
    pub max_connections: usize,
    /// Connections from one address, or one IPv6 network of 64 bits: enough for a proxy, not enough
    /// to be alone.
    pub connections_per_address: usize,
    /// Connections from an address of this machine, where proxies are.
    pub connections_per_loopback_address: usize,
    /// Descriptors that the process may have; `/readyz` says when they are nearly used up.
    pub descriptors: Option<u64>,
    /// Runs of the agent at one time, those without a listener included. Each holds a connection to
    /// the model.
    pub max_runs: usize,
    /// Runs of one key at one time: enough for a person with a few windows, and an eighth of the
    /// server.
    pub max_runs_per_key: usize,
    /// Threads for searches and other CPU work. Twice the cores, since some wait for a shared
    /// embedding.
    pub search_threads: usize,
    /// Searches that wait for a thread; more are turned away.
    pub search_queue: usize,
    /// Changes that wait for one catalog's writer; more are turned away.
    pub write_line: usize,
    /// Query vectors kept for one catalog, about 2 KB each.
    pub cached_queries: usize,
    /// Catalogs in the data directory.
    pub max_catalogs: usize,
    /// Catalogs that are open at one time; one more closes that which was used longest ago.
    pub max_open_catalogs: usize,
    /// A body, where nothing else is said.
    pub body_bytes: usize,
    /// A body of tools.
    pub bulk_body_bytes: usize,
    /// Bodies of tools being read at one time.
    pub bulk_bodies: usize,
    /// From a request to the begin of its answer.
    pub request_timeout: Duration,
    /// A search's wait for a thread.
    pub search_patience: Duration,
    /// From a connection to the end of its first request's headers.
    pub first_request_timeout: Duration,
    /// From an answer to the end of the next request's headers.
    pub header_timeout: Duration,
    /// A pause within a body.
    pub body_stall: Duration,
    /// A pause of a client that reads its answer.
    pub write_stall: Duration,
    /// Between two signs of life on a stream that has nothing to say. Proxies close connections
    /// that are silent for 30 to 60 seconds.
    pub heartbeat: Duration,
    /// From the signal to end until open connections and tasks are cut off.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Limits {
            max_connections: 1024,
            connections_per_address: 256,
            connections_per_loopback_address: 1024,
            descriptors: None,
            max_runs: 64,
            max_runs_per_key: 8,
            search_threads: 2 * cores,
            search_queue: 128 * cores,
            write_line: 64,
            cached_queries: 1024,
            max_catalogs: 256,
            max_open_catalogs: 256,
            body_bytes: 1 << 20,
            bulk_body_bytes: 64 << 20,
            bulk_bodies: 8,
            request_timeout: Duration::from_secs(60),
            search_patience: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            body_stall: Duration::from_secs(15),
            write_stall: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(25),
        }
    }
}

/// Descriptors kept for everything but connections and catalogs: databases of keys, feedback,
/// conversations and audit with their logs, MCP servers, connections to models.
const OTHER_DESCRIPTORS: u64 = 64;
/// Descriptors of an open catalog: four to read it, and as many again while it is written.
const DESCRIPTORS_PER_CATALOG: u64 = 8;
/// Most connections however many descriptors there are: the buffers of so many take 256 MiB at
/// worst.
const MOST_CONNECTIONS: u64 = 4096;

impl Limits {
    /// The limits by default in a process that may have so many descriptors: of those left half are
    /// for connections, half for catalogs. `None` is for one without a limit.
    pub fn within(descriptors: Option<u64>) -> Self {
        let half = descriptors.map_or(u64::MAX, |descriptors| {
            descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2
        });
        let connections = half.clamp(16, MOST_CONNECTIONS) as usize;
        let limits = Limits::default();
        let catalogs =
            (half / DESCRIPTORS_PER_CATALOG).clamp(2, limits.max_catalogs as u64) as usize;
        Limits {
            max_connections: connections,
            connections_per_address: connections / 4,
            connections_per_loopback_address: connections,
            max_open_catalogs: catalogs,
            descriptors,
            ..limits
        }
    }
}

/// What the handlers share. Cheap to clone.
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
    catalogs: Registry,
    default_catalog: String,
    keys: KeyStore,
    feedback: FeedbackStore,
    tasks: Arc<Tasks>,
    pool: SearchPool,
    /// One place for each body of tools being read.
    bulk_bodies: Semaphore,
    metrics: Arc<Metrics>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    limits: Limits,
    agent_source: Option<AgentSource>,
    /// Set once the default catalog is open.
    agent: OnceLock<Agent>,
    runs: agent::Runs,
    page_token: agent::token::PageToken,
    upstream: Pool,
    gateway: GatewayConfig,
    /// Set once the default catalog is open.
    mcp: OnceLock<mcp::McpService>,
    ready: AtomicBool,
    shutdown: Shutdown,
}

impl App {
    /// Opens keys and feedback; catalogs come later, see [`App::open_catalogs`].
    ///
    /// # Errors
    /// When the data directory cannot be used.
    pub fn new(settings: Settings, shutdown: Shutdown) -> anyhow::Result<Self> {
        let Settings {
            data,
            default_catalog,
            embedders,
            allowed_hosts,
            allowed_origins,
            limits,
            ..
        } = settings;
        let (agent_source, upstream, gateway) =
            (settings.agent, settings.upstream, settings.gateway);
        let metrics = Arc::new(Metrics::new());
        let waiting = metrics.search_queue.clone();
        Ok(App(Arc::new(AppState {
            keys: KeyStore::open(&data)?,
            feedback: FeedbackStore::open(&data)?,
            catalogs: Registry::new(
                DataDir::new(data),
                &embedders,
                &limits,
                Arc::clone(&metrics),
            ),
            default_catalog,
            tasks: Arc::default(),
            pool: SearchPool::new(
                limits.search_threads,
                limits.search_queue,
                limits.search_patience,
                waiting,
            ),
            bulk_bodies: Semaphore::new(limits.bulk_bodies),
            runs: agent::Runs::new(limits.max_runs, limits.max_runs_per_key),
            page_token: agent::token::PageToken::random()?,
            metrics,
            allowed_hosts,
            allowed_origins,
            limits,
            agent_source,
            agent: OnceLock::new(),
            upstream,
            gateway,
            mcp: OnceLock::new(),
            ready: AtomicBool::new(false),
            shutdown,
        })))
    }

    /// Opens every catalog and makes the default one; from then on the server is ready.
    ///
    /// # Errors
    /// When the data directory cannot be read or the default catalog cannot be opened.
    pub async fn open_catalogs(&self) -> anyhow::Result<()> {
        let opened = self.catalogs.create(&self.default_catalog).await;
        if let (Ok((catalog, _)), Some(source)) = (&opened, &self.agent_source) {
            let catalog = Arc::clone(catalog);
            let _ = self
                .agent
                .set(source(Arc::new(Newest(move || catalog.searcher())))?);
        }
        if let Ok((catalog, _)) = &opened {
            self.serve_mcp(catalog)?;
        }
        // One that is damaged is in nobody's way: the others are served, and its own routes say
        // what is wrong with it.
        let is_damaged = self.catalogs.damaged().contains_key(&self.default_catalog);
        let opened = opened.map(drop);
        let opened = if opened.is_ok() || is_damaged {
            self.catalogs.open_all().await
        } else {
            opened
        };
        if let Err(error) = opened {
            bail!("{}", error.detail.unwrap_or(error.message));
        }
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Connects to the MCP servers, and opens the `/mcp` route. Its calls go through the agent's
    /// gate, so that both have the same policies and one audit log.
    fn serve_mcp(&self, catalog: &Arc<OpenCatalog>) -> anyhow::Result<()> {
        let agent = self.agent.get();
        let gate = match agent {
            Some(agent) => Arc::clone(agent.gate()),
            None => {
                let audit = AuditLog::open(&self.catalogs.data().join(audit::FILE_NAME))?;
                Arc::new(Gate::new(Policies::default()).with_audit(Arc::new(audit)))
            }
        };
        let toolset = agent.map(|agent| Arc::new(agent.clone()) as Arc<dyn Toolset>);
        self.upstream
            .start(Arc::clone(catalog) as Arc<dyn CatalogSink>);
        let (pool, config) = (self.upstream.clone(), self.gateway.clone());
        let service = mcp::service(
            catalog,
            pool,
            gate,
            toolset,
            config,
            self.limits.body_bytes,
            self.shutdown.token(),
        );
        let _ = self.mcp.set(service);
        Ok(())
    }

    /// Ends the MCP servers, finishes tasks, for as long as the grace period, and every change in
    /// line.
    async fn close(&self) {
        self.upstream.close().await;
        if tokio::time::timeout(self.limits.grace, self.tasks.ended())
            .await
            .is_err()
        {
            tracing::warn!(
                "tasks were still at work at the end of the grace period; they end after their next step"
            );
            self.tasks.cancel_all();
            self.tasks.ended().await;
        }
        if let Err(error) = self.catalogs.close().await {
            tracing::error!(detail = error.detail, "catalogs were not closed");
        }
    }

    fn require_ready(&self) -> ApiResult<()> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = "the catalogs are being opened; try again soon";
        Err(ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_ready",
            message,
        ))
    }

    fn measure_catalogs(&self) {
        let open = self.catalogs.all_open();
        let searchers: Vec<_> = open.iter().map(|catalog| catalog.searcher()).collect();
        self.metrics.catalogs.set(open.len() as i64);
        self.metrics
            .tools
            .set(searchers.iter().map(|searcher| searcher.len() as i64).sum());
        let pending = searchers
            .iter()
            .map(|searcher| searcher.pending_embeddings() as i64)
            .sum();
        self.metrics.pending_embeddings.set(pending);
    }
}

/// Takes the address, if the keys allow to listen there.
///
/// # Errors
/// When the address cannot be had, and for one beyond this machine while no key was made and none
/// was waived.
pub async fn bind(address: SocketAddr, settings: &Settings) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() && settings.exposure == Exposure::Loopback {
        let keys = KeyStore::open(&settings.data)?;
        if !keys.is_in_use()? {
            bail!(
                "{address} can be reached from other machines and there are no API keys; make one with `toolscout \
                 keys create`, or start with --insecure-no-keys to let everyone in"
            );
        }
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

/// Serves the API until the shutdown: then open requests are answered, tasks and changes finished,
/// and streams ended.
///
/// # Errors
/// When the data directory cannot be used.
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let app = App::new(settings, shutdown.clone())?;
    let connections = connection::serve(
        listener,
        router(app.clone()),
        &app.limits,
        Arc::clone(&app.metrics),
        shutdown.clone(),
    );
    let opening = async {
        let opened = app.open_catalogs().await;
        if opened.is_err() {
            shutdown.trigger();
        }
        opened
    };
    let ((), opened) = tokio::join!(connections, opening);
    app.close().await;
    opened
}

/// The headers that pages may send, those of MCP among them.
const ALLOWED_HEADERS: [&str; 8] = [
    "authorization",
    "content-type",
    "x-api-key",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
];
/// The header that names an MCP session.
const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Pages of these origins may call the API; without any, no page but our own.
fn cors(origins: &[String]) -> CorsLayer {
    let origins: Vec<HeaderValue> = origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(ALLOWED_HEADERS.map(HeaderName::from_static))
        .expose_headers([
            envelope::REQUEST_ID,
            header::RETRY_AFTER,
            header::LOCATION,
            MCP_SESSION_ID,
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_catalogs_fit_into_the_descriptors() {
        for descriptors in [256, 1024, 20_000, 1 << 20] {
            let limits = Limits::within(Some(descriptors));
            let catalogs = limits.max_open_catalogs as u64 * DESCRIPTORS_PER_CATALOG;
            assert!(
                limits.max_connections as u64 + catalogs + OTHER_DESCRIPTORS <= descriptors,
                "{limits:?}"
            );
        }
        let [few, many] = [Some(1024), None].map(Limits::within);
        assert_eq!(
            (
                few.max_connections,
                few.connections_per_address,
                few.max_open_catalogs
            ),
            (480, 120, 60)
        );
        assert_eq!((many.max_connections, many.max_open_catalogs), (4096, 256));
    }
}
