//! `web_fetch`: fetches a web page as text.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use toolscout_index::Tool;

use crate::tools::builtin::html;
use crate::tools::builtin::{BuiltinError, definition, number, text};
use crate::tools::net::{GuardedClient, Lookup, PrivateHosts, SystemLookup, body, parse_url};
use crate::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_base::media_type::without_parameters;

/// Maximum number of redirects; each is checked like the first URL.
const MAX_REDIRECTS: usize = 5;
/// Bytes of text if the model sets no limit.
const DEFAULT_TEXT_BYTES: u64 = 32 << 10;

/// The settings of `web_fetch`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchConfig {
    /// Hosts that are allowed although their address is private: `host` or `host:port`.
    pub private_hosts: Vec<String>,
    /// If not empty, the only hosts that are allowed.
    pub only_hosts: Vec<String>,
    /// Time limit of a page in seconds, redirects included.
    pub timeout_s: u64,
    /// Longest page in bytes.
    pub max_bytes: usize,
}

impl Default for FetchConfig {
    fn default() -> Self {
        FetchConfig {
            private_hosts: Vec::new(),
            only_hosts: Vec::new(),
            timeout_s: 20,
            max_bytes: 2 << 20,
        }
    }
}

/// The tool `web_fetch`.
#[derive(Debug)]
pub struct WebFetch {
    client: GuardedClient,
    config: FetchConfig,
}

impl WebFetch {
    /// The tool with these settings.
    ///
    /// # Errors
    /// [`BuiltinError::Client`].
    pub fn new(config: &FetchConfig) -> Result<Self, BuiltinError> {
        WebFetch::with_lookup(config, Arc::new(SystemLookup))
    }

    /// The tool with another resolver.
    ///
    /// # Errors
    /// [`BuiltinError::Client`].
    pub fn with_lookup(
        config: &FetchConfig,
        lookup: Arc<dyn Lookup>,
    ) -> Result<Self, BuiltinError> {
        let private = PrivateHosts(config.private_hosts.clone());
        let client = GuardedClient::new(private, lookup, Duration::from_secs(config.timeout_s))?;
        Ok(WebFetch {
            client,
            config: config.clone(),
        })
    }

    async fn fetch(&self, url: &str, max_text_bytes: usize) -> Result<Value, ToolFailure> {
        let mut url = parse_url(url).map_err(failure)?;
        for _ in 0..=MAX_REDIRECTS {
            self.check_host(&url)?;
            // Checked before the request is built, which removes user name and password.
            self.client.check(&url).map_err(failure)?;
            let request = self.client.requests().get(url.clone());
            let request = request.build().map_err(failure)?;
            let response = self.client.send(request).await.map_err(failure)?;
            match redirect_target(&url, &response)? {
                Some(next) => url = next,
                None => return self.page(url, response, max_text_bytes).await,
            }
        }
        Err(ToolFailure::new(format!(
            "more than {MAX_REDIRECTS} redirects; the last one leads to {url}"
        )))
    }

    fn check_host(&self, url: &Url) -> Result<(), ToolFailure> {
        let host = url.host_str().unwrap_or_default();
        let only = &self.config.only_hosts;
        if only.is_empty() {
            return Ok(());
        }
        for allowed in only {
            if allowed.eq_ignore_ascii_case(host) {
                return Ok(());
            }
        }
        Err(ToolFailure::new(format!(
            "{host} may not be fetched from; only {} may",
            only.join(", ")
        )))
    }

    async fn page(
        &self,
        url: Url,
        response: Response,
        max_text_bytes: usize,
    ) -> Result<Value, ToolFailure> {
        let status = response.status();
        let kind = match response
            .headers()
            .get(CONTENT_TYPE)
            .map(HeaderValue::to_str)
        {
            Some(Ok(kind)) => kind,
            _ => "text/plain",
        };
        let kind = without_parameters(kind).to_lowercase();
        if !is_text(&kind) {
            return Err(ToolFailure::new(format!(
                "{url} is {kind}, and only text can be read"
            )));
        }
        let bytes = body(response, self.config.max_bytes)
            .await
            .map_err(failure)?;
        let page = String::from_utf8_lossy(&bytes).into_owned();
        if !status.is_success() {
            let beginning = toolscout_base::printable::excerpt(&page, 200);
            return Err(ToolFailure::new(format!(
                "{url} answered {status}: {beginning}"
            )));
        }
        let is_html = kind == "text/html" || kind == "application/xhtml+xml";
        let (title, whole) = if is_html {
            readable(page).await?
        } else {
            (None, page)
        };
        let end = whole.floor_char_boundary(max_text_bytes);
        let mut answer = json!({ "url": url.as_str(), "title": title, "text": whole[..end] });
        if end < whole.len() {
            answer["text_bytes_in_all"] = whole.len().into();
        }
        Ok(answer)
    }
}

#[async_trait]
impl Callable for WebFetch {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let url = text(&arguments, "url")?;
        let most = number(&arguments, "max_bytes").unwrap_or(DEFAULT_TEXT_BYTES);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let seconds = self.config.timeout_s;
        // The client's own limit is for each request; this one covers the redirects too.
        let fetched = timeout(Duration::from_secs(seconds), self.fetch(url, most)).await;
        match fetched {
            Ok(page) => page,
            Err(_) => {
                let message = format!("no whole page within {seconds} s");
                Err(ToolFailure::new(message))
            }
        }
    }

    /// By its own `timeout_s`.
    fn limits_itself(&self) -> bool {
        true
    }
}

impl UserTool for WebFetch {
    fn definition(&self) -> Tool {
        let properties = json!({
            "url": { "type": "string", "description": "An address with http or https." },
            "max_bytes": { "type": "integer", "minimum": 1, "description": "Bytes of text, 32768 if left out." },
        });
        let mut tool = definition(
            "web_fetch",
            "Fetches a page from the web and gives its text.",
            properties,
            &["url"],
        );
        tool.annotations.read_only_hint = Some(true);
        tool.annotations.open_world_hint = Some(true);
        tool
    }
}

/// The target of a redirect; `None` for any other response.
fn redirect_target(from: &Url, response: &Response) -> Result<Option<Url>, ToolFailure> {
    if !response.status().is_redirection() {
        return Ok(None);
    }
    let Some(Ok(location)) = response.headers().get(LOCATION).map(HeaderValue::to_str) else {
        return Err(ToolFailure::new(format!("{from} redirects to nowhere")));
    };
    let next = match from.join(location) {
        Ok(next) => next,
        Err(error) => {
            let message = format!("{from} redirects to no URL: {error}");
            return Err(ToolFailure::new(message));
        }
    };
    // Anyone on the way could read and change what is fetched then.
    if from.scheme() == "https" && next.scheme() != "https" {
        return Err(ToolFailure::new(format!(
            "{from} redirects to {next}, which is not encrypted"
        )));
    }
    Ok(Some(next))
}

fn is_text(kind: &str) -> bool {
    match kind.strip_prefix("application/") {
        Some("json" | "xml" | "xhtml+xml" | "javascript") => true,
        _ => kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml"),
    }
}

/// The title and text of HTML. Runs on a blocking thread: two megabytes take some ten milliseconds.
async fn readable(page: String) -> Result<(Option<String>, String), ToolFailure> {
    let read = spawn_blocking(move || html::read(&page)).await;
    let page = read.map_err(|_| ToolFailure::new("the page cannot be read as HTML"))?;
    Ok((page.title, page.text))
}

fn failure(error: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(error.to_string())
}
