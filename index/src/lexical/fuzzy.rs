//! Spelling correction: the indexed words with the smallest bounded edit distance to an unknown
//! word.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use levenshtein_automata::{DFA, Distance, LevenshteinAutomatonBuilder, SINK_STATE};
use tantivy::InvertedIndexReader;
use tantivy_fst::Automaton;

use crate::text;

/// Requests with more terms than this are not corrected: in them an unknown word is mostly a name
/// or a detail and not a typing error, the other words suffice, and each correction costs 50
/// microseconds.
pub(super) const MAX_TERMS_TO_CORRECT: usize = 12;

/// Shorter words are not corrected: too many words are one edit away.
const MIN_LETTERS: usize = 4;
/// From this many letters on two edits are allowed.
const MIN_LETTERS_FOR_TWO_EDITS: usize = 8;
/// Corrections taken for one word, all at the smallest distance found.
const MAX_CORRECTIONS: usize = 3;
/// Dictionary words examined for one word, as a bound for pathological dictionaries.
const MAX_CANDIDATES: usize = 1000;

/// Building the automata's tables takes milliseconds, so it is done once. A transposition of
/// neighbouring letters is one edit.
static ONE_EDIT: LazyLock<LevenshteinAutomatonBuilder> =
    LazyLock::new(|| LevenshteinAutomatonBuilder::new(1, true));
static TWO_EDITS: LazyLock<LevenshteinAutomatonBuilder> =
    LazyLock::new(|| LevenshteinAutomatonBuilder::new(2, true));

/// An indexed word that is similar to the unknown one.
pub struct Nearest {
    /// As written in the catalog.
    pub word: String,
    /// As indexed.
    pub term: String,
    /// Edits from the unknown word, 1 or 2.
    pub edits: u8,
}

/// An automaton that accepts the words near one, for tantivy's dictionary.
pub struct EditAutomaton(DFA);

impl EditAutomaton {
    /// None for short words, digits and CJK.
    pub fn of(word: &str) -> Option<Self> {
        let letters = word.chars().count();
        if letters < MIN_LETTERS || !word.chars().all(|c| c.is_alphabetic() && !text::is_cjk(c)) {
            return None;
        }
        let builder = if letters < MIN_LETTERS_FOR_TWO_EDITS {
            &ONE_EDIT
        } else {
            &TWO_EDITS
        };
        Some(EditAutomaton(builder.build_dfa(word)))
    }

    /// The words at the smallest distance within the bound, in order. Each dictionary comes with a
    /// check whether a tool still has a word, since words of deleted tools stay in it for a while;
    /// `occurs` tells whether a term can be scored.
    pub fn nearest<'a, Holds: Fn(&str) -> bool>(
        &self,
        dictionaries: impl Iterator<Item = (&'a InvertedIndexReader, Holds)>,
        occurs: impl Fn(&str) -> bool,
    ) -> Vec<Nearest> {
        let mut found = Found::default();
        for (dictionary, holds) in dictionaries {
            let Ok(mut stream) = dictionary.terms().search(self).into_stream() else {
                continue;
            };
            let mut looked_at = 0;
            while looked_at < MAX_CANDIDATES && stream.advance() {
                looked_at += 1;
                if let Ok(word) = std::str::from_utf8(stream.key()) {
                    // Last, since both of these read postings.
                    found.offer(self, word, |term| holds(word) && occurs(term));
                }
            }
        }
        found.nearest()
    }

    /// As [`EditAutomaton::nearest`], among these words, which some tool has.
    pub fn nearest_of(&self, words: &[&str], occurs: impl Fn(&str) -> bool) -> Vec<Nearest> {
        let mut found = Found::default();
        for word in words {
            found.offer(self, word, &occurs);
        }
        found.nearest()
    }
}

/// Words within the bound, with their terms. Sorted by distance, then word, so that corrections do not
/// depend on the order of segments.
#[derive(Default)]
struct Found {
    by_distance: BTreeMap<(u8, String), String>,
}

impl Found {
    /// Adds a word if it is near enough, and if its term is wanted.
    fn offer(&mut self, automaton: &EditAutomaton, word: &str, is_wanted: impl Fn(&str) -> bool) {
        let term = text::stem(word);
        if let Distance::Exact(edits) = automaton.0.eval(word)
            && is_wanted(&term)
        {
            self.by_distance.insert((edits, word.to_owned()), term);
        }
    }

    /// Those at the smallest distance.
    fn nearest(self) -> Vec<Nearest> {
        let mut nearest: Vec<Nearest> = Vec::new();
        for ((edits, word), term) in self.by_distance {
            let is_farther = matches!(nearest.first(), Some(first) if first.edits < edits);
            if is_farther || nearest.len() == MAX_CORRECTIONS {
                break;
            }
            nearest.push(Nearest { word, term, edits });
        }
        nearest
    }
}

impl Automaton for EditAutomaton {
    type State = u32;

    fn start(&self) -> u32 {
        self.0.initial_state()
    }

    fn is_match(&self, state: &u32) -> bool {
        matches!(self.0.distance(*state), Distance::Exact(_))
    }

    fn can_match(&self, state: &u32) -> bool {
        // Nothing leads out of the sink, so whole branches of the dictionary are skipped.
        *state != SINK_STATE
    }

    fn accept(&self, state: &u32, byte: u8) -> u32 {
        self.0.transition(*state, byte)
    }
}
