//! Splits a text into the words of a dictionary, where these are written without spaces or as one word.

use unicode_normalization::UnicodeNormalization;

use super::dictionary::{Entry, Section};
use crate::text;

/// Characters that are read of a text, as of one that is embedded.
const MAX_TEXT: usize = 512;
/// Most characters of a word that is written without spaces, and of a part of a compound.
const MAX_UNSPACED: usize = 10;
const MAX_PART: usize = 24;
/// Least characters of a part of a compound.
const MIN_PART: usize = 3;
/// The least frequency of a part of a compound; what is rarer is seldom meant.
const MIN_PART_FREQUENCY: f32 = 3.0;
/// Letters between the parts of a German compound.
const LINKS: [&str; 6] = ["s", "es", "n", "en", "er", "e"];
/// The cost of such letters, and of each further part.
const LINK_COST: f32 = 3.0;
const PART_COST: f32 = 4.0;
/// The frequency below which words cost the same, so that a rare word costs less than its parts.
const LEAST_FREQUENCY: f32 = 2.0;
/// The cost of a character that is in no word: of kana and Hangul, which are often endings, and of others.
const ENDING_COST: f32 = 9.0;
const UNKNOWN_COST: f32 = 14.0;

/// A part of a text.
pub(super) enum Unit<'t> {
    /// A word of the dictionary.
    Known(&'t str, Entry),
    /// A word that it lacks.
    Unknown(&'t str),
}

/// A text as the dictionary writes it: compatible characters as one, in lowercase, Russian without ё.
pub(super) fn normalised(text: &str) -> String {
    let composed = text.nfkc().flat_map(char::to_lowercase).take(MAX_TEXT);
    composed.map(|c| if c == 'ё' { 'е' } else { c }).collect()
}

/// The words of a normalised text: runs of letters, digits and marks of one kind of script.
pub(super) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()) {
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let kind = text::is_cjk(first);
            let end = rest
                .find(|c: char| text::is_cjk(c) != kind)
                .unwrap_or(rest.len());
            words.push(&rest[..end]);
            rest = &rest[end..];
        }
    }
    words
}

/// Splits a word into units.
pub(super) fn units<'t>(word: &'t str, section: &Section) -> Vec<Unit<'t>> {
    if let Some(entry) = section.find(word) {
        return vec![Unit::Known(word, entry)];
    }
    if word.starts_with(text::is_cjk) {
        let step = |start, end| unspaced_step(&word[start..end], section);
        let parts = cheapest(word, MAX_UNSPACED, step).unwrap_or_default();
        // Korean has spaces between words, and most of its syllables are words of their own.
        if section.language == "ko" && parts.iter().enumerate().any(is_doubtful) {
            return vec![Unit::Unknown(word)];
        }
        return parts;
    }
    if section.language == "de" {
        let step = |start, end| compound_step(word, start, end, section);
        if let Some(mut parts) = cheapest(word, MAX_PART, step) {
            parts.retain(|part| matches!(part, Unit::Known(..)));
            return parts;
        }
    }
    if let Some((form, entry)) = without_pronoun(word, section) {
        return vec![Unit::Known(form, entry)];
    }
    vec![Unit::Unknown(word)]
}

/// True for a part of a Korean word that is not known, or for a syllable that is a word elsewhere.
fn is_doubtful((number, part): (usize, &Unit)) -> bool {
    match part {
        Unit::Unknown(_) => true,
        Unit::Known(text, entry) => {
            number > 0 && text.chars().count() == 1 && entry.translations().next().is_some()
        }
    }
}

/// What a part of a word costs, and its entry if it is a word.
type Step = (f32, Option<Entry>);

fn unspaced_step(part: &str, section: &Section) -> Option<Step> {
    if let Some(entry) = section.find(part) {
        return Some((cost(entry), Some(entry)));
    }
    // What is in no word is taken character by character.
    let mut chars = part.chars();
    let (Some(c), None) = (chars.next(), chars.next()) else {
        return None;
    };
    let cost = match c {
        '\u{3040}'..='\u{309f}' | '\u{ac00}'..='\u{d7af}' => ENDING_COST,
        _ => UNKNOWN_COST,
    };
    Some((cost, None))
}

fn compound_step(word: &str, start: usize, end: usize, section: &Section) -> Option<Step> {
    let part = &word[start..end];
    // No word begins with a link or ends with one.
    if start > 0 && end < word.len() && LINKS.contains(&part) {
        return Some((LINK_COST, None));
    }
    if part.chars().count() < MIN_PART {
        return None;
    }
    let entry = section.find(part)?;
    if entry.frequency < MIN_PART_FREQUENCY || entry.translations().next().is_none() {
        return None;
    }
    Some((cost(entry) + PART_COST, Some(entry)))
}

/// A verb with a pronoun at its end, such as "inviami" ("send me"), without it.
fn without_pronoun<'t>(word: &'t str, section: &Section) -> Option<(&'t str, Entry)> {
    let pronouns: &[&str] = match section.language {
        "es" => &[
            "melo", "mela", "nos", "me", "lo", "la", "los", "las", "le", "les", "te",
        ],
        "it" => &[
            "melo", "mela", "mi", "lo", "la", "li", "le", "ci", "ne", "ti",
        ],
        _ => return None,
    };
    // A pronoun comes after those that end with it, as "lo" after "melo".
    for pronoun in pronouns {
        if let Some(verb) = word.strip_suffix(pronoun)
            && verb.len() >= MIN_PART
            && let Some(entry) = section.find(verb)
        {
            return Some((verb, entry));
        }
    }
    None
}

/// The negative logarithm of a word's probability.
fn cost(entry: Entry) -> f32 {
    (9.0 - entry.frequency.max(LEAST_FREQUENCY)) * std::f32::consts::LN_10
}

/// The way to the end of a part: the cost up to it, where the part begins, and its entry.
type Arrival = (f32, usize, Option<Entry>);

/// The cheapest split of a word into parts of up to `most` characters; `None` if there is none. Parts
/// without an entry that follow each other are one unknown unit.
fn cheapest<'t>(
    word: &'t str,
    most: usize,
    step: impl Fn(usize, usize) -> Option<Step>,
) -> Option<Vec<Unit<'t>>> {
    let mut best: Vec<Option<Arrival>> = vec![None; word.len() + 1];
    best[0] = Some((0.0, 0, None));
    // From the left to the right, so that the best way to a place is known before it is built on.
    for (start, _) in word.char_indices() {
        let Some((so_far, ..)) = best[start] else {
            continue;
        };
        for (at, c) in word[start..].char_indices().take(most) {
            let end = start + at + c.len_utf8();
            let Some((cost, entry)) = step(start, end) else {
                continue;
            };
            let total = so_far + cost;
            let is_cheaper = match best[end] {
                Some((known, ..)) => total < known,
                None => true,
            };
            if is_cheaper {
                best[end] = Some((total, start, entry));
            }
        }
    }
    units_of(word, &best)
}

/// Follows the cheapest way back from the end of a word.
fn units_of<'t>(word: &'t str, best: &[Option<Arrival>]) -> Option<Vec<Unit<'t>>> {
    let mut units = Vec::new();
    let mut end = word.len();
    let mut unknown_end = None;
    while end > 0 {
        let (_, start, entry) = best[end]?;
        if let Some(entry) = entry {
            let unknown = unknown_end.take();
            // Parts without an entry that follow each other are one unit.
            units.extend(unknown.map(|last| Unit::Unknown(&word[end..last])));
            units.push(Unit::Known(&word[start..end], entry));
        } else {
            unknown_end = unknown_end.or(Some(end));
        }
        end = start;
    }
    units.extend(unknown_end.map(|last| Unit::Unknown(&word[..last])));
    units.reverse();
    Some(units)
}
