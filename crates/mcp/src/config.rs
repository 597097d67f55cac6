//! The configuration of servers: `mcpServers` files in the format of desktop clients, and flags.

mod entry;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use self::entry::{Entry, read_entry};
use self::values::{expand, secret_header};
use crate::Limits;
use crate::masking::Masking;
use crate::tool_edits::ToolEdits;
use toolscout_base::printable::is_hidden;
use toolscout_base::regular_file;
use toolscout_base::sandbox::SandboxSettings;
use toolscout_gate::tools::CallTimeSettings;

/// Longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Reads an environment variable. A parameter, so that tests do not depend on the environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A server and its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name, which becomes the server of its tools.
    pub name: String,
    /// Its name in the settings, where that cannot be the server of a tool.
    pub given_name: Option<String>,
    /// How it is reached.
    pub transport: Transport,
    /// How long its calls may take, where that differs from other servers.
    pub call_times: CallTimeSettings,
    /// How long its process is kept without a call, where that differs from other servers; zero for ever.
    pub idle_stop: Option<Duration>,
    /// How a connection begins.
    pub beginning: Beginning,
    /// What the owner changes of its tools.
    pub edits: ToolEdits,
    /// What is masked in its answers.
    pub masking: Masking,
}

/// How a connection to a server begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beginning {
    /// With a handshake, and without one where the server refuses it.
    #[default]
    Handshake,
    /// Without a handshake, as protocol 2026-07-28 has it. A server that speaks older versions too may
    /// offer more in this one.
    Discovery,
}

impl ServerConfig {
    /// A server with the limits of all.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        ServerConfig {
            name: name.into(),
            given_name: None,
            transport,
            call_times: CallTimeSettings::default(),
            idle_stop: None,
            beginning: Beginning::default(),
            edits: ToolEdits::default(),
            masking: Masking::default(),
        }
    }

    /// Whether this is its name, or its name in the settings.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.given_name.as_deref() == Some(name)
    }

    /// Its limits, given those of all servers.
    pub fn limits(&self, of_all: Limits) -> Limits {
        Limits {
            call: self.call_times.applied_to(of_all.call),
            idle_stop: self.idle_stop.unwrap_or(of_all.idle_stop),
            ..of_all
        }
    }
}

/// The transport of a server. `Debug` shows no secrets.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process, over its standard streams.
    Stdio {
        /// The program, by path or looked up in `PATH`.
        command: String,
        /// The arguments of the program, not interpreted by a shell.
        args: Vec<String>,
        /// Its environment variables, besides those that every server inherits.
        env: BTreeMap<String, String>,
        /// Its working directory; that of this program by default.
        cwd: Option<PathBuf>,
        /// What it may use besides its working directory; none for no sandbox.
        sandbox: Option<SandboxSettings>,
    },
    /// HTTP.
    Http {
        /// The URL of its MCP endpoint.
        url: Url,
        /// Which of the two transports over HTTP it speaks.
        protocol: HttpProtocol,
        /// Sent with every request.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// How a login is made where it asks for one.
        oauth: OAuthSettings,
    },
    /// None: the entry takes values from the environment that are not there, or is invalid.
    Incomplete {
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// The transport of an HTTP server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpProtocol {
    /// Streamable HTTP, and SSE where the server refuses that.
    #[default]
    Either,
    /// Streamable HTTP.
    Streamable,
    /// HTTP with a stream of server-sent events, of protocol version 2024-11-05.
    Sse,
}

/// How a login at the authorization server of an HTTP server is made. `Debug` shows no secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuthSettings {
    /// The client that is registered there; by default one is registered at the login.
    pub client_id: Option<String>,
    /// The secret of that client, if it has one.
    pub client_secret: Option<String>,
    /// The scopes to ask for; by default those that the server names.
    pub scopes: Vec<String>,
    /// The port that the browser is sent back to; by default any free one.
    pub callback_port: Option<u16>,
    /// Hosts that the login may use although their addresses are private: `host` or `host:port`.
    pub private_hosts: Vec<String>,
}

impl fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .field("callback_port", &self.callback_port)
            .field("private_hosts", &self.private_hosts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Stdio {
                command,
                env,
                cwd,
                sandbox,
                ..
            } => {
                // The values may be secrets, and so may those of headers.
                let variables: Vec<&String> = env.keys().collect();
                f.debug_struct("Stdio")
                    .field("command", command)
                    .field("env", &variables)
                    .field("cwd", cwd)
                    .field("sandbox", sandbox)
                    .finish()
            }
            Transport::Http {
                url,
                protocol,
                headers,
                oauth,
            } => {
                let names: Vec<&HeaderName> = headers.iter().map(|(name, _)| name).collect();
                f.debug_struct("Http")
                    .field("host", &url.host_str())
                    .field("protocol", protocol)
                    .field("headers", &names)
                    .field("oauth", oauth)
                    .finish()
            }
            Transport::Incomplete { reason } => f
                .debug_struct("Incomplete")
                .field("reason", reason)
                .finish(),
        }
    }
}

/// Why the entry of a server is no configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct EntryError(String);

impl From<String> for EntryError {
    fn from(reason: String) -> Self {
        EntryError(reason)
    }
}

impl From<&str> for EntryError {
    fn from(reason: &str) -> Self {
        EntryError(reason.to_owned())
    }
}

impl From<EntryError> for String {
    fn from(EntryError(reason): EntryError) -> Self {
        reason
    }
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read {path}: {source}", path = path.display())]
    Read {
        /// The path of the file of servers.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not have the expected format.
    #[error("{path} is not an mcpServers configuration: {reason}", path = path.display())]
    Malformed {
        /// The path of the file of servers.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
}

/// Reads an `mcpServers` file, or a `servers` file of VS Code, with or without comments. Entries with
/// `"disabled": true` are skipped, and unknown keys are ignored. In every string `${NAME}`,
/// `${env:NAME}` and `${NAME:-default}` are replaced by environment variables. A server for which one
/// is missing, or whose entry is invalid, is [`Transport::Incomplete`]: the others do not need it. A
/// name that cannot be the server of a tool is replaced.
///
/// # Errors
/// [`ConfigError`] naming the file.
pub fn load(path: &Path, environment: Environment<'_>) -> Result<Vec<ServerConfig>, ConfigError> {
    let entries = read_entries(path)?;
    // A replaced name must be none of those in the file either, also of entries further down.
    let mut taken: BTreeSet<String> = entries.keys().cloned().collect();
    let mut servers = Vec::new();
    for (given, value) in entries {
        let completed = match read_entry(value) {
            Ok(entry) if entry.disabled => continue,
            Ok(entry) => entry.complete(&given, environment),
            Err(error) => Err(error),
        };
        let mut server = match completed {
            Ok(server) => server,
            Err(EntryError(reason)) => {
                ServerConfig::new(given.clone(), Transport::Incomplete { reason })
            }
        };
        if check_name(&given).is_err() {
            server.name = unused_name(&safe_name(&given), &taken);
            taken.insert(server.name.clone());
            server.given_name = Some(given);
        }
        servers.push(server);
    }
    Ok(servers)
}

/// The names of the servers that a file keeps and switches off with `"disabled": true`.
///
/// # Errors
/// [`ConfigError`] naming the file.
pub fn disabled(path: &Path) -> Result<Vec<String>, ConfigError> {
    let mut names = Vec::new();
    for (name, value) in read_entries(path)? {
        if let Ok(entry) = read_entry(value)
            && entry.disabled
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn read_entries(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    let text = regular_file::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    entries_of(&text).map_err(|reason| ConfigError::Malformed {
        path: path.to_owned(),
        reason,
    })
}

/// The entries of a file of servers, by name.
fn entries_of(text: &str) -> Result<Map<String, Value>, String> {
    let root = CstRootNode::parse(text, &jsonc()).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_value(root.to_serde_value().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    // A file with both is one of a desktop client; `servers` alone is VS Code's.
    let entries = file.mcp_servers.or(file.servers);
    Ok(entries.ok_or("it has no `mcpServers` object")?)
}

/// A name like this one that can be the server of a tool.
pub(crate) fn safe_name(given: &str) -> String {
    let is_bad = |c: char| c == '/' || is_hidden(c);
    let mut name: String = given.replace(is_bad, "-");
    // Room for a number behind it.
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES - 8));
    match name.trim_matches(|c: char| c == '-' || c.is_whitespace()) {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// This name, with a number where it is taken.
fn unused_name(name: &str, taken: &BTreeSet<String>) -> String {
    let mut unused = name.to_owned();
    let mut number = 1;
    while taken.contains(&unused) {
        number += 1;
        unused = format!("{name}-{number}");
    }
    unused
}

/// JSON with comments and trailing commas, which VS Code and Gemini CLI write, and nothing beyond
/// them: what the client itself would refuse must not be rewritten, nor read as if it were valid.
pub(super) fn jsonc() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Reads `NAME=URL` or `NAME=COMMAND ARGUMENT …`, with quotes and backslashes as in a shell.
///
/// # Errors
/// A message with the correct syntax.
pub fn parse_server(text: &str, environment: Environment<'_>) -> Result<ServerConfig, String> {
    let (name, target) = text
        .split_once('=')
        .ok_or("write NAME=URL or NAME=COMMAND ARGUMENT …")?;
    let entry = Entry::of_target(target)?;
    check_name(name)?;
    Ok(entry.complete(name, environment)?)
}

/// Whether this can be the entry of a server, whatever variables are set.
///
/// # Errors
/// What is wrong with it.
pub fn check_entry(name: &str, entry: &Value) -> Result<(), String> {
    let entry = read_entry(entry.clone())?;
    entry.complete(name, &|_| Some("x".into()))?;
    Ok(())
}

/// Whether this names a server by its URL.
pub fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Adds the header of `NAME:HEADER=VALUE` to the server `NAME`. The value may use environment
/// variables.
///
/// # Errors
/// A message with the correct syntax.
pub fn add_header(
    servers: &mut [ServerConfig],
    text: &str,
    environment: Environment<'_>,
) -> Result<(), String> {
    let usage = "write SERVER:HEADER=VALUE";
    let (server, header) = text.split_once(':').ok_or(usage)?;
    let (name, value) = header.split_once('=').ok_or(usage)?;
    let known = servers.iter_mut().find(|known| known.is_called(server));
    let Some(ServerConfig { transport, .. }) = known else {
        return Err(format!("there is no server {server:?}"));
    };
    match transport {
        Transport::Http { headers, .. } => {
            let value = expand(value, environment)?;
            headers.push(secret_header(name.trim(), &value)?);
            Ok(())
        }
        Transport::Stdio { .. } => Err(format!(
            "server {server:?} is a process; only HTTP servers take headers"
        )),
        Transport::Incomplete { reason } => Err(format!("server {server:?}: {reason}")),
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    mcp_servers: Option<Map<String, Value>>,
    servers: Option<Map<String, Value>>,
}

/// Checks that an id `server/tool` can hold this name.
fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(format!("a server's name has 1 to {MAX_NAME_BYTES} bytes"));
    }
    if let Some(bad) = name.chars().find(|c| is_hidden(*c) || *c == '/') {
        return Err(format!(
            "its name contains {bad:?}, which an id `server/tool` cannot hold; rename it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
