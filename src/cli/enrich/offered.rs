//! Texts that servers offer for their own tools, in `_meta`. They are taken once a person has seen them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::{Enrichment, MAX_ENRICHMENT_TEXTS, Searcher, Tool};

use super::held::HeldFile;
use super::keep::{embed_pending, note_unembedded, store, warn_of_each};
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::interrupt::Interrupt;
use crate::cli::store::Place;
use crate::enrich;
use crate::enrich::check::checked;
use crate::enrich::exchange::{Refused, with_further};
use crate::enrich::held::{Held, Review};
use crate::printable::{self, counted};

/// The list of texts in a tool's `_meta`.
const KEY: &str = "toolscout/requests";

/// What servers offer for tools without texts, or once a person has read it for others too.
#[derive(Default)]
struct Offered {
    usable: Vec<(Arc<Tool>, Enrichment)>,
    refused: Vec<Refused>,
    held: Vec<Held>,
}

/// What a person has said about the texts that servers offer.
#[derive(Clone, Copy)]
pub struct Consent {
    /// They are taken, and not only printed.
    pub takes: bool,
    /// The person has read them.
    pub is_reviewed: bool,
}

/// Prints what servers offer, and takes it if somebody has agreed.
pub fn offered(
    context: &Context,
    place: &Place,
    servers: &[String],
    consent: Consent,
    held_file: Option<&Path>,
) -> Result<Outcome> {
    let searcher = place.catalog().searcher();
    context.warn_of_unknown_servers(&searcher, servers);
    let review = Review::of(consent.is_reviewed, &searcher);
    let Offered {
        usable,
        mut refused,
        held,
    } = look(&searcher, servers, review);
    let mut held_file = HeldFile::create(held_file)?;
    held_file.write(&searcher, &held)?;
    // Before they are stored, which consumes them.
    let texts: Vec<Value> = usable.iter().map(json_of).collect();
    let mut taken = 0;
    if consent.takes && !usable.is_empty() {
        let interrupt = Interrupt::listen()?;
        taken = store(place, &interrupt, usable, &mut refused)?;
        let embedded = embed_pending(context, place, &interrupt)?;
        note_unembedded(context, place, taken, embedded.as_ref())?;
    }
    if context.printer.is_json() {
        let json = json!({ "offered": texts, "taken": taken, "refused": refused, "held": held });
        context.printer.json(&json)?;
        held_file.say(context, &held)?;
        return Ok(Outcome::Success);
    }
    for tool in &texts {
        context.printer.text(printable::json(&tool.to_string()))?;
    }
    warn_of_each(context, "a text was refused for", &refused);
    let tools = counted(texts.len(), "tool");
    let said = match (texts.is_empty(), consent.takes) {
        (true, _) => format!("no server offers texts that a tool lacks (`_meta`, {KEY:?})"),
        (false, false) => {
            format!("servers offer texts for {tools}; read them, and take them with --yes")
        }
        (false, true) => format!("texts of {taken} of {tools} taken"),
    };
    context.printer.note(said)?;
    held_file.say(context, &held)?;
    Ok(Outcome::Success)
}

fn look(searcher: &Searcher, servers: &[String], review: Review<'_>) -> Offered {
    let mut offered = Offered::default();
    for id in searcher.ids_after(None) {
        if !enrich::is_of(servers, id) {
            continue;
        }
        let present = searcher.enrichment(id);
        // Texts are added to those of a tool only once a person has read them.
        if present.is_some() && !matches!(review, Review::Done) {
            continue;
        }
        let Some(tool) = searcher.tool(id) else {
            continue;
        };
        let meta = tool.metadata.get("_meta");
        let Some(list) = meta.and_then(|meta| meta.get(KEY)) else {
            continue;
        };
        let list = match present {
            None => Some(list.clone()),
            Some(present) => with_further(present, list),
        };
        let Some(list) = list else {
            continue;
        };
        // In the place of a model's name, so that their origin can be seen later.
        let model = format!("server {}", tool.id.server());
        let read = checked(&tool, &list, MAX_ENRICHMENT_TEXTS, &model, review);
        offered.held.extend(read.held);
        for reason in read.refused {
            offered.refused.push(Refused::new(id.as_str(), reason));
        }
        match read.enrichment {
            Ok(enrichment) => offered.usable.push((tool, enrichment)),
            Err(reason) => offered.refused.push(Refused::new(id.as_str(), reason)),
        }
    }
    offered
}

fn json_of((tool, enrichment): &(Arc<Tool>, Enrichment)) -> Value {
    json!({ "id": tool.id, "texts": enrichment.texts() })
}
