//! Figures of the store as one node sees it, for `/metrics` and `/v1/stats`.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use toolscout_base::telemetry::GaugeGuard;
use toolscout_base::telemetry::latencies::Latencies;

/// What is counted. Clones share their counts.
#[derive(Clone, Default)]
pub struct StoreFigures {
    /// Time of a question or a write, waiting for a connection included.
    pub seconds: Latencies,
    /// Questions and writes that are under way; those beyond the connections wait for one.
    pub in_flight: Gauge,
    /// Questions and writes that the store did not answer, or refused.
    pub failures: Counter<u64, AtomicU64>,
    /// How often listening to the store began anew.
    pub reconnects: Counter<u64, AtomicU64>,
    /// How often another server became the one for writes.
    pub failovers: Counter<u64, AtomicU64>,
    /// Connections to the server that takes writes.
    pub connections: Gauge,
    /// Those of them that nobody uses.
    pub idle_connections: Gauge,
    /// 1 while the store counts as away.
    pub away: Gauge,
    /// Open catalogs that are behind the store.
    pub behind: Gauge,
    /// By how many generations the one that is farthest behind is.
    pub lag: Gauge,
}

/// Figures of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Lag {
    /// Open catalogs that are behind.
    pub behind: usize,
    /// The most generations of any.
    pub most: u64,
}

impl StoreFigures {
    /// Most connections to the server that takes writes.
    pub const MAX_CONNECTIONS: u32 = 8;

    /// Adds them to the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let seconds = self.seconds.clone();
        registry.register("store_seconds", "Time of a question to the store", seconds);
        for (name, help, gauge) in [
            (
                "store_in_flight",
                "Questions to the store that are under way",
                &self.in_flight,
            ),
            (
                "store_connections",
                "Connections to the server that takes writes",
                &self.connections,
            ),
            (
                "store_idle_connections",
                "Connections that nobody uses",
                &self.idle_connections,
            ),
            ("store_away", "1 while the store is away", &self.away),
            (
                "store_catalogs_behind",
                "Open catalogs that are behind the store",
                &self.behind,
            ),
            (
                "store_lag_generations",
                "Generations that the catalog farthest behind lacks",
                &self.lag,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            (
                "store_failures",
                "Questions that the store did not answer or refused",
                &self.failures,
            ),
            (
                "store_reconnects",
                "Times that listening to the store began anew",
                &self.reconnects,
            ),
            (
                "store_failovers",
                "Times that another server became the one for writes",
                &self.failovers,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    /// Counts a question from its begin to when this is dropped.
    pub fn asking(&self) -> Asking {
        Asking {
            seconds: self.seconds.clone(),
            begun: Instant::now(),
            _in_flight: GaugeGuard::new(&self.in_flight),
        }
    }
}

/// A question that is under way.
pub struct Asking {
    seconds: Latencies,
    begun: Instant,
    _in_flight: GaugeGuard,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.seconds.observe(self.begun.elapsed().as_secs_f64());
    }
}
