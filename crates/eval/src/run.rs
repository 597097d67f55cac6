//! Runs every query of a set with an arm.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};
use toolscout_index::{Match, Results, Searcher};
use utoipa::ToSchema;

use super::arms::Arm;
use super::dataset::{EvalSet, ToolIndex};
use super::error::Result;
use toolscout_base::printable::counted;

/// Threads that search while quality is measured. Latency is measured separately, on one thread.
pub const THREADS: usize = 2;

/// How much detail an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The hits.
    Plain,
    /// The hits and their explanations.
    Explained,
}

/// A search engine under test.
pub trait Engine: Sync {
    /// The best `depth` tools for a query.
    ///
    /// # Errors
    /// Errors of the engine.
    fn answer(
        &self,
        text: &str,
        arm: &Arm,
        depth: usize,
        detail: Detail,
    ) -> toolscout_index::Result<Results>;
}

impl Engine for Searcher {
    fn answer(
        &self,
        text: &str,
        arm: &Arm,
        depth: usize,
        detail: Detail,
    ) -> toolscout_index::Result<Results> {
        let query = arm.query(text).k(depth);
        self.search(&if detail == Detail::Explained {
            query.explain()
        } else {
            query
        })
    }
}

/// The answers of one arm to every query of a set.
#[derive(Clone, Debug, Default)]
pub struct ArmRun {
    /// The name of the arm, or of the run file.
    pub name: String,
    /// The hits of each query, best first. Queries are in the order of the set.
    pub rankings: Vec<Vec<ToolIndex>>,
    /// The scores of these hits.
    pub scores: Vec<Vec<f64>>,
    /// Queries with a degraded answer.
    pub degraded: usize,
    /// Queries answered with "no match", which counts as no hits.
    pub abstained: usize,
    /// What a run file has; `None` for a run of the engine.
    pub file: Option<RunFacts>,
}

impl ArmRun {
    /// Runs every query. Calls `on_query` after each.
    ///
    /// # Errors
    /// The first error of the engine.
    pub fn of(
        set: &EvalSet,
        engine: &dyn Engine,
        arm: &Arm,
        depth: usize,
        on_query: &(dyn Fn() + Sync),
    ) -> Result<Self> {
        let texts: Vec<&str> = set.query_texts().collect();
        let answers = each_text(&texts, THREADS, |text| {
            let results = engine.answer(text, arm, depth, Detail::Plain)?;
            on_query();
            Ok(Ranked::of(&results, set))
        })?;
        let mut run = ArmRun {
            name: arm.name.clone(),
            rankings: Vec::with_capacity(answers.len()),
            scores: Vec::with_capacity(answers.len()),
            ..ArmRun::default()
        };
        for answer in answers {
            run.rankings.push(answer.ranking);
            run.scores.push(answer.scores);
            run.degraded += usize::from(answer.is_degraded);
            run.abstained += usize::from(answer.is_abstained);
        }
        Ok(run)
    }
}

/// What is kept of an answer: whole answers to all queries would take much memory.
struct Ranked {
    ranking: Vec<ToolIndex>,
    scores: Vec<f64>,
    is_degraded: bool,
    is_abstained: bool,
}

impl Ranked {
    fn of(results: &Results, set: &EvalSet) -> Self {
        let (mut ranking, mut scores) = (Vec::new(), Vec::new());
        for hit in &results.hits {
            if let Some(tool) = set.position(hit.id.as_str()) {
                ranking.push(tool);
                scores.push(f64::from(hit.score));
            }
        }
        Ranked {
            ranking,
            scores,
            is_degraded: results.degraded.is_some(),
            is_abstained: results.matched == Match::None,
        }
    }
}

/// What a run file has, and what of it counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationRunFile)]
#[serde(default)]
pub struct RunFacts {
    /// The most hits of a query.
    pub deepest: usize,
    /// The fewest hits of a query that has some.
    pub shallowest: usize,
    /// Queries of the set without hits; they count as 0.
    pub missing_queries: usize,
    /// Queries that the set does not have; they are left out.
    pub unknown_queries: usize,
    /// Hits that a query has twice; the first in the order counts.
    pub duplicates: usize,
    /// Hits with the score of another hit of their query.
    pub ties: usize,
    /// Queries whose column of ranks has another order than their scores.
    pub other_ranks: usize,
}

impl RunFacts {
    /// What you would want to know, in a line.
    pub fn line(&self) -> String {
        let mut parts = vec![if self.deepest == self.shallowest {
            format!("{} a query", counted(self.deepest, "hit"))
        } else {
            format!(
                "{} to {} a query",
                self.shallowest,
                counted(self.deepest, "hit")
            )
        }];
        let kinds = [
            (self.missing_queries, "query", "without hits count as 0"),
            (
                self.unknown_queries,
                "query",
                "left out: the set does not have them",
            ),
            (self.duplicates, "hit", "left out: the query has them twice"),
            (self.ties, "hit", "with the score of another"),
            (
                self.other_ranks,
                "query",
                "with ranks in another order than scores",
            ),
        ];
        for (count, noun, what) in kinds {
            if count > 0 {
                parts.push(format!("{} {what}", counted(count, noun)));
            }
        }
        parts.join("; ")
    }
}

/// Applies `answer` to every text on several threads. Results are in the order of the texts.
pub(super) fn each_text<T: Send>(
    texts: &[&str],
    threads: usize,
    answer: impl Fn(&str) -> toolscout_index::Result<T> + Sync,
) -> Result<Vec<T>> {
    // A shared counter and not equal parts: some queries take many times longer than others.
    let next = AtomicUsize::new(0);
    let work = || -> toolscout_index::Result<Vec<(usize, T)>> {
        let mut done = Vec::new();
        loop {
            // Nothing but the number itself is shared, so no order of memory is needed.
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(text) = texts.get(position) else {
                return Ok(done);
            };
            done.push((position, answer(text)?));
        }
    };
    let mut all = Vec::with_capacity(texts.len());
    thread::scope(|scope| -> toolscout_index::Result<()> {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => all.extend(done?),
                // The panic goes on here with its own message.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    all.sort_by_key(|(position, _)| *position);
    Ok(all.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
pub(crate) mod testing {
    //! A test double of an engine with a simple ranking.
    use std::sync::Arc;

    use toolscout_index::{Hit, Mode, Tool};

    use super::*;

    /// Ranks tools by the number of query words in their description, ties by id. The dense arm
    /// ranks in reverse.
    pub(crate) struct WordOverlap(pub(crate) Vec<Arc<Tool>>);

    impl WordOverlap {
        pub(crate) fn over(set: &EvalSet) -> Self {
            WordOverlap(set.tools.iter().cloned().map(Arc::new).collect())
        }
    }

    impl Engine for WordOverlap {
        fn answer(
            &self,
            text: &str,
            arm: &Arm,
            depth: usize,
            _: Detail,
        ) -> toolscout_index::Result<Results> {
            let overlap = |tool: &Tool| {
                text.split(' ')
                    .filter(|word| tool.description.contains(word))
                    .count() as f32
            };
            let sign = if arm.mode == Mode::Dense { -1.0 } else { 1.0 };
            let mut scored: Vec<(f32, &Arc<Tool>)> = self
                .0
                .iter()
                .map(|tool| (sign * overlap(tool), tool))
                .collect();
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
            scored.truncate(depth);
            let hit = |(score, tool): (f32, &Arc<Tool>)| Hit {
                tool: tool.clone().into(),
                id: tool.id.clone(),
                kind: tool.kind,
                score,
                matched_queries: vec![0],
                serves: None,
                companion_of: None,
                flagged: Vec::new(),
                also_on: Vec::new(),
                explain: None,
            };
            Ok(Results {
                near: Vec::new(),
                hits: scored.into_iter().map(hit).collect(),
                mode: arm.mode,
                variant: Default::default(),
                embedders: Vec::new(),
                degraded: None,
                no_match: None,
                matched: Match::Possible,
                unmatched: Vec::new(),
                better_hidden: 0,
                signals: Default::default(),
                confidence: None,
                timings: Default::default(),
                generation: 1,
            })
        }
    }

    pub(crate) fn arm(name: &str) -> Arm {
        Arm::named(&[name.into()], &[toolscout_index::Fusion::Convex], None)
            .unwrap()
            .remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{WordOverlap, arm};
    use super::*;
    use crate::dataset::testing::set;

    #[test]
    fn answers_are_in_the_order_of_the_queries() {
        let texts: Vec<String> = (0..200).map(|n| format!("word{n}")).collect();
        let ids: Vec<String> = (0..200).map(|n| format!("tool{n:03}")).collect();
        let tools: Vec<(&str, &str)> = ids
            .iter()
            .map(String::as_str)
            .zip(texts.iter().map(String::as_str))
            .collect();
        let relevant: Vec<[&str; 1]> = ids.iter().map(|id| [id.as_str()]).collect();
        let queries: Vec<(&str, &str, &[&str])> = (0..200)
            .map(|n| (ids[n].as_str(), texts[n].as_str(), relevant[n].as_slice()))
            .collect();
        let set = set(&tools, &queries);
        let asked = AtomicUsize::new(0);
        let count = || {
            asked.fetch_add(1, Ordering::Relaxed);
        };
        let run = ArmRun::of(&set, &WordOverlap::over(&set), &arm("lexical"), 200, &count).unwrap();
        assert_eq!(
            (
                asked.into_inner(),
                run.rankings.len(),
                run.rankings[0].len()
            ),
            (200, 200, 200)
        );
        // The last tool's word contains no other tool's word but prefixes of it, so every query's
        // own tool leads or ties.
        assert_eq!(run.rankings[199][0], 199);
        assert_eq!(run.rankings[157][0], 157);
    }

    #[test]
    fn an_engine_error_ends_the_run() {
        struct Broken;
        impl Engine for Broken {
            fn answer(
                &self,
                text: &str,
                _: &Arm,
                _: usize,
                _: Detail,
            ) -> toolscout_index::Result<Results> {
                Err(toolscout_index::Error::UnknownName {
                    kind: "text",
                    name: text.to_owned(),
                    known: "another".to_owned(),
                })
            }
        }
        let set = set(&[("a", "x")], &[("q", "x", &["a"])]);
        let error = ArmRun::of(&set, &Broken, &arm("lexical"), 1, &|| ()).unwrap_err();
        assert!(error.to_string().contains("unknown text \"x\""), "{error}");
    }
}
