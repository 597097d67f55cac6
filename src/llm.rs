//! Chat models: requests, streamed answers, and two implementations, for OpenAI-compatible
//! endpoints and for scripts.

pub mod openai;
pub mod script;
pub mod stream;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use openai::OpenAi;
pub use script::ScriptedModel;

use crate::printable::counted;

/// A model's streamed answer: deltas in order, up to the last one or the first error.
pub type DeltaStream = BoxStream<'static, Result<Delta, LlmError>>;

/// A chat model behind any transport.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// The model's name, for figures and messages.
    fn name(&self) -> &str;

    /// Sends a request and returns the answer as a stream.
    ///
    /// # Errors
    /// Failures before the first delta; later ones come through the stream.
    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError>;
}

/// The purpose of a request. A real model does not see it; a scripted model has separate replies
/// for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A round of a conversation.
    #[default]
    Round,
    /// Questions to recommend after an answer.
    Recommend,
}

/// One request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The conversation so far, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call; if empty, the model must answer.
    pub tools: Vec<ToolSpec>,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// Instructions.
    System {
        /// The text.
        content: String,
    },
    /// A message of the user.
    User {
        /// The text.
        content: String,
    },
    /// The model's text and calls.
    Assistant {
        /// The text, without thinking.
        content: String,
        /// Its calls, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The one result of one call.
    Tool {
        /// The call's id.
        tool_call_id: String,
        /// The result as text.
        content: String,
    },
}

impl Message {
    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Message::System {
            content: content.into(),
        }
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Message::User {
            content: content.into(),
        }
    }

    /// An assistant message without calls.
    pub fn assistant(content: impl Into<String>) -> Self {
        Message::Assistant {
            content: content.into(),
            tool_calls: Vec::new(),
        }
    }

    /// All texts of the message: its content, then the names and arguments of its calls.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let calls = match self {
            Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
            _ => &[],
        };
        std::iter::once(self.content()).chain(
            calls
                .iter()
                .flat_map(|call| [call.name.as_str(), call.arguments.as_str()]),
        )
    }

    /// The message's text.
    pub fn content(&self) -> &str {
        match self {
            Message::System { content }
            | Message::User { content }
            | Message::Assistant { content, .. }
            | Message::Tool { content, .. } => content,
        }
    }
}

/// A call as the model wrote it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the conversation.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments' text, which may be invalid JSON.
    pub arguments: String,
}

/// The definition of a tool for a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Matches `^[a-zA-Z0-9_-]{1,64}$`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Map<String, Value>,
}

impl ToolSpec {
    /// The definition in OpenAI's nested form. Its tokens are counted in this form too.
    pub fn to_json(&self) -> Value {
        serde_json::json!({
            "type": "function",
            "function": { "name": self.name, "description": self.description, "parameters": self.parameters },
        })
    }
}

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text, which may contain `<think>` tags split anywhere.
    Text(String),
    /// Reasoning from a separate field.
    Thinking(String),
    /// A fragment of a call.
    Call(CallFragment),
    /// Token counts, near the end.
    Usage(Usage),
    /// Why the model ended (`stop`, `tool_calls`, `length`, ...).
    Finish(String),
}

/// A fragment of a call as it comes over the wire; any field may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFragment {
    /// The call's index in the answer.
    pub index: Option<usize>,
    /// The call's id, usually in its first fragment only.
    pub id: Option<String>,
    /// The tool's name or a part of it.
    pub name: Option<String>,
    /// A part of the arguments' text.
    pub arguments: Option<String>,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(alias = "prompt_tokens", default)]
    pub input: u64,
    /// Tokens of the answer.
    #[serde(alias = "completion_tokens", default)]
    pub output: u64,
}

/// Why a model gave no answer. Every message names the place and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LlmError {
    /// No connection.
    #[error(
        "the model at {url} cannot be reached ({reason}); is it running, and is the base URL right?"
    )]
    Unreachable {
        /// The endpoint.
        url: String,
        /// The transport's error.
        reason: String,
    },
    /// An HTTP status other than success, retries used up.
    #[error("the model at {url} answered {status} after {}: {body}", counted(*attempts, "attempt"))]
    Status {
        /// The endpoint.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Number of attempts.
        attempts: u32,
        /// The beginning of the body.
        body: String,
    },
    /// Nothing arrived within the time limit.
    #[error(
        "the model sent nothing for {waited_ms} ms ({stage}); raise its time limit or choose a faster model"
    )]
    Timeout {
        /// The stage of the answer.
        stage: &'static str,
        /// The time limit in milliseconds.
        waited_ms: u64,
    },
    /// The stream ended before the model did.
    #[error("the model's answer was cut off in mid-stream ({reason}); ask again")]
    CutOff {
        /// The transport's error.
        reason: String,
    },
    /// The answer is not a chat completion stream.
    #[error("the model's answer is not a chat completion ({reason}): {excerpt}")]
    Garbage {
        /// What is wrong.
        reason: String,
        /// The beginning of the answer.
        excerpt: String,
    },
    /// An error object in the stream.
    #[error("the model reported an error: {message}")]
    Reported {
        /// The provider's message.
        message: String,
    },
    /// A script that has no reply left or cannot be read.
    #[error("script {path}{}: {reason}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    Script {
        /// The script's path.
        path: String,
        /// 1-based line, where known.
        line: Option<usize>,
        /// What is wrong, and what would be right.
        reason: String,
    },
}
