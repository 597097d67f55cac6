//! Joining ranked lists: pure functions over one score per tool.

/// The constant of reciprocal rank fusion, from Cormack, Clarke and Büttcher (2009).
const RRF_K: f32 = 60.0;
/// How deep a list takes part in reciprocal rank fusion.
const RRF_DEPTH: usize = 100;

/// Scales scores in place: `floor` becomes 0, the best tool that may be a hit becomes 1. The floor is what a tool
/// without any likeness gets, and not the worst of those allowed: the only tool that passes a filter is still a match.
/// All at the floor gives 0.
pub fn min_max(scores: &mut [f32], floor: f32, allowed: impl Fn(usize) -> bool) {
    let candidates = scores.iter().enumerate().filter(|&(tool, score)| score.is_finite() && allowed(tool));
    let best = candidates.map(|(_, &score)| score).fold(f32::NEG_INFINITY, f32::max);
    let scale = if best > floor { 1.0 / (best - floor) } else { 0.0 };
    for score in scores.iter_mut().filter(|score| score.is_finite()) {
        *score = ((*score - floor) * scale).clamp(0.0, 1.0);
    }
}

/// `(1 - weight) * a + weight * b`.
pub fn convex(a: f32, b: f32, weight: f32) -> f32 {
    (1.0 - weight) * a + weight * b
}

/// Reciprocal rank fusion of several lists of `tools` scores, each with its weight, scaled so that first in all is 1.
/// Ties share the better rank; scores that are not finite or not above `floor` take no part.
pub fn reciprocal_rank(lists: &[(&[f32], f32)], floor: f32, tools: usize) -> Vec<f32> {
    let mut fused = vec![0.0; tools];
    let total: f32 = lists.iter().map(|(_, weight)| weight).sum();
    for (scores, weight) in lists {
        let mut order: Vec<usize> = (0..scores.len()).filter(|&tool| scores[tool] > floor).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
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
    fn min_max_scales_from_the_floor_to_the_best_allowed() {
        let mut scores = [1.0, 3.0, 9.0, f32::NEG_INFINITY];
        min_max(&mut scores, 1.0, |tool| tool != 2);
        assert_eq!(scores, [0.0, 1.0, 1.0, f32::NEG_INFINITY]);
        let mut only = [0.2, 0.7];
        min_max(&mut only, 0.2, |tool| tool == 1);
        assert_eq!(only, [0.0, 1.0]);
        let mut none = [0.0, 0.0];
        min_max(&mut none, 0.0, |_| true);
        assert_eq!(none, [0.0, 0.0]);
    }

    #[test]
    fn first_in_every_list_is_one_and_ties_are_equal() {
        let fused = reciprocal_rank(&[(&[3.0, 2.0, 2.0, 0.0], 1.0), (&[0.9, 0.1, 0.1, 0.0], 1.0)], 0.0, 4);
        assert_eq!(fused[0], 1.0);
        assert_eq!(fused[1], fused[2]);
        assert_eq!(fused[3], 0.0);
    }
}
