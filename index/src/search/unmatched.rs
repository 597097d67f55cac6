//! The words of a request that no hit has anything to do with.

use super::Search;
use super::request::RequestTexts;
use crate::embed::StaticTable;
use crate::hit::Hit;
use crate::language::Language;
use crate::ranker::ToolProfile;
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
        let searcher = self.searcher;
        let positions = hits.iter().filter_map(|hit| searcher.position(&hit.id));
        let profiles: Vec<&ToolProfile> = positions
            .map(|tool| searcher.rows[tool].profile())
            .collect();
        if profiles.is_empty() {
            return Vec::new();
        }
        let mut unmatched = Vec::new();
        for request in requests {
            let words = unsupported(request, &profiles, &table);
            unmatched.extend(phrases(words));
        }
        unmatched.truncate(MAX_PHRASES);
        unmatched
    }
}

/// The words of a request that these tools neither have nor have a similar word for.
fn unsupported(
    request: &RequestTexts,
    profiles: &[&ToolProfile],
    table: &StaticTable,
) -> Vec<AskedWord> {
    let has = |term: &str| {
        let hash = text::term_hash(term);
        profiles.iter().any(|tool| tool.word(hash).is_some())
    };
    // The owner and the everyday phrases say what some words mean in the catalog.
    let added = &request.terms[0].added;
    let explained = added
        .iter()
        .filter(|added| added.words.iter().any(|word| has(&word.term)));
    let explained: Vec<String> = explained
        .flat_map(|added| text::words(&added.said))
        .collect();
    let mut words = asked_words(request);
    words.retain(|word| {
        let is_explained =
            explained.contains(&word.shown) || request.terms[0].is_replaced(&word.shown);
        !is_explained && !has(&text::stem(&word.corrected))
    });
    let tokens: Vec<Vec<u32>> = words
        .iter()
        .map(|word| late_interaction::tokens(&word.corrected, table))
        .collect();
    let of_tools = profiles.iter().map(|tool| &tool.tokens);
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
            TIMES.contains(&shown.as_str()) || shown.bytes().any(|byte| byte.is_ascii_digit());
        if is_value || text::is_stop_word(&shown) || shown.chars().any(text::is_cjk) {
            continue;
        }
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
        let is_next = last_place.is_some_and(|last| word.place == last + 1);
        match phrases.last_mut().filter(|_| is_next) {
            Some(phrase) => {
                phrase.push(' ');
                phrase.push_str(&word.shown);
            }
            None => phrases.push(word.shown),
        }
        last_place = Some(word.place);
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
