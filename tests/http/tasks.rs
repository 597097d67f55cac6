use reqwest::Method;
use serde_json::{Value, json};

use super::server::{Answer, Server, read, stored_ids, tool};

fn numbered(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| tool("s", &format!("t{n:05}"), &format!("Does thing number {n}.")))
        .collect()
}

fn location(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.headers["location"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_large_load_becomes_a_task_that_tells_its_result() {
    let server = Server::start().await;
    let mut tools = numbered(1200);
    tools.push(json!({ "description": "nameless" }));
    let task = location(
        &server
            .post("/v1/catalogs/default/tools", &json!(tools))
            .await,
    );
    let ended = server
        .wait_for(&task, |task| task["status"] != "running")
        .await;
    assert_eq!(
        (&ended["status"], &ended["done"], &ended["total"]),
        (&json!("succeeded"), &json!(1200), &json!(1200))
    );
    assert_eq!(
        (&ended["result"]["added"], &ended["result"]["failed"]),
        (&json!(1200), &json!(1))
    );
    assert_eq!(ended["failures"][0]["item"], 1201);
    assert_eq!(server.get("/v1/catalogs/default").await.body["tools"], 1200);
}

#[tokio::test]
async fn a_sync_may_be_a_task_too() {
    let server = Server::with_tools(&numbered(5)).await;
    let request = server
        .request(Method::PUT, "/v1/catalogs/default/servers/s/tools")
        .header("Prefer", "respond-async");
    let task = location(&read(request.json(&json!(numbered(2)))).await);
    let ended = server
        .wait_for(&task, |task| task["status"] != "running")
        .await;
    assert_eq!(
        (&ended["result"]["removed"], &ended["result"]["unchanged"]),
        (&json!(3), &json!(2)),
        "{ended}"
    );
}

#[tokio::test]
async fn a_cancelled_task_keeps_what_it_committed() {
    let server = Server::start().await;
    let task = location(
        &server
            .post("/v1/catalogs/default/tools", &json!(numbered(5000)))
            .await,
    );
    assert_eq!(server.delete(&task).await.status, 202);
    let ended = server
        .wait_for(&task, |task| task["status"] != "running")
        .await;
    let there = server.get("/v1/catalogs/default").await.body["tools"].clone();
    assert_eq!(
        (&ended["done"], &ended["result"]["added"]),
        (&there, &there),
        "{ended}"
    );
    let cancelled = ended["status"] == "cancelled";
    assert_eq!(cancelled, there.as_u64().unwrap() < 5000, "{ended}");
}

#[tokio::test]
async fn a_task_is_finished_before_the_server_ends() {
    let server = Server::start().await;
    location(
        &server
            .post("/v1/catalogs/default/tools", &json!(numbered(3000)))
            .await,
    );
    let dir = server.stop().await;
    assert_eq!(stored_ids(dir.path()).len(), 3000);
}
