//! Abstention: whether unanswerable queries are recognised.
//!
//! A random fifth of the tools is removed from the catalog. A query that loses all its relevant
//! tools is unanswerable and should be answered with "no match", like the queries that the set
//! marks as unanswerable. No other query should be. Besides the decision of the engine, every
//! signal of confidence is evaluated at all thresholds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolscout_index::{Hit, Match, Results, ToolId};
use utoipa::ToSchema;

use super::arms::Arm;
use super::dataset::{EvalSet, ToolIndex};
use super::error::Result;
use super::random::Random;
use super::run::{Detail, Engine, THREADS, each_text};

/// One tool in this many is held out.
const HELD_OUT_ONE_IN: usize = 5;
/// Hits that signals are computed from.
const HITS: usize = 5;
/// Points of a curve.
const CURVE_POINTS: usize = 41;
/// The rate of false no-matches at which signals are compared by one figure.
const AFFORDABLE_FALSE: f64 = 0.1;

/// The removed tools, and the queries that become unanswerable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOut {
    /// The tools, ascending.
    pub tools: Vec<ToolIndex>,
    /// Whether each query has lost all its relevant tools; then `true` for each query that the set
    /// marks as unanswerable.
    pub unanswerable: Vec<bool>,
}

impl HeldOut {
    /// Draws a fifth of the tools.
    pub fn draw(set: &EvalSet, seed: u64) -> Self {
        let count = set.tools.len() / HELD_OUT_ONE_IN;
        let positions = Random::new(seed, "held-out").sample(set.tools.len(), count);
        let tools: Vec<ToolIndex> = positions
            .into_iter()
            .map(|position| position as ToolIndex)
            .collect();
        // `sample` is sorted, which the binary search needs.
        let is_gone = |tool: &ToolIndex| tools.binary_search(tool).is_ok();
        let mut unanswerable = Vec::with_capacity(set.queries.len() + set.unanswerable.len());
        for query in &set.queries {
            unanswerable.push(query.relevant.iter().all(is_gone));
        }
        // No tool serves these, whether some are removed or not.
        unanswerable.resize(set.queries.len() + set.unanswerable.len(), true);
        HeldOut {
            tools,
            unanswerable,
        }
    }

    /// The ids of the removed tools.
    pub fn ids(&self, set: &EvalSet) -> Vec<ToolId> {
        self.tools
            .iter()
            .map(|&tool| set.tool(tool).id.clone())
            .collect()
    }

    /// True when there are both answerable and unanswerable queries.
    pub fn has_both_kinds(&self) -> bool {
        self.unanswerable.contains(&true) && self.unanswerable.contains(&false)
    }
}

/// How well unanswerable queries are separated from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationNoMatch)]
pub struct NoMatchReport {
    /// Share of the unanswerable queries that the engine answered with "no match", with its
    /// settings.
    pub accuracy: f64,
    /// Share of the other queries that it answered with "no match".
    pub false_no_match: f64,
    /// The arm.
    pub arm: String,
    /// Number of unanswerable queries.
    pub unanswerable: usize,
    /// Number of the others.
    pub answerable: usize,
    /// The result of each signal, by name.
    pub signals: BTreeMap<String, Signal>,
}

/// The quality of a signal over all thresholds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationSignal)]
pub struct Signal {
    /// Probability that an answerable query has the higher signal; .5 is chance.
    pub auc: f64,
    /// Accuracy at the highest threshold with at most a tenth of false no-matches.
    #[serde(rename = "accuracy_at_10_percent_false")]
    pub accuracy_at_affordable: f64,
    /// From answering everything to answering nothing.
    pub curve: Vec<CurvePoint>,
}

/// The effect of answering "no match" below a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationCurvePoint)]
pub struct CurvePoint {
    /// Answers with a lower signal are "no match".
    pub threshold: f64,
    /// Share of the unanswerable queries recognised.
    pub accuracy: f64,
    /// Share of the other queries lost.
    pub false_no_match: f64,
}

/// The signals of one answer.
#[derive(Clone, Debug)]
struct Observation {
    no_match: bool,
    signals: Vec<(String, f64)>,
}

impl NoMatchReport {
    /// Runs every query on an engine without the removed tools.
    ///
    /// # Errors
    /// The first error of the engine.
    pub fn of(
        set: &EvalSet,
        held_out: &HeldOut,
        engine: &dyn Engine,
        arm: &Arm,
        on_query: &(dyn Fn() + Sync),
    ) -> Result<Self> {
        // In the order of `HeldOut::unanswerable`.
        let mut texts: Vec<&str> = set.query_texts().collect();
        texts.extend(set.unanswerable.iter().map(|query| query.text.as_str()));
        let observations = each_text(&texts, THREADS, |text| {
            let results = engine.answer(text, arm, HITS, Detail::Explained)?;
            on_query();
            Ok(Observation {
                no_match: results.matched == Match::None,
                signals: signals(&results),
            })
        })?;
        Ok(summarise(&arm.name, &held_out.unanswerable, &observations))
    }
}

/// Every signal of an answer, by name: those of the engine, and the best BM25 and fused score of
/// the hits.
fn signals(results: &Results) -> Vec<(String, f64)> {
    let hits = results.hits.iter();
    let signals = [
        ("confidence", results.confidence),
        ("coverage", Some(results.signals.coverage)),
        ("cosine", results.signals.cosine),
        ("bm25", hits.clone().filter_map(bm25).reduce(f32::max)),
        ("score", hits.map(|hit| hit.score).reduce(f32::max)),
    ];
    let mut found = Vec::with_capacity(signals.len());
    for (name, value) in signals {
        // A leg that did not take part gives no signal.
        if let Some(value) = value {
            found.push((name.to_owned(), f64::from(value)));
        }
    }
    found
}

fn bm25(hit: &Hit) -> Option<f32> {
    Some(hit.explain.as_ref()?.lexical.as_ref()?.raw)
}

fn summarise(arm: &str, unanswerable: &[bool], observations: &[Observation]) -> NoMatchReport {
    // Every name that any answer has: an answer without hits has no score.
    let mut signals = BTreeMap::new();
    for observation in observations {
        for (name, _) in &observation.signals {
            if !signals.contains_key(name) {
                signals.insert(name.clone(), signal(name, unanswerable, observations));
            }
        }
    }
    let (mut lost, mut others) = (Answered::default(), Answered::default());
    for (unanswerable, observation) in unanswerable.iter().zip(observations) {
        let kind = if *unanswerable {
            &mut lost
        } else {
            &mut others
        };
        kind.queries += 1;
        kind.with_no_match += usize::from(observation.no_match);
    }
    NoMatchReport {
        accuracy: lost.share(),
        false_no_match: others.share(),
        arm: arm.into(),
        unanswerable: lost.queries,
        answerable: others.queries,
        signals,
    }
}

/// Queries of one kind, and those of them that were answered with "no match".
#[derive(Default)]
struct Answered {
    queries: usize,
    with_no_match: usize,
}

impl Answered {
    fn share(&self) -> f64 {
        self.with_no_match as f64 / self.queries.max(1) as f64
    }
}

impl Observation {
    fn signal(&self, name: &str) -> Option<f64> {
        let (_, value) = self.signals.iter().find(|(other, _)| other == name)?;
        Some(*value)
    }
}

fn signal(name: &str, unanswerable: &[bool], observations: &[Observation]) -> Signal {
    // Without the signal the leg found nothing, so the answer is the least confident of all.
    let lowest = observations
        .iter()
        .filter_map(|observation| observation.signal(name))
        .fold(f64::INFINITY, f64::min)
        - 1.0;
    let (mut lost, mut others) = (Vec::new(), Vec::new());
    for (unanswerable, observation) in unanswerable.iter().zip(observations) {
        let value = observation.signal(name).unwrap_or(lowest);
        if *unanswerable {
            &mut lost
        } else {
            &mut others
        }
        .push(value);
    }
    lost.sort_by(f64::total_cmp);
    others.sort_by(f64::total_cmp);
    over_thresholds(&lost, &others)
}

/// Evaluates every threshold on the signals of unanswerable and answerable queries, both ascending.
fn over_thresholds(unanswerable: &[f64], answerable: &[f64]) -> Signal {
    let point = |threshold| CurvePoint {
        threshold,
        accuracy: share_below(threshold, unanswerable),
        false_no_match: share_below(threshold, answerable),
    };
    let mut thresholds: Vec<f64> = unanswerable.iter().chain(answerable).copied().collect();
    // Between two neighbouring values every threshold has the same effect.
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let mut accuracy_at_affordable = 0.0_f64;
    for &threshold in &thresholds {
        let point = point(threshold);
        if point.false_no_match <= AFFORDABLE_FALSE {
            accuracy_at_affordable = accuracy_at_affordable.max(point.accuracy);
        }
    }
    Signal {
        auc: area(unanswerable, answerable),
        accuracy_at_affordable,
        // A page draws the curve, and thousands of points would look the same.
        curve: spread(&thresholds).into_iter().map(point).collect(),
    }
}

/// The share of ascending values that are below a threshold.
fn share_below(threshold: f64, values: &[f64]) -> f64 {
    values.partition_point(|value| *value < threshold) as f64 / values.len().max(1) as f64
}

/// Thresholds at even ranks, first and last included.
fn spread(thresholds: &[f64]) -> Vec<f64> {
    let Some(last) = thresholds.len().checked_sub(1) else {
        return Vec::new();
    };
    let steps = (CURVE_POINTS - 1).min(last).max(1);
    let mut chosen = Vec::with_capacity(steps + 1);
    for step in 0..=steps {
        chosen.push(thresholds[step * last / steps]);
    }
    // With a single threshold, the first one is also the last one.
    chosen.dedup();
    chosen
}

/// The probability that a random answerable query has a higher signal than a random unanswerable
/// one. Ties count half.
fn area(unanswerable: &[f64], answerable: &[f64]) -> f64 {
    let pairs = (unanswerable.len() * answerable.len()).max(1) as f64;
    let wins = answerable.iter().map(|value| {
        // The mean of both counts makes each tie half a win.
        let lower = unanswerable.partition_point(|other| other < value);
        let not_higher = unanswerable.partition_point(|other| other <= value);
        (lower + not_higher) as f64 / 2.0
    });
    wins.sum::<f64>() / pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use crate::run::testing::{WordOverlap, arm};

    fn observation(no_match: bool, score: f64) -> Observation {
        Observation {
            no_match,
            signals: vec![("score".into(), score)],
        }
    }

    #[test]
    fn a_query_is_unanswerable_only_without_all_its_relevant_tools() {
        let ids: Vec<String> = (0..25).map(|n| format!("tool{n:02}")).collect();
        let tools: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "x")).collect();
        let all: Vec<&str> = ids.iter().map(String::as_str).collect();
        let singles: Vec<[&str; 1]> = all.iter().map(|id| [*id]).collect();
        let mut queries: Vec<(&str, &str, &[&str])> = singles
            .iter()
            .map(|id| (id[0], "x", id.as_slice()))
            .collect();
        queries.push(("all", "x", &all));
        let set = set(&tools, &queries);
        let held_out = HeldOut::draw(&set, 1);
        assert_eq!(held_out.tools.len(), 5);
        let lost: Vec<usize> = (0..26)
            .filter(|&query| held_out.unanswerable[query])
            .collect();
        assert_eq!(
            lost,
            held_out
                .tools
                .iter()
                .map(|&tool| tool as usize)
                .collect::<Vec<_>>()
        );
        assert!(held_out.has_both_kinds());
        assert_eq!(held_out, HeldOut::draw(&set, 1));
        assert_ne!(held_out.tools, HeldOut::draw(&set, 2).tools);
    }

    #[test]
    fn no_matches_are_counted_for_both_kinds_of_queries() {
        let unanswerable = [true, true, false, false, false, false];
        let abstained = [true, false, true, false, false, false];
        let observations: Vec<Observation> = abstained
            .iter()
            .map(|abstained| observation(*abstained, 0.0))
            .collect();
        let report = summarise("hybrid", &unanswerable, &observations);
        assert_eq!((report.accuracy, report.false_no_match), (0.5, 0.25));
        assert_eq!((report.unanswerable, report.answerable), (2, 4));
    }

    #[test]
    fn the_area_counts_ordered_pairs() {
        assert_eq!(area(&[0.1, 0.2], &[0.3, 0.4]), 1.0);
        assert_eq!(area(&[0.3, 0.4], &[0.1, 0.2]), 0.0);
        assert_eq!(area(&[0.5], &[0.5, 0.5]), 0.5);
        // Of the four pairs (.1,.2) (.1,.4) (.3,.2) (.3,.4) three are in order.
        assert_eq!(area(&[0.1, 0.3], &[0.2, 0.4]), 0.75);
    }

    #[test]
    fn a_curve_covers_all_thresholds() {
        let unanswerable: Vec<f64> = (0..50).map(f64::from).collect();
        let answerable: Vec<f64> = (40..140).map(f64::from).collect();
        let signal = over_thresholds(&unanswerable, &answerable);
        let (first, last) = (signal.curve[0], signal.curve[signal.curve.len() - 1]);
        assert_eq!((first.accuracy, first.false_no_match), (0.0, 0.0));
        assert_eq!(
            (last.threshold, last.accuracy, last.false_no_match),
            (139.0, 1.0, 0.99)
        );
        assert!(
            signal.curve.is_sorted_by(
                |a, b| a.accuracy <= b.accuracy && a.false_no_match <= b.false_no_match
            )
        );
        // At the threshold 50 all fifty are recognised at a price of 10 of 100.
        assert_eq!(signal.accuracy_at_affordable, 1.0);
    }

    #[test]
    fn an_answer_without_a_signal_is_the_least_confident() {
        let observations = [
            Observation {
                no_match: false,
                signals: vec![],
            },
            observation(false, -3.0),
        ];
        assert_eq!(signal("score", &[true, false], &observations).auc, 1.0);
    }

    #[test]
    fn every_query_is_searched() {
        let set = set(
            &[
                ("a", "mail"),
                ("b", "rain"),
                ("c", "song"),
                ("d", "map"),
                ("e", "tax"),
            ],
            &[
                ("1", "mail", &["a"]),
                ("2", "rain", &["b"]),
                ("3", "tax", &["e"]),
            ],
        );
        let held_out = HeldOut {
            tools: vec![0],
            unanswerable: vec![true, false, false],
        };
        let mut engine = WordOverlap::over(&set);
        engine.0.remove(0);
        let report = NoMatchReport::of(&set, &held_out, &engine, &arm("lexical"), &|| ()).unwrap();
        assert_eq!(report.signals["score"].auc, 1.0);
        assert_eq!(report.accuracy, 0.0);
    }
}
