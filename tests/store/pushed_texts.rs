//! What was written about the tools of a catalog that nodes do not hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::catalog_writer::Change;
use toolscout_index::query::Mode;
use toolscout_index::{Enrichment, Query, Tool, ToolId};

use super::enriching::reply;
use super::node::{Node, ids, scores, tool};
use super::nodes::Cluster;
use super::push_down::{
    Numbers, Pushed, generated, pushing_above, random_tool, requests, single, until, until_pushed,
    write_all,
};

const TEXTS: &str = "/v1/catalogs/default/texts";

/// Answers about every second tool, in the words of nobody's definition.
fn answers(node: &Node, tools: &[Value]) -> Vec<Value> {
    let mut answers = Vec::new();
    for (number, tool) in tools.iter().enumerate().step_by(2) {
        let id = format!(
            "{}/{}",
            tool["server"].as_str().unwrap(),
            tool["name"].as_str().unwrap()
        );
        let shown = node.get(&format!("{TEXTS}/{id}"));
        let texts = [
            format!("I need number {number} done"),
            format!("do {number} asap"),
        ];
        answers.push(json!({ "id": id, "definition": shown.body["definition"], "texts": texts }));
    }
    answers
}

/// All texts, page by page.
fn pages(node: &Node) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = node.get(&format!("{TEXTS}?limit=25{cursor}"));
        assert_eq!(page.status, 200, "{page:?}");
        all.extend(page.body["tools"].as_array().unwrap().clone());
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

fn delete(node: &Node, path: &str) -> u16 {
    node.request(Method::DELETE, path)
        .send()
        .unwrap()
        .status()
        .as_u16()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn texts_of_a_catalog_that_is_pushed_down_do_as_on_a_single_machine() {
    let cluster = Cluster::new();
    let tools = generated(120);
    let (alone, _folder) = single(&tools);
    let node = pushing_above(&cluster, 0, 200, 0);
    write_all(&node, "default", &tools);
    until_pushed(&node, "default");
    let both = [&node, &alone];
    let same = |path: &str| {
        let [here, there] = both.map(|node| node.get(path));
        assert_eq!(
            (here.status, &here.body),
            (there.status, &there.body),
            "{path}"
        );
        here
    };

    let questions = [&node, &alone].map(|node| {
        let asked = node.request(Method::GET, "/v1/catalogs/default/questions?limit=7");
        asked.send().unwrap().text().unwrap()
    });
    assert_eq!(questions[0], questions[1]);
    assert_eq!(questions[0].matches("\"definition\"").count(), 8);

    let answers = answers(&node, &tools);
    for node in both {
        // Only the single machine compares texts with other tools.
        let taken = node.post(&format!("{TEXTS}?reviewed=true"), &json!(answers));
        assert_eq!(taken.body["stored"], 60, "{taken:?}");
        assert_eq!(taken.body["left"], 60, "{taken:?}");
        let again = node.post(TEXTS, &json!(answers[..3]));
        assert_eq!(again.body["kept"].as_array().unwrap().len(), 3, "{again:?}");
    }
    assert_eq!(pages(&node), pages(&alone));
    assert_eq!(pages(&node).len(), 60);
    let mut asked = requests()[..8].to_vec();
    asked.extend(
        (0..120)
            .step_by(30)
            .map(|number| format!("number {number} done please")),
    );
    for query in &asked {
        for mode in ["dense", "hybrid"] {
            let body = json!({ "query": query, "mode": mode, "k": 10, "explain": true });
            let [here, there] = both.map(|node| node.search("default", &body));
            assert_eq!(scores(&here), scores(&there), "{query} {mode}");
        }
    }
    let state = same("/v1/catalogs/default/enrich");
    assert_eq!(state.body["with_texts"], 60);
    for node in both {
        let measured = node.get("/v1/catalogs/default/enrich/measure");
        let tools = measured.body["tools"].as_u64();
        assert!((1..=60).contains(&tools.unwrap_or(0)), "{measured:?}");
    }

    // One is changed, one deleted, and those of a server.
    let (first, second) = (
        answers[0]["id"].as_str().unwrap(),
        answers[1]["id"].as_str().unwrap(),
    );
    let server = answers[2]["id"]
        .as_str()
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let mut changed = tools[6].clone();
    changed["description"] = json!("Something else.");
    for node in both {
        let put = node.put(
            &format!("{TEXTS}/{first}"),
            &json!({ "texts": ["xylophone practice"], "reviewed": true }),
        );
        assert_eq!(put.status, 200, "{put:?}");
        assert_eq!(delete(node, &format!("{TEXTS}/{second}")), 204);
        assert_eq!(delete(node, &format!("{TEXTS}/{second}")), 404);
        write_all(node, "default", std::slice::from_ref(&changed));
        assert_eq!(delete(node, &format!("{TEXTS}?server={server}")), 200);
        let query = json!({ "query": "xylophone practice", "mode": "dense", "k": 1 });
        let is_gone = first.starts_with(&format!("{server}/"));
        let found = ids(&node.search("default", &query));
        assert_eq!(found == [first], !is_gone, "{found:?}");
    }
    assert_eq!(pages(&node), pages(&alone));
    for query in &asked {
        let body = json!({ "query": query, "mode": "dense", "k": 10 });
        let [here, there] = both.map(|node| node.search("default", &body));
        assert_eq!(scores(&here), scores(&there), "{query}");
    }
    for node in both {
        assert_eq!(delete(node, &format!("{TEXTS}?all=true")), 200);
        assert!(pages(node).is_empty());
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_servers_model_writes_texts_for_a_catalog_that_is_pushed_down() {
    let cluster = Cluster::new();
    let script = tempfile::NamedTempFile::new().unwrap();
    let text = r#"{"1": ["polish the silver"], "2": ["water the plants"]}"#;
    std::fs::write(script.path(), reply(text).to_string()).unwrap();
    let address = cluster.postgres.address();
    let model = format!("script:{}", script.path().display());
    let common = [
        "--embedder",
        "table",
        "--store",
        &address,
        "--push-down-above",
        "0",
        "--llm",
        &model,
    ];
    let tools = ["alpha", "beta"].map(|name| tool("s", name, "Sorts records."));
    let by_itself = ["--enrich", "auto", "--enrich-tokens-a-day", "100000"];
    for (number, arguments) in [&[][..], &by_itself].into_iter().enumerate() {
        let node = Node::start_with(cluster.data(number), &[&common[..], arguments].concat());
        let catalog = format!("c{number}");
        node.put(&format!("/v1/catalogs/{catalog}"), &json!({}));
        write_all(&node, &catalog, &tools);
        until_pushed(&node, &catalog);
        let enrich = format!("/v1/catalogs/{catalog}/enrich");
        if arguments.is_empty() {
            let planned = node.post(&enrich, &json!({ "dry_run": true }));
            assert_eq!(planned.body["tools"], 2, "{planned:?}");
            let started = node.post(&enrich, &json!({}));
            assert_eq!(started.status, 202, "{started:?}");
        }
        node.until(&enrich, |state| state.body["with_texts"] == 2);
        let query = json!({ "query": "water the plants", "mode": "dense", "k": 1 });
        assert_eq!(ids(&node.search(&catalog, &query)), ["s/beta"]);
        node.kill();
    }
}

fn written(numbers: &mut Numbers) -> Enrichment {
    let count = numbers.below(3) + 1;
    let texts = (0..count).map(|_| format!("request {}", numbers.below(1000)));
    Enrichment::new(texts.collect::<Vec<_>>(), "m").unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn after_any_changes_every_text_has_its_vector_and_is_found() {
    let mut numbers = Numbers(0x7E_C7_0F_11);
    let mut pushed = Pushed::new();
    let mut tools: BTreeMap<String, (Tool, Option<Enrichment>)> = BTreeMap::new();
    for round in 0..12 {
        for _ in 0..numbers.below(12) + 1 {
            let number = numbers.below(25);
            let tool = random_tool(&mut numbers, number);
            let known = tools.get(tool.id.as_str());
            if known.is_none_or(|(known, _)| *known != tool) {
                tools.insert(tool.id.to_string(), (tool.clone(), None));
            }
            pushed.commit(Change::Upsert(vec![tool]));
        }
        let (mut enriched, mut forgotten) = (Vec::new(), Vec::new());
        for (tool, texts) in tools.values_mut() {
            match numbers.below(4) {
                0 => {
                    let new = written(&mut numbers);
                    *texts = Some(new.clone());
                    enriched.push((Arc::new(tool.clone()), new));
                }
                1 => {
                    *texts = None;
                    forgotten.push(tool.id.clone());
                }
                _ => {}
            }
        }
        pushed.commit(Change::Enrich(enriched));
        pushed.commit(Change::ForgetTexts(forgotten));
        let gone: Vec<ToolId> = tools
            .values()
            .filter(|_| numbers.below(8) == 0)
            .map(|(tool, _)| tool.id.clone())
            .collect();
        for id in &gone {
            tools.remove(id.as_str());
        }
        pushed.commit(Change::Remove(gone));
        if round == 3 {
            pushed.until_pushed();
        }
    }
    pushed.until_embedded();
    for embedder in ["1", "2"] {
        let wrong = format!(
            "SELECT count(*) FROM toolscout.pushed_tools_1 AS t
             LEFT JOIN toolscout.enrichments AS e ON catalog = 1 AND tool = t.id
             WHERE coalesce(cardinality(texts), 0) <>
                   (SELECT count(*) FROM toolscout.pushed_vectors_1_{embedder} AS v WHERE v.key = t.key AND view >= 100)"
        );
        until("embedding of texts", || {
            pushed.postgres.query(&wrong) == "0"
        });
    }

    let texts = tools.values().filter_map(|(_, texts)| texts.as_ref());
    let mut asked: Vec<String> = texts
        .take(10)
        .map(|texts| texts.texts()[0].clone())
        .collect();
    assert!(asked.len() > 5, "{asked:?}");
    asked.extend(requests());
    let with_modes = asked.iter().flat_map(|request| {
        let modes = [Mode::Dense, Mode::Hybrid];
        modes.map(|mode| Query::new(request).k(10).mode(mode))
    });
    let written = tools.values().map(|(tool, texts)| (tool, texts.as_ref()));
    pushed.assert_found_as_alone(written, with_modes);
    pushed.close();
}
