//! The rows of texts that a language model wrote about tools, and what their cosines lose.
//!
//! The nearest of five rows is nearer by chance than the nearest of two, and texts are worded like
//! requests: without a correction, tools with texts displace those without.

use super::Vectors;

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
        let share = (missing / SHARE_OF_SOME).min(1.0);
        Some(WrittenTexts {
            views,
            counts,
            discount: DISCOUNT_OF_ALL + (DISCOUNT_OF_SOME - DISCOUNT_OF_ALL) * share,
        })
    }
}

impl Vectors {
    /// Says how many of each tool's rows, after so many views, are texts that a language model wrote.
    pub fn set_written_texts(&mut self, views: usize, counts: impl Iterator<Item = usize>) {
        let counts = counts.map(|count| u8::try_from(count).unwrap_or(u8::MAX));
        self.written = WrittenTexts::new(views, counts.collect());
    }

    /// What the cosine of a row of this tool loses.
    pub(super) fn discount(&self, tool: usize, row: usize) -> f32 {
        let Some(written) = &self.written else {
            return 0.0;
        };
        let first = self.rows_of(tool).start + written.views;
        let texts = first..first + usize::from(written.counts[tool]);
        if texts.contains(&row) {
            written.discount
        } else {
            0.0
        }
    }

    /// Takes the discount off the cosines of all rows of these tools, from the first one's on.
    pub(super) fn discount_all(&self, first: usize, tools: usize, cosines: &mut [f32]) {
        let Some(written) = &self.written else {
            return;
        };
        let offset = self.rows_of(first).start;
        for tool in (first..first + tools).filter(|&tool| written.counts[tool] > 0) {
            let rows = self.rows_of(tool);
            let start = rows.start + written.views;
            let end = rows.end.min(start + usize::from(written.counts[tool]));
            for row in start..end {
                cosines[row - offset] -= written.discount;
            }
        }
    }
}
