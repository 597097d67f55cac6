//! The report of one set, as JSON.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::bootstrap::{Interval, intervals, paired};
use super::cost::{CostReport, ScalePoint};
use super::dataset::EvalSet;
use super::judge::Scores;
use super::latency::Latency;
use super::memory::MemoryReport;
use super::metrics::{Measure, Metric};
use super::nomatch::NoMatchReport;
use super::run::ArmRun;
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
    /// True if the ranker that took part was trained on these queries, or on some of them: the
    /// figures look better than they are.
    pub trained_on: bool,
    /// Version of this program.
    pub version: &'static str,
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
    /// Latency by stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Queries with a degraded answer.
    pub degraded: usize,
    /// Queries answered with "no match", which counts as no hits.
    pub abstained: usize,
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
            latency,
            degraded: run.degraded,
            abstained: run.abstained,
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
}

/// Compares every arm with those after it, by nDCG at the deepest cut-off.
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
            });
        }
    }
    comparisons
}

/// The main metric: nDCG at the deepest cut-off.
pub fn headline(metrics: &[Metric]) -> Metric {
    let ndcg = metrics
        .iter()
        .filter(|metric| metric.measure == Measure::Ndcg);
    ndcg.copied()
        .max()
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

/// The JSON of one set, or of several as an array.
pub fn to_json<T: Serialize>(reports: &[T]) -> serde_json::Result<String> {
    match reports {
        // An object for one set, so that scripts need no index.
        [one] => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    }
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
        trained_on: false,
        version: env!("CARGO_PKG_VERSION"),
        arms: Vec::new(),
        significance: Vec::new(),
        no_match: None,
        memory: None,
        cost: None,
        tokens: None,
        scale: Vec::new(),
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
#[derive(Clone, Debug, serde::Deserialize)]
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
            degraded: 0,
            abstained: 0,
        };
        let mut report = identity(&set, 42, "none".into());
        report.arms.push(ArmReport::of(&run, &scores, None, 42));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::testing::report;
    use super::*;

    #[test]
    fn json_has_the_published_shape() {
        let text = to_json(&[report("metatool", "lexical", 0.5)]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in [
            "set", "tools", "queries", "seed", "embedder", "arms", "no_match", "cost", "tokens",
        ] {
            assert!(json.get(key).is_some(), "{key} is missing in {text}");
        }
        assert_eq!(json["arms"]["lexical"]["ndcg@10"], 0.5);
        assert_eq!(
            json["arms"]["lexical"]["ci95"]["ndcg@10"],
            serde_json::json!([0.5, 0.5])
        );
        assert!(json["arms"]["lexical"].get("p95_ms").is_some());
        let earlier: Earlier = serde_json::from_str(&text).unwrap();
        assert_eq!((earlier.set.as_str(), earlier.arms.len()), ("metatool", 1));
    }

    #[test]
    fn several_sets_are_an_array() {
        let text = to_json(&[report("a", "lexical", 0.5), report("b", "lexical", 0.7)]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json.as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn sets_have_equal_weights_in_the_average() {
        let sets = [report("a", "lexical", 0.5), report("b", "lexical", 0.7)];
        let average = macro_average(&sets);
        assert_eq!(average.len(), 1);
        assert!((average[0].1.value(Metric::new(Measure::Ndcg, 10)).unwrap() - 0.6).abs() < 1e-12);
        assert!(
            macro_average(&[report("a", "lexical", 0.5), report("b", "dense", 0.7)]).is_empty()
        );
    }

    #[test]
    fn every_pair_of_arms_is_compared() {
        let metric = Metric::new(Measure::Ndcg, 10);
        let scores = |value: f64| Scores {
            metrics: vec![metric],
            columns: vec![vec![value; 20]],
        };
        let (low, high) = (scores(0.2), scores(0.6));
        let found = comparisons(&[("lexical", &low), ("dense", &high), ("hybrid", &high)], 1);
        let pairs: Vec<(&str, &str)> = found.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("lexical", "dense"),
                ("lexical", "hybrid"),
                ("dense", "hybrid")
            ]
        );
        assert!((found[0].difference + 0.4).abs() < 1e-12 && found[0].p < 0.001);
        assert_eq!((found[2].difference, found[2].p), (0.0, 1.0));
    }
}
