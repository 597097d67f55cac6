//! One connection to one server: the handshake, its list of tools, calls, and the end.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Url, redirect};
use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, ListToolsRequest,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, RequestId, ServerResult,
    SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, PeerRequestOptions,
    RoleClient, RunningService, ServiceError, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, ErrorData};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::mcp::config::{ServerConfig, Transport};
use crate::mcp::lines::Lines;
use crate::mcp::process::{LastWords, Process, Program};
use crate::mcp::watchdog::Watchdog;
use crate::mcp::{Limits, implementation};
use crate::printable::excerpt;
use crate::tools::Arguments;

/// Characters of what a server says that go into our own messages.
const QUOTED_CHARS: usize = 300;

/// What is said of a server that ended before it answered, however that was noticed.
const ENDED_EARLY: &str = "it ended before the handshake";

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ConnectError {
    reason: String,
    /// The server answered and does not know `initialize`.
    is_sessionless: bool,
}

/// Why there is no list of tools.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListError {
    /// It took too long.
    #[error("its list of tools did not end within {0:?}")]
    Timeout(Duration),
    /// It does not end.
    #[error("its list of tools {0}")]
    Endless(String),
    /// It is none, or the connection broke.
    #[error("its list of tools cannot be had: {0}")]
    Failed(String),
}

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No server of this name is configured.
    #[error("no MCP server {server:?} is connected here, so {tool} can be found but not called")]
    UnknownServer {
        /// The server.
        server: String,
        /// The tool's id.
        tool: String,
    },
    /// The server is down.
    #[error(
        "server {server} is not available: {reason}; it is being reconnected, try again later or use another tool"
    )]
    Unavailable {
        /// The server.
        server: String,
        /// Why, as far as it is known.
        reason: String,
    },
    /// The tool is not what was approved.
    #[error(
        "{tool} was blocked: its {what} changed after it was approved; a person has to look at it and accept it"
    )]
    Blocked {
        /// The tool's id.
        tool: String,
        /// The parts that changed.
        what: String,
    },
    /// It took too long.
    #[error("no result within {} s; try less at once, or go on without", .limit.as_secs_f64())]
    Timeout {
        /// The limit that was reached.
        limit: Duration,
    },
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server refused the call.
    #[error("{message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// The server's words.
        message: String,
    },
    /// The connection broke while the server worked on it. Whether it was carried out is not known.
    #[error(
        "server {server} went away during the call, which may or may not have been carried out: {reason}"
    )]
    Lost {
        /// The server.
        server: String,
        /// Why, as far as it is known.
        reason: String,
    },
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is done.
    pub done: f64,
    /// What there is to do, when it is known.
    pub total: Option<f64>,
    /// The server's words.
    pub message: Option<String>,
}

/// What a caller wants to hear during a call, and how it gives up.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// Gets the progress. A full queue loses some of it.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Ends the call, which the server is told.
    pub cancelled: CancellationToken,
}

/// A connection to a server.
pub struct Connection {
    server: Arc<str>,
    peer: Peer<RoleClient>,
    handler: Handler,
    stop: CancellationToken,
    /// Nothing comes through any more.
    ended: CancellationToken,
    /// The process behind it is gone too.
    closed: CancellationToken,
    last_words: LastWords,
    limits: Limits,
}

impl Connection {
    /// Connects by the handshake, or without one to servers that know none any more.
    ///
    /// # Errors
    /// [`ConnectError`] in words, with what the server said last.
    pub async fn open(
        config: &ServerConfig,
        limits: &Limits,
        watchdog: &Arc<Watchdog>,
    ) -> Result<Connection, ConnectError> {
        let first =
            Connection::attempt(config, limits, watchdog, ClientLifecycleMode::Initialize).await;
        match first {
            Err(error) if error.is_sessionless => {
                let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
                let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
                Connection::attempt(config, limits, watchdog, lifecycle)
                    .await
                    .map_err(|_| error)
            }
            outcome => outcome,
        }
    }

    async fn attempt(
        config: &ServerConfig,
        limits: &Limits,
        watchdog: &Arc<Watchdog>,
        lifecycle: ClientLifecycleMode,
    ) -> Result<Connection, ConnectError> {
        let server: Arc<str> = config.name.as_str().into();
        match &config.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                let program = Program {
                    server: &server,
                    command,
                    args,
                    env,
                    cwd: cwd.as_deref(),
                };
                let started = Process::start(&program, watchdog);
                let (process, stdout, stdin) = started
                    .map_err(|error| ConnectError::of(format!("start {command:?}: {error}")))?;
                let lines = Lines::new(stdout, Arc::clone(&server), limits.message_bytes);
                let transport = AsyncRwTransport::new_client(lines, stdin)
                    .with_max_line_length(limits.message_bytes);
                Opening {
                    server,
                    limits,
                    lifecycle,
                    process: Some(process),
                }
                .shake_hands(transport)
                .await
            }
            Transport::Http { url, headers } => {
                let transport = http_transport(url, headers, limits)?;
                Opening {
                    server,
                    limits,
                    lifecycle,
                    process: None,
                }
                .shake_hands(transport)
                .await
            }
        }
    }

    /// Waits for the list of tools to change, or to have changed since it was last waited for.
    pub async fn list_changed(&self) {
        self.handler.list_changed.notified().await;
    }

    /// Waits for the end of the connection, whoever ends it.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// False once nothing can come through any more.
    pub fn is_alive(&self) -> bool {
        !self.ended.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Why it ended, as far as it is known.
    pub fn epitaph(&self) -> String {
        with_last_words("the server ended the connection".into(), &self.last_words)
    }

    /// Ends the connection and what runs behind it; when this returns, it is gone.
    pub async fn close(&self) {
        self.stop.cancel();
        self.closed.cancelled().await;
    }

    /// Every tool, page by page, as the server describes it.
    ///
    /// # Errors
    /// [`ListError`] when the pages do not come, or do not end.
    pub async fn list_tools(&self) -> Result<Vec<Value>, ListError> {
        let offers_tools = self
            .peer
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some());
        if !offers_tools {
            return Ok(Vec::new());
        }
        let within = self.limits.list;
        timeout(within, self.all_pages())
            .await
            .map_err(|_| ListError::Timeout(within))?
    }

    async fn all_pages(&self) -> Result<Vec<Value>, ListError> {
        let (mut tools, mut bytes, mut cursor, mut seen) = (Vec::new(), 0, None, HashSet::new());
        for _ in 0..self.limits.pages {
            let (page, next) = self.page(cursor).await?;
            bytes += page
                .iter()
                .map(|tool| tool.to_string().len())
                .sum::<usize>();
            tools.extend(page);
            if tools.len() > self.limits.tools {
                return Err(ListError::Endless(format!(
                    "has more than {} entries",
                    self.limits.tools
                )));
            }
            if bytes > self.limits.list_bytes {
                return Err(ListError::Endless(format!(
                    "has more than {} bytes",
                    self.limits.list_bytes
                )));
            }
            let Some(next) = next else { return Ok(tools) };
            if !seen.insert(next.clone()) {
                return Err(ListError::Endless(format!(
                    "comes back to its page {:?}",
                    excerpt(&next, 60)
                )));
            }
            cursor = Some(next);
        }
        Err(ListError::Endless(format!(
            "has more than {} pages",
            self.limits.pages
        )))
    }

    async fn page(
        &self,
        cursor: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>), ListError> {
        let failed = |reason: String| ListError::Failed(reason);
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor;
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let answered = self
            .peer
            .send_request(request)
            .await
            .map_err(|error| failed(self.words(&error)))?;
        match answered {
            ServerResult::ListToolsResult(page) => {
                let tools = page
                    .tools
                    .iter()
                    .filter_map(|tool| serde_json::to_value(tool).ok());
                Ok((tools.collect(), page.next_cursor))
            }
            // A single tool that the SDK cannot read turns the whole page into this.
            ServerResult::CustomResult(page) => {
                read_page(page.0).ok_or_else(|| failed("the answer holds none".into()))
            }
            _ => Err(failed("the answer holds none".into())),
        }
    }

    /// Calls a tool by the name that the server itself has for it.
    ///
    /// Dropping the future, a time limit and the caller's cancellation all tell the server to stop.
    ///
    /// # Errors
    /// [`CallError`]. A tool's own failure is a result.
    pub async fn call(
        &self,
        name: &str,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::with_timeout(self.limits.call_idle)
            .reset_timeout_on_progress()
            .with_max_total_timeout(self.limits.call_total);
        let started = Instant::now();
        let sent = self.peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(|error| self.call_error(&error, started))?;
        let mut progress = self
            .handler
            .progress
            .subscribe(handle.progress_token.clone())
            .await;
        let mut abandoned = CancelOnDrop {
            peer: self.peer.clone(),
            request: Some(handle.id.clone()),
        };
        let mut answer = std::pin::pin!(handle.await_response());
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
                Some(step) = progress.next() => tell(context, step),
            }
        };
        abandoned.request = None;
        // The SDK hands each notification to a task of its own, which the answer may overtake.
        tokio::task::yield_now().await;
        while let Some(Some(step)) = progress.next().now_or_never() {
            tell(context, step);
        }
        match answered.map_err(|error| self.call_error(&error, started))? {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_) => {
                let message =
                    "the tool wants more input, or to answer later, which this program cannot do";
                Err(CallError::Refused {
                    code: -32603,
                    message: message.into(),
                })
            }
            _ => Err(CallError::Refused {
                code: -32603,
                message: "the server's answer is no result of a tool".into(),
            }),
        }
    }

    fn call_error(&self, error: &ServiceError, started: Instant) -> CallError {
        match error {
            ServiceError::McpError(ErrorData { code, message, .. }) => CallError::Refused {
                code: code.0,
                message: excerpt(message, QUOTED_CHARS),
            },
            ServiceError::Timeout { timeout } => {
                let is_total = started.elapsed() >= self.limits.call_total;
                CallError::Timeout {
                    limit: if is_total {
                        self.limits.call_total
                    } else {
                        *timeout
                    },
                }
            }
            ServiceError::Cancelled { .. } => CallError::Cancelled,
            error => CallError::Lost {
                server: self.server.to_string(),
                reason: self.words(error),
            },
        }
    }

    fn words(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => excerpt(&error.message, QUOTED_CHARS),
            ServiceError::TransportClosed => self.epitaph(),
            error => excerpt(&error.to_string(), QUOTED_CHARS),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ConnectError {
    fn of(reason: String) -> Self {
        ConnectError {
            reason,
            is_sessionless: false,
        }
    }
}

/// A connection that is being made.
struct Opening<'a> {
    server: Arc<str>,
    limits: &'a Limits,
    lifecycle: ClientLifecycleMode,
    process: Option<Process>,
}

impl Opening<'_> {
    async fn shake_hands<T, E, A>(self, transport: T) -> Result<Connection, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A> + Send,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (handler, stop) = (Handler::default(), CancellationToken::new());
        let last_words = self
            .process
            .as_ref()
            .map(Process::last_words)
            .unwrap_or_default();
        let lifecycle = self.lifecycle.clone();
        let shaking =
            serve_client_with_lifecycle_and_ct(handler.clone(), transport, lifecycle, stop.clone());
        let shaken = match timeout(self.limits.connect, shaking).await {
            Ok(shaken) => shaken.map_err(ConnectError::from),
            Err(_) => Err(ConnectError::of(format!(
                "no handshake within {} s",
                self.limits.connect.as_secs_f64()
            ))),
        };
        match shaken {
            Ok(running) => Ok(self.established(running, handler, stop, last_words)),
            Err(error) => {
                if let Some(process) = self.process {
                    process.end(self.limits.farewell).await;
                }
                Err(ConnectError {
                    reason: with_last_words(error.reason, &last_words),
                    ..error
                })
            }
        }
    }

    fn established(
        self,
        running: RunningService<RoleClient, Handler>,
        handler: Handler,
        stop: CancellationToken,
        last_words: LastWords,
    ) -> Connection {
        let Opening {
            server,
            limits,
            process,
            ..
        } = self;
        let peer = running.peer().clone();
        listen_where_needed(&peer, &handler, &stop);
        let (ended, closed) = (CancellationToken::new(), CancellationToken::new());
        let owned = Owned {
            running,
            process,
            farewell: limits.farewell,
        };
        tokio::spawn(owned.see_off(ended.clone(), closed.clone()));
        Connection {
            server,
            peer,
            handler,
            stop,
            ended,
            closed,
            last_words,
            limits: *limits,
        }
    }
}

impl From<ClientInitializeError> for ConnectError {
    fn from(error: ClientInitializeError) -> Self {
        let is_sessionless = matches!(error, ClientInitializeError::JsonRpcError(_));
        let reason = match &error {
            ClientInitializeError::JsonRpcError(error) => {
                format!("it refuses the handshake: {}", error.message)
            }
            ClientInitializeError::ConnectionClosed(_) => ENDED_EARLY.to_owned(),
            ClientInitializeError::TransportError { error, .. }
                if is_broken_pipe(error.error.as_ref()) =>
            {
                ENDED_EARLY.into()
            }
            ClientInitializeError::TransportError { error, .. } => causes(error.error.as_ref()),
            error => error.to_string(),
        };
        ConnectError {
            reason: excerpt(&reason, QUOTED_CHARS),
            is_sessionless,
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// An error with its causes, which for HTTP say what is really wrong.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

fn with_last_words(reason: String, last_words: &LastWords) -> String {
    match last_words.text() {
        Some(text) => format!("{reason}; it said last: {text}"),
        None => reason,
    }
}

/// What a connection consists of, until its end.
struct Owned {
    running: RunningService<RoleClient, Handler>,
    process: Option<Process>,
    farewell: Duration,
}

impl Owned {
    async fn see_off(self, ended: CancellationToken, closed: CancellationToken) {
        let _closes = closed.drop_guard();
        if let Err(error) = self.running.waiting().await {
            tracing::error!(%error, "an MCP connection panicked");
        }
        ended.cancel();
        if let Some(process) = self.process {
            process.end(self.farewell).await;
        }
    }
}

/// Where there are no sessions, changes of the list are told only to those who subscribe to them.
fn listen_where_needed(peer: &Peer<RoleClient>, handler: &Handler, stop: &CancellationToken) {
    let Some(info) = peer.peer_info() else { return };
    let tells = info
        .capabilities
        .tools
        .as_ref()
        .is_some_and(|tools| tools.list_changed == Some(true));
    if info.protocol_version.has_initialize() || !tells {
        return;
    }
    let (peer, list_changed) = (peer.clone(), Arc::clone(&handler.list_changed));
    let listening = async move {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(filter).await else {
            return;
        };
        while let Ok(Some(_)) = subscription.next().await {
            list_changed.notify_one();
        }
    };
    let stop = stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(listening).await });
}

fn http_transport(
    url: &Url,
    headers: &[(HeaderName, HeaderValue)],
    limits: &Limits,
) -> Result<StreamableHttpClientTransport<Client>, ConnectError> {
    // No redirects: the headers may hold keys, and another host is no business of theirs. Idle
    // connections are not kept, since the SDK found reuse to stall for 40 ms when a body was not
    // read to its end.
    let client = Client::builder()
        .connect_timeout(limits.connect)
        .redirect(redirect::Policy::none())
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| ConnectError::of(causes(&error)))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .max_concurrent_requests(limits.calls_at_once)
        .max_sse_event_size(limits.message_bytes);
    config.custom_headers = headers.iter().cloned().collect();
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// The tools and the next cursor of a page that the SDK could not read as one.
fn read_page(mut page: Value) -> Option<(Vec<Value>, Option<String>)> {
    let next = page
        .get("nextCursor")
        .and_then(Value::as_str)
        .map(str::to_owned);
    match page.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => Some((tools, next)),
        _ => None,
    }
}

fn tell(context: &CallContext, step: ProgressNotificationParam) {
    if let Some(listener) = &context.progress {
        let ProgressNotificationParam {
            progress: done,
            total,
            message,
            ..
        } = step;
        let _ = listener.try_send(Progress {
            done,
            total,
            message,
        });
    }
}

/// Tells a server to stop working on a request that nobody waits for any more.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let params = CancelledNotificationParam::new(
            Some(request),
            Some("nobody waits for it any more".into()),
        );
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancelled = CancelledNotification::new(params);
            let _ = timeout(
                Duration::from_secs(5),
                peer.send_notification(cancelled.into()),
            )
            .await;
        });
    }
}

/// What servers tell us.
#[derive(Clone, Default)]
struct Handler {
    progress: ProgressDispatcher,
    list_changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    async fn on_progress(
        &self,
        step: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.handle_notification(step).await;
    }

    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.list_changed.notify_one();
        std::future::ready(())
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), implementation())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
