//! What is read of a tool to say what it needs and what it gives.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::needs::{self, Need, Subject};
use super::words::{Verb, is_adding, is_empty, is_making, nouns, singular, verb, words};
use crate::tool::Tool;

/// Bytes of a description that are read for its first words.
const MAX_DESCRIPTION: usize = 160;
/// Nouns of the thing that a description says it lists.
const MAX_DESCRIBED: usize = 3;
/// Names of fields that are read of an output schema, and how deep they lie.
const MAX_FIELDS: usize = 256;
const MAX_DEPTH: usize = 6;
/// Parts of a name with dots from which on it is the path of a method.
const MIN_SEGMENTS: usize = 3;
/// Words after which a name says how something is found, and no longer what.
const HOW: &[&str] = &["by", "with", "for", "from", "in", "of", "to", "using"];

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It gives some of many things.
    Lists,
    /// It gives several things, by the plural of its name.
    GetsSeveral,
    /// It gives what is known of one thing.
    GetsOne,
    /// Its name is a plural and has no verb: `users`.
    PluralOnly,
    /// Nothing says what it does.
    Unknown,
    /// It changes something.
    Writes,
}

/// A tool as a companion is looked for.
#[derive(Debug)]
pub struct Interface {
    /// What it does.
    pub kind: Kind,
    /// True where it makes or adds something.
    pub adds: bool,
    /// The nouns of its name, or of the path that its name is.
    pub nouns: Vec<String>,
    /// What the first words of its description say it gives.
    pub described: Vec<String>,
    /// The parts of a name that is the path of a method.
    pub segments: Option<Vec<String>>,
    /// The path that it reads, for an operation of an HTTP API.
    pub reads_path: Option<String>,
    /// Its parameters.
    pub parameters: HashSet<String>,
    /// Those that it requires.
    pub required: Vec<String>,
    /// Those that identify something.
    pub needs: Vec<Need>,
    /// Names of the fields of its result, if it has an output schema.
    pub fields: HashSet<String>,
}

impl Interface {
    /// What this tool needs and gives.
    pub fn new(tool: &Tool) -> Self {
        let name = tool.id.name();
        let description =
            &tool.description[..tool.description.floor_char_boundary(MAX_DESCRIPTION)];
        let name_words = words(name);
        let segments = segments(name);
        let (does, verb_word) = does(&name_words, segments.as_deref(), description);
        let named = named_words(&name_words, verb_word.as_deref());
        let is_plural = named.last().is_some_and(|word| singular(word) != *word);
        let of_server = nouns(&words(tool.id.server()));
        let nouns = match &segments {
            Some(segments) => path_nouns(segments),
            None => nouns(&named),
        };
        let makes = name_words.iter().map(String::as_str).any(is_making);
        let empty = Map::new();
        let schema = tool.input_schema.get("properties");
        let properties = schema.and_then(Value::as_object).unwrap_or(&empty);
        let required = required(&tool.input_schema, properties);
        let (method, path) = request(tool);
        let subject = Subject {
            nouns: &nouns,
            object: nouns.last().filter(|noun| !of_server.contains(noun)),
            segments: segments.as_deref(),
            makes,
            path,
        };
        let mut fields = HashSet::new();
        if let Some(output) = &tool.output_schema {
            read_fields(output, MAX_DEPTH, &mut fields);
        }
        Interface {
            kind: kind(does, is_plural, tool),
            adds: makes || name_words.iter().map(String::as_str).any(is_adding),
            described: described(description, tool.id.server()),
            reads_path: match method {
                Some("GET") => path.map(str::to_owned),
                _ => None,
            },
            parameters: properties.keys().cloned().collect(),
            needs: needs::of_schema(properties, &required, &subject),
            required,
            nouns,
            segments,
            fields,
        }
    }
}

/// Method and path of the request that a tool makes, as documents of OpenAPI have them.
fn request(tool: &Tool) -> (Option<&str>, Option<&str>) {
    let Some(call) = tool.metadata.get("openapi") else {
        return (None, None);
    };
    let method = call.get("method").and_then(Value::as_str);
    (method, call.get("path").and_then(Value::as_str))
}

fn kind(does: Option<Verb>, is_plural: bool, tool: &Tool) -> Kind {
    let hints = &tool.annotations;
    match does {
        _ if hints.read_only_hint != Some(true) && hints.destructive_hint == Some(true) => {
            Kind::Writes
        }
        Some(Verb::Write) => Kind::Writes,
        Some(Verb::List) => Kind::Lists,
        Some(Verb::Get) if is_plural => Kind::GetsSeveral,
        Some(Verb::Get) => Kind::GetsOne,
        None if is_plural => Kind::PluralOnly,
        None => Kind::Unknown,
    }
}

/// `drive.files.list` as its parts; `None` for a name that is no path.
fn segments(name: &str) -> Option<Vec<String>> {
    let segments: Vec<String> = name.split('.').map(str::to_owned).collect();
    (segments.len() >= MIN_SEGMENTS).then_some(segments)
}

fn path_nouns(segments: &[String]) -> Vec<String> {
    let path = &segments[..segments.len().saturating_sub(1)];
    let mut nouns = Vec::new();
    for segment in path {
        for word in words(segment) {
            nouns.push(singular(&word));
        }
    }
    nouns
}

/// The class of the verb that says what a tool does, and the verb.
fn does(
    name: &[String],
    segments: Option<&[String]>,
    description: &str,
) -> (Option<Verb>, Option<String>) {
    let method = match segments.and_then(<[String]>::last) {
        Some(method) if method.starts_with("batch") => return (Some(Verb::Write), None),
        Some(method) => words(method),
        None => Vec::new(),
    };
    let first_words: Vec<String> = words(description).into_iter().take(8).collect();
    // The names of some APIs begin with the method of HTTP: `post-search`.
    let http_method = match name {
        [method, next, ..] if method == "post" && is_lister(next) => 1,
        _ => 0,
    };
    for word in method.iter().chain(&name[http_method..]) {
        let Some(does) = verb(word) else {
            continue;
        };
        let does = match does {
            Verb::Get if says_list(&first_words) => Verb::List,
            does => does,
        };
        return (Some(does), Some(word.clone()));
    }
    for word in first_words.iter().take(4) {
        // A third person has an `s`: `Deletes`.
        if let Some(does) = verb(word).or(verb(&singular(word))) {
            return (Some(does), None);
        }
    }
    (None, None)
}

fn is_lister(word: &str) -> bool {
    verb(word) == Some(Verb::List)
}

/// True for the first words of a description that say that a tool gives many things.
fn says_list(first_words: &[String]) -> bool {
    for (place, word) in first_words.iter().enumerate() {
        let says_so = place < 3 && is_lister(word)
            || place < 6 && word == "list"
            || place < 4 && word == "all";
        if says_so {
            return true;
        }
    }
    false
}

/// The words of a name without its verb and without what says how something is found.
fn named_words(name: &[String], verb_word: Option<&str>) -> Vec<String> {
    let mut named: Vec<String> = Vec::new();
    for word in name {
        // In `find_by_name` nothing has been named before `by`.
        if HOW.contains(&word.as_str()) && named.iter().any(|word| may_name(word)) {
            break;
        }
        named.push(word.clone());
    }
    named.retain(|word| !is_empty(word) && Some(word.as_str()) != verb_word);
    named
}

/// False for verbs that only read.
fn may_name(word: &str) -> bool {
    matches!(verb(word), None | Some(Verb::Write))
}

fn required(schema: &Map<String, Value>, properties: &Map<String, Value>) -> Vec<String> {
    let required = schema.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names
        .filter(|name| properties.contains_key(*name))
        .map(str::to_owned)
        .collect()
}

/// What the first words of a description say that its tool gives: `group` for "Returns a list of all
/// groups. Needs ...".
fn described(description: &str, server: &str) -> Vec<String> {
    let mut tokens = description.split_whitespace();
    if !tokens.next().is_some_and(begins_with_reading) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for token in tokens {
        let before = found.len();
        for word in words(token) {
            let is_filler =
                is_empty(&word) || matches!(word.as_str(), "list" | "information" | "about");
            if is_filler && found.is_empty() {
                continue;
            }
            if is_filler || matches!(word.as_str(), "that" | "you" | "has" | "was" | "associated") {
                return without_server(found, server);
            }
            found.push(singular(&word));
        }
        let ends = token.ends_with(|c: char| !c.is_alphanumeric());
        if found.len() >= MAX_DESCRIBED || (ends && found.len() > before) {
            break;
        }
    }
    without_server(found, server)
}

fn begins_with_reading(token: &str) -> bool {
    match words(token).first() {
        Some(word) => matches!(verb(word), Some(Verb::List | Verb::Get)),
        None => false,
    }
}

/// The nouns that are not words of the server's name, if there are any.
fn without_server(found: Vec<String>, server: &str) -> Vec<String> {
    let of_server = nouns(&words(server));
    let mut others = found.clone();
    others.retain(|noun| !of_server.contains(noun));
    if others.is_empty() { found } else { others }
}

/// Collects the names of the properties of a schema and of the schemas within.
fn read_fields(schema: &Map<String, Value>, depth: usize, fields: &mut HashSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for name in properties.keys() {
            if fields.len() >= MAX_FIELDS {
                return;
            }
            fields.insert(name.clone());
        }
        for schema in properties.values().filter_map(Value::as_object) {
            read_below(schema, depth, fields);
        }
    }
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        read_below(items, depth, fields);
    }
}

fn read_below(schema: &Map<String, Value>, depth: usize, fields: &mut HashSet<String>) {
    if depth > 0 {
        read_fields(schema, depth - 1, fields);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn interface(name: &str, description: &str) -> Interface {
        Interface::new(
            &Tool::new("crm", name)
                .unwrap()
                .with_description(description),
        )
    }

    #[test]
    fn a_tool_does_what_its_name_or_its_description_says() {
        for (name, description, kind) in [
            ("list_people", "", Kind::Lists),
            ("people_search", "", Kind::Lists),
            ("post-search", "", Kind::Lists),
            ("crm.people.list", "", Kind::Lists),
            ("get_people", "", Kind::GetsSeveral),
            ("get_people", "Get all people.", Kind::Lists),
            ("get_person", "", Kind::GetsOne),
            ("people", "", Kind::PluralOnly),
            ("people", "Lists people.", Kind::Lists),
            ("person", "", Kind::Unknown),
            ("person", "Deletes a person.", Kind::Writes),
            ("merge_people", "", Kind::Writes),
            ("crm.people.patch", "", Kind::Writes),
        ] {
            assert_eq!(
                interface(name, description).kind,
                kind,
                "{name}: {description}"
            );
        }
    }

    #[test]
    fn a_hint_of_damage_wins_over_the_name() {
        let mut tool = Tool::new("crm", "list_people").unwrap();
        tool.annotations.destructive_hint = Some(true);
        assert_eq!(Interface::new(&tool).kind, Kind::Writes);
    }

    #[test]
    fn nouns_are_those_of_the_object() {
        for (name, nouns) in [
            ("list_people", &["person"][..]),
            ("getRoomIdByAlias", &["room", "id"]),
            ("search_data_sources", &["data", "source"]),
            ("drive.files.list", &["drive", "file"]),
        ] {
            assert_eq!(interface(name, "").nouns, nouns, "{name}");
        }
    }

    #[test]
    fn a_description_says_what_is_listed() {
        for (description, nouns) in [
            ("Returns a list of all groups. Needs a key.", &["group"][..]),
            ("Lists CRM people with their phones", &["person"]),
            (
                "Search for data sources of a workspace",
                &["data", "source"],
            ),
            ("People of the company", &[]),
            ("", &[]),
        ] {
            assert_eq!(
                interface("x", description).described,
                nouns,
                "{description}"
            );
        }
    }

    #[test]
    fn fields_of_the_result_are_read_at_every_level() {
        let mut tool = Tool::new("crm", "list_people").unwrap();
        let schema = json!({
            "type": "object",
            "properties": {
                "people": { "type": "array", "items": { "properties": { "person_id": {} } } },
            },
        });
        tool.output_schema = schema.as_object().cloned();
        assert!(Interface::new(&tool).fields.contains("person_id"));
    }
}
