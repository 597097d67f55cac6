//! Latency of a search by stage, on one thread, after a warm-up.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use toolscout_index::Timings;
use utoipa::ToSchema;

use super::arms::Arm;
use super::dataset::EvalSet;
use super::error::Result;
use super::metrics::percentile;
use super::random::Random;
use super::run::{Detail, Engine};

/// Queries in the sample: a p99 needs more than a hundred.
const TIMED: usize = 200;
/// Searches before the first timed one, so that pages, caches and branch predictors are as warm as
/// in a service.
const WARM_UP: usize = 20;
/// Repetitions per query. The median counts, so that one interruption by the system does not become
/// the p99.
const ROUNDS: usize = 3;
/// Hits requested, as agents do.
const HITS: usize = 5;

/// Percentiles over queries, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationPercentiles)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Percentiles {
            p50: percentile(&values, 0.50),
            p95: percentile(&values, 0.95),
            p99: percentile(&values, 0.99),
        }
    }
}

/// The latency of a search by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationLatency)]
pub struct Latency {
    /// Queries timed.
    pub queries: usize,
    /// Embedding the query, without a cache.
    pub embed_ms: Percentiles,
    /// The lexical leg.
    pub lexical_ms: Percentiles,
    /// The dense legs without embedding.
    pub dense_ms: Percentiles,
    /// Fusion, ordering, explanation.
    pub fuse_ms: Percentiles,
    /// The ranker and confidence.
    pub rank_ms: Percentiles,
    /// The whole call.
    pub total_ms: Percentiles,
}

impl Latency {
    /// Times an arm on a random sample of the queries.
    ///
    /// # Errors
    /// The first error of the engine.
    pub fn of(set: &EvalSet, engine: &dyn Engine, arm: &Arm, seed: u64) -> Result<Self> {
        let chosen = Random::new(seed, "latency").sample(set.queries.len(), TIMED);
        let texts: Vec<&str> = chosen
            .iter()
            .map(|&position| set.queries[position].text.as_str())
            .collect();
        // Cycled, because a set may have fewer queries than the warm-up takes.
        for text in texts.iter().cycle().take(WARM_UP) {
            engine.answer(text, arm, HITS, Detail::Plain)?;
        }
        let mut medians = Vec::with_capacity(texts.len());
        for text in texts {
            medians.push(median_of_rounds(engine, arm, text)?);
        }
        Ok(Latency::over(&medians))
    }

    /// The percentiles over these searches.
    pub fn over(timings: &[Timings]) -> Self {
        let mut stages: [Vec<f64>; 6] = Default::default();
        for search in timings {
            let of_search = [
                search.embed_ms,
                search.lexical_ms,
                search.dense_ms,
                search.fuse_ms,
                search.rank_ms,
                search.total_ms,
            ];
            for (stage, ms) in stages.iter_mut().zip(of_search) {
                stage.push(ms);
            }
        }
        // Each stage by itself: the percentiles of the stages do not add up to that of the total.
        let [embed_ms, lexical_ms, dense_ms, fuse_ms, rank_ms, total_ms] =
            stages.map(Percentiles::of);
        Latency {
            queries: timings.len(),
            embed_ms,
            lexical_ms,
            dense_ms,
            fuse_ms,
            rank_ms,
            total_ms,
        }
    }
}

/// The stages of the round whose total is the median.
fn median_of_rounds(engine: &dyn Engine, arm: &Arm, text: &str) -> Result<Timings> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let results = engine.answer(text, arm, HITS, Detail::Plain)?;
        rounds.push(Timings {
            // Measured around the call, so that nothing of it is left out.
            total_ms: start.elapsed().as_secs_f64() * 1e3,
            ..results.timings
        });
    }
    rounds.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    Ok(rounds[ROUNDS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use crate::run::testing::{WordOverlap, arm};

    #[test]
    fn percentiles_are_computed_per_stage() {
        let timings: Vec<Timings> = (1..=100)
            .map(|n| Timings {
                embed_ms: f64::from(n),
                total_ms: f64::from(2 * n),
                ..Timings::default()
            })
            .collect();
        let latency = Latency::over(&timings);
        assert_eq!(
            (
                latency.embed_ms.p50,
                latency.embed_ms.p99,
                latency.total_ms.p95
            ),
            (50.0, 99.0, 190.0)
        );
    }

    #[test]
    fn the_whole_call_is_timed() {
        let set = set(&[("a", "mail")], &[("q", "mail", &["a"])]);
        let latency = Latency::of(&set, &WordOverlap::over(&set), &arm("lexical"), 1).unwrap();
        assert_eq!(latency.queries, 1);
        assert!(latency.total_ms.p50 > 0.0 && latency.total_ms.p50 <= latency.total_ms.p99);
    }
}
