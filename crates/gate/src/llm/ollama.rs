//! The format of Ollama's own chat API. It alone sets the context of a model (`num_ctx`): the API
//! like OpenAI's, which Ollama has too, ignores that.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::llm::event::parse_event;
use crate::llm::{CallFragment, ChatRequest, Delta, LlmError, Message, ToolCall, ToolSpec, Usage};

/// The body of a request, with further fields.
pub fn body(request: &ChatRequest, mut body: Map<String, Value>) -> Value {
    body.insert("messages".into(), wire_messages(&request.messages).into());
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(ToolSpec::to_json);
        body.insert("tools".into(), tools.collect());
    }
    Value::Object(body)
}

/// The messages. A result names the tool that was called and not the call.
fn wire_messages(messages: &[Message]) -> Vec<Value> {
    let mut called: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wire = Vec::with_capacity(messages.len());
    for message in messages {
        wire.push(match message {
            Message::System { content } => json!({ "role": "system", "content": content }),
            Message::User { content } => json!({ "role": "user", "content": content }),
            Message::Assistant {
                content,
                tool_calls,
            } => {
                let names = tool_calls.iter().map(|call| (&*call.id, &*call.name));
                called.extend(names);
                assistant(content, tool_calls)
            }
            Message::Tool {
                tool_call_id,
                content,
            } => {
                let name = called.get(tool_call_id.as_str());
                json!({ "role": "tool", "content": content, "tool_name": name })
            }
        });
    }
    wire
}

fn assistant(content: &str, tool_calls: &[ToolCall]) -> Value {
    let mut message = json!({ "role": "assistant", "content": content });
    if !tool_calls.is_empty() {
        message["tool_calls"] = tool_calls.iter().map(wire_call).collect();
    }
    message
}

fn wire_call(call: &ToolCall) -> Value {
    // The API takes an object only. What the model wrote instead was answered with an error, which
    // it shall still understand.
    let arguments = match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ if call.arguments.trim().is_empty() => json!({}),
        _ => json!({ "invalid_arguments": call.arguments }),
    };
    json!({ "function": { "name": call.name, "arguments": arguments } })
}

/// Decodes the lines of one answer.
#[derive(Debug, Default)]
pub struct EventDecoder {
    /// Calls so far: they come whole, without a number.
    calls: usize,
}

impl EventDecoder {
    /// The deltas of one line, or of an answer that is not streamed.
    ///
    /// # Errors
    /// As [`parse_event`].
    pub fn deltas(&mut self, line: &str) -> Result<Vec<Delta>, LlmError> {
        let line = parse_event(line)?;
        let mut deltas = Vec::new();
        let message = &line["message"];
        deltas.extend(some_text(&message["thinking"]).map(Delta::Thinking));
        deltas.extend(some_text(&message["content"]).map(Delta::Text));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            deltas.push(Delta::Call(self.fragment(&call["function"])));
        }
        if line["done"] == true {
            let reason = line["done_reason"].as_str().unwrap_or("stop");
            deltas.push(Delta::Finish(reason.to_owned()));
            deltas.extend(usage_of(&line).map(Delta::Usage));
        }
        Ok(deltas)
    }

    fn fragment(&mut self, function: &Value) -> CallFragment {
        let index = self.calls;
        self.calls += 1;
        CallFragment {
            index: Some(index),
            id: None,
            name: function["name"].as_str().map(str::to_owned),
            // Ollama gives an object, but a text is taken too.
            arguments: match function.get("arguments") {
                Some(Value::String(text)) => Some(text.clone()),
                Some(arguments) => Some(arguments.to_string()),
                None => None,
            },
        }
    }
}

/// A text that is not empty: each line of an answer has an empty `content` at least.
fn some_text(value: &Value) -> Option<String> {
    match value.as_str()? {
        "" => None,
        text => Some(text.to_owned()),
    }
}

fn usage_of(line: &Value) -> Option<Usage> {
    Some(Usage {
        // Absent where all of the prompt was in Ollama's cache.
        input: line["prompt_eval_count"].as_u64()?,
        output: line["eval_count"].as_u64().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{Api, ToolSpec};

    #[test]
    fn a_request_has_the_format_of_the_api() {
        let call = |id: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: arguments.into(),
        };
        let request = ChatRequest {
            messages: vec![
                Message::user("q"),
                Message::Assistant {
                    content: String::new(),
                    tool_calls: vec![call("c1", r#"{"a":1}"#), call("c2", "{a")],
                },
                Message::Tool {
                    tool_call_id: "c1".into(),
                    content: "r".into(),
                },
            ],
            tools: vec![ToolSpec::new("f", "d", json!({}))],
            ..ChatRequest::default()
        };
        let mut parameters = Map::new();
        parameters.insert("options".into(), json!({ "num_ctx": 9000 }));
        let body = Api::Ollama.body(&request, "m", &parameters);
        assert_eq!(
            body["messages"],
            json!([
                { "role": "user", "content": "q" },
                { "role": "assistant", "content": "", "tool_calls": [
                    { "function": { "name": "f", "arguments": { "a": 1 } } },
                    { "function": { "name": "f", "arguments": { "invalid_arguments": "{a" } } },
                ] },
                { "role": "tool", "content": "r", "tool_name": "f" },
            ])
        );
        assert_eq!(body["options"]["num_ctx"], 9000);
        assert_eq!(body["tools"][0]["function"]["name"], "f");
        assert_eq!(
            (&body["model"], &body["stream"]),
            (&json!("m"), &json!(true))
        );
    }

    #[test]
    fn lines_give_their_deltas_in_order() {
        let mut decoder = EventDecoder::default();
        let line = r#"{"message":{"role":"assistant","content":"hi","thinking":"hm","tool_calls":[
            {"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}]},"done":false}"#;
        let call = |index, name: &str, arguments: &str| {
            Delta::Call(CallFragment {
                index: Some(index),
                id: None,
                name: Some(name.into()),
                arguments: Some(arguments.into()),
            })
        };
        assert_eq!(
            decoder.deltas(line).unwrap(),
            [
                Delta::Thinking("hm".into()),
                Delta::Text("hi".into()),
                call(0, "f", r#"{"a":1}"#),
                call(1, "g", "{}"),
            ]
        );
        let last = r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"length",
            "prompt_eval_count":5,"eval_count":2}"#;
        let usage = Usage {
            input: 5,
            output: 2,
        };
        assert_eq!(
            decoder.deltas(last).unwrap(),
            [Delta::Finish("length".into()), Delta::Usage(usage)]
        );
        assert!(matches!(
            decoder.deltas(r#"{"error":"model is away"}"#).unwrap_err(),
            LlmError::Reported { .. }
        ));
    }
}
