//! The owner's words in the form in which a search applies them.

use std::collections::HashMap;

use super::{Matching, OwnerWords, Pin};
use crate::text::{self, Term};
use crate::tool::{OwnerTexts, Tool, ToolId};

/// Words of a request that are compared, and phrases that are found in it: a pasted document is no
/// request.
const MAX_REQUEST_WORDS: usize = 128;
const MAX_FOUND: usize = 16;

/// A catalog's words, ready to be applied.
pub(crate) struct WordIndex {
    words: OwnerWords,
    /// Of the stored document.
    sum: String,
    /// By [`text::name_key`].
    aliases: HashMap<String, Vec<Alias>>,
    /// By the stem of the first word.
    synonyms: HashMap<String, Vec<SynonymRule>>,
    /// In the order of the document.
    pins: Vec<PinRule>,
}

struct Alias {
    tool: ToolId,
    /// As the owner wrote it.
    name: String,
}

/// A phrase, and what it may also be called.
struct SynonymRule {
    /// As the owner wrote it.
    phrase: String,
    stems: Vec<String>,
    others: Vec<String>,
}

struct PinRule {
    words: Vec<String>,
    tool: ToolId,
    pin: Pin,
}

/// A phrase of a request that has synonyms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSynonyms {
    /// As the owner wrote it.
    pub phrase: String,
    /// The terms of what was said.
    pub terms: Vec<Term>,
    /// The synonyms.
    pub synonyms: Vec<Synonym>,
}

/// What a phrase may also be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// As the owner wrote it.
    pub text: String,
    /// Its terms; never empty.
    pub terms: Vec<Term>,
}

/// A pin whose query a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundPin<'a> {
    pub(crate) tool: &'a ToolId,
    pub(crate) action: PinAction,
    /// The query of the pin.
    pub(crate) query: &'a str,
}

/// What a pin does with its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinAction {
    /// It is put at this place, from 1.
    PutAt(usize),
    /// It is no hit.
    Hide,
}

impl WordIndex {
    /// Of a document that is stored with this checksum; `None` without any words.
    pub(crate) fn new(words: OwnerWords, sum: &str) -> Option<Self> {
        if words.is_empty() {
            return None;
        }
        let mut index = WordIndex {
            aliases: HashMap::new(),
            synonyms: HashMap::new(),
            pins: words.pins.values().filter_map(PinRule::new).collect(),
            words: OwnerWords::default(),
            sum: sum.to_owned(),
        };
        for (tool, names) in &words.aliases {
            // The document was validated.
            let Ok(tool) = ToolId::parse(tool) else {
                continue;
            };
            for name in names {
                let of_key = index.aliases.entry(text::name_key(name)).or_default();
                of_key.push(Alias {
                    tool: tool.clone(),
                    name: name.clone(),
                });
            }
        }
        for synonyms in words.synonyms.values() {
            if let Some(from) = &synonyms.from {
                index.add_synonyms(from, synonyms.words.clone());
                continue;
            }
            // Each of the words stands for all others.
            for said in &synonyms.words {
                let mut others = synonyms.words.clone();
                others.retain(|other| other != said);
                index.add_synonyms(said, others);
            }
        }
        index.words = words;
        Some(index)
    }

    fn add_synonyms(&mut self, said: &str, others: Vec<String>) {
        let stems = stems(&text::words(said));
        let Some(first) = stems.first() else { return };
        let rules = self.synonyms.entry(first.clone()).or_default();
        match rules.iter_mut().find(|rule| rule.stems == stems) {
            // Another entry has the same phrase.
            Some(rule) => rule.others.extend(others),
            None => rules.push(SynonymRule {
                phrase: said.to_owned(),
                stems,
                others,
            }),
        }
    }

    /// The checksum of the stored document.
    pub(crate) fn sum(&self) -> &str {
        &self.sum
    }

    /// The document.
    pub(crate) fn words(&self) -> &OwnerWords {
        &self.words
    }

    /// What they say of a tool.
    pub(crate) fn texts_of(&self, id: &ToolId) -> OwnerTexts {
        self.words.texts_of(id)
    }

    /// The tool as it is shown, where it was not read with its texts.
    pub(crate) fn with_texts(&self, tool: Tool) -> Tool {
        Tool {
            owner_texts: self.texts_of(&tool.id),
            ..tool
        }
    }

    /// The tools that this request names by an alias, with the alias.
    pub(crate) fn named(&self, request: &str) -> impl Iterator<Item = (&ToolId, &str)> {
        let found = match self.aliases.is_empty() {
            true => None,
            false => self.aliases.get(&text::name_key(request)),
        };
        let found = found.into_iter().flatten();
        found.map(|alias| (&alias.tool, alias.name.as_str()))
    }

    /// The phrases of a request that have synonyms, in order. A phrase within a longer one does not
    /// count.
    pub(crate) fn synonyms(&self, request: &str) -> Vec<FoundSynonyms> {
        if self.synonyms.is_empty() {
            return Vec::new();
        }
        let mut words = text::words(request);
        words.truncate(MAX_REQUEST_WORDS);
        let stems = stems(&words);
        let mut found = Vec::new();
        let mut start = 0;
        while start < stems.len() && found.len() < MAX_FOUND {
            let Some(rule) = self.longest_at(&stems[start..]) else {
                start += 1;
                continue;
            };
            let end = start + rule.stems.len();
            found.push(FoundSynonyms::new(rule, &words[start..end]));
            start = end;
        }
        found
    }

    /// The longest phrase that these stems begin with.
    fn longest_at(&self, stems: &[String]) -> Option<&SynonymRule> {
        let rules = self.synonyms.get(stems.first()?)?;
        let fitting = rules.iter().filter(|rule| stems.starts_with(&rule.stems));
        fitting.max_by_key(|rule| rule.stems.len())
    }

    /// The pins for a request, in the order of the document.
    pub(crate) fn pins(&self, request: &str) -> Vec<FoundPin<'_>> {
        if self.pins.is_empty() {
            return Vec::new();
        }
        let words = text::words(request);
        let mut found = Vec::new();
        for rule in &self.pins {
            if !rule.fits(&words) {
                continue;
            }
            found.push(FoundPin {
                tool: &rule.tool,
                action: match rule.pin.place() {
                    Some(place) => PinAction::PutAt(place),
                    None => PinAction::Hide,
                },
                query: &rule.pin.query,
            });
        }
        found
    }
}

impl PinRule {
    fn new(pin: &Pin) -> Option<Self> {
        Some(PinRule {
            words: text::words(&pin.query),
            tool: ToolId::parse(&pin.tool).ok()?,
            pin: pin.clone(),
        })
    }

    fn fits(&self, request: &[String]) -> bool {
        match self.pin.matching {
            Matching::Exact => request == self.words,
            Matching::Contains => {
                let mut parts = request.windows(self.words.len().max(1));
                parts.any(|part| part == self.words)
            }
        }
    }
}

impl FoundSynonyms {
    fn new(rule: &SynonymRule, said: &[String]) -> Self {
        let mut synonyms = Vec::with_capacity(rule.others.len());
        for text in &rule.others {
            synonyms.push(Synonym {
                text: text.clone(),
                terms: text::terms(text),
            });
        }
        FoundSynonyms {
            phrase: rule.phrase.clone(),
            terms: text::terms(&said.join(" ")),
            synonyms,
        }
    }

    /// A request with its synonyms after it, as it is embedded: the vectors of both are then near.
    pub(crate) fn appended_to(request: &str, found: &[FoundSynonyms]) -> String {
        let mut text = request.to_owned();
        for phrase in found {
            for synonym in &phrase.synonyms {
                text.push(' ');
                text.push_str(&synonym.text);
            }
        }
        text
    }
}

fn stems(words: &[String]) -> Vec<String> {
    words.iter().map(String::as_str).map(text::stem).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index(document: serde_json::Value) -> WordIndex {
        let words = OwnerWords::read(document.to_string().as_bytes()).unwrap();
        WordIndex::new(words, "").unwrap()
    }

    fn found(index: &WordIndex, request: &str) -> Vec<String> {
        let found = index.synonyms(request);
        let line = |found: FoundSynonyms| {
            let others: Vec<String> = found.synonyms.into_iter().map(|one| one.text).collect();
            format!("{} -> {}", found.phrase, others.join(", "))
        };
        found.into_iter().map(line).collect()
    }

    #[test]
    fn synonyms_are_one_way_or_both_ways_and_the_longest_phrase_counts() {
        let index = index(json!({"synonyms": {
            "leave": {"words": ["pto", "paid time off", "vacation"]},
            "time": {"from": "time", "words": ["clock"]},
            "k8s": {"from": "k8s", "words": ["kubernetes"]},
        }}));
        assert_eq!(
            found(&index, "Book PTO!"),
            ["pto -> paid time off, vacation"]
        );
        assert_eq!(
            found(&index, "vacations and paid time off"),
            [
                "vacation -> pto, paid time off",
                "paid time off -> pto, vacation"
            ]
        );
        assert_eq!(found(&index, "what time"), ["time -> clock"]);
        assert_eq!(found(&index, "kubernetes"), Vec::<String>::new());
        assert_eq!(found(&index, "on k8s"), ["k8s -> kubernetes"]);
        assert!(found(&index, &"pto ".repeat(500)).len() <= MAX_FOUND);
    }

    #[test]
    fn pins_compare_words() {
        let index = index(json!({"pins": {
            "a": {"query": "deploy it", "tool": "ci/deploy", "place": 2},
            "b": {"query": "deploy", "match": "contains", "tool": "ci/drop", "hide": true},
        }}));
        let of = |request: &str| -> Vec<PinAction> {
            let pins = index.pins(request);
            pins.into_iter().map(|pin| pin.action).collect()
        };
        assert_eq!(of("Deploy it!"), [PinAction::PutAt(2), PinAction::Hide]);
        assert_eq!(of("please deploy now"), [PinAction::Hide]);
        assert_eq!(of("deployment"), []);
        assert_eq!(of(""), []);
    }

    #[test]
    fn an_alias_names_its_tool_whatever_its_case() {
        let index = index(json!({"aliases": {"github/create_pull_request": ["gh pr"]}}));
        let named: Vec<(&ToolId, &str)> = index.named("GH-PR").collect();
        assert_eq!(named.len(), 1);
        assert_eq!(named[0].1, "gh pr");
        assert_eq!(index.named("gh pr list").count(), 0);
    }
}
