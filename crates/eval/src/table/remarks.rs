//! What you have to know to read the figures.

use super::{Style, figure, finish, new_table, shown_metrics};
use crate::metrics::Metric;
use crate::report::{Report, SMALL, marked};

/// Figures by the source of the queries, for sets that say it.
pub fn sources(reports: &[Report], style: Style) -> String {
    let metrics = shown_metrics(reports);
    let names = metrics.iter().map(Metric::to_string);
    let first = ["set", "source", "queries", "arm"].map(String::from);
    let mut table = new_table(style, first.into_iter().chain(names));
    for report in reports {
        for source in &report.sources {
            for (arm, means) in &source.arms {
                let mut row = vec![
                    report.marked_set(),
                    marked(&source.source, source.queries),
                    source.queries.to_string(),
                    arm.clone(),
                ];
                for metric in &metrics {
                    row.push(figure(means.value(*metric), None, style));
                }
                table.add_row(row);
            }
        }
    }
    finish(table, 2)
}

/// What you have to know of the sources of the queries; empty for sets that do not say them.
pub fn said_sources(reports: &[Report]) -> String {
    let said = |report: &Report| Some(format!("{}: {}", report.set, report.said_sources()?));
    let lines: Vec<String> = reports.iter().filter_map(said).collect();
    lines.join("\n")
}

/// A remark on small sets; empty without one.
pub fn small_sets(reports: &[Report]) -> String {
    let mut few = Vec::new();
    for report in reports {
        if report.is_small() {
            few.push(format!("{} has {}", report.set, report.queries));
        }
    }
    if few.is_empty() {
        return String::new();
    }
    format!(
        "small: fewer than {SMALL} queries, so intervals are wide ({})",
        few.join(", ")
    )
}

/// A remark on catalogs that were tuned to the queries; empty without one.
pub fn tuned_on(reports: &[Report]) -> String {
    let mut tuned = Vec::new();
    for report in reports {
        if report.tuned_on {
            tuned.push(report.set.as_str());
        }
    }
    if tuned.is_empty() {
        return String::new();
    }
    format!(
        "{} was tuned to these queries: the figures are in-sample and look better than on others",
        tuned.join(", ")
    )
}

/// A remark on sets that the ranker was trained on, of names of sets with whether it was; empty without
/// one.
pub fn trained_on<'a>(sets: impl Iterator<Item = (&'a str, bool)>) -> String {
    let mut seen = Vec::new();
    for (name, trained_on) in sets {
        if trained_on {
            seen.push(name);
        }
    }
    if seen.is_empty() {
        return String::new();
    }
    format!(
        "the ranker was trained on {}: figures with it look better than on requests it has not seen",
        seen.join(", ")
    )
}
