//! Embedders compared on the same sets: quality, time, and what endpoints cost.

use serde::Serialize;

use super::Evaluation;
use super::bootstrap::{Interval, paired};
use super::judge::Scores;
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
        let mean = |name: &str| {
            let arm = report.arms.iter().find(|arm| arm.name == name)?;
            arm.means.value(metric)
        };
        let compared = first.and_then(|first| {
            let (own, other) = (column(evaluation, metric)?, column(first, metric)?);
            Some(paired(&own, &other, report.seed))
        });
        let main = report.arms.iter().find(|arm| arm.name == report.main_arm);
        let embedding = main.and_then(|arm| Some(arm.latency?.embed_ms));
        let price = |tokens: u64| Some(spent.price_per_million? * tokens as f64 / 1e6);
        EmbedderFigures {
            embedder: embedder.to_owned(),
            metric: metric.to_string(),
            dense: mean(DENSE),
            hybrid: mean(HYBRID).or_else(|| mean(&report.main_arm)),
            difference: compared.as_ref().map(|compared| compared.difference),
            difference_ci95: compared.map(|compared| compared.interval),
            degraded: main.map_or(0, |arm| arm.degraded),
            tools_s: report.cost.as_ref().and_then(|cost| cost.embed_s),
            request_ms: embedding.map(|embedding| embedding.p50),
            request_p95_ms: embedding.map(|embedding| embedding.p95),
            tools_price: price(spent.tool_tokens).filter(|_| spent.tool_tokens > 0),
            thousand_requests_price: price(spent.query_tokens)
                .filter(|_| spent.query_tokens > 0)
                .map(|price| price / spent.query_texts as f64 * 1e3),
        }
    }
}

fn metric_of(report: &Report) -> Metric {
    let metrics: Vec<Metric> = report
        .arms
        .iter()
        .flat_map(|arm| arm.means.0.iter().map(|(metric, _)| *metric))
        .collect();
    headline(&metrics)
}

/// The metric of the main arm by query.
fn column(evaluation: &Evaluation, metric: Metric) -> Option<Vec<f64>> {
    let main = &evaluation.report.main_arm;
    let run = evaluation.runs.iter().find(|run| run.name == *main)?;
    let scores = Scores::strict(&evaluation.set, run, &[metric]);
    Some(scores.column(metric).to_vec())
}
