//! The rows of every module as one page, `docs/ATTACKS.md`. Each part is compared by the test that
//! holds its rows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

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
    &super::enrichment::SECTION,
    #[cfg(unix)]
    &super::files::SECTION,
    &super::memory::SECTION,
    &super::http::overload::SECTION,
    &super::bounds::SECTION,
];

/// The tests that hold a table of their own, in order.
const TABLES: &[&str] = &[
    "Against the gate",
    "Against files",
    "Against web pages",
    "Against programs",
    "Against the sandbox",
];

const PAGE: &str = "docs/ATTACKS.md";

const HEAD: &str = "# Attacks\n\nWhat was tried against toolscout, and what happens. Each row names the test that tries it \
                    again with every change; `tests/attacks` holds the table.\n";

/// Attacks that one test tries one after the other; every wrong outcome is named at the end.
pub struct Table {
    title: &'static str,
    test: &'static str,
    rows: Vec<(String, String)>,
    wrong: Vec<String>,
}

impl Table {
    /// A table that is a part of the page.
    pub fn new(title: &'static str, test: &'static str) -> Self {
        assert!(
            TABLES.contains(&title),
            "{title:?} is not among the page's tables"
        );
        Table {
            title,
            test,
            rows: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// A row that has to be refused, for this reason.
    pub fn refused(&mut self, name: &str, outcome: Result<Value, String>, reason: &str) {
        let happens = if reason.is_empty() {
            "refused".to_owned()
        } else {
            format!("refused: \"{reason}\"")
        };
        self.rows.push((name.to_owned(), happens));
        match outcome {
            Err(message) if message.contains(reason) => {}
            Err(message) => self
                .wrong
                .push(format!("{name}: refused with {message:?}, not {reason:?}")),
            Ok(data) => self.wrong.push(format!("{name}: not refused, gave {data}")),
        }
    }

    /// A row that has to give this.
    pub fn is(&mut self, name: &str, outcome: Result<Value, String>, expected: impl Into<Value>) {
        let expected = expected.into();
        self.rows
            .push((name.to_owned(), format!("gives `{expected}`")));
        if outcome.as_ref() != Ok(&expected) {
            self.wrong
                .push(format!("{name}: {outcome:?} is not {expected}"));
        }
    }

    /// Names every wrong row, and compares the page with the rows.
    pub fn check(self, rows: usize) {
        assert!(
            self.wrong.is_empty(),
            "{} of {} rows:\n{}",
            self.wrong.len(),
            self.rows.len(),
            self.wrong.join("\n")
        );
        assert_eq!(self.rows.len(), rows);
        let lines = self
            .rows
            .iter()
            .map(|(name, happens)| (name.as_str(), happens.as_str(), self.test));
        compare(self.title, &part(self.title, lines));
    }
}

#[test]
fn the_page_shows_every_row() {
    for section in SECTIONS {
        let lines = section
            .attacks
            .iter()
            .map(|attack| (attack.tried, attack.happens, attack.test));
        compare(section.title, &part(section.title, lines));
    }
    let page = read_page();
    let titles: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let expected: BTreeSet<&str> = SECTIONS
        .iter()
        .map(|section| section.title)
        .chain(TABLES.iter().copied())
        .collect();
    assert!(
        page.starts_with(HEAD) && titles == expected,
        "{PAGE} has other parts: {titles:?}, not {expected:?}"
    );
}

#[test]
fn every_row_names_a_test_that_is_there() {
    let mut sources = String::new();
    for folder in ["tests", "src", "crates", "index/src", "index/tests"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let functions: BTreeSet<&str> = sources
        .split("fn ")
        .skip(1)
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .collect();
    for attack in SECTIONS.iter().flat_map(|section| section.attacks) {
        assert!(
            functions.contains(attack.test),
            "{:?} names the test {:?}, which is not there",
            attack.tried,
            attack.test
        );
    }
}

/// Compares a part of the page with what its rows say; with `TOOLSCOUT_WRITE_DOCS` it is written
/// first.
fn compare(title: &str, part: &str) {
    let page = read_page();
    let (begin, end) = place_of(&page, title);
    if std::env::var_os("TOOLSCOUT_WRITE_DOCS").is_some() {
        fs::write(
            root().join(PAGE),
            [&page[..begin], part, &page[end..]].concat(),
        )
        .expect("the page is written");
        return;
    }
    let how = "TOOLSCOUT_WRITE_DOCS=1 cargo test --test attacks -- --test-threads 1";
    assert!(
        &page[begin..end] == part,
        "{title:?} in {PAGE} is not what the rows say; {how}"
    );
}

/// Where a part of the page begins and ends; the page's end for one that is not there.
fn place_of(page: &str, title: &str) -> (usize, usize) {
    let heading = format!("\n## {title}\n");
    let Some(begin) = page.find(&heading) else {
        return (page.len(), page.len());
    };
    let after = begin + heading.len();
    (
        begin,
        page[after..]
            .find("\n## ")
            .map_or(page.len(), |next| after + next),
    )
}

fn part<'a>(title: &str, rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    let mut part = format!("\n## {title}\n\n| tried | happens | test |\n|---|---|---|\n");
    for (tried, happens, test) in rows {
        let _ = writeln!(part, "| {} | {} | `{test}` |", cell(tried), cell(happens));
    }
    part
}

fn read_page() -> String {
    fs::read_to_string(root().join(PAGE)).unwrap_or_else(|_| HEAD.to_owned())
}

fn cell(text: &str) -> String {
    text.replace("|", "\\|").replace("\n", "\\n")
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
