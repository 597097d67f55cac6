//! `toolscout add`: registers tools.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use toolscout_index::formats::{KnownServers, Warning};
use toolscout_index::{Catalog, Changes, Options, Tool, Writer};

use super::Outcome;
use super::calling::Service;
use super::context::{Context, Legs};
use super::embed::{self, Embedded};
use super::enrich;
use super::input::{Batch, Reading, Rejected, Source};
use super::interrupt::Interrupt;
use super::output::print_stderr;
use super::progress::{ITEMS, bar, spinner};
use crate::allocator;
use crate::models::Patience;
use crate::printable::counted;

/// Most bad items that are listed one by one.
const MAX_LISTED: usize = 50;
/// Tools stored between two checks for Ctrl-C, and freed together.
const STORE_BATCH: usize = 1024;

/// Adds tools from files, folders, URLs or stdin. A tool with the id of an existing one replaces
/// it. The format is detected: OpenAI (chat, Responses, namespaces), Anthropic, MCP tools/list,
/// OpenAPI and Swagger, arrays and NDJSON.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout add tools.json\n  my-mcp-client tools/list | toolscout add - --server github"
)]
pub struct Args {
    /// Files, folders (every .json, .jsonl, .ndjson, .yaml and .yml in them), URLs, or - for stdin
    #[arg(required = true, value_name = "FILE|FOLDER|URL|-")]
    inputs: Vec<String>,
    /// The server of every tool, whatever the input names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    openapi: OpenApiArgs,
}

/// How a batch is written; shared with `sync`.
#[derive(clap::Args, Debug)]
pub struct WriteArgs {
    /// Leave out invalid items with a warning, instead of adding nothing
    #[arg(long)]
    skip_invalid: bool,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not embed now; `toolscout embed` does it later
    #[arg(long)]
    no_embed: bool,
}

/// Which operations of an OpenAPI document become tools; shared with `sync`.
#[derive(clap::Args, Debug)]
pub struct OpenApiArgs {
    /// OpenAPI: only operations with this tag (repeatable)
    #[arg(long, value_name = "TAG")]
    include_tag: Vec<String>,
    /// OpenAPI: no operation with this tag (repeatable)
    #[arg(long, value_name = "TAG")]
    exclude_tag: Vec<String>,
    /// OpenAPI: only this path and everything below it; * matches any text (repeatable)
    #[arg(long, value_name = "PATH")]
    include_path: Vec<String>,
    /// OpenAPI: not this path (repeatable)
    #[arg(long, value_name = "PATH")]
    exclude_path: Vec<String>,
    /// OpenAPI: also read the files that the document refers to: those beside it and below its folder
    /// or URL
    #[arg(long)]
    follow_refs: bool,
}

impl Args {
    /// Reads, validates, stores, indexes and embeds.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let start = Instant::now();
        let batch = self
            .openapi
            .reading(self.server, known_servers(context))
            .read(&self.inputs, &context.settings.fetch)?;
        for part in &batch.parts {
            context.warn(format_args!(
                "{part} is one page of a `tools/list` and says that others follow; add them too"
            ));
        }
        let mut batch = self.write.validate(context, batch)?;
        let read = start.elapsed();
        if self.write.dry_run {
            let changes = preview(context, &batch.tools)?;
            return AddReport::of_preview(batch, changes, read).print(context);
        }
        let interrupt = Interrupt::listen()?;
        tracing::info!("storing; Ctrl-C before the commit leaves the catalog unchanged");
        let catalog = self.write.open(context)?;
        warn_of_replaced(context, &catalog, &batch);
        let mut writer = catalog.writer()?;
        let changes = upsert(&mut writer, std::mem::take(&mut batch.tools), &interrupt)?;
        let generation = commit(&mut writer, &interrupt)?;
        let stored = start.elapsed() - read;
        let report = AddReport {
            batch,
            changes,
            generation: Some(generation),
            read,
            stored,
            embedded: None,
        };
        self.write
            .finish(context, report, &catalog, writer, &interrupt)
    }
}

/// Warns of APIs whose tools replace those of another document.
fn warn_of_replaced(context: &Context, catalog: &Catalog, batch: &Batch) {
    let searcher = catalog.searcher();
    for service in &batch.services {
        if let Some(warning) = service.replaces_another(&searcher) {
            context.warn(warning);
        }
    }
}

/// Upserts within one transaction, with a progress bar. An error, Ctrl-C included, leaves the
/// catalog unchanged.
pub fn upsert(writer: &mut Writer, tools: Vec<Tool>, interrupt: &Interrupt) -> Result<Changes> {
    let bar = bar("storing", ITEMS);
    bar.set_length(tools.len() as u64);
    let mut changes = Changes::default();
    let freeing = free_beside();
    let mut tools = tools.into_iter();
    while tools.len() > 0 {
        stop_if_interrupted(interrupt)?;
        let batch: Vec<Tool> = tools.by_ref().take(STORE_BATCH).collect();
        let of_batch = writer.upsert(&batch)?;
        changes.added.extend(of_batch.added);
        changes.changed.extend(of_batch.changed);
        changes.unchanged += of_batch.unchanged;
        bar.inc(batch.len() as u64);
        // Where there is no thread for it, they are freed here.
        let _ = freeing.send(batch);
    }
    bar.finish_and_clear();
    // The batches follow the input, so their ids are not in order together.
    changes.added.sort_unstable();
    changes.changed.sort_unstable();
    Ok(changes)
}

/// Where to send tools that are stored. Parsed they take five times the memory of their text, which
/// the commit needs; freeing them takes a while, in which the disk is written.
fn free_beside() -> SyncSender<Vec<Tool>> {
    // A longer queue would hold as much memory as it is meant to free.
    let (sender, stored) = mpsc::sync_channel(2);
    // Where it cannot be started, sending fails and the sender frees them.
    let _ = thread::Builder::new().spawn(|| free(stored));
    sender
}

fn free(stored: Receiver<Vec<Tool>>) {
    for (number, batch) in (1_usize..).zip(stored) {
        drop(batch);
        // Ever more seldom, since it takes as long as there is memory.
        if number.is_power_of_two() {
            allocator::release_freed();
        }
    }
    allocator::release_freed();
}

/// Commits and indexes what the writer holds, unless Ctrl-C was pressed. Returns the generation.
pub fn commit(writer: &mut Writer, interrupt: &Interrupt) -> Result<u64> {
    stop_if_interrupted(interrupt)?;
    let spinner = spinner("indexing");
    let generation = writer.commit()?;
    spinner.finish_and_clear();
    Ok(generation)
}

/// Fails once Ctrl-C was pressed.
pub fn stop_if_interrupted(interrupt: &Interrupt) -> Result<()> {
    if interrupt.is_raised() {
        // The writer undoes what it has not committed when it is dropped.
        bail!("interrupted before the commit, so nothing was stored; the catalog is unchanged");
    }
    Ok(())
}

impl WriteArgs {
    /// Accepts a batch without invalid items. With --skip-invalid, or for a batch that is refused,
    /// every invalid item is printed.
    pub fn validate(&self, context: &Context, batch: Batch) -> Result<Batch> {
        warn_of(context, &batch.warnings);
        let Batch {
            tools, rejected, ..
        } = &batch;
        match rejected.as_slice() {
            [] => return Ok(batch),
            // One problem is the error itself, and not a list of one above an error.
            [only] if !self.skip_invalid => {
                let hint = if tools.is_empty() {
                    ""
                } else {
                    "; --skip-invalid adds the others"
                };
                bail!("{only} (nothing was changed{hint})");
            }
            _ => {}
        }
        for item in rejected.iter().take(MAX_LISTED) {
            if self.skip_invalid && item.is_input() {
                context.warn(format_args!("skipped a whole input, {item}"));
            } else if self.skip_invalid {
                context.warn(format_args!("skipped {item}"));
            } else {
                print_stderr(format_args!("invalid: {item}"));
            }
        }
        if rejected.len() > MAX_LISTED {
            print_stderr(format_args!("… and {} more", rejected.len() - MAX_LISTED));
        }
        if !self.skip_invalid {
            bail!(
                "{} items are invalid, so nothing was changed; correct them, or leave them out with --skip-invalid",
                rejected.len()
            );
        }
        if tools.is_empty() {
            bail!("no valid item is left, so nothing was changed");
        }
        Ok(batch)
    }

    /// Opens the catalog of the settings with the legs that a write needs; creates it if it does not
    /// exist.
    pub fn open(&self, context: &Context) -> Result<Catalog> {
        if self.no_embed {
            return context.open_or_create(Legs::Lexical);
        }
        context.set_patience(Patience::of_adding());
        if let Err(problem) = context.required_model()
            && problem.is_problem()
        {
            context.warn(format_args!(
                "{problem}; tools are stored without its vectors, which `toolscout embed` makes"
            ));
        }
        context.open_or_create(Legs::All)
    }

    /// Prints what was stored, embeds it, and offers to enrich it.
    pub fn finish(
        &self,
        context: &Context,
        report: AddReport,
        catalog: &Catalog,
        writer: Writer,
        interrupt: &Interrupt,
    ) -> Result<Outcome> {
        let embed = || self.embed(context, catalog, writer, interrupt);
        let outcome = report.print_and_embed(context, embed)?;
        enrich::offer(context, catalog);
        Ok(outcome)
    }

    /// Embeds what was written, and gives the writer's lock back. `None` with --no-embed or without
    /// a model.
    pub fn embed(
        &self,
        context: &Context,
        catalog: &Catalog,
        writer: Writer,
        interrupt: &Interrupt,
    ) -> Result<Option<Embedded>> {
        if self.no_embed {
            return Ok(None);
        }
        // The commit has made the vectors of instant ones.
        if context.embedders().iter().all(|one| one.is_instant()) {
            return Ok(None);
        }
        embed::soon(catalog, writer, interrupt).map(Some)
    }
}

/// Says what of the tools is left out or will not work.
fn warn_of(context: &Context, warnings: &[Warning]) {
    for warning in warnings.iter().take(MAX_LISTED) {
        context.warn(warning);
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(MAX_LISTED) {
        context.warn(format_args!(
            "{more} more of this kind; --json has all of them"
        ));
    }
}

/// The servers of the catalog, which is opened only if a name depends on it.
fn known_servers(context: &Context) -> KnownServers {
    if !context.has_catalog().unwrap_or_default() {
        return KnownServers::default();
    }
    let (data_dir, catalog) = (context.data_dir(), context.settings.catalog.clone());
    KnownServers::by(move |server| {
        let opened = data_dir.open(&catalog, Options::default());
        opened.is_ok_and(|catalog| catalog.searcher().has_server(server))
    })
}

impl OpenApiArgs {
    /// The options for reading input.
    pub fn reading(self, server: Option<String>, known_servers: KnownServers) -> Reading {
        Reading {
            server,
            include_tags: self.include_tag,
            exclude_tags: self.exclude_tag,
            include_paths: self.include_path,
            exclude_paths: self.exclude_path,
            follow_refs: self.follow_refs,
            known_servers,
        }
    }
}

/// The changes that adding these tools would make. The writer undoes what is not committed.
fn preview(context: &Context, tools: &[Tool]) -> Result<Changes> {
    if !context.has_catalog()? {
        let added = tools.iter().map(|tool| tool.id.clone()).collect();
        return Ok(Changes {
            added,
            ..Changes::default()
        });
    }
    // Without embedders, since nothing is embedded in a dry run.
    let catalog = context
        .data_dir()
        .open(&context.settings.catalog, Options::default())?;
    Ok(catalog.writer()?.upsert(tools)?)
}

/// The result of `add` and `sync`, in counts and times.
pub struct AddReport {
    /// The input.
    pub batch: Batch,
    /// The changes to the catalog.
    pub changes: Changes,
    /// The generation of the commit; `None` in a dry run.
    pub generation: Option<u64>,
    /// Time to read and parse.
    pub read: Duration,
    /// Time to store and index.
    pub stored: Duration,
    /// The result of embedding; `None` when nothing was embedded on purpose.
    pub embedded: Option<Embedded>,
}

/// The JSON of an [`AddReport`].
#[derive(Serialize)]
struct ReportJson<'a> {
    catalog: &'a str,
    dry_run: bool,
    generation: Option<u64>,
    sources: &'a [Source],
    #[serde(flatten)]
    changes: &'a Changes,
    skipped: &'a [Rejected],
    warnings: &'a [Warning],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    services: &'a [Service],
    embedded: usize,
    pending_embeddings: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding_problem: Option<&'a str>,
    took_ms: TookMs,
}

#[derive(Serialize)]
struct TookMs {
    read: f64,
    store: f64,
    embed: f64,
}

impl AddReport {
    /// The report of a dry run.
    pub fn of_preview(batch: Batch, changes: Changes, read: Duration) -> Self {
        AddReport {
            batch,
            changes,
            generation: None,
            read,
            stored: Duration::ZERO,
            embedded: None,
        }
    }

    /// Prints the report of a run that embeds nothing.
    pub fn print(self, context: &Context) -> Result<Outcome> {
        self.print_and_embed(context, || Ok(None))
    }

    /// Prints what was stored, embeds it, and prints the result of that. The outcome is a failure
    /// when embedding was interrupted.
    pub fn print_and_embed(
        mut self,
        context: &Context,
        embed: impl FnOnce() -> Result<Option<Embedded>>,
    ) -> Result<Outcome> {
        // Embedding may take minutes, and what was stored is told before; JSON is one document.
        if !context.printer.is_json() {
            context.printer.text(self.summary(context))?;
            for service in &self.batch.services {
                context.printer.text(service.next_steps())?;
            }
        }
        self.embedded = embed()?;
        if let Some(embedded) = &self.embedded {
            embedded.print(context)?;
        }
        if context.printer.is_json() {
            context.printer.json(&self.as_json(context))?;
        }
        let embedded = self.embedded.as_ref();
        Ok(embedded.map_or(Outcome::Success, Embedded::outcome))
    }

    fn as_json<'a>(&'a self, context: &'a Context) -> ReportJson<'a> {
        let embedded = self.embedded.as_ref();
        ReportJson {
            catalog: &context.settings.catalog,
            dry_run: self.generation.is_none(),
            generation: self.generation,
            sources: &self.batch.sources,
            changes: &self.changes,
            skipped: &self.batch.rejected,
            warnings: &self.batch.warnings,
            services: &self.batch.services,
            embedded: embedded.map_or(0, |embedded| embedded.texts),
            pending_embeddings: embedded.map(|embedded| embedded.left),
            embedding_problem: embedded.and_then(|embedded| embedded.problem.as_deref()),
            took_ms: TookMs {
                read: ms(self.read),
                store: ms(self.stored),
                embed: embedded.map_or(0.0, |embedded| ms(embedded.took)),
            },
        }
    }

    fn summary(&self, context: &Context) -> String {
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
        let unread = self.batch.unread().count();
        counts.push(format!("{} skipped", self.batch.rejected.len() - unread));
        if unread > 0 {
            counts.push(format!("{} not read", counted(unread, "input")));
        }
        let counts = counts.join(", ");
        if self.generation.is_none() {
            return format!(
                "{}: {counts} (dry run, nothing was written)",
                context.settings.catalog
            );
        }
        let (read, stored) = (self.read.as_secs_f64(), self.stored.as_secs_f64());
        let times = format!("read in {read:.2} s, stored and indexed in {stored:.2} s");
        format!("{}: {counts} · {times}", context.settings.catalog)
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use toolscout_index::DataDir;

    use super::*;

    #[test]
    fn ctrl_c_before_the_commit_stores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let tools = vec![Tool::new("s", "t").unwrap()];
        let interrupt = Interrupt::default();
        {
            let mut writer = catalog.writer().unwrap();
            assert_eq!(
                upsert(&mut writer, tools.clone(), &interrupt)
                    .unwrap()
                    .added
                    .len(),
                1
            );
            interrupt.raise();
            let error = commit(&mut writer, &interrupt).unwrap_err().to_string();
            assert!(error.contains("nothing was stored"), "{error}");
            assert!(upsert(&mut writer, tools.clone(), &interrupt).is_err());
        }
        assert_eq!(catalog.refresh().unwrap().len(), 0);
    }
}
