//! Corrects a misspelt request before it is embedded: a misspelt word has another vector.

use crate::embed::StaticTable;
use crate::lexical::QueryTerms;
use crate::text;

/// Shorter words are not corrected: too many words are one edit away.
const MIN_LETTERS: usize = 5;
/// Most words of a text that are looked up: a text with more unknown words is not misspelt.
const MAX_MISSPELT: usize = 12;
/// Longer ones are no words, and each letter more is fifty more words to look up.
const MAX_LETTERS: usize = 24;

/// The request with its misspelt words corrected; `None` if there are none. A word that no tool has
/// becomes the most similar word of the catalog, or else a common English word.
pub(super) fn corrected(request: &str, terms: &QueryTerms, table: &StaticTable) -> Option<String> {
    let mut corrected = String::with_capacity(request.len() + 8);
    let mut has_changed = false;
    let mut misspelt = 0;
    for part in request.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let end = part.trim_end_matches(|c: char| !c.is_alphanumeric()).len();
        let (word, separator) = part.split_at(end);
        let correction = if may_be_misspelt(word, terms, table) {
            misspelt += 1;
            if misspelt > MAX_MISSPELT {
                return None;
            }
            let in_catalog = terms.fuzzy.iter().find(|edit| edit.from == word);
            in_catalog
                .map(|edit| edit.to.clone())
                .or_else(|| table.word_one_edit_away(word))
        } else {
            None
        };
        has_changed |= correction.is_some();
        corrected.push_str(correction.as_deref().unwrap_or(word));
        corrected.push_str(separator);
    }
    has_changed.then_some(corrected)
}

/// True for a word in lowercase that is no English word. Words with capitals are often names.
fn may_be_misspelt(word: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    (MIN_LETTERS..=MAX_LETTERS).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_lowercase())
        && !table.has_word(word)
        && !terms.has_known(&text::stem(word))
        && !terms.is_replaced(word)
}

/// True for a request without a single word: no tool has any of it, and it is no English either.
pub(super) fn is_nonsense(request: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    let words = text::words(request);
    let is_word = |word: &String| {
        text::is_stop_word(word)
            || terms.has_known(&text::stem(word))
            || terms.is_replaced(word)
            || table.has_word(word)
    };
    terms.fuzzy.is_empty() && !words.is_empty() && !words.iter().any(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_words_become_common_words_and_names_stay() {
        let table = StaticTable::bundled().unwrap();
        let corrected = |request| corrected(request, &QueryTerms::default(), &table);
        assert_eq!(
            corrected("serach my calender, for the metting!").as_deref(),
            Some("search my calendar, for the meeting!")
        );
        assert!(is_nonsense(
            "asdfghjkl qwertzu",
            &QueryTerms::default(),
            &table
        ));
        assert!(!is_nonsense(
            "asdfghjkl mail",
            &QueryTerms::default(),
            &table
        ));
        assert!(!is_nonsense("?!", &QueryTerms::default(), &table));
        for request in [
            "search my calendar",
            "find Serach and SERACH",
            "kubectl xqzvbn",
            "pley it",
            "",
        ] {
            assert_eq!(corrected(request), None, "{request}");
        }
    }
}
