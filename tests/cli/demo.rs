//! `toolscout demo`.

use serde_json::json;

use super::run::{World, tool};

#[test]
fn the_samples_have_a_catalog_of_their_own_and_searches_say_that_they_are_samples() {
    let world = World::with_tools(&[tool("shop", "refund", "Refunds an order.")]);
    let printed = world.ok(&["demo", "--embedder", "none"]);
    for expected in [
        "demo: 425 added",
        "toolscout --catalog demo search -k 3 createIssue",
        "toolscout demo --remove",
    ] {
        assert!(printed.contains(expected), "{printed}");
    }
    assert_eq!(world.ids(), ["shop/refund"]);
    // Once more changes nothing.
    let again = world.json(&["demo", "--embedder", "none"]);
    assert_eq!(
        (&again["added"], &again["unchanged"]),
        (&json!([]), &json!(425))
    );

    let remark = "these are sample tools; `toolscout add FILE` adds your own";
    let search = ["search", "--embedder", "none", "refund an order"];
    let in_samples = world.run(&[&["--catalog", "demo"], &search[..]].concat());
    assert!(in_samples.stderr.contains(remark), "{}", in_samples.stderr);
    assert_eq!(
        world.json(&[&["--catalog", "demo"], &search[..]].concat())["samples"],
        true
    );
    assert!(!world.run(&search).stderr.contains(remark));
    assert_eq!(world.json(&search)["samples"], false);

    world.ok(&["demo", "--remove"]);
    world.fails(
        1,
        &["--catalog", "demo", "search", "x"],
        &["`toolscout demo` makes it"],
    );
    world.fails(1, &["demo", "--remove"], &["no catalog \"demo\""]);
    assert_eq!(world.ids(), ["shop/refund"]);
}

#[test]
fn a_catalog_of_this_name_that_somebody_else_made_stays() {
    let world = World::new();
    let file = world.file(
        "tools.json",
        json!([tool("shop", "refund", "Refunds.")]).to_string(),
    );
    world.ok(&[
        "--catalog",
        "demo",
        "--embedder",
        "none",
        "add",
        file.to_str().unwrap(),
    ]);
    for arguments in [&["demo"][..], &["demo", "--remove"]] {
        world.fails(1, arguments, &["that this command has not made"]);
    }
    world.fails(2, &["--catalog", "shop", "demo"], &["leave --catalog out"]);
    let left = world.json(&["--catalog", "demo", "list"]);
    assert_eq!(left.as_array().unwrap().len(), 1);
}
