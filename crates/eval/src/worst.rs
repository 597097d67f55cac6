//! The queries with the lowest scores: their relevant tools, their hits, and why.

use serde::{Deserialize, Serialize};
use toolscout_index::Explain;
use utoipa::ToSchema;

use super::arms::Arm;
use super::dataset::EvalSet;
use super::error::Result;
use super::judge::Scores;
use super::metrics::headline;
use super::run::{ArmRun, Detail, Engine};

/// Number of queries reported.
const REPORTED: usize = 20;
/// Hits reported per query.
const HITS: usize = 5;

/// A query with a low score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationWorstQuery)]
pub struct WorstQuery {
    /// Its id.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// nDCG at the deepest cut-off.
    pub score: f64,
    /// The relevant tools.
    pub relevant: Vec<RelevantTool>,
    /// The first hits.
    pub hits: Vec<ReportedHit>,
}

/// A relevant tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationRelevantTool)]
pub struct RelevantTool {
    /// Its id.
    pub id: String,
    /// Its description.
    pub description: String,
    /// Its 1-based rank among the hits.
    pub rank: Option<usize>,
}

/// A hit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationExplainedHit)]
pub struct ReportedHit {
    /// Its id.
    pub id: String,
    /// The fused score.
    pub score: f32,
    /// Whether it is relevant.
    pub relevant: bool,
    /// Why it has its rank, in words.
    pub why: String,
}

/// The queries of a run with the lowest scores, worst first, ties in the order of the set. Queries
/// with a perfect score are left out.
///
/// # Errors
/// The first error of the engine.
pub fn worst(
    set: &EvalSet,
    engine: &dyn Engine,
    arm: &Arm,
    run: &ArmRun,
    scores: &Scores,
) -> Result<Vec<WorstQuery>> {
    let column = scores.column(headline(&scores.metrics));
    // This leaves out queries without a value too: `NaN` is not below 1.
    let mut order: Vec<usize> = (0..column.len())
        .filter(|&query| column[query] < 1.0)
        .collect();
    // A stable sort: equal scores stay in the order of the set.
    order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
    let mut reported = Vec::with_capacity(REPORTED);
    for query in order.into_iter().take(REPORTED) {
        reported.push(worst_query(set, engine, arm, run, query, column[query])?);
    }
    Ok(reported)
}

fn worst_query(
    set: &EvalSet,
    engine: &dyn Engine,
    arm: &Arm,
    run: &ArmRun,
    position: usize,
    score: f64,
) -> Result<WorstQuery> {
    let query = &set.queries[position];
    let results = engine.answer(
        &query.text,
        arm,
        HITS.min(set.tools.len()),
        Detail::Explained,
    )?;
    let mut relevant = Vec::with_capacity(query.relevant.len());
    for tool in &query.relevant {
        // The rank in the whole run: the answer above has only the first hits.
        let place = run.rankings[position].iter().position(|hit| hit == tool);
        relevant.push(RelevantTool {
            id: set.id_of(*tool),
            description: set.tool(*tool).description.clone(),
            rank: place.map(|place| place + 1),
        });
    }
    let mut hits = Vec::with_capacity(results.hits.len());
    for hit in &results.hits {
        let tool = set.position(hit.id.as_str());
        hits.push(ReportedHit {
            id: hit.id.to_string(),
            score: hit.score,
            relevant: matches!(tool, Some(tool) if query.is_relevant(tool)),
            why: hit.explain.as_ref().map(why).unwrap_or_default(),
        });
    }
    Ok(WorstQuery {
        id: query.id.clone(),
        text: query.text.clone(),
        score,
        relevant,
        hits,
    })
}

/// An explanation in one line: `bm25 7.2 (rank 3), minilm .41 (rank 1); name: mail; description:
/// send`.
fn why(explain: &Explain) -> String {
    let mut legs = Vec::new();
    if let Some(matched) = explain.name_match {
        legs.push(format!("{matched:?} name").to_lowercase());
    }
    if let Some(leg) = &explain.lexical {
        legs.push(format!("bm25 {:.1} (rank {})", leg.raw, leg.rank));
    }
    for (embedder, leg) in &explain.dense {
        legs.push(format!("{embedder} {:.2} (rank {})", leg.raw, leg.rank));
    }
    let mut parts = vec![legs.join(", ")];
    for field in &explain.matched {
        parts.push(format!("{}: {}", field.field, field.terms.join(" ")));
    }
    for edit in &explain.fuzzy {
        parts.push(format!("{} corrected to {}", edit.from, edit.to));
    }
    if let Some(clause) = explain.best_clause
        && let Some(clause) = explain.clauses.get(clause)
    {
        parts.push(format!("for the clause {clause:?}"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use crate::metrics::{Measure, Metric};
    use crate::run::testing::{WordOverlap, arm};
    use toolscout_index::hit::{LegScore, MatchedField};

    #[test]
    fn the_worst_queries_are_first_with_relevant_tools_and_hits() {
        let set = set(
            &[("a", "mail"), ("b", "rain"), ("c", "song")],
            &[
                ("good", "mail", &["a"]),
                ("bad", "rain", &["c"]),
                ("middling", "song mail", &["c"]),
            ],
        );
        let engine = WordOverlap::over(&set);
        let run = ArmRun::of(&set, &engine, &arm("lexical"), 3, &|| ()).unwrap();
        let scores = Scores::strict(&set, &run, &[Metric::new(Measure::Ndcg, 3)]);
        let worst = worst(&set, &engine, &arm("lexical"), &run, &scores).unwrap();
        assert_eq!(
            worst
                .iter()
                .map(|query| query.id.as_str())
                .collect::<Vec<_>>(),
            ["bad", "middling"]
        );
        assert_eq!(
            (worst[0].relevant[0].id.as_str(), worst[0].relevant[0].rank),
            ("c", Some(3))
        );
        assert_eq!(
            worst[0]
                .hits
                .iter()
                .map(|hit| hit.relevant)
                .collect::<Vec<_>>(),
            [false, false, true]
        );
    }

    #[test]
    fn an_explanation_is_one_line() {
        let explain = Explain {
            lexical: Some(LegScore {
                rank: 3,
                raw: 7.24,
                normalised: 0.5,
            }),
            dense: vec![(
                "minilm".into(),
                LegScore {
                    rank: 1,
                    raw: 0.413,
                    normalised: 1.0,
                },
            )],
            matched: vec![MatchedField {
                field: "name",
                terms: vec!["mail".into(), "send".into()],
            }],
            clauses: vec!["send it".into()],
            best_clause: Some(0),
            ..Explain::default()
        };
        assert_eq!(
            why(&explain),
            "bm25 7.2 (rank 3), minilm 0.41 (rank 1); name: mail send; for the clause \"send it\""
        );
    }
}
