//! The JSON that several routes speak. Changing a name here changes the API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolscout_index::formats::Emit;
use toolscout_index::{Changes, Mode, Tool, ToolId, Variant};
use utoipa::ToSchema;

/// Which retrieval legs answer; `auto` is hybrid where vectors are there, else lexical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// BM25, exact names and fuzzy matching.
    Lexical,
    /// Embeddings alone.
    Dense,
    /// Both, fused.
    Hybrid,
    /// Whatever is there.
    Auto,
}

impl From<SearchMode> for Mode {
    fn from(mode: SearchMode) -> Self {
        match mode {
            SearchMode::Lexical => Mode::Lexical,
            SearchMode::Dense => Mode::Dense,
            SearchMode::Hybrid => Mode::Hybrid,
            SearchMode::Auto => Mode::Auto,
        }
    }
}

impl From<Mode> for SearchMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Lexical => SearchMode::Lexical,
            Mode::Dense => SearchMode::Dense,
            Mode::Hybrid => SearchMode::Hybrid,
            Mode::Auto => SearchMode::Auto,
        }
    }
}

/// How much of the pipeline was run: less than `full` only where a budget asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchVariant {
    /// All that was asked for.
    Full,
    /// Without the embedders that take milliseconds.
    Instant,
    /// That, and the request as a whole only.
    Whole,
    /// The request as a whole, by its words only.
    Lexical,
}

impl From<Variant> for SearchVariant {
    fn from(variant: Variant) -> Self {
        match variant {
            Variant::Full => SearchVariant::Full,
            Variant::Instant => SearchVariant::Instant,
            Variant::Whole => SearchVariant::Whole,
            Variant::Lexical => SearchVariant::Lexical,
        }
    }
}

/// In which form found tools are given, ready to be handed to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolFormat {
    /// OpenAI chat completions tools.
    Openai,
    /// An OpenAI Responses `tool_search_output` item.
    OpenaiResponses,
    /// Anthropic tools.
    Anthropic,
    /// Anthropic `tool_reference` blocks.
    AnthropicReference,
    /// A Model Context Protocol `tools/list` result.
    Mcp,
    /// Names alone.
    Names,
    /// One line a tool.
    Signature,
}

impl From<ToolFormat> for Emit {
    fn from(format: ToolFormat) -> Self {
        match format {
            ToolFormat::Openai => Emit::Openai,
            ToolFormat::OpenaiResponses => Emit::OpenaiResponses,
            ToolFormat::Anthropic => Emit::Anthropic,
            ToolFormat::AnthropicReference => Emit::AnthropicReference,
            ToolFormat::Mcp => Emit::Mcp,
            ToolFormat::Names => Emit::Names,
            ToolFormat::Signature => Emit::Signature,
        }
    }
}

/// A tool as it is kept: MCP's shape with its id, server, tags and metadata.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolBody {
    /// `server/name`, or the name alone.
    pub id: String,
    /// Where it comes from; empty for a tool without a server.
    pub server: String,
    /// Its name within the server.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    #[schema(value_type = Object)]
    pub input_schema: Map<String, Value>,
    /// JSON Schema of its structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub output_schema: Option<Map<String, Value>>,
    /// MCP's hints about its effects.
    #[schema(value_type = Object)]
    pub annotations: toolscout_index::Annotations,
    /// Labels.
    pub tags: Vec<String>,
    /// Everything else that came with it.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

impl From<&Tool> for ToolBody {
    fn from(tool: &Tool) -> Self {
        ToolBody {
            id: tool.id.to_string(),
            server: tool.id.server().to_owned(),
            name: tool.id.name().to_owned(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
            annotations: tool.annotations,
            tags: tool.tags.clone(),
            metadata: tool.metadata.clone(),
        }
    }
}

/// What became of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemStatus {
    /// A new tool.
    Added,
    /// It differs from what was there.
    Changed,
    /// It came again as it was.
    Unchanged,
    /// It was left out; `error` says why.
    Failed,
}

/// What became of one item of a bulk request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ItemResult {
    /// 1-based position in the request; in NDJSON, its line.
    pub item: usize,
    /// The tool's id; for a failed item its name, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What became of it.
    pub status: ItemStatus,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ItemError>,
}

/// Why one item failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ItemError {
    /// Names the error for programs.
    pub code: String,
    /// Tells people.
    pub message: String,
}

/// A change in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChangeCounts {
    /// New tools.
    pub added: usize,
    /// Tools that differ from what was there.
    pub changed: usize,
    /// Tools taken out.
    pub removed: usize,
    /// Tools that came again as they were.
    pub unchanged: usize,
    /// Items that were left out.
    pub failed: usize,
}

impl ChangeCounts {
    /// Adds what a write did.
    pub fn add(&mut self, changes: &Changes) {
        self.added += changes.added.len();
        self.changed += changes.changed.len();
        self.removed += changes.removed.len();
        self.unchanged += changes.unchanged;
    }
}

/// What a write did to the tool of this id.
pub fn status_of(id: &ToolId, changes: &Changes) -> ItemStatus {
    match () {
        () if changes.added.binary_search(id).is_ok() => ItemStatus::Added,
        () if changes.changed.binary_search(id).is_ok() => ItemStatus::Changed,
        () => ItemStatus::Unchanged,
    }
}
