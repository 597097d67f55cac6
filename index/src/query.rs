//! What is asked: texts, how many hits, by which mode, among which tools.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tool::{Tool, ToolId};
use crate::variant::{Parts, Variant};

/// Hits returned when a query does not say.
pub const DEFAULT_K: usize = 5;
/// Most hits a query may ask for: beyond it a model's context is better spent on a second search.
pub const MAX_K: usize = 50;
/// Longest query text that is looked at, in bytes. The rest of a longer one is ignored: no request
/// that finds tools needs more, and it bounds the time of a search.
pub const MAX_QUERY_BYTES: usize = 8 << 10;
/// Most texts in one query.
pub const MAX_TEXTS: usize = 16;

/// As much of a text as a search looks at.
pub fn read_part(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_QUERY_BYTES)]
}

/// Which retrieval legs answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// BM25, exact names and fuzzy matching.
    Lexical,
    /// Embeddings alone.
    Dense,
    /// Both, fused.
    Hybrid,
    /// The best that is possible: hybrid where there is an embedder, else lexical (and then
    /// degraded).
    #[default]
    Auto,
}

impl Mode {
    /// The mode's name as it is written on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Lexical => "lexical",
            Mode::Dense => "dense",
            Mode::Hybrid => "hybrid",
            Mode::Auto => "auto",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Mode::Lexical, Mode::Dense, Mode::Hybrid, Mode::Auto]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| Error::InvalidQuery {
                reason: format!("unknown mode {text:?}; use lexical, dense, hybrid or auto"),
            })
    }
}

/// How the legs' scores become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// A convex combination of min-max scores.
    #[default]
    Convex,
    /// Reciprocal rank fusion, k = 60.
    Rrf,
}

impl FromStr for Fusion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "convex" => Ok(Fusion::Convex),
            "rrf" => Ok(Fusion::Rrf),
            _ => Err(Error::InvalidQuery {
                reason: format!("unknown fusion {text:?}; use convex or rrf"),
            }),
        }
    }
}

/// Which tools may be hits. Empty fields do not restrict; several fields all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only tools of these servers.
    pub servers: BTreeSet<String>,
    /// Only tools with at least one of these tags.
    pub tags: BTreeSet<String>,
    /// Only these ids.
    pub ids: BTreeSet<String>,
    /// Only tools whose read-only hint is this; an absent hint counts as `false`, MCP's default.
    pub read_only: Option<bool>,
    /// Only tools whose destructive hint is this; an absent hint counts as `true` unless the tool
    /// is read-only, MCP's default.
    pub destructive: Option<bool>,
}

impl Filter {
    /// True when every tool passes.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// True when this tool may be a hit.
    pub fn accepts(&self, tool: &Tool) -> bool {
        self.accepts_id(&tool.id) && self.accepts_content(tool)
    }

    /// What can be said by the id alone, without reading the tool.
    pub fn accepts_id(&self, id: &ToolId) -> bool {
        (self.servers.is_empty() || self.servers.contains(id.server()))
            && (self.ids.is_empty() || self.ids.contains(id.as_str()))
    }

    /// True when the tool itself has to be read.
    pub fn reads_content(&self) -> bool {
        !self.tags.is_empty() || self.read_only.is_some() || self.destructive.is_some()
    }

    fn accepts_content(&self, tool: &Tool) -> bool {
        let read_only = tool.annotations.read_only_hint.unwrap_or(false);
        let destructive = !read_only && tool.annotations.destructive_hint.unwrap_or(true);
        (self.tags.is_empty() || tool.tags.iter().any(|tag| self.tags.contains(tag)))
            && self.read_only.is_none_or(|wanted| wanted == read_only)
            && self.destructive.is_none_or(|wanted| wanted == destructive)
    }
}

impl FromIterator<ToolId> for Filter {
    fn from_iter<I: IntoIterator<Item = ToolId>>(ids: I) -> Self {
        Filter {
            ids: ids.into_iter().map(|id| id.to_string()).collect(),
            ..Filter::default()
        }
    }
}

/// How much may be done for a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    All,
    Variant(Variant),
    BudgetMs(f64),
}

/// A search, built up as a sentence: `Query::new("send mail").k(3).mode(Mode::Lexical)`.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) texts: Vec<String>,
    pub(crate) k: usize,
    pub(crate) mode: Mode,
    pub(crate) filter: Filter,
    pub(crate) fusion: Fusion,
    pub(crate) dense_weight: Option<f32>,
    pub(crate) parts: Parts,
    pub(crate) effort: Effort,
    pub(crate) fold: bool,
    pub(crate) explain: bool,
    pub(crate) min_score: f32,
    pub(crate) min_confidence: f32,
}

impl Query {
    /// A query for one text, with the defaults: [`DEFAULT_K`] hits, [`Mode::Auto`], no filter.
    pub fn new(text: impl Into<String>) -> Self {
        Query::any_of([text])
    }

    /// A query for several texts at once; hits are merged without duplicates and say which text
    /// found them.
    pub fn any_of<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        Query {
            texts: texts.into_iter().map(Into::into).collect(),
            k: DEFAULT_K,
            mode: Mode::Auto,
            filter: Filter::default(),
            fusion: Fusion::Convex,
            dense_weight: None,
            parts: Parts::ALL,
            effort: Effort::All,
            fold: false,
            explain: false,
            min_score: 0.0,
            min_confidence: 0.0,
        }
    }

    /// At most this many hits, 1 to [`MAX_K`].
    pub fn k(mut self, k: usize) -> Self {
        self.k = k;
        self
    }

    /// By these retrieval legs.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Among these tools.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// With the legs' scores joined this way.
    pub fn fusion(mut self, fusion: Fusion) -> Self {
        self.fusion = fusion;
        self
    }

    /// With this weight of the dense legs, 0 to 1, instead of the catalog's setting.
    pub fn dense_weight(mut self, weight: f32) -> Self {
        self.dense_weight = Some(weight);
        self
    }

    /// Takes the request as one need, never split into clauses.
    pub fn whole(mut self) -> Self {
        self.parts.clauses = false;
        self
    }

    /// With these parts of the pipeline only.
    pub fn parts(mut self, parts: Parts) -> Self {
        self.parts = parts;
        self
    }

    /// By this variant of the pipeline.
    pub fn variant(mut self, variant: Variant) -> Self {
        self.effort = Effort::Variant(variant);
        self
    }

    /// In about this many milliseconds: by the best variant that is expected to take no longer, and
    /// by the cheapest when none is. A first search after opening goes by figures of a typical
    /// machine, later ones by what earlier ones took.
    pub fn budget_ms(mut self, budget_ms: f64) -> Self {
        self.effort = Effort::BudgetMs(budget_ms);
        self
    }

    /// With one hit for all near-duplicates of a tool on several servers; the hit names the others.
    pub fn fold_duplicates(mut self) -> Self {
        self.fold = true;
        self
    }

    /// With an explanation in each hit.
    pub fn explain(mut self) -> Self {
        self.explain = true;
        self
    }

    /// Without hits below this fused score.
    pub fn min_score(mut self, min_score: f32) -> Self {
        self.min_score = min_score;
        self
    }

    /// By the formula alone, without the learned ranker.
    pub fn without_ranker(mut self) -> Self {
        self.parts.ranker = false;
        self
    }

    /// Answers "no match" below this confidence, 0 to 1. 0, the default, never abstains for it: at
    /// any higher value some requests that could have been answered are not (BENCHMARKS.md has the
    /// price).
    pub fn min_confidence(mut self, min_confidence: f32) -> Self {
        self.min_confidence = min_confidence;
        self
    }

    /// What is asked, as it was given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Checks the numbers and that there is something to look for.
    ///
    /// # Errors
    /// [`Error::InvalidQuery`] naming the value and its range.
    pub fn validate(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::InvalidQuery { reason });
        if self.texts.is_empty() || self.texts.iter().all(|text| text.trim().is_empty()) {
            return invalid(
                "the query is empty; say in a few words what the tool should do".into(),
            );
        }
        if self.texts.len() > MAX_TEXTS {
            return invalid(format!(
                "{} query texts, {MAX_TEXTS} are allowed",
                self.texts.len()
            ));
        }
        if !(1..=MAX_K).contains(&self.k) {
            return invalid(format!("k is {}, it must be from 1 to {MAX_K}", self.k));
        }
        if self
            .dense_weight
            .is_some_and(|weight| !(0.0..=1.0).contains(&weight))
        {
            return invalid(format!(
                "the dense weight is {}, it must be from 0 to 1",
                self.dense_weight.unwrap_or_default()
            ));
        }
        if let Effort::BudgetMs(budget_ms) = self.effort
            && !(budget_ms > 0.0 && budget_ms.is_finite())
        {
            return invalid(format!("the budget is {budget_ms} ms, it must be above 0"));
        }
        if self.min_score.is_nan() {
            return invalid("min_score is not a number".into());
        }
        if !(0.0..=1.0).contains(&self.min_confidence) {
            return invalid(format!(
                "min_confidence is {}, it must be from 0 to 1",
                self.min_confidence
            ));
        }
        Ok(())
    }
}
