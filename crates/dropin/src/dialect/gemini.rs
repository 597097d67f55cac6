//! Google's Gemini: `generateContent` and `streamGenerateContent`.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    BETWEEN_TEXTS, CallResult, Failure, Fields, Frame, HiddenTools, Item, ModelCall, OfferedTool,
    Protocol, Round, StreamedAnswer, View, WholeAnswer, add_usage, event_value, head_of, malformed,
    object_field, text_field, whole_value, with_results,
};
use crate::wire::{json, sse};
use toolscout_gate::llm::ToolSpec;

/// Fields of an answer that are the same in all its chunks.
const HEAD: [&str; 2] = ["responseId", "modelVersion"];
/// The names of a list of functions within `tools`.
const DECLARATIONS: [&str; 2] = ["functionDeclarations", "function_declarations"];
/// The names of the field that says which calls are allowed.
const CHOICE: [&str; 2] = ["toolConfig", "tool_config"];
/// What a part must not have so that it is joined with the part before it.
const ONLY_TEXT: [&str; 2] = ["text", "thought"];

/// The body of an error.
pub fn error(failure: &Failure) -> Value {
    json!({ "error": {
        "code": failure.status,
        "message": failure.message,
        "status": status_of(failure.status),
    } })
}

/// The name of a status in Google's APIs.
fn status_of(status: u16) -> &'static str {
    match status {
        400 | 405 | 411 | 413 | 415 | 422 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

/// An error within a stream of events.
pub fn error_event(failure: &Failure) -> Bytes {
    sse::frame(None, &error(failure).to_string())
}

/// The query of an address, with events as the form of the answer.
pub fn events_query(given: Option<&str>) -> String {
    let given = given.unwrap_or_default().split('&');
    let others = given.filter(|field| !field.is_empty() && !field.starts_with("alt="));
    let fields: Vec<&str> = others.chain(["alt=sse"]).collect();
    fields.join("&")
}

pub struct Gemini;

impl Protocol for Gemini {
    fn conversation_field(&self) -> &'static str {
        "contents"
    }

    fn can_hide_rounds(&self, request: &Fields) -> bool {
        let config = request.value("generationConfig");
        let config = config.or(request.value("generation_config"));
        let config = config.unwrap_or_default();
        let candidates = config
            .get("candidateCount")
            .or(config.get("candidate_count"));
        // Of several answers, each would need rounds of its own.
        let is_one = candidates.is_none_or(|number| number.is_null() || *number == 1);
        // Arguments in fragments come in a form of their own.
        let choice = self.choice(request);
        is_one && calling(&choice).get("streamFunctionCallArguments") != Some(&Value::Bool(true))
    }

    fn tool(&self, json: &Bytes) -> OfferedTool {
        OfferedTool::hosted(json)
    }

    /// An entry has a list of functions, and may have tools of the provider beside it.
    fn members(&self, json: &Bytes) -> Option<Vec<OfferedTool>> {
        let mut fields = Fields::read(json)?;
        let name = DECLARATIONS
            .into_iter()
            .find(|name| fields.get(name).is_some())?;
        let declarations = json::items(fields.get(name)?)?;
        fields.remove(name);
        let mut members = Vec::with_capacity(declarations.len() + 1);
        if !fields.is_empty() {
            members.push(self.tool(&fields.to_json()));
        }
        members.extend(declarations.iter().map(function));
        Some(members)
    }

    /// The tools of the provider come first, so that functions can be added at the end.
    fn tool_list(&self, entries: &[Bytes]) -> Bytes {
        let (mut hosted, mut functions) = (Vec::new(), Vec::new());
        for entry in entries {
            match Fields::read(entry) {
                Some(fields) if fields.get("name").is_some() => functions.push(entry.clone()),
                _ => hosted.push(entry.clone()),
            }
        }
        let mut group = Fields::default();
        group.set(DECLARATIONS[0], json::list(&functions));
        hosted.push(group.to_json());
        json::list(&hosted)
    }

    fn search_tool(&self, spec: &ToolSpec) -> Bytes {
        json::bytes(&json!({
            "name": spec.name,
            "description": spec.description,
            "parametersJsonSchema": spec.parameters,
        }))
    }

    fn choice(&self, request: &Fields) -> Value {
        let mut fields = CHOICE.into_iter();
        fields
            .find_map(|name| request.value(name))
            .unwrap_or_default()
    }

    fn chosen_tools(&self, choice: &Value) -> Vec<String> {
        let calling = calling(choice);
        let names = calling.get("allowedFunctionNames");
        let names = names.or(calling.get("allowed_function_names"));
        let names = names.and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn forbid_calls(&self, request: &mut Fields) {
        let mut choice = self.choice(request);
        if !choice.is_object() {
            choice = json!({});
        }
        for name in CHOICE {
            request.remove(name);
        }
        if let Some(fields) = choice.as_object_mut() {
            fields.shift_remove("function_calling_config");
        }
        choice["functionCallingConfig"] = json!({ "mode": "NONE" });
        request.set(CHOICE[0], json::bytes(&choice));
    }

    fn item(&self, item: &Value) -> Item {
        let parts = parts_of(item);
        if item.get("role").and_then(Value::as_str) == Some("model") {
            return Item::OfModel {
                text: text_of(parts),
                calls: calls_of(parts),
            };
        }
        let (mut text, mut others) = (String::new(), Vec::new());
        for part in parts {
            match part.get("text").and_then(Value::as_str) {
                Some(said) => text.push_str(said),
                None => others.push(json::canonical(part)),
            }
        }
        others.insert(0, text.into());
        // A content without a role is of the user too.
        Item::OfClient(json!(["user", others]))
    }

    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        if results.is_empty() {
            return Vec::new();
        }
        let parts: Vec<Value> = results.iter().map(result_part).collect();
        vec![json::bytes(&json!({ "role": "user", "parts": parts }))]
    }

    /// All results of a round are in one content.
    fn results_before(&self, results: &[CallResult], next: Option<&Bytes>) -> (Vec<Bytes>, bool) {
        let next = next.and_then(Fields::read);
        let Some(content) = next.filter(|next| next.text("role").as_deref() != Some("model"))
        else {
            return (self.results(results), false);
        };
        let parts = results.iter().map(result_part);
        (vec![with_results(content, "parts", parts)], true)
    }

    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer> {
        Box::new(Streamed {
            hidden: view.hidden,
            writer: Writer {
                is_list: view.wants_list,
                has_begun: false,
            },
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

fn function(json: &Bytes) -> OfferedTool {
    OfferedTool::function(Fields::read(json).unwrap_or_default(), json)
}

/// What is said of calls in a `toolConfig`.
fn calling(choice: &Value) -> &Value {
    let calling = choice.get("functionCallingConfig");
    calling
        .or(choice.get("function_calling_config"))
        .unwrap_or(&Value::Null)
}

fn result_part(result: &CallResult) -> Value {
    let mut response = json!({ "name": result.name, "response": { "output": result.text } });
    // Only calls with an id have results with one.
    if !result.id.is_empty() {
        response["id"] = result.id.as_str().into();
    }
    json!({ "functionResponse": response })
}

fn parts_of(content: &Value) -> &[Value] {
    let parts = content.get("parts").and_then(Value::as_array);
    parts.map_or(&[], Vec::as_slice)
}

/// A call that is a part of the model's content. Clients may write its name in snake case.
fn call_within(part: &Value) -> Option<&Value> {
    let call = part.get("functionCall").or(part.get("function_call"));
    call.filter(|call| call.is_object())
}

fn call_of(call: &Value) -> ModelCall {
    let arguments = object_field(call, "args").cloned();
    ModelCall {
        id: text_field(call, "id"),
        name: text_field(call, "name"),
        namespace: None,
        arguments: arguments.unwrap_or_else(|| json!({})).to_string(),
    }
}

fn calls_of(parts: &[Value]) -> Vec<ModelCall> {
    parts.iter().filter_map(call_within).map(call_of).collect()
}

/// What the model said, without what it thought.
fn text_of(parts: &[Value]) -> String {
    let said = parts.iter().filter(|part| !is_thought(part));
    said.filter_map(|part| part.get("text")?.as_str()).collect()
}

fn is_thought(part: &Value) -> bool {
    part.get("thought").and_then(Value::as_bool) == Some(true)
}

fn is_complete(finish: &str) -> bool {
    finish == "STOP"
}

/// The content of the first answer.
fn content_of(value: &Value) -> Option<&Value> {
    value.pointer("/candidates/0/content")
}

fn finish_of(value: &Value) -> Option<String> {
    let finish = value.pointer("/candidates/0/finishReason")?.as_str()?;
    Some(finish.to_owned())
}

fn round_of(hidden_tools: &HiddenTools, parts: &[Value], finish: Option<&str>) -> Round {
    let calls = calls_of(parts).into_iter();
    let (hidden, calls) = calls.partition(|call| hidden_tools.contains(&call.name));
    Round {
        hidden,
        calls,
        is_complete: finish.is_none_or(is_complete),
        // As it came: a part may have a signature, without which the provider refuses it.
        items: vec![json::bytes(&json!({ "role": "model", "parts": parts }))],
        text: text_of(parts),
        response_id: None,
        referable: Vec::new(),
    }
}

/// Writes the chunks of an answer, as events or as items of one list.
#[derive(Default)]
struct Writer {
    is_list: bool,
    has_begun: bool,
}

impl Writer {
    /// A chunk; `bytes` is the event that it came in, if it is unchanged.
    fn chunk(&mut self, chunk: &Value, bytes: Option<Bytes>) -> Bytes {
        let is_first = !self.has_begun;
        self.has_begun = true;
        match (self.is_list, bytes) {
            (false, Some(bytes)) => bytes,
            (false, None) => sse::frame(None, &chunk.to_string()),
            (true, _) if is_first => format!("[{chunk}").into(),
            (true, _) => format!(",\r\n{chunk}").into(),
        }
    }

    fn end(&mut self) -> Option<Bytes> {
        let end = if self.has_begun { "]" } else { "[]" };
        self.is_list.then(|| Bytes::from_static(end.as_bytes()))
    }
}

/// An answer in chunks.
#[derive(Default)]
struct Streamed {
    hidden: HiddenTools,
    writer: Writer,
    /// Id and model of the first round.
    head: Option<Map<String, Value>>,
    /// The text of the rounds before.
    text: String,
    /// Usage of the rounds before.
    earlier_usage: Option<Value>,
    usage: Option<Value>,
    round: StreamedRound,
}

/// The round that is being read.
#[derive(Default)]
struct StreamedRound {
    parts: Vec<Value>,
    calls: usize,
    has_hidden: bool,
    has_text: bool,
    finish: Option<String>,
    /// The chunks from the end of the model's content on.
    closing: Vec<(Value, Option<Bytes>)>,
    usage: Option<Value>,
    /// Whether there is no answer, because the prompt was refused.
    is_blocked: bool,
}

impl StreamedRound {
    fn add(&mut self, part: &Value) {
        self.calls += usize::from(call_within(part).is_some());
        if let Some(last) = self.parts.last_mut()
            && continues(last, part)
            && let Some(more) = part.get("text").and_then(Value::as_str)
            && let Some(Value::String(text)) = last.get_mut("text")
        {
            text.push_str(more);
            return;
        }
        self.parts.push(part.clone());
    }
}

/// Whether a part is more text of the part before it.
fn continues(last: &Value, part: &Value) -> bool {
    let is_text = |part: &Value| match part {
        Value::Object(fields) => fields.keys().all(|name| ONLY_TEXT.contains(&name.as_str())),
        _ => false,
    };
    is_text(last) && is_text(part) && is_thought(last) == is_thought(part)
}

impl Streamed {
    /// Takes the hidden calls out of a chunk. Returns whether any was there.
    fn hide_calls(&self, chunk: &mut Value) -> bool {
        let parts = chunk.pointer_mut("/candidates/0/content/parts");
        let Some(parts) = parts.and_then(Value::as_array_mut) else {
            return false;
        };
        let before = parts.len();
        parts.retain(|part| {
            call_within(part).is_none_or(|call| !self.hidden.contains(&call_of(call).name))
        });
        parts.len() < before
    }

    /// Makes a chunk of a later round part of the one answer. Returns whether it changed.
    fn join(&mut self, chunk: &mut Value) -> bool {
        let mut is_changed = false;
        match &self.head {
            None => self.head = Some(head_of(chunk, &HEAD)),
            Some(head) => {
                for (name, value) in head {
                    if chunk.get(name).is_some_and(|given| given != value) {
                        chunk[name] = value.clone();
                        is_changed = true;
                    }
                }
            }
        }
        let parts = chunk.pointer_mut("/candidates/0/content/parts");
        let parts = parts.and_then(Value::as_array_mut).into_iter().flatten();
        for part in parts {
            let is_said = !is_thought(part);
            let Some(Value::String(text)) = part.get_mut("text") else {
                continue;
            };
            if !is_said || text.is_empty() {
                continue;
            }
            if !self.round.has_text && !self.text.is_empty() {
                text.insert_str(0, BETWEEN_TEXTS);
                is_changed = true;
            }
            self.round.has_text = true;
        }
        if self.earlier_usage.is_some() && chunk.get("usageMetadata").is_some() {
            chunk["usageMetadata"] = self.usage.clone().unwrap_or_default();
            is_changed = true;
        }
        is_changed
    }

    fn sum_usage(&mut self) {
        let mut total = self.earlier_usage.clone();
        if let Some(usage) = &self.round.usage {
            add_usage(&mut total, usage);
        }
        self.usage = total;
    }
}

/// Whether a chunk has something that the client has to see before the end of the round.
fn says_something(chunk: &Value) -> bool {
    content_of(chunk).is_some_and(|content| !parts_of(content).is_empty())
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        let ended = std::mem::take(&mut self.round);
        self.text.push_str(&text_of(&ended.parts));
        self.earlier_usage.clone_from(&self.usage);
    }

    fn take(&mut self, frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Some(data) = frame.data else {
            return Ok(());
        };
        let mut chunk = event_value(&data)?;
        if let Some(error) = object_field(&chunk, "error") {
            let message = text_field(error, "message");
            let event = (!self.writer.is_list).then_some(frame.bytes);
            return Err(Failure {
                event,
                ..Failure::reported(Bytes::new(), &message)
            });
        }
        if !chunk.is_object() {
            return Err(malformed("a chunk must be an object", &data));
        }
        drop(data);
        if let Some(usage) = object_field(&chunk, "usageMetadata") {
            self.round.usage = Some(usage.clone());
            self.sum_usage();
        }
        self.round.is_blocked |= object_field(&chunk, "promptFeedback")
            .is_some_and(|feedback| feedback.get("blockReason").is_some());
        if let Some(content) = content_of(&chunk) {
            for part in parts_of(content) {
                self.round.add(part);
            }
        }
        let finish = finish_of(&chunk);
        let hides = self.hide_calls(&mut chunk);
        self.round.has_hidden |= hides;
        let is_changed = self.join(&mut chunk) | hides;
        let ends = finish.is_some() || self.round.finish.is_some() || self.round.is_blocked;
        self.round.finish = self.round.finish.take().or(finish);
        let mut bytes = (!is_changed).then_some(frame.bytes);
        if !ends {
            // What is left of a chunk of hidden calls says nothing.
            if says_something(&chunk) || !hides {
                out.push_back(self.writer.chunk(&chunk, bytes));
            }
            return Ok(());
        }
        // The end of a hidden round is none for the client, and what it says is not hidden.
        if self.round.has_hidden && says_something(&chunk) {
            let mut said = chunk.clone();
            if let Some(candidate) = said.pointer_mut("/candidates/0")
                && let Some(candidate) = candidate.as_object_mut()
            {
                candidate.shift_remove("finishReason");
            }
            out.push_back(self.writer.chunk(&said, None));
            if let Some(parts) = chunk.pointer_mut("/candidates/0/content/parts") {
                *parts = json!([]);
            }
            bytes = None;
        }
        self.round.closing.push((chunk, bytes));
        Ok(())
    }

    /// The end of the connection says so: tokens may be counted after the last content.
    fn is_ended(&self) -> bool {
        false
    }

    fn parts(&self) -> usize {
        self.round.parts.len() + self.round.closing.len()
    }

    fn calls(&self) -> usize {
        self.round.calls
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        if self.round.finish.is_none() && !self.round.is_blocked {
            return Err(Failure::cut_off("the connection closed"));
        }
        self.sum_usage();
        let finish = match self.round.is_blocked {
            true => Some("BLOCKED"),
            false => self.round.finish.as_deref(),
        };
        Ok(round_of(&self.hidden, &self.round.parts, finish))
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        for (chunk, bytes) in std::mem::take(&mut self.round.closing) {
            out.push_back(self.writer.chunk(&chunk, bytes));
        }
        out.extend(self.writer.end());
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }

    fn error_event(&mut self, failure: &Failure) -> Option<Bytes> {
        let error = self.writer.chunk(&error(failure), None);
        let mut event = error.to_vec();
        event.extend(self.writer.end().unwrap_or_default());
        Some(event.into())
    }

    fn content_type(&self) -> Option<&'static str> {
        self.writer
            .is_list
            .then_some("application/json; charset=UTF-8")
    }
}

/// An answer in one piece.
#[derive(Default)]
struct Whole {
    hidden: HiddenTools,
    head: Option<Map<String, Value>>,
    /// The parts that the client gets.
    parts: Vec<Value>,
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
        if !value.is_object() {
            return Err(super::malformed_body("it must be an object", &body));
        }
        self.rounds += 1;
        if self.head.is_none() {
            self.head = Some(head_of(&value, &HEAD));
        }
        if let Some(usage) = object_field(&value, "usageMetadata") {
            add_usage(&mut self.usage, usage);
        }
        let parts = content_of(&value).map(|content| parts_of(content).to_vec());
        let finish = match &parts {
            // A prompt that was refused has no answer, and a candidate may have no content.
            None => Some(finish_of(&value).unwrap_or_else(|| "BLOCKED".to_owned())),
            Some(_) => finish_of(&value),
        };
        let parts = parts.unwrap_or_default();
        let round = round_of(&self.hidden, &parts, finish.as_deref());
        self.has_hidden = !round.hidden.is_empty();
        self.show(parts);
        self.bytes = body;
        self.last = value;
        Ok(round)
    }

    fn close(&mut self) -> Bytes {
        if self.rounds == 1 && !self.has_hidden {
            return std::mem::take(&mut self.bytes);
        }
        let mut answer = std::mem::take(&mut self.last);
        for (name, value) in self.head.take().unwrap_or_default() {
            answer[name] = value;
        }
        if let Some(usage) = &self.usage {
            answer["usageMetadata"] = usage.clone();
        }
        let parts = std::mem::take(&mut self.parts);
        if let Some(candidate) = answer.pointer_mut("/candidates/0")
            && candidate.is_object()
        {
            candidate["content"] = json!({ "role": "model", "parts": parts });
        }
        json::bytes(&answer)
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}

impl Whole {
    /// Adds the parts of a round to what the client gets.
    fn show(&mut self, parts: Vec<Value>) {
        let mut follows_text = !text_of(&self.parts).is_empty();
        for mut part in parts {
            if call_within(&part).is_some_and(|call| self.hidden.contains(&call_of(call).name)) {
                continue;
            }
            let is_said = !is_thought(&part);
            if let Some(Value::String(text)) = part.get_mut("text")
                && is_said
                && follows_text
                && !text.is_empty()
            {
                text.insert_str(0, BETWEEN_TEXTS);
                follows_text = false;
            }
            self.parts.push(part);
        }
    }
}
