//! The analyzer: text to terms. Index and query use the same one.
//!
//! Identifiers are split (`findSymbol`, `find_symbol`, `HTTPServer2` give `find symbol`, `http
//! server 2`), words are lowercased, freed of accents, stripped of request phrases ("please", "I
//! need") and stemmed; runs of Chinese, Japanese and Korean become bigrams, and Han characters
//! become terms of their own too, as does each emoji. Splitting is worth 3 points of nDCG@5, stemming
//! 1, the stop-list 3, Han characters beside bigrams 2. The whole identifier is not a scored term (it
//! costs .5 points there); [`name_key`] keeps it for the exact tier.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

/// Must change whenever the analyzer's output changes, so that indexes are rebuilt.
pub const ANALYZER_VERSION: u32 = 2;

/// English function words and words of common request phrases. Sorted.
pub const STOP_WORDS: &[&str] = &[
    "a", "also", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "could", "did",
    "do", "does", "for", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "like",
    "me", "my", "need", "no", "not", "of", "on", "or", "our", "please", "some", "such", "that",
    "the", "their", "then", "there", "these", "they", "this", "to", "us", "want", "was", "we",
    "what", "which", "who", "will", "with", "would", "you", "your",
];

/// Bytes of the longest of them.
const LONGEST_STOP_WORD: usize = 6;

/// Words longer than this are cut, which bounds the work of a hostile text. No word of a language
/// is longer.
const MAX_WORD_CHARS: usize = 64;

/// Words of a cache, about half a MB. Each thread has some, and servers have dozens of threads, so a
/// larger one would add up.
const CACHED_WORDS: usize = 1 << 12;

/// One scored term of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The word as written, lowercased; fuzzy matching compares these.
    pub word: String,
    /// The indexed form: the stem, or CJK characters.
    pub term: String,
}

/// The scored terms of a text, in order, repeats included.
pub fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for_each_term(text, |word, term| {
        terms.push(Term {
            word: word.to_owned(),
            term: term.to_owned(),
        })
    });
    terms
}

/// Calls `emit` with the word and the term of each of [`terms`]. It must not analyse a text itself.
pub fn for_each_term(text: &str, mut emit: impl FnMut(&str, &str)) {
    for_each_word(text, |word| match word {
        Word::Plain(word) if is_stop_word(word) => {}
        Word::Plain(word) => with_stem(word, |stem| emit(word, stem)),
        Word::Cjk(run) => cjk_terms(run, |gram| emit(gram, gram)),
    });
}

/// The [`term_hash`] of each of the [`terms`] of a text.
pub fn term_hashes(text: &str) -> Vec<u32> {
    let mut hashes = Vec::new();
    for_each_term(text, |_, term| hashes.push(term_hash(term)));
    hashes
}

/// The words of a text as written, lowercased, without stop-list and stemming.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for_each_word(text, |word| match word {
        Word::Plain(word) => words.push(word.to_owned()),
        Word::Cjk(run) => words.push(run.iter().collect()),
    });
    words
}

/// Splits an identifier into words without changing their case: `getUserID2` to `get User ID 2`.
pub fn spaced(identifier: &str) -> String {
    let mut spaced = String::with_capacity(identifier.len() + 8);
    let mut previous = None;
    let mut chars = identifier.chars().peekable();
    while let Some(c) = chars.next() {
        if matches!(c, '_' | '-' | '.' | '/') {
            spaced.push(' ');
        } else {
            if starts_word(previous, c, chars.peek().copied()) {
                spaced.push(' ');
            }
            spaced.push(c);
        }
        previous = Some(c);
    }
    spaced
}

/// A name without case, separators and accents: `Find-Symbol` and `findSymbol` give `findsymbol`.
pub fn name_key(name: &str) -> String {
    if name.is_ascii() {
        let mut key = name.to_ascii_lowercase();
        key.retain(|c| c.is_ascii_alphanumeric());
        return key;
    }
    folded(name)
        .flat_map(char::to_lowercase)
        .filter(|c| c.is_alphanumeric())
        .collect()
}

/// The share of Chinese, Japanese and Korean in a text, 0 to 1; a Latin word weighs as much as
/// three characters.
pub fn cjk_share(text: &str) -> f32 {
    let cjk = text.chars().filter(|&c| is_cjk(c)).count() as f32;
    if cjk == 0.0 {
        return 0.0;
    }
    let mut latin = 0;
    for word in text.split(|c: char| !c.is_alphabetic() || is_cjk(c)) {
        latin += usize::from(!word.is_empty());
    }
    cjk / (cjk + 3.0 * latin as f32)
}

/// True for Han, kana, bopomofo and Hangul.
pub fn is_cjk(c: char) -> bool {
    matches!(c as u32, 0x3040..=0x30FF | 0x3105..=0x312F | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF
        | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// True for pictographs; not for what modifies them, such as a colour of skin.
fn is_emoji(c: char) -> bool {
    matches!(c as u32, 0x2300..=0x23FF | 0x2600..=0x27BF | 0x2B00..=0x2BFF | 0x1F000..=0x1F3FA | 0x1F400..=0x1FAFF)
}

fn is_han(c: char) -> bool {
    is_cjk(c) && !matches!(c as u32, 0x3040..=0x30FF | 0x3105..=0x312F | 0xAC00..=0xD7AF)
}

/// True for words of the stop-list.
pub fn is_stop_word(word: &str) -> bool {
    // Asked for every word of every text.
    static WORDS: LazyLock<HashSet<&str, RandomState>> =
        LazyLock::new(|| STOP_WORDS.iter().copied().collect());
    word.len() <= LONGEST_STOP_WORD && WORDS.contains(word)
}

/// The stem of a lowercase word.
pub fn stem(word: &str) -> String {
    with_stem(word, str::to_owned)
}

fn with_stem<T>(word: &str, read: impl FnOnce(&str) -> T) -> T {
    thread_local! {
        static STEMS: RefCell<WordCache<String>> = RefCell::default();
    }
    let computed = || Stemmer::create(Algorithm::English).stem(word).into_owned();
    STEMS.with_borrow_mut(|stems| stems.get(word, computed, |stem| read(stem)))
}

/// What was computed for words, since few words make up most of a text.
#[derive(Default)]
pub struct WordCache<T> {
    by_word: HashMap<Box<str>, T, RandomState>,
}

impl<T> WordCache<T> {
    /// Reads what belongs to a word, computed if it is not there.
    pub fn get<R>(
        &mut self,
        word: &str,
        compute: impl FnOnce() -> T,
        read: impl FnOnce(&T) -> R,
    ) -> R {
        if let Some(known) = self.by_word.get(word) {
            return read(known);
        }
        let computed = compute();
        let result = read(&computed);
        // Numbers, and sentences of languages without spaces, do not come again, and would push out
        // words that do.
        if word.len() > MAX_WORD_CHARS || word.as_bytes().iter().any(u8::is_ascii_digit) {
            return result;
        }
        if self.by_word.len() >= CACHED_WORDS {
            self.by_word.clear();
        }
        self.by_word.insert(word.into(), computed);
        result
    }
}

/// A 32-bit hash of a term. Collisions among the terms of a large catalog are rare.
pub fn term_hash(term: &str) -> u32 {
    // FNV-1a.
    let mut hash: u32 = 0x811c_9dc5;
    for byte in term.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash
}

/// A map from terms, by their [`term_hash`].
pub type ByTerm<T> = HashMap<u32, T, BuildHasherDefault<TermHasher>>;

/// A hasher for keys that are hashes already: one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub struct TermHasher(u64);

impl Hasher for TermHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Multiplying by an odd constant fills the highest bits, which hash tables compare first.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

enum Word<'a> {
    /// Letters or digits, lowercase, or an emoji.
    Plain(&'a str),
    /// A run of CJK characters.
    Cjk(&'a [char]),
}

/// The kinds of characters between which a word ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letter,
    Digit,
    Cjk,
    Emoji,
    Other,
}

fn kind(c: char) -> Kind {
    match c {
        'a'..='z' | 'A'..='Z' => Kind::Letter,
        '0'..='9' => Kind::Digit,
        _ if c.is_ascii() => Kind::Other,
        _ if is_cjk(c) => Kind::Cjk,
        _ if is_emoji(c) => Kind::Emoji,
        _ if c.is_alphabetic() => Kind::Letter,
        _ if c.is_numeric() => Kind::Digit,
        _ => Kind::Other,
    }
}

fn for_each_word(text: &str, emit: impl FnMut(Word<'_>)) {
    // Most texts are ASCII and need no tables.
    if text.is_ascii() {
        split(text.chars(), emit);
    } else {
        split(folded(text), emit);
    }
}

/// Calls `emit` with each word of normalised characters.
fn split(chars: impl Iterator<Item = char>, mut emit: impl FnMut(Word<'_>)) {
    let mut word = String::new();
    let mut run: Vec<char> = Vec::new();
    let mut previous = None;
    let mut length = 0;
    let mut chars = chars.peekable();
    while let Some(c) = chars.next() {
        let kind_now = kind(c);
        let continues = match previous {
            // Each emoji is a word of its own.
            Some(_) if kind_now == Kind::Emoji => false,
            Some((before, its_kind)) => {
                its_kind == kind_now && !is_hump(before, c, chars.peek().copied())
            }
            None => false,
        };
        if !continues {
            flush(&mut word, &mut run, &mut emit);
            length = 0;
        }
        length += 1;
        match kind_now {
            Kind::Cjk => run.push(c),
            // The rest of an overlong word is dropped and does not become words of its own.
            Kind::Letter | Kind::Digit if length > MAX_WORD_CHARS => {}
            Kind::Letter | Kind::Digit if c.is_ascii() => word.push(c.to_ascii_lowercase()),
            Kind::Letter | Kind::Digit => word.extend(c.to_lowercase()),
            Kind::Emoji => word.push(c),
            Kind::Other => {}
        }
        previous = Some((c, kind_now));
    }
    flush(&mut word, &mut run, &mut emit);
}

fn flush(word: &mut String, run: &mut Vec<char>, emit: &mut impl FnMut(Word<'_>)) {
    if !word.is_empty() {
        emit(Word::Plain(word));
        word.clear();
    }
    if !run.is_empty() {
        emit(Word::Cjk(run));
        run.clear();
    }
}

/// True where a hump or a digit begins a new word: `fooBar`, `HTTPServer` before `S`, `v2` before
/// `2`.
fn starts_word(previous: Option<char>, c: char, next: Option<char>) -> bool {
    let Some(previous) = previous else {
        return false;
    };
    if kind(previous) != kind(c) && matches!(kind(c), Kind::Letter | Kind::Digit) {
        return matches!(kind(previous), Kind::Letter | Kind::Digit);
    }
    is_hump(previous, c, next)
}

/// True for the capital letter of a hump.
fn is_hump(previous: char, c: char, next: Option<char>) -> bool {
    c.is_uppercase()
        && (previous.is_lowercase()
            || (previous.is_uppercase() && next.is_some_and(char::is_lowercase)))
}

/// Compatibility forms unified, accents on Latin letters dropped; Hangul and kana recomposed. ASCII
/// stays as it is.
fn folded(text: &str) -> impl Iterator<Item = char> + '_ {
    // A text is mostly ASCII, and of other characters only accents, which are dropped, could become
    // one with an ASCII letter. So the tables are asked for the other characters alone.
    text.as_bytes()
        .chunk_by(|a, b| a.is_ascii() == b.is_ascii())
        .flat_map(|bytes| {
            let run = str::from_utf8(bytes).unwrap_or_default();
            let (ascii, other) = if run.is_ascii() { (run, "") } else { ("", run) };
            // Decomposition has split Hangul and voiced kana too, which are put together again.
            let other = other
                .nfkd()
                .filter(|c| !('\u{300}'..='\u{36f}').contains(c))
                .nfc();
            ascii.chars().chain(other)
        })
}

fn cjk_terms(run: &[char], mut emit: impl FnMut(&str)) {
    // Bigrams and characters together give 87.4 nDCG@10 on the Chinese set, bigrams alone 85.7,
    // characters alone 81.8.
    let mut gram = String::with_capacity(8);
    for pair in run.windows(2) {
        gram.clear();
        gram.extend(pair);
        emit(&gram);
    }
    for &c in run {
        // A single kana or Hangul character is in no bigram.
        if is_han(c) || run.len() == 1 {
            gram.clear();
            gram.push(c);
            emit(&gram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stems(text: &str) -> String {
        terms(text)
            .into_iter()
            .map(|term| term.term)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn identifiers_are_split() {
        for text in [
            "find_symbol",
            "findSymbol",
            "FindSymbol",
            "find-symbol",
            "find.symbol",
            "FIND_SYMBOL",
        ] {
            assert_eq!(stems(text), "find symbol", "{text}");
        }
        assert_eq!(stems("HTTPServer2Start"), "http server 2 start");
        assert_eq!(spaced("getUserID2.list/all"), "get User ID 2 list all");
    }

    #[test]
    fn stop_words_are_dropped_and_words_stemmed() {
        assert_eq!(stems("Could you please list the meetings?"), "list meet");
        assert_eq!(stems("États-Unis café"), "etat uni cafe");
    }

    #[test]
    fn each_emoji_is_a_term_without_what_modifies_it() {
        assert_eq!(stems("Sends a 🎉 reaction"), "send 🎉 reaction");
        assert_eq!(stems("👍🏽👍⚠️ok☀"), "👍 👍 ⚠ ok ☀");
        assert_eq!(stems("👩‍💻 — • … → ™"), "👩 💻 tm");
    }

    #[test]
    fn runs_of_ascii_are_folded_as_the_whole_text_is() {
        let whole = |text: &str| -> String {
            text.nfkd()
                .filter(|c| !('\u{300}'..='\u{36f}').contains(c))
                .nfc()
                .collect()
        };
        for text in [
            "plain",
            "the tool\u{2019}s caf\u{e9}, e\u{301}t\u{e9} a\u{338}=\u{338}",
            "\u{301}first \u{ff46}\u{ff55} x\u{b2} \u{bd}",
            "\u{304b}\u{3099} \u{1112}\u{1161}\u{11ab} K\u{212a} \u{fb01}x",
            "z\u{342}\u{345}a\u{5b0}b\u{e34}c",
        ] {
            assert_eq!(folded(text).collect::<String>(), whole(text), "{text}");
        }
    }

    #[test]
    fn han_gives_bigrams_and_characters_and_kana_bigrams_only() {
        assert_eq!(stems("查询天气"), "查询 询天 天气 查 询 天 气");
        assert_eq!(stems("カタカナ"), "カタ タカ カナ");
        assert_eq!(stems("ｆｕｌｌ２"), "full 2");
    }

    #[test]
    fn a_key_has_no_case_and_no_separators() {
        assert_eq!(name_key("Find-Symbol.v2"), "findsymbolv2");
        assert_eq!(name_key("查询_天气"), "查询天气");
    }

    #[test]
    fn cjk_share_weighs_a_latin_word_as_three_characters() {
        assert_eq!(cjk_share("send mail"), 0.0);
        assert_eq!(cjk_share("查询天气"), 1.0);
        assert_eq!(cjk_share("查天气 API"), 0.5);
    }

    #[test]
    fn the_stop_list_is_sorted() {
        assert!(STOP_WORDS.is_sorted());
        let longest = STOP_WORDS.iter().map(|word| word.len()).max();
        assert_eq!(longest, Some(LONGEST_STOP_WORD));
    }
}
