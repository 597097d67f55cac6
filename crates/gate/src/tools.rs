//! Calling tools: the result of a call, the trait for a user's own tools, and the lookup of a
//! tool's implementation by its id.

pub mod arguments;
pub mod attribute;
pub mod builtin;
pub mod call_times;
pub mod compact;
pub mod edited;
pub mod execute;
pub mod json;
pub mod long_results;
pub mod net;
pub mod operation;
mod percent;
pub mod registry;
mod schema_cost;
pub mod scripted;
pub mod typed;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

use toolscout_base::known_secrets;

pub use attribute::Parameters;
pub use call_times::{CallTimeSettings, CallTimes, Seconds};
pub use execute::execute;
pub use registry::{CollectError, Registry};
pub use scripted::ScriptedTools;
pub use typed::typed;

/// The arguments of a call: always an object.
pub type Arguments = Map<String, Value>;

fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            // Most texts have no secret, and stay as they are without a copy.
            if let Cow::Owned(masked) = known_secrets::mask(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(fields) => fields.values_mut().for_each(mask_value),
        _ => {}
    }
}

/// What a tool answered in the form of its own protocol. Who knows the protocol downcasts it, and can
/// pass it on unchanged.
pub type OwnResult = Box<dyn Any + Send + Sync>;

/// What a call gave.
pub struct Called {
    /// The data for a model, or why there is none.
    pub outcome: Result<Value, ToolFailure>,
    /// The answer in the tool's own form, of tools that have one.
    pub own: Option<OwnResult>,
}

/// Something that can be called.
///
/// A call is dropped when its run is stopped or its time limit is reached, so it must be safe to
/// drop at any `await`.
#[async_trait]
pub trait Callable: Send + Sync {
    /// Makes one call.
    ///
    /// # Errors
    /// [`ToolFailure`] with a message for the model; the run continues.
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure>;

    /// Makes one call and keeps the answer in the tool's own form, if it has one.
    async fn call_in_own_form(&self, arguments: Arguments) -> Called {
        Called {
            outcome: self.call(arguments).await,
            own: None,
        }
    }

    /// The arguments as they are sent, if the tool's owner adds to those of a call or replaces them.
    fn sent(&self, _given: &Arguments) -> Option<Arguments> {
        None
    }

    /// Whether it ends each call in time by itself. Otherwise a call is dropped at the limit of the
    /// agent or the gateway, whatever progress it makes.
    fn limits_itself(&self) -> bool {
        false
    }
}

/// A user's own tool, with its definition.
pub trait UserTool: Callable {
    /// The definition under which the tool is searched and shown.
    fn definition(&self) -> Tool;
}

/// A set of tool implementations.
pub trait Toolset: Send + Sync {
    /// The implementation of this tool, or `None` when it belongs to another set.
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>>;

    /// Tools of this set that are always in the tool lists of models.
    fn always_loaded(&self) -> Vec<ToolId> {
        Vec::new()
    }

    /// The servers of this set whose tools cannot be called now.
    fn absent_servers(&self) -> Vec<AbsentServer> {
        Vec::new()
    }
}

/// A server whose tools cannot be called now, and may not be known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentServer {
    /// Its name.
    pub server: String,
    /// Why they cannot be called.
    pub reason: String,
    /// Since when.
    pub since: SystemTime,
}

impl fmt::Display for AbsentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AbsentServer {
            server,
            reason,
            since,
        } = self;
        let seconds = since.elapsed().unwrap_or_default().as_secs();
        let (count, unit) = match seconds {
            0..60 => (seconds, "s"),
            60..3600 => (seconds / 60, "min"),
            _ => (seconds / 3600, "h"),
        };
        write!(f, "{server}: {reason} (for {count} {unit})")
    }
}

/// Why a tool failed, as the tool describes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    /// For the model to read.
    pub message: String,
}

impl ToolFailure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        ToolFailure {
            message: message.into(),
        }
    }
}

/// Whether a call succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CallStatus)]
pub enum Status {
    /// The call returned data.
    Ok,
    /// The call failed or was not made.
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
    /// The arguments are not a JSON object, too long, or violate the schema.
    InvalidArguments,
    /// The tool reported a failure.
    Failed,
    /// The tool took too long.
    Timeout,
    /// The tool's code panicked.
    Panicked,
    /// The run was stopped first.
    Cancelled,
    /// Too many searches in a row, too many calls in one answer, or more calls than a run may make.
    Limit,
    /// A policy or a person refused the call, or nobody approved it in time.
    Denied,
    /// A precondition of the call does not hold.
    Precondition,
    /// A plan step that the call depends on failed.
    Skipped,
}

impl ErrorCode {
    /// The code in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::UnknownTool => "unknown_tool",
            ErrorCode::NotCallable => "not_callable",
            ErrorCode::InvalidArguments => "invalid_arguments",
            ErrorCode::Failed => "failed",
            ErrorCode::Timeout => "timeout",
            ErrorCode::Panicked => "panicked",
            ErrorCode::Cancelled => "cancelled",
            ErrorCode::Limit => "limit",
            ErrorCode::Denied => "denied",
            ErrorCode::Precondition => "precondition",
            ErrorCode::Skipped => "skipped",
        }
    }
}

/// The one result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Whether the call succeeded.
    pub status: Status,
    /// What the tool returned; null for an error.
    pub data: Value,
    /// Set for an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Set for an error: what happened and what to do next, for the model to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds from call to result.
    pub took_ms: u64,
    /// Length of the whole data in bytes, if it was too long and `data` is its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_from_bytes: Option<usize>,
}

impl ToolResult {
    /// The result with masks in place of the secrets that the process knows.
    pub fn without_secrets(mut self) -> Self {
        mask_value(&mut self.data);
        if let Some(message) = &mut self.error_message {
            *message = known_secrets::mask(message).into_owned();
        }
        self
    }

    /// A successful result.
    pub fn ok(data: Value) -> Self {
        ToolResult {
            status: Status::Ok,
            data,
            error_code: None,
            error_message: None,
            took_ms: 0,
            truncated_from_bytes: None,
        }
    }

    /// A failed result.
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

    /// Sets the duration.
    pub fn took_ms(mut self, took_ms: u64) -> Self {
        self.took_ms = took_ms;
        self
    }

    /// The result with its data in the [compact] form, if that is shorter and has at most this many
    /// bytes. Of longer ones a model selects parts, by their own form.
    pub fn compacted(mut self, max_bytes: usize) -> Self {
        if let Some(compacted) = compact::compact_text(&text_of(&self.data))
            && compacted.len() <= max_bytes
        {
            self.data = Value::String(compacted);
        }
        self
    }

    /// Cuts the data to this many bytes. Longer data becomes text that ends with a note.
    pub fn truncated(self, max_bytes: usize) -> Self {
        self.shortened(max_bytes, |text| cut(text, max_bytes))
    }

    /// Replaces data of more than this many bytes by a shorter text.
    pub fn shortened(mut self, max_bytes: usize, shorten: impl FnOnce(String) -> String) -> Self {
        // An error has no data, and its message may be as long as a result.
        if let Some(message) = self.error_message.take() {
            self.error_message = Some(cut(message, max_bytes));
            return self;
        }
        let text = text_of(&self.data);
        if text.len() > max_bytes {
            self.truncated_from_bytes = Some(text.len());
            // JSON that is cut is no JSON any more, so it becomes text.
            self.data = Value::String(shorten(text));
        }
        self
    }

    /// The result as text for the model.
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
pub fn text_of(data: &Value) -> String {
    match data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The text, or its beginning with a note.
pub fn cut(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let end = text.floor_char_boundary(max_bytes);
    let note = format!(
        "\n[truncated: {} bytes in all, the first {end} are shown; ask for less]",
        text.len()
    );
    format!("{}{note}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_results_are_cut_at_a_character_boundary_with_a_note() {
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
    fn an_error_is_described_as_json() {
        let result = ToolResult::error(ErrorCode::Failed, "x".repeat(40)).truncated(4);
        let text = result.to_model_text();
        assert!(
            text.starts_with(r#"{"error":"failed","message":"xxxx\n[truncated: 40"#),
            "{text}"
        );
    }
}
