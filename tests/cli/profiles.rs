//! `toolscout profiles`: the tools of a profile, what it changes of them, and its versions.

use serde_json::{Value, json};

use super::run::{World, text};

const BELT: &str = r#"
[profiles.support.tools]
"crm/*" = {}
"crm/create" = { description = "Refunds what a customer has paid.", arguments = { team = "eu" }, pin = true }
"crm/drop" = { hide = true }
"#;

fn world() -> World {
    let world = World::new();
    let tool = |id: &str, description: &str| {
        let (server, name) = id.split_once('/').expect("an id");
        let schema = json!({
            "type": "object",
            "properties": { "team": { "type": "string" }, "title": { "type": "string" } },
            "required": ["team", "title"],
        });
        json!({ "server": server, "name": name, "description": description, "inputSchema": schema })
    };
    let tools = json!([
        tool("crm/create", "Creates an issue."),
        tool("crm/drop", "Drops an issue."),
        tool("crm/list", "Lists issues."),
        tool("mail/send", "Sends a mail."),
    ]);
    let file = world.file("t.json", tools.to_string());
    world.ok(&["--embedder", "none", "add", text(&file)]);
    world.file("team.toml", BELT);
    world
}

fn run(world: &World, words: &[&str]) -> String {
    let before = ["--embedder", "none", "--config", "team.toml"];
    world.ok(&[&before[..], words].concat())
}

fn json_of(world: &World, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&run(world, &words)).expect("JSON")
}

#[test]
fn a_profile_is_listed_and_shown_with_where_its_parts_come_from() {
    let world = world();
    let listed = json_of(&world, &["profiles", "list"]);
    assert_eq!(listed[0]["name"], "support");
    assert_eq!(listed[0]["tools"], 2);
    assert_eq!(listed[0]["edited_tools"], 2);
    let shown = json_of(&world, &["profiles", "show", "support"]);
    assert_eq!(shown["hidden"], json!(["crm/drop"]));
    assert_eq!(shown["tokens"], listed[0]["tokens"]);
    let create = &shown["tools"][0];
    assert_eq!(create["id"], "crm/create");
    assert_eq!(create["pinned"], true);
    assert_eq!(create["description"], "Refunds what a customer has paid.");
    assert_eq!(create["catalog_description"], "Creates an issue.");
    assert_eq!(create["fixed_arguments"], json!(["team"]));
    let sources = json!({
        "title": "server", "description": "profile", "input_schema": "profile", "output_schema": "server",
    });
    assert_eq!(create["sources"], sources);
    assert_eq!(shown["tools"][1]["sources"]["description"], "server");
    let text = run(&world, &["profiles", "show", "support"]);
    assert!(
        text.contains("from the profile: description, input_schema"),
        "{text}"
    );
    assert!(text.contains("in the catalog: Creates an issue."), "{text}");
    // Reading makes no version.
    assert_eq!(
        json_of(&world, &["profiles", "history", "support"])["versions"],
        json!([])
    );
    let unknown = world.run(&["--config", "team.toml", "profiles", "show", "suport"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("support"), "{}", unknown.stderr);
}

#[test]
fn what_a_profile_says_wrong_is_refused_with_its_place() {
    let world = world();
    for (edit, problem) in [
        (
            "\"crm/*\" = { description = 'x' }",
            "name each tool by its id",
        ),
        (
            "\"crm/create\" = { name = 'x' }",
            "a profile cannot rename a tool",
        ),
        (
            "\"crm/create\" = { descripton = 'x' }",
            "unknown field `descripton`",
        ),
        ("\"crm/create\" = { fields = ['a..b'] }", "is no path"),
        (
            "\"crm/create\" = { arguments = { a = 1 }, defaults = { a = 2 } }",
            "is in `arguments` and in `defaults`",
        ),
    ] {
        world.file("wrong.toml", format!("[profiles.support.tools]\n{edit}\n"));
        let ended = world.run(&["--config", "wrong.toml", "profiles", "list"]);
        assert_ne!(ended.code, 0);
        assert!(ended.stderr.contains(problem), "{edit}: {}", ended.stderr);
        assert!(ended.stderr.contains("support"), "{}", ended.stderr);
    }
}

#[test]
fn a_roll_back_is_a_new_version_that_lasts_until_the_file_changes() {
    let world = world();
    let versions = || {
        let history = json_of(&world, &["profiles", "history", "support"]);
        history["versions"].as_array().expect("a list").len()
    };
    // `mcp` ends with its input, and applies the file.
    let apply = || run(&world, &["mcp", "--profile", "support"]);
    apply();
    apply();
    assert_eq!(versions(), 1);
    world.file(
        "team.toml",
        BELT.replace("Refunds what a customer has paid", "Refunds"),
    );
    apply();
    assert_eq!(versions(), 2);
    let diff = json_of(&world, &["profiles", "diff", "support", "1", "2"]);
    let key = "tools.crm/create.description";
    let differences =
        json!([{ "key": key, "before": "Refunds what a customer has paid.", "after": "Refunds." }]);
    assert_eq!(diff["differences"], differences);
    let rolled_back = run(&world, &["profiles", "rollback", "support", "1"]);
    assert!(rolled_back.contains("version 3 is in use"), "{rolled_back}");
    let description = || {
        let shown = json_of(&world, &["profiles", "show", "support"]);
        let text = shown["tools"][0]["description"].as_str().expect("a text");
        (text.to_owned(), shown["version"]["version"].as_u64())
    };
    let first = "Refunds what a customer has paid.".to_owned();
    assert_eq!(description(), (first.clone(), Some(3)));
    // The next start keeps it, and the next change of the file ends it.
    apply();
    assert_eq!(description(), (first, Some(3)));
    world.file(
        "team.toml",
        BELT.replace("Refunds what a customer has paid", "Pays back"),
    );
    assert_eq!(description(), ("Pays back.".to_owned(), None));
    apply();
    assert_eq!(description(), ("Pays back.".to_owned(), Some(4)));
    let log = run(&world, &["audit", "export"]);
    let entry = log
        .lines()
        .find(|line| line.contains("profile_rolled_back"));
    let entry: Value = serde_json::from_str(entry.expect("an entry")).expect("JSON");
    let entry = entry.get("entry").unwrap_or(&entry);
    assert_eq!(
        (&entry["version"], &entry["rolled_back_to"]),
        (&json!(3), &json!(1))
    );
    let unknown = world.run(&[
        "--config",
        "team.toml",
        "profiles",
        "rollback",
        "support",
        "9",
    ]);
    assert_eq!(unknown.code, 1, "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("profiles history support"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn a_profile_is_measured_with_its_texts_and_names_the_judged_tools_outside() {
    let world = world();
    let queries = [
        json!({ "id": "1", "query": "refund a customer", "relevant": ["crm/create"] }),
        json!({ "id": "2", "query": "list issues", "relevant": ["crm/list", "mail/send"] }),
        json!({ "id": "3", "query": "send a mail", "relevant": ["mail/send"] }),
    ];
    let lines: Vec<String> = queries.iter().map(Value::to_string).collect();
    world.file("q.jsonl", lines.join("\n"));
    let measured = |words: &[&str]| {
        let before = ["--embedder", "none", "--config", "team.toml"];
        let after = ["eval", "q.jsonl", "--k", "1", "--json", "out.json"];
        let ended = world.run(&[&before[..], words, &after[..]].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr
    };
    let before = ["--embedder", "none", "--config", "team.toml"];
    let of_profile = [
        "eval",
        "--profile",
        "support",
        "q.jsonl",
        "--k",
        "1",
        "--json",
        "out.json",
    ];
    let ended = world.run(&[&before[..], &of_profile[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let outside = "support: 2 judgements about 1 tool outside of the profile: mail/send";
    assert!(ended.stderr.contains(outside), "{}", ended.stderr);
    let report = std::fs::read_to_string(world.path("out.json")).expect("written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let text = report.to_string();
    // Both remaining queries find their tool first, one of them by the text of the profile alone.
    assert!(text.contains("\"queries\":2"), "{text}");
    assert!(
        text.contains("\"name\":\"support\"") || text.contains("\"support\""),
        "{text}"
    );
    let stderr = measured(&["--catalog", "default"]);
    assert!(!stderr.contains("outside"), "{stderr}");
}
