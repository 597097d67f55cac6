//! The exact scan: every row with every query, by all dimensions or by the leading ones.

use rayon::prelude::*;

use super::{UNKNOWN, Vectors};
use crate::quantization::{add_dots, dot, scale_of};

/// Quantization steps of a query's largest value. Finer than the rows' 127, so that the query adds
/// no error, and small enough that 4,096 dimensions cannot overflow 32 bits.
const QUERY_STEPS: f32 = 2047.0;
/// Bytes that one task scans: some tenths of a millisecond, much longer than waking a thread.
const BYTES_PER_TASK: usize = 4 << 20;
/// Tools whose rows are multiplied with all queries before the next rows are read from memory.
// Three views of 64 leading bytes make 24 KiB, which fits into a first-level cache.
const TOOLS_PER_BLOCK: usize = 128;

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
        tasks
            .iter_mut()
            .zip(scores.chunks_mut(tools))
            .for_each(|(task, scores)| task.push(scores));
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

/// The score of one tool by all dimensions and at most the first `views` of its rows.
pub(super) fn score(vectors: &Vectors, query: &Encoded, views: usize, tool: usize) -> f32 {
    vectors
        .rows_of(tool)
        .take(views)
        .map(|row| cosine(vectors, query, row))
        .fold(UNKNOWN, f32::max)
}

/// One score per tool: of these rows' tools exactly, of all others the lowest of them.
pub(super) fn scores_of(vectors: &Vectors, query: &Encoded, rows: &[usize]) -> Vec<f32> {
    let mut scores = vec![UNKNOWN; vectors.tools()];
    for &row in rows {
        // `starts` begins with 0, so at least one tool starts at or before any row.
        let tool = vectors
            .starts
            .partition_point(|&start| start as usize <= row)
            - 1;
        scores[tool] = scores[tool].max(cosine(vectors, query, row));
    }
    // What the graph left out is farther than all it returned. It gets the lowest score and not
    // `UNKNOWN`, for which fusion takes the score of the words. Where the graph returned nothing,
    // `lowest` is infinite, and all tools get 1.
    let lowest = scores
        .iter()
        .copied()
        .filter(|score| score.is_finite())
        .fold(f32::INFINITY, f32::min);
    for tool in (0..scores.len()).filter(|&tool| !vectors.rows_of(tool).is_empty()) {
        scores[tool] = scores[tool].max(lowest.min(1.0));
    }
    scores
}

/// The cosine of a query with one row.
pub(super) fn cosine(vectors: &Vectors, query: &Encoded, row: usize) -> f32 {
    let (lead, rest) = query.codes.split_at(vectors.leading);
    // Multiplied in the same order as in `Scan::block`, and integer sums are exact, so that a
    // refined score is that of a full scan to the bit.
    (dot(vectors.lead(row), lead) + dot(vectors.rest(row), rest)) as f32
        * vectors.scales[row]
        * query.scale
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
        for start in (0..tools).step_by(TOOLS_PER_BLOCK) {
            let block = start..tools.min(start + TOOLS_PER_BLOCK);
            for (query, scores) in queries.iter().zip(&mut scores) {
                self.block(
                    first + start,
                    query,
                    &mut buffers,
                    &mut scores[block.clone()],
                );
            }
        }
    }

    /// As [`Scan::task`] for one query, with buffers for the rows' products and cosines.
    fn block(
        &self,
        first: usize,
        query: &Encoded,
        buffers: &mut (Vec<i32>, Vec<f32>),
        scores: &mut [f32],
    ) {
        let (products, cosines) = buffers;
        let vectors = self.vectors;
        let rows = vectors.rows_of(first).start..vectors.rows_of(first + scores.len() - 1).end;
        let (lead, rest) = query.codes.split_at(vectors.leading);
        products.clear();
        products.resize(rows.len(), 0);
        add_dots(
            &vectors.leads[rows.start * lead.len()..rows.end * lead.len()],
            lead,
            products,
        );
        if self.precision == Precision::Exact {
            add_dots(
                &vectors.rests[rows.start * rest.len()..rows.end * rest.len()],
                rest,
                products,
            );
        }
        let scales = &vectors.scales[rows.clone()];
        cosines.clear();
        cosines.extend(
            products
                .iter()
                .zip(scales)
                .map(|(&product, scale)| product as f32 * scale * query.scale),
        );
        let starts = &vectors.starts[first..=first + scores.len()];
        // Mostly all tools have equally many rows, a number that the compiler then knows.
        match rows_of_each(starts).filter(|&rows| rows <= self.views) {
            Some(1) => nearest::<1>(cosines, scores),
            Some(2) => nearest::<2>(cosines, scores),
            Some(3) => nearest::<3>(cosines, scores),
            _ => {
                for (score, ends) in scores.iter_mut().zip(starts.windows(2)) {
                    let rows = ends[0] as usize - rows.start..ends[1] as usize - rows.start;
                    raise(score, cosines[rows].iter().take(self.views));
                }
            }
        }
    }
}

/// The number of rows of every tool, where all have the same.
fn rows_of_each(starts: &[u32]) -> Option<usize> {
    let rows = starts[1] - starts[0];
    let differs = |differs, ends: &[u32]| differs | (ends[1] - ends[0] != rows);
    // No early exit, so that the compiler can vectorize it.
    (!starts.windows(2).fold(false, differs)).then_some(rows as usize)
}

/// Raises each score to the nearest of its tool's `N` rows.
fn nearest<const N: usize>(cosines: &[f32], scores: &mut [f32]) {
    for (score, cosines) in scores.iter_mut().zip(cosines.as_chunks::<N>().0) {
        raise(score, cosines.iter());
    }
}

fn raise<'a>(score: &mut f32, cosines: impl Iterator<Item = &'a f32>) {
    for &cosine in cosines {
        *score = if cosine > *score { cosine } else { *score };
    }
}
