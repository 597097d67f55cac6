//! `mcp install`: what a client's settings hold afterwards.

use serde_json::{Value, json};

use super::run::{World, text};

fn entry(world: &World, args: &[&str]) -> Value {
    let printed: Value = serde_json::from_str(&world.ok(args)).expect("JSON");
    printed["mcpServers"]["toolscout"].clone()
}

#[test]
fn flags_and_variables_of_this_run_are_kept() {
    let world = World::new();
    let servers = world.file("servers.json", r#"{"mcpServers":{"a":{"command":"x"}}}"#);
    let config = world.file("c.toml", "");
    let args = [
        "--catalog",
        "work",
        "--data",
        "other",
        "--config",
        "c.toml",
        "mcp",
        "install",
        "--client",
        "cursor",
        "--dry-run",
        "--",
        "--mcp=servers.json",
    ];
    let entry = entry(&world, &args);
    let other = world.path("other");
    // macOS keeps temporary folders behind a symbolic link, so only ends of paths are compared.
    let words: Vec<&str> = entry["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .map(|word| word.as_str().expect("a text"))
        .collect();
    assert_eq!(
        (words[0], words[2], words[3], words[4], words[6]),
        ("--data", "--catalog", "work", "--config", "mcp")
    );
    for (word, path) in [
        (words[1], &other),
        (words[5], &config),
        (words[7], &servers),
    ] {
        let path = path.strip_prefix(world.dir.path()).expect("inside");
        assert!(word.ends_with(text(path)), "{word}");
        assert!(word.contains("/"), "{word}");
    }
    assert_eq!(entry["env"]["TOOLSCOUT_EMBEDDER"], json!("none"));
    assert_eq!(
        entry["env"]["TOOLSCOUT_CACHE"],
        json!(text(&world.path("cache")))
    );
    assert!(entry["env"].get("HOME").is_none(), "{entry}");
}

#[test]
fn invalid_arguments_of_the_server_are_refused() {
    let world = World::new();
    let install = ["mcp", "install", "--client", "cursor", "--"];
    for (args, code, expected) in [
        (
            &["--bogus"][..],
            2,
            "arguments after --: unexpected argument '--bogus'",
        ),
        (&["--mcp", "nowhere.json"], 1, "nowhere.json"),
    ] {
        world.fails(code, &[&install[..], args].concat(), &[expected]);
    }
    assert!(!world.path(".cursor").exists());
}

#[test]
fn an_entry_to_add_by_hand_keeps_its_lines() {
    let world = World::new();
    world.file(".cursor/mcp.json", "[1]");
    let ended = world.run(&["mcp", "install", "--client", "cursor"]);
    ended.failed(1, &["not a JSON object", "add this by hand:"]);
    let entry = ended.stderr.split_once("by hand:").expect("an entry").1;
    let entry: Value = serde_json::from_str(entry).expect("JSON");
    assert_eq!(entry["mcpServers"]["toolscout"]["args"], json!(["mcp"]));
}
