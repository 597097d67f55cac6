//! A connection to a server: the handshake, the list of tools, calls, and closing.

mod input;
mod about;
mod listing;
mod notices;
mod offers;
mod one_request;
mod questions;
mod reasons;
mod roots;
mod tasks;
mod updates;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use reqwest::{Client, StatusCode, redirect};
use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, CustomRequest,
    CustomResult, ElicitRequestParams, ElicitResult, MetaObject, ProgressNotificationParam,
    ProtocolVersion, RequestId, RequestMetaObject, ResourceUpdatedNotificationParam,
    ServerNotification, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, InboundStreamOrigin, NotificationContext, Peer,
    PeerRequestOptions, RequestContext, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientHandler, ErrorData};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::authorized::{AuthorizedClient, Denial, HttpError, denial, lacks_token, refused_status};
use crate::config::{Beginning, HttpProtocol, ServerConfig, Transport};
use crate::lines::Lines;
use crate::login::{Logins, Tokens, has_authorization};
use crate::process::{Process, Program, StderrTail};
use crate::server_logs::ServerLogs;
use crate::sse::SseTransport;
use crate::tool_edits::NotCalled;
use crate::watchdog::Watchdog;
use crate::{Limits, implementation};
use listing::{Kind, Next, Page, Pages};
use offers::CachedOffers;
use one_request::AssignsErrors;
use reasons::{causes, of_handshake};
use toolscout_base::printable::{excerpt, line};
use toolscout_gate::tools::Arguments;

pub use about::About;
pub use input::Input;
pub use listing::ListedTools;
pub use notices::{Audience, Level, LogMessage, Notice, severity};
use notices::{LogLevels, LogText, Notices};
pub use offers::Offers;
pub use questions::{APPS, CallingClient, ELICITATION, ModelAnswer, ModelQuestion, from_server};
use questions::{CallAtWork, CallsAtWork};
use roots::ListedRoots;
pub use roots::Roots;
pub use tasks::{TaskAnswer, TaskQuestion};
use updates::Listening;

/// Most characters of a server's text in messages of this program.
const QUOTED_CHARS: usize = 300;

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// Where a login is made.
const WHERE: &str = "on the machine of toolscout, with the --mcp FILE of the server";

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ConnectError {
    reason: String,
    /// What to try instead.
    next: Option<Lifecycle>,
    /// Only a person can make the connection possible.
    needs_login: bool,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// With a handshake.
    Initialize,
    /// Without one, as servers of the protocol version 2026-07-28 expect it.
    Discover,
    /// With a handshake over the old transport for HTTP.
    OverSse,
}

/// Why there is no list of tools.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListError {
    /// It took too long.
    #[error("its list of tools did not end within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// It does not end.
    #[error("its list of tools {0}")]
    Endless(String),
    /// The answer is not a list, or the connection was lost.
    #[error("its list of tools cannot be read: {0}")]
    Failed(String),
    /// The server answered with an error.
    #[error("its list of tools cannot be read: {0}")]
    Refused(String),
    /// Somebody has to log in.
    #[error("{0}")]
    NeedsLogin(String),
}

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No server of this name is configured.
    #[error("no MCP server {server:?} is connected here, so {tool} can be found but not called")]
    UnknownServer {
        /// The server's name in the settings.
        server: String,
        /// The tool's id.
        tool: String,
    },
    /// No server of this name is configured, and no tool is called.
    #[error("no MCP server {server:?} is connected here")]
    NoServer {
        /// The server's name in the settings.
        server: String,
    },
    /// The server is down.
    #[error(
        "server {server} is not available: {reason}; it is being reconnected, try again later or use another tool"
    )]
    Unavailable {
        /// The server's name in the settings.
        server: String,
        /// The reason, as far as it is known.
        reason: String,
    },
    /// The server wants a login.
    #[error("server {server} is not available: {reason}; until then use another tool")]
    NeedsLogin {
        /// The server's name in the settings.
        server: String,
        /// What a person has to do.
        reason: String,
    },
    /// The tool changed after it was approved.
    #[error(
        "{tool} is blocked: {reason}; it is called again once a person has reviewed and accepted it"
    )]
    Blocked {
        /// The tool's id.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The owner of the file of servers has hidden or renamed it.
    #[error("{tool} cannot be called: {reason}; use another tool")]
    NotCalled {
        /// The tool's id.
        tool: String,
        /// Why.
        reason: NotCalled,
    },
    /// It took too long.
    #[error("no result within {} s; ask for less at once, or continue without it", .limit.as_secs_f64())]
    Timeout {
        /// The limit that was reached.
        limit: Duration,
    },
    /// The caller cancelled it.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server refused the call.
    #[error("{message}")]
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// The server's message.
        message: String,
        /// What it says besides.
        data: Option<Value>,
    },
    /// The server asks for input before it makes the call, and the client repeats the call with it.
    #[error("the tool asks for more input, which cannot be given here")]
    NeedsInput {
        /// The result that says what is needed.
        result: Value,
    },
    /// The server answers later: the call is a task, whose state the client asks for.
    #[error("the call was made, and the tool answers later, which cannot be waited for here")]
    AnswersLater {
        /// The task.
        result: Value,
    },
    /// The connection was lost during the call. Whether the call was executed is not known.
    #[error(
        "the connection to server {server} was lost during the call, which may or may not have been executed: {reason}"
    )]
    Lost {
        /// The server's name in the settings.
        server: String,
        /// The reason, as far as it is known.
        reason: String,
    },
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The work done so far.
    pub done: f64,
    /// The total work, if it is known.
    pub total: Option<f64>,
    /// The server's message.
    pub message: Option<String>,
}

/// Receives the progress of a call, and cancels it.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// Receives the progress. Updates are dropped while the queue is full.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Cancels the call; the server is notified.
    pub cancelled: CancellationToken,
    /// The client that makes the call, if the server may ask it.
    pub client: Option<Arc<dyn CallingClient>>,
    /// What the client tells the server besides the arguments (`_meta`).
    pub meta: Arguments,
    /// From which level on the client reads log messages, if it has said so.
    pub log_level: Option<Level>,
    /// What the client can do, if a client makes the call.
    pub capabilities: Option<ClientCapabilities>,
    /// What the client answers to a result that asked for input, and how it takes such a result.
    pub input: Input,
}

/// A connection to a server.
pub struct Connection {
    server: Arc<str>,
    peer: Peer<RoleClient>,
    handler: Handler,
    stop: CancellationToken,
    /// Cancelled when the connection is closed.
    ended: CancellationToken,
    /// Cancelled when the process of the server has ended too.
    closed: CancellationToken,
    stderr_tail: StderrTail,
    limits: Limits,
    /// The settings have the key that a login would bring.
    has_key: bool,
    /// What it offers besides tools, as it was listed last.
    offers: CachedOffers,
    listening: Listening,
}

impl Connection {
    /// Connects with a handshake, or in another way where the server refuses that.
    ///
    /// # Errors
    /// [`ConnectError`], with the last lines of the server's standard error.
    pub async fn open(
        config: &ServerConfig,
        connector: &Connector,
    ) -> Result<Connection, ConnectError> {
        let attempt = Attempt::of(config, connector)?;
        let first = match config.transport {
            Transport::Http {
                protocol: HttpProtocol::Sse,
                ..
            } => Lifecycle::OverSse,
            _ => match config.beginning {
                Beginning::Handshake => Lifecycle::Initialize,
                Beginning::Discovery => Lifecycle::Discover,
            },
        };
        let error = match attempt.connect(first).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let Some(next) = error.next else {
            return Err(error);
        };
        match attempt.connect(next).await {
            Err(second) if second.needs_login => Err(second),
            // For a server that refused for another reason, the first error is the right one.
            Err(_) => Err(error),
            connected => connected,
        }
    }

    /// Waits until the list of tools has changed since the last call of this function.
    pub async fn list_changed(&self) {
        self.handler.list_changed.notified().await;
    }

    /// Waits until the connection is closed by either side.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether the connection is still open.
    pub fn is_alive(&self) -> bool {
        !self.ended.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Why the connection was closed, as far as it is known.
    pub fn end_reason(&self) -> String {
        with_stderr_tail("the server ended the connection".into(), &self.stderr_tail)
    }

    /// Closes the connection, and waits until the process of the server has ended.
    pub async fn close(&self) {
        self.stop.cancel();
        self.closed.cancelled().await;
    }

    /// Lists every tool, as the server describes it.
    ///
    /// # Errors
    /// [`ListError`] when the first page does not arrive, or the pages do not end.
    pub async fn list_tools(&self) -> Result<ListedTools, ListError> {
        self.list(Kind::Tools).await
    }

    async fn list(&self, kind: Kind) -> Result<ListedTools, ListError> {
        // A server without the capability may answer with an error.
        let is_offered = match self.peer.peer_info() {
            Some(info) => kind.is_offered(&info.capabilities),
            None => false,
        };
        if !is_offered {
            return Ok(ListedTools::default());
        }
        let within = self.limits.list;
        match timeout(within, self.all_pages(kind)).await {
            Ok(listed) => listed,
            Err(_) => Err(ListError::Timeout(within)),
        }
    }

    async fn all_pages(&self, kind: Kind) -> Result<ListedTools, ListError> {
        let (mut pages, mut cursor) = (Pages::new(self.limits), None);
        loop {
            let page = match self.page(kind, cursor).await {
                Ok(page) => page,
                // A server that refuses its own cursor does so each time. What came is used; after a
                // lost connection, the list is read again instead.
                Err(ListError::Refused(reason)) if !pages.is_empty() => {
                    let broken = format!("breaks off with an error ({reason})");
                    return Ok(pages.into_list(Some(&broken)));
                }
                Err(error) => return Err(error),
            };
            match pages.add(page)? {
                Next::At(next) => cursor = Some(next),
                Next::End => return Ok(pages.into_list(None)),
                Next::Broken(reason) => return Ok(pages.into_list(Some(&reason))),
            }
        }
    }

    async fn page(&self, kind: Kind, cursor: Option<Value>) -> Result<Page, ListError> {
        let answered = match self.peer.send_request(kind.request(cursor)).await {
            Ok(answered) => answered,
            Err(error) => return Err(self.list_error(&error)),
        };
        // Back to JSON, so that every tool takes the same way through the parser for files. A page
        // with a tool that the SDK cannot read is a result of unknown type to it.
        if let Ok(answer) = serde_json::to_value(answered)
            && let Some(page) = Page::read(answer, kind)
        {
            return Ok(page);
        }
        Err(ListError::Failed("the answer is not such a list".into()))
    }

    fn list_error(&self, error: &ServiceError) -> ListError {
        match (self.login_wanted(error), error) {
            (Some(reason), _) => ListError::NeedsLogin(reason),
            (None, ServiceError::McpError(_)) => ListError::Refused(self.message(error)),
            (None, _) => ListError::Failed(self.message(error)),
        }
    }

    /// Calls a tool by its name on the server.
    ///
    /// The server is told to stop when the future is dropped, at a time limit, and when the caller
    /// cancels.
    ///
    /// # Errors
    /// [`CallError`]. A failure reported by the tool is a result.
    pub async fn call(
        &self,
        name: &str,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        params.input_responses = context.input.responses.clone();
        params.request_state = context.input.state.clone();
        let at_work = self.handler.calls.begin(context.client.clone());
        self.call_with_input(params, &at_work, context).await
    }

    /// Makes a call once.
    async fn call_once(
        &self,
        params: CallToolRequestParams,
        at_work: &CallAtWork,
        context: &CallContext,
    ) -> Result<ServerResult, CallError> {
        let mut meta = RequestMetaObject(MetaObject(context.meta.clone()));
        // In a session, the server has been told once.
        if !self.has_session()
            && let Some(level) = context.log_level
        {
            meta.set_log_level(level);
        }
        if !self.has_session() {
            // What the client of this call can do, not what some client can.
            let capabilities = context.capabilities.clone().unwrap_or_default();
            meta.set_client_capabilities(self.without_private_roots(capabilities));
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let times = self.limits.call;
        let options = PeerRequestOptions::with_timeout(times.total).with_meta(meta);
        let sent = self.peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(|error| self.call_error(&error))?;
        at_work.is_sent_as(handle.id.clone());
        // After the request is sent, since the SDK makes the progress token.
        let mut progress = self
            .handler
            .progress
            .subscribe(handle.progress_token.clone())
            .await;
        // Every early return below, and dropping this future, tells the server to stop.
        let mut abandoned = CancelOnDrop {
            peer: self.peer.clone(),
            request: Some(handle.id.clone()),
        };
        let mut answer = std::pin::pin!(handle.await_response());
        // A call that reports progress may take longer than a silent one, but not for ever. Whether
        // a server reports any is known only after its first report.
        let mut limit = times.unreported;
        let mut silence = std::pin::pin!(sleep(limit));
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
                Some(update) = progress.next() => {
                    send_progress(context, update);
                    limit = times.idle;
                    silence.as_mut().reset(Instant::now() + limit);
                }
                // A person or a model that is asked may take longer than the server.
                () = &mut silence => match self.handler.calls.is_asking() {
                    true => silence.as_mut().reset(Instant::now() + limit),
                    false => return Err(CallError::Timeout { limit }),
                },
            }
        };
        // Answered, so there is nothing to cancel.
        abandoned.request = None;
        // The SDK hands each notification to a task of its own, which the answer may overtake.
        tokio::task::yield_now().await;
        while let Some(Some(update)) = progress.next().now_or_never() {
            send_progress(context, update);
        }
        answered.map_err(|error| self.call_error(&error))
    }

    fn call_error(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(ErrorData {
                code,
                message,
                data,
                ..
            }) => CallError::Refused {
                code: code.0,
                message: excerpt(message, QUOTED_CHARS),
                data: data.clone(),
            },
            ServiceError::Timeout { timeout } => CallError::Timeout { limit: *timeout },
            ServiceError::Cancelled { .. } => CallError::Cancelled,
            // The call was not executed.
            ServiceError::TransportSend(failed) if was_not_taken(failed.error.as_ref()) => {
                let server = self.server.to_string();
                match self.login_wanted(error) {
                    Some(reason) => CallError::NeedsLogin { server, reason },
                    None => CallError::Unavailable {
                        server,
                        reason: self.message(error),
                    },
                }
            }
            error => CallError::Lost {
                server: self.server.to_string(),
                reason: self.message(error),
            },
        }
    }

    /// What a person has to do, where that is why a request failed.
    fn denied(&self, error: &ServiceError) -> Option<String> {
        let ServiceError::TransportSend(error) = error else {
            return None;
        };
        let denial = denial(error.error.as_ref())?;
        Some(denied(&denial, &self.server, self.has_key))
    }

    /// What a person has to do, where that is to log in.
    fn login_wanted(&self, error: &ServiceError) -> Option<String> {
        // With a key in the settings a login changes nothing.
        if self.has_key {
            return None;
        }
        self.denied(error)
    }

    fn message(&self, error: &ServiceError) -> String {
        if let Some(denied) = self.denied(error) {
            return denied;
        }
        match error {
            ServiceError::TransportSend(error) => causes(error.error.as_ref()),
            ServiceError::McpError(error) => excerpt(&error.message, QUOTED_CHARS),
            ServiceError::TransportClosed => self.end_reason(),
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
    /// Whether the server can be connected to only after somebody has logged in.
    pub fn needs_login(&self) -> bool {
        self.needs_login
    }

    fn of(reason: String) -> Self {
        ConnectError {
            reason,
            next: None,
            needs_login: false,
        }
    }

    fn denied(denial: &Denial, server: &str, has_key: bool) -> Self {
        ConnectError {
            needs_login: !has_key,
            ..ConnectError::of(denied(denial, server, has_key))
        }
    }

    /// The error of an HTTP request that a connection begins with.
    fn of_http(error: &HttpError, server: &str, has_key: bool) -> Self {
        match denial(error) {
            Some(denial) => ConnectError::denied(&denial, server, has_key),
            None => ConnectError::of(causes(error)),
        }
    }
}

/// What a person has to do before a server serves this program.
fn denied(denial: &Denial, server: &str, has_key: bool) -> String {
    match denial {
        Denial::Login if has_key => {
            "it refuses the Authorization header of its settings (401); replace the key in it"
                .into()
        }
        Denial::Login => {
            let server = quoted(server);
            format!("it asks for a login; run `toolscout mcp login {server}` {WHERE}")
        }
        Denial::Scope(scope) => {
            let (server, scope) = (quoted(server), line(&excerpt(scope, QUOTED_CHARS)));
            format!(
                "its login lacks the scope {scope:?}; run `toolscout mcp login {server} --scope {scope:?}` {WHERE}"
            )
        }
    }
}

/// A name as a word of a command line.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:".contains(c);
    match name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

/// What connections to all servers share.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    /// What one server may send, and how long it may take.
    pub limits: Limits,
    /// The logins at servers.
    pub logins: Logins,
    /// Where the standard error of servers is kept.
    pub logs: ServerLogs,
    pub(super) watchdog: Arc<Watchdog>,
    /// Incremented when the prompts or resources of any server may have changed.
    pub(super) offers_changed: watch::Sender<u64>,
    /// What servers tell clients unasked.
    pub(super) notices: Notices,
    /// What sessions read of the log messages.
    pub(super) log_levels: Arc<LogLevels>,
    /// The folders of the client.
    pub(super) roots: Arc<Roots>,
}

/// An attempt to connect to a server, in one way or another.
struct Attempt<'a> {
    config: &'a ServerConfig,
    connector: &'a Connector,
    server: Arc<str>,
    /// What makes the requests to an HTTP server.
    client: Option<AuthorizedClient>,
    /// The settings have the key that a login would bring.
    has_key: bool,
}

impl<'a> Attempt<'a> {
    fn of(config: &'a ServerConfig, connector: &'a Connector) -> Result<Self, ConnectError> {
        let mut attempt = Attempt {
            config,
            connector,
            server: config.name.as_str().into(),
            client: None,
            has_key: false,
        };
        if let Transport::Http {
            url,
            headers,
            oauth,
            ..
        } = &config.transport
        {
            attempt.has_key = has_authorization(headers);
            let tokens = Tokens::new(url, oauth, &connector.logins);
            // A token would be sent in the very header that the settings have.
            let tokens = (!attempt.has_key).then_some(tokens);
            let client = http_client(&connector.limits)?;
            attempt.client = Some(AuthorizedClient::new(client, tokens));
        }
        Ok(attempt)
    }

    async fn connect(&self, lifecycle: Lifecycle) -> Result<Connection, ConnectError> {
        let limits = &self.connector.limits;
        match &self.config.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
                sandbox,
            } => {
                let program = Program {
                    server: &self.server,
                    command,
                    args,
                    env,
                    cwd: cwd.as_deref(),
                    sandbox: sandbox.as_ref(),
                    log: self.connector.logs.file(&self.server),
                };
                let started = Process::start(&program, &self.connector.watchdog);
                let (process, stdout, stdin) = started
                    .map_err(|error| ConnectError::of(format!("start {command:?}: {error}")))?;
                // `Lines` before the SDK's own limit: it answers the call whose answer is too long,
                // where the SDK would only drop the line.
                let lines = Lines::new(stdout, Arc::clone(&self.server), limits.message_bytes);
                let transport = AsyncRwTransport::new_client(lines, stdin)
                    .with_max_line_length(limits.message_bytes);
                self.opening(lifecycle, Some(process))
                    .handshake(AssignsErrors::of(transport))
                    .await
            }
            Transport::Incomplete { reason } => Err(ConnectError::of(reason.clone())),
            Transport::Http { url, headers, .. } if lifecycle == Lifecycle::OverSse => {
                let opening = SseTransport::open(
                    self.client()?,
                    url,
                    headers.iter().cloned().collect(),
                    Arc::clone(&self.server),
                    limits,
                );
                let transport = match timeout(limits.connect, opening).await {
                    Ok(Ok(transport)) => AssignsErrors::of(transport),
                    Ok(Err(error)) => {
                        let failed = ConnectError::of_http(&error, &self.server, self.has_key);
                        return Err(self.with_other_transport(failed, HttpProtocol::Sse, "http"));
                    }
                    Err(_) => return Err(no_handshake(limits)),
                };
                self.opening(lifecycle, None).handshake(transport).await
            }
            Transport::Http { url, headers, .. } => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(limits.calls_at_once)
                    .max_sse_event_size(limits.message_bytes);
                config.custom_headers = headers.iter().cloned().collect();
                let client = self.client()?;
                let transport = StreamableHttpClientTransport::with_client(client, config);
                let opened = self.opening(lifecycle, None).handshake(transport).await;
                opened.map_err(|error| self.without_other_transport(error))
            }
        }
    }

    /// Leaves out the old transport where the settings name the other.
    fn without_other_transport(&self, error: ConnectError) -> ConnectError {
        if error.next != Some(Lifecycle::OverSse) || self.speaks(HttpProtocol::Either) {
            return error;
        }
        let error = self.with_other_transport(error, HttpProtocol::Streamable, "sse");
        ConnectError {
            next: None,
            ..error
        }
    }

    /// Names the other transport where the settings chose this one.
    fn with_other_transport(
        &self,
        error: ConnectError,
        chosen: HttpProtocol,
        other: &str,
    ) -> ConnectError {
        if error.needs_login || !self.speaks(chosen) {
            return error;
        }
        let reason = format!(
            "{}; if it speaks the other transport, write \"type\": {other:?}",
            error.reason
        );
        ConnectError { reason, ..error }
    }

    /// Whether the settings say so.
    fn speaks(&self, wanted: HttpProtocol) -> bool {
        matches!(&self.config.transport, Transport::Http { protocol, .. } if *protocol == wanted)
    }

    fn client(&self) -> Result<AuthorizedClient, ConnectError> {
        match &self.client {
            Some(client) => Ok(client.clone()),
            None => Err(ConnectError::of("it has no URL".into())),
        }
    }

    fn opening(&self, lifecycle: Lifecycle, process: Option<Process>) -> Opening {
        Opening {
            server: Arc::clone(&self.server),
            limits: self.config.limits(self.connector.limits),
            lifecycle,
            process,
            has_key: self.has_key,
            shared: self.connector.clone(),
        }
    }
}

fn no_handshake(limits: &Limits) -> ConnectError {
    ConnectError::of(format!(
        "no handshake within {} s",
        limits.connect.as_secs_f64()
    ))
}

/// A connection that is being made.
struct Opening {
    server: Arc<str>,
    limits: Limits,
    lifecycle: Lifecycle,
    process: Option<Process>,
    has_key: bool,
    /// What it shares with connections to other servers.
    shared: Connector,
}

impl Opening {
    async fn handshake<T, E, A>(self, transport: T) -> Result<Connection, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A> + Send,
        E: std::error::Error + Send + Sync + 'static,
    {
        let handler = Handler {
            progress: ProgressDispatcher::default(),
            list_changed: Arc::default(),
            offers_version: Arc::default(),
            offers_changed: self.shared.offers_changed.clone(),
            notices: self.shared.notices.clone(),
            roots: Arc::clone(&self.shared.roots),
            server: Arc::clone(&self.server),
            calls: Arc::default(),
        };
        let stop = CancellationToken::new();
        let stderr_tail = self
            .process
            .as_ref()
            .map(Process::stderr_tail)
            .unwrap_or_default();
        let lifecycle = match self.lifecycle {
            Lifecycle::Initialize | Lifecycle::OverSse => ClientLifecycleMode::Initialize,
            Lifecycle::Discover => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        };
        let connecting =
            serve_client_with_lifecycle_and_ct(handler.clone(), transport, lifecycle, stop.clone());
        let connected = match timeout(self.limits.connect, connecting).await {
            Ok(connected) => connected.map_err(|error| self.refused(error)),
            Err(_) => Err(no_handshake(&self.limits)),
        };
        match connected {
            Ok(running) => Ok(self.established(running, handler, stop, stderr_tail)),
            Err(error) => {
                // A server that never answered the handshake is ended here, because no `Connection`
                // owns it yet.
                if let Some(process) = self.process {
                    process.end(self.limits.exit_timeout).await;
                }
                Err(ConnectError {
                    reason: with_stderr_tail(error.reason, &stderr_tail),
                    ..error
                })
            }
        }
    }

    fn refused(&self, error: ClientInitializeError) -> ConnectError {
        if let ClientInitializeError::TransportError { error, .. } = &error
            && let Some(denial) = denial(error.error.as_ref())
        {
            return ConnectError::denied(&denial, &self.server, self.has_key);
        }
        let next = match &error {
            _ if self.lifecycle != Lifecycle::Initialize => None,
            // Any JSON-RPC error counts, whatever its code: one more attempt does no harm. Servers
            // that no longer support the handshake are asked second, since most still expect it.
            ClientInitializeError::JsonRpcError(_) => Some(Lifecycle::Discover),
            // As the specification recognises a server of the old transport.
            ClientInitializeError::TransportError { error, .. } => error
                .error
                .downcast_ref::<HttpError>()
                .and_then(refused_status)
                .map(|_| Lifecycle::OverSse),
            _ => None,
        };
        ConnectError {
            next,
            ..ConnectError::from(error)
        }
    }

    fn established(
        self,
        running: RunningService<RoleClient, Handler>,
        handler: Handler,
        stop: CancellationToken,
        stderr_tail: StderrTail,
    ) -> Connection {
        let Opening {
            server,
            limits,
            process,
            has_key,
            ..
        } = self;
        let peer = running.peer().clone();
        // Clients may have listed them before this server was connected.
        if let Some(info) = peer.peer_info()
            && [Kind::Prompts, Kind::Resources]
                .iter()
                .any(|kind| kind.is_offered(&info.capabilities))
        {
            handler.offers_have_changed();
        }
        subscribe_if_needed(&peer, &handler, &stop);
        let (ended, closed) = (CancellationToken::new(), CancellationToken::new());
        let running_connection = Running {
            running,
            process,
            exit_timeout: limits.exit_timeout,
        };
        tokio::spawn(running_connection.wait_for_end(ended.clone(), closed.clone()));
        Connection {
            server,
            peer,
            handler,
            stop,
            ended,
            closed,
            stderr_tail,
            limits,
            has_key,
            offers: CachedOffers::default(),
            listening: Listening::default(),
        }
    }
}

impl From<ClientInitializeError> for ConnectError {
    fn from(error: ClientInitializeError) -> Self {
        ConnectError::of(of_handshake(&error))
    }
}

/// Whether a request was not sent, or was refused before it had an effect.
fn was_not_taken(error: &(dyn std::error::Error + 'static)) -> bool {
    let lost_session = matches!(
        error.downcast_ref(),
        Some(HttpError::SessionExpired | HttpError::ReinitializationFailed(_))
    );
    lost_session || lacks_token(error)
}

fn with_stderr_tail(reason: String, stderr_tail: &StderrTail) -> String {
    match stderr_tail.text() {
        Some(text) => format!("{reason}; its last output: {text}"),
        None => reason,
    }
}

/// The parts of an open connection.
struct Running {
    running: RunningService<RoleClient, Handler>,
    process: Option<Process>,
    exit_timeout: Duration,
}

impl Running {
    async fn wait_for_end(self, ended: CancellationToken, closed: CancellationToken) {
        // A guard, so that `close` returns even if this task panics.
        let _closes = closed.drop_guard();
        if let Err(error) = self.running.waiting().await {
            tracing::error!(%error, "an MCP connection panicked");
        }
        ended.cancel();
        if let Some(process) = self.process {
            process.end(self.exit_timeout).await;
        }
    }
}

/// Without a session, a server notifies only subscribers of changes of its lists.
fn subscribe_if_needed(peer: &Peer<RoleClient>, handler: &Handler, stop: &CancellationToken) {
    let Some(info) = peer.peer_info() else { return };
    // With a handshake there is a session, and its client is notified unasked.
    if info.protocol_version.has_initialize() {
        return;
    }
    let all = SubscriptionFilter::builder()
        .tools_list_changed()
        .prompts_list_changed()
        .resources_list_changed()
        .build();
    let filter = all.supported_by(&info.capabilities);
    if filter == SubscriptionFilter::new() {
        return;
    }
    let (peer, handler) = (peer.clone(), handler.clone());
    let listening = async move {
        let Ok(mut subscription) = peer.listen(filter).await else {
            return;
        };
        while let Ok(Some(told)) = subscription.next().await {
            match told {
                ServerNotification::ToolListChangedNotification(_) => {
                    handler.list_changed.notify_one();
                }
                ServerNotification::PromptListChangedNotification(_)
                | ServerNotification::ResourceListChangedNotification(_) => {
                    handler.offers_have_changed();
                }
                _ => {}
            }
        }
    };
    let stop = stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(listening).await });
}

fn http_client(limits: &Limits) -> Result<Client, ConnectError> {
    // No idle connections: the SDK measured that reuse stalls for 40 ms when a body was not read to
    // its end.
    toolscout_base::tls::client()
        .connect_timeout(limits.connect)
        .redirect(redirect::Policy::custom(redirected))
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| ConnectError::of(causes(&error)))
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
enum Redirected {
    /// It leads to another server, or would lose the message.
    #[error(
        "it redirects to {to} ({status}), which is not followed; if you trust that server, write this URL in its settings"
    )]
    Elsewhere {
        /// The URL.
        to: String,
        /// The status.
        status: u16,
    },
    /// It does not end.
    #[error("it redirects more than {MAX_REDIRECTS} times; correct its URL")]
    Endless,
}

/// Follows a redirect that keeps message and server: the headers may hold keys, which another host
/// must not get, and after a 301, 302 or 303 the message would be left out.
fn redirected(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let status = attempt.status();
    let keeps_message =
        status == StatusCode::TEMPORARY_REDIRECT || status == StatusCode::PERMANENT_REDIRECT;
    let keeps_server = match attempt.previous().last() {
        Some(from) => from.origin() == attempt.url().origin(),
        None => false,
    };
    if !keeps_message || !keeps_server {
        let (to, status) = (excerpt(attempt.url().as_str(), 200), status.as_u16());
        return attempt.error(Redirected::Elsewhere { to, status });
    }
    match attempt.previous().len() > MAX_REDIRECTS {
        true => attempt.error(Redirected::Endless),
        false => attempt.follow(),
    }
}

fn send_progress(context: &CallContext, update: ProgressNotificationParam) {
    if let Some(listener) = &context.progress {
        let ProgressNotificationParam {
            progress: done,
            total,
            message,
            ..
        } = update;
        // Progress is only informative: a full queue must not slow down the call.
        let _ = listener.try_send(Progress {
            done,
            total,
            message,
        });
    }
}

/// Tells the server to stop working on a request, when nobody waits for the answer any more.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        // Dropped while the runtime shuts down; the connection is closed then anyway.
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

/// The call that a question belongs to, if its transport tells: over streamable HTTP, the question comes
/// on the stream of the call.
fn call_of(context: &RequestContext<RoleClient>) -> Option<&RequestId> {
    match context.extensions.get::<InboundStreamOrigin>()? {
        InboundStreamOrigin::OutboundRequest(id) => Some(id),
        InboundStreamOrigin::Unassociated => None,
    }
}

/// Receives the notifications of a server.
#[derive(Clone)]
struct Handler {
    progress: ProgressDispatcher,
    list_changed: Arc<Notify>,
    /// Incremented when the server says that its prompts or resources have changed.
    offers_version: Arc<AtomicU64>,
    /// The same over all servers.
    offers_changed: watch::Sender<u64>,
    notices: Notices,
    roots: Arc<Roots>,
    server: Arc<str>,
    calls: Arc<CallsAtWork>,
}

impl Handler {
    fn offers_have_changed(&self) {
        self.offers_version.fetch_add(1, Ordering::Relaxed);
        self.offers_changed.send_modify(|version| *version += 1);
        // They are synced to the catalog with the tools.
        self.list_changed.notify_one();
    }
}

impl ClientHandler for Handler {
    async fn on_progress(
        &self,
        update: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.handle_notification(update).await;
    }

    async fn on_logging_message(&self, message: LogText, _: NotificationContext<RoleClient>) {
        match self.calls.audience() {
            Some(audience) => self.notices.log(&self.server, audience, message),
            None => {
                let server = &self.server;
                tracing::debug!(%server, "a log message is for no client: calls of several keys are open");
            }
        }
    }

    async fn on_resource_updated(
        &self,
        updated: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.notices.updated(&self.server, &updated.uri);
    }

    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.list_changed.notify_one();
        std::future::ready(())
    }

    fn on_prompt_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.offers_have_changed();
        std::future::ready(())
    }

    fn on_resource_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.offers_have_changed();
        std::future::ready(())
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let call = call_of(&context);
        self.calls.elicit(&self.server, question, call).await
    }

    async fn create_message(
        &self,
        question: ModelQuestion,
        context: RequestContext<RoleClient>,
    ) -> Result<ModelAnswer, ErrorData> {
        let call = call_of(&context);
        self.calls.create_message(question, call).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        match request.params {
            Some(question) if request.method == ELICITATION => {
                let answer = self
                    .calls
                    .elicit_unread(&self.server, question, call_of(&context))
                    .await;
                answer.map(CustomResult::new)
            }
            _ => {
                let code = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
                Err(ErrorData::new(code, request.method, None))
            }
        }
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListedRoots, ErrorData> {
        self.roots.list().await
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            questions::capabilities(self.roots.are_passed()),
            implementation(),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

    use super::*;
    use toolscout_gate::tools::{CallTimeSettings, CallTimes, Seconds};

    /// A server that answers a call after these seconds, each pause followed by a progress notification
    /// if it reports any.
    #[derive(Clone)]
    struct Pauses {
        seconds: Vec<u64>,
        reports: bool,
    }

    async fn serve(stream: DuplexStream, pauses: Pauses) {
        let (reader, mut writer) = split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let result = match message["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "slow", "version": "1" },
                }),
                Some("tools/call") => {
                    for seconds in &pauses.seconds {
                        sleep(Duration::from_secs(*seconds)).await;
                        if pauses.reports {
                            let token = &message["params"]["_meta"]["progressToken"];
                            let params = json!({ "progressToken": token, "progress": 1.0 });
                            let step = json!({
                                "jsonrpc": "2.0", "method": "notifications/progress", "params": params,
                            });
                            write(&mut writer, step).await;
                        }
                    }
                    json!({ "content": [{ "type": "text", "text": "done" }] })
                }
                _ => continue,
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            write(&mut writer, answer).await;
        }
    }

    async fn write(to: &mut (impl AsyncWriteExt + Unpin), message: Value) {
        // The client may have given up.
        let _ = to.write_all(format!("{message}\n").as_bytes()).await;
    }

    /// Calls a tool of such a server. The error, and the seconds that the call took.
    async fn call(pauses: Pauses, settings: CallTimeSettings) -> (Option<CallError>, u64) {
        let (client, server) = duplex(1 << 16);
        tokio::spawn(serve(server, pauses));
        let opening = Opening {
            server: "slow".into(),
            limits: Limits {
                call: settings.applied_to(CallTimes::default()),
                ..Limits::default()
            },
            lifecycle: Lifecycle::Initialize,
            process: None,
            has_key: false,
            shared: Connector::default(),
        };
        let (reader, writer) = split(client);
        let transport = AsyncRwTransport::new_client(reader, writer);
        let connection = opening.handshake(transport).await.unwrap();
        let started = Instant::now();
        let called = connection
            .call("work", Arguments::new(), &CallContext::default())
            .await;
        (called.err(), started.elapsed().as_secs())
    }

    fn late(seconds: u64) -> Option<CallError> {
        let limit = Duration::from_secs(seconds);
        Some(CallError::Timeout { limit })
    }

    fn seconds(seconds: u64) -> Option<Seconds> {
        Some(Seconds::try_from(seconds).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn progress_extends_a_call_and_a_silent_one_may_take_five_minutes() {
        for (pauses, reports, expected, took) in [
            (vec![299], false, None, 299),
            (vec![301], false, late(300), 300),
            (vec![59; 10], true, None, 590),
            (vec![10, 61], true, late(60), 70),
            (vec![59; 11], true, late(600), 600),
        ] {
            let pauses = Pauses {
                seconds: pauses,
                reports,
            };
            let called = call(pauses.clone(), CallTimeSettings::default()).await;
            assert_eq!(called, (expected, took), "{:?}", pauses.seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limits_of_a_call_can_be_set() {
        let short = CallTimeSettings {
            timeout: seconds(20),
            total: seconds(100),
        };
        for (pauses, reports, expected, took) in [
            (vec![21], false, late(20), 20),
            (vec![19; 5], true, None, 95),
            (vec![19; 6], true, late(100), 100),
        ] {
            let pauses = Pauses {
                seconds: pauses,
                reports,
            };
            assert_eq!(call(pauses, short).await, (expected, took));
        }
        let long = CallTimeSettings {
            timeout: seconds(3_600),
            total: None,
        };
        let pauses = Pauses {
            seconds: vec![3_000],
            reports: false,
        };
        assert_eq!(call(pauses, long).await, (None, 3_000));
    }
}
