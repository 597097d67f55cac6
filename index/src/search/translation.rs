//! Translates requests into the English words of a catalog, word by word.
//!
//! A word of the request becomes what the dictionary says, if possible in words that the catalog has. Of
//! several translations the one wins that is likeliest, nearest to the word and nearest to the whole
//! request, by the table for other languages. A word that the dictionary lacks becomes the words of the
//! catalog that mean the most similar, by the same table. The parts of a search that know English only
//! (words, the English embedders, the ranker) then read the translation.

mod dictionary;
mod units;

use std::collections::HashSet;
use std::sync::Arc;

use self::dictionary::{Dictionary, Entry, Section};
use self::units::Unit;
use crate::dense::{TextHash, Vectors};
use crate::embed::{Embedder, MultilingualTable};
use crate::language::Language;
use crate::text;
use crate::top_k::by_rank;

/// The least similarity of a word and its translation.
const MIN_COSINE: f32 = 0.35;
/// Most translations of one word.
const MAX_TRANSLATIONS: usize = 2;
/// How much less similar than the first further translations may be.
const MAX_LAG: f32 = 0.1;
/// How much worse than the best further translations of the dictionary may be.
const MAX_DICTIONARY_LAG: f32 = 0.15;
/// What the similarity to the word and to the request counts beside the weight in the dictionary.
const WORD_SHARE: f32 = 0.5;
const REQUEST_SHARE: f32 = 0.5;
/// Most words of a text that are translated, which bounds the time that a request takes.
const MAX_WORDS: usize = 64;
/// Shorter words of a catalog are abbreviations, which have no meaning in the table.
const MIN_LETTERS: usize = 3;

/// English function words beside the stop words of the analyzer. Sorted.
const FUNCTION_WORDS: &[&str] = &[
    "about", "after", "again", "am", "because", "been", "being", "both", "each", "either", "every",
    "from", "he", "her", "here", "him", "his", "its", "may", "mine", "more", "most", "must",
    "neither", "nor", "once", "other", "per", "same", "she", "should", "so", "still", "than",
    "thanks", "them", "those", "through", "too", "under", "until", "very", "when", "where",
    "while", "whom", "why", "within", "without", "yet", "yours",
];

/// The words of a catalog with their vectors.
pub(crate) struct Translator {
    table: Arc<MultilingualTable>,
    dictionary: Option<&'static Dictionary>,
    /// Sorted.
    words: Vec<String>,
    /// One vector a word.
    vectors: Vectors,
    stems: HashSet<String>,
}

impl Translator {
    /// From the words of a catalog as they are written. `None` if the built-in table cannot be
    /// used.
    pub(crate) fn new(mut words: Vec<String>) -> Option<Self> {
        let table = MultilingualTable::bundled().ok()?;
        words.retain(|word| {
            word.len() >= MIN_LETTERS && word.as_bytes().iter().all(u8::is_ascii_lowercase)
        });
        // Of the catalog's own words only, before the function words are added.
        let stems = words.iter().map(String::as_str).map(text::stem).collect();
        // So that "of" in another language becomes "of", which is then left out, and not the most
        // similar word of the catalog.
        let function_words = text::STOP_WORDS.iter().chain(FUNCTION_WORDS);
        words.extend(function_words.copied().map(str::to_owned));
        words.sort_unstable();
        words.dedup();
        let mut vectors = Vectors::new(table.dimensions());
        for word in &words {
            vectors
                .push(table.id(), TextHash::default(), &table.embed(word))
                .ok()?;
            vectors.end_tool();
        }
        Some(Translator {
            table,
            dictionary: Dictionary::bundled(),
            words,
            vectors,
            stems,
        })
    }

    /// The English words of the texts of a request, the whole of it first: words that the catalog has
    /// stay, others are translated, and those without a translation are left out.
    pub(crate) fn translate(&self, texts: &[String], language: Language) -> Vec<String> {
        let whole = texts.first().map_or("", String::as_str);
        let normalised = units::normalised(whole);
        // The whole request tells the language, of which a clause may have too few words.
        let words = units::words(&normalised);
        let mut translated = Vec::with_capacity(texts.len());
        if let Some(dictionary) = self.dictionary
            && let Some(section) = dictionary.section(language, &words)
        {
            let choice = Choice {
                translator: self,
                dictionary,
                section,
                request: self.table.embed(whole),
            };
            for text in texts {
                translated.push(choice.translate(text));
            }
            return translated;
        }
        for text in texts {
            let words = self.table.words_of_subject(text);
            translated.push(self.nearest(&words).join(" "));
        }
        translated
    }

    /// Words without a dictionary: those that the catalog has stay, others become the most similar.
    fn nearest<'s>(&'s self, words: &[String]) -> Vec<&'s str> {
        let words = &words[..words.len().min(MAX_WORDS)];
        let vectors: Vec<Vec<f32>> = words.iter().map(|word| self.table.embed(word)).collect();
        let mut translated: Vec<&str> = Vec::new();
        // All words in one pass over the vectors of the catalog.
        for (word, cosines) in words.iter().zip(self.vectors.scores(&vectors)) {
            match self.words.binary_search(word) {
                Ok(known) => translated.push(&self.words[known]),
                Err(_) => translated.extend(self.most_similar(&cosines)),
            }
        }
        translated
    }

    /// True for a phrase of which the catalog has every word that says something.
    fn has(&self, phrase: &str) -> bool {
        let mut words = phrase.split(' ');
        words.all(|word| is_function_word(word) || self.stems.contains(&text::stem(word)))
    }

    /// The most similar words, one for each stem; none if the most similar is a function word.
    fn most_similar(&self, cosines: &[f32]) -> Vec<&str> {
        let best = cosines.iter().copied().fold(0.0, f32::max);
        let least = (best - MAX_LAG).max(MIN_COSINE);
        let mut near: Vec<(usize, f32)> = Vec::new();
        for (word, &cosine) in cosines.iter().enumerate() {
            if cosine >= least {
                near.push((word, cosine));
            }
        }
        near.sort_unstable_by(by_rank);
        let mut stems = HashSet::new();
        let mut words = Vec::new();
        for (word, _) in near {
            let word = self.words[word].as_str();
            if words.len() == MAX_TRANSLATIONS || is_function_word(word) {
                break;
            }
            if stems.insert(text::stem(word)) {
                words.push(word);
            }
        }
        words
    }
}

/// Of these words in lowercase, how many the dictionary has in one language of Latin script, without
/// those that are English too.
pub(super) fn words_of_one_language(words: &[String]) -> usize {
    let Some(dictionary) = Dictionary::bundled() else {
        return 0;
    };
    let mut most = 0;
    for section in dictionary.in_latin_script() {
        let known = words
            .iter()
            .filter(|word| !dictionary.has_english(word) && has_meaning(word, dictionary, section));
        most = most.max(known.count());
    }
    most
}

/// True for a word of a language, or a compound of such words, that is not the same in English.
fn has_meaning(word: &str, dictionary: &Dictionary, section: &Section) -> bool {
    let units = units::units(word, section);
    !units.is_empty() && units.iter().all(|unit| is_translated(unit, dictionary))
}

fn is_translated(unit: &Unit<'_>, dictionary: &Dictionary) -> bool {
    let Unit::Known(part, entry) = unit else {
        return false;
    };
    let mut english = entry
        .translations()
        .map(|(number, _)| dictionary.english(number))
        .peekable();
    english.peek().is_some() && english.all(|english| english != *part)
}

/// How one request is translated.
struct Choice<'s> {
    translator: &'s Translator,
    dictionary: &'static Dictionary,
    section: &'s Section,
    /// The vector of the whole request.
    request: Vec<f32>,
}

impl<'s> Choice<'s> {
    fn translate(&self, text: &str) -> String {
        let text = units::normalised(MultilingualTable::subject_of(text));
        let mut translated: Vec<&str> = Vec::new();
        for word in units::words(&text).into_iter().take(MAX_WORDS) {
            for unit in units::units(word, self.section) {
                match unit {
                    Unit::Known(word, entry) => translated.extend(self.known(word, entry)),
                    // What is left of "l'email" and "d'envoi".
                    Unit::Unknown(word) if word.len() == 1 => {}
                    Unit::Unknown(word) => {
                        let words = self.translator.table.words_of_subject(word);
                        translated.extend(self.translator.nearest(&words));
                    }
                }
            }
        }
        // A word counts once, however many words of the request mean it.
        let mut seen = HashSet::new();
        translated.retain(|word| seen.insert(*word));
        translated.join(" ")
    }

    /// The translations of a word of the dictionary: those in words of the catalog, or else the words of the
    /// catalog that are the most similar, or else the best one.
    fn known(&self, word: &str, entry: Entry) -> Vec<&'s str> {
        let table = &self.translator.table;
        let vector = table.embed(word);
        let mut in_catalog = Vec::new();
        let mut best: Option<&'static str> = None;
        for (number, weight) in entry.translations() {
            let english = self.dictionary.english(number);
            if best.is_none() && is_function_word(english) {
                return Vec::new();
            }
            best = best.or(Some(english));
            if self.translator.has(english) && !is_function_word(english) {
                let meaning = table.embed(english);
                let score = weight
                    + WORD_SHARE * dot(&meaning, &vector)
                    + REQUEST_SHARE * dot(&meaning, &self.request);
                in_catalog.push((english, score));
            }
        }
        let Some(best) = best else {
            return Vec::new();
        };
        let words = &self.translator.words;
        let mut chosen: Vec<&'s str> = Vec::new();
        // A word that the catalog has as it is written may be a name there, as "issue" in French.
        if let Ok(known) = words.binary_search_by(|known| known.as_str().cmp(word)) {
            chosen.push(&words[known]);
        }
        if in_catalog.is_empty() {
            let cosines = self.translator.vectors.scores(&[vector]);
            let similar = match cosines.first() {
                Some(cosines) => self.translator.most_similar(cosines),
                None => Vec::new(),
            };
            match similar.is_empty() {
                true => chosen.push(best),
                false => chosen.extend(similar),
            }
            return chosen;
        }
        // A stable sort: the dictionary has the likelier translation first.
        in_catalog.sort_by(|a, b| b.1.total_cmp(&a.1));
        let least = in_catalog[0].1 - MAX_DICTIONARY_LAG;
        let mut stems = HashSet::new();
        in_catalog.retain(|(english, score)| *score >= least && stems.insert(text::stem(english)));
        for (english, _) in in_catalog.into_iter().take(MAX_TRANSLATIONS) {
            chosen.push(english);
        }
        chosen
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn is_function_word(word: &str) -> bool {
    text::is_stop_word(word) || FUNCTION_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(translator: &Translator, request: &str) -> String {
        let language = match Language::of(request) {
            Language::English => Language::OtherLatin,
            language => language,
        };
        translator
            .translate(&[request.to_owned()], language)
            .join("")
    }

    fn translator(words: &str) -> Translator {
        Translator::new(words.split(' ').map(str::to_owned).collect()).unwrap()
    }

    #[test]
    fn words_become_those_of_the_catalog() {
        let words = "create close issue door calendar song find page new the weather tomorrow";
        let translator = translator(words);
        for (request, expected) in [
            ("cerrar la puerta", "close door"),
            ("neue Seite im Kalender", "new page calendar"),
            ("노래", "song"),
            ("明天的天气", "tomorrow weather"),
            ("看下天气", "weather"),
            ("🙂", ""),
        ] {
            assert_eq!(translated(&translator, request), expected, "{request}");
        }
    }

    #[test]
    fn nouns_become_what_the_dictionary_says() {
        let translator = translator("invoice receipt account customer send file issue create");
        for (request, expected) in [
            ("Rechnungen", &["invoice"][..]),
            ("Kundenrechnungen", &["customer", "invoice"]),
            ("las facturas de los clientes", &["invoice", "customer"]),
            (
                "crée une issue avec la facture",
                &["create", "issue", "invoice"],
            ),
            ("inviami la fattura", &["send", "invoice"]),
            ("enviar as faturas", &["send", "invoice"]),
            ("счета клиентов", &["account", "customer"]),
            ("把发票发给客户", &["invoice", "customer"]),
            ("發票", &["invoice"]),
            ("영수증을 보내줘", &["receipt", "send"]),
            ("ファイルを送って", &["file", "send"]),
            // Its translations are not in the catalog, so the most similar word counts.
            ("請求書", &["invoice"]),
        ] {
            let translation = translated(&translator, request);
            let stems: Vec<String> = translation.split(' ').map(text::stem).collect();
            for word in expected {
                let stem = text::stem(word);
                assert!(stems.contains(&stem), "{request}: {translation}");
            }
        }
    }

    #[test]
    fn a_long_text_is_read_in_part() {
        let translator = translator("invoice send");
        for text in ["发票", "Rechnungsrechnung", "請求書を"] {
            let translation = translated(&translator, &text.repeat(2000));
            assert!(translation.len() < 8192, "{} bytes", translation.len());
        }
    }

    #[test]
    fn the_function_words_are_sorted() {
        assert!(FUNCTION_WORDS.is_sorted());
    }
}
