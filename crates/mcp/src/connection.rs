//! A connection to a server: the handshake, the list of tools, calls, and closing.

mod about;
mod calls;
mod errors;
mod handler;
mod in_turns;
mod input;
mod listing;
mod notices;
mod offers;
mod one_request;
mod opening;
mod questions;
mod reasons;
mod redirects;
mod roots;
mod skills;
mod tasks;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ClientCapabilities;
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Limits;
use crate::authorized::denial;
use crate::config::{Beginning, HttpProtocol, ServerConfig, Transport};
use crate::login::Logins;
use crate::process::StderrTail;
use crate::server_logs::ServerLogs;
use crate::watchdog::Watchdog;
use errors::{Lifecycle, denied, with_stderr_tail};
use handler::Handler;
use in_turns::CallsInTurns;
use listing::{Kind, Next, Page, Pages};
use notices::{LogLevels, Notices};
use offers::CachedOffers;
use opening::Attempt;
use reasons::causes;
use toolscout_base::printable::excerpt;
use toolscout_gate::tools::Arguments;
use updates::Listening;

pub use about::About;
pub use errors::{CallError, ConnectError, ListError};
pub use input::Input;
pub use listing::ListedTools;
pub use notices::{Audience, Level, LogMessage, Updated, severity};
pub use offers::{Offers, Stale};
pub use questions::{
    APPS, CallingClient, ELICITATION, ModelAnswer, ModelQuestion, from_server, question_from,
    takes_forms,
};
pub use roots::Roots;
pub use skills::{ServerSkill, SkillFiles};
pub use tasks::{TaskAnswer, TaskQuestion};

/// Most characters of a server's text in messages of this program.
const QUOTED_CHARS: usize = 300;

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
    /// How long a client may take to make the call again with an answer; `None`: the time of a call.
    pub answer_within: Option<Duration>,
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
    /// The calls that wait for clients to make them again.
    in_turns: CallsInTurns,
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

    /// How long its server has had no call to work on; `None` if it never had one.
    pub fn unused_for(&self) -> Option<Duration> {
        self.handler.calls.unused_for()
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
