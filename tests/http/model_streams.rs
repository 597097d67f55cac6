//! Streams of providers that are not quite what their API says, as they are seen behind the drop-in
//! endpoint: a search in them stays hidden, and what the client calls reaches it.

use std::path::Path;

use serde_json::{Value, json};

use super::model::{Api, Chat, Messages, Provider, Responses, Scripted, Seen, find, names, start};
use super::server::{Answer, Server};

/// The name of the search tool, which no client may see.
const SEARCH: &str = "tool_search";

/// The events of an answer; `None` stands for `[DONE]`.
type Events = Vec<Option<Value>>;

fn parsed(text: &str) -> Events {
    let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
    frames
        .map(|frame| {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
            let data = data.expect("data in each frame");
            (data != "[DONE]").then(|| serde_json::from_str(data).unwrap())
        })
        .collect()
}

fn written(events: &Events) -> String {
    let frame = |event: &Option<Value>| match event {
        None => "data: [DONE]\n\n".to_owned(),
        Some(event) => match event["type"].as_str() {
            Some(name) => format!("event: {name}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        },
    };
    events.iter().map(frame).collect()
}

/// Changes each event.
fn each(mut events: Events, change: impl Fn(&mut Value)) -> Events {
    events.iter_mut().flatten().for_each(change);
    events
}

/// Leaves out events of these types.
fn without(mut events: Events, kinds: &[&str]) -> Events {
    events.retain(|event| {
        let kind = event.as_ref().and_then(|event| event["type"].as_str());
        kind.is_none_or(|kind| !kinds.contains(&kind))
    });
    events
}

/// Numbers the events of responses again.
fn numbered(mut events: Events) -> Events {
    for (number, event) in events.iter_mut().flatten().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

fn call_fragments(event: &mut Value) -> impl Iterator<Item = &mut Value> {
    let fragments = event.pointer_mut("/choices/0/delta/tool_calls");
    let fragments = fragments.and_then(Value::as_array_mut);
    fragments.into_iter().flatten()
}

fn remove(event: &mut Value, field: &str) {
    if let Some(fields) = event.as_object_mut() {
        fields.shift_remove(field);
    }
}

/// What a client has of an answer whose fragments repeat what others say once.
fn seen(api: Api, answer: &Answer) -> Seen {
    let text = answer.body.as_str().expect("a stream");
    if api == Responses {
        check_ends_of_items(text);
    }
    if api != Chat {
        return api.read(answer, true);
    }
    let mut seen = Seen::default();
    for event in parsed(text).iter().flatten() {
        let delta = &event["choices"][0]["delta"];
        seen.text += delta["content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().expect("an index")).unwrap();
            let id = call["id"].as_str().unwrap_or_default();
            let name = call["function"]["name"].as_str().unwrap_or_default();
            if index == seen.calls.len() {
                seen.calls.push((id.to_owned(), name.to_owned()));
            }
        }
    }
    seen
}

/// Checks that a client that reads the ends of items, and not the last event, sees all of them.
fn check_ends_of_items(text: &str) {
    let events: Vec<Value> = parsed(text).into_iter().flatten().collect();
    let of_kind = |kind: &str| -> Vec<Value> {
        let found = events.iter().filter(|event| event["type"] == kind);
        found.map(|event| event["output_index"].clone()).collect()
    };
    let output = &events.last().unwrap()["response"]["output"];
    let places: Vec<Value> = (0..output.as_array().unwrap().len())
        .map(Value::from)
        .collect();
    assert_eq!(of_kind("response.output_item.added"), places, "{text}");
    assert_eq!(of_kind("response.output_item.done"), places, "{text}");
    assert_eq!(events[0]["type"], "response.created", "{text}");
}

/// Asks with a stream, whose first round is this one, and checks that the model is asked again with
/// what it searched for, and that the client sees its call alone.
async fn a_search_stays_hidden(api: Api, what: &str, round: String) -> (Server, Provider) {
    let (server, provider) = start(|_| {}).await;
    provider.reply(Scripted::Events(round));
    let forecast = ("c1", "weather_forecast", json!({ "a": "Bergen" }));
    provider.reply(api.reply(2, "", &[forecast], true));
    let request = api.request(&json!([Api::question("Will it rain?")]), true);
    let answer = server.post(api.path(), &request).await;
    assert_eq!(answer.status, 200, "{what}: {answer:?}");
    let text = answer.body.to_string();
    assert!(!text.contains(SEARCH), "{what}: {text}");
    let seen = api.read(&answer, true);
    let expected = vec![("c1".to_owned(), "weather_forecast".to_owned())];
    assert_eq!(seen.calls, expected, "{what}: {text}");
    let sent = provider.sent_json();
    assert_eq!(sent.len(), 2, "{what}");
    let shown = names(&sent[1]);
    assert!(
        shown.contains(&"weather_forecast".to_owned()),
        "{what}: {shown:?}"
    );
    let told = sent[1][api.history()].to_string();
    assert!(told.contains("\"s1\""), "{what}: {told}");
    (server, provider)
}

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/streams");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test]
async fn recorded_streams_hide_their_search() {
    for (api, name) in [
        (Chat, "chat-repeats-id-and-name.sse"),
        (Chat, "chat-numbers-all-calls-0.sse"),
        (Chat, "chat-empty-id-later.sse"),
        (Messages, "messages-ends-with-done.sse"),
        (Responses, "responses-without-item-done.sse"),
        (Responses, "responses-without-output-index.sse"),
        (Responses, "responses-completed-alone.sse"),
    ] {
        let (_, provider) = a_search_stays_hidden(api, name, fixture(name)).await;
        let told = provider.sent_json()[1][api.history()].to_string();
        assert!(told.contains("loaded"), "{name}: {told}");
        if name.contains("all-calls-0") {
            assert!(
                told.contains("\"s0\""),
                "both searches are answered: {told}"
            );
        }
    }
}

/// Ways in which servers spell the fragments of a call in chat completions.
fn chat_spellings(events: &Events) -> Vec<(&'static str, Events)> {
    let first = |event: &mut Value| {
        let call = call_fragments(event).find(|call| call["id"].is_string());
        call.map(|call| (call["id"].clone(), call["function"]["name"].clone()))
    };
    let known = events.clone().iter_mut().flatten().find_map(first);
    let (id, name) = known.expect("a call");
    let on_calls = |change: &dyn Fn(&mut Value)| {
        each(events.clone(), |event| {
            call_fragments(event).for_each(change);
        })
    };
    let repeated = on_calls(&|call| {
        call["id"] = id.clone();
        call["type"] = "function".into();
        call["function"]["name"] = name.clone();
    });
    let emptied = on_calls(&|call| {
        if call.get("id").is_none() {
            call["id"] = "".into();
            call["function"]["name"] = "".into();
        }
    });
    let mut number = 0;
    let mut renamed = events.clone();
    for call in renamed.iter_mut().flatten().flat_map(call_fragments) {
        if call.get("id").is_none() {
            number += 1;
            call["id"] = format!("other{number}").into();
        }
    }
    let without_index = on_calls(&|call| remove(call, "index"));
    let null_index = on_calls(&|call| call["index"] = Value::Null);
    let mut with_blanks = events.clone();
    with_blanks.insert(1, Some(json!({ "choices": [] })));
    vec![
        ("id and name in each chunk", repeated),
        ("an empty id later", emptied),
        ("a new id in each chunk", renamed),
        ("no index", without_index),
        ("index null", null_index),
        ("a chunk without choices", with_blanks),
    ]
}

fn message_spellings(events: &Events) -> Vec<(&'static str, Events)> {
    let with_done = |mut events: Events| {
        events.push(None);
        events
    };
    let all_zero = each(events.clone(), |event| {
        if event.get("index").is_some() {
            event["index"] = 0.into();
        }
    });
    let no_index = each(events.clone(), |event| remove(event, "index"));
    vec![
        ("[DONE] at the end", with_done(events.clone())),
        (
            "[DONE] in place of message_stop",
            with_done(without(events.clone(), &["message_stop"])),
        ),
        (
            "[DONE] after the blocks",
            with_done(without(events.clone(), &["message_delta", "message_stop"])),
        ),
        (
            "no message_stop",
            without(events.clone(), &["message_stop"]),
        ),
        (
            "no content_block_stop",
            without(events.clone(), &["content_block_stop"]),
        ),
        ("all blocks have index 0", all_zero),
        ("no index", no_index),
    ]
}

fn response_spellings(events: &Events) -> Vec<(&'static str, Events)> {
    let done = ["response.output_item.done"];
    let added = ["response.output_item.added"];
    let no_output = |events: Events| {
        each(events, |event| {
            if event["type"] == "response.completed" {
                event["response"]["output"] = json!([]);
            }
        })
    };
    let no_index = |events: Events| each(events, |event| remove(event, "output_index"));
    let no_ids = |events: Events| {
        each(events, |event| {
            remove(event, "item_id");
            if let Some(item) = event.get_mut("item") {
                remove(item, "id");
            }
        })
    };
    let all_zero = each(events.clone(), |event| {
        if event.get("output_index").is_some() {
            event["output_index"] = 0.into();
        }
    });
    let mut alone = events.clone();
    alone.drain(..events.len() - 1);
    let mut ended_by_done = without(events.clone(), &["response.completed"]);
    ended_by_done.push(None);
    let mut only_done = without(events.clone(), &added);
    only_done.retain(|event| {
        let kind = event.as_ref().and_then(|event| event["type"].as_str());
        !kind.unwrap_or_default().ends_with(".delta")
    });
    let spellings = vec![
        ("no output_item.done", without(events.clone(), &done)),
        (
            "neither output_item.done nor output",
            no_output(without(events.clone(), &done)),
        ),
        ("no output_item.added", without(events.clone(), &added)),
        ("output_item.done alone", no_output(only_done)),
        ("no output_index", no_index(events.clone())),
        (
            "no output_index and no output_item.done",
            no_index(no_output(without(events.clone(), &done))),
        ),
        ("no ids", no_ids(events.clone())),
        (
            "neither ids nor output_index",
            no_ids(no_index(events.clone())),
        ),
        ("all items have output_index 0", all_zero),
        ("response.completed alone", alone),
        ("[DONE] in place of response.completed", ended_by_done),
        ("an empty output at the end", no_output(events.clone())),
    ];
    spellings
        .into_iter()
        .map(|(what, events)| (what, numbered(events)))
        .collect()
}

fn spellings(api: Api, text: &str) -> Vec<(&'static str, Events)> {
    let events = parsed(text);
    match api {
        Chat => chat_spellings(&events),
        Messages => message_spellings(&events),
        Responses => response_spellings(&events),
    }
}

#[tokio::test]
async fn a_search_stays_hidden_however_its_round_is_spelt() {
    for api in [Chat, Messages, Responses] {
        let search = ("s1", SEARCH, find("weather forecast for a city"));
        let text = api.events(&api.body(1, "", &[search]));
        for (what, events) in spellings(api, &text) {
            a_search_stays_hidden(api, what, written(&events)).await;
        }
    }
}

#[tokio::test]
async fn what_the_client_is_to_see_arrives_however_it_is_spelt() {
    for api in [Chat, Messages, Responses] {
        let send = ("c1", "mail_send", json!({ "a": "Ada" }));
        let text = api.events(&api.body(2, "It will rain.", &[send]));
        for (what, events) in spellings(api, &text) {
            let (server, provider) = start(|_| {}).await;
            let search = ("s1", SEARCH, find("weather forecast for a city"));
            provider.reply(api.reply(1, "", &[search], true));
            provider.reply(Scripted::Events(written(&events)));
            let request = api.request(&json!([Api::question("Will it rain?")]), true);
            let answer = server.post(api.path(), &request).await;
            assert_eq!(answer.status, 200, "{api:?}, {what}: {answer:?}");
            let seen = seen(api, &answer);
            let expected = vec![("c1".to_owned(), "mail_send".to_owned())];
            assert_eq!(
                (seen.calls, seen.text.as_str()),
                (expected, "It will rain."),
                "{api:?}, {what}: {answer:?}"
            );
            assert!(!answer.body.to_string().contains(SEARCH), "{what}");
        }
    }
}

#[tokio::test]
async fn a_call_of_the_client_beside_a_search_keeps_its_own_number() {
    let whole = |id: &str, name: &str, arguments: &Value| {
        json!({ "id": "chat1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{ "index": 0, "finish_reason": null, "delta": {
                "role": "assistant", "tool_calls": [{ "index": 0, "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() } }] } }] })
    };
    let mut end = whole("", "", &json!({}));
    end["choices"][0]["delta"] = json!({});
    end["choices"][0]["finish_reason"] = "tool_calls".into();
    let events: Events = vec![
        Some(whole("s1", SEARCH, &find("weather"))),
        Some(whole("c1", "mail_send", &json!({ "a": "x" }))),
        Some(whole("c2", "mail_send", &json!({ "a": "y" }))),
        Some(end),
        None,
    ];
    let (server, provider) = start(|config| config.pins = vec!["mail_*".into()]).await;
    provider.reply(Scripted::Events(written(&events)));
    let request = Chat.request(&json!([Api::question("Mail it.")]), true);
    let answer = server.post(Chat.path(), &request).await;
    let seen = seen(Chat, &answer);
    let name = || "mail_send".to_owned();
    assert_eq!(
        seen.calls,
        [("c1".to_owned(), name()), ("c2".to_owned(), name())]
    );
}

#[tokio::test]
async fn blank_data_and_events_without_a_type_are_read() {
    for (api, blank) in [
        (Chat, "data: \n\n"),
        (Messages, "data:\n\n"),
        (Responses, "event: x\ndata:  \n\n"),
    ] {
        let search = ("s1", SEARCH, find("weather forecast for a city"));
        let text = api.events(&api.body(1, "", &[search]));
        let with_blanks = text.replace("\n\n", &format!("\n\n{blank}"));
        a_search_stays_hidden(api, "blank data", with_blanks).await;
        if api == Chat {
            continue;
        }
        let typeless: String = text
            .split_inclusive("\n\n")
            .map(|frame| {
                let (name, data) = frame.trim_end().split_once("\ndata: ").unwrap();
                let mut data: Value = serde_json::from_str(data).unwrap();
                remove(&mut data, "type");
                format!("{name}\ndata: {data}\n\n")
            })
            .collect();
        a_search_stays_hidden(api, "the type in the event's name", typeless).await;
    }
}

#[tokio::test]
async fn a_search_without_an_id_gets_one_that_its_result_names() {
    for streams in [false, true] {
        let (server, provider) = start(|_| {}).await;
        let query = find("weather forecast for a city");
        provider.reply(Chat.reply(1, "", &[("", SEARCH, query)], streams));
        provider.reply(Chat.reply(2, "Rain.", &[], streams));
        let request = Chat.request(&json!([Api::question("Will it rain?")]), streams);
        server.post(Chat.path(), &request).await;
        let told = provider.sent_json().pop().unwrap()["messages"].clone();
        let id = told[1]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.starts_with("call_"), "{told}");
        assert_eq!(told[2]["tool_call_id"], id, "{told}");
    }
}

#[tokio::test]
async fn a_whole_message_in_a_chunk_is_read() {
    let search = ("s1", SEARCH, find("weather forecast for a city"));
    let body = Chat.body(1, "", &[search]);
    let text = format!("data: {body}\n\ndata: [DONE]\n\n");
    a_search_stays_hidden(Chat, "a whole message", text).await;
}
