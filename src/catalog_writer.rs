//! The single writer of a catalog: a bounded queue of changes, and one thread that applies and
//! commits them. While the queue is empty, the thread embeds the tools that have no vectors yet.
//!
//! The HTTP server and the MCP gateway both write through this. Where a change is written is behind
//! [`CatalogStore`]: the catalog itself ([`LocalStore`]), or a store that several nodes share.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use toolscout_index::{
    Catalog, Changes, Error, Ranker, Result, SearchOptions, Searcher, Settings, Tool, ToolId,
    Writer,
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
    /// Gives the catalog a ranker of its own, or takes it away.
    Ranker(Option<Arc<Ranker>>),
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
    /// The catalog was deleted by another node.
    #[error("the catalog was deleted")]
    Deleted,
    /// The store that holds the catalog cannot be used now. Whether the change was made may be
    /// unknown; made twice, it has the same effect.
    #[error("{0}")]
    Unavailable(String),
    /// The catalog refused the change.
    #[error(transparent)]
    Catalog(#[from] Error),
}

/// Where changes to one catalog are committed, and what others have committed is read.
pub trait CatalogStore: Send {
    /// Commits these changes together, or none of them, and publishes a snapshot with them. One that
    /// changes nothing commits nothing.
    ///
    /// # Errors
    /// [`WriteError::Catalog`] for a change that cannot be made, [`WriteError::Unavailable`],
    /// [`WriteError::Deleted`].
    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError>;

    /// Publishes what others have committed, and returns the newest snapshot.
    ///
    /// # Errors
    /// As [`CatalogStore::commit`].
    fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError>;
}

/// The catalog itself, in its folder.
pub struct LocalStore(pub Catalog);

impl CatalogStore for LocalStore {
    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
        let mut writer = self.0.writer()?;
        let mut all_changes = Vec::with_capacity(changes.len());
        let mut is_changed = false;
        for change in changes {
            let applied = change.apply(&mut writer)?;
            is_changed |= applied.is_changed;
            all_changes.push(applied.changes);
        }
        let generation = if is_changed {
            writer.commit()?
        } else {
            // An empty commit would cost a new snapshot and a new generation. Dropping the writer
            // rolls its transaction back.
            drop(writer);
            self.0.refresh()?.generation()
        };
        Ok(Written::all(all_changes, generation))
    }

    fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError> {
        Ok(self.0.refresh()?)
    }
}

impl Written {
    /// These changes, all of them in this generation.
    pub fn all(changes: Vec<Changes>, generation: u64) -> Vec<Self> {
        let written = |changes| Written {
            changes,
            generation,
        };
        changes.into_iter().map(written).collect()
    }
}

/// Called about once a second, when what other processes have committed was read.
pub type Watch = Box<dyn FnMut(&Catalog) + Send>;

/// The queue of changes to one catalog. Dropping it ends the thread after the change in progress.
pub struct CatalogWriter {
    /// One permit for each change in the queue.
    permits: Arc<Semaphore>,
    queue: Arc<Queue>,
    closing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    depth: Gauge,
    /// The generation of the newest snapshot.
    generation: watch::Receiver<u64>,
}

/// The way to a writer's thread.
struct Queue {
    /// `None` once the writer was closed.
    sender: Mutex<Option<Sender<Message>>>,
    /// True from a wake until the thread looks.
    is_awaited: AtomicBool,
}

impl Queue {
    fn send(&self, message: Message) -> bool {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender
            .as_ref()
            .is_some_and(|sender| sender.send(message).is_ok())
    }
}

/// Wakes a writer's thread to look for commits of others. Does not keep the writer.
pub struct Waker(Weak<Queue>);

impl Waker {
    /// Wakes the thread, if there is still one.
    pub fn wake(&self) {
        if let Some(queue) = self.0.upgrade()
            && !queue.is_awaited.swap(true, Ordering::AcqRel)
        {
            // A thread that has ended looks for nothing.
            queue.send(Message::Look);
        }
    }
}

enum Message {
    Change(QueuedChange),
    /// Others may have committed.
    Look,
}

struct QueuedChange {
    change: Change,
    reply: oneshot::Sender<Result<Written, WriteError>>,
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
        let store = Box::new(LocalStore(catalog.clone()));
        CatalogWriter::start_over(store, name, catalog, capacity, depth, Box::new(|_| ()))
    }

    /// As [`CatalogWriter::start`], for a catalog whose changes are committed to `store`, with a
    /// function that follows the catalog.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start_over(
        store: Box<dyn CatalogStore>,
        name: &str,
        catalog: Catalog,
        capacity: usize,
        depth: Gauge,
        watch: Watch,
    ) -> std::io::Result<Self> {
        let (sender, queue) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let permits = Arc::new(Semaphore::new(capacity));
        let (published, generation) = watch::channel(catalog.searcher().generation());
        let way = Arc::new(Queue {
            sender: Mutex::new(Some(sender)),
            is_awaited: AtomicBool::new(false),
        });
        let thread = WriterThread {
            name: name.to_owned(),
            catalog,
            store,
            queue,
            way: Arc::downgrade(&way),
            closing: Arc::clone(&closing),
            permits: Arc::clone(&permits),
            capacity,
            next_embedding: Some(Instant::now()),
            failures: 0,
            watch,
            published,
        };
        let handle = std::thread::Builder::new()
            .name(format!("write {name}"))
            .spawn(move || thread.run())?;
        Ok(CatalogWriter {
            permits,
            queue: way,
            closing,
            thread: Mutex::new(Some(handle)),
            depth,
            generation,
        })
    }

    /// What wakes the thread.
    pub fn waker(&self) -> Waker {
        Waker(Arc::downgrade(&self.queue))
    }

    /// Waits until searches see this generation. False where the thread ended before.
    pub async fn reaches(&self, generation: u64) -> bool {
        let mut newest = self.generation.clone();
        newest
            .wait_for(|newest| *newest >= generation)
            .await
            .is_ok()
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
                .sender
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
        if !self.queue.send(Message::Change(queued)) {
            return Err(WriteError::Closed);
        }
        answer.await.map_err(|_| WriteError::ThreadEnded)?
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
    store: Box<dyn CatalogStore>,
    queue: Receiver<Message>,
    /// Where it is woken; weak, since the queue ends with its senders.
    way: Weak<Queue>,
    closing: Arc<AtomicBool>,
    permits: Arc<Semaphore>,
    capacity: usize,
    /// When to embed next; `None` while every tool has its vectors.
    next_embedding: Option<Instant>,
    /// How often embedding failed since it last succeeded.
    failures: u32,
    watch: Watch,
    published: watch::Sender<u64>,
}

impl WriterThread {
    fn run(mut self) {
        loop {
            match self.queue.recv_timeout(self.idle_timeout()) {
                Ok(Message::Change(first)) => self.apply_group(first),
                Ok(Message::Look) => self.look(),
                Err(RecvTimeoutError::Timeout) => self.use_idle_time(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.published
                .send_replace(self.catalog.searcher().generation());
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
        let mut is_awaited = false;
        while group.len() < MAX_GROUP {
            match self.queue.try_recv() {
                Ok(Message::Change(next)) => group.push(next),
                Ok(Message::Look) => is_awaited = true,
                Err(_) => break,
            }
        }
        self.apply(group);
        if is_awaited {
            self.look();
        }
        self.next_embedding = Some(Instant::now());
    }

    /// Commits all of them together. When that fails, each is committed alone, so that one bad
    /// change does not fail the others.
    fn apply(&mut self, group: Vec<QueuedChange>) {
        let changes: Vec<&Change> = group.iter().map(|queued| &queued.change).collect();
        match self.store.commit(&changes) {
            Ok(written) => {
                for (queued, written) in group.into_iter().zip(written) {
                    queued.answer(Ok(written));
                }
            }
            Err(WriteError::Catalog(_)) if group.len() > 1 => {
                for queued in group {
                    self.apply(vec![queued]);
                }
            }
            Err(error) => {
                let mut group = group.into_iter();
                let first = group.next();
                for queued in group {
                    // Nothing is wrong with any of them: what failed fails for all.
                    queued.answer(Err(error.of_all()));
                }
                if let Some(first) = first {
                    first.answer(Err(error));
                }
            }
        }
    }

    fn use_idle_time(&mut self) {
        if self.next_embedding.is_some_and(|at| at <= Instant::now()) {
            return self.embed();
        }
        self.look();
    }

    fn look(&mut self) {
        // Before it looks: what is committed meanwhile wakes it again.
        if let Some(way) = self.way.upgrade() {
            way.is_awaited.store(false, Ordering::Release);
        }
        let refreshed = self.store.refresh();
        (self.watch)(&self.catalog);
        match refreshed {
            Ok(searcher) if searcher.pending_embeddings() > 0 && self.next_embedding.is_none() => {
                self.next_embedding = Some(Instant::now());
            }
            // Whoever keeps the connection to the store says that it is lost.
            Ok(_) | Err(WriteError::Unavailable(_) | WriteError::Deleted) => {}
            Err(error) => {
                tracing::warn!(catalog = self.name, %error, "cannot read commits of others")
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

    /// Breaks when a change is queued, others have committed, or the writer is closing.
    fn continue_embedding(&self) -> ControlFlow<()> {
        // A queued change holds a permit.
        let is_queued = self.permits.available_permits() < self.capacity;
        let is_awaited = self
            .way
            .upgrade()
            .is_some_and(|way| way.is_awaited.load(Ordering::Acquire));
        if is_queued || is_awaited || self.closing.load(Ordering::Relaxed) {
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
    fn answer(self, outcome: Result<Written, WriteError>) {
        // The client may have disconnected.
        let _ = self.reply.send(outcome);
    }
}

impl WriteError {
    /// The same error for another change of a group that failed as a whole.
    fn of_all(&self) -> Self {
        match self {
            WriteError::Deleted => WriteError::Deleted,
            other => WriteError::Unavailable(other.to_string()),
        }
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
            Change::Ranker(ranker) => {
                writer.set_ranker(ranker.as_deref())?;
                return Ok(Applied {
                    changes: Changes::default(),
                    is_changed: true,
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
    let Some(after) = with_search_defaults(&writer.settings()?, description, search) else {
        return Ok(false);
    };
    writer.set_settings(&after)?;
    Ok(true)
}

/// These settings with another description and other search defaults; `None` if they have them.
pub fn with_search_defaults(
    before: &Settings,
    description: &str,
    search: SearchOptions,
) -> Option<Settings> {
    let after = Settings {
        description: description.to_owned(),
        search,
        ..before.clone()
    };
    (after != *before).then_some(after)
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
