//! Asks every query of a set by every arm, in one process over one index.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use toolscout_index::{Results, Searcher};

use super::arms::Arm;
use super::dataset::{EvalSet, ToolIndex};
use super::error::Result;

/// Threads that ask at once while quality is measured. Latency is measured apart, on one.
pub const THREADS: usize = 2;

/// How much an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The hits.
    Plain,
    /// The hits and how they came to their places.
    Explained,
}

/// What is measured: anything that answers a request by an arm.
pub trait Ask: Sync {
    /// The best `depth` tools for a request.
    ///
    /// # Errors
    /// The engine's.
    fn ask(
        &self,
        text: &str,
        arm: &Arm,
        depth: usize,
        detail: Detail,
    ) -> toolscout_index::Result<Results>;
}

impl Ask for Searcher {
    fn ask(
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
#[derive(Clone, Debug)]
pub struct ArmRun {
    /// The arm's name, or that of the run file it was read from.
    pub name: String,
    /// The hits of each query, best first, in the set's order.
    pub rankings: Vec<Vec<ToolIndex>>,
    /// Queries in whose answer a leg that was asked for could not take part.
    pub degraded: usize,
    /// Queries answered with "no match": each of them counts as having found nothing.
    pub abstained: usize,
}

impl ArmRun {
    /// Asks every query. `asked` is called after each.
    ///
    /// # Errors
    /// The engine's first.
    pub fn of(
        set: &EvalSet,
        engine: &dyn Ask,
        arm: &Arm,
        depth: usize,
        asked: &(dyn Fn() + Sync),
    ) -> Result<Self> {
        let texts: Vec<&str> = set
            .queries
            .iter()
            .map(|query| query.text.as_str())
            .collect();
        let answers = each_text(&texts, THREADS, |text| {
            let results = engine.ask(text, arm, depth, Detail::Plain)?;
            asked();
            let hits: Vec<ToolIndex> = results
                .hits
                .iter()
                .filter_map(|hit| set.position(hit.id.as_str()))
                .collect();
            Ok((hits, results.degraded.is_some(), results.no_match.is_some()))
        })?;
        let degraded = answers.iter().filter(|(_, degraded, _)| *degraded).count();
        let abstained = answers.iter().filter(|(.., abstained)| *abstained).count();
        let rankings = answers.into_iter().map(|(hits, ..)| hits).collect();
        Ok(ArmRun {
            name: arm.name.clone(),
            rankings,
            degraded,
            abstained,
        })
    }
}

/// Applies `answer` to every text, on several threads; results come in the order of the texts.
pub(super) fn each_text<T: Send>(
    texts: &[&str],
    threads: usize,
    answer: impl Fn(&str) -> toolscout_index::Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(text) = texts.get(position) else {
                return Ok(done);
            };
            done.push((position, answer(text)?));
        }
    };
    let parts: toolscout_index::Result<Vec<Vec<(usize, T)>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let mut all: Vec<(usize, T)> = parts?.into_iter().flatten().collect();
    all.sort_by_key(|(position, _)| *position);
    Ok(all.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
pub(crate) mod testing {
    //! An engine double whose ranking can be worked out by hand.
    use std::sync::Arc;

    use toolscout_index::{Hit, Mode, Tool};

    use super::*;

    /// Ranks tools by how many of the request's words their description has, by id among equals;
    /// the dense arm ranks the other way round.
    pub(crate) struct WordOverlap(pub(crate) Vec<Arc<Tool>>);

    impl WordOverlap {
        pub(crate) fn over(set: &EvalSet) -> Self {
            WordOverlap(set.tools.iter().cloned().map(Arc::new).collect())
        }
    }

    impl Ask for WordOverlap {
        fn ask(
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
                tool: tool.clone(),
                id: tool.id.clone(),
                score,
                matched_queries: vec![0],
                also_on: Vec::new(),
                explain: None,
            };
            Ok(Results {
                hits: scored.into_iter().map(hit).collect(),
                mode: arm.mode,
                variant: Default::default(),
                embedders: Vec::new(),
                degraded: None,
                no_match: None,
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
    use crate::eval::dataset::testing::set;

    #[test]
    fn answers_come_in_the_order_of_the_queries_whatever_the_threads() {
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
        impl Ask for Broken {
            fn ask(
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
