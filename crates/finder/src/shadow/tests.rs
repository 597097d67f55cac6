//! A shadow that is made, follows its catalog and answers, without its thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tempfile::TempDir;
use toolscout_base::config::{EmbedderKind, SettingsChange};
use toolscout_gate::usage::Origin;
use toolscout_gate::usage::shadow::{ComparedSearch, SecondSearch, ShadowState, Shown};
use toolscout_index::embed::Hashing;
use toolscout_index::memory::{Source, Switch};
use toolscout_index::{
    DataDir, Embedder, EmbedderProfile, Enrichment, OwnerWords, Query, Tool, ToolId,
};

use super::copy::{Copy, Making};
use super::pace::Pace;
use super::worker::Worker;
use super::*;
use crate::finder::snapshot::repeated;

/// Counts the texts of tools that it embeds.
struct Counting(Hashing, AtomicUsize);

impl Embedder for Counting {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.0.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> toolscout_index::Result<Vec<Vec<f32>>> {
        self.0.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> toolscout_index::Result<Vec<Vec<f32>>> {
        self.1.fetch_add(texts.len(), Ordering::Relaxed);
        self.0.embed_tools(texts)
    }
}

/// A catalog, and what its shadow is made with.
struct Setting {
    folder: TempDir,
    catalog: Catalog,
    embedder: Arc<Counting>,
    pace: Arc<Pace>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let embedder = Arc::new(Counting(Hashing::new(32), AtomicUsize::new(0)));
        let options = Options::new(vec![embedder.clone()]);
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", options)
            .unwrap();
        let (shadow, _events) = Shadow::new(Identity::default(), "c");
        let setting = Setting {
            folder,
            catalog,
            embedder,
            pace: Arc::new(Pace::new(shadow)),
        };
        setting.write(&[
            tool("mail", "send", "Sends an e-mail to a person"),
            tool("mail", "draft", "Writes a draft of an e-mail"),
            tool("shop", "order", "Orders goods"),
        ]);
        setting
    }

    fn write(&self, tools: &[Tool]) {
        let mut writer = self.catalog.writer().unwrap();
        writer.upsert(tools).unwrap();
        writer.commit().unwrap();
        writer
            .embed_pending(&mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
    }

    fn making<'a>(&'a self, plan: &'a Plan, options: Options) -> Making<'a> {
        Making {
            plan,
            original: &self.catalog,
            options,
            pace: &self.pace,
        }
    }

    /// The copy that this plan makes, up to date.
    fn copy(&self, plan: &Plan) -> Copy {
        let making = self.making(plan, self.catalog.options());
        let mut copy = Copy::open(self.folder.path(), &making).unwrap();
        copy.follow(&making).unwrap();
        assert!(copy.is_current(&making));
        copy
    }

    fn embedded(&self) -> usize {
        self.embedder.1.load(Ordering::Relaxed)
    }
}

fn tool(server: &str, name: &str, description: &str) -> Tool {
    Tool::new(server, name)
        .unwrap()
        .with_description(description)
}

fn id(text: &str) -> ToolId {
    ToolId::parse(text).unwrap()
}

fn plan(settings: &ShadowSettings) -> Plan {
    Plan::new(settings, "c", &BTreeMap::new(), Box::new(Options::default)).unwrap()
}

/// A shadow with words that put a tool first for a request.
fn pinned(folder: &Path, request: &str, tool: &str) -> ShadowSettings {
    let file = folder.join("words.json");
    let words = json!({ "pins": { "p": { "query": request, "tool": tool } } });
    std::fs::write(&file, words.to_string()).unwrap();
    ShadowSettings {
        words: Some(file),
        ..ShadowSettings::default()
    }
}

fn first(searcher: &Searcher, text: &str) -> String {
    let results = searcher.search(&Query::new(text)).unwrap();
    results.hits[0].id.to_string()
}

#[test]
fn a_shadow_has_other_words_and_the_vectors_of_its_catalog() {
    let setting = Setting::new();
    let before = setting.embedded();
    let plan = plan(&pinned(setting.folder.path(), "send mail", "shop/order"));
    let copy = setting.copy(&plan);
    assert_eq!(setting.embedded(), before, "nothing is embedded again");
    let shadow = copy.searcher();
    assert_eq!(first(&shadow, "send mail"), "shop/order");
    assert_ne!(
        first(&setting.catalog.searcher(), "send mail"),
        "shop/order"
    );
    assert_eq!(
        shadow.embedder_ids(),
        setting.catalog.searcher().embedder_ids()
    );
    let catalogs = DataDir::new(setting.folder.path()).catalogs().unwrap();
    assert_eq!(catalogs, ["c"], "no list shows it");
}

#[test]
fn a_shadow_follows_what_changes_and_embeds_no_more_than_that() {
    let setting = Setting::new();
    let plan = plan(&ShadowSettings {
        embedder: Some(EmbedderKind::Hashing),
        ..ShadowSettings::default()
    });
    let other = Arc::new(Counting(Hashing::new(16), AtomicUsize::new(0)));
    let options = || Options::new(vec![other.clone()]);
    let making = setting.making(&plan, options());
    let mut copy = Copy::open(setting.folder.path(), &making).unwrap();
    copy.follow(&making).unwrap();
    let whole = other.1.swap(0, Ordering::Relaxed);
    assert!(whole >= 3, "{whole}");
    // A changed tool, one less, and a text.
    setting.write(&[tool("shop", "order", "Buys flowers for a birthday")]);
    let mut writer = setting.catalog.writer().unwrap();
    writer.remove(&[id("mail/draft")]).unwrap();
    let send = setting.catalog.searcher().tool(&id("mail/send")).unwrap();
    let text = Enrichment::new(vec!["tell somebody something".to_owned()], "model").unwrap();
    assert!(writer.set_enrichment(&send, &text).unwrap());
    let words = OwnerWords::read(br#"{"aliases":{"mail/send":["post"]}}"#).unwrap();
    writer.set_owner_words(&words).unwrap();
    writer.commit().unwrap();
    drop(writer);
    assert!(!copy.is_current(&making));
    // As after a restart.
    drop(copy);
    let mut copy = Copy::open(setting.folder.path(), &making).unwrap();
    copy.follow(&making).unwrap();
    assert!(copy.is_current(&making));
    let changed = other.1.load(Ordering::Relaxed);
    assert!((1..2 * whole).contains(&changed), "{changed} of {whole}");
    let shadow = copy.searcher();
    let live = setting.catalog.searcher();
    assert_eq!(shadow.len(), 2);
    assert_eq!(shadow.enrichment(&id("mail/send")), Some(&text));
    assert_eq!(shadow.owner_words(), Some(&words));
    assert_eq!(shadow.tool(&id("shop/order")), live.tool(&id("shop/order")));
    assert_eq!(copy.generation(), Some(live.generation()));
    // Nothing to do.
    other.1.store(0, Ordering::Relaxed);
    copy.follow(&making).unwrap();
    assert_eq!(other.1.load(Ordering::Relaxed), 0);
    // What a description no longer has is gone here too.
    let mut writer = setting.catalog.writer().unwrap();
    writer.clear_enrichments(&[id("mail/send")]).unwrap();
    writer.set_owner_words(&OwnerWords::default()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    copy.follow(&making).unwrap();
    let shadow = copy.searcher();
    assert_eq!(shadow.enrichment(&id("mail/send")), None);
    assert_eq!(shadow.owner_words(), None);
}

#[test]
fn a_shadow_has_other_settings_beside_those_of_its_catalog() {
    let setting = Setting::new();
    let table = json!({ "k": 1, "mode": "lexical" });
    let plan = plan(&ShadowSettings {
        settings: Some(SettingsChange::Table(table.as_object().unwrap().clone())),
        ..ShadowSettings::default()
    });
    let mut writer = setting.catalog.writer().unwrap();
    let mut settings = writer.settings().unwrap();
    settings.search.companions = Some(false);
    writer.set_settings(&settings).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let shadow = setting.copy(&plan).searcher();
    let search = shadow.settings().search;
    assert_eq!((search.k, search.companions), (Some(1), Some(false)));
    let results = shadow.search(&Query::new("an e-mail")).unwrap();
    assert_eq!(results.hits.len(), 1);
    assert_eq!(results.mode, toolscout_index::Mode::Lexical);
}

#[test]
fn a_shadow_remembers_what_its_catalog_remembers() {
    let setting = Setting::new();
    let memory = setting.catalog.memory();
    memory.set_switch(Switch::On).unwrap();
    let source = Source::command_line();
    memory
        .remember("buy a gift", &id("shop/order"), 1, &source)
        .unwrap();
    let plan = plan(&pinned(setting.folder.path(), "x", "shop/order"));
    let copy = setting.copy(&plan);
    let [live, shadow] = [setting.catalog.searcher(), copy.searcher()].map(|searcher| {
        let results = searcher.search(&Query::new("buy a gift")).unwrap();
        let hits = results.hits.iter();
        hits.map(|hit| (hit.id.to_string(), hit.score))
            .collect::<Vec<_>>()
    });
    assert_eq!(live, shadow);
    assert_eq!(live[0].0, "shop/order");
}

#[test]
fn a_shadow_without_ranker_answers_in_the_order_of_scores() {
    let setting = Setting::new();
    let plan = plan(&ShadowSettings {
        ranker: Some("none".into()),
        ..ShadowSettings::default()
    });
    assert!(!plan.is_ranked());
    let copy = setting.copy(&plan);
    let searcher = copy.searcher();
    let query = Query::new("send an e-mail").near(2);
    let [ranked, unranked] = [true, false].map(|is_ranked| {
        let second = SecondSearch {
            searcher: &searcher,
            is_ranked,
        };
        (
            second.answer(query.clone()).unwrap(),
            repeated(query.clone(), 2, &second).unwrap(),
        )
    });
    assert!(unranked.0.confidence.is_none() || ranked.0.confidence != unranked.0.confidence);
    let hits = unranked.0.hits.iter().map(|hit| hit.id.clone());
    assert_eq!(unranked.1.hits, hits.collect::<Vec<_>>());
}

#[test]
fn a_plan_is_known_by_the_contents_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let of = |settings: &ShadowSettings| plan(settings).identity.id;
    let words = pinned(folder.path(), "a", "s/t");
    let first = of(&words);
    assert_eq!(of(&words), first);
    let shared = ShadowSettings {
        share: Some(1.0),
        ..words.clone()
    };
    assert_eq!(of(&shared), first, "the share changes no answer");
    let other = of(&pinned(folder.path(), "b", "s/t"));
    let unranked = of(&ShadowSettings {
        ranker: Some("none".into()),
        ..words
    });
    assert!(first != other && other != unranked);
}

/// A catalog that is pushed down, or not to be worked on.
struct Elsewhere {
    catalog: Catalog,
    is_idle: bool,
}

struct PushedDown(Catalog);

impl Surroundings for Elsewhere {
    fn original(&self) -> Option<Arc<dyn Original>> {
        Some(Arc::new(PushedDown(self.catalog.clone())))
    }

    fn is_idle(&self) -> bool {
        self.is_idle
    }
}

impl Original for PushedDown {
    fn snapshot(&self) -> Arc<Searcher> {
        self.0.searcher()
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn options(&self) -> Options {
        self.0.options()
    }

    fn memory(&self) -> &Memory {
        self.0.memory()
    }

    fn is_pushed_down(&self) -> bool {
        true
    }
}

#[test]
fn a_catalog_that_is_pushed_down_has_no_shadow_and_nothing_is_done_while_searches_wait() {
    let setting = Setting::new();
    let data = setting.folder.path();
    for (is_idle, expected) in [(false, "waiting"), (true, "failed")] {
        let plan = plan(&pinned(data, "a", "s/t"));
        let (shadow, _events) = Shadow::new(plan.identity.clone(), "c");
        let store = UsageDatabase::open(data).unwrap();
        let surroundings = Elsewhere {
            catalog: setting.catalog.clone(),
            is_idle,
        };
        let surroundings = Box::new(surroundings);
        let mut worker = Worker::new(shadow.clone(), store, data, plan, surroundings);
        worker.work(&setting.pace);
        let state = shadow.state();
        assert_eq!(state.as_str(), expected);
        if let ShadowState::Failed(reason) = state {
            assert!(reason.contains("push_down_above"), "{reason}");
        }
    }
}

#[test]
fn a_worker_compares_and_a_panic_of_one_search_does_not_end_it() {
    let setting = Setting::new();
    let data = setting.folder.path();
    let plan = plan(&pinned(data, "send mail", "shop/order"));
    let (shadow, events) = Shadow::new(plan.identity.clone(), "c");
    let store = UsageDatabase::open(data).unwrap();
    let surroundings = Box::new(setting.catalog.clone());
    let worker = Worker::new(shadow.clone(), store, data, plan, surroundings);
    let search = |repeat: toolscout_gate::usage::shadow::Repeat| ComparedSearch {
        origin: Origin::default(),
        request: Some("r".to_owned()),
        shown: Shown {
            hits: vec![id("mail/send"), id("shop/order")],
            more: Vec::new(),
        },
        repeat,
    };
    shadow.searched(1, search(Box::new(|_| panic!("of a test"))));
    let query = Query::new("send mail").k(2);
    shadow.searched(
        1,
        search(Box::new(move |second| repeated(query, 0, second))),
    );
    shadow.set_state(ShadowState::Ready);
    shadow.used(2, &Default::default(), "r", &id("shop/order"));
    let ending = shadow.clone();
    let thread = std::thread::spawn(move || worker.run(&events));
    while ending.figures(None, 0, 1).unwrap().is_empty() {
        ending.pause(std::time::Duration::from_millis(5));
    }
    ending.end();
    thread.join().unwrap();
    let store = UsageDatabase::open(data).unwrap();
    let identity = shadow.identity();
    let days = store.shadow("c", &identity.id, 0).unwrap();
    let figures = days[0].1;
    assert_eq!((figures.searches, figures.calls), (1, 1), "{figures:?}");
    assert_eq!((figures.live_first, figures.second_first), (0, 1));
    let bytes = std::fs::read(data.join(toolscout_gate::usage::FILE_NAME)).unwrap();
    assert!(!bytes.windows(9).any(|part| part == b"send mail"));
}
