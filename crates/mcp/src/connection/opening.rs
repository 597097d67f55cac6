//! The handshake with a server, over each transport.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::errors::{ConnectError, Lifecycle, with_stderr_tail};
use super::handler::Handler;
use super::in_turns::CallsInTurns;
use super::listing::Kind;
use super::offers::CachedOffers;
use super::one_request::AssignsErrors;
use super::reasons::causes;
use super::updates::{Listening, subscribe_if_needed};
use super::{Connection, Connector, redirects};
use crate::Limits;
use crate::authorized::{AuthorizedClient, HttpError, denial, refused_status};
use crate::config::{HttpProtocol, ServerConfig, Transport};
use crate::lines::Lines;
use crate::login::{Tokens, has_authorization};
use crate::process::{Process, Program, StderrTail};
use crate::sse::SseTransport;

/// An attempt to connect to a server, in one way or another.
pub(super) struct Attempt<'a> {
    config: &'a ServerConfig,
    connector: &'a Connector,
    server: Arc<str>,
    /// What makes the requests to an HTTP server.
    pub(super) client: Option<AuthorizedClient>,
    /// The settings have the key that a login would bring.
    pub(super) has_key: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn of(
        config: &'a ServerConfig,
        connector: &'a Connector,
    ) -> Result<Self, ConnectError> {
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

    pub(super) async fn connect(&self, lifecycle: Lifecycle) -> Result<Connection, ConnectError> {
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
pub(super) struct Opening {
    pub(super) server: Arc<str>,
    pub(super) limits: Limits,
    pub(super) lifecycle: Lifecycle,
    pub(super) process: Option<Process>,
    pub(super) has_key: bool,
    /// What it shares with connections to other servers.
    pub(super) shared: Connector,
}

impl Opening {
    pub(super) async fn handshake<T, E, A>(self, transport: T) -> Result<Connection, ConnectError>
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
        subscribe_if_needed(&peer, &handler, limits, &stop);
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
            in_turns: CallsInTurns::default(),
        }
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

fn http_client(limits: &Limits) -> Result<Client, ConnectError> {
    // No idle connections: the SDK measured that reuse stalls for 40 ms when a body was not read to
    // its end.
    toolscout_base::tls::client()
        .connect_timeout(limits.connect)
        .redirect(redirects::policy())
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| ConnectError::of(causes(&error)))
}
