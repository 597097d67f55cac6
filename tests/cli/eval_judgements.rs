//! Judgements that one does not have: queries that are made, recorded and judged, each with its source.

use serde_json::{Value, json};

use super::run::{World, four_tools, says, text};

fn world() -> World {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    world.ok(&["--embedder", "none", "add", text(&file)]);
    world
}

fn lines(world: &World, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(world.path(file)).expect("written");
    let line = |line| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(line).collect()
}

fn script(world: &World, answers: &[&str]) {
    let reply = |answer: &&str| json!({ "reply": { "text": answer } }).to_string();
    let lines: Vec<String> = answers.iter().map(reply).collect();
    world.file("script.jsonl", lines.join("\n"));
}

const MODEL: [&str; 4] = ["--by", "model", "--llm", "script:script.jsonl"];

#[test]
fn queries_by_templates_are_marked_and_said_to_be_easy() {
    let world = world();
    let ended = world.run(&["--embedder", "none", "eval", "generate", "--out", "q.jsonl"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("easy"), "{}", ended.stderr);
    let made = lines(&world, "q.jsonl");
    assert!(made.len() >= 4, "{made:?}");
    for line in &made {
        assert_eq!(line["source"], "template");
        assert_eq!(line["relevant"].as_object().expect("tools").len(), 1);
    }
    // Nothing is written over, and the catalog is measured with them.
    let again = world.run(&["--embedder", "none", "eval", "generate", "--out", "q.jsonl"]);
    assert_eq!(again.code, 3, "{}", again.stderr);
    let eval = [
        "--embedder",
        "none",
        "--catalog",
        "default",
        "eval",
        "q.jsonl",
    ];
    let table = world.ok(&[
        &eval[..],
        &["--k", "1", "--json", "out.json", "--html", "out.html"],
    ]
    .concat());
    says(&table, "of template. Queries by templates are easy");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(world.path("out.json")).unwrap()).unwrap();
    let source = &report["sets"][0]["sources"][0];
    assert_eq!(source["source"], "template");
    assert!(source["arms"]["in use"]["ndcg@1"].is_number(), "{source}");
    let page = std::fs::read_to_string(world.path("out.html")).unwrap();
    assert!(page.contains("By source") && page.contains("template (small)"));
}

#[test]
fn sources_are_never_mixed_without_a_word() {
    let world = world();
    let id = &world.ids()[0];
    let line = |number: usize, source: &str| {
        let source = if source.is_empty() {
            Value::Null
        } else {
            json!(source)
        };
        json!({"id": number.to_string(), "query": format!("thing {number}"), "relevant": [id], "source": source})
            .to_string()
    };
    for (sources, said) in [
        (
            vec!["template", "calls", "calls"],
            Some("Queries: 1 of template, 2 of calls. The figures of all queries mix them"),
        ),
        (
            vec!["", "model x"],
            Some("Queries: 1 of not said, 1 of model x."),
        ),
        (vec!["person", "person"], Some("Queries: 2 of person.")),
        (vec!["", ""], None),
    ] {
        let text: Vec<String> = sources
            .iter()
            .enumerate()
            .map(|(number, source)| line(number, source))
            .collect();
        world.file("mixed.jsonl", text.join("\n"));
        let table = world.ok(&[
            "--embedder",
            "none",
            "--catalog",
            "default",
            "eval",
            "mixed.jsonl",
            "--k",
            "1",
        ]);
        match said {
            Some(said) => assert!(table.contains(said), "{sources:?}: {table}"),
            None => assert!(!table.contains("Queries:"), "{table}"),
        }
    }
}

#[test]
fn a_model_writes_queries_as_for_enrich() {
    let world = world();
    let generate = [
        "--embedder",
        "none",
        "eval",
        "generate",
        "--out",
        "q.jsonl",
        "--per-tool",
        "1",
    ];
    script(&world, &[r#"{"1": ["please do it for me"]}"#; 4]);
    let refused = world.run(&[&generate[..], &MODEL].concat());
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    says(&refused.stderr, "add --yes to confirm");
    let ended = world.run(&[&generate[..], &MODEL, &["--yes"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let made = lines(&world, "q.jsonl");
    assert!(
        made[0]["source"].as_str().unwrap().starts_with("model "),
        "{made:?}"
    );
    assert_eq!(made[0]["query"], "please do it for me");
}

#[test]
fn usage_becomes_queries_with_their_sources() {
    let world = world();
    let none = world.run(&[
        "--embedder",
        "none",
        "eval",
        "from-usage",
        "--out",
        "u.jsonl",
    ]);
    assert_eq!(none.code, 3);
    says(&none.stderr, "nothing is recorded");
    let id = &world.ids()[0];
    let entry = |query: &str, tool: &str| {
        json!({"query": query, "tool": tool, "times": 2, "at_ms": 1, "taught_by": ["cli"]})
            .to_string()
    };
    let entries = [entry("do the first thing", id), entry("again", id)].join("\n");
    world.file("memory.jsonl", entries);
    world.ok(&["--embedder", "none", "memory", "import", "memory.jsonl"]);
    world.ok(&[
        "--embedder",
        "none",
        "eval",
        "from-usage",
        "--out",
        "u.jsonl",
    ]);
    let made = lines(&world, "u.jsonl");
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(
        made.iter().all(|line| line["source"] == "calls"),
        "{made:?}"
    );
}

#[test]
fn pooled_hits_are_judged_and_two_judges_compared() {
    let world = world();
    let queries = [
        json!({"id": "1", "query": "list the commits of a branch", "source": "person"}),
        json!({"id": "2", "query": "open an issue"}),
        json!({"id": "3", "query": "xyzzy"}),
    ];
    world.file("q.jsonl", queries.map(|query| query.to_string()).join("\n"));
    let judge = [
        "--embedder",
        "none",
        "eval",
        "judge",
        "q.jsonl",
        "--depth",
        "1",
    ];
    // One usable answer, and one without grades. Nothing is found for the third query.
    script(&world, &[r#"{"1": 2}"#, "no idea"]);
    let model = [&judge[..], &["--out", "m.jsonl", "--yes"], &MODEL].concat();
    let ended = world.run(&model);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    says(&ended.stderr, "3: nothing is found");
    let first = lines(&world, "m.jsonl");
    assert_eq!((first.len(), &first[0]["source"]), (1, &json!("person")));
    assert!(first[0]["judge"].is_string(), "{first:?}");
    // Another run goes on with the rest.
    script(&world, &[r#"{"1": 0}"#]);
    assert_eq!(world.run(&model).code, 0);
    assert_eq!(lines(&world, "m.jsonl").len(), 2);

    let by_hand = [&judge[..], &["--out", "p.jsonl", "--judge", "ann"]].concat();
    let ended = world.run_with(&by_hand, b"9\n2\nq\n");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let judged = lines(&world, "p.jsonl");
    assert_eq!((judged.len(), &judged[0]["judge"]), (1, &json!("ann")));
    assert_eq!(judged[0]["relevant"]["github/list_commits"], 2.0);
    let agreement = ["eval", "agreement", "m.jsonl", "p.jsonl"];
    let agreed = world.ok(&[&["--output", "json"], &agreement[..]].concat());
    let agreed: Value = serde_json::from_str(&agreed).expect("JSON");
    assert_eq!(
        (&agreed["pairs"], &agreed["same_grade"], &agreed["left_out"]),
        (&json!(1), &json!(1.0), &json!(1))
    );
    let none = world.run(&["eval", "agreement", "p.jsonl", "q.jsonl"]);
    assert_eq!(none.code, 3, "{}", none.stderr);
    let eval = ["--catalog", "default", "eval", "p.jsonl", "--k", "1"];
    world.ok(&[&["--embedder", "none"], &eval[..]].concat());
}
