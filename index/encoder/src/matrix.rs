//! Products of token states with matrices of bytes.
//!
//! A matrix is stored in blocks of 16 outputs by 4 inputs: for every output four weights side by
//! side, as an instruction multiplies and adds them (`vpdpbusd`). Every processor computes the same
//! whole numbers, and so the same vectors.

/// Outputs of a block.
pub(crate) const BLOCK: usize = 16;
/// Inputs of a block.
pub(crate) const STEP: usize = 4;
/// Blocks that are multiplied together; every matrix of the encoder has a multiple of it.
const BLOCKS: usize = 4;
/// Outputs that are multiplied together.
pub(crate) const OUTPUTS: usize = BLOCK * BLOCKS;
/// Rows of states that are multiplied together: with [`BLOCKS`] they fill the registers.
const ROWS: usize = 6;
/// What a code of zero is stored as: the instruction wants states without a sign.
const ZERO: u8 = 128;
pub(crate) const LARGEST_CODE: f32 = 127.0;
/// Steps of the second byte to one of the first, which leaves half a step at most.
const REST_STEPS: f32 = 254.0;
/// Added to a number between -2^22 and 2^22, it rounds it to a whole one, whose bits are then those
/// of the sum from this number's on.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// A matrix of weights and what is added to its products.
pub(crate) struct Matrix {
    /// Offset of the blocks in the encoder's file.
    pub blocks: usize,
    pub inputs: usize,
    /// The value of code 1, by output.
    pub scales: Vec<f32>,
    pub bias: Vec<f32>,
    /// The sum of an output's codes times [`ZERO`]: what the products have too much.
    surplus: Vec<i32>,
}

impl Matrix {
    /// A matrix whose blocks begin at an offset of the file.
    pub fn new(
        file: &[u8],
        blocks: usize,
        inputs: usize,
        scales: Vec<f32>,
        bias: Vec<f32>,
    ) -> Self {
        let mut matrix = Matrix {
            blocks,
            inputs,
            surplus: vec![0; scales.len()],
            scales,
            bias,
        };
        let stripes = file[blocks..][..matrix.bytes()].chunks_exact(BLOCK * inputs);
        let sums = matrix.surplus.as_chunks_mut::<BLOCK>().0;
        for (stripe, sums) in stripes.zip(sums) {
            for block in stripe.as_chunks::<{ BLOCK * STEP }>().0 {
                for (weights, sum) in block.as_chunks::<STEP>().0.iter().zip(sums.iter_mut()) {
                    let codes = weights.iter().map(|code| i32::from(code.cast_signed()));
                    *sum += i32::from(ZERO) * codes.sum::<i32>();
                }
            }
        }
        matrix
    }

    /// Length of the blocks in bytes.
    pub fn bytes(&self) -> usize {
        self.inputs * self.outputs()
    }

    pub fn outputs(&self) -> usize {
        self.scales.len()
    }

    /// For each row of states the product with the matrix, plus the bias.
    #[inline(always)]
    pub fn multiply<K: Kernel>(&self, file: &[u8], states: &Codes, products: &mut Vec<f32>) {
        products.clear();
        products.resize(states.scales.len() / states.parts * self.outputs(), 0.0);
        let blocks = &file[self.blocks..][..self.bytes()];
        let stripes = blocks.chunks_exact(OUTPUTS * self.inputs);
        for (stripe, weights) in stripes.enumerate() {
            let part = Part {
                matrix: self,
                weights,
                first_output: stripe * OUTPUTS,
            };
            let mut row = 0;
            while row < states.scales.len() {
                row += match states.scales.len() - row {
                    1 => part.multiply::<K, 1>(states, row, products),
                    2 => part.multiply::<K, 2>(states, row, products),
                    3 => part.multiply::<K, 3>(states, row, products),
                    4 => part.multiply::<K, 4>(states, row, products),
                    5 => part.multiply::<K, 5>(states, row, products),
                    _ => part.multiply::<K, ROWS>(states, row, products),
                };
            }
        }
    }
}

/// The weights of [`OUTPUTS`] outputs.
struct Part<'a> {
    matrix: &'a Matrix,
    weights: &'a [u8],
    first_output: usize,
}

impl Part<'_> {
    /// Multiplies some rows; returns how many.
    #[inline(always)]
    fn multiply<K: Kernel, const N: usize>(
        &self,
        states: &Codes,
        first_row: usize,
        products: &mut [f32],
    ) -> usize {
        let (matrix, inputs) = (self.matrix, self.matrix.inputs);
        let rows = &states.codes[first_row * inputs..][..N * inputs];
        let mut sums = [[0i32; OUTPUTS]; N];
        K::dots(self.weights, rows, &mut sums);
        let outputs = self.first_output..self.first_output + OUTPUTS;
        let (scales, bias, surplus) = (
            &matrix.scales[outputs.clone()],
            &matrix.bias[outputs.clone()],
            &matrix.surplus[outputs.clone()],
        );
        for (row, sums) in (first_row..).zip(&sums) {
            let scale = states.scales[row];
            let place = row / states.parts * matrix.outputs();
            let products = &mut products[place..][outputs.clone()];
            if row % states.parts == 0 {
                for i in 0..OUTPUTS {
                    products[i] = (sums[i] - surplus[i]) as f32 * (scale * scales[i]) + bias[i];
                }
            } else {
                for i in 0..OUTPUTS {
                    products[i] += (sums[i] - surplus[i]) as f32 * (scale * scales[i]);
                }
            }
        }
        N
    }
}

/// How exactly states are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// In 8 bits, which networks that were trained with them need no more than.
    Byte,
    /// In 15 bits, as two bytes, which takes twice as many products.
    TwoBytes,
}

/// Rows of states as bytes, each with the value of code 1.
pub(crate) struct Codes {
    /// Rows of bytes for each row of states: their sum is the row.
    parts: usize,
    codes: Vec<u8>,
    scales: Vec<f32>,
}

impl Codes {
    pub fn new(precision: Precision) -> Self {
        Codes {
            parts: match precision {
                Precision::Byte => 1,
                Precision::TwoBytes => 2,
            },
            codes: Vec::new(),
            scales: Vec::new(),
        }
    }

    /// Takes over rows of states of this length.
    #[inline(always)]
    pub fn fill(&mut self, states: &[f32], width: usize) {
        self.codes.clear();
        self.codes.resize(states.len() * self.parts, ZERO);
        self.scales.clear();
        let rows = states.chunks_exact(width);
        for (row, codes) in rows.zip(self.codes.chunks_exact_mut(width * self.parts)) {
            let largest = largest_magnitude(row);
            let (scale, factor) = if largest > 0.0 {
                (largest / LARGEST_CODE, LARGEST_CODE / largest)
            } else {
                (1.0, 1.0)
            };
            self.scales.push(scale);
            let (codes, rest_codes) = codes.split_at_mut(width);
            for (code, value) in codes.iter_mut().zip(row) {
                *code = code_of(value * factor);
            }
            if self.parts == 2 {
                self.scales.push(scale / REST_STEPS);
                for (code, value) in rest_codes.iter_mut().zip(row) {
                    let scaled = value * factor;
                    let rest = scaled - ((scaled + ROUND) - ROUND);
                    *code = code_of(rest * REST_STEPS);
                }
            }
        }
    }
}

/// The code of a number from -127 to 127.
#[inline(always)]
fn code_of(value: f32) -> u8 {
    ((value + ROUND).to_bits() as u8).wrapping_add(ZERO)
}

#[inline(always)]
fn largest_magnitude(row: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for values in row.as_chunks::<16>().0 {
        for (lane, value) in lanes.iter_mut().zip(values) {
            let magnitude = value.abs();
            *lane = if magnitude > *lane { magnitude } else { *lane };
        }
    }
    lanes.iter().copied().fold(0.0, f32::max)
}

/// The inner loop, by what the processor can do.
pub(crate) trait Kernel {
    /// The dot products of rows of codes with the weights of [`OUTPUTS`] outputs.
    fn dots<const N: usize>(weights: &[u8], rows: &[u8], sums: &mut [[i32; OUTPUTS]; N]);
}

/// For every processor.
pub(crate) struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn dots<const N: usize>(weights: &[u8], rows: &[u8], sums: &mut [[i32; OUTPUTS]; N]) {
        let inputs = rows.len() / N;
        for (row, sums) in rows.chunks_exact(inputs).zip(sums) {
            let stripes = weights.chunks_exact(BLOCK * inputs);
            for (stripe, sums) in stripes.zip(sums.as_chunks_mut::<BLOCK>().0) {
                let blocks = stripe.as_chunks::<{ BLOCK * STEP }>().0;
                for (block, states) in blocks.iter().zip(row.as_chunks::<STEP>().0) {
                    for (weights, sum) in block.as_chunks::<STEP>().0.iter().zip(sums.iter_mut()) {
                        for (weight, state) in weights.iter().zip(states) {
                            *sum += i32::from(weight.cast_signed()) * i32::from(*state);
                        }
                    }
                }
            }
        }
    }
}

/// For AVX2: bytes are widened, and multiplied and added in pairs (`vpmaddwd`).
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Kernel for Avx2 {
    #[inline(always)]
    fn dots<const N: usize>(weights: &[u8], rows: &[u8], sums: &mut [[i32; OUTPUTS]; N]) {
        let inputs = rows.len() / N;
        let stripes = weights.chunks_exact(BLOCK * inputs);
        for (stripe, weights) in stripes.enumerate() {
            // Two rows share the widened weights.
            for first in (0..N).step_by(2) {
                let count = 2.min(N - first);
                let rows = &rows[first * inputs..][..count * inputs];
                let mut found = [[0; BLOCK]; 2];
                // SAFETY: `layers` uses this kernel on processors with AVX2 only.
                unsafe {
                    if count == 2 {
                        x86::dots_avx2::<2>(weights, rows, &mut found);
                    } else {
                        x86::dots_avx2::<1>(weights, rows, &mut found);
                    }
                }
                for (sums, found) in sums[first..].iter_mut().zip(&found[..count]) {
                    sums[stripe * BLOCK..][..BLOCK].copy_from_slice(found);
                }
            }
        }
    }
}

/// For AVX-512 with VNNI: 64 products an instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Vnni;

#[cfg(target_arch = "x86_64")]
impl Kernel for Vnni {
    #[inline(always)]
    fn dots<const N: usize>(weights: &[u8], rows: &[u8], sums: &mut [[i32; OUTPUTS]; N]) {
        // SAFETY: `layers` uses this kernel on processors with AVX-512 VNNI only.
        unsafe { x86::dots_vnni(weights, rows, sums) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_hadd_epi32, _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_loadu_si512,
        _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use super::{BLOCK, BLOCKS, OUTPUTS, STEP};

    /// All outputs of all rows at once, in registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    #[inline]
    pub(crate) fn dots_vnni<const N: usize>(
        weights: &[u8],
        rows: &[u8],
        sums: &mut [[i32; OUTPUTS]; N],
    ) {
        let inputs = rows.len() / N;
        let mut totals = [[_mm512_setzero_si512(); BLOCKS]; N];
        // The slices have these lengths, which the compiler cannot see.
        let stripes: [&[[u8; BLOCK * STEP]]; BLOCKS] = std::array::from_fn(|stripe| {
            weights[stripe * BLOCK * inputs..][..BLOCK * inputs]
                .as_chunks()
                .0
        });
        let rows: [&[[u8; STEP]]; N] =
            std::array::from_fn(|row| rows[row * inputs..][..inputs].as_chunks().0);
        let steps = inputs / STEP;
        assert!(stripes.iter().all(|stripe| stripe.len() >= steps));
        assert!(rows.iter().all(|row| row.len() >= steps));
        for step in 0..steps {
            let blocks: [__m512i; BLOCKS] = std::array::from_fn(|stripe| {
                // SAFETY: the block is as long as what is loaded, and the load needs no alignment.
                unsafe { _mm512_loadu_si512(stripes[stripe][step].as_ptr().cast()) }
            });
            for (row, totals) in rows.iter().zip(&mut totals) {
                let states = _mm512_set1_epi32(i32::from_le_bytes(row[step]));
                for (total, block) in totals.iter_mut().zip(blocks) {
                    *total = _mm512_dpbusd_epi32(*total, states, block);
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            for (sums, total) in sums.as_chunks_mut::<BLOCK>().0.iter_mut().zip(totals) {
                // SAFETY: 16 sums are as long as what is stored, and the store needs no alignment.
                unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), total) }
            }
        }
    }

    /// The outputs of one block for one or two rows.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn dots_avx2<const N: usize>(
        weights: &[u8],
        rows: &[u8],
        sums: &mut [[i32; BLOCK]; 2],
    ) {
        let inputs = rows.len() / N;
        // Each register holds two sums for each of four outputs.
        let mut totals = [[_mm256_setzero_si256(); 4]; N];
        let rows: [&[[u8; STEP]]; N] =
            std::array::from_fn(|row| rows[row * inputs..][..inputs].as_chunks().0);
        let blocks = weights.as_chunks::<{ BLOCK * STEP }>().0;
        for (step, block) in blocks.iter().enumerate() {
            let widened: [__m256i; 4] = std::array::from_fn(|quarter| {
                let codes: &[u8; 16] = &block.as_chunks().0[quarter];
                // SAFETY: the array is as long as what is loaded, and the load needs no alignment.
                _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(codes.as_ptr().cast()) })
            });
            for (row, totals) in rows.iter().zip(&mut totals) {
                let [a, b, c, d] = row[step].map(i64::from);
                let states = _mm256_set1_epi64x(a | b << 16 | c << 32 | d << 48);
                for (total, weights) in totals.iter_mut().zip(widened) {
                    *total = _mm256_add_epi32(*total, _mm256_madd_epi16(weights, states));
                }
            }
        }
        for (sums, totals) in sums.iter_mut().zip(totals) {
            let halves = [(0, 1), (2, 3)].map(|(low, high)| {
                // Pairs are added within each half of the registers, which puts the second and the
                // third quarter in each other's places.
                let sums = _mm256_hadd_epi32(totals[low], totals[high]);
                _mm256_permute4x64_epi64::<0b11_01_10_00>(sums)
            });
            for (sums, half) in sums.as_chunks_mut::<8>().0.iter_mut().zip(halves) {
                // SAFETY: 8 sums are as long as what is stored, and the store needs no alignment.
                unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), half) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of two inputs blocks more than the kernels take at once, its rows, and its weights
    /// as they would be written on paper.
    fn example(inputs: usize, outputs: usize) -> (Vec<u8>, Matrix, Vec<Vec<i8>>) {
        let weight = |output: usize, input: usize| {
            ((output * 7919 + input * 104_729 + output * input) % 255) as u8 as i16 - 127
        };
        let plain: Vec<Vec<i8>> = (0..outputs)
            .map(|output| {
                (0..inputs)
                    .map(|input| weight(output, input) as i8)
                    .collect()
            })
            .collect();
        let mut file = vec![9; 3];
        for outputs in plain.chunks(BLOCK) {
            for step in 0..inputs / STEP {
                for row in outputs {
                    file.extend(
                        row[step * STEP..][..STEP]
                            .iter()
                            .map(|code| code.cast_unsigned()),
                    );
                }
            }
        }
        let scales = (0..outputs).map(|i| 0.01 + i as f32 * 1e-4).collect();
        let bias = (0..outputs).map(|i| i as f32 - 30.0).collect();
        let matrix = Matrix::new(&file, 3, inputs, scales, bias);
        (file, matrix, plain)
    }

    fn states(rows: usize, width: usize) -> Vec<f32> {
        (0..rows * width)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0)
            .collect()
    }

    fn products<K: Kernel>(matrix: &Matrix, file: &[u8], states: &Codes) -> Vec<f32> {
        let mut products = vec![1.0];
        matrix.multiply::<K>(file, states, &mut products);
        products
    }

    #[test]
    fn a_product_is_close_to_the_one_of_the_weights_as_floats() {
        let (file, matrix, plain) = example(64, 128);
        let states = states(3, 64);
        for (precision, tolerance) in [(Precision::Byte, 0.2), (Precision::TwoBytes, 0.005)] {
            let mut codes = Codes::new(precision);
            codes.fill(&states, 64);
            let found = products::<Portable>(&matrix, &file, &codes);
            assert_eq!(found.len(), 3 * 128);
            for (row, states) in states.chunks(64).enumerate() {
                for (output, weights) in plain.iter().enumerate() {
                    let products = weights.iter().zip(states);
                    let dot: f32 = products
                        .map(|(&weight, state)| f32::from(weight) * state)
                        .sum();
                    let expected = dot * matrix.scales[output] + matrix.bias[output];
                    let found = found[row * 128 + output];
                    assert!((found - expected).abs() < tolerance, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn every_kernel_computes_the_same() {
        let (file, matrix, _) = example(384, 192);
        let precisions = [Precision::Byte, Precision::TwoBytes];
        for (rows, precision) in (0..14).flat_map(|rows| precisions.map(|of| (rows, of))) {
            let mut codes = Codes::new(precision);
            codes.fill(&states(rows, 384), 384);
            let expected = products::<Portable>(&matrix, &file, &codes);
            assert_eq!(expected.len(), rows * 192);
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx2") {
                    assert_eq!(products::<Avx2>(&matrix, &file, &codes), expected, "{rows}");
                }
                if crate::layers::has_vnni() {
                    assert_eq!(products::<Vnni>(&matrix, &file, &codes), expected, "{rows}");
                }
            }
        }
    }

    #[test]
    fn codes_round_to_the_nearest_and_zeros_stay_zeros() {
        let mut codes = Codes::new(Precision::Byte);
        let mut row = vec![0.0; 16];
        row[..5].copy_from_slice(&[127.0, -127.0, 1.4, -1.6, 2.5]);
        codes.fill(&[row, vec![0.0; 16]].concat(), 16);
        assert_eq!(codes.codes[..6], [255, 1, 129, 126, 130, 128]);
        assert_eq!(codes.codes[16..], [128; 16]);
        assert_eq!(codes.scales, [1.0, 1.0]);
    }

    #[test]
    fn a_second_byte_holds_what_the_first_leaves() {
        let mut codes = Codes::new(Precision::TwoBytes);
        let row = [127.0, 1.4, -1.6, 2.5, -3.5, 0.0];
        codes.fill(&row, row.len());
        let (first, second) = codes.codes.split_at(row.len());
        let value = |code: u8, scale: f32| (f32::from(code) - f32::from(ZERO)) * scale;
        for ((value_of_row, first), second) in row.iter().zip(first).zip(second) {
            let found = value(*first, codes.scales[0]) + value(*second, codes.scales[1]);
            assert!((found - value_of_row).abs() <= 0.5 / REST_STEPS, "{found}");
        }
    }
}
