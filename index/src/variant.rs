//! How much of the pipeline a search runs: all of it, or less to fit a time budget.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The parts of the pipeline that can be left out, each true when it takes part. For measuring the
/// effect of a part; by default all take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Embedders that take microseconds, such as the static table.
    pub instant_embedders: bool,
    /// Embedders that take milliseconds, such as MiniLM.
    pub slow_embedders: bool,
    /// Every view of a tool; if false, the first only.
    pub views: bool,
    /// Leaving out embedders for requests and tools in a language that they do not know.
    pub language_gate: bool,
    /// The clauses of a request, beside the request as a whole.
    pub clauses: bool,
    /// The learned ranker.
    pub ranker: bool,
    /// Which texts that a language model wrote count.
    pub texts: CountedTexts,
}

/// Which of the texts that a language model wrote about tools count in a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CountedTexts {
    /// All.
    #[default]
    All,
    /// All but those of this hash; see [`CountedTexts::without`].
    Without([u8; 16]),
    /// None.
    None,
}

impl Parts {
    /// All of them.
    pub const ALL: Parts = Parts {
        instant_embedders: true,
        slow_embedders: true,
        views: true,
        language_gate: true,
        clauses: true,
        ranker: true,
        texts: CountedTexts::All,
    };
}

impl Default for Parts {
    fn default() -> Self {
        Parts::ALL
    }
}

/// How much of the pipeline runs, the most expensive first. An answer names the one that ran.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SearchVariant))]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// Everything that the query asks for.
    #[default]
    Full,
    /// Without slow embedders, if there is an instant one.
    Instant,
    /// As `Instant`, and by the request as a whole only.
    Whole,
    /// The request as a whole, by its words only.
    Lexical,
}

impl Variant {
    /// Every variant, the most expensive first.
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

    /// The parts of the requested ones that this variant runs. `instant` is whether an instant
    /// embedder can replace the slow ones.
    pub fn of(self, asked: Parts, instant: InstantLeg) -> Parts {
        // Where no instant leg can replace the slow ones, leaving them out would be `Lexical`.
        let slow = asked.slow_embedders && (self == Variant::Full || instant == InstantLeg::Absent);
        match self {
            Variant::Full => asked,
            Variant::Instant => Parts {
                slow_embedders: slow,
                ..asked
            },
            // Clauses are the larger part of the time of an instant search: each is scored like the
            // request.
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

/// Whether an instant embedder can replace slow ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantLeg {
    /// There is one.
    Present,
    /// There is none.
    Absent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_leaves_out_more_and_never_adds_what_was_not_asked_for() {
        use InstantLeg::{Absent, Present};
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
