//! Logins to MCP servers by OAuth: one for each URL, kept in the data directory.
//!
//! [`begin`] finds the authorization server of a server, and [`LoginPage`] is the page there that a
//! person has to visit; what the browser brings back becomes tokens in a file of [`Logins`].
//! [`Tokens`] gives each request to the server a token that is valid, and renews it.

mod browser;
mod client;
mod file;
mod logout;
mod tokens;

use std::error::Error;
use std::io;
use std::path::PathBuf;

use reqwest::Url;
use rmcp::transport::AuthError;

use crate::config::{OAuthSettings, ServerConfig, Transport};
use toolscout_base::printable::{excerpt, line};

pub use browser::{LoginPage, begin};
pub use file::{Login, LoginFile, Logins};
pub use logout::{LoggedOut, logout};
pub use tokens::Tokens;

/// Most characters of another server's text in messages of this program.
const QUOTED_CHARS: usize = 300;

/// Why there is no login.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The server is a process.
    #[error("server {server:?} is a process, which has no login; give it what it needs as `env`")]
    Process {
        /// The server's name in the settings.
        server: String,
    },
    /// Its settings lack something.
    #[error("server {server:?}: {reason}")]
    Incomplete {
        /// The server's name in the settings.
        server: String,
        /// What, and what to do.
        reason: String,
    },
    /// Its settings have what a login would bring.
    #[error(
        "the settings of server {server:?} have an Authorization header, which is sent instead of a login; remove it first"
    )]
    FixedHeader {
        /// The server's name in the settings.
        server: String,
    },
    /// The server does not say where one logs in.
    #[error(
        "{url} names no authorization server, so it has no login that can be found; check the path of its URL, and if it wants a key, give it as a header"
    )]
    NoAuthorizationServer {
        /// The URL of the server.
        url: String,
    },
    /// A program at the login's port is in the way.
    #[error("the port {port} for the way back from the browser cannot be used: {source}")]
    Port {
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// Nobody logged in.
    #[error("nobody logged in within {seconds} s; run it again, or wait longer with --timeout")]
    NobodyCame {
        /// How long it was waited.
        seconds: u64,
    },
    /// The page to visit is not one that a browser should open.
    #[error("the authorization server wants {url} to be opened, which is no page of https")]
    Page {
        /// The URL.
        url: String,
    },
    /// The authorization server refused, or its answers cannot be used.
    #[error("no login at {url}: {reason}")]
    Refused {
        /// The URL of the server.
        url: String,
        /// What it or the protocol says.
        reason: String,
    },
    /// The file of the tokens cannot be read or written.
    #[error("{action} {path}: {source}", path = path.display())]
    File {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file of the tokens has something else in it.
    #[error("{path} holds no login ({reason}); log in again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// Another process renews the tokens and does not end.
    #[error("{path} has been locked by another process for {seconds} s", path = path.display())]
    Locked {
        /// The file of the lock.
        path: PathBuf,
        /// How long it was waited.
        seconds: u64,
    },
}

impl LoginError {
    /// The error of the SDK in words, without the secrets that it may quote.
    fn refused(url: &Url, error: &AuthError, secrets: &[&str]) -> Self {
        LoginError::Refused {
            url: public(url),
            reason: reason(error, secrets),
        }
    }
}

/// What a login of this server needs.
///
/// # Errors
/// For a server that has no login.
pub fn remote(config: &ServerConfig) -> Result<(&Url, &OAuthSettings), LoginError> {
    let server = config.name.clone();
    match &config.transport {
        Transport::Stdio { .. } => Err(LoginError::Process { server }),
        Transport::Incomplete { reason } => Err(LoginError::Incomplete {
            server,
            reason: reason.clone(),
        }),
        Transport::Http { headers, .. } if has_authorization(headers) => {
            Err(LoginError::FixedHeader { server })
        }
        Transport::Http { url, oauth, .. } => Ok((url, oauth)),
    }
}

/// Whether the settings of a server say what is sent as `Authorization`.
pub fn has_authorization(
    headers: &[(reqwest::header::HeaderName, reqwest::header::HeaderValue)],
) -> bool {
    headers
        .iter()
        .any(|(name, _)| name == reqwest::header::AUTHORIZATION)
}

/// A URL without what may be secret in it.
pub fn public(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails for URLs without a host only, which have no password either.
    let _ = url.set_password(None);
    url.to_string()
}

/// An error of the SDK with its causes, and the next step where there is one.
fn reason(error: &AuthError, secrets: &[&str]) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors quote their cause.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    // An answer may repeat what it was sent.
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "[secret]");
    }
    let text = excerpt(&line(&text), QUOTED_CHARS);
    match error {
        AuthError::RegistrationFailed(_) if text.contains("scope") => {
            format!("{text}; ask for other scopes with --scope")
        }
        AuthError::RegistrationFailed(_) => format!(
            "{text}; register a client there and give it as `\"oauth\": {{\"client_id\": …}}` of the server"
        ),
        _ => text,
    }
}
