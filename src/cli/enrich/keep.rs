//! Stores and embeds texts, and creates files for them.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use toolscout_index::{Catalog, Changes, Enrichment, Error, Tool, ToolId};

use crate::catalog_writer::{CatalogStore as _, Change, LocalStore, WriteError};
use crate::cli::context::Context;
use crate::cli::embed::{self, Embedded};
use crate::cli::exit::error_message;
use crate::cli::interrupt::Interrupt;
use crate::cli::store::Place;
use crate::config::DEFAULT_CATALOG;
use crate::enrich::exchange::{Refused, ids_of, not_stored};

/// How long texts wait for another process that writes to the catalog, and how often they look.
const WRITER_PATIENCE: Duration = Duration::from_secs(60);
const WRITER_PAUSE: Duration = Duration::from_secs(1);
/// Refused texts that are named.
const MAX_NAMED: usize = 20;

/// Stores texts. Returns of how many tools; those that were changed or removed meanwhile are refused.
pub fn store(
    place: &Place,
    interrupt: &Interrupt,
    mut written: Vec<(Arc<Tool>, Enrichment)>,
    refused: &mut Vec<Refused>,
) -> Result<usize> {
    if let Place::Shared(copy) = place {
        // The store decides which definitions are still the same, and the copy follows it.
        let ids = ids_of(&written);
        let stored = copy.commit(&Change::Enrich(written.clone()))?.changed;
        refused.extend(not_stored(&ids, &stored));
        let stored: HashSet<ToolId> = stored.into_iter().collect();
        written.retain(|(tool, _)| stored.contains(&tool.id));
    }
    let ids = ids_of(&written);
    let stored = commit(place.catalog(), interrupt, &Change::Enrich(written))?.changed;
    refused.extend(not_stored(&ids, &stored));
    Ok(stored.len())
}

/// Deletes the texts of tools. Returns of how many.
pub fn forget(place: &Place, interrupt: &Interrupt, ids: Vec<ToolId>) -> Result<usize> {
    let change = Change::ForgetTexts(ids);
    let changes = match place {
        Place::Shared(copy) => copy.commit(&change)?,
        Place::Local(catalog) => commit(catalog, interrupt, &change)?,
    };
    Ok(changes.changed.len())
}

/// Commits a change. An answer is paid for, so it waits longer than others for a process that writes.
fn commit(catalog: &Catalog, interrupt: &Interrupt, change: &Change) -> Result<Changes> {
    let give_up = Instant::now() + WRITER_PATIENCE;
    let mut store = LocalStore(catalog.clone());
    loop {
        match store.commit(&[change]) {
            Err(WriteError::Catalog(Error::Locked { .. }))
                if Instant::now() < give_up && !interrupt.is_raised() =>
            {
                std::thread::sleep(WRITER_PAUSE);
            }
            Err(WriteError::Catalog(error)) => return Err(error.into()),
            written => {
                // One change was committed, so there is one result.
                return Ok(match written?.pop() {
                    Some(written) => written.changes,
                    None => Changes::default(),
                });
            }
        }
    }
}

/// Embeds what was written; that of a store is embedded by the servers. A model that fails leaves it
/// to `toolscout embed`, and is no reason to lose the report.
pub fn embed_pending(
    context: &Context,
    place: &Place,
    interrupt: &Interrupt,
) -> Result<Option<Embedded>> {
    let Place::Local(catalog) = place else {
        return Ok(None);
    };
    if context.embedders().is_empty() || interrupt.is_raised() {
        return Ok(None);
    }
    let embedded = match catalog.writer() {
        Ok(mut writer) => embed::pending(&mut writer, interrupt),
        Err(error) => Err(error.into()),
    };
    match embedded {
        Ok(embedded) => {
            if let Some(problem) = &embedded.problem {
                context.warn(problem);
            }
            Ok(Some(embedded))
        }
        Err(error) => {
            context.warn(error_message(&error));
            Ok(None)
        }
    }
}

/// Says where dense search does not use stored texts yet.
pub fn note_unembedded(
    context: &Context,
    place: &Place,
    stored: usize,
    embedded: Option<&Embedded>,
) -> Result<()> {
    if stored == 0 || embedded.is_some_and(|embedded| embedded.left == 0) {
        return Ok(());
    }
    let embeds = match place {
        Place::Local(_) => "`toolscout embed` has",
        Place::Shared(_) => "the servers have",
    };
    context.printer.note(format_args!(
        "dense search does not use the texts before {embeds} embedded them"
    ))
}

/// Names what is refused, with the reasons; `what` comes before the tool.
pub fn warn_of_each<'a>(
    context: &Context,
    what: &str,
    refused: impl IntoIterator<Item = &'a Refused>,
) {
    let mut refused = refused.into_iter();
    for Refused { id, reason } in refused.by_ref().take(MAX_NAMED) {
        context.warn(format_args!("{what} {id}: {reason}"));
    }
    let more = refused.count();
    if more > 0 {
        context.warn(format_args!("{what} {more} more"));
    }
}

/// Creates a file that does not exist yet: one that does may hold answers that somebody paid for.
pub fn create(file: &Path) -> Result<File> {
    let shown = file.display();
    File::create_new(file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{shown} exists already; name another file, or remove it first")
        }
        _ => anyhow::Error::new(error).context(format!("write {shown}")),
    })
}

/// How a command for this catalog begins.
pub fn command(context: &Context) -> String {
    match context.settings.catalog.as_str() {
        DEFAULT_CATALOG => "toolscout".to_owned(),
        catalog => format!("toolscout --catalog {catalog}"),
    }
}
