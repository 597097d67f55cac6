//! Stores and embeds texts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use toolscout_index::{Enrichment, Error, Tool, Writer};

use crate::cli::context::Context;
use crate::cli::embed::{self, Embedded};
use crate::cli::exit::error_message;
use crate::cli::interrupt::Interrupt;
use crate::cli::store::Place;
use crate::enrich::exchange::Refused;

/// How long texts wait for another process that writes to the catalog, and how often they look.
const WRITER_PATIENCE: Duration = Duration::from_secs(60);
const WRITER_PAUSE: Duration = Duration::from_secs(1);
/// Refused texts that are named.
const MAX_NAMED: usize = 20;
/// Why texts for a tool are not stored.
const CHANGED: &str = "it was changed or removed meanwhile";

/// Stores texts. Returns of how many tools; those that were changed or removed meanwhile are refused.
pub fn store(
    place: &Place,
    interrupt: &Interrupt,
    mut written: Vec<(Arc<Tool>, Enrichment)>,
    refused: &mut Vec<Refused>,
) -> Result<usize> {
    if written.is_empty() {
        return Ok(0);
    }
    let mut refuse = |tool: &Tool| refused.push(Refused::new(tool.id.as_str(), CHANGED));
    if let Place::Shared(copy) = place {
        let pairs: Vec<(&Tool, &Enrichment)> = written
            .iter()
            .map(|(tool, enrichment)| (&**tool, enrichment))
            .collect();
        let mut are_stored = copy.enrich(&pairs)?.into_iter();
        written.retain(|(tool, _)| {
            let is_stored = are_stored.next() == Some(true);
            if !is_stored {
                refuse(tool);
            }
            is_stored
        });
    }
    let mut writer = writer(place, interrupt)?;
    let mut stored = 0;
    for (tool, enrichment) in &written {
        if writer.set_enrichment(tool, enrichment)? {
            stored += 1;
        } else {
            refuse(tool);
        }
    }
    writer.commit()?;
    Ok(stored)
}

/// The catalog's writer. An answer is paid for, so it waits longer than others for a process that
/// writes.
fn writer(place: &Place, interrupt: &Interrupt) -> Result<Writer> {
    let give_up = Instant::now() + WRITER_PATIENCE;
    loop {
        match place.catalog().writer() {
            Err(Error::Locked { .. }) if Instant::now() < give_up && !interrupt.is_raised() => {
                std::thread::sleep(WRITER_PAUSE);
            }
            writer => return Ok(writer?),
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
    let embedded = catalog
        .writer()
        .map_err(Into::into)
        .and_then(|mut writer| embed::pending(&mut writer, interrupt));
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
pub fn warn_of_each(context: &Context, what: &str, refused: &[Refused]) {
    for Refused { id, reason } in refused.iter().take(MAX_NAMED) {
        context.warn(format_args!("{what} {id}: {reason}"));
    }
    if let Some(more @ 1..) = refused.len().checked_sub(MAX_NAMED) {
        context.warn(format_args!("{what} {more} more"));
    }
}
