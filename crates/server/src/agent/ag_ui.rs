//! AG-UI: reading its input, and translating the events of a run. No I/O.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use toolscout_agent::Event;
use toolscout_state::session::TurnStatus;

/// The input of an AG-UI client that starts a run. Unused fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInput {
    /// The id of the conversation.
    pub thread_id: String,
    /// The client's id of the run.
    pub run_id: String,
    messages: Vec<InputMessage>,
    #[serde(default)]
    forwarded_props: Value,
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    role: String,
    #[serde(default)]
    content: Value,
}

impl RunInput {
    /// The user on whose behalf tools are called, from `forwardedProps.identity`.
    pub fn identity(&self) -> Option<String> {
        self.forwarded_props
            .get("identity")?
            .as_str()
            .map(str::to_owned)
    }

    /// The text of the last user message. Earlier messages are stored with the conversation
    /// already.
    pub fn question(&self) -> Option<String> {
        let mut newest_first = self.messages.iter().rev();
        let last = newest_first.find(|message| message.role == "user")?;
        let text = match &last.content {
            Value::String(text) => text.clone(),
            // Parts without text are images and files, which the agent cannot read.
            Value::Array(parts) => {
                let mut texts = Vec::new();
                for part in parts {
                    texts.extend(part.get("text").and_then(Value::as_str));
                }
                texts.join("\n")
            }
            _ => return None,
        };
        (!text.trim().is_empty()).then_some(text)
    }
}

/// Translates the events of one run.
///
/// Text and reasoning become messages with a start and an end event. A run starts with
/// `RUN_STARTED` and ends with `RUN_FINISHED` or `RUN_ERROR`.
#[derive(Debug)]
pub struct AgUi {
    thread_id: String,
    run_id: String,
    started: bool,
    open: Option<OpenMessage>,
    messages: u32,
    error: Option<String>,
}

/// A message that has been started and not ended.
#[derive(Debug)]
struct OpenMessage {
    kind: Kind,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

impl AgUi {
    /// A translator for a run in this thread. Without a client's id, the run gets a random one.
    pub fn new(thread_id: &str, run_id: Option<String>) -> Self {
        AgUi {
            thread_id: thread_id.to_owned(),
            run_id: run_id.unwrap_or_else(|| Uuid::now_v7().to_string()),
            started: false,
            open: None,
            messages: 0,
            error: None,
        }
    }

    /// The AG-UI events for this one, in order.
    pub fn translate(&mut self, event: Event) -> Vec<Value> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.started, true) {
            out.push(
                json!({ "type": "RUN_STARTED", "threadId": self.thread_id, "runId": self.run_id }),
            );
        }
        match event {
            Event::Text { content } => self.append(Kind::Text, content, &mut out),
            Event::Thinking { content } => self.append(Kind::Reasoning, content, &mut out),
            // AG-UI clients expect a message to end before anything else begins.
            other => {
                self.close(&mut out);
                self.translate_step(other, &mut out);
            }
        }
        out
    }

    /// Appends to the open message of this kind, or to a new one.
    fn append(&mut self, kind: Kind, delta: String, out: &mut Vec<Value>) {
        // AG-UI clients reject an empty delta.
        if delta.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(out);
            self.begin(kind, out);
        }
        let Some(OpenMessage { id, .. }) = &self.open else {
            return;
        };
        let name = match kind {
            Kind::Text => "TEXT_MESSAGE_CONTENT",
            Kind::Reasoning => "REASONING_MESSAGE_CONTENT",
        };
        out.push(json!({ "type": name, "messageId": id, "delta": delta }));
    }

    fn begin(&mut self, kind: Kind, out: &mut Vec<Value>) {
        let id = self.next_message_id();
        match kind {
            Kind::Text => out.push(
                json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }),
            ),
            Kind::Reasoning => out.extend([
                json!({ "type": "REASONING_START", "messageId": id }),
                json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
            ]),
        }
        self.open = Some(OpenMessage { kind, id });
    }

    fn close(&mut self, out: &mut Vec<Value>) {
        let Some(OpenMessage { kind, id }) = self.open.take() else {
            return;
        };
        match kind {
            Kind::Text => out.push(json!({ "type": "TEXT_MESSAGE_END", "messageId": id })),
            Kind::Reasoning => out.extend([
                json!({ "type": "REASONING_MESSAGE_END", "messageId": id }),
                json!({ "type": "REASONING_END", "messageId": id }),
            ]),
        }
    }

    fn translate_step(&mut self, event: Event, out: &mut Vec<Value>) {
        match event {
            Event::ToolCall { id, name, arguments } => out.extend([
                json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name }),
                json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments.to_string() }),
                json!({ "type": "TOOL_CALL_END", "toolCallId": id }),
            ]),
            Event::ToolResult { id, content, .. } => {
                let message_id = self.next_message_id();
                out.push(json!({
                    "type": "TOOL_CALL_RESULT", "messageId": message_id, "toolCallId": id, "content": content,
                    "role": "tool",
                }));
            }
            // Sent with the end of the run: an AG-UI client accepts nothing after RUN_ERROR.
            Event::Error { content } => self.error = Some(content),
            Event::Done { status, figures, turn, .. } => {
                let result = json!({ "status": status, "turn": turn, "figures": figures });
                out.push(self.end(status, result));
            }
            other => {
                let name = other.name();
                out.push(json!({ "type": "CUSTOM", "name": name, "value": without_type(&other) }));
            }
        }
    }

    fn end(&mut self, status: TurnStatus, result: Value) -> Value {
        let (thread_id, run_id) = (&self.thread_id, &self.run_id);
        match status {
            TurnStatus::Answered | TurnStatus::Stopped => {
                json!({ "type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, "result": result })
            }
            _ => {
                let message = self.error.take().unwrap_or_else(|| "the run failed".into());
                json!({ "type": "RUN_ERROR", "message": message, "code": status.name() })
            }
        }
    }

    fn next_message_id(&mut self) -> String {
        self.messages += 1;
        format!("{}-{}", self.run_id, self.messages)
    }
}

fn without_type(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("type");
    }
    value
}

#[cfg(test)]
mod tests {
    use toolscout_index::ToolId;

    use super::*;
    use toolscout_agent::event::ToolBudget;
    use toolscout_gate::tools::Status;
    use toolscout_state::session::Figures;

    fn done(status: TurnStatus) -> Event {
        Event::Done {
            conversation: "t".into(),
            turn: 1,
            status,
            figures: Box::new(Figures::default()),
        }
    }

    fn text(content: &str) -> Event {
        Event::Text {
            content: content.into(),
        }
    }

    fn types(events: Vec<Event>) -> Vec<String> {
        let mut ag_ui = AgUi::new("t", Some("r".into()));
        let translated = events.into_iter().flat_map(|event| ag_ui.translate(event));
        translated
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn messages_have_a_start_and_an_end() {
        let result = Event::ToolResult {
            id: "c".into(),
            name: "f".into(),
            status: Status::Ok,
            error_code: None,
            content: "r".into(),
            took_ms: 1,
            truncated_from_bytes: None,
        };
        let events = vec![
            Event::Thinking {
                content: "hm".into(),
            },
            text("so"),
            text(""),
            text(" it"),
            Event::ToolCall {
                id: "c".into(),
                name: "f".into(),
                arguments: json!({}),
            },
            result,
            Event::ToolsInjected {
                tools: vec![ToolId::parse("a").unwrap()],
                tokens: 1,
                tokens_by_tool: Vec::new(),
                budget: ToolBudget {
                    used: 1,
                    limit: None,
                },
            },
            text("is"),
            done(TurnStatus::Answered),
        ];
        assert_eq!(
            types(events),
            [
                "RUN_STARTED",
                "REASONING_START",
                "REASONING_MESSAGE_START",
                "REASONING_MESSAGE_CONTENT",
                "REASONING_MESSAGE_END",
                "REASONING_END",
                "TEXT_MESSAGE_START",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_END",
                "TOOL_CALL_START",
                "TOOL_CALL_ARGS",
                "TOOL_CALL_END",
                "TOOL_CALL_RESULT",
                "CUSTOM",
                "TEXT_MESSAGE_START",
                "TEXT_MESSAGE_CONTENT",
                "TEXT_MESSAGE_END",
                "RUN_FINISHED",
            ]
        );
    }

    #[test]
    fn a_failed_run_ends_with_its_error() {
        let events = vec![
            text("half"),
            Event::Error {
                content: "down".into(),
            },
            done(TurnStatus::Failed),
        ];
        assert_eq!(types(events).last().unwrap(), "RUN_ERROR");
        let mut ag_ui = AgUi::new("t", None);
        ag_ui.translate(Event::Error {
            content: "down".into(),
        });
        assert_eq!(
            ag_ui.translate(done(TurnStatus::Failed))[0]["message"],
            "down"
        );
    }

    #[test]
    fn the_question_is_the_last_user_message() {
        let input = |messages: Value| -> RunInput {
            serde_json::from_value(
                json!({ "threadId": "t", "runId": "r", "state": {}, "tools": [], "messages": messages }),
            )
            .unwrap()
        };
        let question = |messages| input(messages).question();
        let user = |content: Value| json!({ "id": "1", "role": "user", "content": content });
        assert_eq!(
            question(json!([user("a".into()), { "role": "assistant", "content": "b" }])).as_deref(),
            Some("a")
        );
        assert_eq!(
            question(json!([user(json!([{ "type": "text", "text": "c" }]))])).as_deref(),
            Some("c")
        );
        assert_eq!(question(json!([user(" ".into())])), None);
        assert_eq!(question(json!([])), None);
    }
}
