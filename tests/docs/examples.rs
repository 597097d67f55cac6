//! Examples that are no commands: the program reads them, or they are part of a file that is run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use serde_json::Value;
use toolscout::agent::profile::AgentProfile;
use toolscout::config::{Layer, Settings};
use toolscout::llm::script::Script;
use toolscout::mcp::config;

use super::page::{self, Block, Page};

/// The pages whose Rust code is a doctest of the program: see `src/lib.rs`.
const DOCTESTS: [&str; 2] = ["README.md", "docs/agent.md"];
/// The languages of blocks; `sh` is run, `rust` a doctest, `text` a drawing.
const LANGUAGES: [&str; 8] = ["sh", "rust", "text", "json", "toml", "java", "python", "ts"];

#[test]
fn every_block_has_a_language_that_is_checked() {
    for page in page::all() {
        for block in page.blocks() {
            let known = LANGUAGES.contains(&block.language.as_str());
            assert!(known, "{}:{}: {:?}", page.name, block.line, block.language);
            let tested = block.language != "rust" || DOCTESTS.contains(&page.name.as_str());
            assert!(tested, "{}:{} is no doctest", page.name, block.line);
        }
    }
}

#[test]
fn json_is_what_it_is_shown_as() {
    each("json", |page, block| {
        let values: Vec<Value> = serde_json::Deserializer::from_str(&block.text)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{}:{}: {error}", page.name, block.line));
        let first = &values[0];
        if first.get("reply").is_some() {
            Script::parse(&page.name, &block.text).expect("a script");
        }
        if first.get("mcpServers").is_some() {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("servers.json");
            fs::write(&file, &block.text).expect("a file");
            let servers = config::load(&file, &|_| Some(OsString::from("x"))).expect("servers");
            assert!(!servers.is_empty());
        }
    });
}

#[test]
fn toml_is_what_it_is_shown_as() {
    each("toml", |page, block| match page.name.as_str() {
        "docs/external-engines.md" | "docs/mcp.md" | "docs/settings.md" | "docs/usage.md" => {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("config.toml");
            fs::write(&file, &block.text).expect("a file");
            Settings::resolve(Layer::default(), Some(&file), &|_| None).expect("settings");
        }
        "README.md" => {
            let manifest: toml::Table = block.text.parse().expect("TOML");
            let engine = &manifest["dependencies"]["toolscout-index"]["path"];
            // The path is seen from beside the repository.
            let path = engine.as_str().and_then(|path| path.split_once('/'));
            let folder = page::root().join(path.expect("a path").1);
            assert!(folder.join("Cargo.toml").exists(), "{engine}");
        }
        _ => drop(AgentProfile::parse(&page.name, &block.text).expect("a profile")),
    });
}

#[test]
fn code_is_a_part_of_the_clients() {
    for (language, extension) in [("python", "py"), ("ts", "ts"), ("java", "java")] {
        let clients = clients(extension);
        each(language, |page, block| {
            let part = clients.values().any(|text| text.contains(&block.text));
            assert!(part, "{}:{} is in no client", page.name, block.line);
        });
    }
}

#[test]
fn every_drop_in_example_is_on_its_page() {
    let page = Page::read("docs/drop-in.md");
    for (name, text) in ["py", "ts", "java"].into_iter().flat_map(clients) {
        let shared = name.contains("/company.");
        if shared || !name.starts_with("clients/drop-in/") {
            continue;
        }
        assert!(page.text.contains(&format!("(../{name})")), "{name}");
        let mut blocks = page.blocks().into_iter();
        let shown = blocks.any(|block| text.contains(&block.text));
        assert!(shown, "the page shows nothing of {name}");
    }
}

/// The texts of the clients with this extension, by path from the root.
fn clients(extension: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let folders = [
        "clients/python",
        "clients/python/examples",
        "clients/typescript/examples",
        "clients/typescript/fetch",
        "clients/drop-in/java/src/main/java",
        "clients/drop-in/python",
        "clients/drop-in/typescript",
    ];
    for folder in folders {
        for entry in fs::read_dir(page::root().join(folder)).expect("a folder of clients") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|found| found == extension) {
                let file = path.file_name().expect("a name").to_string_lossy();
                let text = fs::read_to_string(&path).expect("a client");
                texts.insert(format!("{folder}/{file}"), text);
            }
        }
    }
    assert!(!texts.is_empty(), "no client ends in .{extension}");
    texts
}

fn each(language: &str, check: impl Fn(&Page, &Block)) {
    for page in page::all() {
        for block in page.blocks_of(language) {
            check(&page, &block);
        }
    }
}
