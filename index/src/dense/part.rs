//! The vectors of some tools that follow each other. Snapshots share the parts that no commit
//! between them has changed.

use std::ops::Range;
use std::sync::OnceLock;

use super::TextHash;

/// Tools of a part. A commit of one tool copies a part of each leg, which takes some tens of
/// microseconds.
pub(super) const PART_TOOLS: usize = 512;

/// The vectors of consecutive tools, row by row.
#[derive(Clone, Default)]
pub(super) struct Part {
    /// The codes of the leading dimensions, row by row.
    pub(super) leads: Vec<i8>,
    /// The codes of all other dimensions, row by row.
    pub(super) rests: Vec<i8>,
    /// The value of code 1, by row.
    pub(super) scales: Vec<f32>,
    /// The text of each row.
    pub(super) hashes: Vec<TextHash>,
    /// One past the last row of each tool.
    pub(super) ends: Vec<u32>,
    /// Number of texts of each tool that a language model wrote; empty without any.
    pub(super) counts: Vec<u8>,
    /// What a rough scan reads; made where it reads it.
    pub(super) condensed: OnceLock<Box<Condensed>>,
}

/// The leading dimensions of a part's rows, with one row in place of the texts of each tool.
#[derive(Clone, Default)]
pub(super) struct Condensed {
    /// The codes, row by row.
    pub(super) leads: Vec<i8>,
    /// The value of code 1, by row.
    pub(super) scales: Vec<f32>,
    /// One past the last row of each tool.
    pub(super) ends: Vec<u32>,
    /// The rows in place of texts, ascending.
    pub(super) texts: Vec<u32>,
}

impl Part {
    /// Number of tools.
    pub(super) fn tools(&self) -> usize {
        self.ends.len()
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.scales.len()
    }

    /// True where no tool is under construction.
    pub(super) fn is_between_tools(&self) -> bool {
        self.start_of(self.tools()) == self.len()
    }

    /// The first row of a tool, or of the one after the last.
    pub(super) fn start_of(&self, tool: usize) -> usize {
        match tool {
            0 => 0,
            _ => self.ends[tool - 1] as usize,
        }
    }

    /// The rows of a tool.
    pub(super) fn rows_of(&self, tool: usize) -> Range<usize> {
        self.start_of(tool)..self.ends[tool] as usize
    }

    /// The rows of a tool that are texts which a language model wrote, after so many views.
    pub(super) fn texts_of(&self, views: usize, tool: usize) -> Range<usize> {
        let rows = self.rows_of(tool);
        let count = self.counts.get(tool).copied().unwrap_or_default();
        let start = rows.end.min(rows.start + views);
        match count {
            0 => rows.end..rows.end,
            _ => start..rows.end.min(start + usize::from(count)),
        }
    }

    pub(super) fn push(&mut self, lead: &[i8], rest: &[i8], scale: f32, hash: TextHash) {
        // Stored apart, so that a rough scan reads consecutive bytes.
        self.leads.extend_from_slice(lead);
        self.rests.extend_from_slice(rest);
        self.scales.push(scale);
        self.hashes.push(hash);
    }

    /// Ends the tool under construction.
    pub(super) fn end_tool(&mut self) {
        // Rows beyond 32 bits would have a terabyte of codes.
        self.ends.push(self.len() as u32);
    }

    /// Adds tools of another part, whose rows have so many leading and other dimensions.
    pub(super) fn push_tools(
        &mut self,
        other: &Part,
        tools: Range<usize>,
        (leading, others): (usize, usize),
    ) {
        let rows = other.start_of(tools.start)..other.start_of(tools.end);
        let codes_of = |width: usize| rows.start * width..rows.end * width;
        self.leads
            .extend_from_slice(&other.leads[codes_of(leading)]);
        self.rests.extend_from_slice(&other.rests[codes_of(others)]);
        self.scales.extend_from_slice(&other.scales[rows.clone()]);
        self.hashes.extend_from_slice(&other.hashes[rows.clone()]);
        let first = self.len() - rows.len();
        if !other.counts.is_empty() || !self.counts.is_empty() {
            self.counts.resize(self.tools(), 0);
            match other.counts.get(tools.clone()) {
                Some(counts) => self.counts.extend_from_slice(counts),
                None => self.counts.resize(self.tools() + tools.len(), 0),
            }
        }
        for &end in &other.ends[tools] {
            self.ends.push((end as usize - rows.start + first) as u32);
        }
    }

    /// Reserves room for the rows of another part, and some more.
    pub(super) fn reserve_for(&mut self, other: &Part) {
        self.leads
            .reserve(other.leads.len() + other.leads.len() / 32);
        self.rests
            .reserve(other.rests.len() + other.rests.len() / 32);
        self.scales.reserve(other.len() + other.len() / 32);
        self.hashes.reserve(other.len() + other.len() / 32);
        self.ends.reserve(other.tools() + 1);
    }

    /// Gives back what was reserved for more rows.
    pub(super) fn shrink(&mut self) {
        self.leads.shrink_to_fit();
        self.rests.shrink_to_fit();
        self.scales.shrink_to_fit();
        self.hashes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
