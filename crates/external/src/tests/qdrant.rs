//! What is particular to Qdrant: collections that somebody else fills, and how its failures are told.

use reqwest::Method;
use toolscout_index::Embedder;
use toolscout_index::pushdown::SwitchedOff;

use super::*;
use crate::double::QdrantFault;
use crate::engine::{After, Listed, Passing};
use crate::{Cause, Failure};

/// Sends a request of Qdrant's API to the server of an address.
async fn send(store: &str, method: Method, path: &str, body: Value) {
    let server = settings(store).store.read().unwrap().servers[0].clone();
    let sent = http()
        .request(method, server.join(path).unwrap())
        .json(&body);
    let answer = sent.send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{path}: {text}");
}

/// The pages of a wiki, as somebody else would put them into a collection, with or without vectors.
async fn fill_wiki(store: &str, name: &str, with_vectors: bool) {
    let table = StaticTable::bundled().unwrap();
    let vectors = json!({ "page": { "size": table.dimensions(), "distance": "Cosine" } });
    let config = match with_vectors {
        true => json!({ "vectors": vectors }),
        false => json!({ "vectors": {} }),
    };
    send(store, Method::PUT, &format!("collections/{name}"), config).await;
    for field in ["space", "labels"] {
        let index = json!({ "field_name": field, "field_schema": "keyword" });
        send(
            store,
            Method::PUT,
            &format!("collections/{name}/index"),
            index,
        )
        .await;
    }
    let (_, documents) = wiki();
    let mut points = Vec::new();
    for (number, document) in documents.into_iter().enumerate() {
        let text = format!("{} {}", document["title"], document["body"]);
        let embedded = table.embed_tools(&[text.as_str()]).unwrap();
        let vector = match with_vectors {
            true => json!({ "page": embedded[0] }),
            false => json!({}),
        };
        points.push(json!({ "id": number + 1, "vector": vector, "payload": document }));
    }
    let points = json!({ "points": points });
    send(
        store,
        Method::PUT,
        &format!("collections/{name}/points?wait=true"),
        points,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_somebody_else_fills_is_read_by_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let base = catalog(&folder, "base", &[]).searcher();
    let double = QdrantDouble::start().await;
    let mut stores = vec![double.store("toolscout-suite-wiki")];
    if let Ok(address) = std::env::var("TOOLSCOUT_TEST_QDRANT") {
        stores.push(format!("{address}/toolscout-suite-wiki"));
    }
    for store in stores {
        for with_vectors in [false, true] {
            clear(&store).await;
            fill_wiki(&store, "toolscout-suite-wiki", with_vectors).await;
            let table = StaticTable::bundled().unwrap();
            let fields = FieldMapping {
                vector: with_vectors.then(|| "page".to_owned()),
                vector_embedder: with_vectors.then(|| table.id().to_owned()),
                ..wiki_fields()
            };
            let settings = ExternalSettings {
                fields: Some(fields.clone()),
                ..settings(&store)
            };
            let external = opened(settings.clone());
            external.health().await.unwrap();
            for (request, wanted) in [
                ("I want some days off", "hr/holiday"),
                ("set up the printr", "it/printer"),
                ("work from home over vpn", "it/vpn"),
            ] {
                let query = Query::new(request).k(2);
                let found = external.searcher_for(&base, &query).await.unwrap();
                assert_eq!(hits(&found, &query)[0].0, wanted, "{store}: {request}");
                assert!(found.search(&query).unwrap().degraded.is_none());
            }
            let only = Filter::from_iter([ToolId::parse("it/printer").unwrap()]);
            let query = Query::new("add a driver").k(5).filter(only);
            let found = external.searcher_for(&base, &query).await.unwrap();
            assert_eq!(hits(&found, &query).len(), 1);
            let id = ToolId::parse("it/vpn").unwrap();
            let tool = PushedTools::tool(&external, &id).await.unwrap().unwrap();
            assert_eq!(tool.title.as_deref(), Some("Connect to the VPN"));
            mapped_pages(&external).await;
            let (tags, _) = external.tags(9).await.unwrap();
            assert_eq!(tags[0].0, "page");
            if with_vectors {
                let wrong = FieldMapping {
                    vector: Some("pages".to_owned()),
                    ..fields
                };
                let settings = ExternalSettings {
                    fields: Some(wrong),
                    ..settings
                };
                let error = opened(settings).health().await.unwrap_err().to_string();
                assert!(error.contains("no vector \"pages\""), "{error}");
            }
        }
    }
}

async fn mapped_pages(external: &ExternalCatalog) {
    let all = PageOf {
        limit: 2,
        ..PageOf::default()
    };
    let first = ids_of(external, all.clone()).await;
    let second = PageOf {
        after: first.last().cloned(),
        ..all.clone()
    };
    let mut listed = [first, ids_of(external, second).await].concat();
    listed.sort_unstable();
    assert_eq!(listed, ["hr/holiday", "hr/payslip", "it/printer", "it/vpn"]);
    let part = PageOf {
        part: "PAY".to_owned(),
        ..all.clone()
    };
    assert_eq!(ids_of(external, part).await, ["hr/payslip"]);
    let of_server = PageOf {
        server: Some("it".to_owned()),
        limit: 10,
        ..all.clone()
    };
    assert_eq!(ids_of(external, of_server).await.len(), 2);
    let prompts = PageOf {
        kinds: BTreeSet::from([Kind::Prompt]),
        ..all
    };
    assert!(ids_of(external, prompts).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_one_page_share_its_time() {
    let double = QdrantDouble::start().await;
    let store = double.store("toolscout-suite-wiki");
    fill_wiki(&store, "toolscout-suite-wiki", false).await;
    let settings = ExternalSettings {
        fields: Some(wiki_fields()),
        ..settings(&store)
    };
    let engine = open(&settings).unwrap();
    let (layout, _) = engine.layout(Duration::from_secs(5)).await.unwrap();
    let (filter, off) = (Filter::default(), SwitchedOff::default());
    let listed = Listed {
        passing: Passing {
            filter: &filter,
            off: &off,
        },
        part: "",
        ids: None,
        after: After::Tool("hr/holiday"),
        size: 2,
    };
    // Where the page begins is one request, and its points are another.
    for _ in 0..2 {
        double.fail("/scroll", QdrantFault::Slow(Duration::from_millis(600)));
    }
    let page = engine.page(&layout, &listed, Duration::from_secs(1));
    let failure = page.await.unwrap_err();
    assert!(
        failure.reason.contains("did not answer within"),
        "{failure}"
    );
}

async fn double() -> (QdrantDouble, ExternalSettings) {
    let double = QdrantDouble::start().await;
    let settings = settings(&double.store("tools"));
    (double, settings)
}

async fn failed(settings: &ExternalSettings, searcher: &Arc<Searcher>) -> Failure {
    let engine = open(settings).unwrap();
    write(engine.as_ref(), searcher, |_, _| ())
        .await
        .unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_qdrant_that_ends_half_way_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(30));
    let (double, settings) = double().await;
    // One batch is put off, one is written, and then the disk is full.
    double.fail(
        "/points",
        QdrantFault::Status(429, "Rate limiting exceeded"),
    );
    double.fail("/points", QdrantFault::Nothing);
    let full = "Service internal error: No space left on device";
    double.fail("/points", QdrantFault::Status(500, full));
    let failure = failed(&settings, &own.searcher()).await;
    assert_eq!(failure.cause, Cause::ReadOnly, "{failure}");
    let engine = open(&settings).unwrap();
    let unseen = engine.layout(Duration::from_secs(5)).await;
    assert_eq!(unseen.unwrap_err().cause, Cause::Missing);
    let done = written(&settings, &own.searcher()).await;
    assert_eq!(done.written + done.unchanged, 720);
    assert!(done.unchanged > 0 && done.written > 0, "{done:?}");
    assert_eq!(double.collections(), [done.index]);
    let other = catalog(&folder, "other", &tools(1));
    let failure = failed(&settings, &other.searcher()).await;
    assert!(failure.reason.contains("another catalog"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_generation_does_not_replace_a_newer_point() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = tools(1);
    let own = catalog(&folder, "own", &all);
    let (_double, settings) = double().await;
    let first = written(&settings, &own.searcher()).await;
    let older = own.searcher();
    all[0].description = "Newer.".to_owned();
    let mut writer = own.writer().unwrap();
    writer.upsert(&all[..1]).unwrap();
    writer.commit().unwrap();
    // A late batch of the writer before, which the collection does not tell of yet.
    let engine = open(&settings).unwrap();
    let writable = engine.writable().unwrap();
    written(&settings, &own.searcher()).await;
    let gone = crate::engine::Change {
        id: all[0].id.to_string(),
        document: None,
    };
    let limit = Duration::from_secs(5);
    let gone = [gone];
    let sent = writable.send(&first.index, older.generation(), &gone, limit);
    sent.await.unwrap();
    let newer = writable.complete(&first.index, older.generation(), limit);
    assert_eq!(newer.await.unwrap(), 1);
    let tool = PushedTools::tool(&opened(settings.clone()), &all[0].id).await;
    assert_eq!(tool.unwrap().unwrap().description, "Newer.");
    let failure = failed(&settings, &older).await;
    assert!(failure.reason.contains("older generation"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_versions_of_qdrant_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let (double, mut settings) = double().await;
    double.require("secret");
    settings.key_env = Some("QDRANT_KEY".to_owned());
    settings.secret = Some("secret".into());
    written(&settings, &own.searcher()).await;
    double.require("another");
    let expired = failed(&settings, &own.searcher()).await;
    assert_eq!(expired.cause, Cause::Key);
    assert!(
        expired.reason.contains("set the variable QDRANT_KEY"),
        "{expired}"
    );
    double.require("secret");
    for (version, said) in [
        ("1.15.5", "it is Qdrant 1.15.5; toolscout needs 1.16 to 1"),
        ("2.0.0", "needs 1.16"),
    ] {
        double.set_version(version);
        let error = opened(settings.clone())
            .health()
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_the_collection_alone_is_enough() {
    let (double, settings) = double().await;
    let engine = open(&settings).unwrap();
    double.fail("", QdrantFault::Status(403, "Global access is required"));
    let version = engine.version(Duration::from_secs(5)).await.unwrap();
    assert_eq!(version, "of unknown version");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_not_said_if_all_that_pass_were_found() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let base = catalog(&folder, "base", &[]).searcher();
    let (double, settings) = double().await;
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    external.searcher_for(&base, &query).await.unwrap();
    double.fail("query/batch", QdrantFault::Vectors(500, "cannot be read"));
    let found = external.searcher_for(&base, &query).await.unwrap();
    assert!(found.search(&query).unwrap().degraded.is_none());
    assert_eq!(hits(&found, &query), hits(&own.searcher(), &query));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_of_qdrant_without_vectors_goes_on_by_words_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(30));
    let base = catalog(&folder, "base", &[]).searcher();
    let (double, settings) = double().await;
    let settings = ExternalSettings {
        candidates: 100,
        ..settings
    };
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    external.searcher_for(&base, &query).await.unwrap();
    let broken = QdrantFault::Vectors(500, "the vectors cannot be read");
    double.fail("query/batch", broken);
    let found = external.searcher_for(&base, &query).await.unwrap();
    let results = found.search(&query).unwrap();
    assert!(!results.hits.is_empty());
    let degraded = results.degraded.unwrap();
    assert_eq!(degraded.cause.code(), "candidates");
    assert!(
        degraded.cause.to_string().contains("cannot be read"),
        "{}",
        degraded.cause
    );
    let query = query.budget_ms(400.0);
    double.fail("query/batch", QdrantFault::Silence);
    double.fail("query/batch", QdrantFault::Silence);
    let start = std::time::Instant::now();
    let error = external.searcher_for(&base, &query).await.err().unwrap();
    assert!(
        error.to_string().contains("did not answer within"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_of_qdrant_answers_for_one_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let base = catalog(&folder, "base", &[]).searcher();
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let double = QdrantDouble::start().await;
    let settings = settings(&format!("qdrant+http://{gone},{}/tools", double.host()));
    written(&settings, &own.searcher()).await;
    let query = Query::new("send a message").k(5);
    let found = opened(settings).searcher_for(&base, &query).await.unwrap();
    assert_eq!(hits(&found, &query), hits(&own.searcher(), &query));
}
