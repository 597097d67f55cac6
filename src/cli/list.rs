//! `toolscout list`: the tools of a catalog, one per line.

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::{Filter, Tool};

use super::Outcome;
use super::context::{Context, Legs};
use super::output::summary;
use crate::printable::counted;

/// Lists tools by id.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout list --server github\n  toolscout list --read-only --limit 20"
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

impl FilterArgs {
    /// The engine's filter.
    pub fn filter(self) -> Filter {
        Filter {
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
        let filter = self.filter.filter();
        // One after the other: the list may be long, and the limit short.
        let accepted = searcher.tools().filter(|tool| filter.accepts(tool));
        let tools = accepted.take(self.limit.unwrap_or(usize::MAX));
        if context.printer.is_json() {
            let listed: Vec<Value> = tools.map(|tool| as_json(&tool)).collect();
            context.printer.json(&listed)?;
            return Ok(Outcome::Success);
        }
        let mut rows = Vec::new();
        for tool in tools {
            rows.push(vec![tool.id.to_string(), summary(&tool)]);
        }
        let listed = rows.len();
        context.printer.rows(&["id", "description"], rows)?;
        context.printer.note(format_args!(
            "{listed} of {} in {}",
            counted(searcher.len(), "tool"),
            context.settings.catalog
        ))?;
        Ok(Outcome::Success)
    }
}

fn as_json(tool: &Tool) -> Value {
    json!({
        "id": tool.id,
        "server": tool.id.server(),
        "name": tool.id.name(),
        "title": tool.title,
        "description": tool.description,
        "tags": tool.tags,
        "annotations": tool.annotations,
    })
}
