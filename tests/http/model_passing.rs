//! Routes of the providers' APIs that pass to the provider as they came, and this server's own
//! embedding models.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use toolscout::dropin::{DropInConfig, ProviderConfig};
use toolscout::keys::Scope;

use super::model::{Api, Provider, Responses, Scripted, start};
use super::server::{Server, read};

/// The routes, and which of the providers they belong to.
const PASSED: [(&str, &str, bool); 18] = [
    ("GET", "/v1/responses/resp_1", false),
    ("DELETE", "/v1/responses/resp_1", false),
    ("POST", "/v1/responses/resp_1/cancel", false),
    ("GET", "/v1/responses/resp_1/input_items", false),
    ("GET", "/v1/models/gpt-5", false),
    ("GET", "/v1/models/org/model", false),
    ("GET", "/v1/batches", false),
    ("POST", "/v1/batches", false),
    ("GET", "/v1/batches/b_1", false),
    ("POST", "/v1/batches/b_1/cancel", false),
    ("GET", "/v1/files", false),
    ("DELETE", "/v1/files/f_1", false),
    ("GET", "/v1/files/f_1/content", false),
    ("GET", "/v1/messages/batches", true),
    ("POST", "/v1/messages/batches", true),
    ("DELETE", "/v1/messages/batches/b_1", true),
    ("POST", "/v1/messages/batches/b_1/cancel", true),
    ("GET", "/v1/messages/batches/b_1/results", true),
];

#[tokio::test]
async fn files_batches_and_stored_answers_pass_as_they_came() {
    let messages = Provider::start().await;
    let (server, provider) = start(|config| {
        config.provider.key = Some("of-main".into());
        config.provider.messages_url = Some(messages.url.clone());
        config.provider.messages_key = Some("of-messages".into());
    })
    .await;
    for (method, path, is_messages) in PASSED {
        let asked = if is_messages { &messages } else { &provider };
        let reply = json!({ "of": path });
        asked.reply(Scripted::Json(
            if method == "DELETE" { 404 } else { 200 },
            reply.clone(),
        ));
        let method: Method = method.parse().unwrap();
        let mut request = server.request(method.clone(), &format!("{path}?limit=2&after=x"));
        let body = "{ \"odd\":  1.50e3 }";
        if method == Method::POST {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        let answer = read(
            request
                .header("cookie", "secret")
                .header("openai-beta", "x"),
        )
        .await;
        assert_eq!(answer.body, reply, "{path}");
        assert_eq!(answer.status == 404, method == Method::DELETE, "{path}");
        let (sent_to, headers, sent) = asked.last();
        assert_eq!(sent_to, format!("{path}?limit=2&after=x"));
        assert_eq!(
            sent,
            if method == Method::POST { body } else { "" },
            "{path}"
        );
        assert!(
            !headers.contains_key("cookie") && headers.contains_key("openai-beta"),
            "{path}"
        );
        let key = match is_messages {
            true => headers["x-api-key"].to_str().unwrap(),
            false => headers["authorization"].to_str().unwrap(),
        };
        assert!(
            key.ends_with(if is_messages {
                "of-messages"
            } else {
                "of-main"
            }),
            "{path}"
        );
    }
    // A file of Anthropic's API, and one with bytes that are no text.
    messages.reply(Scripted::Typed("application/octet-stream", "bytes"));
    let file = server.request(Method::GET, "/v1/files/f_2/content");
    let file = file
        .header("anthropic-version", "2023-06-01")
        .send()
        .await
        .unwrap();
    assert_eq!(file.headers()["content-type"], "application/octet-stream");
    assert_eq!(file.text().await.unwrap(), "bytes");
    // A multipart upload keeps its boundary.
    provider.reply(Scripted::Json(200, json!({ "id": "file-1" })));
    let upload = server.request(Method::POST, "/v1/files");
    let upload = upload.header("content-type", "multipart/form-data; boundary=b");
    read(upload.body("--b\r\n\r\nx\r\n--b--")).await;
    let (_, headers, sent) = provider.last();
    assert_eq!(headers["content-type"], "multipart/form-data; boundary=b");
    assert_eq!(sent, "--b\r\n\r\nx\r\n--b--");
}

#[tokio::test]
async fn keys_without_the_scope_are_refused() {
    let provider = Provider::start().await;
    let config = DropInConfig::new(ProviderConfig::new(&provider.url));
    let keyed = Server::start_with(|settings| settings.dropin = Some(config)).await;
    let reads = keyed.key(Scope::Search, "*");
    for (method, path) in [(Method::GET, "/v1/files"), (Method::POST, "/v1/embeddings")] {
        let none = read(keyed.request(method.clone(), path).json(&json!({}))).await;
        assert_eq!(none.status, 401, "{path}");
        let request = keyed
            .request(method, path)
            .bearer_auth(&reads)
            .json(&json!({}));
        assert_eq!(read(request).await.status, 403, "{path}");
    }
    assert_eq!(provider.sent().len(), 0);
}

#[tokio::test]
async fn a_stored_answer_is_asked_for_by_the_id_that_the_provider_knows() {
    let (server, provider) = start(|_| {}).await;
    // What was said before a search has an id already, and the provider stores the last round.
    let search = ("s", "tool_search", json!({ "query": "mail" }));
    provider.reply(Responses.reply(1, "Looking.", &[search], true));
    provider.reply(Responses.reply(2, "Done.", &[], true));
    let history = json!([Api::question("q")]);
    let answer = server
        .post(Responses.path(), &Responses.request(&history, true))
        .await;
    let seen = Responses.read(&answer, true);
    assert_eq!(seen.id, "resp1");
    for (path, sent) in [
        ("/v1/responses/resp1", "/v1/responses/resp2"),
        (
            "/v1/responses/resp1/input_items",
            "/v1/responses/resp2/input_items",
        ),
        ("/v1/responses/other", "/v1/responses/other"),
    ] {
        provider.reply(Scripted::Json(200, json!({ "any": 1 })));
        assert_eq!(server.get(path).await.status, 200, "{path}");
        assert_eq!(provider.last().0, sent);
    }
}

#[tokio::test]
async fn own_embedders_are_models_and_others_pass_on() {
    let (server, provider) = start(|_| {}).await;
    for (model, dimensions) in [
        ("toolscout/table", 256),
        ("toolscout/languages", 256),
        ("toolscout/encoder", 384),
    ] {
        let asked = json!({ "model": model, "input": ["send a mail", "weather in Oslo"] });
        let answer = server.post("/v1/embeddings", &asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["model"], model);
        let first = answer.body["data"][0]["embedding"].as_array().unwrap();
        assert_eq!(answer.body["data"][1]["index"], 1);
        assert!(answer.body["usage"]["prompt_tokens"].as_u64() > Some(4));
        let vector: Vec<f32> = first
            .iter()
            .map(|one| one.as_f64().unwrap() as f32)
            .collect();
        let length: f32 = vector.iter().map(|one| one * one).sum();
        assert!((length - 1.0).abs() < 1e-3, "{model}: {length}");
        assert_eq!(vector.len(), dimensions, "{model}");
        let asked = json!({ "model": model, "input": "send a mail", "encoding_format": "base64",
            "dimensions": vector.len() });
        let answer = server.post("/v1/embeddings", &asked).await;
        let text = answer.body["data"][0]["embedding"].as_str().unwrap();
        let bytes = STANDARD.decode(text).unwrap();
        let floats = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().unwrap()));
        assert_eq!(floats.collect::<Vec<_>>(), vector);
        let shown = server.get(&format!("/v1/models/{model}")).await;
        assert_eq!(shown.body["id"], model);
        let encoded = format!("/v1/models/{}", model.replace('/', "%2F"));
        assert_eq!(server.get(&encoded).await.body["id"], model);
    }
    for (body, code) in [
        (
            json!({ "model": "toolscout/nothing", "input": "a" }),
            "model_not_found",
        ),
        (json!({ "model": "toolscout/table" }), "invalid_request"),
        (
            json!({ "model": "toolscout/table", "input": [] }),
            "invalid_request",
        ),
        (
            json!({ "model": "toolscout/table", "input": [1, 2] }),
            "invalid_request",
        ),
        (
            json!({ "model": "toolscout/table", "input": ["a", ""] }),
            "invalid_request",
        ),
        (
            json!({ "model": "toolscout/table", "input": "a", "dimensions": 7 }),
            "invalid_request",
        ),
        (
            json!({ "model": "toolscout/table", "input": vec!["a"; 2049] }),
            "invalid_request",
        ),
    ] {
        let refused = server.post("/v1/embeddings", &body).await;
        assert_eq!(refused.body["error"]["code"], code, "{body}");
        assert!(refused.status.is_client_error());
    }
    assert_eq!(provider.sent().len(), 0);
    provider.reply(Scripted::Json(200, json!({ "object": "list", "data": [] })));
    let passed = json!({ "model": "text-embedding-3-small", "input": [[1, 2]] });
    let answer = server.post("/v1/embeddings", &passed).await;
    assert_eq!(answer.body["data"], json!([]));
    assert_eq!(provider.sent_json(), [passed]);
    // Without a provider the own models embed all the same.
    let alone = Server::start().await;
    let asked = json!({ "model": "toolscout/table", "input": "a mail" });
    assert_eq!(alone.post("/v1/embeddings", &asked).await.status, 200);
    let asked = json!({ "model": "other", "input": "a mail" });
    let refused = alone.post("/v1/embeddings", &asked).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["error"]["code"]),
        (503, &Value::from("no_model"))
    );
}

#[tokio::test]
async fn references_to_tools_are_translated_where_the_provider_has_none() {
    let search = json!({ "name": "ToolSearch", "description": "Loads deferred tools.",
        "input_schema": { "type": "object", "properties": { "query": { "type": "string" } } } });
    let tool = |name: &str| json!({ "name": name, "defer_loading": true, "input_schema": { "type": "object" } });
    let result = json!({ "type": "tool_result", "tool_use_id": "1",
        "content": [{ "type": "tool_reference", "tool_name": "mail_send" }] });
    let request = json!({ "model": "m", "max_tokens": 9, "tools": [search, tool("mail_send"), tool("other")],
        "messages": [{ "role": "user", "content": "q" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "ToolSearch", "input": {} }] },
            { "role": "user", "content": [result] }] });
    for translates in [false, true] {
        let (server, provider) = start(|config| config.translates_references = translates).await;
        provider.reply(Scripted::Json(200, json!({ "any": 1 })));
        assert_eq!(
            server.post("/v1/messages", &request).await.body,
            json!({ "any": 1 })
        );
        let sent = &provider.sent_json()[0];
        if !translates {
            assert_eq!(sent, &request);
            continue;
        }
        assert_eq!(sent["tools"].as_array().unwrap().len(), 2, "{sent}");
        assert_eq!(sent["tools"][1]["name"], "mail_send");
        assert_eq!(
            sent["messages"][2]["content"][0]["content"][0]["type"],
            "text"
        );
    }
}
