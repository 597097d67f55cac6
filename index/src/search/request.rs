//! The texts of a request and their vectors.

use super::translation::Translator;
use super::{Searcher, spelling};
use crate::clauses;
use crate::embed::{Languages, StaticTable};
use crate::everyday::Lexicon;
use crate::language::Language;
use crate::lexical::QueryTerms;
use crate::owner_words::{FoundSynonyms, WordIndex};
use crate::query::read_part;
use crate::text;
use crate::variant::Parts;

/// One text of a query with the texts it is searched by: itself, then its clauses if it has
/// several.
pub(super) struct RequestTexts {
    pub(super) texts: Vec<String>,
    pub(super) language: Language,
    /// The terms of each text as they were found in the catalog.
    pub(super) terms: Vec<QueryTerms>,
    /// True for a request without a single word of its language.
    pub(super) is_nonsense: bool,
    /// True for a request of punctuation and function words alone.
    pub(super) has_no_content: bool,
    /// English texts with misspelt words corrected, others translated; empty where nothing was
    /// changed.
    rewritten: Vec<String>,
    /// The phrases of each text that the catalog's owner gave synonyms; empty where no text has any.
    synonyms: Vec<Vec<FoundSynonyms>>,
    /// The texts as they were written, with these synonyms.
    expanded: Vec<String>,
}

impl RequestTexts {
    pub(super) fn new(text: &str, requested: Parts) -> Self {
        // The clauses are those of the part that is searched, so a pasted document costs no more.
        let text = read_part(text);
        let mut texts = vec![text.to_owned()];
        if requested.clauses {
            let clauses = clauses::clauses(text);
            // A single clause is the request itself.
            if clauses.len() > 1 {
                texts.extend(clauses);
            }
        }
        RequestTexts {
            texts,
            language: Language::of(text),
            terms: Vec::new(),
            is_nonsense: false,
            has_no_content: spelling::has_no_content(text),
            rewritten: Vec::new(),
            synonyms: Vec::new(),
            expanded: Vec::new(),
        }
    }

    /// Finds the phrases that the owner gave synonyms.
    pub(super) fn find_synonyms(&mut self, words: &WordIndex) {
        let mut all = Vec::with_capacity(self.texts.len());
        let mut has_any = false;
        for text in &self.texts {
            let found = words.synonyms(text);
            has_any |= !found.is_empty();
            all.push(found);
        }
        // Without any the list stays empty, which tells that the texts need no expansion.
        if has_any {
            self.synonyms = all;
        }
    }

    /// The phrases of a text that have synonyms, by the text's position.
    fn synonyms_of(&self, text: usize) -> &[FoundSynonyms] {
        self.synonyms.get(text).map_or(&[], Vec::as_slice)
    }

    /// The phrases of the whole request that have synonyms.
    pub(super) fn synonyms(&self) -> &[FoundSynonyms] {
        self.synonyms_of(0)
    }

    /// Adds the synonyms to the texts that are embedded, after these were corrected or translated.
    pub(super) fn expand(&mut self) {
        if self.synonyms.is_empty() {
            return;
        }
        self.expanded = expanded(&self.texts, &self.synonyms);
        self.rewritten = expanded(&self.rewritten, &self.synonyms);
    }

    /// The texts that these parts of the pipeline search by.
    pub(super) fn of(&self, parts: Parts) -> &[String] {
        if parts.clauses {
            &self.texts
        } else {
            self.whole()
        }
    }

    /// The request as a whole.
    pub(super) fn whole_text(&self) -> &str {
        &self.texts[0]
    }

    /// The request as a whole, as a list of one text.
    pub(super) fn whole(&self) -> &[String] {
        &self.texts[..1]
    }

    /// The clauses it was split into; none when it was taken whole.
    pub(super) fn clauses(&self) -> &[String] {
        &self.texts[1..]
    }

    /// Finds the terms of each text.
    pub(super) fn resolve(&mut self, searcher: &Searcher) {
        let mut resolved = Vec::with_capacity(self.texts.len());
        for (number, text) in self.texts.iter().enumerate() {
            let (terms, synonyms) = (text::terms(text), self.synonyms_of(number));
            resolved.push(searcher.with_words(|words| words.resolve_with(&terms, synonyms)));
        }
        self.terms = resolved;
    }

    /// Adds the words that tools use instead of everyday phrases, where the catalog has them.
    pub(super) fn add_everyday_words(&mut self, searcher: &Searcher) {
        for (text, terms) in self.texts.iter().zip(&mut self.terms) {
            let phrases = Lexicon::bundled().phrases(text);
            if !phrases.is_empty() {
                let added = searcher.with_words(|words| words.everyday(terms, &phrases));
                terms.added.extend(added);
            }
        }
    }

    /// Translates each text into English words, and finds the terms of both.
    pub(super) fn translate(&mut self, translator: &Translator, searcher: &Searcher) {
        self.rewritten = translator.translate(&self.texts, self.language);
        let mut resolved = Vec::with_capacity(self.texts.len());
        for (number, (text, translated)) in self.texts.iter().zip(&self.rewritten).enumerate() {
            let (own, english) = (text::terms(text), text::terms(translated));
            let synonyms = self.synonyms_of(number);
            resolved.push(
                searcher.with_words(|words| words.resolve_translated(&own, &english, synonyms)),
            );
        }
        self.terms = resolved;
    }

    /// True for a request that shows no sign of a language and is likelier no English.
    pub(super) fn is_foreign(&self, table: &StaticTable) -> bool {
        spelling::is_foreign(self.whole_text(), &self.terms[0], table)
    }

    /// Recognises a request without a single word.
    pub(super) fn recognise_nonsense(&mut self) {
        self.is_nonsense = spelling::is_nonsense(self.whole_text(), self.language, &self.terms[0]);
    }

    /// Corrects misspelt words in the texts that are embedded.
    pub(super) fn correct(&mut self, table: &StaticTable) {
        let mut has_changed = false;
        let mut texts = Vec::with_capacity(self.texts.len());
        for text in &self.texts {
            let corrected = spelling::corrected(text, &self.terms[0], table);
            has_changed |= corrected.is_some();
            texts.push(match corrected {
                Some(corrected) => corrected,
                None => text.clone(),
            });
        }
        // An unchanged request keeps no copy, so that it does not count as rewritten.
        if has_changed {
            self.rewritten = texts;
        }
    }

    /// True if it is embedded otherwise than it was written: corrected, translated or with synonyms.
    pub(super) fn is_rewritten(&self) -> bool {
        !self.rewritten.is_empty() || !self.expanded.is_empty()
    }

    /// The whole request in English words, if it was translated.
    pub(super) fn translation(&self) -> Option<&str> {
        match self.language {
            // What is rewritten in English is only corrected.
            Language::English => None,
            _ => self.rewritten.first().map(String::as_str),
        }
    }

    /// The texts as the ranker reads them: corrected or translated, and with synonyms.
    fn ranked(&self) -> &[String] {
        if !self.rewritten.is_empty() {
            &self.rewritten
        } else if !self.expanded.is_empty() {
            &self.expanded
        } else {
            &self.texts
        }
    }

    /// The whole request as the ranker reads it.
    pub(super) fn ranked_text(&self) -> &str {
        &self.ranked()[0]
    }

    /// The clauses as the ranker reads them.
    pub(super) fn ranked_clauses(&self) -> &[String] {
        &self.ranked()[1..]
    }

    /// The texts that an embedder of these languages embeds for these parts of the pipeline.
    pub(super) fn embedded(&self, languages: Languages, parts: Parts) -> &[String] {
        let texts = self.of(parts);
        let reads_english = languages == Languages::English || self.language == Language::English;
        if !self.rewritten.is_empty() && reads_english {
            &self.rewritten[..texts.len()]
        } else if !self.expanded.is_empty() {
            &self.expanded[..texts.len()]
        } else {
            texts
        }
    }

    pub(super) fn drop_clauses(&mut self) {
        self.texts.truncate(1);
    }
}

/// The texts, each with the synonyms of its phrases; none of no texts.
fn expanded(texts: &[String], synonyms: &[Vec<FoundSynonyms>]) -> Vec<String> {
    let mut expanded = Vec::with_capacity(texts.len());
    for (text, found) in texts.iter().zip(synonyms) {
        expanded.push(FoundSynonyms::appended_to(text, found));
    }
    expanded
}

/// The vectors of a query's texts, for every dense leg in the order of the searcher's legs.
#[derive(Default)]
pub(super) struct QueryVectors {
    by_leg: Vec<Option<LegVectors>>,
}

/// One leg's vectors: by request, then by text, the whole request first.
struct LegVectors {
    by_request: Vec<Vec<Vec<f32>>>,
}

impl QueryVectors {
    /// Adds a leg with the vectors of all texts; `counts` is the number of texts of each request.
    pub(super) fn push(&mut self, vectors: Vec<Vec<f32>>, counts: &[usize]) {
        let mut vectors = vectors.into_iter();
        let mut by_request = Vec::with_capacity(counts.len());
        for count in counts {
            by_request.push(vectors.by_ref().take(*count).collect());
        }
        self.by_leg.push(Some(LegVectors { by_request }));
    }

    /// Adds a leg that takes no part.
    pub(super) fn push_absent(&mut self) {
        self.by_leg.push(None);
    }

    /// True when no leg takes part.
    pub(super) fn is_empty(&self) -> bool {
        self.by_leg.iter().all(Option::is_none)
    }

    /// The vectors of one request's texts, the whole request first; `None` for a leg that takes no
    /// part.
    pub(super) fn of(&self, leg: usize, request: usize) -> Option<&[Vec<f32>]> {
        let vectors = self.by_leg[leg].as_ref()?;
        Some(&vectors.by_request[request])
    }
}
