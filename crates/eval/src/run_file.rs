//! Reads TREC run files of this program and of others.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::dataset::{EvalSet, Separator, ToolIndex, unescape};
use super::error::{EvalError, Result, read_text};
use super::run::{ArmRun, RunFacts};
use toolscout_base::printable::counted;

/// How the hits of a run file are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RunOrder {
    /// By score; equal scores by the id of the tool, the last first, as trec_eval has it.
    #[default]
    Score,
    /// By the column of ranks.
    Rank,
}

/// A line of a run file.
struct Hit {
    /// The id as the file has it, which breaks ties.
    written: String,
    tool: ToolIndex,
    rank: Option<f64>,
    score: f64,
}

impl Hit {
    /// trec_eval reads scores in single precision: what is equal in it is a tie.
    fn single_score(&self) -> f32 {
        self.score as f32
    }

    /// The rank to order by; hits without one come last.
    fn rank_or_last(&self) -> f64 {
        self.rank.unwrap_or(f64::INFINITY)
    }
}

/// Reads a run file as a further arm with the name of the file. What does not count is in
/// [`ArmRun::file`].
///
/// # Errors
/// [`EvalError::Malformed`] for a line that is not a hit or names an unknown tool, and for a file
/// without a query of the set; [`EvalError::Io`].
pub fn read_run(path: &Path, set: &EvalSet, order: RunOrder) -> Result<ArmRun> {
    let text = read_text(path)?;
    let separator = Separator::of(&text);
    let queries = QueryIds::of(set);
    let mut hits: Vec<Vec<Hit>> = Vec::new();
    hits.resize_with(set.queries.len(), Vec::new);
    let mut unknown = HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let fields = separator.split(line);
        if fields.is_empty() {
            continue;
        }
        let (query, hit) = read_hit(path, index + 1, &fields, set)?;
        match (queries.find(&query), hit) {
            (Some(row), Ok(hit)) => hits[row].push(hit),
            (Some(_), Err(unknown_tool)) => return Err(unknown_tool),
            // The run may be of the whole set, and the set a sample of its queries.
            (None, _) => {
                unknown.insert(query);
            }
        }
    }
    let mut run = ArmRun {
        name: run_name(path),
        ..ArmRun::default()
    };
    let mut facts = RunFacts {
        unknown_queries: unknown.len(),
        ..RunFacts::default()
    };
    for hits in hits {
        let (ranking, scores) = ordered(hits, order, &mut facts);
        run.rankings.push(ranking);
        run.scores.push(scores);
    }
    if facts.deepest == 0 {
        let reason = format!(
            "none of its {} is in the set {}",
            counted(unknown.len(), "query"),
            set.name
        );
        return Err(EvalError::malformed(path, 1, reason));
    }
    run.file = Some(facts);
    Ok(run)
}

/// The queries of a set by their ids, written with escapes or without.
struct QueryIds<'a> {
    by_id: HashMap<&'a str, usize>,
    by_decoded: HashMap<String, usize>,
}

impl<'a> QueryIds<'a> {
    fn of(set: &'a EvalSet) -> Self {
        let (mut by_id, mut by_decoded) = (HashMap::new(), HashMap::new());
        for (row, query) in set.queries.iter().enumerate() {
            by_id.insert(query.id.as_str(), row);
            // The percent sign may belong to an escape, or be one of the id itself.
            if query.id.contains('%') {
                by_decoded.insert(unescape(&query.id), row);
            }
        }
        QueryIds { by_id, by_decoded }
    }

    /// The row of a decoded id.
    fn find(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).or(self.by_decoded.get(id)).copied()
    }
}

/// The name of the arm of a run file.
pub fn run_name(path: &Path) -> String {
    match path.file_stem() {
        Some(stem) => stem.to_string_lossy().into_owned(),
        None => "run".to_owned(),
    }
}

/// The query of a line and its hit; an unknown tool is an error only if the set has the query.
fn read_hit(
    path: &Path,
    line: usize,
    fields: &[String],
    set: &EvalSet,
) -> Result<(String, Result<Hit>)> {
    let [query, _, tool, rank, score, _] = fields else {
        let reason = format!(
            "{} columns; a hit of a TREC run has `query Q0 tool rank score name`",
            fields.len()
        );
        return Err(EvalError::malformed(path, line, reason));
    };
    let number = score.parse::<f64>().ok().filter(|score| score.is_finite());
    let Some(number) = number else {
        let reason = format!("the score {score:?} is not a number");
        return Err(EvalError::malformed(path, line, reason));
    };
    let hit = match set.judged_position(&unescape(tool)) {
        Some(position) => Ok(Hit {
            written: tool.clone(),
            tool: position,
            rank: rank.parse().ok(),
            score: number,
        }),
        None => {
            let reason = format!(
                "the set {} has no tool {tool:?}; is this a run of another set?",
                set.name
            );
            Err(EvalError::malformed(path, line, reason))
        }
    };
    Ok((unescape(query), hit))
}

/// The hits of a query in their order, each tool once.
fn ordered(
    mut hits: Vec<Hit>,
    order: RunOrder,
    facts: &mut RunFacts,
) -> (Vec<ToolIndex>, Vec<f64>) {
    if hits.is_empty() {
        facts.missing_queries += 1;
        return Default::default();
    }
    hits.sort_by(|a, b| {
        let by_score = b.single_score().total_cmp(&a.single_score());
        by_score.then_with(|| b.written.cmp(&a.written))
    });
    // Equal scores are neighbours now.
    for equal in hits.chunk_by(|a, b| a.single_score() == b.single_score()) {
        if equal.len() > 1 {
            facts.ties += equal.len();
        }
    }
    // Among ties any order of ranks agrees with the scores.
    let contradicts = hits.windows(2).any(|pair| {
        pair[0].rank_or_last() > pair[1].rank_or_last()
            && pair[0].single_score() != pair[1].single_score()
    });
    facts.other_ranks += usize::from(contradicts);
    if order == RunOrder::Rank {
        hits.sort_by(|a, b| a.rank_or_last().total_cmp(&b.rank_or_last()));
    }
    let before = hits.len();
    let mut seen = HashSet::new();
    hits.retain(|hit| seen.insert(hit.tool));
    facts.duplicates += before - hits.len();
    facts.deepest = facts.deepest.max(hits.len());
    // 0 until the first query that has hits.
    facts.shallowest = match facts.shallowest {
        0 => hits.len(),
        least => least.min(hits.len()),
    };
    hits.into_iter().map(|hit| (hit.tool, hit.score)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

    fn made() -> EvalSet {
        set(
            &[("Trends Hub/two words", "x"), ("b", "y"), ("c", "z")],
            &[
                ("q 1", "x", &["Trends Hub/two words"]),
                ("q2", "y", &["b", "c"]),
            ],
        )
    }

    fn read(text: &str, order: RunOrder) -> Result<ArmRun> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.run");
        std::fs::write(&path, text).unwrap();
        read_run(&path, &made(), order)
    }

    #[test]
    fn runs_of_other_programs_are_sorted_as_trec_eval_does() {
        for (text, order, expected) in [
            (
                "q2 Q0 b 1 .25 x\nq2 Q0 c 2 0.5 x\n",
                RunOrder::Score,
                vec![2, 1],
            ),
            (
                "q2 Q0 b 1 .25 x\nq2 Q0 c 2 0.5 x\n",
                RunOrder::Rank,
                vec![1, 2],
            ),
            // A tie: the last id first.
            (
                "q2 Q0 b 1 .5 x\nq2 Q0 c 2 .5 x\n",
                RunOrder::Score,
                vec![2, 1],
            ),
            // Equal in single precision.
            (
                "q2 Q0 b 1 1.00000001 x\nq2 Q0 c 2 1 x\n",
                RunOrder::Score,
                vec![2, 1],
            ),
            (
                "q2\tQ0\tTrends Hub/two words\t1\t2\tx y\n",
                RunOrder::Score,
                vec![0],
            ),
            (
                "\u{feff}q2 Q0 Trends%20Hub/two%20words 1 2 x\r\n",
                RunOrder::Score,
                vec![0],
            ),
        ] {
            let run = read(text, order).unwrap();
            assert_eq!(run.rankings, [vec![], expected], "{text}");
        }
    }

    #[test]
    fn what_does_not_count_of_a_run_is_said() {
        let text = "q2 Q0 b 1 3 x\nq2 Q0 b 5 2 x\nq2 Q0 c 4 2 x\nq2 Q0 Trends%20Hub/two%20words 3 1 x\n\
            else Q0 nothing 1 1 x\nother Q0 b 1 1 x\nother Q0 c 2 1 x\n";
        let facts = read(text, RunOrder::Score).unwrap().file.unwrap();
        assert_eq!(
            facts,
            RunFacts {
                deepest: 3,
                shallowest: 3,
                missing_queries: 1,
                unknown_queries: 2,
                duplicates: 1,
                ties: 2,
                other_ranks: 1,
            }
        );
        let line = facts.line();
        for part in [
            "3 hits a query",
            "1 query without hits",
            "2 queries left out",
            "2 hits with the score",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_hit_is_named() {
        for (text, expected) in [
            ("q2 Q0 nothing 1 1 x", "no tool \"nothing\""),
            ("q2 b 1", "3 columns"),
            ("q2 Q0 b 1 high x", "\"high\" is not a number"),
            ("q2 Q0 b 1 inf x", "\"inf\" is not a number"),
            ("else Q0 b 1 1 x", "none of its 1 query is in the set up"),
        ] {
            let message = read(text, RunOrder::Score).unwrap_err().to_string();
            assert!(
                message.contains(expected) && message.contains("other.run:1"),
                "{message}"
            );
        }
    }
}
