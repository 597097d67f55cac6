//! The static table in a catalog: it is never pending, its vectors are in a file that may be lost,
//! and it scores beside a slower embedder.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Mode, Options, Query, Result, Searcher, Tool,
};

fn tools() -> Vec<Tool> {
    let tool = |name: &str, description: &str| {
        serde_json::from_value(json!({"server": "s", "name": name, "description": description}))
            .unwrap()
    };
    vec![
        tool("get_forecast", "Weather conditions for the coming days."),
        tool("convert_currency", "Exchange rates between two currencies."),
        tool("send_email", "Write to somebody."),
    ]
}

fn options(embedders: Vec<Arc<dyn Embedder>>) -> Options {
    Options::new(embedders)
}

/// An embedder that the engine treats as slow; it stores the requests that it embeds.
struct Slow {
    inner: Hashing,
    asked: Mutex<Vec<String>>,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Slow {
            inner: Hashing::new(32),
            asked: Mutex::default(),
        })
    }
}

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.asked
            .lock()
            .unwrap()
            .extend(texts.iter().map(|text| (*text).to_owned()));
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
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", options(vec![table]))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    assert_eq!(
        writer
            .embed_pending(&mut |_| ControlFlow::Continue(()))
            .unwrap(),
        0
    );
    let stats = catalog.stats().unwrap();
    assert_eq!((stats.pending_embeddings, stats.vectors[0].1), (0, 9));
    let results = catalog
        .searcher()
        .search(&Query::new("will it rain tomorrow"))
        .unwrap();
    assert_eq!(results.mode, Mode::Hybrid);
    assert_eq!(results.hits[0].id.as_str(), "s/get_forecast");
    assert!(results.degraded.is_none());
}

#[test]
fn a_catalog_written_without_the_table_is_embedded_by_it_when_opened() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let mut writer = data
        .open_or_create("c", options(vec![]))
        .unwrap()
        .writer()
        .unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let catalog = data
        .open("c", options(vec![StaticTable::bundled().unwrap()]))
        .unwrap();
    let results = catalog
        .searcher()
        .search(&Query::new("will it rain tomorrow").mode(Mode::Dense))
        .unwrap();
    assert_eq!(results.hits[0].id.as_str(), "s/get_forecast");
    assert_eq!(catalog.searcher().pending_embeddings(), 0);
}

#[test]
fn a_slow_embedder_is_asked_about_whole_requests_and_the_table_about_clauses() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Slow::new();
    let embedders: Vec<Arc<dyn Embedder>> = vec![StaticTable::bundled().unwrap(), slow.clone()];
    let catalog = DataDir::new(dir.path())
        .open_or_create("c", options(embedders))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    assert_eq!(catalog.searcher().pending_embeddings(), 3);
    // Two views a tool: the slow embedder has none of the description alone.
    assert_eq!(
        writer
            .embed_pending(&mut |_| ControlFlow::Continue(()))
            .unwrap(),
        6
    );
    assert_eq!(catalog.searcher().pending_embeddings(), 0);

    let request = "Check the weather forecast in Oslo and then send an email to Ann";
    let results = catalog
        .searcher()
        .search(&Query::new(request).explain())
        .unwrap();
    assert_eq!(*slow.asked.lock().unwrap(), [request]);
    let explain = results.hits[0].explain.as_ref().unwrap();
    assert_eq!((explain.clauses.len(), explain.dense.len()), (2, 2));
    assert_eq!(
        explain.dense_weight,
        catalog.searcher().settings().joint_dense_weight
    );
}

#[test]
fn a_missing_or_damaged_file_of_vectors_is_written_again_and_changes_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let open = || {
        data.open_or_create("c", options(vec![StaticTable::bundled().unwrap()]))
            .unwrap()
    };
    let catalog = open();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&many_tools(600)).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let file = catalog.path().join("static-table.vectors");
    let written = std::fs::read(&file).unwrap();
    let answer = |catalog: &Catalog| {
        let query = Query::new("exchange rates").mode(Mode::Dense).k(50);
        let hits = catalog.searcher().search(&query).unwrap().hits;
        hits.into_iter()
            .map(|hit| (hit.id, hit.score))
            .collect::<Vec<_>>()
    };
    let expected = answer(&catalog);
    assert_eq!(answer(&open()), expected, "from the file");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(answer(&open()), expected, "without a file");
    assert_eq!(
        std::fs::read(&file).unwrap(),
        written,
        "made again by who opened"
    );
    let mut damaged = written.clone();
    damaged[written.len() / 2] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    assert_eq!(answer(&open()), expected, "from a damaged file");
    assert_eq!(std::fs::read(&file).unwrap(), written);
}

#[test]
fn a_change_embeds_changed_tools_only_and_answers_like_a_new_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let counting = Counting::new();
    let catalog = data
        .open_or_create("c", options(vec![counting.clone()]))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&many_tools(40)).unwrap();
    writer.commit().unwrap();
    assert_eq!(counting.taken(), 3 * 40);
    let mut changed = many_tools(40);
    changed[7].description = "Feeds the cat.".to_owned();
    writer.remove(&[changed[3].id.clone()]).unwrap();
    writer.upsert(&changed[7..8]).unwrap();
    writer.commit().unwrap();
    assert_eq!(counting.taken(), 3);
    changed.remove(3);
    let fresh = data
        .open_or_create("fresh", options(vec![counting]))
        .unwrap();
    let mut writer = fresh.writer().unwrap();
    writer.upsert(&changed).unwrap();
    writer.commit().unwrap();
    let answer = |catalog: &Catalog| {
        let hits = catalog
            .searcher()
            .search(&Query::new("food for a kitten").mode(Mode::Dense))
            .unwrap()
            .hits;
        hits.into_iter()
            .map(|hit| (hit.id, hit.score))
            .collect::<Vec<_>>()
    };
    assert_eq!(answer(&catalog)[0].0.as_str(), changed[6].id.as_str());
    assert_eq!(answer(&catalog), answer(&fresh));
}

fn many_tools(count: usize) -> Vec<Tool> {
    let kinds = [
        "weather forecasts",
        "exchange rates",
        "e-mails",
        "train tickets",
        "database rows",
    ];
    let verbs = [
        "Lists", "Finds", "Deletes", "Converts", "Counts", "Watches", "Prints",
    ];
    let tool = |number: usize| {
        let (verb, kind) = (verbs[number % verbs.len()], kinds[number % kinds.len()]);
        let description = format!("{verb} {kind} of group {number}.");
        let json =
            json!({"server": "s", "name": format!("tool_{number:04}"), "description": description});
        serde_json::from_value(json).unwrap()
    };
    (0..count).map(tool).collect()
}

/// The table without leading dimensions, so that no score is rough.
struct Whole(Arc<StaticTable>);

impl Embedder for Whole {
    fn profile(&self) -> EmbedderProfile<'_> {
        let profile = self.0.profile();
        EmbedderProfile {
            leading_dimensions: profile.dimensions,
            ..profile
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_tools(texts)
    }
}

#[test]
fn rough_scores_do_not_change_the_answers_of_a_large_catalog() {
    let actions =
        "create delete update list search send book cancel convert translate summarize schedule"
            .split(' ');
    let things = "invoice ticket flight hotel meeting photo playlist contract shipment refund recipe patient vaccine \
                  stadium lawsuit password firewall database tournament glacier"
        .split_whitespace();
    let places =
        "slack github notion stripe jira shopify zendesk airtable hubspot dropbox".split(' ');
    let mut many: Vec<Tool> = Vec::new();
    for (action, thing) in
        actions.flat_map(|action| things.clone().map(move |thing| (action, thing)))
    {
        many.extend(places.clone().map(|place| {
            let description = format!("{action}s a {thing} in {place}");
            serde_json::from_value(
                json!({"server": place, "name": format!("{action}_{thing}"), "description": description}),
            )
            .unwrap()
        }));
    }
    let dir = tempfile::tempdir().unwrap();
    let table = StaticTable::bundled().unwrap();
    assert!(many.len() > 2048 && table.leading_dimensions() < table.dimensions());
    let catalog = |name: &str, embedder: Arc<dyn Embedder>| {
        let catalog = DataDir::new(dir.path())
            .open_or_create(name, options(vec![embedder]))
            .unwrap();
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&many).unwrap();
        writer.commit().unwrap();
        catalog.searcher()
    };
    let (rough, whole) = (
        catalog("rough", table.clone()),
        catalog("whole", Arc::new(Whole(table))),
    );
    for mode in [Mode::Hybrid, Mode::Dense] {
        for text in [
            "get my money back from the shop",
            "reserve a room for two nights",
            "put an appointment with the team into the calendar, and mail them",
            "is there ice left in the mountains",
            "sue somebody",
            "remove the picture from my drive",
            "somebody forgot the secret for logging in",
            "jab against the flu",
        ] {
            let hits = |searcher: &Searcher| -> Vec<(String, f32)> {
                let results = searcher.search(&Query::new(text).mode(mode).k(5)).unwrap();
                let hits = results.hits.iter();
                hits.map(|hit| (hit.id.to_string(), hit.score)).collect()
            };
            let (rough, whole) = (hits(&rough), hits(&whole));
            assert_eq!(rough.len(), whole.len(), "{mode:?}: {text}");
            for ((id, _), (_, expected)) in rough.iter().zip(&whole) {
                let exact = whole.iter().find(|(other, _)| other == id);
                // Hits that are equally good may change places: scores are scaled by those of the
                // worst tools, which stay rough.
                assert!(
                    exact.is_some_and(|(_, score)| (score - expected).abs() < 0.001),
                    "{mode:?}: {text}: {rough:?}, exactly {whole:?}"
                );
            }
        }
    }
}

struct Counting {
    inner: Arc<StaticTable>,
    texts: AtomicUsize,
}

impl Counting {
    fn new() -> Arc<Self> {
        Arc::new(Counting {
            inner: StaticTable::bundled().unwrap(),
            texts: AtomicUsize::new(0),
        })
    }

    /// Texts embedded since the last call.
    fn taken(&self) -> usize {
        self.texts.swap(0, Ordering::Relaxed)
    }
}

impl Embedder for Counting {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        self.inner.embed_tools(texts)
    }
}
