//! HTTP operations: calls tools that were imported from an OpenAPI document.
//!
//! The settings and the document determine the target of a request, never the model: its arguments
//! are percent-encoded into their places. Redirects are not followed, so that the service's secret
//! goes nowhere else.

mod body;
mod error;
mod files;
mod request;
mod styles;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use reqwest::{Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use toolscout_index::{Tool, ToolId};

use crate::tools::builtin::files::Root;
use crate::tools::net::{GuardedClient, Lookup, PrivateHosts, SystemLookup, body, parse_url};
use crate::tools::operation::files::FileReader;
use crate::tools::{Arguments, Callable, ToolFailure, Toolset};
use toolscout_base::known_secrets;
use toolscout_base::printable::excerpt;

/// Characters of an error's body in the message for the model.
const ERROR_CHARS: usize = 500;

/// A service whose operations can be called, an entry of `[[operations]]` in a profile.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// The server name under which the document was added.
    pub server: String,
    /// The target of requests, instead of the document's. Only this address may be private.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Authentication.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// The addresses to which the secret of `auth` is sent, and all paths below them; `base_url` if
    /// there is none. A document may name any other address.
    #[serde(default)]
    pub auth_for: Vec<String>,
    /// Time limit of a request in seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Longest answer in bytes.
    #[serde(default = "default_max_bytes")]
    pub max_bytes: usize,
}

fn default_timeout_s() -> u64 {
    30
}

fn default_max_bytes() -> usize {
    4 << 20
}

/// A secret from the environment, and where it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Auth {
    /// `Authorization: Bearer` with the value of this variable.
    BearerEnv(String),
    /// `Authorization: Basic` with `user:password` from this variable.
    BasicEnv(String),
    /// A header with the value of a variable.
    Header {
        /// The header's name.
        name: String,
        /// The variable.
        env: String,
    },
    /// A query parameter with the value of a variable.
    Query {
        /// The parameter's name.
        name: String,
        /// The variable.
        env: String,
    },
}

/// Why a service cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The variable of the secret is not set.
    #[error("the service {server} takes its secret from {variable}, which is not set")]
    NoSecret {
        /// The service.
        server: String,
        /// The variable.
        variable: String,
    },
    /// The secret or the header's name is not valid in HTTP.
    #[error(
        "the service {server} has a secret or header name with characters that are invalid in a header"
    )]
    BadSecret {
        /// The service.
        server: String,
    },
    /// The base URL is invalid.
    #[error("the service {server}: {reason}")]
    BadBase {
        /// The service.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("HTTP operations cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Looks up a tool by its id.
pub type FindTool = Arc<dyn Fn(&ToolId) -> Option<Arc<Tool>> + Send + Sync>;

/// The operations of the configured services.
pub struct Operations {
    services: Vec<Arc<Service>>,
    find: FindTool,
    files: Option<Root>,
}

impl Operations {
    /// The operations of these services; [`Operations::found_by`] says where their tools are. Reads the
    /// secrets from the environment now.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn new(
        services: &[ServiceConfig],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ServiceError> {
        let lookup: Arc<dyn Lookup> = Arc::new(SystemLookup);
        let mut operations = Operations::default();
        for config in services {
            let service = Service::new(config, &environment, lookup.clone())?;
            operations.services.push(Arc::new(service));
        }
        Ok(operations)
    }

    /// Looks tools up here.
    #[must_use]
    pub fn found_by(mut self, find: FindTool) -> Self {
        self.find = find;
        self
    }

    /// Sends files of this folder where an argument is the path of a file.
    #[must_use]
    pub fn with_files(mut self, folder: Option<Root>) -> Self {
        self.files = folder;
        self
    }
}

impl Default for Operations {
    fn default() -> Self {
        Operations {
            services: Vec::new(),
            find: Arc::new(|_| None),
            files: None,
        }
    }
}

impl Toolset for Operations {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let mut services = self.services.iter();
        let service = services.find(|service| service.config.server == id.server())?;
        let tool = (self.find)(id)?;
        // A tool of the same server that came from elsewhere has no method and path.
        if !tool.metadata.contains_key("openapi") {
            return None;
        }
        Some(Arc::new(Operation {
            service: service.clone(),
            tool,
            files: self.files.clone(),
        }))
    }
}

/// The arguments of an operation that are null where its request has nothing for it, and that are left
/// out therefore. None for other tools.
pub fn unwritable_nulls(tool: &Tool, arguments: &Arguments) -> Vec<String> {
    let call = tool.metadata.get("openapi").unwrap_or(&Value::Null);
    request::unwritable_nulls(call, arguments)
}

/// A service that is set up.
struct Service {
    config: ServiceConfig,
    base: Option<Url>,
    client: GuardedClient,
    secret: Option<Secret>,
    /// Where the secret may be sent.
    secret_for: Vec<Url>,
}

/// A secret as it is sent.
enum Secret {
    Header(HeaderName, HeaderValue),
    Query(String, String),
}

impl Service {
    fn new(
        config: &ServiceConfig,
        environment: &impl Fn(&str) -> Option<String>,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, ServiceError> {
        let server = &config.server;
        let base = match config.base_url.as_deref().map(parse_url) {
            Some(Ok(base)) => Some(base),
            Some(Err(error)) => return Err(ServiceError::bad_base(server, error.to_string())),
            None => None,
        };
        // The settings may name a private address; a document, which may be untrusted, may not.
        let own = base.as_ref().and_then(host_and_port);
        let private = PrivateHosts(own.into_iter().collect());
        let client = GuardedClient::new(private, lookup, Duration::from_secs(config.timeout_s))?;
        let secret = match &config.auth {
            Some(auth) => Some(secret(server, auth, environment)?),
            None => None,
        };
        let mut secret_for = Vec::with_capacity(config.auth_for.len());
        for address in &config.auth_for {
            match parse_url(address) {
                Ok(url) => secret_for.push(url),
                Err(error) => {
                    let reason = format!("auth_for: {error}");
                    return Err(ServiceError::bad_base(server, reason));
                }
            }
        }
        if secret_for.is_empty() {
            secret_for.extend(base.clone());
        }
        Ok(Service {
            config: config.clone(),
            base,
            client,
            secret,
            secret_for,
        })
    }

    /// The secret, where it may be sent to this address.
    fn secret_for(&self, url: &Url) -> Option<&Secret> {
        let secret = self.secret.as_ref()?;
        let mut allowed = self.secret_for.iter();
        let is_allowed = allowed.any(|allowed| is_below(url, allowed));
        is_allowed.then_some(secret)
    }

    /// The base URL of requests.
    fn base(&self, call: &Value) -> Result<Url, ToolFailure> {
        if let Some(base) = &self.base {
            return Ok(base.clone());
        }
        if let Some(Value::String(declared)) = call.pointer("/servers/0")
            && let Ok(base) = parse_url(declared)
        {
            return Ok(base);
        }
        let server = &self.config.server;
        Err(ToolFailure::new(format!(
            "the document of {server} names no address; set base_url for it"
        )))
    }
}

impl ServiceError {
    fn bad_base(server: &str, reason: String) -> Self {
        let server = server.to_owned();
        ServiceError::BadBase { server, reason }
    }
}

fn host_and_port(url: &Url) -> Option<String> {
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    Some(format!("{host}:{port}"))
}

/// Whether an address has the same origin as another one, and a path below that one's.
fn is_below(url: &Url, above: &Url) -> bool {
    if url.origin() != above.origin() {
        return false;
    }
    match url.path().strip_prefix(above.path().trim_end_matches('/')) {
        // `/apis` begins with `/api` and is not below it.
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

fn secret(
    server: &str,
    auth: &Auth,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<Secret, ServiceError> {
    let (name, value) = match auth {
        Auth::BearerEnv(variable) => {
            let token = secret_value(server, variable, environment)?;
            (AUTHORIZATION, format!("Bearer {token}"))
        }
        Auth::BasicEnv(variable) => {
            use base64::Engine as _;
            let pair = secret_value(server, variable, environment)?;
            let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
            (AUTHORIZATION, format!("Basic {encoded}"))
        }
        Auth::Header { name, env } => {
            let Ok(name) = name.parse() else {
                return Err(bad_secret(server));
            };
            (name, secret_value(server, env, environment)?)
        }
        Auth::Query { name, env } => {
            let value = secret_value(server, env, environment)?;
            return Ok(Secret::Query(name.clone(), value));
        }
    };
    let Ok(mut value) = HeaderValue::from_str(&value) else {
        return Err(bad_secret(server));
    };
    // Keeps the value out of debug output.
    value.set_sensitive(true);
    Ok(Secret::Header(name, value))
}

fn secret_value(
    server: &str,
    variable: &str,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<String, ServiceError> {
    match environment(variable) {
        Some(value) if !value.is_empty() => {
            // From now on it is masked in logs.
            known_secrets::add(&value);
            Ok(value)
        }
        _ => Err(ServiceError::NoSecret {
            server: server.to_owned(),
            variable: variable.to_owned(),
        }),
    }
}

fn bad_secret(server: &str) -> ServiceError {
    let server = server.to_owned();
    ServiceError::BadSecret { server }
}

/// One operation of a service.
struct Operation {
    service: Arc<Service>,
    tool: Arc<Tool>,
    files: Option<Root>,
}

#[async_trait]
impl Callable for Operation {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let call = self.tool.metadata.get("openapi").unwrap_or(&Value::Null);
        let base = self.service.base(call)?;
        let mut parts = request::parts(call, &base, &arguments)
            .map_err(|error| ToolFailure::new(error.to_string()))?;
        // After the arguments are in place: a header with the secret replaces one of the same name.
        let secret = self.service.secret_for(&parts.url);
        let is_withheld = secret.is_none() && self.service.secret.is_some();
        match secret {
            Some(Secret::Header(name, value)) => {
                drop(parts.headers.insert(name.clone(), value.clone()))
            }
            Some(Secret::Query(name, value)) => {
                parts.url.query_pairs_mut().append_pair(name, value);
            }
            None => {}
        }
        if is_withheld {
            let server = &self.service.config.server;
            tracing::warn!(
                server,
                host = parts.url.host_str(),
                "the secret of a service is not sent to this address"
            );
        }
        let mut building = self
            .service
            .client
            .requests()
            .request(parts.method, parts.url)
            .headers(parts.headers);
        if let Some(body) = parts.body {
            let mut files = FileReader::new(self.files.as_ref());
            let (content_type, bytes) = body.sent(&mut files).await?;
            building = building.header(CONTENT_TYPE, content_type).body(bytes);
        }
        // Without the URL, whose query may hold the secret.
        let built = building.build().map_err(reqwest::Error::without_url);
        let built = built.map_err(failure)?;
        let response = self.service.client.send(built).await.map_err(failure)?;
        match answer(response, self.service.config.max_bytes).await {
            Err(failure) if is_withheld => Err(self.without_secret(failure)),
            answered => answered,
        }
    }

    /// By its own `timeout_s`.
    fn limits_itself(&self) -> bool {
        true
    }
}

impl Operation {
    /// A failure that may come from the secret that was not sent.
    fn without_secret(&self, failure: ToolFailure) -> ToolFailure {
        let server = &self.service.config.server;
        ToolFailure::new(format!(
            "{}; the secret of {server} was not sent, because the address is not below base_url or auth_for of its \
             [[operations]]",
            failure.message
        ))
    }
}

/// The body of a successful response, parsed if it is JSON. Any other response is a failure with
/// the beginning of its body.
async fn answer(response: Response, max_bytes: usize) -> Result<Value, ToolFailure> {
    let status = response.status();
    if status.is_redirection() {
        let location = match response.headers().get(LOCATION).map(HeaderValue::to_str) {
            Some(Ok(location)) => excerpt(location, 200),
            _ => "nowhere".to_owned(),
        };
        return Err(ToolFailure::new(format!(
            "the service answered {status} and points to {location}, which is not followed"
        )));
    }
    let bytes = body(response, max_bytes).await.map_err(failure)?;
    let text = String::from_utf8_lossy(&bytes);
    if !status.is_success() {
        return Err(ToolFailure::new(format!(
            "the service answered {status}: {}",
            excerpt(text.trim(), ERROR_CHARS)
        )));
    }
    if text.trim().is_empty() {
        return Ok(json!({ "status": status.as_u16() }));
    }
    // What is not JSON is text, whatever type the service declares.
    Ok(serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned())))
}

fn failure(error: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(error.to_string())
}

#[cfg(test)]
mod tests;
