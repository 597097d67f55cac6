//! What a language model wrote about tools of the store, and settings that were tuned for it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolscout::config::StoreSettings;
use toolscout::store::{Existing, PostgresStore};
use toolscout_index::{DataDir, Options, Settings, ToolId};

use super::enriching::reply;
use super::node::{Node, PATIENCE, ids, run, tool};
use super::postgres::{Postgres, fixture};

/// Says nothing that a tool has words of.
const REQUEST: &str = "please do thing";

/// A node, and what the command line needs beside it.
struct World {
    postgres: Postgres,
    node: Node,
    folder: TempDir,
    _data: TempDir,
}

impl World {
    /// With `s/alpha`, `s/beta` and `s/gamma`.
    fn new() -> Self {
        let postgres = Postgres::start();
        let data = tempfile::tempdir().unwrap();
        let node = Node::start(&postgres, data.path());
        let tools = ["alpha", "beta", "gamma"];
        node.write(
            "default",
            &tools.map(|name| tool("s", name, "Sorts records.")),
        );
        World {
            postgres,
            node,
            folder: tempfile::tempdir().unwrap(),
            _data: data,
        }
    }

    fn run(&self, arguments: &[&str]) -> Result<Value, String> {
        let address = self.postgres.address();
        let all = [&["--json"], arguments, &["--store", &address]].concat();
        let output = run(self.folder.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).map_err(|_| error)
    }

    /// Lets a scripted model write about every tool without an enrichment.
    fn enrich(&self) -> Value {
        let answer = |number| {
            let text = format!(r#"["{REQUEST} {number}", "once more {number}"]"#);
            reply(&text).to_string()
        };
        let script = self.folder.path().join("script.jsonl");
        let answers: Vec<String> = (1..=3).map(answer).collect();
        std::fs::write(&script, answers.join("\n")).unwrap();
        let script = format!("script:{}", script.display());
        let enriched = self.run(&["enrich", "--llm", &script, "--batch", "1", "--yes"]);
        enriched.unwrap()
    }

    fn shown(&self, id: &str) -> Result<Value, String> {
        self.run(&["enrich", "--show", id])
    }
}

/// Waits until a dense search of the node for a text of the number has this tool first, or has not.
fn until_found(node: &Node, number: usize, id: &str, is_wished: bool) {
    let query =
        json!({ "query": format!("{REQUEST} {number}"), "k": 3, "mode": "dense", "explain": true });
    let begun = Instant::now();
    loop {
        let answer = node.search("default", &query);
        let similarity = answer.body["hits"][0]["explain"].to_string();
        let is_first = ids(&answer).first().is_some_and(|first| first == id);
        if is_first == is_wished {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{id}: {answer:?} {similarity}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn what_a_model_writes_reaches_every_node_and_goes_with_its_definition() {
    let world = World::new();
    let planned = world.run(&["enrich", "--llm", "script:none", "--dry-run"]);
    assert_eq!(planned.unwrap()["tools"], 3);
    let enriched = world.enrich();
    assert_eq!(
        (&enriched["enriched"], &enriched["left"]),
        (&json!(3), &json!(0)),
        "{enriched}"
    );
    let later = tempfile::tempdir().unwrap();
    let later = Node::start(&world.postgres, later.path());
    for node in [&world.node, &later] {
        for (number, id) in [(1, "s/alpha"), (2, "s/beta"), (3, "s/gamma")] {
            until_found(node, number, id, true);
        }
    }
    // Nobody is shown it as a part of the tool.
    let shown = later.get("/v1/catalogs/default/tools/s/beta");
    assert!(!shown.body.to_string().contains(REQUEST), "{shown:?}");
    assert_eq!(world.enrich()["enriched"], 0, "it is asked for twice");

    let changed = [tool("s", "beta", "Sorts records by another key.")];
    world.node.write("default", &changed);
    let gone = world.shown("s/beta").unwrap_err();
    assert!(gone.contains("nothing was written for s/beta"), "{gone}");
    let forgotten = world.run(&["enrich", "--forget", "s/gamma"]).unwrap();
    assert_eq!(forgotten, json!({ "forgotten": 1 }));
    assert_eq!(
        world.shown("s/alpha").unwrap()["texts"][0],
        "please do thing 1"
    );
    for node in [&world.node, &later] {
        until_found(node, 2, "s/beta", false);
        until_found(node, 3, "s/gamma", false);
        until_found(node, 1, "s/alpha", true);
    }
    assert_eq!(world.enrich()["enriched"], 2);
    let unknown = world.run(&[
        "--catalog",
        "none",
        "enrich",
        "--dry-run",
        "--llm",
        "script:none",
    ]);
    let unknown = unknown.unwrap_err();
    assert!(unknown.contains("no catalog \"none\""), "{unknown}");
}

fn enrichments(data: &Path) -> Vec<String> {
    let catalog = DataDir::new(data).open("default", Options::default());
    let searcher = catalog.unwrap().searcher();
    let texts = |id: &ToolId| searcher.enrichment(id).map(|one| one.texts()[0].clone());
    searcher.ids_after(None).filter_map(texts).collect()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn enrichments_are_exported_imported_and_checked() {
    let world = World::new();
    world.enrich();
    let runtime = Runtime::new().unwrap();
    let store = PostgresStore::new(&world.postgres.settings(), runtime.handle().clone()).unwrap();
    let export = || {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path());
        runtime.block_on(store.export(&data, "default")).unwrap();
        folder
    };
    let all = [
        "please do thing 1",
        "please do thing 2",
        "please do thing 3",
    ];
    let whole = export();
    assert_eq!(enrichments(whole.path()), all);

    // A damaged one counts as forgotten.
    world
        .postgres
        .query("UPDATE toolscout.enrichments SET texts = '{something else}' WHERE tool = 's/beta'");
    assert_eq!(enrichments(export().path()), [all[0], all[2]]);
    let import = || {
        let data = DataDir::new(whole.path());
        let imported = store.import(&data, "default", Existing::Replace);
        runtime.block_on(imported).unwrap()
    };
    world.run(&["enrich", "--forget", "--yes"]).unwrap();
    assert_eq!(enrichments(export().path()), <[&str; 0]>::default());
    assert_eq!(import().enrichments, 3);
    assert_eq!(enrichments(export().path()), all);

    // What the imported catalog has no enrichment of has none afterwards.
    let catalog = DataDir::new(whole.path()).open("default", Options::default());
    let mut writer = catalog.unwrap().writer().unwrap();
    writer
        .clear_enrichments(&[ToolId::new("s", "alpha").unwrap()])
        .unwrap();
    writer.commit().unwrap();
    drop(writer);
    assert_eq!(import().enrichments, 2);
    assert_eq!(enrichments(export().path()), all[1..]);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn tuned_settings_reach_every_node() {
    let world = World::new();
    let runtime = Runtime::new().unwrap();
    let store = PostgresStore::new(&world.postgres.settings(), runtime.handle().clone()).unwrap();
    let before = runtime.block_on(store.find("default")).unwrap().unwrap();
    let mut tuned = Settings {
        dense_weight: 0.91,
        ..before.settings
    };
    let queries: Vec<String> = (0..40).map(|number| format!("query {number}")).collect();
    tuned.tuned_on.add(queries.iter().map(String::as_str));
    assert!(!tuned.tuned_on.is_empty());
    runtime
        .block_on(store.set_settings(before.id, &tuned))
        .unwrap();
    let after = runtime.block_on(store.find("default")).unwrap().unwrap();
    assert_eq!(after.settings, tuned);
    assert!(after.generation > before.generation);
    let query = json!({ "query": "sorts records", "min_generation": after.generation });
    let found = world.node.search("default", &query);
    assert_eq!(found.generation(), after.generation);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_ranker_is_fitted_to_a_catalog_of_the_store_and_written_with_a_gain_only() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let address = postgres.address();
    let program = |arguments: &[&str]| {
        let all = [&["--json", "--embedder", "table"], arguments].concat();
        let output = run(folder.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed: Value = serde_json::from_slice(&output.stdout).expect(&error);
        (printed, output.status.success())
    };
    let path = |name: &str| fixture(name).display().to_string();
    program(&["add", &path("fixtures/tools")]);
    let data = folder.path().display().to_string();
    program(&["store", "import", &data, "--store", &address]);
    let queries = path("fixtures/queries.jsonl");
    let fit = ["tune", "--ranker", "--queries", &queries, "--seed", "3"];
    let apply = ["--apply", "--store", &address];
    let (fitted, has_applied) = program(&[&fit[..], &apply].concat());
    let is_better = fitted["accepted"] == true;
    if is_better {
        let test = &fitted["test"];
        assert!(test["after"].as_f64() > test["before"].as_f64(), "{fitted}");
    }
    let rankers = "SELECT count(*) FROM toolscout.catalogs WHERE ranker IS NOT NULL";
    assert_eq!(has_applied, is_better, "{fitted}");
    assert_eq!(postgres.query(rankers), usize::from(is_better).to_string());
    let marked = "SELECT count(*) FROM toolscout.catalogs WHERE settings LIKE '%tuned_on%'";
    assert_eq!(postgres.query(marked), usize::from(is_better).to_string());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn one_node_at_a_time_lets_a_model_write_and_all_count_its_tokens() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let node = |name: &str| {
        let settings = StoreSettings {
            node: Some(name.to_owned()),
            ..postgres.settings()
        };
        let store = PostgresStore::new(&settings, runtime.handle().clone()).unwrap();
        runtime.block_on(store.prepare()).unwrap();
        store
    };
    let (one, other) = (node("one"), node("other"));
    let begin = |node: &Arc<PostgresStore>| runtime.block_on(node.begin_enriching()).unwrap();
    assert_eq!(begin(&one), Some(0));
    assert!(runtime.block_on(one.count_enriching(70)).unwrap());
    assert_eq!(begin(&other), None);
    assert!(!runtime.block_on(other.count_enriching(1)).unwrap());
    runtime.block_on(other.end_enriching()).unwrap();
    assert_eq!(begin(&one), Some(70));
    runtime.block_on(one.end_enriching()).unwrap();
    assert_eq!(begin(&other), Some(70));

    // Its node is gone, and a day is over.
    postgres.query(
        "UPDATE toolscout.enriching SET leased_until = now() - interval '1 second', day = day - 1",
    );
    assert_eq!(runtime.block_on(one.enriching_tokens()).unwrap(), 0);
    assert_eq!(begin(&one), Some(0));
    assert!(!runtime.block_on(other.count_enriching(1)).unwrap());
}
