//! Corrects a misspelt request before it is embedded: a misspelt word has another vector.

use super::translation;
use crate::embed::{MultilingualTable, StaticTable};
use crate::language::{self, Language};
use crate::lexical::QueryTerms;
use crate::text;

/// Shorter words are not corrected, as in [`crate::lexical`].
const MIN_LETTERS: usize = 4;
/// Shorter words are only corrected to words of the catalog: too many English words are one edit away.
const MIN_LETTERS_OF_ENGLISH: usize = 5;
/// Most words of a text that are looked up: a text with more unknown words is not misspelt.
const MAX_MISSPELT: usize = 12;
/// Longer ones are no words, and each letter more is fifty more words to look up.
const MAX_LETTERS: usize = 24;

/// The cost of a letter from which on a word is most likely none: of 600 short requests in six
/// languages in Latin script the likeliest word has at most 3.66, of strings typed at random at least
/// 3.72. `assets/LANGUAGES_CARD.md` has the distributions.
const LETTER_COST_OF_NONSENSE: f32 = 3.7;
/// The same for Cyrillic: at most 4.81 and at least 5.26.
const LETTER_COST_OF_CYRILLIC_NONSENSE: f32 = 5.0;
/// The same for Chinese, Japanese and Korean, whose characters say more: at most 13.9 and at least
/// 15.3. Characters of scripts that the table does not know cost 20.
const CHARACTER_COST_OF_NONSENSE: f32 = 14.5;
/// A shorter word alone may be an abbreviation.
const MAX_ABBREVIATION_LETTERS: usize = 4;
/// Shorter words are in the vocabularies of several languages.
const MIN_FOREIGN_LETTERS: usize = 3;

/// The request with its misspelt words corrected; `None` if there are none. A word that no tool has
/// becomes the most similar word of the catalog, or else a common English word.
pub(super) fn corrected(request: &str, terms: &QueryTerms, table: &StaticTable) -> Option<String> {
    let mut corrected = String::with_capacity(request.len() + 8);
    let mut has_changed = false;
    let mut misspelt = 0;
    for part in request.split_inclusive(is_separator) {
        let end = part.trim_end_matches(is_separator).len();
        let (word, separator) = part.split_at(end);
        let mut correction = None;
        if may_be_misspelt(word, terms, table) {
            misspelt += 1;
            if misspelt > MAX_MISSPELT {
                return None;
            }
            correction = correct_word(word, terms, table);
        }
        has_changed |= correction.is_some();
        corrected.push_str(correction.as_deref().unwrap_or(word));
        // Separators stay, so that a correction changes nothing but words.
        corrected.push_str(separator);
    }
    has_changed.then_some(corrected)
}

fn is_separator(c: char) -> bool {
    !c.is_alphanumeric()
}

/// True for a word in lowercase that is no English word. Words with capitals are often names.
fn may_be_misspelt(word: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    (MIN_LETTERS..=MAX_LETTERS).contains(&word.len())
        && word.as_bytes().iter().all(u8::is_ascii_lowercase)
        && !table.has_word(word)
        && !terms.is_replaced(word)
}

fn correct_word(word: &str, terms: &QueryTerms, table: &StaticTable) -> Option<String> {
    let stem = text::stem(word);
    if terms.has_known(&stem) {
        // A tool has another form of it, as "create" of "creat".
        let whole = table.word_one_edit_away(word)?;
        return (text::stem(&whole) == stem).then_some(whole);
    }
    if let Some(edit) = terms.fuzzy.iter().find(|edit| edit.from == word) {
        return Some(edit.to.clone());
    }
    if word.len() < MIN_LETTERS_OF_ENGLISH {
        return None;
    }
    table.word_one_edit_away(word)
}

/// True for a request of punctuation and function words alone.
pub(super) fn has_no_content(request: &str) -> bool {
    let words = text::words(request);
    if words.iter().map(String::as_str).all(text::is_stop_word) {
        return true;
    }
    // One short word may be an abbreviation, such as "es".
    !is_abbreviation(&words) && words.iter().map(String::as_str).all(says_nothing)
}

/// True for a function word of any language.
fn says_nothing(word: &str) -> bool {
    // Chinese, Japanese and Korean are written without spaces between the words.
    text::is_stop_word(word) || language::is_function_word(word) || word.chars().all(is_particle)
}

/// True for a function word of one Chinese, Japanese or Korean character.
fn is_particle(c: char) -> bool {
    text::is_cjk(c) && language::is_function_word(c.encode_utf8(&mut [0; 4]))
}

/// True for a request that was taken for English for want of signs, and whose words are none: such as
/// "prossima canzone". One sign of another language is enough beside a word that is not English.
pub(super) fn is_foreign(request: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    let (english, other) = language::signs(request);
    let mut words = text::words(request);
    words.retain(|word| word.len() >= MIN_FOREIGN_LETTERS);
    let all = words.len();
    words.retain(|word| !is_english(word, terms, table));
    // A short request such as "Paket verfolgen" has no function word that is a sign of its language.
    let is_most = |count: usize| count > 2 * english && 2 * count + other > all;
    // A single word may be a misspelt English one, such as "adresse". The dictionary is asked only if all words would be
    // enough.
    let is_misspelt = all == 1 && words.iter().any(|word| is_near_english(word, terms, table));
    if is_most(words.len()) && !is_misspelt && is_most(translation::words_of_one_language(&words)) {
        return true;
    }
    if english > 0 {
        return false;
    }
    // Beside a sign of another language it counts as unknown: a word of another language is often near
    // one of the catalog.
    words.retain(|word| other > 0 || !is_near_english(word, terms, table));
    let unknown = words.len();
    let known = all - unknown;
    unknown > 0
        && unknown + other > known
        && unknown + other >= 2
        && least_letter_cost(request) < LETTER_COST_OF_NONSENSE
}

/// True for a word that may be a misspelt one of the catalog or of English.
fn is_near_english(word: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    let is_corrected = terms.fuzzy.iter().any(|edit| edit.from == word);
    is_corrected || word.is_ascii() && table.word_one_edit_away(word).is_some()
}

/// True for a request without a single word: no tool has any of it, and its letters make no words of
/// any language.
pub(super) fn is_nonsense(request: &str, language: Language, terms: &QueryTerms) -> bool {
    let words = text::words(request);
    if words.is_empty() || !terms.fuzzy.is_empty() {
        return false;
    }
    let least_cost = match language {
        Language::English | Language::OtherLatin => LETTER_COST_OF_NONSENSE,
        Language::Cyrillic => LETTER_COST_OF_CYRILLIC_NONSENSE,
        _ => CHARACTER_COST_OF_NONSENSE,
    };
    let is_known = match language {
        Language::English => match StaticTable::bundled() {
            Ok(table) => words.iter().any(|word| is_english(word, terms, &table)),
            Err(_) => false,
        },
        _ => {
            let own = text::terms(request);
            own.iter().any(|term| terms.has_known(&term.term))
        }
    };
    // The cost of letters last: it needs the table of other languages.
    !is_known && !is_abbreviation(&words) && least_letter_cost(request) >= least_cost
}

fn is_english(word: &str, terms: &QueryTerms, table: &StaticTable) -> bool {
    text::is_stop_word(word)
        || terms.has_known(&text::stem(word))
        || terms.is_replaced(word)
        || table.has_word(word)
}

/// True for one short word in Latin letters, such as "csv".
fn is_abbreviation(words: &[String]) -> bool {
    matches!(words, [word] if word.len() <= MAX_ABBREVIATION_LETTERS && word.is_ascii())
}

/// See [`MultilingualTable::least_letter_cost`]; 0 without the table.
fn least_letter_cost(request: &str) -> f32 {
    match MultilingualTable::bundled() {
        Ok(table) => table.least_letter_cost(request),
        Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_requests_in_other_languages_are_told_from_english_ones() {
        let table = StaticTable::bundled().unwrap();
        let is_foreign = |request| is_foreign(request, &QueryTerms::default(), &table);
        for request in [
            "Rechnung an den Kunden schicken",
            "Paket verfolgen",
            "Bild verkleinern",
            "Datei umbenennen",
            "Versandetikett drucken",
            "Rechnung",
            "prenotare sala",
            "tradurre testo",
            "suivi colis",
            "rastrear paquete",
            "imprimir etiqueta",
        ] {
            assert!(is_foreign(request), "{request}");
        }
        for request in [
            "woollen scarf",
            "scheduled jobs",
            "zaps i got",
            "padres roster",
            "mongo databases",
            "resart pod",
            "trnaslate contrat",
            "trackParcel 1Z999",
            "kubectl pods",
            "geocode address",
            "yaml to json",
            "send an email to Rechnung",
        ] {
            assert!(!is_foreign(request), "{request}");
        }
    }

    #[test]
    fn misspelt_words_become_common_words_and_names_stay() {
        let table = StaticTable::bundled().unwrap();
        let corrected = |request| corrected(request, &QueryTerms::default(), &table);
        assert_eq!(
            corrected("serach my calender, for the metting!").as_deref(),
            Some("search my calendar, for the meeting!")
        );
        let is_nonsense =
            |request| is_nonsense(request, Language::of(request), &QueryTerms::default());
        for request in ["asdfghjkl qwertzu", "фывапр олджэ", "囧骉龘"] {
            assert!(is_nonsense(request), "{request}");
        }
        for request in [
            "asdfghjkl mail",
            "?!",
            "csv",
            "grafana",
            "Арзамас",
            "我想看下时间",
        ] {
            assert!(!is_nonsense(request), "{request}");
        }
        for request in [
            "",
            "?!",
            "…",
            "the of and",
            "und die",
            "¿el de la?",
            "или",
            "的了吗",
            "です",
        ] {
            assert!(has_no_content(request), "{request}");
        }
        for request in ["🎉", "es", "x", "off", "C++", "the mail", "时间", "ai os"] {
            assert!(!has_no_content(request), "{request}");
        }
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
