//! The exact scan: every row beside every query.

use rayon::prelude::*;

use super::{UNKNOWN, Vectors};
#[cfg(target_arch = "x86_64")]
use crate::codes::dot_avx2;
use crate::codes::{dot, dot_portable};

/// Steps of a query's largest value. Finer than the rows' 127, so that the query adds no error of its own, and small
/// enough that 4,096 dimensions cannot overflow 32 bits.
const QUERY_STEPS: f32 = 2047.0;

/// A query as whole numbers.
pub(super) struct Encoded {
    codes: Vec<i16>,
    scale: f32,
}

impl Encoded {
    pub(super) fn new(query: &[f32]) -> Self {
        let largest = query.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let scale = if largest > 0.0 { largest / QUERY_STEPS } else { 1.0 };
        Encoded { codes: query.iter().map(|value| (value / scale).round() as i16).collect(), scale }
    }
}

/// Tools that one thread scans at a stretch: with two views of 384 dimensions 3 MB, a tenth of a millisecond, so that
/// handing them out costs little.
const TOOLS_PER_TASK: usize = 4096;

/// One score per tool, for each query, by at most the first `views` of its rows.
pub(super) fn scores(vectors: &Vectors, queries: &[Encoded], views: usize) -> Vec<Vec<f32>> {
    let count = queries.len();
    let mut by_tool = vec![UNKNOWN; vectors.tools() * count];
    let tasks = by_tool.chunks_mut((TOOLS_PER_TASK * count).max(1));
    if vectors.tools() <= TOOLS_PER_TASK {
        tasks.for_each(|scores| scan(vectors, queries, 0, views, scores));
    } else {
        let tasks: Vec<_> = tasks.enumerate().collect();
        tasks.into_par_iter().for_each(|(task, scores)| scan(vectors, queries, task * TOOLS_PER_TASK, views, scores));
    }
    (0..count).map(|query| by_tool.iter().skip(query).step_by(count).copied().collect()).collect()
}

/// One score per tool: of these rows' tools exactly, of all others the lowest of them.
pub(super) fn scores_of(vectors: &Vectors, query: &Encoded, rows: &[usize]) -> Vec<f32> {
    let mut scores = vec![UNKNOWN; vectors.tools()];
    for &row in rows {
        let tool = vectors.starts.partition_point(|&start| start as usize <= row) - 1;
        let score = dot(vectors.row(row), &query.codes) as f32 * vectors.scales[row] * query.scale;
        scores[tool] = scores[tool].max(score);
    }
    let lowest = scores.iter().copied().filter(|score| score.is_finite()).fold(f32::INFINITY, f32::min);
    for tool in (0..scores.len()).filter(|&tool| !vectors.rows_of(tool).is_empty()) {
        scores[tool] = scores[tool].max(lowest.min(1.0));
    }
    scores
}

/// The cosine of a query with one row.
pub(super) fn cosine(vectors: &Vectors, query: &Encoded, row: usize) -> f32 {
    dot(vectors.row(row), &query.codes) as f32 * vectors.scales[row] * query.scale
}

/// Fills in the scores of the tools from `first` on, all queries of a tool side by side.
fn scan(vectors: &Vectors, queries: &[Encoded], first: usize, views: usize, scores: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        return unsafe { scan_avx2(vectors, queries, first, views, scores) };
    }
    scan_by(vectors, queries, first, views, scores, dot_portable);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(vectors: &Vectors, queries: &[Encoded], first: usize, views: usize, scores: &mut [f32]) {
    scan_by(vectors, queries, first, views, scores, |row, query| dot_avx2(row, query));
}

#[inline(always)]
fn scan_by(
    vectors: &Vectors,
    queries: &[Encoded],
    first: usize,
    views: usize,
    scores: &mut [f32],
    dot: impl Fn(&[i8], &[i16]) -> i32,
) {
    for (offset, scores) in scores.chunks_mut(queries.len()).enumerate() {
        for row in vectors.rows_of(first + offset).take(views) {
            let (codes, scale) = (vectors.row(row), vectors.scales[row]);
            for (query, score) in queries.iter().zip(scores.iter_mut()) {
                *score = score.max(dot(codes, &query.codes) as f32 * scale * query.scale);
            }
        }
    }
}
