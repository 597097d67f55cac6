//! Compares two reports query by query.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bootstrap::Interval;
use super::error::{EvalError, Result};
use super::metrics::{Metric, headline, mean};
use super::per_query::{QueryReport, ScoredHit};
use super::report::{Report, read_reports, set_names};
use super::significance::{Significance, holm};

/// Queries that are listed for each direction.
const LISTED: usize = 10;
/// Hits of a listed query.
const LISTED_HITS: usize = 3;

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct DiffPlan {
    /// Pairs of arms; without any those that both reports have, or the only ones.
    pub arms: Vec<(String, String)>,
    /// The metrics; without any the main one at its deepest cut-off and others at theirs.
    pub metrics: Vec<Metric>,
    /// The seed of the tests.
    pub seed: u64,
}

/// Two reports compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// The file of the first report.
    pub a: PathBuf,
    /// The file of the second report.
    pub b: PathBuf,
    /// By set.
    pub sets: Vec<SetDiff>,
}

/// One set in two reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetDiff {
    /// The name of the set.
    pub set: String,
    /// Queries that both have, with the same text and judgement.
    pub queries: usize,
    /// Queries that are left out: only one report has them, or their texts or judgements differ.
    pub left_out: usize,
    /// What differs besides the figures.
    pub remarks: Vec<String>,
    /// By arm and metric.
    pub comparisons: Vec<Compared>,
    /// Queries whose first metric rose or fell most, by pair of arms.
    pub moved: Vec<Moved>,
    /// The values of the first metric by query, by pair of arms: for plots.
    #[serde(skip)]
    pub points: Vec<Points>,
}

/// The values of one metric of every query.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// The arm of the first report.
    pub arm_a: String,
    /// The arm of the second report.
    pub arm_b: String,
    /// The metric.
    pub metric: String,
    /// By query, in the first report and in the second; `NaN` where it has no value.
    pub values: Vec<(f64, f64)>,
}

/// One metric of one pair of arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The arm of the first report.
    pub arm_a: String,
    /// The arm of the second report.
    pub arm_b: String,
    /// The metric.
    pub metric: String,
    /// Queries with a value in both.
    pub queries: usize,
    /// The mean in the first report.
    pub a: f64,
    /// The mean in the second report.
    pub b: f64,
    /// Mean of b less a.
    pub difference: f64,
    /// Its 95% bootstrap interval.
    pub ci95: Interval,
    /// Two-sided p-value of the randomisation test.
    pub p: f64,
    /// The same, corrected by Holm for all comparisons of this table.
    pub p_holm: f64,
    /// Two-sided p-value of the bootstrap test.
    pub p_bootstrap: f64,
    /// The difference in standard deviations of the differences by query.
    pub effect_size: f64,
    /// The smallest difference that these queries would show in four of five cases.
    pub smallest_difference: f64,
    /// Queries whose value rose.
    pub better: usize,
    /// Queries whose value fell.
    pub worse: usize,
}

/// A query whose value changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The arm of the first report.
    pub arm_a: String,
    /// The arm of the second report.
    pub arm_b: String,
    /// The metric.
    pub metric: String,
    /// The id of the query.
    pub id: String,
    /// Its text.
    pub query: String,
    /// The value in the first report.
    pub a: f64,
    /// The value in the second report.
    pub b: f64,
    /// The first hits in the first report.
    pub hits_a: Vec<ScoredHit>,
    /// The first hits in the second report.
    pub hits_b: Vec<ScoredHit>,
}

/// Compares two files of reports.
///
/// # Errors
/// [`EvalError::Baseline`] for files that are no reports with values by query, or have no set, arm,
/// metric or query in common.
pub fn diff(a: &Path, b: &Path, plan: &DiffPlan) -> Result<Diff> {
    let (of_a, of_b) = (read_reports(a)?, read_reports(b)?);
    let mut sets = Vec::new();
    for earlier in &of_a {
        // A set that only one of the files has is left out.
        let same = of_b.iter().find(|later| later.set == earlier.set);
        if let Some(later) = same {
            let pair = Pair {
                a: (a, earlier),
                b: (b, later),
            };
            sets.push(pair.diff(plan)?);
        }
    }
    if sets.is_empty() {
        let reason = format!(
            "it is of the set {} and {} of {}; compare reports of one set",
            set_names(&of_b),
            a.display(),
            set_names(&of_a)
        );
        return Err(differs(b, reason));
    }
    correct(&mut sets);
    Ok(Diff {
        a: a.to_owned(),
        b: b.to_owned(),
        sets,
    })
}

/// Corrects the p-values for the number of all comparisons.
fn correct(sets: &mut [SetDiff]) {
    // Over all sets together, because readers look through one table of all comparisons.
    let mut all = Vec::new();
    for set in sets {
        all.extend(&mut set.comparisons);
    }
    let p_values: Vec<f64> = all.iter().map(|compared| compared.p).collect();
    for (compared, p) in all.into_iter().zip(holm(&p_values)) {
        compared.p_holm = p;
    }
}

fn differs(path: &Path, reason: String) -> EvalError {
    EvalError::Baseline {
        path: path.to_owned(),
        reason,
    }
}

/// Two reports of a set, with their files.
struct Pair<'a> {
    a: (&'a Path, &'a Report),
    b: (&'a Path, &'a Report),
}

/// A query in both reports.
type Both<'a> = (&'a QueryReport, &'a QueryReport);

impl Pair<'_> {
    fn diff(&self, plan: &DiffPlan) -> Result<SetDiff> {
        let queries = self.common()?;
        let arms = self.arms(plan)?;
        let mut comparisons = Vec::new();
        let (mut moved, mut points) = (Vec::new(), Vec::new());
        for pair in &arms {
            let metrics = self.metrics(plan, pair)?;
            for metric in &metrics {
                comparisons.push(compared(&queries, pair, *metric, plan.seed));
            }
            if let Some(first) = metrics.first() {
                moved.extend(moved_most(&queries, pair, *first));
                points.push(points_of(&queries, pair, *first));
            }
        }
        let (of_a, of_b) = (self.a.1, self.b.1);
        Ok(SetDiff {
            set: of_a.set.clone(),
            queries: queries.len(),
            left_out: of_a.per_query.len() + of_b.per_query.len() - 2 * queries.len(),
            remarks: self.remarks(),
            comparisons,
            moved,
            points,
        })
    }

    /// The queries that both have, with the same text and judgement.
    fn common(&self) -> Result<Vec<Both<'_>>> {
        for (path, report) in [self.a, self.b] {
            if report.per_query.is_empty() {
                let reason = format!(
                    "its report of {} has no values by query; write a new one with --json",
                    report.set
                );
                return Err(differs(path, reason));
            }
        }
        let mut by_id: HashMap<&str, &QueryReport> = HashMap::new();
        for query in &self.b.1.per_query {
            by_id.insert(&query.id, query);
        }
        let mut queries: Vec<Both<'_>> = Vec::new();
        for query in &self.a.1.per_query {
            if let Some(&other) = by_id.get(query.id.as_str())
                && is_same(query, other)
            {
                queries.push((query, other));
            }
        }
        if queries.is_empty() {
            let reason = format!(
                "no query of {} has the same id, text and judgement as in {}",
                self.a.1.set,
                self.a.0.display()
            );
            return Err(differs(self.b.0, reason));
        }
        Ok(queries)
    }

    fn arms(&self, plan: &DiffPlan) -> Result<Vec<(String, String)>> {
        let (of_a, of_b) = (arm_names(self.a.1), arm_names(self.b.1));
        for (one, other) in &plan.arms {
            for (name, known, path) in [(one, &of_a, self.a.0), (other, &of_b, self.b.0)] {
                if !known.contains(name) {
                    let reason = format!("it has no arm {name}; it has {}", known.join(", "));
                    return Err(differs(path, reason));
                }
            }
        }
        if !plan.arms.is_empty() {
            return Ok(plan.arms.clone());
        }
        let mut shared = Vec::new();
        for name in &of_a {
            if of_b.contains(name) {
                shared.push((name.clone(), name.clone()));
            }
        }
        if !shared.is_empty() {
            return Ok(shared);
        }
        // Arms of other names are compared only where there is no choice.
        if let ([one], [other]) = (of_a.as_slice(), of_b.as_slice()) {
            return Ok(vec![(one.clone(), other.clone())]);
        }
        let reason = format!(
            "it has the arms {} and {} the arms {}; name pairs with --arms A:B",
            of_b.join(", "),
            self.a.0.display(),
            of_a.join(", ")
        );
        Err(differs(self.b.0, reason))
    }

    /// The metrics of the plan, or those that tell most of both arms.
    fn metrics(&self, plan: &DiffPlan, (arm_a, arm_b): &(String, String)) -> Result<Vec<Metric>> {
        let (of_a, of_b) = (measured(self.a.1, arm_a), measured(self.b.1, arm_b));
        for (path, known) in [(self.a.0, &of_a), (self.b.0, &of_b)] {
            if let Some(metric) = plan.metrics.iter().find(|metric| !known.contains(metric)) {
                let reason = format!(
                    "it has no {metric}; name it with --metrics when you measure, or compare another"
                );
                return Err(differs(path, reason));
            }
        }
        if !plan.metrics.is_empty() {
            return Ok(plan.metrics.clone());
        }
        let mut shared = of_a;
        shared.retain(|metric| of_b.contains(metric));
        if shared.is_empty() {
            let reason = format!(
                "its arm {arm_b} has no metric of the arm {arm_a} of {}",
                self.a.0.display()
            );
            return Err(differs(self.b.0, reason));
        }
        let main = headline(&shared);
        let mut chosen = vec![main];
        for metric in &shared {
            let mut others = shared.iter();
            let has_deeper =
                others.any(|other| other.measure == metric.measure && other.depth > metric.depth);
            if metric.measure != main.measure && !has_deeper {
                chosen.push(*metric);
            }
        }
        Ok(chosen)
    }

    fn remarks(&self) -> Vec<String> {
        let (of_a, of_b) = (self.a.1, self.b.1);
        let mut remarks = Vec::new();
        if of_a.embedder != of_b.embedder {
            remarks.push(format!(
                "embedders: {} and {}",
                of_a.embedder, of_b.embedder
            ));
        }
        if of_a.fingerprint != of_b.fingerprint {
            remarks.push("tools, queries or judgements are not the same".to_owned());
        }
        remarks
    }
}

/// Whether two queries have the same text and judgement.
fn is_same(one: &QueryReport, other: &QueryReport) -> bool {
    one.query == other.query
        && one.judged == other.judged
        && one.groups == other.groups
        && one.order == other.order
}

fn arm_names(report: &Report) -> Vec<String> {
    report.arms.iter().map(|arm| arm.name.clone()).collect()
}

fn measured(report: &Report, arm: &str) -> Vec<Metric> {
    match report.arm(arm) {
        Some(arm) => arm.means.metrics(),
        None => Vec::new(),
    }
}

fn points_of(queries: &[Both<'_>], (arm_a, arm_b): &(String, String), metric: Metric) -> Points {
    let mut values = Vec::with_capacity(queries.len());
    for (one, other) in queries {
        values.push((one.value(arm_a, metric), other.value(arm_b, metric)));
    }
    Points {
        arm_a: arm_a.clone(),
        arm_b: arm_b.clone(),
        metric: metric.to_string(),
        values,
    }
}

fn compared(
    queries: &[Both<'_>],
    (arm_a, arm_b): &(String, String),
    metric: Metric,
    seed: u64,
) -> Compared {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let (mut better, mut worse) = (0, 0);
    for (one, other) in queries {
        let (one, other) = (one.value(arm_a, metric), other.value(arm_b, metric));
        // The tests are paired, so a query counts only with a value in both.
        if one.is_nan() || other.is_nan() {
            continue;
        }
        a.push(one);
        b.push(other);
        better += usize::from(other > one);
        worse += usize::from(other < one);
    }
    let found = Significance::of(&a, &b, seed);
    Compared {
        arm_a: arm_a.clone(),
        arm_b: arm_b.clone(),
        metric: metric.to_string(),
        queries: found.queries,
        a: mean(&a),
        b: mean(&b),
        difference: found.difference,
        ci95: found.interval,
        p: found.p,
        // Replaced in `correct`, when all comparisons are known.
        p_holm: found.p,
        p_bootstrap: found.p_bootstrap,
        effect_size: found.effect_size,
        smallest_difference: found.smallest_difference,
        better,
        worse,
    }
}

/// The queries that fell most, then those that rose most; ties in the order of the report.
fn moved_most(
    queries: &[Both<'_>],
    (arm_a, arm_b): &(String, String),
    metric: Metric,
) -> Vec<Moved> {
    let mut moved = Vec::new();
    for (one, other) in queries {
        let (a, b) = (one.value(arm_a, metric), other.value(arm_b, metric));
        // Also false for a difference of values that are not numbers.
        if (b - a).abs() > 0.0 {
            moved.push(Moved {
                arm_a: arm_a.clone(),
                arm_b: arm_b.clone(),
                metric: metric.to_string(),
                id: one.id.clone(),
                query: one.query.clone(),
                a,
                b,
                hits_a: first_hits(one, arm_a),
                hits_b: first_hits(other, arm_b),
            });
        }
    }
    moved.sort_by(|one, other| (one.b - one.a).total_cmp(&(other.b - other.a)));
    let rose = moved.split_off(moved.partition_point(|query| query.b < query.a));
    moved.truncate(LISTED);
    // Backwards: those that rose most are at the end.
    moved.extend(rose.into_iter().rev().take(LISTED));
    moved
}

fn first_hits(query: &QueryReport, arm: &str) -> Vec<ScoredHit> {
    match query.arms.get(arm) {
        Some(arm) => arm.hits.iter().take(LISTED_HITS).cloned().collect(),
        None => Vec::new(),
    }
}
