//! The format of Anthropic's messages.

use serde_json::{Map, Value, json};

use crate::llm::event::parse_event;
use crate::llm::{
    CallFragment, ChatRequest, Delta, LlmError, Message, ToolCall, ToolChoice, ToolSpec, Usage,
};

/// The version of the API, which each request names.
pub const VERSION: &str = "2023-06-01";
/// Most tokens of an answer, unless the parameters say otherwise: the API wants a number.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// The body of a request, with further fields.
pub fn body(request: &ChatRequest, mut body: Map<String, Value>) -> Value {
    body.entry("max_tokens")
        .or_insert(DEFAULT_MAX_TOKENS.into());
    let system = system_blocks(&request.messages);
    if !system.is_empty() {
        body.insert("system".into(), system.into());
    }
    body.insert("messages".into(), turns(&request.messages).into());
    let mut tools: Vec<Value> = request.tools.iter().map(wire_tool).collect();
    let mut choice = request.tool_choice;
    if tools.is_empty() {
        // A conversation with calls is refused without tools.
        let called = called_tools(&request.messages);
        tools = called.iter().map(wire_tool).collect();
        choice = ToolChoice::None;
    }
    if tools.is_empty() {
        return Value::Object(body);
    }
    // Found tools are added at the end. With a mark of its own, the list before them is still cached
    // in the next request, though instructions and messages are not.
    keep_until(tools.last_mut());
    body.insert("tools".into(), tools.into());
    if choice == ToolChoice::None {
        body.insert("tool_choice".into(), json!({ "type": "none" }));
    }
    Value::Object(body)
}

/// The instructions, which are no messages. Tools and instructions are the same in the next round,
/// so the provider is told to keep what it computed of them.
fn system_blocks(messages: &[Message]) -> Vec<Value> {
    let mut blocks = Vec::new();
    for message in messages {
        if let Message::System { content } = message {
            blocks.extend(text_block(content));
        }
    }
    keep_until(blocks.last_mut());
    blocks
}

/// Marks the end of a prompt's beginning that the next request will have too.
fn keep_until(block: Option<&mut Value>) {
    if let Some(block) = block {
        block["cache_control"] = json!({ "type": "ephemeral" });
    }
}

/// The messages, in which user and assistant take turns.
fn turns(messages: &[Message]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::System { .. } => continue,
            Message::User { content } => ("user", Vec::from_iter(text_block(content))),
            Message::Assistant {
                content,
                tool_calls,
            } => {
                let mut blocks = Vec::from_iter(text_block(content));
                blocks.extend(tool_calls.iter().map(wire_call));
                ("assistant", blocks)
            }
            Message::Tool {
                tool_call_id,
                content,
            } => ("user", vec![result_block(tool_call_id, content)]),
        };
        match turns.last_mut() {
            // The results of all calls of one answer belong into one message.
            Some((last, all)) if *last == role => all.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => turns.push((role, blocks)),
        }
    }
    if let Some((_, blocks)) = turns.last_mut() {
        keep_until(blocks.last_mut());
    }
    let mut messages = Vec::with_capacity(turns.len());
    for (role, blocks) in turns {
        messages.push(json!({ "role": role, "content": blocks }));
    }
    messages
}

/// A block of text; `None` for an empty one, which the API refuses.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn result_block(call_id: &str, content: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": accepted_id(call_id), "content": content })
}

fn wire_call(call: &ToolCall) -> Value {
    // The API takes an object only. What the model wrote instead was answered with an error, which
    // it shall still understand.
    let input = match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ if call.arguments.trim().is_empty() => json!({}),
        _ => json!({ "invalid_arguments": call.arguments }),
    };
    json!({ "type": "tool_use", "id": accepted_id(&call.id), "name": call.name, "input": input })
}

/// An id in the characters that the API accepts; another model may have made it.
fn accepted_id(id: &str) -> String {
    id.replace(
        |letter: char| !letter.is_ascii_alphanumeric() && letter != '-',
        "_",
    )
}

fn wire_tool(tool: &ToolSpec) -> Value {
    let mut schema = tool.parameters.clone();
    // The API wants the type of the arguments, which some servers leave out.
    schema.entry("type").or_insert("object".into());
    json!({ "name": tool.name, "description": tool.description, "input_schema": schema })
}

/// The tools that were called, by name alone.
fn called_tools(messages: &[Message]) -> Vec<ToolSpec> {
    let mut tools: Vec<ToolSpec> = Vec::new();
    for message in messages {
        let Message::Assistant { tool_calls, .. } = message else {
            continue;
        };
        for call in tool_calls {
            if !tools.iter().any(|tool| tool.name == call.name) {
                tools.push(ToolSpec::new(&call.name, "", json!({})));
            }
        }
    }
    tools
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub struct EventDecoder {
    usage: Usage,
}

impl EventDecoder {
    /// The deltas of one event, or of an answer that is not streamed.
    ///
    /// # Errors
    /// As [`parse_event`].
    pub fn deltas(&mut self, event: &str) -> Result<Vec<Delta>, LlmError> {
        let event = parse_event(event)?;
        let index = event["index"].as_u64().map(usize::try_from);
        let index = index.and_then(Result::ok);
        let mut deltas = Vec::new();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.count(&event["message"]["usage"]),
            "content_block_start" => deltas.extend(block_delta(index, &event["content_block"])),
            "content_block_delta" => deltas.extend(fragment_delta(index, &event["delta"])),
            "message_delta" => {
                deltas.extend(finish_delta(&event["delta"]));
                self.count(&event["usage"]);
                deltas.push(Delta::Usage(self.usage));
            }
            "message" => {
                let blocks = event["content"].as_array().into_iter().flatten();
                for (index, block) in blocks.enumerate() {
                    deltas.extend(block_delta(Some(index), block));
                    deltas.extend(input_delta(index, block));
                }
                deltas.extend(finish_delta(&event));
                self.count(&event["usage"]);
                deltas.push(Delta::Usage(self.usage));
            }
            // `ping`, `content_block_stop`, `message_stop`, and what is not invented yet.
            _ => {}
        }
        Ok(deltas)
    }

    /// Takes the counts of an event. Tokens from the provider's cache are counted apart, though
    /// they are part of the prompt.
    fn count(&mut self, usage: &Value) {
        const PROMPT: [&str; 3] = [
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        ];
        let input: u64 = PROMPT.iter().filter_map(|name| usage[*name].as_u64()).sum();
        // The last event may have the answer's tokens only.
        self.usage.input = self.usage.input.max(input);
        self.usage.output = usage["output_tokens"].as_u64().unwrap_or(self.usage.output);
    }
}

/// The beginning of a block; it may have text already.
fn block_delta(index: Option<usize>, block: &Value) -> Option<Delta> {
    match block["type"].as_str()? {
        "text" => some_text(&block["text"]).map(Delta::Text),
        "thinking" => some_text(&block["thinking"]).map(Delta::Thinking),
        "tool_use" => Some(Delta::Call(CallFragment {
            index,
            id: some_text(&block["id"]),
            name: some_text(&block["name"]),
            arguments: None,
        })),
        _ => None,
    }
}

/// A text that is not empty.
fn some_text(value: &Value) -> Option<String> {
    text(value).filter(|text| !text.is_empty())
}

/// The arguments of a call that came whole.
fn input_delta(index: usize, block: &Value) -> Option<Delta> {
    if block["type"] != "tool_use" {
        return None;
    }
    let input = block.get("input")?;
    Some(Delta::Call(CallFragment {
        index: Some(index),
        arguments: Some(input.to_string()),
        ..CallFragment::default()
    }))
}

/// A further piece of a block.
fn fragment_delta(index: Option<usize>, delta: &Value) -> Option<Delta> {
    match delta["type"].as_str()? {
        "text_delta" => text(&delta["text"]).map(Delta::Text),
        "thinking_delta" => text(&delta["thinking"]).map(Delta::Thinking),
        "input_json_delta" => Some(Delta::Call(CallFragment {
            index,
            arguments: text(&delta["partial_json"]),
            ..CallFragment::default()
        })),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Why the model ended, in OpenAI's words where they have one.
fn finish_delta(message: &Value) -> Option<Delta> {
    let reason = message["stop_reason"].as_str()?;
    let reason = match reason {
        "end_turn" | "stop_sequence" => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" => "length",
        other => other,
    };
    Some(Delta::Finish(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::Api;
    use crate::llm::stream::ReplyDecoder;

    fn call(id: &str, arguments: &str) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: arguments.into(),
        }
    }

    fn conversation() -> Vec<Message> {
        vec![
            Message::system("Be brief."),
            Message::user("q"),
            Message::Assistant {
                content: String::new(),
                tool_calls: vec![call("c:1", "{\"a\":1}"), call("c2", "{a")],
            },
            Message::Tool {
                tool_call_id: "c:1".into(),
                content: "r1".into(),
            },
            Message::Tool {
                tool_call_id: "c2".into(),
                content: "not JSON".into(),
            },
            Message::user("and now?"),
        ]
    }

    fn body_of(messages: Vec<Message>, tools: Vec<ToolSpec>) -> Value {
        let request = ChatRequest {
            messages,
            tools,
            ..ChatRequest::default()
        };
        Api::Anthropic.body(&request, "m", &Map::new())
    }

    #[test]
    fn a_request_has_the_format_of_the_api() {
        let tool = ToolSpec::new("f", "d", json!({ "properties": {} }));
        let body = body_of(conversation(), vec![tool]);
        let cached = json!({ "type": "ephemeral" });
        assert_eq!(
            body["system"],
            json!([{ "type": "text", "text": "Be brief.", "cache_control": cached }])
        );
        assert_eq!(
            body["messages"],
            json!([
                { "role": "user", "content": [{ "type": "text", "text": "q" }] },
                { "role": "assistant", "content": [
                    { "type": "tool_use", "id": "c_1", "name": "f", "input": { "a": 1 } },
                    { "type": "tool_use", "id": "c2", "name": "f", "input": { "invalid_arguments": "{a" } },
                ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "c_1", "content": "r1" },
                    { "type": "tool_result", "tool_use_id": "c2", "content": "not JSON" },
                    { "type": "text", "text": "and now?", "cache_control": cached },
                ] },
            ])
        );
        assert_eq!(
            body["tools"],
            json!([{
                "name": "f", "description": "d",
                "input_schema": { "properties": {}, "type": "object" },
                "cache_control": cached,
            }])
        );
        assert_eq!(
            (&body["max_tokens"], &body["stream"]),
            (&json!(8192), &json!(true))
        );
    }

    #[test]
    fn without_tools_those_called_before_are_named_and_none_may_be_called() {
        let body = body_of(conversation(), Vec::new());
        assert_eq!(body["tools"][0]["name"], "f");
        assert_eq!(body["tools"].as_array().map(Vec::len), Some(1));
        assert_eq!(body["tool_choice"], json!({ "type": "none" }));
        let first = body_of(vec![Message::user("q")], Vec::new());
        assert!(first.get("tools").is_none() && first.get("tool_choice").is_none());
    }

    const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}

event: message_stop
data: {"type":"message_stop"}

"#;

    fn fragment(id: Option<&str>, arguments: Option<&str>) -> Delta {
        Delta::Call(CallFragment {
            index: Some(1),
            id: id.map(str::to_owned),
            name: id.map(|_| "f".to_owned()),
            arguments: arguments.map(str::to_owned),
        })
    }

    #[test]
    fn a_stream_gives_its_deltas_in_order() {
        let mut decoder = ReplyDecoder::new(Api::Anthropic);
        let deltas = decoder.push(STREAM.as_bytes()).unwrap();
        let usage = Usage {
            input: 100,
            output: 7,
        };
        assert_eq!(
            deltas,
            [
                Delta::Text("hi".into()),
                fragment(Some("c1"), None),
                fragment(None, Some("{\"a\":")),
                fragment(None, Some("1}")),
                Delta::Finish("tool_calls".into()),
                Delta::Usage(usage),
            ]
        );
        assert_eq!(decoder.finish(), Ok(Vec::new()));
    }

    #[test]
    fn an_answer_that_is_not_streamed_gives_the_same() {
        let answer = json!({
            "type": "message", "stop_reason": "tool_use",
            "content": [{ "type": "text", "text": "hi" }, { "type": "tool_use", "id": "c1", "name": "f", "input": { "a": 1 } }],
            "usage": { "input_tokens": 100, "output_tokens": 7 },
        });
        let deltas = ReplyDecoder::new(Api::Anthropic)
            .whole(&answer.to_string())
            .unwrap();
        assert_eq!(deltas[0], Delta::Text("hi".into()));
        assert_eq!(deltas[1], fragment(Some("c1"), None));
        assert_eq!(deltas[2], fragment(None, Some("{\"a\":1}")));
        assert_eq!(deltas[3], Delta::Finish("tool_calls".into()));
    }

    #[test]
    fn an_error_in_the_stream_and_a_missing_end_are_reported() {
        let error =
            r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let mut decoder = ReplyDecoder::new(Api::Anthropic);
        let reported = decoder.push(format!("{error}\n\n").as_bytes()).unwrap_err();
        assert!(reported.to_string().contains("Overloaded"), "{reported}");

        let mut decoder = ReplyDecoder::new(Api::Anthropic);
        let half = STREAM.find("event: message_delta").unwrap();
        decoder.push(&STREAM.as_bytes()[..half]).unwrap();
        assert!(matches!(decoder.finish(), Err(LlmError::CutOff { .. })));
    }
}
