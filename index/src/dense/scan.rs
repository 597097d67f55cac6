//! The exact scan: every row with every query, by all dimensions or by the leading ones.

use rayon::prelude::*;

use super::part::Part;
use super::{UNKNOWN, Vectors};
use crate::by_processor::by_processor;
use crate::quantization::{add_dots, dot, scale_of};

/// Quantization steps of a query's largest value. Finer than the rows' 127, so that the query adds
/// no error, and small enough that 4,096 dimensions cannot overflow 32 bits.
const QUERY_STEPS: f32 = 2047.0;
/// Bytes that one task scans: some tenths of a millisecond, much longer than waking a thread.
const BYTES_PER_TASK: usize = 4 << 20;
/// Tools whose rows are multiplied with all queries before the next rows are read from memory.
// Three views of 64 leading bytes make 24 KiB, which fits into a first-level cache.
const TOOLS_PER_BLOCK: usize = 128;
/// Tools whose rows are copied before they are multiplied with all queries.
// Three views of 256 bytes make 24 KiB.
const TOOLS_PER_COPY: usize = 32;

/// A query as integers.
pub(super) struct Encoded {
    codes: Vec<i16>,
    scale: f32,
}

impl Encoded {
    pub(super) fn new(query: &[f32]) -> Self {
        let scale = scale_of(query, QUERY_STEPS);
        Encoded {
            codes: query
                .iter()
                .map(|value| (value / scale).round() as i16)
                .collect(),
            scale,
        }
    }

    /// The cosine with a row of this product and scale.
    #[inline(always)]
    fn cosine(&self, product: i32, scale: f32) -> f32 {
        product as f32 * scale * self.scale
    }
}

/// The dimensions that a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// The leading ones only.
    Rough,
    /// All of them.
    Exact,
}

/// One score per tool, for each query, by at most the first `views` of its rows.
pub(super) fn scores(
    vectors: &Vectors,
    queries: &[Encoded],
    views: usize,
    precision: Precision,
) -> Vec<Vec<f32>> {
    let mut scores = vec![vec![UNKNOWN; vectors.tools()]; queries.len()];
    let bytes = vectors.scanned_bytes(precision);
    // At least 1, since slices have no chunks of 0, which an empty catalog would ask for.
    let tools = vectors
        .tools()
        .div_ceil((bytes / BYTES_PER_TASK).max(1))
        .max(1);
    // Each task owns its part of every query's scores, so threads write without a lock.
    let mut tasks: Vec<Vec<&mut [f32]>> = Vec::new();
    tasks.resize_with(vectors.tools().div_ceil(tools), Vec::new);
    for scores in &mut scores {
        for (task, scores) in tasks.iter_mut().zip(scores.chunks_mut(tools)) {
            task.push(scores);
        }
    }
    let scan = Scan {
        vectors,
        views,
        precision,
    };
    let run = |(task, scores): (usize, Vec<&mut [f32]>)| scan.task(task * tools, queries, scores);
    // Without parallelism, waking a pool's only thread would cost more than it saves.
    if tasks.len() <= 1 || rayon::current_num_threads() == 1 {
        tasks.into_iter().enumerate().for_each(run);
    } else {
        tasks.into_par_iter().enumerate().for_each(run);
    }
    scores
}

/// Replaces the scores of these tools for each query by those of all dimensions and at most the first
/// `views` rows of each tool.
pub(super) fn refine(
    vectors: &Vectors,
    queries: &[Encoded],
    views: usize,
    tools: &[usize],
    scores: &mut [Vec<f32>],
) {
    let (mut leads, mut rests, mut products) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::with_capacity(TOOLS_PER_COPY);
    for tools in tools.chunks(TOOLS_PER_COPY) {
        // Copied to consecutive memory: the processor then waits for many rows at a time, and
        // multiplies several at once.
        leads.clear();
        rests.clear();
        places.clear();
        let mut count = 0;
        for &tool in tools {
            let (part, of_part) = vectors.tool_in_part(tool);
            let rows = part.rows_of(of_part);
            let rows = rows.start..rows.end.min(rows.start.saturating_add(views));
            count += rows.len();
            let codes_of = |width: usize| rows.start * width..rows.end * width;
            leads.extend_from_slice(&part.leads[codes_of(vectors.leading)]);
            rests.extend_from_slice(&part.rests[codes_of(vectors.dimensions - vectors.leading)]);
            places.push((part, of_part, rows));
        }
        for (query, scores) in queries.iter().zip(scores.iter_mut()) {
            let (lead, rest) = query.codes.split_at(vectors.leading);
            products.clear();
            products.resize(count, 0);
            add_dots(&leads, lead, &mut products);
            add_dots(&rests, rest, &mut products);
            let mut products = products.iter();
            for (&tool, (part, of_part, rows)) in tools.iter().zip(&places) {
                let cosines = rows.clone().zip(&mut products).map(|(row, &product)| {
                    let discount = vectors.discount_in_part(part, *of_part, row);
                    query.cosine(product, part.scales[row]) - discount
                });
                scores[tool] = nearest_of(UNKNOWN, cosines);
            }
        }
    }
}

/// One score per tool: of these rows' tools exactly, of all others the lowest of them.
pub(super) fn scores_of(vectors: &Vectors, query: &Encoded, rows: &[usize]) -> Vec<f32> {
    let mut scores = vec![UNKNOWN; vectors.tools()];
    for &row in rows {
        let tool = vectors.tool_of_row(row);
        let cosine = cosine(vectors, query, row) - vectors.discount(tool, row);
        scores[tool] = scores[tool].max(cosine);
    }
    // What the graph left out is farther than all it returned. It gets the lowest score and not
    // `UNKNOWN`, for which fusion takes the score of the words. Where the graph returned nothing,
    // `lowest` is infinite, and all tools get 1.
    let mut lowest = f32::INFINITY;
    for &score in &scores {
        if score.is_finite() {
            lowest = lowest.min(score);
        }
    }
    for (tool, score) in scores.iter_mut().enumerate() {
        if !vectors.rows_of(tool).is_empty() {
            *score = score.max(lowest.min(1.0));
        }
    }
    scores
}

/// The cosine of a query with one row.
pub(super) fn cosine(vectors: &Vectors, query: &Encoded, row: usize) -> f32 {
    let (lead, rest) = query.codes.split_at(vectors.leading);
    // Integer sums are exact, so that this is the cosine of a full scan to the bit.
    let (part, row) = vectors.part_of_row(row);
    let of_lead = &part.leads[row * lead.len()..(row + 1) * lead.len()];
    let of_rest = &part.rests[row * rest.len()..(row + 1) * rest.len()];
    let product = dot(of_lead, lead) + dot(of_rest, rest);
    query.cosine(product, part.scales[row])
}

struct Scan<'a> {
    vectors: &'a Vectors,
    views: usize,
    precision: Precision,
}

impl Scan<'_> {
    /// Scores the tools from `first` on; `scores` are theirs, query by query.
    fn task(&self, first: usize, queries: &[Encoded], mut scores: Vec<&mut [f32]>) {
        let tools = scores.first().map_or(0, |scores| scores.len());
        // One allocation for all blocks of a task.
        let mut buffers = (Vec::new(), Vec::new());
        let mut start = 0;
        let mut number = self.vectors.part_of_tool(first);
        while start < tools {
            let part = &self.vectors.parts[number];
            let within = first + start - self.vectors.tool_starts[number];
            let left = (tools - start).min(part.tools() - within);
            let block = start..start + left.min(TOOLS_PER_BLOCK);
            for (query, scores) in queries.iter().zip(&mut scores) {
                let scores = &mut scores[block.clone()];
                self.block(part, within, query, &mut buffers, scores);
            }
            start = block.end;
            number += usize::from(block.len() == left);
        }
    }

    /// As [`Scan::task`] for one query and tools of one part, with buffers for the rows' products and
    /// cosines.
    fn block(
        &self,
        part: &Part,
        first: usize,
        query: &Encoded,
        buffers: &mut (Vec<i32>, Vec<f32>),
        scores: &mut [f32],
    ) {
        let (products, cosines) = buffers;
        let vectors = self.vectors;
        let condensed = match self.precision {
            Precision::Rough => vectors.condensed(part),
            Precision::Exact => None,
        };
        let (leads, scales, all_ends) = match condensed {
            Some(rows) => (&rows.leads, &rows.scales, &rows.ends),
            None => (&part.leads, &part.scales, &part.ends),
        };
        let ends = &all_ends[first..first + scores.len()];
        let from = first.checked_sub(1).map_or(0, |before| all_ends[before]);
        let rows = from as usize..ends.last().map_or(from, |end| *end) as usize;
        let (lead, rest) = query.codes.split_at(vectors.leading);
        products.clear();
        products.resize(rows.len(), 0);
        add_dots(
            &leads[rows.start * lead.len()..rows.end * lead.len()],
            lead,
            products,
        );
        if self.precision == Precision::Exact {
            add_dots(
                &part.rests[rows.start * rest.len()..rows.end * rest.len()],
                rest,
                products,
            );
        }
        cosines.clear();
        cosines.resize(rows.len(), 0.0);
        scale(products, &scales[rows.clone()], query, cosines);
        match condensed {
            Some(condensed) => vectors.discount_condensed(condensed, rows.clone(), cosines),
            None => vectors.discount_all(part, first, scores.len(), cosines),
        }
        // Mostly all tools have equally many rows, a number that the compiler then knows.
        match rows_of_each(from, ends).filter(|&rows| rows <= self.views) {
            Some(1) => raise_all::<1>(cosines, scores),
            Some(2) => raise_all::<2>(cosines, scores),
            Some(3) => raise_all::<3>(cosines, scores),
            Some(4) => raise_all::<4>(cosines, scores),
            _ => {
                let mut start = 0;
                for (score, &end) in scores.iter_mut().zip(ends) {
                    let end = end as usize - rows.start;
                    let cosines = cosines[start..end].iter().copied().take(self.views);
                    *score = nearest_of(*score, cosines);
                    start = end;
                }
            }
        }
    }
}

by_processor! {
    /// The cosines of rows with these products and scales.
    fn scale(products: &[i32], scales: &[f32], query: &Encoded, cosines: &mut [f32]) {
        for ((cosine, &product), &scale) in cosines.iter_mut().zip(products).zip(scales) {
            *cosine = query.cosine(product, scale);
        }
    }
}

/// The number of rows of every tool, where all have the same: the first begins at `from`.
fn rows_of_each(from: u32, ends: &[u32]) -> Option<usize> {
    let rows = ends.first()? - from;
    let differs = |differs, ends: &[u32]| differs | (ends[1] - ends[0] != rows);
    // No early exit, so that the compiler can vectorize it.
    (!ends.windows(2).fold(false, differs)).then_some(rows as usize)
}

/// Raises each score to the cosine of the nearest of its tool's `N` rows.
fn raise_all<const N: usize>(cosines: &[f32], scores: &mut [f32]) {
    for (score, cosines) in scores.iter_mut().zip(cosines.as_chunks::<N>().0) {
        *score = nearest_of(*score, cosines.iter().copied());
    }
}

/// The highest of a score and these cosines.
fn nearest_of(score: f32, cosines: impl Iterator<Item = f32>) -> f32 {
    // Not `max`, which checks for NaN and takes longer.
    cosines.fold(
        score,
        |score, cosine| {
            if cosine > score { cosine } else { score }
        },
    )
}
