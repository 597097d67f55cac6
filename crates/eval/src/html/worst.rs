//! The queries with the lowest values.

use super::{SHOWN_CHARS, escape, share};
use crate::report::Report;
use crate::worst::{RelevantTool, ReportedHit, WorstQuery};
use toolscout_base::printable::excerpt;

/// The queries with the lowest values, with what was found instead.
pub(super) fn worst(report: &Report) -> String {
    if report.worst.is_empty() {
        return String::new();
    }
    let queries: String = report.worst.iter().map(worst_query).collect();
    format!(
        "<h3>Worst queries of {}</h3>{queries}",
        escape(&report.main_arm)
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
    let rank = match tool.rank {
        Some(rank) => format!("rank {rank}"),
        None => "not among the hits".to_owned(),
    };
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
