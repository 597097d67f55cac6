//! Log levels and subscriptions of a connection.
#![expect(
    deprecated,
    reason = "servers up to protocol 2025-11-25 have no other way"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ErrorCode, ServerCapabilities, ServerNotification, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RoleClient, ServiceError, Subscription};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handler::Handler;
use super::notices::Level;
use super::{CallError, Connection, QUOTED_CHARS};
use crate::Limits;
use toolscout_base::printable::excerpt;

/// How long a server may take to change its log level, for which a client waits.
const LEVEL_PATIENCE: Duration = Duration::from_secs(5);

/// Most times in a row that a server refuses a subscription.
const MAX_REFUSALS: u32 = 10;

/// What keeps the subscriptions of a connection without a session, by URI.
#[derive(Default)]
pub(super) struct Listening(Mutex<BTreeMap<String, DropGuard>>);

impl Connection {
    /// What the server can do.
    pub fn capabilities(&self) -> ServerCapabilities {
        match self.peer.peer_info() {
            Some(info) => info.capabilities.clone(),
            None => ServerCapabilities::default(),
        }
    }

    /// Whether there is a session, in which the server tells its client what happens.
    pub(super) fn has_session(&self) -> bool {
        match self.peer.peer_info() {
            Some(info) => info.protocol_version.has_initialize(),
            None => true,
        }
    }

    /// Tells the server from which level on it writes log messages. Without a session, each call says it.
    pub async fn set_log_level(&self, level: Level) {
        if self.capabilities().logging.is_none() || !self.has_session() {
            return;
        }
        let setting = self.peer.set_level(SetLevelRequestParams::new(level));
        let problem = match timeout(LEVEL_PATIENCE, setting).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => self.message(&error),
            Err(_) => format!("no answer within {} s", LEVEL_PATIENCE.as_secs()),
        };
        tracing::warn!(server = %self.server, problem, "the log level of an MCP server was not set");
    }

    /// Tells the server that the folders of the client have changed.
    pub async fn roots_changed(&self) {
        if self.has_session() {
            let telling = self.peer.notify_roots_list_changed();
            let _ = timeout(LEVEL_PATIENCE, telling).await;
        }
    }

    /// Asks the server to tell when this resource changes.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn subscribe(&self, uri: &str) -> Result<(), CallError> {
        if self.has_session() {
            let asked = self.peer.subscribe(SubscribeRequestParams::new(uri));
            return self.in_time(asked).await;
        }
        let filter = SubscriptionFilter::builder()
            .resource_subscription(uri)
            .build();
        let first = self.in_time(self.peer.listen(filter.clone())).await?;
        let (server, notices) = (self.server.clone(), self.handler.notices.clone());
        let (ended, own_uri) = (CancellationToken::new(), uri.to_owned());
        let stop = ended.clone();
        let listening = Listener {
            server: Arc::clone(&self.server),
            peer: self.peer.clone(),
            filter,
            limits: self.limits,
        };
        let listening = listening.listen(Some(first), move |heard| match heard {
            Some(ServerNotification::ResourceUpdatedNotification(updated)) => {
                notices.updated(&server, &updated.params.uri);
            }
            Some(_) => {}
            None => notices.updated(&server, &own_uri),
        });
        tokio::spawn(async move { stop.run_until_cancelled(listening).await });
        let mut listened = self.listening.0.lock();
        listened.insert(uri.to_owned(), ended.drop_guard());
        Ok(())
    }

    /// Ends a subscription. A server that does not answer tells more than is wanted, which is ignored.
    pub async fn unsubscribe(&self, uri: &str) {
        let listened = self.listening.0.lock().remove(uri);
        if listened.is_some() || !self.has_session() {
            return;
        }
        let asked = self.peer.unsubscribe(UnsubscribeRequestParams::new(uri));
        if let Err(error) = self.in_time(asked).await {
            tracing::debug!(server = %self.server, uri, %error, "a subscription was not ended");
        }
    }
}

/// Without a session, a server notifies only subscribers of changes of its lists.
pub(super) fn subscribe_if_needed(
    peer: &Peer<RoleClient>,
    handler: &Handler,
    limits: Limits,
    stop: &CancellationToken,
) {
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
    let handler = handler.clone();
    let listener = Listener {
        server: Arc::clone(&handler.server),
        peer: peer.clone(),
        filter,
        limits,
    };
    let listening = listener.listen(None, move |heard| match heard {
        Some(ServerNotification::ToolListChangedNotification(_)) => {
            handler.list_changed.notify_one();
        }
        Some(
            ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_),
        )
        | None => handler.offers_have_changed(),
        Some(_) => {}
    });
    let stop = stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(listening).await });
}

/// Whether a server would refuse a subscription with this error each time: it has none, or not this one.
fn is_lasting(code: ErrorCode) -> bool {
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_PARAMS].contains(&code)
}

/// Makes a subscription, and makes it again whenever it ends.
struct Listener {
    server: Arc<str>,
    peer: Peer<RoleClient>,
    filter: SubscriptionFilter,
    limits: Limits,
}

impl Listener {
    /// Listens until the connection is closed, or the server refuses the subscription for good. `hear` gets what the
    /// server tells, and `None` when the subscription was made again: what changed meanwhile is not known.
    async fn listen(
        self,
        first: Option<Subscription>,
        mut hear: impl FnMut(Option<ServerNotification>),
    ) {
        let (mut subscription, mut is_first) = (first, true);
        let (mut pause, mut refusals) = (self.limits.first_pause, 0);
        loop {
            let made = match subscription.take() {
                Some(made) => Ok(made),
                None => self.peer.listen(self.filter.clone()).await,
            };
            match made {
                Ok(mut made) => {
                    let begun = Instant::now();
                    if !is_first {
                        hear(None);
                    }
                    (is_first, refusals) = (false, 0);
                    while let Ok(Some(told)) = made.next().await {
                        hear(Some(told));
                    }
                    // One that ends at once each time is not made again at once.
                    if begun.elapsed() > self.limits.longest_pause {
                        pause = self.limits.first_pause;
                    }
                }
                Err(ServiceError::McpError(error)) => {
                    refusals += 1;
                    // Another error may be one of the moment.
                    if is_lasting(error.code) || refusals == MAX_REFUSALS {
                        let (server, reason) =
                            (&self.server, excerpt(&error.message, QUOTED_CHARS));
                        tracing::warn!(%server, reason, "an MCP server refuses a subscription");
                        return;
                    }
                }
                Err(_) => {}
            }
            if self.peer.is_transport_closed() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.limits.longest_pause);
        }
    }
}
