//! What pages say of the program besides commands: flags that exist, messages that it prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::page::{self, Page};

/// Verbs whose help lists flags.
const VERBS: [&str; 53] = [
    "add",
    "sync",
    "embed",
    "list",
    "show",
    "remove",
    "review",
    "search",
    "agent",
    "audit",
    "export",
    "stats",
    "catalogs delete",
    "catalogs settings",
    "serve",
    "ui",
    "mcp",
    "mcp install",
    "mcp add",
    "mcp import",
    "mcp restore",
    "mcp get",
    "mcp remove",
    "mcp servers",
    "mcp test",
    "mcp logs",
    "mcp registry search",
    "mcp registry add",
    "preflight",
    "mcp login",
    "mcp logout",
    "keys create",
    "memory forget",
    "models list",
    "models pull",
    "doctor",
    "store status",
    "store migrate",
    "store push-down",
    "store import",
    "store export",
    "eval",
    "eval generate",
    "eval judge",
    "eval diff",
    "tune",
    "improve",
    "enrich",
    "completions",
    "man",
    "catalogs",
    "keys",
    "words add",
];
/// How commands begin that are not the program's.
const FOREIGN: [&str; 7] = [
    "cargo ",
    "docker ",
    "scripts/",
    "python3 ",
    "git ",
    "sha256sum ",
    "--output",
];

#[test]
fn flags_that_are_named_exist() {
    let help: String = VERBS.into_iter().map(help).collect::<String>() + " --version ";
    for page in page::all() {
        if ["CHANGELOG.md", "docs/ATTACKS.md"].contains(&page.name.as_str()) {
            continue;
        }
        for (line, span) in page.code_spans() {
            if FOREIGN.iter().any(|begin| span.starts_with(begin)) {
                continue;
            }
            for flag in span
                .split([' ', '=', '|', '[', ']'])
                .filter(|word| word.starts_with("--"))
            {
                let flag = flag.trim_end_matches(|letter: char| !letter.is_alphanumeric());
                // The value of a flag that needs none follows it in brackets.
                let mut flags = help.split([' ', '\n', '\t', '[', ']']);
                let known = flag.len() <= 2 || flags.any(|word| word == flag);
                assert!(known, "{}:{line}: no verb has {flag}", page.name);
            }
        }
    }
}

fn help(verb: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
    let output = command
        .args(verb.split(' '))
        .arg("--help")
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{verb}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn messages_of_the_troubleshooting_page_are_printed_by_the_program() {
    let mut source = String::new();
    for folder in ["src", "crates", "index/src"] {
        read_sources(&page::root().join(folder), &mut source);
    }
    let page = Page::read("docs/troubleshooting.md");
    let rows = page
        .prose()
        .into_iter()
        .filter(|(_, line)| line.starts_with("| `"));
    for (line, row) in rows {
        let message = row.split('`').nth(1).expect("a message");
        let pieces = message.split("…").flat_map(|piece| piece.split(" N "));
        let pieces = pieces.flat_map(|piece| piece.split("NAME"));
        for piece in
            pieces.map(|piece| piece.trim_matches([' ', ':', ',']).trim_start_matches("N "))
        {
            assert!(
                source.contains(piece),
                "{}:{line}: no source has {piece:?}",
                page.name
            );
        }
    }
}

/// Reads Rust files below a folder, with texts that go over several lines in one.
fn read_sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let mut pieces = text.split("\\\n");
            into.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| into.push_str(piece.trim_start()));
        }
    }
}
