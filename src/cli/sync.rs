//! `toolscout sync`: makes the tools of a server match a file, or those of MCP servers match what
//! the servers offer.

mod servers;

use std::collections::HashSet;
use std::time::Instant;

use anyhow::{Result, bail};
use toolscout_index::formats::KnownServers;
use toolscout_index::{Changes, Options, Searcher, ToolId};

use super::Outcome;
use super::add::{AddReport, OpenApiArgs, WriteArgs, commit};
use super::context::Context;
use super::exit::UsageError;
use super::input::Batch;
use super::interrupt::Interrupt;
use super::mcp_args::McpArgs;
use super::progress::spinner;
use super::words::LostBefore;

/// Makes the tools of a server match the input, or with --mcp those of MCP servers match what the
/// servers offer: adds, replaces and removes. Prints `+` for added, `~` for changed and `-` for
/// removed tools.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout sync github.json --server github\n  toolscout sync --mcp servers.json --dry-run"
)]
pub struct Args {
    /// Files, folders, URLs, or - for stdin; together they hold every tool of the server
    #[arg(value_name = "FILE|FOLDER|URL|-")]
    inputs: Vec<String>,
    /// The server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    openapi: OpenApiArgs,
    #[command(flatten)]
    mcp: McpArgs,
}

impl Args {
    /// Reads, compares, stores, indexes and embeds.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match (self.inputs.is_empty(), self.mcp.is_empty()) {
            (true, false) => servers::sync(
                context,
                &self.mcp.config(&context.settings.data)?,
                self.server.as_deref(),
                &self.write,
            ),
            (false, true) => self.sync_inputs(context),
            (true, true) => Err(UsageError(
                "name files of tools, or MCP servers with --mcp or --mcp-server".into(),
            )
            .into()),
            (false, false) => Err(UsageError(
                "files and MCP servers at once; name one or the other".into(),
            )
            .into()),
        }
    }

    fn sync_inputs(self, context: &Context) -> Result<Outcome> {
        let Some(server) = self.server.filter(|server| !server.is_empty()) else {
            return Err(
                UsageError("name the server whose tools these are with --server".into()).into(),
            );
        };
        let start = Instant::now();
        let reading = self
            .openapi
            .reading(Some(server.clone()), KnownServers::default());
        let batch = reading.read(&self.inputs, &context.settings.fetch)?;
        // Not even with --skip-invalid: which tools it held is not known.
        if let Some(unread) = batch.unread().next() {
            bail!("{unread} (nothing was changed: the tools that it held would be removed)");
        }
        if let Some(part) = batch.parts.first() {
            bail!(
                "{part} is one page of a `tools/list` and says that others follow (nothing was changed: the tools of the \
                 other pages would be removed); save all pages, or let `toolscout sync --mcp FILE` fetch them"
            );
        }
        let mut batch = self.write.validate(context, batch)?;
        let read = start.elapsed();
        if self.write.dry_run {
            let catalog = context
                .data_dir()
                .open(&context.settings.catalog, Options::default())?;
            keep_invalid(&mut batch, &server, &catalog.searcher());
            let changes = catalog.writer()?.sync(&server, &batch.tools)?;
            print_changes(context, &changes)?;
            return AddReport::of_preview(batch, changes, read).print(context);
        }
        let interrupt = Interrupt::listen()?;
        let catalog = self.write.open(context)?;
        keep_invalid(&mut batch, &server, &catalog.searcher());
        let lost_before = LostBefore::of(&catalog);
        let mut writer = catalog.writer()?;
        let spinner = spinner("storing");
        let changes = writer.sync(&server, &batch.tools)?;
        spinner.finish_and_clear();
        let generation = commit(&mut writer, &interrupt)?;
        let stored = start.elapsed() - read;
        print_changes(context, &changes)?;
        lost_before.warn(context);
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

/// Adds the present definitions of tools whose new ones are invalid: those are left out, and not the
/// tools.
fn keep_invalid(batch: &mut Batch, server: &str, searcher: &Searcher) {
    if batch.rejected.is_empty() {
        return;
    }
    let mut read: HashSet<ToolId> = batch.tools.iter().map(|tool| tool.id.clone()).collect();
    for item in &batch.rejected {
        let Some(name) = item.name.as_deref() else {
            continue;
        };
        let Ok(id) = ToolId::new(server, name) else {
            continue;
        };
        // Not where the input has a valid one of that id too.
        if let Some(present) = searcher.tool(&id)
            && read.insert(id)
        {
            batch.tools.push((*present).clone());
        }
    }
}

fn print_changes(context: &Context, changes: &Changes) -> Result<()> {
    if context.printer.is_json() {
        return Ok(());
    }
    for (sign, ids) in [
        ('+', &changes.added),
        ('~', &changes.changed),
        ('-', &changes.removed),
    ] {
        for id in ids {
            context.printer.text(format_args!("{sign} {id}"))?;
        }
    }
    Ok(())
}
