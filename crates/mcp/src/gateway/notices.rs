//! What clients are told without having asked: that lists or resources have changed, and what servers
//! write to their logs.
#![expect(
    deprecated,
    reason = "clients of these versions have no other way to read logs"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::request::Parts;
use parking_lot::Mutex;
use rmcp::model::{ErrorData, Extensions, ResourceUpdatedNotificationParam, SetLevelRequestParams};
use rmcp::service::{Peer, RequestContext, RoleServer, SubscriptionContext};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{GatewayState, NAME_CHARS, Principal, SESSION_ID, Session};
use crate::connection::{Level, LogMessage, Updated, severity};
use crate::pool::Subscription;
use toolscout_base::printable::excerpt;

/// What a client asks to read of the logs.
pub type LevelRequest = SetLevelRequestParams;

/// Most resources that a session subscribes to.
pub const MAX_SUBSCRIPTIONS: usize = 256;

/// What the client of a session wants to be told.
#[derive(Default)]
pub struct Wishes {
    level: Mutex<Option<Level>>,
    /// By the URI that the client knows.
    subscriptions: Mutex<BTreeMap<String, Subscription>>,
}

/// Who reads log messages.
#[derive(Clone)]
pub struct LogReader {
    pub key: String,
    pub session: String,
}

impl LogReader {
    /// Whether this reader gets a message from this level on.
    fn reads(&self, log: &LogMessage, from: Level, shared: &GatewayState) -> bool {
        severity(log.message.level) >= severity(from)
            && log.audience.has(&self.key, &self.session)
            && shared.may_know(&log.server)
    }
}

impl Wishes {
    /// The level that the client has set. Before, it gets what most programs write by default.
    fn level(&self) -> Level {
        self.level.lock().unwrap_or(Level::Info)
    }

    /// The URIs, as the client knows them, that a change belongs to. One of a resource below the one
    /// that was subscribed to keeps its own.
    fn changed(&self, server: &str, uri: &str) -> Vec<String> {
        let subscriptions = self.subscriptions.lock();
        let mut changed = Vec::new();
        for (known, subscription) in subscriptions.iter() {
            if subscription.covers(server, uri) {
                let is_itself = subscription.uri() == uri;
                changed.push(if is_itself { known } else { uri }.to_owned());
            }
        }
        changed
    }

    fn all(&self) -> Vec<String> {
        self.subscriptions.lock().keys().cloned().collect()
    }
}

impl Session {
    /// Sets from which level on the client reads log messages.
    pub(super) async fn read_logs_from(&self, request: &LevelRequest) {
        let level = request.level;
        *self.wishes.level.lock() = Some(level);
        self.shared.pool.set_log_level(&self.id, level).await;
    }

    /// The level that the client of a request reads, if it has said so.
    pub(super) fn log_level(&self, context: &RequestContext<RoleServer>) -> Option<Level> {
        let of_request = context.meta.log_level();
        of_request.or_else(|| *self.wishes.level.lock())
    }

    /// Tells the client when this resource changes.
    ///
    /// # Errors
    /// If it has too many subscriptions, and those of the server.
    pub(super) async fn add_subscription(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let is_known = |subscriptions: &BTreeMap<String, _>| subscriptions.contains_key(&uri);
        if is_known(&self.wishes.subscriptions.lock()) {
            return Ok(());
        }
        self.check_room()?;
        let subscription = self.subscription(&uri, context).await?;
        // Others may have come meanwhile.
        self.check_room()?;
        self.wishes.subscriptions.lock().insert(uri, subscription);
        Ok(())
    }

    fn check_room(&self) -> Result<(), ErrorData> {
        if self.wishes.subscriptions.lock().len() < MAX_SUBSCRIPTIONS {
            return Ok(());
        }
        let message = format!(
            "this session subscribes to {MAX_SUBSCRIPTIONS} resources, the most that it may; end a subscription with resources/unsubscribe"
        );
        Err(ErrorData::invalid_request(message, None))
    }

    /// Tells the client no longer when this resource changes.
    pub(super) fn remove_subscription(&self, uri: &str) {
        let removed = self.wishes.subscriptions.lock().remove(uri);
        drop(removed);
    }

    /// Tells the client what happens, until its session ends.
    pub(super) fn start_telling(&self, peer: Peer<RoleServer>, extensions: &Extensions) {
        // A client may say more than once that it is ready.
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let logs = tell_of_logs(
            peer.clone(),
            shared.pool.log_messages(),
            Arc::clone(&self.wishes),
            self.log_reader(extensions),
            Arc::clone(&shared),
        );
        let updates = shared.pool.resource_updates();
        let updates = tell_of_updates(peer.clone(), updates, Arc::clone(&self.wishes));
        let offers = tell_of_offers(peer, shared.pool.offers_changed());
        let ended = self.ended.clone();
        tokio::spawn(async move {
            let all = async { tokio::join!(logs, updates, offers) };
            ended.run_until_cancelled(all).await
        });
    }

    fn log_reader(&self, extensions: &Extensions) -> LogReader {
        let parts = extensions.get::<Parts>();
        let key = match parts {
            None => Principal::local().who,
            Some(parts) => match parts.extensions.get::<Principal>() {
                Some(principal) => principal.who.clone(),
                None => Principal::unknown().who,
            },
        };
        let of_transport = parts
            .and_then(|parts| parts.headers.get(SESSION_ID))
            .and_then(|id| id.to_str().ok());
        let session = session_of(&key, of_transport.unwrap_or(&self.id));
        LogReader { key, session }
    }

    /// Sends what servers write to their logs during a request, if the client asked for that with it.
    /// Clients with a session are told apart from their requests.
    pub(super) fn start_forwarding_logs(
        &self,
        context: &RequestContext<RoleServer>,
        reader: LogReader,
    ) -> Option<ForwardedLogs> {
        let level = context.meta.log_level()?;
        let mut heard = self.shared.pool.log_messages();
        let (peer, shared) = (context.peer.clone(), Arc::clone(&self.shared));
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let mut ended = ended;
            let mut is_over = false;
            loop {
                let log = match is_over {
                    // What came before the result is sent before it.
                    true => match heard.try_recv() {
                        Ok(log) => log,
                        Err(TryRecvError::Lagged(_)) => continue,
                        Err(_) => return,
                    },
                    false => tokio::select! {
                        _ = &mut ended => {
                            is_over = true;
                            continue;
                        }
                        heard = heard.recv() => match heard {
                            Ok(log) => log,
                            Err(RecvError::Lagged(_)) => continue,
                            Err(RecvError::Closed) => return,
                        },
                    },
                };
                if reader.reads(&log, level, &shared)
                    && peer
                        .notify_logging_message(log.message.clone())
                        .await
                        .is_err()
                {
                    return;
                }
            }
        });
        Some(ForwardedLogs { end, task })
    }

    /// Serves a subscription of a client without a session.
    pub(super) async fn tell_subscriber(&self, context: &SubscriptionContext) {
        let mut subscriptions = Vec::new();
        // Before the first subscription, so that no change is missed meanwhile.
        let mut heard = self.shared.pool.resource_updates();
        let wanted = context.accepted().resource_subscriptions.clone();
        for uri in wanted.unwrap_or_default() {
            match self.subscription(&uri, context.request_context()).await {
                Ok(subscription) => subscriptions.push((uri, subscription)),
                Err(error) => tracing::warn!(
                    uri = excerpt(&uri, NAME_CHARS),
                    error = %error.message,
                    "a client cannot be told of changes"
                ),
            }
        }
        let sink = context.sink();
        loop {
            match heard.recv().await {
                Ok(Updated { server, uri }) => {
                    for (known, subscription) in &subscriptions {
                        if subscription.covers(&server, &uri) {
                            let _ = sink.notify_resource_updated(known.clone()).await;
                        }
                    }
                }
                // Any of them may have changed.
                Err(RecvError::Lagged(_)) => {
                    for (known, _) in &subscriptions {
                        let _ = sink.notify_resource_updated(known.clone()).await;
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// Log messages that are sent during a request.
pub struct ForwardedLogs {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ForwardedLogs {
    /// The task that sends the rest, and ends.
    pub fn finish(self) -> JoinHandle<()> {
        let _ = self.end.send(());
        self.task
    }
}

/// Tells clients apart. `id` is that of the session.
pub fn session_of(key: &str, id: &str) -> String {
    format!("{key} {id}")
}

/// Tells the client of a session what servers write to their logs.
async fn tell_of_logs(
    peer: Peer<RoleServer>,
    mut heard: Receiver<Arc<LogMessage>>,
    wishes: Arc<Wishes>,
    reader: LogReader,
    shared: Arc<GatewayState>,
) {
    loop {
        let log = match heard.recv().await {
            Ok(log) => log,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        if !reader.reads(&log, wishes.level(), &shared) {
            continue;
        }
        let told = peer.notify_logging_message(log.message.clone());
        if told.await.is_err() {
            return;
        }
    }
}

/// Tells the client of a session which of its resources change.
async fn tell_of_updates(
    peer: Peer<RoleServer>,
    mut heard: Receiver<Updated>,
    wishes: Arc<Wishes>,
) {
    loop {
        let changed = match heard.recv().await {
            Ok(Updated { server, uri }) => wishes.changed(&server, &uri),
            // Any of them may have changed.
            Err(RecvError::Lagged(_)) => wishes.all(),
            Err(RecvError::Closed) => return,
        };
        for uri in changed {
            let updated = ResourceUpdatedNotificationParam::new(uri);
            if peer.notify_resource_updated(updated).await.is_err() {
                return;
            }
        }
    }
}

/// Tells the client of a session when prompts or resources of servers may have changed.
async fn tell_of_offers(peer: Peer<RoleServer>, mut changed: watch::Receiver<u64>) {
    while changed.changed().await.is_ok() {
        let told = [
            peer.notify_prompt_list_changed().await,
            peer.notify_resource_list_changed().await,
        ];
        if told.iter().any(Result::is_err) {
            return;
        }
    }
}
