//! The embeddings of tokens, as bytes.

use crate::layers::HIDDEN;

/// Dimensions of an embedding in four bits that share a scale.
pub(crate) const GROUP: usize = 32;
/// What a code of zero is stored as in four bits.
const ZERO: i8 = 8;

/// Where the embeddings lie in an encoder's bytes.
pub(crate) enum Embeddings {
    /// Four bits a dimension; offsets.
    FourBit { scales: usize, codes: usize },
    /// A byte a dimension: the value of code 1 of each token, and the offset of the codes.
    EightBit { scales: Vec<f32>, codes: usize },
}

impl Embeddings {
    /// Sets a state to the embedding of a token.
    pub fn read(&self, bytes: &[u8], token: usize, state: &mut [f32; HIDDEN]) {
        match self {
            Embeddings::FourBit { scales, codes } => {
                const GROUPS: usize = HIDDEN / GROUP;
                let scales = &bytes[scales + token * GROUPS * 2..][..GROUPS * 2];
                let codes = &bytes[codes + token * HIDDEN / 2..][..HIDDEN / 2];
                read_four_bit(scales, codes, state);
            }
            Embeddings::EightBit { scales, codes } => {
                let codes = &bytes[codes + token * HIDDEN..][..HIDDEN];
                for (value, code) in state.iter_mut().zip(codes) {
                    *value = scales[token] * f32::from(code.cast_signed());
                }
            }
        }
    }
}

fn read_four_bit(scales: &[u8], codes: &[u8], state: &mut [f32; HIDDEN]) {
    let groups = state
        .chunks_exact_mut(GROUP)
        .zip(codes.chunks_exact(GROUP / 2));
    for ((values, codes), scale) in groups.zip(scales.as_chunks::<2>().0) {
        let scale = half_to_float(u16::from_le_bytes(*scale));
        for (pair, &code) in values.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            *pair = two_codes(code).map(|code| scale * code);
        }
    }
}

/// The two codes of a byte, of four bits each.
#[inline]
pub fn two_codes(byte: u8) -> [f32; 2] {
    [byte & 15, byte >> 4].map(|code| f32::from(code.cast_signed() - ZERO))
}

/// A binary16 number that is finite, as a float.
fn half_to_float(half: u16) -> f32 {
    /// The difference of the exponents' biases, as a factor: it is right for subnormal numbers too.
    const BIAS: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(half & 0x7fff) << 13) * BIAS;
    if half >> 15 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_as_written() {
        for (half, expected) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x7bff, 65504.0),
        ] {
            assert_eq!(half_to_float(half), expected, "{half:x}");
        }
    }
}
