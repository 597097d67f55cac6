//! `toolscout list`: the tools of a catalog, one per line.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::{Filter, Kind, Tool};

use super::Outcome;
use super::context::{Context, Legs};
use super::output::summary;
use crate::printable::counted;

/// Lists tools by id.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout list --server github\n  toolscout list --kind skill,prompt --limit 20"
)]
pub struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many
    #[arg(short = 'k', long, value_name = "N")]
    limit: Option<usize>,
}

/// A filter of tools; shared by several verbs.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only items of these kinds, separated by commas: tool, prompt, resource, skill, agent, or all
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<KindArg>,
    /// Only tools of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    pub server: Vec<String>,
    /// Only tools with this tag (repeatable; a tool needs one of them)
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Only tools whose hints call them read-only
    #[arg(long)]
    pub read_only: bool,
    /// Only tools whose hints call them not destructive
    #[arg(long)]
    pub not_destructive: bool,
}

/// A kind of items, or all.
#[derive(Clone, Copy, Debug)]
pub enum KindArg {
    /// Of this kind.
    One(Kind),
    /// Of every kind.
    All,
}

impl FromStr for KindArg {
    type Err = toolscout_index::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(KindArg::All),
            name => name.parse().map(KindArg::One),
        }
    }
}

impl KindArg {
    /// The kinds that are named together.
    fn kinds(named: &[KindArg]) -> BTreeSet<Kind> {
        let mut kinds = BTreeSet::new();
        for kind in named {
            match kind {
                KindArg::One(kind) => {
                    kinds.insert(*kind);
                }
                KindArg::All => kinds.extend(Kind::ALL),
            }
        }
        kinds
    }
}

impl FilterArgs {
    /// As [`FilterArgs::filter`], of all kinds if none is named.
    pub fn filter_of_all(mut self) -> Filter {
        if self.kinds.is_empty() {
            self.kinds.push(KindArg::All);
        }
        self.filter()
    }

    /// The engine's filter. Without a kind, only tools pass.
    pub fn filter(self) -> Filter {
        Filter {
            kinds: KindArg::kinds(&self.kinds),
            servers: self.server.into_iter().collect(),
            tags: self.tag.into_iter().collect(),
            // A tool without hints is taken to change things, so neither filter lets it through.
            read_only: self.read_only.then_some(true),
            destructive: self.not_destructive.then_some(false),
            ..Filter::default()
        }
    }
}

impl Args {
    /// Prints id and summary of each tool.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let searcher = context.open(Legs::Lexical)?.searcher();
        context.warn_of_unknown_servers(&searcher, &self.filter.server);
        let filter = self.filter.filter_of_all();
        // One after the other: the list may be long, and the limit short.
        let accepted = searcher.items().filter(|tool| filter.accepts(tool));
        let tools = accepted.take(self.limit.unwrap_or(usize::MAX));
        if context.printer.is_json() {
            let listed: Vec<Value> = tools.map(|tool| as_json(&tool)).collect();
            context.printer.json(&listed)?;
            return Ok(Outcome::Success);
        }
        let mut rows = Vec::new();
        for tool in tools {
            rows.push(vec![tool.id.to_string(), labelled_summary(&tool)]);
        }
        let listed = rows.len();
        context.printer.rows(&["id", "description"], rows)?;
        context.printer.note(format_args!(
            "{listed} of {} in {}",
            in_words(&searcher.count_by_kind()),
            context.settings.catalog
        ))?;
        Ok(Outcome::Success)
    }
}

/// The summary of an item, with its kind before it unless it is a tool.
pub fn labelled_summary(item: &Tool) -> String {
    match item.kind {
        Kind::Tool => summary(item),
        kind => format!("[{kind}] {}", summary(item)),
    }
}

/// Numbers of items, such as "5 tools, 2 prompts".
pub fn in_words(counts: &BTreeMap<Kind, usize>) -> String {
    let mut words = Vec::new();
    for (kind, count) in counts {
        words.push(counted(*count, kind.as_str()));
    }
    match words.is_empty() {
        true => counted(0, "tool"),
        false => words.join(", "),
    }
}

fn as_json(tool: &Tool) -> Value {
    let mut listed = json!({
        "id": tool.id,
        "server": tool.id.server(),
        "name": tool.id.name(),
        "title": tool.title,
        "description": tool.description,
        "tags": tool.tags,
        "annotations": tool.annotations,
    });
    if !tool.kind.is_tool() {
        listed["kind"] = tool.kind.as_str().into();
    }
    listed
}
