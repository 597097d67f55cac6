//! Ablation of the default search: arms that add one part at a time, and a table of the gains.

use toolscout_index::{Fusion, Mode, Parts};

use super::Evaluation;
use super::arms::{Arm, of_mode};
use super::bootstrap::{Interval, macro_interval};
use super::judge::Scores;
use super::metrics::{headline, mean};

/// The embedders of an ablation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embedding {
    /// An instant embedder alone.
    Instant,
    /// An instant and a slow embedder.
    Both,
}

/// An arm and the arm that it adds a part to.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The arm.
    pub arm: Arm,
    /// The position of the step before it; `None` for the first.
    pub after: Option<usize>,
}

/// Words and the instant embedder, and nothing more.
const BARE: Parts = Parts {
    slow_embedders: false,
    views: false,
    language_gate: false,
    clauses: false,
    ranker: false,
    ..Parts::ALL
};
const VIEWS: Parts = Parts {
    views: true,
    ..BARE
};
const GATE: Parts = Parts {
    language_gate: true,
    ..VIEWS
};

/// The steps from lexical search to the full search: first with the instant embedder, then, if
/// there is a slow one, from lexical search again with it.
pub fn steps(embedding: Embedding) -> Vec<Step> {
    let mut arms = arms_without_model().to_vec();
    let restart = arms.len();
    if embedding == Embedding::Both {
        arms.extend(arms_with_model());
    }
    let mut steps = Vec::new();
    for (position, arm) in arms.into_iter().enumerate() {
        // The steps with the model start from the first step, lexical search.
        let after = if position == restart {
            Some(0)
        } else {
            position.checked_sub(1)
        };
        steps.push(Step { arm, after });
    }
    steps
}

fn arms_without_model() -> [Arm; 7] {
    let clauses = Parts {
        clauses: true,
        ..GATE
    };
    let ranker = Parts {
        ranker: true,
        ..clauses
    };
    [
        Arm {
            mode: Mode::Lexical,
            ..hybrid("words", Fusion::Convex, Parts::ALL)
        },
        hybrid("words + table, by rank", Fusion::Rrf, BARE),
        hybrid("by score", Fusion::Convex, BARE),
        hybrid("+ views", Fusion::Convex, VIEWS),
        hybrid("+ language gate", Fusion::Convex, GATE),
        hybrid("+ clauses", Fusion::Convex, clauses),
        hybrid("+ ranker: no-download tier", Fusion::Convex, ranker),
    ]
}

/// First with the model in place of the table, then with both.
fn arms_with_model() -> [Arm; 7] {
    let joint = Parts {
        slow_embedders: true,
        ..GATE
    };
    let clauses = Parts {
        clauses: true,
        ..joint
    };
    let ranker = Parts {
        ranker: true,
        ..clauses
    };
    [
        hybrid("words + model, by rank", Fusion::Rrf, by_model(BARE)),
        hybrid("model, by score", Fusion::Convex, by_model(BARE)),
        hybrid("model + views", Fusion::Convex, by_model(VIEWS)),
        hybrid("model + language gate", Fusion::Convex, by_model(GATE)),
        hybrid("model + table", Fusion::Convex, joint),
        hybrid("model + clauses: whole formula", Fusion::Convex, clauses),
        hybrid("model + ranker", Fusion::Convex, ranker),
    ]
}

fn by_model(parts: Parts) -> Parts {
    Parts {
        slow_embedders: true,
        instant_embedders: false,
        ..parts
    }
}

fn hybrid(name: &str, fusion: Fusion, parts: Parts) -> Arm {
    Arm {
        parts,
        ..of_mode(Mode::Hybrid, fusion, name)
    }
}

/// The nDCG of one step, at the deepest cut-off.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The step's name.
    pub name: String,
    /// By set.
    pub by_set: Vec<f64>,
    /// The mean over sets with equal weights, with its interval.
    pub mean: (f64, Interval),
    /// The mean gain over the step before it, with its interval.
    pub added: Option<(f64, Interval)>,
}

/// The rows of the table. All sets must have been measured with the arms of these steps.
pub fn rows(evaluations: &[Evaluation], steps: &[Step]) -> Vec<Row> {
    let mut columns: Vec<Vec<Vec<f64>>> = Vec::with_capacity(steps.len());
    for step in 0..steps.len() {
        let evaluations = evaluations.iter();
        columns.push(evaluations.map(|of_set| column(of_set, step)).collect());
    }
    let seed = evaluations.first().map_or(0, |of_set| of_set.report.seed);
    let mut rows = Vec::with_capacity(steps.len());
    for (step, of_step) in steps.iter().zip(&columns) {
        rows.push(Row {
            name: step.arm.name.clone(),
            by_set: means(of_step),
            mean: averaged(of_step, seed),
            // Query by query: what the queries have in common does not widen this interval.
            added: step
                .after
                .map(|before| averaged(&differences(of_step, &columns[before]), seed)),
        });
    }
    rows
}

fn means(columns: &[Vec<f64>]) -> Vec<f64> {
    columns.iter().map(|column| mean(column)).collect()
}

/// The mean over sets with equal weights, with its interval.
fn averaged(columns: &[Vec<f64>], seed: u64) -> (f64, Interval) {
    (mean(&means(columns)), macro_interval(columns, seed))
}

/// The value of every query of a set by one arm.
fn column(evaluation: &Evaluation, arm: usize) -> Vec<f64> {
    let metric = headline(&evaluation.report.arms[arm].means.metrics());
    Scores::strict(&evaluation.set, &evaluation.runs[arm], &[metric])
        .column(metric)
        .to_vec()
}

fn differences(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut differences = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        differences.push(a.iter().zip(b).map(|(a, b)| a - b).collect());
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_in_the_default_each_adding_to_an_earlier_one() {
        let all = steps(Embedding::Both);
        let last = all.last().map(|step| &step.arm);
        assert!(last.is_some_and(|arm| arm.parts == Parts::ALL && arm.fusion == Fusion::Convex));
        let after: Vec<Option<usize>> = all.iter().map(|step| step.after).collect();
        // Words, what the table adds, and from words again what the model adds.
        let table = (0..6).map(Some);
        let model = [0, 7, 8, 9, 10, 11, 12].map(Some);
        assert_eq!(
            after,
            [None]
                .into_iter()
                .chain(table)
                .chain(model)
                .collect::<Vec<_>>()
        );
        let without_model = steps(Embedding::Instant);
        assert_eq!(without_model, all[..7]);
        assert_eq!(
            without_model[6].arm.parts,
            Parts {
                slow_embedders: false,
                ..Parts::ALL
            }
        );
    }
}
