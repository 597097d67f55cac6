//! Requests that pass to a model's provider, played by a script: what it is sent, and what clients
//! get of it. `scripts/check_dropin.sh` has the SDKs that others wrote.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::stream;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use toolscout::agent::{Agent, AgentConfig};
use toolscout::assembly::AgentPlan;
use toolscout::dropin::{DropInConfig, ProviderConfig};
use toolscout::gate::Policies;
use toolscout::keys::Scope;
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::{Reply, ToolOutcome};
use toolscout::profiles::ToolProfile;
use toolscout::tools::ScriptedTools;

use super::server::{Answer, PATIENCE, Server, read};

/// A provider that answers what it was told to, in order.
pub struct Provider {
    pub url: String,
    state: Arc<Script>,
}

#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Scripted>>,
    requests: Mutex<Vec<(String, HeaderMap, String)>>,
    /// Told when a client of the provider goes away in mid-answer.
    dropped: Notify,
}

pub enum Scripted {
    /// A status and a body.
    Json(u16, Value),
    /// A content type and a body.
    Typed(&'static str, &'static str),
    /// Server-sent events, as they are written.
    Events(String),
    /// Events, and then the connection breaks.
    Cut(String),
    /// The same events, again and again.
    Endless(String),
    /// Events, and then nothing more.
    Hang(String),
}

impl Provider {
    pub async fn start() -> Self {
        let state = Arc::<Script>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let router = Router::new().fallback(play).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Provider { url, state }
    }

    pub fn reply(&self, reply: Scripted) {
        self.state.replies.lock().unwrap().push_back(reply);
    }

    /// The bodies that it was sent, as text.
    pub fn sent(&self) -> Vec<String> {
        let requests = self.state.requests.lock().unwrap();
        requests.iter().map(|(_, _, body)| body.clone()).collect()
    }

    pub fn sent_json(&self) -> Vec<Value> {
        let sent = self.sent();
        sent.iter()
            .map(|body| serde_json::from_str(body).unwrap())
            .collect()
    }

    /// The address, the headers and the body of the last request.
    pub fn last(&self) -> (String, HeaderMap, String) {
        self.state.requests.lock().unwrap().last().unwrap().clone()
    }

    fn last_headers(&self) -> HeaderMap {
        self.state
            .requests
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .1
            .clone()
    }
}

/// Tells when the connection of an answer that never ends is closed.
struct Dropped(Arc<Script>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

async fn play(State(played): State<Arc<Script>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let path = parts.uri.to_string();
    played
        .requests
        .lock()
        .unwrap()
        .push((path, parts.headers, body));
    let reply = played.replies.lock().unwrap().pop_front();
    let events = |body| {
        Response::builder()
            .header("content-type", "text/event-stream")
            .header("x-request-id", "req_provider")
            .body(body)
            .unwrap()
    };
    type Part = Result<String, &'static str>;
    match reply.expect("the script has a reply") {
        Scripted::Json(status, body) => Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .header("x-request-id", "req_provider")
            .body(Body::from(body.to_string()))
            .unwrap(),
        Scripted::Typed(content_type, body) => Response::builder()
            .header("content-type", content_type)
            .header("content-security-policy", "script-src *")
            .body(Body::from(body))
            .unwrap(),
        Scripted::Events(text) => events(Body::from(text)),
        Scripted::Cut(text) => {
            let parts = stream::unfold(Some(text), |text| async {
                if text.is_none() {
                    // What came before is sent first.
                    tokio::task::yield_now().await;
                }
                let part: Part = text.ok_or("cut");
                Some((part, None))
            });
            events(Body::from_stream(parts))
        }
        Scripted::Endless(text) => {
            let text = Bytes::from(text);
            events(Body::from_stream(stream::iter(std::iter::repeat_with(
                move || Ok::<_, Infallible>(text.clone()),
            ))))
        }
        Scripted::Hang(text) => {
            let guard = Dropped(Arc::clone(&played));
            let parts = stream::unfold((Some(text), guard), |(text, guard)| async move {
                match text {
                    Some(text) => Some((Part::Ok(text), (None, guard))),
                    None => std::future::pending().await,
                }
            });
            events(Body::from_stream(parts))
        }
    }
}

/// A server before a provider. Every list of tools is deferred.
pub async fn start(change: impl FnOnce(&mut DropInConfig)) -> (Server, Provider) {
    let provider = Provider::start().await;
    let mut config = DropInConfig::new(ProviderConfig::new(&provider.url));
    config.defer_above_tokens = 0;
    change(&mut config);
    let server = Server::start_with(|settings| settings.dropin = Some(config)).await;
    (server, provider)
}

/// How a dialect writes what the tests need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

pub use Api::{Chat, Messages, Responses};

pub const APIS: [Api; 3] = [Chat, Responses, Messages];

/// A call as a script writes it: its id, name and arguments.
pub type Call<'c> = (&'c str, &'c str, Value);

impl Api {
    pub fn path(self) -> &'static str {
        match self {
            Chat => "/v1/chat/completions",
            Responses => "/v1/responses",
            Messages => "/v1/messages",
        }
    }

    pub fn history(self) -> &'static str {
        match self {
            Responses => "input",
            Chat | Messages => "messages",
        }
    }

    pub fn tool(self, name: &str, description: &str) -> Value {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        match self {
            Chat => json!({ "type": "function", "function": {
                "name": name, "description": description, "parameters": schema } }),
            Responses => json!({ "type": "function", "name": name,
                "description": description, "parameters": schema, "strict": false }),
            Messages => json!({ "name": name, "description": description,
                "input_schema": schema }),
        }
    }

    pub fn tools(self) -> Value {
        json!([
            self.tool("mail_send", "Sends an email to a person."),
            self.tool("weather_forecast", "Forecast of the weather for a city."),
            self.tool("calendar_add", "Adds an event to the calendar."),
        ])
    }

    pub fn request(self, history: &Value, streams: bool) -> Value {
        let mut request = json!({ "model": "m", "tools": self.tools(), "stream": streams });
        request[self.history()] = history.clone();
        request
    }

    /// The provider's answer: a text, if there is one, and calls.
    pub fn reply(self, number: usize, text: &str, calls: &[Call<'_>], streams: bool) -> Scripted {
        let body = self.body(number, text, calls);
        match streams {
            true => Scripted::Events(self.events(&body)),
            false => Scripted::Json(200, body),
        }
    }

    pub fn body(self, number: usize, text: &str, calls: &[Call<'_>]) -> Value {
        let has_text = !text.is_empty();
        match self {
            Chat => {
                let written: Vec<Value> = calls
                    .iter()
                    .map(|(id, name, arguments)| {
                        json!({ "id": id, "type": "function",
                        "function": { "name": name, "arguments": arguments.to_string() } })
                    })
                    .collect();
                let mut message = json!({ "role": "assistant",
                    "content": has_text.then_some(text) });
                if !written.is_empty() {
                    message["tool_calls"] = written.into();
                }
                let finish = if calls.is_empty() {
                    "stop"
                } else {
                    "tool_calls"
                };
                json!({ "id": format!("chat{number}"), "object": "chat.completion",
                    "created": number, "model": "m",
                    "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
                    "usage": { "prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11 } })
            }
            Responses => {
                let message = json!({ "type": "message", "id": format!("msg{number}"),
                    "role": "assistant", "status": "completed",
                    "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
                let calls = calls.iter().map(|(id, name, arguments)| {
                    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id,
                        "name": name, "arguments": arguments.to_string(), "status": "completed" })
                });
                let output: Vec<Value> = has_text
                    .then_some(message)
                    .into_iter()
                    .chain(calls)
                    .collect();
                json!({ "id": format!("resp{number}"), "object": "response",
                    "status": "completed", "model": "m", "tools": ["the provider's spelling"],
                    "output": output, "usage": { "input_tokens": 10, "output_tokens": 1 } })
            }
            Messages => {
                let block = json!({ "type": "text", "text": text });
                let calls = calls.iter().map(|(id, name, arguments)| {
                    json!({ "type": "tool_use", "id": id, "name": name, "input": arguments })
                });
                let content: Vec<Value> =
                    has_text.then_some(block).into_iter().chain(calls).collect();
                let is_call = content.iter().any(|block| block["type"] == "tool_use");
                json!({ "id": format!("msg{number}"), "type": "message", "role": "assistant",
                    "model": "m", "content": content,
                    "stop_reason": if is_call { "tool_use" } else { "end_turn" },
                    "usage": { "input_tokens": 10, "output_tokens": 1 } })
            }
        }
    }

    /// The same answer in events, with texts and arguments in two parts.
    pub fn events(self, body: &Value) -> String {
        match self {
            Chat => chat_events(body),
            Responses => responses_events(body),
            Messages => messages_events(body),
        }
    }

    /// What the client has of an answer: id, text, calls, and usage of the input.
    pub fn read(self, answer: &Answer, streams: bool) -> Seen {
        let body = match streams {
            true => self.joined(answer.body.as_str().expect("a stream")),
            false => answer.body.clone(),
        };
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut seen = Seen {
            id: text_of(&body["id"]),
            ..Seen::default()
        };
        match self {
            Chat => {
                let message = &body["choices"][0]["message"];
                seen.text = text_of(&message["content"]);
                seen.input_tokens = body["usage"]["prompt_tokens"].clone();
                seen.history = vec![message.clone()];
                for call in items(&message["tool_calls"]) {
                    let function = &call["function"];
                    seen.calls
                        .push((text_of(&call["id"]), text_of(&function["name"])));
                }
            }
            Responses => {
                seen.history = items(&body["output"]);
                seen.input_tokens = body["usage"]["input_tokens"].clone();
                assert_eq!(body["tools"], self.tools(), "the client's own tools");
                for item in &seen.history {
                    if item["type"] == "function_call" {
                        seen.calls
                            .push((text_of(&item["call_id"]), text_of(&item["name"])));
                    } else {
                        seen.text += &text_of(&item["content"][0]["text"]);
                    }
                }
            }
            Messages => {
                seen.history = vec![json!({ "role": "assistant", "content": body["content"] })];
                seen.input_tokens = body["usage"]["input_tokens"].clone();
                for block in items(&body["content"]) {
                    if block["type"] == "tool_use" {
                        seen.calls
                            .push((text_of(&block["id"]), text_of(&block["name"])));
                    } else {
                        seen.text += &text_of(&block["text"]);
                    }
                }
            }
        }
        seen
    }

    /// The body that a client puts together from events.
    pub fn joined(self, text: &str) -> Value {
        let events = text.split("\n\n").filter_map(|event| {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "))?;
            (data != "[DONE]").then(|| serde_json::from_str::<Value>(data).unwrap())
        });
        let events: Vec<Value> = events.collect();
        match self {
            Chat => joined_chat(&events),
            Responses => {
                for (place, event) in events.iter().enumerate() {
                    assert_eq!(event["sequence_number"], place, "{event}");
                }
                events.last().unwrap()["response"].clone()
            }
            Messages => joined_messages(&events),
        }
    }

    pub fn question(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    pub fn result(self, id: &str, text: &str) -> Value {
        match self {
            Chat => json!({ "role": "tool", "tool_call_id": id, "content": text }),
            Responses => json!({ "type": "function_call_output", "call_id": id, "output": text }),
            Messages => json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": text }] }),
        }
    }
}

#[derive(Debug, Default)]
pub struct Seen {
    pub id: String,
    pub text: String,
    pub calls: Vec<(String, String)>,
    input_tokens: Value,
    /// What the client adds to its conversation.
    pub history: Vec<Value>,
}

fn halves(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..=text.len())
        .find(|place| text.is_char_boundary(*place))
        .unwrap();
    [&text[..middle], &text[middle..]]
}

fn event(name: Option<&str>, data: &Value) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

fn chat_events(body: &Value) -> String {
    let message = &body["choices"][0]["message"];
    let chunk = |delta: Value, finish: Value| {
        event(
            None,
            &json!({ "id": body["id"], "object": "chat.completion.chunk",
            "created": body["created"], "model": "m",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }),
        )
    };
    let mut text = chunk(json!({ "role": "assistant", "content": "" }), Value::Null);
    if let Some(content) = message["content"].as_str() {
        for part in halves(content) {
            text += &chunk(json!({ "content": part }), Value::Null);
        }
    }
    let calls = message["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (index, call) in calls.iter().enumerate() {
        let mut first = call.clone();
        first["index"] = index.into();
        first["function"]["arguments"] = "".into();
        text += &chunk(json!({ "tool_calls": [first] }), Value::Null);
        for part in halves(call["function"]["arguments"].as_str().unwrap()) {
            let part = json!({ "index": index, "function": { "arguments": part } });
            text += &chunk(json!({ "tool_calls": [part] }), Value::Null);
        }
    }
    text += &chunk(json!({}), body["choices"][0]["finish_reason"].clone());
    text += &event(
        None,
        &json!({ "id": body["id"], "object": "chat.completion.chunk",
        "created": body["created"], "model": "m", "choices": [], "usage": body["usage"] }),
    );
    text + "data: [DONE]\n\n"
}

fn joined_chat(events: &[Value]) -> Value {
    let (mut text, mut calls, mut finish) = (String::new(), Vec::<Value>::new(), Value::Null);
    let (mut usage, mut roles) = (Value::Null, 0);
    for event in events {
        assert_eq!(event["id"], events[0]["id"], "one id in all chunks");
        if event["usage"].is_object() {
            usage = event["usage"].clone();
        }
        let delta = &event["choices"][0]["delta"];
        roles += usize::from(delta.get("role").is_some());
        text += delta["content"].as_str().unwrap_or_default();
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(fragment["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push(fragment.clone());
                continue;
            }
            let known = calls[index]["function"]["arguments"].as_str().unwrap();
            let more = fragment["function"]["arguments"].as_str().unwrap();
            calls[index]["function"]["arguments"] = format!("{known}{more}").into();
        }
        if event["choices"][0]["finish_reason"].is_string() {
            finish = event["choices"][0]["finish_reason"].clone();
        }
    }
    assert_eq!(roles, 1, "the role once");
    let expected = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    assert_eq!(finish, expected);
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({ "id": events[0]["id"], "usage": usage, "choices": [{ "message": message }] })
}

fn responses_events(body: &Value) -> String {
    let mut events = Vec::new();
    let mut begun = body.clone();
    begun["output"] = json!([]);
    begun["status"] = "in_progress".into();
    events.push(json!({ "type": "response.created", "response": begun }));
    events.push(json!({ "type": "response.in_progress", "response": begun }));
    for (index, item) in body["output"].as_array().unwrap().iter().enumerate() {
        let mut added = item.clone();
        let (field, kind) = match item["type"] == "message" {
            true => ("content", "response.output_text.delta"),
            false => ("arguments", "response.function_call_arguments.delta"),
        };
        added[field] = if field == "content" {
            json!([])
        } else {
            "".into()
        };
        events.push(
            json!({ "type": "response.output_item.added", "output_index": index,
            "item": added }),
        );
        let whole = item["content"][0]["text"]
            .as_str()
            .or(item["arguments"].as_str());
        for part in halves(whole.unwrap()) {
            events.push(
                json!({ "type": kind, "item_id": item["id"], "output_index": index,
                "delta": part }),
            );
        }
        events.push(
            json!({ "type": "response.output_item.done", "output_index": index,
            "item": item }),
        );
    }
    events.push(json!({ "type": "response.completed", "response": body }));
    let numbered = events.into_iter().enumerate().map(|(number, mut data)| {
        data["sequence_number"] = number.into();
        event(data["type"].as_str(), &data)
    });
    numbered.collect()
}

fn messages_events(body: &Value) -> String {
    let mut start = body.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut events = vec![json!({ "type": "message_start", "message": start })];
    for (index, block) in body["content"].as_array().unwrap().iter().enumerate() {
        let mut begun = block.clone();
        let is_text = block["type"] == "text";
        let whole = match is_text {
            true => block["text"].as_str().unwrap().to_owned(),
            false => block["input"].to_string(),
        };
        begun[if is_text { "text" } else { "input" }] = if is_text { "".into() } else { json!({}) };
        events.push(json!({ "type": "content_block_start", "index": index,
            "content_block": begun }));
        for part in halves(&whole) {
            let delta = match is_text {
                true => json!({ "type": "text_delta", "text": part }),
                false => json!({ "type": "input_json_delta", "partial_json": part }),
            };
            events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(
        json!({ "type": "message_delta", "usage": { "output_tokens": 1 },
        "delta": { "stop_reason": body["stop_reason"], "stop_sequence": null } }),
    );
    events.push(json!({ "type": "message_stop" }));
    let named = events.iter().map(|data| event(data["type"].as_str(), data));
    named.collect()
}

fn joined_messages(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut blocks: Vec<(Value, String)> = Vec::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "message_start" => {
                assert!(message.is_null(), "one beginning");
                message = event["message"].clone();
            }
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len());
                blocks.push((event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let index = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
                let delta = &event["delta"];
                let part = delta["text"].as_str().or(delta["partial_json"].as_str());
                blocks[index].1 += part.unwrap();
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                for (name, count) in event["usage"].as_object().unwrap() {
                    message["usage"][name] = count.clone();
                }
            }
            _ => {}
        }
    }
    let content = blocks.into_iter().map(|(mut block, text)| {
        match block["type"] == "text" {
            true => block["text"] = text.into(),
            false => block["input"] = serde_json::from_str(&text).unwrap(),
        }
        block
    });
    message["content"] = content.collect();
    message
}

/// Asks, and adds the answer to the conversation.
pub async fn ask(server: &Server, api: Api, history: &mut Value, streams: bool) -> (Seen, Answer) {
    let request = api.request(history, streams);
    let answer = read(server.request(Method::POST, api.path()).json(&request)).await;
    assert_eq!(answer.status, 200, "{api:?}: {answer:?}");
    let seen = api.read(&answer, streams);
    history.as_array_mut().unwrap().extend(seen.history.clone());
    (seen, answer)
}

pub fn names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| {
            let name = tool.get("name").or(tool.pointer("/function/name"));
            name.unwrap().as_str().unwrap().to_owned()
        })
        .collect()
}

pub fn find(query: &str) -> Value {
    json!({ "query": query, "limit": 1 })
}

/// Asserts that one JSON list is the beginning of another, byte for byte.
fn assert_begins(longer: &Value, shorter: &Value) {
    let (longer, shorter) = (longer.to_string(), shorter.to_string());
    let beginning = shorter.strip_suffix(']').unwrap();
    assert!(
        longer.starts_with(beginning),
        "{longer}\ndoes not begin with\n{shorter}"
    );
}

#[tokio::test]
async fn a_search_is_hidden_and_comes_back_to_the_provider_in_the_next_turn() {
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (server, provider) = start(|_| {}).await;
        let forecast = ("c1", "weather_forecast", json!({ "a": "Bergen" }));
        let search = ("s1", "tool_search", find("weather forecast for a city"));
        provider.reply(api.reply(1, "Let me see.", &[search], streams));
        provider.reply(api.reply(2, "", &[forecast], streams));
        let mut history = json!([Api::question("Will it rain?")]);
        let (seen, answer) = ask(&server, api, &mut history, streams).await;
        let expected = vec![("c1".to_owned(), "weather_forecast".to_owned())];
        assert_eq!(
            (seen.calls, seen.text.as_str()),
            (expected, "Let me see."),
            "{api:?}"
        );
        assert_eq!(seen.input_tokens, 20, "{api:?} {streams}");
        if !streams {
            assert_eq!(answer.headers["x-toolscout-rounds"], "2");
            assert_eq!(answer.headers["x-toolscout-tools-offered"], "3");
        }
        let [first, second] = provider.sent_json().try_into().unwrap();
        assert_eq!(names(&first), ["tool_search"]);
        assert_eq!(names(&second), ["tool_search", "weather_forecast"]);
        assert_begins(&second["tools"], &first["tools"]);
        assert_begins(&second[api.history()], &first[api.history()]);

        provider.reply(api.reply(3, "It will.", &[], streams));
        history
            .as_array_mut()
            .unwrap()
            .push(api.result("c1", "rain"));
        ask(&server, api, &mut history, streams).await;
        let third = provider.sent_json().remove(2);
        assert_eq!(third["tools"], second["tools"]);
        assert_begins(&third[api.history()], &second[api.history()]);
        let text = third[api.history()].to_string();
        assert!(text.contains("\"c1\"") && text.contains("\"s1\"") && text.contains("rain"));

        provider.reply(api.reply(4, "You are welcome.", &[], streams));
        history
            .as_array_mut()
            .unwrap()
            .push(Api::question("Thank you."));
        ask(&server, api, &mut history, streams).await;
        let fourth = provider.sent_json().remove(3);
        assert_eq!(fourth["tools"], second["tools"]);
        assert_begins(&fourth[api.history()], &third[api.history()]);
    }
}

#[tokio::test]
async fn a_search_beside_a_call_of_the_client_is_answered_in_the_next_turn() {
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (server, provider) = start(|config| config.pins = vec!["mail_*".into()]).await;
        let search = ("s1", "tool_search", find("weather forecast"));
        let send = ("c1", "mail_send", json!({ "a": "x" }));
        provider.reply(api.reply(1, "", &[search, send], streams));
        let mut history = json!([Api::question("Mail and weather.")]);
        let (seen, _) = ask(&server, api, &mut history, streams).await;
        assert_eq!(
            seen.calls,
            [("c1".to_owned(), "mail_send".to_owned())],
            "{api:?}"
        );

        provider.reply(api.reply(2, "Done.", &[], streams));
        history
            .as_array_mut()
            .unwrap()
            .push(api.result("c1", "sent"));
        ask(&server, api, &mut history, streams).await;
        let [first, second] = provider.sent_json().try_into().unwrap();
        assert_eq!(names(&first), ["mail_send", "tool_search"]);
        assert_eq!(
            names(&second),
            ["mail_send", "tool_search", "weather_forecast"]
        );
        let told = second[api.history()].as_array().unwrap();
        let results: String = told[2..].iter().map(Value::to_string).collect();
        assert!(
            results.contains("\"s1\"") && results.contains("\"c1\""),
            "{results}"
        );
        if api == Messages {
            assert_eq!(told.len(), 3, "all results are in one message");
            assert_eq!(told[2]["content"][0]["tool_use_id"], "s1");
        }
    }
}

#[tokio::test]
async fn a_search_for_a_tool_that_the_model_sees_says_so_and_loads_no_other() {
    for api in APIS {
        let (server, provider) = start(|config| config.pins = vec!["weather_*".into()]).await;
        let search = ("s1", "tool_search", find("weather forecast for a city"));
        provider.reply(api.reply(1, "", &[search], false));
        provider.reply(api.reply(2, "Done.", &[], false));
        let mut history = json!([Api::question("Weather.")]);
        ask(&server, api, &mut history, false).await;
        let [first, second] = provider.sent_json().try_into().unwrap();
        assert_eq!(names(&second), names(&first), "{api:?}");
        let told = second[api.history()].to_string();
        let visible = r#"\"already_visible\":[\"weather_forecast\"]"#;
        assert!(told.contains(visible), "{api:?}: {told}");
    }
}

#[tokio::test]
async fn what_was_called_is_shown_again_even_if_nothing_is_remembered() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        let call = ("c1", "calendar_add", json!({}));
        let mut history = vec![Api::question("Add it.")];
        history.extend(match api {
            Responses => api.body(1, "", &[call])["output"]
                .as_array()
                .unwrap()
                .clone(),
            Chat => vec![api.body(1, "", &[call])["choices"][0]["message"].clone()],
            Messages => {
                vec![json!({ "role": "assistant", "content": api.body(1, "", &[call])["content"] })]
            }
        });
        history.push(api.result("c1", "added"));
        provider.reply(api.reply(2, "Done.", &[], false));
        ask(&server, api, &mut history.into(), false).await;
        let sent = provider.sent_json().remove(0);
        assert_eq!(names(&sent), ["tool_search", "calendar_add"], "{api:?}");
    }
}

#[tokio::test]
async fn a_chosen_tool_is_shown_and_a_call_of_an_unshown_one_passes() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        let choice = match api {
            Chat => json!({ "type": "function", "function": { "name": "mail_send" } }),
            Responses => json!({ "type": "function", "name": "mail_send" }),
            Messages => json!({ "type": "tool", "name": "mail_send" }),
        };
        let mut request = api.request(&json!([Api::question("q")]), false);
        request["tool_choice"] = choice.clone();
        provider.reply(api.reply(1, "", &[("c1", "calendar_add", json!({}))], false));
        let answer = server.post(api.path(), &request).await;
        let calls = api.read(&answer, false).calls;
        assert_eq!(calls, [("c1".to_owned(), "calendar_add".to_owned())]);
        let sent = provider.sent_json().remove(0);
        assert_eq!(names(&sent), ["tool_search", "mail_send"]);
        assert_eq!(sent["tool_choice"], choice);
    }
}

#[tokio::test]
async fn what_is_not_deferred_passes_byte_for_byte() {
    let (server, provider) = start(|config| config.defer_above_tokens = 100_000).await;
    let twins = format!("[{0},{0}]", Chat.tool("a", "d"));
    let native = r#"[{"type":"tool_search"},{"type":"function","name":"a","defer_loading":true}]"#;
    let own = r#"[{"type":"tool_search_tool_regex_20251119","name":"s"},{"name":"a","defer_loading":true}]"#;
    for (path, tools, defer) in [
        ("/v1/chat/completions", Chat.tools().to_string(), None),
        ("/v1/chat/completions", twins, Some("0")),
        (
            "/v1/chat/completions",
            Chat.tools().to_string(),
            Some("off"),
        ),
        ("/v1/responses", native.to_owned(), Some("0")),
        ("/v1/messages", own.to_owned(), Some("0")),
    ] {
        let body = format!(
            "{{ \"model\" : \"m\", \"x\": 1.50, \"tools\":{tools},\"messages\": [ ],\"input\":\"é\"}}"
        );
        provider.reply(Scripted::Json(200, json!({ "any": "thing" })));
        let mut request = server
            .request(Method::POST, &format!("{path}?beta=true"))
            .header("content-type", "application/json")
            .header("anthropic-beta", "b")
            .body(body.clone());
        if let Some(defer) = defer {
            request = request.header("x-toolscout-defer", defer);
        }
        let answer = read(request).await;
        assert_eq!(answer.body, json!({ "any": "thing" }));
        assert_eq!(answer.headers["x-request-id"], "req_provider");
        assert_eq!(provider.sent().pop().unwrap(), body);
        let requests = provider.state.requests.lock().unwrap();
        let (sent_to, headers, _) = requests.last().unwrap();
        assert_eq!(*sent_to, format!("{path}?beta=true"));
        assert_eq!(headers["anthropic-beta"], "b");
    }
}

#[tokio::test]
async fn two_keys_with_tools_of_one_name_find_their_own() {
    let (server, provider) = start(|config| config.provider.key = Some("secret".into())).await;
    let keys = [server.key(Scope::Llm, "*"), server.key(Scope::Llm, "*")];
    for (key, owner) in keys.iter().zip(["Ada", "Bo"]) {
        let search = ("s1", "tool_search", find("send"));
        provider.reply(Chat.reply(1, "", &[search], false));
        provider.reply(Chat.reply(2, "Done.", &[], false));
        let mut request = Chat.request(&json!([Api::question("q")]), false);
        request["tools"] = json!([Chat.tool("send", &format!("Sends something of {owner}."))]);
        let sending = server.request(Method::POST, Chat.path()).bearer_auth(key);
        let answer = read(sending.json(&request)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = provider.sent().pop().unwrap();
        assert!(sent.contains(&format!("something of {owner}")), "{sent}");
        assert_eq!(provider.last_headers()["authorization"], "Bearer secret");
    }
    let searching = server.key(Scope::Search, "*");
    for (key, status) in [(searching.as_str(), 403), ("sk-of-the-provider", 401)] {
        let request = server.request(Method::POST, Messages.path());
        let answer = read(request.header("x-api-key", key).json(&json!({}))).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["type"]),
            (status, &json!("error"))
        );
    }
    let text = format!("{:?}", provider.state.requests.lock().unwrap());
    assert!(!text.contains("tsk_"), "a key of ours came to the provider");
}

/// Every request that goes to a provider, or that our agent answers, as method, path and body.
fn requests_to_a_model() -> Vec<(Method, String, Value)> {
    let mut requests = Vec::new();
    for base in ["/v1", "", "/v1/v1"] {
        for api in APIS {
            let path = format!("{base}{}", api.path().trim_start_matches("/v1"));
            let question = api.request(&json!([Api::question("q")]), false);
            let of_agent = question_to_the_agent(api, &json!([Api::question("q")]), false);
            requests.push((Method::POST, path.clone(), question));
            requests.push((Method::POST, path, of_agent));
        }
        for path in ["/messages/count_tokens", "/responses/input_tokens"] {
            let question = Messages.request(&json!([Api::question("q")]), false);
            requests.push((Method::POST, format!("{base}{path}"), question));
        }
        requests.push((Method::GET, format!("{base}/models"), Value::Null));
    }
    requests
}

#[tokio::test]
async fn an_admin_key_of_some_catalogs_has_no_use_of_the_operators_model() {
    let (server, provider) = start(|config| config.provider.key = Some("secret".into())).await;
    let limited = [
        server.key(Scope::Admin, "default"),
        server.key(Scope::Admin, "default,other"),
        server.make_key(
            [Scope::Admin, Scope::Call, Scope::Approve]
                .into_iter()
                .collect(),
            "default",
        ),
    ];
    for key in &limited {
        for (method, path, body) in requests_to_a_model() {
            let request = server.request(method, &path).bearer_auth(key);
            let answer = read(request.header("x-toolscout-catalog", "default").json(&body)).await;
            assert_eq!(answer.status, 403, "{path}: {answer:?}");
            let told = answer.body.to_string();
            assert!(told.contains("the scope llm"), "{path}: {told}");
        }
    }
    assert!(provider.sent().is_empty());
    for key in [
        server.key(Scope::Admin, "*"),
        server.key(Scope::Llm, "default"),
        server.make_key([Scope::Admin, Scope::Llm].into_iter().collect(), "default"),
    ] {
        provider.reply(Chat.reply(1, "Done.", &[], false));
        let request = server.request(Method::POST, Chat.path()).bearer_auth(key);
        let question = Chat.request(&json!([Api::question("q")]), false);
        assert_eq!(read(request.json(&question)).await.status, 200);
    }
}

#[tokio::test]
async fn a_client_may_bring_the_providers_key_beside_ours() {
    let (server, provider) = start(|config| config.key_from_client = true).await;
    let ours = server.key(Scope::Llm, "*");
    provider.reply(Scripted::Json(200, json!({})));
    let request = server
        .request(Method::POST, Chat.path())
        .bearer_auth("sk-theirs")
        .header("x-api-key", &ours);
    assert_eq!(read(request.json(&json!({}))).await.status, 200);
    assert_eq!(provider.last_headers()["authorization"], "Bearer sk-theirs");
    assert!(provider.last_headers().get("x-api-key").is_none());
    let without_ours = server
        .request(Method::POST, Chat.path())
        .bearer_auth("sk-theirs");
    assert_eq!(read(without_ours.json(&json!({}))).await.status, 401);
}

#[tokio::test]
async fn errors_of_the_provider_pass_and_faults_are_told_in_the_dialect() {
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (server, provider) = start(|config| {
            config.provider.idle_timeout = Duration::from_millis(500);
            config.provider.first_token_timeout = Duration::from_secs(60);
        })
        .await;
        let request = api.request(&json!([Api::question("q")]), streams);
        let send = || server.post(api.path(), &request);
        let refusal = json!({ "error": { "message": "slow down", "type": "rate_limit_error" } });
        provider.reply(Scripted::Json(429, refusal.clone()));
        let answer = send().await;
        assert_eq!((answer.status.as_u16(), &answer.body), (429, &refusal));
        // Nothing was sent yet, so the refusal of a later round has its status too.
        let search = || ("s1", "tool_search", find("weather"));
        provider.reply(api.reply(1, "", &[search()], streams));
        provider.reply(Scripted::Json(429, refusal.clone()));
        let answer = send().await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body),
            (429, &refusal),
            "{api:?}"
        );
        if !streams {
            provider.reply(Scripted::Json(200, json!("<html>")));
            assert_eq!(send().await.status, 502);
            continue;
        }
        let events = api.events(&api.body(1, "Let me see what there is.", &[]));
        let half = &events[..events.len() * 2 / 3];
        for (reply, code) in [
            (Scripted::Cut(half.to_owned()), "cut off"),
            (Scripted::Hang(half.to_owned()), "sent nothing for 500 ms"),
            (Scripted::Events(half.to_owned()), "cut off"),
            (
                Scripted::Events(half.to_owned() + "\n\ndata: {\"bro\n\n"),
                "not what its API says",
            ),
        ] {
            provider.reply(reply);
            let answer = send().await;
            // Where nothing was sent before, it has a status of its own.
            let text = match answer.body.as_str() {
                Some(events) => events.to_owned(),
                None => answer.body.to_string(),
            };
            let last = text.trim_end().rsplit("\n\n").next().unwrap();
            assert!(
                last.contains("error") && last.contains(code),
                "{api:?} {code}: {answer:?}"
            );
        }
        provider.reply(api.reply(1, "One moment.", &[search()], streams));
        provider.reply(Scripted::Json(
            500,
            json!({ "error": { "message": "broken" } }),
        ));
        let answer = send().await;
        let text = answer.body.as_str().unwrap();
        assert!(text.contains("One m"), "{text}");
        assert!(text.contains("answered 500: broken"), "{text}");
    }
}

#[tokio::test]
async fn what_a_provider_sends_is_no_page_of_this_server() {
    let (server, provider) = start(|_| {}).await;
    let page = "<script>fetch('/v1/catalogs')</script>";
    let plain = json!({ "model": "m", "messages": [Api::question("q")] });
    for content_type in [
        "text/html",
        "image/svg+xml",
        "application/xhtml+xml",
        "text/xml",
    ] {
        for request in [
            server.request(Method::GET, "/v1/models"),
            server
                .request(Method::POST, "/v1/chat/completions")
                .json(&plain),
        ] {
            provider.reply(Scripted::Typed(content_type, page));
            let answer = request.send().await.unwrap();
            let of = |name| -> Vec<&str> {
                let values = answer.headers().get_all(name).iter();
                values.map(|value| value.to_str().unwrap()).collect()
            };
            assert_eq!(
                of("content-type"),
                ["text/plain; charset=utf-8"],
                "{content_type}"
            );
            assert_eq!(of("x-content-type-options"), ["nosniff"]);
            let policy = ["default-src 'none'; sandbox", "frame-ancestors 'none'"];
            assert_eq!(of("content-security-policy"), policy);
            assert_eq!(answer.text().await.unwrap(), page);
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_down_is_a_bad_gateway() {
    let config = DropInConfig::new(ProviderConfig::new("http://127.0.0.1:9/v1"));
    let server = Server::start_with(|settings| settings.dropin = Some(config)).await;
    for api in APIS {
        let answer = server.post(api.path(), &json!({})).await;
        assert_eq!(answer.status, 502, "{answer:?}");
        assert!(answer.message().contains("cannot be reached"), "{answer:?}");
    }
    let none = Server::start().await;
    let answer = none.post(Chat.path(), &json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code()),
        (503, "no_model")
    );
}

#[tokio::test]
async fn a_client_that_goes_away_drops_the_request_to_the_provider() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        let events = api.events(&api.body(1, "Let me see what there is.", &[]));
        provider.reply(Scripted::Hang(events[..events.len() / 2].to_owned()));
        let request = api.request(&json!([Api::question("q")]), true);
        let mut answer = server
            .request(Method::POST, api.path())
            .json(&request)
            .send()
            .await
            .unwrap();
        answer.chunk().await.unwrap();
        drop(answer);
        let told = tokio::time::timeout(PATIENCE, provider.state.dropped.notified());
        told.await.expect("the provider is told");
    }
}

#[tokio::test]
async fn a_model_that_only_searches_is_stopped() {
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (server, provider) = start(|config| config.max_hidden_rounds = 2).await;
        for number in 1..=3 {
            let search = ("s1", "tool_search", find("weather"));
            provider.reply(api.reply(number, "", &[search], streams));
        }
        let request = api.request(&json!([Api::question("q")]), streams);
        let answer = server.post(api.path(), &request).await;
        assert_eq!(answer.status, 200);
        assert!(
            !answer.body.to_string().contains("tool_search"),
            "{answer:?}"
        );
        let sent = provider.sent_json();
        assert_eq!(sent.len(), 3);
        assert!(sent[1].get("tool_choice").is_none());
        let none = if api == Messages {
            json!({ "type": "none" })
        } else {
            json!("none")
        };
        assert_eq!(sent[2]["tool_choice"], none);
    }
}

#[tokio::test]
async fn a_response_is_continued_by_the_id_that_the_client_knows() {
    for streams in [false, true] {
        let (server, provider) = start(|_| {}).await;
        let search = ("s1", "tool_search", find("weather forecast"));
        let forecast = ("c1", "weather_forecast", json!({}));
        provider.reply(Responses.reply(1, "One moment.", &[search], streams));
        provider.reply(Responses.reply(2, "", &[forecast], streams));
        let (seen, _) = ask(
            &server,
            Responses,
            &mut json!([Api::question("q")]),
            streams,
        )
        .await;
        provider.reply(Responses.reply(3, "Done.", &[], streams));
        let mut request = Responses.request(&json!([Responses.result("c1", "rain")]), streams);
        request["previous_response_id"] = seen.id.into();
        let answer = server.post(Responses.path(), &request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let third = provider.sent_json().remove(2);
        assert_eq!(third["previous_response_id"], "resp2");
        assert_eq!(names(&third), ["tool_search", "weather_forecast"]);
        assert_eq!(third["input"].as_array().unwrap().len(), 1);
    }
}

/// An agent that has these tools and may call them.
fn agent_with(tools: &[&str]) -> AgentPlan {
    let outcome = vec![ToolOutcome::Result(json!("the money is there"))];
    let tools: HashMap<String, Vec<ToolOutcome>> = tools
        .iter()
        .map(|id| ((*id).to_owned(), outcome.clone()))
        .collect();
    AgentPlan {
        builder: Agent::builder()
            .llm(ScriptedModel::new("scripted", Vec::<Reply>::new()))
            .tools(ScriptedTools::new(tools)),
        config: AgentConfig {
            policies: Policies::permissive(),
            ..AgentConfig::default()
        },
        ..AgentPlan::default()
    }
}

#[tokio::test]
async fn a_registered_catalog_is_searched_too_and_what_can_be_called_is_shown() {
    let transfers = ["bank/transfer_money"].as_slice();
    for (calls_tools, connected) in [(false, transfers), (true, &[]), (true, transfers)] {
        let provider = Provider::start().await;
        let mut config = DropInConfig::new(ProviderConfig::new(&provider.url));
        config.calls_tools = calls_tools;
        let server = Server::start_with(|settings| {
            settings.dropin = Some(config);
            settings.agents = Some(agent_with(connected).into());
        })
        .await;
        let tools = json!([
            super::server::tool("bank", "transfer_money", "Transfers money to an account."),
            super::server::tool("", "mail_send", "Transfers money by mail.")
        ]);
        let added = server.post("/v1/catalogs/default/tools", &tools).await;
        assert_eq!(added.status, 200);
        let is_shown = calls_tools && !connected.is_empty();
        let search = json!({ "query": "transfer money to an account" });
        provider.reply(Chat.reply(1, "", &[("s1", "tool_search", search)], false));
        if is_shown {
            let transfer = ("t1", "bank__transfer_money", json!({ "text": "x" }));
            provider.reply(Chat.reply(2, "", &[transfer], false));
        }
        provider.reply(Chat.reply(3, "Done.", &[], false));
        let request = Chat.request(&json!([Api::question("q")]), false);
        let sending = server.request(Method::POST, Chat.path()).json(&request);
        let answer = read(sending.header("x-toolscout-catalog", "default")).await;
        assert_eq!(Chat.read(&answer, false).text, "Done.", "{answer:?}");
        let sent = provider.sent_json().pop().unwrap();
        let shown = names(&sent);
        assert!(
            shown.contains(&"mail_send".to_owned()),
            "the client's own: {shown:?}"
        );
        assert_eq!(shown.contains(&"bank__transfer_money".to_owned()), is_shown);
        let told = sent["messages"].to_string();
        assert_eq!(told.contains("transfer_money"), is_shown, "{told}");
        assert_eq!(told.contains("the money is there"), is_shown, "{told}");
    }
    let (server, _provider) = start(|_| {}).await;
    let request = server.request(Method::POST, Chat.path()).json(&json!({}));
    let answer = read(request.header("x-toolscout-catalog", "nothing")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code()),
        (404, "unknown_catalog")
    );
}

#[tokio::test]
async fn a_profile_of_a_catalog_is_searched_in_its_place() {
    let provider = Provider::start().await;
    let mut config = DropInConfig::new(ProviderConfig::new(&provider.url));
    (config.defer_above_tokens, config.calls_tools) = (0, true);
    let edits = "[tools]\n'bank/*' = {}\n'bank/transfer_money' = { description = 'Moves funds to an account.' }";
    let profile = toml::from_str(edits).unwrap();
    let server = Server::start_with(|settings| {
        settings.dropin = Some(config);
        let agent = agent_with(&["bank/transfer_money", "other/transfer_money_too"]);
        settings.agents = Some(agent.into());
        settings.profiles = vec![ToolProfile::new("bank", &profile)];
    })
    .await;
    let transfer = "Transfers money to an account.";
    let tools = json!([
        super::server::tool("bank", "transfer_money", transfer),
        super::server::tool("other", "transfer_money_too", transfer)
    ]);
    let added = server.post("/v1/catalogs/default/tools", &tools).await;
    assert_eq!(added.status, 200);
    let ask = async |headers: &[(&str, &str)]| {
        let request = Chat.request(&json!([Api::question("q")]), false);
        let mut sending = server.request(Method::POST, Chat.path()).json(&request);
        for (name, value) in headers {
            sending = sending.header(*name, *value);
        }
        read(sending).await
    };
    for (header, expected) in [
        (("x-toolscout-profile", "bank"), false),
        (("x-toolscout-catalog", "default"), true),
    ] {
        let search = json!({ "query": "transfer money to an account" });
        provider.reply(Chat.reply(1, "", &[("s1", "tool_search", search)], false));
        provider.reply(Chat.reply(2, "Done.", &[], false));
        let answer = ask(&[header]).await;
        assert_eq!(Chat.read(&answer, false).text, "Done.", "{answer:?}");
        let shown = names(&provider.sent_json().pop().unwrap());
        assert!(
            shown.contains(&"bank__transfer_money".to_owned()),
            "{shown:?}"
        );
        let has_other = shown.contains(&"other__transfer_money_too".to_owned());
        assert_eq!(has_other, expected, "{shown:?}");
        let sent = provider.sent_json().pop().unwrap().to_string();
        assert_eq!(sent.contains("Moves funds"), !expected, "{sent}");
    }
    let both = [
        ("x-toolscout-profile", "bank"),
        ("x-toolscout-catalog", "default"),
    ];
    assert_eq!(ask(&both).await.error_code(), "invalid_header");
    let unknown = ask(&[("x-toolscout-profile", "none")]).await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.error_code()),
        (404, "unknown_profile")
    );
}

/// A server whose agent answers with these texts, in order, and with nothing after them.
async fn answering(texts: &'static [&'static str]) -> Server {
    Server::start_with(move |settings| {
        let replies = texts.iter().map(|text| Reply::text(*text));
        let agent = AgentPlan {
            builder: Agent::builder().llm(ScriptedModel::new("scripted", replies)),
            ..AgentPlan::default()
        };
        settings.agents = Some(agent.into());
    })
    .await
}

fn question_to_the_agent(api: Api, history: &Value, streams: bool) -> Value {
    let mut request = json!({ "model": "toolscout/agent", "stream": streams });
    request[api.history()] = history.clone();
    request
}

#[tokio::test]
async fn our_agent_answers_as_a_model_of_each_api_and_remembers_the_conversation() {
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let server = answering(&["Hello there!", "Hello again!"]).await;
        let models = server.get("/v1/models").await;
        assert_eq!(models.body["data"][0]["id"], "toolscout/agent");
        let mut history = json!([Api::question("Hi")]);
        for expected in ["Hello there!", "Hello again!"] {
            let request = question_to_the_agent(api, &history, streams);
            let answer = server.post(api.path(), &request).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let (text, items) = of_agent(api, &answer, streams);
            assert_eq!(text, expected, "{api:?} {streams}");
            let known = history.as_array_mut().unwrap();
            known.extend(items);
            known.push(Api::question("And again?"));
        }
        let kept = server.get("/v1/agent/conversations").await;
        let kept = kept.body["conversations"].as_array().unwrap().clone();
        assert_eq!(
            kept.len(),
            1,
            "{api:?}: both questions are in one: {kept:?}"
        );

        // The script is at its end.
        let failed = server
            .post(api.path(), &question_to_the_agent(api, &history, streams))
            .await;
        let text = failed.body.to_string();
        assert!(text.contains("no reply left"), "{api:?}: {text}");
        let is_error = match streams {
            true => failed.status == 200 && text.contains("error"),
            false => failed.status == 502,
        };
        assert!(is_error, "{failed:?}");
        for unknown in [json!([]), json!([{ "role": "assistant", "content": "Hi" }])] {
            let request = question_to_the_agent(api, &unknown, streams);
            let refused = server.post(api.path(), &request).await;
            assert_eq!(refused.status, 400, "{refused:?}");
            assert!(refused.message().contains("no question"), "{refused:?}");
        }
    }
}

/// The text of the agent's answer, and what the client adds to its conversation.
fn of_agent(api: Api, answer: &Answer, streams: bool) -> (String, Vec<Value>) {
    let body = match streams {
        true => api.joined(answer.body.as_str().expect("a stream")),
        false => answer.body.clone(),
    };
    if !(api == Chat && streams) {
        assert_eq!(body["model"], "toolscout/agent");
    }
    match api {
        Chat => {
            let message = body["choices"][0]["message"].clone();
            (
                message["content"].as_str().unwrap().to_owned(),
                vec![message],
            )
        }
        Responses => {
            assert_eq!(body["status"], "completed");
            let text = body["output"][0]["content"][0]["text"].as_str().unwrap();
            (text.to_owned(), body["output"].as_array().unwrap().clone())
        }
        Messages => {
            assert_eq!(body["stop_reason"], "end_turn");
            let text = body["content"][0]["text"].as_str().unwrap();
            let message = json!({ "role": "assistant", "content": body["content"] });
            (text.to_owned(), vec![message])
        }
    }
}

#[tokio::test]
async fn an_answer_of_our_agent_is_continued_by_its_id() {
    let server = answering(&["Hello there!", "Hello again!"]).await;
    let mut request = json!({ "model": "toolscout/agent", "input": "Hi" });
    let first = server.post(Responses.path(), &request).await;
    request["previous_response_id"] = first.body["id"].clone();
    let second = server.post(Responses.path(), &request).await;
    assert_eq!(
        second.body["output"][0]["content"][0]["text"],
        "Hello again!"
    );
    assert_eq!(second.body["previous_response_id"], first.body["id"]);
    let kept = server.get("/v1/agent/conversations").await;
    assert_eq!(kept.body["conversations"].as_array().unwrap().len(), 1);
    request["previous_response_id"] = "resp_of_nobody".into();
    let refused = server.post(Responses.path(), &request).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (400, "previous_response_not_found")
    );
}

#[tokio::test]
async fn tokens_of_our_agent_come_in_a_stream_where_they_are_asked_for() {
    for asks in [false, true] {
        let server = answering(&["Hello there!"]).await;
        let mut request = question_to_the_agent(Chat, &json!([Api::question("Hi")]), true);
        if asks {
            request["stream_options"] = json!({ "include_usage": true });
        }
        let answer = server.post(Chat.path(), &request).await;
        let joined = Chat.joined(answer.body.as_str().unwrap());
        assert_eq!(joined["usage"].is_object(), asks, "{joined}");
    }
}

#[tokio::test]
async fn a_script_says_which_model_there_is() {
    let server = answering(&[]).await;
    for api in APIS {
        let answer = server
            .post(api.path(), &json!({ "model": "gpt-5.4-mini" }))
            .await;
        assert_eq!(answer.status, 404, "{answer:?}");
        for part in [
            "\"gpt-5.4-mini\"",
            "\"toolscout/agent\" is the only model",
            "--llm URL",
        ] {
            assert!(answer.message().contains(part), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_thread_is_refused_in_words_that_its_client_understands() {
    let (server, _provider) = start(|_| {}).await;
    let mut request = Messages.request(&json!([Api::question("q")]), false);
    request["thread"] = json!({ "type": "create" });
    let answer = server.post(Messages.path(), &request).await;
    assert_eq!(answer.status, 400);
    let details = &answer.body["error"]["details"];
    assert_eq!(details["error_code"], "thread_unsupported_request");
}
