//! Items of several kinds in catalogs that the database searches.

use serde_json::{Value, json};

use super::node::{Node, ids};
use super::nodes::Cluster;
use super::push_down::{generated, pushing_above, single, until, until_pushed, write_all};

/// Tools, and prompts and skills that say the same.
fn mixed() -> Vec<Value> {
    let mut items = generated(900);
    for (number, item) in items.iter_mut().enumerate() {
        let kind = match number % 3 {
            0 => continue,
            1 => "prompt",
            _ => "skill",
        };
        let name = format!("{kind}:{}", item["name"].as_str().unwrap());
        item["kind"] = kind.into();
        item["name"] = name.into();
    }
    items
}

fn kinds_of(node: &Node, kinds: &Value) -> Vec<String> {
    let body =
        json!({ "query": "archive the signed contract", "k": 20, "filter": { "kinds": kinds } });
    ids(&node.search("default", &body))
}

fn are_of(ids: &[String], kinds: &[&str]) -> bool {
    ids.iter().all(|id| match id.split_once(':') {
        Some((before, _)) => kinds.iter().any(|kind| before.ends_with(kind)),
        None => kinds.contains(&"tool"),
    })
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_database_filters_by_kind() {
    let cluster = Cluster::new();
    let items = mixed();
    let (alone, _folder) = single(&items);
    let node = pushing_above(&cluster, 0, 350, 0);
    write_all(&node, "default", &items);
    until_pushed(&node, "default");
    for kinds in [
        json!([]),
        json!(["tool"]),
        json!(["prompt"]),
        json!(["skill", "prompt"]),
        json!(["agent"]),
    ] {
        let (here, there) = (kinds_of(&node, &kinds), kinds_of(&alone, &kinds));
        let named: Vec<&str> = kinds
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let wanted = if named.is_empty() {
            vec!["tool"]
        } else {
            named
        };
        assert!(are_of(&here, &wanted), "{kinds}: {here:?}");
        assert_eq!(here.len(), there.len(), "{kinds}");
        let common = there.iter().filter(|id| here.contains(id)).count();
        assert!(
            common * 10 >= there.len() * 9,
            "{kinds}: {here:?} {there:?}"
        );
    }
    for query in [
        "limit=1000",
        "limit=1000&kind=skill",
        "limit=10&kind=skill,tool",
    ] {
        let path = format!("/v1/catalogs/default/tools?{query}");
        let (here, there) = (node.get(&path), alone.get(&path));
        assert_eq!(here.body["tools"], there.body["tools"], "{query}");
    }
    let path = "/v1/catalogs/default";
    let (here, there) = (node.get(path), alone.get(path));
    for counted in ["tools", "servers"] {
        assert_eq!(here.body[counted], there.body[counted], "{counted}");
    }
    for kinds in ["tool", "skill", "skill,tool"] {
        let path = format!("{path}/tools?limit=1&kind={kinds}");
        let (here, there) = (node.get(&path), alone.get(&path));
        assert_eq!(here.body["total"], there.body["total"], "{kinds}");
    }
    let others = "SELECT others FROM toolscout.pushed_catalogs";
    assert_eq!(cluster.postgres.query(others), "600");
    let removed = node.delete("/v1/catalogs/default/tools?tag=weekly");
    assert_eq!(removed.status, 200, "{removed:?}");
    let counted = "SELECT count(*) FROM toolscout.pushed_tools_1 WHERE kind <> 'tool'";
    until("the counts", || {
        cluster.postgres.query(others) == cluster.postgres.query(counted)
    });
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_catalog_that_was_pushed_down_before_there_were_kinds_has_tools_alone() {
    let cluster = Cluster::new();
    let tools = generated(300);
    let node = pushing_above(&cluster, 0, 100, 0);
    write_all(&node, "default", &tools);
    until_pushed(&node, "default");
    let before = kinds_of(&node, &json!([]));
    node.kill();
    // As an earlier version left it.
    for sql in [
        "ALTER TABLE toolscout.pushed_tools_1 DROP COLUMN kind",
        "ALTER TABLE toolscout.pushed_catalogs DROP COLUMN others",
        "DROP TABLE toolscout.usage_nodes, toolscout.usage_tools, toolscout.usage_callers, toolscout.usage_shadows, \
         toolscout.usage_missed, toolscout.usage_forgotten, toolscout.usage_gone, toolscout.improvements CASCADE",
        "ALTER TABLE toolscout.keys DROP COLUMN name, DROP COLUMN last_used_at",
        "DELETE FROM toolscout.migrations WHERE version >= 10",
    ] {
        cluster.postgres.query(sql);
    }
    let node = pushing_above(&cluster, 0, 100, 0);
    until_pushed(&node, "default");
    assert_eq!(kinds_of(&node, &json!([])), before);
    assert!(kinds_of(&node, &json!(["skill"])).is_empty());
    let skill = json!({
        "kind": "skill", "name": "skill:archive", "description": "How to archive the signed contract.",
        "tags": [],
    });
    node.write("default", &[skill]);
    assert_eq!(kinds_of(&node, &json!(["skill"])), ["skill:archive"]);
}
