//! What was measured of each query.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dataset::{EvalQuery, EvalSet, ToolIndex};
use super::judge::Scores;
use super::run::ArmRun;

/// First hits that are reported.
const REPORTED_HITS: usize = 10;

/// A query with its judgement, and what each arm made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReport {
    /// Unique within its set.
    pub id: String,
    /// The text of the query.
    pub query: String,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryOfArm {
    /// The value of each metric; null where it has none for this query.
    pub values: BTreeMap<String, Option<f64>>,
    /// The first hits, best first.
    pub hits: Vec<ScoredHit>,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredHit {
    /// The id of the tool.
    pub id: String,
    /// Its score.
    pub score: f64,
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
            id: query.id.clone(),
            query: query.text.clone(),
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
        id: String::new(),
        query: String::new(),
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
    let hits = run.rankings[query].iter().zip(&run.scores[query]);
    let columns = scores.metrics.iter().zip(&scores.columns);
    QueryOfArm {
        values: columns
            .map(|(metric, column)| {
                let value = Some(column[query]).filter(|value| !value.is_nan());
                (metric.to_string(), value)
            })
            .collect(),
        hits: hits
            .take(REPORTED_HITS)
            .map(|(tool, score)| ScoredHit {
                id: set.tool(*tool).id.to_string(),
                score: *score,
            })
            .collect(),
    }
}
