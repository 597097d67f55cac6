//! `toolscout embed`: embeds the tools that have no vectors yet.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use toolscout_index::{Catalog, Error, Settings, Writer};

use super::Outcome;
use super::context::{Context, Legs};
use super::interrupt::Interrupt;
use super::models::fetch_named;
use super::progress::{ITEMS, bar};
use crate::models::{self, Patience};
use crate::printable::counted;

/// Longest time to a failure after which `add` tries once more: whoever waited longer has waited
/// enough.
const RETRY_WITHIN: Duration = Duration::from_secs(2);
/// Pause before that.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(50);

/// Embeds the tools that have no vectors yet: after `add --no-embed`, after an interruption, or
/// after `models pull`. Ctrl-C keeps the vectors made so far; the next run makes the rest.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout embed\n  toolscout --catalog work embed --json\n  toolscout embed --embedder bge-m3 --switch"
)]
pub struct Args {
    /// Then make the embedders of --embedder those of the catalog. Until then it keeps the ones it
    /// has
    #[arg(long, requires = "embedder")]
    switch: bool,
}

impl Args {
    /// Embeds, and prints how many texts in what time.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        context.set_patience(Patience::of_embedding());
        // Before anything is embedded for it.
        let name_to_store = match self.switch {
            true => Some(context.settings.embedder.stored()?),
            false => None,
        };
        // A model that was never fetched is fetched: whoever embeds by it wants it.
        if context.has_catalog()? {
            for name in models::missing_named(&context.settings.embedder, &context.settings) {
                fetch_named(context, &name, false)
                    .with_context(|| format!("nothing was embedded by {name}"))?;
            }
        }
        // A missing catalog is reported before a missing model, by `open` below.
        if context.has_catalog()?
            && let Err(unavailable) = context.required_model()
        {
            bail!("nothing was embedded: {unavailable}");
        }
        let catalog = context.open(Legs::All)?;
        let mut writer = catalog.writer()?;
        let embedded = pending(&mut writer, &Interrupt::listen()?)?;
        if let Some(problem) = &embedded.problem {
            bail!(
                "{problem}; {} embedded before that, {} left, `toolscout embed` continues",
                counted(embedded.texts, "text"),
                embedded.left
            );
        }
        // With some vectors missing, searches by the new embedders would miss tools.
        let is_switched = self.switch && embedded.left == 0;
        if is_switched {
            let settings = Settings {
                embedder: name_to_store,
                ..writer.settings()?
            };
            writer.set_settings(&settings)?;
            writer.commit()?;
        }
        if context.printer.is_json() {
            let json = json!({
                "catalog": context.settings.catalog,
                "embedded": embedded.texts,
                "pending_embeddings": embedded.left,
                "took_ms": embedded.took.as_secs_f64() * 1e3,
                "switched": is_switched,
            });
            context.printer.json(&json)?;
        } else {
            context
                .printer
                .text(format_args!("{}: {embedded}", context.settings.catalog))?;
            if is_switched {
                let embedder = context.settings.embedder.shown();
                context
                    .printer
                    .note(format_args!("searches use {embedder} from now on"))?;
            }
        }
        Ok(embedded.outcome())
    }
}

/// The result of embedding.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Number of texts embedded.
    pub texts: usize,
    /// Number of texts left to embed, after an interruption or a problem.
    pub left: usize,
    /// The time it took.
    pub took: Duration,
    /// The time from the last success, or from the start, to the end.
    waited: Duration,
    /// Why an embedder failed.
    pub problem: Option<String>,
}

impl Embedded {
    /// A failure after an interruption.
    pub fn outcome(&self) -> Outcome {
        if self.left == 0 || self.problem.is_some() {
            Outcome::Success
        } else {
            Outcome::Failure
        }
    }

    /// Prints how many texts were embedded, for a verb that has printed what it has stored.
    pub fn print(&self, context: &Context) -> Result<()> {
        if let Some(problem) = &self.problem {
            let are = if self.left == 1 {
                "text is"
            } else {
                "texts are"
            };
            context.warn(format_args!(
                "{} {are} not embedded yet: {problem}; searches use what there is, and `toolscout embed` continues",
                self.left
            ));
        } else if self.texts + self.left > 0 && !context.printer.is_json() {
            context
                .printer
                .text(format_args!("{}: {self}", context.settings.catalog))?;
        }
        Ok(())
    }

    /// Both together, the other one being later.
    fn then(self, later: Embedded) -> Embedded {
        Embedded {
            texts: self.texts + later.texts,
            took: self.took + later.took,
            ..later
        }
    }
}

impl fmt::Display for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.texts, self.left) {
            (0, 0) => f.write_str("nothing to embed"),
            (texts, 0) => write!(
                f,
                "{} embedded in {:.2} s",
                counted(texts, "text"),
                self.took.as_secs_f64()
            ),
            (texts, left) => write!(
                f,
                "interrupted with {} embedded and {left} left, a tool having one or more; `toolscout embed` continues",
                counted(texts, "text")
            ),
        }
    }
}

/// Embeds what was just stored, and tries once more after an early failure.
pub fn soon(catalog: &Catalog, mut writer: Writer, interrupt: &Interrupt) -> Result<Embedded> {
    let first = pending(&mut writer, interrupt)?;
    // Others may write during the pause.
    drop(writer);
    if first.problem.is_none() || first.waited > RETRY_WITHIN {
        return Ok(first);
    }
    let start = Instant::now();
    while start.elapsed() < RETRY_PAUSE && !interrupt.is_raised() {
        std::thread::sleep(TICK);
    }
    match catalog.writer() {
        Ok(_) if interrupt.is_raised() => Ok(first),
        Ok(mut writer) => Ok(first.then(pending(&mut writer, interrupt)?)),
        // Whoever writes now may be embedding.
        Err(Error::Locked { .. }) => Ok(first),
        Err(error) => Err(error.into()),
    }
}

/// Embeds with a progress bar until nothing is left, an embedder fails or Ctrl-C is pressed.
pub fn pending(writer: &mut Writer, interrupt: &Interrupt) -> Result<Embedded> {
    tracing::info!("embedding; Ctrl-C stops and keeps the vectors made so far");
    let bar = bar("embedding", ITEMS);
    let start = Instant::now();
    let (mut done, mut left) = (0, 0);
    let (mut last, mut waited) = (start, Duration::ZERO);
    let outcome = writer.embed_pending(&mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        (done, left) = (progress.done, progress.total - progress.done);
        (last, waited) = (Instant::now(), last.elapsed());
        if interrupt.is_raised() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.finish_and_clear();
    let problem = match outcome {
        Ok(_) => None,
        // Ctrl-C ends a request of an endpoint, which then fails.
        Err(_) if interrupt.is_raised() => None,
        Err(error @ Error::Embedder { .. }) => Some(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    Ok(Embedded {
        texts: done,
        left,
        took: start.elapsed(),
        waited,
        problem,
    })
}
