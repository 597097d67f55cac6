//! The use of tools on all nodes is counted together on any.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, PATIENCE, program, run, tool};
use super::nodes::Cluster;
use super::postgres::{PASSWORD, Postgres};
use super::sessions::{Asked, node as node_with_model};

const USAGE: &str = "/v1/catalogs/default/usage";
const MISSED: &str = "/v1/catalogs/default/usage/missed";

/// A node that keeps the texts of missed requests.
fn node(postgres: &Postgres, data: &Path) -> Node {
    let config = data.join("config.toml");
    std::fs::write(&config, "[usage]\nqueries = true\n").unwrap();
    let config = config.display().to_string();
    let address = postgres.address();
    Node::start_with(
        data,
        &[
            "--embedder",
            "table",
            "--store",
            &address,
            "--config",
            &config,
        ],
    )
}

/// What `usage` prints with the store, in a data directory.
fn printed(postgres: &Postgres, data: &Path, arguments: &[&str]) -> Value {
    let address = postgres.address();
    let all = [&["--json", "usage"], arguments, &["--store", &address]].concat();
    let output = run(data, &all);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
}

/// Asks the database until it answers as wished.
fn until(postgres: &Postgres, sql: &str, wished: &str) {
    let begun = Instant::now();
    loop {
        let answer = postgres.query(sql);
        if answer == wished {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{sql}: {answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn searches(usage: &Value) -> &Value {
    &usage["totals"]["searches"]
}

fn mail() -> [Value; 2] {
    [
        tool("mail", "send", "Sends a message to a person."),
        tool("pager", "call", "Calls a doctor on duty."),
    ]
}

/// Two nodes with the same tools.
fn nodes(cluster: &Cluster) -> [Node; 2] {
    let nodes = [0, 1].map(|number| node(&cluster.postgres, cluster.data(number)));
    let generation = nodes[0].write("default", &mail()).generation();
    nodes[1].until("/v1/catalogs/default", |catalog| {
        catalog.body["generation"] == generation
    });
    nodes
}

fn search(node: &Node, query: &str) {
    let answer = node.search("default", &json!({ "query": query, "k": 1 }));
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn searches_of_all_nodes_are_counted_on_any() {
    let cluster = Cluster::new();
    let [one, two] = nodes(&cluster);
    search(&one, "send a message");
    search(&two, "send a message to a person");
    search(&two, "message");
    for node in [&one, &two] {
        let usage = node.until(USAGE, |usage| *searches(&usage.body) == 3);
        let send = &usage.body["tools"][0];
        assert_eq!(
            (&send["tool"], &send["first"], &send["mean_place"]),
            (&json!("mail/send"), &json!(3), &json!(1.0))
        );
        assert_eq!(usage.body["record"]["nodes"], 2, "{usage:?}");
        assert_eq!(usage.body["record"]["recorded_days"], 1);
        assert!(usage.body["record"].get("only_this_node").is_none());
        let unused = node.get("/v1/catalogs/default/usage/unused");
        assert_eq!(unused.body["tools"][0]["tool"], "pager/call", "{unused:?}");
        assert_eq!(unused.body["total"], 1);
        let overview = node.until("/v1/usage", |all| *searches(&all.body) == 3);
        assert_eq!(overview.body["callers"][0]["searches"], 3);
        assert_eq!(overview.body["total_callers"], 1);
    }
    // The command line counts them too, also from where nothing was recorded.
    let empty = tempfile::tempdir().unwrap();
    for data in [cluster.data(0), empty.path()] {
        let usage = printed(&cluster.postgres, data, &[]);
        assert_eq!((searches(&usage), &usage["nodes"]), (&json!(3), &json!(2)));
        let unused = printed(&cluster.postgres, data, &["unused"]);
        assert_eq!(unused["tools"][0]["tool"], "pager/call", "{unused}");
    }
    let address = cluster.postgres.address();
    let unknown = ["--catalog", "other", "usage", "--store", &address];
    let unknown = run(empty.path(), &unknown);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(error.contains("no catalog \"other\""), "{error}");

    // Rows are replaced and not added, whatever is sent again.
    let sum = "SELECT sum(searches) FROM toolscout.usage_tools";
    assert_eq!(cluster.postgres.query(sum), "3");
    two.kill();
    let two = node(&cluster.postgres, cluster.data(1));
    search(&two, "message");
    until(&cluster.postgres, sum, "4");
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.usage_tools"),
        "2"
    );
    // An older state of the database was put back.
    cluster
        .postgres
        .query("UPDATE toolscout.usage_nodes SET sent = 0");
    cluster.postgres.query("DELETE FROM toolscout.usage_tools");
    until(&cluster.postgres, sum, "4");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn latencies_and_errors_of_calls_on_all_nodes_are_counted_together() {
    let cluster = Cluster::new();
    let call = json!({ "name": "weather__get", "arguments": { "text": "Rome" } });
    let script = [
        json!({ "tool": "weather/get", "result": "rain" }),
        json!({ "reply": { "calls": [call, { "name": "weather__get", "arguments": {} }] } }),
        json!({ "reply": { "text": "Rain." } }),
    ];
    let nodes = [0, 1].map(|number| node_with_model(&cluster, number, &script));
    let weather = json!([{
        "server": "weather",
        "name": "get",
        "description": "Weather of a place.",
        "annotations": { "readOnlyHint": true },
        "inputSchema": {
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"]
        },
    }]);
    let written = nodes[0].post("/v1/catalogs/default/tools", &weather);
    nodes[1].until("/v1/catalogs/default", |catalog| {
        catalog.body["generation"] == written.body["generation"]
    });
    for node in &nodes {
        assert_eq!(Asked::on(node, "Will it rain?", None).status(), "answered");
    }
    for node in &nodes {
        let usage = node.until(USAGE, |usage| usage.body["totals"]["calls"] == 4);
        let get = &usage.body["tools"][0];
        assert_eq!(
            (&get["successes"], &get["errors"]),
            (&json!(2), &json!({ "invalid_arguments": 2 }))
        );
        assert!(get["p50_ms"].as_f64() > Some(0.0), "{get}");
        assert!(get["p95_ms"].as_f64() >= get["p50_ms"].as_f64(), "{get}");
        assert!(get["result_tokens"].as_u64() > Some(0), "{get}");
    }
    let counts = "SELECT sum(total) FROM toolscout.usage_tools,
        LATERAL (SELECT sum(count) AS total FROM unnest(latencies) AS count) AS counted";
    assert_eq!(cluster.postgres.query(counts), "2");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn texts_of_missed_requests_are_those_of_all_nodes_until_one_deletes_them() {
    let cluster = Cluster::new();
    let [one, two] = nodes(&cluster);
    let request = "water the plants in my flat in Lisbon on Tuesday";
    search(&one, request);
    search(&two, request);
    for node in [&one, &two] {
        let missed = node.until(MISSED, |missed| missed.body["requests"] == 2);
        assert_eq!(missed.body["groups"][0]["times"], 2, "{missed:?}");
    }
    let printed = printed(&cluster.postgres, cluster.data(1), &["missed"]);
    assert_eq!(printed["requests"], 2, "{printed}");
    let texts = "SELECT count(*) FROM toolscout.usage_missed";
    assert_eq!(cluster.postgres.query(texts), "2");
    assert_eq!(two.delete(MISSED).body["forgotten"], 2);
    one.until(MISSED, |missed| missed.body["requests"] == 0);
    assert_eq!(two.get(MISSED).body["requests"], 0);
    assert_eq!(cluster.postgres.query(texts), "0");

    // A node whose settings do not allow texts sends none, not even those that it has.
    search(&one, request);
    until(&cluster.postgres, texts, "1");
    one.kill();
    cluster
        .postgres
        .query("UPDATE toolscout.usage_nodes SET sent = 0");
    cluster.postgres.query("DELETE FROM toolscout.usage_missed");
    let one = Node::start(&cluster.postgres, cluster.data(0));
    search(&one, "send a message");
    two.until(USAGE, |usage| usage.body["tools"][0]["searches"] == 1);
    assert_eq!(cluster.postgres.query(texts), "0");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn what_is_recorded_without_the_store_is_sent_when_it_is_back() {
    let mut cluster = Cluster::new();
    let [one, two] = nodes(&cluster);
    search(&two, "send a message");
    one.until(USAGE, |usage| *searches(&usage.body) == 1);
    cluster.postgres.stop();
    search(&one, "send a message");
    let usage = one.until(USAGE, |usage| {
        usage.body["record"]["only_this_node"].is_string()
    });
    // A small record stands for itself, with what it says and what it does not.
    assert_eq!(*searches(&usage.body), 1, "{usage:?}");
    assert!(usage.body["record"].get("nodes").is_none());
    let refused = one.delete(MISSED);
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    one.kill();
    let usage = program(cluster.data(0), &["--json", "usage", "--store"])
        .arg(cluster.postgres.address())
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&usage.stderr);
    assert!(
        error.contains("only the record of this data directory"),
        "{error}"
    );
    let usage: Value = serde_json::from_slice(&usage.stdout).unwrap();
    assert_eq!(*searches(&usage), 1, "{usage}");
    cluster.postgres.run();
    let one = node(&cluster.postgres, cluster.data(0));
    for node in [&one, &two] {
        let usage = node.until(USAGE, |usage| *searches(&usage.body) == 2);
        assert!(usage.body["record"].get("only_this_node").is_none());
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn old_days_and_deleted_catalogs_are_removed() {
    let cluster = Cluster::new();
    let [one, two] = [0, 1].map(|number| node(&cluster.postgres, cluster.data(number)));
    let search = |node: &Node| {
        let answer = node.search("team", &json!({ "query": "send a message", "k": 1 }));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    assert_eq!(one.put("/v1/catalogs/team", &json!({})).status, 201);
    let generation = one.write("team", &mail()).generation();
    two.until("/v1/catalogs/team", |catalog| {
        catalog.body["generation"] == generation
    });
    for node in [&one, &two] {
        search(node);
    }
    let rows = "SELECT count(*) FROM toolscout.usage_tools";
    until(&cluster.postgres, rows, "2");
    // Of a node that is gone for good.
    cluster.postgres.query(
        "INSERT INTO toolscout.usage_tools SELECT catalog, day - 90, tool, node + 100, searches, first, places, more,
             injections, calls, successes, errors, latencies, latency_sum_s, definition_tokens, result_tokens,
             first_ms, last_ms
         FROM toolscout.usage_tools",
    );
    assert_eq!(cluster.postgres.query(rows), "4");
    one.kill();
    let one = node(&cluster.postgres, cluster.data(0));
    until(&cluster.postgres, rows, "2");

    assert_eq!(one.delete("/v1/catalogs/team").status, 204);
    assert_eq!(one.put("/v1/catalogs/team", &json!({})).status, 201);
    one.write("team", &mail());
    until(&cluster.postgres, rows, "0");
    search(&one);
    for node in [&one, &two] {
        node.until("/v1/catalogs/team/usage", |usage| {
            *searches(&usage.body) == 1
        });
    }
    let gone = "SELECT count(*) FROM toolscout.usage_gone";
    until(&cluster.postgres, gone, "0");
}
