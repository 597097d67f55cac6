//! `toolscout remove`: removes tools.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde_json::json;
use toolscout_index::{Filter, Kind, Searcher, ToolId};

use super::Outcome;
use super::context::{Context, Legs, unknown_server};
use super::exit::UsageError;
use super::words::LostBefore;
use toolscout_index::suggest::did_you_mean;

/// Removes tools by id, or all tools of a server.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout remove github/create_issue\n  toolscout remove --server github --dry-run"
)]
pub struct Args {
    /// Ids, as in server/name
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Every tool of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Removes the tools and prints their ids.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.ids.is_empty() && self.server.is_empty() {
            return Err(UsageError("nothing to remove; name ids or --server".into()).into());
        }
        let catalog = context.open(Legs::Lexical)?;
        // Everything is looked up before anything is removed.
        let ids = self.matching(&catalog.searcher(), &context.settings.catalog)?;
        let lost_before = LostBefore::of(&catalog);
        let mut writer = catalog.writer()?;
        let changes = writer.remove(&ids)?;
        // What is not committed is undone when the writer is dropped.
        if !self.dry_run {
            writer.commit()?;
            lost_before.warn(context);
        }
        if context.printer.is_json() {
            let json = json!({ "removed": changes.removed, "dry_run": self.dry_run });
            context.printer.json(&json)?;
            return Ok(Outcome::Success);
        }
        for id in &changes.removed {
            context.printer.text(format_args!("- {id}"))?;
        }
        let end = if self.dry_run {
            " (dry run, nothing was written)"
        } else {
            ""
        };
        context.printer.note(format_args!(
            "{}: {} removed{end}",
            context.settings.catalog,
            changes.removed.len()
        ))?;
        Ok(Outcome::Success)
    }

    /// The ids to remove. An id or a server that is unknown is an error.
    fn matching(&self, searcher: &Searcher, catalog: &str) -> Result<Vec<ToolId>> {
        let all: Vec<ToolId> = searcher.items().map(|tool| tool.id.clone()).collect();
        let mut ids = Vec::new();
        for id in &self.ids {
            let id = ToolId::parse(id)?;
            if searcher.tool(&id).is_none() {
                let hint = match did_you_mean(id.as_str(), all.iter().map(ToolId::as_str)) {
                    Some(similar) => similar,
                    None => "`toolscout list` lists the tools".to_owned(),
                };
                bail!("no tool {id:?} in this catalog, so nothing was removed; {hint}");
            }
            ids.push(id);
        }
        let servers: BTreeSet<String> = all.iter().map(|id| id.server().to_owned()).collect();
        for server in &self.server {
            if !servers.contains(server) {
                let problem = unknown_server(catalog, server, &servers);
                bail!("{problem} (nothing was removed)");
            }
        }
        // An empty filter would match every tool.
        if self.server.is_empty() {
            return Ok(ids);
        }
        let filter = Filter {
            kinds: BTreeSet::from(Kind::ALL),
            servers: self.server.iter().cloned().collect(),
            ..Filter::default()
        };
        for tool in searcher.items().filter(|tool| filter.accepts(tool)) {
            ids.push(tool.id.clone());
        }
        Ok(ids)
    }
}
