//! The words of a catalog's owner: what search engines call synonyms, curation and boosts, for tools.
//!
//! They are kept apart from what servers send, so that no change of a tool loses them. An entry for a tool
//! that the catalog does not have has no effect until it has it.
//!
//! `WordIndex` is the form in which a snapshot applies them.

mod index;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::text;
use crate::tool::{OwnerTexts, ToolId};

pub(crate) use index::{FoundSynonyms, PinAction, WordIndex};

/// Most tools with aliases, and most with a description.
pub const MAX_TOOLS: usize = 10_000;
/// Most entries of each other kind.
pub const MAX_ENTRIES: usize = 2_000;
/// Most aliases of a tool, and most words of an entry of synonyms.
pub const MAX_NAMES: usize = 16;
/// Longest alias, synonym, query of a pin and name of an entry, in characters.
pub const MAX_NAME_CHARS: usize = 200;
/// Most words of a synonym, as the analyzer splits them: `k8s` has three.
pub const MAX_PHRASE_WORDS: usize = 8;
/// Longest description, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 4_000;
/// The last place that a tool can be pinned to.
pub const MAX_PLACE: usize = 50;
/// The smallest and the largest factor of a boost; [`OFF`] is another one.
pub const FACTORS: [f32; 2] = [0.1, 10.0];
/// The factor of what is switched off: no search finds it, and it is still listed and can be called.
pub const OFF: f32 = 0.0;
/// Longest document, in bytes of JSON.
pub const MAX_BYTES: usize = 4 << 20;

/// The document of a catalog's words. Each kind is a map, so that an entry can be changed by its key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerWords {
    /// Other names of tools, by the tool's id.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Words that mean the same, by a name of the owner's choice.
    pub synonyms: BTreeMap<String, Synonyms>,
    /// Tools that are put at a place or hidden for a query, by a name of the owner's choice.
    pub pins: BTreeMap<String, Pin>,
    /// Factors of scores.
    pub boosts: Boosts,
    /// What is shown and searched in place of a tool's description, by the tool's id.
    pub descriptions: BTreeMap<String, String>,
}

/// Words that mean the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synonyms {
    /// Where it is set, only this one stands for the words, and they do not stand for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The words, each of one word or a few.
    pub words: Vec<String>,
}

/// Puts a tool at a place among the hits of a query, or hides it from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The words of the query; case and punctuation do not count.
    pub query: String,
    /// Whether a query has to be these words or to contain them.
    #[serde(default, rename = "match")]
    pub matching: Matching,
    /// The tool's id.
    pub tool: String,
    /// The place from 1; 1 where neither it nor `hide` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// The tool is no hit of the query.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hide: bool,
}

/// How the words of a pin are compared with a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The query is these words.
    #[default]
    Exact,
    /// The query contains them, one after another.
    Contains,
}

/// Factors of scores. Those of a tool, its server and its tags are multiplied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Boosts {
    /// By the tool's id.
    pub tools: BTreeMap<String, f32>,
    /// By the server.
    pub servers: BTreeMap<String, f32>,
    /// By the tag.
    pub tags: BTreeMap<String, f32>,
}

impl OwnerWords {
    /// Reads and checks a document.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`] naming the entry.
    pub fn read(json: &[u8]) -> Result<Self> {
        check_length(json.len())?;
        let document: Value = serde_json::from_slice(json)
            .map_err(|e| Error::invalid_owner_words("the document", e.to_string()))?;
        OwnerWords::of_document(&document)
    }

    fn of_document(document: &Value) -> Result<Self> {
        check_objects(document)?;
        let words: OwnerWords = read_as(document)?;
        words.validate()?;
        Ok(words)
    }

    /// These words changed by a JSON merge patch (RFC 7396): `null` removes an entry.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`] where the result would not be valid.
    pub fn patched(&self, patch: &Value) -> Result<Self> {
        if !patch.is_object() {
            let reason = "the patch is not a JSON object";
            return Err(Error::invalid_owner_words("the document", reason));
        }
        // A struct of maps and strings always serialises.
        let mut document = serde_json::to_value(self).unwrap_or_default();
        merge(&mut document, patch);
        OwnerWords::of_document(&document)
    }

    /// True without any entry.
    pub fn is_empty(&self) -> bool {
        *self == OwnerWords::default()
    }

    /// As it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks every entry.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`] naming the entry.
    pub fn validate(&self) -> Result<()> {
        check_count("aliases", self.aliases.len(), MAX_TOOLS)?;
        for (tool, names) in &self.aliases {
            check_aliases(tool, names)?;
        }
        check_count("synonyms", self.synonyms.len(), MAX_ENTRIES)?;
        for (name, synonyms) in &self.synonyms {
            check_text("the name of an entry in synonyms", name, MAX_NAME_CHARS)?;
            synonyms.validate(&format!("synonyms.{name}"))?;
        }
        check_count("pins", self.pins.len(), MAX_ENTRIES)?;
        for (name, pin) in &self.pins {
            check_text("the name of an entry in pins", name, MAX_NAME_CHARS)?;
            pin.validate(&format!("pins.{name}"))?;
        }
        self.boosts.validate()?;
        check_count("descriptions", self.descriptions.len(), MAX_TOOLS)?;
        for (tool, description) in &self.descriptions {
            let entry = format!("descriptions.{tool}");
            check_tool(&entry, tool)?;
            check_chars(&entry, description, MAX_DESCRIPTION_CHARS)?;
            // A description may have several lines.
            check_controls(&entry, description, "\n\t")?;
        }
        check_length(self.to_json().len())
    }

    /// What they say of a tool.
    pub fn texts_of(&self, id: &ToolId) -> OwnerTexts {
        OwnerTexts::new(
            self.descriptions.get(id.as_str()).cloned(),
            self.aliases.get(id.as_str()).cloned().unwrap_or_default(),
        )
    }

    /// The tools of which these words say something else than the others do.
    pub(crate) fn tools_with_other_texts(&self, other: &OwnerWords) -> Vec<ToolId> {
        let described: BTreeSet<&String> = self.described().chain(other.described()).collect();
        let mut differing = Vec::new();
        for tool in described {
            let is_same = self.aliases.get(tool) == other.aliases.get(tool)
                && self.descriptions.get(tool) == other.descriptions.get(tool);
            if !is_same && let Ok(id) = ToolId::parse(tool) {
                differing.push(id);
            }
        }
        differing
    }

    /// The tools that have a description or aliases.
    fn described(&self) -> impl Iterator<Item = &String> {
        self.aliases.keys().chain(self.descriptions.keys())
    }

    /// The entries of tools, servers and tags that the catalog does not have, by their places in the
    /// document.
    pub(crate) fn entries_without_tool(
        &self,
        has: impl Fn(&ToolId) -> bool,
        has_server: impl Fn(&str) -> bool,
        has_tag: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut missing = Vec::new();
        for (kind, name, tool) in self.entries_of_tools() {
            // An invalid id was refused when the document was read.
            if let Ok(id) = ToolId::parse(tool)
                && !has(&id)
            {
                missing.push(format!("{kind}.{name}"));
            }
        }
        for server in self.boosts.servers.keys() {
            if !has_server(server) {
                missing.push(format!("boosts.servers.{server}"));
            }
        }
        for tag in self.boosts.tags.keys() {
            if !has_tag(tag) {
                missing.push(format!("boosts.tags.{tag}"));
            }
        }
        missing
    }

    /// The kind and the name of every entry about a tool, with the tool.
    fn entries_of_tools(&self) -> Vec<(&'static str, &str, &str)> {
        let mut entries: Vec<(&str, &str, &str)> = Vec::new();
        for tool in self.aliases.keys() {
            entries.push(("aliases", tool, tool));
        }
        for (name, pin) in &self.pins {
            entries.push(("pins", name, &pin.tool));
        }
        for tool in self.boosts.tools.keys() {
            entries.push(("boosts.tools", tool, tool));
        }
        for tool in self.descriptions.keys() {
            entries.push(("descriptions", tool, tool));
        }
        entries
    }
}

impl Synonyms {
    fn validate(&self, entry: &str) -> Result<()> {
        let least = if self.from.is_some() { 1 } else { 2 };
        if !(least..=MAX_NAMES).contains(&self.words.len()) {
            let reason = format!(
                "it has {} words, it must have {least} to {MAX_NAMES}",
                self.words.len()
            );
            return Err(Error::invalid_owner_words(format!("{entry}.words"), reason));
        }
        if let Some(from) = &self.from {
            check_phrase(&format!("{entry}.from"), from)?;
        }
        for (place, word) in self.words.iter().enumerate() {
            check_phrase(&format!("{entry}.words[{place}]"), word)?;
        }
        Ok(())
    }
}

impl Pin {
    /// The place that it puts the tool at; `None` where it hides it.
    pub fn place(&self) -> Option<usize> {
        match self.hide {
            true => None,
            false => Some(self.place.unwrap_or(1)),
        }
    }

    fn validate(&self, entry: &str) -> Result<()> {
        let query = format!("{entry}.query");
        check_text(&query, &self.query, MAX_NAME_CHARS)?;
        if text::words(&self.query).is_empty() {
            let reason = format!("{:?} has no word; give words of the query", self.query);
            return Err(Error::invalid_owner_words(query, reason));
        }
        check_tool(&format!("{entry}.tool"), &self.tool)?;
        match self.place {
            Some(place) if self.hide => Err(Error::invalid_owner_words(
                entry,
                format!("it has both `hide` and the place {place}; leave one out"),
            )),
            Some(place) if !(1..=MAX_PLACE).contains(&place) => Err(Error::invalid_owner_words(
                format!("{entry}.place"),
                format!("it is {place}, it must be from 1 to {MAX_PLACE}"),
            )),
            _ => Ok(()),
        }
    }
}

impl Boosts {
    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty() && self.tags.is_empty()
    }

    fn validate(&self) -> Result<()> {
        let kinds = [
            ("boosts.tools", &self.tools),
            ("boosts.servers", &self.servers),
            ("boosts.tags", &self.tags),
        ];
        let [least, most] = FACTORS;
        for (kind, factors) in kinds {
            check_count(kind, factors.len(), MAX_ENTRIES)?;
            for (name, factor) in factors {
                let entry = format!("{kind}.{name}");
                if *factor != OFF && !(least..=most).contains(factor) {
                    let reason = format!(
                        "it is {factor}, it must be from {least} to {most}, or {OFF} to switch it off"
                    );
                    return Err(Error::invalid_owner_words(entry, reason));
                }
                check_text(&entry, name, crate::tool::MAX_NAME_BYTES)?;
            }
        }
        for tool in self.tools.keys() {
            check_tool(&format!("boosts.tools.{tool}"), tool)?;
        }
        Ok(())
    }
}

fn check_aliases(tool: &str, names: &[String]) -> Result<()> {
    let entry = format!("aliases.{tool}");
    check_tool(&entry, tool)?;
    if !(1..=MAX_NAMES).contains(&names.len()) {
        let reason = format!(
            "it has {} names, it must have 1 to {MAX_NAMES}",
            names.len()
        );
        return Err(Error::invalid_owner_words(entry, reason));
    }
    for (place, name) in names.iter().enumerate() {
        let entry = format!("{entry}[{place}]");
        check_text(&entry, name, MAX_NAME_CHARS)?;
        if text::name_key(name).is_empty() {
            let reason = format!("{name:?} has no letter or digit, so nobody could ask for it");
            return Err(Error::invalid_owner_words(entry, reason));
        }
    }
    Ok(())
}

/// Checks a synonym.
fn check_phrase(entry: &str, phrase: &str) -> Result<()> {
    check_text(entry, phrase, MAX_NAME_CHARS)?;
    let words = text::words(phrase).len();
    if words > MAX_PHRASE_WORDS {
        let reason = format!("{phrase:?} has {words} words, {MAX_PHRASE_WORDS} are allowed");
        return Err(Error::invalid_owner_words(entry, reason));
    }
    if text::terms(phrase).is_empty() {
        let reason = format!(
            "{phrase:?} has only words that are not searched, such as \"the\" and \"please\""
        );
        return Err(Error::invalid_owner_words(entry, reason));
    }
    Ok(())
}

fn check_tool(entry: &str, tool: &str) -> Result<()> {
    match ToolId::parse(tool) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::invalid_owner_words(
            entry,
            format!("{tool:?} is no id of a tool: {error}"),
        )),
    }
}

/// Checks a text of one line.
fn check_text(entry: &str, text: &str, max: usize) -> Result<()> {
    check_chars(entry, text, max)?;
    check_controls(entry, text, "")
}

fn check_chars(entry: &str, text: &str, max: usize) -> Result<()> {
    let chars = text.trim().chars().count();
    if (1..=max).contains(&chars) {
        return Ok(());
    }
    let reason = format!("it has {chars} characters, it must have 1 to {max}");
    Err(Error::invalid_owner_words(entry, reason))
}

/// Refuses characters that could forge lines in logs and on terminals, but for those `allowed`.
fn check_controls(entry: &str, text: &str, allowed: &str) -> Result<()> {
    for c in text.chars() {
        if c.is_control() && !allowed.contains(c) {
            let reason = format!("it contains the control character {c:?}; remove it");
            return Err(Error::invalid_owner_words(entry, reason));
        }
    }
    Ok(())
}

fn check_count(kind: &str, count: usize, max: usize) -> Result<()> {
    if count <= max {
        return Ok(());
    }
    let reason = format!("it has {count} entries, {max} are allowed");
    Err(Error::invalid_owner_words(kind, reason))
}

fn check_length(bytes: usize) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    let reason = format!("it has {bytes} bytes, {MAX_BYTES} are allowed");
    Err(Error::invalid_owner_words("the document", reason))
}

/// Refuses lists where objects belong: what derives from a struct would take one as the values of its
/// fields.
fn check_objects(document: &Value) -> Result<()> {
    check_no_list("the document", document)?;
    if let Some(boosts) = document.get("boosts") {
        check_no_list("boosts", boosts)?;
    }
    for kind in ["synonyms", "pins"] {
        let entries = document.get(kind).and_then(Value::as_object);
        for (name, entry) in entries.into_iter().flatten() {
            check_no_list(&format!("{kind}.{name}"), entry)?;
        }
    }
    Ok(())
}

fn check_no_list(entry: &str, value: &Value) -> Result<()> {
    if !value.is_array() {
        return Ok(());
    }
    let reason = "it is a list; give an object";
    Err(Error::invalid_owner_words(entry, reason))
}

/// Reads JSON; the error names the place.
fn read_as<'de, T: DeserializeOwned>(json: impl serde::Deserializer<'de>) -> Result<T> {
    let error = match serde_path_to_error::deserialize(json) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let entry = match error.path().to_string() {
        path if path == "." => "the document".to_owned(),
        path => path,
    };
    let reason = error.into_inner().to_string();
    Err(Error::invalid_owner_words(entry, reason))
}

/// The merge of RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = target else {
        return;
    };
    for (name, change) in changes {
        match change {
            Value::Null => drop(fields.shift_remove(name)),
            change => merge(fields.entry(name.as_str()).or_insert(Value::Null), change),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> Result<OwnerWords> {
        OwnerWords::read(document.to_string().as_bytes())
    }

    #[test]
    fn a_document_comes_back_as_it_was_written() {
        let words = read(json!({
            "aliases": {"github/create_pull_request": ["gh pr"]},
            "synonyms": {"leave": {"words": ["pto", "vacation"]}, "k8s": {"from": "k8s", "words": ["kubernetes"]}},
            "pins": {"a": {"query": "deploy", "match": "contains", "tool": "ci/deploy"},
                "b": {"query": "deploy", "tool": "ci/drop", "hide": true}},
            "boosts": {"servers": {"legacy": 0.5}},
            "descriptions": {"ci/deploy": "Deploys.\nTwice."}
        }))
        .unwrap();
        assert_eq!(words.pins["a"].place(), Some(1));
        assert_eq!(words.pins["b"].place(), None);
        assert_eq!(OwnerWords::read(words.to_json().as_bytes()).unwrap(), words);
        assert!(!words.is_empty() && OwnerWords::default().is_empty());
    }

    #[test]
    fn a_patch_changes_one_entry_and_null_removes_it() {
        let before = read(json!({"boosts": {"servers": {"a": 2.0, "b": 3.0}}})).unwrap();
        let patch =
            json!({"boosts": {"servers": {"a": null, "c": 0.5}}, "aliases": {"x/y": ["z"]}});
        let after = before.patched(&patch).unwrap();
        let servers: Vec<&str> = after.boosts.servers.keys().map(String::as_str).collect();
        assert_eq!(servers, ["b", "c"]);
        assert_eq!(after.aliases["x/y"], ["z"]);
        let without = after.patched(&json!({"aliases": null, "boosts": null}));
        assert!(without.unwrap().is_empty());
        before.patched(&json!(["a"])).unwrap_err();
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_its_place() {
        let long = "x ".repeat(9);
        for (document, expected) in [
            (json!([]), "the document: it is a list"),
            (
                json!({"pins": {"p": ["q", "exact", "a/b"]}}),
                "pins.p: it is a list",
            ),
            (json!({"boosts": []}), "boosts: it is a list"),
            (json!({"alias": {}}), "unknown field `alias`"),
            (
                json!({"aliases": {"a/b": []}}),
                "aliases.a/b: it has 0 names",
            ),
            (
                json!({"aliases": {"a/b": ["?!"]}}),
                "aliases.a/b[0]: \"?!\" has no letter",
            ),
            (json!({"aliases": {"": ["x"]}}), "is no id of a tool"),
            (
                json!({"synonyms": {"s": {"words": ["a1"]}}}),
                "synonyms.s.words: it has 1 words",
            ),
            (
                json!({"synonyms": {"s": {"words": ["k8s", "the"]}}}),
                "synonyms.s.words[1]: \"the\" has only words",
            ),
            (
                json!({"synonyms": {"s": {"words": ["k8s", long]}}}),
                "has 9 words, 8 are allowed",
            ),
            (json!({"synonyms": {"s": {"word": ["k8s"]}}}), "synonyms.s"),
            (
                json!({"pins": {"p": {"query": "?", "tool": "a/b"}}}),
                "pins.p.query: \"?\" has no word",
            ),
            (
                json!({"pins": {"p": {"query": "q", "tool": "a/b", "place": 0}}}),
                "pins.p.place: it is 0",
            ),
            (
                json!({"pins": {"p": {"query": "q", "tool": "a/b", "place": 1, "hide": true}}}),
                "pins.p: it has both",
            ),
            (
                json!({"boosts": {"servers": {"s": 11}}}),
                "boosts.servers.s: it is 11, it must be from 0.1 to 10",
            ),
            (json!({"boosts": {"tags": {"t": "x"}}}), "boosts.tags.t"),
            (
                json!({"descriptions": {"a/b": " "}}),
                "descriptions.a/b: it has 0 characters",
            ),
            (
                json!({"descriptions": {"a/b": "a\u{1b}[2J"}}),
                "control character",
            ),
        ] {
            let message = read(document.clone()).unwrap_err().to_string();
            assert!(message.contains(expected), "{document}: {message}");
        }
    }

    #[test]
    fn entries_of_tools_that_are_not_there_are_named() {
        let words = read(json!({
            "aliases": {"a/here": ["x"], "a/gone": ["y"]},
            "pins": {"p": {"query": "q", "tool": "a/gone"}},
            "boosts": {
                "tools": {"a/gone": 2.0}, "servers": {"a": 2.0, "gone": 2.0}, "tags": {"t": 2.0, "gone": 2.0}
            },
            "descriptions": {"a/gone": "Text."}
        }))
        .unwrap();
        assert_eq!(
            words.entries_without_tool(
                |id| id.as_str() == "a/here",
                |server| server == "a",
                |tag| tag == "t"
            ),
            [
                "aliases.a/gone",
                "pins.p",
                "boosts.tools.a/gone",
                "descriptions.a/gone",
                "boosts.servers.gone",
                "boosts.tags.gone"
            ]
        );
    }

    #[test]
    fn changes_of_texts_name_the_tools_they_are_about() {
        let words = |document| read(document).unwrap();
        let before = words(json!({"aliases": {"a/b": ["x"], "a/c": ["y"]}}));
        let after = words(
            json!({"aliases": {"a/b": ["x"]}, "descriptions": {"a/d": "Text."}, "boosts": {"tools": {"a/e": 2.0}}}),
        );
        let changed = after.tools_with_other_texts(&before);
        let changed: Vec<&str> = changed.iter().map(ToolId::as_str).collect();
        assert_eq!(changed, ["a/c", "a/d"]);
    }
}
