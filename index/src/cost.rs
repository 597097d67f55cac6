//! What searches of each variant are expected to take, learned from those that were answered.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::variant::Variant;

/// What a search has to do, stage by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Texts that slow embedders embed.
    pub slow_texts: usize,
    /// Tools scored by words, once for each text.
    pub scored: usize,
    /// Bytes of vectors compared, once for each text.
    pub compared_bytes: usize,
}

/// How fast this process is at each stage, learned from the searches it has answered. All snapshots
/// of a catalog share one, so that a commit forgets nothing.
#[derive(Debug)]
pub struct CostModel {
    /// Nanoseconds a text.
    embed: Rate,
    /// Picoseconds a tool and text.
    lexical: Rate,
    /// Picoseconds a byte and text.
    dense: Rate,
}

impl Default for CostModel {
    /// As measured on two shared cores of a server, before anything was learned.
    fn default() -> Self {
        CostModel {
            embed: Rate::new(6_000_000),
            lexical: Rate::new(15_000),
            dense: Rate::new(60),
        }
    }
}

impl CostModel {
    /// The milliseconds that a search is expected to take.
    pub fn expected_ms(&self, work: &Work) -> f64 {
        let embed_ns = work.slow_texts as f64 * self.embed.get();
        let scored_ns = work.scored as f64 * self.lexical.get() / 1e3;
        let compared_ns = work.compared_bytes as f64 * self.dense.get() / 1e3;
        (embed_ns + scored_ns + compared_ns) / 1e6
    }

    /// The dearest variant that is expected to fit; the cheapest when none does.
    pub fn choose(
        &self,
        budget_ms: f64,
        offered: impl Iterator<Item = (Variant, Work)>,
    ) -> Variant {
        let mut last = Variant::Full;
        for (variant, work) in offered {
            if self.expected_ms(&work) <= budget_ms {
                return variant;
            }
            last = variant;
        }
        last
    }

    /// Learns from a search: the milliseconds of embedding, and of scoring and fusing by words and
    /// by vectors.
    pub fn learn(&self, work: &Work, embed_ms: f64, lexical_ms: f64, dense_ms: f64) {
        self.embed.learn(embed_ms * 1e6, work.slow_texts);
        self.lexical.learn(lexical_ms * 1e9, work.scored);
        self.dense.learn(dense_ms * 1e9, work.compared_bytes);
    }
}

/// A running mean of what a unit costs, in whole units of time.
#[derive(Debug)]
struct Rate(AtomicU64);

impl Rate {
    /// The share of the newest search: about the last ten count.
    const NEWEST: f64 = 0.1;

    fn new(start: u64) -> Self {
        Rate(AtomicU64::new(start))
    }

    fn get(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64
    }

    /// Two searches at once may lose one of their two lessons, which does no harm.
    fn learn(&self, took: f64, units: usize) {
        if units > 0 {
            let mean = self.get() * (1.0 - Self::NEWEST) + took / units as f64 * Self::NEWEST;
            self.0
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
    fn the_dearest_variant_that_fits_is_chosen_and_the_cheapest_when_none_does() {
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
    fn a_slow_model_is_left_out_once_it_is_known_to_be_slow() {
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
            "what had nothing to do teaches nothing"
        );
    }
}
