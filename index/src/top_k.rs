//! Selection of the best k tools without sorting all of them.

use crate::by_processor::by_processor;
use crate::hit::ranked;

/// Scores compared at once with the current bar.
const LANES: usize = 16;

/// The best `count` of the accepted tools with scores above the floor, in order.
pub(crate) fn above(
    floor: f32,
    scores: &[f32],
    count: usize,
    accepts: impl Fn(usize) -> bool,
) -> Vec<(usize, f32)> {
    let mut best = unordered_above(floor, scores, count, accepts);
    // Unstable is enough: no two are equal.
    best.sort_unstable_by(by_rank);
    best
}

/// As [`above`], in any order.
pub(crate) fn unordered_above(
    floor: f32,
    scores: &[f32],
    count: usize,
    accepts: impl Fn(usize) -> bool,
) -> Vec<(usize, f32)> {
    let accepts = |tool: usize| scores[tool] > floor && accepts(tool);
    let (bar, maxima) = low_bar(floor, scores, count);
    let mut best = TopK::new(count);
    for (number, block) in scores.chunks(LANES).enumerate() {
        if maxima[number] >= bar {
            let tools = number * LANES..;
            let found = tools.zip(block.iter().copied());
            best.candidates
                .extend(found.filter(|&(tool, score)| score >= bar && accepts(tool)));
        }
    }
    // Where the tools that reach the bar are not accepted, lower ones are among the best.
    if best.candidates.len() < count && bar > floor {
        best = TopK::new(count);
        best.offer_all(scores, accepts);
    }
    best.into_unordered()
}

/// A score that at least `count` scores reach, or the floor, and the best score of each block.
fn low_bar(floor: f32, scores: &[f32], count: usize) -> (f32, Vec<f32>) {
    let maxima = maxima(scores);
    if count == 0 || maxima.len() <= count {
        return (floor, maxima);
    }
    // As many groups of blocks as are asked for have a score of at least this. With four times as many
    // groups, few other scores reach it.
    let group = (maxima.len() / (4 * count)).max(1);
    let groups = maxima.chunks(group);
    let mut bests: Vec<f32> = groups
        .map(|group| group.iter().copied().fold(f32::NEG_INFINITY, f32::max))
        .collect();
    let (_, bar, _) = bests.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a));
    // `max` also passes over a NaN.
    (bar.max(floor), maxima)
}

by_processor! {
    /// The best score of each block.
    fn maxima(scores: &[f32]) -> Vec<f32> {
        let (blocks, rest) = scores.as_chunks::<LANES>();
        let mut maxima = vec![f32::NEG_INFINITY; blocks.len() + usize::from(!rest.is_empty())];
        for (best, block) in maxima.iter_mut().zip(blocks) {
            // In halves, so that the compiler can vectorize it.
            let (mut lanes, mut count) = (*block, LANES);
            while count > 1 {
                count /= 2;
                for lane in 0..count {
                    lanes[lane] = lanes[lane].max(lanes[lane + count]);
                }
            }
            *best = lanes[0];
        }
        if let Some(best) = maxima.get_mut(blocks.len()) {
            *best = rest.iter().copied().fold(*best, f32::max);
        }
        maxima
    }
}

/// Collects the best `count` of the offered tools.
pub(crate) struct TopK {
    count: usize,
    /// The best so far, and up to as many others.
    candidates: Vec<(usize, f32)>,
    /// The least score worth keeping: the worst of the best at the last selection.
    bar: f32,
}

impl TopK {
    /// Selects this many tools.
    pub(crate) fn new(count: usize) -> Self {
        TopK {
            count,
            candidates: Vec::new(),
            bar: f32::NEG_INFINITY,
        }
    }

    /// Adds a tool if it may be among the best.
    pub(crate) fn offer(&mut self, tool: usize, score: f32) {
        // Not `<=`: of equal scores the smaller position wins, and it may be offered later.
        if score < self.bar {
            return;
        }
        self.candidates.push((tool, score));
        // Selecting only at twice the count makes the cost of most offers one comparison.
        if self.candidates.len() >= 2 * self.count.max(1) {
            self.select();
        }
    }

    /// Offers all tools. `accepts` is called only for scores that reach the bar.
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
        // The closure borrows the bar, so it is read through the closure.
        let mut bar = offer(0, &[]);
        for (number, block) in blocks.iter().enumerate() {
            // No early exit within a block, so that the compiler can vectorize the comparison.
            if block.iter().fold(false, |any, score| any | (*score >= bar)) {
                bar = offer(number * LANES, block);
            }
        }
        offer(blocks.len() * LANES, rest);
    }

    /// The best, in order.
    pub(crate) fn into_ranked(self) -> Vec<(usize, f32)> {
        let mut best = self.into_unordered();
        // Unstable is enough: every tool is offered once, so no two are equal.
        best.sort_unstable_by(by_rank);
        best
    }

    fn into_unordered(mut self) -> Vec<(usize, f32)> {
        if self.candidates.len() > self.count {
            self.select();
        }
        self.candidates
    }

    fn select(&mut self) {
        let Some(last) = self.count.checked_sub(1) else {
            return self.candidates.clear();
        };
        self.candidates.select_nth_unstable_by(last, by_rank);
        self.candidates.truncate(self.count);
        self.bar = self.candidates[last].1;
    }
}

/// The order of tools with their scores: as in [`ranked`].
pub(crate) fn by_rank(a: &(usize, f32), b: &(usize, f32)) -> std::cmp::Ordering {
    ranked((a.1, a.0), (b.1, b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_selects_what_sorting_all_would_select() {
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
            // The accepted tools are few, and not among the best of all.
            let few = |tool: &usize| *tool > 480 && (1.0..40.0).contains(&scores[*tool]);
            let mut last: Vec<(usize, f32)> = (0..500)
                .filter(few)
                .map(|tool| (tool, scores[tool]))
                .collect();
            last.sort_by(by_rank);
            last.truncate(count);
            assert_eq!(
                above(0.0, &scores, count, |tool| few(&tool)),
                last,
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
