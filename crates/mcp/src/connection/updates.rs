//! Log levels and subscriptions of a connection.
#![expect(
    deprecated,
    reason = "servers up to protocol 2025-11-25 have no other way"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ServerCapabilities, ServerNotification, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RoleClient};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::handler::Handler;
use super::notices::Level;
use super::{CallError, Connection};

/// How long a server may take to change its log level, for which a client waits.
const LEVEL_PATIENCE: Duration = Duration::from_secs(5);

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
        let mut subscription = self.in_time(self.peer.listen(filter)).await?;
        let (server, notices) = (self.server.clone(), self.handler.notices.clone());
        let ended = CancellationToken::new();
        let stop = ended.clone();
        let listening = async move {
            while let Ok(Some(told)) = subscription.next().await {
                if let ServerNotification::ResourceUpdatedNotification(updated) = told {
                    notices.updated(&server, &updated.params.uri);
                }
            }
        };
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
    let (peer, handler) = (peer.clone(), handler.clone());
    let listening = async move {
        let Ok(mut subscription) = peer.listen(filter).await else {
            return;
        };
        while let Ok(Some(told)) = subscription.next().await {
            match told {
                ServerNotification::ToolListChangedNotification(_) => {
                    handler.list_changed.notify_one();
                }
                ServerNotification::PromptListChangedNotification(_)
                | ServerNotification::ResourceListChangedNotification(_) => {
                    handler.offers_have_changed();
                }
                _ => {}
            }
        }
    };
    let stop = stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(listening).await });
}
