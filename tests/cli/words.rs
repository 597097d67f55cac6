//! `toolscout words`.

use serde_json::{Value, json};

use super::run::{World, says};

fn world() -> World {
    World::with_tools(&[
        json!({"server": "ci", "name": "deploy", "description": "Deploys a build."}),
        json!({"server": "legacy", "name": "deploy", "description": "Deploys a build in the old way."}),
        json!({"server": "github", "name": "create_pull_request", "description": "Opens a request to merge."}),
        json!({"server": "hr", "name": "request_vacation", "description": "Asks for days of vacation."}),
    ])
}

fn first(world: &World, query: &str) -> Value {
    world.json(&["search", "--embedder", "none", query])["hits"][0]["id"].clone()
}

#[test]
fn entries_are_added_applied_explained_and_removed() {
    let world = world();
    world.ok(&[
        "words",
        "add",
        "alias",
        "github/create_pull_request",
        "gh pr",
        "open a PR",
    ]);
    world.ok(&["words", "add", "synonym", "pto", "vacation", "paid leave"]);
    world.ok(&["words", "add", "synonym", "zorp", "deploys", "--one-way"]);
    world.ok(&[
        "words",
        "add",
        "pin",
        "build",
        "legacy/deploy",
        "--contains",
    ]);
    world.ok(&["words", "add", "boost", "server:legacy", "0.5"]);
    world.ok(&[
        "words",
        "add",
        "description",
        "hr/request_vacation",
        "Days off.",
    ]);
    assert_eq!(first(&world, "gh-pr"), "github/create_pull_request");
    assert_eq!(first(&world, "a build"), "legacy/deploy");
    assert_eq!(first(&world, "zorp"), "ci/deploy");
    let explained = world.ok(&["search", "--embedder", "none", "--explain", "a build"]);
    says(&explained, "pinned to 1 by \"build\"");
    says(&explained, "boost 0.5 of server legacy");
    let words: Value = serde_json::from_str(&world.ok(&["words", "get"])).unwrap();
    assert_eq!(
        words["synonyms"],
        json!({
            "pto": { "words": ["pto", "vacation", "paid leave"] },
            "zorp": { "from": "zorp", "words": ["deploys"] }
        })
    );
    assert_eq!(
        world.ok(&["export", "--words"]),
        world.ok(&["words", "get"])
    );
    // What the server said is exported, and shown beside.
    let tools = world.ok(&["export"]);
    assert!(
        tools.contains("Asks for days") && !tools.contains("Days off"),
        "{tools}"
    );
    let shown = world.ok(&["show", "hr/request_vacation"]);
    assert!(shown.contains("Asks for days"), "{shown}");

    let one = ["words", "remove", "alias", "github/create_pull_request"];
    world.ok(&[&one[..], &["open a PR"]].concat());
    let words = world.ok(&["words", "get"]);
    assert!(
        words.contains("gh pr") && !words.contains("open a PR"),
        "{words}"
    );
    let named = world.run(&["words", "remove", "pin", "build: legacy/deploy"]);
    assert!(
        named
            .stderr
            .contains("words remove pin \"build\" legacy/deploy"),
        "{}",
        named.stderr
    );
    let misspelt = world.run(&["words", "add", "boost", "server:lagecy", "2"]);
    says(&misspelt.stderr, "boosts.servers.lagecy");
    let next = world.run(&["words", "remove", "boost", "server:lagecy"]);
    assert_eq!(next.stderr.matches("warning").count(), 0, "{}", next.stderr);
    world.ok(&["words", "remove", "pin", "build"]);
    assert_eq!(first(&world, "a build"), "ci/deploy");
    world.ok(&["words", "remove", "boost", "server:legacy"]);
    world.ok(&["words", "remove", "synonym", "zorp"]);
    let missing = world.run(&["words", "remove", "alias", "ci/deploy"]);
    assert!(
        missing.code == 1 && missing.stderr.contains("words get"),
        "{}",
        missing.stderr
    );
}

#[test]
fn a_document_goes_from_one_catalog_to_another() {
    let world = world();
    world.ok(&["words", "add", "alias", "ci/deploy", "ship it"]);
    let document = world.ok(&["words", "get"]);
    let file = world.file("words.json", &document);
    let file = file.to_str().expect("UTF-8");
    world.ok(&["words", "remove", "alias", "ci/deploy"]);
    world.ok(&["words", "set", file]);
    assert_eq!(world.ok(&["words", "get"]), document);
    assert_eq!(first(&world, "Ship it"), "ci/deploy");
}

#[test]
fn mistakes_are_named() {
    let world = world();
    let unknown = world.run(&["words", "add", "alias", "ci/delpoy", "ship it"]);
    assert!(
        unknown.code == 0
            && unknown
                .stderr
                .contains("aliases.ci/delpoy is for what the catalog does not have"),
        "{}",
        unknown.stderr
    );
    world.fails(
        1,
        &["words", "add", "boost", "server:ci", "50"],
        &["boosts.servers.ci", "from 0.1 to 10"],
    );
    world.fails(
        1,
        &["words", "add", "boost", "server:ci", "much"],
        &["\"much\" is no factor"],
    );
    world.fails(
        2,
        &["words", "add", "boost", "ci", "2"],
        &["tool:ID, server:NAME or tag:NAME"],
    );
    world.fails(
        2,
        &["words", "add", "pin", "a", "b/c", "--one-way"],
        &["--one-way is for synonyms"],
    );
    world.fails(
        2,
        &["words", "add", "pin", "a", "b/c", "d/e"],
        &["2 values where one is needed"],
    );
    let file = world.file("words.json", r#"{"pins": {"p": {"query": "q"}}}"#);
    let file = file.to_str().expect("UTF-8");
    world.fails(
        1,
        &["words", "set", file],
        &["words.json", "pins.p", "missing field `tool`"],
    );
}
