//! Bootstrap confidence intervals of a mean, and a paired significance test.

use super::metrics::{mean, percentile, sum_of};
use super::random::Random;

/// Resamples per interval. 1,000 keep the Monte Carlo error of a 2.5% quantile near a
/// twentieth of the interval.
pub const RESAMPLES: usize = 1_000;
/// Sign flips per p-value; the smallest possible value is 1 / (FLIPS + 1).
pub const FLIPS: usize = 10_000;

/// A 95% interval.
pub type Interval = [f64; 2];

/// The 95% percentile bootstrap intervals of the means of several columns over the same queries.
///
/// `columns[m][q]` is metric `m` of query `q`. Each resample draws queries once for all columns.
/// Deterministic given the seed.
pub fn intervals(columns: &[Vec<f64>], seed: u64) -> Vec<Interval> {
    let queries = columns.first().map_or(0, Vec::len);
    if queries == 0 {
        return vec![[0.0, 0.0]; columns.len()];
    }
    let mut random = Random::new(seed, "bootstrap");
    let mut means = vec![Vec::with_capacity(RESAMPLES); columns.len()];
    let mut draw = vec![0; queries];
    for _ in 0..RESAMPLES {
        // One draw for all columns, so that the intervals of several metrics are of the same
        // resamples.
        draw.fill_with(|| random.below(queries));
        for (column, means) in columns.iter().zip(&mut means) {
            let (sum, count) = sum_of(draw.iter().map(|&query| column[query]));
            // A draw may miss every query that has a value.
            if count > 0 {
                means.push(sum / count as f64);
            }
        }
    }
    means.into_iter().map(central_95).collect()
}

/// The 95% percentile bootstrap interval of the mean over sets of each set's mean over queries.
/// Queries are drawn within their set. All sets have the same weight.
pub fn macro_interval(sets: &[Vec<f64>], seed: u64) -> Interval {
    let sets: Vec<&Vec<f64>> = sets.iter().filter(|set| !set.is_empty()).collect();
    if sets.is_empty() {
        return [0.0, 0.0];
    }
    let mut random = Random::new(seed, "macro bootstrap");
    let mut means = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut sum = 0.0;
        for set in &sets {
            let mut drawn = 0.0;
            for _ in 0..set.len() {
                drawn += set[random.below(set.len())];
            }
            sum += drawn / set.len() as f64;
        }
        means.push(sum / sets.len() as f64);
    }
    central_95(means)
}

/// A paired comparison of two systems.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Mean of `a - b`.
    pub difference: f64,
    /// Bootstrap interval of the mean.
    pub interval: Interval,
    /// Two-sided p-value of the randomisation test: how often a difference at least this large
    /// arises when each query's two values are exchanged at random.
    pub p: f64,
}

/// Compares two systems over the same queries (Smucker, Allan and Carterette, "A comparison of
/// statistical significance tests for information retrieval evaluation", 2007, recommend the
/// randomisation test). Deterministic given the seed.
pub fn paired(a: &[f64], b: &[f64], seed: u64) -> Paired {
    let differences = differences(a, b);
    let observed = mean(&differences);
    Paired {
        difference: observed,
        interval: intervals(std::slice::from_ref(&differences), seed)[0],
        p: sign_flip_p(&differences, seed),
    }
}

/// `a - b` of the queries that have a value in both.
pub(super) fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut differences = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        let difference = a - b;
        if !difference.is_nan() {
            differences.push(difference);
        }
    }
    differences
}

fn sign_flip_p(differences: &[f64], seed: u64) -> f64 {
    // Queries with equal values add 0, flipped or not.
    let moving: Vec<f64> = differences
        .iter()
        .copied()
        .filter(|difference| *difference != 0.0)
        .collect();
    // Sums in another order may differ in the last bits and must still count as equal.
    let observed = moving.iter().sum::<f64>().abs() * (1.0 - 1e-12);
    let mut random = Random::new(seed, "randomisation");
    let mut as_large = 0;
    for _ in 0..FLIPS {
        as_large += usize::from(flipped_sum(&moving, &mut random).abs() >= observed);
    }
    // The observed signs count as one of the flips, so p is never 0.
    (as_large + 1) as f64 / (FLIPS + 1) as f64
}

fn flipped_sum(differences: &[f64], random: &mut Random) -> f64 {
    let mut sum = 0.0;
    for block in differences.chunks(64) {
        // One random number is enough for 64 signs.
        let signs = random.next();
        for (bit, difference) in block.iter().enumerate() {
            sum += if signs >> bit & 1 == 1 {
                *difference
            } else {
                -difference
            };
        }
    }
    sum
}

fn central_95(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    [percentile(&values, 0.025), percentile(&values, 0.975)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_equal_weights_in_the_macro_interval() {
        // Standard error of the mean of both sets: half of the small set's .05 (100 queries), the
        // large one adds nothing.
        let [low, high] = macro_interval(&[halves(100), vec![1.0; 5000]], 1);
        assert!(
            (low - 0.701).abs() < 0.01 && (high - 0.799).abs() < 0.01,
            "[{low}, {high}]"
        );
        assert_eq!(macro_interval(&[], 1), [0.0, 0.0]);
    }

    fn halves(queries: usize) -> Vec<f64> {
        (0..queries)
            .map(|query| f64::from(u8::from(query % 2 == 0)))
            .collect()
    }

    #[test]
    fn an_interval_covers_the_normal_approximation() {
        // Mean .5, standard error sqrt(.25 / 400) = .025, so 95% lie within .5 -+ .049.
        let [low, high] = intervals(&[halves(400)], 1)[0];
        assert!(
            (low - 0.451).abs() < 0.01 && (high - 0.549).abs() < 0.01,
            "[{low}, {high}]"
        );
    }

    #[test]
    fn an_interval_of_a_constant_is_a_point() {
        assert_eq!(
            intervals(&[vec![0.25; 30], vec![1.0; 30]], 9),
            [[0.25, 0.25], [1.0, 1.0]]
        );
    }

    #[test]
    fn equal_seeds_give_equal_results() {
        let (a, b) = (halves(97), vec![0.4; 97]);
        assert_eq!(paired(&a, &b, 5), paired(&a, &b, 5));
        assert_ne!(intervals(std::slice::from_ref(&a), 5), intervals(&[a], 6));
    }

    #[test]
    fn equal_systems_do_not_differ() {
        let same = paired(&halves(50), &halves(50), 2);
        assert_eq!((same.difference, same.p), (0.0, 1.0));
    }

    #[test]
    fn p_values_match_the_exact_test() {
        // Five queries, a better by 1 on each: of 2^5 sign patterns two are as extreme, so p =
        // 1/16.
        let p = paired(&[1.0; 5], &[0.0; 5], 3).p;
        assert!((p - 1.0 / 16.0).abs() < 0.01, "{p}");
    }

    #[test]
    fn a_clear_difference_is_significant_and_noise_is_not() {
        let clear = paired(&[0.9; 40], &[0.5; 40], 4);
        assert!(clear.p < 0.001 && clear.interval[0] > 0.0, "{clear:?}");
        let noise: Vec<f64> = halves(40).iter().map(|half| 1.0 - half).collect();
        assert!(paired(&halves(40), &noise, 4).p > 0.9);
    }
}
