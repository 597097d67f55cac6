//! The places of MCP sessions: how many each key may have, and whose a session is. Knowing the id of
//! a session is not enough to use it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::SESSION_ID;
use crate::access::Grant;

/// Replaces the id of another sender's session. No session has this id.
const NO_SESSION: HeaderValue = HeaderValue::from_static("no-session");
/// How long a sender waits for the end of a session that makes room for its new one.
const ENDING: Duration = Duration::from_secs(2);

/// How many sessions there may be, and requests without a session.
#[derive(Clone, Copy, Debug)]
pub struct PlaceLimits {
    /// Of all senders.
    pub all: usize,
    /// Of one key.
    pub per_key: usize,
    /// Of all, those that only admin keys for all catalogs may take.
    pub for_operators: usize,
}

/// Who asks for a place.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The owner of its sessions.
    name: String,
    key: Option<String>,
    is_operator: bool,
}

impl Sender {
    /// The id of its key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl From<&Grant> for Sender {
    fn from(grant: &Grant) -> Self {
        Sender {
            name: grant.sender(),
            key: grant.key().map(str::to_owned),
            is_operator: grant.operates().is_ok(),
        }
    }
}

/// The places of all senders, of every profile together.
pub struct SessionPlaces {
    limits: PlaceLimits,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    places: BTreeMap<u64, Holder>,
    /// The places of sessions, by their ids.
    sessions: HashMap<String, u64>,
}

struct Holder {
    sender: String,
    is_operator: bool,
    /// `None` for a request without a session, and for a session that only begins.
    session: Option<OpenSession>,
}

struct OpenSession {
    id: Arc<str>,
    manager: Arc<LocalSessionManager>,
    /// Those in progress, open streams among them.
    requests: usize,
    used: Instant,
    is_ending: bool,
}

/// A place. It is free again when this is dropped.
pub struct Place {
    places: Arc<SessionPlaces>,
    number: u64,
    /// Cancelled once the place is free.
    over: CancellationToken,
}

impl Place {
    /// Cancelled once the place is free.
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }
}

/// A request in a session, which is not idle until this is dropped.
pub struct InUse {
    places: Arc<SessionPlaces>,
    number: u64,
}

impl SessionPlaces {
    /// As many places as the limits say.
    pub fn new(limits: PlaceLimits) -> Arc<Self> {
        Arc::new(SessionPlaces {
            limits,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// A place for a new session. Where the sender may take no more, its own session that is idle
    /// longest ends for it.
    ///
    /// # Errors
    /// What to do when there is no room and every session of the sender is in use.
    pub async fn take(self: &Arc<Self>, sender: &Sender) -> Result<Place, String> {
        let until = Instant::now() + ENDING;
        let mut ended = false;
        loop {
            // Listen before looking, so that no place that is freed in between is missed.
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let idlest = {
                let mut taken = self.taken.lock();
                if let Some(number) = taken.take(sender, self.limits) {
                    let places = Arc::clone(self);
                    return Ok(Place {
                        places,
                        number,
                        over: CancellationToken::new(),
                    });
                }
                // At most one session is ended for a new one.
                match ended {
                    true => None,
                    false => taken.end_idlest(&sender.name),
                }
            };
            if let Some((id, manager)) = idlest {
                ended = true;
                tracing::info!(
                    session = &*id,
                    sender = sender.name,
                    "an idle MCP session ended for a new one"
                );
                if let Err(error) = manager.close_session(&id).await {
                    tracing::warn!(session = &*id, %error, "an MCP session did not end");
                }
                continue;
            }
            // A sender that has too many gets room only when one of its own sessions ends.
            if !ended || timeout_at(until, freed).await.is_err() {
                return Err(self.refusal(sender));
            }
        }
    }

    /// Notes the session that began on this place, if the answer begins one. Returns its id.
    pub fn record(
        &self,
        place: &Place,
        manager: &Arc<LocalSessionManager>,
        answer: &HeaderMap,
    ) -> Option<Arc<str>> {
        let id: Arc<str> = session_of(answer)?.into();
        let mut taken = self.taken.lock();
        let holder = taken.places.get_mut(&place.number)?;
        holder.session = Some(OpenSession {
            id: Arc::clone(&id),
            manager: Arc::clone(manager),
            requests: 0,
            used: Instant::now(),
            is_ending: false,
        });
        taken.sessions.insert(id.to_string(), place.number);
        Some(id)
    }

    /// Notes a request in a session of the sender. A request for another sender's session becomes one
    /// for a session that does not exist.
    pub fn enter(self: &Arc<Self>, sender: &str, headers: &mut HeaderMap) -> Option<InUse> {
        let id = session_of(headers)?;
        let mut taken = self.taken.lock();
        let Some(number) = taken.begin_request(id, sender) else {
            headers.insert(SESSION_ID, NO_SESSION);
            return None;
        };
        let places = Arc::clone(self);
        Some(InUse { places, number })
    }

    fn refusal(&self, sender: &Sender) -> String {
        let PlaceLimits { all, per_key, .. } = self.limits;
        let own = self.taken.lock().count_of(&sender.name);
        if sender.key.is_some() && own >= per_key {
            return format!(
                "this key has {own} MCP sessions and requests without a session, of at most {per_key}, and all are in use; \
                 end one first (DELETE with its Mcp-Session-Id)"
            );
        }
        format!(
            "the server has as many MCP sessions as it takes, of at most {all}, and none of yours is idle; try again later"
        )
    }
}

impl Taken {
    fn take(&mut self, sender: &Sender, limits: PlaceLimits) -> Option<u64> {
        let own = self.count_of(&sender.name);
        // Without keys all clients are the same sender, so the limit of a key does not apply.
        if sender.key.is_some() && own >= limits.per_key {
            return None;
        }
        let others = self.places.values();
        let others = others.filter(|holder| !holder.is_operator).count();
        let is_full = self.places.len() >= limits.all
            || !sender.is_operator && others >= limits.all.saturating_sub(limits.for_operators);
        if is_full {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let holder = Holder {
            sender: sender.name.clone(),
            is_operator: sender.is_operator,
            session: None,
        };
        self.places.insert(number, holder);
        Some(number)
    }

    /// The session of the sender that is idle longest, which is no longer used from now on.
    fn end_idlest(&mut self, sender: &str) -> Option<(Arc<str>, Arc<LocalSessionManager>)> {
        let mut idlest: Option<&mut OpenSession> = None;
        for holder in self.places.values_mut() {
            let Some(session) = &mut holder.session else {
                continue;
            };
            if holder.sender != sender || session.requests > 0 || session.is_ending {
                continue;
            }
            if idlest.as_ref().is_none_or(|one| session.used < one.used) {
                idlest = Some(session);
            }
        }
        let session = idlest?;
        session.is_ending = true;
        Some((Arc::clone(&session.id), Arc::clone(&session.manager)))
    }

    /// Notes a request in a session of this sender. Returns the number of its place.
    fn begin_request(&mut self, id: &str, sender: &str) -> Option<u64> {
        let number = self.sessions.get(id).copied()?;
        let holder = self.places.get_mut(&number)?;
        let session = holder.session.as_mut()?;
        if holder.sender != sender || session.is_ending {
            return None;
        }
        session.requests += 1;
        Some(number)
    }

    fn count_of(&self, sender: &str) -> usize {
        let holders = self.places.values();
        holders.filter(|holder| holder.sender == sender).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(Holder {
            session: Some(session),
            ..
        }) = taken.places.remove(&self.number)
        {
            taken.sessions.remove(&*session.id);
        }
        drop(taken);
        // Done without the lock, since the waiters take it at once.
        self.over.cancel();
        self.places.freed.notify_waiters();
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        let holder = taken.places.get_mut(&self.number);
        if let Some(session) = holder.and_then(|holder| holder.session.as_mut()) {
            session.requests = session.requests.saturating_sub(1);
            session.used = Instant::now();
        }
    }
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(SESSION_ID)?;
    // An unreadable id becomes an empty one, which no session has.
    Some(id.to_str().unwrap_or_default())
}
