//! `toolscout words`: the owner's words of a catalog.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use toolscout_index::owner_words::{Matching, Pin, Synonyms};
use toolscout_index::{Catalog, OwnerWords};

use super::Outcome;
use super::context::{Context, Legs};
use super::embed;
use super::exit::UsageError;
use super::interrupt::Interrupt;
use crate::models::Patience;
use crate::printable::{self, counted};
use crate::regular_file;

/// Says what tools are also called: aliases, synonyms, tools pinned to the first places of a query or
/// hidden from it, boosts, and descriptions in place of those of servers.
///
/// They are kept apart from what servers send, so that no sync loses them. `toolscout search --explain`
/// says which of them did what.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout words add alias github/create_pull_request \"gh pr\"\n  toolscout words get > words.json"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the words: a table on a terminal, else the document as JSON
    #[command(
        after_help = "Examples:\n  toolscout words get\n  toolscout words get --json > words.json"
    )]
    Get,
    /// Replace all words by a document
    #[command(
        after_help = "Examples:\n  toolscout words set words.json\n  toolscout --catalog work words get | toolscout words set -"
    )]
    Set {
        /// The document, as `words get` writes it, or - for stdin
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
    },
    /// Add an entry, or change it
    #[command(
        after_help = "Examples:\n  toolscout words add alias github/create_pull_request \"gh pr\" \"open a PR\"\n  toolscout words add synonym pto vacation \"paid leave\"\n  toolscout words add synonym k8s kubernetes --one-way\n  toolscout words add pin deploy ci/deploy --contains --place 2\n  toolscout words add pin deploy legacy/deploy --hide\n  toolscout words add boost server:legacy 0.5\n  toolscout words add description ci/rollback \"Undoes the last release.\""
    )]
    Add(AddArgs),
    /// Remove an entry
    #[command(
        after_help = "Examples:\n  toolscout words remove alias github/create_pull_request\n  toolscout words remove synonym pto\n  toolscout words remove alias github/create_pull_request \"gh pr\"\n  toolscout words remove pin deploy ci/deploy\n  toolscout words remove boost server:legacy"
    )]
    Remove {
        /// What it is
        kind: Kind,
        /// Its tool, its first word, its query, or what it boosts
        key: String,
        /// The tool of a pin, names of a tool, or words of synonyms; without any the whole entry is
        /// removed, all pins of a query for example
        #[arg(value_name = "VALUE")]
        values: Vec<String>,
    },
}

#[derive(clap::Args, Debug)]
struct AddArgs {
    /// What it is
    kind: Kind,
    /// The tool of an alias or a description, a word with synonyms, the query of a pin, or what is boosted:
    /// tool:ID, server:NAME or tag:NAME
    key: String,
    /// Names of the tool, other words, the pinned tool, the factor, or the description
    #[arg(required = true, value_name = "VALUE")]
    values: Vec<String>,
    /// Only the first word of synonyms stands for the others
    #[arg(long)]
    one_way: bool,
    /// A pin for every query that contains these words
    #[arg(long)]
    contains: bool,
    /// The place of a pin, from 1 [default: 1]
    #[arg(long, value_name = "N")]
    place: Option<usize>,
    /// A pin that hides the tool
    #[arg(long, conflicts_with = "place")]
    hide: bool,
}

/// A kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Other names of a tool
    Alias,
    /// Words that mean the same
    Synonym,
    /// A tool at a place among the hits of a query, or hidden from them
    Pin,
    /// A factor of scores
    Boost,
    /// A description in place of the server's
    Description,
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let legs = match self.action {
            Action::Get => Legs::Lexical,
            // Tools with other texts are embedded anew.
            _ => Legs::All,
        };
        context.set_patience(Patience::of_adding());
        let catalog = context.open(legs)?;
        match self.action {
            Action::Get => get(context, &catalog)?,
            Action::Set { file } => {
                let words = read(&file)?;
                write(context, &catalog, words)?;
            }
            Action::Add(args) => {
                let mut words = present(&catalog);
                args.add_to(&mut words)?;
                write(context, &catalog, words)?;
            }
            Action::Remove { kind, key, values } => {
                let mut words = present(&catalog);
                if !remove(&mut words, kind, &key, &values)? {
                    bail!("{}", no_such_entry(&words, kind, &key));
                }
                write(context, &catalog, words)?;
            }
        }
        Ok(Outcome::Success)
    }
}

fn present(catalog: &Catalog) -> OwnerWords {
    let searcher = catalog.searcher();
    searcher.owner_words().cloned().unwrap_or_default()
}

/// The entries about tools, servers and tags that the catalog does not have.
fn entries_without_tool(catalog: &Catalog) -> Vec<String> {
    let searcher = catalog.searcher();
    match searcher.owner_words() {
        Some(words) => searcher.entries_without_tool(words),
        None => Vec::new(),
    }
}

/// The entries that had no tool before a change. They were reported then, and are not reported again.
pub(super) struct LostBefore<'a> {
    catalog: &'a Catalog,
    entries: Vec<String>,
}

impl<'a> LostBefore<'a> {
    /// Reads the catalog, before the change is committed.
    pub(super) fn of(catalog: &'a Catalog) -> Self {
        LostBefore {
            catalog,
            entries: entries_without_tool(catalog),
        }
    }

    /// The entries that have no tool since the change.
    fn lost_since(&self) -> Vec<String> {
        let mut entries = entries_without_tool(self.catalog);
        entries.retain(|entry| !self.entries.contains(entry));
        entries
    }

    /// Warns of entries that the change, such as a rename, has left without their tool.
    pub(super) fn warn(&self, context: &Context) {
        for entry in self.lost_since() {
            context.warn(format_args!(
                "your words {} are for what the catalog no longer has; `toolscout words` keeps them, and they take effect \
                 once it has it again. If it has another name now, add them to that one",
                printable::line(&entry)
            ));
        }
    }
}

fn read(file: &Path) -> Result<OwnerWords> {
    let mut json = Vec::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_end(&mut json)
            .context("read stdin")?;
    } else {
        json = regular_file::read(file).with_context(|| format!("read {}", file.display()))?;
    }
    OwnerWords::read(&json).with_context(|| file.display().to_string())
}

/// Stores the words, and embeds the tools whose texts they change.
fn write(context: &Context, catalog: &Catalog, words: OwnerWords) -> Result<()> {
    let before = LostBefore::of(catalog);
    // Words that stay the same need no commit, and no tool embedded anew.
    if words != present(catalog) {
        let interrupt = Interrupt::listen()?;
        let mut writer = catalog.writer()?;
        writer.set_owner_words(&words)?;
        writer.commit()?;
        let embedded = embed::soon(catalog, writer, &interrupt)?;
        if embedded.problem.is_some() {
            embedded.print(context)?;
        }
    }
    for entry in before.lost_since() {
        context.warn(format_args!(
            "{} is for what the catalog does not have; it takes effect once it has it",
            printable::line(&entry)
        ));
    }
    context
        .printer
        .note(format_args!("{}", counted(count(&words), "entry")))
}

fn count(words: &OwnerWords) -> usize {
    let boosts = &words.boosts;
    words.aliases.len()
        + words.synonyms.len()
        + words.pins.len()
        + boosts.tools.len()
        + boosts.servers.len()
        + boosts.tags.len()
        + words.descriptions.len()
}

fn get(context: &Context, catalog: &Catalog) -> Result<()> {
    let words = present(catalog);
    if !context.printer.is_table() {
        return context.printer.json(&words);
    }
    let mut rows = Vec::new();
    for (tool, names) in &words.aliases {
        rows.push(row("alias", tool, names.join(", ")));
    }
    for (name, synonyms) in &words.synonyms {
        rows.push(row("synonym", name, described_synonyms(synonyms)));
    }
    for pin in words.pins.values() {
        rows.push(row("pin", &pin.query, described_pin(pin)));
    }
    let boosts = &words.boosts;
    for (of, factors) in [
        ("tool", &boosts.tools),
        ("server", &boosts.servers),
        ("tag", &boosts.tags),
    ] {
        for (name, factor) in factors {
            rows.push(row("boost", &format!("{of}:{name}"), factor.to_string()));
        }
    }
    for (tool, description) in &words.descriptions {
        rows.push(row("description", tool, description.clone()));
    }
    context.printer.rows(&["kind", "of", "says"], rows)?;
    let missing = entries_without_tool(catalog);
    if !missing.is_empty() {
        context.printer.note(format_args!(
            "not in the catalog: {}",
            printable::line(&missing.join(", "))
        ))?;
    }
    Ok(())
}

fn row(kind: &str, key: &str, value: String) -> Vec<String> {
    vec![kind.to_owned(), key.to_owned(), value]
}

fn described_synonyms(synonyms: &Synonyms) -> String {
    let words = synonyms.words.join(", ");
    match &synonyms.from {
        Some(from) => format!("{from} -> {words}"),
        None => words,
    }
}

fn described_pin(pin: &Pin) -> String {
    let matching = match pin.matching {
        Matching::Exact => "",
        Matching::Contains => " where it is contained",
    };
    match pin.place() {
        Some(place) => format!("{} at {place}{matching}", pin.tool),
        None => format!("{} hidden{matching}", pin.tool),
    }
}

impl AddArgs {
    fn add_to(self, words: &mut OwnerWords) -> Result<()> {
        let is_of_pin = self.contains || self.hide || self.place.is_some();
        if (is_of_pin && self.kind != Kind::Pin) || (self.one_way && self.kind != Kind::Synonym) {
            let message =
                "--contains, --place and --hide are for pins, and --one-way is for synonyms";
            return Err(UsageError(message.to_owned()).into());
        }
        match self.kind {
            Kind::Alias => {
                let names = words.aliases.entry(self.key).or_default();
                add_new(names, self.values);
            }
            Kind::Synonym => self.add_synonyms(words),
            Kind::Pin => {
                let tool = only(&self.values, "the id of the pinned tool")?;
                // A query may have several pins, each with a tool of its own.
                let name = pin_name(&self.key, tool);
                let pin = Pin {
                    tool: tool.to_owned(),
                    matching: match self.contains {
                        true => Matching::Contains,
                        false => Matching::Exact,
                    },
                    place: self.place,
                    hide: self.hide,
                    query: self.key,
                };
                words.pins.insert(name, pin);
            }
            Kind::Boost => {
                let factor = only(&self.values, "the factor")?;
                let factor = factor.parse().with_context(|| {
                    format!("{factor:?} is no factor; give a number from 0.1 to 10, or 0 to switch it off")
                })?;
                let (factors, name) = boosts_of(words, &self.key)?;
                factors.insert(name, factor);
            }
            Kind::Description => {
                let text = only(&self.values, "the description, in quotation marks")?;
                words.descriptions.insert(self.key, text.to_owned());
            }
        }
        Ok(())
    }

    /// The entry has the name of its first word.
    fn add_synonyms(self, words: &mut OwnerWords) {
        let entry = words.synonyms.entry(self.key.clone()).or_default();
        if self.one_way {
            entry.from = Some(self.key);
        } else {
            // Without --one-way an entry becomes one of equals, whatever it was before.
            entry.from = None;
            add_new(&mut entry.words, vec![self.key]);
        }
        add_new(&mut entry.words, self.values);
        // A word that stands for the others must not stand for itself too.
        if let Some(from) = &entry.from {
            entry.words.retain(|word| word != from);
        }
    }
}

fn add_new(known: &mut Vec<String>, new: Vec<String>) {
    for name in new {
        if !known.contains(&name) {
            known.push(name);
        }
    }
}

fn only<'a>(values: &'a [String], what: &str) -> Result<&'a str> {
    match values {
        [value] => Ok(value),
        values => {
            let message = format!("{} values where one is needed: {what}", values.len());
            Err(UsageError(message).into())
        }
    }
}

fn pin_name(query: &str, tool: &str) -> String {
    format!("{query}: {tool}")
}

/// The factors that a key such as `server:legacy` is one of, and its name there.
fn boosts_of<'a>(
    words: &'a mut OwnerWords,
    key: &str,
) -> Result<(&'a mut BTreeMap<String, f32>, String)> {
    let boosts = &mut words.boosts;
    let (factors, name) = match key.split_once(':') {
        Some(("tool", name)) => (&mut boosts.tools, name),
        Some(("server", name)) => (&mut boosts.servers, name),
        Some(("tag", name)) => (&mut boosts.tags, name),
        _ => {
            let message =
                format!("{key:?} says not what is boosted; use tool:ID, server:NAME or tag:NAME");
            return Err(UsageError(message).into());
        }
    };
    Ok((factors, name.to_owned()))
}

/// Removes an entry, or these values of it; false where there is none.
fn remove(words: &mut OwnerWords, kind: Kind, key: &str, values: &[String]) -> Result<bool> {
    if !values.is_empty() && matches!(kind, Kind::Boost | Kind::Description) {
        let message = "a boost and a description have one value each, which goes with them";
        return Err(UsageError(message.to_owned()).into());
    }
    Ok(match kind {
        Kind::Alias if values.is_empty() => words.aliases.remove(key).is_some(),
        Kind::Alias => {
            let is_changed = match words.aliases.get_mut(key) {
                Some(names) => remove_all(names, values),
                None => false,
            };
            // A tool without other names has no entry.
            words.aliases.retain(|_, names| !names.is_empty());
            is_changed
        }
        Kind::Synonym if values.is_empty() => words.synonyms.remove(key).is_some(),
        Kind::Synonym => match words.synonyms.get_mut(key) {
            Some(entry) => remove_all(&mut entry.words, values),
            None => false,
        },
        Kind::Pin => {
            let before = words.pins.len();
            let is_meant =
                |pin: &Pin| pin.query == key && (values.is_empty() || values.contains(&pin.tool));
            words.pins.retain(|_, pin| !is_meant(pin));
            words.pins.len() < before
        }
        Kind::Boost => {
            let (factors, name) = boosts_of(words, key)?;
            factors.remove(&name).is_some()
        }
        Kind::Description => words.descriptions.remove(key).is_some(),
    })
}

/// Removes these; false unless all were there.
fn remove_all(known: &mut Vec<String>, values: &[String]) -> bool {
    let are_known = values.iter().all(|value| known.contains(value));
    if are_known {
        known.retain(|name| !values.contains(name));
    }
    are_known
}

/// The message for an entry that is not there, with what is there.
fn no_such_entry(words: &OwnerWords, kind: Kind, key: &str) -> String {
    if kind == Kind::Pin
        && let Some(pin) = words.pins.get(key)
    {
        return format!(
            "{key:?} is the name of a pin in the document; `toolscout words remove pin {:?} {}` removes it",
            pin.query, pin.tool
        );
    }
    format!("there is no such entry for {key:?}; `toolscout words get` lists them")
}
