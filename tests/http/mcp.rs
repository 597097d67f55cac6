//! The `/mcp` route: sessions, requests without one, keys, bounds, and clients that vanish.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use toolscout::finder::Style;
use toolscout::keys::Scope;

use super::server::{Server, read, tool};

/// A POST as clients send it.
fn post(server: &Server, body: &Value) -> RequestBuilder {
    server
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .json(body)
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn initialize() -> Value {
    let info = json!({ "name": "raw", "version": "1" });
    request(
        1,
        "initialize",
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info }),
    )
}

/// The JSON-RPC message that ends an event stream.
async fn last_message(response: Response) -> Value {
    assert_eq!(response.status(), 200);
    let text = response.text().await.expect("a whole stream");
    let mut messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    messages
        .rfind(|message| message.get("id").is_some())
        .unwrap_or_else(|| panic!("no answer in {text}"))
}

pub async fn begin(server: &Server) -> String {
    let response = post(server, &initialize()).send().await.expect("an answer");
    let session = response.headers()["mcp-session-id"]
        .to_str()
        .expect("text")
        .to_owned();
    assert_eq!(
        last_message(response).await["result"]["protocolVersion"],
        "2025-06-18"
    );
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let accepted = in_session(server, &session, &initialized)
        .send()
        .await
        .expect("an answer");
    assert_eq!(accepted.status(), 202);
    session
}

fn in_session(server: &Server, session: &str, body: &Value) -> RequestBuilder {
    post(server, body)
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", "2025-06-18")
}

pub async fn ask(server: &Server, session: &str, method: &str, params: Value) -> Value {
    last_message(
        in_session(server, session, &request(2, method, params))
            .send()
            .await
            .expect("an answer"),
    )
    .await
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{list}"));
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

/// The list of a client for which these tools were found.
fn own_tools_and(found: &[&str]) -> Vec<String> {
    let own = [
        "tool_search",
        "describe_tool",
        "list_tools",
        "call_tool",
        "run_plan",
    ];
    own.iter()
        .chain(found)
        .map(|name| (*name).to_owned())
        .collect()
}

#[tokio::test]
async fn each_session_has_a_list_of_its_own() {
    let server = Server::start_with(|settings| settings.gateway.style = Style::Inject).await;
    server
        .add(&[tool("mail", "send", "Sends an e-mail.")])
        .await;
    let (one, other) = (begin(&server).await, begin(&server).await);
    assert_ne!(one, other);
    let call = json!({ "name": "tool_search", "arguments": { "query": "send an e-mail" } });
    let found = ask(&server, &one, "tools/call", call).await;
    assert!(
        found["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("mail/send("),
        "{found}"
    );
    assert_eq!(
        names(&ask(&server, &one, "tools/list", json!({})).await),
        own_tools_and(&["mail__send"])
    );
    assert_eq!(
        names(&ask(&server, &other, "tools/list", json!({})).await),
        own_tools_and(&[])
    );

    let ended = server
        .request(Method::DELETE, "/mcp")
        .header("mcp-session-id", &one);
    assert_eq!(ended.send().await.expect("an answer").status(), 204);
    let gone = in_session(&server, &one, &request(3, "tools/list", json!({})))
        .send()
        .await
        .expect("an answer");
    assert_eq!(gone.status(), 404);
    assert_eq!(
        names(&ask(&server, &other, "tools/list", json!({})).await),
        own_tools_and(&[])
    );
}

#[tokio::test]
async fn the_newest_protocol_needs_no_session_and_gets_everything_through_call_tool() {
    let server = Server::start_with(|settings| settings.gateway.style = Style::Inject).await;
    server
        .add(&[tool("mail", "send", "Sends an e-mail.")])
        .await;
    let ask = async |id: u64, method: &str, name: Option<&str>, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {}
        });
        let mut sent = post(&server, &request(id, method, params))
            .header("mcp-protocol-version", "2026-07-28");
        sent = sent.header("mcp-method", method);
        if let Some(name) = name {
            sent = sent.header("mcp-name", name);
        }
        last_message(sent.send().await.expect("an answer")).await
    };
    let discovered = ask(1, "server/discover", None, json!({})).await;
    assert!(
        discovered["result"]["supportedVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28"))
    );
    let call = json!({ "name": "tool_search", "arguments": { "query": "send an e-mail" } });
    let found = ask(2, "tools/call", Some("tool_search"), call).await;
    let text = found["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("mail/send(") && !text.contains("added_to_your_list"),
        "{text}"
    );
    assert_eq!(
        names(&ask(3, "tools/list", None, json!({})).await),
        own_tools_and(&[])
    );
}

#[tokio::test]
async fn keys_hold_as_for_every_route() {
    let server = Server::start().await;
    server.post("/v1/catalogs/other/tools", &json!([])).await;
    let (fits, other) = (
        server.key(Scope::Search, "default"),
        server.key(Scope::Search, "other"),
    );
    let missing = read(post(&server, &initialize())).await;
    assert_eq!(
        (missing.status.as_u16(), missing.error_code()),
        (401, "missing_key")
    );
    let refused = read(post(&server, &initialize()).bearer_auth(&other)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (403, "catalog_not_allowed")
    );
    let accepted = post(&server, &initialize())
        .bearer_auth(&fits)
        .send()
        .await
        .expect("an answer");
    assert_eq!(accepted.status(), 200);
}

#[tokio::test]
async fn errors_of_the_protocol_keep_its_format() {
    let server = Server::start_with(|settings| settings.limits.body_bytes = 10_000).await;
    let session = begin(&server).await;
    let unknown = ask(&server, &session, "no/such/method", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601);
    let huge = in_session(
        &server,
        &session,
        &request(3, "ping", json!({ "x": "y".repeat(20_000) })),
    );
    assert_eq!(huge.send().await.expect("an answer").status(), 413);
    let garbage = server
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream");
    let garbage = garbage
        .header("content-type", "application/json")
        .body("{ no JSON")
        .send()
        .await;
    assert!(garbage.expect("an answer").status().is_client_error());
    let foreign = read(post(&server, &initialize()).header("origin", "https://evil.example")).await;
    assert_eq!(
        (foreign.status.as_u16(), foreign.error_code()),
        (403, "origin_not_allowed")
    );
    assert_eq!(
        ask(&server, &session, "ping", json!({})).await["result"],
        json!({})
    );
}

#[tokio::test]
async fn a_body_that_is_no_message_gets_an_error_of_json_rpc() {
    let server = Server::start().await;
    let session = begin(&server).await;
    let mark = "\u{feff}";
    for (body, code, expected) in [
        ("{ no JSON".to_owned(), -32700, "line 1"),
        (String::new(), -32700, "not valid JSON"),
        (format!("{mark}{}", initialize()), -32700, "byte order mark"),
        (format!("[{}]", initialize()), -32600, "is a list"),
        (
            json!({ "id": 7, "method": "ping" }).to_string(),
            -32600,
            "`jsonrpc`",
        ),
        (
            json!({ "jsonrpc": "2.0", "id": 7 }).to_string(),
            -32600,
            "`method`",
        ),
        (
            json!({ "jsonrpc": "2.0", "id": [7], "method": "ping" }).to_string(),
            -32600,
            "cannot be read",
        ),
        ("7".into(), -32600, "no message"),
    ] {
        let sent = in_session(&server, &session, &Value::Null).body(body.clone());
        let answer = read(sent).await;
        assert_eq!(answer.status.as_u16(), 400, "{body}");
        assert_eq!(answer.body["error"]["code"], code, "{}", answer.body);
        assert_eq!(answer.body["jsonrpc"], "2.0");
        let message = answer.body["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    // What the SDK refuses in plain text.
    let unknown = read(in_session(
        &server,
        "no-such-session",
        &request(5, "ping", json!({})),
    ))
    .await;
    assert_eq!(
        (
            unknown.status.as_u16(),
            &unknown.body["error"]["code"],
            &unknown.body["id"]
        ),
        (404, &json!(-32001), &json!(5))
    );
    let without = read(post(&server, &request(6, "ping", json!({})))).await;
    assert_eq!(
        (without.status.as_u16(), &without.body["id"]),
        (400, &json!(6))
    );
    let html = server
        .request(Method::POST, "/mcp")
        .header("accept", "text/html");
    let html = read(html.json(&initialize())).await;
    assert_eq!(
        (html.status.as_u16(), &html.body["error"]["code"]),
        (406, &json!(-32600))
    );
}

#[tokio::test]
async fn clients_with_a_slash_at_the_end_or_that_accept_anything_are_served() {
    let server = Server::start().await;
    for (path, accept) in [
        ("/mcp/", Some("application/json, text/event-stream")),
        ("/mcp", Some("*/*")),
        ("/mcp/", Some("text/html, */*;q=0.1")),
        ("/mcp", None),
    ] {
        let mut sent = server.request(Method::POST, path).json(&initialize());
        if let Some(accept) = accept {
            sent = sent.header("accept", accept);
        }
        let response = sent.send().await.expect("an answer");
        let session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let begun = last_message(response).await;
        assert_eq!(
            begun["result"]["protocolVersion"], "2025-06-18",
            "{path} {accept:?}"
        );
        let list = server
            .request(Method::POST, path)
            .header("accept", accept.unwrap_or("*/*"))
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-06-18")
            .json(&request(2, "tools/list", json!({})));
        let list = last_message(list.send().await.expect("an answer")).await;
        assert_eq!(names(&list), own_tools_and(&[]));
    }
}

#[tokio::test]
async fn only_clients_that_know_events_without_a_message_get_them() {
    let server = Server::start().await;
    for (version, expected) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-06-18", false),
        ("2025-11-25", true),
    ] {
        let mut hello = initialize();
        hello["params"]["protocolVersion"] = version.into();
        let response = post(&server, &hello).send().await.expect("an answer");
        let session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let in_it = |sent: RequestBuilder| {
            let sent = sent.header("mcp-session-id", &session);
            sent.header("mcp-protocol-version", version)
        };
        let begun = response.text().await.unwrap();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        in_it(post(&server, &initialized)).send().await.unwrap();
        let listed = in_it(post(&server, &request(2, "tools/list", json!({}))));
        let listed = listed.send().await.unwrap().text().await.unwrap();
        for stream in [begun, listed] {
            let is_primed = stream.lines().any(|line| line.trim_end() == "data:");
            assert_eq!(is_primed, expected, "{version}: {stream}");
            assert!(stream.contains("\"result\""), "{version}: {stream}");
        }
    }
}

#[tokio::test]
async fn a_lost_client_and_a_shutdown_during_a_stream_leave_other_clients_alone() {
    let server = Server::start().await;
    let session = begin(&server).await;
    let listen = || {
        let stream = server
            .request(Method::GET, "/mcp")
            .header("accept", "text/event-stream");
        stream
            .header("mcp-session-id", &session)
            .header("mcp-protocol-version", "2025-06-18")
            .send()
    };
    let vanishing = listen().await.expect("a stream");
    assert_eq!(vanishing.status(), 200);
    drop(vanishing);
    assert_eq!(
        names(&ask(&server, &session, "tools/list", json!({})).await),
        own_tools_and(&[])
    );
    let open = listen().await.expect("a stream");
    server.stop().await;
    drop(open);
}
