//! The catalogs that are served: opened when first requested, each with its writer and settings.

pub mod contents;
pub mod embedders;
pub mod held;
pub mod settings;
pub mod tokens;
mod catalog;
mod counted_bytes;
mod default;
mod elsewhere;
mod name_locks;
mod open;
mod original;
mod pushed;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use toolscout_index::{Catalog, DataDir, Error, Listing, Options, Searcher, Summary};

use self::catalog::Home;
pub use self::catalog::OpenCatalog;
use self::counted_bytes::CountedBytes;
pub use self::default::{DefaultSearch, ServedSearch};
use self::elsewhere::not_deleted;
pub use self::elsewhere::{Elsewhere, OpenElsewhere};
use self::name_locks::{NameGuard, NameLocks};
use self::open::{Evicted, OpenCatalogs};
pub use self::original::ShadowedCatalog;
pub use self::pushed::ServedSnapshots;

use self::embedders::EmbeddersOf;
use self::held::HeldTexts;
use crate::process::limits::Limits;
use crate::request::error::{ApiError, ApiResult, unknown_catalog};
use crate::request::threads::blocking;
use toolscout_base::allocator;
use toolscout_base::embed_cache::{CachedEmbedder, QueryVectors};
use toolscout_base::telemetry::Metrics;
use toolscout_state::catalog_writer::{CatalogStore, CatalogWriter, LocalStore, Watch};
use toolscout_state::shared::SharedStore;

/// The folder of the copies of the store's catalogs, in the data directory.
pub const COPIES: &str = "followed";
/// How long a request waits while as many catalogs as may be open are in use, and how often it looks.
const SLOT_PATIENCE: Duration = Duration::from_secs(1);
const SLOT_PAUSE: Duration = Duration::from_millis(10);
/// How long closing waits for what is prepared for first searches. Each catalog takes less than a second.
const PREPARING_PATIENCE: Duration = Duration::from_secs(5);
/// Catalogs that are opened at the start, some milliseconds each.
const MAX_OPENED_AT_START: usize = 256;

/// The catalogs of the data directory, or of the store. A bounded number is open, and a bounded number
/// of bytes. Opening one more closes the least recently used that nobody holds; the agent and the
/// gateway hold the default one.
pub struct ServedCatalogs {
    opener: Arc<Opener>,
    open: OpenCatalogs,
    /// Catalogs that could not be opened, with the reason.
    damaged: RwLock<BTreeMap<String, String>>,
    /// Held for a name while its catalog is opened, closed or deleted.
    names: NameLocks,
    /// One permit for each catalog that may be open; an open one holds it.
    slots: Arc<Semaphore>,
    /// One permit for each catalog that may be opened at one time.
    openings: Arc<Semaphore>,
    /// What is done for the first searches, which need not wait for it.
    preparing: TaskTracker,
    listing: Arc<Mutex<Listing>>,
    max_catalogs: usize,
    max_open: usize,
    max_open_bytes: u64,
}

impl ServedCatalogs {
    /// The catalogs of `data`, none of them open yet.
    pub fn new(
        data: DataDir,
        embedders: EmbeddersOf,
        limits: &Limits,
        metrics: Arc<Metrics>,
        store: Option<Arc<dyn SharedStore>>,
        elsewhere: Option<Elsewhere>,
    ) -> Self {
        let root = data.path().to_owned();
        // Copies have a folder of their own, so that the node's own catalogs are never deleted in their
        // place.
        let data = match store {
            Some(_) => DataDir::new(root.join(COPIES)),
            None => data,
        };
        let listing = Arc::new(Mutex::new(Listing::new(data.clone())));
        let opener = Opener {
            data,
            root,
            store,
            elsewhere,
            embedders: Arc::new(embedders),
            metrics,
            write_queue: limits.write_queue,
            query_vectors: QueryVectors::new(limits.cached_queries),
            open_bytes: Arc::default(),
        };
        ServedCatalogs {
            opener: Arc::new(opener),
            open: OpenCatalogs::default(),
            damaged: RwLock::default(),
            names: NameLocks::default(),
            slots: Arc::new(Semaphore::new(limits.max_open_catalogs)),
            openings: Arc::new(Semaphore::new(limits.search_threads)),
            preparing: TaskTracker::new(),
            listing,
            max_catalogs: limits.max_catalogs,
            max_open: limits.max_open_catalogs,
            max_open_bytes: limits.max_open_bytes,
        }
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.opener.root
    }

    /// The catalog with this name, opened if necessary.
    ///
    /// # Errors
    /// 404 when it does not exist, 500 when it cannot be opened, 503 when as many catalogs as may
    /// be open are in use.
    pub async fn get(&self, name: &str) -> ApiResult<Arc<OpenCatalog>> {
        if let Some(open) = self.find(name) {
            return Ok(open);
        }
        let locked = self.names.lock(name).await;
        // Another request may have opened it meanwhile.
        if let Some(open) = self.find(name) {
            return Ok(open);
        }
        if !self.opener.may_exist(name) {
            self.forget(name);
            return Err(unknown_catalog(name));
        }
        match self.open_now(locked, Opener::open).await {
            Ok(open) => Ok(open),
            // To a client, an invalid name is a catalog that does not exist.
            Err(NotOpened::Engine(Error::InvalidCatalogName { .. })) => Err(unknown_catalog(name)),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Opens a catalog once there is room for it.
    async fn open_now(
        &self,
        locked: NameGuard,
        open: impl FnOnce(&Opener, &str) -> Result<OpenCatalog, NotOpened> + Send + 'static,
    ) -> Result<Arc<OpenCatalog>, NotOpened> {
        self.close_deleted(locked.name()).await?;
        let slot = self.slot().await?;
        let opening = Arc::clone(&self.openings).acquire_owned().await;
        let opener = Arc::clone(&self.opener);
        let opened = blocking(move || {
            let opened = open(&opener, locked.name())?;
            // Opening goes on even if the request ends, so the catalog itself keeps the permit.
            let _ = opened.slot.set(slot);
            drop(opening);
            Ok::<_, NotOpened>((opened, locked))
        });
        let (opened, locked) = opened.await??;
        let open = self.add(opened);
        // Dropped early, so that requests for this catalog do not wait until others are closed.
        drop(locked);
        self.close_until_bytes_fit().await?;
        Ok(open)
    }

    fn failed(&self, name: &str, error: NotOpened) -> ApiError {
        match error {
            NotOpened::Engine(error) => {
                self.note_failure(name, &error);
                error.into()
            }
            NotOpened::Refused(error) => error,
        }
    }

    /// Closes the catalog of this name if another node has deleted it, so that its copy can be
    /// replaced. The caller has locked the name.
    async fn close_deleted(&self, name: &str) -> ApiResult<()> {
        if self.opener.store.is_none() {
            return Ok(());
        }
        match self.open.remove_if(name, |open| !open.exists()) {
            Some(deleted) => blocking(move || deleted.close()).await,
            None => Ok(()),
        }
    }

    /// Closes and deletes copies of catalogs that the store no longer has.
    pub async fn sweep(&self) -> ApiResult<Vec<String>> {
        let mut deleted = Vec::new();
        let Some(store) = self.opener.store.clone() else {
            return Ok(deleted);
        };
        let Some(known) = store.known_names() else {
            return Ok(deleted);
        };
        for catalog in self.all_open() {
            if !catalog.exists() {
                // Checked again under the lock, since another request may have opened a new catalog of
                // this name.
                let _locked = self.names.lock(&catalog.name).await;
                self.close_deleted(&catalog.name).await?;
            }
        }
        let copies = self.listed().await?;
        let unknown = copies.iter().filter(|name| !known.contains_key(*name));
        for name in unknown {
            if self.forget_copy(&store, name).await? {
                deleted.push(name.clone());
            }
        }
        Ok(deleted)
    }

    /// Deletes a copy that nobody has open, if the store does not have its catalog: what is known of
    /// it may be a second old.
    async fn forget_copy(&self, store: &Arc<dyn SharedStore>, name: &str) -> ApiResult<bool> {
        let locked = self.names.lock(name).await;
        if self.open.find(name).is_some() {
            return Ok(false);
        }
        let (store, opener) = (Arc::clone(store), Arc::clone(&self.opener));
        let listing = Arc::clone(&self.listing);
        let forgotten = blocking(move || {
            let name = locked.name();
            // If the store does not answer, the copy stays.
            let is_deleted = matches!(store.block_on(store.find(name)), Ok(None));
            if is_deleted {
                opener.forget_copy(name)?;
                listing.lock().note_deleted(name);
            }
            Ok::<_, Error>(is_deleted)
        });
        Ok(forgotten.await??)
    }

    /// The catalog with this name, created if necessary, and whether it was created.
    ///
    /// # Errors
    /// 422 for an invalid name, 429 when the server has as many catalogs as it may have.
    pub async fn create(&self, name: &str) -> ApiResult<(Arc<OpenCatalog>, Created)> {
        if let Some(open) = self.find(name) {
            return Ok((open, Created::Before));
        }
        let locked = self.names.lock(name).await;
        if let Some(open) = self.find(name) {
            return Ok((open, Created::Before));
        }
        let (listing, bound) = (Arc::clone(&self.listing), self.max_catalogs);
        // `open_now` returns only the catalog, so this flag carries whether it is new.
        let was_created = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&was_created);
        let create = move |opener: &Opener, name: &str| {
            let (open, created) = opener.create(name, bound, &listing)?;
            noted.store(created == Created::Now, Ordering::Release);
            listing.lock().note_created(name);
            Ok(open)
        };
        let open = match self.open_now(locked, create).await {
            Ok(open) => open,
            Err(error) => return Err(self.failed(name, error)),
        };
        Ok(match was_created.load(Ordering::Acquire) {
            true => (open, Created::Now),
            false => (open, Created::Before),
        })
    }

    /// Deletes a catalog with everything in its folder, after the changes in its write queue.
    ///
    /// # Errors
    /// 404 when it does not exist, 503 while another process writes to it.
    pub async fn delete(&self, name: &str) -> ApiResult<()> {
        let locked = self.names.lock(name).await;
        // Removed from the map first, so that no new request gets it.
        let open = self.open.remove(name);
        self.forget(name);
        let (opener, listing) = (Arc::clone(&self.opener), Arc::clone(&self.listing));
        let deleted = blocking(move || {
            if let Some(open) = open {
                open.close();
            }
            opener.delete(locked.name())?;
            listing.lock().note_deleted(locked.name());
            Ok(())
        });
        match deleted.await? {
            Err(NotOpened::Engine(Error::InvalidCatalogName { .. })) => Err(unknown_catalog(name)),
            Err(NotOpened::Engine(error)) => Err(error.into()),
            Err(NotOpened::Refused(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// The names of all catalogs, sorted.
    ///
    /// # Errors
    /// 500 when the data directory cannot be read.
    pub async fn names(&self) -> ApiResult<Arc<BTreeSet<String>>> {
        if self.opener.store.is_none() {
            return Ok(self.opener.with_elsewhere(self.listed().await?));
        }
        let (opener, listing) = (Arc::clone(&self.opener), Arc::clone(&self.listing));
        let names = blocking(move || match opener.shared_names() {
            Some(names) => Ok(names),
            // The store was never reached, so the copies on this node are all that is known.
            None => listing.lock().names(),
        });
        Ok(names.await??)
    }

    /// The catalogs in this node's folder.
    async fn listed(&self) -> ApiResult<Arc<BTreeSet<String>>> {
        let listing = Arc::clone(&self.listing);
        Ok(blocking(move || listing.lock().names()).await??)
    }

    /// What a catalog has, read without opening it.
    ///
    /// # Errors
    /// 404 when it does not exist, 500 when it cannot be read.
    pub async fn summary(&self, name: &str) -> ApiResult<Summary> {
        let (opener, wanted) = (Arc::clone(&self.opener), name.to_owned());
        let summary = blocking(move || opener.summary(&wanted)).await?;
        summary.map_err(|error| self.failed(name, error))
    }

    /// Opens catalogs, so that their first search does not wait: this one, and as many as may be open,
    /// or some hundreds of more. One that cannot be opened is logged, and requests for it fail.
    pub async fn open_all(&self, first: &str) -> ApiResult<()> {
        let names = self.names().await?;
        let others = names
            .iter()
            .map(String::as_str)
            .filter(|name| *name != first);
        let most = self.max_open.min(MAX_OPENED_AT_START);
        for name in std::iter::once(first).chain(others).take(most) {
            match self.get(name).await {
                Ok(open) => self.prepare(open.searcher()).await?,
                Err(error) => tracing::error!(
                    catalog = name,
                    detail = error.detail,
                    error = error.message,
                    "catalog cannot be opened"
                ),
            }
        }
        Ok(())
    }

    /// Does what the first search would do beside its own work. Searches need not wait for the second
    /// part of it.
    async fn prepare(&self, searcher: Arc<Searcher>) -> ApiResult<()> {
        let warmed = Arc::clone(&searcher);
        blocking(move || warmed.warm_up()).await?;
        self.preparing.spawn_blocking(move || {
            searcher.prepare_ranking();
            // Opening and preparing a large catalog takes memory that is freed again. Small ones are opened
            // too often for this.
            if searcher.len() >= allocator::MANY_TOOLS {
                allocator::release_freed();
            }
        });
        Ok(())
    }

    /// Whether this catalog, which somebody holds, was not deleted. Does not look at the disk.
    pub fn holds(&self, catalog: &Arc<OpenCatalog>) -> bool {
        self.open.holds(catalog)
    }

    /// The catalogs that are open.
    pub fn all_open(&self) -> Vec<Arc<OpenCatalog>> {
        self.open.all()
    }

    /// The catalog with this name if it is open.
    pub fn opened(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        self.find(name)
    }

    /// Bytes that the open catalogs take in memory, about.
    pub fn open_bytes(&self) -> u64 {
        self.opener.open_bytes.load(Ordering::Relaxed)
    }

    /// Finishes the changes in every write queue, and takes no more.
    ///
    /// # Errors
    /// 500 when closing panicked.
    pub async fn close(&self) -> ApiResult<()> {
        self.preparing.close();
        if timeout(PREPARING_PATIENCE, self.preparing.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                "catalogs are closed while something is prepared for their first searches"
            );
        }
        let open = self.all_open();
        let close_all = move || {
            for catalog in &open {
                catalog.close();
            }
        };
        blocking(close_all).await
    }

    /// Room for one more open catalog. Closes others, after the changes in their write queues, until
    /// there is some, and waits a moment where all are in use.
    async fn slot(&self) -> ApiResult<OwnedSemaphorePermit> {
        let give_up = Instant::now() + SLOT_PATIENCE;
        loop {
            if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
                return Ok(slot);
            }
            if let Some(unused) = self.open.take_least_recently_used(&self.names) {
                close(unused).await?;
                continue;
            }
            // A permit becomes free when a catalog is closed. After the pause another catalog may be
            // unused.
            let next = Arc::clone(&self.slots).acquire_owned();
            if let Ok(Ok(slot)) = timeout(SLOT_PAUSE, next).await {
                return Ok(slot);
            }
            if Instant::now() >= give_up {
                return Err(self.all_in_use());
            }
        }
    }

    fn all_in_use(&self) -> ApiError {
        let message = format!(
            "{} catalogs are in use, the most that this server opens; try again in a moment",
            self.max_open
        );
        ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "catalogs_in_use", message)
    }

    /// Closes what is least recently used while the open catalogs take more than they may. What is in
    /// use stays: a catalog that is larger than all may be is served alone.
    async fn close_until_bytes_fit(&self) -> ApiResult<()> {
        while self.open_bytes() > self.max_open_bytes {
            match self.open.take_least_recently_used(&self.names) {
                Some(unused) => close(unused).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The catalogs that could not be opened when they were last requested, with the reason.
    pub fn damaged(&self) -> BTreeMap<String, String> {
        self.damaged.read().clone()
    }

    /// Why this catalog could not be opened when it was last requested.
    pub fn damage(&self, name: &str) -> Option<String> {
        let damaged = self.damaged.read();
        damaged.get(name).cloned()
    }

    fn note_failure(&self, name: &str, error: &Error) {
        match error {
            // Deleted by another process while it was open, so it is not damaged.
            Error::UnknownCatalog { .. } => self.forget(name),
            error => {
                let reason = without_folder(error);
                self.damaged.write().insert(name.to_owned(), reason);
            }
        }
    }

    /// Forgets a catalog that does not exist.
    fn forget(&self, name: &str) {
        drop(self.open.remove(name));
        self.is_sound(name);
    }

    /// Notes that there is nothing wrong with this catalog.
    fn is_sound(&self, name: &str) {
        let mut damaged = self.damaged.write();
        damaged.remove(name);
    }

    /// The open catalog with this name, unless another process has deleted it.
    fn find(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        self.open.find(name).filter(|open| open.exists())
    }

    fn add(&self, open: OpenCatalog) -> Arc<OpenCatalog> {
        self.is_sound(&open.name);
        self.open.add(open)
    }
}

/// Closes a catalog after the changes in its write queue.
async fn close(unused: Evicted) -> ApiResult<()> {
    blocking(move || {
        unused.catalog.close();
        // The catalog is dropped before its name: whoever opens it next may need its permit.
        drop(unused.catalog);
        drop(unused.name);
    })
    .await
}

/// Whether a request created a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It did.
    Now,
    /// The catalog existed before.
    Before,
}

/// Why a catalog was not created.
enum NotOpened {
    Engine(Error),
    Refused(ApiError),
}

impl From<ApiError> for NotOpened {
    fn from(error: ApiError) -> Self {
        NotOpened::Refused(error)
    }
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        NotOpened::Engine(error)
    }
}

/// Opens catalogs. Its methods block.
struct Opener {
    /// Where the catalogs are: the data directory, or the copies in it of those of the store.
    data: DataDir,
    root: PathBuf,
    store: Option<Arc<dyn SharedStore>>,
    elsewhere: Option<Elsewhere>,
    embedders: Arc<EmbeddersOf>,
    metrics: Arc<Metrics>,
    write_queue: usize,
    query_vectors: Arc<QueryVectors>,
    /// Of all open catalogs, about.
    open_bytes: Arc<AtomicU64>,
}

impl Opener {
    /// False where there is no catalog of this name.
    fn may_exist(&self, name: &str) -> bool {
        self.store.is_some() || self.is_elsewhere(name) || self.data.may_have(name).unwrap_or(false)
    }

    /// These names, with those of the catalogs whose tools are elsewhere. The data directory has nothing of one before
    /// it is opened.
    fn with_elsewhere(&self, names: Arc<BTreeSet<String>>) -> Arc<BTreeSet<String>> {
        match &self.elsewhere {
            Some(elsewhere) if !elsewhere.names.is_subset(&names) => {
                Arc::new(names.union(&elsewhere.names).cloned().collect())
            }
            _ => names,
        }
    }

    fn open(&self, name: &str) -> Result<OpenCatalog, NotOpened> {
        if let Some(elsewhere) = &self.elsewhere
            && self.is_elsewhere(name)
        {
            return self.open_elsewhere(elsewhere, name);
        }
        if let Some(store) = &self.store {
            return self.open_shared(store, name);
        }
        let catalog = self
            .data
            .open_with(name, |settings| self.options(settings.embedder.as_deref()))?;
        let named = catalog.searcher().settings().embedder.clone();
        Ok(self.serve_local(name, catalog, named)?)
    }

    fn create(
        &self,
        name: &str,
        max_catalogs: usize,
        listing: &Mutex<Listing>,
    ) -> Result<(OpenCatalog, Created), NotOpened> {
        if self.is_elsewhere(name) {
            return Ok((self.open(name)?, Created::Before));
        }
        if let Some(store) = &self.store {
            return self.create_shared(store, name, max_catalogs);
        }
        match self.open(name) {
            Err(NotOpened::Engine(Error::UnknownCatalog { .. })) => {}
            opened => return Ok((opened?, Created::Before)),
        }
        if listing.lock().count()? >= max_catalogs {
            return Err(too_many(max_catalogs));
        }
        let catalog = self.data.open_or_create(name, self.options(None))?;
        Ok((self.serve_local(name, catalog, None)?, Created::Now))
    }

    fn delete(&self, name: &str) -> Result<(), NotOpened> {
        if self.is_elsewhere(name) {
            return Err(not_deleted(name));
        }
        match &self.store {
            Some(store) => self.delete_shared(store, name),
            None => Ok(self.data.delete(name)?),
        }
    }

    fn summary(&self, name: &str) -> Result<Summary, NotOpened> {
        match &self.store {
            Some(store) => self.shared_summary(store, name),
            None => match self.data.summary(name) {
                // Nobody has opened it yet, so nothing is known of its tools.
                Err(Error::UnknownCatalog { .. }) if self.is_elsewhere(name) => Ok(Summary {
                    tools: 0,
                    generation: 0,
                    settings: toolscout_index::Settings::default(),
                }),
                summary => Ok(summary?),
            },
        }
    }

    fn serve_local(
        &self,
        name: &str,
        catalog: Catalog,
        named: Option<String>,
    ) -> toolscout_index::Result<OpenCatalog> {
        settings::adopt_former_file(&catalog)?;
        let store = Box::new(LocalStore(catalog.clone()));
        self.serve(name, catalog, named, store, Home::Local)
    }

    /// `named` are the embedders that its settings name and that it was opened with.
    fn serve(
        &self,
        name: &str,
        catalog: Catalog,
        named: Option<String>,
        store: Box<dyn CatalogStore>,
        home: Home,
    ) -> toolscout_index::Result<OpenCatalog> {
        let folder = catalog.path().to_owned();
        // Damaged vectors and a damaged memory do not keep the catalog from being served.
        let vectors = catalog.searcher().damaged_vectors();
        if vectors > 0 {
            tracing::warn!(
                catalog = name,
                vectors,
                "stored vectors are damaged and are computed again"
            );
        }
        if let Some(problem) = catalog.memory().problem() {
            tracing::warn!(catalog = name, problem, "the usage memory is damaged");
        }
        let depth = self.metrics.write_queue.clone();
        let bytes = Arc::new(CountedBytes::new(Arc::clone(&self.open_bytes)));
        bytes.set(catalog.memory_bytes());
        let watch = self.follow(name, named, Arc::clone(&bytes));
        let queue = self.write_queue;
        let writer = CatalogWriter::start_over(store, name, catalog.clone(), queue, depth, watch)
            .map_err(|source| Error::io("start threads to write", &folder, source))?;
        if let Home::Store(shared) = &home {
            shared.catalog.set_waker(writer.waker());
        }
        Ok(OpenCatalog {
            name: name.to_owned(),
            writer,
            held: HeldTexts::default(),
            catalog,
            folder,
            home,
            bytes,
            slot: OnceLock::new(),
            last_used: AtomicU64::default(),
            instance: AtomicU64::default(),
        })
    }

    fn options(&self, named: Option<&str>) -> Options {
        self.sharing()(self.embedders.get(named))
    }

    /// What a catalog's embedders become: those of the store, and each with a cache.
    fn sharing(&self) -> impl Fn(Options) -> Options + Send + use<> {
        let (store, metrics) = (self.store.clone(), Arc::clone(&self.metrics));
        let query_vectors = Arc::clone(&self.query_vectors);
        move |mut options| {
            if let Some(store) = &store {
                share(&mut options, store);
            }
            cached(options, &query_vectors, &metrics)
        }
    }

    /// Counts a catalog's bytes, and gives it other embedders when its settings name others.
    fn follow(&self, name: &str, mut named: Option<String>, bytes: Arc<CountedBytes>) -> Watch {
        let (embedders, sharing) = (Arc::clone(&self.embedders), self.sharing());
        let mut lacked_one = embedders.get(named.as_deref()).missing_embedder.is_some();
        let name = name.to_owned();
        Box::new(move |catalog| {
            bytes.set(catalog.memory_bytes());
            let searcher = catalog.searcher();
            let now = &searcher.settings().embedder;
            if *now == named && !lacked_one {
                return;
            }
            let options = embedders.get(now.as_deref());
            let lacks_one = options.missing_embedder.is_some();
            // A model that was missing may have been fetched since.
            if *now == named && lacks_one {
                return;
            }
            named.clone_from(now);
            lacked_one = lacks_one;
            match catalog.set_options(sharing(options)) {
                Ok(()) => tracing::info!(catalog = name, embedder = named, "other embedders"),
                Err(error) => {
                    tracing::warn!(catalog = name, %error, "the embedders stay as they are");
                }
            }
        })
    }
}

/// Slow embedders with the vectors of the store.
fn share(options: &mut Options, store: &Arc<dyn SharedStore>) {
    for embedder in &mut options.embedders {
        if !embedder.is_instant() {
            let slow = Arc::clone(embedder);
            *embedder = Arc::clone(store).sharing(slow);
        }
    }
}

fn too_many(max_catalogs: usize) -> NotOpened {
    let message = format!(
        "there are {max_catalogs} catalogs, the most that this server may have; delete one first"
    );
    NotOpened::Refused(ApiError::invalid(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_catalogs",
        message,
    ))
}

/// The embedders with a query cache, whose room all catalogs share.
fn cached(mut options: Options, stored: &Arc<QueryVectors>, metrics: &Metrics) -> Options {
    for embedder in &mut options.embedders {
        if !embedder.is_instant() {
            let slow = Arc::clone(embedder);
            let counters = metrics.cache.clone();
            *embedder = Arc::new(CachedEmbedder::sharing(slow, Arc::clone(stored), counters));
        }
    }
    options
}

/// Why a catalog cannot be opened, for clients: paths of the server are for the log only.
fn without_folder(error: &Error) -> String {
    match error {
        Error::Store { path, problem } => {
            let folder = path.parent().unwrap_or(path).display().to_string();
            problem.to_string().replace(&format!("{folder}/"), "")
        }
        _ => "it cannot be opened; the server's log says why".to_owned(),
    }
}

#[cfg(test)]
mod tests;
