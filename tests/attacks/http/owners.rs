//! Keys that are not the owner's: conversations, approvals and sessions of others.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::timeout;
use toolscout::keys::{Catalogs, NewKey, Scope, Scopes};

use super::agent::{Manner, Model, chat, event};
use super::overload::begun;
use crate::attacks::server::{Answer, PATIENCE, Server, read};
use crate::attacks::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "Keys that are not the owner's",
    attacks: &[
        Attack {
            tried: "A key without the scope `approve` approves the call of its own run",
            happens: "403 `wrong_scope`; the call still waits",
            test: "a_search_key_approves_nothing",
        },
        Attack {
            tried: "A key with the scope `approve` approves the call of another key's run, with the id of the question",
            happens: "404 as for an id that is none; the owner's key and an admin key for all catalogs can approve",
            test: "a_run_is_approved_by_its_owner_or_an_operator",
        },
        Attack {
            tried: "A key goes on with, reads, stops or deletes the conversation of another key",
            happens: "404 as for one that is not there; it is not in the list either",
            test: "a_conversation_is_its_owners_alone",
        },
        Attack {
            tried: "A key asks in a conversation whose first question another key is just asking",
            happens: "404: a run has its owner from its start, before anything of it is saved",
            test: "a_run_that_only_begins_has_its_owner",
        },
        Attack {
            tried: "An admin key goes on with the conversation of another key, to have its memory answer",
            happens: "403 `not_your_conversation`: it may see, stop and delete it, and not speak in it",
            test: "an_operator_sees_and_ends_all_conversations",
        },
        Attack {
            tried: "A database of conversations from before they had owners is opened, and a key lists and reads them",
            happens: "They belong to nobody: only an admin key for all catalogs sees and deletes them",
            test: "conversations_of_versions_without_owners_belong_to_nobody",
        },
        Attack {
            tried: "A key uses, listens to or ends the MCP session of another key, by its id",
            happens: "404 as for a session that is not there; the session goes on",
            test: "an_mcp_session_is_its_keys_alone",
        },
        Attack {
            tried: "An admin key that is limited to catalogs sends requests to the model's provider, on every route and base URL, lists its models, counts tokens there, or asks the agent as a model",
            happens: "403 `wrong_scope`: whoever runs the server pays, so the key needs the scope `llm`. An admin key for all catalogs has it",
            test: "an_admin_key_of_some_catalogs_has_no_use_of_the_operators_model",
        },
        Attack {
            tried: "An admin key that is limited to catalogs lets the server's model write texts of its tools",
            happens: "403 `wrong_scope` without the scope `llm`, whether or not there is a bound for the tokens of a day",
            test: "a_key_of_one_catalog_spends_tokens_only_with_the_scope_for_it",
        },
        Attack {
            tried: "A key without the scope `llm` asks the agent of a server that keeps it for those that have it (`--agent-scope llm`), on each of its routes",
            happens: "403 `wrong_scope`; the model is not asked",
            test: "the_agent_can_be_kept_for_keys_that_may_spend",
        },
        Attack {
            tried: "A provider repeats the server's key in an error or in its answer: as it is, in Base64, percent-encoded, in a stream",
            happens: "Secrets that the process knows are masked in every answer, result of a call, log line and audit entry",
            test: "a_provider_that_repeats_our_key_is_masked",
        },
        Attack {
            tried: "A key that is revoked or expires goes on reading a stream, holding an MCP session, or running a detached question",
            happens: "All of it ends within a second: streams break off, sessions are closed, runs are stopped, and loads and evaluations are cancelled",
            test: "what_a_key_has_begun_ends_with_it",
        },
        Attack {
            tried: "An admin key that is limited to catalogs lists, creates or revokes keys, or reads the audit log or the figures of the server",
            happens: "403 `wrong_scope`, as for every other key than an admin key for all catalogs; nothing is created or revoked",
            test: "only_an_admin_key_for_all_catalogs_manages_keys_and_looks_at_log_and_figures",
        },
        Attack {
            tried: "Whoever comes first makes the first key of a server that is open to a network without keys",
            happens: "403 `first_key`: only the command line on the server's machine makes it",
            test: "a_server_that_is_open_to_a_network_gives_nobody_its_first_key",
        },
    ],
};

fn key(server: &Server, scopes: &[Scope]) -> String {
    let scopes: Scopes = scopes.iter().copied().collect();
    server.make_key(scopes, "default")
}

fn ask(server: &Server, key: &str, method: Method, path: &str) -> RequestBuilder {
    server.request(method, path).bearer_auth(key)
}

async fn approve(server: &Server, key: &str, id: &Value) -> Answer {
    read(
        ask(server, key, Method::POST, "/v1/agent/approve")
            .json(&json!({ "id": id, "approve": true })),
    )
    .await
}

fn refusal(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), answer.error_code())
}

#[tokio::test]
async fn a_search_key_approves_nothing() {
    let server = Model::new(Manner::CallsHarmful).serve(|_| {}).await;
    let (own, call) = (key(&server, &[Scope::Search]), key(&server, &[Scope::Call]));
    let mut run = chat(&server, &own, json!({ "query": "go" })).await;
    let asked = event(&mut run, "approval_required").await;
    for key in [&own, &call] {
        assert_eq!(
            refusal(&approve(&server, key, &asked["id"]).await),
            (403, "wrong_scope")
        );
    }
    let operator = server.key(Scope::Admin, "*");
    assert_eq!(
        approve(&server, &operator, &asked["id"]).await.status,
        200,
        "it still waits"
    );
}

#[tokio::test]
async fn the_agent_can_be_kept_for_keys_that_may_spend() {
    let model = Model::new(Manner::Answers);
    let server = model
        .serve(|settings| settings.agent_scope = Scope::Llm)
        .await;
    let question = json!({ "query": "hello" });
    let ask = async |key: &str| {
        // A conversation belongs to one key.
        let ag_ui = json!({
            "threadId": key.split('_').nth(1), "runId": "r", "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{ "id": "m", "role": "user", "content": "hello" }]
        });
        let post = |path: &str, body: &Value| ask(&server, key, Method::POST, path).json(body);
        let by_query = "/agent/chat/stream?query=hello";
        [
            post("/v1/agent/chat", &question),
            post(
                "/v1/agent/chat",
                &json!({ "query": "hello", "detached": true }),
            ),
            post("/v1/agent/chat?protocol=ag-ui", &ag_ui),
            ask(&server, key, Method::GET, by_query),
        ]
    };
    for scopes in [
        &[Scope::Search][..],
        &[Scope::Admin],
        &[Scope::Admin, Scope::Call, Scope::Approve],
    ] {
        for request in ask(&key(&server, scopes)).await {
            let answer = read(request).await;
            assert_eq!(refusal(&answer), (403, "wrong_scope"), "{scopes:?}");
        }
    }
    assert_eq!(model.asked(), 0);
    for allowed in [
        key(&server, &[Scope::Llm]),
        key(&server, &[Scope::Admin, Scope::Llm]),
        server.key(Scope::Admin, "*"),
    ] {
        for request in ask(&allowed).await {
            assert_eq!(request.send().await.unwrap().status(), 200);
        }
    }
}

#[tokio::test]
async fn a_run_is_approved_by_its_owner_or_an_operator() {
    let server = Model::new(Manner::CallsHarmful).serve(|_| {}).await;
    let (own, other) = (
        key(&server, &[Scope::Approve]),
        key(&server, &[Scope::Approve]),
    );
    // An admin of the one catalog is no operator.
    let admin_of_one = key(&server, &[Scope::Admin]);
    for approver in [own.clone(), server.key(Scope::Admin, "*")] {
        let mut run = chat(&server, &own, json!({ "query": "go" })).await;
        let asked = event(&mut run, "approval_required").await;
        let conversation = run.headers()["x-conversation-id"].clone();
        let path = format!(
            "/v1/agent/conversations/{}",
            conversation.to_str().expect("an id")
        );
        let shown = read(ask(&server, &own, Method::GET, &path)).await;
        assert_eq!(shown.body["approvals"][0]["id"], asked["id"]);
        let operator = server.key(Scope::Admin, "*");
        let shown = read(ask(&server, &operator, Method::GET, &path)).await;
        assert_eq!(shown.body["approvals"], json!([]), "of the owner alone");
        for key in [&other, &admin_of_one] {
            assert_eq!(
                refusal(&approve(&server, key, &asked["id"]).await),
                (404, "unknown_approval")
            );
        }
        assert_eq!(approve(&server, &approver, &asked["id"]).await.status, 200);
        let id = approver
            .trim_start_matches("tsk_")
            .split('_')
            .next()
            .expect("an id");
        assert_eq!(
            event(&mut run, "gate").await["answer"]["by"],
            format!("key:{id}")
        );
    }
}

#[tokio::test]
async fn a_conversation_is_its_owners_alone() {
    let model = Model::new(Manner::Answers);
    let server = model.serve(|_| {}).await;
    let (own, other) = (
        key(&server, &[Scope::Search]),
        key(&server, &[Scope::Search]),
    );
    let mut run = chat(
        &server,
        &own,
        json!({ "query": "my secret is 42", "conversation": "c1" }),
    )
    .await;
    event(&mut run, "done").await;

    let path = "/v1/agent/conversations/c1";
    let continued = read(
        ask(&server, &other, Method::POST, "/v1/agent/chat")
            .json(&json!({ "query": "what is it?", "conversation": "c1" })),
    );
    assert_eq!(refusal(&continued.await), (404, "unknown_conversation"));
    let thread = json!({ "threadId": "c1", "runId": "r", "messages": [{ "role": "user", "content": "what is it?" }] });
    let continued = read(
        ask(
            &server,
            &other,
            Method::POST,
            "/v1/agent/chat?protocol=ag-ui",
        )
        .json(&thread),
    )
    .await;
    assert_eq!(refusal(&continued), (404, "unknown_conversation"));
    let continued = read(ask(
        &server,
        &other,
        Method::GET,
        "/agent/chat/stream?query=what&conversationId=c1",
    ))
    .await;
    assert_eq!(refusal(&continued), (404, "unknown_conversation"));
    assert_eq!(
        refusal(&read(ask(&server, &other, Method::GET, path)).await),
        (404, "unknown_conversation")
    );
    let events = format!("{path}/turns/1/events");
    assert_eq!(
        refusal(&read(ask(&server, &other, Method::GET, &events)).await),
        (404, "unknown_conversation")
    );
    assert_eq!(
        refusal(&read(ask(&server, &other, Method::DELETE, path)).await),
        (404, "unknown_conversation")
    );
    let stop =
        ask(&server, &other, Method::POST, "/v1/agent/stop").json(&json!({ "conversation": "c1" }));
    assert_eq!(refusal(&read(stop).await), (404, "unknown_conversation"));
    let listed = read(ask(&server, &other, Method::GET, "/v1/agent/conversations")).await;
    assert_eq!(listed.body, json!({ "conversations": [] }));
    assert_eq!(model.asked(), 1);

    let listed = read(ask(&server, &own, Method::GET, "/v1/agent/conversations")).await;
    assert_eq!(listed.body["conversations"][0]["id"], "c1");
    let shown = read(ask(&server, &own, Method::GET, path)).await;
    assert_eq!(shown.body["turns"][0]["question"], "my secret is 42");
    let mut run = chat(
        &server,
        &own,
        json!({ "query": "go on", "conversation": "c1" }),
    )
    .await;
    assert_eq!(event(&mut run, "done").await["turn"], 2);
    assert_eq!(
        read(ask(&server, &own, Method::DELETE, path)).await.status,
        204
    );
}

#[tokio::test]
async fn a_run_that_only_begins_has_its_owner() {
    let model = Model::new(Manner::Hangs);
    let server = model.serve(|_| {}).await;
    let (own, other) = (
        key(&server, &[Scope::Search]),
        key(&server, &[Scope::Search]),
    );
    let stop = async |key: &str| {
        read(
            ask(&server, key, Method::POST, "/v1/agent/stop")
                .json(&json!({ "conversation": "c1" })),
        )
        .await
    };
    let mut run = chat(
        &server,
        &own,
        json!({ "query": "go", "conversation": "c1" }),
    )
    .await;
    let asked = ask(&server, &other, Method::POST, "/v1/agent/chat")
        .json(&json!({ "query": "q", "conversation": "c1" }));
    assert_eq!(refusal(&read(asked).await), (404, "unknown_conversation"));
    assert_eq!(refusal(&stop(&other).await), (404, "unknown_conversation"));
    assert_eq!(stop(&own).await.body, json!({ "stopped": true }));
    assert_eq!(event(&mut run, "done").await["status"], "stopped");
    // The model gives no answer, so the next run is stopped by the operator.
    let mut run = chat(
        &server,
        &own,
        json!({ "query": "go", "conversation": "c1" }),
    )
    .await;
    assert_eq!(
        stop(&server.key(Scope::Admin, "*")).await.body,
        json!({ "stopped": true })
    );
    assert_eq!(event(&mut run, "done").await["status"], "stopped");
}

#[tokio::test]
async fn an_operator_sees_and_ends_all_conversations() {
    let server = Model::new(Manner::Answers).serve(|_| {}).await;
    let (own, operator) = (
        key(&server, &[Scope::Search]),
        server.key(Scope::Admin, "*"),
    );
    let mut run = chat(
        &server,
        &own,
        json!({ "query": "hello", "conversation": "c1" }),
    )
    .await;
    event(&mut run, "done").await;
    let listed = read(ask(
        &server,
        &operator,
        Method::GET,
        "/v1/agent/conversations",
    ))
    .await;
    assert_eq!(listed.body["conversations"][0]["title"], "hello");
    let path = "/v1/agent/conversations/c1";
    assert_eq!(
        read(ask(&server, &operator, Method::GET, path)).await.body["turns"][0]["answer"],
        "good day"
    );
    let continued = ask(&server, &operator, Method::POST, "/v1/agent/chat")
        .json(&json!({ "query": "q", "conversation": "c1" }));
    assert_eq!(
        refusal(&read(continued).await),
        (403, "not_your_conversation")
    );
    assert_eq!(
        read(ask(&server, &operator, Method::DELETE, path))
            .await
            .status,
        204
    );
}

fn mcp(server: &Server, key: &str, method: Method, session: Option<&str>) -> RequestBuilder {
    let request =
        ask(server, key, method, "/mcp").header("accept", "application/json, text/event-stream");
    match session {
        Some(session) => request
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-06-18"),
        None => request,
    }
}

fn rpc(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

#[tokio::test]
async fn an_mcp_session_is_its_keys_alone() {
    let server = Server::start().await;
    let (own, other) = (
        key(&server, &[Scope::Search]),
        key(&server, &[Scope::Search]),
    );
    let client = json!({ "name": "raw", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let begun = mcp(&server, &own, Method::POST, None)
        .json(&rpc("initialize", hello))
        .send()
        .await
        .expect("an answer");
    let session = begun.headers()["mcp-session-id"]
        .to_str()
        .expect("text")
        .to_owned();
    let _ = begun.text().await;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let accepted = mcp(&server, &own, Method::POST, Some(&session))
        .json(&ready)
        .send()
        .await
        .expect("an answer");
    assert_eq!(accepted.status(), 202);

    // Each as the answer to a session that never was.
    let list = rpc("tools/list", json!({}));
    for operator in [&other, &server.key(Scope::Admin, "*")] {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let answered = async |session: &str| {
                let request = mcp(&server, operator, method.clone(), Some(session));
                let request = if method == Method::POST {
                    request.json(&list)
                } else {
                    request
                };
                let answer = read(request).await;
                (answer.status, answer.body)
            };
            assert_eq!(
                answered(&session).await,
                answered("never-was").await,
                "{method}"
            );
        }
    }
    let listed = mcp(&server, &own, Method::POST, Some(&session))
        .json(&list)
        .send()
        .await
        .expect("an answer");
    assert_eq!(listed.status(), 200);
    assert!(listed.text().await.expect("a body").contains("tool_search"));
}

/// Waits until a request with the key is refused.
async fn expires_soon(server: &Server, key: &str) {
    let refused = async {
        while read(ask(server, key, Method::GET, "/v1/agent/conversations"))
            .await
            .status
            != 401
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("the key expires");
}

/// Waits until a stream has ended.
async fn ends_soon(mut stream: reqwest::Response, what: &str) {
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    timeout(PATIENCE, ended)
        .await
        .unwrap_or_else(|_| panic!("{what} goes on"));
}

#[tokio::test]
async fn what_a_key_has_begun_ends_with_it() {
    let server = Model::new(Manner::Hangs).serve(|_| {}).await;
    let operator = server.key(Scope::Admin, "*");
    for expires in [false, true] {
        let new = NewKey {
            name: None,
            scopes: Scope::Call.into(),
            catalogs: Catalogs::All,
            profiles: BTreeSet::new(),
            // Long enough for what is begun below on a busy machine.
            lifetime: expires.then(|| Duration::from_secs(6)),
        };
        let own = server.add_key(&new);
        let attached = chat(&server, &own, json!({ "query": "go" })).await;
        let detached = chat(&server, &own, json!({ "query": "go", "detached": true })).await;
        let conversation = detached.headers()["x-conversation-id"].clone();
        let session = begun(&server, &own).await;
        let listening = mcp(&server, &own, Method::GET, Some(&session))
            .send()
            .await
            .expect("a stream");
        assert_eq!(listening.status(), 200);
        drop(detached);
        if expires {
            expires_soon(&server, &own).await;
        } else {
            server.revoke(&own);
        }
        ends_soon(attached, "an answer of the agent").await;
        ends_soon(listening, "a stream of MCP").await;
        let path = format!(
            "/v1/agent/conversations/{}",
            conversation.to_str().expect("an id")
        );
        let stopped = async {
            loop {
                let shown = read(ask(&server, &operator, Method::GET, &path)).await;
                if shown.body["turns"][0]["status"] == "stopped" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, stopped)
            .await
            .expect("the detached run ends");
    }
}
