//! Subscriptions of clients to resources of a server: the server is asked once for each resource,
//! however many clients wait for its changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::Server;
use crate::connection::{CallError, Connection};

/// Most resources of one server that clients subscribe to.
const MAX_RESOURCES: usize = 4_096;

/// The subscriptions to one server.
#[derive(Default)]
pub(super) struct Subscriptions {
    /// How many clients subscribe to each resource. Locked while the server is asked, so that the end of
    /// the last subscription and a new one keep their order.
    clients: Mutex<BTreeMap<String, usize>>,
    /// How many resources there are.
    resources: AtomicUsize,
}

/// A subscription of one client, until it is dropped.
pub struct Subscription {
    server: Arc<Server>,
    uri: String,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({} {})", self.server(), self.uri)
    }
}

impl Subscription {
    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.server.config.name
    }

    /// The URI of the resource at the server.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Whether a change of the resource with this URI is one of the resource that was subscribed to: the
    /// resource itself, or one below it.
    pub fn covers(&self, server: &str, uri: &str) -> bool {
        if server != self.server() {
            return false;
        }
        match uri.strip_prefix(&self.uri) {
            Some("") => true,
            Some(rest) => self.uri.ends_with('/') || rest.starts_with(['/', '#', '?']),
            None => false,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Without a runtime the program ends, and the connection with it.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (server, uri) = (Arc::clone(&self.server), std::mem::take(&mut self.uri));
        runtime.spawn(async move { server.unsubscribe(&uri).await });
    }
}

impl Subscriptions {
    /// Whether nobody waits for changes.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.load(Ordering::Relaxed) == 0
    }

    /// Asks for all of them again, at a new connection.
    pub(super) async fn renew(&self, connection: &Connection) {
        let clients = self.clients.lock().await;
        for uri in clients.keys() {
            if let Err(error) = connection.subscribe(uri).await {
                tracing::warn!(uri, %error, "a subscription was not renewed");
            }
        }
    }
}

impl Server {
    /// Subscribes a client to a resource.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        uri: String,
    ) -> Result<Subscription, CallError> {
        let connection = self.connection().await?;
        let mut clients = self.subscriptions.clients.lock().await;
        let resources = clients.len();
        match clients.get_mut(&uri) {
            Some(clients) => *clients += 1,
            None if resources == MAX_RESOURCES => {
                let message = format!(
                    "clients have subscribed to {MAX_RESOURCES} resources of server {:?}, the most that they may",
                    self.config.name
                );
                return Err(CallError::Refused {
                    code: -32600,
                    message,
                    data: None,
                });
            }
            None => {
                connection.subscribe(&uri).await?;
                clients.insert(uri.clone(), 1);
                self.subscriptions
                    .resources
                    .store(clients.len(), Ordering::Relaxed);
            }
        }
        drop(clients);
        Ok(Subscription {
            server: Arc::clone(self),
            uri,
        })
    }

    async fn unsubscribe(&self, uri: &str) {
        let mut clients = self.subscriptions.clients.lock().await;
        match clients.get_mut(uri) {
            Some(clients) if *clients > 1 => {
                *clients -= 1;
                return;
            }
            _ => {}
        }
        clients.remove(uri);
        self.subscriptions
            .resources
            .store(clients.len(), Ordering::Relaxed);
        // A server that is down has forgotten it.
        if let Some(connection) = self.ready_connection() {
            connection.unsubscribe(uri).await;
        }
    }
}
