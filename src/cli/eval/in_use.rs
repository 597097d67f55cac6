//! `toolscout eval --catalog NAME`: measures a catalog as it is in use.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use toolscout_index::{Mode, Tool};

use super::super::Outcome;
use super::super::context::{Context, Legs};
use super::super::exit::UsageError;
use super::super::output::print_stderr;
use super::{Args, Bar, Measured};
use crate::config::EmbedderKind;
use crate::eval::baseline::Baseline;
use crate::eval::{Arm, EvalSet, arms, evaluate_in_use};

impl Args {
    /// Measures the catalog of --catalog with judged queries.
    pub(super) fn measure_in_use(&self, context: &Context) -> Result<Outcome> {
        self.refuse_what_builds_catalogs()?;
        let file = self.query_file()?;
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        let arms = self.arms_in_use(context)?;
        // Words alone need no model.
        let mut modes = arms.iter().map(Arm::effective_mode);
        let legs = if modes.all(|mode| mode == Mode::Lexical) {
            Legs::Lexical
        } else {
            Legs::All
        };
        let catalog = context.open(legs)?;
        let searcher = catalog.searcher();
        context.warn_of_unknown_servers(&searcher, &self.filter.server);
        let name = &context.settings.catalog;
        let tools = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
        let set = EvalSet::over_catalog(name, tools, Some(&file), Vec::new(), &self.load())
            .with_context(|| format!("catalog {name}"))?;
        for line in set.left_out.lines() {
            print_stderr(format_args!("{name}: {line}"));
        }
        self.note_depths(&set);
        let set = match self.queries {
            Some(count) => set.sampled(count, self.seed),
            None => set,
        };
        let embedder = searcher.embedder_ids();
        let plan = self.plan_for(&self.plan_with(arms)?, &set);
        if let Some(baseline) = &baseline {
            self.check_baseline(baseline, std::slice::from_ref(&set), &plan, &embedder)?;
        }
        let progress = Bar::new();
        progress.begin(name);
        let mut evaluation = evaluate_in_use(set, &plan, &searcher, embedder, &progress)
            .with_context(|| format!("catalog {name}"))?;
        let queries = evaluation.set.queries.iter();
        let queries = queries.map(|query| query.text.as_str());
        // Figures on queries that the catalog was tuned to are in-sample, and the report says so.
        evaluation.report.tuned_on = searcher.settings().tuned_on.include(queries);
        progress.bar.finish_and_clear();
        let failure = evaluation.report.unfinished.clone();
        let measured = Measured {
            evaluations: vec![evaluation],
            failure: failure.map(|reason| anyhow::anyhow!("catalog {name}: {reason}")),
        };
        self.finish(context, measured, baseline.as_ref(), None)
    }

    /// The file of the judged queries: the one named, or that of a set's folder.
    fn query_file(&self) -> Result<PathBuf> {
        let named: Vec<&PathBuf> = self.requests.iter().chain(&self.sets).collect();
        let [path] = named.as_slice() else {
            let message = "eval --catalog measures a catalog with one file of judged queries; name it, or the folder of a set";
            return Err(UsageError(message.to_owned()).into());
        };
        Ok(if path.is_dir() {
            path.join("queries.jsonl")
        } else {
            (*path).clone()
        })
    }

    /// The arm that searches as the catalog is set, or those of the flags with all else as set.
    fn arms_in_use(&self, context: &Context) -> Result<Vec<Arm>> {
        let mut options = context.settings.search;
        options.min_confidence = self.min_confidence.or(options.min_confidence);
        if context.settings.embedder == EmbedderKind::None {
            // The user chose words alone, so the answers are not degraded.
            options.mode = Some(Mode::Lexical);
        }
        let arms = if self.arms.is_empty() && self.mode.is_none() {
            vec![Arm::as_set(arms::IN_USE)]
        } else {
            self.named_arms(context.settings.embedder != EmbedderKind::None)?
        };
        let limits = self.limits(options);
        Ok(arms.into_iter().map(|arm| arm.within(&limits)).collect())
    }

    /// Flags that ask for another catalog than the one in use.
    fn refuse_what_builds_catalogs(&self) -> Result<()> {
        let named = [
            ("--ablate", self.ablate),
            ("--ranker", self.ranker.is_some()),
            ("--table", self.table.is_some()),
            ("--features", self.features.is_some()),
            ("--texts", self.texts.is_some()),
            ("--scale", !self.scale.is_empty()),
            ("--compare", !self.compare.is_empty()),
            ("--agent", self.agent.agent),
        ];
        for (flag, is_given) in named {
            if is_given {
                let message = format!(
                    "{flag} needs a catalog of its own and --catalog measures one as it is; leave one of them out"
                );
                return Err(UsageError(message).into());
            }
        }
        Ok(())
    }
}
