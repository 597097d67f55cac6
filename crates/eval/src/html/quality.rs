//! Figures of quality.

use std::fmt::Write as _;

use super::plot::{Axis, Group, Whisker, whiskers};
use super::{escape, share};
use crate::bootstrap::Interval;
use crate::metrics::{Measure, Metric, headline};
use crate::report::{ArmReport, Report, macro_average, marked};

/// The main metric of every set and arm.
pub(super) fn overview(reports: &[Report]) -> String {
    let Some(first) = reports.first() else {
        return String::new();
    };
    // One metric for all sets, so that a column can be read from top to bottom.
    let Some(metric) = first.arms.first().map(ndcg_of) else {
        return String::new();
    };
    let averages = macro_average(reports);
    let mut html = String::from(
        "<section><h2>All sets</h2><div class=\"wide\"><table><tr><th>set</th><th>tools</th><th>queries</th>",
    );
    for (arm, _) in &averages {
        let _ = write!(html, "<th>{}</th>", escape(arm));
    }
    html.push_str("</tr>");
    for report in reports {
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td>",
            escape(&report.marked_set()),
            report.tools,
            report.queries
        );
        for (name, _) in &averages {
            let value = report.arm(name).and_then(|arm| arm.means.value(metric));
            let _ = write!(html, "<td>{}</td>", value.map(share).unwrap_or_default());
        }
        html.push_str("</tr>");
    }
    html.push_str("<tr><th>macro average</th><td></td><td></td>");
    for (_, means) in &averages {
        let _ = write!(
            html,
            "<td><b>{}</b></td>",
            means.value(metric).map(share).unwrap_or_default()
        );
    }
    let _ = write!(
        html,
        "</tr></table></div><p class=\"note\">{metric}; every set weighs the same.</p></section>"
    );
    html
}

/// The metrics of the plots: each measure at the depth that matters most to an agent.
fn drawn_metrics(arm: &ArmReport) -> Vec<Metric> {
    let deepest = ndcg_of(arm).depth;
    let mut metrics = arm.means.metrics();
    metrics.retain(|metric| match metric.measure {
        Measure::Ndcg | Measure::Mrr => metric.depth == deepest,
        Measure::Recall | Measure::Complete => metric.depth == Some(5),
        // Where one tool is right, success equals recall.
        Measure::Success => false,
        _ => true,
    });
    metrics
}

fn ndcg_of(arm: &ArmReport) -> Metric {
    headline(&arm.means.metrics())
}

/// The mean of each metric of the plots, with its interval.
pub(super) fn quality(report: &Report) -> String {
    let metrics = report.arms.first().map(drawn_metrics).unwrap_or_default();
    let mut groups = Vec::with_capacity(metrics.len());
    for metric in metrics {
        let arms = report.arms.iter();
        groups.push(Group {
            name: metric.to_string(),
            rows: arms.filter_map(|arm| row(arm, metric)).collect(),
        });
    }
    whiskers(&Axis::to("mean", 1.0), &groups)
}

/// `None` without an interval: a report of another program may have none.
fn row(arm: &ArmReport, metric: Metric) -> Option<Whisker> {
    let (value, [low, high]) = arm.figure(metric)?;
    Some(Whisker {
        name: arm.name.clone(),
        value,
        low,
        high,
        label: share(value),
    })
}

/// Every metric of every arm.
pub(super) fn quality_table(report: &Report) -> String {
    if report.arms.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<div class=\"wide\"><table><tr><th>{}</th>",
        escape(&report.marked_set())
    );
    for arm in &report.arms {
        let _ = write!(html, "<th>{}</th>", escape(&arm.name));
    }
    html.push_str("</tr>");
    for figures in report.figures() {
        for metric in figures.metrics() {
            let about = escape(&figures.about);
            let _ = write!(html, "<tr><th>{metric} <small>{about}</small></th>");
            for arm in &report.arms {
                let value = figures.value(&arm.name, metric);
                let _ = write!(html, "<td>{}</td>", value.map(cell).unwrap_or_default());
            }
            html.push_str("</tr>");
        }
    }
    html.push_str("</table></div>");
    html
}

/// A figure, with its interval if it has one.
fn cell((value, interval): (f64, Option<Interval>)) -> String {
    let value = share(value);
    let Some([low, high]) = interval else {
        return value;
    };
    format!("{value} <small>{} to {}</small>", share(low), share(high))
}

/// The main metric by the source of the queries.
pub(super) fn sources(report: &Report) -> String {
    let Some(first) = report.arms.first() else {
        return String::new();
    };
    if report.sources.is_empty() {
        return String::new();
    }
    let metric = ndcg_of(first);
    let mut html = format!(
        "<h3>By source</h3><div class=\"wide\"><table><tr><th>{metric} on {}</th><th>queries</th>",
        escape(&report.marked_set())
    );
    for arm in &report.arms {
        let _ = write!(html, "<th>{}</th>", escape(&arm.name));
    }
    html.push_str("</tr>");
    for source in &report.sources {
        let name = marked(&source.source, source.queries);
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td>",
            escape(&name),
            source.queries
        );
        for (_, means) in &source.arms {
            let value = means.value(metric).map(share).unwrap_or_default();
            let _ = write!(html, "<td>{value}</td>");
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

/// The paired comparisons of arms.
pub(super) fn significance(report: &Report) -> String {
    if report.significance.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<h3>Comparisons</h3><div class=\"wide\"><table><tr><th>{}</th><th>b</th><th>metric</th><th>a - b</th><th>p</th><th>p Holm</th></tr>",
        escape(&format!("a, on {}", report.marked_set()))
    );
    for pair in &report.significance {
        let [low, high] = pair.ci95;
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{:+.3} <small>{low:+.3} to {high:+.3}</small></td><td>{:.4}</td><td>{:.4}</td></tr>",
            escape(&pair.a),
            escape(&pair.b),
            escape(&pair.metric),
            pair.difference,
            pair.p,
            pair.p_holm
        );
    }
    html.push_str("</table></div><p class=\"note\">p: how often chance alone makes a difference at least as large (paired randomisation); p Holm: the same, corrected for the number of pairs.</p>");
    html
}
