//! `toolscout tune`: looks for settings that serve a set better, and shows on other tools what they are worth.

use std::path::PathBuf;

use anyhow::{Result, bail};
use toolscout_index::{Fusion, Mode};

use super::Outcome;
use super::context::Context;
use super::eval::{Bar, workspace};
use crate::eval::tune::{DenseWeight, Half, Tuned, tune};
use crate::eval::{Arm, EvalSet, Progress};

/// The share of the dense legs where the settings do not say, as the engine has it.
const ENGINE_DENSE_WEIGHT: f32 = 0.7;

/// Looks for the dense weight that serves a set best.
///
/// Half of the tools decide, with the queries they answer; the gain is shown on the other half. What is found is printed
/// as a line for the configuration file.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the set
    #[arg(value_name = "SET_DIR")]
    set: PathBuf,
    /// Decides which half of the tools trains
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Where the measured catalog is kept [default: eval in the cache directory]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
}

impl Args {
    /// Tunes and prints.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let set = EvalSet::load(&self.set)?;
        let arms = Arm::named(&[Mode::Hybrid.name().into()], &[Fusion::Convex], None)?;
        let workspace = workspace(context, self.index_dir.as_deref(), &arms);
        if !workspace.embeds() {
            bail!("there is nothing to weigh without an embedding model; see `toolscout doctor`");
        }
        let progress = Bar::new();
        progress.begin(&set.name);
        progress.stage("embedding tools", 0);
        workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
        let searcher = workspace.open_set(&set)?.searcher();
        let now = context.settings.search.dense_weight.unwrap_or(ENGINE_DENSE_WEIGHT);
        progress.stage("trying settings", 0);
        let tuned = tune(&set, &DenseWeight { searcher: &searcher, now }, self.seed, &|| progress.step())?;
        progress.bar.finish_and_clear();
        if context.printer.is_json() {
            context.printer.json(&tuned)?;
        } else {
            print(context, &tuned)?;
        }
        Ok(Outcome::Done)
    }
}

fn print(context: &Context, tuned: &Tuned) -> Result<()> {
    let half = |name: &str, half: &Half| {
        let numbers = [half.before, half.after, half.after - half.before].map(|value| format!("{value:.4}"));
        [name.to_owned(), half.queries.to_string()].into_iter().chain(numbers).collect::<Vec<String>>()
    };
    let rows = vec![half("train", &tuned.train), half("test", &tuned.test)];
    context.printer.rows(&["half", "queries", "before", "after", "gain"], rows)?;
    let [low, high] = tuned.test_gain_ci95;
    context.printer.note(format_args!(
        "{} on tools that played no part: {low:+.4} to {high:+.4} with 95%, p = {:.4}; {} queries have tools in both halves and were left out",
        tuned.metric, tuned.test_gain_p, tuned.left_out
    ))?;
    for knob in &tuned.knobs {
        context.printer.note(format_args!("{} = {:.2}  # was {:.2}", knob.name, knob.after, knob.before))?;
    }
    Ok(())
}
