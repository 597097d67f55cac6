//! Flag over environment over file.

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
