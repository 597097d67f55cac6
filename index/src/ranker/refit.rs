//! Refits the leaf values of a forest to judged requests of one catalog; the splits stay.
//!
//! The gradients are LambdaRank's (Burges 2010), as in training. A leaf that few candidates reach
//! hardly changes, so a dozen judged requests cannot undo the training on thousands.

use super::features::Feature;
use super::trees::Forest;
use crate::hit::ranked;

/// Learning rate, as in training.
const LEARNING_RATE: f64 = 0.08;
/// L2 regularization of leaf values, in pairs of candidates.
const DAMPING: f64 = 5.0;
/// Ranks that count in nDCG.
const TRUNCATION: usize = 12;

/// The candidates of one judged request.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Their features, one row each, end to end.
    pub rows: Vec<f32>,
    /// Which of them are right.
    pub relevant: Vec<bool>,
    /// Their scores without the forest, in the forest's units.
    pub base: Vec<f64>,
}

/// The forest with leaf values between the old ones and those fitted to these requests: `keep` is
/// the share of the old ones, 0 to 1.
pub fn refit(forest: &Forest, requests: &[Judged], keep: f64) -> Forest {
    let width = Feature::ALL.len();
    let mut refitted = forest.clone();
    let mut scores = Vec::with_capacity(requests.len());
    for request in requests {
        scores.push(request.base.clone());
    }
    for tree in refitted.trees_mut() {
        let mut sums = vec![(0.0, 0.0); tree.leaves().len()];
        let mut ends: Vec<Vec<usize>> = Vec::with_capacity(requests.len());
        for (request, scores) in requests.iter().zip(&scores) {
            let rows = request.rows.chunks_exact(width);
            let leaves: Vec<usize> = rows.map(|row| tree.leaf(row)).collect();
            let lambdas = lambdas(&request.relevant, scores);
            for (&leaf, (gradient, curvature)) in leaves.iter().zip(lambdas) {
                sums[leaf].0 += gradient;
                sums[leaf].1 += curvature;
            }
            ends.push(leaves);
        }
        for (leaf, (gradient, curvature)) in tree.leaves_mut().iter_mut().zip(sums) {
            let asked = LEARNING_RATE * gradient / (curvature + DAMPING);
            // A leaf that no candidate reaches keeps its value.
            let keep = if curvature > 0.0 { keep } else { 1.0 };
            *leaf = keep * *leaf + (1.0 - keep) * asked;
        }
        // As in boosting, the next tree corrects what this one leaves.
        for (scores, ends) in scores.iter_mut().zip(&ends) {
            for (score, &leaf) in scores.iter_mut().zip(ends) {
                *score += tree.leaves()[leaf];
            }
        }
    }
    refitted
}

/// The gradient and the curvature of the loss for each candidate's score.
fn lambdas(relevant: &[bool], scores: &[f64]) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| ranked((scores[a], a), (scores[b], b)));
    let mut place = vec![0; scores.len()];
    for (at, candidate) in order.into_iter().enumerate() {
        place[candidate] = at;
    }
    let (mut all_right, mut all_wrong) = (Vec::new(), Vec::new());
    for (candidate, is_right) in relevant.iter().enumerate() {
        match is_right {
            true => all_right.push(candidate),
            false => all_wrong.push(candidate),
        }
    }
    // As if all that are right came first.
    let ideal: f64 = (0..all_right.len().min(TRUNCATION)).map(discount).sum();
    let mut moves = vec![(0.0, 0.0); scores.len()];
    for &right in &all_right {
        for &wrong in &all_wrong {
            // Neither rank counts in nDCG, so an exchange would change nothing.
            if place[right].min(place[wrong]) >= TRUNCATION {
                continue;
            }
            let gain = (discount(place[right]) - discount(place[wrong])).abs()
                / ideal.max(f64::MIN_POSITIVE);
            let doubt = 1.0 / (1.0 + (scores[right] - scores[wrong]).exp());
            let (force, curvature) = (gain * doubt, gain * doubt * (1.0 - doubt));
            moves[right].0 += force;
            moves[wrong].0 -= force;
            moves[right].1 += curvature;
            moves[wrong].1 += curvature;
        }
    }
    moves
}

/// The discounted gain of a right tool at this rank, from 0.
fn discount(place: usize) -> f64 {
    1.0 / ((place + 2) as f64).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One split on the first feature, and two candidates on either side of it.
    fn lesson() -> (Forest, Vec<Judged>) {
        let forest: Forest =
            serde_json::from_str(r#"[{"splits":[[0,0.5,-1,-2,0.0]],"leaves":[0.2,-0.2]}]"#)
                .unwrap();
        let width = Feature::ALL.len();
        let mut rows = vec![0.0; 2 * width];
        rows[width] = 1.0;
        let request = Judged {
            rows,
            relevant: vec![false, true],
            base: vec![0.0, 0.0],
        };
        (forest, vec![request; 50])
    }

    #[test]
    fn leaves_move_towards_the_right_candidates() {
        let (forest, lessons) = lesson();
        let refitted = refit(&forest, &lessons, 0.5);
        let before = forest.predict(&lessons[0].rows, Feature::ALL.len());
        let after = refitted.predict(&lessons[0].rows, Feature::ALL.len());
        assert!(
            before[0] > before[1] && after[1] - after[0] > before[1] - before[0],
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn keeping_all_changes_nothing_and_neither_do_no_requests() {
        let (forest, lessons) = lesson();
        assert_eq!(refit(&forest, &lessons, 1.0), forest);
        assert_eq!(refit(&forest, &[], 0.0), forest);
    }

    #[test]
    fn gradients_of_a_request_add_up_to_0() {
        let moves = lambdas(&[false, true, false], &[0.3, 0.1, 0.2]);
        assert!(moves.iter().map(|(force, _)| force).sum::<f64>().abs() < 1e-12);
        assert!(moves[1].0 > 0.0 && moves[0].0 < 0.0);
    }
}
