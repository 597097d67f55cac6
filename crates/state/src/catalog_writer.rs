//! The single writer of a catalog: a bounded queue of changes, and a task that applies and commits
//! them. While the queue is empty, it embeds the tools that have no vectors yet. The tasks of all
//! catalogs share the threads of a pool, so an open catalog that nobody changes costs none.
//!
//! The HTTP server and the MCP gateway both write through this. Where a change is written is behind
//! [`CatalogStore`]: the catalog itself ([`LocalStore`]), or a store that several nodes share.

mod pool;
mod work;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use toolscout_index::{
    Catalog, Changes, Enrichment, Error, OwnerWords, Ranker, Result, SearchOptions, Searcher,
    Settings, Tool, ToolId, Writer,
};

use self::pool::{Pool, Task, TaskId};
use self::work::Work;
use toolscout_base::telemetry::GaugeGuard;

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
    /// Replaces the description, the search defaults and the threshold of graphs. Other settings stay.
    Settings {
        /// What the catalog is for.
        description: String,
        /// The defaults of its searches.
        search: SearchOptions,
        /// From how many vectors on searches use a graph; `None` for what was measured for each
        /// embedder.
        graph_min_vectors: Option<usize>,
    },
    /// Gives the catalog a ranker of its own, or takes it away.
    Ranker(Option<Arc<Ranker>>),
    /// Changes the owner's words.
    OwnerWords(WordsChange),
    /// Stores what was written about these very definitions. [`Changes::changed`] has the tools of which
    /// it was stored; the others are gone, or have other definitions.
    Enrich(Vec<(Arc<Tool>, Enrichment)>),
    /// Deletes what was written about these tools. [`Changes::changed`] has those of which something was.
    ForgetTexts(Vec<ToolId>),
}

/// A change of a catalog's [`OwnerWords`].
#[derive(Clone, Debug)]
pub enum WordsChange {
    /// They become these.
    Replace(Arc<OwnerWords>),
    /// They are changed by a JSON merge patch (RFC 7396).
    Patch(Arc<Value>),
}

impl WordsChange {
    /// The words after it; `None` if they are as before.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`].
    pub fn applied_to(&self, before: &OwnerWords) -> Result<Option<OwnerWords>> {
        let after = match self {
            WordsChange::Replace(words) => {
                words.validate()?;
                OwnerWords::clone(words)
            }
            WordsChange::Patch(patch) => before.patched(patch)?,
        };
        Ok((after != *before).then_some(after))
    }
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
    /// Applying the change panicked.
    #[error("applying this change failed inside the program; it may or may not have been made")]
    Panicked,
    /// The catalog was deleted by another node.
    #[error("the catalog was deleted")]
    Deleted,
    /// The tools are in a search engine that somebody else runs, and are not written here.
    #[error(
        "the tools of this catalog are in another search engine; write them there, or with `toolscout external write`"
    )]
    Elsewhere,
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

    /// False when others have committed nothing since the last refresh. Asked about once a second,
    /// for every open catalog.
    fn may_have_news(&self) -> bool {
        true
    }
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
            // One real change is enough to commit.
            is_changed |= applied.is_changed;
            all_changes.push(applied.changes);
        }
        let generation = if is_changed {
            let generation = writer.commit()?;
            // The next change mostly comes soon.
            writer.rest();
            generation
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

    fn may_have_news(&self) -> bool {
        self.0.may_be_behind()
    }
}

impl Written {
    /// These changes, all of them in this generation.
    pub fn all(changes: Vec<Changes>, generation: u64) -> Vec<Self> {
        let mut all = Vec::with_capacity(changes.len());
        for changes in changes {
            all.push(Written {
                changes,
                generation,
            });
        }
        all
    }
}

/// Called when a catalog may have changed.
pub type Watch = Box<dyn FnMut(&Catalog) + Send>;

/// The queue of changes to one catalog. Dropping it ends the work after the changes in it.
pub struct CatalogWriter {
    /// One permit for each change in the queue.
    permits: Arc<Semaphore>,
    work: Arc<Work>,
    way: Way,
    depth: Gauge,
    /// The generation of the newest snapshot.
    generation: watch::Receiver<u64>,
}

/// The way to a writer's next turn.
#[derive(Clone)]
struct Way {
    pool: Arc<Pool>,
    task: TaskId,
}

/// Wakes a writer to look for commits of others. Does not keep the writer.
pub struct Waker {
    work: Weak<Work>,
    way: Way,
}

impl Waker {
    /// Wakes the writer, if there is still one.
    pub fn wake(&self) {
        if let Some(work) = self.work.upgrade()
            && !work.is_awaited.swap(true, Ordering::AcqRel)
        {
            self.way.pool.call(self.way.task);
        }
    }
}

impl CatalogWriter {
    /// Starts the writer of the catalog `name`, with a queue of `capacity` changes. `depth` shows how
    /// many are queued.
    ///
    /// # Errors
    /// When the system cannot start the threads that all writers share.
    pub fn start(
        name: &str,
        catalog: Catalog,
        capacity: usize,
        depth: Gauge,
    ) -> std::io::Result<Self> {
        // Without a store, changes go to the catalog itself.
        let store = Box::new(LocalStore(catalog.clone()));
        CatalogWriter::start_over(store, name, catalog, capacity, depth, Box::new(|_| ()))
    }

    /// As [`CatalogWriter::start`], for a catalog whose changes are committed to `store`, with a
    /// function that follows the catalog.
    ///
    /// # Errors
    /// As [`CatalogWriter::start`].
    pub fn start_over(
        store: Box<dyn CatalogStore>,
        name: &str,
        catalog: Catalog,
        capacity: usize,
        depth: Gauge,
        watch: Watch,
    ) -> std::io::Result<Self> {
        let pool = Pool::shared()?;
        let permits = Arc::new(Semaphore::new(capacity));
        let (published, generation) = watch::channel(catalog.searcher().generation());
        let work = Work::new(name, catalog, store, watch, published);
        let work = Arc::new(work);
        let task = pool.add(Arc::clone(&work) as Arc<dyn Task>, work.first_turn());
        Ok(CatalogWriter {
            permits,
            work,
            way: Way { pool, task },
            depth,
            generation,
        })
    }

    /// What wakes the writer.
    pub fn waker(&self) -> Waker {
        Waker {
            work: Arc::downgrade(&self.work),
            way: self.way.clone(),
        }
    }

    /// Waits until searches see this generation. False where the writer was closed before.
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
        match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => self.enqueue(change, permit).await,
            Err(_) => Err(WriteError::QueueFull),
        }
    }

    /// Waits for room in the queue, applies a change and returns once it is committed.
    ///
    /// # Errors
    /// [`WriteError::Closed`], [`WriteError::Panicked`], [`WriteError::Catalog`].
    pub async fn write(&self, change: Change) -> Result<Written, WriteError> {
        match Arc::clone(&self.permits).acquire_owned().await {
            Ok(permit) => self.enqueue(change, permit).await,
            Err(_) => Err(WriteError::Closed),
        }
    }

    /// Makes a server's tools exactly these.
    ///
    /// # Errors
    /// As [`CatalogWriter::write`].
    pub async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, WriteError> {
        let server = server.to_owned();
        let written = self.write(Change::Sync { server, tools }).await?;
        Ok(written.changes)
    }

    /// Takes no more changes and finishes those in the queue. Blocks until then.
    pub fn close(&self) {
        // The changes in the queue are still made. After that nothing more is published.
        self.end();
        self.way.pool.wait_for_end(self.way.task);
        self.work.end_publishing();
    }

    fn end(&self) {
        self.work.take_no_more();
        self.way.pool.end(self.way.task);
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
        let call = || self.way.pool.call(self.way.task);
        if !self.work.queue(queued, call) {
            return Err(WriteError::Closed);
        }
        match answer.await {
            Ok(answer) => answer,
            // The sender was dropped without an answer, which only a panic does.
            Err(_) => Err(WriteError::Panicked),
        }
    }
}

impl Drop for CatalogWriter {
    /// Interrupts embedding, and waits for nothing.
    fn drop(&mut self) {
        self.end();
    }
}

/// A change in the queue, with who waits for it.
struct QueuedChange {
    change: Change,
    reply: oneshot::Sender<Result<Written, WriteError>>,
    _permit: OwnedSemaphorePermit,
    _depth: GaugeGuard,
}

impl QueuedChange {
    fn answer(self, outcome: Result<Written, WriteError>) {
        // The client may have disconnected. The change was made anyway.
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
    /// How many tools it has.
    fn tools(&self) -> usize {
        match self {
            Change::Upsert(tools) | Change::Sync { tools, .. } => tools.len(),
            Change::Enrich(enriched) => enriched.len(),
            Change::Remove(ids) | Change::ForgetTexts(ids) => ids.len(),
            Change::Settings { .. } | Change::Ranker(_) | Change::OwnerWords(_) => 0,
        }
    }

    fn apply(&self, writer: &mut Writer) -> Result<Applied> {
        let changes = match self {
            Change::Upsert(tools) => writer.upsert(tools)?,
            Change::Remove(ids) => writer.remove(ids)?,
            Change::Sync { server, tools } => writer.sync(server, tools)?,
            Change::Enrich(enriched) => enrich(writer, enriched)?,
            Change::ForgetTexts(ids) => forget_texts(writer, ids)?,
            Change::Settings {
                description,
                search,
                graph_min_vectors,
            } => {
                let after = SearchDefaults {
                    description,
                    search: *search,
                    graph_min_vectors: *graph_min_vectors,
                };
                return Ok(Applied {
                    changes: Changes::default(),
                    is_changed: set_search_defaults(writer, after)?,
                });
            }
            // Always counts as a change: the ranker is not compared with the former one.
            Change::Ranker(ranker) => {
                writer.set_ranker(ranker.as_deref())?;
                return Ok(Applied {
                    changes: Changes::default(),
                    is_changed: true,
                });
            }
            Change::OwnerWords(change) => {
                let after = change.applied_to(&writer.owner_words()?)?;
                if let Some(words) = &after {
                    writer.set_owner_words(words)?;
                }
                return Ok(Applied {
                    changes: Changes::default(),
                    is_changed: after.is_some(),
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

fn enrich(writer: &mut Writer, enriched: &[(Arc<Tool>, Enrichment)]) -> Result<Changes> {
    let mut changes = Changes::default();
    for (tool, enrichment) in enriched {
        if writer.set_enrichment(tool, enrichment)? {
            changes.changed.push(tool.id.clone());
        } else {
            changes.unchanged += 1;
        }
    }
    Ok(changes)
}

fn forget_texts(writer: &mut Writer, ids: &[ToolId]) -> Result<Changes> {
    let mut changes = Changes::default();
    for id in ids {
        if writer.clear_enrichments(std::slice::from_ref(id))? > 0 {
            changes.changed.push(id.clone());
        } else {
            changes.unchanged += 1;
        }
    }
    Ok(changes)
}

/// Sets the description and the search defaults; true if they were others.
fn set_search_defaults(writer: &mut Writer, defaults: SearchDefaults<'_>) -> Result<bool> {
    let Some(after) = defaults.applied_to(&writer.settings()?) else {
        return Ok(false);
    };
    writer.set_settings(&after)?;
    Ok(true)
}

/// What [`Change::Settings`] replaces.
#[derive(Clone, Copy, Debug)]
pub struct SearchDefaults<'a> {
    /// What the catalog is for.
    pub description: &'a str,
    /// The defaults of its searches.
    pub search: SearchOptions,
    /// From how many vectors on searches use a graph; `None` for what was measured for each
    /// embedder.
    pub graph_min_vectors: Option<usize>,
}

impl SearchDefaults<'_> {
    /// These settings with them; `None` if they have them.
    pub fn applied_to(self, before: &Settings) -> Option<Settings> {
        let after = Settings {
            description: self.description.to_owned(),
            search: self.search,
            graph_min_vectors: self.graph_min_vectors,
            ..before.clone()
        };
        (after != *before).then_some(after)
    }
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

    /// The catalog itself, which panics at tools of some names: before it commits, or after.
    struct Panicking(LocalStore);

    impl CatalogStore for Panicking {
        fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
            let has = |name: &str| {
                changes.iter().any(|change| match change {
                    Change::Upsert(tools) => tools.iter().any(|tool| tool.id.name() == name),
                    _ => false,
                })
            };
            assert!(!has("before"), "before the commit");
            let written = self.0.commit(changes);
            assert!(!has("after"), "after the commit");
            written
        }

        fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError> {
            self.0.refresh()
        }
    }

    #[tokio::test]
    async fn a_panic_fails_the_change_that_causes_it_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(dir.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let store = Box::new(Panicking(LocalStore(catalog.clone())));
        let depth = Gauge::default();
        let writer = CatalogWriter::start_over(
            store,
            "c",
            catalog.clone(),
            64,
            depth.clone(),
            Box::new(|_| panic!("while it follows")),
        )
        .unwrap();
        let (_other_dir, other_catalog, other) = self::writer(64);
        for round in 0..3 {
            let names = ["a", "before", "b", "after", "c"].map(|name| match name {
                "before" | "after" => name.to_owned(),
                name => format!("{name}{round}"),
            });
            let writes = names.iter().map(|name| writer.write(upsert(name)));
            let outcomes = futures_util::future::join_all(writes).await;
            for (name, outcome) in names.iter().zip(outcomes) {
                match name.as_str() {
                    "before" | "after" => {
                        assert!(matches!(outcome, Err(WriteError::Panicked)), "{outcome:?}");
                    }
                    name => assert!(outcome.is_ok(), "{name}: {outcome:?}"),
                }
            }
            other.write(upsert(&format!("t{round}"))).await.unwrap();
        }
        assert_eq!(
            (catalog.searcher().len(), other_catalog.searcher().len()),
            (10, 3)
        );
        assert_eq!(depth.get(), 0);
        writer.close();
    }

    /// Polls futures once, so that their changes are queued.
    async fn queued<F: Future<Output = Result<Written, WriteError>>>(
        writes: impl Iterator<Item = F>,
    ) -> Vec<std::pin::Pin<Box<F>>> {
        let mut pending = Vec::new();
        for write in writes {
            let mut write = Box::pin(write);
            assert!(futures_util::poll!(&mut write).is_pending());
            pending.push(write);
            // Renews what a task may do before it has to wait.
            tokio::task::yield_now().await;
        }
        pending
    }

    #[tokio::test]
    async fn closing_finishes_what_is_queued() {
        let (_dir, catalog, writer) = writer(200);
        let names: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
        let writes = queued(names.iter().map(|name| writer.write(upsert(name)))).await;
        writer.close();
        assert_eq!(catalog.searcher().len(), 200);
        for outcome in futures_util::future::join_all(writes).await {
            outcome.unwrap();
        }
        assert!(!writer.reaches(u64::MAX).await, "nothing follows");
        writer.close();
    }

    #[tokio::test]
    async fn what_clients_that_left_have_queued_is_written_after_the_writer_is_dropped() {
        let (_dir, catalog, writer) = writer(200);
        let names: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
        drop(queued(names.iter().map(|name| writer.write(upsert(name)))).await);
        let (pool, task) = (Arc::clone(&writer.way.pool), writer.way.task);
        drop(writer);
        tokio::task::spawn_blocking(move || pool.wait_for_end(task))
            .await
            .unwrap();
        assert_eq!(catalog.searcher().len(), 200);
    }

    #[tokio::test]
    async fn what_another_process_commits_is_seen_within_about_a_second() {
        let (dir, catalog, writer) = writer(4);
        let other = DataDir::new(dir.path())
            .open("c", Options::default())
            .unwrap();
        for round in 1..=3 {
            let mut elsewhere = other.writer().unwrap();
            elsewhere
                .upsert(&[Tool::new("s", &format!("t{round}")).unwrap()])
                .unwrap();
            let generation = elsewhere.commit().unwrap();
            drop(elsewhere);
            let seen = writer.reaches(generation);
            let seen = tokio::time::timeout(std::time::Duration::from_secs(10), seen);
            assert!(seen.await.unwrap());
            assert_eq!(catalog.searcher().len(), round);
        }
    }

    #[tokio::test]
    async fn fifty_catalogs_share_a_handful_of_threads() {
        let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count);
        let all: Vec<_> = (0..50).map(|_| writer(4)).collect();
        for (_, _, writer) in all.iter().take(10) {
            writer.write(upsert("a")).await.unwrap();
        }
        if let Ok(threads) = threads() {
            assert!(threads < 40, "{threads} threads");
        }
    }
}
