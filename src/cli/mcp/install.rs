//! `toolscout mcp install`: writes this program into the settings of an MCP client.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::super::Outcome;
use super::super::context::Context;
use super::super::output::tell;
use crate::mcp::install::{Client, Plan, Reached};

/// Merges this program into the settings of an MCP client and keeps a backup of them. Known
/// clients: claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli, codex.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The client
    #[arg(long, value_name = "NAME")]
    client: Client,
    /// Its settings, where they are not in the usual place
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Let it ask a running `toolscout serve` at this URL (as http://127.0.0.1:7700/mcp) instead of
    /// starting the program
    #[arg(long, value_name = "URL", conflicts_with = "words")]
    url: Option<String>,
    /// Print what the settings would be, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Arguments of `toolscout mcp` for this client, after --
    #[arg(last = true, value_name = "ARGUMENT")]
    words: Vec<String>,
}

impl Args {
    /// Merges, and says what was written where.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let usual = || {
            self.client
                .settings_file()
                .context("there is no home directory; name the file with --file")
        };
        let path = self.file.clone().map_or_else(usual, Ok)?;
        let plan = Plan::new(self.client, &path, &self.reached()?)?;
        let backup = if self.dry_run || plan.is_done() {
            None
        } else {
            plan.carry_out()?
        };
        if context.printer.is_json() {
            context.printer.json(&json!({
                "client": self.client.as_str(), "file": plan.path, "content": plan.after,
                "written": !self.dry_run && !plan.is_done(), "backup": backup,
            }))?;
            return Ok(Outcome::Done);
        }
        let path = plan.path.display();
        if self.dry_run {
            tell(format_args!("{path} would be:"));
            context.printer.line(plan.after.trim_end())?;
        } else if plan.is_done() {
            context
                .printer
                .line(format_args!("{path} has it already"))?;
        } else {
            let kept = backup
                .map(|backup| format!("; what was there is in {}", backup.display()))
                .unwrap_or_default();
            context.printer.line(format_args!(
                "{path} was written{kept}; restart {} to use it",
                self.client
            ))?;
        }
        Ok(Outcome::Done)
    }

    fn reached(&self) -> Result<Reached> {
        if let Some(url) = &self.url {
            return Ok(Reached::Http { url: url.clone() });
        }
        let command = std::env::current_exe().context("find the path of this program")?;
        let args =
            std::iter::once("mcp".to_owned()).chain(self.words.iter().map(|word| absolute(word)));
        Ok(Reached::Stdio {
            command: command.display().to_string(),
            args: args.collect(),
        })
    }
}

/// A word that names a file here, as a path that holds wherever the client runs.
fn absolute(word: &str) -> String {
    let path = Path::new(word);
    if path.is_file() {
        std::path::absolute(path)
            .unwrap_or(path.into())
            .display()
            .to_string()
    } else {
        word.into()
    }
}
