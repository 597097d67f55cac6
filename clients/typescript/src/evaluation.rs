//! How well a catalog answers judged queries, as JSON.

use serde_json::json;
use toolscout_native::evaluation::Evaluation;

/// The evaluation for JavaScript.
pub fn json(evaluation: &Evaluation) -> String {
    let mut metrics = serde_json::Map::new();
    for figure in &evaluation.figures {
        let [low, high] = figure.ci95;
        let of_metric = json!({"mean": figure.mean, "low": low, "high": high});
        metrics.insert(figure.metric.clone(), of_metric);
    }
    let evaluation = json!({
        "metrics": metrics,
        "queries": evaluation.queries,
        "latency": evaluation.latency,
        "tools": evaluation.tools,
    });
    evaluation.to_string()
}
