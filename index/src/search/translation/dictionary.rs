//! The dictionary that ships with the program: words of nine languages with their English translations.
//! It is read where it lies in the program.
//!
//! The file is little-endian throughout:
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 32 | BLAKE3 of all the rest of the file |
//! | 4 | English words and phrases |
//! | 4 | bytes of these |
//! | 4 each, and 4 | where each begins, and the end of the last |
//! | | the words and phrases, each with a line feed |
//! | | a section for each language of [`LANGUAGES`] |
//!
//! A section:
//!
//! | bytes | |
//! |---|---|
//! | 4 | bytes of the rest of the section |
//! | 4, 4, 4, 4 | words, blocks of 16 words, bytes of the blocks, bytes of the lists |
//! | 4 a block | where each block begins |
//! | | the words in the order of their bytes: bytes shared with the word before, number of further bytes, these, frequency (Zipf, times 25), 3 bytes for the place of its list |
//! | | the lists: number of translations; for each 2 bytes for its number and 1 for its weight beside the best |
//!
//! `scripts/dictionary` builds it; `assets/DICTIONARY_CARD.md` lists its sources, licence and quality.

use std::collections::HashSet;
use std::sync::OnceLock;

use foldhash::fast::RandomState;

use crate::language::Language;

/// The languages of the sections, in their order.
const LANGUAGES: [&str; 9] = ["de", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh"];
/// Those in Latin script.
const IN_LATIN_SCRIPT: [&str; 5] = ["de", "es", "fr", "it", "pt"];

const MAGIC: &[u8; 8] = b"toolscDC";
const VERSION: u32 = 1;
const CHECKSUM_END: usize = 44;
/// More bytes than a word of the dictionary has.
const MAX_WORD: usize = 64;
/// A unit of the frequency of a word.
const FREQUENCY_UNIT: f32 = 25.0;

static BUNDLED: &[u8] = include_bytes!("../../../assets/dictionary.bin");

/// The words and phrases of English, and a section for each language.
pub(super) struct Dictionary {
    /// Where each English word or phrase begins in `english`.
    starts: &'static [[u8; 4]],
    english: &'static [u8],
    sections: Vec<Section>,
    /// The single English words, once they are needed.
    english_words: OnceLock<HashSet<&'static str, RandomState>>,
}

/// Endings of English words that a dictionary has without them.
const ENDINGS: [&str; 6] = ["s", "es", "d", "ed", "ing", "ly"];

/// The words of a language.
pub(super) struct Section {
    pub(super) language: &'static str,
    /// Where each block begins in `blocks`.
    starts: &'static [[u8; 4]],
    blocks: &'static [u8],
    lists: &'static [u8],
}

/// A word of a language.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The logarithm to base 10 of its number in a billion words; 0 for one that was not counted.
    pub(super) frequency: f32,
    list: &'static [u8],
}

impl Entry {
    /// The numbers of its translations and their weights beside the best, which has 1.
    pub(super) fn translations(self) -> impl Iterator<Item = (u16, f32)> {
        let (list, _) = self.list.as_chunks::<3>();
        list.iter().map(|&[low, high, weight]| {
            let number = u16::from_le_bytes([low, high]);
            (number, f32::from(weight) / 255.0)
        })
    }
}

impl Dictionary {
    /// The dictionary the crate carries. `None` if the program was built with a damaged one.
    pub(super) fn bundled() -> Option<&'static Self> {
        static DICTIONARY: OnceLock<Option<Dictionary>> = OnceLock::new();
        // Without comparing the checksum, which a test does.
        DICTIONARY.get_or_init(|| Self::read(BUNDLED)).as_ref()
    }

    fn read(file: &'static [u8]) -> Option<Self> {
        let mut rest = Bytes(file.get(CHECKSUM_END..)?);
        let version = Bytes(&file[MAGIC.len()..]).number()?;
        if !file.starts_with(MAGIC) || version != VERSION as usize {
            return None;
        }
        let (count, length) = (rest.number()?, rest.number()?);
        let starts = rest.numbers(count + 1)?;
        let english = rest.take(length)?;
        let mut sections = Vec::with_capacity(LANGUAGES.len());
        for language in LANGUAGES {
            let length = rest.number()?;
            sections.push(Section::read(language, rest.take(length)?)?);
        }
        Some(Dictionary {
            starts,
            english,
            sections,
            english_words: OnceLock::new(),
        })
    }

    /// True for an English word among the translations, or a form of one.
    pub(super) fn has_english(&self, word: &str) -> bool {
        let words = self.english_words.get_or_init(|| self.single_words());
        if words.contains(word) {
            return true;
        }
        for ending in ENDINGS {
            let Some(start) = word.strip_suffix(ending) else {
                continue;
            };
            if words.contains(start) {
                return true;
            }
            // "created" of "create", and "planned" of "plan".
            if ending == "ed" || ending == "ing" {
                let undoubled = start.get(..start.len().saturating_sub(1));
                if words.contains(&*format!("{start}e"))
                    || undoubled.is_some_and(|start| words.contains(start))
                {
                    return true;
                }
            }
        }
        false
    }

    fn single_words(&self) -> HashSet<&'static str, RandomState> {
        let phrases = (0..self.starts.len()).filter_map(|number| self.phrase(number));
        let words = phrases.filter_map(|phrase| std::str::from_utf8(phrase).ok());
        words.filter(|word| !word.contains(' ')).collect()
    }

    /// The English word or phrase of a number.
    pub(super) fn english(&self, number: u16) -> &'static str {
        let phrase = self.phrase(usize::from(number)).unwrap_or_default();
        std::str::from_utf8(phrase).unwrap_or_default()
    }

    /// The bytes of an English word or phrase, without the line feed behind it.
    fn phrase(&self, number: usize) -> Option<&'static [u8]> {
        let start = number_of(*self.starts.get(number)?);
        let end = number_of(*self.starts.get(number + 1)?);
        self.english.get(start..end.checked_sub(1)?)
    }

    /// The words of the language of a text, of which `words` are some. `None` for a language without
    /// a dictionary.
    pub(super) fn section(&self, language: Language, words: &[&str]) -> Option<&Section> {
        let code = match language {
            Language::Chinese => "zh",
            Language::Japanese => "ja",
            Language::Korean => "ko",
            Language::Cyrillic => "ru",
            Language::OtherLatin => return self.most_familiar(words),
            Language::English | Language::Other => return None,
        };
        self.of(code)
    }

    fn of(&self, code: &str) -> Option<&Section> {
        let mut sections = self.sections.iter();
        sections.find(|section| section.language == code)
    }

    /// The languages in Latin script.
    pub(super) fn in_latin_script(&self) -> impl Iterator<Item = &Section> {
        IN_LATIN_SCRIPT.iter().filter_map(|code| self.of(code))
    }

    /// Of the languages in Latin script the one that knows the words best.
    fn most_familiar(&self, words: &[&str]) -> Option<&Section> {
        let mut best = None;
        let mut most = 0.0;
        for section in self.in_latin_script() {
            let familiarity = section.familiarity(words);
            // On a tie the last one counts.
            if familiarity >= most {
                (best, most) = (Some(section), familiarity);
            }
        }
        best
    }
}

impl Section {
    fn read(language: &'static str, bytes: &'static [u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        // The number of words, which no search needs.
        rest.number()?;
        let (blocks, block_bytes, list_bytes) = (rest.number()?, rest.number()?, rest.number()?);
        Some(Section {
            language,
            starts: rest.numbers(blocks)?,
            blocks: rest.take(block_bytes)?,
            lists: rest.take(list_bytes)?,
        })
    }

    /// How well it knows these words: frequent ones say more, as rare ones are often names.
    fn familiarity(&self, words: &[&str]) -> f32 {
        let known = words.iter().filter_map(|word| self.find(word));
        // A word that was not counted is known too.
        known.map(|entry| entry.frequency.max(1.0)).sum()
    }

    /// The entry of a word in lowercase.
    pub(super) fn find(&self, word: &str) -> Option<Entry> {
        let word = word.as_bytes();
        let after = self
            .starts
            .partition_point(|start| self.first_of_block(number_of(*start)) <= word);
        let block = *self.starts.get(after.checked_sub(1)?)?;
        let end = match self.starts.get(after) {
            Some(next) => number_of(*next),
            None => self.blocks.len(),
        };
        let mut rest = Bytes(self.blocks.get(number_of(block)..end)?);
        let mut known = [0; MAX_WORD];
        while let Some(shared) = rest.byte() {
            let length = rest.byte()?;
            let further = rest.take(length)?;
            known
                .get_mut(shared..shared + length)?
                .copy_from_slice(further);
            let frequency = rest.byte()?;
            let place = rest.take(3)?;
            match known[..shared + length].cmp(word) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => {
                    return Some(Entry {
                        frequency: frequency as f32 / FREQUENCY_UNIT,
                        list: self.list(number_of([place[0], place[1], place[2], 0]))?,
                    });
                }
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }

    fn first_of_block(&self, start: usize) -> &[u8] {
        let block = self.blocks.get(start..).unwrap_or_default();
        let [_, length, words @ ..] = block else {
            return &[];
        };
        words.get(..usize::from(*length)).unwrap_or_default()
    }

    fn list(&self, place: usize) -> Option<&'static [u8]> {
        let mut rest = Bytes(self.lists.get(place..)?);
        let count = rest.byte()?;
        rest.take(3 * count)
    }
}

fn number_of(bytes: [u8; 4]) -> usize {
    u32::from_le_bytes(bytes) as usize
}

/// What is left to read.
struct Bytes(&'static [u8]);

impl Bytes {
    fn take(&mut self, length: usize) -> Option<&'static [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<usize> {
        Some(usize::from(self.take(1)?[0]))
    }

    fn numbers(&mut self, count: usize) -> Option<&'static [[u8; 4]]> {
        Some(self.take(count.checked_mul(4)?)?.as_chunks().0)
    }

    fn number(&mut self) -> Option<usize> {
        Some(number_of(*self.numbers(1)?.first()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_file_is_whole() {
        assert!(Dictionary::bundled().is_some());
        let checksum = &BUNDLED[MAGIC.len() + 4..CHECKSUM_END];
        assert_eq!(blake3::hash(&BUNDLED[CHECKSUM_END..]).as_slice(), checksum);
        assert!(BUNDLED.len() <= 6_000_000, "{} bytes", BUNDLED.len());
    }

    #[test]
    fn a_file_that_is_cut_short_is_refused() {
        for length in [0, 7, 43, 44, 60, 1000, BUNDLED.len() / 2, BUNDLED.len() - 1] {
            assert!(Dictionary::read(&BUNDLED[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn words_and_their_forms_have_translations() {
        let dictionary = Dictionary::bundled().unwrap();
        for (code, word, expected) in [
            ("de", "rechnungen", "invoice"),
            ("de", "häuser", "house"),
            ("es", "facturas", "invoice"),
            ("fr", "factures", "invoice"),
            ("it", "fatture", "invoice"),
            ("ja", "請求書", "bill"),
            ("ko", "영수증", "receipt"),
            ("pt", "faturas", "invoice"),
            ("ru", "счета", "bill"),
            ("zh", "发票", "invoice"),
            ("zh", "發票", "invoice"),
        ] {
            let entry = dictionary.of(code).unwrap().find(word);
            let translations: Vec<&str> = entry
                .iter()
                .flat_map(|entry| entry.translations())
                .map(|(number, _)| dictionary.english(number))
                .collect();
            assert!(translations.contains(&expected), "{word}: {translations:?}");
        }
    }

    #[test]
    fn what_is_no_word_is_not_found() {
        let dictionary = Dictionary::bundled().unwrap();
        for word in [
            "",
            "\u{10ffff}",
            "qqqqqq",
            "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
            " ",
        ] {
            for section in &dictionary.sections {
                assert!(
                    section.find(word).is_none(),
                    "{word} in {}",
                    section.language
                );
            }
        }
    }

    #[test]
    fn a_language_in_latin_script_is_known_by_its_words() {
        let dictionary = Dictionary::bundled().unwrap();
        for (request, expected) in [
            ("die letzten Rechnungen anzeigen", "de"),
            ("muéstrame las últimas facturas", "es"),
            ("montre les dernières factures", "fr"),
            ("mostrami le ultime fatture", "it"),
            ("mostre as últimas faturas", "pt"),
        ] {
            let request = request.to_lowercase();
            let words: Vec<&str> = request.split(' ').collect();
            let section = dictionary.section(Language::OtherLatin, &words).unwrap();
            assert_eq!(section.language, expected);
        }
    }
}
