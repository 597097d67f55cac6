//! The words of a request that no hit has anything to do with.

use std::ops::Range;

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
const TIMES: [&str; 44] = [
    "afternoon",
    "am",
    "apr",
    "april",
    "aug",
    "august",
    "dec",
    "december",
    "evening",
    "feb",
    "february",
    "fri",
    "friday",
    "jan",
    "january",
    "jul",
    "july",
    "jun",
    "june",
    "midnight",
    "mon",
    "monday",
    "morning",
    "noon",
    "nov",
    "november",
    "oct",
    "october",
    "pm",
    "sat",
    "saturday",
    "sep",
    "sept",
    "september",
    "sunday",
    "thu",
    "thursday",
    "tomorrow",
    "tonight",
    "tue",
    "tuesday",
    "wed",
    "wednesday",
    "yesterday",
];
/// Names of languages. They are values too, since a catalog that translates names few of them.
const LANGUAGES: [&str; 24] = [
    "arabic",
    "chinese",
    "czech",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hebrew",
    "hindi",
    "hungarian",
    "italian",
    "japanese",
    "korean",
    "norwegian",
    "polish",
    "portuguese",
    "russian",
    "spanish",
    "swahili",
    "swedish",
    "turkish",
];
/// Quotation marks, the first with the last one.
const QUOTES: [(char, char); 5] = [
    ('"', '"'),
    ('\u{201c}', '\u{201d}'),
    ('\u{201e}', '\u{201c}'),
    ('\u{ab}', '\u{bb}'),
    ('`', '`'),
];

/// A word of a request. One with humps, such as "YouTube", has several words of the text analysis.
struct AskedWord {
    /// As it was written, lowercase.
    shown: String,
    /// Its words.
    words: Vec<String>,
    /// Its words as they are searched for.
    corrected: Vec<String>,
    /// The places of its words among all words, so that neighbours are known.
    places: Range<usize>,
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
        let means_more = |word| explained.contains(word) || terms.is_replaced(word);
        let is_there = |word: &String| have(tools, &text::stem(word));
        !word.words.iter().any(means_more)
            && !word.corrected.iter().any(is_there)
            && !is_there(&word.shown)
    });
    let mut tokens = Vec::with_capacity(words.len());
    for word in &words {
        tokens.push(late_interaction::tokens(&word.corrected.join(" "), table));
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
    content_words(request.whole_text(), &text::words(request.ranked_text()))
}

/// The words of a text without function words and values. Corrections replace word by word, so the places
/// in `corrected` agree with those in the text.
fn content_words(text: &str, corrected: &[String]) -> Vec<AskedWord> {
    let pieces: Vec<&str> = text.split_whitespace().collect();
    let quoted = quoted(&pieces);
    let (mut words, mut place) = (Vec::new(), 0);
    for (piece, is_quoted) in pieces.into_iter().zip(quoted) {
        let is_value = is_quoted || is_identifier(piece);
        for run in piece.split(|c: char| !c.is_alphanumeric()) {
            let first = place;
            let mut said = text::words(run);
            place += said.len();
            if place > MAX_WORDS {
                return words;
            }
            let has_digits = run.bytes().any(|byte| byte.is_ascii_digit());
            if is_value || has_digits || run.contains(text::is_cjk) {
                continue;
            }
            let is_left_over = run.len() < 2 || is_contraction(piece, run);
            let mut searched = corrected.get(first..place).unwrap_or(&said).to_vec();
            searched.retain(|word| !text::is_stop_word(word));
            said.retain(|word| !text::is_stop_word(word));
            let shown = run.to_lowercase();
            let is_named = TIMES.contains(&shown.as_str()) || LANGUAGES.contains(&shown.as_str());
            if is_left_over || is_named || said.is_empty() || text::is_stop_word(&shown) {
                continue;
            }
            words.push(AskedWord {
                shown,
                words: said,
                corrected: searched,
                places: first..place,
            });
        }
    }
    words
}

/// Whether a part of a piece is a part of a contraction, such as "don't" and "we'll".
fn is_contraction(piece: &str, run: &str) -> bool {
    let mut sides = piece.split(['\'', '\u{2019}']).map(str::to_lowercase);
    let (Some(before), Some(after)) = (sides.next(), sides.next()) else {
        return false;
    };
    let run = run.to_lowercase();
    let after = after.trim_end_matches(|c: char| !c.is_alphanumeric());
    match after {
        "ll" | "re" | "ve" => run == after,
        "t" => before.ends_with(&run),
        _ => false,
    }
}

/// Most pieces of a quotation.
const MAX_QUOTED: usize = 64;

/// Which of these pieces of a text are in quotation marks.
fn quoted(pieces: &[&str]) -> Vec<bool> {
    let mut quoted = vec![false; pieces.len()];
    let mut next = 0;
    for (number, piece) in pieces.iter().enumerate() {
        let opened = QUOTES
            .into_iter()
            .find(|(open, _)| piece.starts_with(*open));
        let Some((open, close)) = opened.filter(|_| number >= next) else {
            continue;
        };
        let closes = |place: &usize| {
            let end = pieces[*place].trim_end_matches(['.', ',', '?', '!', ':', ';']);
            // The mark that opens does not also close.
            let end = match *place == number {
                true => end.strip_prefix(open).unwrap_or(end),
                false => end,
            };
            end.ends_with(close)
        };
        // Without a second mark, it is an apostrophe or a mistake.
        let end = pieces.len().min(number + MAX_QUOTED);
        if let Some(last) = (number..end).find(closes) {
            quoted[number..=last].fill(true);
            next = last + 1;
        }
    }
    quoted
}

/// Whether a piece of a text is an address, a file name or another identifier.
fn is_identifier(piece: &str) -> bool {
    let piece = piece.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '#' | '/' | '~'));
    let is_path = piece.starts_with(['#', '/', '~']) || piece.matches('/').count() > 1;
    is_path || piece.contains(['@', '.', '_', '\\'])
}

/// The words as phrases of neighbours.
fn phrases(words: Vec<AskedWord>) -> Vec<String> {
    let mut phrases: Vec<String> = Vec::new();
    let mut next_place = None;
    for word in words {
        let is_next = next_place == Some(word.places.start);
        next_place = Some(word.places.end);
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

    fn shown(text: &str) -> Vec<String> {
        let words = content_words(text, &text::words(text));
        words.into_iter().map(|word| word.shown).collect()
    }

    #[test]
    fn neighbouring_words_are_one_phrase() {
        let phrases = |text: &str| phrases(content_words(text, &text::words(text)));
        assert_eq!(
            phrases("boarding pass to watch"),
            ["boarding pass", "watch"]
        );
        assert_eq!(phrases("my YouTube clip"), ["youtube clip"]);
        assert!(phrases("").is_empty());
    }

    #[test]
    fn values_and_what_is_left_of_words_are_no_words() {
        for (text, expected) in [
            ("haircut at 3pm on Wed", vec!["haircut"]),
            (
                "upload backup.tar.gz to ~/old and mail bob@example.com",
                vec!["upload", "mail"],
            ),
            (
                "rename it to \"Ideas for later\", please rename",
                vec!["rename", "rename"],
            ),
            ("\"unclosed rename", vec!["unclosed", "rename"]),
            ("I don't see O'Neill's invoice", vec!["neill", "invoice"]),
            (
                "upload and/or download the GmbH in Japanese",
                vec!["upload", "download", "gmbh"],
            ),
        ] {
            let mut words = shown(text);
            words.retain(|word| !["see", "please"].contains(&word.as_str()));
            assert_eq!(words, expected, "{text}");
        }
    }

    #[test]
    fn corrections_keep_their_places() {
        let corrected = text::words("find my boarding pass on you tube");
        let words = content_words("find my bording pass on YouTube", &corrected);
        let last = words.last().unwrap();
        assert_eq!(
            (last.shown.as_str(), &last.corrected[..]),
            ("youtube", &["tube".to_owned()][..])
        );
        assert!(
            words
                .iter()
                .any(|word| word.shown == "bording" && word.corrected == ["boarding"])
        );
    }
}
