//! `toolscout demo`: a catalog of sample tools, and some searches in it.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;

use super::Outcome;
use super::add::{self, AddReport};
use super::catalogs;
use super::context::{Context, Legs};
use super::embed;
use super::exit::UsageError;
use super::input::Batch;
use super::interrupt::Interrupt;
use super::search;
use crate::models::Patience;
use crate::samples;

/// Requests with what each of them shows.
const SEARCHES: [(&str, &[&str]); 7] = [
    (
        "plain words",
        &["-k", "3", "put a dentist appointment on my calendar"],
    ),
    ("misspelt", &["-k", "3", "transalte a paragraf into french"]),
    ("Chinese", &["-k", "3", "新建一条笔记"]),
    (
        "an exact name, written another way",
        &["-k", "3", "createIssue"],
    ),
    (
        "several needs in one request",
        &[
            "-k",
            "4",
            "find a flight to Lisbon and book a hotel near the beach",
        ],
    ),
    (
        "several requests at once",
        &[
            "-k",
            "4",
            "-q",
            "convert euros to dollars",
            "-q",
            "translate a text into Japanese",
        ],
    ),
    (
        "something that no tool can do",
        &["-k", "3", "knit me a woollen scarf"],
    ),
];

/// Makes the catalog `demo` of 425 sample tools and shows some searches. Other catalogs are neither
/// read nor changed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout demo\n  toolscout --catalog demo search will it rain tomorrow\n  toolscout demo --remove"
)]
pub struct Args {
    /// Delete the catalog again
    #[arg(long)]
    remove: bool,
}

/// The arguments of a search.
#[derive(Parser)]
struct Search {
    #[command(flatten)]
    args: search::Args,
}

impl Args {
    /// Makes the catalog and searches in it, or deletes it.
    pub fn run(self, mut context: Context) -> Result<Outcome> {
        // Searches of the demo name the catalog, so another one would not fit them.
        if let Some(name) = context.globals.layer().catalog
            && name != samples::CATALOG
        {
            let message = "demo makes the catalog `demo`; leave --catalog out";
            return Err(UsageError(message.to_owned()).into());
        }
        context.use_catalog(samples::CATALOG);
        let context = context;
        check_ours(&context)?;
        if self.remove {
            return catalogs::delete(&context, samples::CATALOG);
        }
        let outcome = make(&context)?;
        if outcome == Outcome::Success && !context.printer.is_json() {
            show(&context)?;
        }
        Ok(outcome)
    }
}

/// Fails where somebody else has made a catalog of this name.
fn check_ours(context: &Context) -> Result<()> {
    let name = samples::CATALOG;
    if context.has_catalog()? && !samples::are_in(&context.data_dir().settings(name)?) {
        bail!(
            "there is a catalog {name:?} in {} that this command has not made, so it is left as it is; choose another \
             folder with --data",
            context.settings.data.display()
        );
    }
    Ok(())
}

fn make(context: &Context) -> Result<Outcome> {
    let start = Instant::now();
    let tools = samples::tools()?;
    let read = start.elapsed();
    let interrupt = Interrupt::listen()?;
    context.set_patience(Patience::of_adding());
    let catalog = context.open_or_create(Legs::All)?;
    let mut writer = catalog.writer()?;
    // By these settings the demo knows its own catalog, and may delete it.
    writer.set_settings(&samples::settings())?;
    let changes = add::upsert(&mut writer, tools, &interrupt)?;
    let generation = add::commit(&mut writer, &interrupt)?;
    AddReport {
        batch: Batch::default(),
        changes,
        generation: Some(generation),
        read,
        stored: start.elapsed() - read,
        embedded: None,
    }
    .print_and_embed(context, || {
        embed::soon(&catalog, writer, &interrupt).map(Some)
    })
}

/// Runs the searches, each below its command.
fn show(context: &Context) -> Result<()> {
    // Parsed like a command line, so that each can be typed as it is printed.
    for (what, arguments) in SEARCHES {
        let typed: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        let command = format!("toolscout --catalog demo search {}", typed.join(" "));
        context
            .printer
            .text(format_args!("\n== {what}\n$ {command}"))?;
        let search = Search::try_parse_from([&["search"], arguments].concat())?;
        search.args.without_remark_on_samples().run(context)?;
    }
    context.printer.text(
        "\nSearch them yourself, add your own tools, and delete the samples:\n\
         $ toolscout --catalog demo search will it rain tomorrow\n\
         $ toolscout add FILE\n\
         $ toolscout demo --remove",
    )
}

/// An argument as it is typed in a shell.
fn quoted(argument: &str) -> String {
    if argument.contains(' ') {
        format!("\"{argument}\"")
    } else {
        argument.to_owned()
    }
}
