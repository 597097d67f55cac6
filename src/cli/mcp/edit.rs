//! `toolscout mcp get`, `remove`, `enable` and `disable`: single entries of a file of servers.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::super::Outcome;
use super::super::context::{Context, Legs};
use super::super::mcp_args::DEFAULT_FILE;
use super::install::Writing;
use crate::mcp::import::without_secrets;
use crate::mcp::install::{InstallError, Plan, listed_servers};
use crate::printable::counted;

/// Shows the entry of a server in a file of servers. Secrets are left out: values with names such as
/// GITHUB_TOKEN, or with the beginning of a well-known kind of key.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp get github\n  toolscout mcp get github --mcp my-servers.json --json"
)]
pub struct GetArgs {
    /// The name of the server
    name: String,
    /// The file of servers
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    mcp: PathBuf,
}

impl GetArgs {
    /// Prints the entry.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let GetArgs { name, mcp } = self;
        // `listed_servers` takes a missing file for one without servers.
        std::fs::metadata(&mcp).with_context(|| format!("read {}", mcp.display()))?;
        let listed = listed_servers(&mcp)?;
        let Some(entry) = listed.get(&name) else {
            return Err(InstallError::unknown(mcp, name, &listed).into());
        };
        // What is printed may end up in a log or a chat.
        let entry = without_secrets(entry);
        if context.printer.is_json() {
            context
                .printer
                .json(&json!({ "server": name, "entry": entry, "file": mcp }))?;
        } else {
            context.printer.text(format_args!("{entry:#}"))?;
        }
        Ok(Outcome::Success)
    }
}

/// Removes servers from a file of servers, and keeps a backup of the file. Comments stay. Their tools stay in
/// the catalog until `toolscout remove --server NAME`, or go with --forget-tools.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp remove github\n  toolscout mcp remove github gitlab --forget-tools"
)]
pub struct RemoveArgs {
    #[command(flatten)]
    edit: EditArgs,
    /// Remove the tools of the servers from the catalog too
    #[arg(long)]
    forget_tools: bool,
}

impl RemoveArgs {
    /// Writes the file without the servers.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let EditArgs { names, mcp, .. } = &self.edit;
        let plan = Plan::removing(mcp, names)?;
        let gone = names.join(", ");
        if !self.forget_tools {
            let flags: String = names
                .iter()
                .map(|name| format!(" --server {name}"))
                .collect();
            let next = format!(
                "{gone} left it; if the catalog has their tools, `toolscout remove{flags}` removes them \
                 (--forget-tools does both at once)"
            );
            return self.edit.write(context, &plan, &next);
        }
        // Before the file is written, so that a catalog that is being written refuses all of it.
        let forgotten = self.forget_tools(context)?;
        let tools = counted(forgotten, "tool");
        let next = format!("{gone} left it, and {tools} left the catalog");
        self.edit.write(context, &plan, &next)
    }

    /// Removes the tools of the servers from the catalog, and counts them.
    fn forget_tools(&self, context: &Context) -> Result<usize> {
        if !context.has_catalog()? {
            return Ok(0);
        }
        let catalog = context.open(Legs::Lexical)?;
        let searcher = catalog.searcher();
        let names = &self.edit.names;
        let mut ids = Vec::new();
        for id in searcher.ids_after(None) {
            if names.iter().any(|name| name == id.server()) {
                ids.push(id.clone());
            }
        }
        let mut writer = catalog.writer()?;
        let removed = writer.remove(&ids)?.removed.len();
        // What is not committed is undone when the writer is dropped.
        if !self.edit.dry_run {
            writer.commit()?;
        }
        Ok(removed)
    }
}

/// Uses servers again that were switched off: removes `"disabled": true` from their entries.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp enable github\n  toolscout mcp enable github --mcp my-servers.json"
)]
pub struct EnableArgs {
    #[command(flatten)]
    edit: EditArgs,
}

impl EnableArgs {
    /// Writes the file.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let EditArgs { names, mcp, .. } = &self.edit;
        let plan = Plan::switching(mcp, names, true)?;
        let next = format!("{} will be used", names.join(", "));
        self.edit.write(context, &plan, &next)
    }
}

/// Keeps the entries of servers and does not use them: adds `"disabled": true`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp disable github\n  toolscout mcp disable github gitlab"
)]
pub struct DisableArgs {
    #[command(flatten)]
    edit: EditArgs,
}

impl DisableArgs {
    /// Writes the file.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let EditArgs { names, mcp, .. } = &self.edit;
        let plan = Plan::switching(mcp, names, false)?;
        let next = format!("{} will not be used", names.join(", "));
        self.edit.write(context, &plan, &next)
    }
}

#[derive(clap::Args, Debug)]
struct EditArgs {
    /// The names of the servers
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The file of servers
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    mcp: PathBuf,
    /// Print the new file, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl EditArgs {
    fn write(&self, context: &Context, plan: &Plan, next: &str) -> Result<Outcome> {
        let writing = Writing::of(plan, self.dry_run)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "servers": self.names, "file": plan.path,
                "written": writing.is_written, "backup": writing.backup,
            }))?;
        } else {
            writing.print(context, plan, next)?;
        }
        Ok(Outcome::Success)
    }
}
