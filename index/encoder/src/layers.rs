//! The forward pass: six layers of attention and feed-forward, as in BERT.
//!
//! Sums of floats are taken in a fixed order, sixteen at a time, and nothing is contracted, so that
//! every processor gives the same vectors.

#[cfg(target_arch = "x86_64")]
use crate::matrix::{Avx2, Vnni};
use crate::matrix::{Codes, Kernel, Matrix, Portable, Precision, ROUND};

/// Length of a token's state.
pub(crate) const HIDDEN: usize = 384;
pub(crate) const LAYERS: usize = 6;
pub(crate) const HEADS: usize = 12;
/// Length of the state between the two matrices of a feed-forward.
pub(crate) const INTERMEDIATE: usize = 1536;
/// Length of a state's part in one head.
const HEAD: usize = HIDDEN / HEADS;
/// As in training.
const EPSILON: f32 = 1e-12;
/// Floats that are computed together.
const LANES: usize = 16;

/// A layer normalisation.
pub(crate) struct Norm {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

pub(crate) struct Layer {
    /// Queries, keys and values of all heads.
    pub attention: Matrix,
    pub attention_output: Matrix,
    pub attention_norm: Norm,
    pub intermediate: Matrix,
    pub output: Matrix,
    pub output_norm: Norm,
}

/// Token states, text after text.
pub(crate) struct Batch {
    pub states: Vec<f32>,
    /// Tokens of each text.
    pub lengths: Vec<usize>,
}

/// The states after all layers; `file` holds the weights, and `precision` is that of the states.
pub(crate) fn run(file: &[u8], layers: &[Layer], precision: Precision, batch: &mut Batch) {
    #[cfg(target_arch = "x86_64")]
    {
        if has_vnni() {
            // SAFETY: the processor has what the function asks for.
            return unsafe { run_vnni(file, layers, precision, batch) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { run_avx2(file, layers, precision, batch) };
        }
    }
    run_with::<Portable>(file, layers, precision, batch);
}

/// True if the processor has AVX-512 with VNNI.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn run_vnni(file: &[u8], layers: &[Layer], precision: Precision, batch: &mut Batch) {
    run_with::<Vnni>(file, layers, precision, batch);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2(file: &[u8], layers: &[Layer], precision: Precision, batch: &mut Batch) {
    run_with::<Avx2>(file, layers, precision, batch);
}

/// Inlined into a function that is compiled for the processor, as is all that it calls.
#[inline(always)]
fn run_with<K: Kernel>(file: &[u8], layers: &[Layer], precision: Precision, batch: &mut Batch) {
    let Batch { states, lengths } = batch;
    let mut codes = Codes::new(precision);
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    for layer in layers {
        codes.fill(states, HIDDEN);
        layer.attention.multiply::<K>(file, &codes, &mut wide);
        attend(&wide, lengths, &mut narrow);
        codes.fill(&narrow, HIDDEN);
        layer
            .attention_output
            .multiply::<K>(file, &codes, &mut narrow);
        layer.attention_norm.add_and_normalise(states, &narrow);

        codes.fill(states, HIDDEN);
        layer.intermediate.multiply::<K>(file, &codes, &mut wide);
        gelu(&mut wide);
        codes.fill(&wide, INTERMEDIATE);
        layer.output.multiply::<K>(file, &codes, &mut narrow);
        layer.output_norm.add_and_normalise(states, &narrow);
    }
}

impl Norm {
    /// Adds to each state, and scales it to mean 0 and variance 1.
    #[inline(always)]
    fn add_and_normalise(&self, states: &mut [f32], added: &[f32]) {
        let rows = states.as_chunks_mut::<HIDDEN>().0.iter_mut();
        for (state, added) in rows.zip(added.as_chunks::<HIDDEN>().0) {
            for (value, added) in state.iter_mut().zip(added) {
                *value += added;
            }
            self.normalise(state);
        }
    }

    /// Scales a state to mean 0 and variance 1, then by the weights.
    #[inline(always)]
    pub fn normalise(&self, state: &mut [f32; HIDDEN]) {
        let mean = sum(state, |value| value) / HIDDEN as f32;
        let variance = sum(state, |value| (value - mean) * (value - mean)) / HIDDEN as f32;
        let factor = 1.0 / (variance + EPSILON).sqrt();
        let scaled = self.weight.iter().zip(&self.bias);
        for (value, (weight, bias)) in state.iter_mut().zip(scaled) {
            *value = (*value - mean) * factor * weight + bias;
        }
    }
}

#[inline(always)]
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for values in values.as_chunks::<LANES>().0 {
        for (lane, &value) in lanes.iter_mut().zip(values) {
            *lane += of(value);
        }
    }
    lanes.iter().sum()
}

/// For each token the mean of all values of its text, weighted by how well the keys match its
/// query, head by head.
#[inline(always)]
fn attend(projected: &[f32], lengths: &[usize], context: &mut Vec<f32>) {
    context.clear();
    context.resize(projected.len() / 3, 0.0);
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut keys = vec![0.0; HEAD * padded(longest)];
    let mut weights = vec![0.0; padded(longest)];
    let mut first = 0;
    for &length in lengths {
        let projected = &projected[first * 3 * HIDDEN..][..length * 3 * HIDDEN];
        let context = &mut context[first * HIDDEN..][..length * HIDDEN];
        for head in 0..HEADS {
            attend_in_head(projected, head, &mut keys, &mut weights, context);
        }
        first += length;
    }
}

/// A length in whole lanes.
fn padded(length: usize) -> usize {
    length.next_multiple_of(LANES)
}

#[inline(always)]
fn attend_in_head(
    projected: &[f32],
    head: usize,
    keys: &mut [f32],
    weights: &mut [f32],
    context: &mut [f32],
) {
    let rows = projected.as_chunks::<{ 3 * HIDDEN }>().0;
    let part = |kind: usize| kind * HIDDEN + head * HEAD;
    let width = padded(rows.len());
    // Dimension by dimension, so that a query is compared with sixteen keys at a time.
    for (token, row) in rows.iter().enumerate() {
        for (dimension, value) in row[part(1)..][..HEAD].iter().enumerate() {
            keys[dimension * width + token] = *value;
        }
    }
    let weights = &mut weights[..width];
    let factor = 1.0 / (HEAD as f32).sqrt();
    for (token, row) in rows.iter().enumerate() {
        weights.fill(0.0);
        for (dimension, query) in row[part(0)..][..HEAD].iter().enumerate() {
            let keys = &keys[dimension * width..][..width];
            let query = query * factor;
            for (weight, key) in weights.iter_mut().zip(keys) {
                *weight += query * key;
            }
        }
        let total = exponentials(weights, rows.len());
        let context: &mut [f32] = &mut context[token * HIDDEN + head * HEAD..][..HEAD];
        let mut mean = [0.0f32; HEAD];
        for (weight, row) in weights.iter().zip(rows) {
            for (value, other) in mean.iter_mut().zip(&row[part(2)..][..HEAD]) {
                *value += weight * other;
            }
        }
        for (value, mean) in context.iter_mut().zip(mean) {
            *value = mean / total;
        }
    }
}

/// Replaces the first `count` scores by their exponentials relative to the largest, and the others
/// by 0; returns the sum.
#[inline(always)]
fn exponentials(scores: &mut [f32], count: usize) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    for &score in &scores[..count] {
        largest = if score > largest { score } else { largest };
    }
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    scores[count..].fill(0.0);
    sum(scores, |value| value)
}

#[inline(always)]
fn gelu(values: &mut [f32]) {
    for value in values {
        *value = *value * 0.5 * (1.0 + erf(*value * std::f32::consts::FRAC_1_SQRT_2));
    }
}

/// The error function within a millionth, by Abramowitz and Stegun 7.1.26: the same on every processor,
/// which the system's need not be.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let polynomial = t
        * (0.254_829_6
            + t * (-0.284_496_73 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    let result = 1.0 - polynomial * exp(-magnitude * magnitude);
    result.copysign(x)
}

/// The exponential of a number that is 0 or less, within ten parts in a million.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = if x > -87.0 { x } else { -87.0 };
    let power = x * std::f32::consts::LOG2_E;
    let rounded = power + ROUND;
    let whole = rounded - ROUND;
    // 2^fraction = e^(fraction ln 2), from -.35 to .35, by its series.
    let rest = (power - whole) * std::f32::consts::LN_2;
    let series = 1.0
        + rest
            * (1.0
                + rest * (0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest * (1.0 / 120.0)))));
    // 2^whole, by its exponent.
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    f32::from_bits(series.to_bits().wrapping_add(exponent << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_and_the_error_function_are_those_of_the_library() {
        for i in 0..=2000 {
            let x = f64::from(i) * -0.03;
            let expected = x.exp();
            let found = f64::from(exp(x as f32));
            assert!((found - expected).abs() <= expected * 1e-5, "{x}: {found}");
        }
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.520_499_9),
            (-1.0, -0.842_700_8),
            (2.0, 0.995_322_3),
            (-6.0, -1.0),
        ] {
            assert!((erf(x) - expected).abs() < 1e-6, "{x}: {}", erf(x));
        }
    }

    #[test]
    fn attention_of_equal_keys_is_the_mean_of_the_values() {
        let mut projected = vec![0.0; 2 * 3 * HIDDEN];
        for (token, row) in projected
            .as_chunks_mut::<{ 3 * HIDDEN }>()
            .0
            .iter_mut()
            .enumerate()
        {
            row[2 * HIDDEN..].fill(token as f32);
        }
        let mut context = Vec::new();
        attend(&projected, &[2], &mut context);
        assert_eq!(context, vec![0.5; 2 * HIDDEN]);
        // Texts do not see each other.
        attend(&projected, &[1, 1], &mut context);
        assert_eq!(context[..HIDDEN], [0.0; HIDDEN]);
        assert_eq!(context[HIDDEN..], [1.0; HIDDEN]);
    }
}
