//! `toolscout sync`: makes a server's tools exactly those of a file.

use std::time::Instant;

use anyhow::Result;
use toolscout_index::{Changes, Options};

use super::add::{How, OpenApi, Report};
use super::context::Context;
use super::{Outcome, Usage};

/// Makes a server's tools exactly those of the input: adds, replaces and removes. Prints `+` for added, `~` for changed
/// and `-` for removed tools.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files, folders, URLs, or - for stdin; together they are all the tools of the server
    #[arg(required = true, value_name = "FILE|FOLDER|URL|-")]
    places: Vec<String>,
    /// The server
    #[arg(long, value_name = "NAME")]
    server: String,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    openapi: OpenApi,
}

impl Args {
    /// Reads, compares, stores, indexes and embeds.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.server.is_empty() {
            return Err(Usage("--server is empty; name the server whose tools these are".into()).into());
        }
        let start = Instant::now();
        let reading = self.openapi.reading(Some(self.server.clone()));
        let batch = self.how.accept(context, reading.read(&self.places, &context.settings.fetch)?)?;
        let read = start.elapsed();
        if self.how.dry_run {
            let catalog = context.data_dir().open(&context.settings.catalog, Options::default())?;
            let changes = catalog.writer()?.sync(&self.server, &batch.tools)?;
            print(context, &changes)?;
            return Report { read, ..Report::of_preview(batch, changes) }.print(context);
        }
        let catalog = context.open_or_create(self.how.legs())?;
        let mut writer = catalog.writer()?;
        let changes = writer.sync(&self.server, &batch.tools)?;
        let generation = writer.commit()?;
        let stored = start.elapsed() - read;
        print(context, &changes)?;
        let embedded = self.how.embed(context, &mut writer)?;
        Report { batch, changes, generation: Some(generation), read, stored, embedded }.print(context)
    }
}

fn print(context: &Context, changes: &Changes) -> Result<()> {
    if context.printer.is_json() {
        return Ok(());
    }
    for (sign, ids) in [('+', &changes.added), ('~', &changes.changed), ('-', &changes.removed)] {
        ids.iter().try_for_each(|id| context.printer.line(format_args!("{sign} {id}")))?;
    }
    Ok(())
}
