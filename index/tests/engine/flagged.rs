//! Tools that a person has to decide on are found behind all others that match.

use std::sync::Arc;

use serde_json::json;
use toolscout_index::embed::StaticTable;
use toolscout_index::{
    Catalog, DataDir, Embedder, Mode, Options, OwnerWords, Query, Results, Tool,
};

use crate::world::{embed_all, filled, plain};

const REQUEST: &str = "deploy a build to a cluster";

/// The flagged tool has all words of the request, and the name that it asks for.
fn tools(flags: &[&str]) -> Vec<Tool> {
    let flags = flags.iter().map(|flag| (*flag).to_owned());
    vec![
        plain("bad", "deploy", "Deploys a build to a cluster.").with_flags(flags),
        plain("ci", "start", "Deploys a build to a cluster of machines."),
        plain("ci", "rollback", "Returns a cluster to the build before."),
        plain("hr", "request_vacation", "Asks for days of vacation."),
    ]
}

fn options() -> Options {
    Options::new(vec![StaticTable::bundled().unwrap() as Arc<dyn Embedder>])
}

fn ids(results: &Results) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.id.as_str()).collect()
}

fn search(catalog: &Catalog, query: Query) -> Results {
    let results = catalog.searcher().search(&query).unwrap();
    assert!(results.hits.is_sorted_by(|a, b| a.score >= b.score));
    results
}

#[test]
fn a_flagged_tool_is_behind_all_others_that_match_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "c", options(), &tools(&[]));
    for mode in [Mode::Hybrid, Mode::Lexical, Mode::Dense] {
        let first = search(&catalog, Query::new(REQUEST).mode(mode));
        assert_eq!(ids(&first)[0], "bad/deploy", "{mode}");
        assert!(first.hits[0].flagged.is_empty());
    }

    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools(&["instructs the model"])).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    for mode in [Mode::Hybrid, Mode::Lexical, Mode::Dense] {
        for query in [Query::new(REQUEST), Query::new(REQUEST).fold_duplicates()] {
            let results = search(&catalog, query.mode(mode));
            let last = results.hits.last().unwrap();
            assert_eq!(last.id.as_str(), "bad/deploy", "{mode}");
            assert_eq!(last.flagged, ["instructs the model"]);
            assert!(results.hits.len() > 1);
        }
        // As many others match.
        let results = search(&catalog, Query::new(REQUEST).mode(mode).k(1).near(1));
        assert_eq!(ids(&results), ["ci/start"], "{mode}");
        assert_ne!(results.near[0].id.as_str(), "bad/deploy");
    }
    // Nothing else matches.
    let alone = Query::new("deploy").mode(Mode::Lexical);
    assert_eq!(ids(&search(&catalog, alone)).last(), Some(&"bad/deploy"));
}

#[test]
fn neither_its_name_nor_a_pin_puts_a_flagged_tool_first() {
    let dir = tempfile::tempdir().unwrap();
    let tools = tools(&["asks for secrets or the conversation"]);
    let catalog = filled(&DataDir::new(dir.path()), "c", options(), &tools);
    let pin =
        json!({"pins": {"deploy": {"query": "deploy", "match": "contains", "tool": "bad/deploy"}}});
    let mut writer = catalog.writer().unwrap();
    let words = OwnerWords::read(pin.to_string().as_bytes()).unwrap();
    writer.set_owner_words(&words).unwrap();
    writer.commit().unwrap();
    for request in [
        REQUEST,
        "bad/deploy of a build to a cluster",
        "bad deploy build",
    ] {
        let results = search(&catalog, Query::new(request));
        assert_eq!(ids(&results).last(), Some(&"bad/deploy"), "{request}");
        assert!(results.hits.len() > 1, "{request}");
    }
}
