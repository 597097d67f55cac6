//! Tables of one measurement against another: a baseline, or two reports.

use super::{Style, captioned, finish, new_table, share, signed, signed_interval};
use crate::baseline::Change;
use crate::diff::SetDiff;
use crate::per_query::ScoredHit;
use crate::report::marked;
use toolscout_base::printable::excerpt;

const OF_DIFF: &str = "\
p: of the randomisation test; p Holm: the same, corrected for the number of rows; effect: the
  difference in standard deviations of the differences by query; smallest: the smallest difference
  that these queries would show in four of five cases, at p < .05";
/// Most characters of a query, or of its hits.
const SHOWN_CHARS: usize = 60;

/// Two reports compared, one row for each arm and metric.
pub fn diff(sets: &[SetDiff], style: Style) -> String {
    let header = "set, a, b, metric, queries, a, b, b - a, 95% interval, p, p Holm, p bootstrap, effect, \
        smallest, better, worse";
    let mut table = new_table(style, header.split(", "));
    for set in sets {
        for row in &set.comparisons {
            let name = marked(&set.set, row.queries);
            let texts = [&name, &row.arm_a, &row.arm_b, &row.metric].map(String::clone);
            table.add_row(texts.into_iter().chain([
                row.queries.to_string(),
                share(row.a),
                share(row.b),
                signed(row.difference),
                signed_interval(row.ci95),
                format!("{:.4}", row.p),
                format!("{:.4}", row.p_holm),
                format!("{:.4}", row.p_bootstrap),
                format!("{:+.2}", row.effect_size),
                share(row.smallest_difference),
                row.better.to_string(),
                row.worse.to_string(),
            ]));
        }
    }
    captioned(finish(table, 4), OF_DIFF)
}

/// The queries that fell and rose most between two reports.
pub fn moved(sets: &[SetDiff], style: Style) -> String {
    let header = "set, arm, query, first hits of a, first hits of b, metric, a, b";
    let mut table = new_table(style, header.split(", "));
    for set in sets {
        for query in &set.moved {
            let arm = if query.arm_a == query.arm_b {
                query.arm_a.clone()
            } else {
                format!("{}, {}", query.arm_a, query.arm_b)
            };
            table.add_row([
                marked(&set.set, set.queries),
                arm,
                excerpt(&format!("{}: {}", query.id, query.query), SHOWN_CHARS),
                first_hits(&query.hits_a),
                first_hits(&query.hits_b),
                query.metric.clone(),
                share(query.a),
                share(query.b),
            ]);
        }
    }
    finish(table, 6)
}

fn first_hits(hits: &[ScoredHit]) -> String {
    let ids: Vec<&str> = hits.iter().map(|hit| hit.id.as_str()).collect();
    excerpt(&ids.join(", "), SHOWN_CHARS)
}

/// Metrics compared with a baseline.
pub fn changes(changes: &[Change], max_drop: f64) -> String {
    let header = ["set", "arm", "metric", "baseline", "now", "points", ""];
    let mut table = new_table(Style::Terminal, header);
    for change in changes {
        let result = if change.drops_more_than(max_drop) {
            "DROP"
        } else {
            ""
        };
        table.add_row([
            change.set.clone(),
            change.arm.clone(),
            change.metric.to_string(),
            share(change.before),
            share(change.after),
            format!("{:+.2}", change.points()),
            result.into(),
        ]);
    }
    finish(table, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Measure, Metric};

    #[test]
    fn a_drop_is_marked() {
        let metric = Metric::new(Measure::Ndcg, 10);
        let change = |after| Change {
            set: "a".into(),
            arm: "hybrid".into(),
            metric,
            before: 0.7,
            after,
        };
        let text = changes(&[change(0.7), change(0.6)], 0.5);
        assert_eq!(text.matches("DROP").count(), 1);
        assert!(text.contains("-10.00"), "{text}");
    }
}
