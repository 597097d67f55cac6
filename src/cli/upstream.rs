//! The flags that say which MCP servers there are, the same for `sync`, `agent`, `mcp` and `serve`.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::Usage;
use crate::mcp::config::{add_header, load, parse_server};
use crate::mcp::{OnChange, PoolConfig};

/// MCP servers whose tools are used.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "MCP servers")]
pub struct McpArgs {
    /// A file with an `mcpServers` object, as desktop clients have it (repeatable)
    #[arg(long, value_name = "FILE")]
    mcp: Vec<PathBuf>,
    /// One more server: its URL, or the command that starts it (repeatable)
    #[arg(long, value_name = "NAME=URL|COMMAND")]
    mcp_server: Vec<String>,
    /// A header for an HTTP server; ${VARIABLE} in the value is taken from the environment
    /// (repeatable)
    #[arg(long, value_name = "SERVER:HEADER=VALUE")]
    mcp_header: Vec<String>,
    /// What becomes of a tool that is not any more what it was when it was taken in: warn (take it
    /// in and say so), block (keep the old one and do not call it) or accept [default: warn]
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    on_change: Option<OnChange>,
}

impl McpArgs {
    /// True when no server is named.
    pub fn is_empty(&self) -> bool {
        self.mcp.is_empty() && self.mcp_server.is_empty()
    }

    /// The servers and how they are treated. Of two of one name the one named last counts.
    pub fn config(&self) -> Result<PoolConfig> {
        let environment = |name: &str| std::env::var_os(name);
        let mut servers = Vec::new();
        for path in &self.mcp {
            servers.extend(load(path, &environment)?);
        }
        for text in &self.mcp_server {
            let server = parse_server(text, &environment);
            servers.push(server.map_err(|reason| Usage(format!("--mcp-server {text}: {reason}")))?);
        }
        let mut seen = std::collections::BTreeSet::new();
        servers.reverse();
        servers.retain(|server| seen.insert(server.name.clone()));
        servers.reverse();
        for text in &self.mcp_header {
            let added = add_header(&mut servers, text, &environment);
            // The value may be a secret, so it is not repeated.
            let shown = text.split('=').next().unwrap_or_default();
            added.map_err(|reason| Usage(format!("--mcp-header {shown}=…: {reason}")))?;
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
