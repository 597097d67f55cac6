//! The static table in a catalog: never pending, stored with a commit, and heard beside a slower embedder.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::{DataDir, Embedder, Mode, Options, Query, Result, Scripts, Tool};

fn tools() -> Vec<Tool> {
    let tool = |name: &str, description: &str| {
        serde_json::from_value(json!({"server": "s", "name": name, "description": description})).unwrap()
    };
    vec![
        tool("get_forecast", "Weather conditions for the coming days."),
        tool("convert_currency", "Exchange rates between two currencies."),
        tool("send_email", "Write to somebody."),
    ]
}

fn options(embedders: Vec<Arc<dyn Embedder>>) -> Options {
    Options { embedders }
}

/// Slow as far as the engine knows; keeps the texts it was asked about.
struct Slow {
    inner: Hashing,
    asked: Mutex<Vec<String>>,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Slow { inner: Hashing::new(32), asked: Mutex::default() })
    }
}

impl Embedder for Slow {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn dimensions(&self) -> usize {
        self.inner.dimensions()
    }

    fn scripts(&self) -> Scripts {
        self.inner.scripts()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.asked.lock().unwrap().extend(texts.iter().map(|text| (*text).to_owned()));
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }
}

#[test]
fn a_commit_embeds_at_once_and_a_request_in_other_words_finds_its_tool() {
    let dir = tempfile::tempdir().unwrap();
    let table = StaticTable::bundled().unwrap();
    let catalog = DataDir::new(dir.path()).open_or_create("c", options(vec![table])).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    assert_eq!(writer.embed_pending(&mut |_| ControlFlow::Continue(())).unwrap(), 0);
    let stats = catalog.stats().unwrap();
    assert_eq!((stats.pending_embeddings, stats.vectors[0].1), (0, 9));
    let results = catalog.searcher().search(&Query::new("will it rain tomorrow")).unwrap();
    assert_eq!(results.mode, Mode::Hybrid);
    assert_eq!(results.hits[0].id.as_str(), "s/get_forecast");
    assert!(results.degraded.is_none());
}

#[test]
fn a_catalog_written_without_the_table_is_served_by_it_when_opened() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let mut writer = data.open_or_create("c", options(vec![])).unwrap().writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let catalog = data.open("c", options(vec![StaticTable::bundled().unwrap()])).unwrap();
    let results = catalog.searcher().search(&Query::new("will it rain tomorrow").mode(Mode::Dense)).unwrap();
    assert_eq!(results.hits[0].id.as_str(), "s/get_forecast");
    assert_eq!(catalog.searcher().pending_embeddings(), 0);
}

#[test]
fn a_slow_embedder_is_asked_about_whole_requests_and_the_table_about_clauses() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Slow::new();
    let embedders: Vec<Arc<dyn Embedder>> = vec![StaticTable::bundled().unwrap(), slow.clone()];
    let catalog = DataDir::new(dir.path()).open_or_create("c", options(embedders)).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    assert_eq!(catalog.searcher().pending_embeddings(), 3);
    // Two views a tool: the slow embedder does not take the description by itself.
    assert_eq!(writer.embed_pending(&mut |_| ControlFlow::Continue(())).unwrap(), 6);
    assert_eq!(catalog.searcher().pending_embeddings(), 0);

    let request = "Check the weather forecast in Oslo and then send an email to Ann";
    let results = catalog.searcher().search(&Query::new(request).explain()).unwrap();
    assert_eq!(*slow.asked.lock().unwrap(), [request]);
    let explain = results.hits[0].explain.as_ref().unwrap();
    assert_eq!((explain.clauses.len(), explain.dense.len()), (2, 2));
    assert_eq!(explain.dense_weight, catalog.searcher().settings().joint_dense_weight);
}
