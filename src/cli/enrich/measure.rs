//! Prints what texts are worth on the catalog.

use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::{Query, Searcher};

use crate::cli::context::Context;
use crate::cli::embed::Embedded;
use crate::cli::interrupt::Interrupt;
use crate::cli::output::print_stderr;
use crate::cli::progress::{ITEMS, bar};
use crate::cli::store::Place;
use crate::enrich::measure::{DEPTH, FOUND_WITHIN, Far, Measured, measure};
use crate::printable::{self, counted};

/// Measures the tools of these servers, or of all where none is named. Ctrl-C ends it early.
pub fn measured(
    searcher: &Arc<Searcher>,
    servers: &[String],
    interrupt: &Interrupt,
) -> Result<Measured> {
    let bar = bar("measuring", ITEMS);
    // The whole catalog is in memory, so one searcher answers every query.
    let searcher_for = |_: &Query| anyhow::Ok(Arc::clone(searcher));
    let measured = measure(searcher, servers, searcher_for, |tools| {
        bar.set_length(tools as u64);
        bar.inc(1);
        !interrupt.is_raised()
    });
    bar.finish_and_clear();
    measured
}

/// As JSON.
pub fn json(measured: &Measured) -> Value {
    let worst: Vec<Value> = measured.worst.iter().map(far_json).collect();
    json!({
        "tools": measured.tools,
        "found_within": FOUND_WITHIN,
        "with_texts": measured.with_texts,
        "without_texts": measured.without_texts,
        "first_with_texts": measured.first_with_texts,
        "first_without_texts": measured.first_without_texts,
        "worst": worst,
    })
}

fn far_json(far: &Far) -> Value {
    json!({ "id": far.id, "text": far.text, "place": far.place, "first": far.first })
}

/// Says what the texts of the catalog are worth, once all of them are embedded.
pub fn say(
    context: &Context,
    place: &Place,
    embedded: Option<&Embedded>,
    interrupt: &Interrupt,
) -> Result<()> {
    let is_embedded = embedded.is_some_and(|embedded| embedded.left == 0);
    if !is_embedded || context.printer.is_json() || interrupt.is_raised() {
        return Ok(());
    }
    let measured = measured(&place.catalog().searcher(), &[], interrupt)?;
    print_shares(context, &measured)?;
    if !measured.worst.is_empty() {
        print_stderr(
            "`toolscout enrich --measure` names the tools that are farthest from what people would say",
        );
    }
    Ok(())
}

/// As lines.
pub fn print(context: &Context, measured: &Measured) -> Result<()> {
    print_shares(context, measured)?;
    print_worst(context, measured)
}

fn print_shares(context: &Context, measured: &Measured) -> Result<()> {
    if measured.tools == 0 {
        return Ok(());
    }
    let share = |count: usize| 100.0 * count as f64 / measured.tools as f64;
    context.printer.text(format_args!(
        "of what people would say, {:.0}% find their tool among the first {FOUND_WITHIN} and {:.0}% as the first; without \
         texts {:.0}% and {:.0}% (one text kept aside of each of {})",
        share(measured.with_texts),
        share(measured.first_with_texts),
        share(measured.without_texts),
        share(measured.first_without_texts),
        counted(measured.tools, "tool"),
    ))
}

fn print_worst(context: &Context, measured: &Measured) -> Result<()> {
    if measured.worst.is_empty() {
        return Ok(());
    }
    let head = "farthest from what people would say; better descriptions help most here:";
    context.printer.text(head)?;
    for far in &measured.worst {
        let place = match far.place {
            Some(place) => format!("place {place}"),
            None => format!("not among the first {DEPTH}"),
        };
        let first = far.first.as_ref().map_or("nothing", |id| id.as_str());
        context.printer.text(format_args!(
            "  {}: {place} for {:?}, behind {}",
            printable::line(far.id.as_str()),
            far.text,
            printable::line(first)
        ))?;
    }
    Ok(())
}
