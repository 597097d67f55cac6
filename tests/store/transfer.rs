//! Catalogs go from a data directory into the store, and back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use toolscout::store::{Existing, PostgresStore, StoreError};
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::tools_db::ToolsDb;
use toolscout_index::{
    Catalog, DataDir, Options, OwnerWords, Query, Ranker, SearchOptions, Settings, Tool,
};

use super::node::{Node, PATIENCE, ids, program, tool};
use super::postgres::{PASSWORD, Postgres};

/// A table, and an embedder whose vectors are stored.
fn options() -> Options {
    let table = StaticTable::bundled().unwrap();
    Options::new(vec![table, Arc::new(Hashing::new(32))])
}

fn tools(prefix: &str, count: usize) -> Vec<Tool> {
    let tool = |number: usize| {
        let tool = Tool::new("s", &format!("{prefix}_{number}")).unwrap();
        tool.with_description(format!("Sends the {prefix} number {number} to a friend."))
    };
    (0..count).map(tool).collect()
}

/// Words of which some are about tools.
fn words(prefix: &str) -> OwnerWords {
    let document = json!({
        "aliases": { format!("s/{prefix}_1"): ["the first one"] },
        "synonyms": { "note": { "words": ["note", "message"] } },
        "descriptions": { format!("s/{prefix}_2"): "Is described by the owner." },
        "boosts": { "tools": { format!("s/{prefix}_3"): 3.0 } },
    });
    OwnerWords::read(document.to_string().as_bytes()).unwrap()
}

/// A catalog with everything that one can have.
fn fill(data: &DataDir, name: &str, own: Settings) {
    let catalog = data.open_or_create(name, options()).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools(name, 150)).unwrap();
    writer.set_settings(&own).unwrap();
    writer.set_owner_words(&words(name)).unwrap();
    let ranker = Ranker::bundled().unwrap();
    writer.set_ranker(Some(&ranker)).unwrap();
    writer.commit().unwrap();
    writer
        .embed_pending(&mut |_| std::ops::ControlFlow::Continue(()))
        .unwrap();
}

/// What anybody can see of a catalog, and every vector of it.
fn seen(data: &DataDir, name: &str) -> Vec<String> {
    let catalog: Catalog = data.open(name, options()).unwrap();
    let searcher = catalog.searcher();
    assert_eq!(searcher.pending_embeddings(), 0, "{name}");
    let mut seen: Vec<String> = searcher
        .tools()
        .map(|tool| serde_json::to_string(&*tool).unwrap())
        .collect();
    seen.push(serde_json::to_string(searcher.settings()).unwrap());
    seen.push(format!("{:?}", searcher.owner_words()));
    let own = searcher.ranker().filter(|_| searcher.has_own_ranker());
    seen.push(format!(
        "{:?}",
        own.map(|own| own.to_bytes(Path::new("r")).unwrap())
    ));
    for request in ["send a message", "number 17 to my friend", "nothing"] {
        let results = searcher.search(&Query::new(request).k(20)).unwrap();
        let hits = results.hits.iter().map(|hit| (hit.id.as_str(), hit.score));
        seen.push(format!("{request}: {:?}", hits.collect::<Vec<_>>()));
    }
    let database = ToolsDb::open_read_only(&catalog.path().join("tools.db")).unwrap();
    for (model, dimensions) in database.models().unwrap() {
        let key = database.model(&model, dimensions).unwrap().unwrap();
        let (vectors, damaged) = database.vectors(key, dimensions).unwrap();
        assert_eq!(damaged, 0);
        let mut vectors: Vec<String> = vectors
            .iter()
            .map(|(text, vector)| format!("{model} {text:?} {vector:?}"))
            .collect();
        vectors.sort_unstable();
        seen.extend(vectors);
    }
    seen
}

fn open(postgres: &Postgres, runtime: &Runtime) -> Arc<PostgresStore> {
    PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn what_is_exported_is_what_was_imported() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let store = open(&postgres, &runtime);
    let [before, after] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let from = DataDir::new(before.path());
    let own = Settings {
        description: "'); DROP TABLE tools; --".to_owned(),
        search: SearchOptions {
            k: Some(7),
            ..SearchOptions::default()
        },
        dense_weight: 0.37,
        ..Settings::default()
    };
    fill(&from, "first", own);
    fill(&from, "second", Settings::default());
    for name in ["first", "second"] {
        let imported = runtime.block_on(store.import(&from, name, Existing::Refuse));
        let imported = imported.unwrap();
        assert_eq!((imported.added, imported.removed), (150, 0));
        assert!(imported.vectors >= 150, "{imported:?}");
    }
    let to = DataDir::new(after.path());
    for name in ["first", "second"] {
        let exported = runtime.block_on(store.export(&to, name)).unwrap();
        assert_eq!(exported.tools, 150);
        assert_eq!(seen(&from, name), seen(&to, name), "{name}");
    }
    let twice = runtime.block_on(store.export(&to, "first"));
    assert!(matches!(twice, Err(StoreError::Refused(_))), "{twice:?}");
    let missing = runtime.block_on(store.export(&to, "missing"));
    assert!(matches!(missing, Err(StoreError::Deleted)), "{missing:?}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_catalog_that_is_there_is_replaced_or_merged_only_when_that_is_said() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path());
    fill(&data, "default", Settings::default());
    let nodes = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, nodes.path());
    let others: Vec<Value> = ["other", "default_3"]
        .map(|name| tool("s", name, "Of the store."))
        .into();
    node.write("default", &others);
    let address = postgres.address();
    let folder = folder.path().display().to_string();
    let import = |flag: &[&str]| {
        let arguments = ["--json", "store", "import", &folder, "--store", &address];
        let output = program(nodes.path(), &[&arguments[..], flag].concat())
            .env("PGPASSWORD", PASSWORD)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice::<Value>(&output.stdout).map_err(|_| error)
    };
    let refused = import(&[]).unwrap_err();
    assert!(
        refused.contains("--merge") && refused.contains("--replace"),
        "{refused}"
    );
    assert_eq!(node.get("/v1/catalogs/default").body["tools"], 2);

    let merged = import(&["--merge"]).unwrap();
    assert_eq!(merged["default"]["added"], 149, "{merged}");
    assert_eq!(merged["default"]["changed"], 1, "{merged}");
    node.until("/v1/catalogs/default", |answer| answer.body["tools"] == 151);
    let replaced = import(&["--replace"]).unwrap();
    assert_eq!(replaced["default"]["unchanged"], 150, "{replaced}");
    assert_eq!(replaced["default"]["removed"], 1, "{replaced}");
    node.until("/v1/catalogs/default", |answer| answer.body["tools"] == 150);
    let found = node.search("default", &json!({ "query": "default number 17", "k": 1 }));
    assert_eq!(ids(&found), ["s/default_17"]);

    let none = import(&["--only", "missing"]).unwrap_err();
    assert!(none.contains("there are: default"), "{none}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn an_import_that_was_killed_goes_on() {
    let postgres = Postgres::start();
    let [folder, client] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let data = DataDir::new(folder.path());
    let catalog = data.open_or_create("big", Options::default()).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools("big", 12_000)).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let arguments = ["store", "import", &folder.path().display().to_string()].map(str::to_owned);
    let start = || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program(client.path(), &arguments)
            .args(["--store", &postgres.address()])
            .env("PGPASSWORD", PASSWORD)
            .spawn()
            .unwrap()
    };
    let mut first = start();
    let some = "SELECT coalesce((SELECT tools FROM toolscout.catalogs), 0) > 0";
    let exists = "SELECT to_regclass('toolscout.catalogs') IS NOT NULL";
    let begun = Instant::now();
    while postgres.query(exists) != "t" || postgres.query(some) != "t" {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let count = "SELECT count(*) FROM toolscout.tools";
    let before: usize = postgres.query(count).parse().unwrap();
    eprintln!("killed after {before} of 12,000 tools");
    assert!(start().wait().unwrap().success());
    assert_eq!(postgres.query(count), "12000");
    // It is finished, so the next one is another.
    assert!(!start().wait().unwrap().success());
}
