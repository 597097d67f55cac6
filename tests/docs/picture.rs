//! The picture of the first page and the table with it: both are what the script writes.

use std::process::Command;

use super::page::{self, Page};

#[test]
fn the_picture_is_what_the_script_draws() {
    let stored = Page::read("docs/engines.svg").text;
    assert!(
        stored == printed("--print"),
        "docs/engines.svg is old; run scripts/figure"
    );
}

#[test]
fn the_table_is_what_the_script_prints() {
    let benchmarks = Page::read("BENCHMARKS.md").text;
    assert!(
        benchmarks.contains(&printed("--table")),
        "the table of engines in BENCHMARKS.md is old; run scripts/figure --table"
    );
}

fn printed(what: &str) -> String {
    let mut command = Command::new("python3");
    command.arg(page::root().join("scripts/figure")).arg(what);
    let output = command.output().expect("Python 3 runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}
