//! What a paired difference is worth: p-values of two tests, corrected for several comparisons, the
//! effect size, and the smallest difference that the queries could show.

use super::bootstrap::{Interval, Paired, differences, paired};
use super::metrics::mean;
use super::random::Random;

/// Resamples of the bootstrap test; the smallest possible p-value is 1 / (RESAMPLES + 1).
const RESAMPLES: usize = 10_000;
/// Draws of one comparison at most, so that large sets take seconds and not minutes.
const MAX_DRAWS: usize = 20_000_000;
/// Quantiles of the normal distribution: 5% on both sides, and a power of 80%.
const SHOWN_WITH: f64 = 1.959_964 + 0.841_621;

/// Deviations below this are errors of rounding.
const ROUNDING: f64 = 1e-12;

/// A paired comparison of two systems, B less A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Significance {
    /// Queries with a value in both.
    pub queries: usize,
    /// Mean of the differences.
    pub difference: f64,
    /// Its 95% bootstrap interval.
    pub interval: Interval,
    /// Two-sided p-value of the randomisation test.
    pub p: f64,
    /// Two-sided p-value of the bootstrap test.
    pub p_bootstrap: f64,
    /// The mean difference in standard deviations of the differences; 0 where they do not vary.
    pub effect_size: f64,
    /// The smallest mean difference that a test at 5% would show in four of five such sets.
    pub smallest_difference: f64,
}

impl Significance {
    /// Compares two columns over the same queries.
    pub fn of(a: &[f64], b: &[f64], seed: u64) -> Self {
        let differences = differences(b, a);
        let Paired {
            difference,
            interval,
            p,
        } = paired(b, a, seed);
        let deviation = deviation(&differences);
        Significance {
            queries: differences.len(),
            difference,
            interval,
            p,
            p_bootstrap: bootstrap_p(&differences, seed),
            effect_size: if deviation > 0.0 {
                difference / deviation
            } else {
                0.0
            },
            smallest_difference: SHOWN_WITH * deviation / (differences.len().max(1) as f64).sqrt(),
        }
    }
}

/// The sample standard deviation; 0 for less than two values.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (values.len() - 1) as f64).sqrt();
    // Equal values may differ from their mean in the last bits.
    if deviation < ROUNDING { 0.0 } else { deviation }
}

/// How often the mean of a resample is as far from the observed mean as this is from 0 (Efron and
/// Tibshirani, "An introduction to the bootstrap", 1993, with differences moved to the mean 0).
fn bootstrap_p(differences: &[f64], seed: u64) -> f64 {
    if differences.is_empty() {
        return 1.0;
    }
    let observed = mean(differences);
    let centred: Vec<f64> = differences.iter().map(|value| value - observed).collect();
    // Sums in another order may differ in the last bits and must still count as equal.
    let least = observed.abs() * (1.0 - 1e-12) * centred.len() as f64;
    // With fewer than a hundred, no p-value could be below .01.
    let resamples = RESAMPLES.min(MAX_DRAWS / centred.len()).max(100);
    let mut random = Random::new(seed, "bootstrap test");
    let mut as_far = 0;
    for _ in 0..resamples {
        let mut drawn = 0.0_f64;
        for _ in 0..centred.len() {
            drawn += centred[random.below(centred.len())];
        }
        as_far += usize::from(drawn.abs() >= least);
    }
    // The sample itself counts as one of the resamples, so p is never 0.
    (as_far + 1) as f64 / (resamples + 1) as f64
}

/// The p-values corrected for their number (Holm, "A simple sequentially rejective multiple test
/// procedure", 1979), in the same order.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (index, position) in order.into_iter().enumerate() {
        let factor = (p_values.len() - index) as f64;
        highest = highest.max((p_values[position] * factor).min(1.0));
        corrected[position] = highest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_corrects_step_by_step() {
        for (given, expected) in [
            (vec![0.01, 0.04, 0.03], vec![0.03, 0.06, 0.06]),
            (vec![0.5, 0.6], vec![1.0, 1.0]),
            (vec![0.2], vec![0.2]),
            (vec![], vec![]),
            (vec![0.001, 0.001], vec![0.002, 0.002]),
        ] {
            let found = holm(&given);
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
            assert!(
                found.iter().zip(&expected).all(is_close),
                "{given:?}: {found:?}"
            );
        }
    }

    #[test]
    fn both_tests_tell_a_difference_from_noise() {
        let clear = Significance::of(&[0.5; 40], &[0.9; 40], 1);
        assert!(clear.p < 0.001 && clear.p_bootstrap < 0.001, "{clear:?}");
        assert_eq!((clear.effect_size, clear.smallest_difference), (0.0, 0.0));
        let halves = |first: f64| -> Vec<f64> {
            let value = |n: usize| {
                if n.is_multiple_of(2) {
                    first
                } else {
                    1.0 - first
                }
            };
            (0..40).map(value).collect()
        };
        let noise = Significance::of(&halves(1.0), &halves(0.0), 1);
        assert!(noise.p > 0.9 && noise.p_bootstrap > 0.9, "{noise:?}");
        // The differences are 1 and -1: their deviation is 1.0127, the error of the mean 0.1601.
        assert!(
            (noise.smallest_difference - 0.4486).abs() < 0.001,
            "{noise:?}"
        );
        let same = Significance::of(&halves(1.0), &halves(1.0), 1);
        assert_eq!((same.p, same.p_bootstrap, same.difference), (1.0, 1.0, 0.0));
    }

    #[test]
    fn queries_without_a_value_are_left_out() {
        let found = Significance::of(&[0.0, f64::NAN, 0.5], &[1.0, 1.0, f64::NAN], 1);
        assert_eq!((found.queries, found.difference), (1, 1.0));
    }

    #[test]
    fn the_effect_size_is_in_standard_deviations() {
        let found = Significance::of(&[0.0; 3], &[0.1, 0.2, 0.3], 1);
        assert!((found.effect_size - 2.0).abs() < 1e-9, "{found:?}");
    }
}
