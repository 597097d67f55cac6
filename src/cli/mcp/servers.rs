//! `toolscout mcp servers`: whether servers answer, and their logins.

use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::mcp_args::{DEFAULT_FILE, McpArgs};
use crate::clock::unix_ms;
use crate::mcp::config::{HttpProtocol, ServerConfig, Transport};
use crate::mcp::login::{Login, Logins, has_authorization};
use crate::mcp::sync::{FetchError, OfferedTools, fetch_all};
use crate::printable::{self, counted};

/// Connects to each MCP server once, and shows whether it answers, whether it needs a login, and
/// until when its login is valid. Lists disabled servers too. The exit code is 1 if a server that is
/// not disabled cannot be used.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp servers --mcp servers.json\n  toolscout mcp servers --mcp servers.json --json"
)]
pub struct Args {
    #[command(flatten)]
    mcp: McpArgs,
}

/// Longest reason why something is left out.
const SHOWN_CHARS: usize = 200;

/// What is known of a server.
struct Row {
    server: String,
    transport: &'static str,
    state: &'static str,
    /// How many tools it has, or why that is not known.
    detail: String,
    tools: Option<usize>,
    /// Why entries of its lists are left out.
    skipped: Vec<String>,
    login: Option<Login>,
    has_key: bool,
}

impl Args {
    /// The same verb for these servers.
    pub fn of(mcp: McpArgs) -> Self {
        Args { mcp }
    }

    /// Asks all servers, several at a time.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let mcp = self.mcp.or_default_file();
        if mcp.is_empty() {
            let message = format!(
                "there is no {DEFAULT_FILE} here; name MCP servers with --mcp or --mcp-server"
            );
            return Err(UsageError(message).into());
        }
        let config = mcp.config(&context.settings.data)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let fetched = runtime.block_on(fetch_all(&config.servers, &config.connector()));
        let mut rows = Vec::new();
        for (server, fetched) in config.servers.iter().zip(fetched) {
            // After the servers were asked, so that a renewed token is seen.
            rows.push(Row::of(server, fetched, &config.logins));
        }
        let outcome = match rows.iter().all(|row| row.tools.is_some()) {
            true => Outcome::Success,
            false => Outcome::Failure,
        };
        // They are no failure: somebody has switched them off.
        rows.extend(mcp.disabled()?.into_iter().map(Row::of_disabled));
        if context.printer.is_json() {
            let servers: Vec<Value> = rows.iter().map(Row::to_json).collect();
            context.printer.json(&json!({ "servers": servers }))?;
        } else {
            let header = ["server", "transport", "state", "login", ""];
            let rows = rows.into_iter().map(Row::into_cells).collect();
            context.printer.rows(&header, rows)?;
        }
        Ok(outcome)
    }
}

impl Row {
    fn of_disabled(server: String) -> Self {
        Row {
            detail: format!(
                "`toolscout mcp enable {}` uses it again",
                printable::name(&server)
            ),
            server,
            transport: "",
            state: "disabled",
            tools: None,
            skipped: Vec::new(),
            login: None,
            has_key: false,
        }
    }

    fn of(
        server: &ServerConfig,
        fetched: Result<OfferedTools, FetchError>,
        logins: &Logins,
    ) -> Self {
        let mut skipped = Vec::new();
        let (state, detail, tools) = match fetched {
            Ok(offered) => {
                let tools = offered.tools.len();
                skipped = offered.skipped;
                ("ok", detail_of(tools, &skipped), Some(tools))
            }
            Err(error) => match &error {
                FetchError::Connect(failed) if failed.needs_login() => {
                    ("needs login", error.to_string(), None)
                }
                _ => ("failed", error.to_string(), None),
            },
        };
        let (transport, url, has_key) = match &server.transport {
            Transport::Stdio { .. } => ("stdio", None, false),
            Transport::Incomplete { .. } => ("", None, false),
            Transport::Http {
                url,
                protocol,
                headers,
                ..
            } => match protocol {
                HttpProtocol::Sse => ("sse", Some(url), has_authorization(headers)),
                _ => ("http", Some(url), has_authorization(headers)),
            },
        };
        let file = url.and_then(|url| logins.file(url));
        Row {
            server: server.name.clone(),
            transport,
            state,
            detail,
            tools,
            skipped,
            // A file that cannot be read is among the reasons for a server that failed.
            login: file.and_then(|file| file.read().ok().flatten()),
            has_key,
        }
    }

    fn to_json(&self) -> Value {
        let login = self.login.as_ref().map(|login| {
            json!({
                "issuer": login.issuer(), "scopes": login.scopes(),
                "expires_ms": login.expires_at().map(unix_ms),
                "renewable": login.refresh_token().is_some(),
            })
        });
        json!({
            "server": self.server, "transport": self.transport, "state": self.state.replace(' ', "_"),
            "tools": self.tools, "reason": self.tools.is_none().then_some(&self.detail), "login": login,
            "skipped": self.skipped,
        })
    }

    fn into_cells(self) -> Vec<String> {
        let login = match &self.login {
            // What the settings give wins over a login.
            _ if self.has_key => "a header".into(),
            Some(login) => login_text(login),
            None => "none".into(),
        };
        vec![
            self.server,
            self.transport.to_owned(),
            self.state.to_owned(),
            login,
            self.detail,
        ]
    }
}

/// How many tools a server has, and what is left out.
fn detail_of(tools: usize, skipped: &[String]) -> String {
    let tools = counted(tools, "tool");
    let [first, rest @ ..] = skipped else {
        return tools;
    };
    let first = printable::excerpt(first, SHOWN_CHARS);
    match rest.len() {
        0 => format!("{tools}; left out: {first}"),
        more => format!("{tools}; left out: {first}; and {more} more"),
    }
}

/// How long a login lasts, in words.
pub fn login_text(login: &Login) -> String {
    let Some(at) = login.expires_at() else {
        return "valid until the server ends it".into();
    };
    let end = match at.duration_since(SystemTime::now()) {
        Ok(left) if left.as_secs() >= 120 => format!("in {} min", left.as_secs() / 60),
        Ok(left) => format!("in {} s", left.as_secs()),
        Err(_) => "now".into(),
    };
    match login.refresh_token() {
        Some(_) => format!("token expires {end}, and is renewed"),
        None => format!("token expires {end}, and then another login is needed"),
    }
}
