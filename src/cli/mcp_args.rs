//! The flags that name MCP servers, shared by `sync`, `agent`, `mcp` and `serve`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::exit::UsageError;
use super::output::print_stderr;
use crate::config::{AgentSettings, Limits, ResultFormat, SECONDS, SIZE};
use crate::mcp::config::{self, add_header, is_url, load, parse_server};
use crate::mcp::import::references;
use crate::mcp::login::Logins;
use crate::mcp::server_logs::ServerLogs;
use crate::mcp::{OnChange, PoolConfig, ServerConfig};
use crate::printable::name;

/// The file of servers that `mcp add` writes by default.
pub const DEFAULT_FILE: &str = "servers.json";
/// The name of a server that is known by its URL only.
const NAME_OF_URL: &str = "it";

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
    #[arg(long, value_parser = on_change_names(), value_name = "HOW", hide_possible_values = true)]
    on_change: Option<OnChange>,
}

impl McpArgs {
    /// True when no server is named.
    pub fn is_empty(&self) -> bool {
        self.mcp.is_empty() && self.mcp_server.is_empty()
    }

    /// The file that `mcp add` writes, where no server is named and there is one.
    pub fn or_default_file(mut self) -> Self {
        let file = PathBuf::from(DEFAULT_FILE);
        if self.is_empty() && file.is_file() {
            self.mcp.push(file);
        }
        self
    }

    /// The names of the servers that the files switch off.
    pub fn disabled(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for path in &self.mcp {
            names.extend(config::disabled(path)?);
        }
        Ok(names)
    }

    /// The variables that the files refer to. A file that cannot be read has none.
    pub fn variables(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for path in &self.mcp {
            references(&fs::read_to_string(path).unwrap_or_default(), &mut names);
        }
        names
    }

    /// The servers, how changed tools are treated, and the logins of the data directory. Of two
    /// servers with one name the last counts.
    pub fn config(&self, data: &Path) -> Result<PoolConfig> {
        let environment = |name: &str| std::env::var_os(name);
        let mut servers = Vec::new();
        for path in &self.mcp {
            let of_file = load(path, &environment)?;
            // No error: the same file may be kept for when its servers are switched on again.
            if of_file.is_empty() {
                let path = path.display();
                print_stderr(format_args!(
                    "warning: {path} names no MCP servers, or only disabled ones"
                ));
            }
            note_new_names(path, &of_file);
            servers.extend(of_file);
        }
        for text in &self.mcp_server {
            match parse_server(text, &environment) {
                Ok(server) => servers.push(server),
                Err(reason) => {
                    return Err(UsageError(format!("--mcp-server {text}: {reason}")).into());
                }
            }
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
            logins: Logins::in_data_dir(data),
            logs: ServerLogs::in_data_dir(data),
            ..PoolConfig::default()
        })
    }
}

/// Says which servers have another name than in their file.
fn note_new_names(path: &Path, servers: &[ServerConfig]) {
    for server in servers {
        if let Some(given) = &server.given_name {
            print_stderr(format_args!(
                "note: the server {} of {} is called {} here, since no id of a tool can begin with that name",
                name(given),
                path.display(),
                name(&server.name)
            ));
        }
    }
}

/// How long calls may take, and how much of their results is shown at once.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Calls")]
pub struct CallLimitArgs {
    /// Most seconds of a call without progress [default: 60; 300 for an MCP tool that has not
    /// reported any]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(SECONDS))]
    call_timeout: Option<u64>,
    /// Most seconds of a call in all, whatever progress it reports [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(SECONDS))]
    call_timeout_total: Option<u64>,
    /// Bytes of a result that the model gets at once; it reads on with `read_more` [default: 32768 for
    /// an MCP client, 65536 for the agent]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(SIZE))]
    max_result_bytes: Option<u64>,
    /// How results in JSON are written for the model: json, as the tool gave them, or compact, with
    /// lists of like objects as tables [default: json]
    #[arg(long, value_name = "FORMAT", value_parser = parse_result_format)]
    result_format: Option<ResultFormat>,
}

impl CallLimitArgs {
    /// The limits that the flags set.
    pub fn settings(self) -> AgentSettings {
        let limits = Limits {
            call_timeout_s: self.call_timeout,
            call_timeout_total_s: self.call_timeout_total,
            max_result_bytes: self
                .max_result_bytes
                .and_then(|bytes| usize::try_from(bytes).ok()),
            result_format: self.result_format,
            ..Limits::default()
        };
        AgentSettings {
            limits,
            ..AgentSettings::default()
        }
    }
}

fn parse_result_format(name: &str) -> Result<ResultFormat, String> {
    let names = ResultFormat::NAMES.join(", ");
    ResultFormat::parse(name).ok_or_else(|| format!("{name:?} is not one of {names}"))
}

/// The server with this name, or at this URL.
pub fn find<'a>(wanted: &str, config: &'a PoolConfig) -> Result<Cow<'a, ServerConfig>> {
    let mut servers = config.servers.iter();
    if let Some(server) = servers.find(|server| server.is_called(wanted)) {
        return Ok(Cow::Borrowed(server));
    }
    if is_url(wanted) {
        let server = parse_server(&format!("{NAME_OF_URL}={wanted}"), &|_| None);
        return Ok(Cow::Owned(server.map_err(UsageError)?));
    }
    let servers = config.servers.iter();
    let names: Vec<&str> = servers.map(|server| server.name.as_str()).collect();
    Err(UsageError(match names.as_slice() {
        [] => format!("name the file that has server {wanted:?} with --mcp, or give its URL"),
        names => format!("there is no server {wanted:?}, only {}", names.join(", ")),
    })
    .into())
}

/// The names of [`OnChange`] in the command line.
fn on_change_names() -> impl TypedValueParser<Value = OnChange> {
    PossibleValuesParser::new(["warn", "block", "accept"]).map(|name| match name.as_str() {
        "block" => OnChange::Block,
        "accept" => OnChange::Accept,
        _ => OnChange::Warn,
    })
}
