//! OpenAI's chat completions.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    BETWEEN_TEXTS, CallResult, Failure, Fields, Frame, HiddenTools, Item, MAX_PARTS, ModelCall,
    OfferedTool, Protocol, Round, StreamedAnswer, ToolKind, View, WholeAnswer, add_usage,
    content_essence, content_text, event_value, head_of, malformed, malformed_body, object_field,
    take_deferral, text_field, whole_value,
};
use crate::wire::{json, sse};
use toolscout_gate::llm::calls::{CallAssembler, RawCall};
use toolscout_gate::llm::{CallFragment, ToolSpec, call_fragment};

/// Chunks without content that wait for the first with some.
const MAX_HELD: usize = 16;
/// Fields of an answer that are the same in all its chunks.
const HEAD: [&str; 3] = ["id", "created", "model"];

/// The body of an error.
pub fn error(failure: &Failure) -> Value {
    json!({ "error": {
        "message": failure.message,
        "type": failure.kind(),
        "param": null,
        "code": failure.code,
    } })
}

/// An error within a stream.
pub fn error_event(failure: &Failure) -> Bytes {
    sse::frame(None, &error(failure).to_string())
}

pub struct Chat;

impl Protocol for Chat {
    fn conversation_field(&self) -> &'static str {
        "messages"
    }

    fn can_hide_rounds(&self, request: &Fields) -> bool {
        // Of several answers, each would need rounds of its own.
        match request.value("n") {
            None | Some(Value::Null) => true,
            Some(choices) => choices == 1,
        }
    }

    fn tool(&self, json: &Bytes) -> OfferedTool {
        let mut fields = Fields::read(json).unwrap_or_default();
        let kind = fields.text("type");
        let (outer, json) = take_deferral(&mut fields, json);
        let mut offered = OfferedTool {
            defer_loading: outer,
            ..OfferedTool::hosted(&json)
        };
        match kind.as_deref() {
            Some("tool_search") => offered.kind = ToolKind::NativeSearch,
            // The mark stands beside the function or within it.
            Some("function") => {
                let Some(inside) = fields.get("function").cloned() else {
                    return offered;
                };
                let Some(mut function) = Fields::read(&inside) else {
                    return offered;
                };
                let (inner, definition) = take_deferral(&mut function, &inside);
                if inner.is_some() {
                    fields.set("function", definition);
                    offered.json = fields.to_json();
                    offered.defer_loading = outer.or(inner);
                }
                if let Some(name) = function.text("name") {
                    offered.kind = ToolKind::Function;
                    offered.name = name;
                }
            }
            _ => {}
        }
        offered
    }

    fn search_tool(&self, spec: &ToolSpec) -> Bytes {
        json::bytes(&spec.to_json())
    }

    fn chosen_tools(&self, choice: &Value) -> Vec<String> {
        match choice.get("type").and_then(Value::as_str) {
            Some("function") => function_name(choice).into_iter().collect(),
            Some("allowed_tools") => {
                let allowed = choice.pointer("/allowed_tools/tools");
                let allowed = allowed.and_then(Value::as_array).into_iter().flatten();
                allowed.filter_map(function_name).collect()
            }
            _ => Vec::new(),
        }
    }

    fn forbid_calls(&self, request: &mut Fields) {
        request.set("tool_choice", Bytes::from_static(b"\"none\""));
    }

    fn item(&self, item: &Value) -> Item {
        let content = item.get("content");
        match item.get("role").and_then(Value::as_str) {
            Some("system" | "developer") => Item::Instructions,
            Some("assistant") => Item::OfModel {
                text: content_text(content),
                calls: calls_of(item),
            },
            role => Item::OfClient(json!([
                role,
                item.get("tool_call_id"),
                content_essence(content)
            ])),
        }
    }

    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        results.iter().map(result_message).collect()
    }

    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer> {
        Box::new(Streamed::new(view.hidden))
    }

    fn whole(&self, view: View) -> Box<dyn WholeAnswer> {
        Box::new(Whole {
            hidden: view.hidden,
            ..Whole::default()
        })
    }
}

fn function_name(tool: &Value) -> Option<String> {
    let name = tool.pointer("/function/name")?.as_str()?;
    Some(name.to_owned())
}

fn result_message(result: &CallResult) -> Bytes {
    json::bytes(&json!({
        "role": "tool",
        "tool_call_id": result.id,
        "content": result.text,
    }))
}

fn calls_of(message: &Value) -> Vec<ModelCall> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls.into_iter().flatten().map(call_of).collect()
}

fn call_of(call: &Value) -> ModelCall {
    let CallFragment {
        id,
        name,
        arguments,
        ..
    } = call_fragment(call);
    ModelCall {
        id: id.unwrap_or_default(),
        name: name.unwrap_or_default(),
        namespace: None,
        arguments: arguments.unwrap_or_default(),
    }
}

/// Gives an id to a call that has none, so that its result can name it.
fn with_id(mut call: Value) -> Value {
    if text_field(&call, "id").is_empty() {
        call["id"] = format!("call_{}", Uuid::new_v4().simple()).into();
    }
    call
}

/// The message to write back: without fields that say nothing.
fn message_to_send(mut message: Map<String, Value>, calls: Vec<Value>) -> Bytes {
    message.retain(|_, value| !value.is_null());
    message.shift_remove("tool_calls");
    let mut fields = Map::new();
    fields.insert("role".into(), "assistant".into());
    let content = message.shift_remove("content");
    fields.insert("content".into(), content.unwrap_or_default());
    message.shift_remove("role");
    fields.extend(message);
    if !calls.is_empty() {
        fields.insert("tool_calls".into(), calls.into());
    }
    json::bytes(&Value::Object(fields))
}

fn is_complete(finish_reason: &str) -> bool {
    !matches!(finish_reason, "length" | "content_filter")
}

/// An answer in chunks.
struct Streamed {
    hidden: HiddenTools,
    /// Id, time and model of the first chunk that the client got.
    head: Option<Map<String, Value>>,
    /// The text that the client got.
    text: String,
    /// Whether the client was told the role.
    has_role: bool,
    /// Calls that the client got.
    calls_sent: u64,
    /// Usage of the rounds before.
    earlier_usage: Option<Value>,
    /// The sum over all rounds.
    usage: Option<Value>,
    round: StreamedRound,
}

/// The round that is being read.
struct StreamedRound {
    message: Map<String, Value>,
    calls: CallAssembler,
    /// What else there is of each call.
    details: Vec<CallDetails>,
    /// Chunks without content before anything was sent.
    held: Vec<Chunk>,
    /// Chunks from the one with the finish reason on.
    closing: Vec<Chunk>,
    finish_reason: Option<String>,
    text: String,
    usage: Option<Value>,
    is_done: bool,
}

impl Default for StreamedRound {
    fn default() -> Self {
        StreamedRound {
            message: Map::new(),
            // Their arguments are bounded with the whole answer.
            calls: CallAssembler::new(MAX_PARTS, usize::MAX),
            details: Vec::new(),
            held: Vec::new(),
            closing: Vec::new(),
            finish_reason: None,
            text: String::new(),
            usage: None,
            is_done: false,
        }
    }
}

impl StreamedRound {
    /// The calls as they are written back.
    fn written_calls(&self, hidden: &HiddenTools) -> Vec<Value> {
        let mut written = Vec::with_capacity(self.details.len());
        for (call, details) in self.calls.calls().iter().zip(&self.details) {
            let call_as_sent = details.written(call);
            // A call of the client's keeps what it has: the client may have read it already.
            written.push(match hidden.contains(&call.name) {
                true => with_id(call_as_sent),
                false => call_as_sent,
            });
        }
        written
    }
}

/// What the endpoint keeps of a call besides id, name and arguments.
#[derive(Default)]
struct CallDetails {
    /// Fields of the call that are not known here.
    further: Map<String, Value>,
    /// Such fields of its `function`.
    of_function: Map<String, Value>,
    /// Its index for the client, once it was sent.
    sent_as: Option<u64>,
    /// Fragments that came before the whole name.
    waiting: Vec<Value>,
}

impl CallDetails {
    fn add(&mut self, fragment: &Value) {
        const KNOWN: [&str; 6] = ["index", "id", "type", "function", "name", "arguments"];
        let parts = [
            (&mut self.further, Some(fragment)),
            (&mut self.of_function, fragment.get("function")),
        ];
        for (further, part) in parts {
            let fields = part.and_then(Value::as_object).into_iter().flatten();
            for (name, value) in fields {
                if KNOWN.contains(&name.as_str()) {
                    continue;
                }
                let known = further.entry(name.clone()).or_insert(Value::Null);
                merge_field(name, known, value);
            }
        }
    }

    /// The call as it is written back.
    fn written(&self, call: &RawCall) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), call.name.as_str().into());
        function.insert("arguments".into(), call.arguments.as_str().into());
        function.extend(self.of_function.clone());
        let mut written = Map::new();
        written.insert("id".into(), call.id.clone().unwrap_or_default().into());
        written.insert("type".into(), "function".into());
        written.insert("function".into(), function.into());
        written.extend(self.further.clone());
        written.into()
    }
}

/// A chunk, and its bytes as long as it was not changed.
struct Chunk {
    value: Value,
    bytes: Option<Bytes>,
}

impl Chunk {
    fn change(&mut self) -> &mut Value {
        self.bytes = None;
        &mut self.value
    }

    fn into_bytes(self) -> Bytes {
        match self.bytes {
            Some(bytes) => bytes,
            None => sse::frame(None, &self.value.to_string()),
        }
    }

    fn delta(&self) -> Option<&Map<String, Value>> {
        self.value.pointer("/choices/0/delta")?.as_object()
    }

    fn delta_field(&self, name: &str) -> Option<&Value> {
        self.delta()?.get(name)
    }

    fn change_delta(&mut self) -> Option<&mut Map<String, Value>> {
        self.change()
            .pointer_mut("/choices/0/delta")?
            .as_object_mut()
    }

    /// Whether the client learns something from it.
    fn says_something(&self) -> bool {
        let Some(delta) = self.delta() else {
            return false;
        };
        delta
            .iter()
            .any(|(name, value)| name != "role" && !is_empty(value))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Streamed {
    fn new(hidden: HiddenTools) -> Self {
        Streamed {
            hidden,
            head: None,
            text: String::new(),
            has_role: false,
            calls_sent: 0,
            earlier_usage: None,
            usage: None,
            round: StreamedRound::default(),
        }
    }

    /// Reads the fragments of calls and leaves those that the client gets.
    fn take_calls(&mut self, chunk: &mut Chunk) -> Result<(), Failure> {
        let fragments = chunk.delta_field("tool_calls");
        let Some(fragments) = fragments.and_then(Value::as_array) else {
            return Ok(());
        };
        let given = fragments.clone();
        let mut sent = Vec::new();
        for fragment in &given {
            sent.extend(self.take_fragment(fragment)?);
        }
        // Nothing is hidden or numbered anew, so the chunk keeps its bytes.
        if sent == given {
            return Ok(());
        }
        if let Some(delta) = chunk.change_delta() {
            if sent.is_empty() {
                delta.shift_remove("tool_calls");
            } else {
                delta.insert("tool_calls".into(), sent.into());
            }
        }
        Ok(())
    }

    /// The fragments that the client gets for this one.
    fn take_fragment(&mut self, fragment: &Value) -> Result<Vec<Value>, Failure> {
        let round = &mut self.round;
        let Some(position) = round.calls.push(call_fragment(fragment)) else {
            return Err(Failure::too_many_calls(MAX_PARTS));
        };
        if position == round.details.len() {
            round.details.push(CallDetails::default());
        }
        let (call, details) = (&round.calls.calls()[position], &mut round.details[position]);
        details.add(fragment);
        if let Some(sent_as) = details.sent_as {
            return Ok(vec![with_index(fragment.clone(), sent_as)]);
        }
        details.waiting.push(fragment.clone());
        if self.hidden.contains(&call.name) {
            // It is ours. No tool of the client has a name that begins with this one.
            details.waiting.clear();
            return Ok(Vec::new());
        }
        // A name is whole once its arguments begin.
        let may_continue = call.name.is_empty() || self.hidden.may_become_hidden(&call.name);
        if may_continue && call.arguments.is_empty() {
            return Ok(Vec::new());
        }
        // Calls are numbered over all rounds, without the hidden ones.
        let sent_as = self.calls_sent;
        self.calls_sent += 1;
        details.sent_as = Some(sent_as);
        let waiting = std::mem::take(&mut details.waiting);
        let numbered = waiting
            .into_iter()
            .map(|fragment| with_index(fragment, sent_as));
        Ok(numbered.collect())
    }

    fn has_hidden_calls(&self) -> bool {
        let mut calls = self.round.calls.calls().iter();
        calls.any(|call| self.hidden.contains(&call.name))
    }

    /// Makes a chunk of a later round part of the one answer.
    fn join(&mut self, chunk: &mut Chunk) {
        let repeats_role = self.has_role && chunk.delta_field("role").is_some();
        if repeats_role && let Some(delta) = chunk.change_delta() {
            delta.shift_remove("role");
        }
        self.separate_texts(chunk);
        for (name, value) in self.head.iter().flatten() {
            // Asked first, since a change costs the chunk its bytes.
            if let Some(given) = chunk.value.get(name)
                && given != value
            {
                chunk.change()[name] = value.clone();
            }
        }
    }

    fn separate_texts(&mut self, chunk: &mut Chunk) {
        let content = chunk.delta_field("content");
        let Some(text) = content.and_then(Value::as_str) else {
            return;
        };
        let is_first = self.round.text.is_empty() && !text.is_empty();
        self.round.text.push_str(text);
        if is_first && !self.text.is_empty() {
            let separated = format!("{BETWEEN_TEXTS}{text}");
            if let Some(delta) = chunk.change_delta() {
                delta.insert("content".into(), separated.into());
            }
        }
    }

    fn send(&mut self, chunk: Chunk, out: &mut VecDeque<Bytes>) {
        let held = std::mem::take(&mut self.round.held);
        for chunk in held.into_iter().chain([chunk]) {
            self.has_role |= chunk.delta_field("role").is_some();
            if self.head.is_none() {
                self.head = Some(head_of(&chunk.value, &HEAD));
            }
            out.push_back(chunk.into_bytes());
        }
    }

    fn sum_usage(&mut self) {
        let mut total = self.earlier_usage.clone();
        if let Some(usage) = &self.round.usage {
            add_usage(&mut total, usage);
        }
        self.usage = total;
    }
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        let ended = std::mem::take(&mut self.round);
        if !ended.text.is_empty() {
            self.text.push_str(&ended.text);
        }
        self.earlier_usage = self.usage.clone();
    }

    fn take(&mut self, frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Some(data) = frame.data else {
            // A comment, by which servers keep a connection open.
            if self.head.is_some() {
                out.push_back(frame.bytes);
            }
            return Ok(());
        };
        if data.trim() == "[DONE]" {
            self.round.is_done = true;
            return Ok(());
        }
        let is_empty = self.round.text.is_empty() && self.round.calls.calls().is_empty();
        let (value, is_changed) = chunk_of(&data, &frame.bytes, is_empty)?;
        drop(data);
        let mut chunk = Chunk {
            value,
            bytes: (!is_changed).then_some(frame.bytes),
        };
        if let Some(usage) = object_field(&chunk.value, "usage") {
            self.round.usage = Some(usage.clone());
            self.sum_usage();
        }
        for (name, value) in chunk.delta().into_iter().flatten() {
            // Fragments of calls have an assembler of their own.
            if name == "tool_calls" {
                continue;
            }
            let message = &mut self.round.message;
            let known = message.entry(name.clone()).or_insert(Value::Null);
            merge_field(name, known, value);
        }
        self.take_calls(&mut chunk)?;
        self.join(&mut chunk);
        self.pass_on(chunk, out);
        Ok(())
    }

    fn is_ended(&self) -> bool {
        self.round.is_done
    }

    fn parts(&self) -> usize {
        self.round.calls.calls().len()
    }

    fn calls(&self) -> usize {
        self.round.calls.calls().len()
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        if self.round.finish_reason.is_none() && !self.round.is_done {
            return Err(Failure::cut_off("the connection closed"));
        }
        self.sum_usage();
        let written = self.round.written_calls(&self.hidden);
        let calls = written.iter().map(call_of);
        let (hidden, calls) = calls.partition(|call| self.hidden.contains(&call.name));
        Ok(Round {
            hidden,
            calls,
            is_complete: self.round.finish_reason.as_deref().is_none_or(is_complete),
            items: vec![message_to_send(self.round.message.clone(), written)],
            text: self.round.text.clone(),
            response_id: None,
            referable: Vec::new(),
        })
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        // A client that got no call must not be told to answer one.
        let only_hidden = self.has_hidden_calls() && self.calls_sent == 0;
        for mut chunk in std::mem::take(&mut self.round.closing) {
            let finish = chunk.value.pointer("/choices/0/finish_reason");
            if only_hidden && finish.and_then(Value::as_str) == Some("tool_calls") {
                chunk.change()["choices"][0]["finish_reason"] = "stop".into();
            }
            if self.earlier_usage.is_some()
                && chunk.value.get("usage").is_some_and(Value::is_object)
            {
                chunk.change()["usage"] = self.usage.clone().unwrap_or_default();
            }
            self.send(chunk, out);
        }
        if self.round.is_done {
            out.push_back(sse::frame(None, "[DONE]"));
        }
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}

impl Streamed {
    /// Sends a chunk, or holds it back.
    fn pass_on(&mut self, mut chunk: Chunk, out: &mut VecDeque<Bytes>) {
        let finish = chunk.value.pointer("/choices/0/finish_reason");
        let finish = finish.and_then(Value::as_str).map(str::to_owned);
        let says_something = chunk.says_something();
        let ends = finish.is_some() || self.round.finish_reason.is_some();
        if ends {
            self.round.finish_reason = self.round.finish_reason.take().or(finish);
            if says_something && self.has_hidden_calls() {
                // The end of this round is dropped, and what it says is not.
                let mut said = Chunk {
                    value: chunk.value.clone(),
                    bytes: None,
                };
                said.value["choices"][0]["finish_reason"] = Value::Null;
                self.send(said, out);
                if let Some(delta) = chunk.change_delta() {
                    delta.clear();
                }
            }
            // Held back, because a hidden round has no end for the client.
            if self.round.closing.len() < MAX_HELD {
                self.round.closing.push(chunk);
            }
        } else if says_something {
            self.send(chunk, out);
        } else if self.head.is_none() {
            // The answer begins with the first thing that it says, which may be of a later round.
            if self.round.held.len() < MAX_HELD {
                self.round.held.push(chunk);
            }
        } else if chunk.bytes.is_some() {
            // Nothing of it was taken out: it came like this.
            out.push_back(chunk.into_bytes());
        }
    }
}

/// A chunk's JSON, and whether it was brought into the form of a chunk: some servers send a whole
/// message in place of a delta, which counts where nothing came before it.
fn chunk_of(data: &str, frame: &Bytes, is_first: bool) -> Result<(Value, bool), Failure> {
    let mut value = event_value(data)?;
    if let Some(error) = value.get("error")
        && !error.is_null()
    {
        let message = match error.get("message") {
            Some(Value::String(message)) => message.clone(),
            _ => error.to_string(),
        };
        return Err(Failure::reported(frame.clone(), &message));
    }
    if !value.is_object() {
        return Err(malformed("a chunk must be an object", data));
    }
    let choice = value.pointer_mut("/choices/0");
    let choice = choice.and_then(Value::as_object_mut);
    let Some(choice) = choice.filter(|choice| !choice.contains_key("delta")) else {
        return Ok((value, false));
    };
    let Some(message) = choice.shift_remove("message") else {
        return Ok((value, false));
    };
    if is_first {
        choice.insert("delta".into(), message);
    }
    Ok((value, is_first))
}

fn with_index(mut fragment: Value, index: u64) -> Value {
    if fragment.is_object() && fragment.get("index").and_then(Value::as_u64) != Some(index) {
        fragment["index"] = index.into();
    }
    fragment
}

/// Puts fragments of an object together: texts are continued.
fn merge(known: &mut Value, more: &Value) {
    match (known, more) {
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                let known = known.entry(name.clone()).or_insert(Value::Null);
                merge_field(name, known, value);
            }
        }
        (Value::String(known), Value::String(more)) => known.push_str(more),
        (Value::Array(known), Value::Array(more)) => merge_lists(known, more),
        (_, Value::Null) => {}
        (known, more) => *known = more.clone(),
    }
}

fn merge_field(name: &str, known: &mut Value, more: &Value) {
    let is_fixed = matches!(name, "id" | "type" | "role" | "index" | "format");
    if is_fixed && !more.is_null() {
        *known = more.clone();
    } else {
        merge(known, more);
    }
}

/// Items with an index continue the item with this index.
fn merge_lists(known: &mut Vec<Value>, more: &[Value]) {
    for item in more {
        let index = item.get("index").filter(|index| index.is_u64());
        let same = known
            .iter_mut()
            .find(|known| index.is_some() && known.get("index") == index);
        match same {
            Some(known) => merge(known, item),
            None => known.push(item.clone()),
        }
    }
}

/// An answer in one piece.
#[derive(Default)]
struct Whole {
    hidden: HiddenTools,
    /// Id, time and model of the first round.
    head: Option<Map<String, Value>>,
    texts: Vec<String>,
    usage: Option<Value>,
    rounds: usize,
    /// The last round as it came, and as the client gets it if anything was hidden.
    bytes: Bytes,
    last: Value,
    has_hidden: bool,
}

impl WholeAnswer for Whole {
    fn take(&mut self, body: Bytes) -> Result<Round, Failure> {
        let mut value = whole_value(&body)?;
        let message = value
            .pointer("/choices/0/message")
            .and_then(Value::as_object);
        let Some(message) = message.cloned() else {
            return Err(malformed_body("it has no message", &body));
        };
        let finish = value.pointer("/choices/0/finish_reason");
        let finish = finish.and_then(Value::as_str).map(str::to_owned);
        self.rounds += 1;
        if self.head.is_none() {
            self.head = Some(head_of(&value, &HEAD));
        }
        if let Some(usage) = object_field(&value, "usage") {
            add_usage(&mut self.usage, usage);
        }
        let text = content_text(message.get("content"));
        if !text.is_empty() {
            self.texts.push(text.clone());
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let (mut written, mut hidden, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for call in calls.into_iter().flatten() {
            let mut call = call.clone();
            // The result of a hidden call names its id; others stay as the provider wrote them.
            if self.hidden.contains(&call_of(&call).name) {
                call = with_id(call);
                hidden.push(call.clone());
            } else {
                sent.push(call.clone());
            }
            written.push(call);
        }
        self.has_hidden = !hidden.is_empty();
        // The client does not get these calls, and is not told that the model stopped for them.
        if self.has_hidden
            && let Some(message) = value.pointer_mut("/choices/0/message")
            && let Some(message) = message.as_object_mut()
        {
            message.shift_remove("tool_calls");
            if !sent.is_empty() {
                message.insert("tool_calls".into(), sent.clone().into());
            } else if finish.as_deref() == Some("tool_calls") {
                value["choices"][0]["finish_reason"] = "stop".into();
            }
        }
        self.bytes = body;
        self.last = value;
        Ok(Round {
            hidden: hidden.iter().map(call_of).collect(),
            calls: sent.iter().map(call_of).collect(),
            is_complete: finish.as_deref().is_none_or(is_complete),
            items: vec![message_to_send(message, written)],
            text,
            response_id: None,
            referable: Vec::new(),
        })
    }

    fn close(&mut self) -> Bytes {
        if self.rounds == 1 && !self.has_hidden {
            return std::mem::take(&mut self.bytes);
        }
        let mut answer = std::mem::take(&mut self.last);
        // For the client all rounds are one answer, with the id of the first.
        for (name, value) in self.head.take().unwrap_or_default() {
            answer[name] = value;
        }
        if let Some(usage) = &self.usage {
            answer["usage"] = usage.clone();
        }
        if self.texts.len() > 1
            || (!self.texts.is_empty()
                && content_text(answer.pointer("/choices/0/message/content")).is_empty())
        {
            answer["choices"][0]["message"]["content"] = self.texts.join(BETWEEN_TEXTS).into();
        }
        json::bytes(&answer)
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}
