//! A model that replays a script, so that examples and end-to-end tests are reproducible.
//!
//! A script is JSON lines, each one of
//! - `{"reply": {"thinking"?, "text"?, "calls"?: [{"name", "arguments", "id"?}], "usage"?:
//!   {"input", "output"}, "cut"?: true}}`
//! - `{"chunks": [...]}`: chunks of a recorded OpenAI stream
//! - `{"fail": "message"}`, `{"hang": true}`
//! - `{"tool": "server/name", "result": ...}`, `{"tool": ..., "error": "message"}`, `{"tool": ...,
//!   "hang": true}`: the outcomes of a tool's calls in order; the last one repeats
//! - `{"comment": "..."}`
//!
//! Replies are used in order; those with `"for": "recommend"` have their own order. A reply with
//! `"expect_tools": [...]` fails the request unless exactly these tools are visible in it.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::llm::openai::deltas_of;
use crate::llm::{
    CallFragment, ChatModel, ChatRequest, Delta, DeltaStream, LlmError, Purpose, Usage,
};
use toolscout_base::regular_file;

/// A parsed script: the model's replies and the outcomes of tools.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The model's turns, in order.
    pub turns: Vec<Turn>,
    /// The outcomes of each tool's calls in order, by tool id.
    pub tools: HashMap<String, Vec<ToolOutcome>>,
}

impl Script {
    /// Loads a script file.
    ///
    /// # Errors
    /// [`LlmError::Script`] naming the line.
    pub fn load(path: &Path) -> Result<Self, LlmError> {
        let shown = path.display().to_string();
        match regular_file::read_to_string(path) {
            Ok(text) => Script::parse(&shown, &text),
            Err(error) => Err(LlmError::Script {
                path: shown,
                line: None,
                reason: format!("{error}; give the path of a JSON lines script"),
            }),
        }
    }

    /// Parses a script; `path` is for messages.
    ///
    /// # Errors
    /// [`LlmError::Script`] naming the line.
    pub fn parse(path: &str, text: &str) -> Result<Self, LlmError> {
        let mut script = Script::default();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let added = match serde_json::from_str(line) {
                Ok(line) => script.add(line),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = added {
                return Err(LlmError::Script {
                    path: path.into(),
                    line: Some(number + 1),
                    reason,
                });
            }
        }
        Ok(script)
    }

    fn add(&mut self, line: ScriptLine) -> Result<(), String> {
        if let Some(tool) = line.tool {
            let outcome = match (line.result, line.error, line.hang) {
                (Some(result), None, false) => ToolOutcome::Result(result),
                (None, Some(error), false) => ToolOutcome::Error(error),
                (None, None, true) => ToolOutcome::Hang,
                _ => return Err("a tool line needs one of result, error, hang".into()),
            };
            self.tools.entry(tool).or_default().push(outcome);
            return Ok(());
        }
        let answer = match (line.reply, line.chunks, line.fail, line.hang) {
            (Some(reply), None, None, false) => Answer::Reply(reply),
            (None, Some(chunks), None, false) => Answer::Chunks(chunks),
            (None, None, Some(message), false) => Answer::Fail(message),
            (None, None, None, true) => Answer::Hang,
            (None, None, None, false) if line.comment.is_some() => return Ok(()),
            _ => return Err("a line needs one of reply, chunks, fail, hang, tool, comment".into()),
        };
        self.turns.push(Turn {
            purpose: line.purpose,
            expect_tools: line.expect_tools,
            answer,
        });
        Ok(())
    }
}

/// The outcome of a scripted tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    /// The call returns this.
    Result(Value),
    /// The call fails with this message.
    Error(String),
    /// The call never returns.
    Hang,
}

/// One answer of the model and its conditions.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The purpose of the requests that it answers.
    pub purpose: Purpose,
    /// The tools that must be visible, by name in order; `None` for any.
    pub expect_tools: Option<Vec<String>>,
    /// The answer.
    pub answer: Answer,
}

impl From<Reply> for Turn {
    fn from(reply: Reply) -> Self {
        Turn {
            purpose: Purpose::Round,
            expect_tools: None,
            answer: Answer::Reply(reply),
        }
    }
}

/// A scripted answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Text and calls.
    Reply(Reply),
    /// Recorded chunks.
    Chunks(Vec<Value>),
    /// An error before the first token.
    Fail(String),
    /// No answer, until the request is dropped.
    Hang,
}

/// Text and calls of a scripted answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reply {
    /// The model's thinking, before the text.
    pub thinking: String,
    /// The text.
    pub text: String,
    /// The calls.
    pub calls: Vec<ScriptedCall>,
    /// The reported token counts.
    pub usage: Option<Usage>,
    /// Cuts the stream off after the text.
    pub cut: bool,
}

impl Reply {
    /// An answer with text only.
    pub fn text(text: impl Into<String>) -> Self {
        Reply {
            text: text.into(),
            ..Reply::default()
        }
    }

    /// Adds a call.
    pub fn call(mut self, name: impl Into<String>, arguments: Value) -> Self {
        self.calls.push(ScriptedCall {
            name: name.into(),
            arguments,
            id: None,
        });
        self
    }
}

/// A call in a scripted answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool's name.
    pub name: String,
    /// Its arguments. A string is sent as raw text.
    #[serde(default)]
    pub arguments: Value,
    /// Its id; if left out, the call is sent without one.
    #[serde(default)]
    pub id: Option<String>,
}

/// Answers each request with the next turn of its purpose.
#[derive(Debug)]
pub struct ScriptedModel {
    path: String,
    state: Mutex<Remaining>,
}

#[derive(Debug, Default)]
struct Remaining {
    turns: HashMap<Purpose, VecDeque<Turn>>,
    requests: Vec<ChatRequest>,
}

impl ScriptedModel {
    /// A model with these turns; `path` is for messages.
    pub fn new<T: Into<Turn>>(path: impl Into<String>, turns: impl IntoIterator<Item = T>) -> Self {
        let mut state = Remaining::default();
        for turn in turns.into_iter().map(Into::into) {
            state.turns.entry(turn.purpose).or_default().push_back(turn);
        }
        ScriptedModel {
            path: path.into(),
            state: Mutex::new(state),
        }
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.state.lock().requests.clone()
    }

    fn next_turn(&self, request: ChatRequest) -> Result<Turn, LlmError> {
        let mut state = self.state.lock();
        let purpose = request.purpose;
        let visible: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        // Kept before anything can fail, so that refused requests can be looked at too.
        state.requests.push(request);
        let answered = state.requests.len();
        let next = state.turns.get_mut(&purpose).and_then(VecDeque::pop_front);
        let Some(turn) = next else {
            let wanted = match purpose {
                Purpose::Round => "`reply`",
                Purpose::Recommend => "`reply` and `\"for\": \"recommend\"`",
            };
            return Err(self.error(format!(
                "no reply left for request {answered}; add a line with {wanted}"
            )));
        };
        match &turn.expect_tools {
            Some(expected) if *expected != visible => Err(self.error(format!(
                "request {answered} should show the tools {expected:?}, it shows {visible:?}"
            ))),
            _ => Ok(turn),
        }
    }

    fn error(&self, reason: String) -> LlmError {
        LlmError::Script {
            path: self.path.clone(),
            line: None,
            reason,
        }
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    fn name(&self) -> &str {
        "script"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        let deltas = match self.next_turn(request)?.answer {
            Answer::Reply(reply) => reply_deltas(reply),
            Answer::Chunks(chunks) => chunk_deltas(&chunks),
            Answer::Fail(message) => {
                return Err(LlmError::Reported {
                    url: String::new(),
                    message,
                });
            }
            // Ends when the request is dropped, as a real connection does.
            Answer::Hang => return Ok(stream::pending().boxed()),
        };
        Ok(stream::iter(deltas).boxed())
    }
}

fn chunk_deltas(chunks: &[Value]) -> Vec<Result<Delta, LlmError>> {
    let mut all = Vec::new();
    for chunk in chunks {
        match deltas_of(&chunk.to_string()) {
            Ok(deltas) => all.extend(deltas.into_iter().map(Ok)),
            Err(error) => all.push(Err(error)),
        }
    }
    all
}

fn reply_deltas(reply: Reply) -> Vec<Result<Delta, LlmError>> {
    let mut deltas: Vec<Result<Delta, LlmError>> = Vec::new();
    deltas.extend(words(&reply.thinking).map(Delta::Thinking).map(Ok));
    deltas.extend(words(&reply.text).map(Delta::Text).map(Ok));
    if reply.cut {
        deltas.push(Err(LlmError::CutOff {
            reason: "as the script says".into(),
        }));
        return deltas;
    }
    for (index, call) in reply.calls.into_iter().enumerate() {
        deltas.push(Ok(Delta::Call(fragment(index, call))));
    }
    deltas.extend(reply.usage.map(Delta::Usage).map(Ok));
    deltas.push(Ok(Delta::Finish("stop".into())));
    deltas
}

/// A text in pieces like those that a model streams: words with the space after them.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split_inclusive(' ');
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

fn fragment(index: usize, call: ScriptedCall) -> CallFragment {
    let arguments = match call.arguments {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    CallFragment {
        index: Some(index),
        id: call.id,
        name: Some(call.name),
        arguments: Some(arguments),
    }
}

/// A line before its combination of fields is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptLine {
    #[serde(rename = "for", default)]
    purpose: Purpose,
    #[serde(default)]
    expect_tools: Option<Vec<String>>,
    #[serde(default)]
    reply: Option<Reply>,
    #[serde(default)]
    chunks: Option<Vec<Value>>,
    #[serde(default)]
    fail: Option<String>,
    #[serde(default)]
    hang: bool,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    comment: Option<String>,
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    async fn answer(model: &ScriptedModel, purpose: Purpose) -> Result<Vec<Delta>, LlmError> {
        model
            .stream(ChatRequest {
                purpose,
                ..ChatRequest::default()
            })
            .await?
            .try_collect()
            .await
    }

    #[tokio::test]
    async fn replies_are_used_in_order_by_purpose() {
        let script = Script::parse(
            "s",
            r#"{"comment":"greeting"}
{"reply":{"text":"good day"}}

{"for":"recommend","reply":{"text":"more?"}}
{"fail":"overloaded"}
{"tool":"a/b","result":1}
{"tool":"a/b","error":"no"}"#,
        )
        .unwrap();
        assert_eq!(
            script.tools["a/b"],
            [
                ToolOutcome::Result(1.into()),
                ToolOutcome::Error("no".into())
            ]
        );
        let model = ScriptedModel::new("s", script.turns);
        let text = |text: &str| Delta::Text(text.to_owned());
        assert_eq!(
            answer(&model, Purpose::Recommend).await.unwrap()[0],
            text("more?")
        );
        assert_eq!(
            answer(&model, Purpose::Round).await.unwrap()[..2],
            [text("good "), text("day")]
        );
        assert!(
            answer(&model, Purpose::Round)
                .await
                .unwrap_err()
                .to_string()
                .contains("overloaded")
        );
        let message = answer(&model, Purpose::Round)
            .await
            .unwrap_err()
            .to_string();
        assert!(message.contains("no reply left for request 4"), "{message}");
    }

    #[test]
    fn errors_name_the_invalid_line() {
        for (text, expected) in [
            ("{\"reply\":{}}\n{oops", "s:2: "),
            ("{\"repl\":{}}", "unknown field `repl`"),
            ("{\"tool\":\"x\"}", "needs one of result, error, hang"),
            ("{}", "needs one of reply"),
            ("{\"reply\":{},\"fail\":\"x\"}", "needs one of reply"),
        ] {
            let message = Script::parse("s", text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(
            Script::load(Path::new("/no/such/script"))
                .unwrap_err()
                .to_string()
                .contains("/no/such/script")
        );
    }

    #[tokio::test]
    async fn unexpected_visible_tools_fail_the_request() {
        let script = Script::parse(
            "s",
            r#"{"expect_tools":["tool_search"],"reply":{"text":"x"}}"#,
        )
        .unwrap();
        let message = answer(&ScriptedModel::new("s", script.turns), Purpose::Round)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("should show the tools [\"tool_search\"], it shows []"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn a_cut_reply_ends_in_an_error() {
        let reply = Reply {
            text: "half".into(),
            cut: true,
            ..Reply::default()
        };
        let model = ScriptedModel::new("s", [reply]);
        assert!(matches!(
            answer(&model, Purpose::Round).await.unwrap_err(),
            LlmError::CutOff { .. }
        ));
    }
}
