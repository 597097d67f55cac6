//! Judged queries, and how well a catalog answers them.

use std::sync::Arc;

use napi::Result;
use serde_json::json;
use toolscout::eval::answered::{Answer, AnsweredQuery, DEPTH, figures};
use toolscout::eval::dataset::pasted;
use toolscout::eval::latency::Latency;
use toolscout::eval::metrics::{Metric, default_depths};
use toolscout_index::{Query, Searcher, ToolId};

use crate::errors::OrReject;
use crate::work::Signal;

/// Searches for each query of a text, as `toolscout eval` does in the mode of the query, and returns
/// figures and answers as JSON.
///
/// # Errors
/// `invalid_queries` that names the line, `cancelled`, and errors of the engine.
pub fn evaluate(
    searcher: &Arc<Searcher>,
    text: &str,
    signal: &Signal,
    query: &dyn Fn(&str) -> Query,
) -> Result<String> {
    let ids: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
    let (mut queries, mut timings) = (Vec::new(), Vec::new());
    for asked in pasted::read(text, None, &ids).or_reject()? {
        signal.check()?;
        let results = searcher.search(&query(&asked.text).k(DEPTH)).or_reject()?;
        timings.push(results.timings);
        let answer = Answer::of_results(&results, asked.relevant.as_deref());
        queries.push(AnsweredQuery::new(asked, vec![answer]));
    }
    let (depths, _) = default_depths(ids.len());
    let mut metrics = serde_json::Map::new();
    for figure in figures(&queries, 0, &Metric::all(&depths)) {
        let [low, high] = figure.ci95;
        let of_metric = json!({"mean": figure.mean, "low": low, "high": high});
        metrics.insert(figure.metric, of_metric);
    }
    let evaluation = json!({
        "metrics": metrics,
        "queries": queries,
        "latency": Latency::over(&timings),
        "tools": ids.len(),
    });
    Ok(evaluation.to_string())
}
