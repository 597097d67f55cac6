//! Enrichments: what a model wrote about when to use a tool. Dense search finds the tool by it, and
//! nothing else knows of it.

use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;
use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, CountedTexts, DataDir, Embedder, Enrichment, Mode, Options, Parts, Query, Searcher,
    Tool, ToolId,
};

use crate::world::{assert_alike, embed_all, filled, found, fresh, hashing, plain};

const REQUEST: &str = "let the family know that dinner is late";

fn tools() -> Vec<Tool> {
    vec![
        plain("chat", "post", "Posts a text to a channel."),
        plain("disk", "list", "Lists files of a folder."),
        plain("kitchen", "timer", "Starts a countdown."),
        plain("maps", "route", "Plans a way between two places."),
    ]
}

fn written() -> Enrichment {
    Enrichment::new([REQUEST, "write to the others"], "writer-1").unwrap()
}

fn table() -> Options {
    Options::new(vec![StaticTable::bundled().unwrap() as Arc<dyn Embedder>])
}

fn enrich(catalog: &Catalog, tool: &Tool, enrichment: &Enrichment) -> bool {
    let mut writer = catalog.writer().unwrap();
    let is_set = writer.set_enrichment(tool, enrichment).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    is_set
}

fn id(text: &str) -> ToolId {
    ToolId::parse(text).unwrap()
}

fn vectors(catalog: &Catalog) -> usize {
    catalog.stats().unwrap().vectors[0].1
}

fn first(searcher: &Searcher) -> String {
    found(searcher, REQUEST, Mode::Dense)[0].clone()
}

fn some_queries() -> Vec<Query> {
    [REQUEST, "post", "plan a way", "files of a folder"]
        .into_iter()
        .flat_map(|text| [Mode::Hybrid, Mode::Dense].map(|mode| Query::new(text).mode(mode)))
        .collect()
}

fn database(dir: &TempDir) -> Connection {
    Connection::open(dir.path().join("catalogs/c/tools.db")).unwrap()
}

#[test]
fn dense_search_finds_a_tool_by_its_enrichment_and_words_do_not() {
    for options in [hashing(), table()] {
        let dir = tempfile::tempdir().unwrap();
        let catalog = filled(&DataDir::new(dir.path()), "c", options, &tools());
        embed_all(&mut catalog.writer().unwrap());
        let before = found(&catalog.searcher(), "dinner", Mode::Lexical);
        assert!(enrich(&catalog, &tools()[0], &written()));
        let searcher = catalog.searcher();
        assert_eq!(first(&searcher), "chat/post");
        assert_eq!(searcher.enrichment(&id("chat/post")), Some(&written()));
        assert_eq!(found(&searcher, "dinner", Mode::Lexical), before);
        let results = searcher.search(&Query::new(REQUEST)).unwrap();
        assert!(results.degraded.is_none());
        assert_eq!(*results.hits[0].tool, tools()[0], "the tool is as it was");
    }
}

#[test]
fn a_tool_without_an_enrichment_costs_nothing() {
    for options in [hashing(), table()] {
        let dir = tempfile::tempdir().unwrap();
        let catalog = filled(&DataDir::new(dir.path()), "c", options, &tools());
        embed_all(&mut catalog.writer().unwrap());
        let before = vectors(&catalog);
        enrich(&catalog, &tools()[0], &written());
        assert_eq!(vectors(&catalog), before + 2, "one a text");
    }
}

#[test]
fn another_definition_has_no_enrichment() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &tools());
    enrich(&catalog, &tools()[0], &written());
    let changed = plain("chat", "post", "Archives a channel.");
    let mut writer = catalog.writer().unwrap();
    writer.upsert(std::slice::from_ref(&changed)).unwrap();
    assert!(
        !writer.set_enrichment(&tools()[0], &written()).unwrap(),
        "it was written for the former definition"
    );
    let unknown = plain("chat", "unknown", "Is in no catalog.");
    assert!(!writer.set_enrichment(&unknown, &written()).unwrap());
    writer.commit().unwrap();
    embed_all(&mut writer);
    drop(writer);
    assert_eq!(catalog.searcher().enrichment(&changed.id), None);
    let fresh_dir = tempfile::tempdir().unwrap();
    let mut without = tools();
    without[0] = changed;
    let other = fresh(&DataDir::new(fresh_dir.path()), "c", &without);
    assert_alike(
        &catalog.searcher(),
        &other.searcher(),
        &some_queries(),
        "changed",
    );
}

#[test]
fn an_enrichment_is_deleted_with_its_tool_or_alone() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &tools());
    for tool in &tools()[..2] {
        enrich(&catalog, tool, &written());
    }
    let mut writer = catalog.writer().unwrap();
    writer.remove(&[id("chat/post")]).unwrap();
    let ids = [id("disk/list"), id("maps/route"), id("no/such")];
    assert_eq!(writer.clear_enrichments(&ids).unwrap(), 1);
    writer.commit().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    drop(writer);
    for tool in tools() {
        assert_eq!(catalog.searcher().enrichment(&tool.id), None);
    }
    let left: u32 = database(&dir)
        .query_row("SELECT count(*) FROM enrichments", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_writer_dropped_without_a_commit_leaves_enrichments_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &tools());
    enrich(&catalog, &tools()[0], &written());
    let mut writer = catalog.writer().unwrap();
    writer.clear_enrichments(&[id("chat/post")]).unwrap();
    drop(writer);
    assert!(
        catalog
            .refresh()
            .unwrap()
            .enrichment(&id("chat/post"))
            .is_some()
    );
}

#[test]
fn snapshots_answer_alike_whether_updated_opened_or_refreshed() {
    for options in [hashing, table] {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let catalog = filled(&data, "c", options(), &tools());
        embed_all(&mut catalog.writer().unwrap());
        let reader = data.open("c", options()).unwrap();
        for texts in [vec!["feed the cat"], vec![REQUEST, "say hello"]] {
            enrich(
                &catalog,
                &tools()[2],
                &Enrichment::new(texts, "writer-2").unwrap(),
            );
            let opened = data.open("c", options()).unwrap();
            let queries = some_queries();
            let refreshed = reader.refresh().unwrap();
            assert_alike(&catalog.searcher(), &opened.searcher(), &queries, "opened");
            assert_alike(&catalog.searcher(), &refreshed, &queries, "refreshed");
        }
        assert_eq!(first(&reader.searcher()), "kitchen/timer");
    }
}

#[test]
fn an_enrichment_is_embedded_once_and_nothing_is_degraded_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &tools());
    let mut writer = catalog.writer().unwrap();
    writer.set_enrichment(&tools()[0], &written()).unwrap();
    writer.commit().unwrap();
    let results = catalog.searcher().search(&Query::new(REQUEST)).unwrap();
    assert!(results.degraded.is_none(), "it is found as any other tool");
    assert!(catalog.needs_writer());
    assert_eq!(embed_all(&mut writer), 2);
    assert!(!catalog.needs_writer());
    assert_eq!(embed_all(&mut writer), 0);
    assert_eq!(first(&catalog.searcher()), "chat/post");
}

#[test]
fn a_damaged_enrichment_is_none_and_can_be_written_again() {
    for damage in [
        "UPDATE enrichments SET texts = replace(texts, 'dinner', 'supper')",
        "UPDATE enrichments SET model = 'another'",
        "UPDATE enrichments SET checksum = zeroblob(8)",
        "UPDATE enrichments SET checksum = 7, texts = x'00'",
        "UPDATE enrichments SET tool = tool + 1",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let catalog = fresh(&data, "c", &tools());
        enrich(&catalog, &tools()[0], &written());
        drop(catalog);
        database(&dir).execute(damage, []).unwrap();
        let catalog = data.open("c", hashing()).unwrap();
        for tool in tools() {
            assert_eq!(catalog.searcher().enrichment(&tool.id), None, "{damage}");
        }
        let hits = found(&catalog.searcher(), "plan a way", Mode::Hybrid);
        assert_eq!(hits[0], "maps/route", "{damage}");
        assert!(enrich(&catalog, &tools()[0], &written()));
        assert_eq!(first(&catalog.searcher()), "chat/post", "{damage}");
    }
}

#[test]
fn a_catalog_of_a_version_without_enrichments_is_read_and_gets_them() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    drop(fresh(&data, "c", &tools()));
    database(&dir)
        .execute("DROP TABLE enrichments", [])
        .unwrap();
    let catalog = data.open("c", hashing()).unwrap();
    assert_eq!(catalog.searcher().enrichment(&id("chat/post")), None);
    assert!(enrich(&catalog, &tools()[0], &written()));
    assert_eq!(first(&catalog.searcher()), "chat/post");
}

/// The unscaled dense score of the enriched tool, for its own text.
fn own_score(searcher: &Searcher, texts: CountedTexts) -> f32 {
    let parts = Parts {
        texts,
        ..Parts::ALL
    };
    let query = Query::new(REQUEST).mode(Mode::Dense).parts(parts).explain();
    let hits = searcher.search(&query).unwrap().hits;
    let own = hits.iter().find(|hit| hit.id.as_str() == "chat/post");
    own.map_or(f32::MIN, |hit| hit.explain.as_ref().unwrap().dense[0].1.raw)
}

#[test]
fn texts_can_be_left_out_of_a_search() {
    for options in [hashing(), table()] {
        let dir = tempfile::tempdir().unwrap();
        let catalog = filled(&DataDir::new(dir.path()), "c", options, &tools());
        embed_all(&mut catalog.writer().unwrap());
        let plain = own_score(&catalog.searcher(), CountedTexts::All);
        assert!(enrich(&catalog, &tools()[0], &written()));
        let searcher = catalog.searcher();
        let all = own_score(&searcher, CountedTexts::All);
        let other = own_score(&searcher, CountedTexts::without("write to the others"));
        let own = own_score(&searcher, CountedTexts::without(REQUEST));
        let none = own_score(&searcher, CountedTexts::None);
        let unknown = own_score(&searcher, CountedTexts::without("nobody wrote this"));
        assert!(all == other && all == unknown, "{all} {other} {unknown}");
        assert!(own < all, "{own} {all}");
        assert!(none == plain && none <= own, "{none} {plain} {own}");
    }
}
