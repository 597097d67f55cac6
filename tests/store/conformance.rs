//! What a catalog does with changes, whichever store holds it: the same functions run over both.

use std::sync::Arc;

use futures_util::future::join_all;
use prometheus_client::metrics::gauge::Gauge;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolscout::catalog_writer::{CatalogStore, CatalogWriter, Change, LocalStore, WriteError};
use toolscout::shared::CreatedCatalog;
use toolscout::store::{FollowingStore, PostgresStore};
use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, Changes, DataDir, Enrichment, Error, Options, Query, Ranker, SearchOptions, Tool,
    ToolId,
};

use super::postgres::Postgres;

/// A catalog with the store that its changes go to.
struct World {
    store: Box<dyn CatalogStore>,
    catalog: Catalog,
    runtime: Runtime,
    _folder: TempDir,
    _postgres: Option<Postgres>,
}

impl World {
    fn local() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&folder);
        World {
            store: Box::new(LocalStore(catalog.clone())),
            catalog,
            runtime: Runtime::new().unwrap(),
            _folder: folder,
            _postgres: None,
        }
    }

    fn shared() -> Self {
        let postgres = Postgres::start();
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&folder);
        let runtime = Runtime::new().unwrap();
        let shared = PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap();
        let created = runtime.block_on(shared.create("c", 1)).unwrap();
        let CreatedCatalog::Now(stored) = created else {
            panic!("{created:?}");
        };
        let mut following = FollowingStore::new(Arc::clone(&shared), catalog.clone(), &stored);
        following.refresh().unwrap();
        World {
            store: Box::new(following),
            catalog,
            runtime,
            _folder: folder,
            _postgres: Some(postgres),
        }
    }

    fn commit(&mut self, change: Change) -> (Changes, u64) {
        let mut written = self.store.commit(&[&change]).unwrap();
        let written = written.remove(0);
        (written.changes, written.generation)
    }

    /// What anybody can see of it.
    fn seen(&self) -> Vec<String> {
        let searcher = self.catalog.searcher();
        let tools = searcher.tools();
        let mut seen: Vec<String> = tools
            .map(|tool| serde_json::to_string(&*tool).unwrap())
            .collect();
        seen.push(serde_json::to_string(searcher.settings()).unwrap());
        seen.push(searcher.has_own_ranker().to_string());
        for request in ["send a message", "remove the third", "weather tomorrow"] {
            let results = searcher.search(&Query::new(request).k(5)).unwrap();
            let hits = results.hits.iter().map(|hit| (hit.id.as_str(), hit.score));
            seen.push(format!("{request}: {:?}", hits.collect::<Vec<_>>()));
        }
        seen
    }
}

fn catalog(folder: &TempDir) -> Catalog {
    let options = Options::new(vec![StaticTable::bundled().unwrap()]);
    DataDir::new(folder.path())
        .open_or_create("c", options)
        .unwrap()
}

fn tool(server: &str, name: &str, description: &str) -> Tool {
    Tool::new(server, name)
        .unwrap()
        .with_description(description)
}

fn id(text: &str) -> ToolId {
    ToolId::parse(text).unwrap()
}

fn ids(texts: &[&str]) -> Vec<ToolId> {
    texts.iter().map(|text| id(text)).collect()
}

/// The same changes, one after another; what each did is checked on the way.
fn changes(world: &mut World) {
    let (done, first) = world.commit(Change::Upsert(vec![
        tool("mail", "send", "Sends a message."),
        tool("mail", "read", "Reads messages."),
        tool("weather", "forecast", "Weather of the coming days."),
        tool("", "alone", "Of no server."),
    ]));
    assert_eq!(
        done.added,
        ids(&["alone", "mail/read", "mail/send", "weather/forecast"])
    );
    let changed = Change::Upsert(vec![
        tool("mail", "send", "Sends a message to somebody."),
        tool("mail", "read", "Reads messages."),
    ]);
    let (done, second) = world.commit(changed.clone());
    assert_eq!(
        (done.changed, done.unchanged, second),
        (ids(&["mail/send"]), 1, first + 1)
    );
    let (done, same) = world.commit(changed);
    assert_eq!((done.unchanged, same), (2, second), "nothing changed");
    let (done, third) = world.commit(Change::Remove(ids(&["mail/read", "x/y", "mail/read"])));
    assert_eq!((done.removed, third), (ids(&["mail/read"]), second + 1));
    let (done, same) = world.commit(Change::Remove(ids(&["mail/read"])));
    assert_eq!((done, same), (Changes::default(), third));
    let (done, fourth) = world.commit(Change::Upsert(vec![tool("mail", "read", "Again.")]));
    assert_eq!((done.added, fourth), (ids(&["mail/read"]), third + 1));
    let (done, fifth) = world.commit(Change::Sync {
        server: "mail".to_owned(),
        tools: vec![
            tool("mail", "send", "Sends a message to somebody."),
            tool("mail", "forward", "Sends a message on."),
        ],
    });
    assert_eq!(
        (done.added, done.removed, done.unchanged, fifth),
        (ids(&["mail/forward"]), ids(&["mail/read"]), 1, fourth + 1)
    );
    let gone = Change::Sync {
        server: "a\0b".to_owned(),
        tools: Vec::new(),
    };
    assert_eq!(world.commit(gone), (Changes::default(), fifth));
    assert_eq!(world.catalog.searcher().generation(), fifth);
    assert_eq!(world.catalog.searcher().len(), 4);
}

fn settings_and_ranker(world: &mut World) {
    let settings = Change::Settings {
        description: "mail; '); DROP TABLE tools; --".to_owned(),
        search: SearchOptions {
            k: Some(7),
            ..SearchOptions::default()
        },
        graph_min_vectors: Some(9),
    };
    let (_, first) = world.commit(settings.clone());
    let (_, same) = world.commit(settings);
    assert_eq!(first, same);
    let searcher = world.catalog.searcher();
    assert_eq!(searcher.settings().search.k, Some(7));
    assert_eq!(searcher.settings().graph_min_vectors, Some(9));
    assert!(searcher.settings().description.contains("DROP TABLE"));
    let (_, second) = world.commit(Change::Ranker(Some(Ranker::bundled().unwrap())));
    assert_eq!(second, first + 1);
    assert!(world.catalog.searcher().has_own_ranker());
    let (_, third) = world.commit(Change::Ranker(None));
    assert_eq!(third, second + 1);
    assert!(!world.catalog.searcher().has_own_ranker());
}

fn texts(world: &mut World) {
    let send = world
        .catalog
        .searcher()
        .tool(&ids(&["mail/send"])[0])
        .unwrap();
    let other = Arc::new(tool("mail", "send", "Another definition."));
    let enrichment = |text: &str| Enrichment::new([text], "m").unwrap();
    let (done, first) = world.commit(Change::Enrich(vec![
        (Arc::clone(&send), enrichment("write to Ann")),
        (other, enrichment("of no tool")),
    ]));
    assert_eq!((done.changed, done.unchanged), (ids(&["mail/send"]), 1));
    let searcher = world.catalog.searcher();
    assert_eq!(
        searcher.enrichment(&send.id).unwrap().texts(),
        ["write to Ann"]
    );
    let both = || Change::ForgetTexts(ids(&["mail/send", "mail/forward"]));
    let (done, second) = world.commit(both());
    assert_eq!((done.changed, done.unchanged), (ids(&["mail/send"]), 1));
    assert_eq!(second, first + 1);
    assert!(world.catalog.searcher().enrichment(&send.id).is_none());
    let (done, same) = world.commit(both());
    assert_eq!(
        (done.changed, done.unchanged, same),
        (Vec::new(), 2, second)
    );
}

fn refusals(world: &mut World) {
    let before = (world.seen(), world.catalog.searcher().generation());
    let twice = vec![tool("s", "t", "a"), tool("s", "t", "b")];
    let elsewhere = Change::Sync {
        server: "s".to_owned(),
        tools: vec![tool("other", "t", "a")],
    };
    for (change, is_expected) in [
        (
            Change::Upsert(twice),
            (|error| matches!(error, Error::DuplicateTool { .. })) as fn(&Error) -> bool,
        ),
        (elsewhere, |error| {
            matches!(error, Error::InvalidTool { .. })
        }),
        (
            Change::Settings {
                description: "x".repeat(3000),
                search: SearchOptions::default(),
                graph_min_vectors: None,
            },
            |error| matches!(error, Error::InvalidSetting(_)),
        ),
    ] {
        let good = Change::Upsert(vec![tool("s", "new", "")]);
        match world.store.commit(&[&good, &change]) {
            Err(WriteError::Catalog(error)) => assert!(is_expected(&error), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let after = (world.seen(), world.catalog.searcher().generation());
    assert_eq!(before, after, "all or nothing");
}

fn many(world: &mut World) {
    let of = |text: &str| {
        (0..5000)
            .map(|number| tool("many", &format!("t{number}"), &format!("{text} {number}.")))
            .collect::<Vec<_>>()
    };
    let begun = std::time::Instant::now();
    let (done, first) = world.commit(Change::Upsert(of("Number")));
    assert_eq!(done.added.len(), 5000);
    let (done, same) = world.commit(Change::Upsert(of("Number")));
    assert_eq!((done.unchanged, same), (5000, first));
    let mut some = of("Number");
    some.truncate(4990);
    let (done, _) = world.commit(Change::Sync {
        server: "many".to_owned(),
        tools: some,
    });
    assert_eq!((done.removed.len(), done.unchanged), (10, 4990));
    eprintln!("5,000 tools, three changes: {:.1?}", begun.elapsed());
}

/// Changes that are queued together share a commit, and a bad one fails alone.
fn groups(world: World) {
    let World {
        store,
        catalog,
        runtime,
        _folder,
        _postgres,
    } = world;
    let before = catalog.searcher().generation();
    let writer = CatalogWriter::start_over(
        store,
        "c",
        catalog.clone(),
        64,
        Gauge::default(),
        Box::new(|_| ()),
    )
    .unwrap();
    let change = |number: usize| match number {
        7 => Change::Upsert(vec![tool("g", "x", "a"), tool("g", "x", "b")]),
        number => Change::Upsert(vec![tool("g", &format!("t{number}"), "")]),
    };
    let writes = (0..40).map(|number| writer.write(change(number)));
    let outcomes = runtime.block_on(join_all(writes));
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match (number, outcome) {
            (7, Err(WriteError::Catalog(Error::DuplicateTool { .. }))) => {}
            (_, Ok(written)) => assert!(written.generation > before),
            (_, other) => panic!("{number}: {other:?}"),
        }
    }
    writer.close();
    let searcher = catalog.searcher();
    let of_g = searcher.tools().filter(|tool| tool.id.server() == "g");
    assert_eq!(of_g.count(), 39);
}

fn conformance(mut world: World) -> Vec<String> {
    changes(&mut world);
    settings_and_ranker(&mut world);
    texts(&mut world);
    refusals(&mut world);
    let seen = world.seen();
    many(&mut world);
    groups(world);
    seen
}

#[test]
fn the_local_store_conforms() {
    conformance(World::local());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_shared_store_conforms_and_is_seen_as_the_local_one() {
    assert_eq!(conformance(World::shared()), conformance(World::local()));
}
