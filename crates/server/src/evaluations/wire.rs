//! The JSON types of evaluations.

use serde::{Deserialize, Serialize};
use toolscout_index::query::MAX_K;
use toolscout_index::{Fusion, Mode};
use utoipa::{IntoParams, ToSchema};

use super::super::search::{self, SearchFilter, SearchRequest};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract;
use toolscout_eval::answered;
use toolscout_eval::arms::IN_USE;
use toolscout_eval::latency::{Latency, Percentiles};

/// An evaluation to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluationRequest {
    /// A name for people, of at most 200 characters.
    #[schema(max_length = 200, example = "after the new descriptions")]
    #[serde(default)]
    pub name: Option<String>,
    /// The queries, one a line, at most 5000: as objects of a `queries.jsonl`
    /// (`{"id","query","relevant":[tool ids]}`, with `"relevant":[],"kind":"none"` where no tool
    /// fits), or as plain text, with the ids of relevant tools after tabs. Without relevant tools a
    /// query is searched for and not judged.
    #[schema(
        example = "{\"id\":\"q1\",\"query\":\"send a mail to Ann\",\"relevant\":[\"gmail/send_email\"]}"
    )]
    pub queries: String,
    /// Judgements of the queries that have none themselves, in the format of TREC (`query 0 tool
    /// grade`) or BEIR (`query tool grade`).
    #[serde(default)]
    pub qrels: Option<String>,
    /// How the queries are searched for: arm `a`.
    #[serde(default, deserialize_with = "extract::object")]
    pub search: ArmSettings,
    /// Other settings to compare: arm `b`.
    #[serde(default, deserialize_with = "extract::optional_object")]
    pub compare: Option<ArmSettings>,
    /// The cut-offs of the metrics; 1, 3, 5 and 10 by default, as far as the number of tools allows.
    #[serde(default)]
    #[schema(max_items = 50)]
    pub depths: Vec<usize>,
}

/// How an arm searches: fields of the body of a search. 50 hits are asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArmSettings {
    /// The retrieval legs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How the scores of the legs are combined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
    /// The share of the dense legs in the score.
    #[schema(minimum = 0.0, maximum = 1.0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense_weight: Option<f32>,
    /// Takes each query as one need, never split into several.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// Which tools may be hits.
    #[serde(
        deserialize_with = "extract::object",
        skip_serializing_if = "SearchFilter::is_empty"
    )]
    pub filter: SearchFilter,
    /// Omits hits below this score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_score: Option<f32>,
    /// Answers "no match" below this confidence.
    #[schema(minimum = 0.0, maximum = 1.0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confidence: Option<f32>,
    /// Whether a tool that finds what a hit needs is put behind that hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companions: Option<bool>,
    /// Whether the learned ranker reorders the hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranker: Option<bool>,
    /// Runs as much of the pipeline as fits into about this many milliseconds.
    #[schema(exclusive_minimum = 0.0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<f64>,
}

impl ArmSettings {
    /// # Errors
    /// 422 for a value out of its range, or a filter that is too long to be kept.
    pub(super) fn check(&self, max_bytes: usize) -> ApiResult<()> {
        let bytes = serde_json::to_string(self).map_or(usize::MAX, |json| json.len());
        if bytes > max_bytes {
            let message =
                format!("it has {bytes} bytes, it may have {max_bytes}; filter by fewer values");
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        self.query("any").map(drop)
    }

    /// The query of a text under these settings.
    ///
    /// # Errors
    /// 422 for a value out of its range.
    pub(super) fn query(&self, text: &str) -> ApiResult<toolscout_index::Query> {
        search::query_of(SearchRequest {
            query: Some(text.to_owned()),
            k: Some(MAX_K),
            mode: self.mode,
            fusion: self.fusion,
            dense_weight: self.dense_weight,
            whole: self.whole,
            filter: self.filter.clone(),
            min_score: self.min_score,
            min_confidence: self.min_confidence,
            companions: self.companions,
            ranker: self.ranker,
            budget_ms: self.budget_ms,
            ..SearchRequest::default()
        })
    }
}

/// The kept evaluations of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluationList {
    /// Newest first.
    pub evaluations: Vec<Evaluation>,
    /// The generation of the catalog now.
    pub current_generation: u64,
}

/// Where an evaluation came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EvaluationOrigin)]
pub enum EvaluationSource {
    /// This server made it.
    #[default]
    Server,
    /// A client sent its report.
    Sent,
}

/// What is known of a report that was sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SentReport {
    /// Who sent it: `key:ID`, or `http` for a server without keys.
    pub by: String,
    /// The name of its set.
    pub set: String,
    /// How the catalog differed, when the report was sent, from what was measured; a sentence each.
    pub remarks: Vec<String>,
}

/// A kept evaluation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Evaluation {
    /// Its id. Later ones are greater.
    pub id: String,
    /// A name for people; empty without one.
    pub name: String,
    /// Whether this server made it, or a client sent it.
    #[serde(default)]
    pub source: EvaluationSource,
    /// What is known of a report that was sent; null for an evaluation of this server.
    #[serde(default)]
    pub sent: Option<SentReport>,
    /// When it was started, or sent, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// The generation of the catalog that was searched; for a report that was sent, the one at that time.
    pub generation: u64,
    /// Whether the catalog was changed while it was searched. All searches were of `generation`.
    pub changed_meanwhile: bool,
    /// Number of tools.
    pub tools: usize,
    /// Tools that had no vectors yet.
    pub pending_embeddings: usize,
    /// The version of the program that measured.
    pub version: String,
    /// The same for the same queries with the same judgements.
    pub fingerprint: String,
    /// Digest of the tools, the judged queries and their judgements, as the command line computes it;
    /// empty without judged queries, and for an evaluation of an earlier version.
    #[serde(default)]
    pub set_fingerprint: String,
    /// The embedders; `none` without, and empty for an evaluation of an earlier version.
    #[serde(default)]
    pub embedder: String,
    /// True if the ranker that took part was trained on these queries, or on some of them: the
    /// figures look better than they are.
    #[serde(default)]
    pub trained_on: bool,
    /// True if the settings or the ranker of the catalog were tuned to these queries, or to some of
    /// them: the figures are in-sample.
    #[serde(default)]
    pub tuned_on: bool,
    /// The cut-offs of the metrics.
    pub depths: Vec<usize>,
    /// The metric by which queries are better or worse.
    pub main_metric: String,
    /// The numbers of queries.
    pub queries: QueryCounts,
    /// What was measured for each arm: `a`, and `b` where two were compared; those of a report that was sent
    /// have its names.
    pub arms: Vec<ArmFigures>,
}

impl Evaluation {
    /// For each arm the position of the arm of another evaluation that it is compared with: the one with the
    /// same name in a report; else the one in the same place of two evaluations of this server, or the only
    /// one.
    pub(super) fn counterparts(&self, other: &Evaluation) -> Vec<Option<usize>> {
        let (names, others) = (self.report_names(), other.report_names());
        let is_sent = [self, other].map(|one| one.source == EvaluationSource::Sent);
        let has_places = !is_sent.contains(&true) || names.len() == 1 && others.len() == 1;
        let counterpart = |(place, name): (usize, &String)| {
            let same_name = others.iter().position(|other| other == name);
            same_name.or((has_places && place < others.len()).then_some(place))
        };
        names.iter().enumerate().map(counterpart).collect()
    }

    /// The names of its arms in a report.
    pub(super) fn report_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for arm in &self.arms {
            let name = arm
                .search
                .as_ref()
                .map_or_else(|| arm.name.clone(), ArmSettings::name);
            names.push(if names.contains(&name) {
                format!("{name} ({})", arm.name)
            } else {
                name
            });
        }
        names
    }
}

/// The numbers of queries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueryCounts {
    /// All of them.
    pub total: usize,
    /// With relevant tools.
    pub judged: usize,
    /// That no tool can serve.
    pub no_tool: usize,
    /// Without a judgement.
    pub unjudged: usize,
}

/// What was measured for an arm.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ArmFigures {
    /// `a` or `b`, or its name in the report that was sent.
    pub name: String,
    /// How it searched; null for a report that was sent, which does not have it.
    pub search: Option<ArmSettings>,
    /// Every metric over the judged queries; none without them.
    #[schema(value_type = Vec<EvaluationFigure>)]
    pub figures: Vec<answered::Figure>,
    /// Judged queries that were answered with "no match".
    pub abstained: usize,
    /// Queries that no tool can serve and that were answered with "no match".
    pub no_tool_abstained: usize,
    /// Queries with a degraded answer.
    pub degraded: usize,
    /// Milliseconds by stage, of searches made one after the other beside the server's others; empty if it was
    /// not measured.
    pub latency: Vec<StageLatency>,
}

/// A metric over all judged queries.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluationFigure {
    /// Its name.
    #[schema(example = "ndcg@10")]
    pub metric: String,
    /// Its mean.
    pub mean: f64,
    /// The 95% bootstrap interval of the mean.
    #[schema(min_items = 2, max_items = 2)]
    pub ci95: Vec<f64>,
}

/// Percentiles of a stage, in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StageLatency {
    /// `embed`, `lexical`, `dense`, `fuse`, `rank` or `total`.
    pub stage: String,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// The percentiles by stage.
pub(super) fn stages(latency: &Latency) -> Vec<StageLatency> {
    let stage = |name: &str, percentiles: Percentiles| StageLatency {
        stage: name.to_owned(),
        p50: percentiles.p50,
        p95: percentiles.p95,
        p99: percentiles.p99,
    };
    vec![
        stage("embed", latency.embed_ms),
        stage("lexical", latency.lexical_ms),
        stage("dense", latency.dense_ms),
        stage("fuse", latency.fuse_ms),
        stage("rank", latency.rank_ms),
        stage("total", latency.total_ms),
    ]
}

impl ArmSettings {
    /// The name of an arm that searches so in a report: that of the command line, if it has one.
    pub(super) fn name(&self) -> String {
        if *self == ArmSettings::default() {
            return IN_USE.to_owned();
        }
        let only_mode = ArmSettings {
            mode: self.mode,
            ..ArmSettings::default()
        };
        let settings = serde_json::to_value(self).unwrap_or_default();
        let settings = settings.as_object().into_iter().flatten();
        let said = settings.map(|(key, value)| match value.as_str() {
            Some(text) if *self == only_mode => text.to_owned(),
            Some(text) => format!("{key}={text}"),
            None => format!("{key}={value}"),
        });
        said.collect::<Vec<_>>().join(",")
    }
}

/// In which form a report is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// As JSON: what `toolscout eval --json` writes.
    #[default]
    Json,
    /// As a page with plots, which loads nothing.
    Html,
}

/// In which form a report is sent.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReportParams {
    /// `json`, the default, or `html`.
    #[param(inline)]
    pub format: Option<ReportFormat>,
}

/// The latency that these percentiles are of.
pub(super) fn latency(stages: &[StageLatency], queries: usize) -> Latency {
    let stage = |name: &str| {
        let found = stages.iter().find(|stage| stage.stage == name);
        found.map_or_else(Percentiles::default, |found| Percentiles {
            p50: found.p50,
            p95: found.p95,
            p99: found.p99,
        })
    };
    Latency {
        queries,
        embed_ms: stage("embed"),
        lexical_ms: stage("lexical"),
        dense_ms: stage("dense"),
        fuse_ms: stage("fuse"),
        rank_ms: stage("rank"),
        total_ms: stage("total"),
    }
}

/// How a report is kept.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SentParams {
    /// A name for people, of at most 200 characters; by default that of the set.
    pub name: Option<String>,
    /// Which set of the report to keep; needed if it has several.
    pub set: Option<String>,
}

/// Which evaluation to compare with.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgainstParams {
    /// The id of another evaluation, of which the queries that both have are compared; `last`, the
    /// default, for the last one before over the same queries; `none`.
    pub against: Option<String>,
}

/// An evaluation with its figures, compared.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluationBody {
    /// The evaluation.
    pub evaluation: Evaluation,
    /// The generation of the catalog now: another one than that of the evaluation where the catalog
    /// was changed since.
    pub current_generation: u64,
    /// How arm `b` differs from arm `a`; null without two arms.
    pub b_against_a: Option<ChangeBody>,
    /// How it differs from another evaluation; null where there is none to compare with.
    pub against: Option<AgainstBody>,
}

/// The comparison with another evaluation.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgainstBody {
    /// The other one.
    pub evaluation: Evaluation,
    /// The differences of each arm that is compared, in their order. Arms of the same name in a report are
    /// compared; without one, those in the same place of two evaluations of this server, or the only ones.
    pub arms: Vec<ArmChange>,
}

/// What differs between two arms of two evaluations.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArmChange {
    /// The name of the arm.
    pub arm: String,
    /// The name of the arm of the other evaluation.
    pub other: String,
    /// The differences.
    #[serde(flatten)]
    pub change: ChangeBody,
}

/// What differs between two answers to the same queries.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangeBody {
    /// Compared queries.
    pub queries: usize,
    /// Those of them with relevant tools.
    pub judged: usize,
    /// By metric, now minus before; empty without judged queries.
    pub differences: Vec<DifferenceBody>,
    /// Judged queries whose main metric rose.
    pub better: usize,
    /// Judged queries whose main metric fell.
    pub worse: usize,
    /// The mean share of the first ten hits that both have.
    pub overlap: f64,
    /// Queries whose first ten hits are not the same.
    pub hits_changed: usize,
    /// Queries whose first hit is another one.
    pub first_changed: usize,
}

/// The difference of a metric.
#[derive(Debug, Serialize, ToSchema)]
pub struct DifferenceBody {
    /// Its name.
    pub metric: String,
    /// The mean of now minus before.
    pub difference: f64,
    /// Its 95% interval, paired by query.
    #[schema(value_type = Vec<f64>, min_items = 2, max_items = 2)]
    pub ci95: [f64; 2],
    /// The two-sided p-value of a randomisation test; for the main metric alone.
    pub p: Option<f64>,
}

impl From<answered::Change> for ChangeBody {
    fn from(change: answered::Change) -> Self {
        let difference = |difference: answered::Difference| DifferenceBody {
            metric: difference.metric.to_string(),
            difference: difference.difference,
            ci95: difference.ci95,
            p: difference.p,
        };
        ChangeBody {
            queries: change.queries,
            judged: change.judged,
            differences: change.differences.into_iter().map(difference).collect(),
            better: change.better,
            worse: change.worse,
            overlap: change.overlap,
            hits_changed: change.hits_changed,
            first_changed: change.first_changed,
        }
    }
}

/// The order of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuerySort {
    /// The worst first, by the main metric; then those without relevant tools.
    #[default]
    Loss,
    /// The largest drop against the other answers first, then the least common hits.
    Change,
    /// As they were given.
    Order,
}

/// A page of queries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct QueriesParams {
    /// Most queries in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// `next_cursor` of the previous page.
    pub cursor: Option<String>,
    /// The order.
    #[param(inline)]
    pub sort: Option<QuerySort>,
    /// The name of the arm to sort and filter by; the first by default.
    pub arm: Option<String>,
    /// What to compare with: `last`, the default, an id, or `none`, as for the evaluation; or `a`,
    /// to compare the other arms with the first.
    pub against: Option<String>,
    /// Only queries whose first ten hits, or whose main metric, differ.
    pub changed: Option<bool>,
}

/// A page of the queries of an evaluation.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueryPage {
    /// The queries.
    pub queries: Vec<QueryRow>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of queries that pass the filter.
    pub total: usize,
    /// The id of the evaluation that they are compared with; null without one.
    pub against: Option<String>,
}

/// A query of an evaluation.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueryRow {
    /// Its position among the queries, from 1.
    pub number: usize,
    /// Its id; its text, for one without an id.
    pub id: String,
    /// The query.
    pub query: String,
    /// The ids of its relevant tools; empty if no tool can serve it, null without a judgement.
    pub relevant: Option<Vec<String>>,
    /// The answer of each arm, in their order.
    pub arms: Vec<QueryAnswer>,
}

/// An answer to a query.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueryAnswer {
    /// The main metric; null for a query without relevant tools.
    pub score: Option<f64>,
    /// The ranks of the relevant tools, in their order; null for one that is not among 50 hits.
    pub ranks: Vec<Option<usize>>,
    /// The ids of the first ten hits.
    pub hits: Vec<String>,
    /// Whether it was answered with "no match".
    pub no_match: bool,
    /// Whether the answer was degraded.
    pub degraded: bool,
    /// What it is compared with; null where there is nothing.
    pub before: Option<AnswerBefore>,
}

/// The answer that another one is compared with.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnswerBefore {
    /// Its main metric.
    pub score: Option<f64>,
    /// The ranks that the relevant tools had there, in the order of its own judgement.
    pub ranks: Vec<Option<usize>>,
    /// The ids of its first ten hits.
    pub hits: Vec<String>,
    /// The share of the first ten hits that both have.
    pub overlap: f64,
    /// Whether the first hit was another one.
    pub first_changed: bool,
}
