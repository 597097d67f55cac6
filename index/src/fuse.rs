//! Score scaling and fusion: pure functions over one score per tool.

use crate::by_processor::by_processor;
use crate::hit::ranked;

/// The constant of reciprocal rank fusion, from Cormack, Clarke and Büttcher (2009).
// The convex combination is the default: fusion of ranks with this constant loses 1 to 3 points of
// nDCG@5 to it, and can be worse than the better of its lists.
const RRF_K: f32 = 60.0;
/// The ranks of a list that count in reciprocal rank fusion.
const RRF_DEPTH: usize = 100;

/// Scores processed side by side: as many as four vector registers hold.
const LANES: usize = 16;
/// The same for sums. Another number would round them differently.
const SUM_LANES: usize = 8;

by_processor! {
    /// The lowest and the highest known score; infinity and minus infinity if none is known.
    pub fn bounds(scores: &[f32]) -> (f32, f32) {
        let mut lows = [f32::INFINITY; LANES];
        let mut highs = [f32::NEG_INFINITY; LANES];
        // A NaN fails every comparison, so it changes neither bound.
        let step = |low: &mut f32, high: &mut f32, score: f32| {
            let known = if is_known(score) {
                score
            } else {
                f32::INFINITY
            };
            *low = if known < *low { known } else { *low };
            *high = if score > *high { score } else { *high };
        };
        let (blocks, rest) = scores.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                step(&mut lows[lane], &mut highs[lane], block[lane]);
            }
        }
        for (lane, &score) in rest.iter().enumerate() {
            step(&mut lows[lane], &mut highs[lane], score);
        }
        (
            joined(lows, f32::INFINITY, f32::min),
            joined(highs, f32::NEG_INFINITY, f32::max),
        )
    }
}

// Not inlined: the compiler would turn the lanes around at every step of the loop, to have them in the
// order of this one.
#[inline(never)]
fn joined(lanes: [f32; LANES], start: f32, join: fn(f32, f32) -> f32) -> f32 {
    lanes.into_iter().fold(start, join)
}

by_processor! {
    /// The mean of the known scores and their standard deviation; 0 if none is known.
    pub fn spread(scores: &[f32]) -> (f64, f64) {
        let mut counts = [0u32; SUM_LANES];
        let mut sums = [0.0f32; SUM_LANES];
        let mut squares = [0.0f32; SUM_LANES];
        // Independent lanes, so that the compiler can vectorize the loop.
        let (blocks, rest) = scores.as_chunks::<SUM_LANES>();
        for block in blocks {
            for lane in 0..SUM_LANES {
                let known = is_known(block[lane]);
                let score = if known { block[lane] } else { 0.0 };
                counts[lane] += u32::from(known);
                sums[lane] += score;
                squares[lane] += score * score;
            }
        }
        for (lane, &score) in rest.iter().enumerate() {
            if is_known(score) {
                counts[lane] += 1;
                sums[lane] += score;
                squares[lane] += score * score;
            }
        }
        let count = f64::from(counts.into_iter().sum::<u32>().max(1));
        // The lanes are added as doubles: the variance is a small difference of large numbers.
        let [mean, square] =
            [sums, squares].map(|lanes| lanes.into_iter().map(f64::from).sum::<f64>() / count);
        // Rounding can put the variance of equal scores a hair below 0.
        (mean, (square - mean * mean).max(0.0).sqrt())
    }
}

#[inline(always)]
fn is_known(score: f32) -> bool {
    score > f32::NEG_INFINITY
}

by_processor! {
    /// Scaled scores: `floor` becomes 0, `best` becomes 1, values outside are clamped. The floor is
    /// the score of a tool without any similarity, not the worst of the tools that pass a filter: the
    /// only tool that passes is still a match. If all scores are at the floor, all become 0.
    pub fn min_max(scores: &[f32], floor: f32, best: f32, scaled: &mut Vec<f32>) {
        // Where all scores are at the floor, dividing would give NaN.
        let scale = if best > floor {
            1.0 / (best - floor)
        } else {
            0.0
        };
        scaled.resize(scores.len(), 0.0);
        for (scaled, &score) in scaled.iter_mut().zip(scores) {
            // An unknown score stays unknown: a tool without a vector is scored by its words instead.
            *scaled = if score.is_finite() {
                ((score - floor) * scale).clamp(0.0, 1.0)
            } else {
                score
            };
        }
    }
}

by_processor! {
    /// Every score with this weight.
    pub fn weighted(scores: &[f32], weight: f32) -> Vec<f32> {
        let mut fused = vec![0.0; scores.len()];
        for (fused, score) in fused.iter_mut().zip(scores) {
            *fused = score * weight;
        }
        fused
    }
}

by_processor! {
    /// Adds every score with this weight; of a tool without one, that of its words.
    pub fn add_weighted(fused: &mut [f32], scores: &[f32], by_words: &[f32], weight: f32) {
        for ((fused, &score), &by_words) in fused.iter_mut().zip(scores).zip(by_words) {
            *fused += weight * if score.is_finite() { score } else { by_words };
        }
    }
}

/// `(1 - weight) * a + weight * b`.
#[inline(always)]
pub fn convex(a: f32, b: f32, weight: f32) -> f32 {
    (1.0 - weight) * a + weight * b
}

/// Reciprocal rank fusion of several lists of `tools` scores, each with its weight, scaled so that
/// the first of all lists gets 1. Ties share the better rank; scores that are not above `floor` do
/// not count.
pub fn reciprocal_rank(lists: &[(&[f32], f32)], floor: f32, tools: usize) -> Vec<f32> {
    let mut fused = vec![0.0; tools];
    let total: f32 = lists.iter().map(|(_, weight)| weight).sum();
    for (scores, weight) in lists {
        let mut order: Vec<usize> = (0..scores.len())
            .filter(|&tool| scores[tool] > floor)
            .collect();
        order.sort_unstable_by(|&a, &b| ranked((scores[a], a), (scores[b], b)));
        let mut rank = 0;
        for (place, &tool) in order.iter().take(RRF_DEPTH).enumerate() {
            if place == 0 || scores[tool] < scores[order[place - 1]] {
                rank = place + 1;
            }
            fused[tool] += weight / total * (RRF_K + 1.0) / (RRF_K + rank as f32);
        }
    }
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_known_scores() {
        let scores: Vec<f32> = (0..29)
            .map(|i| (i * 7 % 29) as f32)
            .chain([f32::NEG_INFINITY, f32::NAN])
            .collect();
        assert_eq!(bounds(&scores), (0.0, 28.0));
        assert_eq!(bounds(&scores[..1]), (0.0, 0.0));
        assert_eq!(
            bounds(&[f32::NEG_INFINITY]),
            (f32::INFINITY, f32::NEG_INFINITY)
        );
    }

    #[test]
    fn spread_is_that_of_known_scores() {
        let scores: Vec<f32> = (0..21)
            .map(|i| i as f32)
            .chain([f32::NEG_INFINITY, f32::NAN])
            .collect();
        let (mean, deviation) = spread(&scores);
        assert_eq!(mean, 10.0);
        assert!(
            (deviation.powi(2) - (21.0 * 21.0 - 1.0) / 12.0).abs() < 1e-4,
            "{deviation}"
        );
        assert_eq!(spread(&[]), (0.0, 0.0));
    }

    #[test]
    fn min_max_scales_from_the_floor_to_the_best() {
        let scaled = |scores: &[f32], floor: f32, best: f32| {
            let mut scaled = vec![9.0];
            min_max(scores, floor, best, &mut scaled);
            scaled
        };
        let scores = [1.0, 3.0, 9.0, f32::NEG_INFINITY];
        assert_eq!(
            scaled(&scores, 1.0, 3.0),
            [0.0, 1.0, 1.0, f32::NEG_INFINITY]
        );
        assert_eq!(scaled(&[0.0, 0.0], 0.0, f32::NEG_INFINITY), [0.0, 0.0]);
    }

    #[test]
    fn first_in_every_list_is_one_and_ties_are_equal() {
        let fused = reciprocal_rank(
            &[(&[3.0, 2.0, 2.0, 0.0], 1.0), (&[0.9, 0.1, 0.1, 0.0], 1.0)],
            0.0,
            4,
        );
        assert_eq!(fused[0], 1.0);
        assert_eq!(fused[1], fused[2]);
        assert_eq!(fused[3], 0.0);
    }
}
