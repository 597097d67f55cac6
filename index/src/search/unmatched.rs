//! The words of a request that no hit has anything to do with.

use super::Search;
use super::request::RequestTexts;
use crate::embed::StaticTable;
use crate::hit::Hit;
use crate::language::Language;
use crate::ranker::ToolWords;
use crate::ranker::late_interaction;
use crate::text;

/// Most words of a request that are looked at, its first ones.
const MAX_WORDS: usize = 64;
/// Most phrases that are named.
const MAX_PHRASES: usize = 5;
/// The least similarity of a word to one of a hit that counts.
const LEAST_SIMILARITY: f32 = 0.3;
/// Words of a lower weight say little of what is wanted: "start", "whatever" and "see", half of the words
/// that people use outside the stop-list. The table gives frequent words low weights.
const LEAST_WEIGHT: f32 = 77.0;
/// Words for times, which are values and no needs.
const TIMES: [&str; 10] = [
    "friday",
    "monday",
    "saturday",
    "sunday",
    "thursday",
    "tomorrow",
    "tonight",
    "tuesday",
    "wednesday",
    "yesterday",
];

/// A word of a request.
struct AskedWord {
    /// As it was written.
    shown: String,
    /// As it is searched for.
    corrected: String,
    /// Its place among all words, so that neighbours are known.
    place: usize,
}

impl Search<'_> {
    /// The words of the requests, outside the stop-list, that are in no hit and that no hit has a
    /// similar word for. Neighbouring words are one phrase.
    pub(super) fn unmatched(&self, requests: &[RequestTexts], hits: &[Hit]) -> Vec<String> {
        let Ok(table) = StaticTable::bundled() else {
            return Vec::new();
        };
        let mut tools: Vec<&ToolWords> = Vec::with_capacity(hits.len());
        for hit in hits {
            if let Some(tool) = self.searcher.position(&hit.id) {
                tools.push(self.searcher.rows[tool].words());
            }
        }
        if tools.is_empty() {
            return Vec::new();
        }
        let mut unmatched = Vec::new();
        for request in requests {
            let words = unsupported(request, &tools, &table);
            unmatched.extend(phrases(words));
        }
        unmatched.truncate(MAX_PHRASES);
        unmatched
    }
}

/// The words of a request that these tools neither have nor have a similar word for.
fn unsupported(
    request: &RequestTexts,
    tools: &[&ToolWords],
    table: &StaticTable,
) -> Vec<AskedWord> {
    let terms = &request.terms[0];
    // The owner and the everyday phrases say what some words mean in the catalog.
    let mut explained = Vec::new();
    for added in &terms.added {
        if added.words.iter().any(|word| have(tools, &word.term)) {
            explained.extend(text::words(&added.said));
        }
    }
    let mut words = asked_words(request);
    words.retain(|word| {
        !explained.contains(&word.shown)
            && !terms.is_replaced(&word.shown)
            && !have(tools, &text::stem(&word.corrected))
    });
    let mut tokens = Vec::with_capacity(words.len());
    for word in &words {
        tokens.push(late_interaction::tokens(&word.corrected, table));
    }
    // All tokens at once, so that each tool is read only once.
    let of_tools = tools.iter().map(|tool| &tool.tokens);
    let similarities = late_interaction::nearest(table, &tokens.concat(), of_tools);
    let mut similarities = similarities.iter();
    let mut unsupported = Vec::new();
    for (word, tokens) in words.into_iter().zip(&tokens) {
        let sum: f32 = similarities.by_ref().take(tokens.len()).sum();
        let is_far = sum < LEAST_SIMILARITY * tokens.len() as f32;
        let says_something = tokens
            .iter()
            .any(|&token| table.weight(token) >= LEAST_WEIGHT);
        if is_far && says_something {
            unsupported.push(word);
        }
    }
    unsupported
}

/// True if any of the tools has a term.
fn have(tools: &[&ToolWords], term: &str) -> bool {
    let hash = text::term_hash(term);
    tools.iter().any(|tool| tool.word(hash).is_some())
}

/// The words of a request that say what it wants: no function words and no values.
fn asked_words(request: &RequestTexts) -> Vec<AskedWord> {
    // The words of a translation are not those that were asked with.
    if request.language != Language::English {
        return Vec::new();
    }
    let written = text::words(request.whole_text());
    let corrected = text::words(request.ranked_text());
    let mut words = Vec::new();
    for (place, shown) in written.into_iter().enumerate().take(MAX_WORDS) {
        let is_value =
            TIMES.contains(&shown.as_str()) || shown.as_bytes().iter().any(u8::is_ascii_digit);
        if is_value || text::is_stop_word(&shown) || shown.contains(text::is_cjk) {
            continue;
        }
        // Corrections replace word by word, so the places agree.
        let corrected = corrected.get(place).unwrap_or(&shown).clone();
        words.push(AskedWord {
            shown,
            corrected,
            place,
        });
    }
    words
}

/// The words as phrases of neighbours.
fn phrases(words: Vec<AskedWord>) -> Vec<String> {
    let mut phrases: Vec<String> = Vec::new();
    let mut last_place = None;
    for word in words {
        let is_next = matches!(last_place, Some(last) if word.place == last + 1);
        last_place = Some(word.place);
        if is_next && let Some(phrase) = phrases.last_mut() {
            phrase.push(' ');
            phrase.push_str(&word.shown);
        } else {
            phrases.push(word.shown);
        }
    }
    phrases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_words_are_one_phrase() {
        let word = |shown: &str, place| AskedWord {
            shown: shown.to_owned(),
            corrected: shown.to_owned(),
            place,
        };
        let words = vec![word("boarding", 4), word("pass", 5), word("watch", 8)];
        assert_eq!(phrases(words), ["boarding pass", "watch"]);
        assert!(phrases(Vec::new()).is_empty());
    }
}
