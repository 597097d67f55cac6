//! Sends single requests to an endpoint, and says what went wrong with one.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, Url};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::answer::{Answer, Unusable, excerpt};
use toolscout_base::breaker::Failing;
use toolscout_base::config::{ApiKey, EndpointSettings, masked};
use toolscout_base::tls::{is_loopback, root_cause};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections are closed after this much rest. Many servers close them after 5 seconds, and a
/// request that is sent just then is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 4 << 10;
/// Bytes of a body besides its vectors, and of one number in it.
const MAX_FRAME_BYTES: usize = 64 << 10;
const MAX_NUMBER_BYTES: usize = 32;
/// The length that vectors of an unknown model may have.
const MAX_UNKNOWN_DIMENSIONS: usize = 16_384;

/// One model behind an address.
pub struct Client {
    http: reqwest::Client,
    url: Url,
    model: String,
    key: Option<ApiKey>,
    /// Sent so that vectors get this length.
    requested_dimensions: Option<usize>,
    /// Model and address, for messages.
    shown: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// In words, without the endpoint's name.
    pub reason: String,
    /// True where the same request may succeed later.
    pub may_retry: bool,
    /// How long the endpoint asks to wait.
    pub retry_after: Option<Duration>,
    /// True where the endpoint works and refuses this request for its content.
    pub is_about_request: bool,
    /// True where only the length of the vectors is another one.
    pub is_other_length: bool,
}

impl Failure {
    /// Another attempt may succeed.
    pub fn passing(reason: String) -> Self {
        Failure {
            may_retry: true,
            ..Failure::unusable(reason)
        }
    }

    /// Another attempt would fail alike.
    pub fn unusable(reason: String) -> Self {
        Failure {
            reason,
            may_retry: false,
            retry_after: None,
            is_about_request: false,
            is_other_length: false,
        }
    }

    /// No answer within this time.
    pub fn timeout(limit: Duration) -> Self {
        Failure::passing(format!("it did not answer within {} ms", limit.as_millis()))
    }
}

impl Failing for Failure {
    fn reason(&self) -> &str {
        &self.reason
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn is_about_request(&self) -> bool {
        self.is_about_request
    }
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        Failure {
            is_other_length: unusable.is_other_length,
            ..Failure::unusable(unusable.reason)
        }
    }
}

impl Client {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn new(settings: &EndpointSettings, model: &str) -> Result<Self, String> {
        let url = embeddings_url(&settings.url)?;
        if let (Some(variable), None) = (&settings.key_env, &settings.key) {
            return Err(format!(
                "its key is missing: the variable {variable} is not set"
            ));
        }
        let mut builder = toolscout_base::tls::client()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            // A redirect would take texts and key to another address.
            .redirect(Policy::none());
        // A model on this machine is reached directly, even if the environment sets a proxy.
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| root_cause(&error))?;
        Ok(Client {
            http,
            model: model.to_owned(),
            key: settings.key.clone(),
            requested_dimensions: match settings.request_dimensions {
                true => settings.dimensions,
                false => None,
            },
            // The model is not known before the endpoint is asked for it.
            shown: format!("{model} at {}", masked(url.as_str()))
                .trim_start()
                .to_owned(),
            url,
        })
    }

    /// Model and address, for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Embeds texts by one request.
    ///
    /// # Errors
    /// Every [`Failure`].
    pub async fn embed(
        &self,
        texts: &[String],
        parameters: &Map<String, Value>,
        dimensions: Option<usize>,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        let body = self.body(texts, parameters);
        let length = dimensions.unwrap_or(MAX_UNKNOWN_DIMENSIONS);
        // As much as vectors of that length can take, so that no answer fills the memory.
        let max_bytes =
            MAX_FRAME_BYTES + texts.len() * (MAX_FRAME_BYTES / 64 + length * MAX_NUMBER_BYTES);
        let request = self.http.post(self.url.clone()).json(&body);
        let bytes = self.send(request, max_bytes, limit).await?;
        let shown = |body: &[u8]| self.without_key(body);
        Ok(Answer::read(&bytes, texts.len(), dimensions, &shown)?)
    }

    /// As [`Client::embed`], and at once a second time where the connection broke: the server may
    /// just have closed one that was at rest.
    ///
    /// # Errors
    /// Every [`Failure`].
    pub async fn embed_query(
        &self,
        texts: &[String],
        parameters: &Map<String, Value>,
        dimensions: usize,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        let first = self.embed(texts, parameters, Some(dimensions), limit).await;
        match first {
            Err(failure) if failure.reason.starts_with(BROKEN) => {
                self.embed(texts, parameters, Some(dimensions), limit).await
            }
            outcome => outcome,
        }
    }

    /// The name of the only model that the endpoint lists.
    ///
    /// # Errors
    /// A [`Failure`], also where it lists none or several.
    pub async fn only_model(&self, limit: Duration) -> Result<String, Failure> {
        let mut url = self.url.clone();
        let path = url.path().strip_suffix("/embeddings").unwrap_or_default();
        url.set_path(&format!("{path}/models"));
        let bytes = self
            .send(self.http.get(url), MAX_FRAME_BYTES * 16, limit)
            .await?;
        let listed: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let names: Vec<&str> = listed["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|model| model["id"].as_str())
            .collect();
        match names.as_slice() {
            [only] => Ok((*only).to_owned()),
            [] => Err(Failure::unusable(
                "it lists no models; name one, as in URL#MODEL or by `model`".into(),
            )),
            several => Err(Failure::unusable(format!(
                "it has several models; name one, as in URL#MODEL or by `model`: {}",
                excerpt(&self.without_key(several.join(", ").as_bytes()))
            ))),
        }
    }

    fn body(&self, texts: &[String], parameters: &Map<String, Value>) -> Value {
        // First, so that they cannot replace the fields that this client depends on.
        let mut body = parameters.clone();
        body.insert("model".into(), self.model.clone().into());
        body.insert("input".into(), texts.into());
        if let Some(dimensions) = self.requested_dimensions {
            body.insert("dimensions".into(), dimensions.into());
        }
        Value::Object(body)
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        max_bytes: usize,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let request = match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        };
        let exchange = async {
            let response = request.send().await.map_err(|error| unreachable(&error))?;
            if !response.status().is_success() {
                return Err(self.refused(response).await);
            }
            read(response, max_bytes).await
        };
        match timeout(limit, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::timeout(limit)),
        }
    }

    /// The text of an answer that is to be shown. Some endpoints repeat the key that they refuse.
    fn without_key(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        match &self.key {
            // Before anything is cut, which could leave a part of the key.
            Some(key) => text.replace(key.expose(), "…"),
            None => text.into_owned(),
        }
    }

    /// The failure of an answer that is no success.
    async fn refused(&self, mut response: Response) -> Failure {
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BYTES - body.len())]);
        }
        let words = words_of_error(&self.without_key(&body));
        let busy = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => true,
            status => status.is_server_error(),
        };
        let reason = match words.as_str() {
            "" => format!("it answered {}", status.as_u16()),
            words => format!("it answered {}: {words}", status.as_u16()),
        };
        Failure {
            may_retry: busy,
            retry_after,
            // The endpoint works, so other requests must not be held back.
            is_about_request: matches!(status.as_u16(), 400 | 413 | 422),
            ..Failure::unusable(reason)
        }
    }
}

/// The address that texts are posted to: the base URL with `/embeddings`, and with `/v1` where it
/// has no path, as that of Ollama.
fn embeddings_url(base: &str) -> Result<Url, String> {
    if !base.contains("://") {
        return Err("its address must start with http:// or https://".into());
    }
    let mut url = Url::parse(base).map_err(|error| format!("its address is wrong: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{:?} is neither http nor https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its address has a password in it; use `key_env` for a key".into());
    }
    let path = match url.path().trim_end_matches('/') {
        "" => "/v1".to_owned(),
        path => path.to_owned(),
    };
    if !path.ends_with("/embeddings") {
        url.set_path(&format!("{path}/embeddings"));
    } else {
        url.set_path(&path);
    }
    url.set_fragment(None);
    Ok(url)
}

/// How the reason of a connection begins that broke in the middle.
const BROKEN: &str = "the connection broke";

fn unreachable(error: &reqwest::Error) -> Failure {
    let cause = root_cause(error);
    Failure::passing(if error.is_connect() {
        format!("it cannot be reached ({cause}); is it running?")
    } else {
        format!("{BROKEN} ({cause})")
    })
}

async fn read(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > max_bytes => {
                return Err(Failure::unusable(format!(
                    "its answer is longer than {max_bytes} bytes"
                )));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => {
                let cause = root_cause(&error);
                let read = body.len();
                return Err(Failure::passing(format!(
                    "{BROKEN} after {read} bytes of its answer ({cause})"
                )));
            }
        }
    }
}

/// Seconds only: the form with a date is rare, and needs clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The message in an error's body, else its beginning.
fn words_of_error(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let error = &json["error"];
    let message = error["message"].as_str().or(error.as_str());
    excerpt(message.unwrap_or(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_of_every_kind_lead_to_the_route() {
        for (base, expected) in [
            (
                "http://127.0.0.1:11434",
                "http://127.0.0.1:11434/v1/embeddings",
            ),
            ("http://h:1/", "http://h:1/v1/embeddings"),
            ("https://h/v1/", "https://h/v1/embeddings"),
            ("https://h/api/v3", "https://h/api/v3/embeddings"),
            (
                "https://h/d/m/embeddings?version=1",
                "https://h/d/m/embeddings?version=1",
            ),
        ] {
            assert_eq!(embeddings_url(base).unwrap().as_str(), expected);
        }
        for (base, expected) in [
            ("h:1", "must start with http://"),
            ("ftp://h", "neither http nor https"),
            ("http://user:word@h", "use `key_env`"),
            ("http://:80", "is wrong"),
        ] {
            let problem = embeddings_url(base).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn a_wait_is_read_in_seconds() {
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("0.5"), Some(Duration::from_millis(500)));
        for text in ["-1", "soon", "1e300"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }
}
