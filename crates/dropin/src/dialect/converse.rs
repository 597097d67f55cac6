//! Amazon Bedrock's `Converse` and `ConverseStream`.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    CallResult, Failure, Fields, Frame, HiddenTools, Item, ModelCall, OfferedTool, Protocol, Round,
    StreamedAnswer, ToolKind, View, WholeAnswer, add_usage, event_value, malformed_body,
    object_field, take_deferral, text_field, whole_value, with_results,
};
use crate::wire::{event_stream, json};
use toolscout_gate::llm::ToolSpec;

/// The field with the tools and the choice among them.
const CONFIG: &str = "toolConfig";

/// The body of an error.
pub fn error(failure: &Failure) -> Value {
    let kind = match failure.status {
        400 | 405 | 411 | 413 | 415 | 422 => "ValidationException",
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        504 => "ModelTimeoutException",
        _ => "InternalServerException",
    };
    json!({ "__type": kind, "message": failure.message })
}

/// An error within a stream.
pub fn error_event(failure: &Failure) -> Bytes {
    let kind = match failure.status {
        400..=428 => "validationException",
        429 => "throttlingException",
        503 => "serviceUnavailableException",
        500 => "internalServerException",
        _ => "modelStreamErrorException",
    };
    event_stream::exception(kind, &json!({ "message": failure.message }).to_string())
}

pub struct Converse;

impl Protocol for Converse {
    fn conversation_field(&self) -> &'static str {
        "messages"
    }

    fn can_hide_rounds(&self, _request: &Fields) -> bool {
        true
    }

    fn tools(&self, request: &Fields) -> Option<Bytes> {
        Fields::read(request.get(CONFIG)?)?.get("tools").cloned()
    }

    fn set_tools(&self, request: &mut Fields, tools: Bytes) {
        let mut config = config_of(request);
        config.set("tools", tools);
        request.set(CONFIG, config.to_json());
    }

    fn tool(&self, json: &Bytes) -> OfferedTool {
        let mut offered = OfferedTool::hosted(json);
        let mut fields = Fields::read(json).unwrap_or_default();
        let Some(inside) = fields.get("toolSpec").cloned() else {
            // A mark of the prompt cache, or a tool that the provider runs.
            return offered;
        };
        let mut spec = Fields::read(&inside).unwrap_or_default();
        let (defer_loading, definition) = take_deferral(&mut spec, &inside);
        if defer_loading.is_some() {
            fields.set("toolSpec", definition);
            offered.json = fields.to_json();
            offered.defer_loading = defer_loading;
        }
        if let Some(name) = spec.text("name") {
            offered.kind = ToolKind::Function;
            offered.name = name;
        }
        offered
    }

    fn search_tool(&self, spec: &ToolSpec) -> Bytes {
        json::bytes(&json!({ "toolSpec": {
            "name": spec.name,
            "description": spec.description,
            "inputSchema": { "json": spec.parameters },
        } }))
    }

    fn choice(&self, request: &Fields) -> Value {
        config_of(request).value("toolChoice").unwrap_or_default()
    }

    fn chosen_tools(&self, choice: &Value) -> Vec<String> {
        match choice.get("tool") {
            Some(tool) => vec![text_field(tool, "name")],
            None => Vec::new(),
        }
    }

    /// No choice forbids all calls, so the model is at least not made to call.
    fn forbid_calls(&self, request: &mut Fields) {
        let mut config = config_of(request);
        config.set("toolChoice", Bytes::from_static(br#"{"auto":{}}"#));
        request.set(CONFIG, config.to_json());
    }

    fn item(&self, item: &Value) -> Item {
        let blocks = blocks_of(item);
        if item.get("role").and_then(Value::as_str) == Some("assistant") {
            return Item::OfModel {
                text: text_of(blocks),
                calls: calls_of(blocks),
            };
        }
        let (mut text, mut others) = (String::new(), Vec::new());
        for block in blocks {
            match block.get("text").and_then(Value::as_str) {
                Some(said) => text.push_str(said),
                // Clients move these marks from message to message.
                None if block.get("cachePoint").is_some() => {}
                None => others.push(json::canonical(block)),
            }
        }
        others.insert(0, text.into());
        Item::OfClient(json!(["user", others]))
    }

    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        if results.is_empty() {
            return Vec::new();
        }
        let blocks: Vec<Value> = results.iter().map(result_block).collect();
        vec![json::bytes(&json!({ "role": "user", "content": blocks }))]
    }

    /// All results of a round are in one message.
    fn results_before(&self, results: &[CallResult], next: Option<&Bytes>) -> (Vec<Bytes>, bool) {
        let next = next.and_then(Fields::read);
        let Some(message) = next.filter(|next| next.text("role").as_deref() == Some("user")) else {
            return (self.results(results), false);
        };
        let blocks = results.iter().map(result_block);
        (vec![with_results(message, "content", blocks)], true)
    }

    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer> {
        Box::new(Streamed {
            hidden: view.hidden,
            ..Streamed::default()
        })
    }

    fn whole(&self, view: View) -> Box<dyn WholeAnswer> {
        Box::new(Whole {
            hidden: view.hidden,
            ..Whole::default()
        })
    }
}

fn config_of(request: &Fields) -> Fields {
    request
        .get(CONFIG)
        .and_then(Fields::read)
        .unwrap_or_default()
}

fn result_block(result: &CallResult) -> Value {
    json!({ "toolResult": { "toolUseId": result.id, "content": [{ "text": result.text }] } })
}

fn blocks_of(message: &Value) -> &[Value] {
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.map_or(&[], Vec::as_slice)
}

fn text_of(blocks: &[Value]) -> String {
    let texts = blocks
        .iter()
        .filter_map(|block| block.get("text")?.as_str());
    texts.collect()
}

fn call_of(call: &Value) -> ModelCall {
    ModelCall {
        id: text_field(call, "toolUseId"),
        name: text_field(call, "name"),
        namespace: None,
        arguments: call
            .get("input")
            .cloned()
            .unwrap_or_else(|| json!({}))
            .to_string(),
    }
}

fn calls_of(blocks: &[Value]) -> Vec<ModelCall> {
    let calls = blocks.iter().filter_map(|block| block.get("toolUse"));
    calls.map(call_of).collect()
}

fn is_hidden(block: &Value, hidden: &HiddenTools) -> bool {
    let call = block.get("toolUse");
    call.is_some_and(|call| hidden.contains(&text_field(call, "name")))
}

fn is_complete(stop_reason: &str) -> bool {
    matches!(stop_reason, "end_turn" | "tool_use" | "stop_sequence")
}

fn round_of(hidden_tools: &HiddenTools, blocks: &[Value], stop_reason: Option<&str>) -> Round {
    let calls = calls_of(blocks).into_iter();
    let (hidden, calls) = calls.partition(|call| hidden_tools.contains(&call.name));
    // The provider accepts no text without any.
    let sent: Vec<&Value> = blocks
        .iter()
        .filter(|block| block.get("text") != Some(&json!("")))
        .collect();
    Round {
        hidden,
        calls,
        is_complete: stop_reason.is_none_or(is_complete),
        items: vec![json::bytes(
            &json!({ "role": "assistant", "content": sent }),
        )],
        text: text_of(blocks),
        response_id: None,
        referable: Vec::new(),
    }
}

/// An answer in events.
#[derive(Default)]
struct Streamed {
    hidden: HiddenTools,
    /// Whether the client got the beginning of the message.
    has_begun: bool,
    /// Blocks that the client got.
    blocks_sent: u64,
    rounds_before: usize,
    earlier_usage: Option<Value>,
    usage: Option<Value>,
    round: StreamedRound,
}

/// The round that is being read.
#[derive(Default)]
struct StreamedRound {
    /// The first event, until there is something to send.
    start: Option<Bytes>,
    blocks: Vec<Block>,
    calls: usize,
    /// The last events, by their names.
    closing: Vec<(String, Value, Bytes)>,
    stop_reason: Option<String>,
    usage: Option<Value>,
}

/// A block that is being read.
struct Block {
    index: u64,
    value: Value,
    /// The text of its input so far.
    input: String,
    /// Its place for the client; `None` where it does not see it.
    sent_as: Option<u64>,
}

impl Block {
    fn add(&mut self, delta: &Value) {
        if let Some(text) = delta.get("text").and_then(Value::as_str) {
            continue_text(&mut self.value["text"], text);
        }
        if let Some(call) = delta.get("toolUse") {
            self.input += &text_field(call, "input");
        }
        let Some(reasoning) = delta.get("reasoningContent") else {
            return;
        };
        let known = &mut self.value["reasoningContent"];
        if let Some(redacted) = reasoning.get("redactedContent") {
            known["redactedContent"] = redacted.clone();
        }
        for field in ["text", "signature"] {
            if let Some(text) = reasoning.get(field).and_then(Value::as_str) {
                continue_text(&mut known["reasoningText"][field], text);
            }
        }
    }

    /// The whole block.
    fn finished(&self) -> Value {
        let mut value = self.value.clone();
        if value.get("toolUse").is_some() {
            let input: Option<Value> = serde_json::from_str(&self.input).ok();
            value["toolUse"]["input"] = input.unwrap_or_else(|| json!({}));
        }
        value
    }

    /// The call with its arguments as the model wrote them.
    fn call(&self) -> ModelCall {
        let call = call_of(&self.value["toolUse"]);
        match self.input.is_empty() {
            true => call,
            false => ModelCall {
                arguments: self.input.clone(),
                ..call
            },
        }
    }
}

fn continue_text(known: &mut Value, more: &str) {
    match known {
        Value::String(text) => text.push_str(more),
        other => *other = more.into(),
    }
}

impl Streamed {
    /// The block of an event. Blocks of texts begin with their first part.
    fn block(&mut self, event: &Value) -> Option<&mut Block> {
        let index = index_of(event);
        if !self.round.blocks.iter().any(|block| block.index == index) {
            self.begin_block(index, json!({}));
        }
        self.round
            .blocks
            .iter_mut()
            .rfind(|block| block.index == index)
    }

    fn begin_block(&mut self, index: u64, value: Value) {
        let sent_as = match is_hidden(&value, &self.hidden) {
            true => None,
            // Blocks are numbered over all rounds, without the hidden ones.
            false => {
                self.blocks_sent += 1;
                Some(self.blocks_sent - 1)
            }
        };
        self.round.calls += usize::from(value.get("toolUse").is_some());
        self.round.blocks.push(Block {
            index,
            value,
            input: String::new(),
            sent_as,
        });
    }

    /// Sends an event of a block, if the client sees the block.
    fn send(&mut self, name: &str, mut event: Value, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        let index = index_of(&event);
        let block = self.round.blocks.iter().rfind(|block| block.index == index);
        let Some(sent_as) = block.and_then(|block| block.sent_as) else {
            return;
        };
        if !self.has_begun {
            self.has_begun = true;
            let start = self.round.start.take();
            out.push_back(start.unwrap_or_else(missing_start));
        }
        if sent_as == index {
            out.push_back(bytes);
            return;
        }
        event["contentBlockIndex"] = sent_as.into();
        out.push_back(event_stream::event(name, &event.to_string()));
    }

    fn sum_usage(&mut self) {
        let mut total = self.earlier_usage.clone();
        if let Some(usage) = &self.round.usage {
            add_usage(&mut total, usage);
        }
        self.usage = total;
    }
}

fn index_of(event: &Value) -> u64 {
    let index = event.get("contentBlockIndex").and_then(Value::as_u64);
    index.unwrap_or_default()
}

fn missing_start() -> Bytes {
    event_stream::event("messageStart", r#"{"role":"assistant"}"#)
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        self.round = StreamedRound::default();
        self.earlier_usage.clone_from(&self.usage);
        self.rounds_before += 1;
    }

    fn take(&mut self, frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Frame { bytes, data, event } = frame;
        let name = event.unwrap_or_default();
        let data = data.unwrap_or_else(|| "{}".to_owned());
        let event = event_value(&data)?;
        match name.as_str() {
            "messageStart" => self.round.start = Some(bytes),
            "contentBlockStart" => {
                let value = object_field(&event, "start").cloned();
                self.begin_block(index_of(&event), value.unwrap_or_else(|| json!({})));
                self.send(&name, event, bytes, out);
            }
            "contentBlockDelta" => {
                if let Some(delta) = event.get("delta")
                    && let Some(block) = self.block(&event)
                {
                    block.add(delta);
                }
                self.send(&name, event, bytes, out);
            }
            "contentBlockStop" => self.send(&name, event, bytes, out),
            "messageStop" => {
                let reason = event.get("stopReason").and_then(Value::as_str);
                self.round.stop_reason = Some(reason.unwrap_or("end_turn").to_owned());
                self.round.closing.push((name, event, bytes));
            }
            "metadata" => {
                if let Some(usage) = object_field(&event, "usage") {
                    self.round.usage = Some(usage.clone());
                    self.sum_usage();
                }
                self.round.closing.push((name, event, bytes));
            }
            // Errors end a stream; events that later versions of the API have pass.
            other if other.ends_with("Exception") || other.ends_with("Error") => {
                let message = text_field(&event, "message");
                return Err(Failure::reported(bytes, &message));
            }
            _ if self.has_begun => out.push_back(bytes),
            _ => {}
        }
        Ok(())
    }

    /// The tokens come after the end of the message.
    fn is_ended(&self) -> bool {
        let mut closing = self.round.closing.iter();
        self.round.stop_reason.is_some() && closing.any(|(name, ..)| name == "metadata")
    }

    fn parts(&self) -> usize {
        self.round.blocks.len() + self.round.closing.len()
    }

    fn calls(&self) -> usize {
        self.round.calls
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        if self.round.stop_reason.is_none() {
            return Err(Failure::cut_off("the connection closed"));
        }
        self.sum_usage();
        let blocks: Vec<Value> = self.round.blocks.iter().map(Block::finished).collect();
        let mut round = round_of(&self.hidden, &blocks, self.round.stop_reason.as_deref());
        // Arguments that are no valid JSON are lost in a finished block, and here they are not.
        round.hidden.clear();
        for block in &self.round.blocks {
            if is_hidden(&block.value, &self.hidden) {
                round.hidden.push(block.call());
            }
        }
        Ok(round)
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        if !self.has_begun {
            self.has_begun = true;
            let start = self.round.start.take();
            out.push_back(start.unwrap_or_else(missing_start));
        }
        let mut blocks = self.round.blocks.iter();
        // A client that got no call must not be told to answer one.
        let has_call =
            blocks.any(|block| block.value.get("toolUse").is_some() && block.sent_as.is_some());
        for (name, mut event, bytes) in std::mem::take(&mut self.round.closing) {
            let mut is_changed = false;
            if !has_call && event["stopReason"] == "tool_use" {
                event["stopReason"] = "end_turn".into();
                is_changed = true;
            }
            if name == "metadata" && self.rounds_before > 0 {
                event["usage"] = self.usage.clone().unwrap_or_default();
                is_changed = true;
            }
            out.push_back(match is_changed {
                true => event_stream::event(&name, &event.to_string()),
                false => bytes,
            });
        }
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}

/// An answer in one piece.
#[derive(Default)]
struct Whole {
    hidden: HiddenTools,
    /// The blocks that the client gets.
    blocks: Vec<Value>,
    usage: Option<Value>,
    rounds: usize,
    has_hidden: bool,
    /// The last round as it came.
    bytes: Bytes,
    last: Value,
}

impl WholeAnswer for Whole {
    fn take(&mut self, body: Bytes) -> Result<Round, Failure> {
        let value = whole_value(&body)?;
        let message = value.pointer("/output/message");
        let Some(message) = message.filter(|message| message.is_object()) else {
            return Err(malformed_body("it has no message", &body));
        };
        let blocks = blocks_of(message).to_vec();
        self.rounds += 1;
        if let Some(usage) = object_field(&value, "usage") {
            add_usage(&mut self.usage, usage);
        }
        let stop_reason = value.get("stopReason").and_then(Value::as_str);
        let round = round_of(&self.hidden, &blocks, stop_reason);
        self.has_hidden = !round.hidden.is_empty();
        for block in blocks {
            if !is_hidden(&block, &self.hidden) {
                self.blocks.push(block);
            }
        }
        self.bytes = body;
        self.last = value;
        Ok(round)
    }

    fn close(&mut self) -> Bytes {
        if self.rounds == 1 && !self.has_hidden {
            return std::mem::take(&mut self.bytes);
        }
        let mut answer = std::mem::take(&mut self.last);
        let has_call = self
            .blocks
            .iter()
            .any(|block| block.get("toolUse").is_some());
        // A client that got no call must not be told to answer one.
        if !has_call && answer["stopReason"] == "tool_use" {
            answer["stopReason"] = "end_turn".into();
        }
        answer["output"]["message"]["content"] = std::mem::take(&mut self.blocks).into();
        if let Some(usage) = &self.usage {
            answer["usage"] = usage.clone();
        }
        json::bytes(&answer)
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(hidden: &str) -> View {
        let view = View {
            hidden: HiddenTools::default(),
            tools: Bytes::new(),
            is_stored: false,
            wants_list: false,
        };
        view.hidden.add(hidden);
        view
    }

    fn take(answer: &mut dyn StreamedAnswer, events: &[(&str, Value)]) -> Vec<(String, Value)> {
        let mut out = VecDeque::new();
        for (name, payload) in events {
            let message = event_stream::event(name, &payload.to_string());
            answer
                .take(event_stream::read(message).unwrap(), &mut out)
                .unwrap();
        }
        read(out)
    }

    fn read(out: VecDeque<Bytes>) -> Vec<(String, Value)> {
        let frames = out
            .into_iter()
            .map(|bytes| event_stream::read(bytes).unwrap());
        let events = frames.map(|frame| {
            let payload = serde_json::from_str(&frame.data.unwrap()).unwrap();
            (frame.event.unwrap(), payload)
        });
        events.collect()
    }

    fn call(index: u64, name: &str) -> [(&'static str, Value); 3] {
        let call = json!({ "toolUse": { "toolUseId": format!("id_{name}"), "name": name } });
        [
            (
                "contentBlockStart",
                json!({ "contentBlockIndex": index, "start": call }),
            ),
            (
                "contentBlockDelta",
                json!({ "contentBlockIndex": index, "delta": { "toolUse": { "input": "{\"a\":1}" } } }),
            ),
            ("contentBlockStop", json!({ "contentBlockIndex": index })),
        ]
    }

    fn ending(reason: &str) -> [(&'static str, Value); 2] {
        let usage = json!({ "inputTokens": 10, "outputTokens": 1 });
        [
            ("messageStop", json!({ "stopReason": reason })),
            ("metadata", json!({ "usage": usage })),
        ]
    }

    fn text(index: u64, text: &str) -> [(&'static str, Value); 2] {
        [
            (
                "contentBlockDelta",
                json!({ "contentBlockIndex": index, "delta": { "text": text } }),
            ),
            ("contentBlockStop", json!({ "contentBlockIndex": index })),
        ]
    }

    #[test]
    fn hidden_rounds_are_one_message_with_blocks_in_order() {
        let mut answer = Converse.streamed(view("tool_search"));
        let start = [("messageStart", json!({ "role": "assistant" }))];
        let round = [
            &start[..],
            &text(0, "Looking."),
            &call(1, "tool_search"),
            &ending("tool_use"),
        ];
        let mut seen = take(answer.as_mut(), &round.concat());
        assert!(answer.is_ended());
        let ended = answer.end_round().unwrap();
        assert_eq!((ended.hidden.len(), ended.calls.len()), (1, 0));
        assert_eq!(ended.hidden[0].arguments, "{\"a\":1}");
        let item: Value = serde_json::from_slice(&ended.items[0]).unwrap();
        assert_eq!(item["content"][1]["toolUse"]["input"], json!({ "a": 1 }));
        answer.begin_round();
        // Two calls of the client in one round, and one that is hidden between them.
        let calls = [
            &start[..],
            &call(0, "mail"),
            &call(1, "tool_search"),
            &call(2, "hotel"),
            &ending("tool_use"),
        ];
        seen.extend(take(answer.as_mut(), &calls.concat()));
        let ended = answer.end_round().unwrap();
        assert_eq!((ended.hidden.len(), ended.calls.len()), (1, 2));
        let mut out = VecDeque::new();
        answer.close(&mut out);
        seen.extend(read(out));
        let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names.iter().filter(|name| **name == "messageStart").count(),
            1
        );
        let starts = seen.iter().filter(|(name, _)| name == "contentBlockStart");
        let places: Vec<&Value> = starts
            .map(|(_, event)| &event["contentBlockIndex"])
            .collect();
        assert_eq!(places, [1, 2]);
        assert_eq!(seen.last().unwrap().1["usage"]["inputTokens"], 20);
        assert_eq!(names[names.len() - 2..], ["messageStop", "metadata"]);
    }

    #[test]
    fn a_client_without_calls_is_not_told_to_answer_one() {
        let mut answer = Converse.streamed(view("tool_search"));
        take(
            answer.as_mut(),
            &[&call(0, "tool_search")[..], &ending("tool_use")].concat(),
        );
        let mut out = VecDeque::new();
        answer.close(&mut out);
        let seen = read(out);
        assert_eq!(seen[0].0, "messageStart");
        assert_eq!(seen[1].1["stopReason"], "end_turn");
    }

    #[test]
    fn an_exception_and_a_cut_end_the_answer() {
        let mut answer = Converse.streamed(view("tool_search"));
        take(answer.as_mut(), &text(0, "One"));
        assert_eq!(answer.end_round().unwrap_err().code, "upstream_cut_off");
        let exception =
            event_stream::exception("throttlingException", r#"{"message":"slow down"}"#);
        let frame = event_stream::read(exception.clone()).unwrap();
        let failure = answer.take(frame, &mut VecDeque::new()).unwrap_err();
        assert_eq!(
            (failure.event, failure.message.as_str()),
            (Some(exception), "slow down")
        );
    }
}
