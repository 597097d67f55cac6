//! Asks a model with a progress bar, and stores what can be used of each answer as it comes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use tokio::runtime::Builder;
use toolscout_index::{Enrichment, Tool};

use super::Prices;
use super::keep::{note_unembedded, warn_of_each};
use crate::cli::context::Context;
use crate::cli::embed::Embedded;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::{ITEMS, bar};
use crate::cli::store::Place;
use crate::enrich::run::{Run, Step};
use crate::printable::counted;

/// What becomes of the texts of an answer.
pub type Keep<'a> = dyn FnMut(&mut Run, Vec<(Arc<Tool>, Enrichment)>) -> Result<()> + 'a;

/// Goes through a run until its end, or until Ctrl-C, and gives the texts of each answer to `keep`.
pub fn ask(
    run: &mut Run,
    interrupt: &Interrupt,
    prices: &Prices,
    keep: &mut Keep<'_>,
) -> Result<()> {
    let runtime = Builder::new_multi_thread()
        // One keeps the order of requests; their work is waiting.
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let bar = bar("enriching", ITEMS);
    bar.set_length(run.tools() as u64);
    let is_stopped = || interrupt.is_raised();
    while let Some(step) = runtime.block_on(run.next(&is_stopped)) {
        // Any other step is a pause that the provider's limits ask for.
        let Step::Answered { tools, written, .. } = step else {
            bar.set_message("waiting, the provider limits requests");
            continue;
        };
        keep(run, written)?;
        bar.inc(tools as u64);
        bar.set_message(match prices.of(run.tokens) {
            Some(price) => format!("enriching, price so far {price:.4}"),
            None => "enriching".to_owned(),
        });
    }
    bar.finish_and_clear();
    match &run.problem {
        Some(problem) => Err(anyhow!("{problem}")),
        None => Ok(()),
    }
}

/// Says what came of a run.
pub fn report(
    run: &Run,
    context: &Context,
    place: &Place,
    left: usize,
    took: Duration,
    embedded: Option<&Embedded>,
) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "catalog": context.settings.catalog,
            "model": run.model(),
            "enriched": run.enriched,
            "skipped": run.without_texts(),
            "refused": run.refused,
            "held": run.held,
            "left": left,
            "embedded": embedded.map_or(0, |embedded| embedded.texts),
            "tokens_in": run.tokens.input,
            "tokens_out": run.tokens.output,
            "took_ms": took.as_secs_f64() * 1e3,
        }));
    }
    warn_of_each(context, "nothing was written for", run.without_texts());
    warn_of_each(context, "a text was refused for", &run.refused);
    let rest = match left {
        0 => String::new(),
        left => format!(", {left} left; `toolscout enrich` goes on with them"),
    };
    context.printer.text(format_args!(
        "{}: {} enriched in {:.1} s{rest}",
        context.settings.catalog,
        counted(run.enriched, "tool"),
        took.as_secs_f64(),
    ))?;
    note_unembedded(context, place, run.enriched, embedded)
}
