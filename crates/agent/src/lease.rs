//! Keeps the lease of a running turn, where several processes share the conversations.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::record::Record;
use toolscout_state::session::{ConversationId, Lease, Sessions, TurnEvents};

/// A turn that this process runs.
pub(super) struct LeasedTurn {
    pub sessions: Arc<Sessions>,
    pub conversation: ConversationId,
    pub number: i64,
    /// Stops the turn.
    pub token: CancellationToken,
    /// Its events so far.
    pub record: Arc<Mutex<Record>>,
}

impl LeasedTurn {
    /// Renews the lease until the handle is dropped. Stops the turn once it is no longer this
    /// process's, or somebody asked another process to stop it.
    pub(super) fn keep(self) -> Option<AbortOnDropHandle<()>> {
        let is_leased = self.sessions.is_leased();
        is_leased.then(|| AbortOnDropHandle::new(tokio::spawn(self.renew_until_lost())))
    }

    async fn renew_until_lost(self) {
        let mut saved = TurnEvents::default();
        loop {
            self.sessions.renewal_due(&self.conversation).await;
            let events = self.record.lock().so_far();
            let is_new = events != saved;
            match self.renew(is_new.then(|| events.clone())).await {
                Some(Lease::Held) => saved = events,
                Some(Lease::Stopped | Lease::Lost) => return self.token.cancel(),
                // The store is away. The turn goes on, and belongs to this process unless another one
                // takes it once the lease has run out.
                None => {}
            }
        }
    }

    async fn renew(&self, events: Option<TurnEvents>) -> Option<Lease> {
        let (sessions, conversation) = (self.sessions.clone(), self.conversation.clone());
        let number = self.number;
        let renewed =
            spawn_blocking(move || sessions.renew(&conversation, number, events.as_ref()));
        renewed.await.ok()?.ok()
    }
}
