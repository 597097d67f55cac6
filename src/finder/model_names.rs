//! Tool ids as models may write them, and names that are nearly right.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use toolscout_index::{Tool, ToolId};

use crate::llm::ToolSpec;
use crate::printable;

/// The name of the search tool.
pub const TOOL_SEARCH: &str = "tool_search";
/// The name of the tool that calls others, in dispatch style.
pub const CALL_TOOL: &str = "call_tool";
/// Longest name that providers accept.
const MAX_NAME_CHARS: usize = 64;
/// Hex digits of the hash that keeps changed names apart.
const HASH_DIGITS: usize = 8;

/// A tool as a model is shown it. The server that wrote the description stands before it in
/// brackets, since providers have no other place to say where it comes from.
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

/// The name under which a model sees a tool: `server__name`, matching `^[a-zA-Z0-9_-]{1,64}$`.
///
/// A pure function of the id, so that a tool has the same name in every round. Where writing it
/// this way loses something, a hash of the id is added, so that two tools never share a name.
pub fn shown(id: &ToolId) -> String {
    let plain = match id.server() {
        "" => id.name().to_owned(),
        server => format!("{server}__{}", id.name()),
    };
    let ambiguous = id.server().contains("__") || id.name().contains("__");
    let reserved = plain == TOOL_SEARCH || plain == CALL_TOOL;
    if !ambiguous && !reserved && plain.len() <= MAX_NAME_CHARS && plain.chars().all(is_allowed) {
        return plain;
    }
    let hash: String = Sha256::digest(id.as_str())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let kept = plain.chars().map(|c| if is_allowed(c) { c } else { '_' });
    let kept: String = kept.take(MAX_NAME_CHARS - HASH_DIGITS - 1).collect();
    format!("{kept}_{}", &hash[..HASH_DIGITS])
}

/// True when someone who writes this name means this tool.
pub fn denotes(name: &str, id: &ToolId) -> bool {
    name == id.as_str() || name == id.name() || name == shown(id)
}

/// The names that are most like this one, best first; those that share nothing with it are left
/// out.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = bigrams(name);
    let mut scored: Vec<(f64, &str)> = names
        .map(|candidate| (likeness(&wanted, &bigrams(candidate)), candidate))
        .collect();
    scored.retain(|(score, _)| *score > 0.2);
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

/// Dice's coefficient over letter pairs.
fn likeness(a: &BTreeSet<(char, char)>, b: &BTreeSet<(char, char)>) -> f64 {
    let shared = a.intersection(b).count();
    2.0 * shared as f64 / (a.len() + b.len()).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_stable_and_never_shared() {
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
    fn misspelt_names_find_their_neighbours() {
        let names = ["weather__get_forecast", "mail__send", "files__read"];
        assert_eq!(
            nearest("get_forcast", names.into_iter(), 2),
            ["weather__get_forecast"]
        );
        assert!(nearest("qqq", names.into_iter(), 2).is_empty());
    }
}
