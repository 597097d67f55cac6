//! The format of OpenAI's chat completions, which most servers of models have.

use serde_json::{Map, Value, json};

use crate::llm::event::parse_event;
use crate::llm::{
    CallFragment, ChatRequest, Delta, LlmError, Message, ToolCall, ToolChoice, ToolSpec, Usage,
};

/// The body of a request, with further fields.
pub fn body(request: &ChatRequest, mut body: Map<String, Value>) -> Value {
    body.insert("messages".into(), wire_messages(&request.messages).into());
    // OpenAI rejects an empty list, of tools here and of an assistant's calls below.
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(ToolSpec::to_json);
        body.insert("tools".into(), tools.collect());
        if request.tool_choice == ToolChoice::None {
            body.insert("tool_choice".into(), "none".into());
        }
    }
    body.insert("stream".into(), true.into());
    // Without it OpenAI's streams contain no token counts.
    body.insert("stream_options".into(), json!({ "include_usage": true }));
    Value::Object(body)
}

/// The messages. Those of the user that follow each other become one, since the templates of some
/// models require that user and assistant take turns.
fn wire_messages(messages: &[Message]) -> Vec<Value> {
    let mut wire = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some(message) = rest.first() {
        let users: Vec<&str> = rest.iter().map_while(user_text).collect();
        rest = &rest[users.len().max(1)..];
        wire.push(if users.is_empty() {
            wire_message(message)
        } else {
            json!({ "role": "user", "content": users.join("\n\n") })
        });
    }
    wire
}

fn user_text(message: &Message) -> Option<&str> {
    match message {
        Message::User { content } => Some(content),
        _ => None,
    }
}

fn wire_message(message: &Message) -> Value {
    match message {
        Message::System { content } => json!({ "role": "system", "content": content }),
        Message::User { content } => json!({ "role": "user", "content": content }),
        Message::Assistant {
            content,
            tool_calls,
        } if tool_calls.is_empty() => {
            json!({ "role": "assistant", "content": content })
        }
        Message::Assistant {
            content,
            tool_calls,
        } => json!({
            "role": "assistant",
            "content": content,
            "tool_calls": tool_calls.iter().map(wire_call).collect::<Vec<_>>(),
        }),
        Message::Tool {
            tool_call_id,
            content,
        } => {
            json!({ "role": "tool", "tool_call_id": tool_call_id, "content": content })
        }
    }
}

fn wire_call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

/// The deltas of one chunk, or of an answer that is not streamed.
///
/// # Errors
/// As [`parse_event`].
pub fn deltas_of(chunk: &str) -> Result<Vec<Delta>, LlmError> {
    let chunk = parse_event(chunk)?;
    let mut deltas = Vec::new();
    // Only the first choice: a request never asks for more than one.
    if let Some(choice) = chunk.pointer("/choices/0") {
        choice_deltas(choice, &mut deltas);
    }
    deltas.extend(usage_of(&chunk).map(Delta::Usage));
    Ok(deltas)
}

fn choice_deltas(choice: &Value, deltas: &mut Vec<Delta>) {
    // A server that does not stream sends `message` where a chunk has `delta`.
    let Some(delta) = choice.get("delta").or(choice.get("message")) else {
        return;
    };
    // `reasoning_content` is DeepSeek's and llama.cpp's name for it, `reasoning` OpenRouter's and
    // newer vLLM's.
    let thinking = some_text(delta, "reasoning_content").or(some_text(delta, "reasoning"));
    deltas.extend(thinking.map(Delta::Thinking));
    deltas.extend(some_text(delta, "content").map(Delta::Text));
    let calls = delta.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        deltas.push(Delta::Call(call_fragment(call)));
    }
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        deltas.push(Delta::Finish(reason.to_owned()));
    }
}

/// A fragment of a call in a chunk, or a call of a message that came whole.
pub fn call_fragment(call: &Value) -> CallFragment {
    // Some servers leave out the `function` object around name and arguments.
    let function = call.get("function").unwrap_or(call);
    let index = call.get("index").and_then(Value::as_u64);
    CallFragment {
        index: index.map(usize::try_from).and_then(Result::ok),
        id: some_text(call, "id"),
        name: some_text(function, "name"),
        // Some gateways send the arguments as the object itself.
        arguments: match function.get("arguments") {
            Some(Value::String(text)) => Some(text.clone()),
            None | Some(Value::Null) => None,
            Some(other) => Some(other.to_string()),
        },
    }
}

/// A field's text that is not empty: some servers send `""` where others leave a field out.
fn some_text(object: &Value, field: &str) -> Option<String> {
    match object.get(field)?.as_str()? {
        "" => None,
        text => Some(text.to_owned()),
    }
}

fn usage_of(chunk: &Value) -> Option<Usage> {
    // Usually in a last chunk without choices. Counts of another form are ignored, and the agent
    // estimates the tokens.
    let usage = chunk.get("usage").filter(|usage| usage.is_object())?;
    serde_json::from_value(usage.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{Api, ToolSpec};

    #[test]
    fn a_chunk_gives_its_deltas_in_order() {
        let chunk = r#"{"choices":[{"delta":{"reasoning_content":"hm","content":"hi","tool_calls":[
            {"index":1,"id":"c1","function":{"name":"f","arguments":"{\"a\""}},
            {"function":{"arguments":{"b":1}}}]},"finish_reason":"tool_calls"}],
            "usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
        let call = |index, id: Option<&str>, name: Option<&str>, arguments: &str| {
            Delta::Call(CallFragment {
                index,
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                arguments: Some(arguments.to_owned()),
            })
        };
        assert_eq!(
            deltas_of(chunk).unwrap(),
            [
                Delta::Thinking("hm".into()),
                Delta::Text("hi".into()),
                call(Some(1), Some("c1"), Some("f"), "{\"a\""),
                call(None, None, None, "{\"b\":1}"),
                Delta::Finish("tool_calls".into()),
                Delta::Usage(Usage {
                    input: 5,
                    output: 2
                }),
            ]
        );
    }

    #[test]
    fn malformed_and_reported_errors_are_distinguished() {
        assert!(matches!(
            deltas_of("<html>").unwrap_err(),
            LlmError::Malformed { .. }
        ));
        assert!(matches!(
            deltas_of("[1]").unwrap_err(),
            LlmError::Malformed { .. }
        ));
        let error =
            deltas_of(r#"{"error":{"message":"context too long","code":400}}"#).unwrap_err();
        assert_eq!(
            error,
            LlmError::Reported {
                url: String::new(),
                message: "context too long".into()
            }
        );
    }

    #[test]
    fn a_request_has_the_format_of_the_api() {
        let call = ToolCall {
            id: "c1".into(),
            name: "f".into(),
            arguments: "{}".into(),
        };
        let request = ChatRequest {
            messages: vec![
                Message::user("q"),
                Message::Assistant {
                    content: String::new(),
                    tool_calls: vec![call],
                },
                Message::Tool {
                    tool_call_id: "c1".into(),
                    content: "r".into(),
                },
            ],
            tools: vec![ToolSpec {
                name: "f".into(),
                description: "d".into(),
                parameters: Map::new(),
            }],
            ..ChatRequest::default()
        };
        let mut parameters = Map::new();
        parameters.insert("temperature".into(), 0.into());
        let body = Api::OpenAi.body(&request, "m", &parameters);
        assert_eq!(
            body["messages"][1]["tool_calls"][0]["function"]["name"],
            "f"
        );
        assert_eq!(body["messages"][2]["tool_call_id"], "c1");
        assert_eq!(body["tools"][0]["function"]["description"], "d");
        assert_eq!(
            (&body["temperature"], &body["stream"]),
            (&json!(0), &json!(true))
        );
        let without_tools = Api::OpenAi.body(&ChatRequest::default(), "m", &parameters);
        assert!(without_tools.get("tools").is_none());
    }

    #[test]
    fn in_the_last_round_tools_stay_and_must_not_be_called() {
        let mut request = ChatRequest {
            tools: vec![ToolSpec::new("f", "d", json!({}))],
            tool_choice: ToolChoice::None,
            ..ChatRequest::default()
        };
        let body = Api::OpenAi.body(&request, "m", &Map::new());
        assert_eq!(body["tool_choice"], "none");
        assert_eq!(body["tools"][0]["function"]["name"], "f");
        request.tool_choice = ToolChoice::Auto;
        let body = Api::OpenAi.body(&request, "m", &Map::new());
        assert!(body.get("tool_choice").is_none());
    }

    #[test]
    fn messages_of_the_user_that_follow_each_other_become_one() {
        let messages = [
            Message::system("s"),
            Message::user("a"),
            Message::user("b"),
            Message::assistant("c"),
            Message::user("d"),
        ];
        assert_eq!(
            wire_messages(&messages),
            [
                json!({ "role": "system", "content": "s" }),
                json!({ "role": "user", "content": "a\n\nb" }),
                json!({ "role": "assistant", "content": "c" }),
                json!({ "role": "user", "content": "d" }),
            ]
        );
    }
}
