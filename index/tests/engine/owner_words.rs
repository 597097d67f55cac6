//! The owner's words: aliases, synonyms, pins, boosts and descriptions beside those of servers.

use std::sync::Arc;

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolscout_index::embed::StaticTable;
use toolscout_index::hit::NameMatch;
use toolscout_index::{
    Catalog, DataDir, Embedder, Enrichment, Error, Filter, Mode, Options, OwnerWords, Query,
    Results, Searcher, Tool, ToolId,
};

use crate::world::{Chance, assert_alike, embed_all, filled, found, fresh, hashing, plain};

fn tools() -> Vec<Tool> {
    let mut tools = vec![
        plain("ci", "deploy", "Deploys a build to a cluster."),
        plain("ci", "rollback", "Returns a cluster to the build before."),
        plain(
            "github",
            "create_pull_request",
            "Opens a request to merge a branch.",
        ),
        plain("github", "merge_branch", "Merges a branch."),
        plain("hr", "request_vacation", "Asks for days of vacation."),
        plain(
            "hr",
            "list_holidays",
            "Lists the public holidays of a country.",
        ),
        plain(
            "legacy",
            "deploy",
            "Deploys a build to a cluster, the old way.",
        ),
        plain(
            "cluster",
            "kubernetes_status",
            "Shows the state of kubernetes.",
        ),
    ];
    tools[3].tags.push("beta".to_owned());
    tools
}

fn words(document: Value) -> OwnerWords {
    OwnerWords::read(document.to_string().as_bytes()).unwrap()
}

fn say(catalog: &Catalog, document: Value) {
    let mut writer = catalog.writer().unwrap();
    writer.set_owner_words(&words(document)).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
}

fn table() -> Options {
    Options::new(vec![StaticTable::bundled().unwrap() as Arc<dyn Embedder>])
}

fn catalog(dir: &TempDir) -> Catalog {
    filled(&DataDir::new(dir.path()), "c", table(), &tools())
}

/// A catalog in which the owner has said this.
fn told(dir: &TempDir, document: Value) -> Catalog {
    let catalog = catalog(dir);
    say(&catalog, document);
    catalog
}

fn search(catalog: &Catalog, query: Query) -> Results {
    catalog.searcher().search(&query.explain()).unwrap()
}

fn ids(results: &Results) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.id.as_str()).collect()
}

/// What the owner's words did to the first hit, in lines.
fn effects(results: &Results) -> Vec<String> {
    let explain = results.hits[0].explain.as_ref().unwrap();
    explain
        .owner_words
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn id(text: &str) -> ToolId {
    ToolId::parse(text).unwrap()
}

fn queries() -> Vec<Query> {
    let texts = [
        "deploy a build",
        "book pto",
        "gh pr",
        "merge a branch, and then deploy it",
        "kubernetes",
        "urlaub",
    ];
    let modes = [Mode::Hybrid, Mode::Lexical, Mode::Dense];
    let all = texts
        .into_iter()
        .flat_map(|text| modes.map(|mode| Query::new(text).mode(mode).explain()));
    all.collect()
}

fn everything() -> Value {
    json!({
        "aliases": {"github/create_pull_request": ["gh pr", "open a PR"], "no/such": ["thing"]},
        "synonyms": {"leave": {"words": ["pto", "vacation"]}, "k8s": {"from": "k8s", "words": ["kubernetes"]}},
        "pins": {"deploy": {"query": "deploy", "match": "contains", "tool": "ci/rollback", "place": 2}},
        "boosts": {"servers": {"legacy": 0.5}, "tags": {"beta": 1.5}},
        "descriptions": {"ci/rollback": "Undoes the last release."}
    })
}

#[test]
fn an_alias_names_its_tool_and_its_words_find_it() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = told(
        &dir,
        json!({"aliases": {"github/create_pull_request": ["gh pr", "sendungsverfolgung"]}}),
    );
    let results = search(&catalog, Query::new("GH PR"));
    assert_eq!(ids(&results)[0], "github/create_pull_request");
    assert_eq!(effects(&results), ["alias \"gh pr\""]);
    let explain = results.hits[0].explain.as_ref().unwrap();
    assert_eq!(explain.name_match, Some(NameMatch::Alias));
    assert_eq!(results.confidence, Some(1.0));
    for mode in [Mode::Lexical, Mode::Hybrid] {
        let hits = found(&catalog.searcher(), "new sendungsverfolgung please", mode);
        assert_eq!(hits[0], "github/create_pull_request");
    }
    assert_eq!(
        catalog.searcher().aliased("gh-pr"),
        [id("github/create_pull_request")]
    );
}

#[test]
fn a_synonym_finds_what_nobody_said() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir);
    for mode in [Mode::Lexical, Mode::Hybrid] {
        let hits = found(&catalog.searcher(), "zorp", mode);
        assert_ne!(
            hits.first().map(String::as_str),
            Some("hr/request_vacation")
        );
    }
    say(
        &catalog,
        json!({"synonyms": {"leave": {"words": ["zorp", "vacation"]}, "k8s": {"from": "k8s", "words": ["kubernetes"]}}}),
    );
    for mode in [Mode::Lexical, Mode::Hybrid, Mode::Dense] {
        let results = search(&catalog, Query::new("zorp").mode(mode));
        assert_eq!(ids(&results)[0], "hr/request_vacation", "{mode}");
        assert_eq!(effects(&results), ["synonym zorp -> vacation"]);
        let results = search(&catalog, Query::new("is k8s well").mode(mode));
        assert_eq!(ids(&results)[0], "cluster/kubernetes_status", "{mode}");
    }
    let results = search(&catalog, Query::new("zorp"));
    assert!(results.confidence.unwrap() > 0.05, "it is no nonsense");
    assert!(results.signals.coverage > 0.3, "{:?}", results.signals);
}

#[test]
fn a_synonym_that_tools_have_beside_the_word_adds_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir);
    let before = found(&catalog.searcher(), "holidays", Mode::Lexical);
    assert_eq!(before, ["hr/list_holidays"]);
    say(
        &catalog,
        json!({"synonyms": {"leave": {"words": ["holidays", "vacation"]}}}),
    );
    let after = found(&catalog.searcher(), "holidays", Mode::Lexical);
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(after.contains(&"hr/request_vacation".to_owned()));
}

#[test]
fn a_pin_puts_a_tool_at_its_place_and_hides_another() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = told(
        &dir,
        json!({"pins": {
            "a": {"query": "deploy a build", "tool": "hr/list_holidays"},
            "b": {"query": "deploy a build", "tool": "github/merge_branch", "place": 3},
            "c": {"query": "deploy", "match": "contains", "tool": "legacy/deploy", "hide": true},
            "d": {"query": "deploy", "match": "contains", "tool": "no/such"}
        }}),
    );
    let results = search(&catalog, Query::new("Deploy a build!").k(4));
    let hits = ids(&results);
    assert_eq!(
        (hits[0], hits[2]),
        ("hr/list_holidays", "github/merge_branch")
    );
    assert_eq!(hits[1], "ci/deploy");
    assert!(!hits.contains(&"legacy/deploy"), "{hits:?}");
    assert_eq!(effects(&results), ["pinned to 1 by \"deploy a build\""]);
    let scores: Vec<f32> = results.hits.iter().map(|hit| hit.score).collect();
    assert!(
        scores.is_sorted_by(|above, below| above >= below),
        "{scores:?}"
    );
    // Beyond the last hit that was asked for.
    let results = search(&catalog, Query::new("deploy a build").k(2));
    assert_eq!(ids(&results), ["hr/list_holidays", "ci/deploy"]);
    // Asked for by its id, too.
    let results = search(&catalog, Query::new("legacy/deploy"));
    assert!(!ids(&results).contains(&"legacy/deploy"));
}

#[test]
fn a_pin_shows_no_tool_that_the_filter_leaves_out_and_answers_what_matches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = told(
        &dir,
        json!({"pins": {"a": {"query": "xqzw jvk", "tool": "hr/list_holidays"}}}),
    );
    let results = search(&catalog, Query::new("xqzw jvk").mode(Mode::Lexical));
    assert_eq!(ids(&results), ["hr/list_holidays"]);
    assert!(results.no_match.is_none());
    let filter = Filter {
        servers: ["ci".to_owned()].into(),
        ..Filter::default()
    };
    let query = Query::new("xqzw jvk").mode(Mode::Lexical).filter(filter);
    let results = search(&catalog, query);
    assert!(results.hits.is_empty() && results.no_match.is_some());
}

#[test]
fn boosts_change_the_order_and_keep_scores_from_0_to_1() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir);
    let plain = search(&catalog, Query::new("deploy a build to a cluster"));
    assert_eq!(ids(&plain)[0], "ci/deploy");
    say(
        &catalog,
        json!({"boosts": {"tools": {"legacy/deploy": 1.5}, "servers": {"legacy": 2.0, "ci": 0.5}}}),
    );
    let results = search(&catalog, Query::new("deploy a build to a cluster"));
    assert_eq!(ids(&results)[0], "legacy/deploy");
    assert_eq!(
        effects(&results),
        [
            "boost 1.5 of tool legacy/deploy",
            "boost 2 of server legacy"
        ]
    );
    assert!(
        results
            .hits
            .iter()
            .all(|hit| (0.0..=1.0).contains(&hit.score))
    );
    say(&catalog, json!({"boosts": {"tags": {"beta": 10.0}}}));
    let results = search(&catalog, Query::new("open a request to merge a branch"));
    assert_eq!(ids(&results)[0], "github/merge_branch");
    assert_eq!(effects(&results), ["boost 10 of tag beta"]);
}

#[test]
fn no_search_finds_what_is_switched_off_and_it_stays_in_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir);
    let deploy = id("ci/deploy");
    for (boosts, is_found) in [
        (json!({"tools": {"ci/deploy": 0}}), false),
        (
            json!({"servers": {"ci": 0}, "tools": {"ci/deploy": 10}}),
            false,
        ),
        (json!({"tools": {"ci/deploy": 0.1}}), true),
    ] {
        // A pin does not show it either, and neither does its name.
        let pins = json!({"p": {"query": "deploy a build", "tool": "ci/deploy"}});
        say(&catalog, json!({"boosts": boosts, "pins": pins}));
        for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid] {
            for text in ["deploy a build", "deploy a build to a cluster", "ci/deploy"] {
                let results = search(&catalog, Query::new(text).mode(mode).k(50));
                let found = ids(&results).contains(&"ci/deploy");
                assert_eq!(found, is_found, "{boosts} {mode} {text}");
            }
        }
        let searcher = catalog.searcher();
        assert_eq!(searcher.is_switched_off(&deploy), !is_found);
        assert!(searcher.tool(&deploy).is_some());
    }
    let words = OwnerWords::read(br#"{"boosts": {"tools": {"ci/deploy": 0.05}}}"#);
    let error = words.unwrap_err().to_string();
    assert!(
        error.contains("from 0.1 to 10, or 0 to switch it off"),
        "{error}"
    );
}

#[test]
fn the_owners_description_is_searched_and_shown_and_the_servers_stays() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = told(
        &dir,
        json!({"descriptions": {"ci/rollback": "Undoes the last release after an incident."}}),
    );
    for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid] {
        let results = search(
            &catalog,
            Query::new("undo the release of an incident").mode(mode),
        );
        assert_eq!(ids(&results)[0], "ci/rollback", "{mode}");
        let tool = &results.hits[0].tool;
        assert_eq!(**tool, tools()[1], "the definition is the server's");
        assert_eq!(tool.description, "Returns a cluster to the build before.");
        assert_eq!(
            tool.shown_description(),
            "Undoes the last release after an incident."
        );
        assert_eq!(effects(&results), ["the owner's description"]);
    }
    let hits = found(&catalog.searcher(), "returns", Mode::Lexical);
    assert!(hits.is_empty(), "{hits:?}");
    let exported = serde_json::to_string(&*catalog.searcher().tool(&id("ci/rollback")).unwrap());
    assert!(!exported.unwrap().contains("incident"));
}

#[test]
fn a_catalog_without_words_answers_as_one_that_never_had_any() {
    for options in [hashing, table] {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let catalog = filled(&DataDir::new(dir.path()), "c", options(), &tools());
        embed_all(&mut catalog.writer().unwrap());
        say(&catalog, everything());
        assert!(catalog.searcher().owner_words().is_some());
        say(&catalog, json!({}));
        assert!(catalog.searcher().owner_words().is_none());
        let never = filled(&DataDir::new(other.path()), "c", options(), &tools());
        embed_all(&mut never.writer().unwrap());
        assert_alike(
            &catalog.searcher(),
            &never.searcher(),
            &queries(),
            "without words",
        );
    }
}

#[test]
fn snapshots_answer_alike_whether_updated_opened_refreshed_or_told_before_the_tools() {
    for options in [hashing, table] {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let catalog = filled(&data, "c", options(), &tools());
        embed_all(&mut catalog.writer().unwrap());
        let reader = data.open("c", options()).unwrap();
        say(&catalog, everything());
        let opened = data.open("c", options()).unwrap();
        let refreshed = reader.refresh().unwrap();
        assert_alike(
            &catalog.searcher(),
            &opened.searcher(),
            &queries(),
            "opened",
        );
        assert_alike(&catalog.searcher(), &refreshed, &queries(), "refreshed");
        let before = data.open_or_create("before", options()).unwrap();
        say(&before, everything());
        let mut writer = before.writer().unwrap();
        writer.upsert(&tools()).unwrap();
        writer.commit().unwrap();
        embed_all(&mut writer);
        drop(writer);
        assert_alike(
            &catalog.searcher(),
            &before.searcher(),
            &queries(),
            "told before",
        );
    }
}

#[test]
fn words_outlive_changes_and_removals_of_their_tools() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = told(&dir, everything());
    let mut writer = catalog.writer().unwrap();
    let changed = plain("ci", "rollback", "Goes back.");
    writer.sync("ci", std::slice::from_ref(&changed)).unwrap();
    writer.sync("github", &[]).unwrap();
    writer.commit().unwrap();
    let of = |searcher: &Searcher| searcher.owner_words().cloned().unwrap();
    assert_eq!(of(&catalog.searcher()), words(everything()));
    let hits = found(&catalog.searcher(), "undo the last release", Mode::Lexical);
    assert_eq!(hits, ["ci/rollback"]);
    assert!(found(&catalog.searcher(), "gh pr", Mode::Lexical).is_empty());
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let hits = found(&catalog.searcher(), "gh pr", Mode::Lexical);
    assert_eq!(hits[0], "github/create_pull_request");
    // A tool that another catalog has read brings none of its words.
    let other = DataDir::new(dir.path())
        .open_or_create("other", table())
        .unwrap();
    let tool = catalog.searcher().tool(&id("ci/rollback")).unwrap();
    let mut writer = other.writer().unwrap();
    writer.upsert(&[Tool::clone(&tool)]).unwrap();
    writer.commit().unwrap();
    assert!(found(&other.searcher(), "undo the last release", Mode::Lexical).is_empty());
}

#[test]
fn only_the_tools_that_are_said_something_of_are_embedded_again() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &tools());
    let written = Enrichment::new(["go back to yesterday"], "writer").unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.set_enrichment(&tools()[1], &written).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    let said = words(json!({
        "aliases": {"ci/deploy": ["ship it"]},
        "descriptions": {"ci/rollback": "Undoes the last release."},
        "boosts": {"servers": {"hr": 2.0}}
    }));
    writer.set_owner_words(&said).unwrap();
    writer.commit().unwrap();
    assert_eq!(
        embed_all(&mut writer),
        3,
        "an alias, and the two views that have the description"
    );
    assert_eq!(embed_all(&mut writer), 0);
    drop(writer);
    // The definition that it was written for is the same.
    assert_eq!(
        catalog.searcher().enrichment(&id("ci/rollback")),
        Some(&written)
    );
    let hits = found(&catalog.searcher(), "ship it", Mode::Dense);
    assert_eq!(hits[0], "ci/deploy");
}

#[test]
fn a_writer_dropped_without_a_commit_says_nothing_and_invalid_words_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir);
    let mut writer = catalog.writer().unwrap();
    writer.set_owner_words(&words(everything())).unwrap();
    assert_eq!(writer.owner_words().unwrap(), words(everything()));
    drop(writer);
    assert!(catalog.refresh().unwrap().owner_words().is_none());
    let mut wrong = OwnerWords::default();
    wrong.aliases.insert("ci/deploy".to_owned(), Vec::new());
    let refused = catalog.writer().unwrap().set_owner_words(&wrong);
    assert!(
        matches!(refused, Err(Error::InvalidOwnerWords { .. })),
        "{refused:?}"
    );
}

#[test]
fn damaged_words_are_an_error_and_not_other_words() {
    let dir = tempfile::tempdir().unwrap();
    drop(told(&dir, everything()));
    let database = Connection::open(dir.path().join("catalogs/c/tools.db")).unwrap();
    let damage =
        "UPDATE meta SET value = replace(value, 'gh pr', 'hg pr') WHERE key = 'owner_words'";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    let opened = DataDir::new(dir.path()).open("c", table()).map(drop);
    let message = opened.unwrap_err().to_string();
    assert!(
        message.contains("the owner's words are not what was written"),
        "{message}"
    );
}

#[test]
fn random_words_break_nothing() {
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let all = tools();
        let mut document =
            json!({"aliases": {}, "pins": {}, "boosts": {"tools": {}}, "synonyms": {}});
        for number in 0..chance.below(12) {
            let tool = chance.pick(&all).id.to_string();
            let word = chance.pick(&["deploy", "branch", "vacation", "zorp", "a b c", "合并"]);
            let other = chance.pick(&["cluster", "k8s", "build", "pto"]);
            let name = number.to_string();
            match chance.below(4) {
                0 => document["aliases"][&tool] = json!([word]),
                1 => {
                    document["pins"][&name] = json!({"query": word, "match": "contains", "tool": tool,
                    "place": 1 + chance.below(5)})
                }
                2 => document["boosts"]["tools"][&tool] = json!(0.1 + chance.below(9) as f32),
                _ => document["synonyms"][&name] = json!({"words": [word, other]}),
            }
        }
        let catalog = told(&dir, document.clone());
        for text in [
            "deploy",
            "merge the branch and then deploy k8s",
            "zorp",
            "合并 branch",
            "pto",
        ] {
            let results = search(&catalog, Query::new(text).k(5));
            let scores: Vec<f32> = results.hits.iter().map(|hit| hit.score).collect();
            assert!(
                scores.is_sorted_by(|a, b| a >= b),
                "{seed} {document} {scores:?}"
            );
            let mut hits = ids(&results);
            let count = hits.len();
            hits.sort_unstable();
            hits.dedup();
            assert_eq!(hits.len(), count, "{seed}: a tool twice");
        }
    }
}
