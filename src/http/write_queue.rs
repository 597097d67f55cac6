//! The one owner of a catalog's writer: a bounded line of changes, and a thread that applies and
//! commits them, and embeds what is new while nothing waits.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use toolscout_index::{Catalog, Changes, Error, Result, Tool, ToolId, Writer};

use super::error::{ApiError, ApiResult};

/// Changes that go into one commit at most. A commit costs tens of milliseconds, so that those who
/// wait share one.
const MAX_GROUP: usize = 64;
/// How often commits of other processes are looked for.
const REFRESH: Duration = Duration::from_secs(1);
/// How long a failed embedding rests.
const EMBED_RETRY: Duration = Duration::from_secs(30);

/// A change to a catalog; applied whole or not at all.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds tools, or replaces those whose id is there.
    Upsert(Vec<Tool>),
    /// Takes tools out.
    Remove(Vec<ToolId>),
    /// Makes a server's tools exactly these.
    Sync {
        /// The server.
        server: String,
        /// All its tools.
        tools: Vec<Tool>,
    },
}

/// A change that is durable and visible.
#[derive(Clone, Debug)]
pub struct Written {
    /// What it did.
    pub changes: Changes,
    /// The commit that holds it.
    pub generation: u64,
}

/// The line of changes to one catalog.
pub struct WriteQueue {
    places: Arc<Semaphore>,
    inbox: Mutex<Option<Sender<Write>>>,
    closing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    depth: Gauge,
}

struct Write {
    change: Change,
    reply: oneshot::Sender<Result<Written>>,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

impl WriteQueue {
    /// Starts the catalog's writer thread, with room for `places` changes in the line.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        name: &str,
        catalog: Catalog,
        places: usize,
        depth: Gauge,
    ) -> std::io::Result<Self> {
        let (sender, inbox) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let permits = Arc::new(Semaphore::new(places));
        let owner = Owner {
            name: name.to_owned(),
            catalog,
            inbox,
            closing: Arc::clone(&closing),
            places: Arc::clone(&permits),
            all_places: places,
            next_embedding: Some(Instant::now()),
        };
        let thread = std::thread::Builder::new()
            .name(format!("write {name}"))
            .spawn(move || owner.run())?;
        Ok(WriteQueue {
            places: permits,
            inbox: Mutex::new(Some(sender)),
            closing,
            thread: Mutex::new(Some(thread)),
            depth,
        })
    }

    /// Applies a change; when this returns it is committed.
    ///
    /// # Errors
    /// 429 at once when the line is full; what the engine says of the change.
    pub async fn try_write(&self, change: Change) -> ApiResult<Written> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let message =
                "more changes to this catalog are waiting than the server keeps; try again later";
            ApiError::busy(StatusCode::TOO_MANY_REQUESTS, "too_many_writes", message)
        })?;
        self.send(change, place).await
    }

    /// As [`WriteQueue::try_write`], but waits for a place in the line.
    ///
    /// # Errors
    /// What the engine says of the change.
    pub async fn write(&self, change: Change) -> ApiResult<Written> {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(ApiError::internal)?;
        self.send(change, place).await
    }

    /// Takes no more changes, finishes those in the line and ends the thread. Blocks.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        drop(
            self.inbox
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
            tracing::error!("a catalog's writer thread panicked");
        }
    }

    async fn send(&self, change: Change, place: OwnedSemaphorePermit) -> ApiResult<Written> {
        let (reply, answer) = oneshot::channel();
        let write = Write {
            change,
            reply,
            _place: place,
            _counted: Counted::new(&self.depth),
        };
        self.inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .and_then(|inbox| inbox.send(write).ok())
            .ok_or_else(ApiError::shutting_down)?;
        let written = answer
            .await
            .map_err(|_| ApiError::internal("the catalog's writer thread ended"))?;
        Ok(written?)
    }
}

/// One change in the line, as the metrics see it.
struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The thread that alone writes to a catalog. It holds the engine's writer only while there is
/// work, so that the command line can write to a catalog that is being served.
struct Owner {
    name: String,
    catalog: Catalog,
    inbox: Receiver<Write>,
    closing: Arc<AtomicBool>,
    places: Arc<Semaphore>,
    all_places: usize,
    /// When to embed next; `None` while every tool has its vectors.
    next_embedding: Option<Instant>,
}

impl Owner {
    fn run(mut self) {
        loop {
            match self.inbox.recv_timeout(self.rest()) {
                Ok(first) => self.apply_group(first),
                Err(RecvTimeoutError::Timeout) => self.use_idle_time(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn rest(&self) -> Duration {
        let until_embedding = self
            .next_embedding
            .map(|at| at.saturating_duration_since(Instant::now()));
        until_embedding.map_or(REFRESH, |rest| rest.min(REFRESH))
    }

    fn apply_group(&mut self, first: Write) {
        let mut group = vec![first];
        group.extend(self.inbox.try_iter().take(MAX_GROUP - 1));
        self.apply(group);
        self.next_embedding = Some(Instant::now());
    }

    /// Commits all of them together, or each alone when that fails, so that one bad change spoils
    /// no other.
    fn apply(&self, group: Vec<Write>) {
        match self.commit(&group) {
            Ok(written) => group
                .into_iter()
                .zip(written)
                .for_each(|(write, written)| write.answer(Ok(written))),
            Err(_) if group.len() > 1 => {
                group.into_iter().for_each(|write| self.apply(vec![write]))
            }
            Err(error) => group
                .into_iter()
                .zip([error])
                .for_each(|(write, error)| write.answer(Err(error))),
        }
    }

    fn commit(&self, group: &[Write]) -> Result<Vec<Written>> {
        let mut writer = self.catalog.writer()?;
        let changes = group
            .iter()
            .map(|write| write.change.apply(&mut writer))
            .collect::<Result<Vec<_>>>()?;
        let generation = writer.commit()?;
        Ok(changes
            .into_iter()
            .map(|changes| Written {
                changes,
                generation,
            })
            .collect())
    }

    fn use_idle_time(&mut self) {
        if self.next_embedding.is_some_and(|at| at <= Instant::now()) {
            return self.embed();
        }
        match self.catalog.refresh() {
            Ok(searcher) if searcher.pending_embeddings() > 0 && self.next_embedding.is_none() => {
                self.next_embedding = Some(Instant::now());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(catalog = self.name, %error, "commits of other processes cannot be read")
            }
        }
    }

    fn embed(&mut self) {
        let outcome = self
            .catalog
            .writer()
            .and_then(|mut writer| writer.embed_pending(&mut |_| self.go_on()));
        let pending = self.catalog.searcher().pending_embeddings();
        self.next_embedding = match outcome {
            Ok(_) if pending == 0 => None,
            // Something waits in the line; it comes first.
            Ok(_) if self.go_on().is_break() => Some(Instant::now()),
            Ok(_) => Some(Instant::now() + EMBED_RETRY),
            // Another process writes, and perhaps embeds.
            Err(Error::Locked { .. }) => Some(Instant::now() + REFRESH),
            Err(error) => {
                tracing::warn!(catalog = self.name, pending, %error, "tools cannot be embedded; trying again");
                Some(Instant::now() + EMBED_RETRY)
            }
        };
    }

    fn go_on(&self) -> ControlFlow<()> {
        let waiting = self.places.available_permits() < self.all_places;
        if waiting || self.closing.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Write {
    fn answer(self, outcome: Result<Written>) {
        // Whoever asked may have gone.
        let _ = self.reply.send(outcome);
    }
}

impl Change {
    fn apply(&self, writer: &mut Writer) -> Result<Changes> {
        match self {
            Change::Upsert(tools) => writer.upsert(tools),
            Change::Remove(ids) => writer.remove(ids),
            Change::Sync { server, tools } => writer.sync(server, tools),
        }
    }
}
