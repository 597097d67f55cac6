//! `add` and `sync`: good input, and every kind of bad input.

use serde_json::json;

use super::run::{World, four_tools, says, text, tool};

#[test]
fn added_changed_and_unchanged_are_counted() {
    let world = World::with_tools(&four_tools());
    let mut tools = four_tools();
    tools[0]["description"] = json!("Opens an issue.");
    tools.push(tool("mail", "archive", "Archives a message."));
    let file = world.file("more.json", json!(tools).to_string());
    let report = world.json(&["add", text(&file)]);
    assert_eq!(report["added"], json!(["mail/archive"]));
    assert_eq!(report["changed"], json!(["github/create_issue"]));
    assert_eq!(report["unchanged"], 3);
    assert_eq!(report["skipped"], json!([]));
    assert!(report["took_ms"]["store"].is_f64());
    assert_eq!(world.ids().len(), 5);
}

#[test]
fn stdin_is_read_and_a_server_can_be_given() {
    let world = World::new();
    let ended = world.run_with(
        &["add", "-", "--server", "mine"],
        br#"[{"name":"ping","inputSchema":{"type":"object"}}]"#,
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(world.ids(), ["mine/ping"]);
}

#[test]
fn files_of_a_folder_stand_for_servers() {
    let world = World::new();
    world.file(
        "tools/clock.json",
        r#"[{"name":"now","inputSchema":{"type":"object"}}]"#,
    );
    world.file(
        "tools/maps.jsonl",
        "{\"name\":\"route\",\"inputSchema\":{\"type\":\"object\"}}\n",
    );
    world.file("tools/README.md", "no tools");
    world.ok(&["add", "tools"]);
    assert_eq!(world.ids(), ["clock/now", "maps/route"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    let report = world.json(&["add", text(&file), "--dry-run"]);
    assert_eq!(
        (report["added"].as_array().map(Vec::len), &report["dry_run"]),
        (Some(4), &json!(true))
    );
    assert!(!world.path("data").exists());

    world.ok(&["add", text(&file)]);
    let other = world.file("u.json", json!([tool("s", "t", "x")]).to_string());
    assert_eq!(
        world.json(&["add", text(&other), "--dry-run"])["added"],
        json!(["s/t"])
    );
    assert_eq!(world.ids().len(), 4);
}

#[test]
fn malformed_input_is_reported_with_file_line_and_column() {
    let world = World::with_tools(&four_tools());
    for (name, content, expected) in [
        ("a.json", "[\n  {\"name\": }\n]", "a.json:2:12"),
        ("b.yaml", "openapi: 3.0.0\npaths: [\n", "b.yaml:"),
        ("c.json", "", "c.json: the input is empty"),
        ("d.json", "[]", "d.json: there are no tools in it"),
        ("e.json", "{\"hello\": 1}", "e.json"),
    ] {
        let file = world.file(name, content);
        world.fails(1, &["add", text(&file)], &[expected]);
    }
    let invalid = world.file("f.json", b"[{\"name\":\"\xff\"}]");
    world.fails(
        1,
        &["add", text(&invalid)],
        &["f.json:1:11", "not valid UTF-8"],
    );
    assert_eq!(world.ids().len(), 4);
}

#[test]
fn a_bad_item_rejects_the_batch_unless_it_is_skipped() {
    let cases = [
        (
            "no name",
            json!({ "description": "x", "inputSchema": { "type": "object" } }),
        ),
        (
            "schema is no object",
            json!({ "name": "bad", "inputSchema": 7 }),
        ),
        (
            "control character",
            json!({ "name": "a\u{0}b", "inputSchema": { "type": "object" } }),
        ),
        ("twice", tool("github", "create_issue", "Again.")),
    ];
    for (what, bad) in cases {
        let world = World::new();
        let mut tools = four_tools();
        tools.push(bad);
        let file = world.file("t.json", json!(tools).to_string());
        world.fails(1, &["add", text(&file)], &["t.json", "nothing was changed"]);
        assert!(
            !world.path("data").exists(),
            "{what}: something was written"
        );

        let ended = world.run(&["add", text(&file), "--skip-invalid", "--json"]);
        assert_eq!(ended.code, 0, "{what}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("warning: skipped"),
            "{what}: {}",
            ended.stderr
        );
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(
            report["skipped"].as_array().map(Vec::len),
            Some(1),
            "{what}"
        );
        assert_eq!(report["skipped"][0]["position"], 5, "{what}");
        assert_eq!(world.ids().len(), 4, "{what}");
    }
}

#[test]
fn what_of_a_request_cannot_be_built_is_said_when_the_document_is_added() {
    let body = |kind: &str| json!({ "content": { kind: { "schema": { "type": "object", "properties": { "a": {} } } } } });
    let operation =
        |id: &str, kind: &str| json!({ "post": { "operationId": id, "requestBody": body(kind) } });
    let mut document = json!({ "openapi": "3.0.3", "info": { "title": "Shop" }, "paths": {
        "/xml": operation("asXml", "application/xml"),
        "/mixed": operation("asMixed", "multipart/mixed"),
        "/json": operation("asJson", "application/json"),
    } });
    document["paths"]["/json"]["post"]["parameters"] = json!([{ "name": "Host", "in": "header" }]);
    let world = World::new();
    let file = world.file("shop.json", document.to_string());
    let ended = world.run(&["add", text(&file), "--no-embed"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for warning in [
        "warning: shop/asXml: its body is application/xml",
        "warning: shop/asMixed: its body is multipart/mixed",
        "warning: shop/asJson: the parameter `Host` is left out",
    ] {
        assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    }
    let report = world.json(&["add", text(&file), "--no-embed"]);
    let warned = report["warnings"].as_array().unwrap();
    assert_eq!(warned.len(), 3, "{report}");
    assert!(warned.iter().any(|one| one["tool"] == "shop/asXml"));
}

#[test]
fn one_bad_item_is_named_once_with_the_way_around_it() {
    let world = World::new();
    let tools = json!([tool("s", "a", "x"), { "description": "no name" }]);
    let file = world.file("mix.json", tools.to_string());
    let ended = world.run(&["add", text(&file)]);
    ended.failed(1, &["mix.json, item 2: it has no name", "--skip-invalid"]);
    assert_eq!(
        ended.stderr.matches("item 2").count(),
        1,
        "{}",
        ended.stderr
    );
    let empty = world.file("mcp.json", r#"{"mcpServers":{}}"#);
    world.fails(1, &["add", text(&empty)], &["names no servers"]);
    world.fails(
        2,
        &["sync", "--mcp", text(&empty)],
        &["mcp.json names no MCP servers"],
    );
}

#[test]
fn an_id_in_two_files_is_reported_with_both() {
    let world = World::new();
    let one = world.file("one.json", json!([tool("s", "t", "x")]).to_string());
    let two = world.file("two.json", json!([tool("s", "t", "y")]).to_string());
    world.fails(
        1,
        &["add", text(&one), text(&two)],
        &["s/t", "one.json", "two.json"],
    );
    assert!(!world.path("data").exists());
}

#[test]
fn a_bad_line_is_reported_with_its_number() {
    let world = World::new();
    let lines = [
        tool("s", "a", "x").to_string(),
        "{broken".into(),
        tool("s", "b", "x").to_string(),
    ]
    .join("\n");
    let file = world.file("t.jsonl", lines);
    world.fails(1, &["add", text(&file)], &["t.jsonl:2"]);
    world.ok(&["add", text(&file), "--skip-invalid"]);
    assert_eq!(world.ids(), ["s/a", "s/b"]);
}

#[test]
fn a_batch_without_valid_items_is_an_error() {
    let world = World::new();
    let file = world.file("t.json", json!([{ "name": "" }]).to_string());
    world.fails(
        1,
        &["add", text(&file), "--skip-invalid"],
        &["no valid item is left"],
    );
}

#[test]
fn a_missing_file_and_a_missing_argument_differ() {
    let world = World::new();
    world.fails(
        1,
        &["add", "nowhere.json"],
        &["nowhere.json: no such file or folder"],
    );
    world.fails(2, &["add"], &["required"]);
}

#[test]
fn a_long_description_and_a_schema_of_fifty_levels_are_kept() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..50 {
        schema = json!({ "type": "object", "properties": { "inner": schema } });
    }
    let world = World::new();
    let deep = json!({ "name": "deep", "inputSchema": schema });
    let file = world.file(
        "t.json",
        json!([deep, tool("s", "wide", &"word ".repeat(100_000))]).to_string(),
    );
    world.ok(&["add", text(&file)]);
    assert_eq!(world.ids(), ["deep", "s/wide"]);
}

#[test]
fn a_description_of_ten_megabytes_is_accepted_and_one_of_twenty_is_named() {
    // Dry: indexing this much takes half a minute without optimisation.
    let world = World::with_tools(&four_tools());
    let ten = world.file(
        "ten.json",
        json!([tool("s", "wide", &"word ".repeat(2 << 20))]).to_string(),
    );
    assert_eq!(
        world.json(&["add", "--dry-run", text(&ten)])["added"],
        json!(["s/wide"])
    );
    let twenty = world.file(
        "twenty.json",
        json!([tool("s", "wider", &"word ".repeat(4 << 20))]).to_string(),
    );
    world.fails(1, &["add", text(&twenty)], &["wider", "20971520 bytes"]);
}

#[test]
fn an_mcp_configuration_is_recognised() {
    let world = World::new();
    let file = world.file(
        "mcp.json",
        r#"{"mcpServers":{"git":{"command":"git-mcp"}}}"#,
    );
    world.fails(
        1,
        &["add", text(&file)],
        &["1 MCP server (git)", "toolscout sync --mcp"],
    );
}

#[test]
fn sync_prints_added_changed_and_removed_tools() {
    let world = World::with_tools(&four_tools());
    let tools = json!([
        tool("", "create_issue", "Opens an issue."),
        tool("", "merge", "Merges a branch.")
    ]);
    let file = world.file("github.json", tools.to_string());
    let dry = world.ok(&["sync", text(&file), "--server", "github", "--dry-run"]);
    let done = world.ok(&["sync", text(&file), "--server", "github"]);
    for printed in [&dry, &done] {
        let signs: Vec<&str> = printed.lines().take(3).collect();
        assert_eq!(
            signs,
            [
                "+ github/merge",
                "~ github/create_issue",
                "- github/list_commits"
            ]
        );
    }
    assert_eq!(
        world.ids(),
        [
            "github/create_issue",
            "github/merge",
            "mail/search_inbox",
            "mail/sendMessage"
        ]
    );
}

#[test]
fn an_empty_file_does_not_empty_a_server() {
    let world = World::with_tools(&four_tools());
    let file = world.file("none.json", "[]");
    world.fails(
        1,
        &["sync", text(&file), "--server", "github"],
        &["no tools"],
    );
    assert_eq!(world.ids().len(), 4);
}

#[test]
fn a_file_that_cannot_be_read_does_not_remove_its_tools() {
    let world = World::with_tools(&four_tools());
    let tools = json!([tool("", "create_issue", "Opens an issue.")]);
    let (read, cut) = (
        world.file("read.json", tools.to_string()),
        world.file("cut.json", r#"[{"name":"list_commits"},"#),
    );
    for flags in [
        &["--skip-invalid"][..],
        &["--skip-invalid", "--dry-run"],
        &[],
    ] {
        let inputs = ["sync", text(&read), text(&cut), "--server", "github"];
        world.fails(
            1,
            &[&inputs[..], flags].concat(),
            &["cut.json:1", "nothing was changed"],
        );
    }
    assert_eq!(world.ids().len(), 4);

    let added = world.run(&["add", text(&read), text(&cut), "--skip-invalid"]);
    says(&added.stderr, "skipped a whole input, ");
    says(&added.stdout, "0 skipped, 1 input not read");
}

#[test]
fn a_tool_whose_new_definition_is_invalid_keeps_the_present_one() {
    let world = World::with_tools(&four_tools());
    let tools = json!([
        tool("", "create_issue", "Opens an issue."),
        { "name": "list_commits", "inputSchema": 5 }
    ]);
    let file = world.file("github.json", tools.to_string());
    for flags in [&["--dry-run"][..], &[]] {
        let sync = ["sync", text(&file), "--server", "github", "--skip-invalid"];
        let report = world.json(&[&sync[..], flags].concat());
        assert_eq!(
            (&report["changed"], &report["removed"], &report["unchanged"]),
            (&json!(["github/create_issue"]), &json!([]), &json!(1)),
            "{report}"
        );
    }
    assert_eq!(world.ids().len(), 4);
}

#[cfg(unix)]
#[test]
fn a_data_directory_that_cannot_be_written_is_named() {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    // A file where the directory should be: refused for root too, for whom permissions do not
    // count.
    world.file("data", "in the way");
    world.fails(1, &["add", text(&file)], &[text(&world.path("data"))]);
}
