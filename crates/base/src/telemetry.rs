//! Telemetry of the service: structured logs, Prometheus metrics, and OpenTelemetry spans.

pub mod latencies;
pub mod process;
pub mod series;
pub mod traces;

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use toolscout_index::Results;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use self::latencies::Latencies;
use self::series::Series;
use self::traces::Traces;
use crate::embed_cache::CacheCounters;
use crate::known_secrets;
use crate::printable;

/// The format of log lines, which go to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Leaves out what the SDK for MCP logs: at its finest levels the codes and tokens of logins, and
/// otherwise, as errors and warnings, requests, connections and logins that fail, which this program
/// reports itself.
pub fn without_sdk_noise(filter: EnvFilter) -> EnvFilter {
    let is_fine = match filter.max_level_hint() {
        Some(finest) => finest > LevelFilter::INFO,
        // Without a hint anything may be let through.
        None => true,
    };
    let directives: &[&str] = if is_fine {
        &["rmcp::transport::auth=info"]
    } else {
        &[
            "rmcp::service=error",
            "rmcp::transport::auth=error",
            "rmcp::transport::streamable_http_client=off",
            "rmcp::transport::worker=off",
        ]
    };
    let mut filter = filter;
    for directive in directives {
        if let Ok(directive) = directive.parse() {
            filter = filter.add_directive(directive);
        }
    }
    filter
}

/// Starts logging, and exports spans to `traces`. `filter` is a level or a list of `target=level`,
/// in the syntax of `tracing`.
///
/// # Errors
/// For an invalid filter, and when logging was started before.
pub fn start(format: LogFormat, filter: &str, traces: Option<&Traces>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| anyhow::anyhow!("log filter {filter:?}: {error}"))?;
    let filter = without_sdk_noise(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Spans for the collector have a target of their own and stay out of the log.
    let lines = lines
        .with_filter(filter)
        .with_filter(filter_fn(|event| event.target() != traces::TARGET));
    let spans = traces.map(|traces| {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(traces.tracer())
            // Paths and threads of this program say nothing to whoever reads the spans.
            .with_location(false)
            .with_threads(false);
        layer.with_filter(filter_fn(|span| span.target() == traces::TARGET))
    });
    let started = tracing_subscriber::registry()
        .with(lines)
        .with(spans)
        .try_init();
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}

/// Stderr, with secrets masked and control characters escaped: a text in a log line cannot control the terminal.
pub fn stderr() -> impl Write {
    PrintableStderr
}

struct PrintableStderr;

impl Write for PrintableStderr {
    /// Takes a whole line, which is what `tracing` writes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        let line = printable::log(&known_secrets::mask(&line));
        io::stderr().write_all(line.as_bytes())?;
        // Of what came in, since the line that was written may be longer.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The metrics of the service. Every label has few values, and none names a catalog.
pub struct Metrics {
    registry: Registry,
    /// Requests answered.
    pub requests: Series<RequestLabels, Counter>,
    /// Time to answer a request.
    pub request_seconds: Series<RouteLabels, Latencies>,
    /// Time of each stage of a search, and of all stages as `total`.
    pub stage_seconds: Series<StageLabels, Latencies>,
    /// Searches without a good enough match.
    pub no_match: Series<ModeLabels, Counter>,
    /// Searches without something that was asked for.
    pub degraded: Series<DegradedLabels, Counter>,
    /// Work that was refused because a limit was reached.
    pub refused: Series<ReasonLabels, Counter>,
    /// The cache of query embeddings.
    pub cache: CacheCounters,
    /// Open connections.
    pub connections: Gauge,
    /// Requests being answered.
    pub in_flight: Gauge,
    /// Searches waiting for a thread.
    pub search_queue: Gauge,
    /// Writes waiting for their catalog's writer, over all catalogs.
    pub write_queue: Gauge,
    /// Open catalogs.
    pub catalogs: Gauge,
    /// Tools in open catalogs.
    pub tools: Gauge,
    /// Tools that have no vectors yet.
    pub pending_embeddings: Gauge,
    /// MCP servers that this program was told to connect to, by the state of the connection.
    pub mcp_servers: Series<StateLabels, Gauge>,
    /// Feedback records stored since the start.
    pub feedback: Counter<u64, AtomicU64>,
    /// Requests to a model.
    pub model_requests: Series<ModelRequestLabels, Counter>,
    /// Rounds of the model in requests whose tools were deferred.
    pub model_rounds: Counter<u64, AtomicU64>,
    /// Searches that the model made in these requests.
    pub searched_tools: Counter<u64, AtomicU64>,
    /// Tokens of tools that these requests did not show, estimated.
    pub saved_tokens: Counter<u64, AtomicU64>,
}

/// What requests to a model are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct ModelRequestLabels {
    /// The API that the client speaks.
    pub dialect: &'static str,
    /// How the request ended.
    pub outcome: &'static str,
}

/// What requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct RequestLabels {
    /// The method.
    pub method: &'static str,
    /// The pattern of the route.
    pub route: String,
    /// The status of the answer.
    pub status: u32,
}

/// What times of requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct RouteLabels {
    /// The method.
    pub method: &'static str,
    /// The pattern of the route.
    pub route: String,
}

/// What times of searches are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct StageLabels {
    /// The mode that was answered with.
    pub mode: &'static str,
    /// The stage.
    pub stage: &'static str,
}

/// What searches are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct ModeLabels {
    /// The mode that was answered with.
    pub mode: &'static str,
}

/// What searches are degraded by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct DegradedLabels {
    /// The mode that was answered with.
    pub mode: &'static str,
    /// The code of the cause.
    pub reason: &'static str,
}

/// What connections are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct StateLabels {
    /// The state.
    pub state: &'static str,
}

/// What refused work is counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct ReasonLabels {
    /// The limit.
    pub reason: &'static str,
}

impl Metrics {
    /// Metrics that are all 0.
    pub fn new() -> Self {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("toolscout"),
            requests: Series::default(),
            request_seconds: Series::default(),
            stage_seconds: Series::default(),
            no_match: Series::default(),
            degraded: Series::default(),
            refused: Series::default(),
            cache: CacheCounters::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            search_queue: Gauge::default(),
            write_queue: Gauge::default(),
            catalogs: Gauge::default(),
            tools: Gauge::default(),
            pending_embeddings: Gauge::default(),
            mcp_servers: Series::default(),
            feedback: Counter::default(),
            model_requests: Series::default(),
            model_rounds: Counter::default(),
            searched_tools: Counter::default(),
            saved_tokens: Counter::default(),
        };
        metrics.register();
        metrics
    }

    /// Shows what `register` adds, too.
    pub fn add(&mut self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry);
    }

    /// Counts an answered request. `route` is the pattern and not the path.
    pub fn request(&self, method: &'static str, route: &str, status: u16, elapsed_s: f64) {
        let labels = RequestLabels {
            method,
            route: route.to_owned(),
            status: status.into(),
        };
        self.requests.of(labels).inc();
        let labels = RouteLabels {
            method,
            route: route.to_owned(),
        };
        self.request_seconds.of(labels).observe(elapsed_s);
    }

    /// Counts a search and the time of its stages.
    pub fn search(&self, results: &Results) {
        // The mode that was answered with, which is not the requested one where the answer is
        // degraded.
        let mode = results.mode.name();
        let timings = &results.timings;
        let total = ("total", timings.total_ms);
        for (stage, elapsed_ms) in timings.stages().into_iter().chain([total]) {
            let labels = StageLabels { mode, stage };
            self.stage_seconds.of(labels).observe(elapsed_ms / 1000.0);
        }
        if results.no_match.is_some() {
            self.no_match.of(ModeLabels { mode }).inc();
        }
        if let Some(degraded) = &results.degraded {
            let reason = degraded.cause.code();
            self.degraded.of(DegradedLabels { mode, reason }).inc();
        }
    }

    /// Counts work that was refused because a limit was reached.
    pub fn rejected(&self, reason: &'static str) {
        self.refused.of(ReasonLabels { reason }).inc();
    }

    /// Counts a request to a model, with its rounds where its tools were deferred.
    pub fn model_request(&self, dialect: &'static str, outcome: &'static str, rounds: u32) {
        let labels = ModelRequestLabels { dialect, outcome };
        self.model_requests.of(labels).inc();
        self.model_rounds.inc_by(rounds.into());
    }

    /// All metrics in the OpenMetrics text format, which Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register(
            "http_request_seconds",
            "Time to answer a request",
            self.request_seconds.clone(),
        );
        registry.register(
            "search_stage_seconds",
            "Time of each stage of a search",
            self.stage_seconds.clone(),
        );
        registry.register(
            "search_no_match",
            "Searches without a good enough match",
            self.no_match.clone(),
        );
        registry.register(
            "search_degraded",
            "Searches without a requested leg",
            self.degraded.clone(),
        );
        registry.register(
            "rejected",
            "Work refused because a limit was reached",
            self.refused.clone(),
        );
        registry.register(
            "embed_cache_hits",
            "Query texts with a cached vector",
            self.cache.hits.clone(),
        );
        registry.register(
            "embed_cache_misses",
            "Query texts that were embedded",
            self.cache.misses.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "http_requests_in_flight",
            "Requests being answered",
            self.in_flight.clone(),
        );
        registry.register(
            "search_queue_depth",
            "Searches waiting for a thread",
            self.search_queue.clone(),
        );
        registry.register(
            "write_queue_depth",
            "Writes waiting for a writer",
            self.write_queue.clone(),
        );
        registry.register("catalogs", "Open catalogs", self.catalogs.clone());
        registry.register("index_tools", "Tools in open catalogs", self.tools.clone());
        registry.register(
            "pending_embeddings",
            "Tools without vectors yet",
            self.pending_embeddings.clone(),
        );
        registry.register(
            "mcp_servers",
            "MCP servers, by the state of the connection",
            self.mcp_servers.clone(),
        );
        registry.register("feedback", "Feedback records stored", self.feedback.clone());
        registry.register(
            "model_requests",
            "Requests to a model; with the outcome `passed`, none of their tools were deferred",
            self.model_requests.clone(),
        );
        registry.register(
            "model_rounds",
            "Rounds of the model in requests with deferred tools",
            self.model_rounds.clone(),
        );
        registry.register(
            "model_tool_searches",
            "Searches of the model in requests with deferred tools",
            self.searched_tools.clone(),
        );
        registry.register(
            "model_saved_tokens",
            "Estimated tokens of tools that requests to a model did not show",
            self.saved_tokens.clone(),
        );
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// Counts one thing in a gauge until it is dropped.
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    /// Adds one to the gauge.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        GaugeGuard(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_encoded() {
        let metrics = Metrics::new();
        metrics.request("GET", "/livez", 200, 0.002);
        metrics.rejected("search_queue");
        metrics.search_queue.set(3);
        let text = metrics.encode();
        for line in [
            r#"toolscout_http_requests_total{method="GET",route="/livez",status="200"} 1"#,
            r#"toolscout_http_request_seconds_bucket{le="0.0025",method="GET",route="/livez"} 1"#,
            r#"toolscout_rejected_total{reason="search_queue"} 1"#,
            "toolscout_search_queue_depth 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
