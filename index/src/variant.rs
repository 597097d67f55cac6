//! How much of the pipeline a search runs: all of it, or less where time is short.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The parts of the pipeline that can be left out, each true when it takes part. For measuring what
/// a part is worth; a search that leaves none out is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Embedders that take no time to speak of, such as the static table.
    pub instant_embedders: bool,
    /// Embedders that do, such as MiniLM.
    pub slow_embedders: bool,
    /// Every view of a tool; else its first.
    pub views: bool,
    /// Keeping embedders silent about scripts they do not know.
    pub script_gate: bool,
    /// The needs of a request beside the request as a whole.
    pub clauses: bool,
    /// The learned ranker.
    pub ranker: bool,
}

impl Parts {
    /// All of them.
    pub const ALL: Parts = Parts {
        instant_embedders: true,
        slow_embedders: true,
        views: true,
        script_gate: true,
        clauses: true,
        ranker: true,
    };
}

impl Default for Parts {
    fn default() -> Self {
        Parts::ALL
    }
}

/// What a search runs, dearest first. [`Results::variant`](crate::Results::variant) says which one
/// answered.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// All that was asked for.
    #[default]
    Full,
    /// Without the embedders that take milliseconds, where there are instant ones.
    Instant,
    /// That, and the request as a whole only.
    Whole,
    /// The request as a whole, by its words only.
    Lexical,
}

impl Variant {
    /// Every variant, dearest first.
    pub const ALL: [Variant; 4] = [
        Variant::Full,
        Variant::Instant,
        Variant::Whole,
        Variant::Lexical,
    ];

    /// The name as it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Full => "full",
            Variant::Instant => "instant",
            Variant::Whole => "whole",
            Variant::Lexical => "lexical",
        }
    }

    /// What is left of these parts. `instant` tells whether an instant embedder is there to stand
    /// in for slow ones.
    pub fn of(self, asked: Parts, instant: Standby) -> Parts {
        let slow = asked.slow_embedders && (self == Variant::Full || instant == Standby::Absent);
        match self {
            Variant::Full => asked,
            Variant::Instant => Parts {
                slow_embedders: slow,
                ..asked
            },
            Variant::Whole => Parts {
                slow_embedders: slow,
                clauses: false,
                ..asked
            },
            Variant::Lexical => Parts {
                slow_embedders: false,
                instant_embedders: false,
                clauses: false,
                ..asked
            },
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an instant embedder can stand in for slow ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    /// It can.
    Present,
    /// There is none.
    Absent,
}

/// What a search has to do, stage by stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
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
pub struct Pace {
    /// Nanoseconds a text.
    embed: Rate,
    /// Picoseconds a tool and text.
    lexical: Rate,
    /// Picoseconds a byte and text.
    dense: Rate,
}

impl Default for Pace {
    /// As measured on two shared cores of a server, before anything was learned.
    fn default() -> Self {
        Pace {
            embed: Rate::new(6_000_000),
            lexical: Rate::new(15_000),
            dense: Rate::new(60),
        }
    }
}

impl Pace {
    /// The milliseconds that a search is expected to take.
    pub fn expected_ms(&self, load: &Load) -> f64 {
        let embed_ns = load.slow_texts as f64 * self.embed.get();
        let scored_ns = load.scored as f64 * self.lexical.get() / 1e3;
        let compared_ns = load.compared_bytes as f64 * self.dense.get() / 1e3;
        (embed_ns + scored_ns + compared_ns) / 1e6
    }

    /// The dearest variant that is expected to fit; the cheapest when none does.
    pub fn choose(
        &self,
        budget_ms: f64,
        offered: impl Iterator<Item = (Variant, Load)>,
    ) -> Variant {
        let mut last = Variant::Full;
        for (variant, load) in offered {
            if self.expected_ms(&load) <= budget_ms {
                return variant;
            }
            last = variant;
        }
        last
    }

    /// Learns from a search: the milliseconds of embedding, and of scoring and fusing by words and
    /// by vectors.
    pub fn learn(&self, load: &Load, embed_ms: f64, lexical_ms: f64, dense_ms: f64) {
        self.embed.learn(embed_ms * 1e6, load.slow_texts);
        self.lexical.learn(lexical_ms * 1e9, load.scored);
        self.dense.learn(dense_ms * 1e9, load.compared_bytes);
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
    fn offered() -> Vec<(Variant, Load)> {
        let tools = 19_000;
        let load = |slow_texts, texts: usize, bytes: usize| Load {
            slow_texts,
            scored: tools * texts,
            compared_bytes: tools * bytes,
        };
        vec![
            (Variant::Full, load(1, 3, 768 + 3 * 768)),
            (Variant::Instant, load(0, 3, 3 * 768)),
            (Variant::Whole, load(0, 1, 768)),
            (Variant::Lexical, load(0, 1, 0)),
        ]
    }

    #[test]
    fn the_dearest_variant_that_fits_is_chosen_and_the_cheapest_when_none_does() {
        let pace = Pace::default();
        let chosen = |budget_ms| pace.choose(budget_ms, offered().into_iter());
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
        let pace = Pace::default();
        assert_eq!(pace.choose(20.0, offered().into_iter()), Variant::Full);
        for _ in 0..30 {
            pace.learn(&offered()[0].1, 80.0, 0.4, 2.0);
        }
        assert_eq!(pace.choose(20.0, offered().into_iter()), Variant::Instant);
        assert!((pace.expected_ms(&offered()[0].1) - 82.4).abs() < 5.0);
        pace.learn(&Load::default(), 1e9, 1e9, 1e9);
        assert!(
            pace.expected_ms(&offered()[0].1) < 90.0,
            "what had nothing to do teaches nothing"
        );
    }

    #[test]
    fn each_variant_leaves_out_more_and_never_adds_what_was_not_asked_for() {
        use Standby::{Absent, Present};
        let of = |variant: Variant, standby| variant.of(Parts::ALL, standby);
        assert_eq!(of(Variant::Full, Present), Parts::ALL);
        assert_eq!(
            of(Variant::Instant, Present),
            Parts {
                slow_embedders: false,
                ..Parts::ALL
            }
        );
        assert_eq!(of(Variant::Instant, Absent), Parts::ALL);
        assert_eq!(
            of(Variant::Whole, Absent),
            Parts {
                clauses: false,
                ..Parts::ALL
            }
        );
        let words = of(Variant::Lexical, Present);
        assert!(!words.slow_embedders && !words.instant_embedders && !words.clauses);
        let whole = Parts {
            clauses: false,
            ..Parts::ALL
        };
        assert!(
            Variant::ALL
                .iter()
                .all(|variant| !variant.of(whole, Present).clauses)
        );
    }
}
