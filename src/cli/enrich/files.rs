//! Texts in files: questions for any chat or agent, their answers, and texts of another catalog.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use toolscout_index::{MAX_ENRICHMENT_TEXTS, Searcher};

use super::held::HeldFile;
use super::keep::{command, create, embed_pending, note_unembedded, store, warn_of_each};
use super::measure;
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::embed::Embedded;
use crate::cli::interrupt::Interrupt;
use crate::cli::store::Place;
use crate::enrich::exchange::{Answers, Matched, exported, questions};
use crate::enrich::held::Review;
use crate::enrich::{self, Batch};
use crate::printable::{self, counted};
use crate::regular_file::{self, MAX_BYTES};

/// The name that stands for stdin and stdout.
const STREAM: &str = "-";
/// Ids that one line names.
const MAX_NAMED: usize = 5;

/// Writes the questions about the tools of these requests.
pub fn ask(
    context: &Context,
    batches: &[Batch],
    servers: &[String],
    file: &Path,
) -> Result<Outcome> {
    let tools: usize = batches.iter().map(|batch| batch.tools.len()).sum();
    if tools == 0 {
        let none = if servers.is_empty() {
            "every tool has texts already"
        } else {
            "no tool of these servers is without texts"
        };
        if context.printer.is_json() {
            context.printer.json(&json!({ "tools": 0, "batches": 0 }))?;
        } else {
            context
                .printer
                .text(format_args!("{none}: nothing is left to ask"))?;
        }
        return Ok(Outcome::Success);
    }
    let command = command(context);
    let next = format!("run: {command} enrich --answers FILE");
    write(file, &questions(batches, &next))?;
    let summary = json!({ "tools": tools, "batches": batches.len(), "file": file });
    let words = format!(
        "{} asks about {} in {}; let any chat or agent answer it into a file, then run `{command} enrich --answers FILE`",
        printable::line(&file.to_string_lossy()),
        counted(tools, "tool"),
        counted(batches.len(), "batch"),
    );
    say_unless_stream(context, file, &summary, &words)
}

/// Writes the texts of these servers, or of all where none is named.
pub fn export(
    context: &Context,
    searcher: &Searcher,
    servers: &[String],
    file: &Path,
) -> Result<Outcome> {
    let mut lines = String::new();
    let mut tools = 0;
    for tool in searcher.tools() {
        if enrich::is_of(servers, &tool.id)
            && let Some(enrichment) = searcher.enrichment(&tool.id)
        {
            lines += &printable::json(&exported(&tool, enrichment).to_string());
            lines.push('\n');
            tools += 1;
        }
    }
    write(file, &lines)?;
    let summary = json!({ "tools": tools, "file": file });
    let words = format!(
        "{} has the texts of {}; `toolscout enrich --import FILE` reads it into another catalog",
        printable::line(&file.to_string_lossy()),
        counted(tools, "tool"),
    );
    say_unless_stream(context, file, &summary, &words)
}

/// Stores the texts of answers or of another catalog's export, and embeds them.
pub fn take(
    context: &Context,
    place: &Place,
    file: &Path,
    model: &str,
    is_reviewed: bool,
    held_file: Option<&Path>,
) -> Result<Outcome> {
    let name = printable::line(&file.to_string_lossy());
    let answers = Answers::read(&read(file)?);
    let searcher = place.catalog().searcher();
    let review = Review::of(is_reviewed, &searcher);
    // A file of which a part can be read is used as far as it goes.
    if let (true, Some(problem)) = (answers.is_empty(), &answers.problem) {
        bail!("{name}: {problem}");
    }
    if answers.is_empty() {
        bail!(
            "{name} has no texts of tools; they are lines like {{\"id\": \"server/name\", \"definition\": \"…\", \
             \"texts\": [\"…\"]}}, and `toolscout enrich --ask FILE` writes the questions for them"
        );
    }
    let mut held_file = HeldFile::create(held_file)?;
    let interrupt = Interrupt::listen()?;
    let start = Instant::now();
    let mut problem = answers.problem.clone();
    // In parts, so that Ctrl-C in a large file keeps what was stored before.
    let (mut matched, mut enriched) = (Matched::default(), 0);
    for mut part in answers.matched_in_parts(&searcher, model, MAX_ENRICHMENT_TEXTS, review) {
        let usable = std::mem::take(&mut part.usable);
        enriched += store(place, &interrupt, usable, &mut part.refused)?;
        matched.add(part);
        held_file.write(&searcher, &matched.held)?;
        // After the last part nothing is left to run again for.
        if interrupt.is_raised() && matched.answers < answers.len() {
            problem = Some("ended by Ctrl-C; run it again for the rest".to_owned());
            break;
        }
    }
    // Once at the end, since the embedder takes many texts at a time.
    let embedded = embed_pending(context, place, &interrupt)?;
    let report = Report {
        matched,
        enriched,
        problem: problem.map(|problem| format!("{name}: {problem}")),
        left: enrich::ids_without_texts(&place.catalog().searcher(), &[]).count(),
        took_ms: start.elapsed().as_secs_f64() * 1e3,
    };
    report.print(context, place, embedded.as_ref())?;
    held_file.say(context, &report.matched.held)?;
    if enriched > 0 {
        measure::say(context, place, embedded.as_ref(), &interrupt)?;
    }
    Ok(if report.is_complete() {
        Outcome::Success
    } else {
        Outcome::Failure
    })
}

/// What came of a file.
struct Report {
    matched: Matched,
    enriched: usize,
    /// What of the file was not read.
    problem: Option<String>,
    /// Tools without texts.
    left: usize,
    took_ms: f64,
}

impl Report {
    /// True where every answer was used, now or before.
    fn is_complete(&self) -> bool {
        let Matched {
            stale,
            unknown,
            refused,
            ..
        } = &self.matched;
        self.problem.is_none() && stale.is_empty() && unknown.is_empty() && refused.is_empty()
    }

    fn print(&self, context: &Context, place: &Place, embedded: Option<&Embedded>) -> Result<()> {
        if context.printer.is_json() {
            return context.printer.json(&self.json(context, embedded)?);
        }
        if let Some(problem) = &self.problem {
            context.warn(problem);
        }
        let matched = &self.matched;
        warn_of_each(context, "an answer was refused for", &matched.refused);
        warn_of_each(context, "a text was refused for", &matched.refused_texts);
        for (ids, what) in [
            (&matched.stale, "changed since it was asked about"),
            (&matched.unknown, "not in this catalog"),
        ] {
            if !ids.is_empty() {
                context.warn(format_args!("{what}: {}", named(ids)));
            }
        }
        context.printer.text(format_args!(
            "{}: {} of {} stored; {} kept, {} stale, {} unknown, {} refused{}",
            context.settings.catalog,
            self.enriched,
            counted(matched.answers, "answer"),
            matched.kept.len(),
            matched.stale.len(),
            matched.unknown.len(),
            matched.refused.len(),
            match matched.held.len() {
                0 => String::new(),
                held => format!(", {} held", counted(held, "text")),
            },
        ))?;
        if !matched.kept.is_empty() {
            context.printer.note(format_args!(
                "kept: these tools have texts already; `--reviewed` adds to them, and `{} enrich --forget ID` deletes them",
                command(context)
            ))?;
        }
        if self.left > 0 {
            context.printer.note(format_args!(
                "{} without texts; `{} enrich --ask FILE` asks about them",
                counted(self.left, "tool"),
                command(context),
            ))?;
        }
        note_unembedded(context, place, self.enriched, embedded)
    }

    fn json(&self, context: &Context, embedded: Option<&Embedded>) -> Result<Value> {
        let mut json = json!({
            "catalog": context.settings.catalog,
            "enriched": self.enriched,
            "left": self.left,
            "embedded": embedded.map_or(0, |embedded| embedded.texts),
            "problem": self.problem,
            "took_ms": self.took_ms,
        });
        let matched = serde_json::to_value(&self.matched)?;
        // The lists stand beside the figures, and not in an object of their own.
        if let (Some(json), Value::Object(matched)) = (json.as_object_mut(), matched) {
            json.extend(matched);
        }
        Ok(json)
    }
}

/// The first of these ids.
fn named(ids: &[String]) -> String {
    let first = ids.iter().take(MAX_NAMED);
    let first: Vec<String> = first.map(|id| printable::name(id)).collect();
    let first = first.join(", ");
    match ids.len().checked_sub(MAX_NAMED) {
        Some(more @ 1..) => format!("{first} and {more} more"),
        _ => first,
    }
}

fn read(file: &Path) -> Result<String> {
    if file == Path::new(STREAM) {
        let bytes = regular_file::bounded(io::stdin().lock(), MAX_BYTES).context("read stdin")?;
        return String::from_utf8(bytes).context("stdin is not UTF-8");
    }
    regular_file::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

/// Writes a file that does not exist yet, or stdout.
fn write(file: &Path, content: &str) -> Result<()> {
    if file == Path::new(STREAM) {
        io::stdout().write_all(content.as_bytes())?;
        return Ok(());
    }
    create(file)?
        .write_all(content.as_bytes())
        .with_context(|| format!("write {}", file.display()))
}

/// Says what a file has; not where stdout is the file.
fn say_unless_stream(
    context: &Context,
    file: &Path,
    summary: &Value,
    words: &str,
) -> Result<Outcome> {
    if file == Path::new(STREAM) {
        return Ok(Outcome::Success);
    }
    if context.printer.is_json() {
        context.printer.json(summary)?;
    } else {
        context.printer.text(words)?;
    }
    Ok(Outcome::Success)
}
