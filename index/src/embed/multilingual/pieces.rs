//! Splits a text into pieces of words: the split of the highest probability, as SentencePiece's
//! unigram models do it.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use unicode_normalization::UnicodeNormalization;

use crate::text::{self, WordCache};

/// Written for a space, and before the first word.
const WORD_START: char = '\u{2581}';
/// A unit of the logarithm of a probability.
const COST_UNIT: f32 = 2048.0;
/// The cost of a character that no piece has. Above any piece's, so that a split with pieces wins.
const UNKNOWN_COST: f32 = 20.0;
/// Characters that are read of a text, as in training.
const MAX_CHARS: usize = 512;

thread_local! {
    /// The pieces of words, and the number of the vocabulary that they belong to.
    static SPLITS: RefCell<(usize, WordCache<Box<[u32]>>)> = RefCell::default();
}

/// The pieces of a vocabulary and their costs.
pub(super) struct Pieces {
    /// Tells it from all others of the process. Not 0.
    number: usize,
    /// All pieces, one after another, in the order of their bytes.
    text: Box<[u8]>,
    /// The start of each piece in `text`, and the end of the last.
    starts: Vec<u32>,
    costs: Vec<f32>,
    /// The pieces that begin with each byte.
    by_first: Vec<Range<u32>>,
}

impl Pieces {
    /// From the columns of the table's file; costs are two bytes each.
    pub(super) fn new(lengths: &[u8], text: &[u8], costs: &[u8]) -> Result<Self, String> {
        let mut starts = vec![0];
        let mut end = 0;
        for &length in lengths {
            end += u32::from(length);
            starts.push(end);
        }
        let costs = costs.as_chunks().0.iter().copied().map(u16::from_le_bytes);
        let costs = costs.map(|cost| f32::from(cost) / COST_UNIT).collect();
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(1);
        let mut pieces = Pieces {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            text: text.into(),
            starts,
            costs,
            by_first: Vec::new(),
        };
        let in_order = (1..pieces.len()).all(|piece| pieces.bytes(piece - 1) < pieces.bytes(piece));
        if !in_order || lengths.contains(&0) {
            return Err("its pieces are not in order".to_owned());
        }
        let all = 0..pieces.len() as u32;
        for first in 0..=u8::MAX {
            let range = pieces.with_prefix(&all, 0, first);
            pieces.by_first.push(range);
        }
        Ok(pieces)
    }

    pub(super) fn len(&self) -> usize {
        self.costs.len()
    }

    /// The pieces of a text, in order; characters that no piece has are left out.
    pub(super) fn of(&self, text: &str) -> Vec<u32> {
        let text = normalised(beginning(text));
        let mut pieces = Vec::new();
        SPLITS.with_borrow_mut(|(of, splits)| {
            if *of != self.number {
                *of = self.number;
                *splits = WordCache::default();
            }
            // No piece begins in one word and ends in another, so each word is split alone.
            for word in words_of(&text) {
                let computed = || self.best_split(word);
                splits.get(word, computed, |split| pieces.extend_from_slice(split));
            }
        });
        pieces
    }

    /// The least cost a letter of the words of a text; infinite without a letter.
    pub(super) fn least_letter_cost(&self, text: &str) -> f32 {
        let mut least = f32::INFINITY;
        for word in words_of(&normalised(beginning(text))) {
            let letters = word.chars().filter(|c| c.is_alphabetic()).count();
            if letters > 0 {
                let cost = self.best_last_pieces(word)[word.len()].cost;
                least = least.min(cost / letters as f32);
            }
        }
        least
    }

    fn best_split(&self, word: &str) -> Box<[u32]> {
        let best = self.best_last_pieces(word);
        let mut pieces = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let step = best[end];
            pieces.extend(step.piece);
            end = step.start;
        }
        pieces.reverse();
        pieces.into()
    }

    /// The pieces of a text as texts.
    #[cfg(test)]
    pub(super) fn texts(&self, text: &str) -> Vec<String> {
        let pieces = self.of(text).into_iter();
        pieces
            .map(|piece| String::from_utf8_lossy(self.bytes(piece as usize)).into_owned())
            .collect()
    }

    /// The words of a text in lowercase; of those in Chinese and Japanese, the pieces.
    pub(super) fn words(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for word in normalised(text).split(WORD_START) {
            // The mark before the first word has nothing before it.
            if word.is_empty() {
                continue;
            }
            if !word.chars().any(is_without_spaces) {
                words.push(word.to_owned());
                continue;
            }
            for piece in self.of(word) {
                let piece = String::from_utf8_lossy(self.bytes(piece as usize));
                let piece = piece.trim_start_matches(WORD_START);
                if !piece.is_empty() {
                    words.push(piece.to_owned());
                }
            }
        }
        words
    }

    /// For each position of a word, the last piece of the cheapest split of what is before it.
    fn best_last_pieces(&self, text: &str) -> Vec<Step> {
        let unreached = Step {
            cost: f32::INFINITY,
            start: 0,
            piece: None,
        };
        let mut best = vec![unreached; text.len() + 1];
        best[0].cost = 0.0;
        for (start, c) in text.char_indices() {
            let so_far = best[start].cost;
            // By characters every position can be reached.
            let unknown = &mut best[start + c.len_utf8()];
            if so_far + UNKNOWN_COST < unknown.cost {
                *unknown = Step {
                    cost: so_far + UNKNOWN_COST,
                    start,
                    piece: None,
                };
            }
            self.for_each_prefix(&text.as_bytes()[start..], |piece, length| {
                let cost = so_far + self.costs[piece as usize];
                let step = &mut best[start + length];
                if cost < step.cost {
                    *step = Step {
                        cost,
                        start,
                        piece: Some(piece),
                    };
                }
            });
        }
        best
    }

    /// Calls `found` with each piece that the text begins with, and its length.
    fn for_each_prefix(&self, text: &[u8], mut found: impl FnMut(u32, usize)) {
        let Some((&first, rest)) = text.split_first() else {
            return;
        };
        // The pieces that begin with the bytes so far lie side by side, the shortest first.
        let mut range = self.by_first[usize::from(first)].clone();
        let mut length = 1;
        let mut rest = rest.iter();
        while !range.is_empty() {
            if self.bytes(range.start as usize).len() == length {
                found(range.start, length);
                range.start += 1;
            }
            let Some(&next) = rest.next() else { break };
            range = self.with_prefix(&range, length, next);
            length += 1;
        }
    }

    /// The pieces of a range, equal in the bytes before `at`, that have this byte there.
    fn with_prefix(&self, range: &Range<u32>, at: usize, byte: u8) -> Range<u32> {
        let first = self.first_from(range, at, |other| other >= byte);
        first..self.first_from(&(first..range.end), at, |other| other > byte)
    }

    /// The first piece of a range whose byte there passes the test; the range's end if none does.
    fn first_from(&self, range: &Range<u32>, at: usize, passes: impl Fn(u8) -> bool) -> u32 {
        let Range { mut start, mut end } = *range;
        while start < end {
            let middle = start.midpoint(end);
            // All are longer than `at`: the one that ends there has been taken out.
            if passes(self.bytes(middle as usize)[at]) {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        start
    }

    fn bytes(&self, piece: usize) -> &[u8] {
        &self.text[self.starts[piece] as usize..self.starts[piece + 1] as usize]
    }
}

/// As much of a text as is read.
fn beginning(text: &str) -> &str {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The words of a normalised text, each with its mark.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let marks = text.match_indices(WORD_START).map(|(mark, _)| mark);
    let ends = marks.clone().skip(1).chain([text.len()]);
    marks.zip(ends).map(|(mark, end)| &text[mark..end])
}

/// The last step of a split.
#[derive(Clone, Copy)]
struct Step {
    cost: f32,
    start: usize,
    /// `None` for a character that no piece has.
    piece: Option<u32>,
}

/// True for characters of languages that are written without spaces between words.
fn is_without_spaces(c: char) -> bool {
    text::is_cjk(c) && !('\u{ac00}'..='\u{d7af}').contains(&c)
}

/// Compatibility forms unified, in lowercase, each word with its mark; all but letters and digits
/// separates words.
fn normalised(text: &str) -> String {
    // Most texts are ASCII and need no tables.
    if text.is_ascii() {
        marked(text.chars().map(|c| c.to_ascii_lowercase()), text.len())
    } else {
        marked(text.nfkc().flat_map(char::to_lowercase), text.len())
    }
}

fn marked(chars: impl Iterator<Item = char>, length: usize) -> String {
    let mut marked = String::with_capacity(length + length / 2 + 8);
    let mut is_in_word = false;
    for c in chars {
        let is_of_word = c.is_alphanumeric();
        if is_of_word && !is_in_word {
            marked.push(WORD_START);
        }
        if is_of_word {
            marked.push(c);
        }
        is_in_word = is_of_word;
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(costs: &[(&str, f32)]) -> Pieces {
        let mut costs = costs.to_vec();
        costs.sort_unstable_by_key(|(piece, _)| *piece);
        let lengths: Vec<u8> = costs.iter().map(|(piece, _)| piece.len() as u8).collect();
        let text: Vec<u8> = costs.iter().flat_map(|(piece, _)| piece.bytes()).collect();
        let costs: Vec<u8> = costs
            .iter()
            .flat_map(|(_, cost)| ((cost * COST_UNIT) as u16).to_le_bytes())
            .collect();
        Pieces::new(&lengths, &text, &costs).unwrap()
    }

    #[test]
    fn the_cheapest_split_wins() {
        let pieces = pieces(&[
            ("▁", 3.0),
            ("▁re", 4.0),
            ("▁read", 6.0),
            ("ad", 4.0),
            ("er", 4.0),
            ("s", 5.0),
            ("▁readers", 16.0),
        ]);
        assert_eq!(pieces.texts("readers"), ["▁read", "er", "s"]);
        assert_eq!(pieces.texts("read"), ["▁read"]);
        assert_eq!(pieces.texts(" (Re) \u{3000} AD! "), ["▁re", "▁", "ad"]);
    }

    #[test]
    fn characters_without_a_piece_are_left_out() {
        let pieces = pieces(&[("▁", 3.0), ("查", 5.0), ("询", 5.0), ("查询", 8.0)]);
        assert_eq!(pieces.texts("查询天查"), ["▁", "查询", "查"]);
        assert_eq!(pieces.texts("🙂\u{202e}"), Vec::<String>::new());
        assert_eq!(pieces.texts("   "), Vec::<String>::new());
        assert_eq!(pieces.texts(""), Vec::<String>::new());
    }

    #[test]
    fn pieces_out_of_order_are_refused() {
        assert!(Pieces::new(&[1, 1], b"ba", &[0; 4]).is_err());
        assert!(Pieces::new(&[1, 1], b"aa", &[0; 4]).is_err());
    }
}
