//! Recognises the language of a request or of a tool, as far as a search has to know it.
//!
//! Languages of one script are told apart only where that changes a search: English from the other
//! languages in Latin script, and Japanese from Chinese.

use std::collections::HashSet;
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use unicode_normalization::UnicodeNormalization;

use crate::text;

/// From this share of its letters on, a text in two scripts is in the language of the script that is
/// not Latin. Product names stay in Latin letters in every language.
const MIN_SHARE_OF_SCRIPT: f32 = 0.3;

/// Bytes that are read of a text. The language of a longer one shows in its beginning.
const MAX_BYTES: usize = 1 << 10;

/// What is known of the language of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// English, and texts without any sign of a language, such as bare names.
    #[default]
    English,
    /// Another language in Latin script.
    OtherLatin,
    /// Han characters without kana.
    Chinese,
    /// Kana, with or without Han characters.
    Japanese,
    /// Hangul.
    Korean,
    /// Cyrillic script.
    Cyrillic,
    /// Any other script.
    Other,
}

impl Language {
    /// Every value, with the name under which it is stored.
    const NAMES: [(Language, &'static str); 7] = [
        (Language::English, "english"),
        (Language::OtherLatin, "other latin"),
        (Language::Chinese, "chinese"),
        (Language::Japanese, "japanese"),
        (Language::Korean, "korean"),
        (Language::Cyrillic, "cyrillic"),
        (Language::Other, "other"),
    ];

    /// The name under which it is stored.
    pub fn name(self) -> &'static str {
        for (language, name) in Self::NAMES {
            if language == self {
                return name;
            }
        }
        "english"
    }

    /// The language of this name.
    pub fn named(name: &str) -> Option<Self> {
        for (language, its_name) in Self::NAMES {
            if its_name == name {
                return Some(language);
            }
        }
        None
    }

    /// The language of a text.
    pub fn of(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        if text.is_ascii() {
            return of_latin(text);
        }
        // Full-width letters become the common ones.
        let text: String = text.nfkc().collect();
        if text::cjk_share(&text) > MIN_SHARE_OF_SCRIPT {
            return of_cjk(&text);
        }
        let (latin, cyrillic, other) = words_by_script(&text);
        let in_other_scripts = (cyrillic + other) as f32;
        if in_other_scripts > MIN_SHARE_OF_SCRIPT * (latin as f32 + in_other_scripts) {
            return if cyrillic >= other {
                Language::Cyrillic
            } else {
                Language::Other
            };
        }
        of_latin(&text)
    }

    /// True for languages that are written without spaces and searched by characters.
    pub fn is_cjk(self) -> bool {
        matches!(
            self,
            Language::Chinese | Language::Japanese | Language::Korean
        )
    }
}

fn of_cjk(text: &str) -> Language {
    // A single kana is enough: Japanese is full of Han characters too.
    if text.contains(|c: char| ('\u{3040}'..='\u{30ff}').contains(&c)) {
        Language::Japanese
    } else if text.contains(|c: char| ('\u{ac00}'..='\u{d7af}').contains(&c)) {
        Language::Korean
    } else {
        Language::Chinese
    }
}

/// The number of words in Latin, in Cyrillic and in any other script.
fn words_by_script(text: &str) -> (usize, usize, usize) {
    let (mut latin, mut cyrillic, mut other) = (0, 0, 0);
    for word in text.split(|c: char| !c.is_alphabetic()) {
        match word.chars().next() {
            None => {}
            Some('\u{400}'..='\u{52f}') => cyrillic += 1,
            Some(c) if (c as u32) < 0x250 || (0x1e00..0x1f00).contains(&(c as u32)) => latin += 1,
            Some(_) => other += 1,
        }
    }
    (latin, cyrillic, other)
}

/// English, or another language in Latin script, by function words and common words of requests.
fn of_latin(text: &str) -> Language {
    let (english, other) = signs(text);
    if other >= 2 && other > 2 * english {
        Language::OtherLatin
    } else {
        Language::English
    }
}

/// How many words of a text are signs of English, and of another language in Latin script; of the
/// latter a sure sign counts twice.
pub(crate) fn signs(text: &str) -> (usize, usize) {
    let lists = WordLists::get();
    let (mut english, mut other) = (0, 0);
    // Whole words between spaces: in "de-duplicate" or "es.json" there is no word of a language.
    for (number, word) in text.split_whitespace().enumerate() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        // Only the first word has a capital for being the first: "Ella" further on is a name.
        let lower = lowercase_start(word);
        let as_written = if number == 0 { lower.as_str() } else { word };
        if lists.english.contains(&*lower) {
            english += 1;
        } else if lists.other.contains(as_written)
            || (!word.is_ascii() && has_accented_lowercase(word))
        {
            other += 2;
        } else if lists.other_short.contains(as_written) || has_elided_article(word) {
            // Short words are also part of names and abbreviations, so they count half.
            other += 1;
        }
    }
    (english, other)
}

/// The word with its first letter in lowercase, as the first word of a sentence is compared.
fn lowercase_start(word: &str) -> String {
    let mut chars = word.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// True for a word such as "année" or "größe", and not for names such as "Zürich".
fn has_accented_lowercase(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_lowercase)
        && word.chars().any(|c| !c.is_ascii() && c.is_lowercase())
}

/// True for "l'issue", "d'un", "dell'utente".
fn has_elided_article(word: &str) -> bool {
    let Some((article, rest)) = word.split_once(['\'', '’']) else {
        return false;
    };
    rest.chars().count() > 2
        && matches!(
            article,
            "l" | "L"
                | "d"
                | "D"
                | "j"
                | "J"
                | "qu"
                | "n"
                | "c"
                | "C"
                | "s"
                | "dell"
                | "all"
                | "un"
                | "nell"
                | "sull"
        )
}

type Words = HashSet<&'static str, RandomState>;

/// The words of `assets/language-words.txt`, whose comments say what each list has.
#[derive(Default)]
struct WordLists {
    english: Words,
    other: Words,
    other_short: Words,
    function_words: Words,
}

impl WordLists {
    fn get() -> &'static Self {
        static LISTS: LazyLock<WordLists> = LazyLock::new(WordLists::read);
        &LISTS
    }

    fn read() -> Self {
        let mut lists = WordLists::default();
        let mut list = &mut lists.english;
        for line in include_str!("../assets/language-words.txt").lines() {
            match line {
                "[english]" => list = &mut lists.english,
                "[other]" => list = &mut lists.other,
                "[other short]" => list = &mut lists.other_short,
                "[function words]" => list = &mut lists.function_words,
                line if line.starts_with('#') => {}
                line => list.extend(line.split_whitespace()),
            }
        }
        lists
    }
}

/// True for a word of these languages that says nothing alone, as it comes from [`text::words`].
pub(crate) fn is_function_word(word: &str) -> bool {
    WordLists::get().function_words.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised_by_script_and_by_words() {
        let cases = [
            (
                Language::English,
                "delete the old backups in Zürich and find a café",
            ),
            (Language::English, "weather los angeles"),
            (Language::English, "call Ella"),
            (Language::English, "de-duplicate records"),
            (
                Language::English,
                "translate 你好 into French for me please",
            ),
            (Language::English, "create_issue"),
            (Language::English, "🙂 42"),
            (Language::English, "x"),
            (Language::English, ""),
            (Language::OtherLatin, "crear tarea"),
            (Language::OtherLatin, "no me llega el correo"),
            (Language::OtherLatin, "Was ist in der Datei?"),
            (
                Language::OtherLatin,
                "Envía un correo a Juan con el informe",
            ),
            (Language::OtherLatin, "qual é o tempo em Lisboa"),
            (Language::OtherLatin, "montre-moi mes factures"),
            (Language::OtherLatin, "Zeige mir alle offenen Tickets"),
            (Language::OtherLatin, "trova il file nel progetto GitHub"),
            (Language::Chinese, "在 GitHub 上新建一个 issue"),
            (Language::Chinese, "查"),
            (Language::Chinese, "檢查資料庫"),
            (Language::Japanese, "明日の天気を調べて"),
            (Language::Korean, "내일 날씨 알려줘"),
            (Language::Cyrillic, "создай задачу в Jira"),
            (Language::Other, "أنشئ مهمة في Jira"),
            (Language::English, "ｌｉｓｔ ｔｈｅ ｆｉｌｅｓ"),
        ];
        for (language, text) in cases {
            assert_eq!(Language::of(text), language, "{text}");
        }
    }

    #[test]
    fn no_english_word_is_one_of_another_language() {
        let lists = WordLists::get();
        assert!(lists.english.contains("would") && lists.function_words.contains("저"));
        for word in &lists.english {
            assert!(
                !lists.other.contains(word) && !lists.other_short.contains(word),
                "{word}"
            );
        }
    }
}
