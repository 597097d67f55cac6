//! Bounds of requests to a model's provider: the number of their tools, and the memory for their
//! bodies.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::dropin::{DropInConfig, ProviderConfig};

use super::model::{APIS, Api, Chat, Messages, Provider, Scripted, find, names, start};
use super::server::{Server, read};

/// A request with this number of tools of ordinary size.
fn request_with(api: Api, number: usize) -> Value {
    let tools: Vec<Value> = (0..number)
        .map(|number| {
            let description = format!(
                "Reads record {number} of the archive: its title, its author, when it was written, and where the \
                 paper is kept."
            );
            api.tool(&format!("archive_read_{number}"), &description)
        })
        .collect();
    let mut request = api.request(&json!([Api::question("q")]), false);
    request["tools"] = tools.into();
    request
}

#[tokio::test]
async fn five_thousand_tools_are_searched() {
    let (server, provider) = start(|config| config.defer_above_tokens = 8_000).await;
    let search = ("s1", "tool_search", find("record 4321 of the archive"));
    provider.reply(Chat.reply(1, "", &[search], false));
    provider.reply(Chat.reply(2, "Done.", &[], false));
    let answer = server.post(Chat.path(), &request_with(Chat, 5_000)).await;
    assert_eq!(Chat.read(&answer, false).text, "Done.", "{answer:?}");
    assert_eq!(answer.headers["x-toolscout-tools-offered"], "5000");
    let sent = provider.sent_json();
    assert_eq!(names(&sent[0]), ["tool_search"]);
    assert_eq!(names(&sent[1]), ["tool_search", "archive_read_4321"]);
}

#[tokio::test]
async fn fifty_thousand_tools_are_refused_in_words_of_the_api() {
    let (server, provider) = start(|_| {}).await;
    for api in APIS {
        let request = request_with(api, 50_000);
        let refused = server.post(api.path(), &request).await;
        assert_eq!(refused.status, 400, "{api:?}");
        for part in ["50000 tools", "20000 are searched", "--max-request-tools"] {
            assert!(refused.message().contains(part), "{refused:?}");
        }
        let kind = &refused.body["error"]["type"];
        assert_eq!(kind, "invalid_request_error");
        if api == Messages {
            assert_eq!(refused.body["type"], "error");
        } else {
            assert_eq!(refused.error_code(), "too_many_tools");
        }
        assert_eq!(provider.sent().len(), 0);
    }
    // What is not searched has no such bound.
    provider.reply(Scripted::Json(200, json!({ "any": "thing" })));
    let sending = server.request(Method::POST, Chat.path());
    let sending = sending.json(&request_with(Chat, 50_000));
    let passed = read(sending.header("x-toolscout-defer", "off")).await;
    assert_eq!(passed.status, 200, "{passed:?}");
    assert_eq!(names(&provider.sent_json()[0]).len(), 50_000);
}

#[tokio::test]
async fn the_bound_of_tools_is_a_setting() {
    let (server, provider) = start(|config| config.max_request_tools = 2).await;
    let refused = server.post(Chat.path(), &request_with(Chat, 3)).await;
    assert_eq!(refused.error_code(), "too_many_tools", "{refused:?}");
    provider.reply(Chat.reply(1, "Done.", &[], false));
    let answer = server.post(Chat.path(), &request_with(Chat, 2)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn bodies_share_their_memory_and_give_it_back() {
    let provider = Provider::start().await;
    let config = DropInConfig::new(ProviderConfig::new(&provider.url));
    let server = Server::start_with(|settings| {
        settings.dropin = Some(config);
        settings.limits.model_body_bytes = 16 << 10;
        settings.limits.search_patience = Duration::from_millis(500);
    })
    .await;
    let mut request = request_with(Chat, 40);
    assert!(request.to_string().len() > 8 << 10);
    // One after the other, each of which takes more than half.
    for _ in 0..3 {
        provider.reply(Chat.reply(1, "Done.", &[], false));
        let answer = server.post(Chat.path(), &request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // Its tools are searched, so that its body is held until the model has answered.
    request["stream"] = true.into();
    let begun = Chat.reply(1, "One moment.", &[], true);
    let Scripted::Events(events) = begun else {
        panic!("a stream is made of events");
    };
    provider.reply(Scripted::Hang(events[..events.len() / 2].to_owned()));
    let sending = server.request(Method::POST, Chat.path()).json(&request);
    let sending = sending.header("x-toolscout-defer", "0");
    let mut held = sending.send().await.unwrap();
    held.chunk().await.unwrap();
    for api in APIS {
        let refused = server.post(api.path(), &request_with(api, 40)).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(refused.headers["retry-after"], "1");
        assert!(refused.message().contains("memory"), "{refused:?}");
    }
    drop(held);
    provider.reply(Chat.reply(1, "Done.", &[], false));
    let freed = async {
        let request = request_with(Chat, 40);
        while server.post(Chat.path(), &request).await.status != 200 {}
    };
    tokio::time::timeout(super::server::PATIENCE, freed)
        .await
        .expect("the memory of the one that went away is free");
}

/// The middle of a text's events, without their beginning and end.
fn text_events(api: Api) -> String {
    let Scripted::Events(events) = api.reply(1, &"word ".repeat(2_000), &[], true) else {
        panic!("a stream is made of events");
    };
    let parts: Vec<&str> = events.split_inclusive("\n\n").collect();
    let is_text = |part: &&&str| part.contains("word word") && !part.contains("completed");
    let text = parts.iter().find(is_text).expect("a part of the text");
    (*text).to_owned()
}

#[tokio::test]
async fn an_answer_without_end_ends_with_an_error_of_the_api() {
    let (server, provider) = start(|config| config.answers.bytes = 256 << 10).await;
    for api in APIS {
        let request = api.request(&json!([Api::question("q")]), true);
        // Text without end, an event without end, and what a client sees nothing of.
        for endless in [
            text_events(api),
            "data: xxxxxxxxxxxxxxxx".to_owned(),
            ": nothing\n\n".to_owned(),
        ] {
            provider.reply(Scripted::Endless(endless.clone()));
            let sending = server.request(Method::POST, api.path()).json(&request);
            let answer = sending.send().await.expect("an answer");
            let text = answer.text().await.expect("a whole answer");
            let head = endless.get(..20).unwrap_or(&endless);
            assert!(
                text.contains("answer_too_long") || text.contains("too long"),
                "{api:?} {head}"
            );
            assert!(text.contains("--max-answer"), "{api:?} {head}");
        }
        // The same in one piece.
        provider.reply(api.reply(1, &"word ".repeat(64 << 10), &[], false));
        let request = api.request(&json!([Api::question("q")]), false);
        let refused = server.post(api.path(), &request).await;
        assert_eq!(refused.status, 502, "{api:?}");
        assert!(refused.message().contains("--max-answer"), "{refused:?}");
    }
}

#[tokio::test]
async fn calls_and_hidden_rounds_of_an_answer_are_bounded() {
    let (server, provider) = start(|config| {
        config.answers.calls = 4;
        config.max_hidden_rounds = 3;
    })
    .await;
    let ids: Vec<String> = (0..5).map(|number| format!("c{number}")).collect();
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        for name in ["mail_send", "tool_search"] {
            let calls: Vec<_> = ids
                .iter()
                .map(|id| (id.as_str(), name, find("mail")))
                .collect();
            provider.reply(api.reply(1, "", &calls, streams));
            let request = api.request(&json!([Api::question("q")]), streams);
            let sending = server.request(Method::POST, api.path()).json(&request);
            let text = sending.send().await.expect("an answer").text().await;
            let text = text.expect("a whole answer");
            assert!(text.contains("more than 4 calls"), "{api:?} {name}: {text}");
        }
        // Searches of several rounds count together.
        for number in 1..=2 {
            let calls: Vec<_> = ids[..3]
                .iter()
                .map(|id| (id.as_str(), "tool_search", find("mail")))
                .collect();
            provider.reply(api.reply(number, "", &calls, streams));
        }
        let request = api.request(&json!([Api::question("q")]), streams);
        let sending = server.request(Method::POST, api.path()).json(&request);
        let text = sending.send().await.expect("an answer").text().await;
        assert!(text.expect("a whole answer").contains("more than 4 calls"));
    }
}
