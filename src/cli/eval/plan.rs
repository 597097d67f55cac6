//! What the flags of `toolscout eval` ask for.

use anyhow::Result;
use toolscout_index::query::MAX_K;
use toolscout_index::{Mode, SearchOptions};

use super::super::context::Context;
use super::super::output::print_stderr;
use super::{Args, steps};
use crate::eval::arms::Limits;
use crate::eval::baseline::GATED;
use crate::eval::error::EvalError;
use crate::eval::metrics::{default_depths, read_list};
use crate::eval::{Arm, EvalSet, Judging, Metric, Part, Plan, scale};
use crate::printable;

/// The default of --arms.
const DEFAULT_ARMS: [&str; 3] = ["lexical", "dense", "hybrid"];

impl Args {
    /// The plan with the cut-offs for a set.
    pub(super) fn plan_for(&self, plan: &Plan, set: &EvalSet) -> Plan {
        Plan {
            depths: if plan.metrics.is_empty() {
                self.depths(set)
            } else {
                Vec::new()
            },
            ..plan.clone()
        }
    }

    /// The cut-offs for a set: those of --k, or the usual ones without those beyond its number of
    /// tools.
    fn depths(&self, set: &EvalSet) -> Vec<usize> {
        if self.k.is_empty() {
            return default_depths(set.tools.len()).0;
        }
        let mut depths = self.k.clone();
        depths.sort_unstable();
        depths.dedup();
        depths
    }

    /// Says which of the usual cut-offs a set is too small for.
    pub(super) fn note_depths(&self, set: &EvalSet) {
        let (_, beyond) = default_depths(set.tools.len());
        if beyond.is_empty() || !self.k.is_empty() || self.metrics.is_some() || self.agent.agent {
            return;
        }
        let beyond: Vec<String> = beyond.iter().map(usize::to_string).collect();
        print_stderr(format_args!(
            "{}: no metrics at k = {}, since it has {}",
            set.name,
            beyond.join(", "),
            printable::counted(set.tools.len(), "tool")
        ));
    }

    pub(super) fn plan(&self, context: &Context) -> Result<Plan> {
        self.plan_with(self.arms(context)?)
    }

    /// The limits of the flags.
    fn usual_limits(&self) -> Limits {
        self.limits(SearchOptions {
            min_confidence: self.min_confidence,
            ..SearchOptions::default()
        })
    }

    /// What the searches of every arm are limited to.
    pub(super) fn limits(&self, options: SearchOptions) -> Limits {
        Limits {
            filter: self.filter.clone().filter(),
            budget_ms: self.budget_ms,
            options,
        }
    }

    /// The plan of the flags with these arms.
    pub(super) fn plan_with(&self, arms: Vec<Arm>) -> Result<Plan> {
        if let Some(depth) = self.k.iter().find(|depth| !(1..=MAX_K).contains(*depth)) {
            let reason = format!("it must be from 1 to {MAX_K}");
            return Err(EvalError::option("--k", depth.to_string(), reason).into());
        }
        if let Some(size) = self
            .scale
            .iter()
            .find(|size| !(1..=scale::MAX_TOOLS).contains(*size))
        {
            let reason = format!("it must be from 1 to {}", scale::MAX_TOOLS);
            return Err(EvalError::option("--scale", size.to_string(), reason).into());
        }
        if let [file, ..] = self.run.as_slice()
            && self.sets.len() > 1
        {
            let reason = "a run file belongs to one set; name one SET_DIR";
            return Err(EvalError::option("--run", file.display().to_string(), reason).into());
        }
        // Grade 0 says that a tool is not relevant.
        if let Some(grade) = self.relevant_from
            && !(grade.is_finite() && grade > 0.0)
        {
            let reason = "it must be a number above 0";
            return Err(EvalError::option("--relevant-from", grade.to_string(), reason).into());
        }
        if self.queries == Some(0) {
            return Err(EvalError::option("--queries", "0", "it must be at least 1").into());
        }
        if !self.max_drop.is_finite() || self.max_drop < 0.0 {
            let reason = "it must be a number from 0";
            return Err(EvalError::option("--max-drop", self.max_drop.to_string(), reason).into());
        }
        Ok(Plan {
            arms,
            // Set for each set, since they depend on its number of tools.
            depths: Vec::new(),
            metrics: self.metrics()?,
            shows_all_depths: !self.k.is_empty(),
            seed: self.seed,
            parts: parts(&self.parts)?,
            judging: if self.duplicates {
                Judging::AlsoTolerant
            } else {
                Judging::Strict
            },
            scale: self.scale.clone(),
            runs: self.run.clone(),
            run_order: self.run_order,
        })
    }

    /// The metrics of --metrics; none for the usual ones.
    fn metrics(&self) -> Result<Vec<Metric>> {
        let metrics = match &self.metrics {
            Some(names) => read_list(names)?,
            None => Vec::new(),
        };
        if let Some(metric) = metrics.iter().find(|metric| metric.depth > Some(MAX_K)) {
            let reason = format!("cut-offs are from 1 to {MAX_K}");
            return Err(EvalError::option("--metrics", metric.to_string(), reason).into());
        }
        Ok(metrics)
    }

    /// The metrics that must not drop.
    pub(super) fn gated(&self) -> Result<Vec<Metric>> {
        match &self.gate {
            Some(names) => Ok(read_list(names)?),
            None => Ok(GATED.to_vec()),
        }
    }

    /// The arms of the flags; by default every arm that the embedders allow.
    fn arms(&self, context: &Context) -> Result<Vec<Arm>> {
        if self.ablate {
            let limits = self.usual_limits();
            let steps = steps(context).into_iter();
            return Ok(steps.map(|step| step.arm.within(&limits)).collect());
        }
        let embeds = !context.embedders().is_empty();
        if self.mode.is_none() && self.arms.is_empty() && !embeds {
            // Nobody asked for this arm alone.
            context.warn("measuring the lexical arm alone, because there is no embedder");
        }
        self.named_arms(embeds)
    }

    /// The arms of the flags, or every arm that is possible with embedders or without.
    pub(super) fn named_arms(&self, embeds: bool) -> Result<Vec<Arm>> {
        let names: Vec<String> = match self.mode {
            Some(mode) => vec![mode.name().into()],
            None if !self.arms.is_empty() => self.arms.clone(),
            None if embeds => DEFAULT_ARMS.map(String::from).into(),
            None => vec![Mode::Lexical.name().into()],
        };
        let limits = self.usual_limits();
        let mut arms = Vec::new();
        for arm in Arm::named(&names, &self.fusion, self.dense_weight)? {
            let arm = arm.within(&limits);
            arms.push(match self.no_ranker {
                true => arm.without_ranker(),
                false => arm,
            });
        }
        Ok(arms)
    }
}

fn parts(names: &[String]) -> Result<Vec<Part>, EvalError> {
    let mut parts = Vec::new();
    for name in names {
        parts.push(match name.as_str() {
            "" => continue,
            "cost" => Part::Cost,
            "no-match" => Part::NoMatch,
            "tokens" => Part::Tokens,
            "memory" => Part::Memory,
            _ => {
                let reason = "use cost, no-match, tokens or memory, separated by commas";
                return Err(EvalError::option("--parts", name, reason));
            }
        });
    }
    Ok(parts)
}
