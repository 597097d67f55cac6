//! The folders of the client (roots), which servers may ask for.
#![expect(deprecated, reason = "servers of these versions have no other way")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorData, ListRootsResult};
use rmcp::service::{Peer, RoleServer, ServiceError};
use tokio::time::timeout;

use toolscout_base::printable::excerpt;

/// The folders, as a client lists them.
pub type ListedRoots = ListRootsResult;

/// How long a client may take to list its folders.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folders of the only client of this program.
///
/// Some servers let their callers use all that these folders hold. So they are passed on only where
/// the client is the user who has started this program: one of several clients could open folders to
/// the others.
#[derive(Debug, Default)]
pub struct Roots {
    are_passed: AtomicBool,
    client: Mutex<Option<Peer<RoleServer>>>,
}

impl Roots {
    /// Lets servers ask for the folders. Before the first connection.
    pub fn pass(&self) {
        self.are_passed.store(true, Ordering::Relaxed);
    }

    /// Whether servers may ask.
    pub fn are_passed(&self) -> bool {
        self.are_passed.load(Ordering::Relaxed)
    }

    /// Sets the client that has them.
    pub fn set_client(&self, client: Peer<RoleServer>) {
        *self.client.lock() = Some(client);
    }

    /// Asks the client for its folders.
    ///
    /// # Errors
    /// Without a client that has any, and those of the client.
    pub async fn list(&self) -> Result<ListedRoots, ErrorData> {
        let client = self.client.lock().clone();
        let Some(client) = client.filter(|_| self.are_passed()) else {
            let message = "no client with roots is connected";
            return Err(ErrorData::invalid_request(message, None));
        };
        match timeout(PATIENCE, client.list_roots()).await {
            Ok(Ok(roots)) => Ok(roots),
            Ok(Err(ServiceError::McpError(error))) => Err(error),
            Ok(Err(error)) => {
                let message = excerpt(&error.to_string(), 200);
                Err(ErrorData::internal_error(message, None))
            }
            Err(_) => {
                let message = "the client did not list its roots in time";
                Err(ErrorData::internal_error(message, None))
            }
        }
    }
}
