//! The rows of every module as one page, `docs/ATTACKS.md`. `TOOLSCOUT_WRITE_DOCS=1 cargo test --test attacks` writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One attack. What cannot be said in a line of a table belongs into the test.
pub struct Attack {
    /// What was tried, in plain words.
    pub tried: &'static str,
    /// What happens.
    pub happens: &'static str,
    /// The function that tries it, wherever it stands.
    pub test: &'static str,
}

/// A part of the page.
pub struct Section {
    pub title: &'static str,
    pub attacks: &'static [Attack],
}

/// The page's parts, in order.
const SECTIONS: &[&Section] = &[
    &super::http::pages::SECTION,
    &super::http::owners::SECTION,
    &super::gateway::SECTION,
    #[cfg(unix)]
    &super::terminal::SECTION,
    &super::shell::SECTION,
    &super::data::SECTION,
    #[cfg(unix)]
    &super::files::SECTION,
    &super::memory::SECTION,
    &super::http::overload::SECTION,
    &super::bounds::SECTION,
];

const PAGE: &str = "docs/ATTACKS.md";

const HEAD: &str = "# Attacks\n\nWhat was tried against toolscout, and what happens. Each row names the test that tries it \
                    again with every change; `tests/attacks` holds the table.\n";

#[test]
fn the_page_shows_every_row() {
    let path = root().join(PAGE);
    let page = page();
    if std::env::var_os("TOOLSCOUT_WRITE_DOCS").is_some() {
        fs::write(&path, &page).expect("the page is written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{PAGE} is not what the rows say; TOOLSCOUT_WRITE_DOCS=1 cargo test --test attacks");
}

#[test]
fn every_row_names_a_test_that_is_there() {
    let mut sources = String::new();
    for folder in ["tests", "src", "index/src", "index/tests"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let functions: BTreeSet<&str> =
        sources.split("fn ").skip(1).filter_map(|rest| rest.split_once('(').map(|(name, _)| name)).collect();
    for attack in SECTIONS.iter().flat_map(|section| section.attacks) {
        assert!(
            functions.contains(attack.test),
            "{:?} names the test {:?}, which is not there",
            attack.tried,
            attack.test
        );
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        let _ = write!(page, "\n## {}\n\n| tried | happens | test |\n|---|---|---|\n", section.title);
        for Attack { tried, happens, test } in section.attacks {
            let _ = writeln!(page, "| {} | {} | `{test}` |", cell(tried), cell(happens));
        }
    }
    page
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn read_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).expect("UTF-8"));
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
