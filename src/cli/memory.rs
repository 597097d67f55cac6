//! `toolscout memory`: the usage memory of a catalog, which is requests and the tools called for
//! them.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::json;
use toolscout_index::ToolId;
use toolscout_index::memory::{Deletion, Entry, MAX_ENTRIES, Memory, Source, Switch};

use super::Outcome;
use super::context::{Context, Legs};
use crate::clock::unix_ms;
use crate::printable::counted;
use crate::regular_file;
use toolscout_index::suggest::did_you_mean;

/// Remembers requests and the tools that were called for them, so that similar requests find these
/// tools again.
///
/// Off by default. Each catalog has its own memory, in a file in its folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout memory on\n  toolscout memory add github/create_issue \"open a ticket\""
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Remember calls from now on, and use the memory in searches
    #[command(
        after_help = "Examples:\n  toolscout memory on\n  toolscout --catalog work memory on"
    )]
    On,
    /// Stop remembering and stop using the memory; its entries stay
    #[command(
        after_help = "Examples:\n  toolscout memory off\n  toolscout --catalog work memory off"
    )]
    Off,
    /// Remember that a tool was called for a request
    #[command(
        after_help = "Examples:\n  toolscout memory add github/create_issue \"open a ticket\"\n  toolscout memory add weather/getForecast \"will it rain\""
    )]
    Add {
        /// The tool's id
        tool: String,
        /// The request
        query: String,
    },
    /// List the entries
    #[command(after_help = "Examples:\n  toolscout memory list\n  toolscout memory list --json")]
    List,
    /// Write the entries as NDJSON, for `memory import`
    #[command(
        after_help = "Examples:\n  toolscout memory export > memory.jsonl\n  toolscout --catalog work memory export"
    )]
    Export,
    /// Read entries that `memory export` wrote; an entry that is known already counts once
    #[command(
        after_help = "Examples:\n  toolscout memory import memory.jsonl\n  toolscout --catalog old memory export | toolscout memory import -"
    )]
    Import {
        /// The file, or - for stdin
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
    },
    /// Delete the entries of a tool, of a request, or all of them
    #[command(
        after_help = "Examples:\n  toolscout memory forget --tool github/create_issue\n  toolscout memory forget --all"
    )]
    Forget(ForgetArgs),
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct ForgetArgs {
    /// Entries of this tool
    #[arg(long, value_name = "ID")]
    tool: Option<String>,
    /// Entries of this request, whatever the tool
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// All entries
    #[arg(long)]
    all: bool,
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::On => switch(context, Switch::On)?,
            Action::Off => switch(context, Switch::Off)?,
            Action::Add { tool, query } => add(context, &tool, &query)?,
            Action::List => list(context)?,
            Action::Export => export(context)?,
            Action::Import { file } => import(context, &file)?,
            Action::Forget(args) => forget(context, args)?,
        }
        Ok(Outcome::Success)
    }
}

fn switch(context: &Context, switch: Switch) -> Result<()> {
    context.open(Legs::Lexical)?.memory().set_switch(switch)?;
    context.printer.note(format_args!(
        "the memory of {:?} is {}",
        context.settings.catalog,
        state(switch)
    ))
}

fn state(switch: Switch) -> &'static str {
    match switch {
        Switch::On => "on",
        Switch::Off => "off",
    }
}

fn add(context: &Context, tool: &str, query: &str) -> Result<()> {
    // With every embedder, because entries are found by their vectors.
    let catalog = context.open(Legs::All)?;
    let id = ToolId::parse(tool)?;
    let searcher = catalog.searcher();
    if searcher.tool(&id).is_none() {
        let ids: Vec<ToolId> = searcher.items().map(|tool| tool.id.clone()).collect();
        let hint = match did_you_mean(tool, ids.iter().map(ToolId::as_str)) {
            Some(similar) => similar,
            None => "`toolscout list` lists the tools".to_owned(),
        };
        bail!("no tool {tool:?} in {:?}; {hint}", context.settings.catalog);
    }
    let is_stored = catalog
        .memory()
        .remember(query, &id, now(), &Source::command_line())?;
    if !is_stored {
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
    let mut rows = Vec::new();
    for entry in &entries {
        let taught_by: Vec<String> = entry.taught_by.iter().map(ToString::to_string).collect();
        rows.push(vec![
            entry.times.to_string(),
            taught_by.join(" "),
            entry.tool.to_string(),
            entry.query.clone(),
        ]);
    }
    context
        .printer
        .rows(&["times", "taught by", "tool", "query"], rows)?;
    context.printer.note(format_args!(
        "{}; the memory is {}",
        counted(entries.len(), "entry"),
        state(switch)
    ))
}

fn export(context: &Context) -> Result<()> {
    let catalog = context.open(Legs::Lexical)?;
    for entry in catalog.memory().entries(None, MAX_ENTRIES)? {
        context.printer.json_line(&entry)?;
    }
    Ok(())
}

/// Reads the whole file before the first entry is stored, so that a bad line changes nothing.
fn import(context: &Context, file: &Path) -> Result<()> {
    let catalog = context.open(Legs::All)?;
    let entries = read_entries(file)?;
    let found = entries.len();
    let searcher = catalog.searcher();
    let (entries, unknown): (Vec<Entry>, Vec<Entry>) = entries
        .into_iter()
        .partition(|entry| searcher.tool(&entry.tool).is_some());
    if let Some(first) = unknown.first() {
        context.warn(format_args!(
            "{} left out, because the catalog does not have the tool, for example {}",
            counted(unknown.len(), "entry"),
            first.tool
        ));
    }
    let memory = catalog.memory();
    let new = without_known(memory, entries)?;
    memory.insert(&new)?;
    let (imported, known) = (new.len(), found - unknown.len() - new.len());
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "imported": imported, "known": known, "unknown_tool": unknown.len(),
        }));
    }
    context.printer.note(format_args!(
        "{} imported, {known} known already; the memory is {}",
        counted(imported, "entry"),
        state(memory.switch()?)
    ))
}

/// An entry as `memory export` writes it; one written by hand needs the query and the tool only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportedEntry {
    query: String,
    tool: String,
    #[serde(default = "once")]
    times: u64,
    #[serde(default = "now")]
    at_ms: i64,
    #[serde(default = "by_command_line")]
    taught_by: Vec<String>,
}

fn once() -> u64 {
    1
}

fn now() -> i64 {
    unix_ms(SystemTime::now())
}

fn by_command_line() -> Vec<String> {
    vec![Source::command_line().to_string()]
}

fn read_entries(file: &Path) -> Result<Vec<Entry>> {
    let name = file.display();
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin()
            .lock()
            .read_to_string(&mut text)
            .context("read stdin")?;
    } else {
        text = regular_file::read_to_string(file).with_context(|| format!("read {name}"))?;
    }
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let entry = parse_entry(line).with_context(|| format!("{name}:{}", index + 1))?;
        entries.push(entry);
    }
    if entries.len() > MAX_ENTRIES {
        bail!(
            "{name} has {} entries and a memory holds {MAX_ENTRIES}; split the file or remove entries",
            entries.len()
        );
    }
    Ok(entries)
}

fn parse_entry(line: &str) -> Result<Entry> {
    let exported: ExportedEntry = serde_json::from_str(line)?;
    let teachers = exported.taught_by.iter();
    Ok(Entry {
        query: exported.query,
        tool: ToolId::parse(&exported.tool)?,
        times: exported.times,
        at_ms: exported.at_ms,
        taught_by: teachers.map(|name| teacher(name)).collect(),
    })
}

/// The teacher of this name. Names without a constructor (`unknown`, from before teachers were
/// recorded) become the command line, which imports the entry and has the same weight.
fn teacher(name: &str) -> Source {
    match name.split_once(':') {
        Some(("admin", key)) => Source::admin(key),
        Some(("key", key)) => Source::key(key),
        None if name == "http" => Source::keyless(),
        _ => Source::command_line(),
    }
}

/// The entries that add something to the memory. [`Memory::insert`] counts an entry once more when
/// it exists already, so a file that is imported twice would count twice.
fn without_known(memory: &Memory, entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let mut known: HashMap<(String, ToolId), Entry> = HashMap::new();
    for entry in memory.entries(None, MAX_ENTRIES)? {
        known.insert((entry.query.clone(), entry.tool.clone()), entry);
    }
    let mut new = Vec::new();
    for entry in entries {
        let key = (entry.query.trim().to_owned(), entry.tool.clone());
        // It is stored without white space around it.
        let is_new = match known.get(&key) {
            Some(known) => adds_to(&entry, known),
            None => true,
        };
        if is_new {
            // A line that occurs twice in the file is known the second time.
            known.insert(key, entry.clone());
            new.push(entry);
        }
    }
    Ok(new)
}

/// Whether an entry has calls or teachers that the same entry of the memory does not have.
fn adds_to(entry: &Entry, known: &Entry) -> bool {
    let mut teachers = entry.taught_by.iter();
    entry.times > known.times || teachers.any(|teacher| !known.taught_by.contains(teacher))
}

fn forget(context: &Context, args: ForgetArgs) -> Result<()> {
    let what = match (&args.tool, args.query) {
        (Some(tool), _) => Deletion::Tool(ToolId::parse(tool)?),
        (None, Some(query)) => Deletion::Query(query),
        (None, None) => Deletion::All,
    };
    let catalog = context.open(Legs::Lexical)?;
    let forgotten = catalog.memory().forget(&what)?;
    // Most likely the id is misspelt.
    if let (0, Some(tool)) = (forgotten, &args.tool) {
        let entries = catalog.memory().entries(None, MAX_ENTRIES)?;
        let known = entries.iter().map(|entry| entry.tool.as_str());
        if let Some(hint) = did_you_mean(tool, known.collect::<BTreeSet<_>>()) {
            context.warn(format_args!("nothing is remembered for {tool:?}; {hint}"));
        }
    }
    if context.printer.is_json() {
        return context.printer.json(&json!({ "forgotten": forgotten }));
    }
    context
        .printer
        .note(format_args!("{} forgotten", counted(forgotten, "entry")))
}

#[cfg(test)]
mod tests {
    use toolscout_index::{DataDir, Options};

    use super::*;

    #[test]
    fn an_exported_memory_is_imported_without_loss_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let memory = catalog.memory();
        let mut lines = Vec::new();
        for (query, times, teacher) in [
            ("open a ticket", 3, "cli"),
            ("file a bug", 1, "key:k1"),
            ("report it", 2, "admin:a"),
        ] {
            let entry = json!({
                "query": query, "tool": "github/create_issue", "times": times, "at_ms": 7,
                "taught_by": [teacher],
            });
            lines.push(entry.to_string());
        }
        let file = folder.path().join("memory.jsonl");
        std::fs::write(&file, lines.join("\n\n")).unwrap();
        let new = without_known(memory, read_entries(&file).unwrap()).unwrap();
        assert_eq!(new.len(), 3);
        memory.insert(&new).unwrap();
        let mut exported: Vec<String> = memory
            .entries(None, MAX_ENTRIES)
            .unwrap()
            .iter()
            .map(|entry| json!(entry).to_string())
            .collect();
        exported.sort();
        lines.sort();
        assert_eq!(exported, lines);
        let again = without_known(memory, read_entries(&file).unwrap()).unwrap();
        assert_eq!(again, []);
    }

    #[test]
    fn a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.jsonl");
        std::fs::write(&file, "\n{\"query\":\"x\"}\n").unwrap();
        let message = format!("{:#}", read_entries(&file).unwrap_err());
        assert!(
            message.contains("memory.jsonl:2: missing field"),
            "{message}"
        );
    }
}
