//! How many tools have a word. Scoring needs this of all words of a query and of its candidates, and the engines tell
//! it cheaply of a few words only. So the tools are read once, all of them or some at random, and counted here.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use toolscout_index::language::Language;
use toolscout_index::pushdown::{CatalogStatistics, Footprint, NearWord};
use toolscout_index::{Tool, Weights};

use crate::engine::{Engine, Which};
use crate::failure::Failure;
use crate::layout::Layout;

/// Tools that are counted at most: as many as the engines let a search page through.
pub const MAX_COUNTED: usize = 10_000;
/// Tools that are read by one request.
const PAGE: usize = 500;
/// Terms and words that are remembered at most.
const MAX_WORDS: usize = 400_000;
/// Edits that a misspelt word may be away, as in the engine, and words that are named for one.
const MAX_EDITS: usize = 2;
const MAX_NEAR: usize = 200;

/// Counts of tools by word.
#[derive(Default)]
pub struct Sketch {
    /// Tools of the catalog.
    pub total: u64,
    /// Tools that were counted.
    pub counted: u64,
    length: u64,
    frequencies: HashMap<String, u32>,
    /// By word, whether it is in a name, and whether it is elsewhere.
    words: HashMap<String, (bool, bool)>,
    languages: BTreeMap<&'static str, Language>,
}

impl Sketch {
    /// Reads the tools of an index.
    ///
    /// # Errors
    /// Every [`Failure`].
    pub async fn read(
        engine: &dyn Engine,
        layout: &Layout,
        weights: &Weights,
    ) -> Result<Self, Failure> {
        // This is no part of a search, so it may take longer than one.
        let limit = 10 * engine.timeout();
        let mut sketch = Sketch {
            total: engine.count(layout, Which::All, limit).await?,
            ..Sketch::default()
        };
        let (mut from, mut size) = (None, PAGE);
        while sketch.counted < MAX_COUNTED as u64 {
            let wanted = size.min(MAX_COUNTED - sketch.counted as usize);
            let page = match engine.sample(layout, from.as_ref(), wanted, limit).await {
                // Large documents come in smaller pages.
                Err(failure) if failure.is_too_large && size > 1 => {
                    size = (size / 4).max(1);
                    continue;
                }
                page => page?,
            };
            for document in &page.documents {
                sketch.add_document(layout, document, weights);
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Ok(sketch)
    }

    fn add_document(&mut self, layout: &Layout, source: &Value, weights: &Weights) {
        match layout.tool(source) {
            Some(tool) => self.add(&tool, weights),
            // Counted as read, so that the share stays right and the next page begins behind it.
            None => self.counted += 1,
        }
    }

    /// Counts a tool.
    pub fn add(&mut self, tool: &Tool, weights: &Weights) {
        let footprint = Footprint::of(tool, weights);
        self.counted += 1;
        self.length += footprint.analysis.length;
        self.languages
            .insert(footprint.language.name(), footprint.language);
        for term in footprint.analysis.terms.into_keys() {
            // Once there are too many, further ones are not counted, and `is_exact` says so.
            if self.frequencies.len() < MAX_WORDS || self.frequencies.contains_key(&term) {
                *self.frequencies.entry(term).or_default() += 1;
            }
        }
        for word in footprint.analysis.name_words {
            self.word(word).0 = true;
        }
        for word in footprint.analysis.words {
            self.word(word).1 = true;
        }
    }

    fn word(&mut self, word: String) -> &mut (bool, bool) {
        if self.words.len() >= MAX_WORDS && !self.words.contains_key(&word) {
            // One that is overwritten again and again: further words are not remembered.
            return self.words.entry(String::new()).or_default();
        }
        self.words.entry(word).or_default()
    }

    /// True if every tool was counted.
    pub fn is_exact(&self) -> bool {
        self.counted >= self.total && self.frequencies.len() < MAX_WORDS
    }

    /// How many tools have a term, as far as it can be told from those that were counted.
    pub fn frequency(&self, term: &str) -> u64 {
        let counted = u64::from(self.frequencies.get(term).copied().unwrap_or_default());
        match self.is_exact() {
            true => counted,
            false => (counted as f64 * self.scale()).round() as u64,
        }
    }

    fn scale(&self) -> f64 {
        self.total as f64 / self.counted.max(1) as f64
    }

    /// The statistics of the catalog, without words.
    pub fn statistics(&self) -> CatalogStatistics {
        CatalogStatistics {
            tools: self.total,
            length: (self.length as f64 * self.scale()).round() as u64,
            languages: self.languages.values().copied().collect(),
            ..CatalogStatistics::default()
        }
    }

    /// The words that may be what a misspelt one should have been, the nearest first.
    pub fn near(&self, misspelt: &str) -> Vec<NearWord> {
        let length = misspelt.chars().count();
        let mut near = Vec::new();
        for (word, &(is_in_name, is_elsewhere)) in &self.words {
            // As many edits are needed as the lengths differ, at least.
            if word.is_empty() || word.chars().count().abs_diff(length) > MAX_EDITS {
                continue;
            }
            let edits = strsim::osa_distance(word, misspelt);
            if edits <= MAX_EDITS {
                near.push((
                    edits,
                    NearWord {
                        word: word.clone(),
                        is_in_name,
                        is_elsewhere,
                    },
                ));
            }
        }
        near.sort_unstable_by(|(a, one), (b, other)| {
            a.cmp(b).then_with(|| one.word.cmp(&other.word))
        });
        near.truncate(MAX_NEAR);
        near.into_iter().map(|(_, word)| word).collect()
    }
}
