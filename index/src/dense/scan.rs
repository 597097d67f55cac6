//! Dot products of bytes: the inner loop of the exact scan.

use rayon::prelude::*;

use super::{UNKNOWN, Vectors};

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

fn dot(row: &[i8], query: &[i16]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        return unsafe { dot_avx2(row, query) };
    }
    dot_portable(row, query)
}

fn dot_portable(row: &[i8], query: &[i16]) -> i32 {
    row.iter().zip(query).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}

/// Sixteen products an instruction, added in pairs by `pmaddwd`, which the compiler does not find by itself: it widens to
/// 32 bits first and takes three times as long. Two sums, since one addition waits for the last.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn dot_avx2(row: &[i8], query: &[i16]) -> i32 {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256,
    };
    let products = |row: &[i8; 16], query: &[i16; 16]| {
        // SAFETY: both arrays are as long as what is loaded from them, and neither load needs alignment.
        let (row, query) = unsafe { (_mm_loadu_si128(row.as_ptr().cast()), _mm256_loadu_si256(query.as_ptr().cast())) };
        _mm256_madd_epi16(_mm256_cvtepi8_epi16(row), query)
    };
    let (rows, rest) = row.as_chunks::<16>();
    let (queries, _) = query.as_chunks::<16>();
    let mut sums = [_mm256_setzero_si256(); 2];
    let (row_pairs, last_row) = rows.as_chunks::<2>();
    let (query_pairs, last_query) = queries.as_chunks::<2>();
    for ([row_a, row_b], [query_a, query_b]) in row_pairs.iter().zip(query_pairs) {
        sums[0] = _mm256_add_epi32(sums[0], products(row_a, query_a));
        sums[1] = _mm256_add_epi32(sums[1], products(row_b, query_b));
    }
    for (row, query) in last_row.iter().zip(last_query) {
        sums[0] = _mm256_add_epi32(sums[0], products(row, query));
    }
    let mut lanes = [0i32; 8];
    let sum = _mm256_add_epi32(sums[0], sums[1]);
    // SAFETY: the array has the 32 bytes that are stored, and the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
    lanes.iter().sum::<i32>() + dot_portable(rest, &query[row.len() - rest.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_product_is_the_plain_one_for_every_length() {
        for length in 0..150 {
            let row: Vec<i8> = (0..length).map(|i| (i * 37 % 255 - 127) as i8).collect();
            let query: Vec<i16> = (0..length).map(|i| (i * 911 % 4095 - 2047) as i16).collect();
            assert_eq!(dot(&row, &query), dot_portable(&row, &query), "{length}");
        }
        let (row, query) = ([-127i8; 4096], [2047i16; 4096]);
        assert_eq!(dot(&row, &query), -127 * 2047 * 4096);
    }
}
