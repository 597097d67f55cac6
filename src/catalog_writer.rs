//! The single writer of a catalog: a bounded queue of changes, and one thread that applies and
//! commits them. While the queue is empty, the thread embeds the tools that have no vectors yet.
//!
//! The HTTP server and the MCP gateway both write through this.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolscout_index::{
    Catalog, Changes, Error, Result, SearchOptions, Settings, Tool, ToolId, Writer,
};

use crate::telemetry::GaugeGuard;

/// Most changes in one commit. A commit costs tens of milliseconds, so changes that wait share one.
const MAX_GROUP: usize = 64;
/// How often the thread looks for commits of other processes.
const REFRESH: Duration = Duration::from_secs(1);
/// Pause after embedding failed; it doubles with each further failure.
const FIRST_EMBED_RETRY: Duration = Duration::from_secs(1);
const LAST_EMBED_RETRY: Duration = Duration::from_secs(30);

/// A change to a catalog, applied whole or not at all.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds tools, and replaces those with the same id.
    Upsert(Vec<Tool>),
    /// Removes tools.
    Remove(Vec<ToolId>),
    /// Makes a server's tools exactly these.
    Sync {
        /// The server.
        server: String,
        /// All its tools.
        tools: Vec<Tool>,
    },
    /// Replaces the description and the search defaults. Other settings stay.
    Settings {
        /// What the catalog is for.
        description: String,
        /// The defaults of its searches.
        search: SearchOptions,
    },
}

/// A committed change, visible to searches.
#[derive(Clone, Debug)]
pub struct Written {
    /// The tools it added, changed and removed.
    pub changes: Changes,
    /// The generation that holds it. A change that changes nothing commits nothing.
    pub generation: u64,
}

/// Why a change was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The queue is full.
    #[error("the write queue of this catalog is full; try again later")]
    QueueFull,
    /// The writer was closed.
    #[error("the catalog is closed for writing")]
    Closed,
    /// The writer thread panicked.
    #[error("the writer thread of this catalog ended; restart the program")]
    ThreadEnded,
    /// The catalog refused the change.
    #[error(transparent)]
    Catalog(#[from] Error),
}

/// Called about once a second, when what other processes have committed was read.
pub type Watch = Box<dyn FnMut(&Catalog) + Send>;

/// The queue of changes to one catalog. Dropping it ends the thread after the change in progress.
pub struct CatalogWriter {
    /// One permit for each change in the queue.
    permits: Arc<Semaphore>,
    queue: Mutex<Option<Sender<QueuedChange>>>,
    closing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    depth: Gauge,
}

struct QueuedChange {
    change: Change,
    reply: oneshot::Sender<Result<Written>>,
    _permit: OwnedSemaphorePermit,
    _depth: GaugeGuard,
}

impl CatalogWriter {
    /// Starts the writer thread of the catalog `name`, with a queue of `capacity` changes. `depth`
    /// shows how many are queued.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(
        name: &str,
        catalog: Catalog,
        capacity: usize,
        depth: Gauge,
    ) -> std::io::Result<Self> {
        CatalogWriter::start_watching(name, catalog, capacity, depth, Box::new(|_| ()))
    }

    /// As [`CatalogWriter::start`], with a function that follows the catalog.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start_watching(
        name: &str,
        catalog: Catalog,
        capacity: usize,
        depth: Gauge,
        watch: Watch,
    ) -> std::io::Result<Self> {
        let (sender, queue) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let permits = Arc::new(Semaphore::new(capacity));
        let thread = WriterThread {
            name: name.to_owned(),
            catalog,
            queue,
            closing: Arc::clone(&closing),
            permits: Arc::clone(&permits),
            capacity,
            next_embedding: Some(Instant::now()),
            failures: 0,
            watch,
        };
        let handle = std::thread::Builder::new()
            .name(format!("write {name}"))
            .spawn(move || thread.run())?;
        Ok(CatalogWriter {
            permits,
            queue: Mutex::new(Some(sender)),
            closing,
            thread: Mutex::new(Some(handle)),
            depth,
        })
    }

    /// Applies a change and returns once it is committed.
    ///
    /// # Errors
    /// [`WriteError::QueueFull`] at once, without waiting; otherwise as [`CatalogWriter::write`].
    pub async fn try_write(&self, change: Change) -> Result<Written, WriteError> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| WriteError::QueueFull)?;
        self.enqueue(change, permit).await
    }

    /// Waits for room in the queue, applies a change and returns once it is committed.
    ///
    /// # Errors
    /// [`WriteError::Closed`], [`WriteError::ThreadEnded`], [`WriteError::Catalog`].
    pub async fn write(&self, change: Change) -> Result<Written, WriteError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| WriteError::Closed)?;
        self.enqueue(change, permit).await
    }

    /// Takes no more changes, finishes those in the queue and waits for the thread. Blocks.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // The thread ends when the last sender is gone and the queue is empty.
        drop(
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer thread of a catalog panicked");
        }
    }

    async fn enqueue(
        &self,
        change: Change,
        permit: OwnedSemaphorePermit,
    ) -> Result<Written, WriteError> {
        let (reply, answer) = oneshot::channel();
        let queued = QueuedChange {
            change,
            reply,
            _permit: permit,
            _depth: GaugeGuard::new(&self.depth),
        };
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .and_then(|queue| queue.send(queued).ok())
            .ok_or(WriteError::Closed)?;
        Ok(answer.await.map_err(|_| WriteError::ThreadEnded)??)
    }
}

impl Drop for CatalogWriter {
    /// Interrupts embedding. The sender goes with `self`, which ends the thread.
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
    }
}

/// The only thread that writes to a catalog. It holds the engine's writer lock only while there is
/// work, so that the command line can write to a catalog that is being served.
struct WriterThread {
    name: String,
    catalog: Catalog,
    queue: Receiver<QueuedChange>,
    closing: Arc<AtomicBool>,
    permits: Arc<Semaphore>,
    capacity: usize,
    /// When to embed next; `None` while every tool has its vectors.
    next_embedding: Option<Instant>,
    /// How often embedding failed since it last succeeded.
    failures: u32,
    watch: Watch,
}

impl WriterThread {
    fn run(mut self) {
        loop {
            match self.queue.recv_timeout(self.idle_timeout()) {
                Ok(first) => self.apply_group(first),
                Err(RecvTimeoutError::Timeout) => self.use_idle_time(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// How long to wait for a change before the next embedding or refresh is due.
    fn idle_timeout(&self) -> Duration {
        let Some(next_embedding) = self.next_embedding else {
            return REFRESH;
        };
        REFRESH.min(next_embedding.saturating_duration_since(Instant::now()))
    }

    fn apply_group(&mut self, first: QueuedChange) {
        let mut group = vec![first];
        group.extend(self.queue.try_iter().take(MAX_GROUP - 1));
        self.apply(group);
        self.next_embedding = Some(Instant::now());
    }

    /// Commits all of them together. When that fails, each is committed alone, so that one bad
    /// change does not fail the others.
    fn apply(&self, group: Vec<QueuedChange>) {
        match self.commit(&group) {
            Ok(written) => {
                for (queued, written) in group.into_iter().zip(written) {
                    queued.answer(Ok(written));
                }
            }
            Err(_) if group.len() > 1 => {
                for queued in group {
                    self.apply(vec![queued]);
                }
            }
            // The group has one member here: the error is its own.
            Err(error) => {
                if let Some(queued) = group.into_iter().next() {
                    queued.answer(Err(error));
                }
            }
        }
    }

    fn commit(&self, group: &[QueuedChange]) -> Result<Vec<Written>> {
        let mut writer = self.catalog.writer()?;
        let mut all_changes = Vec::with_capacity(group.len());
        let mut is_changed = false;
        for queued in group {
            let applied = queued.change.apply(&mut writer)?;
            is_changed |= applied.is_changed;
            all_changes.push(applied.changes);
        }
        let generation = if is_changed {
            writer.commit()?
        } else {
            // An empty commit would cost a new snapshot and a new generation. Dropping the writer
            // rolls its transaction back.
            drop(writer);
            self.catalog.refresh()?.generation()
        };
        let mut written = Vec::with_capacity(group.len());
        for changes in all_changes {
            written.push(Written {
                changes,
                generation,
            });
        }
        Ok(written)
    }

    fn use_idle_time(&mut self) {
        if self.next_embedding.is_some_and(|at| at <= Instant::now()) {
            return self.embed();
        }
        let refreshed = self.catalog.refresh();
        (self.watch)(&self.catalog);
        match refreshed {
            Ok(searcher) if searcher.pending_embeddings() > 0 && self.next_embedding.is_none() => {
                self.next_embedding = Some(Instant::now());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(catalog = self.name, %error, "cannot read commits of other processes")
            }
        }
    }

    fn embed(&mut self) {
        let outcome = self
            .catalog
            .writer()
            .and_then(|mut writer| writer.embed_pending(&mut |_| self.continue_embedding()));
        let pending = self.catalog.searcher().pending_embeddings();
        if outcome.is_ok() {
            self.failures = 0;
        }
        self.next_embedding = match outcome {
            Ok(_) if pending == 0 => None,
            // Interrupted by a queued change, which comes first.
            Ok(_) if self.continue_embedding().is_break() => Some(Instant::now()),
            Ok(_) => Some(Instant::now() + LAST_EMBED_RETRY),
            // Another process writes, and may be embedding.
            Err(Error::Locked { .. }) => Some(Instant::now() + REFRESH),
            Err(error) => {
                let pause = embed_retry(self.failures);
                self.failures = self.failures.saturating_add(1);
                tracing::warn!(
                    catalog = self.name,
                    pending,
                    %error,
                    retry_s = pause.as_secs(),
                    "embedding failed; these tools are found by their words until a retry succeeds"
                );
                Some(Instant::now() + pause)
            }
        };
    }

    /// Breaks when a change is queued or the writer is closing.
    fn continue_embedding(&self) -> ControlFlow<()> {
        // A queued change holds a permit.
        let is_queued = self.permits.available_permits() < self.capacity;
        if is_queued || self.closing.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The pause after embedding failed, having failed so often before.
fn embed_retry(failures: u32) -> Duration {
    (FIRST_EMBED_RETRY * 2_u32.saturating_pow(failures.min(10))).min(LAST_EMBED_RETRY)
}

impl QueuedChange {
    fn answer(self, outcome: Result<Written>) {
        // The client may have disconnected.
        let _ = self.reply.send(outcome);
    }
}

/// What a change did.
struct Applied {
    changes: Changes,
    /// False where the catalog is as before, so that there is nothing to commit.
    is_changed: bool,
}

impl Change {
    fn apply(&self, writer: &mut Writer) -> Result<Applied> {
        let changes = match self {
            Change::Upsert(tools) => writer.upsert(tools)?,
            Change::Remove(ids) => writer.remove(ids)?,
            Change::Sync { server, tools } => writer.sync(server, tools)?,
            Change::Settings {
                description,
                search,
            } => {
                return Ok(Applied {
                    changes: Changes::default(),
                    is_changed: set_search_defaults(writer, description, *search)?,
                });
            }
        };
        Ok(Applied {
            is_changed: !(changes.added.is_empty()
                && changes.changed.is_empty()
                && changes.removed.is_empty()),
            changes,
        })
    }
}

/// Sets the description and the search defaults; true if they were others.
fn set_search_defaults(
    writer: &mut Writer,
    description: &str,
    search: SearchOptions,
) -> Result<bool> {
    let before = writer.settings()?;
    let after = Settings {
        description: description.to_owned(),
        search,
        ..before.clone()
    };
    if after == before {
        return Ok(false);
    }
    writer.set_settings(&after)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use toolscout_index::{DataDir, Options};

    use super::*;

    fn writer(capacity: usize) -> (tempfile::TempDir, Catalog, CatalogWriter) {
        let dir = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(dir.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let writer = CatalogWriter::start("c", catalog.clone(), capacity, Gauge::default());
        (dir, catalog, writer.unwrap())
    }

    fn upsert(name: &str) -> Change {
        Change::Upsert(vec![Tool::new("s", name).unwrap()])
    }

    #[tokio::test]
    async fn a_written_change_is_visible_and_an_unchanged_one_commits_nothing() {
        let (_dir, catalog, writer) = writer(4);
        let first = writer.write(upsert("a")).await.unwrap();
        assert_eq!(catalog.searcher().len(), 1);
        let second = writer.write(upsert("a")).await.unwrap();
        assert_eq!(
            (second.generation, second.changes.unchanged),
            (first.generation, 1)
        );
    }

    #[test]
    fn embedding_is_tried_again_soon_and_then_less_often() {
        let pauses: Vec<u64> = (0..7)
            .map(|failures| embed_retry(failures).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(embed_retry(u32::MAX), LAST_EMBED_RETRY);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_closed_writer_takes_nothing() {
        let (_dir, _catalog, writer) = writer(0);
        let refused = writer.try_write(upsert("a")).await;
        assert!(matches!(refused, Err(WriteError::QueueFull)), "{refused:?}");

        let (_dir, _catalog, writer) = self::writer(1);
        writer.close();
        let refused = writer.write(upsert("a")).await;
        assert!(matches!(refused, Err(WriteError::Closed)), "{refused:?}");
    }
}
