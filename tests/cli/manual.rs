//! `man` and `completions`: what a package installs beside the program.

use super::run::World;

#[test]
fn the_manual_has_a_page_for_each_command() {
    let world = World::new();
    let page = world.ok(&["man"]);
    for part in [
        ".TH toolscout 1",
        ".SH NAME",
        "toolscout\\-search(1)",
        "\\-\\-catalog",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    world.ok(&["man", "--folder", "new/man1"]);
    for name in ["toolscout", "toolscout-search", "toolscout-mcp-add"] {
        let page = world.path(&format!("new/man1/{name}.1"));
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
        // The short help leaves this flag out.
        assert!(page.contains("Directory of models"), "{page}");
    }
}

#[test]
fn a_manual_that_cannot_be_written_names_the_folder() {
    let world = World::new();
    world.file("taken", "a file");
    world.fails(
        1,
        &["man", "--folder", "taken"],
        &["the manual cannot be written to taken"],
    );
}

#[test]
fn every_shell_gets_completions() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = world.ok(&["completions", shell]);
        for verb in ["search", "completions", "man"] {
            assert!(script.contains(verb), "{shell} does not complete {verb}");
        }
    }
}
