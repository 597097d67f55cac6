//! Search without a download, time limits, and near-duplicates.

use serde_json::{Value, json};

use super::run::{Ended, World, four_tools, says, text, tool};

/// A run as on a new machine without a network: an empty cache, and the hub unreachable.
fn fresh(world: &World, args: &[&str]) -> Ended {
    let mut command = world.command();
    command.env_remove("TOOLSCOUT_EMBEDDER");
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"] {
        // Nothing listens on the discard port, so that a download would fail with a message.
        command.env(proxy, "http://127.0.0.1:9");
    }
    Ended::of(command.args(args).output())
}

fn parsed(ended: &Ended) -> Value {
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    ended.json()
}

fn names(answer: &Value) -> Vec<&str> {
    let ids = answer["embedders"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(Value::as_str);
    ids.filter_map(|id| id.split('/').next()).collect()
}

#[test]
fn the_bundled_catalog_is_searched_by_meaning_without_a_download() {
    let world = World::new();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    let added = fresh(&world, &["add", tools]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    let answer = parsed(&fresh(
        &world,
        &["search", "will it rain tomorrow", "--json"],
    ));
    assert_eq!(
        (&answer["mode"], &answer["degraded"], &answer["variant"]),
        (&json!("hybrid"), &Value::Null, &json!("full"))
    );
    // Some of its tools are described in Chinese and Japanese.
    assert_eq!(
        names(&answer),
        ["languages-table", "static-table", "tool-encoder"]
    );
    let first = answer["hits"][0]["id"].as_str().expect("a hit");
    assert!(
        first.contains("forecast") || first.contains("weather"),
        "{answer}"
    );
    assert!(!world.path("cache").exists(), "nothing was fetched");
    let searched = fresh(&world, &["search", "will it rain tomorrow", "--explain"]);
    assert!(
        searched
            .stderr
            .contains("hybrid (languages-table, static-table, tool-encoder)"),
        "{}",
        searched.stderr
    );
}

#[test]
fn chinese_requests_are_not_embedded_by_the_english_table() {
    let world = World::with_tools(&[
        tool("s", "创建笔记", "新建一条笔记"),
        tool("s", "查询天气", "查询城市的天气预报"),
    ]);
    let answer = parsed(&fresh(&world, &["search", "新建笔记", "--json"]));
    assert_eq!(
        (names(&answer), &answer["hits"][0]["id"]),
        (vec!["languages-table"], &json!("s/创建笔记"))
    );
}

#[test]
fn the_table_can_be_used_alone_or_switched_off() {
    let world = World::with_tools(&four_tools());
    for (embedder, expected) in [("table", vec!["static-table"]), ("none", vec![])] {
        let answer = world.json(&["--embedder", embedder, "search", "open an issue"]);
        assert_eq!(
            (names(&answer), &answer["degraded"]),
            (expected, &Value::Null),
            "{embedder}"
        );
    }
    world.fails(
        1,
        &["--embedder", "table", "embed"],
        &["nothing was embedded", "embedder = \"table\""],
    );
}

#[test]
fn a_time_limit_selects_a_smaller_variant() {
    let world = World::with_tools(&four_tools());
    let ask = |budget: &str| {
        world.json(&[
            "--embedder",
            "table",
            "search",
            "open an issue",
            "--budget-ms",
            budget,
        ])
    };
    let (little, much) = (ask("0.000001"), ask("60000"));
    assert_eq!(
        (&little["variant"], &little["mode"]),
        (&json!("lexical"), &json!("lexical"))
    );
    assert_eq!(
        (&much["variant"], &much["mode"]),
        (&json!("full"), &json!("hybrid"))
    );
    assert_eq!(little["hits"][0]["id"], "github/create_issue");
    let searched = world.run(&[
        "--embedder",
        "table",
        "search",
        "open an issue",
        "--budget-ms",
        "0.000001",
    ]);
    says(&searched.stderr, "lexical variant for time");
    world.fails(
        1,
        &["search", "x", "--budget-ms", "0"],
        &["budget is 0 ms", "above 0"],
    );
}

#[test]
fn near_duplicates_are_one_hit_on_request() {
    let description = "Sends an e-mail with a subject and a text to one or more people.";
    let servers = ["gmail", "outlook", "post"];
    let mut tools: Vec<Value> = servers
        .iter()
        .map(|server| tool(server, "send_email", description))
        .collect();
    tools[1]["name"] = json!("sendEmail");
    tools.push(tool("post", "send_letter", "Sends a letter on paper."));
    let world = World::with_tools(&tools);
    let found = |args: &[&str]| -> Vec<String> {
        let answer = world.json(&[&["search", "send an e-mail to people"], args].concat());
        answer["hits"]
            .as_array()
            .expect("hits")
            .iter()
            .map(|hit| hit["id"].to_string())
            .collect()
    };
    assert_eq!(found(&[]).len(), 4);
    assert_eq!(found(&["--fold"]).len(), 2);
    let folded = world.json(&["search", "send an e-mail to people", "--fold", "-k", "1"]);
    assert_eq!(
        folded["hits"][0]["also_on"],
        json!(["outlook/sendEmail", "post/send_email"])
    );
    assert_eq!(
        found(&["--fold", "--server", "outlook"]),
        ["\"outlook/sendEmail\""]
    );
    let filtered = world.json(&[
        "search",
        "send an e-mail to people",
        "--fold",
        "--server",
        "outlook",
    ]);
    assert!(
        filtered["hits"][0].get("also_on").is_none(),
        "what the filter leaves out is not named: {filtered}"
    );
    assert!(
        world
            .ok(&["search", "send e-mail", "--fold"])
            .contains("also on: outlook/sendEmail, post/send_email")
    );
    let file = world.file(
        "one.json",
        json!([tool("post", "send_email", "Prints a stamp.")]).to_string(),
    );
    world.ok(&["add", text(&file)]);
    assert_eq!(
        world.json(&["search", "send an e-mail to people", "--fold", "-k", "1"])["hits"][0]["also_on"],
        json!(["outlook/sendEmail"])
    );
}
