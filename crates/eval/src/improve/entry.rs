//! What can be changed in a catalog so that searches find better, one entry at a time, and back again.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toolscout_base::printable;
use toolscout_index::owner_words::{MAX_NAMES, Matching, OFF, Pin, Synonyms};
use toolscout_index::{
    Enrichment, MAX_ENRICHMENT_TEXTS, OwnerWords, SearchOptions, Searcher, ToolId, Writer, text,
};

use crate::error::Result;

/// The name of entries in the owner's words: it keeps them apart from those of the owner.
const NAME_PREFIX: &str = "improve: ";

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "does", rename_all = "snake_case")]
pub enum Entry {
    /// Gives a tool a text of when to use it, for dense search.
    Text {
        /// The tool's id.
        tool: String,
        /// The text.
        text: String,
        /// Who wrote it.
        model: String,
    },
    /// Lets a word of requests stand for a word of tools.
    Synonym {
        /// The word of requests.
        from: String,
        /// The word of tools.
        word: String,
    },
    /// Gives a tool another name.
    Alias {
        /// The tool's id.
        tool: String,
        /// The name.
        name: String,
    },
    /// Puts a tool first for a request.
    Pin {
        /// The request.
        query: String,
        /// The tool's id.
        tool: String,
    },
    /// Multiplies the scores of a tool.
    Boost {
        /// The tool's id.
        tool: String,
        /// The factor.
        factor: f32,
    },
    /// Switches companions of hits on or off.
    Companions {
        /// What the catalog's settings say now.
        before: Option<bool>,
        /// What they say then.
        after: bool,
    },
    /// Folds near-duplicates on several servers into one hit, or no longer does.
    Duplicates {
        /// What the catalog's settings say now.
        before: Option<bool>,
        /// What they say then.
        after: bool,
    },
    /// Switches a tool off: no search finds it.
    Off {
        /// The tool's id.
        tool: String,
        /// Its factor now, if it has one.
        before: Option<f32>,
    },
}

/// What entries change of a catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    words: OwnerWords,
    texts: BTreeMap<ToolId, Enrichment>,
    search: SearchOptions,
}

impl Content {
    /// That of a catalog.
    pub fn of(searcher: &Searcher) -> Self {
        let mut texts = BTreeMap::new();
        for tool in searcher.tools() {
            if let Some(enrichment) = searcher.enrichment(&tool.id) {
                texts.insert(tool.id.clone(), enrichment.clone());
            }
        }
        Content {
            words: searcher.owner_words().cloned().unwrap_or_default(),
            texts,
            search: searcher.settings().search,
        }
    }

    /// Of its parts: the owner's words, texts of tools, and defaults of searches.
    pub fn new(
        words: OwnerWords,
        texts: BTreeMap<ToolId, Enrichment>,
        search: SearchOptions,
    ) -> Self {
        Content {
            words,
            texts,
            search,
        }
    }

    /// Its parts.
    pub fn into_parts(self) -> (OwnerWords, BTreeMap<ToolId, Enrichment>, SearchOptions) {
        (self.words, self.texts, self.search)
    }

    /// The content with these entries.
    pub fn with<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut content = self.clone();
        for entry in entries {
            entry.add_to(&mut content);
        }
        content
    }

    /// Whether searches fold near-duplicates.
    pub fn duplicates(&self) -> Option<bool> {
        self.search.fold_duplicates
    }

    /// The factor of a tool.
    pub fn factor(&self, tool: &str) -> Option<f32> {
        self.words.boosts.tools.get(tool).copied()
    }

    /// Whether searches put companions behind hits.
    pub fn companions(&self) -> Option<bool> {
        self.search.companions
    }

    /// Writes what differs from `before`, which the catalog has. The caller commits.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn write(&self, before: &Content, writer: &mut Writer, searcher: &Searcher) -> Result<()> {
        if self.words != before.words {
            writer.set_owner_words(&self.words)?;
        }
        if self.search != before.search {
            let mut settings = writer.settings()?;
            settings.search = self.search;
            writer.set_settings(&settings)?;
        }
        for (id, texts) in &self.texts {
            if before.texts.get(id) != Some(texts)
                && let Some(tool) = searcher.tool(id)
            {
                writer.set_enrichment(&tool, texts)?;
            }
        }
        // Tools that had texts before, and have none now.
        let gone = before.texts.keys();
        let gone: Vec<ToolId> = gone
            .filter(|id| !self.texts.contains_key(id))
            .cloned()
            .collect();
        writer.clear_enrichments(&gone)?;
        Ok(())
    }
}

impl Entry {
    /// Adds it. False if it is there already, if the owner has said something else about the same, or if
    /// there is no room.
    pub fn add_to(&self, content: &mut Content) -> bool {
        let words = &mut content.words;
        match self {
            Entry::Text { tool, text, model } => add_text(&mut content.texts, tool, text, model),
            Entry::Synonym { from, word } => {
                let key = named(from);
                let is_new = !words.synonyms.contains_key(&key);
                let synonyms = Synonyms {
                    from: Some(from.clone()),
                    words: vec![word.clone()],
                };
                words.synonyms.entry(key).or_insert(synonyms);
                is_new
            }
            Entry::Alias { tool, name } => {
                let names = words.aliases.entry(tool.clone()).or_default();
                let fits = !names.contains(name) && names.len() < MAX_NAMES;
                if fits {
                    names.push(name.clone());
                }
                fits
            }
            Entry::Pin { query, tool } => {
                // The owner may have said something else about the request.
                let is_new = !words.pins.values().any(|pin| is_about(pin, query));
                if is_new {
                    words.pins.insert(named(query), pin(query, tool));
                }
                is_new
            }
            Entry::Boost { tool, factor } => {
                let factors = &mut words.boosts.tools;
                let is_new = !factors.contains_key(tool);
                factors.entry(tool.clone()).or_insert(*factor);
                is_new
            }
            Entry::Duplicates { before, after } => {
                let is_as_before = content.search.fold_duplicates == *before;
                if is_as_before {
                    content.search.fold_duplicates = Some(*after);
                }
                is_as_before
            }
            Entry::Off { tool, before } => {
                let factors = &mut words.boosts.tools;
                let is_as_before = factors.get(tool) == before.as_ref();
                if is_as_before {
                    factors.insert(tool.clone(), OFF);
                }
                is_as_before
            }
            Entry::Companions { before, after } => {
                let is_as_before = content.search.companions == *before;
                if is_as_before {
                    content.search.companions = Some(*after);
                }
                is_as_before
            }
        }
    }

    /// Takes it away. False if it is not there, or was changed since.
    pub fn remove_from(&self, content: &mut Content) -> bool {
        let words = &mut content.words;
        match self {
            Entry::Text { tool, text, .. } => remove_text(&mut content.texts, tool, text),
            Entry::Synonym { from, .. } => words.synonyms.remove(&named(from)).is_some(),
            Entry::Alias { tool, name } => {
                let Some(names) = words.aliases.get_mut(tool) else {
                    return false;
                };
                let count = names.len();
                names.retain(|other| other != name);
                let is_removed = names.len() < count;
                // An empty list would not be the content that there was before.
                if names.is_empty() {
                    words.aliases.remove(tool);
                }
                is_removed
            }
            Entry::Pin { query, .. } => words.pins.remove(&named(query)).is_some(),
            Entry::Boost { tool, factor } => {
                let is_same = words.boosts.tools.get(tool) == Some(factor);
                if is_same {
                    words.boosts.tools.remove(tool);
                }
                is_same
            }
            Entry::Duplicates { before, after } => {
                let is_same = content.search.fold_duplicates == Some(*after);
                if is_same {
                    content.search.fold_duplicates = *before;
                }
                is_same
            }
            Entry::Off { tool, before } => {
                let factors = &mut words.boosts.tools;
                let is_same = factors.get(tool) == Some(&OFF);
                if is_same {
                    factors.remove(tool);
                    factors.extend(before.map(|before| (tool.clone(), before)));
                }
                is_same
            }
            Entry::Companions { before, after } => {
                let is_same = content.search.companions == Some(*after);
                if is_same {
                    content.search.companions = *before;
                }
                is_same
            }
        }
    }

    /// The tool that it is about, if it is one.
    pub fn tool(&self) -> Option<&str> {
        match self {
            Entry::Text { tool, .. }
            | Entry::Alias { tool, .. }
            | Entry::Pin { tool, .. }
            | Entry::Boost { tool, .. }
            | Entry::Off { tool, .. } => Some(tool),
            Entry::Synonym { .. } | Entry::Companions { .. } | Entry::Duplicates { .. } => None,
        }
    }
}

/// One line of a diff.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = printable::line;
        match self {
            Entry::Text { tool, text, .. } => write!(f, "+ text of {}: {}", line(tool), line(text)),
            Entry::Synonym { from, word } => {
                write!(f, "+ synonym {} -> {}", line(from), line(word))
            }
            Entry::Alias { tool, name } => write!(f, "+ alias of {}: {}", line(tool), line(name)),
            Entry::Pin { query, tool } => write!(f, "+ pin {} for: {}", line(tool), line(query)),
            Entry::Boost { tool, factor } => write!(f, "+ boost {factor} of {}", line(tool)),
            Entry::Companions { after, .. } => write!(f, "~ companions of hits = {after}"),
            Entry::Duplicates { after, .. } => write!(f, "~ folding of duplicates = {after}"),
            Entry::Off { tool, .. } => write!(f, "- {} is switched off", line(tool)),
        }
    }
}

fn named(key: &str) -> String {
    format!("{NAME_PREFIX}{key}")
}

/// Whether a pin is for these words.
fn is_about(pin: &Pin, query: &str) -> bool {
    let (words, query) = (text::words(&pin.query), text::words(query));
    match pin.matching {
        Matching::Exact => words == query,
        Matching::Contains => query.windows(words.len().max(1)).any(|part| *part == words),
    }
}

fn pin(query: &str, tool: &str) -> Pin {
    Pin {
        query: query.to_owned(),
        matching: Matching::Exact,
        tool: tool.to_owned(),
        place: None,
        hide: false,
    }
}

fn add_text(texts: &mut BTreeMap<ToolId, Enrichment>, tool: &str, text: &str, model: &str) -> bool {
    let Ok(id) = ToolId::parse(tool) else {
        return false;
    };
    let (present, model) = match texts.get(&id) {
        // The texts that were there keep the name of their model.
        Some(present) => (present.texts(), present.model()),
        None => (&[][..], model),
    };
    if present.len() >= MAX_ENRICHMENT_TEXTS || present.iter().any(|other| other == text) {
        return false;
    }
    let all = present.iter().map(String::as_str).chain([text]);
    match Enrichment::new(all, model) {
        Ok(enrichment) => {
            texts.insert(id, enrichment);
            true
        }
        Err(_) => false,
    }
}

fn remove_text(texts: &mut BTreeMap<ToolId, Enrichment>, tool: &str, text: &str) -> bool {
    let Ok(id) = ToolId::parse(tool) else {
        return false;
    };
    let Some(present) = texts.get(&id) else {
        return false;
    };
    let left: Vec<&String> = present
        .texts()
        .iter()
        .filter(|other| *other != text)
        .collect();
    if left.len() == present.texts().len() {
        return false;
    }
    match Enrichment::new(left, present.model()) {
        Ok(left) => texts.insert(id, left),
        // No text is left, and there is no enrichment without one.
        Err(_) => texts.remove(&id),
    };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Entry {
        Entry::Text {
            tool: "mail/send".into(),
            text: text.into(),
            model: "requests".into(),
        }
    }

    fn every_kind() -> Vec<Entry> {
        let tool = || "mail/send".to_owned();
        vec![
            text("tell Ana that I am late"),
            text("write to the team"),
            Entry::Synonym {
                from: "ping".into(),
                word: "message".into(),
            },
            Entry::Alias {
                tool: tool(),
                name: "drop a line".into(),
            },
            Entry::Pin {
                query: "page the team".into(),
                tool: tool(),
            },
            Entry::Boost {
                tool: tool(),
                factor: 0.8,
            },
            Entry::Companions {
                before: None,
                after: false,
            },
            Entry::Duplicates {
                before: None,
                after: true,
            },
            Entry::Off {
                tool: "mail/read".into(),
                before: None,
            },
        ]
    }

    #[test]
    fn entries_come_and_go_in_any_order() {
        let entries = every_kind();
        let empty = Content::default();
        let mut content = empty.clone();
        for entry in &entries {
            assert!(entry.add_to(&mut content), "{entry}");
            assert!(!entry.add_to(&mut content), "twice: {entry}");
        }
        content.words.validate().unwrap();
        for entry in &entries {
            assert!(entry.remove_from(&mut content), "{entry}");
            assert!(!entry.remove_from(&mut content), "twice: {entry}");
        }
        assert_eq!(content, empty);
    }

    #[test]
    fn what_the_owner_said_stays() {
        let mut content = Content::default();
        content.words.boosts.tools.insert("mail/send".into(), 2.0);
        content.words.boosts.tools.insert("mail/read".into(), 0.5);
        content.search.fold_duplicates = Some(false);
        content.search.companions = Some(true);
        let mut own = pin("page", "pager/call");
        own.matching = Matching::Contains;
        content.words.pins.insert("own".into(), own);
        let before = content.clone();
        for entry in &every_kind()[4..] {
            assert!(!entry.add_to(&mut content), "{entry}");
            assert!(!entry.remove_from(&mut content), "{entry}");
        }
        assert_eq!(content, before);
    }

    #[test]
    fn a_tool_has_no_more_texts_than_fit() {
        let texts: Vec<Entry> = (0..MAX_ENRICHMENT_TEXTS + 1)
            .map(|number| text(&format!("request {number}")))
            .collect();
        let mut content = Content::default();
        let added: Vec<bool> = texts
            .iter()
            .map(|entry| entry.add_to(&mut content))
            .collect();
        assert_eq!(
            added.iter().filter(|added| **added).count(),
            MAX_ENRICHMENT_TEXTS
        );
        assert!(!added[MAX_ENRICHMENT_TEXTS]);
    }

    #[test]
    fn every_entry_is_a_line_and_is_read_back() {
        for entry in every_kind() {
            assert_eq!(entry.to_string().lines().count(), 1);
            let json = serde_json::to_string(&entry).unwrap();
            assert_eq!(serde_json::from_str::<Entry>(&json).unwrap(), entry);
        }
    }
}
