//! `toolscout tune`: looks for settings that serve a set better, and shows on other tools what they are worth.

use std::path::PathBuf;

use anyhow::{Result, bail};
use toolscout_index::{Fusion, Mode};

use super::Outcome;
use super::context::{Context, Legs};
use super::eval::{Bar, workspace};
use crate::eval::tune::{Half, Tunable, Tuned, tune};
use crate::eval::{Arm, EvalSet, Progress};

/// Looks for the fusion weight and the field weights that serve a set best.
///
/// Half of the tools decide, with the queries they answer; the gain is shown on the other half. With --apply what is found
/// becomes the settings of the catalog named by --catalog.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folder of the set
    #[arg(value_name = "SET_DIR")]
    set: PathBuf,
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
