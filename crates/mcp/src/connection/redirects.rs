//! Which redirects of servers are followed.

use reqwest::{StatusCode, redirect};

use toolscout_base::printable::excerpt;

/// Most redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// The policy of the client for HTTP.
pub(super) fn policy() -> redirect::Policy {
    redirect::Policy::custom(redirected)
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Redirected {
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
