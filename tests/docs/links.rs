//! Links between pages, and to places in them.

use std::collections::BTreeSet;
use std::path::Path;

use super::page::{self, Page};

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in page::all() {
        for (line, target) in links(&page) {
            if let Some(problem) = problem(&page, target) {
                broken.push(format!("{}:{line}: {target}: {problem}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Targets of the links of a page, with their lines.
fn links(page: &Page) -> Vec<(usize, &str)> {
    let targets = page.prose().into_iter().flat_map(|(number, line)| {
        // What stands between backticks is no link.
        let outside = line.split('`').step_by(2);
        let after = outside.flat_map(|part| part.split("](").skip(1));
        after.filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
    });
    targets.collect()
}

/// Why a link leads nowhere. Other sites are not asked.
fn problem(page: &Page, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let folder = Path::new(&page.name).parent().expect("a folder");
    let file = match path {
        "" => page::root().join(&page.name),
        path => page::root().join(folder).join(path),
    };
    if !file.exists() {
        return Some(format!("no file {}", file.display()));
    }
    let anchor = anchor?;
    let text = std::fs::read_to_string(&file).expect("a page");
    let name = file.display().to_string();
    let anchors = anchors(&Page { name, text });
    (!anchors.contains(anchor)).then(|| format!("no heading for it among {anchors:?}"))
}

/// The anchors of headings as GitHub makes them: lower case, blanks as hyphens, no punctuation.
fn anchors(page: &Page) -> BTreeSet<String> {
    let headings = page.prose().into_iter().filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' '))?
    });
    let anchor = |heading: &str| {
        let lower = heading.trim().to_lowercase();
        let kept = lower.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            letter => letter.is_alphanumeric().then_some(letter),
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}
