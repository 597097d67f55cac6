//! The entry of a server in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::values::{expand, expand_given, lookup, secret_header, words};
use super::{
    Beginning, EntryError, Environment, HttpProtocol, OAuthSettings, ServerConfig, Transport,
    is_url,
};
use crate::masking::{MaskSettings, Masking};
use crate::tool_edits::ToolEdits;
use toolscout_base::known_secrets;
use toolscout_base::sandbox::{self, SandboxSettings};
use toolscout_gate::gate::redact;
use toolscout_gate::tools::{CallTimeSettings, Seconds};

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

/// The entry of a server in a file.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
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
    /// Whether the server is switched off.
    pub(super) disabled: bool,
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
    /// The entry of a URL, or of a command line.
    pub(super) fn of_target(target: &str) -> Result<Self, String> {
        let mut entry = Entry::default();
        if is_url(target) {
            entry.url = Some(target.to_owned());
        } else {
            let mut words = words(target)?.into_iter();
            entry.command = words.next();
            entry.args = words.collect();
        }
        Ok(entry)
    }

    /// The server of this entry, with the variables filled in.
    pub(super) fn complete(
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

/// An entry, or what is wrong with which of its fields.
pub(super) fn read_entry(value: Value) -> Result<Entry, EntryError> {
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

/// Whether a key is a known one with a mistake or two.
fn is_misspelt(key: &str, known: &str) -> bool {
    strsim::damerau_levenshtein(key, known) <= MAX_MISTAKES
}
