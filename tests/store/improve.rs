//! Changes that judged queries gain from, made in a catalog of the store and taken back there.

use serde_json::{Value, json};

use super::enriching::{definitions, judged_queries, texts};
use super::node::{Node, run};
use super::postgres::Postgres;

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_change_is_made_listed_and_taken_back_in_the_store() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, folder.path());
    node.write("default", &definitions());
    // No data directory is needed beside the store.
    let elsewhere = tempfile::tempdir().unwrap();
    let address = postgres.address();
    let program = |arguments: &[&str]| {
        let store = ["--embedder", "table", "--store", &address];
        let output = run(elsewhere.path(), &[arguments, &store].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        (printed, error, output.status.code())
    };
    let (asked, _, _) = program(&["enrich", "--ask", "-"]);
    let file = |name: &str, text: &str| {
        let path = elsewhere.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (queries, texts) = (
        file("queries.jsonl", &judged_queries()),
        file("texts.jsonl", &texts(&asked)),
    );
    let improve = ["improve", "--queries", &queries, "--texts", &texts];

    let generation = || node.get("/v1/catalogs/default").body["generation"].clone();
    let before = generation();
    let (shown, error, code) = program(&improve);
    assert!(shown.contains("texts\taccepted\t12\t"), "{shown}{error}");
    assert_eq!((code, generation()), (Some(0), before.clone()));
    let (made, error, code) = program(&[&improve[..], &["--apply", "--json"]].concat());
    let made: Value = serde_json::from_str(&made).expect(&error);
    assert_eq!((code, &made["applied"]), (Some(0), &json!([1])), "{made}");
    let after = before.as_u64().unwrap() + 1;
    node.until("/v1/catalogs/default", |catalog| {
        catalog.body["generation"] == after
    });
    let search = "/v1/catalogs/default/search?q=make+this+picture+smaller";
    let first = |wished: bool| {
        node.until(search, |answer| {
            (answer.body["hits"][0]["id"] == "s/qx7") == wished
        })
    };
    first(true);
    let (log, error, _) = program(&["improve", "log", "--json"]);
    let log: Value = serde_json::from_str(&log).expect(&error);
    let entries = log[0]["applied"]["change"]["entries"].as_array();
    assert_eq!(
        (entries.unwrap().len(), &log[0]["generation"]),
        (12, &json!(after))
    );
    let (entries, error, _) = program(&["improve", "log", "1"]);
    assert!(entries.contains("+ text of s/qx7"), "{entries}{error}");

    let (reverted, error, _) = program(&["improve", "revert", "1"]);
    assert!(
        reverted.contains("took back 12 entries"),
        "{reverted}{error}"
    );
    first(false);
    let (_, error, code) = program(&["improve", "revert", "1"]);
    assert!(error.contains("was taken back already"), "{error}");
    assert_eq!(code, Some(1));
    let (log, error, _) = program(&["improve", "log"]);
    assert!(log.contains("texts (reverted)"), "{log}{error}");
    assert_eq!(
        postgres.query("SELECT count(*) FROM toolscout.improvements"),
        "2"
    );
}
