//! The report of one set, as JSON.

use std::collections::BTreeMap;

use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::bootstrap::{Interval, intervals, paired};
use super::cost::{CostReport, ScalePoint};
use super::dataset::{EvalSet, LeftOut};
use super::error::{EvalError, Result, read_text};
use super::judge::Scores;
use super::latency::Latency;
use super::memory::MemoryReport;
use super::metrics::{Measure, Metric};
use super::nomatch::NoMatchReport;
use super::per_query::QueryReport;
use super::run::{ArmRun, RunFacts};
use super::significance::holm;
use super::tokens::TokensReport;

/// The results of one set. Quality metrics are means over the queries, from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name of the set.
    pub set: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Queries measured.
    pub queries: usize,
    /// Queries in the file.
    pub queries_in_set: usize,
    /// The seed of the sample, the held-out tools and the resampling.
    pub seed: u64,
    /// The embedders; `none` without.
    pub embedder: String,
    /// Digest of the tools, the measured queries and their judgements.
    pub fingerprint: String,
    /// Whether tools have other grades than 1 and 0.
    pub graded: bool,
    /// The grade that relevance starts from; 0 for every grade above 0.
    pub relevant_from: f64,
    /// What the files of the set have and this report leaves out.
    pub left_out: LeftOut,
    /// True if the ranker that took part was trained on these queries, or on some of them: the
    /// figures look better than they are.
    pub trained_on: bool,
    /// Version of this program.
    pub version: &'static str,
    /// Why arms or parts are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    /// The results of each arm, in the order of the plan.
    #[serde(serialize_with = "by_name")]
    pub arms: Vec<ArmReport>,
    /// Paired comparisons of all arms.
    pub significance: Vec<Comparison>,
    /// Abstention; null when it was not measured, or no query lost all its relevant tools.
    pub no_match: Option<NoMatchReport>,
    /// The gain of a usage memory, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// The cost of the index; null when it was not measured.
    pub cost: Option<CostReport>,
    /// Null when it was not measured.
    pub tokens: Option<TokensReport>,
    /// Cost and latency at the sizes of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scale: Vec<ScalePoint>,
    /// Every query with its judgement, the values and the first hits of each arm.
    pub per_query: Vec<QueryReport>,
    /// The metrics of the tables, if they were chosen.
    #[serde(skip)]
    pub shown: Vec<Metric>,
}

/// The results of one arm.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// The name; the key in the JSON.
    #[serde(skip)]
    pub name: String,
    /// Every metric, by its name.
    #[serde(flatten)]
    pub means: Means,
    /// Median latency; null for a run from a file or without timing.
    pub p50_ms: Option<f64>,
    /// 95th percentile of latency.
    pub p95_ms: Option<f64>,
    /// 99th percentile of latency.
    pub p99_ms: Option<f64>,
    /// 95% bootstrap interval of every metric.
    pub ci95: Intervals,
    /// The same metrics with near-identical tools counted, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_tolerant: Option<Means>,
    /// The same metrics without hits that are not judged, if some tools are judged as not relevant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condensed: Option<Means>,
    /// Latency by stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Queries with a degraded answer.
    pub degraded: usize,
    /// Queries answered with "no match", which counts as no hits.
    pub abstained: usize,
    /// What the run file has and what of it counts, for a run from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_file: Option<RunFacts>,
}

impl ArmReport {
    /// The results of an evaluated run.
    pub fn of(run: &ArmRun, scores: &Scores, latency: Option<Latency>, seed: u64) -> Self {
        let totals = latency.map(|latency| latency.total_ms);
        ArmReport {
            name: run.name.clone(),
            means: Means::of(scores),
            p50_ms: totals.map(|total| total.p50),
            p95_ms: totals.map(|total| total.p95),
            p99_ms: totals.map(|total| total.p99),
            ci95: Intervals(
                scores
                    .metrics
                    .iter()
                    .copied()
                    .zip(intervals(&scores.columns, seed))
                    .collect(),
            ),
            duplicate_tolerant: None,
            condensed: None,
            latency,
            degraded: run.degraded,
            abstained: run.abstained,
            run_file: run.file.clone(),
        }
    }

    /// The mean of a metric and its interval; `None` when it was not measured.
    pub fn figure(&self, metric: Metric) -> Option<(f64, Interval)> {
        let interval = self.ci95.0.iter().find(|(other, _)| *other == metric)?.1;
        Some((self.means.value(metric)?, interval))
    }
}

/// Metrics with their means, written as an object in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means(pub Vec<(Metric, f64)>);

impl Means {
    /// The means of an evaluated run.
    pub fn of(scores: &Scores) -> Self {
        Means(
            scores
                .metrics
                .iter()
                .map(|metric| (*metric, scores.mean(*metric)))
                .collect(),
        )
    }

    /// The mean of a metric; `None` when it was not measured.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.0
            .iter()
            .find(|(other, _)| *other == metric)
            .map(|(_, value)| *value)
    }
}

impl Serialize for Means {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        metrics_map(&self.0, serializer)
    }
}

/// Metrics with their intervals, written as an object in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals(pub Vec<(Metric, Interval)>);

impl Serialize for Intervals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        metrics_map(&self.0, serializer)
    }
}

/// A paired comparison of two arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first arm.
    pub a: String,
    /// The second arm.
    pub b: String,
    /// The metric.
    pub metric: String,
    /// Mean of a minus b.
    pub difference: f64,
    /// Its 95% interval.
    pub ci95: Interval,
    /// Two-sided p-value of the randomisation test.
    pub p: f64,
    /// The same, corrected by Holm for all pairs of arms.
    pub p_holm: f64,
}

/// Compares every arm with those after it, by the main metric.
pub fn comparisons(arms: &[(&str, &Scores)], seed: u64) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (index, (a, left)) in arms.iter().enumerate() {
        for (b, right) in &arms[index + 1..] {
            let metric = headline(&left.metrics);
            let paired = paired(left.column(metric), right.column(metric), seed);
            comparisons.push(Comparison {
                a: (*a).into(),
                b: (*b).into(),
                metric: metric.to_string(),
                difference: paired.difference,
                ci95: paired.interval,
                p: paired.p,
                p_holm: paired.p,
            });
        }
    }
    let p_values: Vec<f64> = comparisons.iter().map(|pair| pair.p).collect();
    for (pair, p) in comparisons.iter_mut().zip(holm(&p_values)) {
        pair.p_holm = p;
    }
    comparisons
}

/// The main metric: nDCG at the deepest cut-off, else the first.
pub fn headline(metrics: &[Metric]) -> Metric {
    let of_measure = |measure| {
        let same = |metric: &&Metric| metric.measure == measure && !metric.judged_only;
        metrics
            .iter()
            .filter(same)
            .max_by_key(|metric| metric.depth)
    };
    of_measure(Measure::Ndcg)
        .or_else(|| of_measure(Measure::NdcgExp))
        .or(metrics.first())
        .copied()
        .unwrap_or(Metric::new(Measure::Ndcg, 10))
}

/// The macro average of the metrics of each arm: every set has the same weight, whatever its number
/// of queries. Metrics and arms that a set lacks are left out.
pub fn macro_average(reports: &[Report]) -> Vec<(String, Means)> {
    let Some(first) = reports.first() else {
        return Vec::new();
    };
    let of_arm = |arm: &ArmReport| {
        let same: Option<Vec<&ArmReport>> = reports
            .iter()
            .map(|report| report.arms.iter().find(|other| other.name == arm.name))
            .collect();
        // An arm that one set lacks has no mean over all sets.
        let same = same?;
        let average = |metric: Metric| {
            let values: Option<Vec<f64>> = same.iter().map(|arm| arm.means.value(metric)).collect();
            Some((metric, super::metrics::mean(&values?)))
        };
        Some((
            arm.name.clone(),
            Means(
                arm.means
                    .0
                    .iter()
                    .filter_map(|(metric, _)| average(*metric))
                    .collect(),
            ),
        ))
    };
    first.arms.iter().filter_map(of_arm).collect()
}

/// The file of reports: one shape for one set and for several.
#[derive(Serialize)]
struct File<'a, T> {
    /// Version of this program.
    version: &'static str,
    /// Why sets are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<&'a str>,
    /// By set.
    sets: &'a [T],
}

/// The JSON of the reports; `unfinished` says why some are missing.
///
/// # Errors
/// None that these types have.
pub fn to_json<T: Serialize>(
    reports: &[T],
    unfinished: Option<&str>,
) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&File {
        version: env!("CARGO_PKG_VERSION"),
        unfinished,
        sets: reports,
    })
}

/// Reads a file of reports, also those of earlier versions: one report, or an array.
///
/// # Errors
/// [`EvalError::Io`], [`EvalError::Baseline`] for a file that has no reports.
pub fn read_reports(path: &Path) -> Result<Vec<Earlier>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        Sets { sets: Vec<Earlier> },
        Several(Vec<Earlier>),
        One(Box<Earlier>),
    }
    let not_a_report = |error: String| EvalError::Baseline {
        path: path.to_owned(),
        reason: format!("it is not a report of `toolscout eval --json` ({error}); write a new one"),
    };
    let value: serde_json::Value =
        serde_json::from_str(&read_text(path)?).map_err(|error| not_a_report(error.to_string()))?;
    let shape = Shape::deserialize(value).map_err(|error| not_a_report(error.to_string()))?;
    let reports = match shape {
        Shape::Sets { sets } => sets,
        Shape::Several(reports) => reports,
        Shape::One(report) => vec![*report],
    };
    if reports.is_empty() {
        return Err(not_a_report("it has no set".to_owned()));
    }
    Ok(reports)
}

/// A report without results: what identifies the set and the run.
pub fn identity(set: &EvalSet, seed: u64, embedder: String) -> Report {
    Report {
        set: set.name.clone(),
        tools: set.tools.len(),
        queries: set.queries.len(),
        queries_in_set: set.queries_in_set,
        seed,
        embedder,
        fingerprint: set.fingerprint(),
        graded: set.is_graded(),
        relevant_from: set.relevant_from,
        left_out: set.left_out.clone(),
        trained_on: false,
        version: env!("CARGO_PKG_VERSION"),
        unfinished: None,
        arms: Vec::new(),
        significance: Vec::new(),
        no_match: None,
        memory: None,
        cost: None,
        tokens: None,
        scale: Vec::new(),
        per_query: Vec::new(),
        shown: Vec::new(),
    }
}

fn by_name<S: Serializer>(arms: &[ArmReport], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arms.iter().map(|arm| (&arm.name, arm)))
}

fn metrics_map<S: Serializer, V: Serialize>(
    entries: &[(Metric, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (metric, value) in entries {
        map.serialize_entry(&metric.to_string(), value)?;
    }
    map.end()
}

/// The parts of an earlier report that a comparison needs.
#[derive(Clone, Debug, Deserialize)]
pub struct Earlier {
    /// The name of the set.
    pub set: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Queries measured.
    pub queries: usize,
    /// The embedders.
    pub embedder: String,
    /// Digest of the tools, queries and judgements; absent in a report written by another program.
    pub fingerprint: Option<String>,
    /// The results of each arm.
    pub arms: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    /// The queries; none in a report of an earlier version.
    #[serde(default)]
    pub per_query: Vec<QueryReport>,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::eval::dataset::testing::set;

    /// A report of one arm with one metric at each of two sets' names.
    pub(crate) fn report(name: &str, arm: &str, ndcg_at_10: f64) -> Report {
        let mut set = set(&[("a", "x")], &[("q", "x", &["a"])]);
        set.name = name.into();
        let metric = Metric::new(Measure::Ndcg, 10);
        let scores = Scores {
            metrics: vec![metric],
            columns: vec![vec![ndcg_at_10]],
        };
        let run = ArmRun {
            name: arm.into(),
            rankings: vec![vec![0]],
            scores: vec![vec![1.0]],
            degraded: 0,
            abstained: 0,
            file: None,
        };
        let mut report = identity(&set, 42, "none".into());
        report.arms.push(ArmReport::of(&run, &scores, None, 42));
        report
    }
}

#[cfg(test)]
mod tests;
