//! Requests in everyday words, and tools that delete.

use serde_json::json;
use toolscout_index::embed::StaticTable;
use toolscout_index::{Catalog, DataDir, Mode, Options, Query, Tool};

fn catalog(dir: &tempfile::TempDir, tools: &[(&str, &str)]) -> Catalog {
    let options = Options::new(vec![StaticTable::bundled().unwrap()]);
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", options)
        .unwrap();
    let tools: Vec<Tool> = tools
        .iter()
        .map(|(name, description)| {
            serde_json::from_value(json!({"name": name, "description": description})).unwrap()
        })
        .collect();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

const TOOLS: [(&str, &str); 6] = [
    (
        "run_instances",
        "Launches virtual computers of a given type.",
    ),
    (
        "terminate_instances",
        "Ends instances; their disks are lost.",
    ),
    (
        "drop_table",
        "Drops a table of the database with all its rows.",
    ),
    ("describe_table", "Columns and types of a table."),
    ("send_message", "Sends a message to a number."),
    ("get_forecast", "The weather of the coming days in a city."),
];

#[test]
fn words_of_tools_are_added_and_explained() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &TOOLS);
    // No word of the request is in the catalog.
    let request = "spin up another box";
    let ask = |query: Query| catalog.searcher().search(&query).unwrap();
    let hits = ask(Query::new(request).explain()).hits;
    assert_eq!(hits[0].id.as_str(), "run_instances");
    let explain = hits[0].explain.as_ref().unwrap();
    let phrases: Vec<(&str, Vec<&str>)> = explain
        .everyday
        .iter()
        .map(|phrase| {
            let words = phrase.words.iter().map(String::as_str);
            (phrase.said.as_str(), words.collect())
        })
        .collect();
    // Only words that the catalog has.
    assert_eq!(
        phrases,
        [
            ("spin up", vec!["launch", "run"]),
            ("box", vec!["instance"])
        ]
    );
    let matched = explain.matched.iter().flat_map(|field| &field.terms);
    assert!(matched.clone().any(|term| term == "instanc"));
    let by_words = ask(Query::new(request).mode(Mode::Lexical)).hits;
    assert!(by_words.is_empty(), "{by_words:?}");
    let signals = ask(Query::new(request)).signals;
    assert!((0.0..=1.0).contains(&signals.coverage), "{signals:?}");
}

#[test]
fn a_phrase_whose_words_no_tool_has_adds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &TOOLS);
    let query = Query::new("order a cab").explain();
    for hit in catalog.searcher().search(&query).unwrap().hits {
        assert_eq!(hit.explain.unwrap().everyday, []);
    }
}

#[test]
fn a_tool_that_deletes_is_first_only_for_those_who_want_that() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &TOOLS);
    let first = |text: &str| {
        let results = catalog.searcher().search(&Query::new(text)).unwrap();
        results.hits[0].id.to_string()
    };
    for harmless in [
        "book me a table for two",
        "I want a table",
        "more instances please",
    ] {
        let first = first(harmless);
        assert!(
            first != "drop_table" && first != "terminate_instances",
            "{harmless}: {first}"
        );
    }
    assert_eq!(first("drop the table"), "drop_table");
    assert_eq!(first("get rid of the old boxes"), "terminate_instances");
}
