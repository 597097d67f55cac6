//! What was measured of each query.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::dataset::{EvalQuery, EvalSet};
use super::judge::Scores;
use super::judgements::{JudgedHits, Judgements};
use super::metrics::Metric;
use super::run::ArmRun;

/// The deepest rank of a report: deeper than the run of any system.
pub(crate) const MAX_RANK: usize = 100_000;
/// First hits that are reported.
const REPORTED_HITS: usize = 10;

/// A query with its judgement, and what each arm made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationQueryReport)]
pub struct QueryReport {
    /// Unique within its set.
    pub id: String,
    /// The text of the query.
    pub query: String,
    /// Where query and judgement came from, if the set says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The grade of each judged tool.
    pub judged: BTreeMap<String, f64>,
    /// Groups of alternatives, if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<String>>,
    /// The tools in the order in which they are to be called, if it is judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// By the name of the arm.
    pub arms: BTreeMap<String, QueryOfArm>,
}

/// What an arm made of a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationQueryOfArm)]
pub struct QueryOfArm {
    /// The value of each metric; null where it has none for this query.
    pub values: BTreeMap<String, Option<f64>>,
    /// The rank of each judged tool that was found.
    #[serde(default)]
    pub ranks: BTreeMap<String, usize>,
    /// The first hits, best first.
    pub hits: Vec<ScoredHit>,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationHit)]
pub struct ScoredHit {
    /// The id of the tool.
    pub id: String,
    /// Its score; null if an earlier version of the server kept the hit.
    pub score: Option<f64>,
}

impl QueryReport {
    /// The value of a metric of an arm; `NaN` where it has none.
    pub fn value(&self, arm: &str, metric: Metric) -> f64 {
        let Some(of_arm) = self.arms.get(arm) else {
            return f64::NAN;
        };
        match of_arm.values.get(&metric.to_string()) {
            Some(Some(value)) => *value,
            _ => f64::NAN,
        }
    }

    /// What is judged, with the tools in the order of `judged`.
    pub fn judgements(&self, relevant_from: f64) -> Judgements {
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            groups.push(self.positions(group));
        }
        Judgements {
            grades: self.judged.values().copied().collect(),
            relevant_from,
            groups,
            order: self.positions(&self.order),
        }
    }

    /// The places of tools in `judged`.
    fn positions(&self, ids: &[String]) -> Vec<usize> {
        let ids = ids.iter();
        ids.filter_map(|id| self.judged.keys().position(|other| other == id))
            .collect()
    }

    /// The hits of an arm as the judgements see them, to the last judged one.
    pub fn judged_hits(&self, arm: &str) -> JudgedHits {
        let Some(of_arm) = self.arms.get(arm) else {
            return JudgedHits::new();
        };
        // A rank beyond the bound is an error of the file, and a list that long would take all memory.
        let ranks = of_arm.ranks.values().copied();
        let deepest = ranks.filter(|rank| *rank <= MAX_RANK).max().unwrap_or(0);
        let mut hits = vec![None; deepest];
        for (position, id) in self.judged.keys().enumerate() {
            let Some(rank) = of_arm.ranks.get(id) else {
                continue;
            };
            // A file may have a rank of 0, which wraps around to a place that no list has.
            if let Some(hit) = hits.get_mut(rank.wrapping_sub(1)) {
                *hit = Some(position);
            }
        }
        hits
    }
}

/// The queries of a set with what was measured of them.
pub fn per_query(set: &EvalSet, runs: &[ArmRun], scores: &[Scores]) -> Vec<QueryReport> {
    let mut reports = Vec::with_capacity(set.queries.len());
    for (number, query) in set.queries.iter().enumerate() {
        let mut report = judgement(set, query);
        for (run, scores) in runs.iter().zip(scores) {
            let of_arm = of_arm(set, run, scores, number);
            report.arms.insert(run.name.clone(), of_arm);
        }
        reports.push(report);
    }
    reports
}

fn judgement(set: &EvalSet, query: &EvalQuery) -> QueryReport {
    let ids = |positions: &[usize]| -> Vec<String> {
        let tools = positions.iter();
        tools.map(|tool| set.id_of(query.judged[*tool])).collect()
    };
    let judgements = &query.judgements;
    let mut judged = BTreeMap::new();
    for (tool, grade) in query.judged.iter().zip(&judgements.grades) {
        judged.insert(set.id_of(*tool), *grade);
    }
    QueryReport {
        id: query.id.clone(),
        query: query.text.clone(),
        source: query.source.clone(),
        judged,
        groups: judgements.groups.iter().map(|group| ids(group)).collect(),
        order: ids(&judgements.order),
        arms: BTreeMap::new(),
    }
}

fn of_arm(set: &EvalSet, run: &ArmRun, scores: &Scores, query: usize) -> QueryOfArm {
    let ranking = &run.rankings[query];
    let mut ranks = BTreeMap::new();
    for (&tool, rank) in ranking.iter().zip(1..) {
        if set.queries[query].position(tool).is_some() {
            ranks.insert(set.id_of(tool), rank);
        }
    }
    let mut hits = Vec::with_capacity(REPORTED_HITS);
    for (&tool, &score) in ranking.iter().zip(&run.scores[query]).take(REPORTED_HITS) {
        let (id, score) = (set.id_of(tool), Some(score));
        hits.push(ScoredHit { id, score });
    }
    QueryOfArm {
        values: values(scores, query),
        ranks,
        hits,
    }
}

/// The value of each metric of a query.
pub fn values(scores: &Scores, query: usize) -> BTreeMap<String, Option<f64>> {
    let mut values = BTreeMap::new();
    for (metric, column) in scores.metrics.iter().zip(&scores.columns) {
        // JSON has no `NaN`.
        let value = match column[query] {
            value if value.is_nan() => None,
            value => Some(value),
        };
        values.insert(metric.to_string(), value);
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranks_that_no_run_has_are_left_out() {
        let report: QueryReport = serde_json::from_value(json!({
            "id": "q",
            "query": "send mail",
            "judged": { "a": 1.0, "b": 1.0, "c": 1.0 },
            "arms": { "arm": {
                "values": {},
                "ranks": { "a": 2, "b": 0, "c": 18_000_000_000_000_000_000_u64 },
                "hits": [],
            } },
        }))
        .unwrap();
        assert_eq!(report.judged_hits("arm"), [None, Some(0)]);
    }
}
