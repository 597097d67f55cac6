//! What a node follows of the store beside its catalogs, and what nodes tell each other at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::audit::LocalChain;
use super::feedback::SharedFeedback;
use super::keys::SharedKeys;
use super::{CONNECT_LIMIT, PostgresStore, StoreError};
use toolscout_state::feedback::FeedbackStore;
use toolscout_state::keys::{KeyCopy, KeyError, KeyStore};

/// Messages that a slow reader may be behind; it misses the older ones, and asks the store anyway.
const MAX_UNREAD: usize = 256;
/// Begins a message that is for those who wait, and says nothing about catalogs.
const MARK: char = '@';

/// What is followed, and who listens.
pub(super) struct Watch {
    keys: OnceLock<Arc<KeyCopy>>,
    /// Whose answers are signed with the store's secret.
    feedback: OnceLock<FeedbackStore>,
    has_secret: AtomicBool,
    /// The audit log of this node.
    pub(super) audit: OnceLock<LocalChain>,
    told: broadcast::Sender<String>,
    /// What went wrong when it was last tried.
    problems: Mutex<BTreeMap<&'static str, String>>,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            keys: OnceLock::new(),
            feedback: OnceLock::new(),
            has_secret: AtomicBool::new(false),
            audit: OnceLock::new(),
            told: broadcast::Sender::new(MAX_UNREAD),
            problems: Mutex::default(),
        }
    }
}

impl Watch {
    /// Passes a message on to those who wait. False where it is for nobody here.
    pub(super) fn note(&self, announced: &str) -> bool {
        let Some(message) = announced.strip_prefix(MARK) else {
            return false;
        };
        // Without a receiver nobody waits.
        let _ = self.told.send(message.to_owned());
        true
    }
}

impl PostgresStore {
    /// The keys of the store, with a copy of them in this folder if one is named. The copy is brought
    /// up to the store once [`PostgresStore::follow`] was called.
    ///
    /// # Errors
    /// [`KeyError`] for a copy that cannot be used.
    pub fn keys(self: &Arc<Self>, copy: Option<&Path>) -> Result<KeyStore, KeyError> {
        let copy = match (copy, self.watch.keys.get()) {
            (None, _) => None,
            // All callers share one copy: the one that follows the store.
            (Some(_), Some(open)) => Some(Arc::clone(open)),
            (Some(folder), None) => {
                let opened = Arc::new(KeyCopy::open(folder)?);
                Some(Arc::clone(self.watch.keys.get_or_init(|| opened)))
            }
        };
        let table = SharedKeys::new(Arc::clone(self));
        Ok(KeyStore::over(Arc::new(table), copy))
    }

    /// Stores feedback in the store. Answers are signed with the store's secret once
    /// [`PostgresStore::follow`] has read it.
    pub fn feedback(self: &Arc<Self>, local: FeedbackStore) -> FeedbackStore {
        let feedback = local.over(Arc::new(SharedFeedback::new(Arc::clone(self))));
        // A server opens its feedback once.
        let _ = self.watch.feedback.set(feedback.clone());
        feedback
    }

    /// Brings what this node follows up to the store, which has just answered or not.
    pub(super) async fn look(self: &Arc<Self>, has_answered: bool) {
        if !has_answered {
            if let Some(copy) = self.watch.keys.get() {
                copy.note_away();
            }
            return;
        }
        // A failure of one does not keep the others from being tried.
        self.report("signing secret", self.take_secret().await);
        self.report("keys", self.look_at_keys().await);
        self.report("usage memories", self.follow_memories().await);
        self.report("audit log", self.copy_audit_now().await);
    }

    /// Logs what went wrong, once while it is the same.
    pub(super) fn report(&self, what: &'static str, outcome: Result<(), StoreError>) {
        // The store is asked every second, so the same problem would fill the log.
        let mut problems = self.watch.problems.lock();
        let problem = outcome.err().map(|error| error.to_string());
        if problem.as_ref() == problems.get(what) {
            return;
        }
        match problem {
            Some(problem) => {
                tracing::warn!(
                    what,
                    problem,
                    "what nodes share is behind here; trying again"
                );
                problems.insert(what, problem);
            }
            None => drop(problems.remove(what)),
        }
    }

    /// Signs with the store's secret from now on.
    async fn take_secret(&self) -> Result<(), StoreError> {
        let Some(feedback) = self.watch.feedback.get() else {
            return Ok(());
        };
        // The secret of a store does not change, so it is read once.
        if self.watch.has_secret.load(Ordering::Acquire) {
            return Ok(());
        }
        let secret = self.ask(CONNECT_LIMIT, self.signing_secret()).await?;
        if let Err(error) = feedback.set_secret(secret) {
            return Err(StoreError::Refused(error.to_string()));
        }
        self.watch.has_secret.store(true, Ordering::Release);
        Ok(())
    }

    async fn look_at_keys(&self) -> Result<(), StoreError> {
        let Some(copy) = self.watch.keys.get() else {
            return Ok(());
        };
        let followed = self.ask(CONNECT_LIMIT, self.follow_keys(copy)).await;
        if followed.is_err() {
            copy.note_away();
        }
        followed
    }

    /// Everything that nodes tell each other from now on. It only wakes: what counts is in the store.
    pub(super) fn listen_in(&self) -> broadcast::Receiver<String> {
        self.watch.told.subscribe()
    }

    /// Tells every node something once the transaction is committed.
    pub(super) async fn tell(
        &self,
        connection: &mut sqlx::PgConnection,
        message: &str,
    ) -> Result<(), StoreError> {
        self.announce(connection, &format!("{MARK}{message}")).await
    }
}
