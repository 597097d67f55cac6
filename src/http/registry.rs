//! The catalogs that are served: opened when first requested, each with its writer and settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::timeout;
use toolscout_index::{Catalog, DataDir, Error, Memory, Options, Searcher};

use super::Limits;
use super::embedders::EmbeddersOf;
use super::error::{ApiError, ApiResult, generation_not_reached, unknown_catalog};
use super::settings;
use super::threads::blocking;
use crate::catalog_writer::{CatalogStore, CatalogWriter, LocalStore, Watch};
use crate::embed_cache::CachedEmbedder;
use crate::store::{FollowedCatalog, SharedEmbedder, SharedStore};
use crate::telemetry::Metrics;

mod shared;

/// The folder of the copies of the store's catalogs, in the data directory.
const COPIES: &str = "followed";
/// How long a search waits for the generation that it asks for.
const REACH_PATIENCE: Duration = Duration::from_secs(5);

/// A catalog that is served.
pub struct OpenCatalog {
    /// The name under `/v1/catalogs/`.
    pub name: String,
    /// Applies changes.
    pub writer: CatalogWriter,
    catalog: Catalog,
    folder: PathBuf,
    /// The catalog of the store that it follows, where several nodes share one.
    shared: Option<Shared>,
    /// The registry's clock when it was last requested.
    last_used: AtomicU64,
}

impl OpenCatalog {
    /// The newest snapshot.
    pub fn searcher(&self) -> Arc<Searcher> {
        self.catalog.searcher()
    }

    /// The catalog's folder in the data directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its usage memory.
    pub fn memory(&self) -> &Memory {
        self.catalog.memory()
    }

    /// Returns once searches see this generation.
    ///
    /// # Errors
    /// 503 when they do not soon: with a store after some seconds, else at once.
    pub async fn reach(&self, generation: u64) -> ApiResult<()> {
        if self.searcher().generation() >= generation {
            return Ok(());
        }
        match &self.shared {
            Some(shared) => {
                shared.store.hurry();
                // What is reached or not is looked at below.
                let _ = timeout(REACH_PATIENCE, self.writer.reaches(generation)).await;
            }
            None => {
                let catalog = self.catalog.clone();
                blocking(move || catalog.refresh()).await??;
            }
        }
        match self.searcher().generation() {
            reached if reached >= generation => Ok(()),
            reached => Err(generation_not_reached(generation, reached)),
        }
    }

    /// Why searches may lack what other nodes have written, if the store is away.
    pub fn store_problem(&self) -> Option<String> {
        self.shared.as_ref()?.store.problem()
    }

    /// False once another process or another node has deleted it.
    fn exists(&self) -> bool {
        let is_deleted = self
            .shared
            .as_ref()
            .map(|shared| shared.catalog.is_deleted());
        !is_deleted.unwrap_or(false) && self.catalog.exists()
    }

    /// Sizes on disk and in memory. Reads the disk.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn stats(&self) -> toolscout_index::Result<toolscout_index::Stats> {
        self.catalog.stats()
    }
}

/// A catalog of the store, and the store.
struct Shared {
    store: Arc<SharedStore>,
    catalog: Arc<FollowedCatalog>,
}

/// The catalogs of the data directory, or of the store. A bounded number is open. Opening one more closes the least
/// recently used that nobody holds; the agent and the gateway hold the default one.
pub struct Registry {
    opener: Arc<Opener>,
    open: RwLock<BTreeMap<String, Arc<OpenCatalog>>>,
    /// Catalogs that could not be opened, with the reason.
    damaged: RwLock<BTreeMap<String, String>>,
    /// Held while the set of catalogs changes.
    changing: tokio::sync::Mutex<()>,
    max_catalogs: usize,
    max_open: usize,
    /// Counts requests for catalogs, to order them by last use.
    clock: AtomicU64,
}

impl Registry {
    /// The catalogs of `data`, none of them open yet.
    pub fn new(
        data: DataDir,
        embedders: EmbeddersOf,
        limits: &Limits,
        metrics: Arc<Metrics>,
        store: Option<Arc<SharedStore>>,
    ) -> Self {
        let root = data.path().to_owned();
        let opener = Opener {
            // Copies apart from catalogs of the node's own, which are never deleted for another.
            data: match store {
                Some(_) => DataDir::new(root.join(COPIES)),
                None => data,
            },
            root,
            store,
            embedders: Arc::new(embedders),
            metrics,
            write_queue: limits.write_queue,
            cached_queries: limits.cached_queries,
        };
        Registry {
            opener: Arc::new(opener),
            open: RwLock::default(),
            damaged: RwLock::default(),
            changing: tokio::sync::Mutex::new(()),
            max_catalogs: limits.max_catalogs,
            max_open: limits.max_open_catalogs,
            clock: AtomicU64::default(),
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
        let _changing = self.changing.lock().await;
        // Another request may have opened it meanwhile.
        if let Some(open) = self.find(name) {
            return Ok(open);
        }
        self.close_deleted(name).await?;
        self.make_room().await?;
        let opener = Arc::clone(&self.opener);
        let wanted = name.to_owned();
        match blocking(move || opener.open(&wanted)).await? {
            Ok(open) => Ok(self.add(open)),
            // To a client, an invalid name is a catalog that does not exist.
            Err(NotOpened::Engine(Error::InvalidCatalogName { .. })) => Err(unknown_catalog(name)),
            Err(error) => Err(self.failed(name, error)),
        }
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
    /// replaced. The caller holds `changing`.
    async fn close_deleted(&self, name: &str) -> ApiResult<()> {
        if self.opener.store.is_none() {
            return Ok(());
        }
        let deleted = {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            let is_deleted = open.get(name).is_some_and(|catalog| !catalog.exists());
            if is_deleted { open.remove(name) } else { None }
        };
        match deleted {
            Some(deleted) => blocking(move || deleted.writer.close()).await,
            None => Ok(()),
        }
    }

    /// Closes and deletes copies of catalogs that the store no longer has.
    pub async fn sweep(&self) -> ApiResult<()> {
        let Some(store) = self.opener.store.clone() else {
            return Ok(());
        };
        let Some(known) = store.known_names() else {
            return Ok(());
        };
        let _changing = self.changing.lock().await;
        for catalog in self.all_open() {
            if !catalog.exists() {
                self.close_deleted(&catalog.name).await?;
            }
        }
        let open: BTreeSet<String> = self
            .all_open()
            .iter()
            .map(|catalog| catalog.name.clone())
            .collect();
        let opener = Arc::clone(&self.opener);
        let swept = blocking(move || {
            for name in opener.data.catalogs()? {
                // What is known may be a second old, so the store is asked once more.
                if !known.contains_key(&name)
                    && !open.contains(&name)
                    && matches!(store.block_on(store.find(&name)), Ok(None))
                {
                    opener.forget_copy(&name)?;
                }
            }
            Ok::<_, Error>(())
        });
        Ok(swept.await??)
    }

    /// The catalog with this name, created if necessary, and whether it was created.
    ///
    /// # Errors
    /// 422 for an invalid name, 429 when the server has as many catalogs as it may have.
    pub async fn create(&self, name: &str) -> ApiResult<(Arc<OpenCatalog>, Created)> {
        let _changing = self.changing.lock().await;
        if let Some(open) = self.find(name) {
            return Ok((open, Created::Before));
        }
        self.close_deleted(name).await?;
        self.make_room().await?;
        let (opener, wanted, bound) =
            (Arc::clone(&self.opener), name.to_owned(), self.max_catalogs);
        match blocking(move || opener.create(&wanted, bound)).await? {
            Ok((open, created)) => Ok((self.add(open), created)),
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Deletes a catalog with everything in its folder, after the changes in its write queue.
    ///
    /// # Errors
    /// 404 when it does not exist, 503 while another process writes to it.
    pub async fn delete(&self, name: &str) -> ApiResult<()> {
        let _changing = self.changing.lock().await;
        // Removed from the map first, so that no new request gets it.
        let open = self
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        self.damaged
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        let (opener, wanted) = (Arc::clone(&self.opener), name.to_owned());
        let deleted = blocking(move || {
            if let Some(open) = open {
                open.writer.close();
            }
            opener.delete(&wanted)
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
    pub async fn names(&self) -> ApiResult<Vec<String>> {
        let opener = Arc::clone(&self.opener);
        Ok(blocking(move || opener.names()).await??)
    }

    /// Opens as many catalogs as may be open, so that their first search does not wait. One that
    /// cannot be opened is logged, and requests for it fail.
    pub async fn open_all(&self) -> ApiResult<()> {
        for name in self.names().await?.into_iter().take(self.max_open) {
            if let Err(error) = self.get(&name).await {
                tracing::error!(
                    catalog = name,
                    detail = error.detail,
                    error = error.message,
                    "catalog cannot be opened"
                );
            }
        }
        Ok(())
    }

    /// Whether this catalog, which somebody holds, was not deleted. Does not look at the disk.
    pub fn holds(&self, catalog: &Arc<OpenCatalog>) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&catalog.name)
            .is_some_and(|open| Arc::ptr_eq(open, catalog))
    }

    /// The catalogs that are open.
    pub fn all_open(&self) -> Vec<Arc<OpenCatalog>> {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Finishes the changes in every write queue, and takes no more.
    ///
    /// # Errors
    /// 500 when closing panicked.
    pub async fn close(&self) -> ApiResult<()> {
        let open = self.all_open();
        blocking(move || open.iter().for_each(|catalog| catalog.writer.close())).await
    }

    /// Closes catalogs, after the changes in their write queues, until one more may be opened. The
    /// caller holds `changing`, so that none is opened again before it is closed.
    async fn make_room(&self) -> ApiResult<()> {
        loop {
            let open = self
                .open
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .len();
            if open < self.max_open {
                return Ok(());
            }
            let Some(unused) = self.take_least_recently_used() else {
                let message = format!(
                    "{open} catalogs are in use, the most that this server opens; try again in a moment"
                );
                return Err(ApiError::busy(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "catalogs_in_use",
                    message,
                ));
            };
            blocking(move || unused.writer.close()).await?;
        }
    }

    /// Takes out the least recently used catalog that nobody holds. A catalog that is still being
    /// embedded is taken only if there is no other.
    fn take_least_recently_used(&self) -> Option<Arc<OpenCatalog>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let name = open
            .values()
            // The map holds the only reference; with the write lock held, nobody can get another.
            .filter(|catalog| Arc::strong_count(catalog) == 1)
            .min_by_key(|catalog| {
                let is_pending = catalog.searcher().pending_embeddings() > 0;
                (is_pending, catalog.last_used.load(Ordering::Relaxed))
            })?
            .name
            .clone();
        open.remove(&name)
    }

    /// The catalogs that could not be opened when they were last requested, with the reason.
    pub fn damaged(&self) -> BTreeMap<String, String> {
        self.damaged
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note_failure(&self, name: &str, error: &Error) {
        match error {
            // Deleted by another process while it was open, so it is not damaged.
            Error::UnknownCatalog { .. } => {
                self.open
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(name);
                self.damaged
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(name);
            }
            error => {
                let reason = without_folder(error);
                self.damaged
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(name.to_owned(), reason);
            }
        }
    }

    /// The open catalog with this name, unless another process has deleted it.
    fn find(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        let open = self
            .open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        open.filter(|open| open.exists())
            .inspect(|catalog| self.note_use(catalog))
    }

    fn note_use(&self, catalog: &OpenCatalog) {
        catalog.last_used.store(
            self.clock.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    fn add(&self, open: OpenCatalog) -> Arc<OpenCatalog> {
        let open = Arc::new(open);
        self.note_use(&open);
        self.damaged
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&open.name);
        self.open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(open.name.clone(), Arc::clone(&open));
        open
    }
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
    store: Option<Arc<SharedStore>>,
    embedders: Arc<EmbeddersOf>,
    metrics: Arc<Metrics>,
    write_queue: usize,
    cached_queries: usize,
}

impl Opener {
    fn open(&self, name: &str) -> Result<OpenCatalog, NotOpened> {
        if let Some(store) = &self.store {
            return self.open_shared(store, name);
        }
        let catalog = self
            .data
            .open_with(name, |settings| self.options(settings.embedder.as_deref()))?;
        let named = catalog.searcher().settings().embedder.clone();
        Ok(self.serve_local(name, catalog, named)?)
    }

    fn create(&self, name: &str, max_catalogs: usize) -> Result<(OpenCatalog, Created), NotOpened> {
        if let Some(store) = &self.store {
            return self.create_shared(store, name, max_catalogs);
        }
        let names = self.data.catalogs()?;
        if names.iter().any(|existing| existing == name) {
            return Ok((self.open(name)?, Created::Before));
        }
        if names.len() >= max_catalogs {
            return Err(too_many(max_catalogs));
        }
        let catalog = self.data.open_or_create(name, self.options(None))?;
        Ok((self.serve_local(name, catalog, None)?, Created::Now))
    }

    fn delete(&self, name: &str) -> Result<(), NotOpened> {
        match &self.store {
            Some(store) => self.delete_shared(store, name),
            None => Ok(self.data.delete(name)?),
        }
    }

    fn names(&self) -> toolscout_index::Result<Vec<String>> {
        match &self.store {
            Some(store) => self.shared_names(store),
            None => self.data.catalogs(),
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
        self.serve(name, catalog, named, store, None)
    }

    /// `named` are the embedders that its settings name and that it was opened with.
    fn serve(
        &self,
        name: &str,
        catalog: Catalog,
        named: Option<String>,
        store: Box<dyn CatalogStore>,
        shared: Option<Shared>,
    ) -> toolscout_index::Result<OpenCatalog> {
        let folder = catalog.path().to_owned();
        let searcher = catalog.searcher();
        searcher.warm_up();
        // Searches need not wait for it.
        tokio::task::spawn_blocking(move || searcher.prepare_ranking());
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
        let watch = self.follow_embedder(name, named);
        let queue = self.write_queue;
        let writer = CatalogWriter::start_over(store, name, catalog.clone(), queue, depth, watch)
            .map_err(|source| Error::io("start threads to write", &folder, source))?;
        if let Some(shared) = &shared {
            shared.catalog.set_waker(writer.waker());
        }
        Ok(OpenCatalog {
            name: name.to_owned(),
            writer,
            catalog,
            folder,
            shared,
            last_used: AtomicU64::default(),
        })
    }

    fn options(&self, named: Option<&str>) -> Options {
        self.sharing()(self.embedders.get(named))
    }

    /// What a catalog's embedders become: those of the store, and each with a cache.
    fn sharing(&self) -> impl Fn(Options) -> Options + Send + use<> {
        let (store, metrics) = (self.store.clone(), Arc::clone(&self.metrics));
        let cached_queries = self.cached_queries;
        move |mut options| {
            if let Some(store) = &store {
                share(&mut options, store);
            }
            cached(options, cached_queries, &metrics)
        }
    }

    /// Gives a catalog other embedders when its settings name others.
    fn follow_embedder(&self, name: &str, mut named: Option<String>) -> Watch {
        let (embedders, sharing) = (Arc::clone(&self.embedders), self.sharing());
        let name = name.to_owned();
        Box::new(move |catalog| {
            let searcher = catalog.searcher();
            let now = &searcher.settings().embedder;
            if *now == named {
                return;
            }
            named.clone_from(now);
            let options = sharing(embedders.get(now.as_deref()));
            match catalog.set_options(options) {
                Ok(()) => tracing::info!(catalog = name, embedder = named, "other embedders"),
                Err(error) => {
                    tracing::warn!(catalog = name, %error, "the embedders stay as they are");
                }
            }
        })
    }
}

/// Slow embedders with the vectors of the store.
fn share(options: &mut Options, store: &Arc<SharedStore>) {
    for embedder in &mut options.embedders {
        if !embedder.is_instant() {
            let slow = Arc::clone(embedder);
            *embedder = Arc::new(SharedEmbedder::new(slow, Arc::clone(store)));
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

/// The embedders with a query cache for one catalog alone: with a shared one, a tenant could measure
/// what another has asked.
fn cached(mut options: Options, queries: usize, metrics: &Metrics) -> Options {
    for embedder in &mut options.embedders {
        if !embedder.is_instant() {
            let slow = Arc::clone(embedder);
            *embedder = Arc::new(CachedEmbedder::new(slow, queries, metrics.cache.clone()));
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
