//! `toolscout sync`: makes a server's tools exactly those of a file, or those of MCP servers what
//! these offer.

mod servers;

use std::time::Instant;

use anyhow::Result;
use toolscout_index::{Changes, Options};

use super::add::{AddReport, How, OpenApi};
use super::context::Context;
use super::upstream::McpArgs;
use super::{Outcome, Usage};

/// Makes a server's tools exactly those of the input, or with --mcp asks MCP servers for their
/// tools: adds, replaces and removes. Prints `+` for added, `~` for changed and `-` for removed
/// tools.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files, folders, URLs, or - for stdin; together they are all the tools of the server
    #[arg(value_name = "FILE|FOLDER|URL|-")]
    places: Vec<String>,
    /// The server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    openapi: OpenApi,
    #[command(flatten)]
    mcp: McpArgs,
}

impl Args {
    /// Reads, compares, stores, indexes and embeds.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match (self.places.is_empty(), self.mcp.is_empty()) {
            (true, false) => servers::sync(
                context,
                &self.mcp.config()?,
                self.server.as_deref(),
                &self.how,
            ),
            (false, true) => self.sync_places(context),
            (true, true) => Err(Usage(
                "name files of tools, or MCP servers with --mcp or --mcp-server".into(),
            )
            .into()),
            (false, false) => {
                Err(Usage("files and MCP servers at once; give the one or the other".into()).into())
            }
        }
    }

    fn sync_places(self, context: &Context) -> Result<Outcome> {
        let Some(server) = self.server.filter(|server| !server.is_empty()) else {
            return Err(Usage("name the server whose tools these are with --server".into()).into());
        };
        let start = Instant::now();
        let reading = self.openapi.reading(Some(server.clone()));
        let batch = self.how.accept(
            context,
            reading.read(&self.places, &context.settings.fetch)?,
        )?;
        let read = start.elapsed();
        if self.how.dry_run {
            let catalog = context
                .data_dir()
                .open(&context.settings.catalog, Options::default())?;
            let changes = catalog.writer()?.sync(&server, &batch.tools)?;
            print(context, &changes)?;
            return AddReport {
                read,
                ..AddReport::of_preview(batch, changes)
            }
            .print(context);
        }
        let catalog = context.open_or_create(self.how.legs())?;
        let mut writer = catalog.writer()?;
        let changes = writer.sync(&server, &batch.tools)?;
        let generation = writer.commit()?;
        let stored = start.elapsed() - read;
        print(context, &changes)?;
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

fn print(context: &Context, changes: &Changes) -> Result<()> {
    if context.printer.is_json() {
        return Ok(());
    }
    for (sign, ids) in [
        ('+', &changes.added),
        ('~', &changes.changed),
        ('-', &changes.removed),
    ] {
        ids.iter()
            .try_for_each(|id| context.printer.line(format_args!("{sign} {id}")))?;
    }
    Ok(())
}
