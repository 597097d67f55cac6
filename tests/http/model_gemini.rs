//! Google's Gemini before a provider that is played: hidden rounds, whole and streamed, and errors.

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::dropin::{DropInConfig, OtherProvider, Upstream};
use toolscout::keys::Scope;

use super::model::{Provider, Scripted, start};
use super::server::{Answer, Server, read};

const WHOLE: &str = "/v1beta/models/gemini-m:generateContent";
const EVENTS: &str = "/v1beta/models/gemini-m:streamGenerateContent?alt=sse";
const LIST: &str = "/v1beta/models/gemini-m:streamGenerateContent";
const WAYS: [&str; 3] = [WHOLE, EVENTS, LIST];

async fn gemini(change: impl FnOnce(&mut DropInConfig)) -> (Server, Provider) {
    let provider = Provider::start().await;
    let other = OtherProvider {
        base_url: provider.url.replace("/v1", "/v1beta"),
        key: Some("google-key".into()),
    };
    let (server, _) = start(|config| {
        config.provider.others.insert(Upstream::Gemini, other);
        change(config);
    })
    .await;
    (server, provider)
}

/// Tools with schemas as clients write them, some of them odd.
fn tools() -> Value {
    json!([{ "functionDeclarations": [
        { "name": "mail_send", "description": "Sends an email to a person.",
          "parameters": { "type": "OBJECT", "properties": { "to": { "type": "STRING", "nullable": true,
            "format": "enum", "enum": ["a", "b"] } }, "propertyOrdering": ["to"] } },
        { "name": "weather_forecast", "description": "Forecast of the weather for a city.",
          "parametersJsonSchema": { "type": ["object", "null"], "$defs": { "c": { "type": "string" } },
            "properties": { "city": { "$ref": "#/$defs/c" } } } },
        { "name": "calendar_add", "description": "Adds an event to the calendar." },
    ] }])
}

fn asked(contents: &Value) -> Value {
    json!({ "contents": contents, "tools": tools(), "generationConfig": { "temperature": 0.5 } })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "parts": [{ "text": text }] })
}

fn call(name: &str, args: Value) -> Value {
    json!({ "functionCall": { "name": name, "args": args } })
}

fn body(parts: &Value, number: usize) -> Value {
    json!({
        "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11 },
        "modelVersion": "gemini-m", "responseId": format!("resp{number}"),
    })
}

/// The answer in chunks, one for each part.
fn events(parts: &Value, number: usize) -> String {
    let whole = body(parts, number);
    let parts = parts.as_array().unwrap();
    let mut events = String::new();
    for (place, part) in parts.iter().enumerate() {
        let mut chunk = whole.clone();
        chunk["candidates"][0]["content"]["parts"] = json!([part]);
        if place + 1 < parts.len() {
            chunk["candidates"][0]
                .as_object_mut()
                .unwrap()
                .remove("finishReason");
        }
        events += &format!("data: {chunk}\r\n\r\n");
    }
    events
}

fn reply(way: &str, number: usize, parts: &Value) -> Scripted {
    match way {
        WHOLE => Scripted::Json(200, body(parts, number)),
        _ => Scripted::Events(events(parts, number)),
    }
}

/// The chunks that the client got.
fn chunks(way: &str, answer: &Answer) -> Vec<Value> {
    match way {
        WHOLE => vec![answer.body.clone()],
        LIST => {
            assert_eq!(
                answer.headers["content-type"],
                "application/json; charset=UTF-8"
            );
            answer.body.as_array().expect("a list").clone()
        }
        _ => {
            let text = answer
                .body
                .as_str()
                .expect("a stream")
                .replace("\r\n", "\n");
            let frames = text.split("\n\n").map(str::trim);
            let frames = frames.filter(|frame| !frame.is_empty());
            let data = frames.map(|frame| frame.strip_prefix("data: ").unwrap());
            data.map(|data| serde_json::from_str(data).unwrap())
                .collect()
        }
    }
}

/// All parts that the client got, with texts joined.
fn parts(chunks: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for chunk in chunks {
        let parts = chunk.pointer("/candidates/0/content/parts");
        for part in parts.and_then(Value::as_array).into_iter().flatten() {
            if let (Some(last), Some(more)) = (all.last_mut(), part["text"].as_str())
                && let Some(text) = last["text"].as_str()
            {
                *last = json!({ "text": format!("{text}{more}") });
                continue;
            }
            all.push(part.clone());
        }
    }
    all
}

fn names(request: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for entry in request["tools"].as_array().into_iter().flatten() {
        for function in entry["functionDeclarations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            names.push(function["name"].as_str().unwrap());
        }
    }
    names
}

#[tokio::test]
async fn searches_are_hidden_in_every_way_and_come_back_in_the_next_turn() {
    for way in WAYS {
        let (server, provider) = gemini(|_| {}).await;
        let signed = json!({ "functionCall": { "name": "tool_search", "args": { "query": "send an email" } },
            "thoughtSignature": "c2lnbmVk" });
        let searching = json!([{ "text": "Looking." }, signed,
            call("tool_search", json!({ "query": "weather forecast of a city" }))]);
        provider.reply(reply(way, 1, &searching));
        let calling = json!([{ "text": "Found." }, call("mail_send", json!({ "to": "a" })),
            call("weather_forecast", json!({ "city": "Oslo" }))]);
        provider.reply(reply(way, 2, &calling));
        let question = user("Mail the weather.");
        let answer = server.post(way, &asked(&json!([question]))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let chunks_seen = chunks(way, &answer);
        let seen = parts(&chunks_seen);
        let text: String = seen
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect();
        assert_eq!(text, "Looking.\n\nFound.", "{way}");
        let calls: Vec<&Value> = seen
            .iter()
            .filter(|part| part["functionCall"].is_object())
            .collect();
        assert_eq!(calls, [&calling[1], &calling[2]], "{way}");
        let last = chunks_seen.last().unwrap();
        assert_eq!(last["responseId"], "resp1", "{way}");
        assert_eq!(last["usageMetadata"]["promptTokenCount"], 20, "{way}");
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
        let finishes = chunks_seen
            .iter()
            .filter(|chunk| chunk["candidates"][0]["finishReason"].is_string());
        assert_eq!(finishes.count(), 1, "{way}: {chunks_seen:?}");

        let sent = provider.sent_json();
        assert_eq!(names(&sent[0]), ["tool_search"], "{way}");
        assert_eq!(
            names(&sent[1]),
            ["tool_search", "mail_send", "weather_forecast"],
            "{way}"
        );
        // Definitions arrive as they were sent.
        assert_eq!(
            sent[1]["tools"][0]["functionDeclarations"][1],
            tools()[0]["functionDeclarations"][0]
        );
        assert_eq!(
            sent[1]["tools"][0]["functionDeclarations"][2],
            tools()[0]["functionDeclarations"][1]
        );
        assert_eq!(
            sent[1]["contents"][1]["parts"][1], signed,
            "{way}: a signature goes back"
        );
        let results = &sent[1]["contents"][2];
        assert_eq!(results["role"], "user");
        assert_eq!(results["parts"].as_array().unwrap().len(), 2);
        assert_eq!(
            results["parts"][0]["functionResponse"]["name"],
            "tool_search"
        );
        let (address, headers, _) = provider.last();
        let wanted = if way == WHOLE { WHOLE } else { EVENTS };
        assert_eq!(address, wanted);
        assert_eq!(headers["x-goog-api-key"], "google-key");

        // The next turn: the client sends what it saw, and the provider sees all of it.
        provider.reply(reply(way, 3, &json!([{ "text": "Done." }])));
        let results = json!({ "role": "user", "parts": [
            { "functionResponse": { "name": "mail_send", "response": { "result": "sent" } } },
            { "functionResponse": { "name": "weather_forecast", "response": { "result": "rain" } } } ] });
        let contents = json!([question, { "role": "model", "parts": seen }, results]);
        let answer = server.post(way, &asked(&contents)).await;
        assert_eq!(parts(&chunks(way, &answer)), [json!({ "text": "Done." })]);
        let again = &provider.sent_json()[2];
        assert_eq!(
            again["contents"].as_array().unwrap().len(),
            5,
            "{way}: {again}"
        );
        assert_eq!(again["contents"][1]["parts"][1], signed);
        assert_eq!(again["contents"][4], results);
        assert_eq!(
            names(again),
            ["tool_search", "mail_send", "weather_forecast"],
            "{way}"
        );
    }
}

#[tokio::test]
async fn a_round_with_hidden_and_own_calls_gets_all_results_in_one_content() {
    for way in WAYS {
        let (server, provider) = gemini(|_| {}).await;
        let search = json!({ "functionCall": { "id": "s1", "name": "tool_search", "args": { "query": "calendar event" } } });
        let own = json!({ "functionCall": { "id": "c1", "name": "mail_send", "args": {} } });
        provider.reply(reply(way, 1, &json!([search, own])));
        let question = user("Both.");
        let answer = server.post(way, &asked(&json!([question]))).await;
        let seen = parts(&chunks(way, &answer));
        assert_eq!(seen, std::slice::from_ref(&own), "{way}");
        provider.reply(reply(way, 2, &json!([{ "text": "Done." }])));
        let result =
            json!({ "functionResponse": { "id": "c1", "name": "mail_send", "response": {} } });
        let contents = json!([question, { "role": "model", "parts": seen },
            { "role": "user", "parts": [result] }]);
        server.post(way, &asked(&contents)).await;
        let sent = &provider.sent_json()[1];
        assert_eq!(sent["contents"][1]["parts"], json!([search, own]), "{way}");
        let results = sent["contents"][2]["parts"].as_array().unwrap();
        assert_eq!(results.len(), 2, "{way}");
        assert_eq!(results[0]["functionResponse"]["id"], "s1");
        assert_eq!(results[1], result);
        assert!(names(sent).contains(&"calendar_add"), "{way}");
    }
}

#[tokio::test]
async fn errors_of_the_provider_arrive_in_its_form() {
    let refusal =
        json!({ "error": { "code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED" } });
    for way in WAYS {
        let (server, provider) = gemini(|_| {}).await;
        provider.reply(Scripted::Json(429, refusal.clone()));
        let answer = server.post(way, &asked(&json!([user("q")]))).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body),
            (429, &refusal),
            "{way}"
        );
        // In a later round, before and after the client has a part of the answer.
        for text in ["", "Looking."] {
            let mut searching = vec![call("tool_search", json!({ "query": "mail" }))];
            if !text.is_empty() {
                searching.insert(0, json!({ "text": text }));
            }
            provider.reply(reply(way, 1, &searching.into()));
            provider.reply(Scripted::Json(429, refusal.clone()));
            let answer = server.post(way, &asked(&json!([user("q")]))).await;
            if way == WHOLE || text.is_empty() {
                assert_eq!(
                    (answer.status.as_u16(), &answer.body),
                    (429, &refusal),
                    "{way}"
                );
                continue;
            }
            let chunks = chunks(way, &answer);
            let error = &chunks.last().unwrap()["error"];
            assert_eq!(
                (&error["code"], &error["status"]),
                (&json!(429), &json!("RESOURCE_EXHAUSTED")),
                "{way}"
            );
            assert!(
                error["message"].as_str().unwrap().contains("slow down"),
                "{way}: {error}"
            );
        }
    }
    let (server, provider) = gemini(|_| {}).await;
    // A stream that is cut half-way, within an event and before the end.
    for way in [EVENTS, LIST] {
        // Before the empty line at the end of an event, after it, and within the next event.
        for cut in [-2, 0, 40] {
            let whole = events(&json!([{ "text": "One. " }, { "text": "Two." }]), 1);
            let first = whole.find("\r\n\r\n").unwrap() + 4;
            provider.reply(Scripted::Events(
                whole[..first.checked_add_signed(cut).unwrap()].to_owned(),
            ));
            let answer = server.post(way, &asked(&json!([user("q")]))).await;
            let chunks = chunks(way, &answer);
            assert_eq!(parts(&chunks[..1]), [json!({ "text": "One. " })], "{way}");
            let error = &chunks.last().unwrap()["error"];
            assert_eq!(
                (&error["code"], &error["status"]),
                (&json!(502), &json!("UNAVAILABLE")),
                "{way}"
            );
        }
        let told = format!(
            "{}data: {refusal}\n\n",
            events(&json!([{ "text": "One." }, {}]), 1)
                .split_inclusive("\r\n\r\n")
                .next()
                .unwrap()
        );
        provider.reply(Scripted::Events(told));
        let answer = server.post(way, &asked(&json!([user("q")]))).await;
        // What comes together with the first chunk fails before the client has anything.
        let error = match answer.status.as_u16() {
            502 => answer.body["error"].clone(),
            _ => chunks(way, &answer).last().unwrap()["error"].clone(),
        };
        assert_eq!(error["message"], "slow down", "{way}");
    }
}

#[tokio::test]
async fn what_is_not_searched_passes_byte_for_byte() {
    let (server, provider) = gemini(|config| config.defer_above_tokens = 8_000).await;
    let text = "{ \"contents\" : [{\"parts\":[{\"text\":\"q\"}]}],\"tools\":[{\"function_declarations\":[]}] , \"x\":1.50 }";
    for way in WAYS {
        provider.reply(Scripted::Json(200, json!([{ "any": 1 }])));
        let request = server.request(
            Method::POST,
            &format!("{way}{}", if way == WHOLE { "?x=1" } else { "" }),
        );
        let answer = read(
            request
                .header("content-type", "application/json")
                .body(text),
        )
        .await;
        assert_eq!(answer.body, json!([{ "any": 1 }]));
        let (address, _, sent) = provider.last();
        assert_eq!(sent, text);
        assert_eq!(address.trim_end_matches("?x=1"), way);
    }
    // A prompt that was refused has no candidate.
    let (server, provider) = gemini(|_| {}).await;
    let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" }, "usageMetadata": { "promptTokenCount": 3 } });
    for way in WAYS {
        provider.reply(match way {
            WHOLE => Scripted::Json(200, blocked.clone()),
            _ => Scripted::Events(format!("data: {blocked}\n\n")),
        });
        let answer = server.post(way, &asked(&json!([user("q")]))).await;
        assert_eq!(
            chunks(way, &answer),
            std::slice::from_ref(&blocked),
            "{way}"
        );
    }
}

#[tokio::test]
async fn forms_of_tools_and_choices_are_understood() {
    let (server, provider) = gemini(|config| config.max_hidden_rounds = 1).await;
    let functions = tools()[0]["functionDeclarations"].clone();
    let mut request = asked(&json!([{ "parts": [{ "text": "q" }] }]));
    request["tools"] =
        json!([{ "function_declarations": functions, "googleSearch": {} }, { "urlContext": {} }]);
    request["toolConfig"] = json!({ "functionCallingConfig": { "mode": "ANY", "allowedFunctionNames": ["calendar_add"] },
        "retrievalConfig": { "languageCode": "no" } });
    provider.reply(reply(
        WHOLE,
        1,
        &json!([call("tool_search", json!({ "query": "mail" }))]),
    ));
    provider.reply(reply(WHOLE, 2, &json!([{ "text": "Done." }])));
    let answer = server.post(WHOLE, &request).await;
    assert_eq!(parts(&chunks(WHOLE, &answer)), [json!({ "text": "Done." })]);
    let sent = provider.sent_json();
    assert_eq!(sent[0]["tools"][0], json!({ "googleSearch": {} }));
    assert_eq!(sent[0]["tools"][1], json!({ "urlContext": {} }));
    assert_eq!(names(&sent[0]), ["tool_search", "calendar_add"]);
    assert_eq!(sent[0]["toolConfig"], request["toolConfig"]);
    // After the last hidden round no call is allowed.
    assert_eq!(
        sent[1]["toolConfig"],
        json!({ "retrievalConfig": { "languageCode": "no" },
        "functionCallingConfig": { "mode": "NONE" } })
    );
    let search = &sent[0]["tools"][2]["functionDeclarations"][0];
    assert_eq!(search["parametersJsonSchema"]["type"], "object");
}

#[tokio::test]
async fn keys_come_in_googles_header_or_in_the_address() {
    let provider = Provider::start().await;
    let (server, _) = start(|config| {
        let other = OtherProvider {
            base_url: provider.url.clone(),
            key: None,
        };
        config.provider.others.insert(Upstream::Gemini, other);
    })
    .await;
    let reply_any = || provider.reply(Scripted::Json(200, json!({ "any": 1 })));
    reply_any();
    server
        .post(&format!("{WHOLE}?key=own-key"), &json!({}))
        .await;
    let (address, headers, _) = provider.last();
    assert_eq!(address, "/v1/models/gemini-m:generateContent");
    assert_eq!(headers["x-goog-api-key"], "own-key");
    for (path, sent) in [
        ("/v1beta/models?pageSize=2", "/v1/models?pageSize=2"),
        ("/v1beta/models/m", "/v1/models/m"),
        ("/v1/models/m", "/v1/models/m"),
        ("/v1/models", "/v1/models"),
    ] {
        reply_any();
        let request = server
            .request(Method::GET, path)
            .header("x-goog-api-key", "own-key");
        assert_eq!(read(request).await.status, 200);
        let (address, headers, _) = provider.last();
        assert_eq!(
            (address.as_str(), &headers["x-goog-api-key"]),
            (sent, &"own-key".parse().unwrap())
        );
    }
    // The first version of the API has the paths of OpenAI's models.
    reply_any();
    let request = server.request(Method::POST, "/v1/models/m:generateContent");
    let request = request.header("x-goog-api-key", "own-key").json(&json!({}));
    assert_eq!(read(request).await.status, 200);
    assert_eq!(provider.last().0, "/v1/models/m:generateContent");
    // A key of the server stands in Google's header, and does not reach the provider.
    let key = server.key(Scope::Llm, "*");
    reply_any();
    let request = server
        .request(Method::POST, WHOLE)
        .header("x-goog-api-key", &key)
        .json(&json!({}));
    assert_eq!(read(request).await.status, 200);
    let (_, headers, _) = provider.last();
    assert!(
        !headers
            .iter()
            .any(|(_, value)| value.to_str().unwrap_or_default().contains(&key))
    );
    let refused = server.post(WHOLE, &json!({})).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["error"]["status"]),
        (401, &json!("UNAUTHENTICATED"))
    );
}

#[tokio::test]
async fn tokens_are_counted_and_unknown_methods_are_told_in_googles_form() {
    let (server, provider) = gemini(|_| {}).await;
    let path = "/v1beta/models/gemini-m:countTokens";
    provider.reply(Scripted::Json(200, json!({ "totalTokens": 7 })));
    let answer = server.post(path, &json!({ "contents": [user("q")] })).await;
    assert_eq!(answer.body, json!({ "totalTokens": 7 }));
    assert_eq!(provider.last().0, path);
    provider.reply(Scripted::Json(404, json!({})));
    let answer = server
        .post(path, &json!({ "contents": [user("four words are here")] }))
        .await;
    assert!(answer.body["totalTokens"].as_u64() > Some(3), "{answer:?}");
    provider.reply(Scripted::Json(200, json!({ "embedding": {} })));
    let embed = server
        .post("/v1beta/models/e:embedContent", &json!({ "content": {} }))
        .await;
    assert_eq!(embed.body, json!({ "embedding": {} }));
    for path in [
        "/v1beta/models/m:other",
        "/v1beta/models/m",
        "/v1beta/cachedContents",
    ] {
        let answer = server.post(path, &json!({})).await;
        assert_eq!(
            answer.body["error"]["status"], "NOT_FOUND",
            "{path}: {answer:?}"
        );
        assert_eq!(answer.body["error"]["code"], 404);
    }
    let (without, _) = start(|_| {}).await;
    let answer = without.post(WHOLE, &json!({})).await;
    assert_eq!(answer.status, 503);
    assert!(
        answer.body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("--llm-gemini")
    );
}

#[tokio::test]
async fn azures_paths_go_to_azure_or_to_the_provider_of_openais_api() {
    let azure = Provider::start().await;
    let paths = [
        (
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "/v1/chat/completions",
        ),
        ("/openai/v1/responses", "/v1/responses"),
        (
            "/openai/deployments/d/embeddings?api-version=2024-10-21",
            "/v1/embeddings",
        ),
        ("/openai/v1/chat/completions", "/v1/chat/completions"),
    ];
    let body = json!({ "model": "d", "input": "a" });
    let (server, provider) = start(|_| {}).await;
    for (path, main) in paths {
        provider.reply(Scripted::Json(200, json!({ "any": 1 })));
        let request = server
            .request(Method::POST, path)
            .header("api-key", "own")
            .json(&body);
        assert_eq!(read(request).await.body, json!({ "any": 1 }), "{path}");
        let (address, headers, _) = provider.last();
        assert_eq!(
            (address.as_str(), &headers["authorization"]),
            (main, &"Bearer own".parse().unwrap())
        );
    }
    let (server, _) = start(|config| {
        let other = OtherProvider {
            base_url: azure.url.replace("/v1", "/openai"),
            key: Some("azure-key".into()),
        };
        config.provider.others.insert(Upstream::Azure, other);
    })
    .await;
    for (path, _) in paths {
        azure.reply(Scripted::Json(200, json!({ "any": 1 })));
        assert_eq!(
            server.post(path, &body).await.body,
            json!({ "any": 1 }),
            "{path}"
        );
        let (address, headers, _) = azure.last();
        assert_eq!(
            (address.as_str(), &headers["api-key"]),
            (path, &"azure-key".parse().unwrap())
        );
    }
    for path in ["/openai/v1/models?api-version=v1", "/openai/v1/files"] {
        azure.reply(Scripted::Json(200, json!({ "data": [] })));
        assert_eq!(server.get(path).await.status, 200, "{path}");
        assert_eq!(azure.last().0, path);
    }
}
