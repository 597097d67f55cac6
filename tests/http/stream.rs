use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::server::{PATIENCE, Server, stored_ids, tool};

const PATH: &str = "/v1/catalogs/default/tools";

async fn send(server: &Server, body: impl Into<Body>) -> Response {
    let request = server
        .request(Method::POST, PATH)
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(body);
    request.send().await.expect("an answer")
}

async fn lines(response: Response) -> Vec<Value> {
    let text = response.text().await.expect("a whole stream");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test]
async fn every_line_has_a_result_and_the_last_line_is_a_summary() {
    let server = Server::start().await;
    let body = [
        tool("s", "a", "First.").to_string(),
        String::new(),
        "{ not json".into(),
        json!({ "description": "nameless" }).to_string(),
        tool("s", "b", "Second, without a line end.").to_string(),
    ];
    let lines = lines(send(&server, body.join("\n")).await).await;
    let summary = lines.last().unwrap();
    assert_eq!(summary["done"], true, "{lines:?}");
    assert_eq!(
        (&summary["result"]["added"], &summary["result"]["failed"]),
        (&json!(2), &json!(2))
    );
    let status = |line: u64| {
        lines
            .iter()
            .find(|result| result["item"] == line)
            .map(|result| &result["status"])
    };
    assert_eq!(status(1).unwrap(), "added");
    assert_eq!(status(3).unwrap(), "failed");
    assert_eq!(status(4).unwrap(), "failed");
    assert_eq!(status(5).unwrap(), "added");
}

#[tokio::test]
async fn results_come_while_the_body_is_still_open() {
    let server = Server::start().await;
    let (sender, receiver) = mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let body = Body::wrap_stream(futures_util::stream::unfold(
        receiver,
        |mut receiver| async { Some((receiver.recv().await?, receiver)) },
    ));
    let line = |name: &str| Ok(format!("{}\n", tool("s", name, "")).into_bytes());
    sender.send(line("a")).await.unwrap();
    let mut response = send(&server, body).await;
    let mut next = async || {
        let chunk = tokio::time::timeout(PATIENCE, response.chunk())
            .await
            .expect("in time")
            .expect("no error")?;
        Some(serde_json::from_slice::<Value>(&chunk).expect("one whole line"))
    };
    assert_eq!(next().await.unwrap()["id"], "s/a");
    assert_eq!(server.get(&format!("{PATH}/s/a")).await.status, 200);
    sender.send(line("b")).await.unwrap();
    assert_eq!(next().await.unwrap()["id"], "s/b");
    drop(sender);
    assert_eq!(next().await.unwrap()["done"], true);
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_is_served() {
    let server = Server::start().await;
    let body: String = (0..5000)
        .map(|n| format!("{}\n", tool("s", &format!("t{n}"), "")))
        .collect();
    let lines = lines(send(&server, body).await).await;
    assert_eq!(lines.len(), 5001);
    assert_eq!(
        server.get(&format!("{PATH}?limit=1")).await.body["total"],
        5000
    );
}

#[tokio::test]
async fn a_shutdown_ends_the_stream_with_a_last_line() {
    let server = Server::start().await;
    let (sender, receiver) = mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let body = Body::wrap_stream(futures_util::stream::unfold(
        receiver,
        |mut receiver| async { Some((receiver.recv().await?, receiver)) },
    ));
    sender
        .send(Ok(format!("{}\n", tool("s", "a", "")).into_bytes()))
        .await
        .unwrap();
    let mut response = send(&server, body).await;
    let first = response.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("s/a"));
    let dir = server.stop().await;
    let last = lines(response).await;
    assert_eq!(
        (&last[0]["done"], &last[0]["error"]["code"]),
        (&json!(false), &json!("shutting_down")),
        "{last:?}"
    );
    assert_eq!(stored_ids(dir.path()).len(), 1);
}
