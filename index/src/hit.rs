//! Search results: hits in one total order, with explanations, signals and timings.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::kind::Kind;
use crate::query::Mode;
use crate::tool::{Tool, ToolId};
use crate::variant::Variant;

/// The order of every list of ranked tools: higher score first, then the smaller id. Equal input gives equal
/// output. A snapshot's rows are in the order of ids, so a tool's position may replace its id.
pub fn ranked<S: Into<f64>, T: Ord>(a: (S, T), b: (S, T)) -> Ordering {
    // `total_cmp` orders NaN too, so no score can make sorting panic or depend on the input.
    // Widening keeps the order of single floats.
    let (score_a, score_b): (f64, f64) = (a.0.into(), b.0.into());
    score_b.total_cmp(&score_a).then_with(|| a.1.cmp(&b.1))
}

/// One found tool.
#[derive(Clone, Debug, Serialize)]
pub struct Hit {
    /// The tool as registered.
    #[serde(skip)]
    // Callers write it in the format that their client wants.
    pub tool: HitTool,
    /// What it is; left out of the JSON of a tool.
    #[serde(skip_serializing_if = "Kind::is_tool")]
    pub kind: Kind,
    /// The tool's id, `server/name`.
    pub id: ToolId,
    /// The fused score; comparable within one answer only. A match by content reaches at most 1;
    /// exact names score higher.
    pub score: f32,
    /// Which of the query's texts found it, by position.
    pub matched_queries: Vec<usize>,
    /// The part of the request that it serves, if the request has several needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<String>,
    /// Its near-duplicates on other servers, if the query folds them into one hit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_on: Vec<ToolId>,
    /// Set for a tool that is here for another hit, which needs what it finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companion_of: Option<CompanionOf>,
    /// As [`Tool::flags`]. Such a tool is behind all others that match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flagged: Vec<String>,
    /// How it got its score, if the query asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
}

/// The hit that a tool finds something for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompanionOf {
    /// The hit.
    pub id: ToolId,
    /// The parameter of the hit that it finds a value for.
    pub parameter: String,
    /// Why it is thought to, in a few words.
    pub reason: String,
}

/// A tool that finds what another tool needs: see [`crate::Searcher::companions`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolCompanion {
    /// The tool that finds it.
    pub id: ToolId,
    /// The parameter of the other tool.
    pub parameter: String,
    /// Why it is thought to, in a few words.
    pub reason: String,
}

/// What the tool of a hit is read from.
pub(crate) trait Definition: Send + Sync {
    fn read(&self) -> Arc<Tool>;

    /// As [`Tool::shown_description`], without reading the rest of the tool.
    fn shown_description(&self) -> String;
}

impl Definition for Arc<Tool> {
    fn read(&self) -> Arc<Tool> {
        Arc::clone(self)
    }

    fn shown_description(&self) -> String {
        Tool::shown_description(self).to_owned()
    }
}

/// A tool that comes after the hits.
#[derive(Clone, Debug, Serialize)]
pub struct NearTool {
    /// Its id.
    pub id: ToolId,
    /// Its definition.
    #[serde(skip)]
    pub tool: HitTool,
}

/// The tool of a hit, read as a [`Tool`] when it is first asked for: most searches want no more than the
/// description.
#[derive(Clone)]
pub struct HitTool {
    definition: Arc<dyn Definition>,
    tool: OnceLock<Arc<Tool>>,
}

impl HitTool {
    pub(crate) fn new(definition: Arc<dyn Definition>) -> Self {
        HitTool {
            definition,
            tool: OnceLock::new(),
        }
    }

    /// The tool, to be kept longer than the hit.
    pub fn shared(&self) -> Arc<Tool> {
        Arc::clone(self.get())
    }

    /// As [`Tool::shown_description`], without reading the rest of the tool.
    pub fn shown_description(&self) -> String {
        match self.tool.get() {
            Some(tool) => tool.shown_description().to_owned(),
            None => self.definition.shown_description(),
        }
    }

    fn get(&self) -> &Arc<Tool> {
        self.tool.get_or_init(|| self.definition.read())
    }
}

impl From<Arc<Tool>> for HitTool {
    fn from(tool: Arc<Tool>) -> Self {
        HitTool::new(Arc::new(tool))
    }
}

impl Deref for HitTool {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        self.get()
    }
}

impl fmt::Debug for HitTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.get(), f)
    }
}

/// A leg's score of one hit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LegScore {
    /// 1-based rank in the leg's own list.
    pub rank: usize,
    /// The leg's raw score: BM25, or a cosine.
    pub raw: f32,
    /// The raw score after min-max over the catalog, 0 to 1.
    pub normalised: f32,
}

/// A query term that matched nothing and the indexed word that replaced it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FuzzyEdit {
    /// As written in the query.
    pub from: String,
    /// As found in the catalog.
    pub to: String,
    /// Edit distance.
    pub edits: u8,
}

/// An everyday phrase of the query and the indexed words that were searched for beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct EverydayWords {
    /// As written in the query.
    pub said: String,
    /// As found in the catalog.
    pub words: Vec<String>,
}

/// A field of the tool and the query terms found in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedField {
    /// The field's name.
    pub field: &'static str,
    /// The terms, as indexed (stemmed).
    pub terms: Vec<String>,
}

/// How the query matched a tool's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameMatch {
    /// The query's words end the name (`find symbol` in `serena_find_symbol`).
    Suffix,
    /// The query is a name that the catalog's owner gave the tool.
    Alias,
    /// The query is the name up to case and separators, with or without its server.
    Exact,
    /// The query is the name, character for character.
    Verbatim,
}

/// What a word of the catalog's owner did to a hit. Its [`Display`](fmt::Display) is one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OwnerEffect {
    /// The query was also searched for with these words.
    Synonym {
        /// The phrase in the query.
        phrase: String,
        /// What it may also be called.
        words: Vec<String>,
    },
    /// The query is another name of the tool.
    Alias {
        /// As the owner wrote it.
        name: String,
    },
    /// The tool was put at a place.
    Pin {
        /// The place, from 1.
        place: usize,
        /// The query of the pin.
        query: String,
    },
    /// The score was multiplied.
    Boost {
        /// What was boosted: `tool ID`, `server NAME` or `tag NAME`.
        of: String,
        /// By which factor.
        factor: f32,
    },
    /// The owner's description is searched and shown in place of the server's.
    Description,
}

impl fmt::Display for OwnerEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerEffect::Synonym { phrase, words } => {
                write!(f, "synonym {phrase} -> {}", words.join(", "))
            }
            OwnerEffect::Alias { name } => write!(f, "alias {name:?}"),
            OwnerEffect::Pin { place, query } => write!(f, "pinned to {place} by {query:?}"),
            OwnerEffect::Boost { of, factor } => write!(f, "boost {factor} of {of}"),
            OwnerEffect::Description => f.write_str("the owner's description"),
        }
    }
}

/// How one hit got its score.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explain {
    /// Set when the query names the tool.
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
    /// Everyday phrases of the query, with the words that tools use instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub everyday: Vec<EverydayWords>,
    /// The request in English words, if it was translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation: Option<String>,
    /// The clauses the request was split into; empty when it was taken whole.
    pub clauses: Vec<String>,
    /// The clause this tool fits best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_clause: Option<usize>,
    /// The share of the dense legs in the fused score.
    pub dense_weight: f32,
    /// The fused score before the ranker, the memory and the name tier.
    pub fused: f32,
    /// The ranker's part; absent where it took none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranker: Option<Reranked>,
    /// The weight of remembered requests that led to the tool, 0 to 1; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<f32>,
    /// How the memory moved the hit; absent where it took no part in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_moved: Option<Moved>,
    /// What the words of the catalog's owner did to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_words: Vec<OwnerEffect>,
}

/// How a stage changed the rank of a hit among all tools, without those asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Its rank without the stage, from 1.
    pub before: usize,
    /// Its rank with it.
    pub after: usize,
}

/// The ranker's part in a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reranked {
    /// Its rank by the formula alone, from 1.
    pub before: usize,
    /// Its rank with the ranker, before the memory.
    pub after: usize,
    /// The ranker's score, before its weight.
    pub score: f32,
    /// The features that moved it most, the strongest first.
    pub reasons: Vec<Reason>,
}

/// A feature and its part in the ranker's score of a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The feature's name.
    pub feature: &'static str,
    /// The hit's value of it, in the feature's own unit.
    pub value: f32,
    /// What it added, before the ranker's weight.
    pub moved: f32,
}

/// Why an answer is less than the query asked for. Serialized with the cause's code and its text as
/// `reason`.
#[derive(Clone, Debug, PartialEq)]
pub struct Degraded {
    /// What is missing.
    pub cause: DegradedCause,
    /// Tools that the dense legs cannot find yet.
    pub pending_embeddings: usize,
}

impl Serialize for Degraded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // By hand, since `reason` is the text of the cause and no field.
        let mut fields = serializer.serialize_struct("Degraded", 3)?;
        fields.serialize_field("code", self.cause.code())?;
        fields.serialize_field("reason", &self.cause.to_string())?;
        fields.serialize_field("pending_embeddings", &self.pending_embeddings)?;
        fields.end()
    }
}

/// What an answer lacks. Its [`Display`](fmt::Display) is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DegradedCause {
    /// The catalog was opened without an embedder.
    NoEmbedder,
    /// An embedder could not be loaded, for this reason: [`crate::Options::missing_embedder`].
    EmbedderNotLoaded(String),
    /// An embedder failed to embed the query, with this message.
    EmbedderFailed(String),
    /// Stored vectors fail their checksum.
    DamagedVectors {
        /// Damaged vectors.
        damaged: usize,
        /// Tools that lack vectors.
        pending: usize,
    },
    /// Tools without vectors of one leg; another leg finds them.
    PartlyEmbedded {
        /// Tools that lack vectors.
        pending: usize,
    },
    /// Tools that no dense leg finds.
    NotEmbedded {
        /// Tools that lack vectors.
        pending: usize,
    },
    /// What holds the tools did not find all that may be hits, for this reason.
    Candidates(String),
    /// The catalog's own ranker cannot be used, with this message.
    Ranker(String),
    /// The usage memory cannot be used or has lost entries, with this message.
    Memory(String),
    /// The query's time budget left no time for the ranker.
    BudgetExceeded {
        /// The budget, in milliseconds.
        budget_ms: f64,
    },
}

impl DegradedCause {
    /// True where a model did not embed the query.
    pub(crate) fn is_failed_embedder(&self) -> bool {
        matches!(self, DegradedCause::EmbedderFailed(_))
    }

    /// Names the cause for programs.
    pub fn code(&self) -> &'static str {
        match self {
            DegradedCause::NoEmbedder => "no_embedder",
            DegradedCause::EmbedderNotLoaded(_) => "embedder_not_loaded",
            DegradedCause::EmbedderFailed(_) => "embedder_failed",
            DegradedCause::DamagedVectors { .. } => "damaged_vectors",
            DegradedCause::PartlyEmbedded { .. } => "partly_embedded",
            DegradedCause::NotEmbedded { .. } => "not_embedded",
            DegradedCause::Candidates(_) => "candidates",
            DegradedCause::Ranker(_) => "ranker",
            DegradedCause::Memory(_) => "memory",
            DegradedCause::BudgetExceeded { .. } => "budget_exceeded",
        }
    }
}

impl fmt::Display for DegradedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DegradedCause::NoEmbedder => {
                f.write_str("no embedding model is loaded, so only words are matched")
            }
            DegradedCause::EmbedderNotLoaded(message)
            | DegradedCause::EmbedderFailed(message)
            | DegradedCause::Candidates(message)
            | DegradedCause::Ranker(message)
            | DegradedCause::Memory(message) => f.write_str(message),
            DegradedCause::DamagedVectors { damaged, pending } => {
                let vectors = if *damaged == 1 {
                    "1 stored vector is".to_owned()
                } else {
                    format!("{damaged} stored vectors are")
                };
                let tools = tools_are(*pending);
                write!(f, "{vectors} damaged and {tools} found less precisely")
            }
            DegradedCause::PartlyEmbedded { pending } => {
                let tools = tools_are(*pending);
                write!(f, "{tools} not embedded yet and found less precisely")
            }
            DegradedCause::NotEmbedded { pending } => {
                let tools = tools_are(*pending);
                write!(f, "{tools} not embedded yet and found by words only")
            }
            DegradedCause::BudgetExceeded { budget_ms } => write!(
                f,
                "the budget of {budget_ms} ms was used up before ranking, so the order is less precise; \
                 a larger budget includes ranking"
            ),
        }
    }
}

fn tools_are(count: usize) -> String {
    if count == 1 {
        "1 tool is".to_owned()
    } else {
        format!("{count} tools are")
    }
}

/// Why no tool was found good enough. Serialized with the reason's code and its text as `reason`.
#[derive(Clone, Debug, PartialEq)]
pub struct NoMatch {
    /// What was missing.
    pub reason: NoMatchReason,
    /// The ids nearest to the request, best first, each once. They are suggestions, not hits.
    pub nearest: Vec<ToolId>,
}

impl Serialize for NoMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // By hand, as for `Degraded`.
        let mut fields = serializer.serialize_struct("NoMatch", 3)?;
        fields.serialize_field("code", self.reason.code())?;
        fields.serialize_field("reason", &self.reason.to_string())?;
        fields.serialize_field("nearest", &self.nearest)?;
        fields.end()
    }
}

/// A name in a filter that no tool of the catalog has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What it would be the name of: `server`, `tag` or `tool`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// Similar names that there are, best first.
    pub similar: Vec<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownName {
            kind,
            name,
            similar,
        } = self;
        write!(f, "there is no {kind} {name:?}")?;
        let quoted: Vec<String> = similar.iter().map(|name| format!("{name:?}")).collect();
        match quoted.is_empty() {
            true => Ok(()),
            false => write!(f, " (did you mean {}?)", quoted.join(" or ")),
        }
    }
}

/// Why a query has no hits. Its [`Display`](fmt::Display) is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NoMatchReason {
    /// The catalog has no tools.
    EmptyCatalog,
    /// No tool passes the filter.
    Filter {
        /// What it names and the catalog lacks.
        unknown: Vec<UnknownName>,
    },
    /// The catalog has no item of the kinds that were asked for.
    Kinds {
        /// The kinds that it has.
        present: BTreeSet<Kind>,
    },
    /// The answer's confidence is below the query's threshold.
    Confidence {
        /// The confidence of the answer.
        confidence: f32,
        /// The query's threshold.
        min_confidence: f32,
    },
    /// No tool reaches the query's least score.
    Score {
        /// The query's least score.
        min_score: f32,
    },
    /// The request has nothing but punctuation and function words.
    NoContent,
    /// No tool has a word in common with the request or a similar embedding.
    NothingSimilar,
}

impl NoMatchReason {
    /// Whether it says something about the request and nothing about the tools: there was nothing to look
    /// for, or nothing to look at.
    pub fn is_of_request(&self) -> bool {
        matches!(
            self,
            NoMatchReason::EmptyCatalog
                | NoMatchReason::Filter { .. }
                | NoMatchReason::Kinds { .. }
                | NoMatchReason::NoContent
        )
    }

    /// Names the reason for programs.
    pub fn code(&self) -> &'static str {
        match self {
            NoMatchReason::EmptyCatalog => "empty_catalog",
            NoMatchReason::Filter { .. } => "filter",
            NoMatchReason::Kinds { .. } => "kinds",
            NoMatchReason::Confidence { .. } => "confidence",
            NoMatchReason::Score { .. } => "score",
            NoMatchReason::NoContent => "no_content",
            NoMatchReason::NothingSimilar => "nothing_similar",
        }
    }
}

impl fmt::Display for NoMatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMatchReason::EmptyCatalog => f.write_str("the catalog has no tools"),
            NoMatchReason::Filter { unknown } => {
                f.write_str("no tool passes the filter")?;
                let mut separator = ": ";
                for name in unknown {
                    write!(f, "{separator}{name}")?;
                    separator = ", ";
                }
                Ok(())
            }
            NoMatchReason::Kinds { present } => {
                f.write_str("the catalog has nothing of the kinds that were asked for; ask for ")?;
                let mut separator = "";
                for kind in present {
                    write!(f, "{separator}{kind}")?;
                    separator = " or ";
                }
                Ok(())
            }
            NoMatchReason::Confidence {
                confidence,
                min_confidence,
            } => write!(
                f,
                "the confidence is {confidence:.2}, below {min_confidence:.2}"
            ),
            NoMatchReason::Score { min_score } => write!(f, "no tool scores {min_score} or more"),
            NoMatchReason::NoContent => f.write_str(
                "the request has only punctuation or words such as \"the\"; say what the tool should do",
            ),
            NoMatchReason::NothingSimilar => {
                f.write_str("no tool shares a word with the request or is similar in meaning")
            }
        }
    }
}

/// The time of each stage, in milliseconds.
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
    /// The whole search.
    pub total_ms: f64,
}

impl Timings {
    /// Each stage by name. Their sum is a little less than the total.
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

/// How close the best tool is to the request. Unlike scores, signals of different answers can be
/// compared, so a caller can set thresholds on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Signals {
    /// The share of the request's words, by weight, that the best tool contains, 0 to 1.
    pub coverage: f32,
    /// The best cosine of any dense leg; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
}

/// How well an answer serves its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SearchMatch))]
#[serde(rename_all = "lowercase")]
pub enum Match {
    /// Probably no tool does what was asked for. The hits, if there are any, are the nearest tools.
    None,
    /// One of the hits may do it.
    Possible,
    /// One of the hits very likely does it, or was asked for by name.
    Good,
}

impl Match {
    /// All of them, the best first.
    pub const ALL: [Match; 3] = [Match::Good, Match::Possible, Match::None];

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Match::Good => "good",
            Match::Possible => "possible",
            Match::None => "none",
        }
    }

    /// One sentence for the model or person who asked. `better_hidden` tools that fit better are out of
    /// reach of the search.
    pub fn advice(self, better_hidden: usize) -> &'static str {
        match self {
            _ if better_hidden > 0 => {
                "Tools that fit better are outside what this search may find: leave out its filter, if it has one, or \
                 say what is out of reach."
            }
            Match::Good => "One of these tools very likely does this.",
            Match::Possible => {
                "One of these tools may do this; read what they do before you call one."
            }
            Match::None => {
                "Probably no tool here does this. Ask once more in other words, or for a step of it; if that \
                 finds nothing either, say that no tool does it."
            }
        }
    }
}

impl Results {
    /// What the answer says of itself, in one sentence for the model or person who asked.
    pub fn advice(&self) -> &'static str {
        self.matched.advice(self.better_hidden)
    }
}

/// The answer to a query.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Best first.
    pub hits: Vec<Hit>,
    /// The mode that answered: the one asked for, or the one that was possible.
    pub mode: Mode,
    /// How much of the pipeline was run.
    pub variant: Variant,
    /// The embedders that scored the request, by id. Empty when only words were matched.
    pub embedders: Vec<String>,
    /// Set when something that was asked for could not take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<Degraded>,
    /// The tools that come after the hits, as many as [`crate::Query::near`] asks for, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<NearTool>,
    /// Set when nothing matches; `hits` is then empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_match: Option<NoMatch>,
    /// How well the hits serve the request. Of several texts, `Good` means that each is served well.
    #[serde(rename = "match")]
    pub matched: Match,
    /// The words of the request that are in no hit and that no hit has a similar word for, in their
    /// order; neighbouring ones together. Only for requests in English whose match is not good.
    pub unmatched: Vec<String>,
    /// The number of tools that match better by every leg than any hit, and that the filter leaves out.
    pub better_hidden: usize,
    /// The strongest signals over the query's texts.
    pub signals: Signals,
    /// The probability that one of the first five hits is right, 0 to 1: the highest over the
    /// query's texts, 1 for a tool asked for by name. Absent where no model was trained for the legs
    /// that scored the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f32>,
    /// The time of each stage.
    pub timings: Timings,
    /// The generation of the catalog that answered.
    pub generation: u64,
}
