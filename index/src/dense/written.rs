//! The rows of texts that a language model wrote about tools, and what their cosines lose.
//!
//! The nearest of five rows is nearer by chance than the nearest of two, and texts are worded like
//! requests: without a correction, tools with texts displace those without.

use std::ops::Range;

use super::{UNKNOWN, Vectors, scan};
use crate::variant::CountedTexts;

/// What texts lose while many tools have none. Tools without texts then keep their places: nDCG@10 of
/// requests for them is within .01 of that without any texts, whatever the share.
const DISCOUNT_OF_SOME: f32 = 0.15;
/// What they lose where every tool has some: a definition says more surely what a tool does.
const DISCOUNT_OF_ALL: f32 = 0.03;
/// The share of tools without texts from which on the discount is the full one.
const SHARE_OF_SOME: f32 = 0.1;

/// Which rows are such texts.
pub(super) struct WrittenTexts {
    /// Rows of each tool before its texts.
    views: usize,
    /// Number of texts of each tool.
    counts: Vec<u8>,
    discount: f32,
}

impl WrittenTexts {
    /// `None` where no tool has texts.
    fn new(views: usize, counts: Vec<u8>) -> Option<Self> {
        let without = counts.iter().filter(|count| **count == 0).count();
        if without == counts.len() {
            return None;
        }
        let missing = without as f32 / counts.len() as f32;
        Some(WrittenTexts {
            views,
            counts,
            discount: discount(missing),
        })
    }
}

/// What texts lose where this share of the tools has none.
fn discount(missing: f32) -> f32 {
    let share = (missing / SHARE_OF_SOME).clamp(0.0, 1.0);
    DISCOUNT_OF_ALL + (DISCOUNT_OF_SOME - DISCOUNT_OF_ALL) * share
}

impl Vectors {
    /// Says how many of each tool's rows, after so many views, are texts that a language model wrote.
    pub fn set_written_texts(&mut self, views: usize, counts: impl Iterator<Item = usize>) {
        let counts = counts.map(|count| u8::try_from(count).unwrap_or(u8::MAX));
        self.written = WrittenTexts::new(views, counts.collect());
    }

    /// Says which share of all tools has no such texts, if these tools are some of a larger catalog.
    pub fn set_share_without_texts(&mut self, share: f32) {
        if let Some(written) = &mut self.written {
            written.discount = discount(share);
        }
    }

    /// The rows of a tool that are such texts.
    fn texts_of(&self, tool: usize) -> Range<usize> {
        let rows = self.rows_of(tool);
        let Some(written) = &self.written else {
            return rows.end..rows.end;
        };
        let start = rows.end.min(rows.start + written.views);
        start..rows.end.min(start + usize::from(written.counts[tool]))
    }

    /// What the cosine of a row of this tool loses.
    pub(super) fn discount(&self, tool: usize, row: usize) -> f32 {
        match &self.written {
            Some(written) if self.texts_of(tool).contains(&row) => written.discount,
            _ => 0.0,
        }
    }

    /// Takes the discount off the cosines of all rows of these tools, from the first one's on.
    pub(super) fn discount_all(&self, first: usize, tools: usize, cosines: &mut [f32]) {
        let Some(written) = &self.written else {
            return;
        };
        let offset = self.rows_of(first).start;
        for row in (first..first + tools).flat_map(|tool| self.texts_of(tool)) {
            cosines[row - offset] -= written.discount;
        }
    }

    /// Replaces the scores of tools with texts that do not count by those of their other rows. Reads
    /// every row's hash or every such tool, for measuring.
    pub fn leave_out(&self, counted: CountedTexts, queries: &[Vec<f32>], scores: &mut [Vec<f32>]) {
        if counted == CountedTexts::All || self.written.is_none() {
            return;
        }
        let is_left_out = |row: usize| match counted {
            CountedTexts::All => false,
            CountedTexts::Without(hash) => self.hashes[row] == hash,
            CountedTexts::None => true,
        };
        let queries = self.encode(queries);
        for tool in 0..self.tools() {
            let texts = self.texts_of(tool);
            if !texts.clone().any(is_left_out) {
                continue;
            }
            for (query, scores) in queries.iter().zip(scores.iter_mut()) {
                let rows = self.rows_of(tool);
                let rows = rows.filter(|row| !(texts.contains(row) && is_left_out(*row)));
                let cosines =
                    rows.map(|row| scan::cosine(self, query, row) - self.discount(tool, row));
                scores[tool] = cosines.fold(UNKNOWN, f32::max);
            }
        }
    }
}
