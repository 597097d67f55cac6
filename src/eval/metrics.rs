//! Ranking metrics with binary judgements. Pure functions; every value is from 0 to 1.
//!
//! With `r` relevant tools and gains `g` (1 where a hit is relevant), at depth `k`:
//!
//! | metric | definition |
//! |---|---|
//! | `ndcg@k` | sum of `g_i / log2(i + 1)` over the first `k` ranks, divided by the same sum for `min(k, r)` relevant hits at the top |
//! | `recall@k` | relevant tools among the first `k`, divided by `r` |
//! | `precision@1` | 1 when the first hit is relevant |
//! | `mrr@k` | 1 / rank of the first relevant hit among the first `k`, else 0 |
//! | `success@k` | 1 when any relevant tool is among the first `k` |
//! | `complete@k` | 1 when all `r` relevant tools are among the first `k`; 0 whenever `r > k` |
//!
//! Hits beyond those returned count as not relevant. The value of a set is the mean over its
//! queries.

use std::fmt;
use std::str::FromStr;

use super::error::{EvalError, Result};

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
    /// Normalised discounted cumulative gain.
    Ndcg,
    /// Share of the relevant tools that were found.
    Recall,
    /// Share of the hits that are relevant. Reported at depth 1 only: the quality for an agent that
    /// always takes the first hit.
    Precision,
    /// Reciprocal rank of the first relevant hit.
    Mrr,
    /// Whether any relevant tool was found.
    Success,
    /// Whether every relevant tool was found.
    Complete,
}

/// A measure at a depth, written `ndcg@10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric {
    /// The measure.
    pub measure: Measure,
    /// The cut-off.
    pub depth: usize,
}

impl Metric {
    /// This measure at this depth.
    pub const fn new(measure: Measure, depth: usize) -> Self {
        Metric { measure, depth }
    }

    /// Every metric reported for these depths, in the order of reports. The reciprocal rank is
    /// reported at the deepest only.
    pub fn all(depths: &[usize]) -> Vec<Metric> {
        let deepest = depths.iter().copied().max().unwrap_or(1);
        let at_each = |measure| depths.iter().map(move |&depth| Metric::new(measure, depth));
        at_each(Measure::Ndcg)
            .chain(at_each(Measure::Recall))
            .chain([
                Metric::new(Measure::Precision, 1),
                Metric::new(Measure::Mrr, deepest),
            ])
            .chain(at_each(Measure::Success))
            .chain(at_each(Measure::Complete))
            .collect()
    }

    /// The metric of one query: `gains[i]` is true when the hit at rank `i + 1` is relevant,
    /// `relevant` is the number of relevant tools (at least 1).
    pub fn of(self, gains: &[bool], relevant: usize) -> f64 {
        let top = &gains[..gains.len().min(self.depth)];
        let found = || top.iter().filter(|&&gain| gain).count();
        match self.measure {
            Measure::Ndcg => discounted(top.iter().copied()) / ideal(relevant.min(self.depth)),
            Measure::Recall => found() as f64 / relevant as f64,
            Measure::Precision => found() as f64 / self.depth as f64,
            Measure::Mrr => top
                .iter()
                .position(|&gain| gain)
                .map_or(0.0, |index| 1.0 / (index + 1) as f64),
            Measure::Success => f64::from(u8::from(found() > 0)),
            Measure::Complete => f64::from(u8::from(found() == relevant)),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.measure {
            Measure::Ndcg => "ndcg",
            Measure::Recall => "recall",
            Measure::Precision => "precision",
            Measure::Mrr => "mrr",
            Measure::Success => "success",
            Measure::Complete => "complete",
        };
        f.pad(&format!("{name}@{}", self.depth))
    }
}

impl FromStr for Metric {
    type Err = EvalError;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || {
            EvalError::option(
                "metric",
                text,
                "write ndcg@K, recall@K, precision@1, mrr@K, success@K or complete@K with K >= 1",
            )
        };
        let (name, depth) = text.split_once('@').ok_or_else(unknown)?;
        let measure = match name {
            "ndcg" => Measure::Ndcg,
            "recall" => Measure::Recall,
            "precision" => Measure::Precision,
            "mrr" => Measure::Mrr,
            "success" => Measure::Success,
            "complete" => Measure::Complete,
            _ => return Err(unknown()),
        };
        match depth.parse() {
            Ok(depth) if depth >= 1 => Ok(Metric { measure, depth }),
            _ => Err(unknown()),
        }
    }
}

/// The arithmetic mean; 0 for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        len => values.iter().sum::<f64>() / len as f64,
    }
}

/// The percentile of ascending values by nearest rank; 0 for an empty slice.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

fn discounted(gains: impl Iterator<Item = bool>) -> f64 {
    // Not `sum`, which is -0 for an empty slice.
    gains
        .enumerate()
        .filter(|(_, gain)| *gain)
        .fold(0.0, |total, (index, _)| total + discount(index))
}

fn ideal(hits: usize) -> f64 {
    (0..hits).map(discount).sum()
}

fn discount(index: usize) -> f64 {
    1.0 / ((index + 2) as f64).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metric: &str, gains: &[bool], relevant: usize) -> f64 {
        metric.parse::<Metric>().unwrap().of(gains, relevant)
    }

    #[track_caller]
    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-12, "{left} is not {right}");
    }

    /// Hits at ranks 2 and 4 of five, three relevant tools in all.
    const SECOND_AND_FOURTH: [bool; 5] = [false, true, false, true, false];

    #[test]
    fn ndcg_discounts_by_the_logarithm_of_the_rank() {
        // DCG@5 = 1/log2(3) + 1/log2(5) = 0.6309297536 + 0.4306765581; ideal of 3 = 1 +
        // 0.6309297536 + 0.5.
        close(
            value("ndcg@5", &SECOND_AND_FOURTH, 3),
            1.061_606_311_644_851 / 2.130_929_753_571_457_4,
        );
        // Only rank 2 is within the first 3.
        close(
            value("ndcg@3", &SECOND_AND_FOURTH, 3),
            0.630_929_753_571_457_4 / 2.130_929_753_571_457_4,
        );
        close(value("ndcg@1", &SECOND_AND_FOURTH, 3), 0.0);
    }

    #[test]
    fn the_ideal_of_ndcg_is_cut_at_the_depth() {
        close(value("ndcg@1", &[true, false], 7), 1.0);
        close(value("ndcg@3", &[true, true, true, false], 7), 1.0);
        close(value("ndcg@10", &[true], 1), 1.0);
        close(value("ndcg@10", &[false, true], 1), 0.630_929_753_571_457_4);
    }

    #[test]
    fn recall_counts_against_all_relevant_tools() {
        close(value("recall@1", &SECOND_AND_FOURTH, 3), 0.0);
        close(value("recall@3", &SECOND_AND_FOURTH, 3), 1.0 / 3.0);
        close(value("recall@10", &SECOND_AND_FOURTH, 3), 2.0 / 3.0);
    }

    #[test]
    fn the_reciprocal_rank_is_cut_at_its_depth() {
        close(value("mrr@10", &SECOND_AND_FOURTH, 3), 0.5);
        close(value("mrr@1", &SECOND_AND_FOURTH, 3), 0.0);
        close(value("mrr@10", &[false; 10], 1), 0.0);
    }

    #[test]
    fn precision_at_one_is_the_relevance_of_the_first_hit() {
        close(value("precision@1", &SECOND_AND_FOURTH, 3), 0.0);
        close(value("precision@1", &[true], 3), 1.0);
    }

    #[test]
    fn success_needs_one_relevant_tool_within_the_depth() {
        close(value("success@1", &SECOND_AND_FOURTH, 3), 0.0);
        close(value("success@3", &SECOND_AND_FOURTH, 3), 1.0);
    }

    #[test]
    fn complete_needs_every_relevant_tool_within_the_depth() {
        close(value("complete@5", &SECOND_AND_FOURTH, 3), 0.0);
        close(value("complete@5", &SECOND_AND_FOURTH, 2), 1.0);
        close(value("complete@3", &SECOND_AND_FOURTH, 2), 0.0);
        close(value("complete@1", &[true, true], 2), 0.0);
    }

    #[test]
    fn an_empty_result_scores_zero() {
        for metric in Metric::all(&DEFAULT_DEPTHS) {
            close(metric.of(&[], 2), 0.0);
            assert!(metric.of(&[], 2).is_sign_positive(), "{metric}");
        }
    }

    #[test]
    fn every_metric_is_read_back_as_written_and_lies_between_0_and_1() {
        for metric in Metric::all(&DEFAULT_DEPTHS) {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
            for relevant in 2..6 {
                let worth = metric.of(&SECOND_AND_FOURTH, relevant);
                assert!(
                    (0.0..=1.0).contains(&worth),
                    "{metric} of {relevant}: {worth}"
                );
            }
        }
        for wrong in ["ndcg", "ndcg@0", "ndcg@x", "map@10"] {
            assert!(
                wrong
                    .parse::<Metric>()
                    .unwrap_err()
                    .to_string()
                    .contains(wrong)
            );
        }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (
                percentile(&values, 0.5),
                percentile(&values, 0.95),
                percentile(&values, 0.99)
            ),
            (50.0, 95.0, 99.0)
        );
        assert_eq!(
            (
                percentile(&[7.0], 0.99),
                percentile(&[7.0], 0.0),
                percentile(&[], 0.5)
            ),
            (7.0, 7.0, 0.0)
        );
    }
}
