//! `toolscout tune`: looks for settings that serve a set better, and shows on other tools what they
//! are worth.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use toolscout_index::{Fusion, Mode, Searcher, Tool};

use super::Outcome;
use super::context::{Context, Legs};
use super::eval::{Bar, workspace};
use crate::eval::adapt::{Adapted, adapt};
use crate::eval::tune::{Half, Tunable, Tuned, tune};
use crate::eval::{Arm, EvalSet, Progress};
use crate::http::FeedbackStore;

/// Looks for the fusion weight and the field weights that serve a set best.
///
/// Half of the tools decide, with the queries they answer; the gain is shown on the other half.
/// With --apply what is found becomes the settings of the catalog named by --catalog.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the set
    #[arg(value_name = "SET_DIR", required_unless_present_any = ["queries", "feedback"])]
    set: Option<PathBuf>,
    /// Fit the learned ranker instead of the settings
    #[arg(long)]
    ranker: bool,
    /// Judged queries over the catalog named by --catalog, instead of a set: lines
    /// {"id","query","relevant":[tool ids]}
    #[arg(long, value_name = "FILE", requires = "ranker", conflicts_with = "set")]
    queries: Option<PathBuf>,
    /// What HTTP clients have said they used, with its `query`, as judged queries over the catalog
    #[arg(long, requires = "ranker", conflicts_with = "set")]
    feedback: bool,
    /// Decides which half of the tools trains
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write what is found as the settings of the catalog
    #[arg(long)]
    apply: bool,
    /// Where the measured catalog is kept [default: eval in the cache directory]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
}

impl Args {
    /// Tunes and prints.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.ranker {
            self.fit_ranker(context)
        } else {
            self.tune_settings(context)
        }
    }

    fn tune_settings(self, context: &Context) -> Result<Outcome> {
        let set = EvalSet::load(self.set.as_deref().unwrap_or(Path::new(".")))?;
        let arms = Arm::named(&[Mode::Hybrid.name().into()], &[Fusion::Convex], None)?;
        let workspace = workspace(context, self.index_dir.as_deref(), &arms);
        if !workspace.embeds() {
            bail!("there is nothing to weigh without an embedding model; see `toolscout doctor`");
        }
        let progress = Bar::new();
        progress.begin(&set.name);
        progress.stage("embedding tools", 0);
        workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
        let tunable = Tunable::new(workspace.copy(&set, "tuned")?);
        progress.stage("trying settings", 0);
        let tuned = tune(&set, &tunable, self.seed, &|| progress.step())?;
        progress.bar.finish_and_clear();
        if context.printer.is_json() {
            context.printer.json(&tuned)?;
        } else {
            print(context, &tuned)?;
        }
        if self.apply {
            let mut writer = context.open(Legs::Lexical)?.writer()?;
            writer.set_settings(&tunable.settings(&tuned))?;
            writer.commit()?;
        }
        Ok(Outcome::Done)
    }
}

impl Args {
    fn fit_ranker(self, context: &Context) -> Result<Outcome> {
        let (set, searcher) = match &self.set {
            Some(path) => {
                let set = EvalSet::load(path)?;
                let arms = Arm::named(&[Mode::Hybrid.name().into()], &[Fusion::Convex], None)?;
                let workspace = workspace(context, self.index_dir.as_deref(), &arms);
                workspace.prepare(&set, &mut |_| ())?;
                let searcher = workspace.open_set(&set)?.searcher();
                (set, searcher)
            }
            None => {
                let searcher = context.open(Legs::All)?.searcher();
                (self.judged(context, &searcher)?, searcher)
            }
        };
        let progress = Bar::new();
        progress.begin(&set.name);
        progress.stage("measuring candidates", set.queries.len());
        let (adapted, ranker) = adapt(&set, &searcher, self.seed, &|| progress.step())?;
        progress.bar.finish_and_clear();
        if context.printer.is_json() {
            context.printer.json(&adapted)?;
        } else {
            print_adapted(context, &adapted)?;
        }
        if self.apply && !adapted.accepted {
            context
                .printer
                .note("the fitted ranker gains nothing on the test half, so nothing was written")?;
            return Ok(Outcome::Amiss);
        }
        if self.apply {
            let mut writer = context.open(Legs::Lexical)?.writer()?;
            writer.set_ranker(Some(&ranker))?;
            writer.commit()?;
        }
        Ok(Outcome::Done)
    }

    /// The catalog's tools with the judged queries that were asked for.
    fn judged(&self, context: &Context, searcher: &Searcher) -> Result<EvalSet> {
        let name = &context.settings.catalog;
        let called = match self.feedback {
            true => FeedbackStore::open(&context.settings.data)?.called(name)?,
            false => Vec::new(),
        };
        let tools = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
        Ok(EvalSet::over_catalog(
            name,
            tools,
            self.queries.as_deref(),
            called,
        )?)
    }
}

fn print_adapted(context: &Context, adapted: &Adapted) -> Result<()> {
    print_halves(context, &adapted.train, &adapted.test)?;
    let [low, high] = adapted.test_gain_ci95;
    context.printer.note(format_args!(
        "nDCG@10 on tools that played no part: {low:+.4} to {high:+.4} with 95%, p = {:.4}; {} queries have tools in both halves and were left out",
        adapted.test_gain_p, adapted.left_out
    ))?;
    let [before, after] = adapted.mix;
    context
        .printer
        .note(format_args!("weight = {after:.2}  # was {before:.2}"))?;
    context.printer.note(format_args!(
        "{:.0}% of the leaves are kept",
        100.0 * adapted.kept
    ))
}

fn print(context: &Context, tuned: &Tuned) -> Result<()> {
    print_halves(context, &tuned.train, &tuned.test)?;
    let [low, high] = tuned.test_gain_ci95;
    context.printer.note(format_args!(
        "{} on tools that played no part: {low:+.4} to {high:+.4} with 95%, p = {:.4}; {} queries have tools in both halves and were left out",
        tuned.metric, tuned.test_gain_p, tuned.left_out
    ))?;
    for knob in &tuned.knobs {
        context.printer.note(format_args!(
            "{} = {:.2}  # was {:.2}",
            knob.name, knob.after, knob.before
        ))?;
    }
    Ok(())
}

fn print_halves(context: &Context, train: &Half, test: &Half) -> Result<()> {
    let half = |name: &str, half: &Half| {
        let numbers =
            [half.before, half.after, half.after - half.before].map(|value| format!("{value:.4}"));
        [name.to_owned(), half.queries.to_string()]
            .into_iter()
            .chain(numbers)
            .collect::<Vec<String>>()
    };
    let rows = vec![half("train", train), half("test", test)];
    context
        .printer
        .rows(&["half", "queries", "before", "after", "gain"], rows)
}
