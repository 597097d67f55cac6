//! The suite that any engine has to pass, and what happens when one fails.
//!
//! The suite runs against the doubles, and against a real server if `TOOLSCOUT_TEST_ELASTICSEARCH`,
//! `TOOLSCOUT_TEST_OPENSEARCH` or `TOOLSCOUT_TEST_QDRANT` has the address of one, such as
//! `elasticsearch+http://127.0.0.1:9200`.

mod failures;
mod pgvector;
mod qdrant;
mod quality;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;
use toolscout_base::config::{ExternalProduct, ExternalSettings, FieldMapping};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::tls;
use toolscout_index::embed::StaticTable;
use toolscout_index::owner_words::OwnerWords;
use toolscout_index::pushdown::ExternalCandidates;
use toolscout_index::{Catalog, DataDir, Filter, Kind, Options, Query, Searcher, Tool, ToolId};
use toolscout_state::shared::{PageOf, PushedTools};

use crate::double::{Double, QdrantDouble};
use crate::{ExternalCatalog, open, write};

const PRODUCTS: [ExternalProduct; 2] =
    [ExternalProduct::Elasticsearch, ExternalProduct::OpenSearch];
/// The variables with the addresses of servers.
const VARIABLES: [&str; 3] = [
    "TOOLSCOUT_TEST_ELASTICSEARCH",
    "TOOLSCOUT_TEST_OPENSEARCH",
    "TOOLSCOUT_TEST_QDRANT",
];

/// How long CPU work waits for a thread.
const PATIENCE: Duration = Duration::from_secs(60);

const REQUESTS: [&str; 8] = [
    "send a message to a friend",
    "delete_report",
    "mail delete report",
    "sned a mesage",
    "forecast for tomorrow",
    "update invoice",
    "list all calender events, archive the old ones and share the rest",
    "eine Nachricht senden",
];

/// So many tools of each of four servers and six actions.
fn tools(things: usize) -> Vec<Tool> {
    let actions = ["send", "delete", "list", "update", "archive", "create"];
    let nouns = [
        "message", "report", "invoice", "event", "instance", "forecast",
    ];
    let mut tools = Vec::new();
    for (number, server) in ["mail", "calendar", "weather", "cloud"]
        .into_iter()
        .enumerate()
    {
        for action in actions {
            for thing in 0..things {
                let noun = nouns[thing % nouns.len()];
                let (name, about) = match thing / nouns.len() {
                    0 => (format!("{action}_{noun}"), String::new()),
                    copy => (
                        format!("{action}_{noun}_{copy}"),
                        format!(" of the kind {copy}"),
                    ),
                };
                let mut tool = Tool::new(server, &name).unwrap();
                tool.description =
                    format!("Can {action} one {noun}{about} of the {server}, number {number}.");
                tool.tags = vec![noun.to_owned(), server.to_owned()];
                tools.push(tool);
            }
        }
    }
    tools
}

fn catalog(folder: &TempDir, name: &str, tools: &[Tool]) -> Catalog {
    let options = Options::new(vec![StaticTable::bundled().unwrap()]);
    let catalog = DataDir::new(folder.path())
        .open_or_create(name, options)
        .unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    catalog
}

fn hits(searcher: &Searcher, query: &Query) -> Vec<(String, f32)> {
    let hits = searcher.search(query).unwrap().hits;
    hits.iter()
        .map(|hit| (hit.id.to_string(), hit.score))
        .collect()
}

fn settings(store: &str) -> ExternalSettings {
    ExternalSettings {
        timeout_ms: 10_000,
        ..ExternalSettings::new(store)
    }
}

/// The catalog of these settings.
fn opened(settings: ExternalSettings) -> ExternalCatalog {
    opened_on(settings, CpuPool::new(4, 64, PATIENCE, Default::default()))
}

fn opened_on(settings: ExternalSettings, pool: CpuPool) -> ExternalCatalog {
    ExternalCatalog::open(settings, Default::default(), &Handle::current(), pool).unwrap()
}

async fn written(settings: &ExternalSettings, searcher: &Arc<Searcher>) -> crate::Written {
    let engine = open(settings).unwrap();
    write(engine.as_ref(), searcher, |_, _| ()).await.unwrap()
}

/// Doubles that run until they are dropped.
#[derive(Default)]
struct Doubles {
    elastic: Vec<Double>,
    qdrant: Vec<QdrantDouble>,
}

/// Where a test of the suite runs: the doubles, and real servers if there are any.
async fn places(test: &str) -> (Doubles, Vec<String>) {
    let index = format!("toolscout-suite-{test}");
    let (mut doubles, mut stores) = (Doubles::default(), Vec::new());
    for product in PRODUCTS {
        let double = Double::start(product).await;
        stores.push(double.store(&index));
        doubles.elastic.push(double);
    }
    let double = QdrantDouble::start().await;
    stores.push(double.store(&index));
    doubles.qdrant.push(double);
    stores.extend(real_places(&index).await);
    (doubles, stores)
}

async fn real_places(index: &str) -> Vec<String> {
    let mut stores = Vec::new();
    for variable in VARIABLES {
        if let Ok(address) = std::env::var(variable) {
            let store = format!("{}/{index}", address.trim_end_matches('/'));
            // An earlier run has written another catalog.
            clear(&store).await;
            clear(&format!("{store}-2")).await;
            stores.push(store);
        }
    }
    stores
}

/// A client without the settings of an engine.
fn http() -> reqwest::Client {
    tls::client().build().unwrap()
}

async fn clear(store: &str) {
    let engine = open(&settings(store)).unwrap();
    let limit = Duration::from_secs(30);
    let address = settings(store).store.read().unwrap();
    let all = engine.writable().unwrap().physical(limit).await.unwrap();
    for index in all {
        let name = match address.product {
            ExternalProduct::Qdrant => format!("collections/{}", index.name),
            _ => index.name,
        };
        let url = address.servers[0].join(&name).unwrap();
        let deleted = http().delete(url).send().await.unwrap();
        assert!(deleted.status().is_success(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_into_the_candidates_answers_as_the_own_index() {
    let folder = tempfile::tempdir().unwrap();
    let whole = catalog(&folder, "whole", &tools(12));
    let base = catalog(&folder, "base", &[]).searcher();
    let (_doubles, stores) = places("whole").await;
    for store in stores {
        let settings = settings(&store);
        let done = written(&settings, &whole.searcher()).await;
        assert_eq!(done.written + done.unchanged, 288, "{store}: {done:?}");
        let external = opened(settings);
        external.health().await.unwrap();
        for request in REQUESTS {
            for filter in [
                Filter::default(),
                Filter::from_iter([ToolId::parse("mail/send_message").unwrap()]),
            ] {
                let query = Query::new(request).k(10).filter(filter);
                let found = external.searcher_for(&base, &query).await.unwrap();
                assert_eq!(
                    hits(&found, &query),
                    hits(&whole.searcher(), &query),
                    "{store}: {request}"
                );
                assert!(found.search(&query).unwrap().degraded.is_none());
            }
        }
        lists(&external, &whole).await;
        owner(&external, &folder).await;
        changes(&store, &folder).await;
    }
}

async fn lists(external: &ExternalCatalog, whole: &Catalog) {
    assert_eq!(external.total(), 288);
    let all: Vec<String> = whole
        .searcher()
        .items()
        .map(|tool| tool.id.to_string())
        .collect();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = PageOf {
            limit: 100,
            after: after.clone(),
            ..PageOf::default()
        };
        let page = external.page(&page).await.unwrap();
        assert_eq!(page.total, 288);
        listed.extend(page.tools.iter().map(|tool| tool.id.to_string()));
        after = listed.last().cloned();
        if !page.has_more {
            break;
        }
    }
    // Qdrant has an order of its own.
    listed.sort_unstable();
    assert_eq!(listed, all);
    let part = PageOf {
        limit: 100,
        part: "message_1".to_owned(),
        server: Some("mail".to_owned()),
        ..PageOf::default()
    };
    assert_eq!(external.page(&part).await.unwrap().tools.len(), 6);
    let (tags, count) = external.tags(3).await.unwrap();
    assert_eq!((tags[0].1, tags.len()), (72, 3));
    assert!(count >= 3);
    let stats = external.stats().await.unwrap();
    assert_eq!(stats.servers.len(), 4);
    assert_eq!(stats.servers[0], ("calendar".to_owned(), 72));
    assert_eq!(stats.generation, whole.searcher().generation());
    let id = ToolId::parse("mail/send_message").unwrap();
    assert_eq!(
        PushedTools::tool(external, &id).await.unwrap().unwrap().id,
        id
    );
    let unknown = ToolId::parse("mail/unknown").unwrap();
    assert!(
        PushedTools::tool(external, &unknown)
            .await
            .unwrap()
            .is_none()
    );
    let of_server = Filter {
        servers: BTreeSet::from(["mail".to_owned()]),
        ..Filter::default()
    };
    assert_eq!(external.ids_passing(&of_server).await.unwrap().len(), 72);
}

/// What the owner switches off is no candidate.
async fn owner(external: &ExternalCatalog, folder: &TempDir) {
    let base = catalog(folder, "owner", &[]);
    let words: OwnerWords =
        serde_json::from_value(json!({ "boosts": { "servers": { "mail": 0.0 } } })).unwrap();
    let mut writer = base.writer().unwrap();
    writer.set_owner_words(&words).unwrap();
    writer.commit().unwrap();
    let query = Query::new("send a message").k(20);
    let found = external
        .searcher_for(&base.searcher(), &query)
        .await
        .unwrap();
    assert!(
        hits(&found, &query)
            .iter()
            .all(|(id, _)| !id.starts_with("mail/"))
    );
}

/// A second write makes only what has changed, and another embedder makes another index.
async fn changes(store: &str, folder: &TempDir) {
    let store = format!("{store}-2");
    let settings = settings(&store);
    let mut all = tools(6);
    let name = format!("changes-{}", &blake3::hash(store.as_bytes()).to_hex()[..8]);
    let own = catalog(folder, &name, &all);
    let first = written(&settings, &own.searcher()).await;
    let mut writer = own.writer().unwrap();
    all[0].description = "Carries a parcel to the moon.".to_owned();
    writer.upsert(&all[..1]).unwrap();
    writer.remove(&[all[1].id.clone()]).unwrap();
    writer.commit().unwrap();
    let second = written(&settings, &own.searcher()).await;
    assert_eq!((second.written, second.removed), (1, 1), "{second:?}");
    assert_eq!(second.index, first.index);
    let third = written(&settings, &own.searcher()).await;
    assert_eq!((third.written, third.removed, third.unchanged), (0, 0, 143));
    let external = opened(settings.clone());
    let base = catalog(folder, "base", &[]).searcher();
    let query = Query::new("parcel to the moon").k(3);
    let found = external.searcher_for(&base, &query).await.unwrap();
    assert_eq!(hits(&found, &query), hits(&own.searcher(), &query));
    own.set_options(Options::default()).unwrap();
    let other = written(&settings, &own.searcher()).await;
    assert!(other.is_new && other.index != first.index, "{other:?}");
    // The old one is gone, and the alias stands for the new one alone.
    let engine = open(&settings).unwrap();
    let (_, generation) = engine.layout(Duration::from_secs(5)).await.unwrap();
    assert_eq!(generation, own.searcher().generation());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_of_many_are_among_the_candidates() {
    let folder = tempfile::tempdir().unwrap();
    let whole = catalog(&folder, "whole", &tools(40));
    let base = catalog(&folder, "base", &[]).searcher();
    let (_doubles, stores) = places("best").await;
    for store in stores {
        let settings = ExternalSettings {
            candidates: 200,
            ..settings(&store)
        };
        written(&settings, &whole.searcher()).await;
        let external = opened(settings);
        let (mut common, mut all) = (0, 0);
        for request in REQUESTS {
            let query = Query::new(request).k(10);
            let here = hits(&external.searcher_for(&base, &query).await.unwrap(), &query);
            let there = hits(&whole.searcher(), &query);
            all += there.len();
            common += there
                .iter()
                .filter(|(id, _)| here.iter().any(|(other, _)| other == id))
                .count();
        }
        assert!(common * 100 >= all * 95, "{store}: {common} of {all}");
    }
}

/// The documents of a wiki, as somebody else would index them.
fn wiki() -> (Value, Vec<Value>) {
    let mappings = json!({ "properties": {
        "title": { "type": "text", "fields": { "keyword": { "type": "keyword" } } },
        "slug": { "type": "keyword" },
        "space": { "type": "keyword" },
        "body": { "type": "text" },
        "labels": { "type": "keyword" },
        "parameters": { "type": "object" },
    } });
    let mut documents = Vec::new();
    for (space, slug, title, body) in [
        (
            "hr",
            "holiday",
            "Request a holiday",
            "How to ask for days off, and who approves them.",
        ),
        (
            "hr",
            "payslip",
            "Read a payslip",
            "What each line of the monthly payslip means.",
        ),
        (
            "it",
            "vpn",
            "Connect to the VPN",
            "Installs the client and signs in from home.",
        ),
        (
            "it",
            "printer",
            "Add a printer",
            "Finds the printer of a floor and adds its driver.",
        ),
        ("it", "", "Broken", "Its slug is no name of a tool."),
    ] {
        documents.push(json!({
            "slug": slug, "space": space, "title": title, "body": body, "labels": [space, "page"],
            "parameters": { "type": "object", "properties": { "reason": { "type": "string" } } },
        }));
    }
    (mappings, documents)
}

fn wiki_fields() -> FieldMapping {
    FieldMapping {
        name: "slug".to_owned(),
        server: Some("space".to_owned()),
        title: Some("title".to_owned()),
        description: Some("body".to_owned()),
        schema: Some("parameters".to_owned()),
        tags: Some("labels".to_owned()),
        search: vec!["title^3".to_owned(), "body".to_owned()],
        ..FieldMapping::default()
    }
}

async fn ids_of(external: &ExternalCatalog, page: PageOf) -> Vec<String> {
    let listed = external.page(&page).await.unwrap();
    listed
        .tools
        .iter()
        .map(|tool| tool.id.to_string())
        .collect()
}

/// What cannot match gives no tool, and documents that are no tools are passed over.
async fn mapped_lists(external: &ExternalCatalog, settings: &ExternalSettings) {
    let all = PageOf {
        limit: 10,
        ..PageOf::default()
    };
    let prompts = PageOf {
        kinds: BTreeSet::from([Kind::Prompt]),
        ..all.clone()
    };
    assert!(ids_of(external, prompts).await.is_empty());
    let first = PageOf {
        server: Some("it".to_owned()),
        limit: 1,
        ..all.clone()
    };
    assert_eq!(ids_of(external, first).await, ["it/printer"]);
    assert_eq!(
        external
            .ids_passing(&Filter::default())
            .await
            .unwrap()
            .len(),
        4
    );
    let fields = FieldMapping {
        server: None,
        tags: None,
        default_server: "wiki".to_owned(),
        ..wiki_fields()
    };
    let without = opened(ExternalSettings {
        fields: Some(fields),
        ..settings.clone()
    });
    for (server, tag, count) in [
        (Some("wiki"), None, 4),
        (Some("it"), None, 0),
        (None, Some("page"), 0),
    ] {
        let page = PageOf {
            server: server.map(str::to_owned),
            tag: tag.map(str::to_owned),
            ..all.clone()
        };
        assert_eq!(
            ids_of(&without, page).await.len(),
            count,
            "{server:?} {tag:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_somebody_else_fills_is_read_by_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let base = catalog(&folder, "base", &[]).searcher();
    for product in PRODUCTS {
        let double = Double::start(product).await;
        let (mappings, documents) = wiki();
        double.fill("wiki", mappings, &documents);
        let settings = ExternalSettings {
            fields: Some(wiki_fields()),
            ..settings(&double.store("wiki"))
        };
        let external = opened(settings.clone());
        for (request, wanted) in [
            ("I want some days off", "hr/holiday"),
            ("set up the printr", "it/printer"),
            ("work from home over vpn", "it/vpn"),
        ] {
            let query = Query::new(request).k(2);
            let found = external.searcher_for(&base, &query).await.unwrap();
            assert_eq!(hits(&found, &query)[0].0, wanted, "{request}");
        }
        let only = Filter::from_iter([ToolId::parse("it/printer").unwrap()]);
        let query = Query::new("add a driver").k(5).filter(only);
        let found = external.searcher_for(&base, &query).await.unwrap();
        assert_eq!(hits(&found, &query).len(), 1);
        let id = ToolId::parse("it/vpn").unwrap();
        let tool = PushedTools::tool(&external, &id).await.unwrap().unwrap();
        assert_eq!(tool.title.as_deref(), Some("Connect to the VPN"));
        assert!(tool.input_schema["properties"]["reason"].is_object());
        let page = PageOf {
            server: Some("hr".to_owned()),
            limit: 10,
            ..PageOf::default()
        };
        assert_eq!(external.page(&page).await.unwrap().tools.len(), 2);
        mapped_lists(&external, &settings).await;
        let before = double.requests().len();
        let engine = open(&ExternalSettings {
            fields: None,
            ..settings.clone()
        })
        .unwrap();
        let refused = write(engine.as_ref(), &base, |_, _| ()).await.unwrap_err();
        assert!(refused.reason.contains("name another index"), "{refused}");
        assert!(
            double.requests()[before..]
                .iter()
                .all(|request| request.starts_with("GET"))
        );
        for (field, said) in [
            ("titel", "no field \"titel\""),
            ("title", "has to be a keyword"),
        ] {
            let wrong = FieldMapping {
                name: field.to_owned(),
                ..wiki_fields()
            };
            let settings = ExternalSettings {
                fields: Some(wrong),
                ..settings.clone()
            };
            let error = opened(settings).health().await.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
