//! The JSON types of a search and its answer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolscout_index::formats::Emit;
use toolscout_index::{Filter, Fusion, Hit, Kind, Match, Mode, Searcher, ToolId, Variant, formats};
use utoipa::{IntoParams, ToSchema};

use crate::hints;
use crate::request::extract;
use crate::request::wire::other_kind;
use toolscout_base::budget::Fitted;
use toolscout_models as models;

/// A search.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchRequest {
    /// What the tool should do, in a few words; or its name. `q` is taken as well.
    #[schema(example = "send an email")]
    #[serde(alias = "q")]
    pub query: Option<String>,
    /// Further queries, whose hits are merged into one list. Up to 16 with `query`.
    #[schema(max_items = 15)]
    pub queries: Vec<String>,
    /// Most hits.
    #[schema(minimum = 1, maximum = 50)]
    pub k: Option<usize>,
    /// The retrieval legs.
    pub mode: Option<Mode>,
    /// How the scores of the legs are combined; `convex` by default.
    pub fusion: Option<Fusion>,
    /// The share of the dense legs in the score.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub dense_weight: Option<f32>,
    /// Takes the request as one need, never split into several.
    pub whole: bool,
    /// Which tools may be hits.
    #[serde(deserialize_with = "extract::object")]
    pub filter: SearchFilter,
    /// Omits hits below this score.
    pub min_score: Option<f32>,
    /// Answers `no_match` below this confidence; 0, the default, never does.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_confidence: Option<f32>,
    /// Whether a tool that finds what a hit needs is put behind that hit; `companion_of` marks it.
    /// True by default.
    pub companions: Option<bool>,
    /// Whether the learned ranker reorders the hits.
    #[schema(default = true)]
    pub ranker: Option<bool>,
    /// Runs as much of the pipeline as fits into about this many milliseconds; `variant` of the
    /// answer names it.
    #[schema(exclusive_minimum = 0.0)]
    pub budget_ms: Option<f64>,
    /// Whether near-duplicates of a tool on several servers are folded into one hit; its `also_on` names
    /// the others. False by default.
    pub fold_duplicates: Option<bool>,
    /// Explains the score of each hit.
    pub explain: bool,
    /// Adds the found tools in this format as `tools`.
    pub format: Option<Emit>,
    /// Most tokens (o200k) of `tools`: whole schemas for the first tools, shortened ones below.
    /// Needs `format`.
    #[schema(minimum = 64, maximum = 1000000)]
    pub max_tokens: Option<usize>,
    /// With `openai_responses`, the `call_id` of the `tool_search_call` to answer.
    pub call_id: Option<String>,
    /// Searches this generation of the catalog or a later one, as the answer to a write names it: the
    /// search waits until the server has it, at most five seconds, and is else answered 503 with
    /// `generation_not_reached`.
    pub min_generation: Option<u64>,
    /// True for a search that a person tries out: it counts in the metrics, and not in the record of use,
    /// in a shadow or as tokens saved.
    pub trial: bool,
}

/// Which tools may be hits. An empty field does not restrict; a tool has to pass every field. Items of other
/// kinds are hits only if `kinds` names them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchFilter {
    /// The kinds of items that may be hits; tools alone if it is empty.
    pub kinds: Vec<Kind>,
    /// Only tools of these servers.
    pub servers: Vec<String>,
    /// Only tools with at least one of these tags.
    pub tags: Vec<String>,
    /// Only these ids.
    pub ids: Vec<String>,
    /// Only tools with this read-only hint; an absent hint counts as `false`.
    pub read_only: Option<bool>,
    /// Only tools with this destructive hint; an absent hint counts as `true` unless the tool is
    /// read-only.
    pub destructive: Option<bool>,
}

impl SearchFilter {
    /// Whether every tool passes it.
    pub fn is_empty(&self) -> bool {
        *self == SearchFilter::default()
    }
}

impl From<SearchFilter> for Filter {
    fn from(filter: SearchFilter) -> Self {
        Filter {
            kinds: filter.kinds.into_iter().collect(),
            servers: filter.servers.into_iter().collect(),
            tags: filter.tags.into_iter().collect(),
            ids: Arc::new(filter.ids.into_iter().collect()),
            read_only: filter.read_only,
            destructive: filter.destructive,
        }
    }
}

/// A search in a query string.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SearchParams {
    /// What the tool should do, in a few words; or its name. `query` is taken as well.
    #[param(required = true)]
    #[serde(alias = "query")]
    q: String,
    /// Most hits.
    #[param(minimum = 1, maximum = 50)]
    k: Option<usize>,
    /// The retrieval legs.
    #[param(inline)]
    mode: Option<Mode>,
    /// How the scores of the legs are combined; `convex` by default.
    #[param(inline)]
    fusion: Option<Fusion>,
    /// The share of the dense legs in the score.
    #[param(minimum = 0.0, maximum = 1.0)]
    dense_weight: Option<f32>,
    /// Takes the request as one need, never split into several.
    whole: Option<bool>,
    /// The kinds of items that may be hits, separated by commas; tools alone by default.
    #[param(style = Form, explode = false, inline)]
    #[serde(deserialize_with = "extract::kinds")]
    kind: Vec<Kind>,
    /// Only tools of this server.
    server: Option<String>,
    /// Only tools with this tag.
    tag: Option<String>,
    /// Only tools with this read-only hint.
    read_only: Option<bool>,
    /// Omits hits below this score.
    min_score: Option<f32>,
    /// Answers `no_match` below this confidence; 0, the default, never does.
    #[param(minimum = 0.0, maximum = 1.0)]
    min_confidence: Option<f32>,
    /// Whether a tool that finds what a hit needs is put behind that hit; true by default.
    companions: Option<bool>,
    /// Whether the learned ranker reorders the hits; true by default.
    ranker: Option<bool>,
    /// Runs as much of the pipeline as fits into about this many milliseconds; `variant` of the
    /// answer names it.
    #[param(exclusive_minimum = 0.0)]
    budget_ms: Option<f64>,
    /// Whether near-duplicates of a tool on several servers are folded into one hit; its `also_on` names
    /// the others. False by default.
    fold_duplicates: Option<bool>,
    /// Explains the score of each hit.
    explain: Option<bool>,
    /// Adds the found tools in this format as `tools`.
    #[param(inline)]
    format: Option<Emit>,
    /// Most tokens of `tools`. Needs `format`.
    #[param(minimum = 64, maximum = 1000000)]
    max_tokens: Option<usize>,
    /// Searches this generation of the catalog or a later one.
    min_generation: Option<u64>,
}

impl From<SearchParams> for SearchRequest {
    fn from(params: SearchParams) -> Self {
        let filter = SearchFilter {
            kinds: params.kind,
            servers: params.server.into_iter().collect(),
            tags: params.tag.into_iter().collect(),
            read_only: params.read_only,
            ..SearchFilter::default()
        };
        SearchRequest {
            query: Some(params.q),
            k: params.k,
            mode: params.mode,
            fusion: params.fusion,
            dense_weight: params.dense_weight,
            whole: params.whole.unwrap_or_default(),
            filter,
            min_score: params.min_score,
            min_confidence: params.min_confidence,
            companions: params.companions,
            ranker: params.ranker,
            budget_ms: params.budget_ms,
            fold_duplicates: params.fold_duplicates,
            explain: params.explain.unwrap_or_default(),
            format: params.format,
            max_tokens: params.max_tokens,
            min_generation: params.min_generation,
            ..SearchRequest::default()
        }
    }
}

/// The name of a tool for a model, and its id.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolName {
    /// The name in `tools`, which a model calls.
    #[schema(example = "github__create_issue")]
    pub name: String,
    /// The id in the catalog.
    #[schema(example = "github/create_issue")]
    pub id: String,
}

impl ToolName {
    /// The names of these tools, as they are in a list of them.
    pub fn of_all<'a>(ids: impl Iterator<Item = &'a ToolId>) -> Vec<Self> {
        let ids: Vec<&ToolId> = ids.collect();
        let names = formats::model_names(ids.iter().copied());
        let named = names.into_iter().zip(ids);
        named
            .map(|(name, id)| ToolName {
                name,
                id: id.to_string(),
            })
            .collect()
    }
}

/// The answer to a search.
#[derive(Debug, Serialize, ToSchema)]
pub struct SearchAnswer {
    /// Best first.
    pub hits: Vec<SearchHit>,
    /// The found tools in the requested format, in the order of `hits`: an array; for `mcp` an
    /// object with `tools`; with a `call_id` the answer to a client-side tool search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub tools: Option<Value>,
    /// The id of each tool in `tools`, in the same order, with the name it has there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_names: Vec<ToolName>,
    /// How `tools` was fitted into `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetReport>,
    /// Milliseconds by stage.
    pub took_ms: TookMs,
    /// The legs that answered.
    pub mode: Mode,
    /// The parts of the pipeline that ran.
    pub variant: Variant,
    /// The ids of the embedders that contributed to the scores.
    pub embedders: Vec<String>,
    /// Set when a requested leg was not available.
    pub degraded: Option<DegradedReport>,
    /// How well the hits serve the request: `good`, `possible`, or `none` if probably no tool does
    /// what was asked for. With `none` the hits, if there are any, are the nearest tools.
    #[serde(rename = "match")]
    pub matched: Match,
    /// The same in one sentence, for a model.
    pub advice: String,
    /// The words of the request that are in no hit and that no hit has a similar word for; for requests in
    /// English whose match is not good.
    pub unmatched: Vec<String>,
    /// The number of tools that match better by every leg than any hit, and that the filter leaves out.
    pub better_hidden: usize,
    /// Set when no tool matches; `hits` is then empty.
    pub no_match: Option<NoMatchReport>,
    /// The probability, from 0 to 1, that one of the first five hits is right; null for legs that
    /// the ranker was not trained for.
    pub confidence: Option<f32>,
    /// The generation of the catalog that was searched.
    pub generation: u64,
    /// The id of the request, as in the server's log.
    pub request_id: String,
    /// Identifies this answer in feedback on it.
    pub feedback_token: String,
}

/// A found tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct SearchHit {
    /// `server/name`, or the name alone.
    pub id: String,
    /// What it is; absent for a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Its name within the server.
    pub name: String,
    /// The server it comes from; empty for a tool without a server.
    pub server: String,
    /// What it does.
    pub description: String,
    /// Comparable within one answer only. A plain match reaches at most 1; an exact name is above
    /// that.
    pub score: f32,
    /// The positions of the queries that found it.
    pub matched_queries: Vec<usize>,
    /// The part of the request that it serves, where the request has several needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<String>,
    /// The ids of its near-duplicates on other servers, with `fold_duplicates`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_on: Vec<String>,
    /// Set for a tool that is here because another hit needs what it finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companion_of: Option<CompanionOf>,
    /// What is suspicious about its definition, where no person has decided on that. Such a tool is
    /// behind all others that match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flagged: Vec<String>,
    /// The explanation of its score.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub explain: Option<toolscout_index::Explain>,
}

/// The hit that a tool finds something for.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompanionOf {
    /// The id of the hit.
    pub id: String,
    /// The parameter of the hit that the tool finds a value for.
    #[schema(example = "person_id")]
    pub parameter: String,
    /// Why it is thought to.
    pub reason: String,
}

/// How the tools were fitted into a token budget.
#[derive(Debug, Serialize, ToSchema)]
pub struct BudgetReport {
    /// Tokens of the tools as compact JSON, by the o200k encoding.
    pub tokens: usize,
    /// Number of tools with their whole definition; they come first.
    pub whole: usize,
    /// Number of tools with a shortened description and schema.
    pub shortened: usize,
    /// The ids of the tools that did not fit.
    pub omitted: Vec<String>,
}

/// Milliseconds by stage.
#[derive(Debug, Serialize, ToSchema)]
pub struct TookMs {
    /// Embedding the query.
    pub embed: f64,
    /// The lexical leg.
    pub lexical: f64,
    /// The dense legs without embedding.
    pub dense: f64,
    /// Fusion, ordering and explanation.
    pub fuse: f64,
    /// The learned ranker and confidence.
    pub rank: f64,
    /// The whole search, without the wait for a thread.
    pub total: f64,
}

/// Why an answer is less than what was requested.
#[derive(Debug, Serialize, ToSchema)]
pub struct DegradedReport {
    /// The cause, for programs: `embedder_not_loaded`, `embedder_failed`, `no_embedder`,
    /// `not_embedded`, `partly_embedded`, `damaged_vectors`, `candidates`, `ranker`, `memory`,
    /// `budget_exceeded`, `store_unreachable`.
    pub code: &'static str,
    /// What is missing.
    pub reason: String,
    /// Tools that have no vectors yet.
    pub pending_embeddings: usize,
}

impl DegradedReport {
    /// The store of several nodes is away, so that the answer may lack what others have written.
    pub fn store_unreachable(searcher: &Searcher) -> Self {
        DegradedReport {
            code: "store_unreachable",
            reason: format!(
                "the store of the catalogs cannot be reached; this is generation {}, and newer ones may exist",
                searcher.generation()
            ),
            pending_embeddings: searcher.pending_embeddings(),
        }
    }
}

/// Why no tool matched well enough.
#[derive(Debug, Serialize, ToSchema)]
pub struct NoMatchReport {
    /// What was missing.
    pub reason: String,
    /// The ids nearest to the request; hints, not hits.
    pub nearest: Vec<String>,
}

impl From<&Hit> for SearchHit {
    fn from(hit: &Hit) -> Self {
        SearchHit {
            id: hit.id.to_string(),
            kind: other_kind(hit.kind),
            name: hit.id.name().to_owned(),
            server: hit.id.server().to_owned(),
            description: hit.tool.shown_description(),
            score: hit.score,
            matched_queries: hit.matched_queries.clone(),
            serves: hit.serves.clone(),
            also_on: hit.also_on.iter().map(ToString::to_string).collect(),
            companion_of: hit.companion_of.as_ref().map(CompanionOf::from),
            flagged: hit.flagged.clone(),
            explain: hit.explain.clone(),
        }
    }
}

impl From<&toolscout_index::CompanionOf> for CompanionOf {
    fn from(companion_of: &toolscout_index::CompanionOf) -> Self {
        CompanionOf {
            id: companion_of.id.to_string(),
            parameter: companion_of.parameter.clone(),
            reason: companion_of.reason.clone(),
        }
    }
}

impl From<&Fitted> for BudgetReport {
    fn from(fitted: &Fitted) -> Self {
        BudgetReport {
            tokens: fitted.tokens,
            whole: fitted.whole,
            shortened: fitted.shortened,
            omitted: fitted.omitted.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&toolscout_index::Timings> for TookMs {
    fn from(timings: &toolscout_index::Timings) -> Self {
        TookMs {
            embed: whole_microseconds(timings.embed_ms),
            lexical: whole_microseconds(timings.lexical_ms),
            dense: whole_microseconds(timings.dense_ms),
            fuse: whole_microseconds(timings.fuse_ms),
            rank: whole_microseconds(timings.rank_ms),
            total: whole_microseconds(timings.total_ms),
        }
    }
}

/// Rounds milliseconds to what their clock resolves.
fn whole_microseconds(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

impl From<&toolscout_index::Degraded> for DegradedReport {
    fn from(degraded: &toolscout_index::Degraded) -> Self {
        DegradedReport {
            code: degraded.cause.code(),
            // Clients need not know where the server's models are.
            reason: models::without_address(&hints::degraded_reason_of_server(degraded)),
            pending_embeddings: degraded.pending_embeddings,
        }
    }
}

impl From<&toolscout_index::NoMatch> for NoMatchReport {
    fn from(no_match: &toolscout_index::NoMatch) -> Self {
        NoMatchReport {
            reason: no_match.reason.to_string(),
            nearest: no_match.nearest.iter().map(ToString::to_string).collect(),
        }
    }
}
