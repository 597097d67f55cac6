//! BM25 over tantivy's postings, term at a time, with one accumulator per tool.
//!
//! Fusion scales scores by their range, so it needs the scores of all tools, not a top k. Each
//! term's postings are read once, in order, without a heap. Document frequencies count only tools
//! that are not deleted, so a catalog with a long history scores like a new one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use tantivy::index::SegmentId;
use tantivy::postings::BlockSegmentPostings;
use tantivy::schema::{Field as TantivyField, IndexRecordOption, Term as TantivyTerm};
use tantivy::{InvertedIndexReader, SegmentReader};

use super::{
    Analysis, CatalogStatistics, Fields, Frequencies, LexicalSettings, STEPS_PER_WEIGHT, fuzzy,
};
use crate::everyday::Phrase;
use crate::hit::FuzzyEdit;
use crate::moves::{GONE, Moves};
use crate::owner_words::FoundSynonyms;
use crate::text::{self, ByTerm, Term};

/// The position of a deleted document.
const DEAD: u32 = GONE;

/// The weight of a corrected term relative to a matched one.
const FUZZY_WEIGHT: f32 = 0.7;

/// The weight of the owner's synonyms, relative to a matched term: the owner means them to be the same.
const SYNONYM_WEIGHT: f32 = 1.0;

/// The weight of the words that are added for an everyday phrase, relative to a matched term.
const EVERYDAY_WEIGHT: f32 = 1.0;

/// The same for a word that tools also use themselves: mostly it means what it says.
const AMBIGUOUS_WEIGHT: f32 = 0.3;

/// A length that few tools exceed, as a multiple of the catalog's mean. Beyond it a length counts more:
/// a text that has the words of every request would else be found by most.
const USUAL_LENGTH: f32 = 6.0;

/// An immutable view of the lexical index. Tools are numbered by their position in the snapshot.
pub struct LexicalSearcher {
    segments: Vec<Segment>,
    fields: Fields,
    frequencies: Frequencies,
    k1: f32,
    /// k1 times the length normalisation, by tool.
    norms: Vec<f32>,
    /// The weighted length in steps, by tool.
    lengths: Vec<u64>,
    rarities: OnceLock<Rarities>,
    /// Where the tools are only some of a catalog's, what is known of all of them.
    whole: Option<Arc<CatalogStatistics>>,
    /// Of the files that it holds in memory.
    file_bytes: usize,
}

/// How rare terms are.
struct Rarities {
    /// The number of tools that have each term, above 0.
    tools: ByTerm<u32>,
    /// The inverse document frequency of each.
    by_term: ByTerm<f32>,
}

/// What changed since another snapshot of the same index.
pub struct Changed<'a> {
    /// How the positions of tools have changed.
    pub moves: &'a Moves,
    /// The keys and the analyses of new tools, in the order of positions.
    pub added: &'a [(u64, Analysis)],
    /// The keys and the analyses of the tools that are gone.
    pub removed: &'a [(u64, Analysis)],
    /// The key of a tool that the former snapshot has, by its position there.
    pub key_of: &'a dyn Fn(usize) -> u64,
}

struct Segment {
    id: SegmentId,
    fields: Fields,
    body: Arc<InvertedIndexReader>,
    name_words: Arc<InvertedIndexReader>,
    words: Arc<InvertedIndexReader>,
    /// Tool by document; [`DEAD`] for deleted ones.
    ordinals: Arc<[u32]>,
    has_deletes: bool,
}

/// A query's distinct terms as they will be scored.
#[derive(Clone, Debug, Default)]
pub struct QueryTerms {
    terms: Vec<(String, f32)>,
    /// Terms that no tool contains, corrected or not.
    unknown: usize,
    /// Words that matched nothing and their corrections.
    pub fuzzy: Vec<FuzzyEdit>,
    /// Phrases and the words that are searched for beside them.
    pub added: Vec<Added>,
    /// Words that no tool has, and in whose place the owner's synonyms are searched for.
    replaced: Vec<String>,
}

/// A phrase and what the catalog's tools say instead.
#[derive(Clone, Debug)]
pub struct Added {
    /// The phrase as it was said.
    pub said: String,
    /// Who says that the words mean the same.
    pub origin: Origin,
    /// The words, which some tool has and the query has not; never empty.
    pub words: Vec<Term>,
    weight: f32,
}

/// Where the words for a phrase come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The everyday phrases of the crate.
    Everyday,
    /// The synonyms of the catalog's owner.
    Owner,
}

/// The lexical scores of one text.
#[derive(Clone, Debug, Default)]
pub struct Scored {
    /// One score per tool; 0 for tools without any of the terms.
    pub by_tool: Vec<f32>,
    /// The upper bound of a score: that of a tool with unlimited occurrences of every term of the
    /// text, including unknown ones.
    pub limit: f32,
    /// The upper bound of each term's part in the score, in the order of terms.
    pub gains: Vec<f32>,
}

impl QueryTerms {
    /// Number of distinct words that no tool contains, corrected or not.
    pub fn unknown(&self) -> usize {
        self.unknown
    }

    /// True if the text has this term and a tool has it too.
    pub fn has_known(&self, term: &str) -> bool {
        // A correction has a lower weight.
        self.terms
            .iter()
            .any(|(known, weight)| known == term && *weight == 1.0)
    }

    /// True for a word in whose place a synonym is searched for.
    pub fn is_replaced(&self, word: &str) -> bool {
        self.replaced.iter().any(|replaced| replaced == word)
    }

    /// The indexed terms that are searched for, without those of [`QueryTerms::added`].
    pub fn terms(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|(term, _)| term.as_str())
    }
}

impl QueryTerms {
    /// Adds words that are searched for beside phrases, each once.
    fn add_all(&mut self, added: Vec<Added>) {
        for mut next in added {
            next.words.retain(|word| !self.searches(&word.term));
            if !next.words.is_empty() {
                self.added.push(next);
            }
        }
    }

    /// True if a term is searched for as it was said, or beside a phrase.
    fn searches(&self, term: &str) -> bool {
        self.has_known(term) || self.added_terms().any(|added| added == term)
    }

    /// The terms that are searched for beside phrases.
    pub fn added_terms(&self) -> impl Iterator<Item = &str> {
        let words = self.added.iter().flat_map(|added| &added.words);
        words.map(|word| word.term.as_str())
    }
}

impl LexicalSearcher {
    /// `None` when the index holds a document that the catalog does not.
    pub(super) fn new(
        searcher: &tantivy::Searcher,
        fields: Fields,
        ordinals: &HashMap<u64, u32>,
        settings: &LexicalSettings,
        whole: Option<Arc<CatalogStatistics>>,
    ) -> tantivy::Result<Option<Self>> {
        let mut segments = Vec::new();
        let mut lengths = vec![0u64; ordinals.len()];
        for reader in searcher.segment_readers() {
            let length_of = |tool: u32, length| lengths[tool as usize] = length;
            let Some(segment) = Segment::open(reader, fields, ordinals, length_of)? else {
                return Ok(None);
            };
            segments.push(segment);
        }
        Ok(Some(LexicalSearcher {
            norms: norms(&lengths, settings, whole.as_deref()),
            lengths,
            segments,
            fields,
            frequencies: Frequencies::new(&settings.weights),
            k1: settings.k1,
            rarities: OnceLock::new(),
            whole,
            file_bytes: 0,
        }))
    }

    /// The snapshot after a change of the index, whose segments these are; `None` when the index
    /// holds a document that the catalog does not.
    ///
    /// tantivy keeps documents in segments of its own, in the order of their writing. So segments take the
    /// place of [`Moves::blocks`]: those that stay get a table of new positions, and others are read.
    pub(super) fn changed(
        &self,
        segments: &[tantivy::Segment],
        settings: &LexicalSettings,
        changed: &Changed<'_>,
    ) -> tantivy::Result<Option<Self>> {
        let positions = changed.moves.new_positions();
        let mut new = Vec::with_capacity(segments.len());
        for segment in segments {
            let known = self.segments.iter().find(|known| known.id == segment.id());
            new.push(known.map(|known| known.moved(&positions)));
        }
        let mut ordinals = HashMap::new();
        for ((key, _), position) in changed.added.iter().zip(changed.moves.added_positions()) {
            ordinals.insert(*key, position as u32);
        }
        // Segments that are gone were merged into new ones.
        for former in &self.segments {
            if segments.iter().any(|segment| segment.id() == former.id) {
                continue;
            }
            for &tool in former.ordinals.iter().filter(|tool| **tool != DEAD) {
                let position = positions[tool as usize];
                if position != GONE {
                    ordinals.insert((changed.key_of)(tool as usize), position);
                }
            }
        }
        let mut opened = Vec::with_capacity(segments.len());
        let mut indexed = 0;
        for (segment, known) in segments.iter().zip(new) {
            let segment = match known {
                Some(known) => known,
                None => {
                    let reader = SegmentReader::open(segment)?;
                    match Segment::open(&reader, self.fields, &ordinals, |_, _| {})? {
                        Some(opened) => opened,
                        None => return Ok(None),
                    }
                }
            };
            indexed += segment
                .ordinals
                .iter()
                .filter(|tool| **tool != DEAD)
                .count();
            opened.push(segment);
        }
        if indexed != changed.moves.len() {
            return Ok(None);
        }
        let length_of = |number: usize| changed.added[number].1.length;
        let lengths = changed.moves.applied(&self.lengths, length_of);
        let searcher = LexicalSearcher {
            norms: norms(&lengths, settings, None),
            lengths,
            segments: opened,
            fields: self.fields,
            frequencies: Frequencies::new(&settings.weights),
            k1: settings.k1,
            rarities: OnceLock::new(),
            whole: None,
            file_bytes: self.file_bytes,
        };
        if let Some(rarities) = self.rarities.get() {
            let rarities = searcher.changed_rarities(rarities, self.norms.len(), changed);
            let _ = searcher.rarities.set(rarities);
        }
        Ok(Some(searcher))
    }

    /// The rarities of a former snapshot of so many tools, after a change.
    fn changed_rarities(
        &self,
        former: &Rarities,
        former_tools: usize,
        change: &Changed<'_>,
    ) -> Rarities {
        let mut tools = former.tools.clone();
        let mut changed = HashSet::new();
        let terms_of = |tools: &'_ [(u64, Analysis)]| -> Vec<u32> {
            let terms = tools.iter().flat_map(|(_, analysis)| analysis.terms.keys());
            terms.map(|term| text::term_hash(term)).collect()
        };
        for term in terms_of(change.added) {
            *tools.entry(term).or_default() += 1;
            changed.insert(term);
        }
        for term in terms_of(change.removed) {
            if let Some(count) = tools.get_mut(&term) {
                *count = count.saturating_sub(1);
            }
            changed.insert(term);
        }
        if former_tools != self.norms.len() {
            tools.retain(|_, count| *count > 0);
            return self.rarities_of(tools);
        }
        let mut by_term = former.by_term.clone();
        for hash in changed {
            match tools.get(&hash) {
                Some(&count) if count > 0 => {
                    by_term.insert(hash, self.idf(count as usize));
                }
                _ => {
                    tools.remove(&hash);
                    by_term.remove(&hash);
                }
            }
        }
        Rarities { tools, by_term }
    }

    fn rarities_of(&self, tools: ByTerm<u32>) -> Rarities {
        let mut by_term = ByTerm::with_capacity_and_hasher(tools.len(), Default::default());
        for (&term, &count) in &tools {
            by_term.insert(term, self.idf(count as usize));
        }
        Rarities { tools, by_term }
    }

    /// Without a tool: tells only what is known of the whole catalog.
    pub fn without_tools(settings: &LexicalSettings, whole: Arc<CatalogStatistics>) -> Self {
        LexicalSearcher {
            segments: Vec::new(),
            fields: super::schema().1,
            frequencies: Frequencies::new(&settings.weights),
            k1: settings.k1,
            norms: Vec::new(),
            lengths: Vec::new(),
            rarities: OnceLock::new(),
            whole: Some(whole),
            file_bytes: 0,
        }
    }

    /// The same over files of this size in memory.
    pub(super) fn with_bytes(self, file_bytes: usize) -> Self {
        LexicalSearcher { file_bytes, ..self }
    }

    /// Bytes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        // The rarities of terms take about as much as the terms themselves.
        2 * self.file_bytes + 4 * size_of::<f32>() * self.norms.len()
    }

    /// Looks up the distinct terms of a text. A word that matches nothing is replaced by the most
    /// similar indexed words.
    pub fn resolve(&self, text_terms: &[Term]) -> QueryTerms {
        let mut resolved = QueryTerms::default();
        let correct = text_terms.len() <= fuzzy::MAX_TERMS_TO_CORRECT;
        // A set, since Chinese text of the longest request has thousands of terms.
        let mut known = HashSet::new();
        for term in text_terms {
            if known.contains(&term.term) {
                continue;
            }
            if self.occurs(&term.term) {
                known.insert(term.term.clone());
                resolved.terms.push((term.term.clone(), 1.0));
            } else {
                resolved.unknown += 1;
                if correct {
                    self.correct(&term.word, &mut known, &mut resolved);
                }
            }
        }
        resolved
    }

    /// As [`LexicalSearcher::resolve`], with the synonyms of phrases of the text. In place of a phrase with
    /// a word that no tool has, its first synonym that tools have is searched for, as if it had been
    /// said; all other synonyms are searched for beside what was said.
    pub fn resolve_with(&self, text_terms: &[Term], found: &[FoundSynonyms]) -> QueryTerms {
        let mut searched = text_terms.to_vec();
        let mut replaced = Vec::new();
        let mut added = Vec::new();
        for phrase in found {
            let mut known = self.known_synonyms(phrase).into_iter();
            let mut missing = phrase.terms.clone();
            missing.retain(|term| !self.occurs(&term.term));
            if !missing.is_empty()
                && let Some(first) = known.next()
            {
                searched.retain(|term| !missing.contains(term));
                replaced.extend(missing.into_iter().map(|term| term.word));
                searched.extend(first);
            }
            for words in known {
                added.push(Added {
                    said: phrase.phrase.clone(),
                    origin: Origin::Owner,
                    words,
                    weight: SYNONYM_WEIGHT,
                });
            }
        }
        let mut resolved = self.resolve(&searched);
        resolved.replaced = replaced;
        resolved.add_all(added);
        resolved
    }

    /// The terms of each synonym that some tool has; synonyms without any are left out.
    fn known_synonyms(&self, phrase: &FoundSynonyms) -> Vec<Vec<Term>> {
        let mut known = Vec::new();
        for synonym in &phrase.synonyms {
            let mut terms = synonym.terms.clone();
            terms.retain(|term| self.occurs(&term.term));
            if !terms.is_empty() {
                known.push(terms);
            }
        }
        known
    }

    /// What the catalog's tools say instead of everyday phrases. Words that no tool has are left
    /// out, and so are those that the query has itself.
    pub fn everyday(&self, query: &QueryTerms, phrases: &[Phrase]) -> Vec<Added> {
        let mut all = Vec::new();
        for phrase in phrases {
            let mut words = Vec::new();
            for word in phrase.words {
                if !query.searches(&word.term) && self.occurs(&word.term) {
                    words.push(word.clone());
                }
            }
            if words.is_empty() {
                continue;
            }
            // A single word that tools also use mostly means what it says.
            let is_ambiguous = phrase.stems.len() == 1 && query.has_known(&phrase.stems[0]);
            all.push(Added {
                said: phrase.said.clone(),
                origin: Origin::Everyday,
                words,
                weight: if is_ambiguous {
                    AMBIGUOUS_WEIGHT
                } else {
                    EVERYDAY_WEIGHT
                },
            });
        }
        all
    }

    /// Adds up each tool's BM25 score.
    pub fn score(&self, query: &QueryTerms) -> Scored {
        let mut by_tool = vec![0.0; self.norms.len()];
        let mut limit = query.unknown as f32 * self.idf(0) * (self.k1 + 1.0);
        let mut gains = Vec::with_capacity(query.terms.len());
        let mut postings = Vec::new();
        for (term, weight) in &query.terms {
            self.collect(term, &mut postings);
            let gain = weight * self.full_match(term, postings.len());
            gains.push(gain);
            // A correction replaces an unknown word, whose part is already in the limit.
            // The comparison is exact: a matched term has weight 1, a correction .7 or less.
            limit += if *weight == 1.0 { gain } else { 0.0 };
            self.add(gain, &postings, &mut by_tool);
        }
        self.add_everyday(query, &mut by_tool);
        Scored {
            by_tool,
            limit,
            gains,
        }
    }

    /// Adds what words beside everyday phrases are worth. They are no part of the limit: a tool that
    /// has what was said lacks nothing.
    fn add_everyday(&self, query: &QueryTerms, by_tool: &mut [f32]) {
        let mut postings = Vec::new();
        for added in &query.added {
            for word in &added.words {
                self.collect(&word.term, &mut postings);
                let gain = added.weight * self.full_match(&word.term, postings.len());
                self.add(gain, &postings, by_tool);
            }
        }
    }

    /// Adds what a term is worth to each tool that has it.
    fn add(&self, gain: f32, postings: &[(u32, f32)], by_tool: &mut [f32]) {
        for &(tool, frequency) in postings {
            let tool = tool as usize;
            by_tool[tool] += gain * frequency / (frequency + self.norms[tool]);
        }
    }

    /// What a term is worth to a tool with unlimited occurrences of it. `here` tools contain it.
    fn full_match(&self, term: &str, here: usize) -> f32 {
        let tools = match &self.whole {
            Some(whole) => whole.frequency(term) as usize,
            None => here,
        };
        self.idf(tools) * (self.k1 + 1.0)
    }

    /// The terms that are searched for, each with what it is worth to a tool with unlimited
    /// occurrences of it. Known only with the statistics of a whole catalog.
    pub fn gains(&self, query: &QueryTerms) -> Vec<(String, f32)> {
        let mut gains = Vec::with_capacity(query.terms.len());
        for (term, weight) in &query.terms {
            gains.push((term.clone(), weight * self.full_match(term, 0)));
        }
        for added in &query.added {
            for Term { term, .. } in &added.words {
                gains.push((term.clone(), added.weight * self.full_match(term, 0)));
            }
        }
        gains
    }

    /// Inverse document frequency of a term that this many tools contain.
    fn idf(&self, tools: usize) -> f32 {
        let all = match &self.whole {
            Some(whole) => whole.tools as usize,
            None => self.norms.len(),
        };
        let (all, with) = (all as f32, tools as f32);
        // Lucene's form, which stays positive for a term that all tools have.
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }

    /// The inverse document frequency of every term, by [`text::term_hash`]. Computed on first use,
    /// in some milliseconds.
    pub fn rarities(&self) -> &ByTerm<f32> {
        let count = || self.rarities_of(self.tools_by_term());
        &self.rarities.get_or_init(count).by_term
    }

    /// The number of tools that have each term.
    fn tools_by_term(&self) -> ByTerm<u32> {
        let mut tools = ByTerm::default();
        let Some(whole) = &self.whole else {
            for segment in &self.segments {
                segment.count_tools(&mut tools);
            }
            // The words of deleted tools stay in the dictionary for a while.
            tools.retain(|_, count| *count > 0);
            return tools;
        };
        for (term, &count) in &whole.frequencies {
            if count > 0 {
                // Terms of one hash together, as the segments count them.
                *tools.entry(text::term_hash(term)).or_default() += count as u32;
            }
        }
        tools
    }

    /// The words of all tools as they are written, repeats included.
    pub fn written_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for segment in &self.segments {
            for field in [self.fields.name_words, self.fields.words] {
                let Ok(mut terms) = segment.postings(field).terms().stream() else {
                    continue;
                };
                while terms.advance() {
                    // The words of deleted tools stay in the dictionary for a while.
                    if let Ok(word) = std::str::from_utf8(terms.key())
                        && (!segment.has_deletes || segment.holds(field, word))
                    {
                        words.push(word.to_owned());
                    }
                }
            }
        }
        words
    }

    /// Finds the terms of a text without correcting any, with the terms of its translation and of the
    /// synonyms of its phrases.
    pub fn resolve_translated(
        &self,
        text_terms: &[Term],
        translated: &[Term],
        found: &[FoundSynonyms],
    ) -> QueryTerms {
        let mut resolved = QueryTerms::default();
        let mut known = HashSet::new();
        let mut all: Vec<&Term> = text_terms.iter().chain(translated).collect();
        for phrase in found {
            for synonym in &phrase.synonyms {
                all.extend(&synonym.terms);
            }
        }
        for term in all {
            if known.insert(term.term.clone()) && self.occurs(&term.term) {
                resolved.terms.push((term.term.clone(), 1.0));
            }
        }
        resolved
    }

    /// Adds the corrections of a word, apart from terms that are already `known`.
    fn correct(&self, word: &str, known: &mut HashSet<String>, resolved: &mut QueryTerms) {
        let Some(automaton) = fuzzy::EditAutomaton::of(word) else {
            return;
        };
        // Words of names first, so that `calender` becomes the `calendar` of a name before that of
        // a description.
        let mut nearest = self.nearest(&automaton, self.fields.name_words);
        if nearest.is_empty() {
            nearest = self.nearest(&automaton, self.fields.words);
        }
        // They share the weight of one: a vague word must not outweigh a known one.
        let weight = FUZZY_WEIGHT / nearest.len().max(1) as f32;
        for found in nearest {
            if known.insert(found.term.clone()) {
                resolved.terms.push((found.term, weight));
            }
            resolved.fuzzy.push(FuzzyEdit {
                from: word.to_owned(),
                to: found.word,
                edits: found.edits,
            });
        }
    }

    /// The nearest words of a field.
    fn nearest(
        &self,
        automaton: &fuzzy::EditAutomaton,
        field: TantivyField,
    ) -> Vec<fuzzy::Nearest> {
        let occurs = |term: &str| self.occurs(term);
        if let Some(whole) = &self.whole {
            let mut words = Vec::new();
            for near in &whole.near_words {
                let is_in_field = match field == self.fields.name_words {
                    true => near.is_in_name,
                    false => near.is_elsewhere,
                };
                if is_in_field {
                    words.push(near.word.as_str());
                }
            }
            return automaton.nearest_of(&words, occurs);
        }
        let dictionaries = self.segments.iter().map(|segment| {
            let dictionary = segment.postings(field);
            (dictionary, move |word: &str| segment.holds(field, word))
        });
        automaton.nearest(dictionaries, occurs)
    }

    fn occurs(&self, term: &str) -> bool {
        if let Some(whole) = &self.whole {
            return whole.frequency(term) > 0;
        }
        self.segments
            .iter()
            .any(|segment| segment.holds(self.fields.body, term))
    }

    fn collect(&self, term: &str, postings: &mut Vec<(u32, f32)>) {
        postings.clear();
        for segment in &self.segments {
            segment.for_each_block(self.fields.body, term, |block| {
                let documents = block.docs().iter().zip(block.freqs());
                let tools = documents.map(|(&document, &stored)| {
                    let tool = segment.ordinals[document as usize];
                    (tool, self.frequencies.read(stored))
                });
                if segment.has_deletes {
                    postings.extend(tools.filter(|(tool, _)| *tool != DEAD));
                } else {
                    // Their number is known, so there is no check for room at each one.
                    postings.extend(tools);
                }
                true
            });
        }
    }
}

/// All of BM25's denominator but the frequency, by tool, computed once a snapshot and not once a
/// posting.
fn norms(
    lengths: &[u64],
    settings: &LexicalSettings,
    whole: Option<&CatalogStatistics>,
) -> Vec<f32> {
    let (length, tools) = match whole {
        Some(whole) => (whole.length, whole.tools),
        None => (lengths.iter().sum(), lengths.len() as u64),
    };
    // As doubles: a sum of a million lengths would lose digits.
    let average = length as f64 / f64::from(STEPS_PER_WEIGHT) / tools.max(1) as f64;
    // Otherwise no tool has a word, so no norm is used.
    let average = if average > 0.0 { average as f32 } else { 1.0 };
    let LexicalSettings { k1, b, .. } = *settings;
    let mut norms = vec![0.0; lengths.len()];
    for (norm, &length) in norms.iter_mut().zip(lengths) {
        let share = length as f32 / STEPS_PER_WEIGHT / average;
        *norm = k1 * (1.0 - b + b * share * (share / USUAL_LENGTH).max(1.0));
    }
    norms
}

impl Segment {
    fn open(
        reader: &SegmentReader,
        fields: Fields,
        ordinals: &HashMap<u64, u32>,
        mut length_of: impl FnMut(u32, u64),
    ) -> tantivy::Result<Option<Self>> {
        let keys = reader.fast_fields().u64("key")?;
        let steps = reader.fast_fields().u64("length")?;
        let mut by_document = vec![DEAD; reader.max_doc() as usize];
        for document in reader.doc_ids_alive() {
            let Some(&tool) = keys.first(document).and_then(|key| ordinals.get(&key)) else {
                return Ok(None);
            };
            by_document[document as usize] = tool;
            length_of(tool, steps.first(document).unwrap_or(0));
        }
        Ok(Some(Segment {
            id: reader.segment_id(),
            fields,
            body: reader.inverted_index(fields.body)?,
            name_words: reader.inverted_index(fields.name_words)?,
            words: reader.inverted_index(fields.words)?,
            ordinals: by_document.into(),
            has_deletes: reader.has_deletes(),
        }))
    }

    /// The same segment after tools have moved to these positions.
    fn moved(&self, positions: &[u32]) -> Self {
        let mut has_moved = false;
        let mut has_deletes = self.has_deletes;
        for &tool in self.ordinals.iter().filter(|tool| **tool != DEAD) {
            let position = positions[tool as usize];
            has_moved |= position != tool;
            has_deletes |= position == DEAD;
        }
        let ordinals = match has_moved {
            false => Arc::clone(&self.ordinals),
            true => {
                let position_of = |tool: &u32| match *tool {
                    DEAD => DEAD,
                    tool => positions[tool as usize],
                };
                self.ordinals.iter().map(position_of).collect()
            }
        };
        Segment {
            id: self.id,
            fields: self.fields,
            body: Arc::clone(&self.body),
            name_words: Arc::clone(&self.name_words),
            words: Arc::clone(&self.words),
            ordinals,
            has_deletes,
        }
    }

    /// True when a tool that is not deleted has the term in this field.
    fn holds(&self, field: TantivyField, term: &str) -> bool {
        let mut alive = false;
        self.for_each_block(field, term, |block| {
            // Without deletions the term's presence is enough.
            alive =
                !self.has_deletes || block.docs().iter().any(|document| self.is_alive(*document));
            !alive
        });
        alive
    }

    fn is_alive(&self, document: u32) -> bool {
        self.ordinals[document as usize] != DEAD
    }

    /// Adds the document frequency of each term, without deleted tools.
    fn count_tools(&self, tools: &mut ByTerm<u32>) {
        // As in `for_each_block`, a read error counts as the end.
        let Ok(mut terms) = self.body.terms().stream() else {
            return;
        };
        while terms.advance() {
            let Ok(term) = std::str::from_utf8(terms.key()) else {
                continue;
            };
            let mut count = terms.value().doc_freq;
            // The dictionary's number includes deleted tools, so their postings have to be read.
            if self.has_deletes {
                count = 0;
                self.for_each_block(self.fields.body, term, |block| {
                    for document in block.docs() {
                        count += u32::from(self.is_alive(*document));
                    }
                    true
                });
            }
            // Added and not set: a term may occur in several segments.
            *tools.entry(text::term_hash(term)).or_default() += count;
        }
    }

    /// Visits the term's postings block by block until `visit` returns false. A read error ends the
    /// postings: the files were checked when the index was opened.
    fn for_each_block(
        &self,
        field: TantivyField,
        term: &str,
        mut visit: impl FnMut(&BlockSegmentPostings) -> bool,
    ) {
        let term = TantivyTerm::from_field_text(field, term);
        let postings = self
            .postings(field)
            .read_block_postings(&term, IndexRecordOption::WithFreqs);
        let Ok(Some(mut block)) = postings else {
            return;
        };
        // Postings that are exhausted have an empty block.
        while block.block_len() > 0 && visit(&block) {
            block.advance();
        }
    }

    fn postings(&self, field: TantivyField) -> &InvertedIndexReader {
        match field {
            field if field == self.fields.name_words => &self.name_words,
            field if field == self.fields.words => &self.words,
            _ => &self.body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The norm of a tool of this length among 999 tools of length 10.
    fn norm_of(length: u64) -> f32 {
        let mut lengths = vec![100; 999];
        lengths.push(length * 10);
        let norms = norms(&lengths, &LexicalSettings::default(), None);
        *norms.last().expect("a tool")
    }

    #[test]
    fn a_length_far_beyond_the_mean_counts_more_than_in_proportion() {
        let LexicalSettings { k1, b, .. } = LexicalSettings::default();
        let mean = |length: u64| (999.0 * 10.0 + length as f32) / 1_000.0;
        let usual = |length: u64| k1 * (1.0 - b + b * length as f32 / mean(length));
        for length in [1, 10, 30, 55] {
            assert!((norm_of(length) - usual(length)).abs() < 1e-3, "{length}");
        }
        for length in [100, 500, 2_000] {
            let ratio = norm_of(length) / usual(length);
            assert!(ratio > 1.5, "{length}: {ratio}");
        }
        // No step at the bound: a word more changes little.
        assert!(norm_of(62) - norm_of(59) < 0.15 * norm_of(59));
    }
}
