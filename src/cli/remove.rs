//! `toolscout remove`: takes tools out.

use anyhow::{Result, bail};
use toolscout_index::{Filter, Searcher, ToolId};

use super::context::{Context, Legs};
use super::{Outcome, Usage};

/// Removes tools by id, or all tools of a server.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Ids, as in server/name
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Every tool of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Removes and prints what was removed.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.ids.is_empty() && self.server.is_empty() {
            return Err(Usage("nothing to remove was named; give ids or --server".into()).into());
        }
        let catalog = context.open(Legs::Lexical)?;
        let ids = self.matching(&catalog.searcher())?;
        let mut writer = catalog.writer()?;
        let changes = writer.remove(&ids)?;
        if !self.dry_run {
            writer.commit()?;
        }
        if context.printer.is_json() {
            context.printer.json(
                &serde_json::json!({ "removed": changes.removed, "dry_run": self.dry_run }),
            )?;
            return Ok(Outcome::Done);
        }
        changes
            .removed
            .iter()
            .try_for_each(|id| context.printer.line(format_args!("- {id}")))?;
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
        Ok(Outcome::Done)
    }

    fn matching(&self, searcher: &Searcher) -> Result<Vec<ToolId>> {
        let mut ids = self
            .ids
            .iter()
            .map(|id| ToolId::parse(id))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(unknown) = ids.iter().find(|id| searcher.tool(id).is_none()) {
            bail!(
                "no tool {unknown:?} in this catalog, so nothing was removed; `toolscout list` shows what is there"
            );
        }
        if self.server.is_empty() {
            return Ok(ids);
        }
        let filter = Filter {
            servers: self.server.iter().cloned().collect(),
            ..Filter::default()
        };
        let of_servers = searcher
            .tools()
            .filter(|tool| filter.accepts(tool))
            .map(|tool| tool.id.clone());
        let before = ids.len();
        ids.extend(of_servers);
        if ids.len() == before {
            bail!(
                "no tool of server {} in this catalog; `toolscout stats` lists the servers",
                self.server.join(", ")
            );
        }
        Ok(ids)
    }
}
