use serde_json::json;
use toolscout::keys::Scope;

use super::server::{Server, read, tool};
use super::shared_store;

const PATH: &str = "/v1/catalogs/default/feedback";
const RECORDED: &str =
    "SELECT catalog || ' ' || request_id || ' ' || tool || ' ' || outcome FROM feedback";
const RECORDED_IN_STORE: &str =
    "SELECT catalog || ' ' || request_id || ' ' || tool || ' ' || outcome FROM toolscout.feedback";

#[tokio::test]
async fn feedback_is_recorded_for_every_key_that_may_search() {
    let server = Server::with_tools(&[tool("s", "t", "Does a thing.")]).await;
    let key = server.key(Scope::Search, "default");
    let search = server
        .request(reqwest::Method::POST, "/v1/search")
        .bearer_auth(&key);
    let search = read(search.json(&json!({ "query": "thing" }))).await;
    let body = json!({ "feedback_token": search.body["feedback_token"], "tool": "s/t", "outcome": "helpful" });
    let request = server
        .request(reqwest::Method::POST, PATH)
        .bearer_auth(key)
        .json(&body);
    let answer = read(request).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["recorded"]),
        (201, &json!(true)),
        "{answer:?}"
    );
    let data = server.stop().await;
    let row = shared_store::text(data.path(), RECORDED_IN_STORE).unwrap_or_else(|| {
        let kept = rusqlite::Connection::open(data.path().join("feedback.db")).unwrap();
        kept.query_row(RECORDED, [], |row| row.get(0)).unwrap()
    });
    assert_eq!(
        row,
        format!(
            "default {} s/t helpful",
            search.body["request_id"].as_str().unwrap()
        )
    );
}

#[tokio::test]
async fn feedback_about_nothing_is_refused() {
    let server = Server::with_tools(&[tool("s", "t", "")]).await;
    for (body, status, code) in [
        (
            json!({ "feedback_token": "r", "tool": "s/none" }),
            404,
            "unknown_tool",
        ),
        (
            json!({ "feedback_token": "", "tool": "s/t" }),
            422,
            "invalid_value",
        ),
        (
            json!({ "feedback_token": "r", "tool": "s/t", "query": "x".repeat(9000) }),
            422,
            "invalid_value",
        ),
        (json!({ "tool": "s/t" }), 422, "missing_field"),
        (
            json!({ "feedback_token": "r", "tool": "s/t", "outcome": "great" }),
            422,
            "invalid_value",
        ),
    ] {
        let answer = server.post(PATH, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (status, code),
            "{answer:?}"
        );
    }
}
