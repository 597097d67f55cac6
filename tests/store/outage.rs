//! The store goes away, and comes back.

use std::time::{Duration, Instant};

use serde_json::json;

use super::node::{Node, PATIENCE, ids, program, tool};
use super::postgres::{PASSWORD, Postgres};

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn searches_go_on_without_the_store_and_writes_wait_for_it() {
    let mut postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, folder.path());
    let mail = tool("mail", "send", "Sends a message.");
    node.write("default", std::slice::from_ref(&mail));
    let request = json!({ "query": "send a message" });

    postgres.stop();
    let begun = Instant::now();
    loop {
        let answer = node.search("default", &request);
        assert_eq!(
            (answer.status, ids(&answer)),
            (200, vec!["mail/send".to_owned()])
        );
        if answer.body["degraded"]["code"] == "store_unreachable" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("degraded after {:.1?}", begun.elapsed());
    let readiness = node.get("/readyz");
    assert_eq!(
        (readiness.status, &readiness.body["store"]),
        (200, &json!("away"))
    );
    let tools = json!([tool("mail", "read", "Reads messages.")]);
    for refused in [
        node.post("/v1/catalogs/default/tools", &tools),
        node.put("/v1/catalogs/new", &json!({})),
        node.delete("/v1/catalogs/default"),
    ] {
        assert_eq!(
            (refused.status, refused.code()),
            (503, "store_unavailable"),
            "{refused:?}"
        );
        assert!(refused.retry_after);
    }
    let answer = node.search("default", &request);
    assert_eq!(
        ids(&answer),
        ["mail/send"],
        "a deletion that failed deleted nothing"
    );

    // A node that starts meanwhile serves what it has.
    node.kill();
    let node = Node::start(&postgres, folder.path());
    assert_eq!(ids(&node.search("default", &request)), ["mail/send"]);

    postgres.run();
    let begun = Instant::now();
    loop {
        let answer = node.post("/v1/catalogs/default/tools", &tools);
        if answer.status == 200 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("writes again after {:.1?}", begun.elapsed());
    let readiness = node.until("/readyz", |answer| answer.body["store"].is_null());
    assert_eq!(readiness.status, 200);
    let answer = node.search("default", &json!({ "query": "read messages" }));
    assert!(ids(&answer).contains(&"mail/read".to_owned()), "{answer:?}");
    assert!(answer.body["degraded"].is_null(), "{answer:?}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_store_that_only_reads_refuses_writes_and_serves_searches() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, folder.path());
    node.write("default", &[tool("mail", "send", "Sends a message.")]);
    node.kill();
    postgres.query("ALTER DATABASE tools SET default_transaction_read_only = on");
    let node = Node::start(&postgres, folder.path());
    let refused = node.post(
        "/v1/catalogs/default/tools",
        &json!([tool("mail", "read", "Reads messages.")]),
    );
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    let answer = node.search("default", &json!({ "query": "send a message" }));
    assert_eq!(ids(&answer), ["mail/send"]);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_node_needs_the_store_once() {
    let mut postgres = Postgres::start();
    postgres.stop();
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), &["serve", "--listen", "127.0.0.1:0"])
        .args(["--store", &postgres.address(), "--embedder", "none"])
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("cannot be used now"), "{error}");
}
