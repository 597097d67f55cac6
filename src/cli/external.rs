//! `toolscout external`: a catalog in an engine that somebody else runs.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Subcommand;
use serde_json::json;
use tokio::runtime::Builder;
use toolscout_index::Catalog;

use super::Outcome;
use super::context::{Context, Legs};
use super::interrupt::Interrupt;
use super::progress::{ITEMS, bar};
use crate::config::{ExternalMode, ExternalSettings};
use crate::external::{Engine, Failure, Which, Written, open, write};
use crate::printable::counted;

/// How often `--follow` looks for changes of the catalog.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failure, which doubles up to the last one.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);
/// What one request of a check may take.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// Writes a catalog into Elasticsearch, OpenSearch or Qdrant, or checks an index there. The configuration file has the
/// address, in the table `[catalogs.NAME]`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout external check\n  toolscout --catalog work external write --follow"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write what has changed in the catalog. A write that is interrupted goes on when it is started again
    #[command(
        after_help = "Examples:\n  toolscout external write\n  toolscout --catalog work external write --follow"
    )]
    Write {
        /// Go on, and write each further change until Ctrl-C
        #[arg(long)]
        follow: bool,
    },
    /// Check that the engine answers, and that its version, the key and the fields of the index can be used
    #[command(
        after_help = "Examples:\n  toolscout external check\n  toolscout --catalog work external check --json"
    )]
    Check,
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let catalog = &context.settings.catalog;
        let Some(settings) = context.settings.catalogs.get(catalog) else {
            let known: Vec<&str> = context
                .settings
                .catalogs
                .keys()
                .map(String::as_str)
                .collect();
            let next = match known.as_slice() {
                [] => "add one with store and mode".to_owned(),
                known => format!("choose one that has, with --catalog: {}", known.join(", ")),
            };
            bail!(
                "the catalog {catalog} has no table [catalogs.{catalog}] in the configuration file; {next}"
            );
        };
        match self.action {
            Action::Check => check(context, settings),
            Action::Write { follow } => {
                if settings.mode != ExternalMode::Write {
                    bail!(
                        "catalogs.{catalog}.mode is \"read\", so nothing is written; set it to \"write\""
                    );
                }
                let catalog = context.open(Legs::All)?;
                run_write(context, settings, &catalog, follow)
            }
        }
    }
}

/// What an index has.
struct IndexState {
    tools: u64,
    generation: u64,
}

async fn index_state(engine: &dyn Engine) -> Result<IndexState, Failure> {
    let (layout, generation) = engine.layout(CHECK_LIMIT).await?;
    let tools = engine.count(&layout, Which::Tools, CHECK_LIMIT).await?;
    Ok(IndexState { tools, generation })
}

fn check(context: &Context, settings: &ExternalSettings) -> Result<Outcome> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // An engine may keep connections, which need it from the start to the end.
    let _entered = runtime.enter();
    let engine = open(settings).map_err(said)?;
    let checked = runtime.block_on(async {
        let version = engine.version(CHECK_LIMIT).await?;
        let index = index_state(engine.as_ref()).await;
        match (index, settings.mode) {
            // The first write makes it.
            (Err(failure), ExternalMode::Write) if failure.is_missing() => Ok((version, None)),
            (index, _) => Ok((version, Some(index?))),
        }
    });
    let (version, index) = checked.map_err(said)?;
    let product = engine.product();
    if context.printer.is_json() {
        context.printer.json(&json!({
            "product": product,
            "version": version,
            "index": engine.index(),
            "tools": index.as_ref().map(|index| index.tools),
            "generation": index.as_ref().map(|index| index.generation),
        }))?;
        return Ok(Outcome::Success);
    }
    let state = match index {
        Some(index) => format!(
            "{} in generation {}",
            counted(index.tools, "tool"),
            index.generation
        ),
        None => "no index yet, `toolscout external write` makes it".to_owned(),
    };
    context.printer.text(format_args!(
        "{product} {version}, {}: {state}",
        engine.index()
    ))?;
    Ok(Outcome::Success)
}

fn run_write(
    context: &Context,
    settings: &ExternalSettings,
    catalog: &Catalog,
    follow: bool,
) -> Result<Outcome> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // An engine may keep connections, which need it from the start to the end.
    let _entered = runtime.enter();
    let engine = open(settings).map_err(said)?;
    let interrupt = Interrupt::listen()?;
    let mut pause = FIRST_PAUSE;
    loop {
        let searcher = catalog.refresh()?;
        let progress = bar("writing", ITEMS);
        let writing = write(engine.as_ref(), &searcher, |done, all| {
            progress.set_length(all as u64);
            progress.set_position(done as u64);
        });
        // What is written stays if the rest is dropped, and the next write goes on from there.
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = writing => Some(outcome),
                () = raised(&interrupt) => None,
            }
        });
        progress.finish_and_clear();
        let Some(outcome) = outcome else {
            // With `--follow` that is how it ends.
            if follow {
                return Ok(Outcome::Success);
            }
            bail!("ended by Ctrl-C; what is written stays, and the next write goes on from there");
        };
        match outcome {
            Ok(written) => {
                report(context, &written)?;
                pause = FIRST_PAUSE;
                let generation = searcher.generation();
                if !follow || !wait_for_change(catalog, generation, &interrupt)? {
                    return Ok(Outcome::Success);
                }
            }
            Err(failure) if follow => {
                // What is behind is written once the engine is back: the index itself says what it has.
                context.warn(format_args!(
                    "{failure}; tried again in {} s",
                    pause.as_secs()
                ));
                if !wait(pause, &interrupt) {
                    return Ok(Outcome::Success);
                }
                pause = (2 * pause).min(MAX_PAUSE);
            }
            Err(failure) => return Err(said(failure)),
        }
    }
}

fn report(context: &Context, written: &Written) -> Result<()> {
    let Written {
        written: tools,
        removed,
        unchanged,
        generation,
        index,
        is_new,
    } = written;
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "written": tools, "removed": removed, "unchanged": unchanged, "generation": generation, "index": index,
            "is_new": is_new,
        }));
    }
    context.printer.text(format_args!(
        "{index}: {} written, {removed} removed, {unchanged} unchanged, generation {generation}",
        counted(*tools, "tool")
    ))
}

/// Returns once Ctrl-C was pressed.
async fn raised(interrupt: &Interrupt) {
    while !interrupt.is_raised() {
        tokio::time::sleep(TICK).await;
    }
}

/// Waits until the catalog has another generation; false after Ctrl-C.
fn wait_for_change(catalog: &Catalog, generation: u64, interrupt: &Interrupt) -> Result<bool> {
    while catalog.refresh()?.generation() == generation {
        if !wait(LOOK_EVERY, interrupt) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits; false after Ctrl-C.
fn wait(time: Duration, interrupt: &Interrupt) -> bool {
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end {
        if interrupt.is_raised() {
            return false;
        }
        std::thread::sleep(TICK);
    }
    true
}

fn said(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}
