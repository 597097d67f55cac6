//! How much quality the candidates of an engine cost: nDCG@10 beside that of the own index.

use std::collections::HashSet;
use std::path::Path;

use super::*;

/// Requests of a set that are asked, evenly chosen.
const MAX_REQUESTS: usize = 150;

/// A set of judged requests: its tools, and each request with the tools that serve it.
struct Judged {
    tools: Vec<Tool>,
    requests: Vec<(String, HashSet<String>)>,
}

fn read(folder: &Path) -> Judged {
    let lines = |file: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(folder.join(file)).expect("a set of judged requests");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let mut tools = Vec::new();
    for line in lines("tools.jsonl") {
        let server = line["server"].as_str().unwrap_or_default();
        let Ok(mut tool) = Tool::new(server, line["name"].as_str().unwrap()) else {
            continue;
        };
        tool.description = line["description"].as_str().unwrap_or_default().to_owned();
        if let Some(schema) = line["inputSchema"].as_object() {
            tool.input_schema = schema.clone();
        }
        tools.push(tool);
    }
    let all = lines("queries.jsonl");
    let step = all.len().div_ceil(MAX_REQUESTS).max(1);
    let mut requests = Vec::new();
    for line in all.iter().step_by(step) {
        let relevant = line["relevant"].as_array().into_iter().flatten();
        let relevant = relevant
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        requests.push((line["query"].as_str().unwrap().to_owned(), relevant));
    }
    Judged { tools, requests }
}

fn ndcg(hits: &[(String, f32)], relevant: &HashSet<String>) -> f64 {
    let gain = |place: usize| 1.0 / ((place + 2) as f64).log2();
    let is_relevant = |id: &String| {
        relevant.contains(id)
            || id
                .split_once('/')
                .is_some_and(|(_, name)| relevant.contains(name))
    };
    let hits = hits.iter().take(10).enumerate();
    let found: f64 = hits
        .filter(|(_, (id, _))| is_relevant(id))
        .map(|(place, _)| gain(place))
        .sum();
    let best: f64 = (0..relevant.len().min(10)).map(gain).sum();
    found / best.max(f64::MIN_POSITIVE)
}

/// Prints the figures of each folder in `TOOLSCOUT_SETS`, whose names a colon separates.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs judged sets: TOOLSCOUT_SETS=FOLDER:FOLDER"]
async fn the_candidates_cost_little_quality() {
    let sets = std::env::var("TOOLSCOUT_SETS").expect("TOOLSCOUT_SETS");
    for (number, set) in sets.split(':').enumerate() {
        let judged = read(Path::new(set));
        let folder = tempfile::tempdir().unwrap();
        let own = catalog(&folder, "own", &judged.tools);
        let base = catalog(&folder, "base", &[]).searcher();
        let double = Double::start(PRODUCTS[number % 2]).await;
        let mut stores = real_places("toolscout-suite-quality").await;
        let table = pgvector::filled("quality", &judged.tools).await;
        // The double takes its time, and is for those who have nothing else.
        if stores.is_empty() && table.is_none() {
            stores.push(double.store("toolscout-suite-quality"));
        }
        let mut there = 0.0;
        for (request, relevant) in &judged.requests {
            let query = Query::new(request.as_str()).k(10);
            there += ndcg(&hits(&own.searcher(), &query), relevant);
        }
        let count = judged.requests.len() as f64;
        there /= count;
        let mut places = Vec::new();
        for store in stores {
            let settings = ExternalSettings {
                timeout_ms: 60_000,
                ..ExternalSettings::new(&store)
            };
            written(&settings, &own.searcher()).await;
            places.push(settings);
        }
        places.extend(table);
        for settings in places {
            let store = settings.store.to_string();
            let external = opened(settings);
            let mut here = 0.0;
            for (request, relevant) in &judged.requests {
                let query = Query::new(request.as_str()).k(10);
                let found = external.searcher_for(&base, &query).await.unwrap();
                here += ndcg(&hits(&found, &query), relevant);
            }
            here /= count;
            eprintln!(
                "{set}: {} tools, {count} requests, {store}: {here:.4}, own index {there:.4}",
                judged.tools.len()
            );
            assert!((here - there).abs() < 0.01, "{set}, {store}");
        }
    }
}
