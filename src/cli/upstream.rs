//! The flags that name MCP servers, shared by `sync`, `agent`, `mcp` and `serve`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::exit::UsageError;
use super::output::print_stderr;
use crate::mcp::config::{add_header, load, parse_server};
use crate::mcp::{OnChange, PoolConfig};

/// MCP servers to connect to.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "MCP servers")]
pub struct McpArgs {
    /// A file with an `mcpServers` object, as desktop clients write it (repeatable)
    #[arg(long, value_name = "FILE")]
    mcp: Vec<PathBuf>,
    /// One more server: its URL, or the command that starts it (repeatable)
    #[arg(long, value_name = "NAME=URL|COMMAND")]
    mcp_server: Vec<String>,
    /// A header for an HTTP server; ${VARIABLE} in the value is taken from the environment
    /// (repeatable)
    #[arg(long, value_name = "SERVER:HEADER=VALUE")]
    mcp_header: Vec<String>,
    /// Tools whose definition changed after it was approved: warn (update them with a warning),
    /// block (keep the old definition and refuse calls) or accept [default: warn]
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    on_change: Option<OnChange>,
}

impl McpArgs {
    /// True when no server is named.
    pub fn is_empty(&self) -> bool {
        self.mcp.is_empty() && self.mcp_server.is_empty()
    }

    /// The servers and how changed tools are treated. Of two servers with one name the last counts.
    pub fn config(&self) -> Result<PoolConfig> {
        let environment = |name: &str| std::env::var_os(name);
        let mut servers = Vec::new();
        for path in &self.mcp {
            let of_file = load(path, &environment)?;
            if of_file.is_empty() {
                let path = path.display();
                print_stderr(format_args!(
                    "warning: {path} names no MCP servers, or only disabled ones"
                ));
            }
            servers.extend(of_file);
        }
        for text in &self.mcp_server {
            let server = parse_server(text, &environment);
            servers.push(
                server.map_err(|reason| UsageError(format!("--mcp-server {text}: {reason}")))?,
            );
        }
        // Reversed, so that the first of a name that is met is the last one given.
        let mut seen = BTreeSet::new();
        servers.reverse();
        servers.retain(|server| seen.insert(server.name.clone()));
        servers.reverse();
        for text in &self.mcp_header {
            let added = add_header(&mut servers, text, &environment);
            // The value may be a secret and must not appear in the message.
            let shown = text.split('=').next().unwrap_or_default();
            added.map_err(|reason| UsageError(format!("--mcp-header {shown}=…: {reason}")))?;
        }
        Ok(PoolConfig {
            servers,
            on_change: self.on_change.unwrap_or_default(),
            ..PoolConfig::default()
        })
    }
}

impl ValueEnum for OnChange {
    fn value_variants<'a>() -> &'a [Self] {
        &[OnChange::Warn, OnChange::Block, OnChange::Accept]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let name = match self {
            OnChange::Warn => "warn",
            OnChange::Block => "block",
            OnChange::Accept => "accept",
        };
        Some(clap::builder::PossibleValue::new(name))
    }
}
