//! The rows of texts that a language model wrote about tools, and what their cosines lose.
//!
//! The nearest of five rows is nearer by chance than the nearest of two, and texts are worded like
//! requests: without a correction, tools with texts displace those without.
//!
//! A rough scan reads one row a tool for all of its texts, their mean, so that texts cost it little.
//! Exact scores are by each text.

use std::ops::Range;

use super::{UNKNOWN, Vectors, scan};
use crate::quantization::scale_of;
use crate::variant::CountedTexts;

/// What texts lose while many tools have none. Tools without texts then keep their places: nDCG@10 of
/// requests for them is within .01 of that without any texts, whatever the share.
const DISCOUNT_OF_SOME: f32 = 0.15;
/// What they lose where every tool has some: a definition says more surely what a tool does.
const DISCOUNT_OF_ALL: f32 = 0.03;
/// The share of tools without texts from which on the discount is the full one.
const SHARE_OF_SOME: f32 = 0.1;
/// Condensed rows are kept if they are fewer by at least one in so many.
const MIN_SAVED: usize = 8;

/// The leading dimensions of all rows, with one row in place of the texts of each tool.
#[derive(Default)]
pub(super) struct Condensed {
    /// The codes, row by row.
    pub(super) leads: Vec<i8>,
    /// The value of code 1, by row.
    pub(super) scales: Vec<f32>,
    /// The first row of each tool, and one past the last.
    pub(super) starts: Vec<u32>,
    /// The rows in place of texts, ascending.
    texts: Vec<u32>,
}

/// Which rows are such texts.
pub(super) struct WrittenTexts {
    /// Rows of each tool before its texts.
    views: usize,
    /// Number of texts of each tool.
    counts: Vec<u8>,
    discount: f32,
    /// What a rough scan reads; `None` where it reads the rows themselves.
    pub(super) condensed: Option<Box<Condensed>>,
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
            condensed: None,
        })
    }
}

/// What texts lose where this share of the tools has none.
fn discount(missing: f32) -> f32 {
    let share = (missing / SHARE_OF_SOME).clamp(0.0, 1.0);
    DISCOUNT_OF_ALL + (DISCOUNT_OF_SOME - DISCOUNT_OF_ALL) * share
}

impl Condensed {
    /// `None` where it would save a rough scan less than it takes of memory.
    fn of(vectors: &Vectors) -> Option<Self> {
        if !vectors.is_rough() {
            return None;
        }
        let mut saved = 0;
        for tool in 0..vectors.tools() {
            saved += vectors.texts_of(tool).len().saturating_sub(1);
        }
        if saved * MIN_SAVED < vectors.len() {
            return None;
        }
        let rows = vectors.len() - saved;
        let mut condensed = Condensed {
            leads: Vec::with_capacity(rows * vectors.leading),
            scales: Vec::with_capacity(rows),
            starts: Vec::with_capacity(vectors.tools() + 1),
            texts: Vec::new(),
        };
        condensed.starts.push(0);
        for tool in 0..vectors.tools() {
            let (rows, texts) = (vectors.rows_of(tool), vectors.texts_of(tool));
            condensed.push_rows(vectors, rows.start..texts.start);
            if !texts.is_empty() {
                condensed.texts.push(condensed.scales.len() as u32);
            }
            match texts.len() {
                // The mean of one text is that text.
                0 | 1 => condensed.push_rows(vectors, texts.clone()),
                _ => condensed.push_mean(vectors, texts.clone()),
            }
            condensed.push_rows(vectors, texts.end..rows.end);
            condensed.starts.push(condensed.scales.len() as u32);
        }
        Some(condensed)
    }

    fn push_rows(&mut self, vectors: &Vectors, rows: Range<usize>) {
        let codes = rows.start * vectors.leading..rows.end * vectors.leading;
        self.leads.extend_from_slice(&vectors.leads[codes]);
        self.scales.extend_from_slice(&vectors.scales[rows]);
    }

    /// Adds the mean of these rows, with a length of 1.
    fn push_mean(&mut self, vectors: &Vectors, rows: Range<usize>) {
        let mut mean = vec![0.0; vectors.dimensions];
        for row in rows {
            let scale = vectors.scales[row];
            for (sum, code) in mean.iter_mut().zip(vectors.codes(row)) {
                *sum += f32::from(code) * scale;
            }
        }
        let length = mean.iter().map(|value| value * value).sum::<f32>().sqrt();
        // Opposite texts have no mean; the row then says nothing.
        let length = length.max(f32::MIN_POSITIVE);
        mean.truncate(vectors.leading);
        for value in &mut mean {
            *value /= length;
        }
        let scale = scale_of(&mean, f32::from(i8::MAX));
        let codes = mean.iter().map(|value| (value / scale).round() as i8);
        self.leads.extend(codes);
        self.scales.push(scale);
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.leads.len() + size_of_val(&self.scales[..]) + size_of_val(&self.starts[..])
    }
}

impl Vectors {
    /// Says how many of each tool's rows, after so many views, are texts that a language model wrote.
    pub fn set_written_texts(&mut self, views: usize, counts: impl Iterator<Item = usize>) {
        let counts = counts.map(|count| u8::try_from(count).unwrap_or(u8::MAX));
        self.written = WrittenTexts::new(views, counts.collect());
        let condensed = Condensed::of(self);
        if let Some(written) = &mut self.written {
            written.condensed = condensed.map(Box::new);
        }
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

    /// What a rough scan reads instead of the rows.
    pub(super) fn condensed(&self) -> Option<&Condensed> {
        self.written.as_ref()?.condensed.as_deref()
    }

    /// As [`Vectors::discount_all`], for these condensed rows.
    pub(super) fn discount_condensed(&self, rows: Range<usize>, cosines: &mut [f32]) {
        let (Some(written), Some(condensed)) = (&self.written, self.condensed()) else {
            return;
        };
        let from = condensed
            .texts
            .partition_point(|&row| (row as usize) < rows.start);
        for &row in &condensed.texts[from..] {
            let row = row as usize;
            if row >= rows.end {
                break;
            }
            cosines[row - rows.start] -= written.discount;
        }
    }

    /// Takes the discount off the cosines of all rows of these tools, from the first one's on.
    pub(super) fn discount_all(&self, first: usize, tools: usize, cosines: &mut [f32]) {
        let Some(written) = &self.written else {
            return;
        };
        let offset = self.rows_of(first).start;
        for tool in first..first + tools {
            for row in self.texts_of(tool) {
                cosines[row - offset] -= written.discount;
            }
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
            let mut counted = Vec::from_iter(self.rows_of(tool));
            counted.retain(|row| !texts.contains(row) || !is_left_out(*row));
            for (query, scores) in queries.iter().zip(scores.iter_mut()) {
                scores[tool] = UNKNOWN;
                for &row in &counted {
                    let cosine = scan::cosine(self, query, row) - self.discount(tool, row);
                    scores[tool] = scores[tool].max(cosine);
                }
            }
        }
    }
}
