//! Measures search by words as Codex does it, with the crate `bm25`, and prints the figures as
//! `peers.py` does for other engines.
//!
//! usage: toolscout-peers TOOLS QUERIES WARM_UP HITS

use std::fs;
use std::time::Instant;

use bm25::{Document, Language, SearchEngine, SearchEngineBuilder};
use serde_json::{Value, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tools, queries, warm_up, hits] = &arguments[..] else {
        panic!("usage: toolscout-peers TOOLS QUERIES WARM_UP HITS");
    };
    let warm_up: usize = warm_up.parse().expect("WARM_UP is a number");
    let hits: usize = hits.parse().expect("HITS is a number");

    let start = Instant::now();
    let tools = read_lines(tools);
    let engine = index(&tools);
    let build = start.elapsed();

    let mut times = Vec::new();
    let mut hits_by_query = Vec::new();
    for query in read_lines(queries) {
        let text = query["query"].as_str().expect("a request");
        let start = Instant::now();
        let found = engine.search(text, hits);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let id_of = |number: u32| &tools[number as usize]["id"];
        let ids: Vec<&Value> = found.iter().map(|hit| id_of(hit.document.id)).collect();
        hits_by_query.push(json!(ids));
    }
    let mut times = times.split_off(warm_up);
    times.sort_by(f64::total_cmp);
    let figures = json!({
        "build_s": build.as_secs_f64(),
        "search_ms": times[times.len() / 2],
        "hits": hits_by_query,
    });
    println!("{figures}");
}

fn read_lines(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the file can be read");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// The name as it is and in words, the description, and the names of the parameters, in one text.
fn index(tools: &[Value]) -> SearchEngine<u32> {
    let mut documents = Vec::with_capacity(tools.len());
    for (number, tool) in (0..).zip(tools) {
        let name = tool["id"].as_str().unwrap_or_default();
        let mut text = format!("{name} {}", name.replace(['_', '/', '-'], " "));
        if let Some(description) = tool["description"].as_str() {
            text.push(' ');
            text.push_str(description);
        }
        if let Some(properties) = tool["inputSchema"]["properties"].as_object() {
            for parameter in properties.keys() {
                text.push(' ');
                text.push_str(parameter);
            }
        }
        documents.push(Document::new(number, text));
    }
    SearchEngineBuilder::with_documents(Language::English, documents).build()
}
