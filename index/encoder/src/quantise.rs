//! Floats as bytes: whole numbers from -127 to 127 with a scale for each row.

use rayon::prelude::*;

use crate::matrix::{BLOCK, LARGEST_CODE, ROUND, STEP};

/// The smallest scale, for rows of zeros.
const SMALLEST_SCALE: f32 = 1e-12;

/// A little-endian float.
pub(crate) type Float = [u8; 4];

/// Writes the codes of a matrix's rows in blocks; returns the value of code 1 of each row, which is
/// not finite where a float of the row is not.
pub(crate) fn blocks(rows: &[Float], inputs: usize, codes: &mut [u8]) -> Vec<f32> {
    let stripes = codes.par_chunks_exact_mut(BLOCK * inputs);
    stripes
        .zip(rows.par_chunks_exact(BLOCK * inputs))
        .flat_map_iter(|(stripe, rows)| {
            let mut scales = [0.0; BLOCK];
            let rows = rows.chunks_exact(inputs).zip(&mut scales);
            for (output, (row, scale)) in rows.enumerate() {
                *scale = scale_of(row);
                let blocks = stripe.as_chunks_mut::<{ BLOCK * STEP }>().0;
                for (block, floats) in blocks.iter_mut().zip(row.as_chunks::<STEP>().0) {
                    block.as_chunks_mut::<STEP>().0[output] =
                        floats.map(|float| code(float, *scale));
                }
            }
            scales
        })
        .collect()
}

/// As [`blocks`], row after row.
pub(crate) fn rows(rows: &[Float], width: usize, codes: &mut [u8]) -> Vec<f32> {
    codes
        .par_chunks_exact_mut(width)
        .zip(rows.par_chunks_exact(width))
        .map(|(codes, row)| {
            let scale = scale_of(row);
            for (stored, float) in codes.iter_mut().zip(row) {
                *stored = code(*float, scale);
            }
            scale
        })
        .collect()
}

/// The value of code 1.
fn scale_of(row: &[Float]) -> f32 {
    // As whole numbers: those of NaN are greater than all others.
    let magnitudes = row
        .iter()
        .map(|float| i32::from_le_bytes(*float) & i32::MAX);
    let largest = f32::from_bits(magnitudes.fold(0, i32::max).cast_unsigned());
    let scale = largest / LARGEST_CODE;
    if scale < SMALLEST_SCALE {
        SMALLEST_SCALE
    } else {
        scale
    }
}

fn code(float: Float, scale: f32) -> u8 {
    (f32::from_le_bytes(float) / scale + ROUND).to_bits() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embeddings::Embeddings;
    use crate::layers::HIDDEN;
    use crate::matrix::{Codes, Matrix, Portable, Precision};

    fn floats(count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((i * 7919 % 4001) as f32 / 2000.0 - 1.0).powi(3) * 0.2)
            .collect()
    }

    fn stored(floats: &[f32]) -> Vec<Float> {
        floats.iter().map(|float| float.to_le_bytes()).collect()
    }

    #[test]
    fn products_are_close_to_those_of_the_floats() {
        let (inputs, outputs) = (HIDDEN, 192);
        let weights = floats(outputs * inputs);
        let mut codes = vec![0; weights.len()];
        let scales = blocks(&stored(&weights), inputs, &mut codes);
        let matrix = Matrix::new(&codes, 0, inputs, scales, vec![0.5; outputs]);
        let state: Vec<f32> = (0..inputs).map(|i| (i as f32 * 0.7).sin()).collect();
        let (mut states, mut products) = (Codes::new(Precision::TwoBytes), Vec::new());
        states.fill(&state, inputs);
        matrix.multiply::<Portable>(&codes, &states, &mut products);
        for (row, found) in weights.chunks(inputs).zip(products) {
            let dot: f32 = row.iter().zip(&state).map(|(a, b)| a * b).sum();
            assert!((found - dot - 0.5).abs() < 0.02, "{found} {dot}");
        }
    }

    #[test]
    fn the_largest_float_of_a_row_is_exact_and_others_are_within_half_a_step() {
        let mut table = floats(3 * HIDDEN);
        table[HIDDEN..][..HIDDEN].fill(0.0);
        let mut codes = vec![9; table.len()];
        let scales = rows(&stored(&table), HIDDEN, &mut codes);
        let embeddings = Embeddings::EightBit {
            scales: scales.clone(),
            codes: 0,
        };
        for (token, row) in table.chunks(HIDDEN).enumerate() {
            let mut found = [1.0; HIDDEN];
            embeddings.read(&codes, token, &mut found);
            for (found, float) in found.iter().zip(row) {
                let error = (found - float).abs();
                assert!(error <= scales[token] * 0.5001, "{found} {float}");
            }
        }
    }

    #[test]
    fn a_float_that_is_not_finite_shows_in_the_scale() {
        for float in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut row = floats(HIDDEN);
            row[7] = float;
            let scales = rows(&stored(&row), HIDDEN, &mut [0; HIDDEN]);
            assert!(!scales[0].is_finite(), "{float}: {scales:?}");
        }
    }
}
