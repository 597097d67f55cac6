//! Flag over environment over file.

use serde_json::json;

use super::run::{Ended, World, four_tools, text};

#[test]
fn a_file_is_read_and_the_environment_and_flags_win_over_it() {
    let world = World::with_tools(&four_tools());
    let file = world.file("c.toml", "[search]\nk = 1\n");
    let hits = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = world.command();
        command
            .args(["search", "e-mail message inbox issue"])
            .args(args)
            .envs(variables.iter().copied());
        let ended = Ended::of(command.output());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout.lines().count()
    };
    let config = ["--config", text(&file)];
    assert_eq!(hits(&config, &[]), 1);
    assert_eq!(hits(&config, &[("TOOLSCOUT_SEARCH_K", "2")]), 2);
    assert_eq!(
        hits(
            &[&config[..], &["-k", "3"]].concat(),
            &[("TOOLSCOUT_SEARCH_K", "2")]
        ),
        3
    );
    assert_eq!(hits(&[], &[("TOOLSCOUT_CONFIG", text(&file))]), 1);
}

#[test]
fn an_unknown_key_is_named() {
    let world = World::new();
    let file = world.file("c.toml", "[search]\nkay = 1\n");
    world.fails(
        1,
        &["--config", text(&file), "list"],
        &["c.toml:2:1", "kay"],
    );
    world.fails(1, &["--config", "nowhere.toml", "list"], &["nowhere.toml"]);
}

#[test]
fn an_invalid_variable_is_named() {
    let world = World::new();
    let ended = Ended::of(
        world
            .command()
            .env("TOOLSCOUT_SEARCH_K", "lots")
            .arg("list")
            .output(),
    );
    ended.failed(1, &["TOOLSCOUT_SEARCH_K", "lots"]);
}

#[test]
fn settings_of_the_catalog_are_obeyed_below_file_and_flags() {
    let world = World::with_tools(&four_tools());
    let file = world.file("c.toml", "[search]\nk = 2\n");
    let hits = |args: &[&str]| {
        let request = ["search", "e-mail message inbox issue"];
        world.ok(&[args, &request].concat()).lines().count()
    };
    let config = ["--config", text(&file)];
    world.ok(&["catalogs", "settings", "-k", "1", "--min-confidence", "0"]);
    assert_eq!((hits(&[]), hits(&config)), (1, 2));
    let shown = world.json(&["catalogs", "settings", "--description", "ours"]);
    assert_eq!(
        (&shown["k"], &shown["description"]),
        (&json!(1), &json!("ours"))
    );
    let reset = world.json(&["catalogs", "settings", "--reset", "k,min_confidence"]);
    assert_eq!(
        (&reset["k"], &reset["min_confidence"], &reset["description"]),
        (&json!(null), &json!(null), &json!("ours"))
    );
    let graph = ["catalogs", "settings", "--graph-min-vectors", "500"];
    let scored = world.json(&[&graph[..], &["--set", "lexical.k1=1.5"]].concat());
    assert_eq!(
        (&scored["graph_min_vectors"], &scored["lexical.k1"]),
        (&json!(500), &json!(1.5))
    );
    let reset = world.json(&[
        "catalogs",
        "settings",
        "--reset",
        "graph_min_vectors,scoring",
    ]);
    assert_eq!(
        (&reset["graph_min_vectors"], reset.get("lexical.k1")),
        (&json!(null), None)
    );
    // Which settings are cleared has to be said.
    let unsaid = ["catalogs", "settings", "--reset"];
    world.fails(2, &unsaid, &["--reset <NAME>", "all", "embedder"]);
    let reset = [
        "catalogs", "settings", "--reset", "all", "--mode", "lexical",
    ];
    let reset = world.json(&reset);
    assert_eq!(
        (&reset["description"], &reset["mode"]),
        (&json!(""), &json!("lexical"))
    );
    assert!(hits(&[]) > 2);
    world.fails(
        1,
        &["catalogs", "settings", "-k", "51"],
        &["k is 51", "from 1 to 50"],
    );
}
