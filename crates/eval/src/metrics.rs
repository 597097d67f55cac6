//! Ranking metrics. Pure functions; every value is from 0 to 1, but for `tau`, which is from -1.
//!
//! A tool is relevant if its grade is above 0 and at least the grade that relevance starts from.
//! With `r` relevant tools and gains `g` (the grade, or `2^grade - 1`), at depth `k`:
//!
//! | metric | definition |
//! |---|---|
//! | `ndcg@k` | sum of `g_i / log2(i + 1)` over the first `k` ranks, divided by the same sum for the best ranking |
//! | `recall@k` | needs met by the first `k`, divided by all needs |
//! | `precision@k` | relevant tools among the first `k`, divided by `k` |
//! | `mrr@k` | 1 / rank of the first relevant hit among the first `k`, else 0 |
//! | `success@k` | 1 when any relevant tool is among the first `k` |
//! | `complete@k` | 1 when the first `k` meet every need |
//! | `ap@k` | sum of the precision at each relevant hit among the first `k`, divided by `r` |
//! | `rprec` | relevant tools among the first `r`, divided by `r` |
//! | `rbp(p=P)@k` | sum of `(1 - P) P^(i - 1)` over the ranks `i` of relevant hits |
//! | `err@k` | expected reciprocal rank of the hit that satisfies, with probability `(2^grade - 1) / 16` |
//! | `bpref` | mean over relevant tools of the share of judged, irrelevant tools that are not above it |
//! | `judged@k`, `unjudged@k` | share of the first `k` hits that are judged, or are not |
//! | `tau@k` | Kendall's tau of the tools of a chain: pairs in the right order less those in the wrong one, divided by all pairs |
//! | `prefix` | first hits that are the chain's first tools in its order, divided by the chain's length |
//!
//! A need is a group of alternatives; without groups, every relevant tool is a need. Hits beyond
//! those returned count as not relevant. `tau` and `prefix` have no value for a query without an
//! order: it is `NaN`, which means leave out. The value of a set is the mean over its queries.

mod formulas;
mod names;

use super::judgements::{JudgedHits, Judgements};

pub use names::list as read_list;

/// The default cut-offs.
pub const DEFAULT_DEPTHS: [usize; 4] = [1, 3, 5, 10];

/// The default cut-offs that a catalog of so many tools allows, and those beyond its size.
pub fn default_depths(tools: usize) -> (Vec<usize>, Vec<usize>) {
    DEFAULT_DEPTHS
        .into_iter()
        .partition(|depth| *depth <= tools)
}

/// A measure of ranking quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Normalised discounted cumulative gain; a tool's gain is its grade.
    Ndcg,
    /// The same with gains that double with each grade: 2^grade - 1.
    NdcgExp,
    /// Share of the needs that were met.
    Recall,
    /// Share of the hits that are relevant. At depth 1 the quality for an agent that always takes
    /// the first hit.
    Precision,
    /// Reciprocal rank of the first relevant hit.
    Mrr,
    /// Whether any relevant tool was found.
    Success,
    /// Whether every need was met.
    Complete,
    /// Average precision.
    Ap,
    /// Precision at the number of relevant tools.
    Rprec,
    /// Rank-biased precision; the persistence is in thousandths.
    Rbp(u16),
    /// Expected reciprocal rank.
    Err,
    /// Binary preference.
    Bpref,
    /// Share of the hits that are judged.
    Judged,
    /// Share of the hits that are not judged.
    Unjudged,
    /// Kendall's tau of a chain's tools.
    Tau,
    /// Share of a chain that the first hits are, in its order.
    Prefix,
}

impl Measure {
    /// Whether it has a cut-off: always, never, or as you like.
    fn cutoff(self) -> names::Cutoff {
        match self {
            Measure::Rprec | Measure::Bpref | Measure::Prefix => names::Cutoff::Never,
            Measure::Ndcg
            | Measure::NdcgExp
            | Measure::Mrr
            | Measure::Ap
            | Measure::Rbp(_)
            | Measure::Tau => names::Cutoff::Optional,
            _ => names::Cutoff::Always,
        }
    }
}

/// A measure at a depth, written `ndcg@10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// The measure.
    pub measure: Measure,
    /// The cut-off; `None` for all hits.
    pub depth: Option<usize>,
    /// The least grade of a relevant tool, if it is not that of the set.
    pub relevant_from: Option<u16>,
    /// Whether hits that are not judged are left out before anything is measured.
    pub judged_only: bool,
}

impl Metric {
    /// This measure at this depth.
    pub const fn new(measure: Measure, depth: usize) -> Self {
        Metric {
            depth: Some(depth),
            ..Metric::whole(measure)
        }
    }

    /// This measure over all hits.
    pub const fn whole(measure: Measure) -> Self {
        Metric {
            measure,
            depth: None,
            relevant_from: None,
            judged_only: false,
        }
    }

    /// Every metric reported for these depths, in the order of reports. The reciprocal rank is
    /// reported at the deepest only.
    pub fn all(depths: &[usize]) -> Vec<Metric> {
        let deepest = depths.iter().copied().max().unwrap_or(1);
        let mut metrics = Vec::new();
        metrics.extend(at_each(Measure::Ndcg, depths));
        metrics.extend(at_each(Measure::Recall, depths));
        metrics.push(Metric::new(Measure::Precision, 1));
        metrics.push(Metric::new(Measure::Mrr, deepest));
        metrics.extend(at_each(Measure::Success, depths));
        metrics.extend(at_each(Measure::Complete, depths));
        metrics
    }

    /// The metric of one query; `NaN` where it has none.
    pub fn of(self, hits: &[Option<usize>], judgements: &Judgements) -> f64 {
        // Hits that nobody judged make room for those below them.
        if self.judged_only {
            let judged: JudgedHits = hits.iter().copied().filter(Option::is_some).collect();
            return formulas::value(self, &judged, judgements);
        }
        formulas::value(self, hits, judgements)
    }
}

/// The main metric: nDCG at the deepest cut-off, else the first.
pub fn headline(metrics: &[Metric]) -> Metric {
    deepest(Measure::Ndcg, metrics)
        .or(deepest(Measure::NdcgExp, metrics))
        .or(metrics.first())
        .copied()
        .unwrap_or(Metric::new(Measure::Ndcg, 10))
}

/// This measure at each of these depths.
pub(crate) fn at_each(measure: Measure, depths: &[usize]) -> impl Iterator<Item = Metric> {
    depths.iter().map(move |&depth| Metric::new(measure, depth))
}

/// This measure at its deepest cut-off, over all hits.
fn deepest(measure: Measure, metrics: &[Metric]) -> Option<&Metric> {
    metrics
        .iter()
        .filter(|metric| metric.measure == measure && !metric.judged_only)
        .max_by_key(|metric| metric.depth)
}

/// The arithmetic mean, without what has no value; 0 for nothing.
pub fn mean(values: &[f64]) -> f64 {
    let (sum, count) = sum_of(values.iter().copied());
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// The sum and the number of the values that are not `NaN`.
pub fn sum_of(values: impl Iterator<Item = f64>) -> (f64, usize) {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        if !value.is_nan() {
            sum += value;
            count += 1;
        }
    }
    (sum, count)
}

/// The percentile of ascending values by nearest rank; 0 for an empty slice.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
