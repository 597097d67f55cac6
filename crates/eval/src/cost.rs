//! The cost of an index: time to build and open, memory, disk, and how they grow.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::latency::Latency;
use toolscout_base::telemetry::process;

/// The cost of building and opening one catalog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Build {
    /// Seconds to store every tool in an empty catalog and index it lexically.
    pub index_s: f64,
    /// Seconds to embed every tool and build the graph; `None` when the vectors were computed
    /// earlier in several passes.
    pub embed_s: Option<f64>,
    /// Seconds to open the catalog until it can answer.
    pub open_s: f64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Number of tools.
    pub tools: usize,
}

/// The cost of one set's index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationCost)]
pub struct CostReport {
    /// Seconds to store every tool in an empty catalog and index it lexically.
    pub index_s: f64,
    /// Tools per second of that.
    pub index_tools_per_s: f64,
    /// Seconds to embed every tool, measured when the vectors were computed; null when they were
    /// computed in several passes.
    pub embed_s: Option<f64>,
    /// Tools per second of that.
    pub embed_tools_per_s: Option<f64>,
    /// Peak memory of the process while this set was prepared and searched, in MiB; null where the
    /// system does not report it.
    pub rss_mb: Option<f64>,
    /// Disk, in MiB.
    pub disk_mb: f64,
    /// Seconds to open the catalog until it can answer.
    pub open_s: f64,
}

impl CostReport {
    /// The cost of a build, with the peak memory so far.
    pub fn of(build: &Build) -> Self {
        // A clock may be too coarse for the time of a small catalog.
        let rate = |seconds: f64| build.tools as f64 / seconds.max(f64::EPSILON);
        CostReport {
            index_s: build.index_s,
            index_tools_per_s: rate(build.index_s),
            embed_s: build.embed_s,
            embed_tools_per_s: build.embed_s.map(rate),
            rss_mb: peak_rss_mb(),
            disk_mb: build.disk_bytes as f64 / f64::from(1 << 20),
            open_s: build.open_s,
        }
    }
}

/// Cost and speed at one catalog size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationSize)]
pub struct ScalePoint {
    /// Tools in the catalog.
    pub tools: usize,
    /// How many of them are generated variations of others.
    pub grown: usize,
    /// The index.
    pub cost: CostReport,
    /// The latency of each arm, by name.
    pub latency: std::collections::BTreeMap<String, Latency>,
}

/// Resets the peak memory, where the system supports it.
pub fn reset_peak_rss() {
    // proc(5): 5 resets the peak resident set size. A failure is harmless: the peak of the whole
    // process, a larger figure, is then reported.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Peak resident memory in MiB since [`reset_peak_rss`].
pub fn peak_rss_mb() -> Option<f64> {
    process::peak_resident_bytes().map(|bytes| bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_tools_per_second() {
        let build = Build {
            index_s: 2.0,
            embed_s: Some(50.0),
            open_s: 0.1,
            disk_bytes: 3 << 20,
            tools: 500,
        };
        let cost = CostReport::of(&build);
        assert_eq!(
            (cost.index_tools_per_s, cost.embed_tools_per_s, cost.disk_mb),
            (250.0, Some(10.0), 3.0)
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn peak_memory_grows_with_what_is_used() {
        let before = peak_rss_mb().unwrap();
        let block = vec![1_u8; 64 << 20];
        assert!(peak_rss_mb().unwrap() >= before.max(f64::from(block[block.len() - 1]) * 64.0));
    }
}
