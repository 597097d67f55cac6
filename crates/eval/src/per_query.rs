//! What was measured of each query.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::dataset::{EvalQuery, EvalSet, ToolIndex};
use super::judge::Scores;
use super::judgements::{JudgedHits, Judgements};
use super::metrics::Metric;
use super::run::ArmRun;

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
        let of_arm = self.arms.get(arm);
        let value = of_arm.and_then(|arm| arm.values.get(&metric.to_string()).copied());
        value.flatten().unwrap_or(f64::NAN)
    }

    /// What is judged, with the tools in the order of `judged`.
    pub fn judgements(&self, relevant_from: f64) -> Judgements {
        let positions = |ids: &Vec<String>| {
            let position = |id: &String| self.judged.keys().position(|other| other == id);
            ids.iter().filter_map(position).collect()
        };
        Judgements {
            grades: self.judged.values().copied().collect(),
            relevant_from,
            groups: self.groups.iter().map(positions).collect(),
            order: positions(&self.order),
        }
    }

    /// The hits of an arm as the judgements see them, to the last judged one.
    pub fn judged_hits(&self, arm: &str) -> JudgedHits {
        let none = BTreeMap::new();
        let ranks = self.arms.get(arm).map_or(&none, |arm| &arm.ranks);
        let deepest = ranks.values().copied().max().unwrap_or(0);
        let mut hits = vec![None; deepest];
        for (position, id) in self.judged.keys().enumerate() {
            let place = ranks.get(id).and_then(|rank| rank.checked_sub(1));
            if let Some(hit) = place.and_then(|place| hits.get_mut(place)) {
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
        let arms = runs.iter().zip(scores);
        let of_arm = |(run, scores): (&ArmRun, &Scores)| {
            (run.name.clone(), of_arm(set, run, scores, number))
        };
        reports.push(QueryReport {
            arms: arms.map(of_arm).collect(),
            ..judgement(set, query)
        });
    }
    reports
}

fn judgement(set: &EvalSet, query: &EvalQuery) -> QueryReport {
    let id = |tool: ToolIndex| set.tool(tool).id.to_string();
    let of_position = |position: &usize| id(query.judged[*position]);
    let judgements = &query.judgements;
    let judged = query.judged.iter().zip(&judgements.grades);
    QueryReport {
        id: query.id.clone(),
        query: query.text.clone(),
        source: query.source.clone(),
        judged: judged.map(|(tool, grade)| (id(*tool), *grade)).collect(),
        groups: judgements
            .groups
            .iter()
            .map(|group| group.iter().map(of_position).collect())
            .collect(),
        order: judgements.order.iter().map(of_position).collect(),
        arms: BTreeMap::new(),
    }
}

fn of_arm(set: &EvalSet, run: &ArmRun, scores: &Scores, query: usize) -> QueryOfArm {
    let id = |tool: ToolIndex| set.tool(tool).id.to_string();
    let ranking = &run.rankings[query];
    let judged = ranking.iter().zip(1..);
    let judged = judged.filter(|(tool, _)| set.queries[query].position(**tool).is_some());
    let hits = ranking.iter().zip(&run.scores[query]);
    QueryOfArm {
        values: values(scores, query),
        ranks: judged.map(|(tool, rank)| (id(*tool), rank)).collect(),
        hits: hits
            .take(REPORTED_HITS)
            .map(|(tool, score)| ScoredHit {
                id: id(*tool),
                score: Some(*score),
            })
            .collect(),
    }
}

/// The value of each metric of a query.
pub fn values(scores: &Scores, query: usize) -> BTreeMap<String, Option<f64>> {
    let columns = scores.metrics.iter().zip(&scores.columns);
    columns
        .map(|(metric, column)| {
            let value = Some(column[query]).filter(|value| !value.is_nan());
            (metric.to_string(), value)
        })
        .collect()
}
