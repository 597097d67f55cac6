//! Measures the quality and the cost of retrieval, on any catalog with judged queries.
//!
//! [`evaluate`] runs a [`Plan`] on one [`EvalSet`]: every arm over one index in one process, then
//! abstention, build cost, latency and tokens. Its [`Evaluation`] is printed ([`table`]), written
//! ([`report`], [`trec`], [`html`]) and compared with earlier ones ([`baseline`]). [`agent`]
//! simulates conversations without a model. [`tune`] finds better settings. Modules are listed in
//! the order of the data flow.

pub mod error;
pub mod random;

pub mod judgements;
pub mod dataset;

pub mod arms;
pub mod prepare;
pub mod run;
pub mod run_file;

pub mod judge;
pub mod metrics;

pub mod bootstrap;
pub mod significance;
pub mod cost;
pub mod latency;
pub mod memory;
pub mod nomatch;
pub mod features;
pub mod scale;
pub mod tokens;
pub mod worst;
pub mod per_query;

pub mod answered;

pub mod ablation;
pub mod embedding;
pub mod report;
pub mod baseline;
pub mod diff;
pub mod html;
pub mod table;
pub mod trec;

pub mod agent;

pub mod tune;
pub mod adapt;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use arms::Arm;
pub use dataset::EvalSet;
pub use error::{EvalError, Result};
pub use metrics::{Measure, Metric};
pub use prepare::{Ranking, Workspace};
pub use report::Report;

use cost::{CostReport, ScalePoint};
use judge::{Scores, Twins};
use latency::Latency;
use memory::MemoryReport;
use nomatch::{HeldOut, NoMatchReport};
use per_query::QueryReport;
use report::{ArmReport, Means};
use run::{ArmRun, Engine};
use tokens::TokensReport;
use toolscout_index::query::MAX_K;
use worst::WorstQuery;

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
        if set.has_irrelevant() {
            let unjudged = |depth: &usize| Metric::new(Measure::Unjudged, *depth);
            metrics.extend(self.depths.iter().map(unjudged));
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
        let is_shown = |metric: &&Metric| metric.measure != Measure::Success;
        if self.shows_all_depths {
            return measured.iter().filter(is_shown).copied().collect();
        }
        Vec::new()
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
    /// The queries with the lowest scores in the main arm.
    pub worst: Vec<WorstQuery>,
    /// The arm whose worst queries and tokens are shown.
    pub main_arm: String,
}

impl Evaluation {
    /// The arm whose worst queries and tokens are shown, as it is in the plan.
    pub fn main<'a>(&self, plan: &'a Plan) -> &'a Arm {
        plan.arms
            .iter()
            .find(|arm| arm.name == self.main_arm)
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

/// Measures one set.
///
/// # Errors
/// An [`EvalError`] for a plan that does not fit the set, and errors of the engine. A report is
/// never incomplete.
pub fn evaluate(
    set: EvalSet,
    plan: &Plan,
    workspace: &Workspace,
    progress: &dyn Progress,
) -> Result<Evaluation> {
    check(&set, plan, workspace)?;
    // Before anything is prepared: a process that measures several sets would report the largest
    // one for all.
    cost::reset_peak_rss();
    workspace.forget_queries();
    progress.stage("embedding tools", 0);
    let build = workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
    let mut report = report::identity(&set, plan.seed, workspace.embedder());
    let measurement = Measurement {
        set: &set,
        plan,
        workspace,
        progress,
    };
    let results = measurement.arms()?;
    let is_ranked = plan.arms.iter().any(Arm::is_ranked);
    report.trained_on = is_ranked && workspace.ranker_has_seen(&set)?;
    report.arms = results.arms;
    report.significance = results.significance;
    report.per_query = results.per_query;
    report.shown = plan.shown(&plan.metrics_of(&set));
    if plan.parts.contains(&Part::Cost) {
        report.cost = Some(CostReport::of(&build));
        report.scale = measurement.scale()?;
    }
    if plan.parts.contains(&Part::NoMatch) {
        report.no_match = measurement.no_match()?;
    }
    if plan.parts.contains(&Part::Tokens) {
        progress.stage("counting tokens", 0);
        report.tokens = Some(TokensReport::of(
            &set,
            &results.runs[measurement.main_position()].rankings,
        ));
    }
    if plan.parts.contains(&Part::Memory) {
        progress.stage("searching with a memory", set.queries.len());
        let arm = &plan.arms[measurement.main_position()];
        report.memory = Some(MemoryReport::of(&set, workspace, arm, plan.seed, &|| {
            progress.step()
        })?);
    }
    let main_arm = plan.arms[measurement.main_position()].name.clone();
    Ok(Evaluation {
        report,
        runs: results.runs,
        worst: results.worst,
        main_arm,
        set,
    })
}

fn check(set: &EvalSet, plan: &Plan, workspace: &Workspace) -> Result<()> {
    let metrics = plan.metrics_of(set);
    let mut depths = metrics.iter().filter_map(|metric| metric.depth);
    if let Some(k) = depths.find(|depth| *depth > set.tools.len()) {
        return Err(EvalError::DepthExceedsCatalog {
            tools: set.tools.len(),
            k,
        });
    }
    if plan.arms.is_empty() {
        return Err(EvalError::option("--arms", "", "name at least one"));
    }
    match plan.arms.iter().find(|arm| arm.needs_vectors()) {
        Some(arm) if !workspace.embeds() => Err(EvalError::NoEmbedder {
            arm: arm.name.clone(),
        }),
        _ => Ok(()),
    }
}

/// The measurement of one set by one plan.
struct Measurement<'a> {
    set: &'a EvalSet,
    plan: &'a Plan,
    workspace: &'a Workspace,
    progress: &'a dyn Progress,
}

/// The results of every arm.
struct ArmResults {
    arms: Vec<ArmReport>,
    runs: Vec<ArmRun>,
    significance: Vec<report::Comparison>,
    worst: Vec<WorstQuery>,
    per_query: Vec<QueryReport>,
}

impl Measurement<'_> {
    /// The position of the hybrid arm, else of the last one.
    fn main_position(&self) -> usize {
        let hybrid = self.plan.arms.iter().position(|arm| arm.name == "hybrid");
        hybrid.unwrap_or(self.plan.arms.len() - 1)
    }

    fn arms(&self) -> Result<ArmResults> {
        let searcher = self.workspace.open_set(self.set)?.searcher();
        let engine: &dyn Engine = &*searcher;
        let mut runs = Vec::new();
        let mut latencies = Vec::new();
        for arm in &self.plan.arms {
            runs.push(self.quality(engine, arm)?);
            latencies.push(self.latency(engine, arm)?);
        }
        for path in &self.plan.runs {
            runs.push(run_file::read_run(path, self.set, self.plan.run_order)?);
            latencies.push(None);
        }
        let scores = self.scores(&runs);
        let main = self.main_position();
        let worst = worst::worst(
            self.set,
            engine,
            &self.plan.arms[main],
            &runs[main],
            &scores[main],
        )?;
        let named: Vec<(&str, &Scores)> = runs
            .iter()
            .map(|run| run.name.as_str())
            .zip(&scores)
            .collect();
        let significance = report::comparisons(&named, self.plan.seed);
        let per_query = per_query::per_query(self.set, &runs, &scores);
        let arms = self.arm_reports(&runs, &scores, latencies);
        Ok(ArmResults {
            arms,
            runs,
            significance,
            worst,
            per_query,
        })
    }

    fn quality(&self, engine: &dyn Engine, arm: &Arm) -> Result<ArmRun> {
        self.progress.stage(
            &format!("searching with {}", arm.name),
            self.set.queries.len(),
        );
        let depth = MAX_K.min(self.set.tools.len());
        ArmRun::of(self.set, engine, arm, depth, &|| self.progress.step())
    }

    fn latency(&self, engine: &dyn Engine, arm: &Arm) -> Result<Option<Latency>> {
        if !self.plan.parts.contains(&Part::Cost) {
            return Ok(None);
        }
        self.progress.stage(&format!("timing {}", arm.name), 0);
        self.workspace
            .uncached(|| Latency::of(self.set, engine, arm, self.plan.seed))
            .map(Some)
    }

    fn scores(&self, runs: &[ArmRun]) -> Vec<Scores> {
        let metrics = self.plan.metrics_of(self.set);
        runs.iter()
            .map(|run| Scores::strict(self.set, run, &metrics))
            .collect()
    }

    fn arm_reports(
        &self,
        runs: &[ArmRun],
        scores: &[Scores],
        latencies: Vec<Option<Latency>>,
    ) -> Vec<ArmReport> {
        let twins = (self.plan.judging == Judging::AlsoTolerant).then(|| Twins::of(self.set));
        let mut reports = Vec::new();
        for ((run, scores), latency) in runs.iter().zip(scores).zip(latencies) {
            let mut report = ArmReport::of(run, scores, latency, self.plan.seed);
            if let Some(twins) = &twins {
                let tolerant = Scores::tolerant(self.set, run, &scores.metrics, twins);
                report.duplicate_tolerant = Some(Means::of(&tolerant));
            }
            if self.set.has_irrelevant() {
                let condensed = Scores::condensed(self.set, run, &scores.metrics);
                report.condensed = Some(Means::of(&condensed));
            }
            reports.push(report);
        }
        reports
    }

    fn no_match(&self) -> Result<Option<NoMatchReport>> {
        let held_out = HeldOut::draw(self.set, self.plan.seed);
        if !held_out.has_both_kinds() {
            return Ok(None);
        }
        self.progress
            .stage("searching for held-out tools", held_out.unanswerable.len());
        let rest = self.workspace.without(self.set, &held_out.ids(self.set))?;
        let searcher = rest.catalog.searcher();
        let arm = &self.plan.arms[self.main_position()];
        NoMatchReport::of(self.set, &held_out, &*searcher, arm, &|| {
            self.progress.step()
        })
        .map(Some)
    }

    fn scale(&self) -> Result<Vec<ScalePoint>> {
        self.plan
            .scale
            .iter()
            .map(|&size| self.at_size(size))
            .collect()
    }

    fn at_size(&self, size: usize) -> Result<ScalePoint> {
        self.progress
            .stage(&format!("a catalog of {size} tools"), 0);
        let (tools, grown) = scale::resized(self.set, size, self.plan.seed)?;
        cost::reset_peak_rss();
        let (catalog, build) = self.workspace.of_tools(self.set, &tools, &mut |embedded| {
            self.progress.done(embedded.done)
        })?;
        let searcher = catalog.catalog.searcher();
        let mut latency = BTreeMap::new();
        for arm in &self.plan.arms {
            let timed = self
                .workspace
                .uncached(|| Latency::of(self.set, &*searcher, arm, self.plan.seed))?;
            latency.insert(arm.name.clone(), timed);
        }
        Ok(ScalePoint {
            tools: size,
            grown,
            cost: CostReport::of(&build),
            latency,
        })
    }
}
