//! The formulas of the metrics, as trec_eval and gdeval compute them.

use super::{Measure, Metric};
use crate::judgements::Judgements;

/// The grade that surely satisfies: gdeval, and so ir_measures, has it at 4.
const HIGHEST_GRADE: f64 = 4.0;

/// The value of a metric, of hits that are all looked at.
pub(super) fn value(metric: Metric, hits: &[Option<usize>], judgements: &Judgements) -> f64 {
    let depth = metric.depth.unwrap_or(usize::MAX);
    let from = metric.relevant_from;
    let query = Query {
        top: &hits[..hits.len().min(depth)],
        all: hits,
        judgements,
        from,
    };
    match metric.measure {
        Measure::Ndcg => query.ndcg(depth, |grade| grade),
        Measure::NdcgExp => query.ndcg(depth, |grade| grade.exp2() - 1.0),
        Measure::Recall => query.recall(),
        Measure::Precision => query.found(depth) as f64 / depth as f64,
        Measure::Mrr => query.reciprocal_rank(),
        Measure::Success => f64::from(u8::from(query.found(depth) > 0)),
        Measure::Complete => f64::from(u8::from(query.recall() >= 1.0)),
        Measure::Ap => query.average_precision(),
        Measure::Rprec => {
            let relevant = judgements.relevant(from);
            share(query.found(relevant) as f64, relevant)
        }
        Measure::Rbp(thousandths) => query.rank_biased(f64::from(thousandths) / 1000.0),
        Measure::Err => query.expected_reciprocal_rank(),
        Measure::Bpref => query.binary_preference(),
        Measure::Judged => query.judged(),
        Measure::Unjudged if query.top.is_empty() => 0.0,
        Measure::Unjudged => 1.0 - query.judged(),
        Measure::Tau => query.tau(),
        Measure::Prefix => query.prefix(),
    }
}

/// A ranking and its judgements.
struct Query<'a> {
    /// The hits up to the cut-off.
    top: &'a [Option<usize>],
    all: &'a [Option<usize>],
    judgements: &'a Judgements,
    /// The grade that relevance starts from, if it is not that of the judgements.
    from: Option<u16>,
}

impl Query<'_> {
    /// The grade of a hit; 0 if it is not judged or judged as not relevant.
    fn grade(&self, hit: Option<usize>) -> f64 {
        match hit {
            Some(position) => self.judgements.grades[position].max(0.0),
            None => 0.0,
        }
    }

    fn is_relevant(&self, hit: Option<usize>) -> bool {
        self.judgements.is_relevant(self.grade(hit), self.from)
    }

    /// Relevant tools among the first so many hits.
    fn found(&self, depth: usize) -> usize {
        let top = &self.all[..self.all.len().min(depth)];
        top.iter().filter(|hit| self.is_relevant(**hit)).count()
    }

    fn ndcg(&self, depth: usize, gain: fn(f64) -> f64) -> f64 {
        let found = self.top.iter().map(|&hit| gain(self.grade(hit)));
        let found = discounted(found);
        let mut best: Vec<f64> = self.judgements.grades.clone();
        best.retain(|grade| *grade > 0.0);
        best.sort_by(|a, b| b.total_cmp(a));
        best.truncate(depth);
        let best = discounted(best.into_iter().map(gain));
        if best > 0.0 { found / best } else { 0.0 }
    }

    fn recall(&self) -> f64 {
        let needs = self.judgements.needs(self.from);
        let mut met = 0;
        for need in &needs {
            // One of the alternatives is enough.
            met += usize::from(need.iter().any(|tool| self.top.contains(&Some(*tool))));
        }
        share(met as f64, needs.len())
    }

    fn reciprocal_rank(&self) -> f64 {
        for (index, &hit) in self.top.iter().enumerate() {
            if self.is_relevant(hit) {
                return 1.0 / (index + 1) as f64;
            }
        }
        0.0
    }

    fn average_precision(&self) -> f64 {
        let (mut found, mut sum) = (0, 0.0);
        for (index, &hit) in self.top.iter().enumerate() {
            if self.is_relevant(hit) {
                found += 1;
                sum += f64::from(found) / (index + 1) as f64;
            }
        }
        share(sum, self.judgements.relevant(self.from))
    }

    fn rank_biased(&self, persistence: f64) -> f64 {
        let mut weight = 1.0 - persistence;
        let mut sum = 0.0;
        for &hit in self.top {
            if self.is_relevant(hit) {
                sum += weight;
            }
            weight *= persistence;
        }
        sum
    }

    fn expected_reciprocal_rank(&self) -> f64 {
        let (mut unsatisfied, mut sum) = (1.0, 0.0);
        for (index, &hit) in self.top.iter().enumerate() {
            let satisfies = (self.grade(hit).exp2() - 1.0) / HIGHEST_GRADE.exp2();
            // It is a probability, also for a grade beyond the scale.
            let satisfies = satisfies.min(1.0);
            sum += unsatisfied * satisfies / (index + 1) as f64;
            unsatisfied *= 1.0 - satisfies;
        }
        sum
    }

    fn binary_preference(&self) -> f64 {
        let relevant = self.judgements.relevant(self.from);
        let irrelevant = self.judgements.grades.len() - relevant;
        let most = relevant.min(irrelevant).max(1) as f64;
        let (mut above, mut sum) = (0, 0.0);
        for &hit in self.top {
            // Hits that are not judged are no evidence for or against the ranking.
            if hit.is_none() {
                continue;
            }
            if self.is_relevant(hit) {
                // As trec_eval has it, no more of them count than there are relevant tools.
                sum += 1.0 - above.min(relevant) as f64 / most;
            } else {
                above += 1;
            }
        }
        share(sum, relevant)
    }

    fn judged(&self) -> f64 {
        let judged = self.top.iter().flatten().count();
        share(judged as f64, self.top.len())
    }

    /// A tool that was not found comes after all that were. Between two of them nothing is known.
    fn tau(&self) -> f64 {
        let order = &self.judgements.order;
        if order.len() < 2 {
            return f64::NAN;
        }
        let mut ranks = Vec::with_capacity(order.len());
        for &tool in order {
            let rank = self.top.iter().position(|hit| *hit == Some(tool));
            ranks.push(rank.unwrap_or(usize::MAX));
        }
        let mut sum = 0.0;
        for (index, earlier) in ranks.iter().enumerate() {
            for later in &ranks[index + 1..] {
                sum += match earlier.cmp(later) {
                    std::cmp::Ordering::Less => 1.0,
                    // Only tools that were not found have equal ranks.
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => -1.0,
                };
            }
        }
        sum / (ranks.len() * (ranks.len() - 1) / 2) as f64
    }

    fn prefix(&self) -> f64 {
        let order = &self.judgements.order;
        if order.len() < 2 {
            return f64::NAN;
        }
        let same = order.iter().zip(self.all);
        let same = same.take_while(|(tool, hit)| **hit == Some(**tool)).count();
        same as f64 / order.len() as f64
    }
}

fn share(part: f64, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}

fn discounted(gains: impl Iterator<Item = f64>) -> f64 {
    // From 0, and not by `sum`, which is -0 for an empty slice.
    let mut total = 0.0;
    for (index, gain) in gains.enumerate() {
        if gain > 0.0 {
            total += gain / ((index + 2) as f64).log2();
        }
    }
    total
}
