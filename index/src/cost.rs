//! The expected time of a search by variant, learned from earlier searches.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::variant::Variant;

/// The amount of work in each stage of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Texts that slow embedders embed.
    pub slow_texts: usize,
    /// Tools scored by words, once for each text.
    pub scored: usize,
    /// Bytes of vectors compared, once for each text.
    pub compared_bytes: usize,
}

/// The speed of each stage, learned from the searches of this process. All snapshots of a catalog
/// share one, so that a commit does not reset it.
#[derive(Debug)]
pub struct CostModel {
    /// Nanoseconds per text.
    embed: Rate,
    /// Picoseconds per tool and text.
    lexical: Rate,
    /// Picoseconds per byte and text.
    dense: Rate,
}

impl Default for CostModel {
    /// The speed of two shared cores of a server, until searches have been measured.
    fn default() -> Self {
        CostModel {
            // all-MiniLM-L6-v2 on the ONNX Runtime takes 4.2 ms for ten tokens on an idle core; requests are
            // longer and cores shared.
            embed: Rate::new(6_000_000),
            lexical: Rate::new(15_000),
            // 17 bytes a nanosecond; one idle core reads 24.
            dense: Rate::new(60),
        }
    }
}

impl CostModel {
    /// The expected time of a search, in milliseconds.
    pub fn expected_ms(&self, work: &Work) -> f64 {
        let embed_ns = work.slow_texts as f64 * self.embed.get();
        let scored_ns = work.scored as f64 * self.lexical.get() / 1e3;
        let compared_ns = work.compared_bytes as f64 * self.dense.get() / 1e3;
        (embed_ns + scored_ns + compared_ns) / 1e6
    }

    /// The first variant that is expected to fit the budget, or the last if none does. `offered`
    /// has the most expensive first.
    pub fn choose(
        &self,
        budget_ms: f64,
        offered: impl Iterator<Item = (Variant, Work)>,
    ) -> Variant {
        // Some variant has to answer, even where none fits.
        let mut last = Variant::Full;
        for (variant, work) in offered {
            if self.expected_ms(&work) <= budget_ms {
                return variant;
            }
            last = variant;
        }
        last
    }

    /// Learns from the stage times of a search.
    pub fn learn(&self, work: &Work, embed_ms: f64, lexical_ms: f64, dense_ms: f64) {
        self.embed.learn(embed_ms * 1e6, work.slow_texts);
        self.lexical.learn(lexical_ms * 1e9, work.scored);
        self.dense.learn(dense_ms * 1e9, work.compared_bytes);
    }
}

/// A moving average of the time per unit of work, in whole units of time.
#[derive(Debug)]
struct Rate(AtomicU64);

impl Rate {
    /// The weight of the newest search: the average is over about the last ten.
    const NEWEST: f64 = 0.1;

    fn new(start: u64) -> Self {
        Rate(AtomicU64::new(start))
    }

    fn get(&self) -> f64 {
        // Relaxed: the number orders no other memory.
        self.0.load(Ordering::Relaxed) as f64
    }

    /// Of two concurrent searches one may be lost, which does not matter to an average.
    fn learn(&self, took: f64, units: usize) {
        // A search without this work has not measured its speed.
        if units > 0 {
            let mean = self.get() * (1.0 - Self::NEWEST) + took / units as f64 * Self::NEWEST;
            self.0
                // At 0 the stage would look free, however much work it has.
                .store(mean.round().max(1.0) as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 19,000 tools, two views of 384 bytes and three of 256, one text and two clauses.
    fn offered() -> Vec<(Variant, Work)> {
        let tools = 19_000;
        let work = |slow_texts, texts: usize, bytes: usize| Work {
            slow_texts,
            scored: tools * texts,
            compared_bytes: tools * bytes,
        };
        vec![
            (Variant::Full, work(1, 3, 768 + 3 * 768)),
            (Variant::Instant, work(0, 3, 3 * 768)),
            (Variant::Whole, work(0, 1, 768)),
            (Variant::Lexical, work(0, 1, 0)),
        ]
    }

    #[test]
    fn the_most_expensive_variant_that_fits_is_chosen() {
        let cost_model = CostModel::default();
        let chosen = |budget_ms| cost_model.choose(budget_ms, offered().into_iter());
        for (budget_ms, variant) in [
            (1e3, Variant::Full),
            (5.0, Variant::Instant),
            (2.0, Variant::Whole),
            (0.5, Variant::Lexical),
            (0.0, Variant::Lexical),
        ] {
            assert_eq!(chosen(budget_ms), variant, "{budget_ms} ms");
        }
    }

    #[test]
    fn a_slow_model_is_left_out_once_it_was_measured() {
        let cost_model = CostModel::default();
        assert_eq!(
            cost_model.choose(20.0, offered().into_iter()),
            Variant::Full
        );
        for _ in 0..30 {
            cost_model.learn(&offered()[0].1, 80.0, 0.4, 2.0);
        }
        assert_eq!(
            cost_model.choose(20.0, offered().into_iter()),
            Variant::Instant
        );
        assert!((cost_model.expected_ms(&offered()[0].1) - 82.4).abs() < 5.0);
        cost_model.learn(&Work::default(), 1e9, 1e9, 1e9);
        assert!(
            cost_model.expected_ms(&offered()[0].1) < 90.0,
            "a search without work changes no rate"
        );
    }
}
