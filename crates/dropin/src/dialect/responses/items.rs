//! The items of a streamed answer while they are read. Some servers leave out the events that begin
//! or end an item, its number, or all events but the last.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{call_id, is_call, is_message};
use crate::dialect::{content_text, object_field, text_field};

/// Beginning of the events of a call's arguments.
const ARGUMENTS: &str = "response.function_call_arguments.";
/// Beginnings of the events of a text.
const TEXTS: [&str; 2] = ["response.output_text.", "response.content_part."];

/// An item that is being read.
pub struct ItemInProgress {
    /// The provider's number of it; some servers number all items 0, or none.
    index: Option<u64>,
    id: String,
    /// As it began, and later as it ended.
    pub value: Value,
    /// What its events have added.
    text: String,
    arguments: String,
    pub place: Place,
    /// Events that came before it was decided whether the client gets the item.
    pub waiting: Vec<(Value, Bytes)>,
    /// Whether the client was told that it begins.
    pub is_begun: bool,
    /// Whether all of it is known.
    pub is_ended: bool,
    /// Whether the client was told that it ended.
    pub is_end_sent: bool,
}

/// The place of an item for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not decided: its kind or name is not known.
    Open,
    /// The client does not see it.
    Hidden,
    /// The client has it under this number.
    Sent(u64),
}

impl ItemInProgress {
    fn new(index: Option<u64>, id: String, value: Value) -> Self {
        ItemInProgress {
            index,
            id,
            value,
            text: String::new(),
            arguments: String::new(),
            place: Place::Open,
            waiting: Vec::new(),
            is_begun: false,
            is_ended: false,
            is_end_sent: false,
        }
    }

    /// The item that an event of this kind begins; `None` for an event that belongs to no item.
    pub fn beginning_with(kind: &str, event: &Value) -> Option<Self> {
        let value = match event.get("item") {
            Some(item) if item.is_object() => item.clone(),
            Some(_) => return None,
            None if kind.starts_with(ARGUMENTS) => {
                json!({ "type": "function_call", "status": "in_progress" })
            }
            None if is_of_text(kind) => json!({
                "type": "message", "id": id_of(event), "role": "assistant",
                "status": "in_progress", "content": [],
            }),
            None => return None,
        };
        Some(ItemInProgress::new(index_of(event), id_of(event), value))
    }

    /// Reads what an event says of the item.
    pub fn read(&mut self, event: &Value) {
        match kind_of(event) {
            "response.output_text.delta" => self.text += &text_field(event, "delta"),
            // Only where the parts of the text were left out.
            "response.output_text.done" if self.text.is_empty() => {
                self.text = text_field(event, "text");
            }
            "response.function_call_arguments.delta" => {
                self.arguments += &text_field(event, "delta");
            }
            "response.function_call_arguments.done" => self.end_arguments(event),
            "response.output_item.done" => {
                if let Some(item) = object_field(event, "item") {
                    self.end_with(item.clone());
                }
            }
            _ => {}
        }
    }

    /// Takes the whole arguments, and the name where only this event has it.
    fn end_arguments(&mut self, event: &Value) {
        let arguments = text_field(event, "arguments");
        if !arguments.is_empty() {
            self.arguments = arguments;
        }
        if let Some(name) = event.get("name")
            && name.is_string()
            && text_field(&self.value, "name").is_empty()
        {
            self.value["name"] = name.clone();
        }
    }

    /// Takes the whole item, with what only its events had.
    fn end_with(&mut self, mut item: Value) {
        if is_call(&item) {
            // Some servers give them in the first event of a call alone.
            for field in ["name", "call_id", "namespace"] {
                if let Some(begun) = self.value.get(field)
                    && begun.is_string()
                    && text_field(&item, field).is_empty()
                {
                    item[field] = begun.clone();
                }
            }
            if text_field(&item, "arguments").is_empty() && !self.arguments.is_empty() {
                item["arguments"] = self.arguments.as_str().into();
            }
        }
        if is_message(&item) && content_text(item.get("content")).is_empty() {
            self.put_text(&mut item);
        }
        self.value = item;
        self.is_ended = true;
    }

    /// Ends the item with what its events have said; a call without a name is none.
    fn end(&mut self) {
        let mut item = self.value.clone();
        if item.get("status").is_some() {
            item["status"] = "completed".into();
        }
        self.end_with(item);
        self.is_ended = self.is_known();
    }

    fn put_text(&self, item: &mut Value) {
        if !self.text.is_empty() {
            item["content"] = json!([text_part(&self.text)]);
        }
    }

    /// Whether its kind is known, and of a call the name.
    pub fn is_known(&self) -> bool {
        !is_call(&self.value) || !text_field(&self.value, "name").is_empty()
    }

    /// Its number for the client, if that has it.
    pub fn sent_as(&self) -> Option<u64> {
        match self.place {
            Place::Sent(place) => Some(place),
            Place::Open | Place::Hidden => None,
        }
    }

    /// Whether an item of the last event is of this kind, and of this name where it has one.
    fn is_like(&self, item: &Value) -> bool {
        let name = text_field(&self.value, "name");
        self.value.get("type") == item.get("type")
            && (name.is_empty() || name == text_field(item, "name"))
    }

    /// Whether an item of the last event is this one.
    fn is(&self, item: &Value) -> bool {
        self.shares("id", item) || self.shares("call_id", item)
    }

    fn shares(&self, field: &str, item: &Value) -> bool {
        let own = text_field(&self.value, field);
        !own.is_empty() && own == text_field(item, field)
    }
}

fn kind_of(event: &Value) -> &str {
    let kind = event.get("type").and_then(Value::as_str);
    kind.unwrap_or_default()
}

fn is_of_text(kind: &str) -> bool {
    TEXTS.iter().any(|text| kind.starts_with(text))
}

fn index_of(event: &Value) -> Option<u64> {
    event.get("output_index").and_then(Value::as_u64)
}

fn id_of(event: &Value) -> String {
    let id = event.pointer("/item/id").or(event.get("item_id"));
    id.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The position of the item that an event is about. Its id decides; without one that is known, the
/// number; without either, the last item that has not ended.
pub fn find(items: &[ItemInProgress], event: &Value, begins: bool) -> Option<usize> {
    let index = index_of(event);
    let same = find_by_id(items, &id_of(event), index);
    if begins {
        // An event that begins an item is of a new one unless the id says that it is repeated.
        return same.filter(|at| !items[*at].is_ended);
    }
    if same.is_some() {
        return same;
    }
    // The last one with this number, because some servers number all items 0.
    if index.is_some() {
        return items.iter().rposition(|item| item.index == index);
    }
    let is_of_item = event.get("item").is_some() || event.get("item_id").is_some();
    if !is_of_item && !is_of_content(event) {
        return None;
    }
    let last = items.len().checked_sub(1)?;
    (!items[last].is_ended && fits(&items[last], event)).then_some(last)
}

/// The last item with this id; of several, the last that has this number too.
fn find_by_id(items: &[ItemInProgress], id: &str, index: Option<u64>) -> Option<usize> {
    if id.is_empty() {
        return None;
    }
    let mut last = None;
    for (at, item) in items.iter().enumerate().rev() {
        if item.id != id {
            continue;
        }
        if index.is_some() && item.index == index {
            return Some(at);
        }
        last.get_or_insert(at);
    }
    last
}

fn is_of_content(event: &Value) -> bool {
    let kind = kind_of(event);
    kind.starts_with(ARGUMENTS) || is_of_text(kind)
}

/// Whether an event without a number can be about this item.
fn fits(item: &ItemInProgress, event: &Value) -> bool {
    if let Some(ended) = event.get("item") {
        return ended.get("type") == item.value.get("type");
    }
    let kind = kind_of(event);
    if kind.starts_with(ARGUMENTS) {
        return is_call(&item.value);
    }
    !is_of_text(kind) || is_message(&item.value)
}

/// Ends all items with what the last event says of them, and adds those that it alone has. Calls
/// that are not whole are left out. Of items without ids, or with new ones, the place decides.
pub fn complete(items: &mut Vec<ItemInProgress>, output: &[Value], is_complete: bool) {
    let output: Vec<&Value> = output.iter().filter(|item| item.is_object()).collect();
    for (place, item) in items.iter_mut().enumerate() {
        if item.is_ended {
            continue;
        }
        let same = output.iter().find(|ended| item.is(ended));
        let at_place = output.get(place).filter(|ended| item.is_like(ended));
        match same.or(at_place) {
            Some(ended) => item.end_with((*ended).clone()),
            None if is_complete || !is_call(&item.value) => item.end(),
            None => {}
        }
    }
    // Items that are added below are no twins of those that follow them in the last event.
    let streamed = items.len();
    for (place, ended) in output.into_iter().enumerate() {
        let is_known = items.iter().any(|item| item.is(ended));
        let has_twin = place < streamed && items[place].is_like(ended);
        if !is_known && !has_twin {
            let mut item = ItemInProgress::new(None, text_field(ended, "id"), ended.clone());
            item.is_ended = true;
            items.push(item);
        }
    }
    for item in items {
        // Without one, the result of a hidden call could not name it.
        if is_call(&item.value) && text_field(&item.value, "call_id").is_empty() {
            item.value["call_id"] = call_id(&item.value).into();
        }
    }
}

/// The events that begin an item, and those of its text where it comes `whole`.
pub fn beginning(item: &Value, place: u64, whole: bool) -> Vec<Value> {
    let mut begun = item.clone();
    begun["status"] = "in_progress".into();
    // The events that follow fill it.
    if is_call(item) {
        begun["arguments"] = "".into();
    }
    if is_message(item) {
        begun["content"] = json!([]);
    }
    let mut events = vec![
        json!({ "type": "response.output_item.added", "output_index": place,
        "item": begun }),
    ];
    let text = content_text(item.get("content"));
    let id = item.get("id").cloned().unwrap_or_default();
    if whole && is_message(item) && !text.is_empty() {
        for (kind, field, value) in [
            ("response.content_part.added", "part", text_part("")),
            ("response.output_text.delta", "delta", text.as_str().into()),
            ("response.output_text.done", "text", text.as_str().into()),
            ("response.content_part.done", "part", text_part(&text)),
        ] {
            let mut event = json!({ "type": kind, "item_id": id, "output_index": place,
                "content_index": 0 });
            event[field] = value;
            events.push(event);
        }
    }
    events
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

/// The event that begins an answer of which the provider sent the end alone.
pub fn created(response: &Value) -> Value {
    json!({ "type": "response.created", "response": empty_response(response) })
}

/// An answer without items.
pub fn empty_response(response: &Value) -> Value {
    let mut begun = match response.is_object() {
        true => response.clone(),
        false => json!({ "id": "resp_toolscout", "object": "response" }),
    };
    begun["status"] = "in_progress".into();
    begun["output"] = json!([]);
    begun
}
