//! The owner's words of catalogs that several nodes share.

use std::time::Instant;

use serde_json::{Value, json};

use super::node::{Node, PATIENCE, ids, tool};
use super::nodes::Cluster;
use super::postgres::Postgres;

const PATH: &str = "/v1/catalogs/default/words";

fn tools() -> Vec<Value> {
    vec![
        tool("ci", "deploy", "Ships a build."),
        tool("ci", "rollback", "Returns to the build before."),
        tool("hr", "request_vacation", "Asks for days of vacation."),
    ]
}

fn document() -> Value {
    json!({
        "aliases": { "ci/deploy": ["make it live"] },
        "synonyms": { "leave": { "words": ["pto", "vacation"] } },
        "pins": { "p": { "query": "build", "match": "contains", "tool": "hr/request_vacation", "place": 2 } },
        "boosts": { "tools": { "ci/rollback": 5.0 } },
        "descriptions": { "ci/rollback": "Undoes the last release." }
    })
}

fn found(node: &Node, query: &str) -> Vec<String> {
    ids(&node.search("default", &json!({ "query": query })))
}

/// Waits until a search of the node has these first hits.
fn until_first(node: &Node, query: &str, expected: &[&str]) {
    let begun = Instant::now();
    loop {
        let hits = found(node, query);
        if hits.len() >= expected.len() && hits[..expected.len()] == *expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{query}: {hits:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn words_reach_every_node_and_outlive_their_tools() {
    let postgres = Postgres::start();
    let [one, two, three] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let first = Node::start(&postgres, one.path());
    let second = Node::start(&postgres, two.path());
    first.write("default", &tools());
    let put = first.put(PATH, &document());
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(put.body["without_tool"], json!([]));
    let later = Node::start(&postgres, three.path());
    for node in [&first, &second, &later] {
        until_first(node, "make it live", &["ci/deploy"]);
        until_first(node, "pto", &["hr/request_vacation"]);
        until_first(node, "undo a release", &["ci/rollback"]);
        until_first(node, "a build", &["ci/deploy", "hr/request_vacation"]);
        let words = node.until(PATH, |answer| answer.body["words"] == put.body["words"]);
        assert_eq!(words.body["words"]["pins"]["p"]["place"], 2);
    }
    second.delete("/v1/catalogs/default/tools/ci/rollback");
    second.write("default", &[tool("ci", "rollback", "Changed meanwhile.")]);
    for node in [&first, &second, &later] {
        until_first(node, "undo a release", &["ci/rollback"]);
    }
    let patch = second.request(reqwest::Method::PATCH, PATH);
    let patch = patch.json(&json!({ "descriptions": null }));
    assert_eq!(patch.send().unwrap().status(), 200);
    let shown = "/v1/catalogs/default/tools/ci/rollback";
    for node in [&first, &second, &later] {
        node.until(shown, |answer| answer.body["shownDescription"].is_null());
    }
    let refused = first.put(PATH, &json!({ "boosts": { "tags": { "t": 11 } } }));
    assert_eq!(refused.code(), "invalid_words", "{refused:?}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_catalog_that_is_pushed_down_has_its_pins_boosts_synonyms_and_aliases() {
    let cluster = Cluster::new();
    let address = cluster.postgres.address();
    let above = ["--push-down-above", "2"];
    let arguments = [&["--embedder", "table", "--store", &address], &above[..]].concat();
    let node = Node::start_with(cluster.data(0), &arguments);
    node.write("default", &tools());
    node.until("/v1/catalogs/default", |answer| {
        answer.body["pending_embeddings"].is_null()
    });
    let put = node.put(PATH, &document());
    assert_eq!(put.status, 200, "{put:?}");
    until_first(&node, "Make it live!", &["ci/deploy"]);
    until_first(&node, "pto", &["hr/request_vacation"]);
    let hits = found(&node, "a build");
    assert_eq!(hits[1], "hr/request_vacation", "{hits:?}");
    let shown = node.get("/v1/catalogs/default/tools/ci/rollback").body;
    assert_eq!(shown["shownDescription"], "Undoes the last release.");
}
