//! `toolscout embed`: embeds what is committed and has no vectors yet.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use toolscout_index::Writer;

use super::Outcome;
use super::context::{Context, Legs};
use super::interrupt::Interrupt;
use super::output::bar;

const TEMPLATE: &str = "{msg} [{bar:30}] {pos}/{len} ({per_sec}, {eta} left)";

/// Embeds the tools that have no vectors yet: after `add --no-embed`, after an interruption, or
/// once the model is there. Ctrl-C keeps what was embedded; the next run goes on.
#[derive(clap::Args, Debug)]
pub struct Args {}

impl Args {
    /// Embeds and says how much and how fast.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let catalog = context.open(Legs::All)?;
        if let Some(unavailable) = context.without_model() {
            bail!("nothing was embedded: {unavailable}");
        }
        let embedded = pending(&mut catalog.writer()?)?;
        if context.printer.is_json() {
            let json = json!({
                "catalog": context.settings.catalog,
                "embedded": embedded.texts,
                "pending_embeddings": embedded.left,
                "took_ms": embedded.took.as_secs_f64() * 1e3,
            });
            context.printer.json(&json)?;
        } else {
            context
                .printer
                .line(format_args!("{}: {embedded}", context.settings.catalog))?;
        }
        Ok(embedded.outcome())
    }
}

/// What was embedded.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// How many texts.
    pub texts: usize,
    /// How many are still to be done, after an interruption.
    pub left: usize,
    /// How long it took.
    pub took: Duration,
}

impl Embedded {
    /// Amiss when something is left to do.
    pub fn outcome(&self) -> Outcome {
        if self.left == 0 {
            Outcome::Done
        } else {
            Outcome::Amiss
        }
    }
}

impl fmt::Display for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.texts, self.left) {
            (0, 0) => f.write_str("nothing to embed"),
            (texts, 0) => write!(
                f,
                "{texts} texts embedded in {:.2} s",
                self.took.as_secs_f64()
            ),
            (texts, left) => {
                write!(
                    f,
                    "interrupted with {texts} texts embedded and {left} left; `toolscout embed` goes on"
                )
            }
        }
    }
}

/// Embeds with a progress bar until all is done or Ctrl-C is pressed.
pub fn pending(writer: &mut Writer) -> Result<Embedded> {
    let interrupt = Interrupt::listen()?;
    tracing::info!("embedding; Ctrl-C stops it and keeps what is done");
    let bar = bar("embedding", TEMPLATE);
    let start = Instant::now();
    let mut left = 0;
    let texts = writer.embed_pending(&mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        left = progress.total - progress.done;
        if interrupt.is_raised() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.finish_and_clear();
    Ok(Embedded {
        texts: texts?,
        left,
        took: start.elapsed(),
    })
}
