//! `toolscout mcp test`: connects to a server, and says what it found.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::super::Outcome;
use super::super::context::Context;
use super::super::mcp_args::{McpArgs, find};
use super::servers;
use crate::clock::millis;
use crate::mcp::config::Transport;
use crate::mcp::connection::{About, Connection, Connector, Offers};
use crate::mcp::sync::{FetchError, OfferedTools, read_tools};
use crate::mcp::{PoolConfig, ServerConfig};
use crate::printable::{self, counted};

/// Connects to a server once, and prints what it says about itself and what it offers. Without a name,
/// it shows whether each server answers, as `mcp servers` does. The exit code is 1 if the server cannot
/// be used.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp test github --mcp servers.json\n  toolscout mcp test git --mcp-server \"git=uvx mcp-server-git\""
)]
pub struct Args {
    /// The name of the server, or its URL
    name: Option<String>,
    #[command(flatten)]
    mcp: McpArgs,
}

/// What a server has and says.
struct Answer {
    about: About,
    offered: OfferedTools,
    offers: Arc<Offers>,
    took_ms: u64,
}

impl Args {
    /// Asks the server.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let Some(name) = &self.name else {
            return servers::Args::of(self.mcp).run(context);
        };
        let config = self.mcp.or_default_file().config(&context.settings.data)?;
        let server = find(name, &config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        match runtime.block_on(ask(&server, &config.connector())) {
            Ok(answer) => {
                print(context, &server, &answer)?;
                Ok(Outcome::Success)
            }
            Err(error) => {
                print_failure(context, &server, &config, &error)?;
                Ok(Outcome::Failure)
            }
        }
    }
}

async fn ask(server: &ServerConfig, connector: &Connector) -> Result<Answer, FetchError> {
    let started = Instant::now();
    let connection = Connection::open(server, connector).await?;
    let listed = connection.list_tools().await;
    let offers = connection.offers().await;
    let about = connection.about();
    // Closed before an error is returned, so that no process is left.
    connection.close().await;
    Ok(Answer {
        about,
        offered: read_tools(&server.name, listed?, &connector.limits),
        offers,
        took_ms: millis(started.elapsed()),
    })
}

fn print(context: &Context, server: &ServerConfig, answer: &Answer) -> Result<()> {
    let Answer {
        about,
        offered,
        offers,
        took_ms,
    } = answer;
    let mut warnings = server.edits.unknown_tools(&offered.tools);
    let edited = server.edits.apply(offered.tools.clone());
    warnings.extend(edited.warnings);
    let tools: Vec<&str> = edited.tools.iter().map(|tool| tool.id.name()).collect();
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "server": server.name, "state": "ok", "took_ms": took_ms,
            "about": {
                "name": about.name, "version": about.version, "protocol": about.protocol,
                "instructions": about.instructions,
            },
            "tools": tools, "hidden": offered.tools.len() - tools.len(),
            "always_loaded": edited.always_loaded, "skipped": offered.skipped, "warnings": warnings,
            "prompts": offers.prompts.len(), "resources": offers.resources.len(),
            "resource_templates": offers.templates.len(),
        }));
    }
    let mut lines = vec![format!(
        "{}: {} {}, protocol {}, answered in {took_ms} ms",
        printable::name(&server.name),
        printable::line(&about.name),
        printable::line(&about.version),
        about.protocol
    )];
    lines.push(format!(
        "  {}: {}",
        counted(tools.len(), "tool"),
        printable::line(&tools.join(", "))
    ));
    let hidden = offered.tools.len() - tools.len();
    if hidden > 0 {
        lines.push(format!(
            "  {} hidden by the file of servers",
            counted(hidden, "tool")
        ));
    }
    for (count, what) in [
        (offers.prompts.len(), "prompt"),
        (offers.resources.len(), "resource"),
        (offers.templates.len(), "resource template"),
    ] {
        if count > 0 {
            lines.push(format!("  {}", counted(count, what)));
        }
    }
    for line in about.instructions.as_deref().unwrap_or_default().lines() {
        lines.push(format!("  instructions: {}", printable::line(line)));
    }
    context.printer.text(lines.join("\n"))?;
    for reason in &offered.skipped {
        context.warn(format_args!("left out {}", printable::line(reason)));
    }
    for warning in &warnings {
        context.warn(printable::line(warning));
    }
    Ok(())
}

fn print_failure(
    context: &Context,
    server: &ServerConfig,
    config: &PoolConfig,
    error: &FetchError,
) -> Result<()> {
    let needs_login = matches!(error, FetchError::Connect(error) if error.needs_login());
    let state = if needs_login { "needs_login" } else { "failed" };
    let log = match &server.transport {
        Transport::Stdio { .. } => config.logs.file(&server.name),
        Transport::Http { .. } | Transport::Incomplete { .. } => None,
    };
    let log = log.filter(|log| log.path().is_file());
    if context.printer.is_json() {
        let answer: Value = json!({
            "server": server.name, "state": state, "reason": error.to_string(),
            "log": log.map(|log| log.path().to_owned()),
        });
        return context.printer.json(&answer);
    }
    let name = printable::name(&server.name);
    let reason = printable::line(&error.to_string());
    context.printer.text(format_args!("{name}: {reason}"))?;
    if log.is_some() {
        context.warn(format_args!(
            "`toolscout mcp logs {name}` shows what the server wrote to its standard error"
        ));
    }
    Ok(())
}
