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
fn entries_are_used_listed_exported_and_forgotten() {
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
fn an_exported_memory_is_imported_and_an_entry_counts_once() {
    let world = world();
    world.ok(&["memory", "on"]);
    world.ok(&["memory", "add", "--embedder", "table", "s/q7", REQUEST]);
    let exported = world.ok(&["memory", "export"]);
    let gone = r#"{"query":"x","tool":"s/gone","times":1,"at_ms":1,"taught_by":["cli"]}"#;
    let file = world.file("memory.jsonl", format!("{exported}{gone}\n"));
    world.ok(&["memory", "forget", "--all"]);
    let file = file.to_str().expect("UTF-8");
    let import = ["memory", "import", "--embedder", "table", file];
    let first_import = world.json(&import);
    assert_eq!(
        first_import,
        json!({ "imported": 1, "known": 0, "unknown_tool": 1 })
    );
    assert_eq!(world.json(&import)["imported"], 0);
    assert_eq!(world.ok(&["memory", "export"]), exported);
    assert_eq!(first(&world), "q7");
    let bad = world.file("bad.jsonl", "{}");
    world.fails(
        1,
        &["memory", "import", bad.to_str().expect("UTF-8")],
        &["bad.jsonl:1", "missing field"],
    );
}

#[test]
fn unknown_tools_and_missing_arguments_are_errors() {
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
