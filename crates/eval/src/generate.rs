//! Queries made of the definitions of tools, without a model. They are easy: their words are those of
//! the definitions.

use serde_json::Value;
use toolscout_index::Tool;

use super::random::Random;

/// Longest query, in characters.
const MAX_CHARS: usize = 200;
/// Fewest characters of a query: a letter or two say nothing.
const MIN_CHARS: usize = 4;

/// Up to `count` different queries for a tool, which the seed chooses.
pub fn queries(tool: &Tool, count: usize, seed: u64) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for query in candidates(tool) {
        let query: String = query.chars().take(MAX_CHARS).collect();
        let query = query.trim().to_owned();
        if query.chars().count() >= MIN_CHARS && !all.contains(&query) {
            all.push(query);
        }
    }
    // A stream for each tool, so that one more tool does not change the queries of the others.
    Random::new(seed, tool.id.as_str()).sample_of(&all, count)
}

fn candidates(tool: &Tool) -> Vec<String> {
    let name = words(tool.id.name());
    let sentence = first_sentence(&tool.description);
    let mut queries = vec![format!("I want to {name}"), sentence.clone()];
    let parameters = parameters(tool);
    if let [first, ..] = parameters.as_slice() {
        queries.push(format!("{name} by {first}"));
    }
    if let [first, second, ..] = parameters.as_slice() {
        queries.push(format!("{name} with {first} and {second}"));
    }
    if let Some(value) = enum_value(tool) {
        queries.push(format!("{name} {value}"));
    }
    if !tool.id.server().is_empty() {
        queries.push(format!("{} in {}", name, words(tool.id.server())));
    }
    queries
}

/// `createIssue_v2` as `create issue v2`.
fn words(name: &str) -> String {
    let mut text = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            text.push(' ');
        }
        text.extend(if c.is_alphanumeric() { c } else { ' ' }.to_lowercase());
        before = c;
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_sentence(description: &str) -> String {
    let line = description.trim().lines().next().unwrap_or_default();
    // A dot without a space after it may be part of a name or of a number.
    let end = line.find(". ").unwrap_or(line.len());
    line[..end].trim_end_matches('.').to_lowercase()
}

fn properties(tool: &Tool) -> impl Iterator<Item = (&String, &Value)> {
    let properties = tool.input_schema.get("properties");
    properties.and_then(Value::as_object).into_iter().flatten()
}

fn parameters(tool: &Tool) -> Vec<String> {
    let mut names = Vec::new();
    for (name, _) in properties(tool) {
        let name = words(name);
        // A name of punctuation alone has no words.
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

/// The first value of an enumeration.
fn enum_value(tool: &Tool) -> Option<String> {
    let mut values = properties(tool).filter_map(|(_, schema)| schema["enum"].as_array()?.first());
    Some(words(values.next()?.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str, schema: Value) -> Tool {
        let mut tool = Tool::new("git-hub", name)
            .unwrap()
            .with_description(description);
        tool.input_schema = schema.as_object().cloned().unwrap_or_default();
        tool
    }

    #[test]
    fn queries_are_of_name_description_parameters_and_values() {
        let schema = json!({"properties": {"repoName": {}, "state": {"enum": ["OPEN", "closed"]}}});
        let tool = tool("listIssues_v2", "Lists the issues. All of them.", schema);
        let all = queries(&tool, 10, 1);
        for expected in [
            "I want to list issues v2",
            "lists the issues",
            "list issues v2 by repo name",
            "list issues v2 with repo name and state",
            "list issues v2 open",
            "list issues v2 in git hub",
        ] {
            assert!(
                all.iter().any(|query| query == expected),
                "{expected}: {all:?}"
            );
        }
        assert_eq!(queries(&tool, 2, 7), queries(&tool, 2, 7));
        assert_eq!(queries(&tool, 2, 7).len(), 2);
    }

    #[test]
    fn tools_without_words_and_odd_schemas_are_no_fault() {
        for (name, description, schema) in [
            ("x", "", json!({})),
            ("_", "…", json!({"properties": 3})),
            (
                "é",
                "日本語の説明。",
                json!({"properties": {"": {"enum": [1]}}}),
            ),
        ] {
            let tool = tool(name, description, schema);
            assert!(
                queries(&tool, 3, 1)
                    .iter()
                    .all(|query| query.len() >= MIN_CHARS)
            );
        }
    }
}
