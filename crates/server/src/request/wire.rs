//! JSON types that several routes share. Changing a name here changes the API.

use serde::Serialize;
use serde_json::{Map, Value};
use toolscout_index::formats::{Skipped, Warning};
use toolscout_index::{Changes, Kind, Tool, ToolId};
use utoipa::ToSchema;

use toolscout_gate::tools::arguments::is_unchecked;

/// A stored tool: the shape of MCP with id, server, tags and metadata.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolBody {
    /// `server/name`, or the name alone.
    pub id: String,
    /// What it is; absent for a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The server it comes from; empty for a tool without a server.
    pub server: String,
    /// Its name within the server.
    pub name: String,
    /// A display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    #[schema(value_type = Object)]
    pub input_schema: Map<String, Value>,
    /// Whether the schema stands for so many schemas that arguments are checked at the top alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unchecked_schema: bool,
    /// The JSON Schema of its structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub output_schema: Option<Map<String, Value>>,
    /// The hints of MCP about its effects.
    #[schema(value_type = Object)]
    pub annotations: toolscout_index::Annotations,
    /// Labels.
    pub tags: Vec<String>,
    /// All other fields that it was registered with.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// What the owner of the catalog has searched and shown in place of `description`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_description: Option<String>,
    /// Other names that the owner gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl From<&Tool> for ToolBody {
    fn from(tool: &Tool) -> Self {
        ToolBody {
            id: tool.id.to_string(),
            kind: other_kind(tool.kind),
            server: tool.id.server().to_owned(),
            name: tool.id.name().to_owned(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            unchecked_schema: is_unchecked(tool),
            output_schema: tool.output_schema.clone(),
            annotations: tool.annotations,
            tags: tool.tags.clone(),
            metadata: tool.metadata.clone(),
            shown_description: tool.owner_texts.description().map(str::to_owned),
            aliases: tool.owner_texts.aliases().to_vec(),
        }
    }
}

/// The kind of an item that is no tool: clients from before there were kinds expect tools.
pub fn other_kind(kind: Kind) -> Option<Kind> {
    (!kind.is_tool()).then_some(kind)
}

/// The outcome of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemStatus {
    /// The tool is new.
    Added,
    /// The tool replaced one with the same id.
    Changed,
    /// The tool was stored already, exactly as it is.
    Unchanged,
    /// The item was skipped; `error` has the reason.
    Failed,
}

/// The outcome of one item of a bulk request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ItemResult {
    /// Its position in the request, from 1; in NDJSON, its line number.
    pub item: usize,
    /// The tool's id. For a failed item its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The outcome.
    pub status: ItemStatus,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ItemError>,
}

/// What of a valid tool is left out or will not work.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ToolWarning {
    /// The tool's id.
    pub tool: String,
    /// What it is, and why.
    pub reason: String,
}

impl From<&Warning> for ToolWarning {
    fn from(warning: &Warning) -> Self {
        ToolWarning {
            tool: warning.tool.to_string(),
            reason: warning.reason.clone(),
        }
    }
}

/// Why one item failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ItemError {
    /// A stable code for programs.
    pub code: String,
    /// An explanation for people.
    pub message: String,
}

/// The number of tools by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChangeCounts {
    /// New tools.
    pub added: usize,
    /// Tools that replaced one with the same id.
    pub changed: usize,
    /// Removed tools.
    pub removed: usize,
    /// Tools that were stored already, exactly as they are.
    pub unchanged: usize,
    /// Skipped items.
    pub failed: usize,
}

impl ChangeCounts {
    /// Adds the counts of a write.
    pub fn add(&mut self, changes: &Changes) {
        self.added += changes.added.len();
        self.changed += changes.changed.len();
        self.removed += changes.removed.len();
        self.unchanged += changes.unchanged;
    }
}

impl ItemStatus {
    /// What a write did to the tool of this id, which it contained.
    pub fn of(id: &ToolId, changes: &Changes) -> Self {
        // The engine sorts both lists.
        if changes.added.binary_search(id).is_ok() {
            ItemStatus::Added
        } else if changes.changed.binary_search(id).is_ok() {
            ItemStatus::Changed
        } else {
            ItemStatus::Unchanged
        }
    }
}

/// The result of an item that the parser skipped.
pub fn failed_item(skipped: &Skipped) -> ItemResult {
    ItemResult {
        // If the body has lines, the number of the line is easier to find.
        item: skipped.line.unwrap_or(skipped.index),
        id: skipped.name.clone(),
        status: ItemStatus::Failed,
        error: Some(item_error(&skipped.error)),
    }
}

fn item_error(error: &toolscout_index::Error) -> ItemError {
    let code = match error {
        toolscout_index::Error::DuplicateTool { .. } => "duplicate_tool",
        toolscout_index::Error::Parse { .. } => "unreadable_tools",
        _ => "invalid_tool",
    };
    ItemError {
        code: code.to_owned(),
        message: error.to_string(),
    }
}
