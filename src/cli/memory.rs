//! `toolscout memory`: what a catalog remembers of requests and the tools that were then called.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::json;
use toolscout_index::ToolId;
use toolscout_index::memory::{Forget, MAX_ENTRIES, Switch, Teacher};

use super::Outcome;
use super::context::{Context, Legs};

/// Keeps requests and the tools that were called for them, so that what is asked again is found
/// again.
///
/// Off until it is switched on. Each catalog has a memory of its own, in a file in its folder.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Remember from now on, and ask what is remembered in searches
    On,
    /// Neither remember nor ask; what is remembered stays
    Off,
    /// Remember that a tool was called for a request
    Add {
        /// The tool's id
        tool: String,
        /// What was asked
        query: String,
    },
    /// List what is remembered
    List,
    /// Write what is remembered as NDJSON
    Export,
    /// Forget what led to a tool, a request, or everything
    Forget(ForgetArgs),
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct ForgetArgs {
    /// What led to this tool
    #[arg(long, value_name = "ID")]
    tool: Option<String>,
    /// This request, whatever tool it led to
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Everything
    #[arg(long)]
    all: bool,
}

impl Args {
    /// Does the one or the other.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::On => switch(context, Switch::On)?,
            Action::Off => switch(context, Switch::Off)?,
            Action::Add { tool, query } => add(context, &tool, &query)?,
            Action::List => list(context)?,
            Action::Export => export(context)?,
            Action::Forget(which) => forget(context, which)?,
        }
        Ok(Outcome::Done)
    }
}

fn switch(context: &Context, switch: Switch) -> Result<()> {
    context.open(Legs::Lexical)?.memory().set_switch(switch)?;
    let said = if switch == Switch::On { "on" } else { "off" };
    context.printer.note(format_args!(
        "the memory of {:?} is {said}",
        context.settings.catalog
    ))
}

fn add(context: &Context, tool: &str, query: &str) -> Result<()> {
    // With every embedder, since what is remembered is found by its vectors.
    let catalog = context.open(Legs::All)?;
    let id = ToolId::parse(tool)?;
    if catalog.searcher().tool(&id).is_none() {
        bail!(
            "no tool {tool:?} in {:?}; `toolscout list` shows what is there",
            context.settings.catalog
        );
    }
    let at_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as i64;
    if !catalog
        .memory()
        .remember(query, &id, at_ms, &Teacher::command_line())?
    {
        bail!(
            "the memory of {:?} is off; `toolscout memory on` switches it on",
            context.settings.catalog
        );
    }
    Ok(())
}

fn list(context: &Context) -> Result<()> {
    let catalog = context.open(Legs::Lexical)?;
    let memory = catalog.memory();
    let entries = memory.entries(None, MAX_ENTRIES)?;
    let switch = memory.switch()?;
    if context.printer.is_json() {
        return context
            .printer
            .json(&json!({ "memory": switch, "entries": entries }));
    }
    let rows = entries.iter().map(|entry| {
        let taught_by: Vec<String> = entry.taught_by.iter().map(ToString::to_string).collect();
        vec![
            entry.times.to_string(),
            taught_by.join(" "),
            entry.tool.to_string(),
            entry.query.clone(),
        ]
    });
    context
        .printer
        .rows(&["times", "taught by", "tool", "query"], rows.collect())?;
    let said = if switch == Switch::On { "on" } else { "off" };
    context.printer.note(format_args!(
        "{} entries; the memory is {said}",
        entries.len()
    ))
}

fn export(context: &Context) -> Result<()> {
    let catalog = context.open(Legs::Lexical)?;
    let entries = catalog.memory().entries(None, MAX_ENTRIES)?;
    entries
        .iter()
        .try_for_each(|entry| context.printer.json_line(entry))
}

fn forget(context: &Context, which: ForgetArgs) -> Result<()> {
    let what = match (which.tool, which.query) {
        (Some(tool), _) => Forget::Tool(ToolId::parse(&tool)?),
        (None, Some(query)) => Forget::Query(query),
        (None, None) => Forget::All,
    };
    let forgotten = context.open(Legs::Lexical)?.memory().forget(&what)?;
    if context.printer.is_json() {
        return context.printer.json(&json!({ "forgotten": forgotten }));
    }
    context
        .printer
        .note(format_args!("{forgotten} entries forgotten"))
}
