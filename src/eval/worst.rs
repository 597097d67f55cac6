//! The queries that went worst: what was wanted, what came, and why.

use toolscout_index::{Explain, Hit};

use super::arms::Arm;
use super::dataset::{EvalSet, ToolIndex};
use super::error::Result;
use super::judge::Scores;
use super::report::headline;
use super::run::{ArmRun, Ask, Detail};

/// How many are looked at.
const SHOWN: usize = 20;
/// Hits shown of each.
const HITS: usize = 5;

/// One query that went badly.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstQuery {
    /// Its id.
    pub id: String,
    /// What was asked.
    pub text: String,
    /// nDCG at the deepest place.
    pub score: f64,
    /// The relevant tools.
    pub wanted: Vec<Wanted>,
    /// The first hits.
    pub came: Vec<Came>,
}

/// A tool that should have come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its id.
    pub id: String,
    /// What it says of itself.
    pub description: String,
    /// Its 1-based place among the hits looked at.
    pub place: Option<usize>,
}

/// A tool that came.
#[derive(Clone, Debug, PartialEq)]
pub struct Came {
    /// Its id.
    pub id: String,
    /// The fused score.
    pub score: f32,
    /// Whether it is relevant.
    pub relevant: bool,
    /// How it came to its place, in words.
    pub why: String,
}

/// The worst queries of a run, worst first, in the set's order among equals; queries answered
/// perfectly are not among them.
///
/// # Errors
/// The engine's first.
pub fn worst(
    set: &EvalSet,
    engine: &dyn Ask,
    arm: &Arm,
    run: &ArmRun,
    scores: &Scores,
) -> Result<Vec<WorstQuery>> {
    let column = scores.column(headline(&scores.metrics));
    let mut order: Vec<usize> = (0..column.len())
        .filter(|&query| column[query] < 1.0)
        .collect();
    order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
    let look = |query: usize| look_at(set, engine, arm, &run.rankings[query], query, column[query]);
    order.into_iter().take(SHOWN).map(look).collect()
}

fn look_at(
    set: &EvalSet,
    engine: &dyn Ask,
    arm: &Arm,
    ranking: &[ToolIndex],
    position: usize,
    score: f64,
) -> Result<WorstQuery> {
    let query = &set.queries[position];
    let results = engine.ask(
        &query.text,
        arm,
        HITS.min(set.tools.len()),
        Detail::Explained,
    )?;
    let wanted = |tool: &ToolIndex| Wanted {
        id: set.tool(*tool).id.to_string(),
        description: set.tool(*tool).description.clone(),
        place: ranking
            .iter()
            .position(|hit| hit == tool)
            .map(|index| index + 1),
    };
    let came = |hit: &Hit| Came {
        id: hit.id.to_string(),
        score: hit.score,
        relevant: set
            .position(hit.id.as_str())
            .is_some_and(|tool| query.relevant.contains(&tool)),
        why: hit.explain.as_ref().map(why).unwrap_or_default(),
    };
    Ok(WorstQuery {
        id: query.id.clone(),
        text: query.text.clone(),
        score,
        wanted: query.relevant.iter().map(wanted).collect(),
        came: results.hits.iter().map(came).collect(),
    })
}

/// An explanation in one line: `bm25 7.2 (place 3), minilm .41 (place 1); name: mail; description:
/// send`.
fn why(explain: &Explain) -> String {
    let mut legs = Vec::new();
    if let Some(matched) = explain.name_match {
        legs.push(format!("{matched:?} name").to_lowercase());
    }
    if let Some(leg) = &explain.lexical {
        legs.push(format!("bm25 {:.1} (place {})", leg.raw, leg.rank));
    }
    let dense = explain
        .dense
        .iter()
        .map(|(embedder, leg)| format!("{embedder} {:.2} (place {})", leg.raw, leg.rank));
    legs.extend(dense);
    let matched = explain
        .matched
        .iter()
        .map(|field| format!("{}: {}", field.field, field.terms.join(" ")));
    let fuzzy = explain
        .fuzzy
        .iter()
        .map(|edit| format!("{} read as {}", edit.from, edit.to));
    let clause = explain
        .best_clause
        .and_then(|clause| explain.clauses.get(clause));
    let clause = clause.map(|clause| format!("for the part {clause:?}"));
    std::iter::once(legs.join(", "))
        .chain(matched)
        .chain(fuzzy)
        .chain(clause)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::dataset::testing::set;
    use crate::eval::metrics::{Measure, Metric};
    use crate::eval::run::testing::{WordOverlap, arm};
    use toolscout_index::hit::{LegScore, MatchedField};

    #[test]
    fn the_worst_come_first_with_what_was_wanted_and_what_came() {
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
            (worst[0].wanted[0].id.as_str(), worst[0].wanted[0].place),
            ("c", Some(3))
        );
        assert_eq!(
            worst[0]
                .came
                .iter()
                .map(|hit| hit.relevant)
                .collect::<Vec<_>>(),
            [false, false, true]
        );
    }

    #[test]
    fn an_explanation_is_told_in_one_line() {
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
            "bm25 7.2 (place 3), minilm 0.41 (place 1); name: mail send; for the part \"send it\""
        );
    }
}
