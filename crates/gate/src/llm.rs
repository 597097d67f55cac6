//! Chat models: requests, streamed answers, and two implementations, for the endpoints of
//! providers and for scripts.

mod anthropic;
pub mod api;
pub mod calls;
mod context_length;
pub mod endpoint;
mod event;
mod ollama;
mod openai;
pub mod parameters;
pub mod provider;
pub mod reply;
pub mod script;
pub mod stream;
pub mod think;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

pub use api::Api;
pub use endpoint::{Endpoint, EndpointConfig};
pub use openai::call_fragment;
pub use script::ScriptedModel;

use toolscout_base::printable::{counted, excerpt};

/// Most characters of an endpoint's answer in an error message.
const MAX_EXCERPT_CHARS: usize = 200;

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
    /// Tools that the model knows; if empty, the model must answer.
    pub tools: Vec<ToolSpec>,
    /// Whether it may call them.
    pub tool_choice: ToolChoice,
}

/// Whether a model may call the tools of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must answer. The tools stay in the request, since a provider caches a prompt by its
    /// beginning, where the tools are.
    None,
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
        let calls = calls.iter();
        let of_calls = calls.flat_map(|call| [call.name.as_str(), call.arguments.as_str()]);
        std::iter::once(self.content()).chain(of_calls)
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
    /// A definition. Parameters other than an object become an empty one.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        let parameters = match parameters {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters,
        }
    }

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
    /// A base URL that cannot be used.
    #[error("{url:?} is not the base URL of a model: {reason}")]
    InvalidUrl {
        /// The URL given.
        url: String,
        /// What is wrong, or what would be right.
        reason: String,
    },
    /// A parameter that the model's API does not have, or not with this value.
    #[error("the model cannot be given {name}: {reason}; change it or leave it out")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No connection.
    #[error(
        "the model at {url} cannot be reached ({reason}); {}",
        unreachable_step(url)
    )]
    Unreachable {
        /// The endpoint.
        url: String,
        /// The transport's error.
        reason: String,
    },
    /// An HTTP status other than success, retries used up.
    #[error(
        "the model at {url} answered {status} after {}: {body}{}",
        counted(*attempts, "attempt"),
        status_step(*status, body)
    )]
    Status {
        /// The endpoint.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Number of attempts.
        attempts: u32,
        /// The beginning of the body's text.
        body: String,
        /// How long to wait before the next request, if the server says so.
        retry_after: Option<Duration>,
    },
    /// The prompt is longer than the model's context.
    #[error(
        "the prompt is too long for the model{}: {message}; set --context-tokens, or context_tokens in the limits of a profile, to less than its context, or choose a model with a longer one",
        at(url)
    )]
    ContextTooLong {
        /// The endpoint; empty where the answer was decoded without one.
        url: String,
        /// The provider's message.
        message: String,
        /// The tokens that the model takes, if the message says so.
        limit: Option<usize>,
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
    #[error(
        "the answer of the model{} is not a chat completion ({reason}): {excerpt}; --llm must be the base URL of an API as OpenAI has it, or as Anthropic with --llm-api anthropic",
        at(url)
    )]
    Malformed {
        /// The endpoint; empty where the answer was decoded without one.
        url: String,
        /// What is wrong.
        reason: String,
        /// The beginning of the answer's text.
        excerpt: String,
    },
    /// An error object in the stream.
    #[error(
        "the model{} reported an error: {message}; {}",
        at(url),
        reported_step(message)
    )]
    Reported {
        /// The endpoint; empty where the answer was decoded without one.
        url: String,
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

impl LlmError {
    /// An answer that is not a chat completion stream.
    pub fn malformed(reason: impl Into<String>, answer: &str) -> Self {
        LlmError::Malformed {
            url: String::new(),
            reason: reason.into(),
            excerpt: text_excerpt(answer),
        }
    }

    /// The error with the endpoint that sent the answer.
    fn with_endpoint(mut self, endpoint: &str) -> Self {
        // Decoders make these errors, and know of no endpoint.
        if let LlmError::Malformed { url, .. }
        | LlmError::Reported { url, .. }
        | LlmError::ContextTooLong { url, .. } = &mut self
        {
            *url = endpoint.to_owned();
        }
        self
    }
}

fn at(url: &str) -> String {
    if url.is_empty() {
        return String::new();
    }
    format!(" at {url}")
}

fn unreachable_step(url: &str) -> &'static str {
    if url.starts_with(provider::OLLAMA.base_url) {
        "is it running? That is Ollama's address, the default of --llm; set --llm or TOOLSCOUT_LLM, or try without a model: --llm script:FILE"
    } else {
        "is it running, and is the base URL of --llm right?"
    }
}

/// How providers say that a model has no tool calls, or is not set up for them: Ollama, OpenRouter,
/// vLLM and llama.cpp.
const NO_TOOLS: [&str; 5] = [
    "does not support tools",
    "support tool use",
    "does not support function",
    "tool choice requires",
    "tools param requires",
];
/// What to do about a model without tool calls.
const USE_MANUAL: &str = "this model has no tool calls: use --mode manual (`mode = \"manual\"` in a profile), or choose another with --model";

fn refuses_tools(message: &str) -> bool {
    let message = message.to_lowercase();
    NO_TOOLS.iter().any(|said| message.contains(said))
}

fn reported_step(message: &str) -> &'static str {
    if refuses_tools(message) {
        USE_MANUAL
    } else {
        "ask again, or choose another model with --model"
    }
}

fn status_step(status: u16, body: &str) -> String {
    // Before the status: Ollama says so with 400, and others with 404.
    if refuses_tools(body) {
        return format!("; {USE_MANUAL}");
    }
    let step = match status {
        401 | 403 => "; --llm-key or TOOLSCOUT_LLM_KEY sets the API key",
        404 => {
            "; --model or TOOLSCOUT_MODEL names a model of that server (`toolscout doctor` lists them), --llm its base URL, which usually ends in /v1"
        }
        _ => "",
    };
    step.to_owned()
}

/// The first words of an answer: the message of a JSON error, or the text of an HTML page.
fn text_excerpt(answer: &str) -> String {
    let answer = answer.trim();
    // OpenAI's `error` is an object with a message; Ollama's is the message itself.
    let error = serde_json::from_str::<Value>(answer).unwrap_or_default();
    let message = error.pointer("/error/message").or(error.get("error"));
    let text = match message.and_then(Value::as_str) {
        Some(message) => message.to_owned(),
        None if answer.starts_with('<') => html_text(answer),
        None => answer.to_owned(),
    };
    // In one line, since the message is one.
    let words: Vec<&str> = text.split_whitespace().collect();
    excerpt(&words.join(" "), MAX_EXCERPT_CHARS)
}

/// The text between the tags of a page, without its scripts and styles.
fn html_text(html: &str) -> String {
    let mut text = String::new();
    for element in html.split('<') {
        let (tag, content) = element.split_once('>').unwrap_or((element, ""));
        if !tag.starts_with("script") && !tag.starts_with("style") {
            text.push_str(content);
            text.push(' ');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_page_is_cut_to_its_first_words() {
        let page = format!(
            "<!DOCTYPE html>\n<html><head><style>p {{}}</style><title>502</title></head><p>Bad <b>gateway</b> {}</html>",
            "x".repeat(500)
        );
        let text = text_excerpt(&page);
        assert!(text.starts_with("502 Bad gateway x"), "{text}");
        assert_eq!(text.chars().count(), MAX_EXCERPT_CHARS + 1);
        let json = r#"{"error":{"message":"model \"m\" not found"}}"#;
        assert_eq!(text_excerpt(json), "model \"m\" not found");
        assert_eq!(text_excerpt(" busy\n"), "busy");
    }

    #[test]
    fn an_error_names_the_endpoint_and_the_flag_to_change() {
        let url = format!("{}/chat/completions", provider::OLLAMA.base_url);
        let unreachable = LlmError::Unreachable {
            url: url.clone(),
            reason: "refused".into(),
        };
        let message = unreachable.to_string();
        assert!(message.contains("the default of --llm"), "{message}");
        for (status, flag) in [(401, "--llm-key"), (403, "--llm-key"), (404, "--model")] {
            let error = LlmError::Status {
                url: url.clone(),
                status,
                attempts: 1,
                body: String::new(),
                retry_after: None,
            };
            assert!(error.to_string().contains(flag), "{error}");
        }
        for body in [
            "registry.example/deepseek-r1:7b does not support tools",
            "No endpoints found that support tool use.",
            "\"auto\" tool choice requires --enable-auto-tool-choice",
        ] {
            let message = LlmError::Status {
                url: url.clone(),
                status: 400,
                attempts: 1,
                body: body.into(),
                retry_after: None,
            }
            .to_string();
            assert!(message.contains("use --mode manual"), "{message}");
            let reported = LlmError::Reported {
                url: url.clone(),
                message: body.into(),
            };
            assert!(reported.to_string().contains("use --mode manual"));
        }
        let error = LlmError::malformed("no JSON", "<p>hello").with_endpoint(&url);
        let message = error.to_string();
        assert!(
            message.contains(&url) && message.contains(": hello; --llm"),
            "{message}"
        );
    }
}
