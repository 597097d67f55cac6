//! The client for models behind HTTP, in any of the APIs that they have.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use crate::llm::provider::{OLLAMA_PORT, WORDS};
use crate::llm::stream::{MAX_EVENT_BYTES, ReplyDecoder};
use crate::llm::{
    Api, ChatModel, ChatRequest, Delta, DeltaStream, LlmError, ToolChoice, context_length,
    text_excerpt,
};
use toolscout_base::clock::millis;
use toolscout_base::known_secrets;
use toolscout_base::long_work;
use toolscout_base::tls::{is_loopback, root_cause};

/// Longest wait before an attempt, whatever the server's `Retry-After` says.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(20);
/// Bytes of an error body that are read.
const MAX_ERROR_BODY_BYTES: usize = 4 << 10;
/// The longest answer in events.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The endpoint of a model, and its timeouts.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Base URL, including `/v1` if the server has it.
    pub base_url: String,
    /// The API that is spoken there.
    pub api: Api,
    /// The model's name on the server.
    pub model: String,
    /// The key, if the server wants one.
    pub api_key: Option<String>,
    /// Further fields of the request body (`temperature`, `max_tokens`, ...).
    pub parameters: Map<String, Value>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the first token; small machines need minutes for a long prompt.
    pub first_token_timeout: Duration,
    /// Longest silence between two tokens.
    pub idle_timeout: Duration,
    /// Maximum number of attempts. Requests are retried after a status 429 or 5xx, or if no
    /// connection can be made.
    pub max_attempts: u32,
    /// Wait before the second attempt; it doubles each time.
    pub backoff: Duration,
    /// Whether a status 429 is waited for here. One who sends many requests at once waits with all of
    /// them.
    pub waits_for_limits: bool,
}

impl EndpointConfig {
    /// The defaults for a model at this base URL, with the API of OpenAI.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        EndpointConfig {
            base_url: base_url.into(),
            api: Api::OpenAi,
            model: model.into(),
            api_key: None,
            parameters: Map::new(),
            connect_timeout: Duration::from_secs(5),
            first_token_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(60),
            // With this backoff the waits are 0.5 s and 1 s.
            max_attempts: 3,
            backoff: Duration::from_millis(500),
            waits_for_limits: true,
        }
    }
}

impl fmt::Debug for EndpointConfig {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointConfig({} at {})", self.model, self.base_url)
    }
}

/// A client for one model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: Client,
    url: Url,
    config: EndpointConfig,
}

impl Endpoint {
    /// Creates a client without connecting.
    ///
    /// # Errors
    /// [`LlmError::InvalidUrl`].
    pub fn new(config: EndpointConfig) -> Result<Self, LlmError> {
        // `localhost:8080` would be read as a URL with the scheme `localhost`.
        if !config.base_url.contains("://") {
            let reason = format!("start it with http:// or https://, or name {WORDS}");
            return Err(invalid_url(&config, reason));
        }
        if let Some(key) = &config.api_key {
            known_secrets::add(key);
        }
        let url = Url::parse(&config.api.address(&config.base_url));
        let url = url.map_err(|error| invalid_url(&config, error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            let reason = format!("{:?} is neither http nor https", url.scheme());
            return Err(invalid_url(&config, reason));
        }
        // No timeout for the whole answer, since a long one streams for minutes. `DeltaReader`
        // limits the silence between two tokens, and the agent the whole turn.
        let mut builder = toolscout_base::tls::client().connect_timeout(config.connect_timeout);
        // A local model is reached directly, even if the environment sets a proxy.
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build();
        let client = client.map_err(|error| invalid_url(&config, error.to_string()))?;
        Ok(Endpoint {
            client,
            url,
            config,
        })
    }

    /// Whether the server obeys `tool_choice`. Ollama ignores it, so a model there would go on
    /// calling tools.
    fn knows_tool_choice(&self) -> bool {
        self.config.api != Api::Ollama && self.url.port() != Some(OLLAMA_PORT)
    }

    /// Sends the request until it succeeds, attempts are used up, or a retry cannot help.
    async fn send_with_retries(&self, body: &Value) -> Result<Response, LlmError> {
        let mut attempt = 1;
        loop {
            let failed = match self.send(body, attempt).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if !failed.may_retry || attempt >= self.config.max_attempts {
                return Err(failed.error);
            }
            let backoff = self.config.backoff * 2u32.saturating_pow(attempt - 1);
            sleep(failed.retry_after.unwrap_or(backoff).min(MAX_RETRY_WAIT)).await;
            attempt += 1;
        }
    }

    async fn send(&self, body: &Value, attempt: u32) -> Result<Response, FailedRequest> {
        let mut request = self.client.post(self.url.clone()).json(body);
        for (name, value) in self.config.api.headers(self.config.api_key.as_deref()) {
            request = request.header(name, value);
        }
        let limit = self.config.first_token_timeout;
        let response = match timeout(limit, request.send()).await {
            // Not retried: the model may still be busy with the prompt.
            Err(_) => {
                return Err(FailedRequest {
                    error: timed_out("before the first token", limit),
                    may_retry: false,
                    retry_after: None,
                });
            }
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.status_error(response, attempt).await)
    }

    fn unreachable(&self, error: &reqwest::Error) -> FailedRequest {
        let reason = root_cause(error);
        let error = LlmError::Unreachable {
            url: self.url.to_string(),
            reason,
        };
        FailedRequest {
            error,
            // A completion changes nothing at the provider, so sending it twice is harmless.
            may_retry: true,
            retry_after: None,
        }
    }

    async fn status_error(&self, mut response: Response, attempts: u32) -> FailedRequest {
        let status = response.status();
        let retry_after = retry_after(&response);
        // An error page that never ends must not hold up the turn.
        let read = read_up_to(&mut response, MAX_ERROR_BODY_BYTES);
        let body = timeout(self.config.idle_timeout, read).await;
        let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
        let message = text_excerpt(&body);
        // Some servers answer it with a status of their own making, or with 500.
        if let Some(refused) = context_length::refusal(&body, &message) {
            return FailedRequest {
                error: refused.with_endpoint(self.url.as_str()),
                may_retry: false,
                retry_after: None,
            };
        }
        FailedRequest {
            error: LlmError::Status {
                url: self.url.to_string(),
                status: status.as_u16(),
                attempts,
                body: message,
                retry_after,
            },
            may_retry: match status.as_u16() {
                429 => self.config.waits_for_limits,
                _ => status.is_server_error(),
            },
            retry_after,
        }
    }
}

#[async_trait]
impl ChatModel for Endpoint {
    fn name(&self) -> &str {
        &self.config.model
    }

    async fn stream(&self, mut request: ChatRequest) -> Result<DeltaStream, LlmError> {
        let config = &self.config;
        if request.tool_choice == ToolChoice::None && !self.knows_tool_choice() {
            request.tools.clear();
        }
        let body = config.api.body(&request, &config.model, &config.parameters);
        let mut response = self.send_with_retries(&body).await?;
        // Some servers ignore `stream` and send the whole answer as JSON.
        if is_json(&response) {
            let whole = read_up_to(&mut response, MAX_EVENT_BYTES).await;
            let deltas = long_work::read(whole.len(), || {
                ReplyDecoder::new(config.api).whole(&String::from_utf8_lossy(&whole))
            });
            return match deltas.await {
                Ok(deltas) => Ok(Box::pin(stream::iter(deltas.into_iter().map(Ok)))),
                Err(error) => Err(error.with_endpoint(self.url.as_str())),
            };
        }
        let reader = DeltaReader::new(response, self);
        Ok(Box::pin(stream::unfold(Some(reader), next_delta)))
    }
}

async fn next_delta(
    reader: Option<DeltaReader>,
) -> Option<(Result<Delta, LlmError>, Option<DeltaReader>)> {
    let mut reader = reader?;
    match reader.next().await {
        Ok(None) => None,
        Ok(Some(delta)) => Some((Ok(delta), Some(reader))),
        // Without a reader the next poll ends the stream.
        Err(error) => Some((Err(error.with_endpoint(reader.url.as_str())), None)),
    }
}

/// The error of an attempt, and whether another one may help.
struct FailedRequest {
    error: LlmError,
    may_retry: bool,
    retry_after: Option<Duration>,
}

/// Reads deltas from a response.
struct DeltaReader {
    url: Url,
    response: Response,
    bytes_read: usize,
    decoder: ReplyDecoder,
    ready: VecDeque<Delta>,
    ended: bool,
    limit: Duration,
    idle_timeout: Duration,
}

impl DeltaReader {
    fn new(response: Response, model: &Endpoint) -> Self {
        DeltaReader {
            url: model.url.clone(),
            response,
            bytes_read: 0,
            decoder: ReplyDecoder::new(model.config.api),
            ready: VecDeque::new(),
            ended: false,
            limit: model.config.first_token_timeout,
            idle_timeout: model.config.idle_timeout,
        }
    }

    async fn next(&mut self) -> Result<Option<Delta>, LlmError> {
        while self.ready.is_empty() && !self.ended {
            self.read().await?;
        }
        Ok(self.ready.pop_front())
    }

    async fn read(&mut self) -> Result<(), LlmError> {
        let chunk = match timeout(self.limit, self.response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => {
                let reason = root_cause(&error);
                return Err(LlmError::CutOff { reason });
            }
            Err(_) => return Err(timed_out("in mid-answer", self.limit)),
        };
        let deltas = match chunk {
            Some(bytes) => {
                self.bytes_read += bytes.len();
                if self.bytes_read > MAX_ANSWER_BYTES {
                    let reason = format!("it has more than {MAX_ANSWER_BYTES} bytes");
                    return Err(LlmError::CutOff { reason });
                }
                let held = self.decoder.held_bytes() + bytes.len();
                long_work::read(held, || self.decoder.push(&bytes)).await?
            }
            None => {
                self.ended = true;
                let held = self.decoder.held_bytes();
                long_work::read(held, || self.decoder.finish()).await?
            }
        };
        // From the first token on the shorter limit applies.
        if !deltas.is_empty() {
            self.limit = self.idle_timeout;
        }
        self.ready.extend(deltas);
        Ok(())
    }
}

fn invalid_url(config: &EndpointConfig, reason: String) -> LlmError {
    LlmError::InvalidUrl {
        url: config.base_url.clone(),
        reason,
    }
}

/// How long the server asks to wait, in seconds. The other form, a date, is not read.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(text.parse().ok()?))
}

fn timed_out(stage: &'static str, limit: Duration) -> LlmError {
    LlmError::Timeout {
        stage,
        waited_ms: millis(limit),
    }
}

async fn read_up_to(response: &mut Response, max_bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(max_bytes - body.len())]);
        if body.len() == max_bytes {
            break;
        }
    }
    body
}

fn is_json(response: &Response) -> bool {
    match response
        .headers()
        .get(CONTENT_TYPE)
        .map(HeaderValue::to_str)
    {
        Some(Ok(content_type)) => content_type.starts_with("application/json"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{StreamExt, TryStreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

    /// [`HELLO`] up to the middle of its second event.
    fn half() -> &'static str {
        &HELLO[..HELLO.find("\"lo\"").unwrap()]
    }

    /// A server that gives each connection the next answer, repeating the last one, and counts the
    /// connections. An answer that ends in `HOLD` keeps its connection open.
    async fn server(answers: &[&str]) -> (EndpointConfig, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|text| (*text).to_owned()).collect();
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let answer = &answers[count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
                let mut request = [0; 16384];
                let _ = socket.read(&mut request).await.unwrap();
                socket
                    .write_all(answer.trim_end_matches("HOLD").as_bytes())
                    .await
                    .unwrap();
                if answer.ends_with("HOLD") {
                    held.push(socket);
                }
            }
        });
        let mut config = EndpointConfig::new(url, "m");
        config.backoff = Duration::from_millis(1);
        (config, served)
    }

    /// A server that repeats a text without end.
    async fn endless(text: &'static str) -> EndpointConfig {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 16384];
            let _ = socket.read(&mut request).await.unwrap();
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            let text = text.repeat((64 << 10) / text.len());
            while socket.write_all(text.as_bytes()).await.is_ok() {}
        });
        EndpointConfig::new(url, "m")
    }

    #[tokio::test]
    async fn an_answer_without_end_is_cut_off() {
        for text in [
            ": a comment\n\n",
            "data: {\"choices\":[{\"delta\":{}}]}\n\n",
            "data: {\"choices\":[]}\n\n",
            "event: ping\n\n",
            "x",
        ] {
            let error = ask(endless(text).await).await.unwrap_err();
            let said = error.to_string();
            let is_bounded = matches!(error, LlmError::CutOff { .. } | LlmError::Malformed { .. });
            assert!(is_bounded && said.contains("bytes"), "{text:?}: {said}");
        }
    }

    async fn ask(config: EndpointConfig) -> Result<Vec<Delta>, LlmError> {
        Endpoint::new(config)?
            .stream(ChatRequest::default())
            .await?
            .try_collect()
            .await
    }

    fn text_of(deltas: &[Delta]) -> String {
        deltas
            .iter()
            .map(|delta| {
                if let Delta::Text(text) = delta {
                    text.as_str()
                } else {
                    ""
                }
            })
            .collect()
    }

    #[tokio::test]
    async fn a_stream_is_decoded_to_deltas() {
        let (config, _) = server(&[HELLO]).await;
        assert_eq!(text_of(&ask(config).await.unwrap()), "hello");
    }

    #[tokio::test]
    async fn requests_to_busy_servers_are_retried_and_rejected_requests_are_not() {
        let busy =
            "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 4\r\n\r\nbusy";
        let broken = "HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n";
        let (config, served) = server(&[busy, broken, HELLO]).await;
        assert_eq!(text_of(&ask(config).await.unwrap()), "hello");
        assert_eq!(served.load(Ordering::SeqCst), 3);

        let (config, served) =
            server(&["HTTP/1.1 400 Bad Request\r\ncontent-length: 8\r\n\r\nno model"]).await;
        let message = ask(config).await.unwrap_err().to_string();
        assert!(
            message.contains("answered 400 after 1 attempt: no model"),
            "{message}"
        );
        assert_eq!(served.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_limit_is_reported_at_once_to_one_who_waits_with_all_requests() {
        for (header, expected) in [
            ("retry-after: 7\r\n", Some(Duration::from_secs(7))),
            ("retry-after: soon\r\n", None),
            ("", None),
        ] {
            let busy = format!("HTTP/1.1 429 Busy\r\n{header}content-length: 4\r\n\r\nbusy");
            let (mut config, served) = server(&[&busy]).await;
            config.waits_for_limits = false;
            let error = ask(config).await.unwrap_err();
            let LlmError::Status { retry_after, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(retry_after, expected);
            assert_eq!(served.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn attempts_are_bounded() {
        let (config, served) = server(&["HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"]).await;
        assert!(matches!(
            ask(config).await.unwrap_err(),
            LlmError::Status {
                status: 500,
                attempts: 3,
                ..
            }
        ));
        assert_eq!(served.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_stream_that_is_cut_off_is_not_retried() {
        let (config, served) = server(&[half()]).await;
        let model = Endpoint::new(config).unwrap();
        let mut stream = model.stream(ChatRequest::default()).await.unwrap();
        assert_eq!(
            stream.next().await.unwrap().unwrap(),
            Delta::Text("hel".into())
        );
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(matches!(error, LlmError::CutOff { .. }), "{error}");
        assert!(stream.next().await.is_none());
        assert_eq!(served.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn timeouts_apply_before_and_after_the_first_token() {
        let (mut config, _) = server(&["HOLD"]).await;
        config.first_token_timeout = Duration::from_millis(20);
        assert!(matches!(
            ask(config).await.unwrap_err(),
            LlmError::Timeout {
                stage: "before the first token",
                ..
            }
        ));

        let (mut config, _) = server(&[&format!("{}HOLD", half())]).await;
        config.idle_timeout = Duration::from_millis(20);
        assert!(matches!(
            ask(config).await.unwrap_err(),
            LlmError::Timeout {
                stage: "in mid-answer",
                ..
            }
        ));
    }

    #[tokio::test]
    async fn an_answer_without_streaming_is_accepted() {
        let body = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (config, _) = server(&[&answer]).await;
        assert_eq!(text_of(&ask(config).await.unwrap()), "whole");
    }

    #[tokio::test]
    async fn unreachable_servers_and_invalid_urls_are_reported() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = EndpointConfig::new(format!("http://{}", free.local_addr().unwrap()), "m");
        config.backoff = Duration::from_millis(1);
        drop(free);
        assert!(
            ask(config)
                .await
                .unwrap_err()
                .to_string()
                .contains("is it running")
        );
        for (url, reason) in [
            ("127.0.0.1:1", "start it with http://"),
            ("http://:80", "empty host"),
            ("file:///etc", "neither http nor https"),
        ] {
            let error = Endpoint::new(EndpointConfig::new(url, "m")).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
