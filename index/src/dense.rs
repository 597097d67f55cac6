//! The dense leg: vectors of one embedder with several views a tool. A tool's score is that of its
//! nearest view, or of the nearest text that a language model wrote about it, with a discount.
//!
//! Vectors are stored as one byte a dimension with one scale a vector. That takes a quarter of the
//! memory of floats (14 MB for 18,917 tools with two views of 384 dimensions). A scan is bound by
//! memory bandwidth, so it is faster by the same factor. The loss in ranking is below .001 nDCG@10.
//! Small catalogs are scanned; large ones are searched by [`Graph`].
//!
//! If the leading dimensions of an embedder carry most of the information, they are stored apart
//! from the rest. In a large catalog all tools are scored by the leading dimensions, and only
//! likely hits by the rest.

mod graph;
mod part;
mod scan;
mod vector_file;
mod written;

use std::ops::Range;
use std::sync::Arc;

pub use graph::{Graph, GraphShape};
pub use vector_file::{RowsByText, VectorFile};

use crate::error::{Error, Result};
use crate::moves::{Moves, Step};
use crate::quantization::scale_of;
use part::{PART_TOOLS, Part};
use scan::Precision;

/// From this many tools on, rough scores for most of them save time.
// At 18,917 tools rough scores read 3.6 MB instead of 14.5 and halve the time of the dense search;
// nDCG@10 on aws_ops stays within .001.
const MIN_TOOLS_ROUGH: usize = 2048;
/// Tools whose scores stand for those of all that a graph does not find.
const SAMPLED_TOOLS: usize = 256;
/// If a leg scores at most one in so many tools, it reads only these and a sample.
const FEW: usize = 4;
/// From this many tools on, that saves time.
const MIN_TOOLS_FEW: usize = 8192;
/// The tools of that sample.
const SAMPLED_BESIDE_FEW: usize = 2048;
/// More views than any tool has.
pub const ALL_VIEWS: usize = usize::MAX;

/// Identifies the text of a vector: 128 bits of its hash, which is its key in the store.
pub type TextHash = [u8; 16];

/// The score of a tool that has no vector.
pub const UNKNOWN: f32 = f32::NEG_INFINITY;

/// The vectors of a catalog's snapshot, tool by tool. Immutable. A row is known by its number among all.
pub struct Vectors {
    dimensions: usize,
    /// The number of leading dimensions.
    leading: usize,
    parts: Vec<Arc<Part>>,
    /// The first tool of each part, and the number of tools.
    tool_starts: Vec<usize>,
    /// The first row of each part, and the number of rows.
    row_starts: Vec<usize>,
    /// Rows of each tool before the texts that a language model wrote.
    views: usize,
    /// What such texts lose; `None` where no tool has any.
    discount: Option<f32>,
    /// True if a rough scan reads condensed rows.
    is_condensed: bool,
}

impl Vectors {
    /// No tools yet; add them with [`Vectors::push`] and [`Vectors::end_tool`].
    pub fn new(dimensions: usize) -> Self {
        Vectors::with_leading(dimensions, dimensions)
    }

    /// As [`Vectors::new`], for vectors of which this many leading dimensions carry most of the
    /// information.
    pub fn with_leading(dimensions: usize, leading: usize) -> Self {
        Vectors {
            dimensions,
            leading: leading.min(dimensions),
            parts: Vec::new(),
            tool_starts: vec![0],
            row_starts: vec![0],
            views: 0,
            discount: None,
            is_condensed: false,
        }
    }

    /// The vectors after these moves of tools. `added` are those of the new tools, with the same
    /// dimensions.
    pub fn moved(&self, moves: &Moves, added: &Vectors) -> Self {
        let mut vectors = Vectors::with_leading(self.dimensions, self.leading);
        vectors.views = self.views.max(added.views);
        let parts = moves.blocks(&self.parts, &self.tool_starts, PART_TOOLS, |steps| {
            let mut made = Part::default();
            for step in steps {
                match step {
                    Step::Kept(tools) => self.push_tools_onto(&mut made, tools.clone()),
                    Step::Added(tool) => added.push_tools_onto(&mut made, *tool..tool + 1),
                }
            }
            Arc::new(made)
        });
        for part in parts {
            vectors.add_part(part);
        }
        vectors.settle_written();
        vectors
    }

    /// Adds the rows of these tools, which may lie in several parts, to a part.
    fn push_tools_onto(&self, made: &mut Part, mut tools: Range<usize>) {
        let widths = (self.leading, self.dimensions - self.leading);
        while !tools.is_empty() {
            let number = self.part_of_tool(tools.start);
            let first = self.tool_starts[number];
            let end = tools.end.min(self.tool_starts[number + 1]);
            let part = &self.parts[number];
            if made.tools() == 0 {
                made.reserve_for(part);
            }
            made.push_tools(part, tools.start - first..end - first, widths);
            tools.start = end;
        }
    }

    /// Tools with these rows, whose ends are given.
    fn of_rows(dimensions: usize, leading: usize, rows: Part, ends: &[u32]) -> Self {
        let mut vectors = Vectors::with_leading(dimensions, leading);
        let mut parts = Vec::with_capacity(ends.len().div_ceil(PART_TOOLS));
        let mut ranges = Vec::with_capacity(parts.capacity());
        let mut first = 0;
        for ends in ends.chunks(PART_TOOLS) {
            let end = ends.last().map_or(first, |end| *end as usize);
            ranges.push(first..end);
            parts.push(Part {
                ends: ends.iter().map(|end| *end - first as u32).collect(),
                ..Part::default()
            });
            first = end;
        }
        // Column by column, so that no more than one is in memory twice.
        let Part {
            leads,
            rests,
            scales,
            hashes,
            ..
        } = rows;
        let widths = (vectors.leading, dimensions - vectors.leading);
        for (part, rows) in parts.iter_mut().zip(&ranges) {
            part.leads = leads[rows.start * widths.0..rows.end * widths.0].to_vec();
        }
        drop(leads);
        for (part, rows) in parts.iter_mut().zip(&ranges) {
            part.rests = rests[rows.start * widths.1..rows.end * widths.1].to_vec();
        }
        drop(rests);
        for (part, rows) in parts.iter_mut().zip(&ranges) {
            part.scales = scales[rows.clone()].to_vec();
            part.hashes = hashes[rows.clone()].to_vec();
        }
        for part in parts {
            vectors.add_part(Arc::new(part));
        }
        vectors
    }

    fn add_part(&mut self, part: Arc<Part>) {
        self.tool_starts.push(self.tools() + part.tools());
        self.row_starts.push(self.len() + part.len());
        self.parts.push(part);
    }

    /// The part under construction.
    fn open_part(&mut self) -> &mut Part {
        let is_full = match self.parts.last_mut() {
            Some(last) if last.tools() >= PART_TOOLS && last.is_between_tools() => {
                Arc::make_mut(last).shrink();
                true
            }
            Some(_) => false,
            None => true,
        };
        if is_full {
            self.add_part(Arc::default());
        }
        let last = self.parts.len() - 1;
        // Nobody shares it while it is under construction.
        Arc::make_mut(&mut self.parts[last])
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let mut bytes = Vectors::bytes_of(self.tools(), self.len(), self.dimensions);
        if self.is_condensed {
            for part in &self.parts {
                bytes += part.condensed.get().map_or(0, |rows| rows.memory_bytes());
            }
        }
        bytes
    }

    /// Bytes in memory of so many vectors of so many tools.
    pub fn bytes_of(tools: usize, vectors: usize, dimensions: usize) -> usize {
        let of_vector = dimensions + size_of::<f32>() + size_of::<TextHash>();
        vectors * of_vector + (tools + 1) * size_of::<u32>()
    }

    /// Adds a view of the tool under construction.
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`].
    pub fn push(&mut self, embedder: &str, hash: TextHash, vector: &[f32]) -> Result<()> {
        if vector.len() != self.dimensions {
            let embedder = embedder.to_owned();
            return Err(Error::DimensionMismatch {
                embedder,
                expected: self.dimensions,
                received: vector.len(),
            });
        }
        let scale = scale_of(vector, f32::from(i8::MAX));
        let codes: Vec<i8> = vector
            .iter()
            // Never -128, since the largest magnitude has code 127. The cast makes a NaN 0.
            .map(|value| (value / scale).round() as i8)
            .collect();
        self.push_codes(&codes, scale, hash);
        Ok(())
    }

    fn push_codes(&mut self, codes: &[i8], scale: f32, hash: TextHash) {
        let (lead, rest) = codes.split_at(self.leading);
        self.push_row(lead, rest, scale, hash);
    }

    fn push_row(&mut self, lead: &[i8], rest: &[i8], scale: f32, hash: TextHash) {
        self.open_part().push(lead, rest, scale, hash);
        if let Some(rows) = self.row_starts.last_mut() {
            *rows += 1;
        }
    }

    /// Adds a whole tool of another snapshot with the same leading dimensions.
    pub fn push_tool(&mut self, other: &Vectors, tool: usize) {
        let widths = (self.leading, self.dimensions - self.leading);
        let number = other.part_of_tool(tool);
        let tool = tool - other.tool_starts[number];
        let from = &other.parts[number];
        self.open_part().push_tools(from, tool..tool + 1, widths);
        if let Some(rows) = self.row_starts.last_mut() {
            *rows += from.rows_of(tool).len();
        }
        if let Some(tools) = self.tool_starts.last_mut() {
            *tools += 1;
        }
    }

    /// Ends the tool under construction; without a view it is [`UNKNOWN`] to searches.
    pub fn end_tool(&mut self) {
        self.open_part().end_tool();
        if let Some(tools) = self.tool_starts.last_mut() {
            *tools += 1;
        }
    }

    /// Number of tools.
    pub fn tools(&self) -> usize {
        self.tool_starts.last().copied().unwrap_or_default()
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.row_starts.last().copied().unwrap_or_default()
    }

    /// True without vectors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of each vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The rows of a tool.
    pub fn rows_of(&self, tool: usize) -> Range<usize> {
        let number = self.part_of_tool(tool);
        let first = self.row_starts[number];
        let rows = self.parts[number].rows_of(tool - self.tool_starts[number]);
        first + rows.start..first + rows.end
    }

    /// The text of each row.
    pub fn hashes(&self) -> impl Iterator<Item = &TextHash> {
        self.parts.iter().flat_map(|part| &part.hashes)
    }

    /// The number of a tool's part.
    fn part_of_tool(&self, tool: usize) -> usize {
        // Until something is added or removed, all parts but the last have the same size.
        let likely = tool / PART_TOOLS;
        if let Some(&[start, end]) = self.tool_starts.get(likely..likely + 2)
            && (start..end).contains(&tool)
        {
            return likely;
        }
        // The first start is 0.
        self.tool_starts.partition_point(|start| *start <= tool) - 1
    }

    /// A tool's part, and its number within it.
    fn tool_in_part(&self, tool: usize) -> (&Part, usize) {
        let number = self.part_of_tool(tool);
        (&self.parts[number], tool - self.tool_starts[number])
    }

    /// A row's part, and its number within it.
    fn part_of_row(&self, row: usize) -> (&Part, usize) {
        let number = self.row_starts.partition_point(|start| *start <= row) - 1;
        (&self.parts[number], row - self.row_starts[number])
    }

    /// The tool of a row.
    fn tool_of_row(&self, row: usize) -> usize {
        let number = self.row_starts.partition_point(|start| *start <= row) - 1;
        let row = row - self.row_starts[number];
        let ends = &self.parts[number].ends;
        self.tool_starts[number] + ends.partition_point(|end| *end as usize <= row)
    }

    /// The value of code 1 in a row.
    fn scale(&self, row: usize) -> f32 {
        let (part, row) = self.part_of_row(row);
        part.scales[row]
    }

    /// A row as floats.
    pub fn decoded(&self, row: usize) -> Vec<f32> {
        let scale = self.scale(row);
        self.codes(row)
            .map(|code| f32::from(code) * scale)
            .collect()
    }

    /// The cosine of each query with each tool's nearest view, for all tools in one pass over
    /// memory.
    pub fn scores(&self, queries: &[Vec<f32>]) -> Vec<Vec<f32>> {
        scan::scores(self, &self.encode(queries), ALL_VIEWS, Precision::Exact)
    }

    /// As [`Vectors::scores`], by each tool's first `views` views. If [`Vectors::is_rough`], by the
    /// leading dimensions only, with one mean for all written texts of a tool: replace the scores of
    /// likely hits with [`Vectors::refine`].
    pub fn rough_scores(&self, queries: &[Vec<f32>], views: usize) -> Vec<Vec<f32>> {
        scan::scores(self, &self.encode(queries), views, self.precision())
    }

    /// True when [`Vectors::rough_scores`] reads the leading dimensions only.
    pub fn is_rough(&self) -> bool {
        self.precision() == Precision::Rough
    }

    fn precision(&self) -> Precision {
        if self.leading < self.dimensions && self.tools() >= MIN_TOOLS_ROUGH {
            Precision::Rough
        } else {
            Precision::Exact
        }
    }

    /// Replaces the scores of these tools by what [`Vectors::scores`] gives them, by their first
    /// `views` views.
    pub fn refine(
        &self,
        queries: &[Vec<f32>],
        views: usize,
        tools: &[usize],
        scores: &mut [Vec<f32>],
    ) {
        scan::refine(self, &self.encode(queries), views, tools, scores);
    }

    /// Bytes that a search which scores so many tools reads first for one query.
    pub fn read_bytes(&self, scored: usize) -> usize {
        if self.are_few(scored) {
            let of_tool = self.scanned_bytes(Precision::Exact) / self.tools();
            return (scored + SAMPLED_BESIDE_FEW) * of_tool;
        }
        self.rough_bytes()
    }

    /// Bytes that [`Vectors::rough_scores`] reads for one query.
    fn rough_bytes(&self) -> usize {
        self.scanned_bytes(self.precision())
    }

    fn scanned_bytes(&self, precision: Precision) -> usize {
        match precision {
            Precision::Rough if self.is_condensed => {
                let parts = self.parts.iter();
                parts.map(|part| self.scanned_leads(part).len()).sum()
            }
            Precision::Rough => self.len() * self.leading,
            Precision::Exact => self.len() * self.dimensions,
        }
    }

    /// As [`Vectors::scores`], but only for the tools that the graph finds nearest, and for a few
    /// others that say how far the farthest are. The rest get the lowest score of those found:
    /// replace the scores of likely hits with [`Vectors::refine`].
    pub fn scores_by(&self, graph: &Graph, queries: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let encoded = self.encode(queries);
        let mut scores = Vec::with_capacity(queries.len());
        for (query, code) in queries.iter().zip(&encoded) {
            let near = graph.near(query);
            scores.push(scan::scores_of(self, code, &near));
        }
        // Fusion measures from the farthest tool on. Without these that would be the last one found.
        let sample: Vec<usize> = self.sample(SAMPLED_TOOLS).collect();
        scan::refine(self, &encoded, ALL_VIEWS, &sample, &mut scores);
        scores
    }

    /// These tools and the sample, if the tools are so few in a large catalog that reading only them
    /// saves time; the others are [`UNKNOWN`] in [`Vectors::scores_of_few`].
    pub fn few(&self, wanted: &[bool]) -> Option<Vec<usize>> {
        let count = wanted.iter().filter(|wanted| **wanted).count();
        if !self.are_few(count) {
            return None;
        }
        let wanted_tools = (0..self.tools()).filter(|&tool| wanted[tool]);
        let mut few: Vec<usize> = wanted_tools
            .chain(self.sample(SAMPLED_BESIDE_FEW))
            .collect();
        few.sort_unstable();
        few.dedup();
        Some(few)
    }

    /// As [`Vectors::scores`], only for these tools: replace the scores of other likely hits with
    /// [`Vectors::refine`].
    pub fn scores_of_few(
        &self,
        queries: &[Vec<f32>],
        views: usize,
        tools: &[usize],
    ) -> Vec<Vec<f32>> {
        let mut scores = vec![vec![UNKNOWN; self.tools()]; queries.len()];
        self.refine(queries, views, tools, &mut scores);
        scores
    }

    fn are_few(&self, tools: usize) -> bool {
        self.tools() >= MIN_TOOLS_FEW && tools * FEW <= self.tools()
    }

    /// Tools at even distances, which say how far the farthest are.
    fn sample(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let step = self.tools().div_ceil(count).max(1);
        (0..self.tools()).step_by(step)
    }

    /// A function from tools to the cosine of a query with one of their `of` views; `None` for a
    /// tool that lacks some of its views. A tool may have further texts after its views.
    pub fn view_cosine<'a>(
        &'a self,
        query: &[f32],
        view: usize,
        of: usize,
    ) -> impl Fn(usize) -> Option<f32> + use<'a> {
        let query = scan::Encoded::new(query);
        move |tool| {
            let rows = self.rows_of(tool);
            // With a view missing it is unknown which views the others are.
            (rows.len() >= of).then(|| scan::cosine(self, &query, rows.start + view))
        }
    }

    /// The median of the rows' values of code 1; 1 without rows.
    fn median_scale(&self) -> f32 {
        // Not the mean: a vector of zeros has a scale of 1, a hundred times that of others.
        let parts = self.parts.iter();
        let mut scales: Vec<f32> = parts.flat_map(|part| part.scales.iter().copied()).collect();
        let middle = scales.len() / 2;
        if scales.is_empty() {
            return 1.0;
        }
        *scales.select_nth_unstable_by(middle, f32::total_cmp).1
    }

    fn lead(&self, row: usize) -> &[i8] {
        let (part, row) = self.part_of_row(row);
        &part.leads[row * self.leading..(row + 1) * self.leading]
    }

    fn rest(&self, row: usize) -> &[i8] {
        let width = self.dimensions - self.leading;
        let (part, row) = self.part_of_row(row);
        &part.rests[row * width..(row + 1) * width]
    }

    fn codes(&self, row: usize) -> impl Iterator<Item = i8> {
        self.lead(row).iter().chain(self.rest(row)).copied()
    }

    fn encode(&self, queries: &[Vec<f32>]) -> Vec<scan::Encoded> {
        let queries = queries.iter().map(Vec::as_slice);
        queries.map(scan::Encoded::new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_scores_by_its_nearest_view_and_one_without_is_unknown() {
        let mut vectors = Vectors::new(2);
        vectors.push("t", [0; 16], &[1.0, 0.0]).unwrap();
        vectors.push("t", [1; 16], &[0.0, 1.0]).unwrap();
        vectors.end_tool();
        vectors.end_tool();
        vectors.push("t", [2; 16], &[0.6, 0.8]).unwrap();
        vectors.end_tool();
        let scores = vectors.scores(&[vec![0.0, 1.0], vec![1.0, 0.0]]);
        let close = |a: f32, b: f32| (a - b).abs() < 0.01;
        assert!(close(scores[0][0], 1.0) && close(scores[1][0], 1.0));
        assert_eq!(scores[0][1], UNKNOWN);
        assert!(close(scores[0][2], 0.8) && close(scores[1][2], 0.6));
        let first = vectors.rough_scores(&[vec![0.0, 1.0]], 1);
        assert!(close(first[0][0], 0.0) && close(first[0][2], 0.8));
    }

    #[test]
    fn written_texts_lose_more_while_other_tools_have_none() {
        let made = |texts: [usize; 3]| {
            let mut vectors = Vectors::with_leading(2, 1);
            for count in texts {
                vectors.push("t", [0; 16], &[1.0, 0.0]).unwrap();
                for _ in 0..count {
                    vectors.push("t", [1; 16], &[0.0, 1.0]).unwrap();
                }
                // An alias, which loses nothing.
                vectors.push("t", [2; 16], &[0.8, 0.6]).unwrap();
                vectors.end_tool();
            }
            vectors.set_written_texts(1, texts.into_iter());
            vectors
        };
        let queries = [vec![0.0, 1.0]];
        for (texts, expected) in [
            ([0, 0, 0], [0.6, 0.6, 0.6]),
            ([1, 3, 1], [0.97, 0.97, 0.97]),
            ([0, 1, 2], [0.6, 0.85, 0.85]),
        ] {
            let vectors = made(texts);
            let mut scores = vectors.scores(&queries);
            let close = |scores: &[f32]| {
                let pairs = scores.iter().zip(&expected);
                pairs.into_iter().all(|(a, b)| (a - b).abs() < 0.01)
            };
            assert!(close(&scores[0]), "{texts:?}: {scores:?}");
            scores[0].fill(0.0);
            vectors.refine(&queries, ALL_VIEWS, &[0, 1, 2], &mut scores);
            assert!(close(&scores[0]), "refined, {texts:?}: {scores:?}");
            let rows: Vec<usize> = (0..vectors.len()).collect();
            let by_graph = scan::scores_of(&vectors, &vectors.encode(&queries)[0], &rows);
            assert!(close(&by_graph), "by graph, {texts:?}: {by_graph:?}");
        }
    }

    #[test]
    fn a_rough_scan_reads_the_mean_of_written_texts_and_refining_each_text() {
        let mut vectors = Vectors::with_leading(3, 2);
        for tool in 0..MIN_TOOLS_ROUGH {
            vectors.push("t", [0; 16], &[1.0, 0.0, 0.0]).unwrap();
            // The last tool has none, and the one before it a single text.
            let texts = match MIN_TOOLS_ROUGH - tool {
                1 => &[] as &[[f32; 3]],
                2 => &[[0.0, 1.0, 0.0]],
                _ => &[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            };
            for text in texts {
                vectors.push("t", [1; 16], text).unwrap();
            }
            // An alias, which is not part of the mean.
            vectors.push("t", [2; 16], &[-0.8, 0.6, 0.0]).unwrap();
            vectors.end_tool();
        }
        let counts = (0..MIN_TOOLS_ROUGH).map(|tool| (MIN_TOOLS_ROUGH - 1 - tool).min(2));
        let all = vectors.rough_bytes();
        vectors.set_written_texts(1, counts);
        assert!(vectors.rough_bytes() < all);
        let queries = [vec![0.0, 1.0, 0.0]];
        let mut scores = vectors.rough_scores(&queries, ALL_VIEWS);
        let last = MIN_TOOLS_ROUGH - 1;
        let close = |score: f32, expected: f32| (score - expected).abs() < 0.01;
        // A few tools have no texts, so the discount is little above that of all.
        assert!(
            close(scores[0][0], 0.5f32.sqrt() - 0.03),
            "{}",
            scores[0][0]
        );
        assert!(close(scores[0][last - 1], 0.97) && close(scores[0][last], 0.6));
        let first = vectors.rough_scores(&queries, 1);
        assert!(close(first[0][0], 0.0));
        vectors.refine(&queries, ALL_VIEWS, &[0, last], &mut scores);
        assert!(close(scores[0][0], 0.97) && close(scores[0][last], 0.6));
    }

    #[test]
    fn few_tools_of_many_are_read_with_a_sample_and_their_scores_are_exact() {
        let mut vectors = Vectors::new(2);
        for tool in 0..MIN_TOOLS_FEW {
            let angle = tool as f32 / 1000.0;
            vectors
                .push("t", [0; 16], &[angle.cos(), angle.sin()])
                .unwrap();
            vectors.end_tool();
        }
        let mut wanted = vec![false; MIN_TOOLS_FEW];
        wanted[3] = true;
        let few = vectors.few(&wanted).unwrap();
        assert!(few.contains(&3) && few.len() <= SAMPLED_BESIDE_FEW + 1);
        let queries = [vec![0.6, 0.8]];
        let (exact, mut scores) = (
            vectors.scores(&queries),
            vectors.scores_of_few(&queries, ALL_VIEWS, &few),
        );
        for (tool, score) in scores[0].iter().enumerate() {
            let expected = match few.contains(&tool) {
                true => exact[0][tool],
                false => UNKNOWN,
            };
            assert_eq!(*score, expected, "tool {tool}");
        }
        vectors.refine(&queries, ALL_VIEWS, &[5], &mut scores);
        assert_eq!(scores[0][5], exact[0][5]);
        assert!(vectors.read_bytes(1) < vectors.read_bytes(MIN_TOOLS_FEW) / 2);

        wanted.fill(true);
        assert_eq!(vectors.few(&wanted), None);
    }

    #[test]
    fn a_wrong_length_is_named() {
        let error = Vectors::new(3).push("mini", [0; 16], &[1.0]).unwrap_err();
        assert!(matches!(
            error,
            Error::DimensionMismatch {
                expected: 3,
                received: 1,
                ..
            }
        ));
    }

    #[test]
    fn rough_scores_are_by_the_leading_dimensions_until_refined() {
        let mut vectors = Vectors::with_leading(3, 1);
        for tool in 0..MIN_TOOLS_ROUGH {
            let angle = tool as f32 / 100.0;
            vectors
                .push("t", [0; 16], &[angle.cos(), angle.sin(), 0.0])
                .unwrap();
            vectors.end_tool();
        }
        let queries = [vec![0.6, 0.8, 0.0]];
        let (exact, mut rough) = (
            vectors.scores(&queries),
            vectors.rough_scores(&queries, ALL_VIEWS),
        );
        assert!(vectors.is_rough());
        assert!(
            (rough[0][20] - 0.6 * 0.2f32.cos()).abs() < 0.01
                && (exact[0][20] - rough[0][20]).abs() > 0.1
        );
        vectors.refine(&queries, ALL_VIEWS, &[20, 7], &mut rough);
        assert_eq!((rough[0][20], rough[0][7]), (exact[0][20], exact[0][7]));
        assert_ne!(rough[0][8], exact[0][8]);
    }
}
