//! OpenAI's responses.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    CallResult, Failure, Fields, Frame, Item, ModelCall, OfferedTool, Protocol, Round,
    StreamedAnswer, ToolKind, View, WholeAnswer, content_essence, content_text, malformed,
    malformed_body, take_deferral, text_field, whole_value,
};
use crate::llm::ToolSpec;
use crate::proxy::{json, sse};

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
        let mut fields = Fields::read(json).unwrap_or_default();
        let kind = match fields.text("type").as_deref() {
            Some("function") => ToolKind::Function,
            Some("tool_search") => ToolKind::NativeSearch,
            _ => ToolKind::Hosted,
        };
        if kind != ToolKind::Function {
            return OfferedTool {
                kind,
                name: String::new(),
                defer_loading: None,
                json: json.clone(),
                cache_control: None,
            };
        }
        let (defer_loading, json) = take_deferral(&mut fields, json);
        OfferedTool {
            kind,
            name: fields.text("name").unwrap_or_default(),
            defer_loading,
            json,
            cache_control: None,
        }
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

    fn no_calls(&self) -> Bytes {
        Bytes::from_static(b"\"none\"")
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
        let output = |result: &CallResult| json!({ "type": "function_call_output", "call_id": result.id, "output": result.text });
        results
            .iter()
            .map(|result| json::bytes(&output(result)))
            .collect()
    }

    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer> {
        Box::new(Streamed {
            view,
            sequence: 0,
            first_id: None,
            held: Vec::new(),
            sent: Vec::new(),
            earlier_usage: None,
            usage: None,
            rounds_before: 0,
            has_begun: false,
            round: StreamedRound::default(),
        })
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

/// Whether items of this type come from the client: results of what the model did.
fn is_of_client(kind: &str) -> bool {
    kind.ends_with("_output") || kind == "mcp_approval_response"
}

fn call_of(item: &Value) -> ModelCall {
    ModelCall {
        id: text_field(item, "call_id"),
        name: text_field(item, "name"),
        arguments: text_field(item, "arguments"),
    }
}

fn is_call(item: &Value) -> bool {
    item.get("type").is_some_and(|kind| kind == "function_call")
}

fn is_hidden(item: &Value, view: &View) -> bool {
    is_call(item) && view.hidden.contains(&text_field(item, "name"))
}

/// An item as it is sent back; `None` for one that the provider would not know.
fn written_back(item: &Value, view: &View) -> Option<Bytes> {
    let is_reasoning = item.get("type").is_some_and(|kind| kind == "reasoning");
    let is_encrypted = item.get("encrypted_content").is_some_and(Value::is_string);
    // What is not stored is known by its content alone.
    (!is_reasoning || view.is_stored || is_encrypted).then(|| json::bytes(item))
}

fn round_of(items: &[Value], response: &Value, view: &View) -> Round {
    let (hidden, seen): (Vec<&Value>, Vec<&Value>) =
        items.iter().partition(|item| is_hidden(item, view));
    let known = seen.iter().filter_map(|item| {
        let id = item.get("id")?.as_str()?.to_owned();
        Some((id, Responses.item(item)))
    });
    Round {
        hidden: hidden.into_iter().map(call_of).collect(),
        calls: seen
            .iter()
            .filter(|item| is_call(item))
            .map(|item| call_of(item))
            .collect(),
        is_complete: response
            .get("status")
            .is_none_or(|status| status == "completed"),
        items: items
            .iter()
            .filter_map(|item| written_back(item, view))
            .collect(),
        text: seen
            .iter()
            .map(|item| content_text(item.get("content").filter(|_| is_message(item))))
            .collect(),
        response_id: response
            .get("id")
            .and_then(Value::as_str)
            .map(str::to_owned),
        referable: known.collect(),
    }
}

fn is_message(item: &Value) -> bool {
    item.get("type").is_some_and(|kind| kind == "message")
}

fn add_usage(total: &mut Option<Value>, response: &Value) {
    let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) else {
        return;
    };
    match total {
        Some(total) => json::add_numbers(total, usage),
        None => *total = Some(usage.clone()),
    }
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
    /// The id in the events that the client got at the beginning.
    first_id: Option<String>,
    /// The beginning of the answer, until there is something to send.
    held: Vec<Value>,
    /// Items that the client got, of all rounds.
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
    /// The place that each item has for the client; `None` where it does not see it.
    places: BTreeMap<u64, Option<u64>>,
    items: BTreeMap<u64, Value>,
    /// The last event.
    closing: Option<Value>,
}

impl Streamed {
    /// Sends the beginning of the answer, once.
    fn begin(&mut self, out: &mut VecDeque<Bytes>) {
        for mut event in std::mem::take(&mut self.held) {
            self.has_begun = true;
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
        let number = event.get("sequence_number").and_then(Value::as_u64);
        let sequence = self.sequence;
        if number.is_some() {
            self.sequence += 1;
        }
        if number.is_none_or(|number| number == sequence)
            && let Some(bytes) = as_it_came
        {
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

    /// An event of one item.
    fn take_item_event(
        &mut self,
        index: u64,
        mut event: Value,
        bytes: Bytes,
        out: &mut VecDeque<Bytes>,
    ) {
        let kind = event
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let item = event.get("item");
        if kind == "response.output_item.added" {
            let is_unseen = item.is_some_and(|item| is_hidden(item, &self.view));
            let sent_before = self.round.places.values().flatten().count() as u64;
            let place = self.sent.len() as u64 + sent_before;
            self.round
                .places
                .insert(index, (!is_unseen).then_some(place));
        }
        if kind == "response.output_item.done"
            && let Some(item) = item
        {
            self.round.items.insert(index, item.clone());
        }
        let Some(Some(place)) = self.round.places.get(&index).copied() else {
            return;
        };
        self.begin(out);
        let mut as_it_came = Some(bytes);
        if place != index {
            event["output_index"] = place.into();
            as_it_came = None;
        }
        let bytes = self.numbered(event, as_it_came);
        out.push_back(bytes);
    }

    fn visible_items(&self) -> Vec<Value> {
        let items = self.round.items.values();
        items
            .filter(|item| !is_hidden(item, &self.view))
            .cloned()
            .collect()
    }
}

impl StreamedAnswer for Streamed {
    fn begin_round(&mut self) {
        let visible = self.visible_items();
        self.sent.extend(visible);
        self.round = StreamedRound::default();
        self.earlier_usage.clone_from(&self.usage);
        self.rounds_before += 1;
        // Of this round nothing was sent, so the next one begins the answer.
        self.held.clear();
    }

    fn take(&mut self, frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure> {
        let Some(data) = frame.data else {
            if self.has_begun {
                out.push_back(frame.bytes);
            }
            return Ok(());
        };
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: Value =
            serde_json::from_str(&data).map_err(|error| malformed(&error.to_string(), &data))?;
        let Some(kind) = event.get("type").and_then(Value::as_str) else {
            return Err(malformed("an event has no type", &data));
        };
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                if !self.has_begun {
                    self.held.push(event);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let mut total = self.earlier_usage.clone();
                if let Some(response) = event.get("response") {
                    add_usage(&mut total, response);
                }
                self.usage = total;
                self.round.closing = Some(event);
            }
            "error" => {
                let message = event.get("message").and_then(Value::as_str);
                let message = message.unwrap_or_default();
                return Err(Failure::reported(frame.bytes, message));
            }
            _ => match event.get("output_index").and_then(Value::as_u64) {
                Some(index) => self.take_item_event(index, event, frame.bytes, out),
                None => {
                    self.begin(out);
                    let bytes = self.numbered(event, Some(frame.bytes));
                    out.push_back(bytes);
                }
            },
        }
        Ok(())
    }

    fn is_ended(&self) -> bool {
        self.round.closing.is_some()
    }

    fn end_round(&mut self) -> Result<Round, Failure> {
        let Some(closing) = &self.round.closing else {
            return Err(Failure::cut_off("the connection closed"));
        };
        let items: Vec<Value> = self.round.items.values().cloned().collect();
        let response = closing.get("response").unwrap_or(&Value::Null);
        Ok(round_of(&items, response, &self.view))
    }

    fn close(&mut self, out: &mut VecDeque<Bytes>) {
        self.begin(out);
        let visible = self.visible_items();
        self.sent.extend(visible);
        let Some(mut closing) = self.round.closing.take() else {
            return;
        };
        let has_hidden = self.round.places.values().any(Option::is_none);
        if let Some(response) = closing.get_mut("response") {
            mark_tools(response);
            // Clients check that the id stays the same. The provider's own is remembered.
            if let Some(first_id) = &self.first_id {
                response["id"] = first_id.as_str().into();
            }
            if self.rounds_before > 0 || has_hidden {
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
        add_usage(&mut self.usage, &value);
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
