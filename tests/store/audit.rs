//! The audit logs of all nodes are listed and verified on any.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::node::{Answer, Node};
use super::nodes::Cluster;
use super::sessions::{Asked, node};

/// A node whose model looks the weather up and answers, for two questions.
fn looking_up(cluster: &Cluster, number: usize) -> Node {
    let call =
        json!({ "name": "weather__get", "arguments": { "text": format!("of node {number}") } });
    let look_up = json!({ "reply": { "calls": [call] } });
    let answer = json!({ "reply": { "text": "Rain." } });
    let result = json!({ "tool": "weather/get", "result": "rain" });
    node(
        cluster,
        number,
        &[result, look_up.clone(), answer.clone(), look_up, answer],
    )
}

/// All entries, page by page.
fn entries(node: &Node) -> Vec<Value> {
    let (mut entries, mut path) = (Vec::new(), "/v1/audit?limit=1".to_owned());
    loop {
        let page = node.get(&path);
        assert_eq!(page.status, 200, "{page:?}");
        entries.extend(page.body["entries"].as_array().unwrap().iter().cloned());
        let Some(cursor) = page.body["next_cursor"].as_str() else {
            assert_eq!(page.body["total"], entries.len());
            return entries;
        };
        path = format!("/v1/audit?limit=1&cursor={cursor}");
    }
}

fn check(node: &Node) -> Answer {
    let checked = node.post("/v1/audit/check", &json!({}));
    match checked.status {
        202 => node.until("/v1/audit/check", |check| check.body["status"] != "running"),
        _ => checked,
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_audit_logs_of_all_nodes_are_listed_and_verified_on_any() {
    let cluster = Cluster::new();
    let nodes = [0, 1].map(|number| looking_up(&cluster, number));
    let weather = json!([{
        "server": "weather",
        "name": "get",
        "description": "Weather of a place.",
        "annotations": { "readOnlyHint": true },
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
    }]);
    let written = nodes[0].post("/v1/catalogs/default/tools", &weather);
    nodes[1].until("/v1/catalogs/default", |catalog| {
        catalog.body["generation"] == written.body["generation"]
    });
    assert_eq!(check(&nodes[0]).body["status"], "verified");
    for node in [&nodes[0], &nodes[1], &nodes[0]] {
        assert_eq!(Asked::on(node, "Will it rain?", None).status(), "answered");
    }
    // The end of a call is copied within a second.
    for node in &nodes {
        node.until("/v1/audit", |log| log.body["total"] == 6);
    }
    let [one, two] = nodes.each_ref().map(entries);
    assert_eq!((one.len(), &one), (6, &two));
    let of = |wanted: &str| {
        let given = one.iter().filter(|entry| entry["given"]["text"] == wanted);
        given.count()
    };
    assert_eq!((of("of node 0"), of("of node 1")), (2, 1));
    assert!(
        one.iter()
            .all(|entry| entry["node"].is_string() && entry["hash"].as_str().unwrap().len() == 64)
    );
    let begun = nodes[1].get("/v1/audit?event=begun&tool=weather/get");
    assert_eq!(begun.body["entries"].as_array().unwrap().len(), 3);
    for (part, count) in [("THER/g", 3), ("%", 0)] {
        let found = nodes[1].get(&format!(
            "/v1/audit?event=begun&name={}",
            part.replace('%', "%25")
        ));
        assert_eq!(
            found.body["entries"].as_array().unwrap().len(),
            count,
            "{part}"
        );
    }

    let checked = check(&nodes[1]);
    let logs = checked.body["nodes"]
        .as_array()
        .unwrap_or_else(|| panic!("{checked:?}"));
    let counts: BTreeSet<u64> = logs
        .iter()
        .map(|log| log["entries"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (&checked.body["status"], counts),
        (&json!("verified"), [2, 4].into())
    );
    let head = logs[0]["head"].as_str().unwrap();
    let found = nodes[0].post(&format!("/v1/audit/check?head={head}"), &json!({}));
    assert_eq!(found.body["status"], "verified", "{found:?}");

    let fails = |sql: &str, code: &str| {
        cluster.postgres.query(sql);
        let failed = check(&nodes[0]);
        assert_eq!(
            (&failed.body["status"], &failed.body["error"]["code"]),
            (&json!("failed"), &json!(code))
        );
    };
    let longest =
        "chain = (SELECT chain FROM toolscout.audit_chains ORDER BY entries DESC LIMIT 1)";
    fails(
        &format!("DELETE FROM toolscout.audit WHERE {longest} AND seq = 4"),
        "audit_log_cut_off",
    );
    fails(
        &format!(
            "UPDATE toolscout.audit SET entry = replace(entry, 'node 0', 'node 1') WHERE {longest}"
        ),
        "audit_log_changed",
    );
}
