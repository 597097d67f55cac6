//! What is measured besides quality.

use std::fmt::Write as _;

use super::plot::{Axis, Curve, Group, Shape, Whisker, lines, whiskers};
use super::{escape, figure, share};
use crate::report::Report;
use toolscout_base::printable::counted;

/// Latency of each arm.
pub(super) fn latency(report: &Report) -> String {
    let mut groups = Vec::new();
    let mut highest = 0.0_f64;
    for arm in &report.arms {
        let Some(latency) = arm.latency else {
            continue;
        };
        let total = latency.total_ms;
        highest = highest.max(total.p95);
        let row = Whisker {
            name: arm.name.clone(),
            value: total.p50,
            low: total.p50,
            high: total.p95,
            label: format!("{:.2} / {:.2} / {:.2} ms", total.p50, total.p95, total.p99),
        };
        groups.push(Group {
            name: arm.name.clone(),
            rows: vec![row],
        });
    }
    // The labels stand right of the whiskers and need as much room again.
    let end = highest * 1.6;
    if end <= 0.0 {
        return String::new();
    }
    let caption = "One search on one thread, nothing cached: median (dot), 95th percentile (end of the line); p50 / p95 / p99.";
    figure("Latency", caption, &whiskers(&Axis::to("ms", end), &groups))
}

/// How well signals tell queries that no tool can serve.
pub(super) fn no_match(report: &Report) -> String {
    let Some(found) = &report.no_match else {
        return String::new();
    };
    let mut drawn = Vec::with_capacity(found.signals.len() + 1);
    for (name, signal) in &found.signals {
        let curve = signal.curve.iter();
        // Every curve ends where each query is answered with "no match".
        let points = curve.map(|point| (point.false_no_match, point.accuracy));
        drawn.push(Curve {
            name: format!("{name} (AUC {})", share(signal.auc)),
            points: points.chain([(1.0, 1.0)]).collect(),
            shape: Shape::Steps,
        });
    }
    drawn.push(Curve {
        name: "chance".into(),
        points: vec![(0.0, 0.0), (1.0, 1.0)],
        shape: Shape::Straight,
    });
    let picture = lines(
        &Axis::to("false \"no match\" on answerable queries", 1.0),
        &Axis::to("unanswerable recognised", 1.0),
        &drawn,
        Some((
            "settings of the engine",
            found.false_no_match,
            found.accuracy,
        )),
    );
    let caption = format!(
        "A seeded fifth of the tools is held out; {} queries have no tool left, {} do. Each line is what a threshold on one signal of the arm {} would bring.",
        found.unanswerable,
        found.answerable,
        escape(&found.arm)
    );
    figure("No match", &caption, &picture)
}

/// The cost of the index, and tokens.
pub(super) fn cost(report: &Report) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    if let Some(cost) = &report.cost {
        rows.push((
            "index an empty catalog".into(),
            format!(
                "{:.2} s, {:.0} tools per second",
                cost.index_s, cost.index_tools_per_s
            ),
        ));
        if let (Some(seconds), Some(rate)) = (cost.embed_s, cost.embed_tools_per_s) {
            rows.push((
                "embed every tool".into(),
                format!("{seconds:.1} s, {rate:.0} tools per second"),
            ));
        }
        rows.push(("open".into(), format!("{:.3} s", cost.open_s)));
        // Not every system tells the peak.
        if let Some(mb) = cost.rss_mb {
            rows.push(("peak memory".into(), format!("{mb:.0} MiB")));
        }
        rows.push(("disk".into(), format!("{:.1} MiB", cost.disk_mb)));
    }
    if let Some(tokens) = &report.tokens {
        // Against all tools in the prompt, as an agent without search has them.
        let saved = 100.0 * (1.0 - tokens.answer / tokens.catalog.max(1) as f64);
        rows.push((
            format!("tokens of all tools ({})", tokens.tokenizer),
            tokens.catalog.to_string(),
        ));
        rows.push((
            format!(
                "tokens of a search result of {}",
                counted(tokens.answer_hits, "tool")
            ),
            format!("{:.0} ({saved:.1}% saved)", tokens.answer),
        ));
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h3>Cost</h3><table>");
    for (name, value) in &rows {
        let (name, value) = (escape(name), escape(value));
        // Writing to a string cannot fail.
        let _ = write!(html, "<tr><th>{name}</th><td>{value}</td></tr>");
    }
    html + "</table>"
}
