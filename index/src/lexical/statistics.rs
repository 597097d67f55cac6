//! The statistics of a whole catalog, for a searcher that has only some of its tools.

use std::collections::{HashMap, HashSet};

use super::fuzzy::{EditAutomaton, MAX_TERMS_TO_CORRECT};
use crate::language::Language;
use crate::text::{self, Term};

/// What scoring has to know of a catalog beside the tools at hand.
#[derive(Clone, Debug, Default)]
pub struct CatalogStatistics {
    /// Number of tools.
    pub tools: u64,
    /// The weighted lengths of all tools together, in steps.
    pub length: u64,
    /// The number of tools that have a term. A term that is missing here is in no tool.
    pub frequencies: HashMap<String, u64>,
    /// Words of the catalog that may be what a misspelt word of the request should have been.
    pub near_words: Vec<NearWord>,
    /// The languages of the tools, each once.
    pub languages: Vec<Language>,
    /// Tools without all of their vectors, by the id of the embedder.
    pub pending: HashMap<String, usize>,
    /// Number of tools with an enrichment.
    pub enriched: u64,
}

/// A word that some tool has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearWord {
    /// As written in the catalog.
    pub word: String,
    /// True if it is in the name of a tool.
    pub is_in_name: bool,
    /// True if it is in another field of a tool.
    pub is_elsewhere: bool,
}

impl CatalogStatistics {
    /// The number of tools that have a term.
    pub fn frequency(&self, term: &str) -> u64 {
        self.frequencies.get(term).copied().unwrap_or_default()
    }

    /// The words among these terms of one text that no tool has and that are corrected, each once.
    pub fn misspelt<'a>(&self, terms: &'a [Term]) -> Vec<&'a str> {
        if terms.len() > MAX_TERMS_TO_CORRECT {
            return Vec::new();
        }
        let mut seen = HashSet::new();
        let mut misspelt = Vec::new();
        for Term { word, term } in terms {
            // Short words, numbers and CJK are not corrected.
            if self.frequency(term) == 0
                && EditAutomaton::of(word).is_some()
                && seen.insert(word.as_str())
            {
                misspelt.push(word.as_str());
            }
        }
        misspelt
    }
}

impl NearWord {
    /// As it is indexed.
    pub fn term(&self) -> String {
        text::stem(&self.word)
    }
}
