//! Sends requests to the servers of one address: the first that answers, within a time and a size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, Url};
use serde_json::Value;
use tokio::time::timeout;
use toolscout_base::breaker::{Breaker, Permit};
use toolscout_base::config::{ExternalIndex, ExternalProduct, ExternalSettings};
use toolscout_base::tls::{is_loopback, root_cause};

use crate::failure::{Cause, Failure};

/// Longest wait for a connection, so that another server can be asked in time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections are closed after this much rest, before the servers close them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
pub const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The header that has a key of Qdrant.
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// What is sent with a request.
pub enum Body {
    /// Nothing.
    None,
    /// One document.
    Json(Value),
    /// The text of one document.
    Text(String),
    /// Lines, each a document: `_bulk` and `_msearch`.
    Lines(String),
}

/// A connection to the servers of one address.
pub struct Client {
    http: reqwest::Client,
    product: ExternalProduct,
    servers: Vec<Arc<OneServer>>,
    /// The server that answered last.
    preferred: AtomicUsize,
    shown: String,
    /// The variable with the key.
    variable: Option<String>,
    /// A server that does not answer within this time counts as away.
    patience: Duration,
}

struct OneServer {
    url: Url,
    breaker: Breaker,
}

impl AsRef<Breaker> for OneServer {
    fn as_ref(&self) -> &Breaker {
        &self.breaker
    }
}

impl Client {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn new(settings: &ExternalSettings, index: &ExternalIndex) -> Result<Self, Failure> {
        let refused = |reason: String| Failure::new(Cause::Key, reason);
        if let (Some(variable), None) = (settings.secret_env(), &settings.secret) {
            return Err(refused(format!(
                "its key is missing: set the variable {variable}"
            )));
        }
        let (product, urls) = (index.product, &index.servers);
        let mut headers = HeaderMap::new();
        if let Some(secret) = &settings.secret {
            let (header, value) = match (&settings.user, product) {
                (Some(user), _) => {
                    let pair = format!("{user}:{}", secret.expose());
                    let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
                    (AUTHORIZATION, basic)
                }
                (None, ExternalProduct::Qdrant) => (API_KEY, secret.expose().to_owned()),
                (None, _) => (AUTHORIZATION, format!("ApiKey {}", secret.expose())),
            };
            let Ok(mut value) = HeaderValue::from_str(&value) else {
                return Err(refused(
                    "its key has characters that cannot be sent; write the encoded form of it"
                        .to_owned(),
                ));
            };
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let mut builder = toolscout_base::tls::client()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .default_headers(headers)
            // A redirect would take the key to another address.
            .redirect(Policy::none());
        if urls.iter().all(is_loopback) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| refused(root_cause(&error)))?;
        let mut servers = Vec::with_capacity(urls.len());
        for url in urls {
            servers.push(Arc::new(OneServer {
                url: url.clone(),
                breaker: Breaker::default(),
            }));
        }
        Ok(Client {
            http,
            product,
            servers,
            preferred: AtomicUsize::new(0),
            shown: settings.store.to_string(),
            variable: settings.secret_env().map(str::to_owned),
            // The first of several gets half of the time. Some of it has passed before a request is sent.
            patience: settings.timeout() * 9 / 10 / urls.len().clamp(1, 2) as u32,
        })
    }

    /// The address, for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Asks one server after another until one answers, within a time for all of them. So a request may arrive
    /// twice, and has to have the same effect then.
    ///
    /// # Errors
    /// The [`Failure`] of the last server.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: &Body,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let start = Instant::now();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..self.servers.len() {
            let place = (first + turn) % self.servers.len();
            let left = limit.saturating_sub(start.elapsed());
            // A server that hangs leaves time for the others. Each may need half of what is left, however many there
            // are.
            let share = match turn + 1 == self.servers.len() {
                true => left,
                false => left / 2,
            };
            match self.ask_one(place, &method, path, body, share).await {
                Err(failure) if failure.cause == Cause::Away => last = Some(failure),
                outcome => {
                    self.preferred.store(place, Ordering::Relaxed);
                    return outcome.map_err(|failure| failure.at(&self.shown));
                }
            }
        }
        let failure = last.unwrap_or_else(|| Failure::timeout(limit));
        Err(failure.at(&self.shown))
    }

    async fn ask_one(
        &self,
        place: usize,
        method: &Method,
        path: &str,
        body: &Body,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let server = &self.servers[place];
        let permit =
            Permit::of(Arc::clone(server)).map_err(|reason| Failure::new(Cause::Away, reason))?;
        // Dropped if the client of a search goes away.
        let permit = permit.that_may_be_dropped();
        let answer = match timeout(limit, self.send(&server.url, method, path, body)).await {
            Ok(answer) => answer.map_err(|failure| failure.naming(self.variable.as_deref())),
            // A caller with little time says nothing about the server.
            Err(_) if limit < self.patience => {
                permit.give_back();
                return Err(Failure::timeout(limit));
            }
            Err(_) => Err(Failure::timeout(limit)),
        };
        permit.close(answer.as_ref().err());
        answer
    }

    async fn send(
        &self,
        server: &Url,
        method: &Method,
        path: &str,
        body: &Body,
    ) -> Result<Value, Failure> {
        let Ok(url) = server.join(path) else {
            let reason = format!("the path {path:?} is none");
            return Err(Failure::new(Cause::Request, reason));
        };
        let request = self.http.request(method.clone(), url);
        let request = match body {
            Body::None => request,
            Body::Json(json) => request.json(json),
            Body::Text(text) => request
                .header(CONTENT_TYPE, "application/json")
                .body(text.clone()),
            Body::Lines(lines) => request
                .header(CONTENT_TYPE, "application/x-ndjson")
                .body(lines.clone()),
        };
        let unreachable = |error: reqwest::Error| Failure::new(Cause::Away, root_cause(&error));
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let retry_after = retry_after(&response);
        let bytes = read(response).await?;
        let json: Option<Value> = serde_json::from_slice(&bytes).ok();
        if status.is_success() {
            return json.ok_or_else(|| Failure::answer("JSON"));
        }
        let json = json.unwrap_or_default();
        let failure = match self.product {
            ExternalProduct::Qdrant => Failure::of_qdrant(status, &json["status"]["error"]),
            _ => Failure::of_status(status, &json["error"]),
        };
        Err(Failure {
            retry_after,
            ..failure
        })
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

async fn read(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= MAX_ANSWER_BYTES => {
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                let reason = format!(
                    "its answer has more than {} MiB; ask for fewer candidates",
                    MAX_ANSWER_BYTES >> 20
                );
                return Err(Failure {
                    is_too_large: true,
                    ..Failure::new(Cause::Answer, reason)
                });
            }
            Ok(None) => return Ok(bytes),
            Err(error) => return Err(Failure::new(Cause::Away, root_cause(&error))),
        }
    }
}
