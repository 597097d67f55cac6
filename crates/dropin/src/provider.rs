//! The model's provider: where it is, what it is sent, and how long it may take.

pub mod answer_bounds;
pub mod counting;
pub mod passed_request;
pub mod upstream;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use tokio::time::timeout;

use crate::DropInRequest;
use crate::provider::answer_bounds::HeldAnswer;
use crate::provider::passed_request::{PassedRequest, ProviderKey};
use crate::provider::upstream::Upstream;
use crate::wire::failure::Failure;
use toolscout_base::clock::millis;
use toolscout_base::known_secrets;
use toolscout_base::media_type::{is_json, without_parameters};
use toolscout_base::tls::{is_loopback, root_cause};
use toolscout_gate::llm::LlmError;

/// Headers of a client that the provider gets.
const REQUEST_HEADERS: [&str; 11] = [
    "accept",
    "amz-sdk-invocation-id",
    "content-type",
    "http-referer",
    "idempotency-key",
    "user-agent",
    "x-client-request-id",
    "x-goog-api-client",
    "x-goog-user-project",
    "x-request-id",
    "x-title",
];
/// Headers of the provider that a client gets.
const RESPONSE_HEADERS: [&str; 11] = [
    "apim-request-id",
    "cache-control",
    "content-type",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "x-accel-buffering",
    "x-amzn-errortype",
    "x-amzn-requestid",
    "x-request-id",
    "x-should-retry",
];
/// Beginnings of the names of further headers that pass both ways.
const PASSED_BOTH_WAYS: [&str; 5] = [
    "anthropic-",
    "openai-",
    "x-amzn-bedrock-",
    "x-ratelimit-",
    "x-stainless-",
];
/// The type of a stream of AWS.
pub const AWS_EVENTS: &str = "application/vnd.amazon.eventstream";

/// How long an idle connection to the provider is kept.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// Where a provider is, and how long it may take.
#[derive(Clone)]
pub struct ProviderConfig {
    /// The base URL of the OpenAI dialects, including `/v1`.
    pub base_url: String,
    /// Its key.
    pub key: Option<String>,
    /// The base URL of the Anthropic dialect, where it is another.
    pub messages_url: Option<String>,
    /// Its key.
    pub messages_key: Option<String>,
    /// The providers of further APIs.
    pub others: BTreeMap<Upstream, OtherProvider>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the beginning of a streamed answer.
    pub first_token_timeout: Duration,
    /// Longest silence within an answer.
    pub idle_timeout: Duration,
    /// Longest wait for an answer that comes whole.
    pub whole_timeout: Duration,
}

impl ProviderConfig {
    /// The defaults for a provider at this base URL: the waits of the agent's model.
    pub fn new(base_url: impl Into<String>) -> Self {
        let waits = toolscout_gate::llm::EndpointConfig::new("", "");
        ProviderConfig {
            base_url: base_url.into(),
            key: None,
            messages_url: None,
            messages_key: None,
            others: BTreeMap::new(),
            connect_timeout: waits.connect_timeout,
            first_token_timeout: waits.first_token_timeout,
            idle_timeout: waits.idle_timeout,
            whole_timeout: Duration::from_secs(600),
        }
    }
}

/// Where the provider of a further API is.
#[derive(Clone)]
pub struct OtherProvider {
    /// Its base URL.
    pub base_url: String,
    /// Its key.
    pub key: Option<String>,
}

impl fmt::Debug for ProviderConfig {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderConfig({})", self.base_url)
    }
}

/// A client of the provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Provider {
    client: Client,
    config: ProviderConfig,
    services: BTreeMap<Upstream, Service>,
}

/// A service that requests go to.
#[derive(Clone)]
struct Service {
    base: Url,
    key: Option<String>,
}

impl fmt::Debug for Service {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({})", self.base)
    }
}

impl Service {
    fn new(url: &str, key: Option<&String>) -> Result<Self, LlmError> {
        if let Some(key) = key {
            known_secrets::add(key);
        }
        Ok(Service {
            base: base_of(url)?,
            key: key.cloned(),
        })
    }
}

impl Provider {
    /// Creates a client without connecting.
    ///
    /// # Errors
    /// For a base URL that cannot be used.
    pub fn new(config: ProviderConfig) -> Result<Self, LlmError> {
        let mut services = BTreeMap::new();
        let main = Service::new(&config.base_url, config.key.as_ref())?;
        services.insert(Upstream::Main, main);
        if let Some(url) = &config.messages_url {
            // The key of one provider is not shown to another.
            let messages = Service::new(url, config.messages_key.as_ref())?;
            services.insert(Upstream::Messages, messages);
        }
        for (upstream, OtherProvider { base_url, key }) in &config.others {
            services.insert(*upstream, Service::new(base_url, key.as_ref())?);
        }
        let mut builder = toolscout_base::tls::client()
            .connect_timeout(config.connect_timeout)
            // Less than servers usually wait before they close an idle connection.
            .pool_idle_timeout(POOL_IDLE)
            // A redirected request would be sent without its body, or with its key to another host.
            .redirect(reqwest::redirect::Policy::none());
        // A proxy of the environment would look for the provider on its own machine.
        if services.values().all(|service| is_loopback(&service.base)) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| LlmError::InvalidUrl {
            url: config.base_url.clone(),
            reason: error.to_string(),
        })?;
        Ok(Provider {
            client,
            config,
            services,
        })
    }

    /// Whether requests can go to this service.
    pub fn has(&self, upstream: Upstream) -> bool {
        self.service(upstream).is_ok()
    }

    /// The addresses of providers on other machines for which there is no key.
    pub fn keyless_addresses(&self) -> Vec<String> {
        let mut keyless = Vec::new();
        for service in self.services.values() {
            // Few providers on this machine need keys.
            if service.key.is_none() && !is_loopback(&service.base) {
                keyless.push(service.base.origin().ascii_serialization());
            }
        }
        keyless
    }

    /// Sends a request, and waits for the beginning of the answer. `query` is that of the address.
    ///
    /// # Errors
    /// Where none begins. An answer with an error status is an answer.
    pub async fn send(
        &self,
        request: &DropInRequest,
        query: Option<&str>,
        body: Bytes,
        streams: bool,
    ) -> Result<Response, Failure> {
        let limit = self.limit(streams);
        self.post(request, &request.target.path, query, body, limit)
            .await
    }

    /// Asks how many tokens a request has.
    ///
    /// # Errors
    /// As [`Provider::send`].
    pub async fn count(&self, request: &DropInRequest, body: Bytes) -> Result<Response, Failure> {
        let limit = self.config.first_token_timeout;
        let path = request.dialect.counting_path(&request.target.path);
        self.post(request, &path, request.query.as_deref(), body, limit)
            .await
    }

    async fn post(
        &self,
        request: &DropInRequest,
        path: &str,
        query: Option<&str>,
        body: Bytes,
        limit: Duration,
    ) -> Result<Response, Failure> {
        let upstream = request.target.upstream;
        let service = self.service(upstream)?;
        let mut url = join(&service.base, path);
        url.set_query(query);
        let headers = headers(upstream, service, &request.headers, &request.key);
        let sending = self.client.request(Method::POST, url).headers(headers);
        let address = service.base.origin().ascii_serialization();
        self.answered(sending.body(body), limit, &address).await
    }

    /// Passes a request on as it came, and waits for the beginning of the answer.
    ///
    /// # Errors
    /// As [`Provider::send`].
    pub async fn pass_on(
        &self,
        request: &PassedRequest,
        limit: Duration,
    ) -> Result<Response, Failure> {
        let upstream = request.upstream;
        let service = self.service(upstream)?;
        let mut url = join(&service.base, &request.path);
        url.set_query(request.query.as_deref());
        let headers = headers(upstream, service, &request.headers, &request.key);
        let address = service.base.origin().ascii_serialization();
        let mut sending = self.client.request(request.method.clone(), url);
        if let Some(body) = &request.body {
            sending = sending.body(body.clone());
        }
        self.answered(sending.headers(headers), limit, &address)
            .await
    }

    /// Longest wait for the answer to a short question.
    pub fn short_wait(&self) -> Duration {
        self.config.first_token_timeout
    }

    /// Longest wait for an answer that comes whole.
    pub fn long_wait(&self) -> Duration {
        self.config.whole_timeout
    }

    /// The next bytes of an answer; `None` at its end.
    ///
    /// # Errors
    /// When it is cut off, and after the longest silence.
    pub async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Failure> {
        let limit = self.config.idle_timeout;
        match timeout(limit, response.chunk()).await {
            Err(_) => Err(Failure::timed_out(millis(limit))),
            Ok(Err(error)) => Err(Failure::cut_off(&root_cause(&error))),
            Ok(Ok(chunk)) => Ok(chunk),
        }
    }

    /// A whole answer of at most this many bytes.
    ///
    /// # Errors
    /// As [`Provider::chunk`], and for a longer one.
    pub async fn whole(&self, response: &mut Response, most: usize) -> Result<Bytes, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(response).await? {
            if body.len() + chunk.len() > most {
                return Err(Failure::malformed(
                    &format!("it has more than {most} bytes"),
                    "",
                ));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.into())
    }

    /// A whole answer, held until its exchange ends.
    ///
    /// # Errors
    /// As [`Provider::chunk`], and for one that is too long.
    pub(super) async fn held(
        &self,
        response: &mut Response,
        held: &mut HeldAnswer,
    ) -> Result<Bytes, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(response).await? {
            held.add(&chunk)?;
            body.extend_from_slice(&chunk);
        }
        Ok(body.into())
    }

    async fn answered(
        &self,
        request: reqwest::RequestBuilder,
        limit: Duration,
        address: &str,
    ) -> Result<Response, Failure> {
        // A provider may close a connection that was idle just when it is used again.
        let again = request.try_clone();
        let sending = async {
            match (request.send().await, again) {
                (Err(error), Some(again)) if was_closed(&error) => again.send().await,
                (sent, _) => sent,
            }
        };
        match timeout(limit, sending).await {
            Err(_) => Err(Failure::timed_out(millis(limit))),
            Ok(Err(error)) => Err(Failure::unreachable(address, &root_cause(&error))),
            Ok(Ok(response)) => Ok(response),
        }
    }

    fn service(&self, upstream: Upstream) -> Result<&Service, Failure> {
        let service = self.services.get(&upstream);
        // Many servers have both APIs at one base URL.
        let service = match upstream {
            Upstream::Messages => service.or(self.services.get(&Upstream::Main)),
            _ => service,
        };
        service.ok_or_else(|| {
            let flag = upstream.flag();
            let message =
                format!("this server has no provider of this API; start it with {flag} URL");
            Failure::new(503, "no_model", message)
        })
    }

    fn limit(&self, streams: bool) -> Duration {
        if streams {
            self.config.first_token_timeout
        } else {
            self.config.whole_timeout
        }
    }
}

/// The headers of a request to a service: those of the client that it may see, and the key.
fn headers(
    upstream: Upstream,
    service: &Service,
    given: &HeaderMap,
    key: &ProviderKey,
) -> HeaderMap {
    let mut headers = passed(given, &REQUEST_HEADERS);
    match (key, &service.key) {
        (ProviderKey::OfClient(given), _) | (ProviderKey::OfServerElseClient(given), None) => {
            headers.extend(upstream.credentials(given));
        }
        (ProviderKey::OfServer, None) => {}
        (ProviderKey::OfServer | ProviderKey::OfServerElseClient(_), Some(key)) => {
            headers.extend(upstream.key_header(key));
        }
    }
    headers
}

/// The headers of the provider's answer that the client gets.
pub fn response_headers(given: &HeaderMap) -> HeaderMap {
    let mut headers = passed(given, &RESPONSE_HEADERS);
    if let Some(content_type) = headers.get(CONTENT_TYPE) {
        let content_type = content_type_of_an_api(content_type);
        headers.insert(CONTENT_TYPE, content_type);
    }
    headers
}

/// The content type of a file that the provider keeps, if no browser shows it as a page.
pub fn content_type_of_a_file(given: &HeaderMap) -> Option<HeaderValue> {
    let given = given.get(CONTENT_TYPE)?;
    let text = without_parameters(given.to_str().ok()?).to_ascii_lowercase();
    let is_file = matches!(
        text.as_str(),
        "application/octet-stream" | "application/binary" | "application/x-jsonl"
    );
    is_file.then(|| given.clone())
}

/// The content type, if APIs answer with it. A browser would show other types as pages of this
/// server, so they become plain text.
fn content_type_of_an_api(given: &HeaderValue) -> HeaderValue {
    let text = given.to_str().unwrap_or_default();
    match without_parameters(text).to_ascii_lowercase().as_str() {
        "application/json" | "text/event-stream" | "text/plain" | AWS_EVENTS => given.clone(),
        other if is_json(other) => HeaderValue::from_static("application/json"),
        _ => HeaderValue::from_static("text/plain; charset=utf-8"),
    }
}

fn passed(given: &HeaderMap, names: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let text = name.as_str();
        let mut beginnings = PASSED_BOTH_WAYS.iter();
        if names.contains(&text) || beginnings.any(|beginning| text.starts_with(beginning)) {
            // Added, because some headers come several times.
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

fn base_of(text: &str) -> Result<Url, LlmError> {
    let invalid = |reason: String| LlmError::InvalidUrl {
        url: text.to_owned(),
        reason,
    };
    let url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(invalid(format!("{scheme:?} is neither http nor https"))),
    }
}

fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

/// Whether a connection ended before any byte of an answer.
fn was_closed(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_canceled())
        {
            return true;
        }
        if let Some(error) = current.downcast_ref::<io::Error>()
            && matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            )
        {
            return true;
        }
        cause = current.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    #[test]
    fn headers_of_the_api_pass_and_credentials_do_not() {
        let mut given = HeaderMap::new();
        for name in [
            "anthropic-version",
            "openai-organization",
            "authorization",
            "x-api-key",
            "cookie",
            "connection",
            "x-toolscout-defer",
            "host",
        ] {
            given.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        let passed = passed(&given, &REQUEST_HEADERS);
        let names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(passed.contains_key("anthropic-version"));
    }

    #[test]
    fn only_content_types_of_apis_pass() {
        for (given, passed) in [
            (
                "application/json; charset=utf-8",
                "application/json; charset=utf-8",
            ),
            ("Text/Event-Stream", "Text/Event-Stream"),
            ("text/plain", "text/plain"),
            ("application/problem+json", "application/json"),
            ("text/html", "text/plain; charset=utf-8"),
            ("text/html;application/json", "text/plain; charset=utf-8"),
            ("application/xhtml+xml", "text/plain; charset=utf-8"),
            ("image/svg+xml", "text/plain; charset=utf-8"),
            ("application/jsonp", "text/plain; charset=utf-8"),
            ("", "text/plain; charset=utf-8"),
        ] {
            let mut headers = HeaderMap::new();
            // The first would be read by one browser, and the last by another.
            headers.append(CONTENT_TYPE, HeaderValue::from_static(given));
            headers.append(CONTENT_TYPE, HeaderValue::from_static("text/html"));
            let headers = response_headers(&headers);
            let found: Vec<_> = headers.get_all(CONTENT_TYPE).iter().collect();
            assert_eq!(found, [passed], "{given}");
        }
    }

    #[test]
    fn each_provider_gets_its_own_key() {
        let key_for = |config: &ProviderConfig, upstream| {
            let provider = Provider::new(config.clone()).unwrap();
            let service = provider.service(upstream).unwrap();
            let headers = headers(upstream, service, &HeaderMap::new(), &ProviderKey::OfServer);
            let (name, value) = headers.iter().next()?;
            Some(format!("{name}: {}", value.to_str().unwrap()))
        };
        let mut config = ProviderConfig::new("http://h/v1");
        config.key = Some("k".into());
        let bearer = Some("authorization: Bearer k".to_owned());
        assert_eq!(key_for(&config, Upstream::Main), bearer);
        let own = Some("x-api-key: k".to_owned());
        assert_eq!(key_for(&config, Upstream::Messages), own);
        config.messages_url = Some("http://other/v1/".into());
        assert_eq!(key_for(&config, Upstream::Messages), None);
        let provider = Provider::new(config.clone()).unwrap();
        assert_eq!(provider.keyless_addresses(), ["http://other"]);
        let refused = provider.service(Upstream::Gemini).unwrap_err();
        assert!(refused.message.contains("--llm-gemini"), "{refused:?}");
        for (upstream, header) in [
            (Upstream::Gemini, "x-goog-api-key: o"),
            (Upstream::Azure, "api-key: o"),
            (Upstream::Bedrock, "authorization: Bearer o"),
        ] {
            let other = OtherProvider {
                base_url: "http://third".into(),
                key: Some("o".into()),
            };
            config.others.insert(upstream, other);
            assert_eq!(key_for(&config, upstream).unwrap(), header);
        }
        let local = ProviderConfig::new("http://127.0.0.1:11434/v1");
        let local = Provider::new(local).unwrap();
        assert_eq!(local.keyless_addresses(), Vec::<String>::new());
        let url = join(
            &provider.service(Upstream::Messages).unwrap().base,
            "/messages",
        );
        assert_eq!(url.as_str(), "http://other/v1/messages");
    }

    #[test]
    fn a_clients_own_key_goes_in_the_header_that_the_service_reads() {
        let mut given = HeaderMap::new();
        given.insert("api-key", HeaderValue::from_static("a"));
        given.insert("x-goog-api-key", HeaderValue::from_static("g"));
        let of = |upstream: Upstream| upstream.credentials(&given).len();
        assert_eq!((of(Upstream::Azure), of(Upstream::Gemini)), (1, 1));
        assert_eq!((of(Upstream::Messages), of(Upstream::Bedrock)), (0, 0));
        let main = Upstream::Main.credentials(&given);
        assert_eq!(main["authorization"], "Bearer a");
    }
}
