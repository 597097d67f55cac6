//! `toolscout eval --embedder A,B`: embedders compared on the same sets.

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::error_message;
use super::{Args, Bar, index_dir, outputs};
use crate::config::EmbedderKind;
use crate::eval::embedding::{EmbedderFigures, Spent};
use crate::eval::error::EvalError;
use crate::eval::{EvalSet, Evaluation, Plan, Ranking, Workspace};
use crate::eval::{evaluate, table};
use crate::models::{self, Embedders, Patience};

/// By set, then by embedder: its name, and what it gives and costs.
type MeasuredSets = Vec<Vec<(String, Evaluation, Spent)>>;

impl Args {
    /// Measures every set with each of the embedders, and prints them side by side.
    pub(super) fn compare_embedders(
        &self,
        context: &Context,
        kinds: &[EmbedderKind],
    ) -> Result<Outcome> {
        self.refuse_other_outputs()?;
        let labels: Vec<String> = kinds.iter().map(EmbedderKind::label).collect();
        refuse_twins(&labels)?;
        let sets = self.load_sets()?;
        let plan = self.plan(context)?;
        let progress = Bar::new();
        let mut measured = MeasuredSets::new();
        measured.resize_with(sets.len(), Vec::new);
        let mut failure = None;
        for (kind, label) in kinds.iter().zip(&labels) {
            let embedder = (kind, label.as_str());
            let result =
                self.measure_embedder(context, embedder, &sets, &plan, &progress, &mut measured);
            if let Err(error) = result {
                failure = Some(error);
                break;
            }
        }
        progress.bar.finish_and_clear();
        // A set that the first embedder did not come to has nothing to show.
        measured.retain(|of_set| !of_set.is_empty());
        let mut results = Vec::new();
        if !measured.is_empty() {
            let unfinished = failure.as_ref().map(error_message);
            results.extend(self.show(context, &measured, unfinished));
        }
        results.push(failure.map_or(Ok(()), Err));
        outputs::all(results)?;
        Ok(Outcome::Success)
    }

    /// Adds what one embedder gives on each set, up to the first that fails.
    fn measure_embedder(
        &self,
        context: &Context,
        (kind, label): (&EmbedderKind, &str),
        sets: &[EvalSet],
        plan: &Plan,
        progress: &Bar,
        measured: &mut MeasuredSets,
    ) -> Result<()> {
        kind.check(&context.settings.embedders)?;
        let embedders = models::embedders_of(kind, &context.settings, Patience::of_measuring());
        // A figure without the model would stand under its name.
        if let Some(problem) = &embedders.without_model
            && problem.is_problem()
        {
            bail!("{label} cannot be measured: {problem}");
        }
        let plan = Plan {
            arms: self.named_arms(!embedders.found.is_empty())?,
            ..plan.clone()
        };
        let workspace = Workspace::new(
            index_dir(context, self.index_dir.as_deref()),
            embedders.found.clone(),
        )
        .ranked_by(Ranking::load(self.ranker.as_deref())?);
        for (number, set) in sets.iter().enumerate() {
            // The endpoints count over all sets, so each set has the difference.
            let before = spent(&embedders);
            let plan = self.plan_for(&plan, set);
            progress.begin(&format!("{}, {label}", set.name));
            let evaluation = evaluate(set.clone(), &plan, &workspace, progress)
                .with_context(|| format!("set {}, embedder {label}", set.name))?;
            let spent = since(spent(&embedders), before);
            let unfinished = evaluation.report.unfinished.clone();
            measured[number].push((label.to_owned(), evaluation, spent));
            if let Some(reason) = unfinished {
                bail!("set {}, embedder {label}: {reason}", set.name);
            }
        }
        Ok(())
    }

    /// The results of printing and writing what was measured.
    fn show(
        &self,
        context: &Context,
        evaluations: &MeasuredSets,
        unfinished: Option<String>,
    ) -> Vec<Result<()>> {
        let mut rows = Vec::new();
        let mut reports = Vec::new();
        for of_set in evaluations {
            let mut first = None;
            for (name, evaluation, spent) in of_set {
                let figures = EmbedderFigures::of(name, evaluation, first, *spent);
                first.get_or_insert(evaluation);
                let mut report = json!(evaluation.report);
                report["embedding"] = json!(figures);
                reports.push(report);
                rows.push((evaluation.report.marked_set(), figures));
            }
        }
        self.print_report(context, &reports, unfinished, || {
            table::embedders(&rows, self.style())
        })
    }

    /// Outputs that have a place for one embedder only.
    fn refuse_other_outputs(&self) -> Result<()> {
        let named = [
            ("--trec", self.trec.is_some()),
            ("--html", self.html.is_some()),
            ("--features", self.features.is_some()),
            ("--baseline", self.baseline.is_some()),
            ("--table", self.table.is_some()),
            ("--ablate", self.ablate),
            ("--run", !self.run.is_empty()),
            ("--compare", !self.compare.is_empty()),
        ];
        for (flag, is_given) in named {
            if is_given {
                let reason = "it has a place for one embedder only; name one with --embedder";
                return Err(EvalError::option(flag, "", reason).into());
            }
        }
        Ok(())
    }
}

/// Fails where two of the embedders are the same.
fn refuse_twins(labels: &[String]) -> Result<()> {
    for (number, label) in labels.iter().enumerate() {
        if labels[..number].contains(label) {
            bail!("--embedder names {label} twice; the tables are part of every embedder but none");
        }
    }
    Ok(())
}

/// What the endpoints were asked for so far.
fn spent(embedders: &Embedders) -> Spent {
    let mut all = Spent::default();
    for (_, usage) in &embedders.usage {
        let ((tool_texts, tool_tokens), (query_texts, query_tokens)) =
            (usage.tools.so_far(), usage.queries.so_far());
        all.tool_texts += tool_texts;
        all.tool_tokens += tool_tokens;
        all.query_texts += query_texts;
        all.query_tokens += query_tokens;
        // With several endpoints of different prices no sum of tokens has one.
        all.price_per_million = usage.price_per_million_tokens;
    }
    if embedders.usage.len() > 1 {
        all.price_per_million = None;
    }
    all
}

fn since(now: Spent, before: Spent) -> Spent {
    Spent {
        tool_texts: now.tool_texts - before.tool_texts,
        tool_tokens: now.tool_tokens - before.tool_tokens,
        query_texts: now.query_texts - before.query_texts,
        query_tokens: now.query_tokens - before.query_tokens,
        price_per_million: now.price_per_million,
    }
}
