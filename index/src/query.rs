//! Queries: texts, number of hits, mode and filter.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, OutOfRange, QueryProblem, Result};
use crate::kind::Kind;
use crate::tool::{Labels, Tool, ToolId};
use crate::variant::{Parts, Variant};

/// Default number of hits.
pub const DEFAULT_K: usize = 5;
/// Most hits a query may ask for: beyond it a model's context is better spent on a second search.
pub const MAX_K: usize = 50;
/// Bytes of a query text that are searched by. The rest of a longer one is ignored, which bounds the
/// time of a search; no request for a tool needs more.
pub const MAX_QUERY_BYTES: usize = 8 << 10;
/// Most texts in one query.
pub const MAX_TEXTS: usize = 16;

/// The part of a text that is searched by.
pub fn read_part(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_QUERY_BYTES)]
}

/// The retrieval legs of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SearchMode))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// BM25, exact names and fuzzy matching.
    Lexical,
    /// Embeddings alone.
    Dense,
    /// Both, fused.
    Hybrid,
    /// Hybrid where there is an embedder, else lexical (which the answer reports as degraded).
    #[default]
    Auto,
}

impl Mode {
    /// The name, as in JSON.
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
            .ok_or_else(|| Error::UnknownName {
                kind: "mode",
                name: text.to_owned(),
                known: "lexical, dense, hybrid or auto".to_owned(),
            })
    }
}

/// How the legs' scores are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SearchFusion))]
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
            _ => Err(Error::UnknownName {
                kind: "fusion",
                name: text.to_owned(),
                known: "convex or rrf".to_owned(),
            }),
        }
    }
}

/// Which items may be hits. An empty field accepts every tool; an item must pass all fields. Only tools pass
/// unless `kinds` names others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only items of these kinds; empty for tools alone.
    // Left out where it is empty, so that earlier versions can read the rest.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub kinds: BTreeSet<Kind>,
    /// Only tools of these servers.
    pub servers: BTreeSet<String>,
    /// Only tools with at least one of these tags.
    pub tags: BTreeSet<String>,
    /// Only these ids. Shared, since a part of a large catalog has many.
    pub ids: Arc<BTreeSet<String>>,
    /// Only tools whose read-only hint is this; an absent hint counts as `false`, MCP's default.
    pub read_only: Option<bool>,
    /// Only tools whose destructive hint is this; an absent hint counts as `true` unless the tool
    /// is read-only, MCP's default.
    pub destructive: Option<bool>,
}

impl Filter {
    /// True when every tool passes, and nothing else.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// True when this item may be a hit.
    pub fn accepts(&self, tool: &Tool) -> bool {
        self.accepts_kind(tool.kind)
            && self.accepts_id(&tool.id)
            && self.accepts_labels(&Labels::of(tool))
    }

    /// True when items of this kind may be hits.
    pub fn accepts_kind(&self, kind: Kind) -> bool {
        match self.kinds.is_empty() {
            true => kind.is_tool(),
            false => self.kinds.contains(&kind),
        }
    }

    /// The part of the filter that needs only the id, not the tool.
    pub fn accepts_id(&self, id: &ToolId) -> bool {
        self.accepts_server(id) && (self.ids.is_empty() || self.ids.contains(id.as_str()))
    }

    pub(crate) fn accepts_server(&self, id: &ToolId) -> bool {
        self.servers.is_empty() || self.servers.contains(id.server())
    }

    /// True when the filter needs the tool and not only its id.
    pub fn reads_content(&self) -> bool {
        !self.tags.is_empty() || self.read_only.is_some() || self.destructive.is_some()
    }

    pub(crate) fn accepts_labels(&self, labels: &Labels) -> bool {
        let hints = &labels.annotations;
        let read_only = hints.read_only_hint.unwrap_or(false);
        let destructive = !read_only && hints.destructive_hint.unwrap_or(true);
        (self.tags.is_empty() || labels.tags.iter().any(|tag| self.tags.contains(tag)))
            && self.read_only.is_none_or(|wanted| wanted == read_only)
            && self.destructive.is_none_or(|wanted| wanted == destructive)
    }
}

impl FromIterator<Kind> for Filter {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Filter {
            kinds: kinds.into_iter().collect(),
            ..Filter::default()
        }
    }
}

impl FromIterator<ToolId> for Filter {
    fn from_iter<I: IntoIterator<Item = ToolId>>(ids: I) -> Self {
        let ids: BTreeSet<String> = ids.into_iter().map(|id| id.to_string()).collect();
        Filter {
            ids: ids.into(),
            ..Filter::default()
        }
    }
}

/// How much work a query may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    All,
    Variant(Variant),
    BudgetMs(f64),
}

/// Options of a search that a request, its user and the catalog may each set. An absent value comes
/// from the next of them, and at last from the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchOptions {
    /// Most hits, 1 to [`MAX_K`]; [`DEFAULT_K`] if not set.
    pub k: Option<usize>,
    /// The retrieval legs; [`Mode::Auto`] if not set.
    pub mode: Option<Mode>,
    /// How the legs' scores are joined; [`Fusion::Convex`] if not set.
    pub fusion: Option<Fusion>,
    /// The weight of the dense legs, 0 to 1; if not set, that of the catalog's
    /// [`Settings`](crate::Settings) for the number of its dense legs.
    pub dense_weight: Option<f32>,
    /// Drops hits below this fused score; 0 if not set.
    pub min_score: Option<f32>,
    /// Returns no match below this confidence, 0 to 1; 0 if not set, which disables the threshold.
    pub min_confidence: Option<f32>,
    /// Whether a tool that finds what a hit needs is put behind that hit: [`crate::Hit::companion_of`].
    /// True if not set.
    // Left out where it is not set, so that earlier versions can read the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companions: Option<bool>,
    /// Whether near-duplicates of a tool on several servers are folded into one hit, which names the others:
    /// [`crate::Hit::also_on`]. False if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold_duplicates: Option<bool>,
}

/// The [`SearchOptions`] among the fields of a value of another type, which has one for each under the same
/// name, such as the arguments of a command or the body of a request. So an option that is added must be added
/// there, or the program does not compile.
#[macro_export]
macro_rules! search_options_of {
    ($from:expr) => {
        $crate::SearchOptions {
            k: $from.k,
            mode: $from.mode,
            fusion: $from.fusion,
            dense_weight: $from.dense_weight,
            min_score: $from.min_score,
            min_confidence: $from.min_confidence,
            companions: $from.companions,
            fold_duplicates: $from.fold_duplicates,
        }
    };
}

impl SearchOptions {
    /// These options, with absent ones from `other`.
    pub fn or(self, other: SearchOptions) -> Self {
        SearchOptions {
            k: self.k.or(other.k),
            mode: self.mode.or(other.mode),
            fusion: self.fusion.or(other.fusion),
            dense_weight: self.dense_weight.or(other.dense_weight),
            min_score: self.min_score.or(other.min_score),
            min_confidence: self.min_confidence.or(other.min_confidence),
            companions: self.companions.or(other.companions),
            fold_duplicates: self.fold_duplicates.or(other.fold_duplicates),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`OutOfRange`] naming the option, its value and its range.
    pub fn validate(&self) -> Result<(), OutOfRange> {
        if let Some(k) = self.k
            && !(1..=MAX_K).contains(&k)
        {
            return Err(OutOfRange::new("k", k, format!("from 1 to {MAX_K}")));
        }
        for (name, share) in [
            ("dense_weight", self.dense_weight),
            ("min_confidence", self.min_confidence),
        ] {
            // A negative number too small for an `f32` arrives as -0.
            if let Some(share) = share
                && (share.is_sign_negative() || !(0.0..=1.0).contains(&share))
            {
                return Err(OutOfRange::new(name, share, "from 0 to 1"));
            }
        }
        match self.min_score {
            Some(score) if score.is_nan() => Err(OutOfRange::new("min_score", score, "a number")),
            _ => Ok(()),
        }
    }

    /// The engine's values for all that is absent.
    pub(crate) fn resolve(self) -> SearchParameters {
        SearchParameters {
            k: self.k.unwrap_or(DEFAULT_K),
            mode: self.mode.unwrap_or_default(),
            fusion: self.fusion.unwrap_or_default(),
            dense_weight: self.dense_weight,
            min_score: self.min_score.unwrap_or(0.0),
            min_confidence: self.min_confidence.unwrap_or(0.0),
            companions: self.companions.unwrap_or(true),
            fold_duplicates: self.fold_duplicates.unwrap_or(false),
        }
    }
}

/// [`SearchOptions`] with a value for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SearchParameters {
    pub(crate) k: usize,
    pub(crate) mode: Mode,
    pub(crate) fusion: Fusion,
    /// `None` for the weight that the settings have for the number of dense legs.
    pub(crate) dense_weight: Option<f32>,
    pub(crate) min_score: f32,
    pub(crate) min_confidence: f32,
    pub(crate) companions: bool,
    pub(crate) fold_duplicates: bool,
}

/// A query, built step by step: `Query::new("send mail").k(3).mode(Mode::Lexical)`.
///
/// - Guarantee: what is not set comes from the catalog's settings, then from the engine's defaults.
/// - Cost: each text is searched on its own, by its first [`MAX_QUERY_BYTES`].
/// - Failure: no method checks its value. [`Query::validate`], which every search calls first,
///   names the first that is wrong.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) texts: Vec<String>,
    pub(crate) options: SearchOptions,
    pub(crate) filter: Filter,
    pub(crate) parts: Parts,
    pub(crate) effort: Effort,
    pub(crate) explain: bool,
    pub(crate) near: usize,
}

impl Query {
    /// A query for one text, with the catalog's defaults and no filter.
    pub fn new(text: impl Into<String>) -> Self {
        Query::any_of([text])
    }

    /// A query for several texts at once. Hits are merged, each tool once, with the numbers of the
    /// texts that found it.
    pub fn any_of<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        Query {
            texts: texts.into_iter().map(Into::into).collect(),
            options: SearchOptions::default(),
            filter: Filter::default(),
            parts: Parts::ALL,
            effort: Effort::All,
            explain: false,
            near: 0,
        }
    }

    /// Sets the options that are present; the others stay as they are.
    pub fn options(mut self, options: SearchOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// At most this many hits, 1 to [`MAX_K`].
    pub fn k(mut self, k: usize) -> Self {
        self.options.k = Some(k);
        self
    }

    /// Sets the retrieval legs.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = Some(mode);
        self
    }

    /// Restricts the hits to these tools.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Sets how the legs' scores are joined.
    pub fn fusion(mut self, fusion: Fusion) -> Self {
        self.options.fusion = Some(fusion);
        self
    }

    /// Sets the weight of the dense legs, 0 to 1, instead of the catalog's setting.
    pub fn dense_weight(mut self, weight: f32) -> Self {
        self.options.dense_weight = Some(weight);
        self
    }

    /// Searches by the request as a whole, never split into clauses.
    pub fn whole(mut self) -> Self {
        self.parts.clauses = false;
        self
    }

    /// Runs these parts of the pipeline only.
    pub fn parts(mut self, parts: Parts) -> Self {
        self.parts = parts;
        self
    }

    /// Runs this variant of the pipeline.
    pub fn variant(mut self, variant: Variant) -> Self {
        self.effort = Effort::Variant(variant);
        self
    }

    /// Limits the time to about this many milliseconds: runs the best variant that is expected to
    /// take no longer, or the cheapest if none is. The first search after opening is planned by the
    /// speed of a typical machine, later ones by the measured speed of earlier ones.
    pub fn budget_ms(mut self, budget_ms: f64) -> Self {
        self.effort = Effort::BudgetMs(budget_ms);
        self
    }

    /// Folds near-duplicates of a tool on several servers into one hit, which names the others.
    pub fn fold_duplicates(mut self) -> Self {
        self.options.fold_duplicates = Some(true);
        self
    }

    /// Adds an explanation to each hit.
    pub fn explain(mut self) -> Self {
        self.explain = true;
        self
    }

    /// Names at most this many tools that come after the hits, 0 to [`MAX_K`]: [`crate::Results::near`].
    pub fn near(mut self, near: usize) -> Self {
        self.near = near;
        self
    }

    /// Drops hits below this fused score.
    pub fn min_score(mut self, min_score: f32) -> Self {
        self.options.min_score = Some(min_score);
        self
    }

    /// Ranks by the formula alone, without the learned ranker.
    pub fn without_ranker(mut self) -> Self {
        self.parts.ranker = false;
        self
    }

    /// Returns no match below this confidence, 0 to 1. The default, 0, disables the threshold. Every
    /// higher value also drops some right answers; BENCHMARKS.md has the trade-off.
    pub fn min_confidence(mut self, min_confidence: f32) -> Self {
        self.options.min_confidence = Some(min_confidence);
        self
    }

    /// Sets whether tools that find what a hit needs are put behind that hit.
    pub fn companions(mut self, companions: bool) -> Self {
        self.options.companions = Some(companions);
        self
    }

    /// The texts as they were given.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// Checks that there is a text and that all numbers are in range.
    ///
    /// # Errors
    /// [`Error::InvalidQuery`] naming the value and its range.
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(Error::InvalidQuery)
    }

    fn check(&self) -> Result<(), QueryProblem> {
        if self.texts.iter().all(|text| text.trim().is_empty()) {
            return Err(QueryProblem::Empty);
        }
        if self.texts.len() > MAX_TEXTS {
            return Err(QueryProblem::TooManyTexts {
                count: self.texts.len(),
                max: MAX_TEXTS,
            });
        }
        if self.near > MAX_K {
            return Err(OutOfRange::new("near", self.near, format!("from 0 to {MAX_K}")).into());
        }
        if let Effort::BudgetMs(budget_ms) = self.effort
            && !(budget_ms > 0.0 && budget_ms.is_finite())
        {
            let budget = format!("{budget_ms} ms");
            return Err(OutOfRange::new("the budget", budget, "above 0").into());
        }
        Ok(self.options.validate()?)
    }
}
