use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::keys::Scope;
use toolscout_index::Options;
use toolscout_index::embed::StaticTable;

use super::server::{Server, read, tool};

const PATH: &str = "/v1/catalogs/default/memory";
const FEEDBACK: &str = "/v1/catalogs/default/feedback";
const REQUEST: &str = "show me the open tickets of the support queue";

async fn server() -> Server {
    let table = StaticTable::bundled().expect("the built-in table");
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![table as Arc<_>])
    })
    .await;
    let tools = [
        tool("s", "list_tickets", "Lists tickets of a queue."),
        tool("s", "q7", "Internal; a queue."),
    ];
    server.add(&tools).await;
    server
}

async fn ask(
    server: &Server,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> super::server::Answer {
    let request = server.request(method, path);
    read(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

async fn first(server: &Server) -> Value {
    server
        .post("/v1/search", &json!({ "query": REQUEST }))
        .await
        .body["hits"][0]["name"]
        .clone()
}

async fn called(server: &Server, outcome: &str) -> bool {
    let answer = server
        .post("/v1/search", &json!({ "query": REQUEST, "k": 50 }))
        .await
        .body;
    let token = &answer["feedback_token"];
    let body =
        json!({ "feedback_token": token, "tool": "s/q7", "outcome": outcome, "query": REQUEST });
    let recorded = server.post(FEEDBACK, &body).await;
    assert_eq!(recorded.status, 201, "{recorded:?}");
    recorded.body["remembered"] == true
}

#[tokio::test]
async fn feedback_is_remembered_once_the_memory_is_on_and_forgotten_on_request() {
    let server = server().await;
    assert!(!called(&server, "used").await, "the memory is off");
    assert_eq!(first(&server).await, "list_tickets");
    let switched = ask(&server, Method::PUT, PATH, Some(json!({ "enabled": true }))).await;
    assert_eq!(
        (switched.status.as_u16(), &switched.body["enabled"]),
        (200, &json!(true))
    );
    assert!(!called(&server, "not_helpful").await);
    assert_eq!(first(&server).await, "list_tickets");
    assert!(called(&server, "used").await);
    assert_eq!(first(&server).await, "q7");
    let listed = ask(&server, Method::GET, PATH, None).await.body;
    assert_eq!(
        (&listed["total"], &listed["entries"][0]["query"]),
        (&json!(1), &json!(REQUEST))
    );
    let forgotten = ask(&server, Method::DELETE, &format!("{PATH}?tool=s/q7"), None).await;
    assert_eq!(forgotten.body["forgotten"], 1);
    assert_eq!(first(&server).await, "list_tickets");
}

#[tokio::test]
async fn another_catalog_does_not_remember_and_its_key_does_not_see() {
    let server = server().await;
    ask(&server, Method::PUT, PATH, Some(json!({ "enabled": true }))).await;
    called(&server, "helpful").await;
    let other = "/v1/catalogs/other/memory";
    assert_eq!(
        server
            .post("/v1/catalogs", &json!({ "name": "other" }))
            .await
            .status,
        201
    );
    let listed = ask(&server, Method::GET, other, None).await.body;
    assert_eq!(
        (&listed["enabled"], &listed["total"]),
        (&json!(false), &json!(0))
    );
    for (scope, catalogs, path, status) in [
        (Scope::Admin, "other", PATH, 403),
        (Scope::Search, "default", PATH, 403),
        (Scope::Admin, "other", other, 200),
    ] {
        let key = server.key(scope, catalogs);
        let answer = read(server.request(Method::GET, path).bearer_auth(key)).await;
        assert_eq!(
            answer.status.as_u16(),
            status,
            "{scope:?} {catalogs} {path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn pages_follow_one_another_and_what_makes_no_sense_is_named() {
    let server = server().await;
    ask(&server, Method::PUT, PATH, Some(json!({ "enabled": true }))).await;
    for request in ["first request of a queue", "second request of a queue"] {
        let token = server
            .post("/v1/search", &json!({ "query": request, "k": 50 }))
            .await
            .body["feedback_token"]
            .clone();
        let body = json!({ "feedback_token": token, "tool": "s/q7", "query": request });
        assert_eq!(server.post(FEEDBACK, &body).await.status, 201);
    }
    let page = ask(&server, Method::GET, &format!("{PATH}?limit=1"), None)
        .await
        .body;
    assert_eq!(page["entries"][0]["query"], "first request of a queue");
    let cursor = page["next_cursor"].as_str().expect("there is more");
    let last = ask(
        &server,
        Method::GET,
        &format!("{PATH}?limit=1&cursor={cursor}"),
        None,
    )
    .await
    .body;
    assert_eq!(
        (&last["entries"][0]["query"], &last["next_cursor"]),
        (&json!("second request of a queue"), &Value::Null)
    );
    for (method, path, status) in [
        (Method::GET, format!("{PATH}?limit=0"), 422),
        (Method::GET, format!("{PATH}?cursor=x"), 400),
        (Method::DELETE, format!("{PATH}?tool=a&query=b"), 422),
    ] {
        assert_eq!(
            ask(&server, method, &path, None).await.status.as_u16(),
            status,
            "{path}"
        );
    }
    assert_eq!(
        ask(&server, Method::DELETE, PATH, None).await.body["forgotten"],
        2
    );
}

#[tokio::test]
async fn answers_have_a_confidence_and_abstain_below_the_least_that_was_asked_for() {
    let server = server().await;
    let answer = server
        .post(
            "/v1/search",
            &json!({ "query": "tickets of a queue", "explain": true }),
        )
        .await
        .body;
    assert!(
        answer["confidence"]
            .as_f64()
            .is_some_and(|confidence| (0.0..=1.0).contains(&confidence)),
        "{answer}"
    );
    assert!(
        answer["hits"][0]["explain"]["ranker"]["after"]
            .as_u64()
            .is_some(),
        "{answer}"
    );
    assert!(
        ["good", "possible"].contains(&answer["match"].as_str().unwrap_or_default()),
        "{answer}"
    );
    let nothing = server
        .post("/v1/search", &json!({ "query": "asdf ghjkl qwer" }))
        .await
        .body;
    assert_eq!(nothing["match"], "none", "{nothing}");
    assert!(
        nothing["advice"]
            .as_str()
            .is_some_and(|text| text.starts_with("Probably no tool"))
    );
    let body = json!({ "query": "paint my fence", "min_confidence": 1.0, "ranker": false });
    let answer = server.post("/v1/search", &body).await.body;
    assert!(
        answer["no_match"]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("below 1.00")),
        "{answer}"
    );
    let bad = server
        .post(
            "/v1/search",
            &json!({ "query": "x", "min_confidence": 2.0 }),
        )
        .await;
    assert_eq!(bad.status.as_u16(), 422, "{bad:?}");
}
