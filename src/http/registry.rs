//! The catalogs that are served: opened when first requested, each with its writer and settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::StatusCode;
use toolscout_index::{Catalog, DataDir, Error, Memory, Options, Searcher};

use super::Limits;
use super::embedders::EmbeddersOf;
use super::error::{ApiError, ApiResult, unknown_catalog};
use super::settings;
use super::threads::blocking;
use crate::catalog_writer::{CatalogWriter, Watch};
use crate::embed_cache::CachedEmbedder;
use crate::telemetry::Metrics;

/// A catalog that is served.
pub struct OpenCatalog {
    /// The name under `/v1/catalogs/`.
    pub name: String,
    /// Applies changes.
    pub writer: CatalogWriter,
    catalog: Catalog,
    folder: PathBuf,
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

    /// Sizes on disk and in memory. Reads the disk.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn stats(&self) -> toolscout_index::Result<toolscout_index::Stats> {
        self.catalog.stats()
    }
}

/// The catalogs of the data directory. A bounded number is open. Opening one more closes the least
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
    ) -> Self {
        let opener = Opener {
            data,
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
        self.opener.data.path()
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
        self.make_room().await?;
        let opener = Arc::clone(&self.opener);
        let wanted = name.to_owned();
        match blocking(move || opener.open(&wanted)).await? {
            Ok(open) => Ok(self.add(open)),
            // To a client, an invalid name is a catalog that does not exist.
            Err(Error::InvalidCatalogName { .. }) => Err(unknown_catalog(name)),
            Err(error) => {
                self.note_failure(name, &error);
                Err(error.into())
            }
        }
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
        self.make_room().await?;
        let (opener, wanted, bound) =
            (Arc::clone(&self.opener), name.to_owned(), self.max_catalogs);
        match blocking(move || opener.create(&wanted, bound)).await? {
            Ok((open, created)) => Ok((self.add(open), created)),
            Err(NotOpened::Engine(error)) => {
                self.note_failure(name, &error);
                Err(error.into())
            }
            Err(NotOpened::TooMany(error)) => Err(error),
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
            opener.data.delete(&wanted)
        });
        match deleted.await? {
            Err(Error::InvalidCatalogName { .. }) => Err(unknown_catalog(name)),
            outcome => Ok(outcome?),
        }
    }

    /// The names of all catalogs, sorted.
    ///
    /// # Errors
    /// 500 when the data directory cannot be read.
    pub async fn names(&self) -> ApiResult<Vec<String>> {
        let opener = Arc::clone(&self.opener);
        Ok(blocking(move || opener.data.catalogs()).await??)
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

    /// Finishes the changes in every write queue and ends the writer threads.
    ///
    /// # Errors
    /// 500 when a writer thread panicked.
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
        open.filter(|open| open.catalog.exists())
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
    TooMany(ApiError),
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        NotOpened::Engine(error)
    }
}

/// Opens catalogs. Its methods block.
struct Opener {
    data: DataDir,
    embedders: Arc<EmbeddersOf>,
    metrics: Arc<Metrics>,
    write_queue: usize,
    cached_queries: usize,
}

impl Opener {
    fn open(&self, name: &str) -> toolscout_index::Result<OpenCatalog> {
        let named = self.data.settings(name)?.embedder;
        let catalog = self.data.open(name, self.options(named.as_deref()))?;
        self.serve(name, catalog, named)
    }

    fn create(&self, name: &str, max_catalogs: usize) -> Result<(OpenCatalog, Created), NotOpened> {
        let names = self.data.catalogs()?;
        if names.iter().any(|existing| existing == name) {
            return Ok((self.open(name)?, Created::Before));
        }
        if names.len() >= max_catalogs {
            let message = format!(
                "there are {max_catalogs} catalogs, the most that this server may have; delete one first"
            );
            let error =
                ApiError::invalid(StatusCode::TOO_MANY_REQUESTS, "too_many_catalogs", message);
            return Err(NotOpened::TooMany(error));
        }
        let catalog = self.data.open_or_create(name, self.options(None))?;
        Ok((self.serve(name, catalog, None)?, Created::Now))
    }

    /// `named` are the embedders that its settings name and that it was opened with.
    fn serve(
        &self,
        name: &str,
        catalog: Catalog,
        named: Option<String>,
    ) -> toolscout_index::Result<OpenCatalog> {
        let folder = catalog.path().to_owned();
        settings::adopt_former_file(&catalog)?;
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
        let writer =
            CatalogWriter::start_watching(name, catalog.clone(), self.write_queue, depth, watch)
                .map_err(|source| Error::io("start a writer thread for", &folder, source))?;
        Ok(OpenCatalog {
            name: name.to_owned(),
            writer,
            catalog,
            folder,
            last_used: AtomicU64::default(),
        })
    }

    fn options(&self, named: Option<&str>) -> Options {
        cached(
            self.embedders.get(named),
            self.cached_queries,
            &self.metrics,
        )
    }

    /// Gives a catalog other embedders when its settings name others.
    fn follow_embedder(&self, name: &str, mut named: Option<String>) -> Watch {
        let (embedders, metrics) = (Arc::clone(&self.embedders), Arc::clone(&self.metrics));
        let (name, cached_queries) = (name.to_owned(), self.cached_queries);
        Box::new(move |catalog| {
            let searcher = catalog.searcher();
            let now = &searcher.settings().embedder;
            if *now == named {
                return;
            }
            named.clone_from(now);
            let options = cached(embedders.get(now.as_deref()), cached_queries, &metrics);
            match catalog.set_options(options) {
                Ok(()) => tracing::info!(catalog = name, embedder = named, "other embedders"),
                Err(error) => {
                    tracing::warn!(catalog = name, %error, "the embedders stay as they are");
                }
            }
        })
    }
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
