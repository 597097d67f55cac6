//! The JSON types of judgings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolscout_index::{Tool, formats};
use utoipa::{IntoParams, ToSchema};

use crate::request::extract;
use toolscout_base::printable::excerpt;
use toolscout_eval::pool::SHOWN_CHARS;

/// What is known of a judging from the start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = JudgingHead)]
pub struct Head {
    /// Its id. Later ones are greater.
    pub id: String,
    /// A name for people; empty without one.
    pub name: String,
    /// When it was begun, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Who began it: `key:ID`, or `http` for a server without keys.
    pub by: String,
    /// The number of its queries.
    pub queries: usize,
    /// First hits of each setting that are judged.
    pub depth: usize,
}

/// A judging to begin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJudging {
    /// A name for people, of at most 200 characters.
    #[schema(max_length = 200, example = "requests of May")]
    #[serde(default)]
    pub name: Option<String>,
    /// The queries, one a line, at most 2000, in the forms of an evaluation. Tools that a line judges are
    /// pooled too.
    #[schema(example = "send a mail to Ann")]
    pub queries: String,
    /// First hits of each setting that are judged; 5 by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 20)]
    pub depth: Option<usize>,
}

/// The judgings of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct JudgingList {
    /// Newest first.
    pub judgings: Vec<Judging>,
}

/// Queries whose hits people judge.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Judging {
    /// What is known of it from the start.
    #[serde(flatten)]
    pub head: Head,
    /// Who has judged, by name.
    pub judges: Vec<JudgeProgress>,
}

/// How far a judge is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct JudgeProgress {
    /// The judge's name.
    pub judge: String,
    /// Queries whose tools the judge has graded.
    pub judged: usize,
    /// Queries that the judge has skipped.
    pub skipped: usize,
    /// Graded pairs of query and tool.
    pub grades: usize,
    /// The number of the first query that is neither judged nor skipped; null after the last one.
    pub next: Option<usize>,
}

/// Who asks for a query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JudgeParams {
    /// The judge whose grades are shown, or exported; without it a query has none, and an export has those of
    /// all.
    pub judge: Option<String>,
}

/// Whom to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgreementParams {
    /// A judge.
    pub a: String,
    /// Another judge.
    pub b: String,
}

/// A query with the tools to judge.
#[derive(Debug, Serialize, ToSchema)]
pub struct PooledQuery {
    /// Its position among the queries, from 1.
    pub number: usize,
    /// Its id.
    pub id: String,
    /// Its text.
    pub query: String,
    /// The first hits of search by words, by meaning and by both, and the tools that its line judges. They come
    /// by id: their order tells a judge nothing.
    pub tools: Vec<PooledTool>,
    /// The judge's grades, by tool.
    pub relevant: BTreeMap<String, u8>,
    /// Whether the judge has judged or skipped it.
    pub done: bool,
}

/// A tool to judge.
#[derive(Debug, Serialize, ToSchema)]
pub struct PooledTool {
    /// Its id.
    pub id: String,
    /// Its id with its parameters.
    pub signature: String,
    /// The start of its description.
    pub description: String,
}

impl From<&Tool> for PooledTool {
    fn from(tool: &Tool) -> Self {
        PooledTool {
            id: tool.id.to_string(),
            signature: formats::call_signature(tool),
            description: excerpt(tool.description.trim(), SHOWN_CHARS),
        }
    }
}

/// Judgements to keep.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJudgements {
    /// Who judged, of at most 100 characters; lines with a `judge` of their own do not need it.
    #[schema(max_length = 100, example = "Ann")]
    #[serde(default)]
    pub judge: Option<String>,
    /// At most 2000: lines of `eval judge` are such.
    #[serde(deserialize_with = "extract::objects")]
    pub judgements: Vec<NewJudgement>,
}

/// A judgement of a query. It takes the place of the judge's earlier one.
#[derive(Debug, Deserialize, ToSchema)]
pub struct NewJudgement {
    /// The id of the query.
    pub id: String,
    /// The text of the query, to check that it is the one of this id.
    #[serde(default)]
    pub query: Option<String>,
    /// The grades by tool, 0 to 3: at most 200. Without any, a query that is done was skipped.
    pub relevant: BTreeMap<String, f64>,
    /// Who judged.
    #[serde(default)]
    pub judge: Option<String>,
    /// False while tools are left to judge. Without grades, false takes the judgement back.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub done: bool,
}

fn yes() -> bool {
    true
}

/// How far the judges of these judgements are.
#[derive(Debug, Serialize, ToSchema)]
pub struct JudgeProgressList {
    /// By name.
    pub judges: Vec<JudgeProgress>,
}
