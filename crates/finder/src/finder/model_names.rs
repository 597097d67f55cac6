//! The names of tools as a model sees them, qualified by their server, and the search for similar
//! names.

use std::collections::BTreeSet;

use toolscout_index::formats::{self, model_name};
use toolscout_index::{Tool, ToolId};

use toolscout_base::printable;
use toolscout_gate::llm::ToolSpec;

/// The name of the search tool.
pub const TOOL_SEARCH: &str = "tool_search";
/// The name of the tool that calls others, in dispatch style.
pub const CALL_TOOL: &str = "call_tool";
/// Lowest similarity of a suggested name.
const MIN_SIMILARITY: f64 = 0.2;

/// The definition of a tool for a model. The description starts with the server in brackets, since
/// providers have no field for a description's origin.
pub fn spec(tool: &Tool) -> ToolSpec {
    let description = match tool.id.server() {
        "" => tool.shown_description().to_owned(),
        server => format!("[{}] {}", printable::name(server), tool.shown_description()),
    };
    ToolSpec {
        name: model_name(&tool.id),
        description,
        parameters: tool.shown_input_schema(),
    }
}

/// True when a name written by a model means this tool: its id, its bare name, or its name as the
/// model sees it.
pub fn denotes(name: &str, id: &ToolId) -> bool {
    formats::is_called(id, name)
}

/// The most similar names, best first. Names that share little are left out.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = bigrams(name);
    let mut scored: Vec<(f64, &str)> = Vec::new();
    for candidate in names {
        let score = similarity(&wanted, &bigrams(candidate));
        if score > MIN_SIMILARITY {
            scored.push((score, candidate));
        }
    }
    // By name where scores are equal, so that the answer does not depend on the catalog's order.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.truncate(most);
    scored.into_iter().map(|(_, name)| name).collect()
}

fn bigrams(name: &str) -> BTreeSet<(char, char)> {
    // Without the separators, in which the forms of a name differ.
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    let letters: Vec<char> = letters.flat_map(char::to_lowercase).collect();
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
    fn a_misspelled_name_finds_similar_names() {
        let names = ["weather__get_forecast", "mail__send", "files__read"];
        assert_eq!(
            nearest("get_forcast", names.into_iter(), 2),
            ["weather__get_forecast"]
        );
        assert!(nearest("qqq", names.into_iter(), 2).is_empty());
    }
}
