//! Searches that leave something out: parts on request, variants by time budget, near-duplicates.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Error, Mode, Options, Parts, Query, Result,
    Results, SearchOptions, Settings, Tool, Variant,
};

const REQUEST: &str = "Check the weather forecast in Oslo and then send an email to Ann";

/// An embedder that the engine treats as slow; it counts the requests that it embeds.
struct Slow {
    inner: Hashing,
    asked: AtomicUsize,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Slow {
            inner: Hashing::new(32),
            asked: AtomicUsize::new(0),
        })
    }
}

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            id: "slow",
            ..self.inner.profile()
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.asked.fetch_add(texts.len(), Ordering::Relaxed);
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }
}

fn tool(server: &str, name: &str, description: &str) -> Tool {
    serde_json::from_value(json!({"server": server, "name": name, "description": description}))
        .unwrap()
}

fn tools() -> Vec<Tool> {
    vec![
        tool(
            "met",
            "get_forecast",
            "Weather conditions for the coming days.",
        ),
        tool(
            "bank",
            "convert_currency",
            "Exchange rates between two currencies.",
        ),
        tool("mail", "send_email", "Write to somebody."),
    ]
}

fn catalog(
    dir: &tempfile::TempDir,
    name: &str,
    embedders: Vec<Arc<dyn Embedder>>,
    tools: &[Tool],
) -> Catalog {
    let catalog = DataDir::new(dir.path())
        .open_or_create(name, Options::new(embedders))
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer
        .embed_pending(&mut |_| ControlFlow::Continue(()))
        .unwrap();
    catalog
}

fn ask(catalog: &Catalog, query: Query) -> Results {
    catalog.searcher().search(&query.explain()).unwrap()
}

#[test]
fn each_variant_does_less_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Slow::new();
    let both = catalog(
        &dir,
        "both",
        vec![StaticTable::bundled().unwrap(), slow.clone()],
        &tools(),
    );
    let seen: Vec<(Variant, usize, usize, usize)> = Variant::ALL
        .into_iter()
        .map(|variant| {
            let before = slow.asked.load(Ordering::Relaxed);
            let results = ask(&both, Query::new(REQUEST).variant(variant));
            let clauses = results.hits[0].explain.as_ref().unwrap().clauses.len();
            let asked = slow.asked.load(Ordering::Relaxed) - before;
            (results.variant, results.embedders.len(), clauses, asked)
        })
        .collect();
    let expected = [
        (Variant::Full, 2, 2, 1),
        (Variant::Instant, 1, 2, 0),
        (Variant::Whole, 1, 0, 0),
        (Variant::Lexical, 0, 0, 0),
    ];
    assert_eq!(seen, expected);
    let lexical = ask(&both, Query::new(REQUEST).variant(Variant::Lexical));
    assert_eq!((lexical.mode, lexical.degraded), (Mode::Lexical, None));
}

#[test]
fn without_an_instant_embedder_the_slow_one_is_used_by_all_variants_but_lexical() {
    let dir = tempfile::tempdir().unwrap();
    let alone = catalog(&dir, "alone", vec![Slow::new()], &tools());
    let embedders_of = |variant| {
        ask(&alone, Query::new(REQUEST).variant(variant))
            .embedders
            .len()
    };
    assert_eq!(Variant::ALL.map(embedders_of), [1, 1, 1, 0]);
}

#[test]
fn a_budget_chooses_the_variant_and_dense_searches_stay_dense() {
    let dir = tempfile::tempdir().unwrap();
    let both = catalog(
        &dir,
        "both",
        vec![StaticTable::bundled().unwrap(), Slow::new()],
        &tools(),
    );
    let chosen =
        |mode, budget_ms| ask(&both, Query::new(REQUEST).mode(mode).budget_ms(budget_ms)).variant;
    assert_eq!(chosen(Mode::Auto, 1e-9), Variant::Lexical);
    assert_eq!(chosen(Mode::Dense, 1e-9), Variant::Whole);
    assert_eq!(chosen(Mode::Auto, 1e9), Variant::Full);
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let result = both.searcher().search(&Query::new("x").budget_ms(wrong));
        assert!(matches!(result, Err(Error::InvalidQuery { .. })), "{wrong}");
    }
}

#[test]
fn parts_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let table = StaticTable::bundled().unwrap();
    let both = catalog(&dir, "both", vec![table.clone(), Slow::new()], &tools());
    let embedders_of = |parts| ask(&both, Query::new(REQUEST).parts(parts)).embedders;
    assert_eq!(
        embedders_of(Parts {
            instant_embedders: false,
            ..Parts::ALL
        }),
        ["slow"]
    );
    assert_eq!(
        embedders_of(Parts {
            slow_embedders: false,
            ..Parts::ALL
        }),
        [table.id()]
    );
    let chinese = |language_gate| {
        let parts = Parts {
            slow_embedders: false,
            language_gate,
            ..Parts::ALL
        };
        ask(&both, Query::new("查询天气 email").parts(parts))
            .embedders
            .len()
    };
    assert_eq!((chinese(true), chinese(false)), (0, 1));
    let cosine = |views| {
        let parts = Parts {
            slow_embedders: false,
            clauses: false,
            views,
            ..Parts::ALL
        };
        ask(
            &both,
            Query::new("write to somebody")
                .mode(Mode::Dense)
                .parts(parts),
        )
        .signals
        .cosine
        .unwrap()
    };
    assert!(
        cosine(true) > 0.99 && cosine(false) < 0.95,
        "the description is a view of its own"
    );
}

#[test]
fn near_duplicates_are_folded_into_the_best_and_the_filter_applies_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let description = "Writes an email with a subject to somebody and sends it at once or later.";
    let mut all = tools();
    all.extend(["a", "b", "c"].map(|server| tool(server, "send_email", description)));
    all[3] = tool("a", "send_email", &format!("{description} Urgently."));
    let catalog = catalog(&dir, "c", vec![], &all);
    let query = || Query::new("urgently email somebody").fold_duplicates();
    // As a default of the catalog, too, which a query can overrule.
    let fold = |fold_duplicates| {
        let mut settings = Settings::default();
        settings.search.fold_duplicates = fold_duplicates;
        let mut writer = catalog.writer().unwrap();
        writer.set_settings(&settings).unwrap();
        writer.commit().unwrap();
    };
    fold(Some(true));
    let plain = ask(&catalog, Query::new("urgently email somebody")).hits;
    assert_eq!(plain[0].also_on.len(), 2);
    let options = SearchOptions {
        fold_duplicates: Some(false),
        ..SearchOptions::default()
    };
    let unfolded = Query::new("urgently email somebody").options(options);
    assert!(ask(&catalog, unfolded).hits[0].also_on.is_empty());
    fold(None);
    let hits = ask(&catalog, query()).hits;
    let folded: Vec<(String, Vec<String>)> = hits
        .iter()
        .map(|hit| {
            (
                hit.id.to_string(),
                hit.also_on.iter().map(ToString::to_string).collect(),
            )
        })
        .collect();
    assert_eq!(
        folded[0],
        (
            "a/send_email".to_owned(),
            vec!["b/send_email".to_owned(), "c/send_email".to_owned()]
        )
    );
    assert!(
        !folded
            .iter()
            .any(|(id, _)| id == "b/send_email" || id == "c/send_email"),
        "{folded:?}"
    );
    let several = Query::any_of(["send_email", "urgently email somebody"]).fold_duplicates();
    let ids: Vec<String> = ask(&catalog, several)
        .hits
        .iter()
        .map(|hit| hit.id.to_string())
        .collect();
    assert_eq!(
        ids.iter()
            .filter(|id| ["a/send_email", "b/send_email", "c/send_email"].contains(&id.as_str()))
            .count(),
        1
    );
    let filter = toolscout_index::Filter {
        servers: ["b".to_owned(), "c".to_owned()].into(),
        ..Default::default()
    };
    let filtered = ask(&catalog, query().filter(filter)).hits;
    assert_eq!((filtered.len(), filtered[0].also_on.len()), (1, 1));
    let mut writer = catalog.writer().unwrap();
    writer.remove(&[all[4].id.clone()]).unwrap();
    writer.commit().unwrap();
    assert_eq!(ask(&catalog, query()).hits[0].also_on.len(), 1);
    assert!(
        ask(&catalog, Query::new("email"))
            .hits
            .iter()
            .all(|hit| hit.also_on.is_empty())
    );
}

#[test]
fn warming_up_asks_no_embedder_that_is_not_built_in() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Slow::new();
    let embedders: Vec<Arc<dyn Embedder>> = vec![StaticTable::bundled().unwrap(), slow.clone()];
    let catalog = catalog(&dir, "c", embedders, &tools());
    let before = slow.asked.load(Ordering::Relaxed);
    catalog.searcher().warm_up();
    assert_eq!(slow.asked.load(Ordering::Relaxed), before);
}
