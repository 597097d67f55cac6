//! Requests of a few words in ten languages over the bundled catalog, and strings that mean nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::{Value, json};
use toolscout_index::embed::{MultilingualTable, StaticTable};
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::language::Language;
use toolscout_index::{Catalog, DataDir, Embedder, Options, Query, Results, Searcher, Tool};

const LANGUAGES: [&str; 9] = ["zh", "ja", "ko", "es", "pt", "fr", "de", "it", "ru"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The tools of each of the bundled servers.
fn servers() -> Vec<Vec<Tool>> {
    let mut files: Vec<PathBuf> = fs::read_dir(fixtures().join("tools"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |file: &PathBuf| {
        let options = ReadOptions {
            server: file.file_stem().unwrap().to_str().map(str::to_owned),
            ..ReadOptions::default()
        };
        let bytes = fs::read(file).unwrap();
        formats::parse(&bytes, &options).unwrap().tools
    };
    files.iter().map(read).collect()
}

fn catalog(dir: &tempfile::TempDir, tools: &[Tool]) -> Catalog {
    let embedders: Vec<Arc<dyn Embedder>> = vec![
        StaticTable::bundled().unwrap(),
        MultilingualTable::bundled().unwrap(),
    ];
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", Options::new(embedders))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

/// A request and the tools that are right for it.
struct Judged {
    query: String,
    relevant: Vec<String>,
}

fn judged(path: &str) -> Vec<Judged> {
    let text = fs::read_to_string(fixtures().join("languages").join(path)).unwrap();
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let ids = line["relevant"].as_array().unwrap().iter();
        Judged {
            query: line["query"].as_str().unwrap().to_owned(),
            relevant: ids.map(|id| id.as_str().unwrap().to_owned()).collect(),
        }
    };
    text.lines().map(read).collect()
}

fn nonsense() -> Vec<String> {
    let file = fixtures().join("languages/short/nonsense.txt");
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn ask(searcher: &Searcher, query: &str) -> Results {
    searcher.search(&Query::new(query).explain()).unwrap()
}

/// The place of the first right tool, from 0.
fn place(results: &Results, judged: &Judged) -> Option<usize> {
    let is_right = |id: &str| judged.relevant.iter().any(|right| right == id);
    results
        .hits
        .iter()
        .position(|hit| is_right(hit.id.as_str()))
}

#[test]
fn short_requests_in_ten_languages_are_never_left_without_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, &servers().concat()).searcher();
    println!("| language | requests | empty | first | within five |");
    println!("|---|---|---|---|---|");
    for language in LANGUAGES.into_iter().chain(["en"]) {
        let judged = judged(&format!("short/{language}.jsonl"));
        let answers: Vec<Results> = judged
            .par_iter()
            .map(|judged| ask(&searcher, &judged.query))
            .collect();
        let empty: Vec<&str> = answers
            .iter()
            .zip(&judged)
            .filter(|(answer, _)| answer.hits.is_empty())
            .map(|(_, judged)| judged.query.as_str())
            .collect();
        let places: Vec<Option<usize>> = answers
            .iter()
            .zip(&judged)
            .map(|(answer, judged)| place(answer, judged))
            .collect();
        let within = |count: usize| {
            let found = places.iter().flatten();
            found.filter(|place| **place < count).count()
        };
        println!(
            "| {language} | {} | {} | {} | {} |",
            judged.len(),
            empty.len(),
            within(1),
            within(5)
        );
        assert_eq!(empty, Vec::<&str>::new(), "{language}");
        // Five less than measured in each: a change that costs more is to be looked at.
        let least = if language == "it" { 65 } else { 70 };
        assert!(100 * within(5) >= least * judged.len(), "{language}");
    }
}

#[test]
fn strings_that_mean_nothing_have_no_hits() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, &servers().concat()).searcher();
    let with_hits: Vec<String> = nonsense()
        .into_par_iter()
        .filter(|text| !ask(&searcher, text).hits.is_empty())
        .collect();
    assert_eq!(with_hits, Vec::<String>::new());
    // Words that no tool of the catalog has: a name, an abbreviation, a misspelt word, a foreign one.
    for text in [
        "grafana",
        "csv",
        "OCR",
        "wether tomorow",
        "Arzttermin absagen",
    ] {
        assert!(!ask(&searcher, text).hits.is_empty(), "{text}");
    }
}

#[test]
fn the_clock_is_found_in_chinese() {
    let tool = |description: &str| -> Tool {
        let tool = json!({"server": "time", "name": "get_clock", "description": description});
        serde_json::from_value(tool).unwrap()
    };
    for description in ["Returns the current time", ""] {
        let one_of_each = servers().into_iter().map(|tools| tools[0].clone());
        let mut few: Vec<Tool> = one_of_each.take(32).collect();
        few.push(tool(description));
        let mut many = servers().concat();
        many.push(tool(description));
        for (tools, places) in [(few, 1), (many, 5)] {
            let dir = tempfile::tempdir().unwrap();
            let searcher = catalog(&dir, &tools).searcher();
            let answer = ask(&searcher, "我想看下时间");
            let ids: Vec<&str> = answer.hits.iter().map(|hit| hit.id.as_str()).collect();
            assert!(
                ids.iter().take(places).any(|id| *id == "time/get_clock"),
                "among {} tools, {description:?}: {ids:?}",
                tools.len()
            );
        }
    }
}

#[test]
#[ignore = "prints what the least cosines and the cost of nonsense were derived from"]
fn what_is_near() {
    let dir = tempfile::tempdir().unwrap();
    let searcher = catalog(&dir, &servers().concat()).searcher();
    let table = MultilingualTable::bundled().unwrap();
    let files = LANGUAGES.into_iter().chain(["en"]).map(|language| {
        let judged = judged(&format!("short/{language}.jsonl")).into_iter();
        (language, judged.map(|judged| judged.query).collect())
    });
    let mut sets: Vec<(&str, Vec<String>)> = files.collect();
    for other in ["zh-zh", "ja-ja", "en-zh"] {
        let judged = judged(&format!("{other}.jsonl")).into_iter();
        sets.push((other, judged.map(|judged| judged.query).collect()));
    }
    sets.push(("nonsense", nonsense()));
    println!("| requests | recognised as | number | embedder | least | 5% | median | most |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, requests) in &sets {
        let mut values: BTreeMap<(String, String), Vec<f32>> = BTreeMap::new();
        for request in requests {
            let language = format!("{:?}", Language::of(request));
            let mut add = |what: &str, value: f32| {
                let key = (language.clone(), what.to_owned());
                values.entry(key).or_default().push(value);
            };
            add("cost of a letter", table.least_letter_cost(request));
            let mut best: BTreeMap<String, f32> = BTreeMap::new();
            for hit in searcher
                .search(&Query::new(request.as_str()).k(50).explain())
                .unwrap()
                .hits
            {
                for (leg, score) in hit.explain.unwrap().dense {
                    let known = best.entry(leg).or_insert(f32::MIN);
                    *known = known.max(score.raw);
                }
            }
            for (leg, cosine) in best {
                add(leg.split('/').next().unwrap_or_default(), cosine);
            }
        }
        for ((language, what), mut values) in values {
            values.sort_unstable_by(f32::total_cmp);
            let at = |share: f32| values[(share * (values.len() - 1) as f32) as usize];
            println!(
                "| {name} | {language} | {} | {what} | {:.2} | {:.2} | {:.2} | {:.2} |",
                values.len(),
                at(0.0),
                at(0.05),
                at(0.5),
                at(1.0)
            );
        }
    }
}

/// Servers with the tools of a small catalog, as people register them at first.
fn few_tools() -> Vec<Tool> {
    [
        ("gh/create_issue", "Creates an issue in a repository."),
        (
            "weather/get_forecast",
            "Gives the weather forecast for a city.",
        ),
        (
            "env/read_env_file",
            "Reads an environment file of a deployment.",
        ),
        ("car/tesla_ble", "Talks to the car over bluetooth."),
        ("mail/send_email", "Sends an email."),
        (
            "emoji/party",
            "Sends a 🎉 celebration reaction to a channel.",
        ),
        ("emoji/thumbs", "Adds 👍🏽 to a message."),
        ("books/add_book", "Adds a book to the shelf."),
        ("sql/q", "Runs a query against the database."),
        (
            "calendar/next_event",
            "Returns the next event of a calendar.",
        ),
        (
            "de/rechnung_erstellen",
            "Erstellt eine Rechnung für einen Kunden.",
        ),
        ("cn/查询天气", "查询城市的天气预报"),
    ]
    .map(|(id, description)| {
        let (server, name) = id.split_once('/').unwrap();
        Tool::new(server, name)
            .unwrap()
            .with_description(description)
    })
    .into()
}

#[test]
fn misspelt_requests_and_emoji_find_their_tool_in_a_small_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &few_tools());
    let searcher = catalog.searcher();
    for (query, expected) in [
        ("isue", "gh/create_issue"),
        ("creat isue", "gh/create_issue"),
        ("opn an isue", "gh/create_issue"),
        ("forcast", "weather/get_forecast"),
        ("wether forcast", "weather/get_forecast"),
        ("sned emial", "mail/send_email"),
        ("databse qurey", "sql/q"),
        ("calender evnt", "calendar/next_event"),
        ("🎉", "emoji/party"),
        ("a 🎉 for the channel", "emoji/party"),
        ("👍", "emoji/thumbs"),
        ("👍🏿", "emoji/thumbs"),
    ] {
        let results = ask(&searcher, query);
        let first = results.hits.first().map(|hit| hit.id.as_str());
        assert_eq!(first, Some(expected), "{query}");
    }
}

#[test]
fn a_request_without_content_has_no_match_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir, &few_tools());
    let searcher = catalog.searcher();
    for query in [
        "!!!",
        "...",
        "?",
        "the of and",
        "a",
        "und die",
        "le la les",
        "的",
        "を",
        "и в на",
    ] {
        let results = ask(&searcher, query);
        assert!(results.hits.is_empty(), "{query}");
        let no_match = results.no_match.unwrap();
        assert_eq!(
            (no_match.reason.code(), no_match.nearest.len()),
            ("no_content", 0),
            "{query}"
        );
        assert!(results.confidence.unwrap() <= 0.05, "{query}");
    }
    // A tool of this name is found all the same.
    assert_eq!(ask(&searcher, "q").hits[0].id.as_str(), "sql/q");
}
