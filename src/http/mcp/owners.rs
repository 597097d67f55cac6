//! The owners of MCP sessions: knowing the id of a session is not enough to use it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderValue};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use crate::http::MCP_SESSION_ID;

/// Replaces the id of another sender's session. No session has this id.
const NO_SESSION: HeaderValue = HeaderValue::from_static("no-session");

/// The owners of the sessions, by id.
pub struct SessionOwners {
    sessions: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, String>>,
    max_sessions: usize,
}

impl SessionOwners {
    /// The owners of these sessions, of which there are at most `max_sessions`.
    pub fn new(sessions: Arc<LocalSessionManager>, max_sessions: usize) -> Self {
        SessionOwners {
            sessions,
            owners: Mutex::default(),
            max_sessions,
        }
    }

    /// Turns a request for another sender's session into one for a session that does not exist.
    pub fn hide_foreign(&self, sender: &str, headers: &mut HeaderMap) {
        let Some(session) = headers.get(MCP_SESSION_ID) else {
            return;
        };
        let session = session.to_str().unwrap_or_default();
        let is_own = self
            .lock()
            .get(session)
            .is_some_and(|owner| owner == sender);
        if !is_own {
            headers.insert(MCP_SESSION_ID, NO_SESSION);
        }
    }

    /// Records the sender as the owner of the session that an answer starts, if it starts one.
    pub async fn record(&self, sender: &str, answer: &HeaderMap) {
        let Some(session) = answer
            .get(MCP_SESSION_ID)
            .and_then(|session| session.to_str().ok())
        else {
            return;
        };
        // Nothing reports the end of a session, so the ended ones are removed when the map has
        // grown to twice its bound.
        if self.lock().len() >= 2 * self.max_sessions {
            let open = self.sessions.sessions.read().await;
            self.lock()
                .retain(|session, _| open.contains_key(session.as_str()));
        }
        self.lock()
            .entry(session.to_owned())
            .or_insert_with(|| sender.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
