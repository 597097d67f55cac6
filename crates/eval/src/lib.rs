//! Measures the quality and the cost of retrieval, on any catalog with judged queries.
//!
//! [`evaluate`] runs a [`Plan`] on one [`EvalSet`]: every arm over one index in one process, then
//! abstention, build cost, latency and tokens. Its [`Evaluation`] is printed ([`table`]), written
//! ([`report`], [`trec`], [`html`]) and compared with earlier ones ([`baseline`]). [`agent`]
//! simulates conversations without a model. [`tune`] finds better settings, and [`improve`] better words. Modules are listed in
//! the order of the data flow.

pub mod error;
pub mod random;
mod ordered;
pub mod judgements;
pub mod judged_line;
pub mod generate;
pub mod dataset;
pub mod arms;
pub mod pool;
pub mod run;
pub mod run_file;
pub mod watched;
pub mod metrics;
pub mod judge;
pub mod bootstrap;
pub mod significance;
pub mod latency;
pub mod cost;
pub mod prepare;
pub mod memory;
pub mod nomatch;
pub mod features;
pub mod scale;
pub mod tokens;
pub mod worst;
pub mod per_query;
pub mod ablation;
pub mod report;
pub mod answered;
pub mod embedding;
pub mod baseline;
pub mod diff;
pub mod reported;
pub mod trec;
pub mod measure;
pub mod agent;
pub mod html;
pub mod table;
pub mod tune;
pub mod adapt;
pub mod improve;

use std::path::PathBuf;

pub use arms::Arm;
pub use dataset::EvalSet;
pub use error::{EvalError, Result};
pub use measure::{evaluate, evaluate_in_use, merged};
pub use metrics::{Measure, Metric};
pub use prepare::{Ranking, Workspace};
pub use report::Report;

use run::ArmRun;

/// A measurement besides quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Seconds, memory, disk, latency.
    Cost,
    /// Abstention on unanswerable queries.
    NoMatch,
    /// Tokens of the catalog and of search results.
    Tokens,
    /// The gain of a usage memory.
    Memory,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The arms to compare; at least one.
    pub arms: Vec<Arm>,
    /// The cut-offs of the metrics, ascending.
    pub depths: Vec<usize>,
    /// The metrics; the usual ones at the cut-offs if this is empty.
    pub metrics: Vec<Metric>,
    /// Whether the tables show the usual metrics at every cut-off.
    pub shows_all_depths: bool,
    /// The seed of the held-out tools, the timed queries and the resampling.
    pub seed: u64,
    /// The measurements besides quality.
    pub parts: Vec<Part>,
    /// Whether metrics that accept near-identical tools are reported too.
    pub judging: Judging,
    /// Catalog sizes at which cost and latency are measured as well.
    pub scale: Vec<usize>,
    /// TREC run files, evaluated as further arms.
    pub runs: Vec<PathBuf>,
    /// How their hits are ordered.
    pub run_order: run_file::RunOrder,
}

impl Plan {
    /// What is measured of a set.
    pub fn metrics_of(&self, set: &EvalSet) -> Vec<Metric> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        let mut metrics = Metric::all(&self.depths);
        let deepest = self.depths.iter().copied().max().unwrap_or(1);
        // Where no tool is judged as irrelevant, a hit without a judgement says nothing.
        if set.has_irrelevant() {
            metrics.extend(metrics::at_each(Measure::Unjudged, &self.depths));
        }
        if set.has_order() {
            metrics.push(Metric::new(Measure::Tau, deepest));
            metrics.push(Metric::whole(Measure::Prefix));
        }
        metrics
    }

    /// The metrics of the tables, if they were chosen.
    fn shown(&self, measured: &[Metric]) -> Vec<Metric> {
        if !self.metrics.is_empty() {
            return self.metrics.clone();
        }
        if !self.shows_all_depths {
            return Vec::new();
        }
        // The table has no room for success: where one tool is right, it equals recall.
        let mut shown = measured.to_vec();
        shown.retain(|metric| metric.measure != Measure::Success);
        shown
    }
}

/// Which hits count as relevant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judging {
    /// The judged tools.
    #[default]
    Strict,
    /// The judged tools; a second set of metrics counts near-identical tools too.
    AlsoTolerant,
}

/// The results for one set.
#[derive(Debug)]
pub struct Evaluation {
    /// The tools and the measured queries.
    pub set: EvalSet,
    /// The metrics and costs.
    pub report: Report,
    /// The answers of every arm.
    pub runs: Vec<ArmRun>,
}

impl Evaluation {
    /// The arm whose worst queries and tokens are shown, as it is in the plan.
    pub fn main<'a>(&self, plan: &'a Plan) -> &'a Arm {
        plan.arms
            .iter()
            .find(|arm| arm.name == self.report.main_arm)
            .unwrap_or(&plan.arms[0])
    }
}

/// Receives the progress of a measurement.
pub trait Progress: Sync {
    /// A stage with this many steps starts; 0 for an unknown number.
    fn stage(&self, what: &str, steps: usize);
    /// This many steps of the stage are done.
    fn done(&self, steps: usize);
    /// One more step is done.
    fn step(&self);
}
