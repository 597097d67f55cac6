//! `toolscout preflight`: whether everything is there that a job needs of MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::json;
use toolscout_index::suggest::did_you_mean;
use toolscout_index::{Catalog, ToolId};

use super::Outcome;
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::mcp_args::{DEFAULT_FILE, McpArgs};
use crate::approved::Approved;
use crate::clock::millis;
use crate::mcp::changes::ApprovedBefore;
use crate::mcp::preflight::{Differences, Lock, blocked, fetch_within};
use crate::mcp::sync::{FetchError, OfferedTools};
use crate::mcp::{PoolConfig, ServerConfig};
use crate::printable::{self, counted};

/// Most tools that a line names.
const SHOWN_TOOLS: usize = 5;

/// Checks what a job needs of MCP servers, and changes nothing: each server starts and answers, its
/// login is valid, its tools are those that were approved, and the required tools exist. Prints a line
/// for each server and each required tool.
///
/// The exit code is 0 if everything is ready, 1 if a server does not answer, 3 if one needs a login, 4 if
/// tools are not as approved, and 5 if a required tool is missing. If several apply, it is the smallest.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout preflight --mcp servers.json --require github/create_issue\n  toolscout preflight --mcp servers.json --lock tools.lock --timeout 30 --json"
)]
pub struct Args {
    #[command(flatten)]
    mcp: McpArgs,
    /// A tool that must exist, by its id; may be repeated
    #[arg(long, value_name = "SERVER/TOOL")]
    require: Vec<String>,
    /// Compare the tools with this file, and not with what the catalog has approved
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Write the tools of all servers to the file of --lock, if every server answers
    #[arg(long, requires = "lock")]
    write_lock: bool,
    /// Most seconds for all servers together
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
}

/// How one server or one required tool is. The order is that of the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Unavailable,
    NeedsLogin,
    Changed,
    NotApproved,
    Missing,
    Ready,
}

impl State {
    fn exit_code(self) -> u8 {
        match self {
            State::Ready => 0,
            State::Unavailable => 1,
            State::NeedsLogin => 3,
            State::Changed | State::NotApproved => 4,
            State::Missing => 5,
        }
    }

    fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Unavailable => "unavailable",
            State::NeedsLogin => "needs login",
            State::Changed => "changed",
            State::NotApproved => "not approved",
            State::Missing => "missing",
        }
    }
}

/// The result for one server, or one required tool.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    state: State,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<Differences>,
}

impl Line {
    fn new(name: &str, state: State, detail: impl Into<String>) -> Self {
        Line {
            name: name.to_owned(),
            state,
            detail: detail.into(),
            tools: None,
            differences: None,
        }
    }
}

impl Args {
    /// Asks all servers, several at a time.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let started = Instant::now();
        let mcp = self.mcp.clone().or_default_file();
        if mcp.is_empty() {
            let message = format!(
                "there is no {DEFAULT_FILE} here; name MCP servers with --mcp or --mcp-server"
            );
            return Err(UsageError(message).into());
        }
        let config = mcp.config(&context.settings.data)?;
        let required = self.required()?;
        let lock = match &self.lock {
            Some(path) if !self.write_lock => Some(Lock::read(path)?),
            _ => None,
        };
        let catalog = match context.has_catalog()? {
            true => Some(context.open(Legs::Lexical)?),
            false => None,
        };
        let fetched = self.fetch(&config)?;
        let mut found = Found::default();
        let mut servers = Vec::new();
        for (server, fetched) in config.servers.iter().zip(fetched) {
            let offered = match fetched {
                Ok(offered) => offered,
                Err((state, reason)) => {
                    servers.push(Line::new(&server.name, state, reason));
                    continue;
                }
            };
            let approved = Approval::of(server, &offered, catalog.as_ref(), &config)?;
            let differences = match (&lock, self.write_lock) {
                (_, true) => Some(Differences::default()),
                (Some(lock), _) => {
                    let locked = lock.differences(&server.name, &offered.tools);
                    // A decision of a person holds whatever the lock file has.
                    locked.map(|differences| Differences {
                        blocked: approved.blocked.clone(),
                        ..differences
                    })
                }
                (None, _) => approved.differences,
            };
            servers.push(self.line_of(server, &offered, differences.as_ref()));
            for warning in server.edits.unknown_tools(&offered.tools) {
                context.warn(format_args!("server {}: {warning}", server.name));
            }
            found.add(server, offered, &approved.blocked);
        }
        let mut tools = Vec::new();
        for id in &required {
            tools.push(found.required(id, &config, &servers));
        }
        if self.write_lock
            && let Some(path) = &self.lock
            && servers.iter().all(|line| line.tools.is_some())
        {
            found.lock.write(path)?;
        }
        print(context, &servers, &tools, started.elapsed())
    }

    fn required(&self) -> Result<Vec<ToolId>> {
        let mut required = Vec::new();
        for text in &self.require {
            let id = ToolId::parse(text)?;
            if id.server().is_empty() {
                let message = format!("--require {text}: write SERVER/TOOL");
                return Err(UsageError(message).into());
            }
            required.push(id);
        }
        Ok(required)
    }

    /// What each server offers, or why that is not known.
    fn fetch(&self, config: &PoolConfig) -> Result<Vec<Result<OfferedTools, (State, String)>>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("start the runtime")?;
        let within = Duration::from_secs(self.timeout);
        let connector = config.connector();
        let fetching = fetch_within(&config.servers, &connector, within);
        let fetched = runtime.block_on(fetching);
        let mut results = Vec::with_capacity(fetched.len());
        for fetched in fetched {
            results.push(match fetched {
                Some(Ok(offered)) => Ok(offered),
                Some(Err(FetchError::Connect(error))) if error.needs_login() => {
                    Err((State::NeedsLogin, error.to_string()))
                }
                Some(Err(error)) => Err((State::Unavailable, error.to_string())),
                None => Err((
                    State::Unavailable,
                    format!("no list of its tools within {} s (--timeout)", self.timeout),
                )),
            });
        }
        Ok(results)
    }

    fn line_of(
        &self,
        server: &ServerConfig,
        offered: &OfferedTools,
        differences: Option<&Differences>,
    ) -> Line {
        let count = counted(offered.tools.len(), "tool");
        let (state, detail) = match differences {
            None if self.lock.is_some() => (
                State::NotApproved,
                format!("{count}; the lock file does not have this server, --write-lock adds it"),
            ),
            None => (
                State::NotApproved,
                format!("{count}; none was ever taken in here, `toolscout sync` does that"),
            ),
            Some(differences) if !differences.is_empty() => (
                State::Changed,
                format!("{count}; {}", described(differences)),
            ),
            Some(_) if self.write_lock => {
                (State::Ready, format!("{count}, written to the lock file"))
            }
            Some(_) => (State::Ready, format!("{count}, as approved")),
        };
        Line {
            tools: Some(offered.tools.len()),
            differences: differences.cloned(),
            ..Line::new(&server.name, state, detail)
        }
    }
}

/// Prints a line for each server and each required tool. The worst of them is the outcome.
fn print(
    context: &Context,
    servers: &[Line],
    required: &[Line],
    took: Duration,
) -> Result<Outcome> {
    let lines = || servers.iter().chain(required);
    let worst = lines().map(|line| line.state).min();
    let code = worst.unwrap_or(State::Ready).exit_code();
    if context.printer.is_json() {
        context.printer.json(&json!({
            "ready": code == 0, "exit_code": code, "servers": servers, "required": required,
            "took_ms": millis(took),
        }))?;
    } else {
        for line in lines() {
            let name = printable::name(&line.name);
            let detail = printable::line(&line.detail);
            context
                .printer
                .text(format_args!("{} {name}: {detail}", line.state.name()))?;
        }
    }
    Ok(match code {
        0 => Outcome::Success,
        code => Outcome::Coded(code),
    })
}

/// What the catalog has approved of the tools of a server.
#[derive(Default)]
struct Approval {
    /// How the tools differ from those; `None` if none was ever approved.
    differences: Option<Differences>,
    /// The tools that a person has blocked.
    blocked: Vec<ToolId>,
}

impl Approval {
    fn of(
        server: &ServerConfig,
        offered: &OfferedTools,
        catalog: Option<&Catalog>,
        config: &PoolConfig,
    ) -> Result<Self> {
        let Some(catalog) = catalog else {
            return Ok(Approval::default());
        };
        let remembered = Approved::peek(catalog.path(), &server.name)?;
        let searcher = catalog.searcher();
        let most = config.limits.definitions;
        let before = ApprovedBefore::of(&server.name, Some(&searcher), remembered, most);
        Ok(Approval {
            differences: Differences::since_approval(&offered.tools, &before),
            blocked: blocked(&offered.tools, &before),
        })
    }
}

/// The differences in words: `changed: s/read; new: s/send`.
fn described(differences: &Differences) -> String {
    let mut parts = Vec::new();
    for (what, tools) in [
        ("changed", &differences.changed),
        ("new", &differences.new),
        ("no longer offered", &differences.gone),
        ("blocked", &differences.blocked),
    ] {
        if tools.is_empty() {
            continue;
        }
        let names: Vec<&str> = tools.iter().take(SHOWN_TOOLS).map(ToolId::name).collect();
        let more = match tools.len().saturating_sub(SHOWN_TOOLS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts.push(format!("{what}: {}{more}", names.join(", ")));
    }
    parts.join("; ")
}

/// The tools of the servers that answered, as models see them.
#[derive(Default)]
struct Found {
    /// Each tool, and whether it is blocked.
    tools: BTreeMap<ToolId, bool>,
    lock: Lock,
}

impl Found {
    fn add(&mut self, server: &ServerConfig, offered: OfferedTools, blocked: &[ToolId]) {
        self.lock.add(&server.name, &offered.tools);
        for tool in server.edits.apply(offered.tools).tools {
            let at_server = server.edits.id_at_server(&tool.id);
            let is_blocked = blocked.contains(&at_server);
            self.tools.insert(tool.id, is_blocked);
        }
    }

    fn required(&self, id: &ToolId, config: &PoolConfig, servers: &[Line]) -> Line {
        let name = id.as_str();
        match self.tools.get(id) {
            Some(false) => return Line::new(name, State::Ready, "there"),
            Some(true) => return Line::new(name, State::Missing, "a person has blocked it"),
            None => {}
        }
        let of_server = servers.iter().find(|line| line.name == id.server());
        let reason = match of_server {
            Some(line) if line.tools.is_none() => "its server has no list of tools".to_owned(),
            Some(_) => "its server does not offer it, or the file of servers hides it".to_owned(),
            None => {
                let names = config.servers.iter().map(|server| server.name.as_str());
                let hint = did_you_mean(id.server(), names).unwrap_or_default();
                format!("no server {:?} is used here {hint}", id.server())
            }
        };
        let similar = did_you_mean(name, self.tools.keys().map(ToolId::as_str));
        let detail = match similar {
            Some(similar) => format!("{reason}; {similar}"),
            None => reason.trim_end().to_owned(),
        };
        Line::new(name, State::Missing, detail)
    }
}
