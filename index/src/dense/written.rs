//! The rows of texts that a language model wrote about tools, and what their cosines lose.
//!
//! The nearest of five rows is nearer by chance than the nearest of two, and texts are worded like
//! requests: without a correction, tools with texts displace those without.
//!
//! A rough scan reads one row a tool for all of its texts, their mean, so that texts cost it little.
//! Exact scores are by each text.

use std::ops::Range;
use std::sync::Arc;

use super::part::{Condensed, Part};
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

/// What texts lose where this share of the tools has none.
fn discount(missing: f32) -> f32 {
    let share = (missing / SHARE_OF_SOME).clamp(0.0, 1.0);
    DISCOUNT_OF_ALL + (DISCOUNT_OF_SOME - DISCOUNT_OF_ALL) * share
}

impl Condensed {
    fn of(part: &Part, vectors: &Vectors) -> Self {
        let rows = part.len() - saved_rows(part, vectors.views);
        let mut condensed = Condensed {
            leads: Vec::with_capacity(rows * vectors.leading),
            scales: Vec::with_capacity(rows),
            ends: Vec::with_capacity(part.tools()),
            texts: Vec::new(),
        };
        for tool in 0..part.tools() {
            let (rows, texts) = (part.rows_of(tool), part.texts_of(vectors.views, tool));
            condensed.push_rows(part, vectors.leading, rows.start..texts.start);
            if !texts.is_empty() {
                condensed.texts.push(condensed.scales.len() as u32);
            }
            match texts.len() {
                // The mean of one text is that text.
                0 | 1 => condensed.push_rows(part, vectors.leading, texts.clone()),
                _ => condensed.push_mean(part, vectors, texts.clone()),
            }
            condensed.push_rows(part, vectors.leading, texts.end..rows.end);
            condensed.ends.push(condensed.scales.len() as u32);
        }
        condensed
    }

    fn push_rows(&mut self, part: &Part, leading: usize, rows: Range<usize>) {
        let codes = rows.start * leading..rows.end * leading;
        self.leads.extend_from_slice(&part.leads[codes]);
        self.scales.extend_from_slice(&part.scales[rows]);
    }

    /// Adds the mean of these rows, with a length of 1.
    fn push_mean(&mut self, part: &Part, vectors: &Vectors, rows: Range<usize>) {
        let (leading, others) = (vectors.leading, vectors.dimensions - vectors.leading);
        let mut mean = vec![0.0; vectors.dimensions];
        for row in rows {
            let scale = part.scales[row];
            let lead = &part.leads[row * leading..(row + 1) * leading];
            let rest = &part.rests[row * others..(row + 1) * others];
            for (sum, code) in mean.iter_mut().zip(lead.iter().chain(rest)) {
                *sum += f32::from(*code) * scale;
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
        self.leads.len() + size_of_val(&self.scales[..]) + size_of_val(&self.ends[..])
    }
}

/// How many rows fewer a part has when one stands for all texts of a tool.
fn saved_rows(part: &Part, views: usize) -> usize {
    if part.counts.is_empty() {
        return 0;
    }
    let mut saved = 0;
    for tool in 0..part.tools() {
        saved += part.texts_of(views, tool).len().saturating_sub(1);
    }
    saved
}

impl Vectors {
    /// Says how many of each tool's rows, after so many views, are texts that a language model wrote.
    pub fn set_written_texts(&mut self, views: usize, mut counts: impl Iterator<Item = usize>) {
        self.views = views;
        for part in &mut self.parts {
            let counts = counts.by_ref().take(part.tools());
            let mut of_part = Vec::new();
            for count in counts {
                of_part.push(u8::try_from(count).unwrap_or(u8::MAX));
            }
            if of_part.iter().all(|count| *count == 0) {
                of_part = Vec::new();
            }
            if part.counts != of_part {
                let part = Arc::make_mut(part);
                part.counts = of_part;
                part.condensed.take();
            }
        }
        self.settle_written();
    }

    /// Finds out what follows from the written texts of all tools.
    pub(super) fn settle_written(&mut self) {
        let (mut with, mut saved) = (0, 0);
        for part in &self.parts {
            with += part.counts.iter().filter(|count| **count > 0).count();
            saved += saved_rows(part, self.views);
        }
        let missing = (self.tools() - with) as f32 / self.tools().max(1) as f32;
        self.discount = (with > 0).then(|| discount(missing));
        // Otherwise it would save a rough scan less than it takes of memory.
        self.is_condensed = with > 0 && self.is_rough() && saved * MIN_SAVED >= self.len();
        if self.is_condensed {
            for part in &self.parts {
                let condense = || Box::new(Condensed::of(part, self));
                part.condensed.get_or_init(condense);
            }
        }
    }

    /// Says which share of all tools has no such texts, if these tools are some of a larger catalog.
    pub fn set_share_without_texts(&mut self, share: f32) {
        if let Some(known) = &mut self.discount {
            *known = discount(share);
        }
    }

    /// The rows of a tool that are such texts.
    fn texts_of(&self, tool: usize) -> Range<usize> {
        let number = self.part_of_tool(tool);
        let first = self.row_starts[number];
        let tool = tool - self.tool_starts[number];
        let rows = self.parts[number].texts_of(self.views, tool);
        first + rows.start..first + rows.end
    }

    /// What the cosine of a row of this tool loses.
    pub(super) fn discount(&self, tool: usize, row: usize) -> f32 {
        match self.discount {
            Some(discount) if self.texts_of(tool).contains(&row) => discount,
            _ => 0.0,
        }
    }

    /// The same for a tool and a row of a part, by their numbers there.
    pub(super) fn discount_in_part(&self, part: &Part, tool: usize, row: usize) -> f32 {
        match self.discount {
            Some(discount) if part.texts_of(self.views, tool).contains(&row) => discount,
            _ => 0.0,
        }
    }

    /// What a rough scan reads instead of a part's rows.
    pub(super) fn condensed<'a>(&self, part: &'a Part) -> Option<&'a Condensed> {
        match self.is_condensed {
            true => part.condensed.get().map(Box::as_ref),
            false => None,
        }
    }

    /// The leading dimensions that a rough scan reads of a part.
    pub(super) fn scanned_leads<'a>(&self, part: &'a Part) -> &'a [i8] {
        match self.condensed(part) {
            Some(rows) => &rows.leads,
            None => &part.leads,
        }
    }

    /// As [`Vectors::discount_all`], for these condensed rows.
    pub(super) fn discount_condensed(
        &self,
        condensed: &Condensed,
        rows: Range<usize>,
        cosines: &mut [f32],
    ) {
        let Some(discount) = self.discount else {
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
            cosines[row - rows.start] -= discount;
        }
    }

    /// Takes the discount off the cosines of all rows of these tools of a part, from the first one's
    /// on.
    pub(super) fn discount_all(
        &self,
        part: &Part,
        first: usize,
        tools: usize,
        cosines: &mut [f32],
    ) {
        let Some(discount) = self.discount else {
            return;
        };
        if part.counts.is_empty() {
            return;
        }
        let offset = part.start_of(first);
        for tool in first..first + tools {
            for row in part.texts_of(self.views, tool) {
                cosines[row - offset] -= discount;
            }
        }
    }

    /// Replaces the scores of tools with texts that do not count by those of their other rows. Reads
    /// every row's hash or every such tool, for measuring.
    pub fn leave_out(&self, counted: CountedTexts, queries: &[Vec<f32>], scores: &mut [Vec<f32>]) {
        if counted == CountedTexts::All || self.discount.is_none() {
            return;
        }
        let is_left_out = |row: usize| match counted {
            CountedTexts::All => false,
            CountedTexts::Without(hash) => {
                let (part, row) = self.part_of_row(row);
                part.hashes[row] == hash
            }
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
