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

use super::catalogs::StoredCatalog;
use super::error::StoreError;
use super::figures::Lag;
use super::read::State;
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
    state: Mutex<Option<State>>,
    /// What the store has, as far as this node knows.
    head: AtomicU64,
    /// True from when the store told of another state until it was asked for it.
    is_told: AtomicBool,
    is_deleted: AtomicBool,
    waker: OnceLock<Waker>,
}

impl FollowedCatalog {
    pub(super) fn new(stored: &StoredCatalog, state: Option<State>) -> Arc<Self> {
        Arc::new(FollowedCatalog {
            id: stored.id,
            source: stored.source.clone(),
            state: Mutex::new(state),
            head: AtomicU64::new(stored.generation),
            is_told: AtomicBool::new(false),
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
        self.is_told.load(Ordering::Acquire)
    }

    /// The generation that the store was last said to have.
    pub(super) fn told(&self) -> u64 {
        match self.head.load(Ordering::Acquire) {
            GONE => 0,
            head => head,
        }
    }

    /// The generation that this node has.
    pub(super) fn generation(&self) -> u64 {
        lock(&self.state).map_or(0, |state| state.generation)
    }

    /// By how many generations this node is behind what it was told.
    pub(super) fn lag(&self) -> u64 {
        self.told().saturating_sub(self.generation())
    }

    pub(super) fn set_told(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Release);
    }

    pub(super) fn set_state(&self, state: State) {
        *lock(&self.state) = Some(state);
        self.head.store(state.generation, Ordering::Release);
    }

    /// Only a hint: the catalog's writer asks the store itself before it believes it.
    fn tell(&self, head: u64) {
        self.head.store(head, Ordering::Release);
        self.set_told(true);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// A catalog as the store told of it.
struct Head {
    id: i64,
    name: String,
    state: State,
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
    /// When this node last looked for what the store can forget.
    tidied: Mutex<Option<Instant>>,
    /// Asks before the next question is due.
    hurry: Notify,
    /// Told when the store answers again after it did not.
    returned: Notify,
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
            tidied: Mutex::default(),
            hurry: Notify::new(),
            returned: Notify::new(),
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

    /// True once in this time.
    pub(super) fn is_due(&self, now: Instant, pause: Duration) -> bool {
        let mut tidied = lock(&self.tidied);
        let is_due = tidied.is_none_or(|tidied| now - tidied >= pause);
        if is_due {
            *tidied = Some(now);
        }
        is_due
    }

    /// How far the open catalogs are behind what was last told.
    pub(super) fn lag(&self) -> Lag {
        let lags: Vec<u64> = self.open().iter().map(|catalog| catalog.lag()).collect();
        Lag {
            behind: lags.iter().filter(|lag| **lag > 0).count(),
            most: lags.into_iter().max().unwrap_or(0),
        }
    }

    fn open(&self) -> Vec<Arc<FollowedCatalog>> {
        let mut open = lock(&self.open);
        open.retain(|_, catalog| catalog.strong_count() > 0);
        open.values().filter_map(Weak::upgrade).collect()
    }

    fn set_heads(&self, heads: &[Head]) {
        let states: HashMap<i64, State> = heads.iter().map(|head| (head.id, head.state)).collect();
        for catalog in self.open() {
            match states.get(&catalog.id) {
                None => catalog.tell(GONE),
                Some(head) if *lock(&catalog.state) != Some(*head) => {
                    catalog.tell(head.generation);
                }
                Some(_) => {}
            }
        }
        let names = heads.iter().map(|head| (head.name.clone(), head.id));
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
            && catalog.generation() != generation
        {
            catalog.tell(generation);
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
        self.servers.close().await;
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
                tokio::select! {
                    () = self.note_all(&mut listener) => {}
                    // A connection that was cut says nothing of it.
                    () = self.servers.switched() => {}
                    () = self.hub.returned.notified() => {}
                }
                self.figures.reconnects.inc();
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Notes what is announced, until the connection ends.
    async fn note_all(&self, listener: &mut PgListener) {
        while let Ok(Some(notification)) = listener.try_recv().await {
            self.hub.note(notification.payload());
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
        let mut has_failed = false;
        let mut was_away = false;
        loop {
            let asked = self.ask(CONNECT_LIMIT, self.ask_heads()).await;
            match &asked {
                Ok(heads) => {
                    self.hub.set_heads(heads);
                    if std::mem::take(&mut has_failed) {
                        self.hub.returned.notify_one();
                    }
                }
                Err(error) => {
                    has_failed = true;
                    *lock(&self.hub.last_problem) = Some(error.to_string());
                }
            }
            was_away = self.log_change(was_away);
            if beaten.is_none_or(|beaten| beaten.elapsed() >= HEARTBEAT) {
                beaten = Some(Instant::now());
                self.tend(asked.is_ok()).await;
            }
            // A question after another, however often one is asked for.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = tokio::time::timeout(POLL, self.hub.hurry.notified()).await;
        }
    }

    /// Logs that the store went away or is back. Returns whether it is away.
    fn log_change(&self, was_away: bool) -> bool {
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
        is_away.is_some()
    }

    /// What is done from time to time. What fails is done again soon.
    async fn tend(&self, is_there: bool) {
        // Another server may have been promoted while the one before goes on.
        let _ = self.servers.choose().await;
        if is_there {
            let _ = self.ask(CONNECT_LIMIT, self.beat()).await;
            let _ = self.forget_removed().await;
        }
    }

    async fn ask_heads(&self) -> Result<Vec<Head>, StoreError> {
        let rows = sqlx::query("SELECT id, name, generation, mark FROM catalogs")
            .fetch_all(&self.pool)
            .await?;
        let mut heads = Vec::with_capacity(rows.len());
        for row in rows {
            let (generation, mark): (i64, i64) = (row.try_get("generation")?, row.try_get("mark")?);
            heads.push(Head {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                state: State {
                    generation: generation as u64,
                    mark: mark as u64,
                },
            });
        }
        Ok(heads)
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let followed: BTreeMap<String, u64> = self
            .hub
            .open()
            .iter()
            .map(|catalog| (catalog.id.to_string(), catalog.generation()))
            .collect();
        let followed = serde_json::to_string(&followed).unwrap_or_default();
        let mut transaction = self.pool.begin().await?;
        // Worth nothing in a moment, so it waits for no standby.
        sqlx::query("SET LOCAL synchronous_commit TO local")
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO nodes (instance, name, version, followed) VALUES ($1, $2, $3, $4)
             ON CONFLICT (instance) DO UPDATE SET seen_at = now(), followed = excluded.followed",
        )
        .bind(&self.node.instance)
        .bind(&self.node.name)
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(followed)
        .execute(&mut *transaction)
        .await?;
        for forget in [
            "DELETE FROM nodes WHERE seen_at < now() - interval '10 minutes'",
            "DELETE FROM claims WHERE until < now() - interval '10 minutes'",
        ] {
            sqlx::query(forget).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
