//! Anthropic's messages.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    CallResult, Failure, Fields, Frame, HiddenTools, Item, ModelCall, OfferedTool, Protocol, Round,
    StreamedAnswer, ToolKind, View, WholeAnswer, add_usage, content_essence, content_text,
    event_value, has_type, head_of, malformed, malformed_body, object_field, put_before,
    text_field, whole_value, without_cache_control,
};
use crate::wire::{json, sse};
use toolscout_gate::llm::ToolSpec;

/// Beginning of the types of the provider's own tool search.
const NATIVE_SEARCH: &str = "tool_search_tool_";

/// Fields of an answer that are the same in all its rounds.
const HEAD: [&str; 2] = ["id", "model"];

/// What clients read who began a thread.
const THREAD_REFUSED: &str =
    r#"{"error_code":"thread_unsupported_request","unsupported":["tools"]}"#;

/// The body of an error.
pub fn error(failure: &Failure) -> Value {
    let mut error = json!({ "type": failure.kind(), "message": failure.message });
    if let Some(details) = failure.details
        && let Ok(details) = serde_json::from_str::<Value>(details)
    {
        error["details"] = details;
    }
    json!({ "type": "error", "error": error })
}

/// An error within a stream.
pub fn error_event(failure: &Failure) -> Bytes {
    sse::frame(Some("error"), &error(failure).to_string())
}

pub struct Messages;

impl Protocol for Messages {
    fn conversation_field(&self) -> &'static str {
        "messages"
    }

    fn can_hide_rounds(&self, _request: &Fields) -> bool {
        true
    }

    /// A thread keeps the tools that it was created with, so that none can be added. Clients that
    /// are told so send the whole conversation instead.
    fn refusal(&self, request: &Fields) -> Option<Failure> {
        let thread = request.value("thread")?;
        if thread.is_null() {
            return None;
        }
        let message = "tools cannot be searched in a thread; send the whole conversation without `thread`, \
                       or the header X-Toolscout-Defer: off";
        Some(Failure {
            details: Some(THREAD_REFUSED),
            ..Failure::new(400, "thread_unsupported", message)
        })
    }

    fn tool(&self, json: &Bytes) -> OfferedTool {
        let fields = Fields::read(json).unwrap_or_default();
        let kind = match fields.text("type").as_deref() {
            None | Some("custom") => ToolKind::Function,
            Some(kind) if kind.starts_with(NATIVE_SEARCH) => ToolKind::NativeSearch,
            Some(_) => ToolKind::Hosted,
        };
        if kind != ToolKind::Function {
            return OfferedTool {
                kind,
                name: fields.text("name").unwrap_or_default(),
                ..OfferedTool::hosted(json)
            };
        }
        OfferedTool {
            cache_control: fields.get("cache_control").cloned(),
            ..OfferedTool::function(fields, json)
        }
    }

    fn search_tool(&self, spec: &ToolSpec) -> Bytes {
        json::bytes(&json!({
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.parameters,
        }))
    }

    fn chosen_tools(&self, choice: &Value) -> Vec<String> {
        match choice.get("type").and_then(Value::as_str) {
            Some("tool") => vec![text_field(choice, "name")],
            _ => Vec::new(),
        }
    }

    fn forbid_calls(&self, request: &mut Fields) {
        request.set("tool_choice", Bytes::from_static(br#"{"type":"none"}"#));
    }

    fn item(&self, item: &Value) -> Item {
        let content = item.get("content");
        match item.get("role").and_then(Value::as_str) {
            Some("assistant") => Item::OfModel {
                text: content_text(content),
                calls: calls_of(content),
            },
            Some("system") => Item::Instructions,
            role => Item::OfClient(json!([role, blocks_essence(content)])),
        }
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
        let content = message.get("content").cloned().unwrap_or_default();
        let rest = json::items(&content).unwrap_or_else(|| {
            // Clients may write one text in place of blocks.
            let text: String = serde_json::from_slice(&content).unwrap_or_default();
            vec![json::bytes(&json!({ "type": "text", "text": text }))]
        });
        let blocks = results.iter().map(result_block);
        (vec![put_before(message, "content", blocks, rest)], true)
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

fn result_block(result: &CallResult) -> Value {
    json!({ "type": "tool_result", "tool_use_id": result.id, "content": result.text })
}

/// The content of a client's message, with the contents of results in one form too.
fn blocks_essence(content: Option<&Value>) -> Value {
    let Some(Value::Array(blocks)) = content else {
        return content_essence(content);
    };
    let mut others: Vec<Value> = Vec::new();
    let mut texts = String::new();
    for block in blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => texts.push_str(&text_field(block, "text")),
            Some("tool_result") => others.push(result_essence(block)),
            _ => others.push(without_cache_control(&json::canonical(block))),
        }
    }
    others.insert(0, texts.into());
    Value::Array(others)
}

fn result_essence(block: &Value) -> Value {
    json!([
        block.get("tool_use_id"),
        content_essence(block.get("content"))
    ])
}

fn is_call(block: &Value) -> bool {
    has_type(block, "tool_use")
}

fn is_empty_text(block: &Value) -> bool {
    has_type(block, "text") && text_field(block, "text").is_empty()
}

fn call_of(block: &Value) -> ModelCall {
    let input = block.get("input").cloned().unwrap_or_default();
    ModelCall {
        id: text_field(block, "id"),
        name: text_field(block, "name"),
        namespace: None,
        arguments: input.to_string(),
    }
}

fn calls_of(content: Option<&Value>) -> Vec<ModelCall> {
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    blocks.filter(|block| is_call(block)).map(call_of).collect()
}

/// The model's message to write back. A text without any is not accepted by the provider.
fn message_to_send(blocks: &[Value]) -> Bytes {
    let blocks: Vec<&Value> = blocks
        .iter()
        .filter(|block| !is_empty_text(block))
        .collect();
    json::bytes(&json!({ "role": "assistant", "content": blocks }))
}

fn is_complete(stop_reason: &str) -> bool {
    !matches!(
        stop_reason,
        "max_tokens" | "model_context_window_exceeded" | "refusal" | "pause_turn"
    )
}

fn round_of(hidden_tools: &HiddenTools, blocks: &[Value], stop_reason: Option<&str>) -> Round {
    let content = Value::Array(blocks.to_vec());
    let calls = calls_of(Some(&content)).into_iter();
    let (hidden, calls) = calls.partition(|call| hidden_tools.contains(&call.name));
    Round {
        hidden,
        calls,
        is_complete: stop_reason.is_none_or(is_complete),
        items: vec![message_to_send(blocks)],
        text: content_text(Some(&content)),
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
    /// Rounds before this one.
    rounds_before: usize,
    /// Usage of the rounds before.
    earlier_usage: Option<Value>,
    usage: Option<Value>,
    round: StreamedRound,
}

/// The round that is being read.
#[derive(Default)]
struct StreamedRound {
    /// The first event, until there is something to send.
    start: Option<Bytes>,
    /// In the order in which they began.
    blocks: Vec<Block>,
    /// How many of them are calls.
    calls: usize,
    /// The last events.
    closing: Vec<(Value, Bytes)>,
    stop_reason: Option<String>,
    usage: Value,
    is_stopped: bool,
}

/// A block that is being read.
struct Block {
    /// The provider's number of it; some servers number all blocks 0, or none.
    index: Option<u64>,
    value: Value,
    /// Whether the provider has ended it.
    is_ended: bool,
    /// The text of its input so far.
    input: String,
    /// Its place for the client; `None` where it does not see it.
    sent_as: Option<u64>,
}

impl Block {
    /// Adds what an event says of it.
    fn add(&mut self, delta: &Value) {
        match delta.get("type").and_then(Value::as_str) {
            Some("text_delta") => self.continue_text("text", delta),
            Some("thinking_delta") => self.continue_text("thinking", delta),
            Some("signature_delta") => self.continue_text("signature", delta),
            Some("input_json_delta") => self.input += &text_field(delta, "partial_json"),
            Some("citations_delta") => {
                let citation = delta.get("citation").cloned().unwrap_or_default();
                match self
                    .value
                    .get_mut("citations")
                    .and_then(Value::as_array_mut)
                {
                    Some(citations) => citations.push(citation),
                    None => self.value["citations"] = json!([citation]),
                }
            }
            _ => {}
        }
    }

    fn continue_text(&mut self, field: &str, delta: &Value) {
        // Taken out and put back, so that a long text is not copied with every fragment.
        let mut text = match self.value[field].take() {
            Value::String(text) => text,
            _ => String::new(),
        };
        text.push_str(delta.get(field).and_then(Value::as_str).unwrap_or_default());
        self.value[field] = text.into();
    }

    /// The whole block.
    fn finished(&self) -> Value {
        let mut value = self.value.clone();
        if !self.input.is_empty() {
            // A block of calls has an object as its input, even if the model wrote none.
            value["input"] = serde_json::from_str(&self.input).unwrap_or_else(|_| json!({}));
        }
        value
    }

    fn is_hidden(&self, hidden: &HiddenTools) -> bool {
        is_call(&self.value) && hidden.contains(&text_field(&self.value, "name"))
    }

    /// As [`call_of`], with arguments as the model wrote them.
    fn call(&self) -> ModelCall {
        let call = call_of(&self.value);
        match self.input.is_empty() {
            true => call,
            false => ModelCall {
                arguments: self.input.clone(),
                ..call
            },
        }
    }
}

impl Streamed {
    fn begin_block(&mut self, event: &Value, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        let value = match object_field(event, "content_block") {
            Some(content) => content.clone(),
            None => json!({}),
        };
        let mut block = Block {
            index: event.get("index").and_then(Value::as_u64),
            value,
            is_ended: false,
            input: String::new(),
            sent_as: None,
        };
        if let Some(last) = self.round.blocks.last()
            && repeats(last, &block)
        {
            return;
        }
        if !block.is_hidden(&self.hidden) {
            // Blocks are numbered over all rounds, without the hidden ones.
            let place = self.blocks_sent;
            block.sent_as = Some(place);
            self.blocks_sent += 1;
            self.begin(out);
            out.push_back(with_index(event, place, bytes));
        }
        self.round.calls += usize::from(is_call(&block.value));
        self.round.blocks.push(block);
    }

    /// Sends the beginning of the message, once.
    fn begin(&mut self, out: &mut VecDeque<Bytes>) {
        if self.has_begun {
            return;
        }
        out.push_back(match self.round.start.take() {
            Some(start) => start,
            None => event_bytes(&missing_start()),
        });
        self.has_begun = true;
    }

    fn continue_block(&mut self, event: &Value, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        let index = event.get("index").and_then(Value::as_u64);
        // Some servers number all blocks 0.
        let mut latest_first = self.round.blocks.iter_mut().rev();
        let found = latest_first.find(|block| index.is_none() || block.index == index);
        let Some(block) = found else {
            return self.begin_missing_block(event, bytes, out);
        };
        match event.get("delta") {
            Some(delta) => block.add(delta),
            None => block.is_ended = true,
        }
        if let Some(sent_as) = block.sent_as {
            out.push_back(with_index(event, sent_as, bytes));
        }
    }

    /// Begins the block of a text whose beginning the provider left out.
    fn begin_missing_block(&mut self, event: &Value, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        let content = match event.pointer("/delta/type").and_then(Value::as_str) {
            Some("text_delta") => json!({ "type": "text", "text": "" }),
            Some("thinking_delta") => {
                json!({ "type": "thinking", "thinking": "", "signature": "" })
            }
            // Of a call nobody knows the tool, and a block that never began needs no end.
            _ => return,
        };
        let index = event.get("index").cloned().unwrap_or_default();
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": content });
        self.begin_block(&start, event_bytes(&start), out);
        self.continue_block(event, bytes, out);
    }

    /// Ends the blocks whose end the provider left out.
    fn end_blocks(&mut self, out: &mut VecDeque<Bytes>) {
        for block in &mut self.round.blocks {
            if block.is_ended {
                continue;
            }
            block.is_ended = true;
            if let Some(sent_as) = block.sent_as {
                out.push_back(event_bytes(
                    &json!({ "type": "content_block_stop", "index": sent_as }),
                ));
            }
        }
    }

    /// Reads why the model ended, and its last counts, which replace those of the beginning.
    fn take_end(&mut self, event: &Value) {
        let stop_reason = event.pointer("/delta/stop_reason").and_then(Value::as_str);
        if let Some(stop_reason) = stop_reason {
            self.round.stop_reason = Some(stop_reason.to_owned());
        }
        let Some(Value::Object(usage)) = event.get("usage") else {
            return;
        };
        if !self.round.usage.is_object() {
            self.round.usage = json!({});
        }
        for (name, count) in usage {
            // A null says nothing, and would erase what the beginning said.
            if !count.is_null() {
                self.round.usage[name] = count.clone();
            }
        }
        self.sum_usage();
    }

    /// Notes the end of the round.
    fn stop(&mut self, out: &mut VecDeque<Bytes>) {
        self.end_blocks(out);
        self.round.is_stopped = true;
    }

    /// Adds the last events that the provider left out.
    fn add_missing_end(&mut self) {
        let closing = &mut self.round.closing;
        if !has_event(closing, "message_delta") {
            let calls = self.round.blocks.iter().any(|block| is_call(&block.value));
            let reason = if calls { "tool_use" } else { "end_turn" };
            let end = json!({ "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": null },
                "usage": { "output_tokens": 0 } });
            closing.insert(0, (end.clone(), event_bytes(&end)));
        }
        if !has_event(closing, "message_stop") {
            let end = json!({ "type": "message_stop" });
            closing.push((end.clone(), event_bytes(&end)));
        }
    }

    fn sum_usage(&mut self) {
        let mut total = self.earlier_usage.clone();
        add_usage(&mut total, &self.round.usage);
        self.usage = total;
    }
}

fn has_event(events: &[(Value, Bytes)], kind: &str) -> bool {
    events.iter().any(|(event, _)| event["type"] == kind)
}

/// Whether a block is the one before it, which some servers begin again with every fragment.
fn repeats(last: &Block, block: &Block) -> bool {
    if last.is_ended || last.index != block.index {
        return false;
    }
    let id = text_field(&last.value, "id");
    !id.is_empty() && id == text_field(&block.value, "id")
}

/// The beginning of a message, where the provider sent none.
fn missing_start() -> Value {
    json!({ "type": "message_start", "message": {
        "id": "msg_toolscout", "type": "message", "role": "assistant", "model": "",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 0, "output_tokens": 0 },
    } })
}

/// The event with the place that its block has for the client.
fn with_index(event: &Value, sent_as: u64, bytes: Bytes) -> Bytes {
    if event.get("index").and_then(Value::as_u64) == Some(sent_as) {
        return bytes;
    }
    let mut event = event.clone();
    event["index"] = sent_as.into();
    event_bytes(&event)
}

/// The failure for an error that the provider sent in its stream.
fn reported(event: &Value, bytes: Bytes) -> Failure {
    let message = event.pointer("/error/message").and_then(Value::as_str);
    Failure::reported(bytes, message.unwrap_or_default())
}

fn event_bytes(event: &Value) -> Bytes {
    let name = event.get("type").and_then(Value::as_str);
    sse::frame(name, &event.to_string())
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        self.round = StreamedRound::default();
        self.earlier_usage.clone_from(&self.usage);
        self.rounds_before += 1;
    }

    fn take(&mut self, mut frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Some(data) = frame.data.take() else {
            if self.has_begun {
                out.push_back(frame.bytes);
            }
            return Ok(());
        };
        if data.trim() == "[DONE]" {
            // It is no event of this API, and clients of it cannot read it.
            self.stop(out);
            return Ok(());
        }
        let mut event = event_value(&data)?;
        let kind = frame.kind(&event).map(str::to_owned);
        if kind.is_none() && event.get("error").is_none() {
            return Err(malformed("an event has no type", &data));
        }
        drop(data);
        // Some servers give the type in the name of the event alone.
        if let Some(kind) = &kind
            && event.is_object()
        {
            event["type"] = kind.as_str().into();
        }
        match kind.as_deref() {
            Some("message_start") => {
                if let Some(usage) = event.pointer("/message/usage") {
                    self.round.usage = usage.clone();
                    self.sum_usage();
                }
                // Kept until there is a block that the client gets.
                self.round.start = Some(frame.bytes);
            }
            Some("content_block_start") => self.begin_block(&event, frame.bytes, out),
            Some("content_block_delta" | "content_block_stop") => {
                self.continue_block(&event, frame.bytes, out);
            }
            Some("message_delta") => {
                self.end_blocks(out);
                self.take_end(&event);
                self.round.closing.push((event, frame.bytes));
            }
            Some("message_stop") => {
                self.stop(out);
                self.round.closing.push((event, frame.bytes));
            }
            Some("error") => return Err(reported(&event, frame.bytes)),
            None => return Err(reported(&event, frame.bytes)),
            // Pings, and what later versions of the API have.
            Some(_) => {
                if self.has_begun {
                    out.push_back(frame.bytes);
                }
            }
        }
        Ok(())
    }

    fn is_ended(&self) -> bool {
        self.round.is_stopped
    }

    fn parts(&self) -> usize {
        self.round.blocks.len()
    }

    fn calls(&self) -> usize {
        self.round.calls
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        if !self.round.is_stopped && self.round.stop_reason.is_none() {
            return Err(Failure::cut_off("the connection closed"));
        }
        self.sum_usage();
        let blocks: Vec<Value> = self.round.blocks.iter().map(Block::finished).collect();
        let stop_reason = self.round.stop_reason.as_deref();
        let mut round = round_of(&self.hidden, &blocks, stop_reason);
        // Arguments that are no valid JSON are lost in a finished block, and here they are not.
        round.hidden.clear();
        for block in &self.round.blocks {
            if block.is_hidden(&self.hidden) {
                round.hidden.push(block.call());
            }
        }
        Ok(round)
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        self.begin(out);
        self.add_missing_end();
        let blocks = &self.round.blocks;
        let has_hidden = blocks.iter().any(|block| block.is_hidden(&self.hidden));
        let is_sent_call = |block: &Block| is_call(&block.value) && block.sent_as.is_some();
        // A client that got no call must not be told to answer one.
        let only_hidden = has_hidden && !blocks.iter().any(is_sent_call);
        for (mut event, bytes) in std::mem::take(&mut self.round.closing) {
            if !has_type(&event, "message_delta") {
                out.push_back(bytes);
                continue;
            }
            let mut is_changed = false;
            if only_hidden && event["delta"]["stop_reason"] == "tool_use" {
                event["delta"]["stop_reason"] = "end_turn".into();
                is_changed = true;
            }
            if self.rounds_before > 0 {
                // What the client was told at the beginning was of the first round.
                event["usage"] = self.usage.clone().unwrap_or_default();
                is_changed = true;
            }
            out.push_back(if is_changed {
                event_bytes(&event)
            } else {
                bytes
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
    /// Id and model of the first round.
    head: Option<Map<String, Value>>,
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
        let blocks = value.get("content").and_then(Value::as_array).cloned();
        let Some(blocks) = blocks else {
            return Err(malformed_body("it has no content", &body));
        };
        self.rounds += 1;
        if self.head.is_none() {
            self.head = Some(head_of(&value, &HEAD));
        }
        if let Some(usage) = object_field(&value, "usage") {
            add_usage(&mut self.usage, usage);
        }
        let stop_reason = value.get("stop_reason").and_then(Value::as_str);
        let round = round_of(&self.hidden, &blocks, stop_reason);
        self.has_hidden = !round.hidden.is_empty();
        for block in blocks {
            let is_hidden = is_call(&block) && self.hidden.contains(&call_of(&block).name);
            if !is_hidden {
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
        let calls = self.blocks.iter().any(is_call);
        // A client that got no call must not be told to answer one.
        if !calls && answer["stop_reason"] == "tool_use" {
            answer["stop_reason"] = "end_turn".into();
        }
        answer["content"] = std::mem::take(&mut self.blocks).into();
        for (name, value) in self.head.take().unwrap_or_default() {
            answer[name] = value;
        }
        if let Some(usage) = &self.usage {
            answer["usage"] = usage.clone();
        }
        json::bytes(&answer)
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}
