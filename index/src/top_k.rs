//! The best of many tools, without ordering all of them.

use crate::hit::ranked;

/// Scores that are compared at once with what a tool must reach.
const LANES: usize = 16;

/// The best of the tools that are accepted, by these scores, one a tool; in order, and only those
/// above the floor.
pub(crate) fn above(
    floor: f32,
    scores: &[f32],
    count: usize,
    accepts: impl Fn(usize) -> bool,
) -> Vec<(usize, f32)> {
    let mut best = TopK {
        count,
        kept: Vec::new(),
        bar: floor,
    };
    best.offer_all(scores, |tool| scores[tool] > floor && accepts(tool));
    best.into_ranked()
}

/// Keeps the best of the tools it is offered.
pub(crate) struct TopK {
    count: usize,
    kept: Vec<(usize, f32)>,
    /// What a tool must reach to be looked at: the worst of those that were kept when they were
    /// last told apart.
    bar: f32,
}

impl TopK {
    /// For this many tools.
    pub(crate) fn new(count: usize) -> Self {
        TopK {
            count,
            kept: Vec::new(),
            bar: f32::NEG_INFINITY,
        }
    }

    /// Keeps the tool if it is among the best so far.
    pub(crate) fn offer(&mut self, tool: usize, score: f32) {
        if score < self.bar {
            return;
        }
        self.kept.push((tool, score));
        // Told apart only when there are twice as many, so that most tools cost no more than a
        // comparison.
        if self.kept.len() >= 2 * self.count.max(1) {
            self.shorten();
        }
    }

    /// Keeps those of all tools that are among the best so far; asks for acceptance only of what is
    /// good enough.
    pub(crate) fn offer_all(&mut self, scores: &[f32], accepts: impl Fn(usize) -> bool) {
        let (blocks, rest) = scores.as_chunks::<LANES>();
        let mut offer = |first: usize, scores: &[f32]| {
            for (offset, &score) in scores.iter().enumerate() {
                if score >= self.bar && accepts(first + offset) {
                    self.offer(first + offset, score);
                }
            }
            self.bar
        };
        let mut bar = offer(0, &[]);
        for (number, block) in blocks.iter().enumerate() {
            // Without a way out of the middle, so that all are compared side by side.
            if block.iter().fold(false, |any, score| any | (*score >= bar)) {
                bar = offer(number * LANES, block);
            }
        }
        offer(blocks.len() * LANES, rest);
    }

    /// The best, in order.
    pub(crate) fn into_ranked(mut self) -> Vec<(usize, f32)> {
        self.kept.sort_unstable_by(by_rank);
        self.kept.truncate(self.count);
        self.kept
    }

    fn shorten(&mut self) {
        let Some(last) = self.count.checked_sub(1) else {
            return self.kept.clear();
        };
        self.kept.select_nth_unstable_by(last, by_rank);
        self.kept.truncate(self.count);
        self.bar = self.kept[last].1;
    }
}

fn by_rank(a: &(usize, f32), b: &(usize, f32)) -> std::cmp::Ordering {
    ranked((a.1, a.0), (b.1, b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_ordering_all_would_keep() {
        let scores: Vec<f32> = (0..500).map(|i| (i * 7919 % 83) as f32).collect();
        for count in [0, 1, 2, 7, 83, 499, 500, 501] {
            let mut all: Vec<(usize, f32)> = scores
                .iter()
                .copied()
                .enumerate()
                .filter(|(tool, _)| tool % 3 != 0)
                .collect();
            let mut best = TopK::new(count);
            // Backwards, so that of equal ones the smaller comes later.
            all.iter()
                .rev()
                .for_each(|&(tool, score)| best.offer(tool, score));
            all.sort_by(by_rank);
            all.truncate(count);
            assert_eq!(best.into_ranked(), all, "{count}");
            assert_eq!(
                above(f32::NEG_INFINITY, &scores, count, |tool| tool % 3 != 0),
                all,
                "{count}"
            );
            all.retain(|(_, score)| *score > 9.0);
            assert_eq!(
                above(9.0, &scores, count, |tool| tool % 3 != 0),
                all,
                "{count}"
            );
        }
    }
}
