//! Finds better settings for a catalog, and measures the gain on held-out tools.
//!
//! The seed splits the tools into two halves. Queries whose relevant tools are all in the train
//! half choose the settings; queries whose tools are all in the test half measure the gain; the
//! others are left out. A split by queries would fit settings to the tools they are tested on.

use std::sync::Arc;

use serde::Serialize;
use toolscout_index::{Fusion, Mode, Results, Searcher, Settings};

use super::arms::{Arm, of_mode};
use super::bootstrap::{Interval, paired};
use super::dataset::{EvalSet, ToolIndex};
use super::error::{EvalError, Result};
use super::judge::Scores;
use super::metrics::{Measure, Metric};
use super::prepare::TemporaryCatalog;
use super::random::Random;
use super::run::{ArmRun, Detail, Engine};

/// The metric to maximise.
const TARGET: Metric = Metric::new(Measure::Ndcg, TARGET_DEPTH);
const TARGET_DEPTH: usize = 10;
/// Passes over all knobs. The second rarely changes anything, a third never did.
const PASSES: usize = 3;
/// A gain with a p-value from here on may as well be chance.
pub const SIGNIFICANT_BELOW: f64 = 0.05;
/// Least queries in each half: with fewer, one query moves the mean by more than two points.
const FEWEST_QUERIES: usize = 20;

/// A setting that can be tuned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knob {
    /// Its name in the settings.
    pub name: String,
    /// Its present value.
    pub value: f32,
    /// The values to try.
    #[serde(skip)]
    pub choices: Vec<f32>,
}

/// An engine whose settings can be tuned.
pub trait Adjustable {
    /// The knobs, with their present values.
    fn knobs(&self) -> Vec<Knob>;

    /// The engine with these values, in the order of [`Adjustable::knobs`].
    ///
    /// # Errors
    /// Errors of the engine.
    fn at(&self, values: &[f32]) -> Result<Box<dyn Engine + '_>>;
}

/// The settings found, and their gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The set's name.
    pub set: String,
    /// The seed of the split.
    pub seed: u64,
    /// The metric that was maximised.
    pub metric: String,
    /// Every knob with its value before and after.
    pub knobs: Vec<Turned>,
    /// The half that chose the settings.
    pub train: Half,
    /// The half that measures the gain.
    pub test: Half,
    /// 95% interval of the gain on the test half.
    pub test_gain_ci95: Interval,
    /// p-value of the gain on the test half.
    pub test_gain_p: f64,
    /// Queries with relevant tools in both halves, left out.
    pub left_out: usize,
}

/// A knob before and after tuning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turned {
    /// Its name in the settings.
    pub name: String,
    /// The value before.
    pub before: f32,
    /// The best value.
    pub after: f32,
}

/// One half of the queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Half {
    /// Their number.
    pub queries: usize,
    /// Mean of the metric with the old settings.
    pub before: f64,
    /// Mean of the metric with the new settings.
    pub after: f64,
}

/// Sets one knob after the other to its best value on the train half. Calls `on_trial` after each
/// trial.
///
/// # Errors
/// [`EvalError::TooFewQueries`] in a half; errors of the engine.
pub fn tune(
    set: &EvalSet,
    engine: &dyn Adjustable,
    seed: u64,
    on_trial: &(dyn Fn() + Sync),
) -> Result<Tuned> {
    let split = Split::draw(set, seed)?;
    let knobs = engine.knobs();
    let start: Vec<f32> = knobs.iter().map(|knob| knob.value).collect();
    let best = climb(&split.train, engine, (&knobs, &start), on_trial)?;
    let train = [
        column(&split.train, engine, &start)?,
        column(&split.train, engine, &best)?,
    ];
    let test = [
        column(&split.test, engine, &start)?,
        column(&split.test, engine, &best)?,
    ];
    let gain = paired(&test[1], &test[0], seed);
    let mut turned = Vec::with_capacity(knobs.len());
    for (knob, after) in knobs.into_iter().zip(best) {
        turned.push(Turned {
            name: knob.name,
            before: knob.value,
            after,
        });
    }
    Ok(Tuned {
        set: set.name.clone(),
        seed,
        metric: TARGET.to_string(),
        knobs: turned,
        train: Half::of(&train),
        test: Half::of(&test),
        test_gain_ci95: gain.interval,
        test_gain_p: gain.p,
        left_out: split.left_out,
    })
}

impl Tuned {
    /// What is to be done with the settings.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.test, self.test_gain_p)
    }

    /// A catalog's settings with the values found in place of its own; what was not tuned stays.
    pub fn applied_to(&self, mut settings: Settings) -> Settings {
        for (name, place, _) in KNOBS {
            if let Some(knob) = self.knobs.iter().find(|knob| knob.name == name) {
                *place(&mut settings) = knob.after;
            }
        }
        settings
    }
}

/// Whether a gain on the test half is more than chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The mean rose, and chance alone hardly does that.
    Gain,
    /// The mean rose, as it may by chance alone.
    MayBeChance,
    /// The mean did not rise.
    NoGain,
}

impl Verdict {
    /// The verdict on a half with this p-value of the paired randomisation test.
    pub(super) fn of(test: &Half, p: f64) -> Self {
        if test.after <= test.before {
            Verdict::NoGain
        } else if p < SIGNIFICANT_BELOW {
            Verdict::Gain
        } else {
            Verdict::MayBeChance
        }
    }
}

impl Half {
    pub(super) fn of([before, after]: &[Vec<f64>; 2]) -> Self {
        let mean = super::metrics::mean;
        Half {
            queries: before.len(),
            before: mean(before),
            after: mean(after),
        }
    }
}

/// The knobs of the settings of a catalog: name, accessor, and the values to try. The values are
/// near the defaults, which come from nine public sets; 0 switches a field off.
#[expect(
    clippy::type_complexity,
    reason = "a table reads better than a struct with one use"
)]
const KNOBS: [(&str, fn(&mut Settings) -> &mut f32, &[f32]); 9] = [
    (
        "dense_weight",
        |s| &mut s.dense_weight,
        &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
    ),
    (
        "name",
        |s| &mut s.lexical.weights.name,
        &[0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
    ),
    (
        "server",
        |s| &mut s.lexical.weights.server,
        &[0.0, 1.0, 2.5, 4.0],
    ),
    (
        "description",
        |s| &mut s.lexical.weights.description,
        &[0.5, 1.0, 1.5, 2.0],
    ),
    (
        "parameter_names",
        |s| &mut s.lexical.weights.parameter_names,
        &[0.0, 0.25, 0.5, 1.0],
    ),
    (
        "parameter_descriptions",
        |s| &mut s.lexical.weights.parameter_descriptions,
        &[0.0, 0.2, 0.4, 0.8],
    ),
    (
        "enum_values",
        |s| &mut s.lexical.weights.enum_values,
        &[0.0, 0.2, 0.4, 0.8],
    ),
    ("k1", |s| &mut s.lexical.k1, &[0.8, 1.2, 2.0, 3.0]),
    ("b", |s| &mut s.lexical.b, &[0.25, 0.5, 0.75, 1.0]),
];

/// A copy of a catalog whose settings can be tuned. A copy, because a change of field weights
/// rebuilds the lexical index.
pub struct Tunable {
    copy: TemporaryCatalog,
    start: Settings,
}

impl Tunable {
    /// Tunes a copy of a catalog, from the settings it has.
    pub fn new(copy: TemporaryCatalog) -> Self {
        let start = copy.catalog.searcher().settings().clone();
        Tunable { copy, start }
    }

    /// The settings of the copy with the values found.
    pub fn settings(&self, tuned: &Tuned) -> Settings {
        tuned.applied_to(self.start.clone())
    }

    fn with(&self, values: &[f32]) -> Settings {
        let mut settings = self.start.clone();
        for ((_, place, _), value) in KNOBS.iter().zip(values) {
            *place(&mut settings) = *value;
        }
        settings
    }
}

impl Adjustable for Tunable {
    fn knobs(&self) -> Vec<Knob> {
        // The accessors need settings that can be changed, also to read them.
        let mut settings = self.start.clone();
        let mut knobs = Vec::with_capacity(KNOBS.len());
        for (name, place, choices) in KNOBS {
            knobs.push(Knob {
                name: name.into(),
                value: *place(&mut settings),
                choices: choices.to_vec(),
            });
        }
        knobs
    }

    fn at(&self, values: &[f32]) -> Result<Box<dyn Engine + '_>> {
        let settings = self.with(values);
        // Writing settings rebuilds the lexical index, so it is skipped where nothing changes.
        if *self.copy.catalog.searcher().settings() != settings {
            let mut writer = self.copy.catalog.writer()?;
            writer.set_settings(&settings)?;
            writer.commit()?;
        }
        Ok(Box::new(Snapshot(self.copy.catalog.searcher())))
    }
}

struct Snapshot(Arc<Searcher>);

impl Engine for Snapshot {
    fn answer(
        &self,
        text: &str,
        arm: &Arm,
        depth: usize,
        detail: Detail,
    ) -> toolscout_index::Result<Results> {
        self.0.answer(text, arm, depth, detail)
    }
}

pub(super) struct Split {
    pub(super) train: EvalSet,
    pub(super) test: EvalSet,
    pub(super) left_out: usize,
}

impl Split {
    pub(super) fn draw(set: &EvalSet, seed: u64) -> Result<Self> {
        // `sample` is sorted, which the binary search needs.
        let half = Random::new(seed, "split").sample(set.tools.len(), set.tools.len() / 2);
        let trains = |tool: &ToolIndex| half.binary_search(&(*tool as usize)).is_ok();
        let (mut train, mut test) = (set.clone(), set.clone());
        train
            .queries
            .retain(|query| query.relevant.iter().all(trains));
        test.queries
            .retain(|query| !query.relevant.iter().any(trains));
        // Those that need tools of both halves.
        let left_out = set.queries.len() - train.queries.len() - test.queries.len();
        for (part, half) in [(&train, "train"), (&test, "test")] {
            let found = part.queries.len();
            if found < FEWEST_QUERIES {
                return Err(EvalError::TooFewQueries {
                    set: set.name.clone(),
                    queries: set.queries.len(),
                    half,
                    found,
                    across: left_out,
                    needed: FEWEST_QUERIES,
                });
            }
        }
        Ok(Split {
            train,
            test,
            left_out,
        })
    }
}

fn climb(
    train: &EvalSet,
    engine: &dyn Adjustable,
    (knobs, start): (&[Knob], &[f32]),
    on_trial: &(dyn Fn() + Sync),
) -> Result<Vec<f32>> {
    let mut best = start.to_vec();
    let mut best_mean = super::metrics::mean(&column(train, engine, &best)?);
    for _ in 0..PASSES {
        let before = best.clone();
        for (index, knob) in knobs.iter().enumerate() {
            for &choice in &knob.choices {
                // This is the value that `best` has.
                if choice == before[index] {
                    continue;
                }
                let mut values = best.clone();
                values[index] = choice;
                let mean = super::metrics::mean(&column(train, engine, &values)?);
                on_trial();
                // Strictly better: of equal values the one in use stays.
                if mean > best_mean {
                    (best, best_mean) = (values, mean);
                }
            }
        }
        // Another pass would try the same again.
        if best == before {
            break;
        }
    }
    Ok(best)
}

fn column(set: &EvalSet, engine: &dyn Adjustable, values: &[f32]) -> Result<Vec<f64>> {
    // The fusion that weights the legs: by rank alone there is no weight to tune.
    let hybrid = of_mode(Mode::Hybrid, Fusion::Convex, "hybrid");
    let depth = TARGET_DEPTH.min(set.tools.len());
    let run = ArmRun::of(set, &*engine.at(values)?, &hybrid, depth, &|| ())?;
    Ok(Scores::strict(set, &run, &[TARGET]).column(TARGET).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::{set, set as set_of};
    use crate::run::testing::WordOverlap;

    /// Ranks correctly when `good` is 3 and in reverse otherwise; `idle` has no effect.
    struct TwoKnobs(WordOverlap);

    struct Turned(WordOverlap, bool);

    impl Engine for Turned {
        fn answer(
            &self,
            text: &str,
            arm: &Arm,
            depth: usize,
            detail: Detail,
        ) -> toolscout_index::Result<Results> {
            let mode = if self.1 { Mode::Lexical } else { Mode::Dense };
            self.0.answer(
                text,
                &Arm {
                    mode,
                    ..arm.clone()
                },
                depth,
                detail,
            )
        }
    }

    impl Adjustable for TwoKnobs {
        fn knobs(&self) -> Vec<Knob> {
            let knob = |name: &str| Knob {
                name: name.into(),
                value: 1.0,
                choices: vec![0.0, 1.0, 2.0, 3.0],
            };
            vec![knob("idle"), knob("good")]
        }

        fn at(&self, values: &[f32]) -> Result<Box<dyn Engine + '_>> {
            Ok(Box::new(Turned(
                WordOverlap(self.0.0.clone()),
                values[1] == 3.0,
            )))
        }
    }

    fn words(count: usize) -> EvalSet {
        let names: Vec<String> = (0..count).map(|n| format!("word{n:03}")).collect();
        let tools: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (name.as_str(), name.as_str()))
            .collect();
        let relevant: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let mut queries: Vec<(&str, &str, &[&str])> = names
            .iter()
            .zip(&relevant)
            .map(|(name, id)| (name.as_str(), name.as_str(), id.as_slice()))
            .collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        queries.push(("all", "word", &all));
        set(&tools, &queries)
    }

    #[test]
    fn only_knobs_with_an_effect_are_changed() {
        let set = words(60);
        let tuned = tune(&set, &TwoKnobs(WordOverlap::over(&set)), 7, &|| ()).unwrap();
        let values: Vec<(&str, f32)> = tuned
            .knobs
            .iter()
            .map(|knob| (knob.name.as_str(), knob.after))
            .collect();
        assert_eq!(values, [("idle", 1.0), ("good", 3.0)]);
        assert_eq!(
            (tuned.train.queries, tuned.test.queries, tuned.left_out),
            (30, 30, 1)
        );
        assert_eq!((tuned.test.before, tuned.test.after), (0.0, 1.0));
        assert!(tuned.test_gain_p < 0.001);
    }

    #[test]
    fn only_a_significant_gain_is_one() {
        let half = |after| Half {
            queries: 30,
            before: 0.5,
            after,
        };
        for (after, p, expected) in [
            (0.6, 0.01, Verdict::Gain),
            (0.6, 0.049, Verdict::Gain),
            (0.6, 0.05, Verdict::MayBeChance),
            (0.51, 0.8, Verdict::MayBeChance),
            (0.5, 1.0, Verdict::NoGain),
            (0.4, 0.001, Verdict::NoGain),
        ] {
            assert_eq!(Verdict::of(&half(after), p), expected, "{after} {p}");
        }
    }

    #[test]
    fn what_was_not_tuned_stays() {
        let set = words(60);
        let mut tuned = tune(&set, &TwoKnobs(WordOverlap::over(&set)), 7, &|| ()).unwrap();
        assert_eq!(tuned.verdict(), Verdict::Gain);
        tuned.knobs[0].name = "k1".into();
        tuned.knobs[0].after = 0.8;
        let own = Settings {
            description: "mail".into(),
            ..Settings::default()
        };
        let mut expected = own.clone();
        expected.lexical.k1 = 0.8;
        assert_eq!(tuned.applied_to(own), expected);
    }

    #[test]
    fn no_tool_is_in_both_halves() {
        let split = Split::draw(&words(60), 3).unwrap();
        let tools = |half: &EvalSet| -> Vec<ToolIndex> {
            half.queries
                .iter()
                .flat_map(|q| q.relevant.clone())
                .collect()
        };
        assert!(
            tools(&split.train)
                .iter()
                .all(|tool| !tools(&split.test).contains(tool))
        );
    }

    #[test]
    fn too_few_queries_are_refused() {
        let set = words(20);
        let error = tune(&set, &TwoKnobs(WordOverlap::over(&set)), 7, &|| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("at least 20"), "{error}");
        // The cause, where most queries need tools of both halves.
        let all: Vec<String> = (0..60).map(|n| format!("word{n:03}")).collect();
        let ids: Vec<&str> = all.iter().map(String::as_str).collect();
        let tools: Vec<(&str, &str)> = ids.iter().map(|id| (*id, *id)).collect();
        let queries: Vec<(&str, &str, &[&str])> =
            ids.iter().map(|id| (*id, "word", ids.as_slice())).collect();
        let set = set_of(&tools, &queries);
        let error = tune(&set, &TwoKnobs(WordOverlap::over(&set)), 7, &|| ()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("60 queries need tools of both halves"),
            "{error}"
        );
    }
}
