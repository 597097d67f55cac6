//! The page of two reports, compared.

use std::fmt::Write as _;

use super::curves::pair;
use super::{SHOWN_CHARS, escape, share, small, whole};
use crate::diff::{Diff, Moved, SetDiff};
use crate::per_query::ScoredHit;
use crate::report::marked;
use toolscout_base::printable::excerpt;

/// The page of a comparison.
pub fn diff_page(diff: &Diff) -> String {
    let title = format!("{} against {}", diff.a.display(), diff.b.display());
    let sections: String = diff.sets.iter().map(section).collect();
    whole(&title, &sections)
}

fn section(set: &SetDiff) -> String {
    let name = marked(&set.set, set.queries);
    let mut html = format!(
        "<section><h2>{}</h2><p>{} queries are in both reports, with the same text and judgement; {} are not.</p>{}",
        escape(&name),
        set.queries,
        set.left_out,
        small(set.queries)
    );
    for remark in &set.remarks {
        let _ = write!(html, "<p class=\"remark\">{}</p>", escape(remark));
    }
    html.push_str(&table(set, &name));
    for points in &set.points {
        let (a, b) = (
            format!("{} of a", points.arm_a),
            format!("{} of b", points.arm_b),
        );
        html.push_str(&pair(
            (&a, &b),
            &points.metric,
            points.values.iter().copied(),
        ));
    }
    if !set.moved.is_empty() {
        html.push_str("<h3>Queries that moved most</h3>");
    }
    for query in &set.moved {
        html.push_str(&moved(query));
    }
    html.push_str("</section>");
    html
}

fn table(set: &SetDiff, name: &str) -> String {
    let mut html = format!(
        "<div class=\"wide\"><table><tr><th>{}</th><th>metric</th><th>queries</th><th>a</th><th>b</th><th>b - a</th><th>p</th><th>p Holm</th><th>effect</th><th>smallest</th><th>better</th><th>worse</th></tr>",
        escape(name)
    );
    for row in &set.comparisons {
        let [low, high] = row.ci95;
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:+.3} <small>{low:+.3} to {high:+.3}</small></td><td>{:.4}</td><td>{:.4}</td><td>{:+.2}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&arms(&row.arm_a, &row.arm_b)),
            escape(&row.metric),
            row.queries,
            share(row.a),
            share(row.b),
            row.difference,
            row.p,
            row.p_holm,
            row.effect_size,
            share(row.smallest_difference),
            row.better,
            row.worse
        );
    }
    html.push_str("</table></div><p class=\"note\">p: of the paired randomisation test; p Holm: corrected for the number of rows; effect: in standard deviations of the differences; smallest: the smallest difference that these queries would show in four of five cases.</p>");
    html
}

fn arms(a: &str, b: &str) -> String {
    if a == b {
        a.to_owned()
    } else {
        format!("{a}, {b}")
    }
}

fn list(hits: &[ScoredHit]) -> String {
    let mut items = String::new();
    for hit in hits {
        let _ = write!(items, "<li><code>{}</code></li>", escape(&hit.id));
    }
    items
}

fn moved(query: &Moved) -> String {
    format!(
        "<article><h4>{}</h4><p class=\"note\">{} · {} · {} {} to {}</p><div class=\"two\"><div><h5>first hits of a</h5><ol>{}</ol></div><div><h5>first hits of b</h5><ol>{}</ol></div></div></article>",
        escape(&excerpt(&query.query, SHOWN_CHARS)),
        escape(&query.id),
        escape(&arms(&query.arm_a, &query.arm_b)),
        escape(&query.metric),
        share(query.a),
        share(query.b),
        list(&query.hits_a),
        list(&query.hits_b)
    )
}
