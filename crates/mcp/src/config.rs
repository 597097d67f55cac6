//! The configuration of servers: `mcpServers` files in the format of desktop clients, and flags.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Limits;
use crate::masking::{MaskSettings, Masking};
use crate::tool_edits::ToolEdits;
use toolscout_base::known_secrets;
use toolscout_base::printable::is_hidden;
use toolscout_base::regular_file;
use toolscout_base::sandbox::{self, SandboxSettings};
use toolscout_gate::gate::redact;
use toolscout_gate::tools::{CallTimeSettings, Seconds};

/// Longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The keys of `oauth`.
const OAUTH_KEYS: [&str; 5] = [
    "client_id",
    "client_secret",
    "scopes",
    "callback_port",
    "private_hosts",
];
/// Most mistakes in a key that is meant to be another.
const MAX_MISTAKES: usize = 2;

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

/// An entry, or what is wrong with which of its fields.
fn read_entry(value: Value) -> Result<Entry, EntryError> {
    let error = match serde_path_to_error::deserialize(value) {
        Ok(entry) => return Ok(entry),
        Err(error) => error,
    };
    let path = error.path().to_string();
    Err(EntryError(match path.as_str() {
        // The entry as a whole.
        "." => error.inner().to_string(),
        field => format!("`{field}`: {}", error.inner()),
    }))
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
    let mut entry = Entry::default();
    if is_url(target) {
        entry.url = Some(target.to_owned());
    } else {
        let mut words = words(target)?.into_iter();
        entry.command = words.next();
        entry.args = words.collect();
    }
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

/// The entry of a server in a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    #[serde(deserialize_with = "sandbox::from_switch")]
    sandbox: Option<SandboxSettings>,
    url: Option<String>,
    /// Gemini's name for the URL of streamable HTTP, where `url` is the old SSE transport.
    #[serde(rename = "httpUrl")]
    http_url: Option<String>,
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    headers: BTreeMap<String, String>,
    #[serde(rename = "bearerTokenEnvVar", alias = "bearer_token_env_var")]
    bearer_variable: Option<String>,
    oauth: OAuthEntry,
    disabled: bool,
    #[serde(alias = "call_timeout")]
    call_timeout_s: Option<Seconds>,
    #[serde(alias = "call_timeout_total")]
    call_timeout_total_s: Option<Seconds>,
    idle_stop_s: Option<u64>,
    protocol: Option<String>,
    tools: Option<Value>,
    #[serde(rename = "alwaysLoad", alias = "always_load")]
    always_load: Option<bool>,
    mask: MaskSettings,
}

/// How a login is made, in a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OAuthEntry {
    #[serde(alias = "clientId")]
    client_id: Option<String>,
    #[serde(alias = "clientSecret")]
    client_secret: Option<String>,
    #[serde(alias = "scope")]
    scopes: Scopes,
    #[serde(alias = "callbackPort")]
    callback_port: Option<u16>,
    #[serde(alias = "privateHosts")]
    private_hosts: Vec<String>,
    /// Other clients have keys of their own.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Scopes as a list, or in one text as OAuth itself has them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    List(Vec<String>),
    Text(String),
}

impl Default for Scopes {
    fn default() -> Self {
        Scopes::List(Vec::new())
    }
}

impl OAuthEntry {
    fn complete(&self, environment: Environment<'_>) -> Result<OAuthSettings, EntryError> {
        // Other clients have keys of their own, so only what looks like a slip is refused.
        for key in self.others.keys() {
            if let Some(meant) = OAUTH_KEYS.iter().find(|known| is_misspelt(key, known)) {
                return Err(format!(
                    "its `oauth` has the unknown key {key:?}; did you mean {meant:?}?"
                )
                .into());
            }
        }
        let client_id = expand_given(self.client_id.as_deref(), environment)?;
        let client_secret = expand_given(self.client_secret.as_deref(), environment)?;
        if let Some(secret) = &client_secret {
            known_secrets::add(secret);
        }
        if client_secret.is_some() && client_id.is_none() {
            return Err("its `oauth` has a `client_secret` and no `client_id`; give both".into());
        }
        let scopes = match &self.scopes {
            Scopes::List(scopes) => scopes.clone(),
            Scopes::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
        };
        Ok(OAuthSettings {
            client_id,
            client_secret,
            scopes,
            callback_port: self.callback_port,
            private_hosts: self.private_hosts.clone(),
        })
    }
}

impl Entry {
    fn complete(
        self,
        name: &str,
        environment: Environment<'_>,
    ) -> Result<ServerConfig, EntryError> {
        // Gemini uses both keys: `httpUrl` is streamable HTTP, and `url` the old SSE transport.
        let url = self.http_url.clone().or(self.url.clone());
        let transport = match (&self.command, url) {
            (Some(_), Some(_)) => {
                return Err("it has both a `command` and a `url`; keep one".into());
            }
            (None, None) => return Err("it has neither a `command` nor a `url`".into()),
            (Some(command), None) => self.stdio(command, environment)?,
            (None, Some(_)) if self.sandbox.is_some() => {
                return Err(
                    "it has a `url` and a `sandbox`, which only a `command` can have; leave it out"
                        .into(),
                );
            }
            (None, Some(url)) => self.http(&url, environment)?,
        };
        let beginning = match self.protocol.as_deref() {
            None => Beginning::Handshake,
            Some("2026-07-28") => Beginning::Discovery,
            Some(other) => {
                return Err(format!(
                    "its `protocol` is {other:?}; write \"2026-07-28\" for a connection without a handshake, or leave it out"
                )
                .into());
            }
        };
        let edits = ToolEdits::read(self.tools, self.always_load, &|text| {
            Ok(expand(text, environment)?)
        })?;
        for secret in edits.secrets(redact::names_secret) {
            // A server may repeat it in an answer.
            known_secrets::add(secret);
        }
        Ok(ServerConfig {
            name: name.to_owned(),
            given_name: None,
            transport,
            call_times: CallTimeSettings {
                timeout: self.call_timeout_s,
                total: self.call_timeout_total_s,
            },
            idle_stop: self.idle_stop_s.map(Duration::from_secs),
            beginning,
            edits,
            masking: Masking::of(self.mask)?,
        })
    }

    fn stdio(&self, command: &str, environment: Environment<'_>) -> Result<Transport, EntryError> {
        let command = expand(command, environment)?;
        if command.trim().is_empty() {
            return Err("its `command` is empty".into());
        }
        let mut sandbox = self.sandbox.clone();
        if let Some(settings) = &mut sandbox {
            let files = &mut settings.files;
            for path in files.read.iter_mut().chain(&mut files.write) {
                *path = expand(&path.to_string_lossy(), environment)?.into();
            }
        }
        let mut args = Vec::with_capacity(self.args.len());
        for arg in &self.args {
            args.push(expand(arg, environment)?);
        }
        let mut env = BTreeMap::new();
        for (name, value) in &self.env {
            let value = expand(value, environment)?;
            if redact::names_secret(name) {
                // A server may repeat it in an error, which must not show it.
                known_secrets::add(&value);
            }
            env.insert(name.clone(), value);
        }
        let cwd = expand_given(self.cwd.as_deref(), environment)?;
        Ok(Transport::Stdio {
            command,
            args,
            env,
            cwd: cwd.map(PathBuf::from),
            sandbox,
        })
    }

    fn http(&self, url: &str, environment: Environment<'_>) -> Result<Transport, EntryError> {
        let protocol = match self.kind.as_deref() {
            Some("sse") => HttpProtocol::Sse,
            Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => {
                HttpProtocol::Streamable
            }
            // Gemini's key for streamable HTTP, which it writes without a type.
            None if self.http_url.is_some() => HttpProtocol::Streamable,
            None | Some("remote") => HttpProtocol::Either,
            Some(other) => {
                return Err(format!(
                    "its `type` is {other:?}; write \"http\", \"sse\", or nothing for a server of either kind"
                )
                .into());
            }
        };
        let url = Url::parse(&expand(url, environment)?)
            .map_err(|error| format!("its `url` is invalid: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "its `url` begins with {:?}, it must be http or https",
                url.scheme()
            )
            .into());
        }
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.push(secret_header(name, &expand(value, environment)?)?);
        }
        if let Some(variable) = &self.bearer_variable {
            let token = lookup(variable, environment)?;
            headers.push(secret_header(
                AUTHORIZATION.as_str(),
                &format!("Bearer {token}"),
            )?);
        }
        Ok(Transport::Http {
            url,
            protocol,
            headers,
            oauth: self.oauth.complete(environment)?,
        })
    }
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

fn secret_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(header) = name.parse::<HeaderName>() else {
        return Err(format!("header {name:?} has an invalid name"));
    };
    let Ok(mut value) = HeaderValue::from_str(value.trim()) else {
        return Err(format!("header {name:?} has an invalid value"));
    };
    // Keeps the value out of debug output.
    value.set_sensitive(true);
    if redact::names_secret(name) {
        known_secrets::add(value.to_str().unwrap_or_default());
    }
    Ok((header, value))
}

/// As [`expand`], for a text that may be left out.
fn expand_given(
    text: Option<&str>,
    environment: Environment<'_>,
) -> Result<Option<String>, EntryError> {
    match text {
        Some(text) => Ok(Some(expand(text, environment)?)),
        None => Ok(None),
    }
}

/// Replaces references to environment variables.
fn expand(text: &str, environment: Environment<'_>) -> Result<String, EntryError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else {
            return Err(format!("a `${{` without `}}` in {text:?}").into());
        };
        expanded.push_str(before);
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        // As in a shell, `:-` replaces an empty variable too: `lookup` treats it as unset.
        match (lookup(name, environment), default) {
            (Ok(value), _) => expanded.push_str(&value),
            (Err(_), Some(default)) => expanded.push_str(default),
            (Err(reason), None) => return Err(reason),
        }
        // The value itself is not expanded again: it may contain `${` literally.
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn lookup(name: &str, environment: Environment<'_>) -> Result<String, EntryError> {
    let reason = match environment(name).map(OsString::into_string) {
        Some(Ok(value)) if !value.is_empty() => return Ok(value),
        Some(Err(_)) => format!("the environment variable {name} is not valid UTF-8"),
        _ => format!("the environment variable {name} is not set; set it, or write a value"),
    };
    Err(EntryError(reason))
}

/// Whether a key is a known one with a mistake or two.
fn is_misspelt(key: &str, known: &str) -> bool {
    strsim::damerau_levenshtein(key, known) <= MAX_MISTAKES
}

/// Splits a command line into words.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            // As in a shell, a backslash is literal within single quotes.
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a {open} is not closed in {text:?}"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "KEY" => Some("s3cret".into()),
            "EMPTY" => Some("".into()),
            _ => None,
        }
    }

    fn read(json: &str) -> Result<Vec<ServerConfig>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        std::fs::write(&path, json).unwrap();
        load(&path, &environment).map_err(|error| error.to_string())
    }

    fn reason(server: &ServerConfig) -> &str {
        match &server.transport {
            Transport::Incomplete { reason } => reason,
            transport => panic!("{transport:?}"),
        }
    }

    #[test]
    fn a_sandbox_is_read_and_a_wrong_one_is_named() {
        let servers = read(
            r#"{"mcpServers": {
                "none": {"command": "a"},
                "off": {"command": "a", "sandbox": false},
                "on": {"command": "a", "sandbox": true},
                "more": {"command": "a", "sandbox": {"network": true, "files": {"read": ["/opt/${KEY}"]}}},
                "typo": {"command": "a", "sandbox": {"netwrok": true}},
                "text": {"command": "a", "sandbox": "on"},
                "list": {"command": "a", "sandbox": {"files": ["/opt"]}},
                "unset": {"command": "a", "sandbox": {"files": {"write": ["${MISSING}"]}}},
                "web": {"url": "https://a.test", "sandbox": true}
            }}"#,
        )
        .unwrap();
        let sandbox = |name: &str| {
            let server = servers.iter().find(|server| server.name == name).unwrap();
            match &server.transport {
                Transport::Stdio { sandbox, .. } => Ok(sandbox.clone()),
                _ => Err(reason(server).to_owned()),
            }
        };
        assert_eq!(sandbox("none"), Ok(None));
        assert_eq!(sandbox("off"), Ok(None));
        assert_eq!(sandbox("on"), Ok(Some(SandboxSettings::default())));
        let more = sandbox("more").unwrap().unwrap();
        assert!(more.network && more.files.read == [Path::new("/opt/s3cret")]);
        for (name, expected) in [
            ("typo", "netwrok"),
            ("text", "true, false, or a table"),
            ("list", "invalid"),
            ("unset", "MISSING"),
            ("web", "only a `command`"),
        ] {
            let reason = sandbox(name).unwrap_err();
            assert!(reason.contains(expected), "{name}: {reason}");
        }
    }

    #[test]
    fn a_name_that_no_tool_can_have_is_replaced() {
        let long = "长".repeat(60);
        let file = format!(
            r#"{{"mcpServers": {{
                "github.com/acme/tool": {{"command": "a"}},
                "github.com-acme-tool": {{"command": "b"}},
                "github.com/acme tool": {{"command": "c"}},
                "a\nb": {{"command": "d"}},
                "//": {{"command": "e"}},
                "": {{"command": "f"}},
                "x\u202ey": {{"command": "g"}},
                "{long}": {{"command": "h"}},
                "with space": {{"command": "i"}}
            }}}}"#
        );
        let servers = read(&file).unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "github.com-acme-tool-2",
                "github.com-acme-tool",
                "github.com-acme tool",
                "a-b",
                "server",
                "server-2",
                "x-y",
                &"长".repeat(40),
                "with space",
            ]
        );
        assert!(servers[0].is_called("github.com/acme/tool"));
        assert!(!servers[1].is_called("github.com/acme/tool"));
        for server in servers {
            let keeps_name =
                !["with space", "github.com-acme-tool"].contains(&server.name.as_str());
            assert_eq!(server.given_name.is_some(), keeps_name, "{}", server.name);
            assert_eq!(check_name(&server.name), Ok(()));
        }
    }

    #[test]
    fn the_time_of_calls_is_a_key_of_the_entry_and_wins_over_that_of_all() {
        let servers = read(
            r#"{"mcpServers": {
                "slow": {"command": "x", "call_timeout_s": 900},
                "long": {"command": "x", "call_timeout_total": 3600},
                "usual": {"command": "x"}
            }}"#,
        )
        .unwrap();
        let mut of_all = Limits::default();
        of_all.call.idle = Duration::from_secs(20);
        let seconds = |name: &str| {
            let server = servers.iter().find(|server| server.name == name).unwrap();
            let call = server.limits(of_all).call;
            (
                call.idle.as_secs(),
                call.unreported.as_secs(),
                call.total.as_secs(),
            )
        };
        assert_eq!(seconds("slow"), (900, 900, 900));
        assert_eq!(seconds("long"), (20, 300, 3600));
        assert_eq!(seconds("usual"), (20, 300, 600));
        let servers = read(r#"{"mcpServers": {"s": {"command": "x", "call_timeout_s": 0}}}"#);
        let message = reason(&servers.unwrap()[0]).to_owned();
        assert!(message.contains("give from 1 to 86400"), "{message}");
    }

    #[test]
    fn the_desktop_format_is_read_with_variables_filled_in() {
        let servers = read(
            r#"{"mcpServers": {
                "files": {"command": "npx", "args": ["-y", "pkg@1", "${EMPTY:-/tmp}"], "env": {"K": "x${KEY}y"}, "icon": "?"},
                "web": {"type": "http", "url": "https://mcp.example.com/mcp?k=${env:KEY}", "headers": {"Authorization": "Bearer ${KEY}"}},
                "off": {"command": "${MISSING}", "disabled": true}
            }}"#,
        )
        .unwrap();
        assert_eq!(
            servers
                .iter()
                .map(|server| server.name.as_str())
                .collect::<Vec<_>>(),
            ["files", "web"]
        );
        let Transport::Stdio {
            command, args, env, ..
        } = &servers[0].transport
        else {
            panic!("{servers:?}")
        };
        assert_eq!(
            (command.as_str(), args[2].as_str(), env["K"].as_str()),
            ("npx", "/tmp", "xs3crety")
        );
        let Transport::Http { url, headers, .. } = &servers[1].transport else {
            panic!("{servers:?}")
        };
        assert_eq!(url.as_str(), "https://mcp.example.com/mcp?k=s3cret");
        assert_eq!(headers[0].1.to_str().unwrap(), "Bearer s3cret");
        assert!(!format!("{servers:?}").contains("s3cret"), "{servers:?}");
    }

    #[test]
    fn the_type_of_a_url_and_its_login_are_read() {
        let servers = read(
            r#"{"mcpServers": {
                "old": {"type": "sse", "url": "http://a/sse"},
                "new": {"type": "http", "url": "http://a/mcp", "oauth": {
                    "clientId": "me", "client_secret": "${KEY}", "scopes": "read write", "callbackPort": 7}},
                "any": {"url": "http://a/mcp", "oauth": {"scopes": ["read"]}}
            }}"#,
        )
        .unwrap();
        let transports: BTreeMap<&str, (HttpProtocol, &OAuthSettings)> = servers
            .iter()
            .map(|server| match &server.transport {
                Transport::Http {
                    protocol, oauth, ..
                } => (server.name.as_str(), (*protocol, oauth)),
                stdio => panic!("{stdio:?}"),
            })
            .collect();
        assert_eq!(transports["old"].0, HttpProtocol::Sse);
        assert_eq!(transports["any"].0, HttpProtocol::Either);
        assert_eq!(transports["any"].1.scopes, ["read"]);
        let (protocol, oauth) = transports["new"];
        assert_eq!(protocol, HttpProtocol::Streamable);
        assert_eq!(oauth.client_id.as_deref(), Some("me"));
        assert_eq!(oauth.client_secret.as_deref(), Some("s3cret"));
        assert_eq!(oauth.scopes, ["read", "write"]);
        assert_eq!(oauth.callback_port, Some(7));
        assert!(!format!("{servers:?}").contains("s3cret"), "{servers:?}");
    }

    #[test]
    fn a_server_without_its_variable_leaves_the_others() {
        let servers = read(
            r#"{"mcpServers": {
                "shop": {"command": "a", "args": ["${MISSING}"]},
                "bank": {"url": "http://a", "bearerTokenEnvVar": "MISSING"},
                "calendar": {"url": "http://a", "oauth": {"authServerMetadataUrl": "http://b"}}
            }}"#,
        );
        let servers = servers.unwrap();
        for server in &servers[..2] {
            let reason = reason(server);
            assert!(reason.contains("MISSING is not set"), "{reason}");
        }
        assert!(matches!(servers[2].transport, Transport::Http { .. }));
    }

    #[test]
    fn a_file_with_comments_and_trailing_commas_is_read() {
        let servers = read(
            "// mine\n{\n  \"servers\": {\n    /* local */ \"fs\": { \"command\": \"x\", }, // keep\n  },\n}\n",
        )
        .unwrap();
        assert_eq!(servers[0].name, "fs");
        let loose = read("{ servers: {} }").unwrap_err();
        assert!(loose.contains("line 1"), "{loose}");
    }

    #[test]
    fn invalid_entries_are_named() {
        for (entry, expected) in [
            (r#"{}"#, "neither a `command` nor a `url`"),
            (
                r#"{"command": "a", "url": "http://b"}"#,
                "both a `command` and a `url`",
            ),
            (r#"{"command": " "}"#, "`command` is empty"),
            (r#"{"command": 3}"#, "`command`: invalid type: integer"),
            (
                r#"{"command": "a", "protocol": "2025-06-18"}"#,
                "`protocol` is \"2025-06-18\"; write \"2026-07-28\"",
            ),
            (
                r#"{"command": "a", "idle_stop_s": "soon"}"#,
                "`idle_stop_s`: invalid type: string",
            ),
            (r#"{"command": "a", "env": {"A": []}}"#, "`env.A`: "),
            (r#"{"command": "${OPEN"}"#, "without `}`"),
            (r#"{"url": "ftp://a/b"}"#, "must be http or https"),
            (r#"{"url": "nope"}"#, "its `url` is invalid"),
            (
                r#"{"url": "http://a", "oauth": {"scopes": 3}}"#,
                "did not match any variant",
            ),
            (
                r#"{"url": "http://a", "oauth": {"client_secret": "s"}}"#,
                "no `client_id`",
            ),
            (
                r#"{"url": "http://a", "oauth": {"scops": ["s"]}}"#,
                "did you mean \"scopes\"",
            ),
            (
                r#"{"type": "ssse", "url": "http://a"}"#,
                "\"http\", \"sse\"",
            ),
            (
                r#"{"url": "http://a", "headers": {"a b": "c"}}"#,
                "invalid name",
            ),
        ] {
            let file = format!(r#"{{"mcpServers": {{"s": {entry}, "good": {{"command": "x"}}}}}}"#);
            let servers = read(&file).unwrap();
            let message = reason(&servers[0]);
            assert!(message.contains(expected), "{message}");
            assert!(matches!(servers[1].transport, Transport::Stdio { .. }));
        }
        assert!(read("{").unwrap_err().contains("line 1"));
        assert!(
            read(r#"{"tools": []}"#)
                .unwrap_err()
                .contains("no `mcpServers` object")
        );
        assert!(
            load(Path::new("/nowhere.json"), &environment)
                .unwrap_err()
                .to_string()
                .contains("/nowhere.json")
        );
    }

    #[test]
    fn flags_name_servers_and_headers() {
        let stdio = parse_server(r#"fs=node 'a b.js' --root "x \"y\"" ''"#, &environment).unwrap();
        let Transport::Stdio { command, args, .. } = &stdio.transport else {
            panic!("{stdio:?}")
        };
        assert_eq!(
            (command.as_str(), args.join("|").as_str()),
            ("node", r#"a b.js|--root|x "y"|"#)
        );
        let mut servers = vec![
            stdio,
            parse_server("web=http://127.0.0.1:1/mcp", &environment).unwrap(),
        ];
        add_header(&mut servers, "web:X-Key=${KEY}", &environment).unwrap();
        let Transport::Http { headers, .. } = &servers[1].transport else {
            panic!("{servers:?}")
        };
        assert_eq!(
            (headers[0].0.as_str(), headers[0].1.to_str().unwrap()),
            ("x-key", "s3cret")
        );
        for (text, expected) in [
            ("no:A=b", "no server \"no\""),
            ("fs:A=b", "only HTTP"),
            ("web:A", "SERVER:HEADER=VALUE"),
        ] {
            assert!(
                add_header(&mut servers, text, &environment)
                    .unwrap_err()
                    .contains(expected)
            );
        }
        for (text, expected) in [
            ("a/b=x", "contains '/'"),
            ("just-a-name", "NAME=URL"),
            ("a=", "neither"),
            ("a='x", "not closed"),
        ] {
            assert!(
                parse_server(text, &environment)
                    .unwrap_err()
                    .contains(expected),
                "{text}"
            );
        }
    }
}
