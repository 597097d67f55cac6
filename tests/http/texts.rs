//! Texts of tools over HTTP: read, changed, brought from elsewhere, and written by the server's model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use toolscout::assembly::Settings;
use toolscout::config::{EnrichMode, EnrichSettings};
use toolscout::keys::Scope;
use toolscout::llm::{ChatModel, ChatRequest, Delta, DeltaStream, LlmError, Usage};
use toolscout_index::embed::Hashing;
use toolscout_index::{DataDir, Error, Options};

use super::server::{Answer, Server, read, tool};

const TEXTS: &str = "/v1/catalogs/default/texts";
const ENRICH: &str = "/v1/catalogs/default/enrich";
const TOKENS_OF_AN_ANSWER: u64 = 100;

/// A model that writes two texts for each tool; none for tools whose names begin with `silent`.
#[derive(Default)]
struct Writer {
    requests: AtomicUsize,
    /// Its permits let answers through; without it all of them pass.
    held: Option<Semaphore>,
    /// Written for every tool too.
    further: Option<&'static str>,
}

#[async_trait]
impl ChatModel for Writer {
    fn name(&self) -> &str {
        "writer"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if let Some(held) = &self.held {
            held.acquire().await.unwrap().forget();
        }
        let tools: Vec<Value> = serde_json::from_str(request.messages[1].content()).unwrap();
        let mut answer = Map::new();
        for tool in tools {
            let signature = tool["tool"].as_str().unwrap().to_owned();
            if !signature.contains("silent") {
                let length = signature.len();
                let first = format!("somebody wants what {length} could give");
                let second = format!("people ask for the number {length}");
                let texts: Vec<String> = self.further.map(str::to_owned).into_iter().collect();
                let texts = [texts, vec![first, second]].concat();
                answer.insert(tool["number"].to_string(), json!(texts));
            }
        }
        let usage = Usage {
            input: TOKENS_OF_AN_ANSWER,
            output: 0,
        };
        let deltas = [
            Ok(Delta::Text(Value::from(answer).to_string())),
            Ok(Delta::Usage(usage)),
        ];
        Ok(stream::iter(deltas).boxed())
    }
}

fn tools() -> Vec<Value> {
    vec![
        tool("mail", "recall", "Takes back a sent message."),
        tool("mail", "send", "Sends a message."),
        tool("bank", "silent_transfer", "Moves money."),
    ]
}

async fn server_with(change: impl FnOnce(&mut Settings)) -> Server {
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![Arc::new(Hashing::new(64))]);
        change(settings);
    })
    .await;
    let answer = server
        .post("/v1/catalogs/default/tools", &json!(tools()))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server
}

fn settings(mode: EnrichMode, tokens_a_day: Option<u64>) -> EnrichSettings {
    EnrichSettings {
        mode: Some(mode),
        tokens_a_day,
        ..EnrichSettings::default()
    }
}

async fn send(server: &Server, body: String) -> Answer {
    let request = server.request(Method::POST, TEXTS);
    read(request.header("content-type", "text/plain").body(body)).await
}

/// Starts a task and waits for its end.
async fn enrich(server: &Server, request: Value) -> Value {
    let started = server.post(ENRICH, &request).await;
    assert_eq!(started.status, 202, "{started:?}");
    let id = started.body["id"].as_str().unwrap();
    let path = format!("/v1/tasks/{id}");
    server
        .wait_for(&path, |task| task["status"] != "running")
        .await
}

#[tokio::test]
async fn texts_of_a_tool_are_read_changed_and_deleted_and_find_it() {
    let server = server_with(|_| {}).await;
    let path = &format!("{TEXTS}/mail/recall");
    let without = server.get(path).await;
    assert_eq!(
        (without.status.as_u16(), &without.body["texts"]),
        (200, &json!([]))
    );

    // The texts are embedded also if nothing else is left to embed.
    let all_embedded = |stats: &Value| stats["pending_embeddings"] == 0;
    server
        .wait_for("/v1/catalogs/default/stats", all_embedded)
        .await;
    let text = "oh dear that went to the wrong person";
    let put = server.put(path, &json!({ "texts": [text] })).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(
        (&put.body["texts"], &put.body["model"]),
        (&json!([text]), &json!("person"))
    );
    assert_eq!(server.get(path).await.body, put.body);
    let query = json!({ "query": text, "mode": "dense", "k": 1 });
    let found = |hits: &Value| hits["hits"][0]["id"] == "mail/recall";
    loop {
        let hits = server.post("/v1/search", &query).await.body;
        if found(&hits) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let state = server.get(ENRICH).await.body;
    assert_eq!(
        (&state["tools"], &state["with_texts"]),
        (&json!(3), &json!(1)),
        "{state}"
    );

    assert_eq!(server.delete(path).await.status, 204);
    assert_eq!(server.delete(path).await.error_code(), "no_texts");
    assert_eq!(
        server.get(&format!("{TEXTS}/mail/nothing")).await.status,
        404
    );
}

#[tokio::test]
async fn texts_that_cannot_be_are_refused_with_the_text_and_the_reason() {
    let server = server_with(|_| {}).await;
    let path = &format!("{TEXTS}/mail/send");
    let long = "x".repeat(201);
    for (body, status, code, part) in [
        (json!({ "texts": [] }), 422, "invalid_texts", "empty"),
        (
            json!({ "texts": ["fine", "..."] }),
            422,
            "invalid_texts",
            "...",
        ),
        (
            json!({ "texts": ["sends a message"] }),
            422,
            "invalid_texts",
            "sends a message",
        ),
        (json!({ "texts": [long] }), 422, "invalid_texts", "201"),
        (
            json!({ "texts": ["a\u{1b}[2J"] }),
            422,
            "invalid_texts",
            "control",
        ),
        (
            json!({ "texts": ["write to Ann"], "model": "" }),
            422,
            "invalid_texts",
            "model",
        ),
        (json!({ "text": ["a"] }), 422, "unknown_field", "text"),
        (json!({ "texts": "a" }), 422, "invalid_value", "texts"),
    ] {
        let answer = server.put(path, &body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert_eq!(answer.error_code(), code, "{body}: {answer:?}");
        assert!(answer.message().contains(part), "{body}: {answer:?}");
    }
    assert_eq!(server.get(path).await.body["texts"], json!([]));
}

#[tokio::test]
async fn questions_are_answered_by_anybody_and_pages_of_texts_go_to_another_catalog() {
    let server = server_with(|_| {}).await;
    let asked = server
        .get("/v1/catalogs/default/questions?server=mail")
        .await;
    let text = asked.body.as_str().unwrap();
    assert!(
        text.contains("POST it to /v1/catalogs/default/texts"),
        "{text}"
    );
    let questions: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|question: &Value| question["tool"].is_string())
        .collect();
    assert_eq!(questions.len(), 2, "{text}");
    let answers: Vec<String> = questions
        .iter()
        .map(|question| {
            json!({
                "id": question["id"],
                "definition": question["definition"],
                "texts": [format!("somebody needs number {}", question["definition"])],
            })
            .to_string()
        })
        .collect();
    let body = format!("Here you are:\n```\n{}\n```", answers.join("\n"));
    let taken = send(&server, body.clone()).await.body;
    assert_eq!(
        (&taken["stored"], &taken["left"]),
        (&json!(2), &json!(1)),
        "{taken}"
    );
    let again = send(&server, body).await.body;
    assert_eq!(
        (&again["stored"], again["kept"].as_array().unwrap().len()),
        (&json!(0), 2)
    );
    let stale = r#"{"id": "mail/send", "definition": "feedfeedfeedfeed", "texts": ["x y z"]}"#;
    assert_eq!(
        send(&server, stale.to_owned()).await.body["stale"],
        json!(["mail/send"])
    );
    assert_eq!(
        send(&server, "no texts".to_owned()).await.error_code(),
        "no_texts_in_body"
    );

    let first = server.get(&format!("{TEXTS}?limit=1")).await.body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server
        .get(&format!("{TEXTS}?limit=1&cursor={cursor}"))
        .await
        .body;
    assert_eq!(second["tools"][0]["id"], "mail/send");
    assert!(second.get("next_cursor").is_none());
    server.put("/v1/catalogs/other", &json!({})).await;
    let mut renamed = tools();
    renamed[0]["server"] = json!("post");
    server
        .post("/v1/catalogs/other/tools", &json!(renamed))
        .await;
    let request = server.request(Method::POST, "/v1/catalogs/other/texts");
    let taken = read(request.json(&first)).await.body;
    assert_eq!(taken["stored"], 1, "{taken}");
    let moved = server
        .get("/v1/catalogs/other/texts/post/recall")
        .await
        .body;
    assert_eq!(moved["texts"], first["tools"][0]["texts"]);

    let refused = server.delete(TEXTS).await;
    assert_eq!(refused.error_code(), "empty_filter");
    let forgotten = server.delete(&format!("{TEXTS}?server=mail")).await.body;
    assert_eq!(forgotten["forgotten"], 2);
    assert_eq!(
        server.delete(&format!("{TEXTS}?all=true")).await.body["forgotten"],
        0
    );
}

#[tokio::test]
async fn the_servers_model_writes_texts_as_a_task() {
    let server =
        server_with(|settings| settings.enricher = Some(Arc::new(Writer::default()))).await;
    let estimate = server.post(ENRICH, &json!({ "dry_run": true })).await.body;
    assert_eq!(
        (&estimate["tools"], &estimate["requests"]),
        (&json!(3), &json!(2))
    );
    assert!(estimate["tokens_in"].as_u64() > Some(100), "{estimate}");

    let task = enrich(&server, json!({ "servers": ["bank", "mail"] })).await;
    assert_eq!(task["status"], "succeeded", "{task}");
    assert_eq!(
        (&task["done"], &task["result"]["changed"]),
        (&json!(3), &json!(2)),
        "{task}"
    );
    assert_eq!(task["failures"][0]["id"], "bank/silent_transfer");
    let state = server.get(ENRICH).await.body;
    assert_eq!(
        (&state["mode"], &state["model"]),
        (&json!("ask"), &json!("writer"))
    );
    assert_eq!(
        (&state["with_texts"], &state["tokens_today"]),
        (&json!(2), &json!(200))
    );
    server
        .wait_for(ENRICH, |state| state["pending_embeddings"] == 0)
        .await;
    let measured = server
        .get(&format!("{ENRICH}/measure?server=mail"))
        .await
        .body;
    assert_eq!(
        (&measured["tools"], &measured["found_within"]),
        (&json!(2), &json!(5))
    );

    for request in [
        json!({ "limit": 0 }),
        json!({ "limit": 20_001 }),
        json!({ "texts": 9 }),
        json!({ "languages": ["xx"] }),
        json!({ "texts": 5, "languages": ["en", "de"] }),
    ] {
        assert_eq!(
            server.post(ENRICH, &request).await.error_code(),
            "invalid_value",
            "{request}"
        );
    }
}

#[tokio::test]
async fn without_a_model_or_switched_off_it_says_what_to_do() {
    let server = server_with(|_| {}).await;
    let answer = server.post(ENRICH, &json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code()),
        (409, "no_model")
    );
    assert!(answer.message().contains("--llm"), "{answer:?}");
    let server = server_with(|configured| {
        configured.enricher = Some(Arc::new(Writer::default()));
        configured.enrich = settings(EnrichMode::Off, None);
    })
    .await;
    assert_eq!(
        server.post(ENRICH, &json!({})).await.error_code(),
        "enrich_off"
    );
}

#[tokio::test]
async fn a_key_of_one_catalog_spends_tokens_only_with_the_scope_for_it() {
    let both = [Scope::Admin, Scope::Llm].as_slice();
    for bound in [None, Some(1_000_000)] {
        let writer = Arc::new(Writer::default());
        let server = server_with(|configured| {
            configured.enricher = Some(Arc::clone(&writer) as Arc<dyn ChatModel>);
            configured.enrich = settings(EnrichMode::Ask, bound);
        })
        .await;
        let ask = async |scopes: &[Scope], catalogs: &str, request: Value| {
            let key = server.make_key(scopes.iter().copied().collect(), catalogs);
            let sending = server.request(Method::POST, ENRICH).json(&request);
            read(sending.bearer_auth(key)).await
        };
        for (scopes, catalogs) in [
            ([Scope::Admin].as_slice(), "default"),
            (&[Scope::Admin, Scope::Call, Scope::Approve], "default,b"),
            (&[Scope::Llm], "*"),
            (&[Scope::Search], "*"),
        ] {
            let answer = ask(scopes, catalogs, json!({})).await;
            assert_eq!(answer.error_code(), "wrong_scope", "{scopes:?} {catalogs}");
        }
        assert_eq!(writer.requests.load(Ordering::SeqCst), 0);
        let what = ask(&[Scope::Admin], "default", json!({ "dry_run": true })).await;
        assert_eq!(what.status, 200);
        let written = ask(both, "default", json!({})).await;
        assert_eq!(written.status, 202, "{written:?}");
    }
}

#[tokio::test]
async fn one_task_writes_at_a_time_and_can_be_cancelled() {
    let model = Arc::new(Writer {
        held: Some(Semaphore::new(0)),
        ..Writer::default()
    });
    let server = server_with(|configured| {
        configured.enricher = Some(Arc::clone(&model) as Arc<dyn ChatModel>);
    })
    .await;
    let started = server.post(ENRICH, &json!({})).await;
    assert_eq!(started.status, 202, "{started:?}");
    let second = server.post(ENRICH, &json!({})).await;
    assert_eq!(
        (second.status.as_u16(), second.error_code()),
        (409, "already_enriching")
    );
    let path = format!("/v1/tasks/{}", started.body["id"].as_str().unwrap());
    assert_eq!(server.delete(&path).await.status, 202);
    let task = server
        .wait_for(&path, |task| task["status"] != "running")
        .await;
    assert_eq!(task["status"], "cancelled", "{task}");
    model.held.as_ref().unwrap().add_permits(10);
    let task = enrich(&server, json!({})).await;
    assert_eq!(task["result"]["changed"], 2, "{task}");
}

#[tokio::test]
async fn tokens_count_also_if_the_texts_cannot_be_stored() {
    let model = Arc::new(Writer {
        held: Some(Semaphore::new(0)),
        ..Writer::default()
    });
    let server = server_with(|configured| {
        configured.enricher = Some(Arc::clone(&model) as Arc<dyn ChatModel>);
    })
    .await;
    server
        .wait_for("/v1/catalogs/default/stats", |stats| {
            stats["pending_embeddings"] == 0
        })
        .await;
    let started = server.post(ENRICH, &json!({})).await;
    let path = format!("/v1/tasks/{}", started.body["id"].as_str().unwrap());
    // Another process writes to the catalog for so long.
    let catalogs = DataDir::new(server.dir.path());
    let catalog = catalogs.open("default", Options::default()).unwrap();
    let other = loop {
        match catalog.writer() {
            Ok(writer) => break writer,
            Err(Error::Locked { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    model.held.as_ref().unwrap().add_permits(10);
    let task = server
        .wait_for(&path, |task| task["status"] != "running")
        .await;
    assert_eq!(task["status"], "failed", "{task}");
    drop(other);
    let state = server.get(ENRICH).await.body;
    assert_eq!(state["with_texts"], json!(0), "{state}");
    let paid = model.requests.load(Ordering::SeqCst) as u64 * TOKENS_OF_AN_ANSWER;
    assert_eq!(state["tokens_today"], json!(paid), "{state}");
}

#[tokio::test]
async fn a_run_ends_where_the_tokens_of_the_day_are_used_up() {
    let model = Arc::new(Writer::default());
    let server = server_with(|configured| {
        configured.enricher = Some(Arc::clone(&model) as Arc<dyn ChatModel>);
        configured.enrich = settings(EnrichMode::Ask, Some(10));
    })
    .await;
    let task = enrich(&server, json!({})).await;
    assert_eq!(task["error"]["code"], "enrich_ended", "{task}");
    assert!(
        task["error"]["message"]
            .as_str()
            .unwrap()
            .contains("budget"),
        "{task}"
    );
    assert_eq!(model.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn new_and_changed_tools_get_texts_by_themselves_and_are_paid_for_once() {
    let model = Arc::new(Writer::default());
    let server = server_with(|configured| {
        configured.enricher = Some(Arc::clone(&model) as Arc<dyn ChatModel>);
        configured.enrich = settings(EnrichMode::Auto, Some(1_000_000));
    })
    .await;
    server
        .wait_for(ENRICH, |state| state["with_texts"] == 2)
        .await;
    let requests = model.requests.load(Ordering::SeqCst);
    let changed = tool("mail", "send", "Sends a message, with files.");
    server.add(&[changed]).await;
    server
        .wait_for(ENRICH, |state| state["with_texts"] == 1)
        .await;
    server
        .wait_for(ENRICH, |state| state["with_texts"] == 2)
        .await;
    // The tool that the model is silent about is not asked about again.
    assert_eq!(model.requests.load(Ordering::SeqCst), requests + 1);
}

/// Speaks of `bank/silent_transfer`.
const MOVE: &str = "move my money to her";

#[tokio::test]
async fn texts_of_another_servers_tool_wait_for_a_person_who_says_so() {
    let server = server_with(|_| {}).await;
    let path = &format!("{TEXTS}/mail/send");
    let mut body = json!({ "texts": ["write to her", MOVE] });
    let put = server.put(path, &body).await;
    assert_eq!((put.status.as_u16(), put.error_code()), (422, "texts_held"));
    let reason = "held: speaks of bank/silent_transfer";
    assert!(put.message().contains(reason), "{put:?}");
    assert_eq!(server.get(path).await.body["texts"], json!([]));
    body["reviewed"] = json!(true);
    assert_eq!(server.put(path, &body).await.status, 200);
    // What the tool has already was read.
    body["reviewed"] = json!(false);
    body["texts"] = json!([MOVE, "write to her mother"]);
    assert_eq!(server.put(path, &body).await.status, 200);
    assert_eq!(server.delete(path).await.status, 204);

    let definition = server.get(path).await.body["definition"].clone();
    let line =
        json!({ "id": "mail/send", "definition": definition, "texts": ["write to her", MOVE] });
    let taken = send(&server, line.to_string()).await;
    let held = json!([{ "id": "mail/send", "text": MOVE, "speaks_of": "bank/silent_transfer" }]);
    assert_eq!(
        (&taken.body["held"], &taken.body["stored"]),
        (&held, &json!(1))
    );
    assert_eq!(
        server.get(path).await.body["texts"],
        json!(["write to her"])
    );
    let request = server.request(Method::POST, &format!("{TEXTS}?reviewed=true"));
    let taken = read(request.body(line.to_string())).await;
    assert_eq!(
        (&taken.body["held"], &taken.body["stored"]),
        (&json!([]), &json!(1))
    );
    assert_eq!(
        server.get(path).await.body["texts"],
        json!(["write to her", MOVE])
    );
}

#[tokio::test]
async fn texts_that_a_server_holds_by_itself_are_counted_and_shown() {
    for mode in [EnrichMode::Ask, EnrichMode::Auto] {
        let model = Arc::new(Writer {
            further: Some(MOVE),
            ..Writer::default()
        });
        let server = server_with(|configured| {
            configured.enricher = Some(Arc::clone(&model) as Arc<dyn ChatModel>);
            configured.enrich = settings(mode, Some(1_000_000));
        })
        .await;
        if mode == EnrichMode::Ask {
            enrich(&server, json!({})).await;
        }
        let state = server
            .wait_for(ENRICH, |state| state["with_texts"] == 2)
            .await;
        assert_eq!(state["held"], 2, "{state}");
        let held =
            |id: &str| json!({ "id": id, "text": MOVE, "speaks_of": "bank/silent_transfer" });
        assert_eq!(
            state["held_texts"],
            json!([held("mail/recall"), held("mail/send")])
        );
        let texts = server.get(TEXTS).await.body.to_string();
        assert!(!texts.contains(MOVE), "{texts}");
    }
}
