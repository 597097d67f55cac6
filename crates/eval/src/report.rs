//! The report of one set, as JSON.

mod means;
mod file;
mod sources;
mod figures;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::bootstrap::{Interval, intervals, paired};
use super::cost::{CostReport, ScalePoint};
use super::dataset::{EvalSet, LeftOut};
use super::judge::Scores;
use super::latency::Latency;
use super::memory::MemoryReport;
use super::metrics::{Metric, headline, mean};
use super::nomatch::NoMatchReport;
use super::ordered;
use super::per_query::QueryReport;
use super::run::{ArmRun, RunFacts};
use super::significance::holm;
use super::tokens::TokensReport;
use super::worst::WorstQuery;

pub use figures::Figures;
pub use file::{
    FORMAT, ReportFile, ReportProblem, check_format, not_a_report, read_json, read_reports,
    reports_of, to_json,
};
pub use means::{Intervals, Means};
pub use sources::{SourceReport, by_source};

/// Below this number of queries one of them moves a mean by more than two points.
pub const SMALL: usize = 50;

/// The results of one set. Quality metrics are means over the queries, from 0 to 1.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationReport)]
pub struct Report {
    /// The name of the set.
    pub set: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Queries measured.
    pub queries: usize,
    /// Queries in the file.
    #[serde(default)]
    pub queries_in_set: usize,
    /// The seed of the sample, the held-out tools and the resampling.
    #[serde(default)]
    pub seed: u64,
    /// The embedders; `none` without.
    pub embedder: String,
    /// Digest of the tools, the measured queries and their judgements; empty if another program wrote
    /// the report.
    #[serde(default)]
    pub fingerprint: String,
    /// Whether tools have other grades than 1 and 0.
    #[serde(default)]
    pub graded: bool,
    /// The grade that relevance starts from; 0 for every grade above 0.
    #[serde(default)]
    pub relevant_from: f64,
    /// What the files of the set have and this report leaves out.
    #[serde(default)]
    pub left_out: LeftOut,
    /// True if the ranker that took part was trained on these queries, or on some of them: the
    /// figures look better than they are.
    #[serde(default)]
    pub trained_on: bool,
    /// True if the settings or the ranker of the catalog were tuned to these queries, or to some of
    /// them: the figures are in-sample.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tuned_on: bool,
    /// Version of this program.
    #[serde(default)]
    pub version: String,
    /// Why arms or parts are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    /// The results of each arm by its name, in the order of the plan.
    #[serde(serialize_with = "by_name", deserialize_with = "read_by_name")]
    #[schema(value_type = BTreeMap<String, ArmReport>)]
    pub arms: Vec<ArmReport>,
    /// Paired comparisons of all arms.
    #[serde(default)]
    pub significance: Vec<Comparison>,
    /// Abstention; null when it was not measured, or no query lost all its relevant tools.
    #[serde(default)]
    pub no_match: Option<NoMatchReport>,
    /// The gain of a usage memory, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// The cost of the index; null when it was not measured.
    #[serde(default)]
    pub cost: Option<CostReport>,
    /// Null when it was not measured.
    #[serde(default)]
    pub tokens: Option<TokensReport>,
    /// Cost and latency at the sizes of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scale: Vec<ScalePoint>,
    /// The arm whose worst queries and tokens are reported.
    #[serde(default)]
    pub main_arm: String,
    /// The queries with the lowest values in this arm, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<WorstQuery>,
    /// The figures by source, if the set says where queries came from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceReport>,
    /// Every query with its judgement, the values and the first hits of each arm.
    #[serde(default)]
    pub per_query: Vec<QueryReport>,
    /// The metrics of the tables, if they were chosen.
    #[serde(skip)]
    #[schema(ignore)]
    pub shown: Vec<Metric>,
}

/// The results of one arm. Beside these fields it has every metric, by its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationArm)]
#[serde(default)]
pub struct ArmReport {
    /// The name; the key in the JSON.
    #[serde(skip)]
    #[schema(ignore)]
    pub name: String,
    /// Every metric, by its name.
    #[serde(flatten)]
    #[schema(ignore)]
    pub means: Means,
    /// Median latency; null for a run from a file or without timing.
    pub p50_ms: Option<f64>,
    /// 95th percentile of latency.
    pub p95_ms: Option<f64>,
    /// 99th percentile of latency.
    pub p99_ms: Option<f64>,
    /// 95% bootstrap interval of every metric.
    #[schema(value_type = BTreeMap<String, Vec<f64>>)]
    pub ci95: Intervals,
    /// The same metrics with near-identical tools counted, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
    pub duplicate_tolerant: Option<Means>,
    /// The same metrics without hits that are not judged, if some tools are judged as not relevant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
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

impl Report {
    /// Whether it has so few queries that one of them moves a mean by more than two points.
    pub fn is_small(&self) -> bool {
        self.queries < SMALL
    }

    /// What you have to know to read the figures, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.is_small() {
            remarks.push(say_small(self.queries));
        }
        if self.trained_on {
            remarks.push(
                "The ranker was trained on this set: figures with it look better than on requests it has not seen."
                    .to_owned(),
            );
        }
        if self.tuned_on {
            remarks.push(
                "The catalog was tuned to these queries: the figures are in-sample and look better than on others."
                    .to_owned(),
            );
        }
        if let Some(reason) = &self.unfinished {
            remarks.push(format!("The measurement is not finished: {reason}."));
        }
        remarks.extend(self.said_sources());
        remarks.extend(self.left_out.lines());
        remarks
    }

    /// What the sources of the queries mean for the figures, if they are known.
    pub fn said_sources(&self) -> Option<String> {
        sources::say(&self.sources)
    }

    /// The results of the arm with this name.
    pub(crate) fn arm(&self, name: &str) -> Option<&ArmReport> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The name of the set, marked if it is small.
    pub fn marked_set(&self) -> String {
        marked(&self.set, self.queries)
    }
}

/// The names of sets, for messages and titles.
pub(crate) fn set_names(reports: &[Report]) -> String {
    let names: Vec<&str> = reports.iter().map(|report| report.set.as_str()).collect();
    names.join(", ")
}

/// What a set of few queries means for its figures.
pub fn say_small(queries: usize) -> String {
    format!(
        "Small set of {queries} queries: one query moves a mean by up to {:.1} points. Read the intervals.",
        100.0 / queries.max(1) as f64
    )
}

/// The name of a set, marked if it has few queries.
pub fn marked(set: &str, queries: usize) -> String {
    if queries < SMALL {
        format!("{set} (small)")
    } else {
        set.to_owned()
    }
}

impl ArmReport {
    /// The results of an evaluated run.
    pub fn of(run: &ArmRun, scores: &Scores, latency: Option<Latency>, seed: u64) -> Self {
        let [p50_ms, p95_ms, p99_ms] = match latency.map(|latency| latency.total_ms) {
            Some(total) => [total.p50, total.p95, total.p99].map(Some),
            None => [None; 3],
        };
        ArmReport {
            name: run.name.clone(),
            means: Means::of(scores),
            p50_ms,
            p95_ms,
            p99_ms,
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
        Some((self.means.value(metric)?, self.ci95.value(metric)?))
    }
}

/// A paired comparison of two arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationComparison)]
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
    #[schema(value_type = Vec<f64>, min_items = 2, max_items = 2)]
    pub ci95: Interval,
    /// Two-sided p-value of the randomisation test.
    pub p: f64,
    /// The same, corrected by Holm for all pairs of arms.
    #[serde(default)]
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
                // Replaced below, when all p-values are known.
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

/// The macro average of the metrics of each arm: every set has the same weight, whatever its number
/// of queries. Metrics and arms that a set lacks are left out.
pub fn macro_average(reports: &[Report]) -> Vec<(String, Means)> {
    let Some(first) = reports.first() else {
        return Vec::new();
    };
    let mut averages = Vec::new();
    for arm in &first.arms {
        averages.extend(average(arm, reports));
    }
    averages
}

fn average(arm: &ArmReport, reports: &[Report]) -> Option<(String, Means)> {
    let mut same = Vec::with_capacity(reports.len());
    for report in reports {
        // An arm that one set lacks has no mean over all sets.
        same.push(report.arm(&arm.name)?);
    }
    let mut means = Vec::new();
    for metric in arm.means.metrics() {
        let values = same.iter().map(|arm| arm.means.value(metric));
        // Nor has a metric that one set lacks: one with few tools has no deep cut-offs.
        if let Some(values) = values.collect::<Option<Vec<f64>>>() {
            means.push((metric, mean(&values)));
        }
    }
    Some((arm.name.clone(), Means(means)))
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
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Report::default()
    }
}

fn by_name<S: Serializer>(arms: &[ArmReport], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arms.iter().map(|arm| (&arm.name, arm)))
}

fn read_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ArmReport>, D::Error> {
    let arms: Vec<(String, ArmReport)> = ordered::read(deserializer)?;
    // The names are the keys of the object.
    let arms = arms.into_iter();
    Ok(arms.map(|(name, arm)| ArmReport { name, ..arm }).collect())
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::dataset::testing::set;
    use crate::metrics::Measure;

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
