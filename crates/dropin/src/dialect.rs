//! The APIs that clients speak. Each says where a request has its tools and its conversation, how
//! an answer is read, and how a hidden round is written back.

mod chat;
mod converse;
mod gemini;
mod messages;
mod responses;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::wire::failure::Failure;
use crate::wire::frames::Framing;
use crate::wire::json::{self, Fields};
use crate::wire::sse::Frame;
use toolscout_gate::llm::ToolSpec;

/// The API that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Google's Gemini.
    Gemini,
    /// Amazon Bedrock's Converse.
    Converse,
}

impl Dialect {
    /// The path of its requests below the base URL. Where it names the model, this is its beginning.
    pub fn path(self) -> &'static str {
        match self {
            Dialect::Chat => "/chat/completions",
            Dialect::Responses => "/responses",
            Dialect::Messages => "/messages",
            Dialect::Gemini => "/models",
            Dialect::Converse => "/model",
        }
    }

    /// The path below the base URL at which the tokens of a request to this path are counted.
    pub(super) fn counting_path(self, path: &str) -> String {
        match self {
            Dialect::Messages => "/messages/count_tokens".to_owned(),
            Dialect::Chat | Dialect::Responses => "/responses/input_tokens".to_owned(),
            Dialect::Gemini | Dialect::Converse => path.to_owned(),
        }
    }

    /// How the streams of its answers are divided.
    pub(super) fn framing(self) -> Framing {
        match self {
            Dialect::Converse => Framing::Messages,
            _ => Framing::Events,
        }
    }

    /// The query of the address of a request whose answer is read here.
    pub(super) fn query(self, given: Option<&str>, streams: bool) -> Option<String> {
        match self {
            Dialect::Gemini if streams => Some(gemini::events_query(given)),
            _ => given.map(str::to_owned),
        }
    }

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Chat => "chat_completions",
            Dialect::Responses => "responses",
            Dialect::Messages => "messages",
            Dialect::Gemini => "gemini",
            Dialect::Converse => "converse",
        }
    }

    /// The body of an error answer.
    pub fn error_body(self, failure: &Failure) -> Bytes {
        json::bytes(&match self {
            Dialect::Messages => messages::error(failure),
            Dialect::Gemini => gemini::error(failure),
            Dialect::Converse => converse::error(failure),
            Dialect::Chat | Dialect::Responses => chat::error(failure),
        })
    }

    /// An error as the last event of a stream that has begun.
    pub fn error_event(self, failure: &Failure) -> Bytes {
        self.numbered_error_event(failure, 0)
    }

    /// As [`Dialect::error_event`], with its number where events of the dialect have one.
    pub(super) fn numbered_error_event(self, failure: &Failure, number: u64) -> Bytes {
        match self {
            Dialect::Chat => chat::error_event(failure),
            Dialect::Responses => responses::error_event(failure, number),
            Dialect::Messages => messages::error_event(failure),
            Dialect::Gemini => gemini::error_event(failure),
            Dialect::Converse => converse::error_event(failure),
        }
    }

    /// How its requests and answers are read and written.
    pub(super) fn protocol(self) -> &'static dyn Protocol {
        match self {
            Dialect::Chat => &chat::Chat,
            Dialect::Responses => &responses::Responses,
            Dialect::Messages => &messages::Messages,
            Dialect::Gemini => &gemini::Gemini,
            Dialect::Converse => &converse::Converse,
        }
    }
}

/// What the endpoint needs to know of a dialect.
pub(super) trait Protocol: Sync {
    /// The field with the conversation.
    fn conversation_field(&self) -> &'static str;

    /// The items of the conversation; `None` where they have a form that is left alone.
    fn conversation(&self, request: &Fields) -> Option<Vec<Bytes>> {
        json::items(request.get(self.conversation_field())?)
    }

    /// Whether rounds can be hidden in the answer to this request.
    fn can_hide_rounds(&self, request: &Fields) -> bool;

    /// Why a request whose tools would be deferred is refused, where its client has another way.
    fn refusal(&self, _request: &Fields) -> Option<Failure> {
        None
    }

    /// Reads a tool of the request.
    fn tool(&self, json: &Bytes) -> OfferedTool;

    /// The tools within an entry of the request, such as a namespace; `None` for a tool.
    fn members(&self, _json: &Bytes) -> Option<Vec<OfferedTool>> {
        None
    }

    /// The tools of a request, as a list.
    fn tools(&self, request: &Fields) -> Option<Bytes> {
        request.get("tools").cloned()
    }

    /// Replaces the tools of a request.
    fn set_tools(&self, request: &mut Fields, tools: Bytes) {
        request.set("tools", tools);
    }

    /// The list of these tools and namespaces.
    fn tool_list(&self, entries: &[Bytes]) -> Bytes {
        json::list(entries)
    }

    /// The definition of the search tool.
    fn search_tool(&self, spec: &ToolSpec) -> Bytes;

    /// What the request says of which tools may be called.
    fn choice(&self, request: &Fields) -> Value {
        request.value("tool_choice").unwrap_or_default()
    }

    /// The tools that a choice names.
    fn chosen_tools(&self, choice: &Value) -> Vec<String>;

    /// Changes a request so that it allows no call.
    fn forbid_calls(&self, request: &mut Fields);

    /// Reads an item of the conversation.
    fn item(&self, item: &Value) -> Item;

    /// The items that answer these calls.
    fn results(&self, results: &[CallResult]) -> Vec<Bytes>;

    /// The items that answer these calls beside the client's own answers to other calls of the same
    /// round, of which `next` is the first item, if there is one. The second value says whether
    /// `next` is part of them.
    fn results_before(&self, results: &[CallResult], _next: Option<&Bytes>) -> (Vec<Bytes>, bool) {
        (self.results(results), false)
    }

    /// Reads the rounds of a streamed answer.
    fn streamed(&self, view: View) -> Box<dyn StreamedAnswer>;

    /// Reads the rounds of an answer that comes whole.
    fn whole(&self, view: View) -> Box<dyn WholeAnswer>;
}

/// What an answer is read with.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The tools whose calls the client does not see.
    pub hidden: HiddenTools,
    /// The tools as the client sent them, for dialects that repeat them in the answer.
    pub tools: Bytes,
    /// Whether the provider stores the answer, which the request may refuse.
    pub is_stored: bool,
    /// Whether a stream is one list of chunks in place of events.
    pub wants_list: bool,
}

/// Between the texts of two rounds, which are one text for the client.
const BETWEEN_TEXTS: &str = "\n\n";

/// Most parts of a round that is streamed: blocks or items of any kind.
pub(super) const MAX_PARTS: usize = 4_096;

/// The names of tools whose calls the client does not see: the search tool, and those that it found
/// and that are called here. Clones share the names.
#[derive(Clone, Debug, Default)]
pub(super) struct HiddenTools(Arc<Mutex<BTreeSet<String>>>);

impl HiddenTools {
    /// Adds a name.
    pub fn add(&self, name: &str) {
        self.0.lock().insert(name.to_owned());
    }

    /// Whether calls of this tool are hidden.
    pub fn contains(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }

    /// Whether a name that comes in fragments may become a hidden one.
    pub fn may_become_hidden(&self, beginning: &str) -> bool {
        let names = self.0.lock();
        // A whole name is hidden or not, and becomes nothing else.
        names
            .iter()
            .any(|name| name.len() > beginning.len() && name.starts_with(beginning))
    }
}

/// A tool of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfferedTool {
    pub kind: ToolKind,
    /// Its name, with that of its namespace before it; empty where it has none.
    pub name: String,
    /// The namespace that it is in.
    pub namespace: Option<Arc<Namespace>>,
    /// The value of `defer_loading`.
    pub defer_loading: Option<bool>,
    /// Its definition without `defer_loading`.
    pub json: Bytes,
    /// Where the client wanted the prompt to be cached up to here: how.
    pub cache_control: Option<Bytes>,
}

impl OfferedTool {
    /// One that the provider runs, or that is nothing this program knows.
    fn hosted(json: &Bytes) -> Self {
        OfferedTool {
            kind: ToolKind::Hosted,
            name: String::new(),
            namespace: None,
            defer_loading: None,
            json: json.clone(),
            cache_control: None,
        }
    }

    /// One that the client calls, of a definition without other marks than `defer_loading`.
    fn function(mut fields: Fields, json: &Bytes) -> Self {
        let (defer_loading, json) = take_deferral(&mut fields, json);
        OfferedTool {
            kind: ToolKind::Function,
            name: fields.text("name").unwrap_or_default(),
            defer_loading,
            ..OfferedTool::hosted(&json)
        }
    }
}

/// A namespace of a request's tools.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Namespace {
    pub name: String,
    /// Its definition, in which the tools are put.
    pub fields: Fields,
}

impl Namespace {
    /// Its definition with these tools.
    pub fn with_tools(&self, tools: &[Bytes]) -> Bytes {
        let mut fields = self.fields.clone();
        fields.set("tools", json::list(tools));
        fields.to_json()
    }
}

/// The name of a tool in a namespace, as it is searched for.
pub(super) fn name_within(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

/// What a tool of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// A function of the client.
    Function,
    /// A tool that the provider runs, or one of a kind that is not known here.
    Hosted,
    /// The provider's own search for tools.
    NativeSearch,
}

/// An item of a conversation, by what identifies it: spellings of one item are equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// Instructions. They do not identify a conversation, since clients write the time into them.
    Instructions,
    /// Something the client wrote.
    OfClient(Value),
    /// Something that the provider stores under this id.
    Reference(String),
    /// Something the model wrote.
    OfModel { text: String, calls: Vec<ModelCall> },
}

/// A call as the model made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelCall {
    pub id: String,
    pub name: String,
    /// The namespace of the tool, where it has one.
    pub namespace: Option<String>,
    /// The arguments as text, which may be no valid JSON.
    pub arguments: String,
}

impl ModelCall {
    /// The name of the tool, with that of its namespace before it.
    pub fn tool_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => name_within(namespace, &self.name),
            None => self.name.clone(),
        }
    }
}

/// The result of a call that the client does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallResult {
    /// The call's id; empty where the provider gave it none.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    pub text: String,
}

/// What came of one round of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Round {
    /// Calls that the client does not see.
    pub hidden: Vec<ModelCall>,
    /// Calls that the client gets.
    pub calls: Vec<ModelCall>,
    /// Whether the model ended by itself, and not at a limit.
    pub is_complete: bool,
    /// All that the model said, as items of the conversation.
    pub items: Vec<Bytes>,
    /// The text that the client gets.
    pub text: String,
    /// The id of the provider's answer, where later requests may name it.
    pub response_id: Option<String>,
    /// What the client gets of it and may later refer to by an id.
    pub referable: Vec<(String, Item)>,
}

/// The rounds of an answer that is streamed.
pub(super) trait StreamedAnswer: Send {
    /// Begins a round. Of the one before, the client gets no end.
    fn begin_round(&mut self);

    /// Takes a frame. What the client gets at once goes to `out`.
    fn take(&mut self, frame: Frame, out: &mut VecDeque<Bytes>) -> Result<(), Failure>;

    /// Whether the provider has said that the round has ended.
    fn is_ended(&self) -> bool;

    /// How many blocks or items of the round have begun.
    fn parts(&self) -> usize;

    /// How many of them are calls.
    fn calls(&self) -> usize;

    /// Ends the round once the provider's stream has ended.
    fn end_round(&mut self) -> Result<Round, Failure>;

    /// Writes the end of the answer after its last round.
    fn close(&mut self, out: &mut VecDeque<Bytes>);

    /// Tokens as the provider counted them, of all rounds.
    fn usage(&self) -> Option<&Value>;

    /// An error as the next event, where it has to fit in with those before it.
    fn error_event(&mut self, _failure: &Failure) -> Option<Bytes> {
        None
    }

    /// The type of the answer, where it is not that of the provider's.
    fn content_type(&self) -> Option<&'static str> {
        None
    }

    /// The id under which the client knows the answer, where later requests may name it.
    fn id_for_client(&self) -> Option<String> {
        None
    }
}

/// The rounds of an answer that comes whole.
pub(super) trait WholeAnswer: Send {
    /// Takes the answer to a round.
    fn take(&mut self, body: Bytes) -> Result<Round, Failure>;

    /// The answer to the client, after the last round.
    fn close(&mut self) -> Bytes;

    /// Tokens as the provider counted them, of all rounds.
    fn usage(&self) -> Option<&Value>;
}

/// Parts of a content in one form: texts joined, all others after them.
pub(super) fn content_essence(content: Option<&Value>) -> Value {
    let mut text = String::new();
    let mut others = Vec::new();
    match content {
        Some(Value::String(whole)) => text.push_str(whole),
        Some(Value::Array(parts)) => {
            for part in parts {
                match text_of_part(part) {
                    Some(part) => text.push_str(part),
                    None => others.push(without_cache_control(&json::canonical(part))),
                }
            }
        }
        Some(Value::Null) | None => {}
        Some(other) => others.push(json::canonical(other)),
    }
    others.insert(0, text.into());
    Value::Array(others)
}

/// The text of a content: its text parts, joined.
pub(super) fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(text_of_part).collect(),
        _ => String::new(),
    }
}

fn text_of_part(part: &Value) -> Option<&str> {
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => part.get("text")?.as_str(),
        _ => None,
    }
}

/// Clients move these marks from message to message.
fn without_cache_control(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                if name != "cache_control" {
                    kept.insert(name.clone(), without_cache_control(value));
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(without_cache_control).collect(),
        other => other.clone(),
    }
}

/// A tool's definition, and the value of its `defer_loading`, which is taken out.
fn take_deferral(fields: &mut Fields, json: &Bytes) -> (Option<bool>, Bytes) {
    match fields.get("defer_loading") {
        None => (None, json.clone()),
        Some(_) => {
            let defer_loading = fields.flag("defer_loading");
            fields.remove("defer_loading");
            (defer_loading, fields.to_json())
        }
    }
}

/// The text of a field of a parsed object; empty where there is none.
pub(super) fn text_field(value: &Value, name: &str) -> String {
    let text = value.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// A field of a parsed object that is an object itself. Some servers write null in its place.
fn object_field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|field| field.is_object())
}

/// Whether the `type` of a parsed object is this one.
fn has_type(value: &Value, kind: &str) -> bool {
    value.get("type").and_then(Value::as_str) == Some(kind)
}

/// The fields of an answer that stay the same from round to round, as far as it has them.
fn head_of(answer: &Value, fields: &[&str]) -> Map<String, Value> {
    let mut head = Map::new();
    for field in fields {
        if let Some(value) = answer.get(field) {
            head.insert((*field).to_owned(), value.clone());
        }
    }
    head
}

/// Adds the tokens of a round to those of the rounds before it.
fn add_usage(total: &mut Option<Value>, usage: &Value) {
    match total {
        Some(total) => json::add_numbers(total, usage),
        None => *total = Some(usage.clone()),
    }
}

/// A message of the client with results before what the list in this field has.
fn with_results(message: Fields, field: &str, results: impl Iterator<Item = Value>) -> Bytes {
    let rest = message.get(field).and_then(json::items);
    put_before(message, field, results, rest.unwrap_or_default())
}

/// A message of the client with results before the rest of the list in this field.
fn put_before(
    mut message: Fields,
    field: &str,
    results: impl Iterator<Item = Value>,
    rest: Vec<Bytes>,
) -> Bytes {
    let mut items: Vec<Bytes> = results.map(|result| json::bytes(&result)).collect();
    items.extend(rest);
    message.set(field, json::list(&items));
    message.to_json()
}

/// The JSON of an answer that came in one piece.
fn whole_value(body: &Bytes) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| malformed_body(&error.to_string(), body))
}

/// The JSON of an event.
fn event_value(data: &str) -> Result<Value, Failure> {
    serde_json::from_str(data).map_err(|error| malformed(&error.to_string(), data))
}

/// The error for an answer that is not what the dialect says.
fn malformed_body(what: &str, body: &Bytes) -> Failure {
    malformed(what, &String::from_utf8_lossy(body))
}

fn malformed(what: &str, answer: &str) -> Failure {
    Failure::malformed(what, answer)
}
