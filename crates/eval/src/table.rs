//! The results as tables for a terminal, or as Markdown.

mod compared;
mod remarks;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, Row, Table};

use super::ablation;
use super::agent::learning::LearningReport;
use super::agent::report::macro_average as agent_averages;
use super::agent::{AgentReport, ArmFigures};
use super::bootstrap::{Interval, macro_interval};
use super::cost::CostReport;
use super::embedding::EmbedderFigures;
use super::latency::Latency;
use super::metrics::{Measure, Metric};
use super::report::{ArmReport, Report, macro_average, marked};

pub use compared::{changes, diff, moved};
pub use remarks::{said_sources, small_sets, sources, trained_on, tuned_on};

const OF_SIGNIFICANCE: &str = "\
a - b: difference of the means; p: how often chance alone makes a difference at least as large;
p Holm: the same, corrected for the number of pairs";
const OF_NO_MATCH: &str = "\
unanswerable: without a relevant tool, once a fifth of the tools is removed
accuracy, false: share of the unanswerable and of the other queries answered with \"no match\"; with
  the default settings that is hardly any, and a threshold (search --min-confidence) makes it more
signal: coverage is the share of the query's words in the best tool, cosine the best similarity of
  embeddings, bm25 and score the best of the hits, confidence that of the answer
AUC: how well the signal alone separates both kinds of queries; 0.5 is chance";

const OF_CONDENSED: &str = "\
the same figures without hits that are not judged: what the judgements alone say";

/// The style of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns.
    Terminal,
    /// Markdown.
    Markdown,
}

/// Quality and latency of every arm on every set; with several sets, a macro average per arm too.
pub fn quality(reports: &[Report], style: Style) -> String {
    let metrics = shown_metrics(reports);
    let mut header = vec!["set".to_owned(), "arm".to_owned()];
    header.extend(metrics.iter().map(Metric::to_string));
    header.extend(["p50 ms", "p95 ms"].map(String::from));
    let mut table = new_table(style, header);
    for report in reports {
        for arm in &report.arms {
            table.add_row(arm_row(report, arm, &metrics, style));
        }
    }
    if reports.len() > 1 {
        for (arm, means) in macro_average(reports) {
            let mut row = vec!["macro average".to_owned(), arm.clone()];
            for metric in &metrics {
                let interval = macro_interval_of(reports, &arm, *metric);
                row.push(figure(means.value(*metric), interval, style));
            }
            // Only metrics are averaged over sets, so both latencies stay empty.
            row.extend([String::new(), String::new()]);
            table.add_row(row);
        }
    }
    finish(table, 2)
}

/// Every figure of the reports, one row for each set and metric; empty if [`quality`] has them all.
pub fn figures(reports: &[Report], style: Style) -> String {
    let shown = shown_metrics(reports);
    if reports.iter().all(|report| is_in_quality(report, &shown)) {
        return String::new();
    }
    let arms = arm_names(reports);
    let mut table = new_table(style, ["set", "metric", "about"].iter().chain(&arms));
    for report in reports {
        for figures in report.figures() {
            for metric in figures.metrics() {
                let mut row = vec![
                    report.marked_set(),
                    metric.to_string(),
                    figures.about.clone(),
                ];
                for arm in &arms {
                    let (value, interval) = figures.value(arm, metric).unzip();
                    // On one line in a terminal too, as in Markdown.
                    row.push(figure(value, interval.flatten(), Style::Markdown));
                }
                table.add_row(row);
            }
        }
    }
    finish(table, 3)
}

/// Whether [`quality`] has every figure of a report: it has those of all queries and hits alone.
fn is_in_quality(report: &Report, shown: &[Metric]) -> bool {
    match report.figures().as_slice() {
        [] => true,
        [all] => all.metrics().iter().all(|metric| shown.contains(metric)),
        _ => false,
    }
}

/// The names of all arms, each once, in the order of the reports.
fn arm_names(reports: &[Report]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for report in reports {
        for arm in &report.arms {
            if !names.contains(&arm.name.as_str()) {
                names.push(&arm.name);
            }
        }
    }
    names
}

/// The ablation, one row per step. `sets` names the columns.
pub fn ablation(rows: &[ablation::Row], sets: &[&str], style: Style) -> String {
    let mut header = vec!["step"];
    header.extend(sets);
    header.extend(["mean", "95% interval", "added", "95% interval"]);
    let mut table = new_table(style, header);
    for row in rows {
        // The first step adds nothing: there is no step before it.
        let (added, of_added) = match row.added {
            Some((added, interval)) => (signed(added), signed_interval(interval)),
            None => Default::default(),
        };
        let (mean, of_mean) = row.mean;
        let figures = row.by_set.iter().copied().map(share).chain([
            share(mean),
            interval(of_mean),
            added,
            of_added,
        ]);
        table.add_row([row.name.clone()].into_iter().chain(figures));
    }
    finish(table, 1)
}

/// Embedders on the same sets, one row for each set and embedder.
pub fn embedders(rows: &[(String, EmbedderFigures)], style: Style) -> String {
    let metric = match rows {
        [(_, first), ..] => first.metric.as_str(),
        [] => "ndcg",
    };
    let header = format!(
        "set, embedder, {metric} dense, {metric} hybrid, to the first, 95% interval, degraded, tools s, \
         request p50 ms, p95 ms, tools price, 1,000 requests"
    );
    let mut table = new_table(style, header.split(", "));
    for (set, row) in rows {
        table.add_row([
            set.clone(),
            row.embedder.clone(),
            or_dash(row.dense.map(share)),
            or_dash(row.hybrid.map(share)),
            or_dash(row.difference.map(signed)),
            or_dash(row.difference_ci95.map(signed_interval)),
            row.degraded.to_string(),
            decimals(row.tools_s, 1),
            or_dash(row.request_ms.map(milliseconds)),
            or_dash(row.request_p95_ms.map(milliseconds)),
            decimals(row.tools_price, 4),
            decimals(row.thousand_requests_price, 4),
        ]);
    }
    finish(table, 2)
}

/// The cost of the index, one row per set.
pub fn cost(reports: &[Report], style: Style) -> String {
    let header = "set, tools, index s, tools/s, embed s, tools/s, open s, peak MiB, disk MiB";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        if let Some(cost) = &report.cost {
            table.add_row(cost_row(report.marked_set(), report.tools, cost));
        }
        for point in &report.scale {
            table.add_row(cost_row(
                format!("{} at scale", report.marked_set()),
                point.tools,
                &point.cost,
            ));
        }
    }
    finish(table, 1)
}

/// Latency by stage at every size, one row per arm.
pub fn latency(reports: &[Report], style: Style) -> String {
    let header = "set, tools, arm, embed, lexical, dense, fuse, rank, total p50, p95, p99";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        for arm in &report.arms {
            // A file of a run has no latency, and no arm has one without the part `cost`.
            if let Some(latency) = &arm.latency {
                table.add_row(latency_row(report, report.tools, &arm.name, latency));
            }
        }
        for point in &report.scale {
            for (arm, latency) in &point.latency {
                table.add_row(latency_row(report, point.tools, arm, latency));
            }
        }
    }
    finish(table, 3)
}

fn latency_row(report: &Report, tools: usize, arm: &str, latency: &Latency) -> Vec<String> {
    let Latency {
        embed_ms,
        lexical_ms,
        dense_ms,
        fuse_ms,
        rank_ms,
        total_ms,
        ..
    } = latency;
    let medians = [embed_ms, lexical_ms, dense_ms, fuse_ms, rank_ms, total_ms];
    let mut row = vec![report.marked_set(), tools.to_string(), arm.to_owned()];
    row.extend(medians.map(|stage| milliseconds(stage.p50)));
    row.extend([total_ms.p95, total_ms.p99].map(milliseconds));
    row
}

/// Abstention, one row per set and signal.
pub fn no_match(reports: &[Report], style: Style) -> String {
    let header = "set, arm, unanswerable, answerable, accuracy, false, signal, AUC, \
        accuracy at 10% false";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        let Some(found) = &report.no_match else {
            continue;
        };
        for (name, signal) in &found.signals {
            table.add_row([
                report.marked_set(),
                found.arm.clone(),
                found.unanswerable.to_string(),
                found.answerable.to_string(),
                share(found.accuracy),
                share(found.false_no_match),
                name.clone(),
                share(signal.auc),
                share(signal.accuracy_at_affordable),
            ]);
        }
    }
    captioned(finish(table, 2), OF_NO_MATCH)
}

/// The gain of a usage memory, one row per set.
pub fn memory(reports: &[Report], style: Style) -> String {
    let header = "set, remembered, asked, tool known, without, with, 95% of the gain, p";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        // Measured on request alone.
        let Some(found) = &report.memory else {
            continue;
        };
        table.add_row([
            report.marked_set(),
            found.remembered.to_string(),
            found.asked.to_string(),
            share(found.known),
            share(found.without),
            share(found.with),
            signed_interval(found.gain_ci95),
            format!("{:.4}", found.gain_p),
        ]);
    }
    finish(table, 1)
}

/// Tokens of tools, one row per set and format.
pub fn tokens(reports: &[Report], style: Style) -> String {
    let mut table = new_table(style, "set, format, catalog, answer, saved".split(", "));
    for report in reports {
        let Some(found) = &report.tokens else {
            continue;
        };
        for (name, tokens) in &found.formats {
            let saved = 100.0 * (1.0 - tokens.answer / tokens.catalog.max(1) as f64);
            let answer = format!("{:.0}", tokens.answer);
            table.add_row([
                report.marked_set(),
                name.clone(),
                tokens.catalog.to_string(),
                answer,
                format!("{saved:.1}%"),
            ]);
        }
    }
    finish(table, 2)
}

/// The paired comparisons of arms.
pub fn significance(reports: &[Report], style: Style) -> String {
    let header = "set, a, b, metric, a - b, 95% interval, p, p Holm";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        for pair in &report.significance {
            table.add_row([
                report.marked_set(),
                pair.a.clone(),
                pair.b.clone(),
                pair.metric.clone(),
                signed(pair.difference),
                signed_interval(pair.ci95),
                format!("{:.4}", pair.p),
                format!("{:.4}", pair.p_holm),
            ]);
        }
    }
    captioned(finish(table, 4), OF_SIGNIFICANCE)
}

/// Figures without hits that are not judged, for sets that judge tools as not relevant.
pub fn condensed(reports: &[Report], style: Style) -> String {
    let metrics = shown_metrics(reports);
    let mut header = vec!["set".to_owned(), "arm".to_owned()];
    header.extend(metrics.iter().map(Metric::to_string));
    let mut table = new_table(style, header);
    for report in reports {
        for arm in &report.arms {
            let Some(means) = &arm.condensed else {
                continue;
            };
            let mut row = vec![report.marked_set(), arm.name.clone()];
            for metric in &metrics {
                row.push(figure(means.value(*metric), None, style));
            }
            table.add_row(row);
        }
    }
    captioned(finish(table, 2), OF_CONDENSED)
}

/// Cost and success of conversations by policy; with several sets, a macro average per policy too.
pub fn agent(reports: &[AgentReport], style: Style) -> String {
    let header = "set, tools, budget, success, 95% interval, needs met, searches, rounds, tokens in, \
        fresh, tokens out, loaded, unloaded, refused";
    let mut table = new_table(style, header.split(", "));
    for report in reports {
        for arm in &report.arms {
            let set = marked(&report.set, report.queries);
            table.add_row(agent_row(&set, arm));
        }
    }
    if reports.len() > 1 {
        for arm in agent_averages(reports) {
            table.add_row(agent_row("macro average", &arm));
        }
    }
    finish(table, 2)
}

fn agent_row(set: &str, arm: &ArmFigures) -> [String; 14] {
    [
        set.into(),
        arm.policy.clone(),
        or_dash(arm.budget_tokens.as_ref().map(usize::to_string)),
        share(arm.success),
        // A macro average has no interval.
        arm.success_ci95.map(interval).unwrap_or_default(),
        share(arm.needs_met),
        format!("{:.2}", arm.searches),
        format!("{:.2}", arm.rounds),
        format!("{:.0}", arm.tokens_in),
        format!("{:.0}", arm.tokens_in_fresh),
        format!("{:.0}", arm.tokens_out),
        format!("{:.2}", arm.tools_injected),
        format!("{:.2}", arm.tools_evicted),
        arm.calls_refused.to_string(),
    ]
}

/// What usage memories learned from conversations: a row before and a row after for each set.
pub fn learning(reports: &[LearningReport], style: Style) -> String {
    let mut header = vec!["set", "memory", "remembered", "held out"];
    // Every set is measured by the same metrics.
    if let Some(first) = reports.first() {
        header.extend(first.searches.iter().map(|gain| gain.metric.as_str()));
    }
    header.extend(["turns met", "searches"]);
    let mut table = new_table(style, header);
    for report in reports {
        let before = report.searches.iter().map(|gain| gain.before).collect();
        let after = report.searches.iter().map(|gain| gain.after).collect();
        let taught = format!("after {} conversations", report.conversations);
        table.add_row(learning_row(report, "off", 0, before, &report.before));
        table.add_row(learning_row(
            report,
            &taught,
            report.remembered,
            after,
            &report.after,
        ));
    }
    finish(table, 2)
}

fn learning_row(
    report: &LearningReport,
    memory: &str,
    remembered: usize,
    gains: Vec<f64>,
    arm: &ArmFigures,
) -> Vec<String> {
    let mut row = vec![
        marked(&report.set, report.held_out),
        memory.to_owned(),
        remembered.to_string(),
        report.held_out.to_string(),
    ];
    row.extend(gains.into_iter().map(share));
    row.extend([share(arm.success), format!("{:.2}", arm.searches)]);
    row
}

/// The columns of the quality table: the metrics at the deepest cut-offs.
fn shown_metrics(reports: &[Report]) -> Vec<Metric> {
    let chosen = reports.iter().max_by_key(|report| report.shown.len());
    if let Some(report) = chosen
        && !report.shown.is_empty()
    {
        return report.shown.clone();
    }
    // A set with few tools lacks the deeper cut-offs, so the longest list counts.
    let mut measured = Vec::new();
    for report in reports {
        if let Some(arm) = report.arms.first()
            && arm.means.0.len() >= measured.len()
        {
            measured = arm.means.metrics();
        }
    }
    let deepest = measured.iter().filter_map(|metric| metric.depth).max();
    measured.retain(|metric| is_usual(*metric, deepest.unwrap_or(10)));
    measured
}

/// Whether the table of quality has a metric by default.
fn is_usual(metric: Metric, deepest: usize) -> bool {
    match metric.measure {
        Measure::Ndcg | Measure::Recall => metric.depth == Some(5) || metric.depth == Some(deepest),
        Measure::Complete => metric.depth == Some(5),
        // The table has no room for it: where one tool is right, it equals recall.
        Measure::Success => false,
        _ => true,
    }
}

fn arm_row(report: &Report, arm: &ArmReport, metrics: &[Metric], style: Style) -> Vec<String> {
    let mut row = vec![report.marked_set(), arm.name.clone()];
    for metric in metrics {
        let interval = arm.ci95.value(*metric);
        row.push(figure(arm.means.value(*metric), interval, style));
    }
    row.push(or_dash(arm.p50_ms.map(milliseconds)));
    row.push(or_dash(arm.p95_ms.map(milliseconds)));
    row
}

/// A figure with its interval, which a terminal has below it.
fn figure(value: Option<f64>, interval: Option<Interval>, style: Style) -> String {
    let Some(value) = value else {
        return "-".into();
    };
    let Some([low, high]) = interval else {
        return share(value);
    };
    match style {
        Style::Terminal => format!("{}\n{low:.2}-{high:.2}", share(value)),
        Style::Markdown => format!("{} ({low:.2} to {high:.2})", share(value)),
    }
}

/// The interval of a macro average; `None` where a set has no values by query.
fn macro_interval_of(reports: &[Report], arm: &str, metric: Metric) -> Option<Interval> {
    let name = metric.to_string();
    let mut columns = Vec::new();
    for report in reports {
        let values = report.per_query.iter();
        let column: Vec<f64> = values
            .filter_map(|query| *query.arms.get(arm)?.values.get(&name)?)
            .collect();
        if column.is_empty() {
            return None;
        }
        columns.push(column);
    }
    Some(macro_interval(&columns, reports.first()?.seed))
}

fn cost_row(set: String, tools: usize, cost: &CostReport) -> [String; 9] {
    [
        set,
        tools.to_string(),
        format!("{:.2}", cost.index_s),
        format!("{:.0}", cost.index_tools_per_s),
        decimals(cost.embed_s, 1),
        decimals(cost.embed_tools_per_s, 0),
        format!("{:.3}", cost.open_s),
        decimals(cost.rss_mb, 0),
        format!("{:.1}", cost.disk_mb),
    ]
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

/// A difference: a plus sign too, so that it does not read as a value.
fn signed(difference: f64) -> String {
    format!("{difference:+.3}")
}

fn interval([low, high]: Interval) -> String {
    format!("{low:.3} to {high:.3}")
}

fn signed_interval([low, high]: Interval) -> String {
    format!("{low:+.3} to {high:+.3}")
}

/// The text of a figure; a dash for one that was not measured.
fn or_dash(text: Option<String>) -> String {
    match text {
        Some(text) => text,
        None => "-".to_owned(),
    }
}

fn decimals(value: Option<f64>, digits: usize) -> String {
    or_dash(value.map(|value| format!("{value:.digits$}")))
}

/// Three significant digits: a lexical search takes .1 ms, one with a large model 100 ms.
fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

/// A table that is not empty, with a caption.
fn captioned(table: String, caption: &str) -> String {
    if table.is_empty() {
        return table;
    }
    format!("{table}\n\n{caption}")
}

fn new_table(style: Style, header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(match style {
        Style::Terminal => NOTHING,
        Style::Markdown => ASCII_MARKDOWN,
    });
    table.set_header(header);
    table
}

/// Right-aligns the columns of numbers, which follow `texts` columns of text. Empty without rows.
fn finish(mut table: Table, texts: usize) -> String {
    if table.is_empty() {
        return String::new();
    }
    for column in table.column_iter_mut().skip(texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::page;
    use crate::report::testing::report;
    use crate::report::{Intervals, Means, SourceReport};

    #[test]
    fn several_sets_end_in_a_macro_row() {
        let text = quality(
            &[report("a", "lexical", 0.5), report("b", "lexical", 0.7)],
            Style::Markdown,
        );
        let last: Vec<&str> = text
            .lines()
            .last()
            .unwrap()
            .split('|')
            .map(str::trim)
            .collect();
        assert_eq!(last[1..4], ["macro average", "lexical", "0.600"]);
        assert!(!quality(&[report("a", "lexical", 0.5)], Style::Terminal).contains("macro"));
    }

    #[test]
    fn every_figure_has_a_row_here_and_on_the_page() {
        let mut judged = report("a", "lexical", 0.5);
        let all = figures(std::slice::from_ref(&judged), Style::Terminal);
        assert!(all.is_empty(), "the table of quality has it: {all}");
        let means = |value| Means(vec![(Metric::new(Measure::Complete, 10), value)]);
        judged.arms[0].duplicate_tolerant = Some(means(0.25));
        judged.arms[0].condensed = Some(means(0.75));
        judged.sources.push(SourceReport {
            source: "person".to_owned(),
            queries: 60,
            arms: vec![("lexical".to_owned(), means(0.125))],
        });
        // Another program may give no intervals, and not every arm has every metric.
        let mut other = judged.arms[0].clone();
        (other.name, other.ci95) = ("other".to_owned(), Intervals::default());
        other.means = means(0.625);
        judged.arms.push(other);
        let page = page(std::slice::from_ref(&judged));
        let all = figures(&[judged], Style::Markdown);
        for (metric, about, value) in [
            ("ndcg@10", "", "0.500"),
            ("complete@10", "", "0.625"),
            ("complete@10", "near-identical tools count", "0.250"),
            ("complete@10", "judged hits alone", "0.750"),
            ("complete@10", "source person", "0.125"),
        ] {
            let is_row = |line: &&str| {
                let mut cells = line.split('|').map(str::trim).skip(2);
                (cells.next(), cells.next()) == (Some(metric), Some(about))
            };
            let row = all.lines().find(is_row);
            assert!(row.is_some_and(|row| row.contains(value)), "{about}: {all}");
            let cell = format!("<th>{metric} <small>{about}</small></th>");
            let (_, row) = page.split_once(&cell).expect("a row of the page");
            let (row, _) = row.split_once("</tr>").expect("its end");
            assert!(row.contains(value) && row.matches("<td>").count() == 2);
        }
    }

    #[test]
    fn missing_parts_have_no_table() {
        let reports = [report("a", "lexical", 0.5)];
        assert!(
            cost(&reports, Style::Terminal).is_empty()
                && no_match(&reports, Style::Terminal).is_empty()
                && tokens(&reports, Style::Terminal).is_empty()
        );
    }
}
