//! Why there is no connection, no list of tools, and no result of a call.

use std::time::Duration;

use rmcp::service::ClientInitializeError;
use serde_json::Value;

use super::QUOTED_CHARS;
use super::reasons::{causes, of_handshake};
use crate::authorized::{Denial, HttpError, denial, lacks_token};
use crate::masking::Masking;
use crate::process::StderrTail;
use crate::tool_edits::NotCalled;
use toolscout_base::printable::{excerpt, line};

/// Where a login is made.
const WHERE: &str = "on the machine of toolscout, with the --mcp FILE of the server";

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ConnectError {
    pub(super) reason: String,
    /// What to try instead.
    pub(super) next: Option<Lifecycle>,
    /// Only a person can make the connection possible.
    pub(super) needs_login: bool,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
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

impl CallError {
    /// The same without the secrets that its server may have written into it.
    pub fn masked(self, masking: &Masking) -> Self {
        match self {
            CallError::Refused {
                code,
                message,
                mut data,
            } => {
                if let Some(data) = &mut data {
                    masking.value(data);
                }
                CallError::Refused {
                    code,
                    message: masking.text(&message).into_owned(),
                    data,
                }
            }
            CallError::AnswersLater { mut result } => {
                // The id of the task stays as it is, or nobody could ask for its result.
                if let Some(message) = result.get_mut("statusMessage") {
                    masking.value(message);
                }
                CallError::AnswersLater { result }
            }
            CallError::NeedsInput { mut result } => {
                if let Some(questions) = result.get_mut("inputRequests") {
                    masking.question(questions);
                }
                CallError::NeedsInput { result }
            }
            other => other,
        }
    }
}

impl ConnectError {
    /// Whether the server can be connected to only after somebody has logged in.
    pub fn needs_login(&self) -> bool {
        self.needs_login
    }

    pub(super) fn of(reason: String) -> Self {
        ConnectError {
            reason,
            next: None,
            needs_login: false,
        }
    }

    pub(super) fn denied(denial: &Denial, server: &str, has_key: bool) -> Self {
        ConnectError {
            needs_login: !has_key,
            ..ConnectError::of(denied(denial, server, has_key))
        }
    }

    /// The error of an HTTP request that a connection begins with.
    pub(super) fn of_http(error: &HttpError, server: &str, has_key: bool) -> Self {
        match denial(error) {
            Some(denial) => ConnectError::denied(&denial, server, has_key),
            None => ConnectError::of(causes(error)),
        }
    }
}

impl From<ClientInitializeError> for ConnectError {
    fn from(error: ClientInitializeError) -> Self {
        ConnectError::of(of_handshake(&error))
    }
}

/// What a person has to do before a server serves this program.
pub(super) fn denied(denial: &Denial, server: &str, has_key: bool) -> String {
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

/// Whether a request was not sent, or was refused before it had an effect.
pub(super) fn was_not_taken(error: &(dyn std::error::Error + 'static)) -> bool {
    let lost_session = matches!(
        error.downcast_ref(),
        Some(HttpError::SessionExpired | HttpError::ReinitializationFailed(_))
    );
    lost_session || lacks_token(error)
}

pub(super) fn with_stderr_tail(reason: String, stderr_tail: &StderrTail) -> String {
    match stderr_tail.text() {
        Some(text) => format!("{reason}; its last output: {text}"),
        None => reason,
    }
}
