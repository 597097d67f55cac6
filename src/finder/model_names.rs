//! The names of tools as a model sees them, qualified by their server, and the search for similar
//! names.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use toolscout_index::{Tool, ToolId};

use crate::llm::ToolSpec;
use crate::printable;

/// The name of the search tool.
pub const TOOL_SEARCH: &str = "tool_search";
/// The name of the tool that calls others, in dispatch style.
pub const CALL_TOOL: &str = "call_tool";
/// Separates server and name, since providers do not accept `/`.
const SEPARATOR: &str = "__";
/// Longest name that providers accept.
const MAX_NAME_CHARS: usize = 64;
/// Hexadecimal digits of the hash that distinguishes changed names.
const HASH_DIGITS: usize = 8;
/// Lowest similarity of a suggested name.
const MIN_SIMILARITY: f64 = 0.2;

/// The definition of a tool for a model. The description starts with the server in brackets, since
/// providers have no field for a description's origin.
pub fn spec(tool: &Tool) -> ToolSpec {
    let description = match tool.id.server() {
        "" => tool.description.clone(),
        server => format!("[{}] {}", printable::name(server), tool.description),
    };
    ToolSpec {
        name: shown(&tool.id),
        description,
        parameters: tool.input_schema.clone(),
    }
}

/// The name of a tool as a model sees it: `server__name`, matching `^[a-zA-Z0-9_-]{1,64}$`.
///
/// It depends only on the id, so that a tool has the same name in every round. If the name loses
/// part of the id or is ambiguous, a hash of the id is appended, so that names are unique.
pub fn shown(id: &ToolId) -> String {
    let name = match id.server() {
        "" => id.name().to_owned(),
        server => format!("{server}{SEPARATOR}{}", id.name()),
    };
    // `a/b__c` and `a__b/c` would have the same name.
    let is_ambiguous = id.server().contains(SEPARATOR) || id.name().contains(SEPARATOR);
    let is_reserved = name == TOOL_SEARCH || name == CALL_TOOL;
    if !is_ambiguous && !is_reserved && name.len() <= MAX_NAME_CHARS && name.chars().all(is_allowed)
    {
        return name;
    }
    let hash = hex::encode(Sha256::digest(id.as_str()));
    let prefix: String = name
        .chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .take(MAX_NAME_CHARS - HASH_DIGITS - 1)
        .collect();
    format!("{prefix}_{}", &hash[..HASH_DIGITS])
}

/// True when a name written by a model means this tool: its id, its bare name, or its name as the
/// model sees it.
pub fn denotes(name: &str, id: &ToolId) -> bool {
    name == id.as_str() || name == id.name() || name == shown(id)
}

/// The most similar names, best first. Names below [`MIN_SIMILARITY`] are left out.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = bigrams(name);
    let mut scored: Vec<(f64, &str)> = names
        .map(|candidate| (similarity(&wanted, &bigrams(candidate)), candidate))
        .collect();
    scored.retain(|(score, _)| *score > MIN_SIMILARITY);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored
        .into_iter()
        .take(most)
        .map(|(_, name)| name)
        .collect()
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn bigrams(name: &str) -> BTreeSet<(char, char)> {
    let letters: Vec<char> = name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    letters.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Dice's coefficient over pairs of letters.
fn similarity(a: &BTreeSet<(char, char)>, b: &BTreeSet<(char, char)>) -> f64 {
    let shared = a.intersection(b).count();
    2.0 * shared as f64 / (a.len() + b.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_stable_and_unique() {
        let long = "x".repeat(200);
        let ids = [
            "github/create_issue",
            "create_issue",
            "a/b__c",
            "a__b/c",
            "时间/查询",
            "时间/查看",
            "tool_search",
            &long,
        ];
        let names: Vec<String> = ids
            .iter()
            .map(|id| shown(&ToolId::parse(id).unwrap()))
            .collect();
        assert_eq!(names[..2], ["github__create_issue", "create_issue"]);
        assert_eq!(
            names.iter().collect::<BTreeSet<_>>().len(),
            names.len(),
            "{names:?}"
        );
        for name in &names {
            assert!(
                (1..=64).contains(&name.len()) && name.chars().all(is_allowed),
                "{name}"
            );
            assert_ne!(name, TOOL_SEARCH);
        }
    }

    #[test]
    fn a_misspelled_name_finds_similar_names() {
        let names = ["weather__get_forecast", "mail__send", "files__read"];
        assert_eq!(
            nearest("get_forcast", names.into_iter(), 2),
            ["weather__get_forecast"]
        );
        assert!(nearest("qqq", names.into_iter(), 2).is_empty());
    }
}
