//! OpenAI's responses.

mod items;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use self::items::{ItemInProgress, Place};
use super::{
    CallResult, Failure, Fields, Frame, Item, ModelCall, Namespace, OfferedTool, Protocol, Round,
    StreamedAnswer, ToolKind, View, WholeAnswer, add_usage, content_essence, content_text,
    event_value, has_type, malformed, malformed_body, name_within, object_field, take_deferral,
    text_field, whole_value,
};
use crate::wire::{json, sse};
use toolscout_gate::llm::ToolSpec;

/// Stands in an event for the client's tools, which are put in as they came.
const TOOLS_PLACE: &str = "\u{1}the tools of the request\u{1}";

/// An error within a stream, as the event with this number.
pub fn error_event(failure: &Failure, number: u64) -> Bytes {
    let mut event = error_in_stream(failure);
    event["sequence_number"] = number.into();
    sse::frame(Some("error"), &event.to_string())
}

fn error_in_stream(failure: &Failure) -> Value {
    json!({
        "type": "error",
        "code": failure.code,
        "message": failure.message,
        "param": null,
        // The SDK for Python only raises what has this field.
        "error": { "type": failure.kind(), "code": failure.code, "message": failure.message },
        "sequence_number": 0,
    })
}

pub struct Responses;

impl Protocol for Responses {
    fn conversation_field(&self) -> &'static str {
        "input"
    }

    fn conversation(&self, request: &Fields) -> Option<Vec<Bytes>> {
        let input = request.get("input")?;
        if let Ok(text) = serde_json::from_slice::<String>(input) {
            // The form that it has in a list, so that it is the same in later rounds.
            return Some(vec![json::bytes(
                &json!({ "role": "user", "content": text }),
            )]);
        }
        json::items(input)
    }

    fn can_hide_rounds(&self, request: &Fields) -> bool {
        // An answer in the background is asked for later, and not here.
        request.flag("background") != Some(true)
    }

    fn tool(&self, json: &Bytes) -> OfferedTool {
        let fields = Fields::read(json).unwrap_or_default();
        let kind = match fields.text("type").as_deref() {
            Some("function") => ToolKind::Function,
            Some("tool_search") => ToolKind::NativeSearch,
            _ => ToolKind::Hosted,
        };
        if kind != ToolKind::Function {
            return OfferedTool {
                kind,
                ..OfferedTool::hosted(json)
            };
        }
        OfferedTool::function(fields, json)
    }

    fn members(&self, json: &Bytes) -> Option<Vec<OfferedTool>> {
        let mut fields = Fields::read(json)?;
        if fields.text("type").as_deref() != Some("namespace") {
            return None;
        }
        let tools = json::items(fields.get("tools")?)?;
        // A mark of the namespace holds for its tools that have none.
        let (of_all, _) = take_deferral(&mut fields, json);
        let name = fields.text("name").unwrap_or_default();
        fields.set("tools", json::list([]));
        let namespace = Arc::new(Namespace { name, fields });
        let mut members = Vec::with_capacity(tools.len());
        for json in &tools {
            let tool = self.tool(json);
            let name = match tool.name.is_empty() {
                true => String::new(),
                false => name_within(&namespace.name, &tool.name),
            };
            members.push(OfferedTool {
                name,
                namespace: Some(Arc::clone(&namespace)),
                defer_loading: tool.defer_loading.or(of_all),
                ..tool
            });
        }
        Some(members)
    }

    fn search_tool(&self, spec: &ToolSpec) -> Bytes {
        json::bytes(&json!({
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "strict": false,
        }))
    }

    fn chosen_tools(&self, choice: &Value) -> Vec<String> {
        match choice.get("type").and_then(Value::as_str) {
            Some("function") => vec![text_field(choice, "name")],
            Some("allowed_tools") => {
                let allowed = choice.get("tools").and_then(Value::as_array);
                let allowed = allowed.into_iter().flatten();
                allowed.map(|tool| text_field(tool, "name")).collect()
            }
            _ => Vec::new(),
        }
    }

    fn forbid_calls(&self, request: &mut Fields) {
        request.set("tool_choice", Bytes::from_static(b"\"none\""));
    }

    fn item(&self, item: &Value) -> Item {
        let content = item.get("content");
        let kind = item.get("type").and_then(Value::as_str);
        match (kind, item.get("role").and_then(Value::as_str)) {
            (_, Some("system" | "developer")) => Item::Instructions,
            (_, Some("assistant")) => Item::OfModel {
                text: content_text(content),
                calls: Vec::new(),
            },
            (_, Some(role)) => Item::OfClient(json!([role, content_essence(content)])),
            (Some("item_reference"), None) => Item::Reference(text_field(item, "id")),
            (Some("function_call"), None) => Item::OfModel {
                text: String::new(),
                calls: vec![call_of(item)],
            },
            (Some("function_call_output"), None) => Item::OfClient(json!([
                item.get("call_id"),
                content_essence(item.get("output"))
            ])),
            (Some(kind), None) if is_of_client(kind) => Item::OfClient(json::canonical(item)),
            _ => Item::OfModel {
                text: String::new(),
                calls: Vec::new(),
            },
        }
    }

    fn results(&self, results: &[CallResult]) -> Vec<Bytes> {
        results.iter().map(output_item).collect()
    }

    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer> {
        Box::new(Streamed::new(view))
    }

    fn whole(&self, view: View) -> Box<dyn WholeAnswer> {
        Box::new(Whole {
            view,
            sent: Vec::new(),
            usage: None,
            rounds: 0,
            has_hidden: false,
            bytes: Bytes::new(),
            last: Value::Null,
        })
    }
}

fn output_item(result: &CallResult) -> Bytes {
    json::bytes(&json!({
        "type": "function_call_output",
        "call_id": result.id,
        "output": result.text,
    }))
}

/// Whether items of this type come from the client: results of what the model did.
fn is_of_client(kind: &str) -> bool {
    kind.ends_with("_output") || kind == "mcp_approval_response"
}

fn call_of(item: &Value) -> ModelCall {
    let namespace = text_field(item, "namespace");
    ModelCall {
        id: call_id(item),
        name: text_field(item, "name"),
        namespace: (!namespace.is_empty()).then_some(namespace),
        arguments: text_field(item, "arguments"),
    }
}

/// The id that a call's result names; some servers give the item's id alone.
fn call_id(item: &Value) -> String {
    let id = text_field(item, "call_id");
    match id.is_empty() {
        true => text_field(item, "id"),
        false => id,
    }
}

fn is_call(item: &Value) -> bool {
    has_type(item, "function_call")
}

fn is_hidden(item: &Value, view: &View) -> bool {
    let call = call_of(item);
    is_call(item) && call.namespace.is_none() && view.hidden.contains(&call.name)
}

/// An item as it is sent back; `None` for one that the provider would not know.
fn written_back(item: &Value, view: &View) -> Option<Bytes> {
    let is_encrypted = item.get("encrypted_content").is_some_and(Value::is_string);
    // What is not stored is known by its content alone.
    if has_type(item, "reasoning") && !view.is_stored && !is_encrypted {
        return None;
    }
    Some(json::bytes(item))
}

fn round_of(items: &[Value], response: &Value, view: &View) -> Round {
    let id = response.get("id").and_then(Value::as_str);
    let mut round = Round {
        is_complete: match response.get("status") {
            Some(status) => status == "completed",
            // Some servers leave it out.
            None => true,
        },
        response_id: id.map(str::to_owned),
        ..Round::default()
    };
    for item in items {
        // The provider needs all that the model said, also what the client does not see.
        round.items.extend(written_back(item, view));
        if is_hidden(item, view) {
            round.hidden.push(call_of(item));
            continue;
        }
        if is_call(item) {
            round.calls.push(call_of(item));
        }
        if is_message(item) {
            round.text.push_str(&content_text(item.get("content")));
        }
        if let Some(id) = item.get("id").and_then(Value::as_str) {
            round.referable.push((id.to_owned(), Responses.item(item)));
        }
    }
    round
}

fn is_message(item: &Value) -> bool {
    has_type(item, "message")
}

fn has_response(events: &[Value]) -> bool {
    events.iter().any(|event| event.get("response").is_some())
}

/// A text in which the place of the tools is filled.
fn with_tools(text: &str, view: &View) -> Bytes {
    let place = json::text(TOOLS_PLACE);
    let tools = String::from_utf8_lossy(&view.tools);
    text.replacen(&place, &tools, 1).into()
}

/// Marks where the client's tools belong, if the provider repeats them.
fn mark_tools(response: &mut Value) {
    if let Some(tools) = response.get_mut("tools") {
        *tools = TOOLS_PLACE.into();
    }
}

/// An answer in events.
struct Streamed {
    view: View,
    /// The number of the next event.
    sequence: u64,
    /// Whether the provider numbers its events.
    is_numbered: bool,
    /// The id in the events that the client got at the beginning.
    first_id: Option<String>,
    /// The beginning of the answer, until there is something to send.
    held: Vec<Value>,
    /// Items that the client got, of the rounds before.
    sent: Vec<Value>,
    earlier_usage: Option<Value>,
    usage: Option<Value>,
    rounds_before: usize,
    has_begun: bool,
    round: StreamedRound,
}

/// The round that is being read.
#[derive(Default)]
struct StreamedRound {
    /// In the order in which they began.
    items: Vec<ItemInProgress>,
    /// How many of them are known to be calls.
    calls: usize,
    /// The answer as the first event has it.
    begun: Option<Value>,
    /// The last event.
    closing: Option<Value>,
}

impl Streamed {
    fn new(view: View) -> Self {
        Streamed {
            view,
            sequence: 0,
            is_numbered: false,
            first_id: None,
            held: Vec::new(),
            sent: Vec::new(),
            earlier_usage: None,
            usage: None,
            rounds_before: 0,
            has_begun: false,
            round: StreamedRound::default(),
        }
    }

    /// Sends the beginning of the answer, once.
    fn begin(&mut self, out: &mut VecDeque<Bytes>) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let mut held = std::mem::take(&mut self.held);
        // Some servers send no event that begins the answer.
        if !has_response(&held) {
            held.insert(0, self.with_number(items::created(&Value::Null)));
        }
        for mut event in held {
            if let Some(response) = event.get_mut("response") {
                let id = response.get("id").and_then(Value::as_str);
                self.first_id = id.map(str::to_owned);
                mark_tools(response);
            }
            let bytes = self.numbered(event, None);
            out.push_back(bytes);
        }
    }

    /// The event with its number for the client, as it came if nothing else changed.
    fn numbered(&mut self, mut event: Value, as_it_came: Option<Bytes>) -> Bytes {
        // The provider's numbers also count the events that the client does not get.
        let number = event.get("sequence_number").and_then(Value::as_u64);
        let sequence = self.sequence;
        if number.is_some() {
            self.sequence += 1;
        }
        let is_right = number.is_none() || number == Some(sequence);
        if is_right && let Some(bytes) = as_it_came {
            return bytes;
        }
        if number.is_some() {
            event["sequence_number"] = sequence.into();
        }
        let name = event.get("type").and_then(Value::as_str);
        with_tools(
            &String::from_utf8_lossy(&sse::frame(name, &event.to_string())),
            &self.view,
        )
    }

    /// Sends an event that the provider left out.
    fn send_own(&mut self, event: Value, out: &mut VecDeque<Bytes>) {
        let event = self.with_number(event);
        let bytes = self.numbered(event, None);
        out.push_back(bytes);
    }

    /// Gives an event of ours a number, to be replaced, where those of the provider have one.
    fn with_number(&self, mut event: Value) -> Value {
        if self.is_numbered {
            event["sequence_number"] = 0.into();
        }
        event
    }

    /// An event of one item, or one that belongs to none.
    fn take_other(&mut self, event: Value, bytes: Bytes, out: &mut VecDeque<Bytes>) {
        let Some(position) = self.item_of(&event) else {
            // Nothing is sent before it is clear that the client gets something of this round.
            if !self.has_begun {
                self.held.push(event);
                return;
            }
            let bytes = self.numbered(event, Some(bytes));
            out.push_back(bytes);
            return;
        };
        self.round.items[position].read(&event);
        self.round.items[position].waiting.push((event, bytes));
        self.decide(position);
        self.send_waiting(position, out);
    }

    /// The position of the item that an event is about, which may be a new one.
    fn item_of(&mut self, event: &Value) -> Option<usize> {
        let kind = event.get("type").and_then(Value::as_str)?;
        let items = &mut self.round.items;
        let begins = kind == "response.output_item.added";
        let found = items::find(items, event, begins);
        if found.is_some() {
            return found;
        }
        let item = ItemInProgress::beginning_with(kind, event)?;
        items.push(item);
        Some(items.len() - 1)
    }

    /// Decides whether the client gets an item, once its kind and name are known.
    fn decide(&mut self, position: usize) {
        let items = &self.round.items;
        let item = &items[position];
        if item.place != Place::Open || !item.is_known() {
            return;
        }
        let sent_before = items.iter().filter_map(ItemInProgress::sent_as).count();
        let place = match is_hidden(&item.value, &self.view) {
            true => Place::Hidden,
            false => Place::Sent((self.sent.len() + sent_before) as u64),
        };
        self.round.calls += usize::from(is_call(&item.value));
        self.round.items[position].place = place;
    }

    /// Sends the events of an item that have come, if the client gets it.
    fn send_waiting(&mut self, position: usize, out: &mut VecDeque<Bytes>) {
        let item = &mut self.round.items[position];
        let place = match item.place {
            Place::Open => return,
            Place::Hidden => return item.waiting.clear(),
            Place::Sent(place) => place,
        };
        let waiting = std::mem::take(&mut item.waiting);
        self.begin(out);
        for (mut event, bytes) in waiting {
            let ends = event["type"] == "response.output_item.done";
            if event["type"] == "response.output_item.added" {
                self.round.items[position].is_begun = true;
            } else {
                self.send_beginning(position, place, ends, out);
            }
            // An event that needs no change keeps its bytes.
            let mut as_it_came = Some(bytes);
            if ends {
                let item = &mut self.round.items[position];
                item.is_end_sent = true;
                if event.get("item") != Some(&item.value) {
                    event["item"] = item.value.clone();
                    as_it_came = None;
                }
            }
            if event.get("output_index").and_then(Value::as_u64) != Some(place) {
                event["output_index"] = place.into();
                as_it_came = None;
            }
            let bytes = self.numbered(event, as_it_came);
            out.push_back(bytes);
        }
    }

    /// Sends what comes before an item's content, where the provider left it out; the content too,
    /// if the item comes `whole`.
    fn send_beginning(
        &mut self,
        position: usize,
        place: u64,
        whole: bool,
        out: &mut VecDeque<Bytes>,
    ) {
        let item = &mut self.round.items[position];
        if item.is_begun {
            return;
        }
        item.is_begun = true;
        for event in items::beginning(&item.value, place, whole) {
            self.send_own(event, out);
        }
    }

    /// Ends what the provider did not end, and takes items that only its last event has.
    fn end_items(&mut self, closing: &Value, out: &mut VecDeque<Bytes>) {
        let response = closing.get("response").unwrap_or(&Value::Null);
        let output = response.get("output").and_then(Value::as_array);
        let is_complete = closing["type"] == "response.completed";
        items::complete(
            &mut self.round.items,
            output.map_or(&[], Vec::as_slice),
            is_complete,
        );
        if !self.has_begun && !has_response(&self.held) {
            let created = self.with_number(items::created(response));
            self.held.insert(0, created);
        }
        // The client gets what the last event alone has as if it had been streamed.
        for position in 0..self.round.items.len() {
            self.decide(position);
            self.send_waiting(position, out);
            let item = &self.round.items[position];
            let (Place::Sent(place), true, false) = (item.place, item.is_ended, item.is_end_sent)
            else {
                continue;
            };
            self.begin(out);
            self.send_beginning(position, place, true, out);
            let item = &mut self.round.items[position];
            item.is_end_sent = true;
            let event = json!({ "type": "response.output_item.done", "output_index": place,
                "item": item.value });
            self.send_own(event, out);
        }
    }

    /// Notes the last event of the round.
    fn close_round(&mut self, mut closing: Value, out: &mut VecDeque<Bytes>) {
        // Some servers send `[DONE]` after the last event.
        if self.round.closing.is_some() {
            return;
        }
        // Some servers give the last event this name.
        if closing["type"] == "response.done" {
            closing["type"] = "response.completed".into();
        }
        self.end_items(&closing, out);
        let mut total = self.earlier_usage.clone();
        let response = closing.get("response");
        if let Some(usage) = response.and_then(|response| object_field(response, "usage")) {
            add_usage(&mut total, usage);
        }
        self.usage = total;
        self.round.closing = Some(closing);
    }

    /// The last event, where the provider sent `[DONE]` in its place.
    fn missing_closing(&self) -> Value {
        let mut response = match &self.round.begun {
            Some(begun) => begun.clone(),
            None => items::empty_response(&Value::Null),
        };
        response["status"] = "completed".into();
        self.with_number(json!({ "type": "response.completed", "response": response }))
    }

    /// The items of the round that the client got, in their places.
    fn sent_items(&self) -> Vec<Value> {
        let mut sent = Vec::new();
        for item in &self.round.items {
            if item.is_ended
                && let Some(place) = item.sent_as()
            {
                sent.push((place, &item.value));
            }
        }
        // Items get their places when they are decided, not when they begin.
        sent.sort_by_key(|(place, _)| *place);
        sent.into_iter().map(|(_, item)| item.clone()).collect()
    }
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        let sent = self.sent_items();
        self.sent.extend(sent);
        self.round = StreamedRound::default();
        self.earlier_usage.clone_from(&self.usage);
        self.rounds_before += 1;
        // Of this round nothing was sent, so the next one begins the answer.
        self.held.clear();
    }

    fn take(&mut self, mut frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Some(data) = frame.data.take() else {
            if self.has_begun {
                out.push_back(frame.bytes);
            }
            return Ok(());
        };
        if data.trim() == "[DONE]" {
            let closing = self.missing_closing();
            self.close_round(closing, out);
            return Ok(());
        }
        let mut event = event_value(&data)?;
        let kind = frame.kind(&event).map(str::to_owned);
        let (Some(kind), true) = (kind, event.is_object()) else {
            return Err(match event.get("error") {
                Some(error) => reported(error, frame.bytes),
                None => malformed("an event has no type", &data),
            });
        };
        // The text of a long event is not needed beside its parsed form.
        drop(data);
        event["type"] = kind.as_str().into();
        self.is_numbered |= event.get("sequence_number").is_some_and(Value::is_u64);
        match kind.as_str() {
            "response.created" | "response.queued" | "response.in_progress" => {
                if self.round.begun.is_none() {
                    self.round.begun = object_field(&event, "response").cloned();
                }
                if !self.has_begun {
                    self.held.push(event);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                self.close_round(event, out);
            }
            "error" => return Err(reported(&event, frame.bytes)),
            _ => self.take_other(event, frame.bytes, out),
        }
        Ok(())
    }

    fn is_ended(&self) -> bool {
        self.round.closing.is_some()
    }

    fn parts(&self) -> usize {
        self.round.items.len()
    }

    fn calls(&self) -> usize {
        self.round.calls
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        let Some(closing) = &self.round.closing else {
            return Err(Failure::cut_off("the connection closed"));
        };
        let mut items = Vec::with_capacity(self.round.items.len());
        for item in &self.round.items {
            if item.is_ended {
                items.push(item.value.clone());
            }
        }
        let response = closing.get("response").unwrap_or(&Value::Null);
        Ok(round_of(&items, response, &self.view))
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        self.begin(out);
        let sent = self.sent_items();
        self.sent.extend(sent);
        let Some(mut closing) = self.round.closing.take() else {
            return;
        };
        let mut items = self.round.items.iter();
        let has_hidden = items.any(|item| item.place == Place::Hidden);
        if let Some(response) = closing.get_mut("response")
            && response.is_object()
        {
            mark_tools(response);
            // Clients check that the id stays the same. The provider's own is remembered.
            if let Some(first_id) = &self.first_id {
                response["id"] = first_id.as_str().into();
            }
            let output = response.get("output").and_then(Value::as_array);
            // Some servers leave it empty in a streamed answer.
            let lacks_items = output.map_or(0, Vec::len) < self.sent.len();
            if self.rounds_before > 0 || has_hidden || lacks_items {
                response["output"] = std::mem::take(&mut self.sent).into();
                if let Some(usage) = &self.usage {
                    response["usage"] = usage.clone();
                }
            }
        }
        let bytes = self.numbered(closing, None);
        out.push_back(bytes);
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }

    fn id_for_client(&self) -> Option<String> {
        self.first_id.clone()
    }

    fn error_event(&mut self, failure: &Failure) -> Option<Bytes> {
        let event = error_in_stream(failure);
        Some(self.numbered(event, None))
    }
}

/// The failure for an error that the provider sent in its stream.
fn reported(error: &Value, bytes: Bytes) -> Failure {
    let message = error.get("message");
    let message = message.or(error.pointer("/error/message"));
    Failure::reported(bytes, message.and_then(Value::as_str).unwrap_or_default())
}

/// An answer in one piece.
struct Whole {
    view: View,
    /// Items that the client gets, of all rounds.
    sent: Vec<Value>,
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
        let Some(items) = value.get("output").and_then(Value::as_array) else {
            return Err(malformed_body("it has no output", &body));
        };
        self.rounds += 1;
        if let Some(usage) = object_field(&value, "usage") {
            add_usage(&mut self.usage, usage);
        }
        let round = round_of(items, &value, &self.view);
        self.has_hidden = !round.hidden.is_empty();
        let visible = items.iter().filter(|item| !is_hidden(item, &self.view));
        self.sent.extend(visible.cloned());
        self.bytes = body;
        self.last = value;
        Ok(round)
    }

    fn close(&mut self) -> Bytes {
        let mut answer = std::mem::take(&mut self.last);
        // Where the provider repeats the tools, ours are among them.
        if answer.get("tools").is_none() && self.rounds == 1 && !self.has_hidden {
            return std::mem::take(&mut self.bytes);
        }
        mark_tools(&mut answer);
        answer["output"] = std::mem::take(&mut self.sent).into();
        if let Some(usage) = &self.usage {
            answer["usage"] = usage.clone();
        }
        with_tools(&answer.to_string(), &self.view)
    }

    fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }
}
