//! `toolscout add`: registers tools.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use toolscout_index::{Changes, Options, Tool};

use super::Outcome;
use super::context::{Context, Legs};
use super::embed::{self, Embedded};
use super::input::{Batch, Reading, Rejected, Source};
use super::output::tell;

/// Most bad items that are told one by one.
const MAX_TOLD: usize = 50;

/// Adds tools from files, folders, URLs or stdin; tools whose id is there are replaced. The format
/// is detected: OpenAI (chat, Responses, namespaces), Anthropic, MCP tools/list, OpenAPI and
/// Swagger, arrays and NDJSON.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files, folders (every .json, .jsonl, .ndjson, .yaml and .yml in them), URLs, or - for stdin
    #[arg(required = true, value_name = "FILE|FOLDER|URL|-")]
    places: Vec<String>,
    /// The server of every tool, whatever the input says
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    openapi: OpenApi,
}

/// How a batch is written; shared with `sync`.
#[derive(clap::Args, Debug)]
pub struct How {
    /// Leave out what is invalid and say so, instead of adding nothing
    #[arg(long)]
    skip_invalid: bool,
    /// Say what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not embed now; `toolscout embed` does it later
    #[arg(long)]
    no_embed: bool,
}

/// Which operations of an OpenAPI document become tools; shared with `sync`.
#[derive(clap::Args, Debug)]
pub struct OpenApi {
    /// OpenAPI: only operations with this tag (repeatable)
    #[arg(long, value_name = "TAG")]
    include_tag: Vec<String>,
    /// OpenAPI: no operation with this tag (repeatable)
    #[arg(long, value_name = "TAG")]
    exclude_tag: Vec<String>,
    /// OpenAPI: only this path and what is below it, * for any text (repeatable)
    #[arg(long, value_name = "PATH")]
    include_path: Vec<String>,
    /// OpenAPI: not this path (repeatable)
    #[arg(long, value_name = "PATH")]
    exclude_path: Vec<String>,
}

impl Args {
    /// Reads, checks, stores, indexes and embeds.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let start = Instant::now();
        let batch = self
            .openapi
            .reading(self.server)
            .read(&self.places, &context.settings.fetch)?;
        let batch = self.how.accept(context, batch)?;
        let read = start.elapsed();
        if self.how.dry_run {
            let changes = preview(context, &batch.tools)?;
            return AddReport {
                read,
                ..AddReport::of_preview(batch, changes)
            }
            .print(context);
        }
        let catalog = context.open_or_create(self.how.legs())?;
        let mut writer = catalog.writer()?;
        let changes = writer.upsert(&batch.tools)?;
        let generation = writer.commit()?;
        let stored = start.elapsed() - read;
        let embedded = self.how.embed(context, &mut writer)?;
        AddReport {
            batch,
            changes,
            generation: Some(generation),
            read,
            stored,
            embedded,
        }
        .print(context)
    }
}

impl How {
    /// Lets a batch pass that is all valid; one that is not, only where that is wanted, and never
    /// without saying what is left out.
    pub fn accept(&self, context: &Context, batch: Batch) -> Result<Batch> {
        for rejected in batch.rejected.iter().take(MAX_TOLD) {
            if self.skip_invalid {
                context.warn(format_args!("skipped {rejected}"));
            } else if !batch.rejected_alone() {
                tell(format_args!("invalid: {rejected}"));
            }
        }
        if batch.rejected.len() > MAX_TOLD {
            tell(format_args!(
                "… and {} more",
                batch.rejected.len() - MAX_TOLD
            ));
        }
        match batch.rejected.as_slice() {
            [] => Ok(batch),
            [only] if !self.skip_invalid => bail!("{only} (nothing was changed)"),
            all if !self.skip_invalid => {
                bail!(
                    "{} items are invalid, so nothing was changed; mend them, or leave them out with --skip-invalid",
                    all.len()
                )
            }
            _ if batch.tools.is_empty() => bail!("nothing valid was left, so nothing was changed"),
            _ => Ok(batch),
        }
    }

    /// The legs that a write needs.
    pub fn legs(&self) -> Legs {
        if self.no_embed {
            Legs::Lexical
        } else {
            Legs::All
        }
    }

    /// Embeds what was written, unless that is to be done later.
    pub fn embed(
        &self,
        context: &Context,
        writer: &mut toolscout_index::Writer,
    ) -> Result<Option<Embedded>> {
        if self.no_embed || context.without_model().is_some() {
            return Ok(None);
        }
        embed::pending(writer).map(Some)
    }
}

impl OpenApi {
    /// How input is to be read.
    pub fn reading(self, server: Option<String>) -> Reading {
        Reading {
            server,
            include_tags: self.include_tag,
            exclude_tags: self.exclude_tag,
            include_paths: self.include_path,
            exclude_paths: self.exclude_path,
        }
    }
}

impl Batch {
    /// True when one bad item is all there is to tell.
    fn rejected_alone(&self) -> bool {
        self.rejected.len() == 1
    }
}

/// What adding these would change. The writer undoes what is not committed.
fn preview(context: &Context, tools: &[Tool]) -> Result<Changes> {
    if !context
        .data_dir()
        .catalogs()?
        .contains(&context.settings.catalog)
    {
        let added = tools.iter().map(|tool| tool.id.clone()).collect();
        return Ok(Changes {
            added,
            ..Changes::default()
        });
    }
    let catalog = context
        .data_dir()
        .open(&context.settings.catalog, Options::default())?;
    Ok(catalog.writer()?.upsert(tools)?)
}

/// What was done, in counts and times.
pub struct AddReport {
    /// What was read.
    pub batch: Batch,
    /// What changed.
    pub changes: Changes,
    /// The commit; none in a dry run.
    pub generation: Option<u64>,
    /// Time to read and parse.
    pub read: Duration,
    /// Time to store and index.
    pub stored: Duration,
    /// What was embedded; none when nothing was to be.
    pub embedded: Option<Embedded>,
}

/// The JSON of a [`AddReport`].
#[derive(Serialize)]
struct ReportJson<'a> {
    catalog: &'a str,
    dry_run: bool,
    generation: Option<u64>,
    sources: &'a [Source],
    #[serde(flatten)]
    changes: &'a Changes,
    skipped: &'a [Rejected],
    embedded: usize,
    pending_embeddings: Option<usize>,
    took_ms: TookMs,
}

#[derive(Serialize)]
struct TookMs {
    read: f64,
    store: f64,
    embed: f64,
}

impl AddReport {
    /// A report of what was not done.
    pub fn of_preview(batch: Batch, changes: Changes) -> Self {
        AddReport {
            batch,
            changes,
            generation: None,
            read: Duration::ZERO,
            stored: Duration::ZERO,
            embedded: None,
        }
    }

    /// Prints it. Embedding that was interrupted leaves something to do.
    pub fn print(&self, context: &Context) -> Result<Outcome> {
        if context.printer.is_json() {
            context.printer.json(&self.as_json(context))?;
        } else {
            context.printer.line(self.line(context))?;
        }
        Ok(self
            .embedded
            .as_ref()
            .map_or(Outcome::Done, Embedded::outcome))
    }

    fn as_json<'a>(&'a self, context: &'a Context) -> ReportJson<'a> {
        ReportJson {
            catalog: &context.settings.catalog,
            dry_run: self.generation.is_none(),
            generation: self.generation,
            sources: &self.batch.sources,
            changes: &self.changes,
            skipped: &self.batch.rejected,
            embedded: self.embedded.as_ref().map_or(0, |embedded| embedded.texts),
            pending_embeddings: self.embedded.as_ref().map(|embedded| embedded.left),
            took_ms: TookMs {
                read: ms(self.read),
                store: ms(self.stored),
                embed: self
                    .embedded
                    .as_ref()
                    .map_or(0.0, |embedded| ms(embedded.took)),
            },
        }
    }

    fn line(&self, context: &Context) -> String {
        let Changes {
            added,
            changed,
            removed,
            unchanged,
        } = &self.changes;
        let mut counts = vec![
            format!("{} added", added.len()),
            format!("{} changed", changed.len()),
        ];
        if !removed.is_empty() {
            counts.push(format!("{} removed", removed.len()));
        }
        counts.push(format!("{unchanged} unchanged"));
        counts.push(format!("{} skipped", self.batch.rejected.len()));
        let counts = counts.join(", ");
        if self.generation.is_none() {
            return format!(
                "{}: {counts} (dry run, nothing was written)",
                context.settings.catalog
            );
        }
        let (read, stored) = (self.read.as_secs_f64(), self.stored.as_secs_f64());
        let times = format!("read in {read:.2} s, stored and indexed in {stored:.2} s");
        let embedded = self
            .embedded
            .as_ref()
            .map(|embedded| format!(", {embedded}"))
            .unwrap_or_default();
        format!("{}: {counts} · {times}{embedded}", context.settings.catalog)
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
