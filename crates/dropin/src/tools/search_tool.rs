//! The search tool as a model sees it in place of the tools that are not shown, and its answers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use toolscout_finder::finder::meta_tools::{self, ABOUT_ANSWER};
use toolscout_finder::finder::model_names::TOOL_SEARCH;
use toolscout_finder::finder::search::NoMatch;
use toolscout_gate::llm::ToolSpec;

/// Other names, where the client has a tool of the usual one.
const OTHER_NAMES: [&str; 3] = [
    "search_for_tools",
    "toolscout_search",
    "toolscout_find_tools",
];
/// Most characters of the description that name groups and tools: about 300 tokens.
const MAX_NAMES_CHARS: usize = 1200;
/// Similar names in an answer without a match.
const MAX_NEAREST: usize = 5;

/// A name for the search tool that cannot be taken for a part of another tool's name: names may
/// come in fragments.
pub fn name<'n>(names: impl Iterator<Item = &'n str> + Clone) -> String {
    for candidate in [TOOL_SEARCH].into_iter().chain(OTHER_NAMES) {
        if is_free(candidate, names.clone()) {
            return candidate.to_owned();
        }
    }
    let mut number = 1;
    loop {
        let candidate = format!("find_tools_{number}_of_toolscout");
        if is_free(&candidate, names.clone()) {
            return candidate;
        }
        number += 1;
    }
}

fn is_free<'n>(candidate: &str, mut names: impl Iterator<Item = &'n str>) -> bool {
    names.all(|name| !name.starts_with(candidate) && !candidate.starts_with(name))
}

/// The definition: it says how many tools there are to find, and the names of their groups.
pub fn spec(name: &str, deferred: &[&str]) -> ToolSpec {
    let description = format!(
        "Finds tools by what they do and loads them so that you can call them. {} tools are not \
        shown{} Use it whenever no visible tool fits; never guess tool names. {ABOUT_ANSWER}",
        deferred.len(),
        names_to_search(deferred),
    );
    let mut spec = meta_tools::search_spec();
    if let Some(Value::Object(properties)) = spec.parameters.get_mut("properties") {
        // The tools of a request belong to no servers.
        properties.shift_remove("server");
    }
    ToolSpec {
        name: name.to_owned(),
        description,
        ..spec
    }
}

/// Groups of tools, largest first, then the tools that are in none, as far as there is room.
fn names_to_search(deferred: &[&str]) -> String {
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for name in deferred {
        *groups.entry(group_of(name)).or_default() += 1;
    }
    // One tool is no group.
    groups.retain(|group, tools| !group.is_empty() && *tools > 1);
    let mut named: Vec<(&&str, &usize)> = groups.iter().collect();
    named.sort_by_key(|(name, tools)| (Reverse(**tools), **name));
    let groups_text = listed(
        named
            .iter()
            .map(|(name, tools)| format!("{name}* ({tools})")),
    );
    let single = deferred.iter().copied();
    let single = single.filter(|name| !groups.contains_key(group_of(name)));
    let single_text = listed(single.map(str::to_owned));
    match (groups_text.is_empty(), single_text.is_empty()) {
        (true, true) => ".".to_owned(),
        (false, true) => format!(", by the beginning of their names: {groups_text}."),
        (true, false) => format!(": {single_text}."),
        (false, false) => {
            format!(", by the beginning of their names: {groups_text}; and {single_text}.")
        }
    }
}

/// Names with commas between them, within half of the room for names.
fn listed(names: impl Iterator<Item = String>) -> String {
    let (mut text, mut left_out) = (String::new(), 0);
    for name in names {
        // A shorter name may still fit after one that does not.
        if text.len() + name.len() > MAX_NAMES_CHARS / 2 {
            left_out += 1;
            continue;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&name);
    }
    if left_out > 0 && !text.is_empty() {
        text.push_str(&format!(" and {left_out} more"));
    }
    text
}

/// What a name begins with that tells its server or group, with the separator; empty where there
/// is nothing like it.
fn group_of(name: &str) -> &str {
    // A namespace.
    if let Some(end) = name.find('.')
        && end > 0
    {
        return &name[..=end];
    }
    if let Some(end) = name.rfind("__")
        && end > 0
    {
        return &name[..end + 2];
    }
    match name.find(['_', '-', '.', '/', ':']) {
        Some(end) if end > 0 => &name[..=end],
        _ => "",
    }
}

/// What became of the hits of a search.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// How well the hits serve the queries, and the words that nothing matched.
    pub verdict: Map<String, Value>,
    /// Tools that the model can call from now on, as they are described to it.
    pub loaded: Vec<Value>,
    /// Tools that it could call before.
    pub already: Vec<String>,
    /// Tools that do not fit.
    pub refused: Vec<String>,
    /// Tools that were taken away for the new ones.
    pub evicted: Vec<String>,
    /// A line for each tool that came next.
    pub more: Vec<String>,
    /// Why something was not found, with similar names.
    pub no_match: Option<(String, Vec<String>)>,
}

impl Answer {
    /// The text for the model.
    pub fn to_text(&self) -> String {
        let mut answer = Map::new();
        // An empty list would cost tokens and say nothing.
        for (name, values) in [
            ("loaded", self.loaded.clone()),
            ("already_visible", texts(&self.already)),
            ("no_room_for", texts(&self.refused)),
            ("unloaded", texts(&self.evicted)),
            ("more", texts(&self.more)),
        ] {
            if !values.is_empty() {
                answer.insert(name.to_owned(), values.into());
            }
        }
        if !self.evicted.is_empty() {
            let note = "Unloaded tools come back with a search for `select:NAME`.";
            answer.insert("note".into(), note.into());
        }
        let nothing = ("nothing was found; try other words".to_owned(), Vec::new());
        let no_match = match &self.no_match {
            None if answer.is_empty() => Some(&nothing),
            no_match => no_match.as_ref(),
        };
        if let Some((reason, nearest)) = no_match {
            answer.insert(
                "no_match".into(),
                json!({ "reason": reason, "nearest_names": nearest }),
            );
        }
        let mut whole = self.verdict.clone();
        whole.extend(answer);
        Value::Object(whole).to_string()
    }

    /// Adds why something was not found.
    pub fn missing(&mut self, no_match: NoMatch, name_of: impl Fn(&str) -> String) {
        let nearest = no_match.nearest.iter().take(MAX_NEAREST);
        let nearest = nearest.map(|id| name_of(id.name())).collect();
        self.no_match = Some((no_match.reason, nearest));
    }
}

/// The answer to a search that could not be read or done.
pub fn problem(reason: &str) -> String {
    json!({ "error": reason }).to_string()
}

fn texts(names: &[String]) -> Vec<Value> {
    names.iter().map(|name| name.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_groups_and_what_is_in_none() {
        let names = [
            "github_create_issue",
            "github_close_issue",
            "mcp__mail__send",
            "mcp__mail__read",
            "mcp__mail__list",
            "weather",
        ];
        let text = spec("tool_search", &names).description;
        assert!(text.contains("6 tools are not shown"), "{text}");
        assert!(
            text.contains("mcp__mail__* (3), github_* (2); and weather."),
            "{text}"
        );
        let many: Vec<String> = (0..5000).map(|number| format!("tool{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = spec("tool_search", &many).description;
        assert!(text.len() < 1000 && text.contains(" more"), "{text}");
    }

    #[test]
    fn the_name_is_never_part_of_a_name_of_the_client() {
        let name_for = |names: &[&'static str]| name(names.iter().copied());
        assert_eq!(name_for(&["a"]), "tool_search");
        assert_eq!(name_for(&["tool_search"]), "search_for_tools");
        assert_eq!(name_for(&["tool_search_web"]), "search_for_tools");
        assert_eq!(name_for(&["tool", "search"]), "find_tools_1_of_toolscout");
    }

    #[test]
    fn an_empty_answer_says_so() {
        assert!(Answer::default().to_text().contains("nothing was found"));
        let verdict = Map::from_iter([("match".to_owned(), "possible".into())]);
        let text = Answer {
            verdict,
            ..Answer::default()
        };
        let text = text.to_text();
        assert!(
            text.starts_with("{\"match\"") && text.contains("nothing was found"),
            "{text}"
        );
    }
}
