//! Fits the ranker to one catalog, and measures the gain on held-out tools.
//!
//! The tools are split into two halves as in [`tune`](super::tune). The train half refits the
//! leaves of the forest and chooses the weight of the ranker, each evaluated on queries it was not
//! fitted to. The test half measures the gain. A ranker without a
//! significant gain there is not accepted.

use serde::Serialize;
use toolscout_index::hit::ranked;
use toolscout_index::ranker::refit::{Judged, refit};
use toolscout_index::ranker::{Feature, Forest};
use toolscout_index::{Query, Ranker, Searcher};

use super::bootstrap::{Interval, paired};
use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use super::metrics::mean;
use super::run::{THREADS, each_text};
use super::tune::{Half, Split, Verdict};

/// Shares of the old leaves that are tried; 1 refits nothing.
const KEPT: [f64; 5] = [1.0, 0.9, 0.7, 0.5, 0.3];
/// Weights of the ranker that are tried.
const MIXES: [f32; 7] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5];
/// Cut-off of nDCG.
const DEPTH: usize = 10;

/// The result of fitting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adapted {
    /// The set's name.
    pub set: String,
    /// The seed of the split.
    pub seed: u64,
    /// The ranker's weight before and after.
    pub mix: [f32; 2],
    /// The share of the old leaves that was kept.
    pub kept: f64,
    /// The half that the ranker was fitted to.
    pub train: Half,
    /// The half that measures the gain.
    pub test: Half,
    /// 95% interval of the gain on the test half.
    pub test_gain_ci95: Interval,
    /// p-value of the gain on the test half.
    pub test_gain_p: f64,
    /// Queries with relevant tools in both halves, left out.
    pub left_out: usize,
    /// True when the mean of the test half rose by more than chance.
    pub accepted: bool,
}

impl Adapted {
    /// What is to be done with the ranker.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.test, self.test_gain_p)
    }
}

/// The candidates of a query, with their features.
struct Example {
    rows: Vec<f32>,
    relevant: Vec<bool>,
    fused: Vec<f32>,
    /// Number of relevant tools, whether or not they are candidates.
    wanted: usize,
}

/// Fits the ranker of a catalog to the judged queries of a set. Calls `on_query` after each query.
///
/// # Errors
/// [`EvalError::TooFewQueries`] in a half, [`EvalError::Option`] when no ranker was trained for the legs of the
/// catalog; errors of the engine.
pub fn adapt(
    set: &EvalSet,
    searcher: &Searcher,
    seed: u64,
    on_query: &(dyn Fn() + Sync),
) -> Result<(Adapted, Ranker)> {
    let split = Split::draw(set, seed)?;
    // Split once more, because the share and the weight must not be chosen on queries that the
    // leaves were fitted to.
    let inner = Split::draw(&split.train, seed.wrapping_add(1))?;
    let mut ranker = Ranker::clone(searcher.ranker().ok_or_else(no_ranker)?);
    let (legs, test) = examples(&split.test, searcher, on_query)?;
    let (_, train) = examples(&split.train, searcher, on_query)?;
    let (_, fitting) = examples(&inner.train, searcher, &|| ())?;
    let (_, choosing) = examples(&inner.test, searcher, &|| ())?;
    let model = ranker
        .model_mut(legs.iter().map(String::as_str))
        .ok_or_else(no_ranker)?;
    let (kept, mix) = choose(model.trees(), model.mix(), &fitting, &choosing);
    // Fitted again to the whole train half, with what was chosen on its inner halves.
    let fitted = model.adapted(refit(model.trees(), &judged(&train, mix), kept), mix);
    let before_and_after = |examples: &[Example]| {
        [
            column(model.trees(), model.mix(), examples),
            column(fitted.trees(), fitted.mix(), examples),
        ]
    };
    let (train, test) = (before_and_after(&train), before_and_after(&test));
    let gain = paired(&test[1], &test[0], seed);
    let of_test = Half::of(&test);
    let adapted = Adapted {
        set: set.name.clone(),
        seed,
        mix: [model.mix(), mix],
        kept,
        train: Half::of(&train),
        test: of_test,
        test_gain_ci95: gain.interval,
        test_gain_p: gain.p,
        left_out: split.left_out,
        accepted: Verdict::of(&of_test, gain.p) == Verdict::Gain,
    };
    *model = fitted;
    // Later measurements can then say that the ranker was trained on these queries.
    ranker.add_seen(split.train.query_texts());
    Ok((adapted, ranker))
}

/// The nDCG of each example.
fn column(trees: &Forest, mix: f32, examples: &[Example]) -> Vec<f64> {
    let examples = examples.iter();
    examples.map(|example| example.ndcg(trees, mix)).collect()
}

/// The share of old leaves and the weight with the best score on queries that were not fitted to.
/// Among equal scores the smallest change wins.
fn choose(trees: &Forest, mix: f32, fitting: &[Example], choosing: &[Example]) -> (f64, f32) {
    let (mut best, mut best_score) = ((1.0, mix), mean(&column(trees, mix, choosing)));
    for kept in KEPT {
        let fitted = refit(trees, &judged(fitting, mix), kept);
        for mix in MIXES {
            let score = mean(&column(&fitted, mix, choosing));
            if score > best_score {
                (best, best_score) = ((kept, mix), score);
            }
        }
    }
    best
}

fn judged(examples: &[Example], mix: f32) -> Vec<Judged> {
    // With weight 0 the two scores have no common unit; the fused score then counts as 0.
    let unit = if mix > 0.0 {
        f64::from(mix)
    } else {
        f64::INFINITY
    };
    let mut judged = Vec::with_capacity(examples.len());
    for example in examples {
        let fused = example.fused.iter();
        judged.push(Judged {
            rows: example.rows.clone(),
            relevant: example.relevant.clone(),
            base: fused.map(|&score| f64::from(score) / unit).collect(),
        });
    }
    judged
}

/// The examples of a set, and the legs that contributed.
fn examples(
    set: &EvalSet,
    searcher: &Searcher,
    on_query: &(dyn Fn() + Sync),
) -> Result<(Vec<String>, Vec<Example>)> {
    let texts: Vec<&str> = set.query_texts().collect();
    let measured = each_text(&texts, THREADS, |text| {
        let measured = searcher.ranker_sample(&Query::new(text))?;
        on_query();
        Ok(measured)
    })?;
    let mut legs: Option<Vec<String>> = None;
    let mut examples = Vec::new();
    for (query, measured) in set.queries.iter().zip(measured) {
        let measured = measured.ok_or_else(no_ranker)?;
        // A forest belongs to one combination of legs; a query that other legs answered is left
        // out.
        if *legs.get_or_insert_with(|| measured.legs.clone()) != measured.legs {
            continue;
        }
        let mut relevant = Vec::with_capacity(measured.tools.len());
        for id in &measured.tools {
            let tool = set.position(id.as_str());
            relevant.push(matches!(tool, Some(tool) if query.is_relevant(tool)));
        }
        let rows = measured.rows.chunks_exact(Feature::ALL.len());
        examples.push(Example {
            relevant,
            fused: rows.map(|row| row[Feature::Fused as usize]).collect(),
            rows: measured.rows,
            wanted: query.relevant.len(),
        });
    }
    Ok((legs.unwrap_or_default(), examples))
}

fn no_ranker() -> EvalError {
    let reason = "no ranker was trained for the embedders of this catalog; use the built-in table, with or without \
                  the encoder";
    EvalError::option("--ranker", "", reason)
}

impl Example {
    fn ndcg(&self, trees: &Forest, mix: f32) -> f64 {
        let given = trees.predict(&self.rows, Feature::ALL.len());
        let mut scores = Vec::with_capacity(given.len());
        for (fused, given) in self.fused.iter().zip(given) {
            scores.push(fused + mix * given as f32);
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| ranked((scores[a], a), (scores[b], b)));
        let mut found = 0.0;
        for (place, candidate) in order.into_iter().take(DEPTH).enumerate() {
            if self.relevant[candidate] {
                found += discount(place);
            }
        }
        let ideal: f64 = (0..self.wanted.min(DEPTH)).map(discount).sum();
        // Without relevant tools the ideal is 0, and the query counts as 0.
        found / ideal.max(f64::MIN_POSITIVE)
    }
}

fn discount(place: usize) -> f64 {
    1.0 / ((place + 2) as f64).log2()
}
