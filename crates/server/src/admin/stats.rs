//! The figures of the server as JSON: what `/metrics` has for Prometheus, with percentiles, and
//! what else an operator looks at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::gauges::Gauges;
use crate::access::Grant;
use crate::agent::Runs;
use crate::catalogs::stream::{self, Streams};
use crate::process::limits::Limits;
use crate::request::error::ApiResult;
use crate::request::extract::Json;
use crate::served::tokens::{SavedTokens, Source, TokenSavings};
use crate::tasks::{self, Tasks};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::latencies::{BOUNDS_S, Buckets};
use toolscout_base::telemetry::{Metrics, process};
use toolscout_state::shared::{SharedStore, StoreFigures};

/// The stage of all stages together.
pub(super) const ALL_STAGES: &str = "total";

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

/// Where the figures are. Cheap to clone.
#[derive(Clone)]
pub struct StatsSources {
    /// The figures that `/metrics` has too.
    pub gauges: Gauges,
    pub started: Started,
    pub limits: Arc<Limits>,
    pub cpu_pool: CpuPool,
    pub token_savings: TokenSavings,
    pub tasks: Arc<Tasks>,
    pub streams: Arc<Streams>,
    pub runs: Runs,
}

/// The figures of a server since it was started.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerStats {
    /// The version of the program.
    version: &'static str,
    /// When it was started, in milliseconds since 1970.
    started_at_ms: i64,
    /// Seconds since then.
    uptime_s: f64,
    /// Resident memory of the process in bytes; null where the system does not tell it.
    memory_bytes: Option<u64>,
    /// Requests over HTTP, of every route.
    requests: RequestStats,
    /// Searches of the API.
    searches: SearchStats,
    /// Work that was refused because a limit was reached, by limit.
    refused: BTreeMap<&'static str, u64>,
    /// What runs and waits, and how much of it may.
    queues: Vec<QueueStats>,
    /// Open catalogs.
    catalogs: CatalogsStats,
    /// Texts of searches whose vectors were cached, and that were embedded.
    embedding_cache: CacheStats,
    /// Records of feedback that were stored.
    feedback: u64,
    /// Tokens of tool definitions that search saved.
    tokens: TokenStats,
    /// The store that several nodes share; null without one.
    store: Option<StoreStats>,
}

/// The store as this node sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct StoreStats {
    /// Why it counts as away; null while it answers.
    away: Option<String>,
    /// Open catalogs that are behind it.
    catalogs_behind: u64,
    /// By how many generations the one that is farthest behind is.
    lag_generations: u64,
    /// Connections to the server that takes writes.
    connections: u64,
    /// Those of them that nobody uses.
    idle_connections: u64,
    /// How many connections there may be.
    connection_limit: u64,
    /// Questions and writes that are under way; those beyond the connections wait for one.
    in_flight: u64,
    /// Time of questions and writes, waiting for a connection included.
    latency: Latency,
    /// Questions and writes that it did not answer, or refused.
    failures: u64,
    /// How often listening to it began anew.
    reconnects: u64,
    /// How often another server became the one for writes.
    failovers: u64,
}

impl StoreStats {
    fn of(store: &dyn SharedStore) -> Self {
        let figures = store.figures();
        StoreStats {
            away: store.problem(),
            catalogs_behind: gauge(figures.behind.get()),
            lag_generations: gauge(figures.lag.get()),
            connections: gauge(figures.connections.get()),
            idle_connections: gauge(figures.idle_connections.get()),
            connection_limit: StoreFigures::MAX_CONNECTIONS.into(),
            in_flight: gauge(figures.in_flight.get()),
            latency: Latency::of(&figures.seconds.read()),
            failures: figures.failures.get(),
            reconnects: figures.reconnects.get(),
            failovers: figures.failovers.get(),
        }
    }
}

/// Requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestStats {
    /// Number of answered requests.
    total: u64,
    /// Requests that are being answered.
    in_flight: i64,
    /// Number of answers by the class of their status: `2xx`, `3xx`, `4xx`, `5xx`.
    by_class: BTreeMap<String, u64>,
    /// Time to the beginning of the answer.
    latency: Latency,
    /// How many took how long, for percentiles over a time between two reads.
    buckets: Vec<Bucket>,
    /// By method and route, most requests first.
    routes: Vec<RouteStats>,
}

/// Requests of one route.
#[derive(Debug, Serialize, ToSchema)]
pub struct RouteStats {
    /// The method.
    method: &'static str,
    /// The pattern of the route.
    route: String,
    /// Number of answered requests.
    total: u64,
    /// Number of answers by the class of their status.
    by_class: BTreeMap<String, u64>,
    /// Time to the beginning of the answer.
    latency: Latency,
}

/// Searches.
#[derive(Debug, Serialize, ToSchema)]
pub struct SearchStats {
    /// Number of answered searches.
    total: u64,
    /// Those without a good enough match.
    no_match: u64,
    /// Those by the mode that they were answered with.
    by_mode: BTreeMap<&'static str, u64>,
    /// Those that lacked something, by the code of the cause.
    degraded: BTreeMap<&'static str, u64>,
    /// Time of a search.
    latency: Latency,
    /// How many took how long, for percentiles over a time between two reads.
    buckets: Vec<Bucket>,
    /// Time of each stage, in the order of the stages.
    stages: Vec<StageStats>,
}

/// A stage of searches.
#[derive(Debug, Serialize, ToSchema)]
pub struct StageStats {
    /// Its name.
    stage: &'static str,
    /// Its time.
    latency: Latency,
}

/// Latencies. Percentiles are estimated within the buckets of a histogram.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Latency {
    /// How many there are.
    count: u64,
    /// Their mean in milliseconds; null without any.
    mean_ms: Option<f64>,
    /// Half of them took no longer, in milliseconds.
    p50_ms: Option<f64>,
    /// 95 of 100 took no longer.
    p95_ms: Option<f64>,
    /// 99 of 100 took no longer.
    p99_ms: Option<f64>,
}

/// A bucket of a histogram.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Bucket {
    /// Its upper bound in milliseconds; null for what is above every bound.
    up_to_ms: Option<f64>,
    /// How many are in it, and in none before it.
    count: u64,
}

/// Work of one kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueStats {
    /// `requests`, `connections`, `searches`, `writes`, `tasks`, `loads`, `agent_runs` or
    /// `embeddings`.
    name: &'static str,
    /// How much is running; null where it is not counted.
    running: Option<u64>,
    /// How much may run at a time; null without a limit.
    running_limit: Option<u64>,
    /// How much is waiting; null where nothing waits.
    waiting: Option<u64>,
    /// How much may wait, more is refused; null without a limit. Of `writes`, for one catalog.
    waiting_limit: Option<u64>,
}

/// Catalogs.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogsStats {
    /// How many are open.
    open: u64,
    /// How many may be open at a time.
    open_limit: u64,
    /// Bytes that the open ones take in memory, about.
    open_bytes: u64,
    /// How many bytes they may take.
    open_bytes_limit: u64,
    /// Tools in the open ones.
    tools: u64,
    /// Tools in the open ones that have no vectors yet.
    pending_embeddings: u64,
}

/// A cache.
#[derive(Debug, Serialize, ToSchema)]
pub struct CacheStats {
    /// What was found in it.
    hits: u64,
    /// What was not.
    misses: u64,
}

/// Tokens of tool definitions (o200k): `catalog_tokens` less `answered_tokens` were saved.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenStats {
    /// Searches of the API that asked for a format with definitions. As if every one had been
    /// answered with all tools of the catalog in that format.
    search: SavedTokens,
    /// Searches of MCP clients. As if every one had been answered with all tools of the catalog.
    mcp: SavedTokens,
    /// Turns of the agent. As if the model had been shown all tools of the catalog in every round.
    agent: SavedTokens,
    /// Answers that are not among these, because they came faster than they could be counted.
    left_out: u64,
}

/// Shows the figures of the server since it was started. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "server_stats", tag = "service",
    responses((status = 200, body = ServerStats, description = "The figures"))
)]
pub async fn show(
    grant: Grant,
    State(sources): State<StatsSources>,
) -> ApiResult<Json<ServerStats>> {
    grant.operates()?;
    // These gauges are computed on demand, as for `/metrics`.
    sources.gauges.measure_catalogs();
    let Gauges {
        metrics,
        catalogs,
        store,
        ..
    } = &sources.gauges;
    Ok(Json(ServerStats {
        version: env!("CARGO_PKG_VERSION"),
        started_at_ms: unix_ms(sources.started.at),
        uptime_s: sources.started.clock.elapsed().as_secs_f64(),
        memory_bytes: process::resident_bytes(),
        requests: RequestStats::of(metrics),
        searches: SearchStats::of(metrics),
        refused: counts(metrics.refused.all(), |labels| labels.reason),
        queues: queues(&sources),
        catalogs: CatalogsStats {
            open: gauge(metrics.catalogs.get()),
            open_limit: sources.limits.max_open_catalogs as u64,
            open_bytes: catalogs.open_bytes(),
            open_bytes_limit: sources.limits.max_open_bytes,
            tools: gauge(metrics.tools.get()),
            pending_embeddings: gauge(metrics.pending_embeddings.get()),
        },
        embedding_cache: CacheStats {
            hits: metrics.cache.hits.get(),
            misses: metrics.cache.misses.get(),
        },
        feedback: metrics.feedback.get(),
        tokens: TokenStats::of(&sources),
        store: store.as_deref().map(StoreStats::of),
    }))
}

impl RequestStats {
    fn of(metrics: &Metrics) -> Self {
        // The buckets are added, since percentiles cannot be combined.
        let mut all = Buckets::default();
        let mut routes = BTreeMap::new();
        for (labels, latencies) in metrics.request_seconds.all() {
            let buckets = latencies.read();
            all.add(&buckets);
            let route = RouteStats {
                method: labels.method,
                route: labels.route.clone(),
                total: buckets.len(),
                by_class: BTreeMap::new(),
                latency: Latency::of(&buckets),
            };
            routes.insert((labels.method, labels.route), route);
        }
        let mut by_class = BTreeMap::new();
        for (labels, count) in metrics.requests.all() {
            let class = format!("{}xx", labels.status / 100);
            // A route may be missing here if its first answer came between the two reads.
            if let Some(route) = routes.get_mut(&(labels.method, labels.route)) {
                *route.by_class.entry(class.clone()).or_default() += count.get();
            }
            *by_class.entry(class).or_default() += count.get();
        }
        let mut routes: Vec<RouteStats> = routes.into_values().collect();
        // The sort is stable: routes with equal counts stay in the order of their names.
        routes.sort_by_key(|route| std::cmp::Reverse(route.total));
        RequestStats {
            total: all.len(),
            in_flight: metrics.in_flight.get(),
            by_class,
            latency: Latency::of(&all),
            buckets: Bucket::all_of(&all),
            routes,
        }
    }
}

impl SearchStats {
    fn of(metrics: &Metrics) -> Self {
        // Summed over all modes, in the order of a search's timings.
        // All stages are listed, even if no search had them.
        let mut stages: Vec<(&'static str, Buckets)> = toolscout_index::Timings::default()
            .stages()
            .map(|(stage, _)| (stage, Buckets::default()))
            .to_vec();
        let mut total = Buckets::default();
        let mut by_mode = BTreeMap::new();
        for (labels, latencies) in metrics.stage_seconds.all() {
            let buckets = latencies.read();
            if labels.stage == ALL_STAGES {
                total.add(&buckets);
                *by_mode.entry(labels.mode).or_default() += buckets.len();
                continue;
            }
            for (stage, sum) in &mut stages {
                if *stage == labels.stage {
                    sum.add(&buckets);
                }
            }
        }
        let mut no_match = 0;
        for (_, count) in metrics.no_match.all() {
            no_match += count.get();
        }
        let mut of_stages = Vec::with_capacity(stages.len());
        for (stage, buckets) in stages {
            let latency = Latency::of(&buckets);
            of_stages.push(StageStats { stage, latency });
        }
        SearchStats {
            total: total.len(),
            no_match,
            by_mode,
            degraded: counts(metrics.degraded.all(), |labels| labels.reason),
            latency: Latency::of(&total),
            buckets: Bucket::all_of(&total),
            stages: of_stages,
        }
    }
}

impl Latency {
    fn of(buckets: &Buckets) -> Self {
        Latency {
            count: buckets.len(),
            mean_ms: buckets.mean_s().map(milliseconds),
            p50_ms: buckets.percentile_s(0.5).map(milliseconds),
            p95_ms: buckets.percentile_s(0.95).map(milliseconds),
            p99_ms: buckets.percentile_s(0.99).map(milliseconds),
        }
    }
}

impl Bucket {
    fn all_of(buckets: &Buckets) -> Vec<Self> {
        let mut all = Vec::with_capacity(buckets.counts.len());
        for (place, count) in buckets.counts.into_iter().enumerate() {
            // The last bucket has no upper bound.
            let up_to_ms = BOUNDS_S.get(place).copied().map(milliseconds);
            all.push(Bucket { up_to_ms, count });
        }
        all
    }
}

impl TokenStats {
    fn of(sources: &StatsSources) -> Self {
        let turns = sources
            .gauges
            .default_catalog
            .agent()
            .map(|agent| agent.tool_tokens());
        let turns = turns.unwrap_or_default();
        TokenStats {
            search: sources.token_savings.read(Source::Search),
            mcp: sources.token_savings.read(Source::Mcp),
            agent: SavedTokens {
                answers: turns.turns,
                catalog_tokens: turns.catalog,
                answered_tokens: turns.shown,
            },
            left_out: sources.token_savings.left_out(),
        }
    }
}

fn queues(sources: &StatsSources) -> Vec<QueueStats> {
    let (limits, metrics) = (&sources.limits, &sources.gauges.metrics);
    let running = |name, running: u64, limit: Option<usize>| QueueStats {
        name,
        running: Some(running),
        running_limit: limit.map(|limit| limit as u64),
        waiting: None,
        waiting_limit: None,
    };
    let waiting = |name, waiting: i64, limit: Option<usize>| QueueStats {
        name,
        running: None,
        running_limit: None,
        waiting: Some(gauge(waiting)),
        waiting_limit: limit.map(|limit| limit as u64),
    };
    // Searches have both: some run on the threads and others wait.
    let (busy, threads) = (sources.cpu_pool.busy() as u64, limits.search_threads);
    vec![
        running("requests", gauge(metrics.in_flight.get()), None),
        running(
            "connections",
            gauge(metrics.connections.get()),
            Some(limits.max_connections),
        ),
        QueueStats {
            running: Some(busy),
            running_limit: Some(threads as u64),
            ..waiting(
                "searches",
                metrics.search_queue.get(),
                Some(limits.search_queue),
            )
        },
        waiting(
            "writes",
            metrics.write_queue.get(),
            Some(limits.write_queue),
        ),
        running(
            "tasks",
            sources.tasks.running() as u64,
            Some(tasks::MAX_RUNNING),
        ),
        running(
            "loads",
            sources.streams.running() as u64,
            Some(stream::MAX_STREAMS),
        ),
        running(
            "agent_runs",
            sources.runs.count() as u64,
            Some(limits.max_runs),
        ),
        waiting("embeddings", metrics.pending_embeddings.get(), None),
    ]
}

/// Counts by one of their labels.
fn counts<L>(
    all: Vec<(L, prometheus_client::metrics::counter::Counter)>,
    label: impl Fn(&L) -> &'static str,
) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (labels, count) in &all {
        *counts.entry(label(labels)).or_default() += count.get();
    }
    counts
}

/// A gauge that never falls below 0, but for the moment between two changes.
fn gauge(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// In milliseconds, to the nanosecond: more digits would only be noise of the division.
pub(super) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}
