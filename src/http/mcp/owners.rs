//! Whose a session is: its id alone opens it to nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderValue};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use crate::http::MCP_SESSION_ID;

/// Stands for a session that is another's; no session has this id.
const NO_SESSION: HeaderValue = HeaderValue::from_static("no-session");

/// The owners of the sessions, by id.
pub struct SessionOwners {
    sessions: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, String>>,
    max_sessions: usize,
}

impl SessionOwners {
    /// The owners of these sessions, of which there are so many at most.
    pub fn new(sessions: Arc<LocalSessionManager>, max_sessions: usize) -> Self {
        SessionOwners {
            sessions,
            owners: Mutex::default(),
            max_sessions,
        }
    }

    /// Makes a request for the session of another sender one for a session that is not there.
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

    /// Notes whose session an answer begins.
    pub async fn note(&self, sender: &str, answer: &HeaderMap) {
        let Some(session) = answer
            .get(MCP_SESSION_ID)
            .and_then(|session| session.to_str().ok())
        else {
            return;
        };
        // Sessions end without a word, so from time to time those that did are forgotten.
        if self.lock().len() >= 2 * self.max_sessions {
            let living = self.sessions.sessions.read().await;
            self.lock()
                .retain(|session, _| living.contains_key(session.as_str()));
        }
        self.lock()
            .entry(session.to_owned())
            .or_insert_with(|| sender.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
