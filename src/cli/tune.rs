//! `toolscout tune`: finds better settings for a judged set, and measures the gain on held-out
//! tools.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use toolscout_index::{Fusion, Mode, Searcher, Settings, Tool};

use super::Outcome;
use super::context::{Context, Legs};
use super::eval::{Bar, workspace};
use super::output::print_stderr;
use super::store::{Place, StoreArgs};
use crate::eval::adapt::{Adapted, adapt};
use crate::eval::dataset::Load;
use crate::eval::tune::{Half, SIGNIFICANT_BELOW, Tunable, Tuned, Verdict, tune};
use crate::eval::{Arm, EvalSet, Progress};
use crate::feedback::FeedbackStore;
use crate::models::Patience;
use crate::printable::counted;

/// Finds the fusion weight and the field weights with the best quality on a judged set.
///
/// Half of the tools, with their queries, are for training; the gain is measured on the other half.
/// With --apply the result becomes the settings of the catalog of --catalog.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout tune sets/mine --apply\n  toolscout tune --ranker --feedback --apply"
)]
pub struct Args {
    /// Folder of the judged set
    #[arg(value_name = "SET_DIR", required_unless_present_any = ["queries", "feedback"])]
    set: Option<PathBuf>,
    /// Fit the learned ranker, not the settings
    #[arg(long)]
    ranker: bool,
    /// Judged queries for the catalog of --catalog instead of a set: lines
    /// {"id","query","relevant":[tool ids]}
    #[arg(long, value_name = "FILE", requires = "ranker", conflicts_with = "set")]
    queries: Option<PathBuf>,
    /// Use the feedback of HTTP clients, with its `query`, as judged queries for the catalog
    #[arg(long, requires = "ranker", conflicts_with = "set")]
    feedback: bool,
    /// Seed of the split into halves
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write the result to the catalog
    #[arg(long)]
    apply: bool,
    /// Folder of the measured catalog [default: eval in the cache directory]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    /// Tunes, and prints the result.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        context.set_patience(Patience::of_measuring());
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
            bail!(
                "there is no dense leg to weight without an embedding model; see `toolscout doctor`"
            );
        }
        let progress = Bar::new();
        progress.begin(&set.name);
        progress.stage("embedding tools", 0);
        // Embedded once: trials change weights and not texts.
        workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
        // A copy, so that trials change neither the user's catalog nor the measured one.
        let tunable = Tunable::new(workspace.copy(&set, "tuned")?);
        progress.stage("trying settings", 0);
        let tuned = tune(&set, &tunable, self.seed, &|| progress.step())?;
        progress.bar.finish_and_clear();
        if context.printer.is_json() {
            context.printer.json(&tuned)?;
        } else {
            print_tuned(context, &tuned)?;
        }
        if self.apply && tuned.verdict() != Verdict::Gain {
            return without_gain(context, tuned.verdict(), tuned.test_gain_p);
        }
        if self.apply {
            self.apply_settings(context, &set, &tuned)?;
            let what = format!(
                "the settings above, chosen on {}",
                counted(tuned.train.queries, "query")
            );
            say_written(context, &what);
        }
        Ok(Outcome::Success)
    }

    fn apply_settings(&self, context: &Context, set: &EvalSet, tuned: &Tuned) -> Result<()> {
        let change = |settings| tuned_on(set, tuned.applied_to(settings));
        match self.place(context, Legs::Lexical)? {
            Place::Shared(copy) => copy.change_settings(change),
            Place::Local(catalog) => {
                let mut writer = catalog.writer()?;
                let settings = change(writer.settings()?);
                writer.set_settings(&settings)?;
                writer.commit()?;
                Ok(())
            }
        }
    }

    /// The catalog of --catalog.
    fn place(&self, context: &Context, legs: Legs) -> Result<Place> {
        Place::open(&self.store, context, || context.options(legs))
    }

    fn fit_ranker(self, context: &Context) -> Result<Outcome> {
        let mut place = None;
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
                let place = place.insert(self.place(context, Legs::All)?);
                let searcher = place.catalog().searcher();
                (self.judged(context, place, &searcher)?, searcher)
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
            return without_gain(context, adapted.verdict(), adapted.test_gain_p);
        }
        if self.apply {
            // A set has tools of its own, so the catalog was not opened before.
            let place = match place {
                Some(place) => place,
                None => self.place(context, Legs::Lexical)?,
            };
            match place {
                Place::Shared(copy) => {
                    copy.change_settings(|settings| tuned_on(&set, settings))?;
                    copy.set_ranker(ranker)?;
                }
                Place::Local(catalog) => {
                    // In one commit: a ranker must not stand without the note of its queries.
                    let mut writer = catalog.writer()?;
                    let settings = tuned_on(&set, writer.settings()?);
                    writer.set_settings(&settings)?;
                    writer.set_ranker(Some(&ranker))?;
                    writer.commit()?;
                }
            }
            let what = format!(
                "a ranker fitted to {}",
                counted(adapted.train.queries, "query")
            );
            say_written(context, &what);
        }
        Ok(Outcome::Success)
    }

    /// The catalog's tools with the judged queries of --queries and --feedback.
    fn judged(&self, context: &Context, place: &Place, searcher: &Searcher) -> Result<EvalSet> {
        let name = &context.settings.catalog;
        let called = if self.feedback {
            let local = FeedbackStore::open(&context.settings.data)?;
            match place {
                Place::Shared(copy) => copy.feedback(local).called(name)?,
                Place::Local(_) => local.called(name)?,
            }
        } else {
            Vec::new()
        };
        let tools = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
        Ok(EvalSet::over_catalog(
            name,
            tools,
            self.queries.as_deref(),
            called,
            &Load::default(),
        )?)
    }
}

/// Settings that remember the queries of a set, since the catalog is tuned to them.
pub(super) fn tuned_on(set: &EvalSet, mut settings: Settings) -> Settings {
    // `eval` says of figures on these queries that they are in-sample.
    let queries = set.queries.iter().map(|query| query.text.as_str());
    settings.tuned_on.add(queries);
    settings
}

/// Says why nothing was written. The test half decides, since a gain on the train half alone is
/// overfitting.
fn without_gain(context: &Context, verdict: Verdict, p: f64) -> Result<Outcome> {
    let why = match verdict {
        Verdict::MayBeChance => format!(
            "the gain on the test half may be chance (p = {p:.4}, it must be below {SIGNIFICANT_BELOW}); judge more queries"
        ),
        _ => "there is no gain on the test half".to_owned(),
    };
    context
        .printer
        .note(format_args!("{why}, so nothing was written"))?;
    Ok(Outcome::Failure)
}

/// Says what was written, and where. On stderr, because stdout may have the JSON.
fn say_written(context: &Context, what: &str) {
    print_stderr(format_args!(
        "wrote {what} to the catalog {}; figures on these queries are in-sample from now on and look better than on others",
        context.settings.catalog
    ));
}

fn print_adapted(context: &Context, adapted: &Adapted) -> Result<()> {
    print_halves(context, &adapted.train, &adapted.test)?;
    let [low, high] = adapted.test_gain_ci95;
    context.printer.note(format_args!(
        "nDCG@10 on held-out tools: {low:+.4} to {high:+.4} (95% interval), p = {:.4}; {} with tools in both halves left out",
        adapted.test_gain_p,
        counted(adapted.left_out, "query")
    ))?;
    let [before, after] = adapted.mix;
    context
        .printer
        .note(format_args!("weight = {after:.2}  # was {before:.2}"))?;
    context.printer.note(format_args!(
        "{:.0}% of the leaves were kept",
        100.0 * adapted.kept
    ))
}

fn print_tuned(context: &Context, tuned: &Tuned) -> Result<()> {
    print_halves(context, &tuned.train, &tuned.test)?;
    let [low, high] = tuned.test_gain_ci95;
    context.printer.note(format_args!(
        "{} on held-out tools: {low:+.4} to {high:+.4} (95% interval), p = {:.4}; {} with tools in both halves left out",
        tuned.metric,
        tuned.test_gain_p,
        counted(tuned.left_out, "query")
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
    let mut rows = Vec::new();
    for (name, half) in [("train", train), ("test", test)] {
        rows.push(vec![
            name.to_owned(),
            half.queries.to_string(),
            format!("{:.4}", half.before),
            format!("{:.4}", half.after),
            format!("{:.4}", half.after - half.before),
        ]);
    }
    context
        .printer
        .rows(&["half", "queries", "before", "after", "gain"], rows)
}
