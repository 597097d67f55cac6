//! Dot products of bytes: the inner loop of the exact scan and of late interaction.
//!
//! Sums of whole numbers are exact in any order, so every instruction set gives the same ones.

/// The value of code 1 where the largest magnitude has code `steps`; 1 for a vector of zeros.
pub(crate) fn scale_of(vector: &[f32], steps: f32) -> f32 {
    let largest = vector
        .iter()
        .fold(0.0f32, |largest, value| largest.max(value.abs()));
    if largest > 0.0 { largest / steps } else { 1.0 }
}

/// The dot product of a row of codes and a query's finer codes, of equal length.
pub(crate) fn dot(row: &[i8], query: &[i16]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_available() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { avx512::dot(row, query) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, which is all that the function asks for.
            return unsafe { dot_avx2(row, query) };
        }
    }
    dot_portable(row, query)
}

/// As [`dot`], on any processor.
fn dot_portable(row: &[i8], query: &[i16]) -> i32 {
    row.iter()
        .zip(query)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum()
}

/// Sixteen products an instruction, added in pairs by `pmaddwd`. The compiler does not generate it:
/// it widens to 32 bits first, which is slower. Two sums make additions independent of each other.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn dot_avx2(row: &[i8], query: &[i16]) -> i32 {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_loadu_si256,
        _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256,
    };
    let products = |row: &[i8; 16], query: &[i16; 16]| {
        // SAFETY: both arrays are as long as what is loaded from them, and neither load needs
        // alignment.
        let (row, query) = unsafe {
            (
                _mm_loadu_si128(row.as_ptr().cast()),
                _mm256_loadu_si256(query.as_ptr().cast()),
            )
        };
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

/// Adds to each sum the product of its row with the finer codes. The rows are stored end to end.
pub(crate) fn add_dots(rows: &[i8], query: &[i16], sums: &mut [i32]) {
    if query.is_empty() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_available() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { avx512::add_dots(rows, query, sums) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, which is all that the function asks for.
            return unsafe { add_dots_avx2(rows, query, sums) };
        }
    }
    add_dots_portable(rows, query, sums);
}

/// As [`add_dots`], on any processor.
fn add_dots_portable(rows: &[i8], query: &[i16], sums: &mut [i32]) {
    for (row, sum) in rows.chunks_exact(query.len()).zip(sums) {
        *sum += dot_portable(row, query);
    }
}

/// Four rows at a time: adding up the lanes at the end of each single row would take as long as its
/// products.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_dots_avx2(rows: &[i8], query: &[i16], sums: &mut [i32]) {
    use std::arch::x86_64::{
        _mm_add_epi32, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_epi32, _mm256_castsi256_si128,
        _mm256_cvtepi8_epi16, _mm256_extracti128_si256, _mm256_hadd_epi32, _mm256_loadu_si256,
        _mm256_madd_epi16, _mm256_setzero_si256,
    };
    let width = query.len();
    let (blocks, query_rest) = query.as_chunks::<16>();
    let (fours, last) = sums.as_chunks_mut::<4>();
    let load = |codes: &[i8; 16]| {
        // SAFETY: the array is as long as what is loaded from it, and the load needs no alignment.
        _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(codes.as_ptr().cast()) })
    };
    for (rows, sums) in rows.chunks_exact(4 * width).zip(fours.iter_mut()) {
        let mut lanes = [_mm256_setzero_si256(); 4];
        // Not `map` over an array, which is a call for every four rows.
        let row = |row| rows[row * width..][..width].as_chunks::<16>().0;
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        for ((((block, a), b), c), d) in blocks.iter().zip(a).zip(b).zip(c).zip(d) {
            // SAFETY: as above.
            let query = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
            for (lane, codes) in lanes.iter_mut().zip([a, b, c, d]) {
                *lane = _mm256_add_epi32(*lane, _mm256_madd_epi16(load(codes), query));
            }
        }
        let pairs = [
            _mm256_hadd_epi32(lanes[0], lanes[1]),
            _mm256_hadd_epi32(lanes[2], lanes[3]),
        ];
        let halves = _mm256_hadd_epi32(pairs[0], pairs[1]);
        let products = _mm_add_epi32(
            _mm256_castsi256_si128(halves),
            _mm256_extracti128_si256::<1>(halves),
        );
        // SAFETY: four sums are as long as what is loaded from and stored to them, and neither
        // needs alignment.
        unsafe {
            let place = sums.as_mut_ptr().cast();
            _mm_storeu_si128(place, _mm_add_epi32(_mm_loadu_si128(place), products));
        }
        for (row, sum) in rows
            .chunks_exact(width)
            .zip(sums)
            .filter(|_| !query_rest.is_empty())
        {
            *sum += dot_portable(&row[width - query_rest.len()..], query_rest);
        }
    }
    let done = rows.len() / (4 * width) * 4 * width;
    for (row, sum) in rows[done..].chunks_exact(width).zip(last) {
        *sum += dot_avx2(row, query);
    }
}

/// For AVX-512: 32 products an instruction.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_maskz_loadu_epi8,
        _mm256_permute2x128_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_castsi512_si256,
        _mm512_cvtepi8_epi16, _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_madd_epi16,
        _mm512_maskz_loadu_epi16, _mm512_reduce_add_epi32, _mm512_setzero_si512,
        _mm512_shuffle_i32x4, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
        _mm512_unpacklo_epi64,
    };

    /// Codes that are multiplied at once.
    const STEP: usize = 32;
    /// Rows that are multiplied with the same codes of a query before the next ones.
    const ROWS: usize = 8;

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) fn dot(row: &[i8], query: &[i16]) -> i32 {
        let [total] = totals(row, query);
        _mm512_reduce_add_epi32(total)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) fn add_dots(rows: &[i8], query: &[i16], sums: &mut [i32]) {
        let width = query.len();
        let (eights, last) = sums.as_chunks_mut::<ROWS>();
        for (rows, sums) in rows.chunks_exact(ROWS * width).zip(eights.iter_mut()) {
            let products = added(totals(rows, query));
            // SAFETY: eight sums are as long as what is loaded from and stored to them, and neither
            // needs alignment.
            unsafe {
                let place: *mut __m256i = sums.as_mut_ptr().cast();
                _mm256_storeu_si256(place, _mm256_add_epi32(_mm256_loadu_si256(place), products));
            }
        }
        let done = eights.len() * ROWS * width;
        for (row, sum) in rows[done..].chunks_exact(width).zip(last) {
            *sum += dot(row, query);
        }
    }

    /// Sixteen parts of the product of each of `N` rows, which are stored end to end.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    fn totals<const N: usize>(rows: &[i8], query: &[i16]) -> [__m512i; N] {
        let width = query.len();
        assert_eq!(rows.len(), N * width);
        let mut totals = [_mm512_setzero_si512(); N];
        let (steps, query_rest) = query.as_chunks::<STEP>();
        for (step, codes) in steps.iter().enumerate() {
            // SAFETY: the array is as long as what is loaded, and the load needs no alignment.
            let codes = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
            for (row, total) in totals.iter_mut().enumerate() {
                // SAFETY: each row is as long as the query, which has all codes of this step.
                let row = unsafe {
                    _mm256_loadu_si256(rows.as_ptr().add(row * width + step * STEP).cast())
                };
                let products = _mm512_madd_epi16(_mm512_cvtepi8_epi16(row), codes);
                *total = _mm512_add_epi32(*total, products);
            }
        }
        if !query_rest.is_empty() {
            let done = width - query_rest.len();
            let mask = (1u32 << query_rest.len()) - 1;
            // SAFETY: the mask lets through as many codes as are left.
            let codes = unsafe { _mm512_maskz_loadu_epi16(mask, query_rest.as_ptr()) };
            for (row, total) in totals.iter_mut().enumerate() {
                // SAFETY: as above; as many codes of each row are left.
                let row =
                    unsafe { _mm256_maskz_loadu_epi8(mask, rows.as_ptr().add(row * width + done)) };
                let products = _mm512_madd_epi16(_mm512_cvtepi8_epi16(row), codes);
                *total = _mm512_add_epi32(*total, products);
            }
        }
        totals
    }

    /// The sum of the parts of each of eight registers, in order.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    fn added([a, b, c, d, e, f, g, h]: [__m512i; ROWS]) -> __m256i {
        // Each step adds half of one register to half of another.
        let pair =
            |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let four =
            |a, b| _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        let first = four(pair(a, b), pair(c, d));
        let second = four(pair(e, f), pair(g, h));
        // Now every quarter of a register has one part of each of its four sums.
        let quarters = _mm512_add_epi32(
            _mm512_shuffle_i32x4::<0b01_00_01_00>(first, second),
            _mm512_shuffle_i32x4::<0b11_10_11_10>(first, second),
        );
        let first = _mm512_castsi512_si256(quarters);
        let second = _mm512_extracti64x4_epi64::<1>(quarters);
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(first, second),
            _mm256_permute2x128_si256::<0x31>(first, second),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Dot = fn(&[i8], &[i16]) -> i32;
    type AddDots = fn(&[i8], &[i16], &mut [i32]);

    /// The products by each instruction set that this processor has, and those that are in use.
    fn fast() -> Vec<(Dot, AddDots)> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all: Vec<(Dot, AddDots)> = vec![(dot, add_dots)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                all.push((
                    |row, query| unsafe { dot_avx2(row, query) },
                    |a, b, c| {
                        // SAFETY: as above.
                        unsafe { add_dots_avx2(a, b, c) }
                    },
                ));
            }
            if avx512::is_available() {
                // SAFETY: the processor has AVX-512.
                all.push((
                    |row, query| unsafe { avx512::dot(row, query) },
                    |a, b, c| {
                        // SAFETY: as above.
                        unsafe { avx512::add_dots(a, b, c) }
                    },
                ));
            }
        }
        all
    }

    #[test]
    fn the_fast_product_is_the_plain_one_for_every_length() {
        for (dot, _) in fast() {
            for length in 0..150 {
                let row: Vec<i8> = (0..length).map(|i| (i * 37 % 255 - 127) as i8).collect();
                let query: Vec<i16> = (0..length)
                    .map(|i| (i * 911 % 4095 - 2047) as i16)
                    .collect();
                assert_eq!(dot(&row, &query), dot_portable(&row, &query), "{length}");
            }
            let (row, query) = ([-127i8; 4096], [2047i16; 4096]);
            assert_eq!(dot(&row, &query), -127 * 2047 * 4096);
        }
    }

    #[test]
    fn rows_end_to_end_have_the_products_of_each() {
        for (_, add_dots) in fast() {
            for (width, count) in (1..70).flat_map(|width| (0..20).map(move |count| (width, count)))
            {
                let rows: Vec<i8> = (0..width * count).map(|i| (i * 37 % 255) as i8).collect();
                let query: Vec<i16> = (0..width).map(|i| (i * 911 % 4095) as i16 - 2047).collect();
                let (mut sums, mut expected) = (vec![7; count], vec![7; count]);
                add_dots(&rows, &query, &mut sums);
                add_dots_portable(&rows, &query, &mut expected);
                assert_eq!(sums, expected, "{count} rows of {width}");
            }
        }
        add_dots(&[], &[], &mut [7; 3]);
    }
}
