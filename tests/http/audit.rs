use reqwest::Method;
use serde_json::{Value, json};
use toolscout::gate::audit::{AuditLog, Entry, FILE_NAME};
use toolscout::tools::Status;

use super::server::{Answer, Server, read};

/// Adds the ends of calls to the log of a server, one a millisecond.
fn log(server: &Server, tool: &str, times: std::ops::Range<u64>) {
    let log = AuditLog::open(&server.dir.path().join(FILE_NAME)).unwrap();
    for time_ms in times {
        let entry = Entry::Ended {
            time_ms,
            begun: 1,
            tool: tool.into(),
            status: Status::Ok,
            error_code: None,
            took_ms: 1,
        };
        log.append(&entry).unwrap();
    }
}

fn numbers(answer: &Answer) -> Vec<i64> {
    let entries = answer.body["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| entry["seq"].as_i64().unwrap())
        .collect()
}

async fn check(server: &Server, query: &str) -> Answer {
    let path = format!("/v1/audit/check{query}");
    read(server.request(Method::POST, &path)).await
}

#[tokio::test]
async fn entries_are_paged_from_the_newest_and_filtered() {
    let server = Server::start().await;
    let empty = server.get("/v1/audit").await;
    assert_eq!(empty.body, json!({ "entries": [], "total": 0 }));
    log(&server, "s/a", 0..5);
    log(&server, "s/b", 5..8);
    let page = server.get("/v1/audit?limit=5").await;
    assert_eq!(numbers(&page), [8, 7, 6, 5, 4]);
    assert_eq!(page.body["total"], 8);
    let newest = &page.body["entries"][0];
    assert_eq!(
        (&newest["event"], &newest["tool"], &newest["time_ms"]),
        (&json!("ended"), &json!("s/b"), &json!(7))
    );
    assert_eq!(newest["hash"].as_str().unwrap().len(), 64);
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let next = server
        .get(&format!("/v1/audit?limit=5&cursor={cursor}"))
        .await;
    assert_eq!(numbers(&next), [3, 2, 1]);
    assert!(next.body.get("next_cursor").is_none());
    for (query, expected) in [
        ("tool=s/b", vec![8, 7, 6]),
        ("tool=s/b&since_ms=6", vec![8, 7]),
        ("name=S/B&since_ms=6", vec![8, 7]),
        ("name=none", vec![]),
        ("event=ended&since_ms=7", vec![8]),
        ("decision=deny", vec![]),
        ("tool=none", vec![]),
    ] {
        let answer = server.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(numbers(&answer), expected, "{query}");
    }
    for (query, code) in [
        ("limit=0", "invalid_value"),
        ("cursor=x", "invalid_cursor"),
        ("decision=maybe", "invalid_value"),
        ("since_ms=-1", "invalid_value"),
        ("who=me", "unknown_field"),
    ] {
        let answer = server.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(answer.error_code(), code, "{query}: {answer:?}");
    }
}

#[tokio::test]
async fn the_chain_is_verified_and_the_result_kept() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/v1/audit/check").await.body,
        json!({ "status": "never" })
    );
    log(&server, "s/a", 0..5);
    let verified = check(&server, "").await;
    assert_eq!(verified.status, 200, "{verified:?}");
    assert_eq!(
        (&verified.body["status"], &verified.body["entries"]),
        (&json!("verified"), &json!(5))
    );
    let kept = server.get("/v1/audit/check").await;
    assert_eq!(kept.body, verified.body);
    let head = verified.body["head"].as_str().unwrap();
    let again = check(&server, &format!("?head={head}")).await;
    assert_eq!(again.body["status"], "verified");
    let other = check(&server, &format!("?head={}", "0".repeat(64))).await;
    assert_eq!(other.body["error"]["code"], "audit_log_cut_off");
    assert_eq!(
        check(&server, "?head=3f2a").await.error_code(),
        "invalid_value"
    );
}

#[tokio::test]
async fn a_changed_log_is_told_without_the_paths_of_the_server() {
    let server = Server::start().await;
    log(&server, "s/a", 0..5);
    let path = server.dir.path().join(FILE_NAME);
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute_batch(
            "DROP TRIGGER entries_are_not_changed; UPDATE entries SET entry = 'not json' WHERE seq = 3",
        )
        .unwrap();
    let failed = check(&server, "").await;
    assert_eq!(failed.body["status"], "failed", "{failed:?}");
    let error = &failed.body["error"];
    assert_eq!(error["code"], "audit_log_changed");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("entry 3 of the audit log audit.db"),
        "{message}"
    );
    // What cannot be read is listed all the same.
    let page = server.get("/v1/audit").await;
    assert_eq!(numbers(&page), [5, 4, 3, 2, 1]);
    assert_eq!(page.body["entries"][2].get("event"), None::<&Value>);
}
