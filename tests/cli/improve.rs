//! `toolscout improve`.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use toolscout::enrich::DEFAULT_BATCH;

use super::enriching::{self, TOOLS, definitions, judged_queries};
use super::run::{World, says};

/// A catalog of tools that only texts tell apart.
fn world() -> World {
    World::with_tools(&definitions())
}

/// Queries for one tool, of which each has these words.
fn queries_for(world: &World, tool: &str, words: &str, more: &str) -> PathBuf {
    let mut lines = more.to_owned();
    for (number, (_, subject)) in TOOLS.iter().chain(&TOOLS).enumerate() {
        let query = format!("{words} {subject} {number}");
        let id = format!("q{number}");
        lines += &format!(
            "{}\n",
            json!({"id": id, "query": query, "relevant": [tool]})
        );
    }
    world.file("judged.jsonl", &lines)
}

/// What became of a change, with its entries.
fn change<'a>(improved: &'a Value, kind: &str) -> (&'a Value, &'a Value) {
    let changes = improved["changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["kind"] == kind);
    let change = change.unwrap_or_else(|| panic!("no {kind}: {improved}"));
    (&change["decision"], &change["entries"])
}

/// Two queries for each tool.
fn queries(world: &World) -> PathBuf {
    world.file("judged.jsonl", judged_queries())
}

/// An answer to `enrich --ask` that says what each tool does.
fn texts(world: &World) -> PathBuf {
    let questions = world.ok(&["enrich", "--ask", "-"]);
    world.file("texts.jsonl", enriching::texts(&questions))
}

fn first(world: &World, query: &str) -> Value {
    world.json(&["search", "--embedder", "table", query])["hits"][0]["id"].clone()
}

#[test]
fn a_change_is_shown_made_listed_and_taken_back() {
    let world = world();
    let (queries, texts) = (queries(&world), texts(&world));
    let [queries, texts] = [&queries, &texts].map(|path| path.to_str().unwrap());
    let improve = [
        "improve",
        "--embedder",
        "table",
        "--queries",
        queries,
        "--texts",
        texts,
    ];
    let before = world.json(&["stats"])["generation"].clone();

    let shown = world.run(&improve);
    says(&shown.stdout, "texts\taccepted\t12\t");
    assert!(
        shown.stdout.contains("+ text of s/qx7: resize a picture"),
        "{}",
        shown.stderr
    );
    assert!(shown.stderr.contains("--apply makes"), "{}", shown.stderr);
    assert_eq!(
        world.json(&["stats"])["generation"],
        before,
        "a dry run changes nothing"
    );
    assert!(world.ok(&["improve", "log"]).is_empty());

    let made = world.json(&[&improve[..], &["--apply"]].concat());
    assert_eq!(made["applied"], json!([1]), "{made}");
    let change = &made["changes"][0];
    assert!(
        change["after"].as_f64() > change["before"].as_f64() && change["p"].as_f64() < Some(0.05),
        "{change}"
    );
    assert_eq!(first(&world, "make this picture smaller"), "s/qx7");
    let log = world.json(&["improve", "log"]);
    assert_eq!(
        log[0]["applied"]["change"]["entries"]
            .as_array()
            .unwrap()
            .len(),
        12,
        "{log}"
    );
    assert_eq!(log[0]["generation"], world.json(&["stats"])["generation"]);

    // The same again has nothing new to propose.
    let again = world.run(&[&improve[..], &["--apply"]].concat());
    assert_eq!(again.code, 1, "{}", again.stdout);

    // What a person has changed since stays.
    world.ok(&["enrich", "--forget", "s/qx1"]);
    let reverted = world.ok(&["improve", "revert", "1"]);
    says(
        &reverted,
        "11 entries of change 1; 1 were gone or changed already",
    );
    world.fails(1, &["improve", "revert", "1"], &["was taken back already"]);
    world.fails(1, &["enrich", "--show", "s/qx7"], &["nothing was written"]);
    assert!(world.ok(&["improve", "log"]).contains("texts (reverted)"));
}

#[test]
fn what_the_queries_do_not_gain_from_is_refused() {
    let tools: Vec<Value> = TOOLS
        .iter()
        .map(|(name, meaning)| json!({"server": "s", "name": name, "description": meaning}))
        .collect();
    let world = World::with_tools(&tools);
    let queries = queries(&world);
    let queries = queries.to_str().unwrap();
    // Every text is that of another tool.
    let texts = world.ok(&["enrich", "--ask", "-"]);
    let lines: Vec<Value> = texts
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|question: &Value| question["id"].as_str().unwrap().starts_with("s/"))
        .collect();
    let mut wrong = String::new();
    for (question, (_, meaning)) in lines.iter().zip(TOOLS.iter().cycle().skip(5)) {
        let answer =
            json!({"id": question["id"], "definition": question["definition"], "texts": [meaning]});
        wrong += &format!("{answer}\n");
    }
    let wrong = world.file("wrong.jsonl", &wrong);
    let args = [
        "improve",
        "--embedder",
        "table",
        "--queries",
        queries,
        "--texts",
        wrong.to_str().unwrap(),
        "--apply",
    ];
    let refused = world.run(&args);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    says(&refused.stdout, "texts\tno gain");
    assert!(world.ok(&["improve", "log"]).is_empty());
}

#[test]
fn requests_that_come_again_teach_the_catalog() {
    let world = world();
    let mut lines = String::new();
    for (tool, (name, meaning)) in TOOLS.iter().enumerate() {
        for (time, text) in [format!("please {meaning}"), format!("{meaning} today")]
            .iter()
            .enumerate()
        {
            let id = format!("{tool}-{time}");
            let line =
                json!({"id": id, "query": text, "times": 3, "relevant": [format!("s/{name}")]});
            lines += &format!("{line}\n");
        }
    }
    let queries = world.file("repeated.jsonl", lines);
    let args = [
        "improve",
        "--embedder",
        "table",
        "--queries",
        queries.to_str().unwrap(),
        "--apply",
    ];
    let improved = world.json(&args);
    assert!(
        !improved["applied"].as_array().unwrap().is_empty(),
        "{improved}"
    );
    assert!(improved["after"].as_f64() > Some(0.99), "{improved}");
    for (name, meaning) in TOOLS {
        assert_eq!(first(&world, meaning), format!("s/{name}"));
    }
}

#[test]
fn too_few_queries_and_wrong_files_are_named() {
    let world = world();
    let few = world.file(
        "few.jsonl",
        "{\"id\": \"1\", \"query\": \"fly\", \"relevant\": [\"s/qx2\"]}\n",
    );
    let few = few.to_str().unwrap();
    let args = |queries, more: &[&'static str]| [&["improve", "--queries", queries], more].concat();
    world.fails(
        2,
        &args(few, &[]),
        &["it has 1 judged request", "at least 20"],
    );
    let judged = queries(&world);
    let judged = judged.to_str().unwrap();
    world.fails(
        1,
        &args(judged, &["--texts", "none.jsonl"]),
        &["none.jsonl"],
    );
    world.fails(
        1,
        &["improve", "--queries", judged, "--texts", few],
        &["no text of", "few.jsonl"],
    );
    world.fails(1, &args("missing.jsonl", &[]), &["missing.jsonl"]);
}

#[test]
fn a_model_of_the_owners_choice_writes_the_texts() {
    let world = world();
    let queries = queries(&world);
    let queries = queries.to_str().unwrap();
    let turns: Vec<String> = TOOLS
        .chunks(DEFAULT_BATCH)
        .map(|batch| {
            let texts = (1..).zip(batch);
            let texts: Map<String, Value> = texts
                .map(|(number, (_, meaning))| (format!("{number}"), json!([meaning])))
                .collect();
            json!({"reply": {"text": json!(texts).to_string()}}).to_string()
        })
        .collect();
    let script = world.file("script.jsonl", turns.join("\n"));
    let script = format!("script:{}", script.display());
    let args = [
        "improve",
        "--embedder",
        "table",
        "--queries",
        queries,
        "--llm",
        &script,
    ];
    world.fails(
        2,
        &args,
        &["this sends the definitions of 12 tools", "--yes"],
    );
    let improved = world.json(&[&args[..], &["--yes"]].concat());
    assert_eq!(improved["changes"][0]["kind"], "texts", "{improved}");
    assert_eq!(improved["changes"][0]["decision"], "accepted", "{improved}");
}

#[test]
fn near_duplicates_are_folded_where_they_take_the_places_of_others() {
    let description = "Sends an email with a subject and a text to a person, now or later.";
    let mut tools: Vec<Value> = Vec::new();
    let mut senders = Vec::new();
    for server in ["a", "b", "c", "d", "e", "f"] {
        senders.push(format!("{server}/send_email"));
        tools.push(json!({"server": server, "name": "send_email", "description": description}));
    }
    tools.push(json!({"server": "notes", "name": "remind", "description": "Keeps a note and reminds by email."}));
    let world = World::with_tools(&tools);
    // Each of them is needed, so none is in the way.
    let all = json!({"id": "all", "query": "send an email with a text", "relevant": senders});
    let queries = queries_for(
        &world,
        "notes/remind",
        "send an email to a person about",
        &format!("{all}\n"),
    );
    let queries = queries.to_str().unwrap();
    let improve = ["improve", "--embedder", "none", "--queries", queries];
    let improved = world.json(&improve);
    let (decision, entries) = change(&improved, "duplicates");
    assert_eq!(decision, "accepted", "{improved}");
    let folds = json!([{"does": "duplicates", "before": null, "after": true}]);
    assert_eq!(*entries, folds);
    world.json(&[&improve[..], &["--apply"]].concat());
    let settings = world.json(&["catalogs", "settings"]);
    assert_eq!(settings["fold_duplicates"], true, "{settings}");
    let made = world.json(&["improve", "log"]);
    let number = made
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["applied"]["change"]["kind"] == "duplicates");
    world.ok(&["improve", "revert", &number.unwrap()["id"].to_string()]);
    let settings = world.json(&["catalogs", "settings"]);
    assert_eq!(settings["fold_duplicates"], json!(null), "{settings}");
}

#[test]
fn a_tool_that_only_stands_in_the_way_is_switched_off() {
    let tools = [
        json!({"server": "s", "name": "helper", "description": "Does nothing."}),
        json!({"server": "notes", "name": "remind", "description": "Keeps a note and reminds of it."}),
        json!({"server": "notes", "name": "forget", "description": "Deletes a calendar entry."}),
    ];
    let world = World::with_tools(&tools);
    // It is named, so no lower factor takes it from the first place.
    let queries = queries_for(&world, "notes/remind", "s/helper note", "");
    let queries = queries.to_str().unwrap();
    let improve = [
        "improve",
        "--embedder",
        "none",
        "--queries",
        queries,
        "--apply",
    ];
    let improved = world.json(&improve);
    let (decision, entries) = change(&improved, "off");
    assert_eq!(decision, "accepted", "{improved}");
    assert_eq!(entries[0]["tool"], "s/helper");
    let found = world.json(&["search", "--embedder", "none", "s/helper note"]);
    assert!(!found.to_string().contains("s/helper\""), "{found}");
    assert!(
        world
            .ok(&["show", "s/helper"])
            .contains("switched off by your words")
    );
    assert!(world.ok(&["list"]).contains("s/helper"));
}
