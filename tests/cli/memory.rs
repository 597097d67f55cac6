use serde_json::{Value, json};

use super::run::World;

const REQUEST: &str = "show me the open tickets of the support queue";

fn world() -> World {
    World::with_tools(&[
        json!({"server": "s", "name": "list_tickets", "description": "Lists tickets of a queue."}),
        json!({"server": "s", "name": "q7", "description": "Internal."}),
    ])
}

fn first(world: &World) -> Value {
    world.json(&["search", "--embedder", "table", REQUEST])["hits"][0]["name"].clone()
}

#[test]
fn what_is_remembered_is_found_listed_exported_and_forgotten() {
    let world = world();
    let off = world.run(&["memory", "add", "--embedder", "table", "s/q7", REQUEST]);
    assert!(
        off.code == 1 && off.stderr.contains("toolscout memory on"),
        "{}",
        off.stderr
    );
    world.ok(&["memory", "on"]);
    world.ok(&["memory", "add", "--embedder", "table", "s/q7", REQUEST]);
    assert_eq!(first(&world), "q7");
    let listed = world.json(&["memory", "list"]);
    assert_eq!(
        (&listed["memory"], &listed["entries"][0]["query"]),
        (&json!("on"), &json!(REQUEST))
    );
    let exported = world.ok(&["memory", "export"]);
    assert_eq!(
        serde_json::from_str::<Value>(exported.trim()).unwrap()["tool"],
        "s/q7"
    );
    assert_eq!(world.json(&["memory", "forget", "--all"])["forgotten"], 1);
    assert_eq!(first(&world), "list_tickets");
}

#[test]
fn what_cannot_be_remembered_or_forgotten_is_named() {
    let world = world();
    world.ok(&["memory", "on"]);
    let unknown = world.run(&["memory", "add", "s/none", "x"]);
    assert!(
        unknown.code == 1 && unknown.stderr.contains("s/none"),
        "{}",
        unknown.stderr
    );
    assert_eq!(world.run(&["memory", "forget"]).code, 2);
}
