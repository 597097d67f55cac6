//! Embedders compared on the same sets: quality, time, and what endpoints cost.

use serde::Serialize;

use super::Evaluation;
use super::bootstrap::{Interval, Paired, paired};
use super::judge::Scores;
use super::latency::Latency;
use super::metrics::{Metric, headline};
use super::report::Report;

/// The arms whose quality is compared, where they were measured.
const HYBRID: &str = "hybrid";
const DENSE: &str = "dense";

/// What an endpoint has counted while a set was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Texts of tools that were embedded now; 0 where their vectors were stored before.
    pub tool_texts: u64,
    /// Tokens of these.
    pub tool_tokens: u64,
    /// Texts of requests.
    pub query_texts: u64,
    /// Tokens of these.
    pub query_tokens: u64,
    /// Price of a million tokens.
    pub price_per_million: Option<f64>,
}

impl Spent {
    /// The price of so many tokens; `None` without a price, or without tokens.
    fn price(&self, tokens: u64) -> Option<f64> {
        if tokens == 0 {
            return None;
        }
        Some(self.price_per_million? * tokens as f64 / 1e6)
    }
}

/// The figures of one embedder on one set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmbedderFigures {
    /// The name on the command line.
    pub embedder: String,
    /// The metric of the following: nDCG at the deepest cut-off.
    pub metric: String,
    /// By the dense legs alone.
    pub dense: Option<f64>,
    /// By words and dense legs.
    pub hybrid: Option<f64>,
    /// `hybrid` less that of the first embedder, over the same requests.
    pub difference: Option<f64>,
    /// Its 95% interval.
    pub difference_ci95: Option<Interval>,
    /// Requests whose answer lacked something.
    pub degraded: usize,
    /// Seconds to embed every tool; null where vectors were stored in several passes.
    pub tools_s: Option<f64>,
    /// Median time to embed a request, without a cache.
    pub request_ms: Option<f64>,
    /// 95th percentile of that.
    pub request_p95_ms: Option<f64>,
    /// Price of the tokens of all tools; null without a price, or where they were embedded before.
    pub tools_price: Option<f64>,
    /// Price of the tokens of a thousand requests.
    pub thousand_requests_price: Option<f64>,
}

impl EmbedderFigures {
    /// The figures of an evaluation. `first` is that of the first embedder on the same set; none for
    /// the first itself.
    pub fn of(
        embedder: &str,
        evaluation: &Evaluation,
        first: Option<&Evaluation>,
        spent: Spent,
    ) -> Self {
        let report = &evaluation.report;
        let metric = metric_of(report);
        let mean = |name: &str| report.arm(name)?.means.value(metric);
        let compared = first.and_then(|first| compared(evaluation, first, metric));
        let (difference, difference_ci95) = match compared {
            Some(compared) => (Some(compared.difference), Some(compared.interval)),
            None => (None, None),
        };
        let main = report.arm(&report.main_arm);
        let (request_ms, request_p95_ms) = match main.and_then(|arm| arm.latency) {
            Some(Latency { embed_ms, .. }) => (Some(embed_ms.p50), Some(embed_ms.p95)),
            None => (None, None),
        };
        let price = spent.price(spent.query_tokens);
        EmbedderFigures {
            embedder: embedder.to_owned(),
            metric: metric.to_string(),
            dense: mean(DENSE),
            hybrid: mean(HYBRID).or(mean(&report.main_arm)),
            difference,
            difference_ci95,
            degraded: main.map_or(0, |arm| arm.degraded),
            tools_s: report.cost.as_ref().and_then(|cost| cost.embed_s),
            request_ms,
            request_p95_ms,
            tools_price: spent.price(spent.tool_tokens),
            thousand_requests_price: price.map(|price| price / spent.query_texts as f64 * 1e3),
        }
    }
}

/// The evaluation less the first one, query by query.
fn compared(evaluation: &Evaluation, first: &Evaluation, metric: Metric) -> Option<Paired> {
    let (own, other) = (column(evaluation, metric)?, column(first, metric)?);
    Some(paired(&own, &other, evaluation.report.seed))
}

fn metric_of(report: &Report) -> Metric {
    let mut metrics = Vec::new();
    for arm in &report.arms {
        metrics.extend(arm.means.metrics());
    }
    headline(&metrics)
}

/// The metric of the main arm by query.
fn column(evaluation: &Evaluation, metric: Metric) -> Option<Vec<f64>> {
    let main = &evaluation.report.main_arm;
    let run = evaluation.runs.iter().find(|run| run.name == *main)?;
    // Every embedder answered the same queries, so that their columns are pairs.
    let scores = Scores::strict(&evaluation.set, run, &[metric]);
    Some(scores.column(metric).to_vec())
}
