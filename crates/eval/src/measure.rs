//! Measures a set: in a catalog made for it, or in a catalog that is in use.

use std::collections::BTreeMap;

use toolscout_index::Searcher;
use toolscout_index::query::MAX_K;

use super::arms::Arm;
use super::cost::{self, Build, CostReport, ScalePoint};
use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use super::judge::{Scores, Twins};
use super::latency::Latency;
use super::memory::MemoryReport;
use super::nomatch::{HeldOut, NoMatchReport};
use super::per_query::{self, QueryReport};
use super::prepare::Workspace;
use super::report::{self, ArmReport, Means, Report};
use super::run::{ArmRun, Engine};
use super::tokens::TokensReport;
use super::watched::Watched;
use super::worst::{self, WorstQuery};
use super::{Evaluation, Judging, Part, Plan, Progress, run_file, scale};

/// Measures one set in a catalog of its tools.
///
/// If an arm fails after others were measured, the report has those, and says why it is unfinished.
///
/// # Errors
/// An [`EvalError`] for a plan that does not fit the set, and errors of the engine.
pub fn evaluate(
    set: EvalSet,
    plan: &Plan,
    workspace: &Workspace,
    progress: &dyn Progress,
) -> Result<Evaluation> {
    check(&set, plan, workspace.embeds())?;
    // Before anything is prepared: a process that measures several sets would report the largest
    // one for all.
    cost::reset_peak_rss();
    workspace.forget_queries();
    progress.stage("embedding tools", 0);
    let build = workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
    let mut report = report::identity(&set, plan.seed, workspace.embedder());
    let is_ranked = plan.arms.iter().any(Arm::is_ranked);
    report.trained_on = is_ranked && workspace.ranker_has_seen(&set)?;
    let searcher = workspace.open_set(&set)?.searcher();
    let watched = Watched::new(&*searcher);
    let measurement = Measurement {
        set: &set,
        plan,
        engine: &watched,
        workspace: Some(workspace),
        progress,
    };
    let results = measurement.arms()?;
    let main = results.main;
    let rankings = &results.runs[main].rankings;
    // What was measured up to an error is kept.
    if results.unfinished.is_none()
        && let Err(error) = measurement.parts(&mut report, &build, main, rankings)
    {
        report.unfinished = Some(error.to_string());
    }
    Ok(evaluation(set, plan, report, results))
}

/// Measures one set in a catalog that is in use, as it is: with its settings, words, memory and
/// ranker. Its tools must be those of the set.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_in_use(
    set: EvalSet,
    plan: &Plan,
    searcher: &Searcher,
    embedder: String,
    progress: &dyn Progress,
) -> Result<Evaluation> {
    check(&set, plan, true)?;
    let mut report = report::identity(&set, plan.seed, embedder);
    let is_ranked = plan.arms.iter().any(Arm::is_ranked);
    report.trained_on = is_ranked && ranker_has_seen(searcher, set.query_texts());
    let watched = Watched::new(searcher);
    let measurement = Measurement {
        set: &set,
        plan,
        engine: &watched,
        workspace: None,
        progress,
    };
    let results = measurement.arms()?;
    if plan.parts.contains(&Part::Tokens) {
        progress.stage("counting tokens", 0);
        let rankings = &results.runs[results.main].rankings;
        report.tokens = Some(TokensReport::of(&set, rankings));
    }
    Ok(evaluation(set, plan, report, results))
}

/// Whether the ranker of a catalog in use was trained on these queries, or on some of them.
pub fn ranker_has_seen<'a>(searcher: &Searcher, queries: impl Iterator<Item = &'a str>) -> bool {
    match searcher.ranker() {
        Some(ranker) => ranker.seen().include(queries),
        None => false,
    }
}

/// Evaluations of one set, each by other settings, as one with all their arms.
///
/// Returns `None` for none.
pub fn merged(evaluations: Vec<Evaluation>, plan: &Plan) -> Option<Evaluation> {
    let mut rest = evaluations.into_iter();
    let mut all = rest.next()?;
    let mut embedders = vec![all.report.embedder.clone()];
    for other in rest {
        all.report.arms.extend(other.report.arms);
        all.report.trained_on |= other.report.trained_on;
        all.runs.extend(other.runs);
        if !embedders.contains(&other.report.embedder) {
            embedders.push(other.report.embedder);
        }
        let unfinished = other.report.unfinished;
        all.report.unfinished = all.report.unfinished.or(unfinished);
    }
    all.report.embedder = embedders.join(", ");
    // It is the cost of the first catalog alone.
    all.report.cost = None;
    let scores = scores_of(&all.set, plan, &all.runs);
    all.report.significance = significance(&all.runs, &scores, plan.seed);
    all.report.per_query = per_query::per_query(&all.set, &all.runs, &scores);
    all.report.sources = report::by_source(&all.report.per_query, &all.report.arms);
    Some(all)
}

fn evaluation(set: EvalSet, plan: &Plan, mut report: Report, results: ArmResults) -> Evaluation {
    report.arms = results.arms;
    report.significance = results.significance;
    report.per_query = results.per_query;
    report.sources = report::by_source(&report.per_query, &report.arms);
    report.shown = plan.shown(&plan.metrics_of(&set));
    report.unfinished = results.unfinished.or(report.unfinished);
    report.main_arm = results.runs[results.main].name.clone();
    report.worst = results.worst;
    Evaluation {
        report,
        runs: results.runs,
        set,
    }
}

fn check(set: &EvalSet, plan: &Plan, embeds: bool) -> Result<()> {
    for metric in plan.metrics_of(set) {
        if let Some(k) = metric.depth
            && k > set.tools.len()
        {
            let tools = set.tools.len();
            return Err(EvalError::DepthExceedsCatalog { tools, k });
        }
    }
    if plan.arms.is_empty() {
        return Err(EvalError::option("--arms", "", "name at least one"));
    }
    for arm in &plan.arms {
        if arm.needs_vectors() && !embeds {
            let arm = arm.name.clone();
            return Err(EvalError::NoEmbedder { arm });
        }
    }
    Ok(())
}

fn scores_of(set: &EvalSet, plan: &Plan, runs: &[ArmRun]) -> Vec<Scores> {
    let metrics = plan.metrics_of(set);
    let mut scores = Vec::with_capacity(runs.len());
    for run in runs {
        scores.push(Scores::strict(set, run, &metrics));
    }
    scores
}

fn significance(runs: &[ArmRun], scores: &[Scores], seed: u64) -> Vec<report::Comparison> {
    let named = runs.iter().map(|run| run.name.as_str()).zip(scores);
    report::comparisons(&named.collect::<Vec<_>>(), seed)
}

/// The measurement of one set by one plan.
struct Measurement<'a> {
    set: &'a EvalSet,
    plan: &'a Plan,
    engine: &'a dyn Engine,
    /// The folder of the catalog; `None` for a catalog in use.
    workspace: Option<&'a Workspace>,
    progress: &'a dyn Progress,
}

/// The results of every arm.
struct ArmResults {
    arms: Vec<ArmReport>,
    runs: Vec<ArmRun>,
    significance: Vec<report::Comparison>,
    worst: Vec<WorstQuery>,
    per_query: Vec<QueryReport>,
    /// The position of the hybrid arm, else of the last one.
    main: usize,
    /// Why arms are missing.
    unfinished: Option<String>,
}

impl Measurement<'_> {
    fn arms(&self) -> Result<ArmResults> {
        let mut runs = Vec::new();
        let mut latencies = Vec::new();
        let mut unfinished = None;
        for arm in &self.plan.arms {
            match self.arm(arm) {
                Ok((run, latency)) => {
                    runs.push(run);
                    latencies.push(latency);
                }
                // Nothing was measured yet.
                Err(error) if runs.is_empty() => return Err(error),
                Err(error) => {
                    unfinished = Some(format!("arm {}: {error}", arm.name));
                    break;
                }
            }
        }
        // Before the files of runs are read, as one of them may have this name too.
        let main = runs.iter().position(|run: &ArmRun| run.name == "hybrid");
        let main = main.unwrap_or(runs.len() - 1);
        for path in &self.plan.runs {
            runs.push(run_file::read_run(path, self.set, self.plan.run_order)?);
            // Another program searched, so there is no latency of ours.
            latencies.push(None);
        }
        let scores = scores_of(self.set, self.plan, &runs);
        let arm = &self.plan.arms[main];
        // They are searched once more, and the engine has just failed.
        let worst = if unfinished.is_some() {
            Vec::new()
        } else {
            worst::worst(self.set, self.engine, arm, &runs[main], &scores[main])?
        };
        Ok(ArmResults {
            arms: self.arm_reports(&runs, &scores, latencies),
            significance: significance(&runs, &scores, self.plan.seed),
            per_query: per_query::per_query(self.set, &runs, &scores),
            runs,
            worst,
            main,
            unfinished,
        })
    }

    fn has(&self, part: Part) -> bool {
        self.plan.parts.contains(&part)
    }

    fn arm(&self, arm: &Arm) -> Result<(ArmRun, Option<Latency>)> {
        self.progress.stage(
            &format!("searching with {}", arm.name),
            self.set.queries.len(),
        );
        let depth = MAX_K.min(self.set.tools.len());
        let run = ArmRun::of(self.set, self.engine, arm, depth, &|| self.progress.step())?;
        if !self.has(Part::Cost) {
            return Ok((run, None));
        }
        self.progress.stage(&format!("timing {}", arm.name), 0);
        let time = || Latency::of(self.set, self.engine, arm, self.plan.seed);
        // With the cache, a query that was searched before would cost no embedding.
        let latency = match self.workspace {
            Some(workspace) => workspace.uncached(time)?,
            None => time()?,
        };
        Ok((run, Some(latency)))
    }

    fn arm_reports(
        &self,
        runs: &[ArmRun],
        scores: &[Scores],
        latencies: Vec<Option<Latency>>,
    ) -> Vec<ArmReport> {
        let twins = match self.plan.judging {
            Judging::Strict => None,
            Judging::AlsoTolerant => Some(Twins::of(self.set)),
        };
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

    /// Measures the parts of the plan besides quality, up to one that fails.
    fn parts(
        &self,
        report: &mut Report,
        build: &Build,
        main: usize,
        rankings: &[Vec<super::dataset::ToolIndex>],
    ) -> Result<()> {
        let Some(workspace) = self.workspace else {
            return Ok(());
        };
        if self.has(Part::Tokens) {
            self.progress.stage("counting tokens", 0);
            report.tokens = Some(TokensReport::of(self.set, rankings));
        }
        if self.has(Part::Cost) {
            report.cost = Some(CostReport::of(build));
            for &size in &self.plan.scale {
                report.scale.push(self.at_size(workspace, size)?);
            }
        }
        let arm = &self.plan.arms[main];
        if self.has(Part::NoMatch) {
            report.no_match = self.no_match(workspace, arm)?;
        }
        if self.has(Part::Memory) {
            let queries = self.set.queries.len();
            self.progress.stage("searching with a memory", queries);
            let step = || self.progress.step();
            let seed = self.plan.seed;
            report.memory = Some(MemoryReport::of(self.set, workspace, arm, seed, &step)?);
        }
        Ok(())
    }

    fn no_match(&self, workspace: &Workspace, arm: &Arm) -> Result<Option<NoMatchReport>> {
        let held_out = HeldOut::draw(self.set, self.plan.seed);
        // With one kind alone there is nothing to tell apart.
        if !held_out.has_both_kinds() {
            return Ok(None);
        }
        self.progress
            .stage("searching for held-out tools", held_out.unanswerable.len());
        let rest = workspace.without(self.set, &held_out.ids(self.set))?;
        let searcher = rest.catalog.searcher();
        let watched = Watched::new(&*searcher);
        NoMatchReport::of(self.set, &held_out, &watched, arm, &|| self.progress.step()).map(Some)
    }

    fn at_size(&self, workspace: &Workspace, size: usize) -> Result<ScalePoint> {
        self.progress
            .stage(&format!("a catalog of {size} tools"), 0);
        let (tools, grown) = scale::resized(self.set, size, self.plan.seed)?;
        // So that the peak is that of this size alone.
        cost::reset_peak_rss();
        let (catalog, build) = workspace.of_tools(self.set, &tools, &mut |embedded| {
            self.progress.done(embedded.done)
        })?;
        let searcher = catalog.catalog.searcher();
        let watched = Watched::new(&*searcher);
        let mut latency = BTreeMap::new();
        for arm in &self.plan.arms {
            let time = || Latency::of(self.set, &watched, arm, self.plan.seed);
            latency.insert(arm.name.clone(), workspace.uncached(time)?);
        }
        Ok(ScalePoint {
            tools: size,
            grown,
            cost: CostReport::of(&build),
            latency,
        })
    }
}
