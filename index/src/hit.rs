//! What is answered: hits in one total order, and how they came about.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::Serialize;

use crate::query::Mode;
use crate::tool::{Tool, ToolId};
use crate::variant::Variant;

/// THE order of every ranked list: higher score first, then the smaller id. Equal input gives equal
/// output. A tool may stand for its id by its position in a snapshot, which is in the order of ids.
pub fn ranked<T: Ord>(a: (f32, T), b: (f32, T)) -> Ordering {
    b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1))
}

/// One found tool.
#[derive(Clone, Debug, Serialize)]
pub struct Hit {
    /// The tool as registered.
    #[serde(skip)]
    pub tool: Arc<Tool>,
    /// Its id.
    pub id: ToolId,
    /// The fused score; comparable within one answer only. 1 is the best a plain match reaches,
    /// exact names lie above.
    pub score: f32,
    /// Which of the query's texts found it, by position.
    pub matched_queries: Vec<usize>,
    /// Its near-duplicates on other servers, when they were to be folded into one hit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_on: Vec<ToolId>,
    /// How it came to this place, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
}

/// A leg's opinion of one hit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LegScore {
    /// 1-based place in the leg's own list.
    pub rank: usize,
    /// The leg's raw score: BM25, or a cosine.
    pub raw: f32,
    /// The raw score after min-max over the catalog, 0 to 1.
    pub normalised: f32,
}

/// A query term that matched nothing and the indexed word taken instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FuzzyEdit {
    /// As written in the query.
    pub from: String,
    /// As found in the catalog.
    pub to: String,
    /// Edit distance.
    pub edits: u8,
}

/// A field of the tool and the query terms found in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedField {
    /// The field's name.
    pub field: &'static str,
    /// The terms, as indexed (stemmed).
    pub terms: Vec<String>,
}

/// How a name matched as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameMatch {
    /// The query's words end the name (`find symbol` in `serena_find_symbol`).
    Suffix,
    /// The query is the name up to case and separators, with or without its server.
    Exact,
    /// The query is the name, character for character.
    Verbatim,
}

/// How one hit came to its place.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explain {
    /// Set when the name itself was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_match: Option<NameMatch>,
    /// The lexical leg.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lexical: Option<LegScore>,
    /// Each dense leg, by embedder id.
    pub dense: Vec<(String, LegScore)>,
    /// Which fields matched, by which terms.
    pub matched: Vec<MatchedField>,
    /// Corrected query terms.
    pub fuzzy: Vec<FuzzyEdit>,
    /// The clauses the request was split into; empty when it was taken whole.
    pub clauses: Vec<String>,
    /// The clause this tool fits best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_clause: Option<usize>,
    /// The share of the dense legs in the fused score.
    pub dense_weight: f32,
    /// The fused score before the ranker and the name tier.
    pub fused: f32,
    /// What the ranker made of it; absent where it took no part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranker: Option<Reranked>,
    /// How strongly remembered requests speak for it, 0 to 1; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<f32>,
}

/// What the ranker made of a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reranked {
    /// Its place by the formula alone, from 1.
    pub before: usize,
    /// Its place with the ranker.
    pub after: usize,
    /// What the ranker gives it, before its weight.
    pub score: f32,
    /// The features that moved it most, the strongest first.
    pub reasons: Vec<Reason>,
}

/// A feature and how much it moved the ranker's score of a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The feature's name.
    pub feature: &'static str,
    /// Its value.
    pub value: f32,
    /// What it added, before the ranker's weight.
    pub moved: f32,
}

/// Why an answer is less than what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Degraded {
    /// What is missing, in one sentence with the next step.
    pub reason: String,
    /// Tools that cannot be found densely yet.
    pub pending_embeddings: usize,
}

/// Why no tool was found good enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoMatch {
    /// What was missing, in one sentence.
    pub reason: String,
    /// The names nearest to the request, best first; a help, not an answer.
    pub nearest: Vec<ToolId>,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Query embedding.
    pub embed_ms: f64,
    /// The lexical leg.
    pub lexical_ms: f64,
    /// The dense legs without embedding.
    pub dense_ms: f64,
    /// Fusion, ordering and explanation.
    pub fuse_ms: f64,
    /// The ranker and confidence.
    pub rank_ms: f64,
    /// All of it.
    pub total_ms: f64,
}

impl Timings {
    /// Each stage by name; all of them are a little less than the total.
    pub fn stages(&self) -> [(&'static str, f64); 5] {
        [
            ("embed", self.embed_ms),
            ("lexical", self.lexical_ms),
            ("dense", self.dense_ms),
            ("fuse", self.fuse_ms),
            ("rank", self.rank_ms),
        ]
    }
}

/// How much there was to go by: what an abstaining caller can set a threshold on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Signals {
    /// The share of the request's words, by weight, that the best tool contains, 0 to 1.
    pub coverage: f32,
    /// The best cosine of any dense leg; absent where none was heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Best first.
    pub hits: Vec<Hit>,
    /// The mode that answered: what was asked for, or what was possible.
    pub mode: Mode,
    /// How much of the pipeline was run.
    pub variant: Variant,
    /// The embedders that were heard, by id: which tier answered. Empty when only words were
    /// matched.
    pub embedders: Vec<String>,
    /// Set when a leg that was asked for could not take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<Degraded>,
    /// Set when nothing fits; `hits` is then empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_match: Option<NoMatch>,
    /// How much there was to go by, at best over the query's texts.
    pub signals: Signals,
    /// How likely one of the first five hits is right, 0 to 1: the highest over the query's texts,
    /// 1 for a tool asked for by name. Absent where confidence was not learned for the legs that
    /// were heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f32>,
    /// Where the time went.
    pub timings: Timings,
    /// The state of the catalog that answered.
    pub generation: u64,
}
