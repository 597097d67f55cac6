//! Reports as one HTML file each: tables, plots, and the queries with the lowest values. A page loads
//! no resources and runs no scripts. It is made of the report alone, whoever wrote it.

mod plot;
mod quality;
mod curves;
mod parts;
mod worst;
mod agent;
mod compared;

use super::report::{Report, SMALL, set_names};

pub use agent::{agent_page, learning_page};
pub use compared::diff_page;

const STYLE: &str = include_str!("html/report.css");
/// Most characters of a query or a description.
const SHOWN_CHARS: usize = 320;

/// The page of these reports.
pub fn page(reports: &[Report]) -> String {
    let title = format!("Tool search on {}", set_names(reports));
    let mut sections: String = reports.iter().map(section).collect();
    // An average of one set would be that set again.
    if reports.len() > 1 {
        sections.insert_str(0, &quality::overview(reports));
    }
    whole(&title, &sections)
}

/// A page with this content.
fn whole(title: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1>{content}</main></body></html>\n",
        title = escape(title)
    )
}

fn section(report: &Report) -> String {
    let parts = [
        head(report),
        figure(
            "Quality",
            "Mean over the queries, with its 95% bootstrap interval.",
            &quality::quality(report),
        ),
        quality::quality_table(report),
        quality::sources(report),
        quality::significance(report),
        curves::ranked(report),
        curves::against(report),
        curves::scores(report),
        parts::latency(report),
        parts::no_match(report),
        parts::cost(report),
        worst::worst(report),
    ];
    format!("<section>{}</section>", parts.concat())
}

fn head(report: &Report) -> String {
    let facts = format!(
        "{} tools, {} of {} queries, seed {}, embedder {}, toolscout {}.",
        report.tools,
        report.queries,
        report.queries_in_set,
        report.seed,
        escape(&report.embedder),
        escape(&report.version)
    );
    let mut remarks = String::new();
    for remark in report.remarks() {
        remarks += &format!("<p class=\"remark\">{}</p>", escape(&remark));
    }
    format!(
        "<h2>{}</h2><p>{facts}</p>{remarks}",
        escape(&report.marked_set())
    )
}

/// A remark on a small set; empty for others.
fn small(queries: usize) -> String {
    if queries >= SMALL {
        return String::new();
    }
    format!(
        "<p class=\"remark\">{}</p>",
        super::report::say_small(queries)
    )
}

fn figure(title: &str, caption: &str, picture: &str) -> String {
    format!(
        "<figure><h3>{title}</h3><div class=\"wide\">{picture}</div><figcaption>{caption}</figcaption></figure>"
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
    use crate::report::testing::report;
    use crate::worst::{RelevantTool, ReportedHit, WorstQuery};

    fn shown() -> Report {
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
        Report {
            worst: vec![worst],
            main_arm: "lexical".into(),
            ..report("my set", "lexical", 0.5)
        }
    }

    #[test]
    fn a_page_is_self_contained_and_escapes_what_it_shows() {
        let page = page(&[shown()]);
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
        let page = page(&[shown()]);
        assert!(
            !page.contains("<h3>Latency")
                && !page.contains("<h3>No match")
                && !page.contains("<h3>Cost")
        );
        assert!(!page.contains("All sets"));
    }

    #[test]
    fn several_sets_have_an_overview() {
        let page = page(&[shown(), shown()]);
        assert!(page.contains("macro average") && page.matches("<section>").count() == 3);
    }
}
