//! Ablation of the default search: arms that add one part at a time, and a table of the gains.

use toolscout_index::{Fusion, Mode, Parts};

use super::Evaluation;
use super::arms::{Arm, Limits};
use super::bootstrap::{Interval, macro_interval};
use super::judge::Scores;
use super::metrics::{Metric, headline, mean};

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

/// The steps from lexical search to the full search: first with the instant embedder, then, if
/// there is a slow one, from lexical search again with it.
pub fn steps(embedding: Embedding) -> Vec<Step> {
    let hybrid = |name: &str, fusion, parts| Arm {
        name: name.into(),
        mode: Mode::Hybrid,
        fusion,
        dense_weight: None,
        parts,
        limits: Limits::default(),
        is_as_set: false,
    };
    let words = Arm {
        mode: Mode::Lexical,
        ..hybrid("words", Fusion::Convex, Parts::ALL)
    };
    let bare = Parts {
        slow_embedders: false,
        views: false,
        language_gate: false,
        clauses: false,
        ranker: false,
        ..Parts::ALL
    };
    let views = Parts {
        views: true,
        ..bare
    };
    let gate = Parts {
        language_gate: true,
        ..views
    };
    let mut arms = vec![
        words,
        hybrid("words + table, by rank", Fusion::Rrf, bare),
        hybrid("by score", Fusion::Convex, bare),
        hybrid("+ views", Fusion::Convex, views),
        hybrid("+ language gate", Fusion::Convex, gate),
        hybrid(
            "+ clauses",
            Fusion::Convex,
            Parts {
                clauses: true,
                ..gate
            },
        ),
        hybrid(
            "+ ranker: no-download tier",
            Fusion::Convex,
            Parts {
                clauses: true,
                ranker: true,
                ..gate
            },
        ),
    ];
    let restart = arms.len();
    if embedding == Embedding::Both {
        let model = |parts| Parts {
            slow_embedders: true,
            instant_embedders: false,
            ..parts
        };
        let joint = Parts {
            slow_embedders: true,
            ..gate
        };
        arms.extend([
            hybrid("words + model, by rank", Fusion::Rrf, model(bare)),
            hybrid("model, by score", Fusion::Convex, model(bare)),
            hybrid("model + views", Fusion::Convex, model(views)),
            hybrid("model + language gate", Fusion::Convex, model(gate)),
            hybrid("model + table", Fusion::Convex, joint),
            hybrid(
                "model + clauses: whole formula",
                Fusion::Convex,
                Parts {
                    clauses: true,
                    ..joint
                },
            ),
            hybrid(
                "model + ranker",
                Fusion::Convex,
                Parts {
                    clauses: true,
                    ranker: true,
                    ..joint
                },
            ),
        ]);
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
    let columns: Vec<Vec<Vec<f64>>> = (0..steps.len())
        .map(|step| {
            evaluations
                .iter()
                .map(|evaluation| column(evaluation, step))
                .collect()
        })
        .collect();
    let seed = evaluations
        .first()
        .map_or(0, |evaluation| evaluation.report.seed);
    let averaged = |columns: &[Vec<f64>]| {
        let means: Vec<f64> = columns.iter().map(|column| mean(column)).collect();
        (mean(&means), macro_interval(columns, seed))
    };
    let mut rows = Vec::new();
    for (step, columns_of_step) in steps.iter().zip(&columns) {
        rows.push(Row {
            name: step.arm.name.clone(),
            by_set: columns_of_step.iter().map(|column| mean(column)).collect(),
            mean: averaged(columns_of_step),
            added: step
                .after
                .map(|before| averaged(&differences(columns_of_step, &columns[before]))),
        });
    }
    rows
}

/// The value of every query of a set by one arm.
fn column(evaluation: &Evaluation, arm: usize) -> Vec<f64> {
    let metrics: Vec<Metric> = evaluation.report.arms[arm]
        .means
        .0
        .iter()
        .map(|(metric, _)| *metric)
        .collect();
    let metric = headline(&metrics);
    Scores::strict(&evaluation.set, &evaluation.runs[arm], &[metric])
        .column(metric)
        .to_vec()
}

fn differences(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_set = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a - b).collect();
    a.iter().zip(b).map(of_set).collect()
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
