//! Plots of the values by query: recall over k, precision over recall, scores, one arm against
//! another.

use std::collections::BTreeMap;

use super::plot::{Axis, Curve, Shape, lines, scatter};
use super::{escape, figure};
use crate::judgements::{JudgedHits, Judgements};
use crate::metrics::{Measure, Metric, headline, mean};
use crate::report::Report;
use toolscout_base::printable::counted;

/// Points of a curve of precision: recall 0, 0.1 to 1.
const RECALL_STEPS: usize = 10;
/// Bars of a distribution.
const BINS: usize = 20;
/// Most plots of one kind.
const MAX_PLOTS: usize = 4;
/// Decimal places at which two points are the same.
const SAME_POINT: f64 = 1e3;

/// Recall over k and precision over recall of every arm. Empty for a report without ranks.
pub(super) fn ranked(report: &Report) -> String {
    let mut judged: Vec<(&str, Vec<Judged>)> = Vec::new();
    let mut deepest = 0;
    for arm in &report.arms {
        let queries = judged_queries(report, &arm.name);
        for query in &queries {
            deepest = deepest.max(query.hits.len());
        }
        judged.push((&arm.name, queries));
    }
    if deepest == 0 {
        return String::new();
    }
    // All curves of recall go to the deepest rank of any arm, so that they end side by side.
    let (mut recall, mut precision) = (Vec::new(), Vec::new());
    for (name, queries) in &judged {
        recall.push(straight(name, recall_over_k(queries, deepest)));
        precision.push(straight(name, precision_over_recall(queries)));
    }
    let recall = lines(
        &Axis::to("k", deepest.max(2) as f64),
        &Axis::to("recall@k", 1.0),
        &recall,
        None,
    );
    let precision = lines(
        &Axis::to("recall", 1.0),
        &Axis::to("precision", 1.0),
        &precision,
        None,
    );
    let of_recall = "Share of the needs that the first k hits meet.";
    let of_precision = "Highest precision at this recall or a higher one, as trec_eval interpolates it; mean over the queries.";
    [
        figure("Recall over k", of_recall, &recall),
        figure("Precision over recall", of_precision, &precision),
    ]
    .concat()
}

/// A query as an arm answered it.
struct Judged {
    hits: JudgedHits,
    judgements: Judgements,
}

fn judged_queries(report: &Report, arm: &str) -> Vec<Judged> {
    let mut judged = Vec::with_capacity(report.per_query.len());
    for query in &report.per_query {
        judged.push(Judged {
            hits: query.judged_hits(arm),
            judgements: query.judgements(report.relevant_from),
        });
    }
    judged
}

fn straight(name: &str, points: Vec<(f64, f64)>) -> Curve {
    Curve {
        name: name.to_owned(),
        points,
        shape: Shape::Straight,
    }
}

fn recall_over_k(queries: &[Judged], deepest: usize) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(deepest);
    for k in 1..=deepest {
        let recall = Metric::new(Measure::Recall, k);
        let values = queries.iter();
        let values: Vec<f64> = values
            .map(|query| recall.of(&query.hits, &query.judgements))
            .collect();
        points.push((k as f64, mean(&values)));
    }
    points
}

fn precision_over_recall(queries: &[Judged]) -> Vec<(f64, f64)> {
    let by_query: Vec<[f64; RECALL_STEPS + 1]> = queries.iter().map(interpolated).collect();
    let mut points = Vec::with_capacity(RECALL_STEPS + 1);
    for step in 0..=RECALL_STEPS {
        let values: Vec<f64> = by_query.iter().map(|precision| precision[step]).collect();
        points.push((step as f64 / RECALL_STEPS as f64, mean(&values)));
    }
    points
}

/// The highest precision at each step of recall or a higher one.
fn interpolated(query: &Judged) -> [f64; RECALL_STEPS + 1] {
    let relevant = query.judgements.relevant(None);
    let mut precision = [0.0_f64; RECALL_STEPS + 1];
    let mut found = 0;
    for (hit, rank) in query.hits.iter().zip(1..) {
        let Some(position) = *hit else { continue };
        let grade = query.judgements.grades[position];
        if !query.judgements.is_relevant(grade, None) {
            continue;
        }
        found += 1;
        let here = f64::from(found) / f64::from(rank);
        for (step, best) in precision.iter_mut().enumerate() {
            // Multiplied out, so that no division rounds a recall to just below its step.
            if f64::from(found) * RECALL_STEPS as f64 >= (step * relevant) as f64 {
                *best = best.max(here);
            }
        }
    }
    precision
}

/// The scores of right and of wrong hits, a plot for each arm. Empty without scores.
pub(super) fn scores(report: &Report) -> String {
    let pictures = report.arms.iter();
    let pictures = pictures.filter_map(|arm| Some((arm, distribution(report, &arm.name)?)));
    let caption = "Scores of the first ten hits: share of the right ones, and of the wrong ones, in each twentieth of the axis.";
    let mut plots = String::new();
    for (arm, picture) in pictures.take(MAX_PLOTS) {
        let title = format!("Scores of {}", escape(&arm.name));
        plots += &figure(&title, caption, &picture);
    }
    plots
}

fn distribution(report: &Report, arm: &str) -> Option<String> {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    for query in &report.per_query {
        let Some(of_arm) = query.arms.get(arm) else {
            continue;
        };
        for hit in &of_arm.hits {
            // A distribution without some of the hits would mislead, so there is none.
            let score = hit.score.filter(|score| score.is_finite())?;
            let grade = query.judged.get(&hit.id).copied().unwrap_or(0.0);
            let is_right = grade > 0.0 && grade >= report.relevant_from;
            if is_right { &mut right } else { &mut wrong }.push(score);
        }
    }
    let all = right.iter().chain(&wrong).copied();
    let (low, high) = (all.clone().reduce(f64::min)?, all.reduce(f64::max)?);
    // Nothing to tell apart, or an axis without a length.
    if right.is_empty() || wrong.is_empty() || high <= low {
        return None;
    }
    let drawn = [("right", &right), ("wrong", &wrong)].map(|(name, scores)| Curve {
        name: format!("{name} ({})", scores.len()),
        points: bins(scores, low, high),
        shape: Shape::Steps,
    });
    let mut top = 0.0_f64;
    for curve in &drawn {
        for (_, share) in &curve.points {
            top = top.max(*share);
        }
    }
    let x = Axis {
        title: "score",
        start: low.min(0.0),
        end: high,
    };
    Some(lines(&x, &Axis::to("share of the hits", top), &drawn, None))
}

/// The share of the values in each bin, at the end of the bin.
fn bins(values: &[f64], low: f64, high: f64) -> Vec<(f64, f64)> {
    let mut counts = [0_usize; BINS];
    for value in values {
        let bin = (value - low) / (high - low) * BINS as f64;
        counts[(bin as usize).min(BINS - 1)] += 1;
    }
    let edge = |bin: usize| low + (high - low) * bin as f64 / BINS as f64;
    // A step goes along first: the share of a bin stands at its start, and holds to its end.
    let mut points = vec![(edge(0), 0.0)];
    for (bin, count) in counts.into_iter().enumerate() {
        points.push((edge(bin), count as f64 / values.len() as f64));
    }
    points.push((edge(BINS), 0.0));
    points
}

/// The main arm and each of the others, query by query; the earlier of two arms goes across.
pub(super) fn against(report: &Report) -> String {
    let arms = &report.arms;
    let Some(main) = arms.iter().position(|arm| arm.name == report.main_arm) else {
        return String::new();
    };
    let metric = headline(&arms[main].means.metrics());
    let others = (0..arms.len()).filter(|arm| *arm != main);
    let mut plots = String::new();
    for other in others.take(MAX_PLOTS) {
        let (a, b) = (&arms[main.min(other)].name, &arms[main.max(other)].name);
        let queries = report.per_query.iter();
        let values = queries.map(|query| (query.value(a, metric), query.value(b, metric)));
        plots += &pair((a, b), &metric.to_string(), values);
    }
    plots
}

/// Two values of each query as a plot: the first across, the second up.
pub(super) fn pair(
    (a, b): (&str, &str),
    metric: &str,
    values: impl Iterator<Item = (f64, f64)>,
) -> String {
    let mut points: BTreeMap<(i64, i64), usize> = BTreeMap::new();
    let (mut better, mut worse, mut same) = (0, 0, 0);
    for (a, b) in values {
        // One of the arms has no value for the query.
        if a.is_nan() || b.is_nan() {
            continue;
        }
        *points.entry((rounded(a), rounded(b))).or_default() += 1;
        match b.total_cmp(&a) {
            std::cmp::Ordering::Greater => better += 1,
            std::cmp::Ordering::Less => worse += 1,
            std::cmp::Ordering::Equal => same += 1,
        }
    }
    if points.is_empty() {
        return String::new();
    }
    let mut dots = Vec::with_capacity(points.len());
    // Values are from 0 to 1, but those of `tau` are from -1.
    let mut low = 0.0_f64;
    for ((a, b), count) in points {
        let (a, b) = (a as f64 / SAME_POINT, b as f64 / SAME_POINT);
        low = low.min(a.min(b));
        dots.push((a, b, count));
    }
    let axis = |title| Axis {
        title,
        start: low,
        end: 1.0,
    };
    let (across, up) = (format!("{metric} of {a}"), format!("{metric} of {b}"));
    let picture = scatter(&axis(&across), &axis(&up), &dots);
    let (a, b) = (escape(a), escape(b));
    let title = format!("{a} against {b}");
    let caption = format!(
        "Each dot stands for the queries with these two values, a larger one for more. Above the line {b} is better: {}; below it {a}: {worse}; on it {same}.",
        counted(better, "query")
    );
    figure(&title, &caption, &picture)
}

/// A value as a whole number, by which equal points are found.
fn rounded(value: f64) -> i64 {
    (value * SAME_POINT).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(relevant: usize, ranks: &[usize]) -> Judged {
        let mut hits = vec![None; ranks.iter().copied().max().unwrap_or(0)];
        for (position, rank) in ranks.iter().enumerate() {
            hits[rank - 1] = Some(position);
        }
        Judged {
            hits,
            judgements: Judgements::binary(relevant),
        }
    }

    #[test]
    fn precision_is_interpolated_as_trec_eval_does_it() {
        let first = interpolated(&judged(1, &[1]));
        assert!(first.iter().all(|precision| *precision == 1.0));
        // Found at ranks 2 and 3, of three: one half and two thirds, and nothing beyond 2/3.
        let some = interpolated(&judged(3, &[2, 3]));
        assert!((some[0] - 2.0 / 3.0).abs() < 1e-12 && (some[6] - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(some[7], 0.0);
        assert!(
            interpolated(&judged(2, &[]))
                .iter()
                .all(|precision| *precision == 0.0)
        );
    }

    #[test]
    fn shares_of_bins_are_of_all_values() {
        let points = bins(&[0.0, 0.5, 1.0, 1.0], 0.0, 1.0);
        let sum: f64 = points.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert_eq!((points[1], points[BINS]), ((0.0, 0.25), (0.95, 0.5)));
    }

    #[test]
    fn pairs_say_how_many_queries_are_better() {
        let values = [
            (0.0, 1.0),
            (0.0, 1.0),
            (1.0, 0.5),
            (1.0, 1.0),
            (f64::NAN, 1.0),
        ];
        let page = pair(("<a>", "b"), "ndcg@10", values.into_iter());
        assert!(
            page.contains("2 queries; below it &lt;a&gt;: 1; on it 1."),
            "{page}"
        );
        assert!(pair(("a", "b"), "ap", std::iter::empty()).is_empty());
    }
}
