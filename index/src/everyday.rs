//! Everyday phrases in a request, and the words that tools use instead: "spin up a box" asks for what
//! tools call `create` and `instance`.
//!
//! The phrases are data, `assets/everyday-words.txt`; its head says how they came about and how a
//! line is read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use crate::text::{self, Term};

/// Most words of a request that a `~` stands for.
const MAX_GAP: usize = 3;
/// Words that are read of a line.
const MAX_WORDS: usize = 6;
/// Words of a request that are searched for phrases, and phrases that are found in it: a pasted
/// document is no everyday request.
const MAX_REQUEST_WORDS: usize = 128;
const MAX_PHRASES: usize = 16;

static LINES: &str = include_str!("../assets/everyday-words.txt");

/// A phrase that occurs in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// As it was said.
    pub said: String,
    /// The stems of its words, stop words included.
    pub stems: Vec<String>,
    /// The words that tools use instead.
    pub words: &'static [Term],
}

/// The everyday phrases that the crate carries.
pub struct Lexicon {
    /// By the stem of their first word.
    patterns: HashMap<String, Vec<Pattern>>,
    /// What tools say instead, by line.
    lines: Vec<Vec<Term>>,
}

/// A phrase as it is searched for.
struct Pattern {
    /// Stems; between two parts other words may stand.
    parts: Vec<Vec<String>>,
    line: usize,
}

/// A pattern that was found in a request.
struct Found {
    /// The places of its words in the request, ascending.
    places: Vec<usize>,
    line: usize,
}

impl Lexicon {
    /// The phrases of the crate, read once for the process in less than a millisecond.
    pub fn bundled() -> &'static Self {
        static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| Lexicon::read(LINES));
        &LEXICON
    }

    fn read(text: &str) -> Self {
        let mut lexicon = Lexicon {
            patterns: HashMap::new(),
            lines: Vec::new(),
        };
        for line in text.lines() {
            if line.starts_with('#') {
                continue;
            }
            let Some((phrases, words)) = line.split_once('=') else {
                continue;
            };
            // Before the line itself, whose number they take from the lines so far.
            for phrase in phrases.split(',') {
                lexicon.add_pattern(phrase);
            }
            let mut words = text::terms(words);
            words.truncate(MAX_WORDS);
            lexicon.lines.push(words);
        }
        lexicon
    }

    /// Adds a phrase of the line that is read next.
    fn add_pattern(&mut self, phrase: &str) {
        let mut parts = Vec::new();
        for part in phrase.split('~') {
            let stems = stems(&text::words(part));
            if !stems.is_empty() {
                parts.push(stems);
            }
        }
        let Some([first, ..]) = parts.first().map(Vec::as_slice) else {
            return;
        };
        let line = self.lines.len();
        let patterns = self.patterns.entry(first.clone()).or_default();
        patterns.push(Pattern { parts, line });
    }

    /// The phrases of a request, in order. A phrase within a longer one does not count: a "text
    /// message" is no text.
    pub fn phrases(&'static self, request: &str) -> Vec<Phrase> {
        let mut words = text::words(request);
        words.truncate(MAX_REQUEST_WORDS);
        let stems = stems(&words);
        let found = self.find(&stems);
        let mut phrases = Vec::new();
        let mut lines = Vec::new();
        for Found { places, line } in &found {
            let is_part = found.iter().any(|other| other.contains(places));
            // A line has several phrases that mean the same.
            if is_part || lines.contains(line) || phrases.len() == MAX_PHRASES {
                continue;
            }
            lines.push(*line);
            let (mut said, mut said_stems) = (Vec::new(), Vec::new());
            for &place in places {
                said.push(words[place].as_str());
                said_stems.push(stems[place].clone());
            }
            phrases.push(Phrase {
                said: said.join(" "),
                stems: said_stems,
                words: &self.lines[*line],
            });
        }
        phrases
    }

    /// Every pattern in a request, by the place of its first word.
    fn find(&self, stems: &[String]) -> Vec<Found> {
        let mut found = Vec::new();
        for (start, stem) in stems.iter().enumerate() {
            for pattern in self.patterns.get(stem).into_iter().flatten() {
                if let Some(places) = pattern.places(stems, start) {
                    let line = pattern.line;
                    found.push(Found { places, line });
                }
            }
        }
        found
    }
}

impl Pattern {
    /// The places of its words in a request, the first one at `start`.
    fn places(&self, stems: &[String], start: usize) -> Option<Vec<usize>> {
        let mut places: Vec<usize> = Vec::new();
        for part in &self.parts {
            let starts = match places.last() {
                None => start..start + 1,
                // Directly after the part before, or with a gap.
                Some(last) => last + 1..last + 2 + MAX_GAP,
            };
            let place = first_place(part, stems, starts)?;
            places.extend(place..place + part.len());
        }
        Some(places)
    }
}

impl Found {
    /// True if it has all of these places and more.
    fn contains(&self, places: &[usize]) -> bool {
        self.places.len() > places.len() && places.iter().all(|place| self.places.contains(place))
    }
}

/// The first of these places at which the part stands.
fn first_place(part: &[String], stems: &[String], mut starts: Range<usize>) -> Option<usize> {
    starts.find(|&start| stems.get(start..start + part.len()) == Some(part))
}

fn stems(words: &[String]) -> Vec<String> {
    words.iter().map(String::as_str).map(text::stem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(request: &str) -> Vec<(String, String)> {
        let phrases = Lexicon::bundled().phrases(request);
        phrases
            .into_iter()
            .map(|phrase| (phrase.said, phrase.words[0].word.clone()))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(said, word)| (said.to_string(), word.to_string()))
            .collect()
    }

    #[test]
    fn phrases_become_words_of_tools() {
        assert_eq!(
            found("Get rid of that repo"),
            pairs(&[("get rid of", "delete"), ("repo", "repository")])
        );
        assert_eq!(
            found("shut the old VM down"),
            pairs(&[("shut down", "stop"), ("vm", "instance")])
        );
        assert_eq!(found("shut it, wherever it may now be, down"), []);
    }

    #[test]
    fn the_longest_of_nested_phrases_counts() {
        assert_eq!(found("a text message"), pairs(&[("text message", "send")]));
    }

    #[test]
    fn unusual_requests_have_few_phrases_or_none() {
        for request in ["", "~", "=", "🙂", "关掉服务器", "\u{202e}"] {
            assert_eq!(found(request), [], "{request}");
        }
        assert!(found(&LINES.repeat(3)).len() <= MAX_PHRASES);
    }

    #[test]
    fn every_line_has_phrases_and_words() {
        let mut lines = 0;
        for line in LINES.lines().filter(|line| !line.starts_with('#')) {
            let Some((phrases, words)) = line.split_once(" = ") else {
                assert!(line.is_empty(), "{line:?} has no ` = `");
                continue;
            };
            let count = words.split_whitespace().count();
            assert!((1..=MAX_WORDS).contains(&count), "{line}");
            assert_eq!(text::terms(words).len(), count, "{line}: a stop word");
            assert!(phrases.split(',').all(|phrase| !phrase.trim().is_empty()));
            lines += 1;
        }
        assert_eq!(Lexicon::bundled().lines.len(), lines);
    }
}
