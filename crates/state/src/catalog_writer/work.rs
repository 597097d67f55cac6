//! The work of a catalog's writer, turn by turn.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use toolscout_index::{Catalog, EmbedProgress, Error, Searcher};

use super::pool::{Lane, Next, Task};
use super::{CatalogStore, Change, QueuedChange, Watch, WriteError, Written};
use toolscout_base::allocator;

/// Most changes in one commit. A commit costs tens of milliseconds, so changes that wait share one.
const MAX_GROUP: usize = 64;
/// Pause after embedding failed; it doubles with each further failure.
const FIRST_EMBED_RETRY: Duration = Duration::from_secs(1);
const LAST_EMBED_RETRY: Duration = Duration::from_secs(30);
/// How long the connection of a writer is kept for the next change.
const WRITER_REST: Duration = Duration::from_secs(2);
/// Pause while another process writes, which may be embedding.
const LOCKED_RETRY: Duration = Duration::from_secs(1);
/// How long a catalog is embedded while others wait for the thread.
const EMBED_TURN: Duration = Duration::from_secs(2);
/// A turn embeds this part of what is left, or so many texts where that is more. Then searches use the
/// new vectors, and whoever watches sees the progress.
const EMBED_TURN_PART: usize = 10;
const EMBED_TURN_TEXTS: usize = 512;

/// The queue of changes to a catalog, and what applies them. It holds the engine's writer lock only
/// while there is work, so that the command line can write to a catalog that is being served.
pub struct Work {
    name: String,
    queue: Mutex<Queue>,
    /// True from a wake until it looks.
    pub is_awaited: AtomicBool,
    is_closing: AtomicBool,
    catalog: Catalog,
    /// Locked by the turn in progress.
    applier: Mutex<Applier>,
    /// `None` once it was closed.
    published: Mutex<Option<watch::Sender<u64>>>,
}

#[derive(Default)]
struct Queue {
    /// As many as there are permits, at most.
    changes: VecDeque<QueuedChange>,
    is_closed: bool,
}

struct Applier {
    store: Box<dyn CatalogStore>,
    watch: Watch,
    /// When to embed next; `None` while every tool has its vectors.
    next_embedding: Option<Instant>,
    /// How often embedding failed since it last succeeded.
    failures: u32,
    /// Tools written since freed memory was last given back.
    written: usize,
}

impl Work {
    /// No changes yet.
    pub fn new(
        name: &str,
        catalog: Catalog,
        store: Box<dyn CatalogStore>,
        watch: Watch,
        published: watch::Sender<u64>,
    ) -> Self {
        let applier = Applier {
            store,
            watch,
            next_embedding: catalog.needs_writer().then(Instant::now),
            failures: 0,
            written: 0,
        };
        Work {
            name: name.to_owned(),
            queue: Mutex::default(),
            is_awaited: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            catalog,
            applier: Mutex::new(applier),
            published: Mutex::new(Some(published)),
        }
    }

    /// When it wants its first turn.
    pub fn first_turn(&self) -> Next {
        next_of(self.applier.lock().next_embedding)
    }

    /// Queues a change and calls for a turn. False once it takes no more.
    pub fn queue(&self, change: QueuedChange, call: impl FnOnce()) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return false;
        }
        queue.changes.push_back(change);
        // Called with the lock held, so that closing lets the task end only after this call.
        call();
        true
    }

    /// Takes no more changes, and interrupts embedding.
    pub fn take_no_more(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.queue.lock().is_closed = true;
    }

    /// Tells those who wait for a generation that none follows.
    pub fn end_publishing(&self) {
        self.catalog.close_resting(Duration::ZERO);
        drop(self.published.lock().take());
    }

    /// Commits changes that wait, together.
    fn apply_group(&self, applier: &mut Applier) {
        let group: Vec<QueuedChange> = {
            let mut queue = self.queue.lock();
            let count = queue.changes.len().min(MAX_GROUP);
            queue.changes.drain(..count).collect()
        };
        if group.is_empty() {
            return;
        }
        for queued in &group {
            applier.written += queued.change.tools();
        }
        applier.apply(group);
        // Not while more changes wait, since they would need the memory again.
        if applier.written >= allocator::MANY_TOOLS && !self.has_changes() {
            applier.written = 0;
            allocator::release_freed();
        }
        applier.follow(&self.catalog);
        if self.catalog.needs_writer() {
            applier.next_embedding = Some(Instant::now());
        }
    }

    /// Reads what others have committed.
    fn look(&self, applier: &mut Applier) {
        // Reset before the look, so that a commit that comes meanwhile wakes it again.
        self.is_awaited.store(false, Ordering::Release);
        let refreshed = applier.refresh();
        applier.follow(&self.catalog);
        match refreshed {
            Ok(_) if self.catalog.needs_writer() && applier.next_embedding.is_none() => {
                applier.next_embedding = Some(Instant::now());
            }
            // Not logged here: the store's own task logs that it is away.
            Ok(_) | Err(WriteError::Unavailable(_) | WriteError::Deleted) => {}
            Err(error) => {
                tracing::warn!(catalog = self.name, %error, "cannot read commits of others")
            }
        }
    }

    fn embed(&self, applier: &mut Applier, is_wanted: &dyn Fn() -> bool) {
        let until = Instant::now() + EMBED_TURN;
        let mut is_stopped = false;
        let mut proceed = |progress: EmbedProgress| {
            let part = (progress.total / EMBED_TURN_PART).max(EMBED_TURN_TEXTS);
            // `is_wanted` comes last, since it takes the lock of the pool.
            is_stopped = progress.done >= part
                || self.is_interrupted()
                || (Instant::now() >= until && is_wanted());
            match is_stopped {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = caught(|| {
            let mut writer = self.catalog.writer()?;
            writer.embed_pending(&mut proceed)
        });
        if let Some(Ok(_)) = &outcome {
            applier.failures = 0;
        }
        let pending = self.catalog.searcher().pending_embeddings();
        applier.next_embedding = match outcome {
            Some(Ok(_)) if !self.catalog.needs_writer() => None,
            Some(Ok(_)) if is_stopped => Some(Instant::now()),
            // Embedding finished, yet something is left to do. Trying again at once would not help.
            Some(Ok(_)) => Some(Instant::now() + LAST_EMBED_RETRY),
            Some(Err(Error::Locked { .. })) => Some(Instant::now() + LOCKED_RETRY),
            Some(Err(error)) => Some(self.retry(applier, pending, &error.to_string())),
            None => Some(self.retry(applier, pending, "it panicked")),
        };
    }

    /// When to embed again after it failed.
    fn retry(&self, applier: &mut Applier, pending: usize, error: &str) -> Instant {
        let pause = embed_retry(applier.failures);
        applier.failures = applier.failures.saturating_add(1);
        tracing::warn!(
            catalog = self.name,
            pending,
            error,
            retry_s = pause.as_secs(),
            "embedding failed; these tools are found by their words until a retry succeeds"
        );
        Instant::now() + pause
    }

    /// True when a change is queued, others have committed, or it is closing.
    fn is_interrupted(&self) -> bool {
        self.has_changes()
            || self.is_awaited.load(Ordering::Acquire)
            || self.is_closing.load(Ordering::Relaxed)
    }

    fn is_to_look(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire) && !self.is_closing.load(Ordering::Relaxed)
    }

    fn has_changes(&self) -> bool {
        !self.queue.lock().changes.is_empty()
    }

    fn publish(&self) {
        if let Some(published) = &*self.published.lock() {
            published.send_replace(self.catalog.searcher().generation());
        }
    }
}

impl Task for Work {
    fn turn(&self, lane: Lane, is_wanted: &dyn Fn() -> bool) -> Next {
        let mut applier = self.applier.lock();
        match lane {
            Lane::Changes => {
                self.apply_group(&mut applier);
                if self.is_to_look() {
                    self.look(&mut applier);
                }
            }
            Lane::Embedding => self.embed(&mut applier, is_wanted),
        }
        self.publish();
        if self.has_changes() || self.is_to_look() {
            return Next::Changes;
        }
        next_of(applier.next_embedding)
    }

    fn has_news(&self) -> bool {
        let Some(applier) = self.applier.try_lock() else {
            // The task has a turn right now.
            return false;
        };
        self.catalog.close_resting(WRITER_REST);
        let has_news = applier.store.may_have_news();
        if has_news {
            self.is_awaited.store(true, Ordering::Release);
        }
        has_news
    }
}

impl Applier {
    /// Commits all of them together. When that fails, each is committed alone, so that one bad
    /// change does not fail the others.
    fn apply(&mut self, group: Vec<QueuedChange>) {
        let changes: Vec<&Change> = group.iter().map(|queued| &queued.change).collect();
        match self.commit(&changes) {
            Ok(written) => {
                for (queued, written) in group.into_iter().zip(written) {
                    queued.answer(Ok(written));
                }
            }
            // If a panic came after the commit, the changes change nothing the second time.
            Err(WriteError::Catalog(_) | WriteError::Elsewhere | WriteError::Panicked)
                if group.len() > 1 =>
            {
                for queued in group {
                    self.apply(vec![queued]);
                }
            }
            Err(error) => {
                let mut group = group.into_iter();
                let first = group.next();
                for queued in group {
                    // No single change is wrong: the failure is the same for all.
                    queued.answer(Err(error.of_all()));
                }
                if let Some(first) = first {
                    first.answer(Err(error));
                }
            }
        }
    }

    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
        caught(|| self.store.commit(changes)).unwrap_or(Err(WriteError::Panicked))
    }

    fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError> {
        caught(|| self.store.refresh()).unwrap_or(Err(WriteError::Panicked))
    }

    fn follow(&mut self, catalog: &Catalog) {
        // A panic here changes nothing, and the function is called again next time.
        let _ = caught(|| (self.watch)(catalog));
    }
}

fn next_of(next_embedding: Option<Instant>) -> Next {
    match next_embedding {
        Some(at) => Next::Embedding(at),
        None => Next::Idle,
    }
}

/// What this returns; `None` where it panics, which is logged by then. What a panic leaves half done
/// is a transaction, which is rolled back.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The pause after embedding failed, having failed so often before.
fn embed_retry(failures: u32) -> Duration {
    (FIRST_EMBED_RETRY * 2_u32.saturating_pow(failures.min(10))).min(LAST_EMBED_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedding_is_tried_again_soon_and_then_less_often() {
        let pauses: Vec<u64> = (0..7)
            .map(|failures| embed_retry(failures).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(embed_retry(u32::MAX), LAST_EMBED_RETRY);
    }
}
