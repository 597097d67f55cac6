//! Things that can be called: what a call gives back, a trait for a user's own tools, and where a
//! tool id finds its implementation.

pub mod arguments;
pub mod builtin;
pub mod execute;
pub mod json;
pub mod net;
pub mod operation;
pub mod registry;
pub mod scripted;
pub mod typed;

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

pub use execute::execute;
pub use registry::Registry;
pub use scripted::ScriptedTools;
pub use typed::typed;

/// The arguments of a call: always an object.
pub type Arguments = Map<String, Value>;

/// Something that can be called.
///
/// A call is dropped when its run is stopped or its time is up, so it has to be safe to drop at any
/// `await`.
#[async_trait]
pub trait Callable: Send + Sync {
    /// Calls it.
    ///
    /// # Errors
    /// [`ToolFailure`] with words for the model; the run goes on.
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure>;
}

/// A user's own tool: what it is beside what it does.
pub trait UserTool: Callable {
    /// How the tool is found and shown.
    fn definition(&self) -> Tool;
}

/// Where tools find their implementation.
pub trait Toolset: Send + Sync {
    /// The implementation of this tool, or `None` when it belongs to another set.
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>>;
}

/// A tool's own account of why it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    /// For the model to read.
    pub message: String,
}

impl ToolFailure {
    /// A failure with these words.
    pub fn new(message: impl Into<String>) -> Self {
        ToolFailure {
            message: message.into(),
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CallStatus)]
pub enum Status {
    /// With data.
    Ok,
    /// With an error.
    Error,
}

/// Why a call has no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CallErrorCode)]
#[non_exhaustive]
pub enum ErrorCode {
    /// No visible tool has this name.
    UnknownTool,
    /// The tool is known but nothing here can call it.
    NotCallable,
    /// The arguments are no JSON object, too long, or break the schema.
    InvalidArguments,
    /// The tool said no.
    Failed,
    /// The tool took too long.
    Timeout,
    /// The tool's code panicked.
    Panicked,
    /// The run was stopped first.
    Cancelled,
    /// Too many searches in a row, too many calls in one answer, or more calls than a run may make.
    Limit,
    /// A policy or a person said no, or nobody said yes in time.
    Denied,
    /// What has to hold before the call does not.
    Precondition,
    /// A step of the plan that it depends on has failed.
    Skipped,
}

/// The one result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// How the call ended.
    pub status: Status,
    /// What the tool gave; null for an error.
    pub data: Value,
    /// Set for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Set for an error: what happened and what to do next, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds from call to result.
    pub took_ms: u64,
    /// The bytes of the whole data, when it was too long and `data` is its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from_bytes: Option<usize>,
}

impl ToolResult {
    /// A result with data.
    pub fn ok(data: Value) -> Self {
        let (error_code, error_message) = (None, None);
        ToolResult {
            status: Status::Ok,
            data,
            error_code,
            error_message,
            took_ms: 0,
            truncated_from_bytes: None,
        }
    }

    /// A result without.
    pub fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        ToolResult {
            status: Status::Error,
            data: Value::Null,
            error_code: Some(code),
            error_message: Some(message.into()),
            took_ms: 0,
            truncated_from_bytes: None,
        }
    }

    /// The same result after this time.
    pub fn took_ms(mut self, took_ms: u64) -> Self {
        self.took_ms = took_ms;
        self
    }

    /// The same result with at most this many bytes of data; longer data becomes text that ends in
    /// saying so.
    pub fn truncated(mut self, max_bytes: usize) -> Self {
        if let Some(message) = self.error_message.take() {
            self.error_message = Some(cut(message, max_bytes).0);
            return self;
        }
        let text = text_of(&self.data);
        if text.len() > max_bytes {
            let (shortened, from_bytes) = cut(text, max_bytes);
            self.data = Value::String(shortened);
            self.truncated_from_bytes = from_bytes;
        }
        self
    }

    /// The result as the model reads it.
    pub fn to_model_text(&self) -> String {
        match self.status {
            Status::Ok => text_of(&self.data),
            Status::Error => {
                serde_json::json!({ "error": self.error_code, "message": self.error_message })
                    .to_string()
            }
        }
    }
}

/// A string as it is, anything else as JSON.
fn text_of(data: &Value) -> String {
    match data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text's beginning with a note, and its length in bytes before, when it is longer than
/// allowed.
fn cut(text: String, max_bytes: usize) -> (String, Option<usize>) {
    if text.len() <= max_bytes {
        return (text, None);
    }
    let end = text.floor_char_boundary(max_bytes);
    let note = format!(
        "\n[truncated: {} bytes in all, the first {end} are shown; ask for less]",
        text.len()
    );
    (format!("{}{note}", &text[..end]), Some(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_results_are_cut_at_a_character_and_say_so() {
        let result = ToolResult::ok(Value::String("é".repeat(50))).truncated(9);
        assert_eq!(result.truncated_from_bytes, Some(100));
        assert_eq!(
            result.to_model_text(),
            "éééé\n[truncated: 100 bytes in all, the first 8 are shown; ask for less]"
        );
        let kept = ToolResult::ok(serde_json::json!({ "a": 1 })).truncated(9);
        assert_eq!(
            (kept.to_model_text().as_str(), kept.truncated_from_bytes),
            (r#"{"a":1}"#, None)
        );
    }

    #[test]
    fn an_error_reads_as_one() {
        let result = ToolResult::error(ErrorCode::Failed, "x".repeat(40)).truncated(4);
        let text = result.to_model_text();
        assert!(
            text.starts_with(r#"{"error":"failed","message":"xxxx\n[truncated: 40"#),
            "{text}"
        );
    }
}
