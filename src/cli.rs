//! The command line: one file a verb, each of which parses, calls and prints.
//!
//! To add a verb: a file `cli/<verb>.rs` with an `Args` and its `run`, a variant of `Verb`, a line
//! in [`Cli::run`].
//!
//! Data goes to stdout; warnings, logs and progress go to stderr. The exit code is 0 for success, 1
//! for an error and 2 for a command line that cannot be understood.

mod context;
mod input;
mod interrupt;
mod output;
mod policy;
mod upstream;

mod add;
mod agent;
mod audit;
mod catalogs;
mod completions;
mod doctor;
mod embed;
mod eval;
mod export;
mod keys;
mod list;
mod mcp;
mod memory;
mod models;
mod remove;
mod search;
mod serve;
mod show;
mod stats;
mod sync;
mod tune;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::config::{EmbedderKind, Layer};
use crate::{hints, telemetry};

use context::Context;
use output::{Output, tell};

/// Finds the right tool: a search engine over large tool catalogs.
#[derive(Debug, Parser)]
#[command(
    name = "toolscout",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

/// Flags that every verb takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
struct Globals {
    /// Directory of the catalogs [env: TOOLSCOUT_DATA; default: the platform's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory of models and the ONNX Runtime [env: TOOLSCOUT_CACHE; default: the platform's
    /// cache directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Catalog to work on [env: TOOLSCOUT_CATALOG; default: default]
    #[arg(long, global = true, value_name = "NAME")]
    catalog: Option<String>,
    /// What embeds: auto (the built-in table, and the model where it was pulled), table, minilm or
    /// none
    /// [env: TOOLSCOUT_EMBEDDER; default: auto]
    #[arg(long, global = true, value_name = "MODEL")]
    embedder: Option<EmbedderKind>,
    /// Configuration file [env: TOOLSCOUT_CONFIG; default: config.toml in the platform's
    /// configuration directory]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How results are printed; by default a table on a terminal and plain columns elsewhere
    #[arg(long, global = true, value_name = "KIND")]
    output: Option<Output>,
    /// Print JSON; the same as --output json
    // A text and no switch, because `eval --json FILE` takes the flag's place and clap hands
    // globals up and down.
    #[arg(
        long,
        global = true,
        conflicts_with = "output",
        num_args = 0,
        default_missing_value = "-"
    )]
    json: Option<String>,
}

impl Globals {
    fn layer(&self) -> Layer {
        Layer {
            data: self.data.clone(),
            cache: self.cache.clone(),
            catalog: self.catalog.clone(),
            embedder: self.embedder,
            ..Layer::default()
        }
    }

    fn output(&self) -> Option<Output> {
        if self.json.is_some() {
            Some(Output::Json)
        } else {
            self.output
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add tools, or replace those that are there
    Add(add::Args),
    /// Make a server's tools exactly those of a file, or take in those of MCP servers
    Sync(sync::Args),
    /// Embed what is not embedded yet
    Embed(embed::Args),
    /// List tools
    List(list::Args),
    /// Show tools in full
    Show(show::Args),
    /// Remove tools
    Remove(remove::Args),
    /// Find tools
    Search(search::Args),
    /// Answer questions with the catalog's tools
    Agent(agent::Args),
    /// Check or write out the record of the agent's calls
    Audit(audit::Args),
    /// Write tools out
    Export(export::Args),
    /// Show a catalog in numbers
    Stats(stats::Args),
    /// List or delete catalogs
    Catalogs(catalogs::Args),
    /// Serve the HTTP API
    Serve(serve::Args),
    /// Serve an MCP client over standard input and output
    Mcp(mcp::Args),
    /// Make, list and revoke keys of the HTTP API
    Keys(keys::Args),
    /// Remember which tools requests led to, list it, forget it
    Memory(memory::Args),
    /// List or fetch what embedding needs
    Models(models::Args),
    /// Check that everything is where it should be
    Doctor(doctor::Args),
    /// Measure retrieval on your own tools and queries
    Eval(eval::Args),
    /// Look for settings that serve a set better
    Tune(tune::Args),
    /// Print a shell's completions
    Completions(completions::Args),
}

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// Everything that kept it from being done, to be told with [`report`].
    pub fn run(self) -> Result<Outcome> {
        let Cli { globals, verb } = self;
        if !matches!(verb, Verb::Serve(_)) {
            start_logging();
        }
        let context = || {
            Context::new(
                &globals.layer(),
                globals.config.as_deref(),
                globals.output(),
            )
        };
        match verb {
            Verb::Add(args) => args.run(&context()?),
            Verb::Sync(args) => args.run(&context()?),
            Verb::Embed(args) => args.run(&context()?),
            Verb::List(args) => args.run(&context()?),
            Verb::Show(args) => args.run(&context()?),
            Verb::Remove(args) => args.run(&context()?),
            Verb::Search(args) => args.run(&context()?),
            Verb::Agent(args) => args.run(&context()?),
            Verb::Audit(args) => args.run(&context()?),
            Verb::Export(args) => args.run(&context()?),
            Verb::Stats(args) => args.run(&context()?),
            Verb::Catalogs(args) => args.run(&context()?),
            Verb::Serve(args) => args.run(&context()?),
            Verb::Mcp(args) => args.run(&context()?),
            Verb::Keys(args) => args.run(&context()?),
            Verb::Memory(args) => args.run(&context()?),
            Verb::Models(args) => args.run(&context()?),
            Verb::Doctor(args) => args.run(&context()?),
            Verb::Eval(args) => args.run(&context()?),
            Verb::Tune(args) => args.run(&context()?),
            Verb::Completions(args) => args.run(),
        }
    }
}

/// How a verb ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All was done.
    Done,
    /// It was told what is amiss, or something was left to do.
    Amiss,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Amiss => ExitCode::from(1),
        }
    }
}

/// A command line that makes no sense, seen only after it was parsed.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Tells an error as one line on stderr and gives the exit code for it.
///
/// A reader that went away (`toolscout list | head`) is no error: that ends quietly and well.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    let hint = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<toolscout_index::Error>())
        .and_then(hints::for_error);
    match hint {
        Some(hint) => tell(format_args!("error: {}; {hint}", one_line(error))),
        None => tell(format_args!("error: {}", one_line(error))),
    }
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}

/// The chain of causes, joined by colons; a cause that its parent's text already ends with is not
/// said twice.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Logs go to stderr at the level of `TOOLSCOUT_LOG`, by default warnings. The ONNX Runtime warns
/// about matters that nobody can act on, so only its errors are shown.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TOOLSCOUT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,ort=error"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(telemetry::stderr);
    // Fails only where a test or an embedding program has set up logging before, which then stands.
    let _ = subscriber.with_ansi(output::colour_wanted()).try_init();
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_with_its_causes_said_once() {
        let error = Err::<(), _>(anyhow!("no such file\nor folder"))
            .context("read a.json")
            .unwrap_err();
        assert_eq!(one_line(&error), "read a.json: no such file; or folder");
        let repeated = Err::<(), _>(anyhow!("gone"))
            .context("read a.json: gone")
            .unwrap_err();
        assert_eq!(one_line(&repeated), "read a.json: gone");
    }
}
