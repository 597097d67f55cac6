//! How a node learns of commits: NOTIFY wakes it, and a question a second makes it sure. Tells the
//! store in turn that the node is alive, and how far it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::error::StoreError;
use super::{CONNECT_LIMIT, SharedStore, within};
use crate::catalog_writer::Waker;

/// How often the store is asked for the generations of all catalogs.
const POLL: Duration = Duration::from_secs(1);
/// The store counts as away when it has not answered for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a node says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The pause before listening is tried again; it doubles up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The generation of a catalog that the store no longer has.
const GONE: u64 = u64::MAX;

/// A catalog of the store that this node has open.
pub struct FollowedCatalog {
    /// Its number in the store.
    pub id: i64,
    /// Its identity, the cluster's included.
    pub source: String,
    /// What this node has.
    pub(super) generation: AtomicU64,
    /// What the store has, as far as this node knows.
    pub(super) head: AtomicU64,
    is_deleted: AtomicBool,
    waker: OnceLock<Waker>,
}

impl FollowedCatalog {
    pub(super) fn new(id: i64, source: String, generation: u64) -> Arc<Self> {
        Arc::new(FollowedCatalog {
            id,
            source,
            generation: AtomicU64::new(generation),
            head: AtomicU64::new(generation),
            is_deleted: AtomicBool::new(false),
            waker: OnceLock::new(),
        })
    }

    /// What to wake when the store has a newer generation.
    pub fn set_waker(&self, waker: Waker) {
        // It has one writer only.
        let _ = self.waker.set(waker);
    }

    /// True once the store no longer has this catalog; it may have another one of the name.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    pub(super) fn set_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// True when the store may have what this node has not.
    pub(super) fn is_behind(&self) -> bool {
        self.head.load(Ordering::Acquire) != self.generation.load(Ordering::Acquire)
    }

    fn set_head(&self, head: u64) {
        self.head.store(head, Ordering::Release);
        if self.is_behind()
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }
}

/// What a node knows of the store from listening and asking.
pub(super) struct Hub {
    started: Instant,
    /// Milliseconds from the start to the last answer; below 0 before the first.
    answered: AtomicI64,
    open: Mutex<HashMap<i64, Weak<FollowedCatalog>>>,
    /// Every catalog by name, as it was last told.
    names: RwLock<Option<BTreeMap<String, i64>>>,
    last_problem: Mutex<Option<String>>,
    /// Asks before the next question is due.
    hurry: Notify,
    stop: CancellationToken,
}

impl Default for Hub {
    fn default() -> Self {
        Hub {
            started: Instant::now(),
            answered: AtomicI64::new(-1),
            open: Mutex::default(),
            names: RwLock::default(),
            last_problem: Mutex::default(),
            hurry: Notify::new(),
            stop: CancellationToken::new(),
        }
    }
}

impl Hub {
    pub(super) fn note_answer(&self) {
        let elapsed = self.started.elapsed().as_millis() as i64;
        self.answered.fetch_max(elapsed, Ordering::Relaxed);
    }

    pub(super) fn problem(&self) -> Option<String> {
        let answered = self.answered.load(Ordering::Relaxed).max(0) as u64;
        let silent = self
            .started
            .elapsed()
            .saturating_sub(Duration::from_millis(answered));
        if silent < PATIENCE {
            return None;
        }
        let reason = lock(&self.last_problem).clone();
        Some(reason.unwrap_or_else(|| "it does not answer".to_owned()))
    }

    pub(super) fn register(&self, catalog: &Arc<FollowedCatalog>) {
        lock(&self.open).insert(catalog.id, Arc::downgrade(catalog));
    }

    fn open(&self) -> Vec<Arc<FollowedCatalog>> {
        let mut open = lock(&self.open);
        open.retain(|_, catalog| catalog.strong_count() > 0);
        open.values().filter_map(Weak::upgrade).collect()
    }

    fn set_heads(&self, heads: &[(i64, String, u64)]) {
        let generations: HashMap<i64, u64> = heads
            .iter()
            .map(|(id, _, generation)| (*id, *generation))
            .collect();
        for catalog in self.open() {
            // Only a hint: the catalog's writer asks the store itself before it believes it.
            catalog.set_head(generations.get(&catalog.id).copied().unwrap_or(GONE));
        }
        let names = heads.iter().map(|(id, name, _)| (name.clone(), *id));
        let names = Some(names.collect());
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// `ID GENERATION`, as a commit announces them.
    fn note(&self, announced: &str) {
        let parsed = announced.split_once(' ').and_then(|(id, generation)| {
            Some((id.parse::<i64>().ok()?, generation.parse::<u64>().ok()?))
        });
        let Some((id, generation)) = parsed else {
            // A catalog that was created or deleted.
            return self.hurry.notify_one();
        };
        let catalog = lock(&self.open).get(&id).and_then(Weak::upgrade);
        if let Some(catalog) = catalog
            && catalog.generation.load(Ordering::Acquire) < generation
        {
            catalog.set_head(generation);
        }
    }
}

impl SharedStore {
    /// Starts to listen, to ask and to say that this node is alive, until [`SharedStore::close`].
    pub fn follow(self: &Arc<Self>) {
        let (listening, asking) = (Arc::clone(self), Arc::clone(self));
        let stop = self.hub.stop.clone();
        let stopped = stop.clone();
        self.runtime
            .spawn(async move { stop.run_until_cancelled(listening.listen()).await });
        self.runtime
            .spawn(async move { stopped.run_until_cancelled(asking.poll()).await });
    }

    /// Ends what [`SharedStore::follow`] started, and takes this node off the list.
    pub async fn close(&self) {
        self.hub.stop.cancel();
        if self.hub.problem().is_none() {
            let gone = async {
                sqlx::query("DELETE FROM nodes WHERE instance = $1")
                    .bind(&self.node.instance)
                    .execute(&self.pool)
                    .await?;
                Ok(())
            };
            // Otherwise the list forgets it in a while.
            let _ = within(CONNECT_LIMIT, gone).await;
        }
        let _ = tokio::time::timeout(CONNECT_LIMIT, self.pool.close()).await;
    }

    /// Asks the store now, and not only at the next second.
    pub fn hurry(&self) {
        self.hub.hurry.notify_one();
    }

    /// The names of the catalogs as they were last told; `None` before the store was reached.
    pub fn known_names(&self) -> Option<BTreeMap<String, i64>> {
        let names = self.hub.names.read();
        names.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The channel of this cluster's commits.
    pub(super) fn channel(&self) -> String {
        format!("{}_catalog", self.schema)
    }

    async fn listen(&self) {
        let mut pause = FIRST_RETRY;
        loop {
            if let Ok(mut listener) = within(CONNECT_LIMIT, self.listener()).await {
                pause = FIRST_RETRY;
                // What was announced before is found by asking.
                self.hurry();
                while let Ok(Some(notification)) = listener.try_recv().await {
                    self.hub.note(notification.payload());
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    async fn listener(&self) -> Result<PgListener, StoreError> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.eager_reconnect(false);
        listener.listen(&self.channel()).await?;
        Ok(listener)
    }

    async fn poll(&self) {
        let mut beaten: Option<Instant> = None;
        let mut was_away = false;
        loop {
            let asked = self.ask(CONNECT_LIMIT, self.ask_heads()).await;
            match &asked {
                Ok(heads) => self.hub.set_heads(heads),
                Err(error) => *lock(&self.hub.last_problem) = Some(error.to_string()),
            }
            let is_away = self.hub.problem();
            match (&is_away, was_away) {
                (Some(problem), false) => tracing::warn!(
                    store = self.address,
                    problem,
                    "the store is away; searches go on, and writes are refused"
                ),
                (None, true) => tracing::info!(store = self.address, "the store is back"),
                _ => {}
            }
            was_away = is_away.is_some();
            if asked.is_ok() && beaten.is_none_or(|beaten| beaten.elapsed() >= HEARTBEAT) {
                beaten = Some(Instant::now());
                // Another one follows soon.
                let _ = self.ask(CONNECT_LIMIT, self.beat()).await;
            }
            // A question after another, however often one is asked for.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = tokio::time::timeout(POLL, self.hub.hurry.notified()).await;
        }
    }

    async fn ask_heads(&self) -> Result<Vec<(i64, String, u64)>, StoreError> {
        let rows = sqlx::query("SELECT id, name, generation FROM catalogs")
            .fetch_all(&self.pool)
            .await?;
        let mut heads = Vec::with_capacity(rows.len());
        for row in rows {
            let generation: i64 = row.try_get("generation")?;
            heads.push((row.try_get("id")?, row.try_get("name")?, generation as u64));
        }
        Ok(heads)
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let followed: BTreeMap<String, u64> = self
            .hub
            .open()
            .iter()
            .map(|catalog| {
                (
                    catalog.id.to_string(),
                    catalog.generation.load(Ordering::Acquire),
                )
            })
            .collect();
        let followed = serde_json::to_string(&followed).unwrap_or_default();
        sqlx::query(
            "INSERT INTO nodes (instance, name, version, followed) VALUES ($1, $2, $3, $4)
             ON CONFLICT (instance) DO UPDATE SET seen_at = now(), followed = excluded.followed",
        )
        .bind(&self.node.instance)
        .bind(&self.node.name)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(followed)
        .execute(&self.pool)
        .await?;
        for forget in [
            "DELETE FROM nodes WHERE seen_at < now() - interval '10 minutes'",
            "DELETE FROM claims WHERE until < now() - interval '10 minutes'",
        ] {
            sqlx::query(forget).execute(&self.pool).await?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
