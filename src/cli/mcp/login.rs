//! `toolscout mcp login` and `logout`: the login at an MCP server.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::runtime::Runtime;

use super::super::Outcome;
use super::super::browser;
use super::super::context::Context;
use super::super::mcp_args::{McpArgs, find};
use super::super::output::print_stderr;
use super::servers::login_text;
use crate::clock::unix_ms;
use crate::mcp::ServerConfig;
use crate::mcp::login::{LoggedOut, LoginFile, begin, logout, public, remote};

/// Logs in at an MCP server that asks for it, in the browser. The tokens are kept in the data
/// directory, renewed before they expire, and used by every command with this data directory; a
/// running server takes them up by itself.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp login tracker --mcp servers.json\n  toolscout mcp login https://mcp.example.com/mcp --no-browser"
)]
pub struct Args {
    /// The server's name in the file, or its URL
    #[arg(value_name = "SERVER")]
    server: String,
    /// A scope to ask for, in place of those that the server names (repeatable)
    #[arg(long, value_name = "SCOPE", value_delimiter = ' ')]
    scope: Vec<String>,
    /// Only print the page to visit, and open no browser
    #[arg(long)]
    no_browser: bool,
    /// How long to wait for the login
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    mcp: McpArgs,
}

/// Ends the login at an MCP server: revokes its tokens where the server does that, and deletes them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp logout tracker --mcp servers.json\n  toolscout mcp logout https://mcp.example.com/mcp"
)]
pub struct LogoutArgs {
    /// The server's name in the file, or its URL
    #[arg(value_name = "SERVER")]
    server: String,
    #[command(flatten)]
    mcp: McpArgs,
}

impl Args {
    /// Shows the page, waits for the person, and stores the tokens.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let (server, file) = chosen(&self.server, self.mcp, context)?;
        let (url, settings) = remote(&server)?;
        let patience = Duration::from_secs(self.timeout);
        let login = runtime()?.block_on(async {
            let page = begin(url, settings, &self.scope, file).await?;
            // In any case: the browser may be on another machine, or the wrong one.
            print_stderr(format_args!("visit this page to log in:\n{}", page.page()));
            if !self.no_browser {
                // Beside the login, since some openers stay until the browser is closed.
                tokio::spawn(browser::open(page.page().to_string()));
            }
            page.finish(patience).await
        })?;
        let expires_at = login.expires_at();
        if context.printer.is_json() {
            context.printer.json(&json!({
                "server": self.server, "url": public(url), "issuer": login.issuer(), "scopes": login.scopes(),
                "expires_ms": expires_at.map(unix_ms), "renewable": login.refresh_token().is_some(),
            }))?;
        } else {
            let state = login_text(&login);
            context
                .printer
                .text(format_args!("logged in at {}: {state}", self.server))?;
        }
        Ok(Outcome::Success)
    }
}

impl LogoutArgs {
    /// Revokes and deletes the tokens.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let (server, file) = chosen(&self.server, self.mcp, context)?;
        let (url, settings) = remote(&server)?;
        let ended = runtime()?.block_on(logout(url, settings, &file))?;
        if context.printer.is_json() {
            let (deleted, reason) = match &ended {
                LoggedOut::Never => (false, None),
                LoggedOut::Revoked => (true, None),
                LoggedOut::Deleted { reason } => (true, Some(reason)),
            };
            context.printer.json(&json!({
                "server": self.server, "deleted": deleted, "revoked": ended == LoggedOut::Revoked,
                "reason": reason,
            }))?;
            return Ok(Outcome::Success);
        }
        let server = &self.server;
        match ended {
            LoggedOut::Never => context
                .printer
                .text(format_args!("there was no login at {server}"))?,
            LoggedOut::Revoked => context
                .printer
                .text(format_args!("logged out at {server}; its tokens are revoked"))?,
            LoggedOut::Deleted { reason } => context.printer.text(format_args!(
                "logged out at {server}; its tokens are deleted here and not revoked there: {reason}"
            ))?,
        }
        Ok(Outcome::Success)
    }
}

/// The server of this name or URL, and where its login is kept.
fn chosen(name: &str, mcp: McpArgs, context: &Context) -> Result<(ServerConfig, LoginFile)> {
    let config = mcp.or_default_file().config(&context.settings.data)?;
    let server = find(name, &config)?.into_owned();
    let (url, _) = remote(&server)?;
    let file = config.logins.file(url);
    let file = file.context("there is no data directory for the login")?;
    Ok((server, file))
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")
}
