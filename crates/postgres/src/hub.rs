//! How a node learns of commits: NOTIFY wakes it, and a question a second makes it sure. Tells the
//! store in turn that the node is alive, and how far it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sqlx::Row;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use toolscout_index::{Catalog, Searcher};

use super::error::StoreError;
use super::followed_memory::FollowedMemory;
use super::row::StoredGeneration;
use super::{CONNECT_LIMIT, PostgresStore, within};
use toolscout_state::catalog_writer::Waker;
use toolscout_state::shared::Lag;
use toolscout_state::shared::StoredCatalog;

/// How often the store is asked which catalogs have changed.
const POLL: Duration = Duration::from_secs(1);
/// How often it is asked for all of them, whatever has changed: an older state of the store may have
/// been put back.
const WHOLE_POLL: Duration = Duration::from_secs(60);
/// The store counts as away when it has not answered for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a node says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The pause before listening is tried again; it doubles up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The generation of a catalog that the store no longer has.
const GONE: u64 = u64::MAX;
/// So many open catalogs are all told of with each sign of life, and of more only those that are
/// behind, as many at most.
const MOST_TOLD: usize = 100;

/// The key of how many are open among the numbers of those that are told of.
pub(super) const OPEN: &str = "open";

/// The number of each catalog, by name.
type Names = BTreeMap<String, i64>;

/// A catalog of the store that this node has open.
pub struct FollowedCatalog {
    /// Its number in the store.
    pub id: i64,
    /// Its identity, the cluster's included.
    pub source: String,
    /// What this node has.
    state: Mutex<Option<StoredGeneration>>,
    /// What the store has, as far as this node knows.
    head: AtomicU64,
    /// True from when the store told of another state until it was asked for it.
    is_told: AtomicBool,
    is_deleted: AtomicBool,
    /// True where this node has a copy without tools, which are looked for in the store.
    is_pushed_down: AtomicBool,
    /// How many tools the store has, as far as this node knows.
    total: AtomicU64,
    waker: OnceLock<Waker>,
    /// Its usage memory.
    pub(super) memory: FollowedMemory,
}

impl FollowedCatalog {
    pub(super) fn new(
        stored: &StoredCatalog,
        state: Option<StoredGeneration>,
        catalog: Catalog,
    ) -> Arc<Self> {
        Arc::new(FollowedCatalog {
            id: stored.id,
            source: stored.source.clone(),
            state: Mutex::new(state),
            head: AtomicU64::new(stored.generation),
            is_told: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
            is_pushed_down: AtomicBool::new(stored.is_pushed_down),
            total: AtomicU64::new(0),
            waker: OnceLock::new(),
            memory: FollowedMemory::new(catalog),
        })
    }

    /// What to wake when the store has a newer generation.
    pub fn set_waker(&self, waker: Waker) {
        // A catalog has only one writer, so the waker is set only once.
        let _ = self.waker.set(waker);
    }

    /// True once the store no longer has this catalog; it may have another one of the name.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// True where tools are looked for in the store, and this node's copy has none.
    pub fn is_pushed_down(&self) -> bool {
        self.is_pushed_down.load(Ordering::Acquire)
    }

    pub(super) fn set_pushed_down(&self, is_pushed_down: bool) {
        self.is_pushed_down.store(is_pushed_down, Ordering::Release);
    }

    /// How many tools the catalog has in the store, as of what this node has.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Acquire) as usize
    }

    pub(super) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Release);
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
        self.state.lock().map_or(0, |state| state.generation)
    }

    /// By how many generations this node is behind what it was told.
    pub(super) fn lag(&self) -> u64 {
        self.told().saturating_sub(self.generation())
    }

    pub(super) fn set_told(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Release);
    }

    pub(super) fn set_state(&self, state: StoredGeneration) {
        *self.state.lock() = Some(state);
        self.head.store(state.generation, Ordering::Release);
    }

    /// As [`FollowedCatalog::tell`], unless this is what the node has.
    fn tell_of(&self, head: &Head) {
        let is_same = *self.state.lock() == Some(head.state);
        if !is_same || self.is_pushed_down() != head.is_pushed_down {
            self.tell(head.state.generation);
        }
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

/// What a poll leaves for the next.
struct LastPoll {
    /// What the next poll need not ask for again; `None` if it asks for all.
    since: Option<Since>,
    /// How often the store's server had changed.
    failovers: u64,
    has_failed: bool,
}

/// An answer of the store.
struct Since {
    /// Its horizon: the store then tells of the transactions that came later.
    horizon: String,
    /// When all catalogs were last asked for.
    asked_for_all: Instant,
}

/// A catalog as the store told of it.
struct Head {
    id: i64,
    name: String,
    state: StoredGeneration,
    is_pushed_down: bool,
}

/// What the store told of its catalogs.
struct Heads {
    /// All of them, or those that have changed.
    catalogs: Vec<Head>,
    are_all: bool,
    /// How many there are.
    total: usize,
    /// What was committed before this transaction was visible; the next question begins here.
    horizon: String,
}

/// What a node knows of the store from listening and asking.
pub(super) struct Hub {
    started: Instant,
    /// Milliseconds from the start to the last answer; below 0 before the first.
    answered: AtomicI64,
    open: Mutex<HashMap<i64, Weak<FollowedCatalog>>>,
    /// Every catalog by name, as it was last told.
    names: RwLock<Option<Arc<Names>>>,
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
        let answered = Duration::from_millis(answered);
        let silent = self.started.elapsed().saturating_sub(answered);
        if silent < PATIENCE {
            return None;
        }
        match self.last_problem.lock().as_ref() {
            Some(reason) => Some(reason.clone()),
            None => Some("it does not answer".to_owned()),
        }
    }

    pub(super) fn register(&self, catalog: &Arc<FollowedCatalog>) {
        self.open.lock().insert(catalog.id, Arc::downgrade(catalog));
    }

    /// True once in this time.
    pub(super) fn is_due(&self, now: Instant, pause: Duration) -> bool {
        let mut tidied = self.tidied.lock();
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

    pub(super) fn open(&self) -> Vec<Arc<FollowedCatalog>> {
        let mut open = self.open.lock();
        open.retain(|_, catalog| catalog.strong_count() > 0);
        open.values().filter_map(Weak::upgrade).collect()
    }

    /// Notes what the store told. False where that does not fit to what is known, and everything has
    /// to be asked for.
    fn note_heads(&self, heads: &Heads) -> bool {
        match heads.are_all {
            true => self.set_all(&heads.catalogs),
            false => self.set_changed(&heads.catalogs),
        }
        // The answer does not name deleted catalogs. Only the total number shows that one is gone.
        match self.names.read().as_ref() {
            Some(names) => names.len() == heads.total,
            None => false,
        }
    }

    fn set_all(&self, catalogs: &[Head]) {
        let heads: HashMap<i64, &Head> = catalogs.iter().map(|head| (head.id, head)).collect();
        for catalog in self.open() {
            match heads.get(&catalog.id) {
                None => catalog.tell(GONE),
                Some(head) => catalog.tell_of(head),
            }
        }
        let mut names = Names::new();
        for head in catalogs {
            names.insert(head.name.clone(), head.id);
        }
        // Built before the lock is taken, so that requests that read names do not wait.
        *self.names.write() = Some(Arc::new(names));
    }

    fn set_changed(&self, catalogs: &[Head]) {
        for head in catalogs {
            if let Some(catalog) = self.open_one(head.id) {
                catalog.tell_of(head);
            }
            if let Some(former) = self.note_name(head)
                && former != head.id
                && let Some(catalog) = self.open_one(former)
            {
                // It was deleted, and another one of the name was created.
                catalog.tell(GONE);
            }
        }
    }

    /// Notes a catalog's name. Returns the number of the catalog that had it.
    fn note_name(&self, head: &Head) -> Option<i64> {
        let mut names = self.names.write();
        let names = names.get_or_insert_default();
        match names.get(&head.name) {
            // The name is known already. Inserting it again could copy the whole map.
            Some(id) if *id == head.id => Some(*id),
            _ => Arc::make_mut(names).insert(head.name.clone(), head.id),
        }
    }

    fn open_one(&self, id: i64) -> Option<Arc<FollowedCatalog>> {
        self.open.lock().get(&id).and_then(Weak::upgrade)
    }

    /// `ID GENERATION`, as a commit announces them.
    fn note(&self, announced: &str) {
        let Some((id, generation)) = parse_announced(announced) else {
            // Something else: a catalog was created or deleted, or keys and the like changed.
            return self.hurry.notify_one();
        };
        if let Some(catalog) = self.open_one(id)
            && catalog.generation() != generation
        {
            catalog.tell(generation);
        }
    }
}

fn parse_announced(announced: &str) -> Option<(i64, u64)> {
    let (id, generation) = announced.split_once(' ')?;
    Some((id.parse().ok()?, generation.parse().ok()?))
}

impl PostgresStore {
    /// Starts to listen, to ask and to say that this node is alive, until [`PostgresStore::close`].
    pub fn follow(self: &Arc<Self>) {
        let (listening, asking) = (Arc::clone(self), Arc::clone(self));
        let stop = self.hub.stop.clone();
        let stopped = stop.clone();
        self.runtime
            .spawn(async move { stop.run_until_cancelled(listening.listen()).await });
        self.runtime
            .spawn(async move { stopped.run_until_cancelled(asking.poll()).await });
    }

    /// Ends what [`PostgresStore::follow`] started, and takes this node off the list.
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
            // If this fails, the list forgets the node after a while.
            let _ = within(CONNECT_LIMIT, gone).await;
        }
        self.servers.close().await;
    }

    /// The catalogs that this node has open, by number, with what it has of each.
    pub(super) fn open_catalogs(&self) -> Vec<(i64, Arc<Searcher>)> {
        let mut open = Vec::new();
        for catalog in self.hub.open() {
            open.push((catalog.id, catalog.memory.catalog.searcher()));
        }
        open
    }

    /// Cancelled by [`PostgresStore::close`].
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.hub.stop.clone()
    }

    /// Asks the store now, and not only at the next second.
    pub fn hurry(&self) {
        self.hub.hurry.notify_one();
    }

    /// The names of the catalogs as they were last told; `None` before the store was reached.
    pub fn known_names(&self) -> Option<Arc<BTreeMap<String, i64>>> {
        self.hub.names.read().clone()
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
                // Asking finds what was announced before this connection.
                self.hurry();
                tokio::select! {
                    () = self.note_all(&mut listener) => {}
                    // A connection that was cut gives no error.
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
            let announced = notification.payload();
            if !self.watch.note(announced) {
                self.hub.note(announced);
            }
        }
    }

    async fn listener(&self) -> Result<PgListener, StoreError> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.eager_reconnect(false);
        listener.listen(&self.channel()).await?;
        Ok(listener)
    }

    async fn poll(self: &Arc<Self>) {
        let mut beaten: Option<Instant> = None;
        let mut was_away = false;
        let mut last = LastPoll {
            since: None,
            failovers: self.figures.failovers.get(),
            has_failed: false,
        };
        loop {
            let is_there = self.poll_once(&mut last).await;
            self.look(is_there).await;
            was_away = self.log_change(was_away);
            if beaten.is_none_or(|beaten| beaten.elapsed() >= HEARTBEAT) {
                beaten = Some(Instant::now());
                self.tend(is_there).await;
            }
            // A short pause, so that many notifications cause few questions.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = tokio::time::timeout(POLL, self.hub.hurry.notified()).await;
        }
    }

    /// Asks for the catalogs that have changed since the last poll, or for all. Returns whether the store answered.
    async fn poll_once(&self, last: &mut LastPoll) -> bool {
        let failovers = self.figures.failovers.get();
        // Numbers of transactions mean nothing on another server.
        if last.failovers != failovers {
            last.failovers = failovers;
            last.since = None;
        }
        // Set again only by an answer, so after a failure the node asks for all.
        let since = last.since.take();
        let since = since.filter(|since| since.asked_for_all.elapsed() < WHOLE_POLL);
        let horizon = since.as_ref().map(|since| since.horizon.as_str());
        let heads = match self.ask(CONNECT_LIMIT, self.ask_heads(horizon)).await {
            Ok(heads) => heads,
            Err(error) => {
                last.has_failed = true;
                *self.hub.last_problem.lock() = Some(error.to_string());
                return false;
            }
        };
        if self.hub.note_heads(&heads) {
            last.since = Some(Since {
                asked_for_all: since.map_or_else(Instant::now, |since| since.asked_for_all),
                horizon: heads.horizon,
            });
        } else {
            self.hurry();
        }
        if std::mem::take(&mut last.has_failed) {
            self.hub.returned.notify_one();
        }
        true
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
        // Another server may have been promoted although the former one still runs.
        let _ = self.servers.choose().await;
        if is_there {
            let _ = self.ask(CONNECT_LIMIT, self.beat()).await;
            let _ = self.forget_removed().await;
        }
    }

    /// The catalogs that have changed since an answer with this horizon, and maybe some more; without
    /// one all of them. A row has the number of the transaction that wrote it, and one that was not
    /// visible then is not below the horizon.
    async fn ask_heads(&self, since: Option<&str>) -> Result<Heads, StoreError> {
        let rows = sqlx::query(
            "SELECT asked.horizon, asked.total, changed.id, changed.name, changed.generation, changed.mark,
                    changed.is_pushed_down
             FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS horizon,
                          (SELECT count(*) FROM catalogs) AS total) AS asked
             LEFT JOIN catalogs AS changed
                ON $1::text IS NULL OR age(changed.xmin) <= age($1::text::xid8::xid)",
        )
        .bind(since)
        .fetch_all(&self.pool)
        .await?;
        let mut heads = Heads {
            catalogs: Vec::with_capacity(rows.len()),
            are_all: since.is_none(),
            total: 0,
            horizon: String::new(),
        };
        for row in rows {
            let total: i64 = row.try_get("total")?;
            (heads.total, heads.horizon) = (total as usize, row.try_get("horizon")?);
            let Some(id) = row.try_get("id")? else {
                // Nothing has changed.
                continue;
            };
            let (generation, mark): (i64, i64) = (row.try_get("generation")?, row.try_get("mark")?);
            heads.catalogs.push(Head {
                id,
                name: row.try_get("name")?,
                state: StoredGeneration {
                    generation: generation as u64,
                    mark: mark as u64,
                },
                is_pushed_down: row.try_get("is_pushed_down")?,
            });
        }
        Ok(heads)
    }

    /// What this node tells of the catalogs that it has open: how many, and how far it is with each.
    /// Of many it tells only where it is behind.
    fn followed(&self) -> BTreeMap<String, u64> {
        let open = self.hub.open();
        let are_few = open.len() <= MOST_TOLD;
        let told = open
            .iter()
            .filter(|catalog| are_few || catalog.is_behind())
            .take(MOST_TOLD);
        let mut followed = BTreeMap::new();
        for catalog in told {
            followed.insert(catalog.id.to_string(), catalog.generation());
        }
        followed.insert(OPEN.to_owned(), open.len() as u64);
        followed
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let followed = self.followed();
        let followed = serde_json::to_string(&followed).unwrap_or_default();
        let mut transaction = self.pool.begin().await?;
        // Outdated in a moment, so it need not wait for a standby.
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
