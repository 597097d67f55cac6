//! Amazon Bedrock's Converse before a provider that is played. The stream has tests beside its code,
//! and `scripts/check_dropin.sh` has the SDK of AWS.

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::dropin::{OtherProvider, Upstream};
use toolscout::keys::Scope;

use super::model::{Provider, Scripted, start};
use super::server::{Server, read};

const PATH: &str = "/model/arn%3Aaws%3Abedrock%3Aeu%3Aprofile%2Fm-v1%3A0/converse";

async fn bedrock(key: Option<&str>) -> (Server, Provider) {
    let provider = Provider::start().await;
    let other = OtherProvider {
        base_url: provider.url.replace("/v1", ""),
        key: key.map(str::to_owned),
    };
    let (server, _) = start(|config| {
        config.provider.others.insert(Upstream::Bedrock, other);
    })
    .await;
    (server, provider)
}

fn tools() -> Value {
    json!([
        { "toolSpec": { "name": "mail_send", "description": "Sends an email to a person.",
          "inputSchema": { "json": { "type": "object", "properties": { "to": { "type": ["string", "null"] } } } } } },
        { "toolSpec": { "name": "weather_forecast", "description": "Forecast of the weather for a city.",
          "inputSchema": { "json": { "$defs": {}, "type": "object" } } } },
        { "cachePoint": { "type": "default" } },
        { "toolSpec": { "name": "calendar_add", "description": "Adds an event to the calendar.",
          "inputSchema": { "json": {} } } },
    ])
}

fn asked(messages: &Value) -> Value {
    json!({ "messages": messages, "inferenceConfig": { "maxTokens": 100 },
        "toolConfig": { "tools": tools(), "toolChoice": { "auto": {} } } })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "text": text }] })
}

fn call(id: &str, name: &str, input: Value) -> Value {
    json!({ "toolUse": { "toolUseId": id, "name": name, "input": input } })
}

fn reply(blocks: &Value, stop: &str) -> Scripted {
    Scripted::Json(
        200,
        json!({
            "output": { "message": { "role": "assistant", "content": blocks } }, "stopReason": stop,
            "usage": { "inputTokens": 10, "outputTokens": 1, "totalTokens": 11 }, "metrics": { "latencyMs": 5 },
        }),
    )
}

fn names(request: &Value) -> Vec<&str> {
    let tools = request["toolConfig"]["tools"].as_array().unwrap();
    tools
        .iter()
        .filter_map(|tool| tool["toolSpec"]["name"].as_str())
        .collect()
}

#[tokio::test]
async fn searches_are_hidden_and_come_back_in_the_next_turn() {
    let (server, provider) = bedrock(Some("aws-key")).await;
    let searching = json!([{ "text": "Looking." }, call("s1", "tool_search", json!({ "query": "send an email" })),
        call("s2", "tool_search", json!({ "query": "weather forecast" }))]);
    provider.reply(reply(&searching, "tool_use"));
    let calling = json!([
        call("c1", "mail_send", json!({ "to": "a" })),
        call("c2", "weather_forecast", json!({}))
    ]);
    provider.reply(reply(&calling, "tool_use"));
    let question = user("Mail the weather.");
    let answer = server.post(PATH, &asked(&json!([question]))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let seen = answer.body["output"]["message"]["content"].clone();
    assert_eq!(
        seen,
        json!([{ "text": "Looking." }, calling[0], calling[1]])
    );
    assert_eq!(answer.body["stopReason"], "tool_use");
    assert_eq!(answer.body["usage"]["totalTokens"], 22);
    let sent = provider.sent_json();
    assert_eq!(names(&sent[0]), ["tool_search"]);
    assert_eq!(
        sent[0]["toolConfig"]["tools"][0],
        tools()[2],
        "a mark of the cache stays"
    );
    assert_eq!(
        names(&sent[1]),
        ["tool_search", "mail_send", "weather_forecast"]
    );
    assert_eq!(sent[1]["toolConfig"]["tools"][2], tools()[0]);
    assert_eq!(sent[1]["messages"][1]["content"], searching);
    assert_eq!(
        sent[1]["messages"][2]["content"][1]["toolResult"]["toolUseId"],
        "s2"
    );
    let (address, headers, _) = provider.last();
    assert_eq!(address, PATH);
    assert_eq!(headers["authorization"], "Bearer aws-key");

    let results = json!({ "role": "user", "content": [
        { "toolResult": { "toolUseId": "c1", "content": [{ "json": { "sent": true } }], "status": "success" } },
        { "toolResult": { "toolUseId": "c2", "content": [{ "text": "rain" }] } } ] });
    provider.reply(reply(&json!([{ "text": "Done." }]), "end_turn"));
    let messages = json!([question, { "role": "assistant", "content": seen }, results]);
    let answer = server.post(PATH, &asked(&messages)).await;
    assert_eq!(
        answer.body["output"]["message"]["content"][0]["text"],
        "Done."
    );
    let again = &provider.sent_json()[2];
    assert_eq!(again["messages"].as_array().unwrap().len(), 5);
    assert_eq!(again["messages"][4], results);
}

#[tokio::test]
async fn errors_have_the_form_that_the_sdk_reads() {
    let (server, provider) = bedrock(Some("aws-key")).await;
    let refusal = json!({ "message": "Too many tokens" });
    provider.reply(Scripted::Json(429, refusal.clone()));
    let answer = server.post(PATH, &asked(&json!([user("q")]))).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (429, &refusal));
    provider.reply(Scripted::Typed("application/json", "[]"));
    let answer = server.post(PATH, &asked(&json!([user("q")]))).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.body["__type"], "InternalServerException");
    let answer = server.post("/model/m/other", &json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["__type"]),
        (404, &json!("ResourceNotFoundException"))
    );
    let (without, _) = start(|_| {}).await;
    let answer = without.post(PATH, &json!({})).await;
    assert_eq!(answer.status, 503);
    assert!(
        answer.body["message"]
            .as_str()
            .unwrap()
            .contains("--llm-bedrock")
    );
}

#[tokio::test]
async fn keys_pass_and_signatures_do_not() {
    let (server, provider) = bedrock(None).await;
    let signature =
        "AWS4-HMAC-SHA256 Credential=AKIA/20261129/eu/bedrock/aws4_request, Signature=abc";
    for (path, given, sent) in [
        (PATH, "Bearer of-client", Some("Bearer of-client")),
        (PATH, signature, None),
        (
            "/model/m/invoke",
            "Bearer of-client",
            Some("Bearer of-client"),
        ),
    ] {
        provider.reply(Scripted::Json(200, json!({ "any": 1 })));
        let request = server
            .request(Method::POST, path)
            .header("authorization", given);
        let answer = read(request.json(&json!({ "messages": [] }))).await;
        assert_eq!(answer.body, json!({ "any": 1 }), "{path}");
        let (address, headers, body) = provider.last();
        let key = headers
            .get("authorization")
            .map(|value| value.to_str().unwrap());
        assert_eq!(
            (address.as_str(), key, body.as_str()),
            (path, sent, r#"{"messages":[]}"#)
        );
    }
    let key = server.key(Scope::Llm, "*");
    provider.reply(Scripted::Json(200, json!({ "any": 1 })));
    let request = server
        .request(Method::POST, PATH)
        .bearer_auth(&key)
        .json(&json!({}));
    assert_eq!(read(request).await.status, 200);
    assert!(!provider.last().1.contains_key("authorization"));
    // An SDK that signs its requests sends a key of the server beside.
    provider.reply(Scripted::Json(200, json!({ "any": 1 })));
    let request = server
        .request(Method::POST, PATH)
        .header("authorization", signature);
    let request = request.header("x-api-key", &key).json(&json!({}));
    assert_eq!(read(request).await.status, 200);
    let request = server
        .request(Method::POST, PATH)
        .header("authorization", signature);
    let refused = read(request.json(&json!({}))).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["__type"]),
        (401, &json!("AccessDeniedException"))
    );
}
