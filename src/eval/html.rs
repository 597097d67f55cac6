//! A report as one HTML file: tables, plots, and the queries with the lowest scores. It loads no
//! resources and runs no scripts.

mod plot;

use std::fmt::Write as _;

use self::plot::{Axis, Curve, Group, Whisker, lines, whiskers};
use super::Evaluation;
use super::metrics::{Measure, Metric, mean};
use super::report::{ArmReport, Report, macro_average};
use super::worst::{RelevantTool, ReportedHit, WorstQuery};
use crate::printable::{counted, excerpt};

const STYLE: &str = include_str!("html/report.css");
/// Most characters of a query or a description.
const SHOWN_CHARS: usize = 320;

/// The page of these evaluations.
pub fn page(evaluations: &[Evaluation]) -> String {
    let names: Vec<&str> = evaluations
        .iter()
        .map(|evaluation| evaluation.report.set.as_str())
        .collect();
    let title = format!("Tool search on {}", names.join(", "));
    let sections: String = evaluations.iter().map(section).collect();
    let overview = if evaluations.len() > 1 {
        overview(evaluations)
    } else {
        String::new()
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1>{overview}{sections}</main></body></html>\n",
        title = escape(&title)
    )
}

fn overview(evaluations: &[Evaluation]) -> String {
    let reports: Vec<Report> = evaluations
        .iter()
        .map(|evaluation| evaluation.report.clone())
        .collect();
    let Some(first) = reports.first() else {
        return String::new();
    };
    let Some(metric) = first.arms.first().map(ndcg_of) else {
        return String::new();
    };
    let averages = macro_average(&reports);
    let mut html = String::from(
        "<section><h2>All sets</h2><table><tr><th>set</th><th>tools</th><th>queries</th>",
    );
    for (arm, _) in &averages {
        let _ = write!(html, "<th>{}</th>", escape(arm));
    }
    html.push_str("</tr>");
    for report in &reports {
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td>",
            escape(&report.set),
            report.tools,
            report.queries
        );
        for (name, _) in &averages {
            let value = report
                .arms
                .iter()
                .find(|arm| arm.name == *name)
                .and_then(|arm| arm.means.value(metric));
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
        "</tr></table><p class=\"note\">{metric}; every set weighs the same.</p></section>"
    );
    html
}

fn section(evaluation: &Evaluation) -> String {
    let report = &evaluation.report;
    let parts = [
        head(report),
        figure(
            "Quality",
            "Mean over the queries, with its 95% bootstrap interval.",
            quality(report),
        ),
        quality_table(report),
        figure(
            "Recall over k",
            "Share of the relevant tools among the first k hits.",
            recall_over_k(evaluation),
        ),
        latency(report),
        no_match(report),
        cost(report),
        worst(evaluation),
    ];
    format!("<section>{}</section>", parts.concat())
}

fn head(report: &Report) -> String {
    format!(
        "<h2>{}</h2><p>{} tools, {} of {} queries, seed {}, embedder {}, toolscout {}.</p>",
        escape(&report.set),
        report.tools,
        report.queries,
        report.queries_in_set,
        report.seed,
        escape(&report.embedder),
        report.version
    )
}

fn figure(title: &str, caption: &str, picture: String) -> String {
    format!("<figure><h3>{title}</h3>{picture}<figcaption>{caption}</figcaption></figure>")
}

/// The metrics of the plots: each measure at the depth that matters most to an agent.
fn drawn_metrics(arm: &ArmReport) -> Vec<Metric> {
    let is_plotted = |metric: &Metric| match metric.measure {
        Measure::Ndcg | Measure::Mrr => metric.depth == ndcg_of(arm).depth,
        Measure::Recall | Measure::Complete => metric.depth == Some(5),
        Measure::Success => false,
        _ => true,
    };
    arm.means
        .0
        .iter()
        .map(|(metric, _)| *metric)
        .filter(is_plotted)
        .collect()
}

fn ndcg_of(arm: &ArmReport) -> Metric {
    let metrics: Vec<Metric> = arm.means.0.iter().map(|(metric, _)| *metric).collect();
    super::report::headline(&metrics)
}

fn quality(report: &Report) -> String {
    let metrics = report.arms.first().map(drawn_metrics).unwrap_or_default();
    let row = |arm: &ArmReport, metric: Metric| {
        let (value, [low, high]) = arm.figure(metric)?;
        Some(Whisker {
            name: arm.name.clone(),
            value,
            low,
            high,
            label: share(value),
        })
    };
    let group = |metric: &Metric| Group {
        name: metric.to_string(),
        rows: report
            .arms
            .iter()
            .filter_map(|arm| row(arm, *metric))
            .collect(),
    };
    whiskers(
        &Axis {
            title: "mean",
            end: 1.0,
        },
        &metrics.iter().map(group).collect::<Vec<_>>(),
    )
}

fn quality_table(report: &Report) -> String {
    let Some(first) = report.arms.first() else {
        return String::new();
    };
    let mut html = String::from("<div class=\"wide\"><table><tr><th></th>");
    for arm in &report.arms {
        let _ = write!(html, "<th>{}</th>", escape(&arm.name));
    }
    html.push_str("</tr>");
    for (metric, _) in &first.means.0 {
        let _ = write!(html, "<tr><th>{metric}</th>");
        for (value, [low, high]) in report.arms.iter().filter_map(|arm| arm.figure(*metric)) {
            let _ = write!(
                html,
                "<td>{} <small>{} to {}</small></td>",
                share(value),
                share(low),
                share(high)
            );
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

fn mean_recall(evaluation: &Evaluation, run: &super::run::ArmRun, k: usize) -> f64 {
    let mut recalls = Vec::new();
    for (query, ranking) in evaluation.set.queries.iter().zip(&run.rankings) {
        let hits = query.judged_hits(ranking);
        recalls.push(Metric::new(Measure::Recall, k).of(&hits, &query.judgements));
    }
    mean(&recalls)
}

/// A chart of each arm's mean recall at every depth that some ranking reaches.
fn recall_over_k(evaluation: &Evaluation) -> String {
    let deepest = evaluation
        .runs
        .iter()
        .flat_map(|run| run.rankings.iter().map(Vec::len))
        .max()
        .unwrap_or(1)
        .max(1);
    let drawn: Vec<Curve> = evaluation
        .runs
        .iter()
        .map(|run| Curve {
            name: run.name.clone(),
            points: (1..=deepest)
                .map(|k| (k as f64, mean_recall(evaluation, run, k)))
                .collect(),
        })
        .collect();
    lines(
        &Axis {
            title: "k",
            end: deepest as f64,
        },
        &Axis {
            title: "recall@k",
            end: 1.0,
        },
        &drawn,
        None,
    )
}

fn latency(report: &Report) -> String {
    let row = |arm: &ArmReport| {
        let total = arm.latency?.total_ms;
        let label = format!("{:.2} / {:.2} / {:.2} ms", total.p50, total.p95, total.p99);
        Some(Group {
            name: arm.name.clone(),
            rows: vec![Whisker {
                name: arm.name.clone(),
                value: total.p50,
                low: total.p50,
                high: total.p95,
                label,
            }],
        })
    };
    let groups: Vec<Group> = report.arms.iter().filter_map(row).collect();
    // The labels stand right of the whiskers and need as much room again.
    let end = groups
        .iter()
        .flat_map(|group| &group.rows)
        .map(|row| row.high)
        .fold(0.0, f64::max)
        * 1.6;
    if end <= 0.0 {
        return String::new();
    }
    let caption = "One search on one thread, nothing cached: median (dot), 95th percentile (end of the line); p50 / p95 / p99.";
    figure(
        "Latency",
        caption,
        whiskers(&Axis { title: "ms", end }, &groups),
    )
}

fn no_match(report: &Report) -> String {
    let Some(found) = &report.no_match else {
        return String::new();
    };
    let line = |(name, signal): (&String, &super::nomatch::Signal)| Curve {
        name: format!("{name} (AUC {})", share(signal.auc)),
        points: signal
            .curve
            .iter()
            .map(|point| (point.false_no_match, point.accuracy))
            .chain([(1.0, 1.0)])
            .collect(),
    };
    let chance = Curve {
        name: "chance".into(),
        points: vec![(0.0, 0.0), (1.0, 1.0)],
    };
    let drawn: Vec<Curve> = found.signals.iter().map(line).chain([chance]).collect();
    let picture = lines(
        &Axis {
            title: "false \"no match\" on answerable queries",
            end: 1.0,
        },
        &Axis {
            title: "unanswerable recognised",
            end: 1.0,
        },
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
    figure("No match", &caption, picture)
}

fn cost(report: &Report) -> String {
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
        rows.extend(
            cost.rss_mb
                .map(|mb| ("peak memory".into(), format!("{mb:.0} MiB"))),
        );
        rows.push(("disk".into(), format!("{:.1} MiB", cost.disk_mb)));
    }
    if let Some(tokens) = &report.tokens {
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
    let rows: String = rows
        .iter()
        .map(|(name, value)| {
            format!(
                "<tr><th>{}</th><td>{}</td></tr>",
                escape(name),
                escape(value)
            )
        })
        .collect();
    format!("<h3>Cost</h3><table>{rows}</table>")
}

fn worst(evaluation: &Evaluation) -> String {
    if evaluation.worst.is_empty() {
        return String::new();
    }
    let queries: String = evaluation.worst.iter().map(worst_query).collect();
    format!(
        "<h3>Worst queries of {}</h3>{queries}",
        escape(&evaluation.main_arm)
    )
}

fn worst_query(query: &WorstQuery) -> String {
    let relevant: String = query.relevant.iter().map(relevant_item).collect();
    let hits: String = query.hits.iter().map(hit_item).collect();
    format!(
        "<article><h4>{}</h4><p class=\"note\">{} · nDCG {}</p><div class=\"two\"><div><h5>relevant tools</h5><ul>{relevant}</ul></div><div><h5>hits</h5><ol>{hits}</ol></div></div></article>",
        escape(&excerpt(&query.text, SHOWN_CHARS)),
        escape(&query.id),
        share(query.score)
    )
}

fn relevant_item(tool: &RelevantTool) -> String {
    let rank = tool.rank.map_or_else(
        || "not among the hits".into(),
        |rank| format!("rank {rank}"),
    );
    format!(
        "<li><code>{}</code> <b>{rank}</b><br><small>{}</small></li>",
        escape(&tool.id),
        escape(&excerpt(&tool.description, SHOWN_CHARS))
    )
}

fn hit_item(hit: &ReportedHit) -> String {
    let right = if hit.relevant { " <b>relevant</b>" } else { "" };
    format!(
        "<li><code>{}</code> {:.3}{right}<br><small>{}</small></li>",
        escape(&hit.id),
        hit.score,
        escape(&excerpt(&hit.why, SHOWN_CHARS))
    )
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

/// Escapes text for HTML and for attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::dataset::testing::set;
    use crate::eval::report::testing::report;
    use crate::eval::run::ArmRun;

    fn evaluation() -> Evaluation {
        let set = set(&[("a", "x")], &[("q", "x", &["a"])]);
        let runs = vec![ArmRun {
            name: "lexical".into(),
            rankings: vec![vec![0]],
            scores: vec![vec![1.0]],
            degraded: 0,
            abstained: 0,
            file: None,
        }];
        let worst = WorstQuery {
            id: "q".into(),
            text: "<script>alert(1)</script>".into(),
            score: 0.0,
            relevant: vec![RelevantTool {
                id: "a".into(),
                description: "d".repeat(400),
                rank: None,
            }],
            hits: vec![ReportedHit {
                id: "b".into(),
                score: 0.5,
                relevant: false,
                why: "bm25 1 < 2".into(),
            }],
        };
        Evaluation {
            set,
            report: report("my set", "lexical", 0.5),
            runs,
            worst: vec![worst],
            main_arm: "lexical".into(),
        }
    }

    #[test]
    fn a_page_is_self_contained_and_escapes_what_it_shows() {
        let page = page(&[evaluation()]);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
        assert!(
            !page.contains("src=")
                && !page.contains("href=")
                && !page.contains("@import")
                && !page.contains("url(")
        );
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("not among the hits") && page.contains("bm25 1 &lt; 2"));
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn missing_parts_have_no_section() {
        let page = page(&[evaluation()]);
        assert!(
            !page.contains("<h3>Latency")
                && !page.contains("<h3>No match")
                && !page.contains("<h3>Cost")
        );
        assert!(!page.contains("All sets"));
    }

    #[test]
    fn several_sets_have_an_overview() {
        let page = page(&[evaluation(), evaluation()]);
        assert!(page.contains("macro average") && page.matches("<section>").count() == 3);
    }
}
