//! `toolscout eval --compare KEY=VALUE,…`: settings compared on the same sets.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail};
use toolscout_index::SearchOptions;

use super::super::Outcome;
use super::super::context::Context;
use super::{Args, Bar, Measured, index_dir};
use crate::config::EmbedderKind;
use crate::eval::arms::Limits;
use crate::eval::error::EvalError;
use crate::eval::{Arm, EvalSet, Evaluation, Part, Plan, Ranking, Workspace, evaluate, merged};
use crate::models::{self, Patience};

const KEYS: &str = "embedder, mode, fusion, dense_weight, ranker (on, off or a file), \
    min_confidence, budget_ms and name";

/// One of the compared settings. What it leaves open is as by default.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The name of its arm.
    label: String,
    embedder: Option<EmbedderKind>,
    ranker: Option<String>,
    mode: Option<String>,
    fusion: Option<String>,
    dense_weight: Option<f32>,
    min_confidence: Option<f32>,
    budget_ms: Option<f64>,
}

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut setting = Setting {
            label: text.to_owned(),
            embedder: None,
            ranker: None,
            mode: None,
            fusion: None,
            dense_weight: None,
            min_confidence: None,
            budget_ms: None,
        };
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                bail!("{part:?} is not KEY=VALUE; the keys are {KEYS}");
            };
            let (key, value) = (key.trim(), value.trim());
            let of_key = || format!("{key}={value}");
            match key {
                "name" => setting.label = value.to_owned(),
                "embedder" => setting.embedder = Some(value.parse().with_context(of_key)?),
                "ranker" => setting.ranker = Some(value.to_owned()),
                "mode" => setting.mode = Some(value.to_owned()),
                "fusion" => setting.fusion = Some(value.to_owned()),
                "dense_weight" => setting.dense_weight = Some(value.parse().with_context(of_key)?),
                "min_confidence" => {
                    setting.min_confidence = Some(value.parse().with_context(of_key)?);
                }
                "budget_ms" => setting.budget_ms = Some(value.parse().with_context(of_key)?),
                _ => bail!("unknown key {key:?}; the keys are {KEYS}"),
            }
        }
        setting.arm(true)?;
        Ok(setting)
    }
}

impl Setting {
    /// The arm of this setting, with embedders or without.
    fn arm(&self, embeds: bool) -> Result<Arm> {
        let usual = if embeds { "hybrid" } else { "lexical" };
        let mode = self.mode.clone().unwrap_or_else(|| usual.to_owned());
        let fusion = self.fusion.as_deref().map(str::parse).transpose()?;
        let fusions = [fusion.unwrap_or_default()];
        let mut arms = Arm::named(&[mode], &fusions, self.dense_weight)?;
        let arm = arms.remove(0);
        let options = SearchOptions {
            min_confidence: self.min_confidence,
            ..SearchOptions::default()
        };
        options.validate()?;
        let arm = arm.within(&Limits {
            options,
            budget_ms: self.budget_ms,
            ..Limits::default()
        });
        let arm = match self.ranker.as_deref() {
            Some("off") => arm.without_ranker(),
            _ => arm,
        };
        Ok(Arm {
            name: self.label.clone(),
            ..arm
        })
    }

    fn ranking(&self) -> Result<Ranking> {
        let file = self.ranker.as_deref();
        let file = file.filter(|ranker| !matches!(*ranker, "on" | "off"));
        Ok(Ranking::load(file.map(Path::new))?)
    }
}

impl Args {
    /// Measures every set with each of the settings, each as an arm of one report.
    pub(super) fn compare_settings(&self, context: &Context) -> Result<Outcome> {
        for (number, setting) in self.compare.iter().enumerate() {
            let is_same = |other: &Setting| other.label == setting.label;
            if self.compare[..number].iter().any(is_same) {
                let reason = "two settings have this name; give one another with name=";
                return Err(EvalError::option("--compare", &setting.label, reason).into());
            }
        }
        let sets = self.load_sets()?;
        let plan = self.plan_with(Vec::new())?;
        let plan = Plan {
            // The others are of one catalog and one arm.
            parts: plan
                .parts
                .iter()
                .copied()
                .filter(|part| *part == Part::Cost)
                .collect(),
            scale: Vec::new(),
            ..plan
        };
        let progress = Bar::new();
        let mut measured = Measured::default();
        for set in sets {
            let plan = self.plan_for(&plan, &set);
            let (evaluations, failure) = self.each_setting(context, &set, &plan, &progress);
            measured.evaluations.extend(merged(evaluations, &plan));
            if failure.is_some() {
                measured.failure = failure;
                break;
            }
        }
        progress.bar.finish_and_clear();
        if let (Some(failure), Some(last)) = (&measured.failure, measured.evaluations.last_mut()) {
            last.report.unfinished = Some(format!("{failure:#}"));
        }
        self.finish(context, measured, None, None)
    }

    /// The evaluations by each setting, up to the first that fails, and its error.
    fn each_setting(
        &self,
        context: &Context,
        set: &EvalSet,
        plan: &Plan,
        progress: &Bar,
    ) -> (Vec<Evaluation>, Option<anyhow::Error>) {
        let mut evaluations = Vec::new();
        for (number, setting) in self.compare.iter().enumerate() {
            progress.begin(&format!("{}, {}", set.name, setting.label));
            let plan = Plan {
                // A run of a file is one arm, and not one of each setting.
                runs: if number == 0 {
                    plan.runs.clone()
                } else {
                    Vec::new()
                },
                ..plan.clone()
            };
            let evaluation = self
                .by_setting(context, setting, set, plan, progress)
                .with_context(|| format!("set {}, {}", set.name, setting.label));
            match evaluation {
                Ok(evaluation) => evaluations.push(evaluation),
                Err(error) => return (evaluations, Some(error)),
            }
            let last: Option<&Evaluation> = evaluations.last();
            if let Some(reason) = last.and_then(|last| last.report.unfinished.clone()) {
                return (
                    evaluations,
                    Some(anyhow!("set {}, {}: {reason}", set.name, setting.label)),
                );
            }
        }
        (evaluations, None)
    }

    fn by_setting(
        &self,
        context: &Context,
        setting: &Setting,
        set: &EvalSet,
        plan: Plan,
        progress: &Bar,
    ) -> Result<Evaluation> {
        let embedders = match &setting.embedder {
            None => context.embedders().to_vec(),
            Some(kind) => {
                kind.check(&context.settings.embedders)?;
                let found = models::embedders_of(kind, &context.settings, Patience::of_measuring());
                let problem = found.without_model.as_ref().filter(|one| one.is_problem());
                if let Some(problem) = problem {
                    bail!("it cannot be measured: {problem}");
                }
                found.found
            }
        };
        let plan = Plan {
            arms: vec![setting.arm(!embedders.is_empty())?],
            ..plan
        };
        let folder = index_dir(context, self.index_dir.as_deref());
        let workspace = Workspace::new(folder, embedders).ranked_by(setting.ranking()?);
        Ok(evaluate(set.clone(), &plan, &workspace, progress)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let setting: Setting = "embedder=table,mode=dense,name=words".parse().unwrap();
        let arm = setting.arm(true).unwrap();
        assert_eq!((arm.name.as_str(), arm.needs_vectors()), ("words", true));
        let setting: Setting = "ranker=off".parse().unwrap();
        let arm = setting.arm(true).unwrap();
        assert_eq!((arm.name.as_str(), arm.parts.ranker), ("ranker=off", false));
        for (text, expected) in [
            ("table", "KEY=VALUE"),
            ("embeder=table", "unknown key \"embeder\""),
            ("mode=sparse", "sparse"),
            ("dense_weight=x", "dense_weight=x"),
            ("dense_weight=2", "from 0 to 1"),
            ("min_confidence=3", "min_confidence"),
            ("fusion=sum", "sum"),
        ] {
            let message = format!("{:#}", text.parse::<Setting>().unwrap_err());
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
