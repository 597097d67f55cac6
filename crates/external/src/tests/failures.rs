//! What happens when an engine fails, by the answers that its documentation has.

use std::time::Instant;

use super::*;
use crate::double::{Fault, error};
use crate::{Cause, Failure};

/// A disk that is nearly full makes an index read-only.
fn read_only() -> Value {
    error(
        "cluster_block_exception",
        "index [tools] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has \
         read-only-allow-delete block];",
    )
}

fn rejected() -> Value {
    error(
        "es_rejected_execution_exception",
        "rejected execution of primary operation",
    )
}

async fn elasticsearch() -> (Double, ExternalSettings) {
    let double = Double::start(ExternalProduct::Elasticsearch).await;
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
async fn what_a_bulk_puts_off_is_sent_again_and_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let (double, settings) = elasticsearch().await;
    double.fail("_bulk", Fault::Items(3, 429, rejected()));
    double.fail("_bulk", Fault::Status(429, rejected()));
    double.fail(
        "_bulk",
        Fault::Items(2, 503, error("unavailable_shards_exception", "not active")),
    );
    let done = written(&settings, &own.searcher()).await;
    assert_eq!(done.written, 144);
    let bulks = double
        .requests()
        .iter()
        .filter(|request| request.ends_with("_bulk"))
        .count();
    assert_eq!(bulks, 4);
    assert_eq!(written(&settings, &own.searcher()).await.unchanged, 144);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_ends_half_way_goes_on_and_nothing_is_seen_of_it_before() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(30));
    let (double, settings) = elasticsearch().await;
    // The first batch is written, and the second finds the index read-only.
    double.fail("_bulk", Fault::Nothing);
    double.fail("_bulk", Fault::Status(403, read_only()));
    let failure = failed(&settings, &own.searcher()).await;
    assert_eq!(failure.cause, Cause::ReadOnly, "{failure}");
    assert!(failure.reason.contains("free disk space"), "{failure}");
    let engine = open(&settings).unwrap();
    let unseen = engine.layout(Duration::from_secs(5)).await;
    assert_eq!(unseen.unwrap_err().cause, Cause::Missing);
    let done = written(&settings, &own.searcher()).await;
    assert_eq!(done.written + done.unchanged, 720);
    assert!(done.unchanged >= 100 && done.written >= 100, "{done:?}");
    assert_eq!(double.indexes(), [done.index]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_refused_is_named_and_the_others_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let (double, settings) = elasticsearch().await;
    let conflict = error("document_parsing_exception", "failed to parse field [tags]");
    double.fail("_bulk", Fault::Items(100, 400, conflict));
    let failure = failed(&settings, &own.searcher()).await;
    assert_eq!(failure.cause, Cause::Request);
    assert!(
        failure.reason.contains("refuses 2 of the changes"),
        "{failure}"
    );
    assert!(
        failure.reason.contains("failed to parse field [tags]"),
        "{failure}"
    );
    // Searches have what the engine took.
    assert_eq!(stats_of(&settings).await.tools, 142);
    assert_eq!(written(&settings, &own.searcher()).await.written, 2);
}

async fn stats_of(settings: &ExternalSettings) -> toolscout_state::shared::PushedStats {
    opened(settings.clone()).stats().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_another_catalog_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let other = catalog(&folder, "other", &tools(1));
    let (double, settings) = elasticsearch().await;
    let first = written(&settings, &own.searcher()).await;
    let failure = failed(&settings, &other.searcher()).await;
    assert!(failure.reason.contains("another catalog"), "{failure}");
    assert_eq!(double.indexes(), [first.index]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_the_index_alone_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let (double, settings) = elasticsearch().await;
    let denied = error(
        "security_exception",
        "action [cluster:monitor/main] is unauthorized",
    );
    let denied = Fault::Status(403, denied);
    // The first request of each asks for the version.
    double.fail("", denied.clone());
    written(&settings, &own.searcher()).await;
    double.fail("", denied);
    assert_eq!(stats_of(&settings).await.tools, 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_other_kinds_are_no_tools() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = tools(1);
    all[0] = Tool::new("mail", "prompt:greet").unwrap();
    all[0].kind = Kind::Prompt;
    let own = catalog(&folder, "own", &all);
    let (_double, settings) = elasticsearch().await;
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let stats = external.stats().await.unwrap();
    assert_eq!((stats.tools, stats.items), (23, 24));
    assert_eq!(external.total(), 23);
    let page = PageOf {
        limit: 100,
        ..PageOf::default()
    };
    let page = external.page(&page).await.unwrap();
    assert_eq!((page.total, page.tools.len()), (23, 23));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_generation_does_not_replace_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = tools(1);
    let own = catalog(&folder, "own", &all);
    let older = own.searcher();
    let (double, settings) = elasticsearch().await;
    all[0].description = "Newer.".to_owned();
    let mut writer = own.writer().unwrap();
    writer.upsert(&all[..1]).unwrap();
    writer.commit().unwrap();
    written(&settings, &own.searcher()).await;
    // A writer that was late, or a data directory that was restored.
    let failure = failed(&settings, &older).await;
    assert!(failure.reason.contains("older generation"), "{failure}");
    // One that began before the other came to its end, so that the index does not tell yet.
    double.fail(
        "_bulk",
        Fault::Items(1, 409, error("version_conflict_engine_exception", "newer")),
    );
    writer.remove(&[all[1].id.clone()]).unwrap();
    writer.commit().unwrap();
    let failure = failed(&settings, &own.searcher()).await;
    assert!(
        failure.reason.contains("of a newer generation"),
        "{failure}"
    );
    let external = opened(settings);
    let tool = PushedTools::tool(&external, &all[0].id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(tool.description, "Newer.");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_sent_and_a_refused_one_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let (double, mut settings) = elasticsearch().await;
    settings.key_env = Some("ES_KEY".to_owned());
    let missing = open(&settings).err().unwrap();
    assert!(
        missing.reason.contains("set the variable ES_KEY"),
        "{missing}"
    );
    settings.secret = Some("bXktaWQ6bXkta2V5".into());
    double.require("ApiKey bXktaWQ6bXkta2V5");
    written(&settings, &own.searcher()).await;
    double.require("ApiKey another");
    let expired = failed(&settings, &own.searcher()).await;
    assert_eq!(expired.cause, Cause::Key);
    assert!(
        expired
            .reason
            .contains("set the variable ES_KEY to a key that is valid"),
        "{expired}"
    );
    assert!(!expired.reason.contains("bXkt"), "{expired}");
    settings.key_env = None;
    settings.user = Some("elastic".to_owned());
    settings.password_env = Some("ES_PASSWORD".to_owned());
    settings.secret = Some("changeme".into());
    double.require("Basic ZWxhc3RpYzpjaGFuZ2VtZQ==");
    written(&settings, &own.searcher()).await;
    let denied = error(
        "security_exception",
        "action [indices:data/read/search] is unauthorized",
    );
    double.fail("_bulk", Fault::Status(403, denied));
    let more = catalog(&folder, "own", &tools(2));
    let failure = failed(&settings, &more.searcher()).await;
    assert_eq!(failure.cause, Cause::Key);
    assert!(failure.reason.contains("privileges"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_product_or_version_is_refused() {
    let (double, settings) = elasticsearch().await;
    for (version, said) in [
        (
            "7.17.9",
            "it is Elasticsearch 7.17.9; toolscout needs 8.12 to 9",
        ),
        ("8.11.4", "needs 8.12"),
        ("10.0.0-SNAPSHOT", "needs 8.12"),
    ] {
        double.set_version(version);
        let error = opened(settings.clone())
            .health()
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
    }
    let other = settings
        .store
        .to_string()
        .replace("elasticsearch", "opensearch");
    let error = opened(super::settings(&other))
        .health()
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is not OpenSearch"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_without_vectors_goes_on_by_words_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(30));
    let base = catalog(&folder, "base", &[]).searcher();
    let (double, settings) = elasticsearch().await;
    let settings = ExternalSettings {
        candidates: 100,
        ..settings
    };
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    external.searcher_for(&base, &query).await.unwrap();
    let broken = error(
        "search_phase_execution_exception",
        "the node with the vectors has left",
    );
    double.fail("_msearch", Fault::Searches("nothing", 503, broken.clone()));
    double.fail("_msearch", Fault::Searches("knn", 503, broken));
    let mut degraded = Vec::new();
    for _ in 0..2 {
        let found = external.searcher_for(&base, &query).await.unwrap();
        let results = found.search(&query).unwrap();
        assert!(!results.hits.is_empty());
        degraded.extend(results.degraded);
    }
    let [one] = degraded.as_slice() else {
        panic!("{degraded:?}");
    };
    assert_eq!(one.cause.code(), "candidates");
    assert!(
        one.cause.to_string().contains("node with the vectors"),
        "{}",
        one.cause
    );
    double.fail("_msearch", Fault::Status(503, error("x", "none")));
    assert!(external.searcher_for(&base, &query).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_waits_no_longer_than_it_may_and_then_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let base = catalog(&folder, "base", &[]).searcher();
    let (double, settings) = elasticsearch().await;
    let settings = ExternalSettings {
        timeout_ms: 2000,
        ..settings
    };
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    external.searcher_for(&base, &query).await.unwrap();
    double.fail("_msearch", Fault::Silence);
    let start = Instant::now();
    let in_time = query.clone().budget_ms(400.0);
    let error = external
        .searcher_for(&base, &in_time)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("did not answer within"), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    // Who has little time closes nothing for the others.
    external.searcher_for(&base, &query).await.unwrap();
    double.fail("_msearch", Fault::Silence);
    assert!(external.searcher_for(&base, &query).await.is_err());
    let before = double.requests().len();
    let error = external
        .searcher_for(&base, &query)
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("is tried again in"), "{error}");
    assert_eq!(double.requests().len(), before, "nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_the_machine_answer_if_the_engine_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let local = catalog(&folder, "local", &tools(2)).searcher();
    let (double, settings) = elasticsearch().await;
    let settings = ExternalSettings {
        timeout_ms: 2000,
        ..settings
    };
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    let found = external.searcher_for(&local, &query).await.unwrap();
    assert_eq!(hits(&found, &query), hits(&own.searcher(), &query));
    assert!(found.search(&query).unwrap().degraded.is_none());
    double.fail("_msearch", Fault::Silence);
    let in_time = query.clone().budget_ms(400.0);
    let found = external.searcher_for(&local, &in_time).await.unwrap();
    let results = found.search(&in_time).unwrap();
    assert!(!results.hits.is_empty());
    let degraded = results.degraded.unwrap();
    assert_eq!(degraded.cause.code(), "candidates");
    let said = degraded.cause.to_string();
    let address = "the tools of this machine answer: elasticsearch+http://";
    assert!(said.contains(address), "{said}");
    assert!(said.contains("did not answer within"), "{said}");
    let found = external.searcher_for(&local, &query).await.unwrap();
    assert!(found.search(&query).unwrap().degraded.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn computing_waits_for_a_free_thread_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(1));
    let base = catalog(&folder, "base", &[]).searcher();
    let (_double, settings) = elasticsearch().await;
    written(&settings, &own.searcher()).await;
    let pool = CpuPool::new(1, 1, Duration::from_millis(100), Default::default());
    let external = opened_on(settings, pool.clone());
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (open, gate) = std::sync::mpsc::sync_channel::<()>(1);
    let busy = tokio::spawn(async move {
        let work = move || {
            started.send(()).unwrap();
            gate.recv().unwrap();
        };
        pool.run(work).await.unwrap();
    });
    has_started.await.unwrap();
    let query = Query::new("send a message").k(5);
    let error = external.searcher_for(&base, &query).await.err().unwrap();
    assert!(error.to_string().contains("are waiting"), "{error}");
    open.send(()).unwrap();
    busy.await.unwrap();
    external.searcher_for(&base, &query).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_answers_for_one_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let own = catalog(&folder, "own", &tools(6));
    let base = catalog(&folder, "base", &[]).searcher();
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let double = Double::start(ExternalProduct::Elasticsearch).await;
    let store = format!("elasticsearch+http://{gone},{}/tools", double.host());
    let settings = settings(&store);
    written(&settings, &own.searcher()).await;
    let external = opened(settings);
    let query = Query::new("send a message").k(5);
    let found = external.searcher_for(&base, &query).await.unwrap();
    assert_eq!(hits(&found, &query), hits(&own.searcher(), &query));
    drop(double);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_the_next_step_is_said() {
    let (_double, settings) = elasticsearch().await;
    let external = opened(settings);
    let folder = tempfile::tempdir().unwrap();
    let base = catalog(&folder, "base", &[]).searcher();
    let error = external
        .searcher_for(&base, &Query::new("send"))
        .await
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("toolscout external write"),
        "{error}"
    );
    assert!(PushedTools::problem(&external).is_some());
}
