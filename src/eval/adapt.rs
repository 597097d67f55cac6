//! Fits the ranker to one catalog, and shows on other tools whether it gained by that.
//!
//! The tools are split in two as in [`tune`](super::tune). On the train half the leaves of the
//! forest are fitted anew and the ranker's weight is chosen, each judged by queries it was not
//! fitted to; the test half tells the gain. What does not gain there is not worth keeping.

use serde::Serialize;
use toolscout_index::ranker::refit::{Judged, refit};
use toolscout_index::ranker::{Feature, Forest};
use toolscout_index::{Query, Ranker, Searcher};

use super::bootstrap::{Interval, paired};
use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use super::metrics::mean;
use super::run::{THREADS, each_text};
use super::tune::{Half, Split};

/// How much of the leaves is kept; 1 fits nothing anew.
const KEPT: [f64; 5] = [1.0, 0.9, 0.7, 0.5, 0.3];
/// Weights of the ranker beside the formula.
const MIXES: [f32; 7] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5];
/// Places that count.
const DEPTH: usize = 10;

/// What fitting brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adapted {
    /// The set's name.
    pub set: String,
    /// Decides the split.
    pub seed: u64,
    /// The ranker's weight before and after.
    pub mix: [f32; 2],
    /// How much of the leaves was kept.
    pub kept: f64,
    /// The half that was learned from.
    pub train: Half,
    /// The half that tells the gain.
    pub test: Half,
    /// 95% interval of the gain on the test half.
    pub test_gain_ci95: Interval,
    /// p-value of the gain on the test half.
    pub test_gain_p: f64,
    /// Queries with relevant tools in both halves, left out.
    pub left_out: usize,
    /// True where the test half gained: only then is the fitted ranker worth keeping.
    pub accepted: bool,
}

/// A query's candidates, measured.
struct Lesson {
    rows: Vec<f32>,
    relevant: Vec<bool>,
    fused: Vec<f32>,
    /// Relevant tools, candidates or not.
    wanted: usize,
}

/// Fits the ranker of a catalog to a set's judged queries. `asked` is called after each query.
///
/// # Errors
/// [`EvalError::Option`] when a part has too few queries to tell anything or no ranker was trained for the catalog's
/// legs, and the engine's.
pub fn adapt(
    set: &EvalSet,
    searcher: &Searcher,
    seed: u64,
    asked: &(dyn Fn() + Sync),
) -> Result<(Adapted, Ranker)> {
    let split = Split::draw(set, seed)?;
    let inner = Split::draw(&split.train, seed.wrapping_add(1))?;
    let mut ranker = searcher
        .ranker()
        .map(|ranker| Ranker::clone(ranker))
        .ok_or_else(no_ranker)?;
    let (legs, test) = lessons(&split.test, searcher, asked)?;
    let (_, train) = lessons(&split.train, searcher, asked)?;
    let (_, fitting) = lessons(&inner.train, searcher, &|| ())?;
    let (_, choosing) = lessons(&inner.test, searcher, &|| ())?;
    let model = ranker
        .model_mut(legs.iter().map(String::as_str))
        .ok_or_else(no_ranker)?;
    let (kept, mix) = choose(model.trees(), model.mix(), &fitting, &choosing);
    let fitted = model.adapted(refit(model.trees(), &judged(&train, mix), kept), mix);
    let column = |trees: &Forest, mix: f32, lessons: &[Lesson]| -> Vec<f64> {
        lessons
            .iter()
            .map(|lesson| lesson.ndcg(trees, mix))
            .collect()
    };
    let halves = |lessons: &[Lesson]| {
        [
            column(model.trees(), model.mix(), lessons),
            column(fitted.trees(), fitted.mix(), lessons),
        ]
    };
    let (train, test) = (halves(&train), halves(&test));
    let gain = paired(&test[1], &test[0], seed);
    let adapted = Adapted {
        set: set.name.clone(),
        seed,
        mix: [model.mix(), mix],
        kept,
        train: Half::of(&train),
        test: Half::of(&test),
        test_gain_ci95: gain.interval,
        test_gain_p: gain.p,
        left_out: split.left_out,
        accepted: mean(&test[1]) > mean(&test[0]),
    };
    *model = fitted;
    Ok((adapted, ranker))
}

/// How much to keep and how much weight to give: what serves queries best that were not fitted to.
/// What changes least wins among equals.
fn choose(trees: &Forest, mix: f32, fitting: &[Lesson], choosing: &[Lesson]) -> (f64, f32) {
    let score = |trees: &Forest, mix: f32| {
        mean(
            &choosing
                .iter()
                .map(|l| l.ndcg(trees, mix))
                .collect::<Vec<_>>(),
        )
    };
    let (mut best, mut best_score) = ((1.0, mix), score(trees, mix));
    for kept in KEPT {
        let fitted = refit(trees, &judged(fitting, mix), kept);
        for mix in MIXES {
            let score = score(&fitted, mix);
            if score > best_score {
                (best, best_score) = ((kept, mix), score);
            }
        }
    }
    best
}

fn judged(lessons: &[Lesson], mix: f32) -> Vec<Judged> {
    // Without weight there is no common unit; the formula's say is then left out.
    let unit = if mix > 0.0 {
        f64::from(mix)
    } else {
        f64::INFINITY
    };
    let base = |lesson: &Lesson| {
        lesson
            .fused
            .iter()
            .map(|&score| f64::from(score) / unit)
            .collect()
    };
    let judged = |lesson: &Lesson| Judged {
        rows: lesson.rows.clone(),
        relevant: lesson.relevant.clone(),
        base: base(lesson),
    };
    lessons.iter().map(judged).collect()
}

/// The queries of a set, measured, and the legs that were heard.
fn lessons(
    set: &EvalSet,
    searcher: &Searcher,
    asked: &(dyn Fn() + Sync),
) -> Result<(Vec<String>, Vec<Lesson>)> {
    let texts: Vec<&str> = set
        .queries
        .iter()
        .map(|query| query.text.as_str())
        .collect();
    let measured = each_text(&texts, THREADS, |text| {
        let measured = searcher.ranker_sample(&Query::new(text))?;
        asked();
        Ok(measured)
    })?;
    let mut legs: Option<Vec<String>> = None;
    let mut lessons = Vec::new();
    for (query, measured) in set.queries.iter().zip(measured) {
        let measured = measured.ok_or_else(no_ranker)?;
        if *legs.get_or_insert_with(|| measured.legs.clone()) != measured.legs {
            continue;
        }
        let is_right = |id: &str| {
            set.position(id)
                .is_some_and(|tool| query.relevant.binary_search(&tool).is_ok())
        };
        let width = Feature::ALL.len();
        lessons.push(Lesson {
            relevant: measured
                .tools
                .iter()
                .map(|id| is_right(id.as_str()))
                .collect(),
            fused: measured
                .rows
                .chunks_exact(width)
                .map(|row| row[Feature::Fused as usize])
                .collect(),
            rows: measured.rows,
            wanted: query.relevant.len(),
        });
    }
    Ok((legs.unwrap_or_default(), lessons))
}

fn no_ranker() -> EvalError {
    let reason = "no ranker was trained for the embedders of this catalog; use the built-in table, with or without \
                  all-MiniLM-L6-v2";
    EvalError::option("--ranker", "", reason)
}

impl Lesson {
    fn ndcg(&self, trees: &Forest, mix: f32) -> f64 {
        let given = trees.predict(&self.rows, Feature::ALL.len());
        let scores: Vec<f32> = self
            .fused
            .iter()
            .zip(&given)
            .map(|(fused, &given)| fused + mix * given as f32)
            .collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let discount = |place: usize| 1.0 / ((place + 2) as f64).log2();
        let found = order
            .iter()
            .take(DEPTH)
            .enumerate()
            .filter(|(_, candidate)| self.relevant[**candidate]);
        let ideal: f64 = (0..self.wanted.min(DEPTH)).map(discount).sum();
        found.map(|(place, _)| discount(place)).sum::<f64>() / ideal.max(f64::MIN_POSITIVE)
    }
}
