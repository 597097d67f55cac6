//! The catalogs being served: opened when first asked for, each with its write line and settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::StatusCode;
use toolscout_index::{Catalog, DataDir, Embedder, Error, Memory, Options, Searcher};

use super::Limits;
use super::error::{ApiError, ApiResult, unknown_catalog};
use super::settings::CatalogSettings;
use super::write_queue::WriteQueue;
use crate::embed_cache::CachedEmbedder;
use crate::telemetry::Metrics;

/// A catalog being served.
pub struct OpenCatalog {
    /// Its name.
    pub name: String,
    /// The way to change it.
    pub writes: WriteQueue,
    catalog: Catalog,
    settings: RwLock<CatalogSettings>,
    folder: PathBuf,
    /// When it was asked for last, by the registry's count.
    used: AtomicU64,
}

impl OpenCatalog {
    /// The newest snapshot.
    pub fn searcher(&self) -> Arc<Searcher> {
        self.catalog.searcher()
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was asked of it and which tools were called then.
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

    /// What its searches default to.
    pub fn settings(&self) -> CatalogSettings {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps new settings, on disk first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn set_settings(&self, settings: CatalogSettings) -> toolscout_index::Result<()> {
        settings.save(&self.folder)?;
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }
}

/// Every catalog of the data directory. A bounded number is open; for one more, that which was used
/// longest ago is closed if nobody holds it, as the agent and the gateway do with the default one.
pub struct Registry {
    opener: Arc<Opener>,
    open: RwLock<BTreeMap<String, Arc<OpenCatalog>>>,
    /// Those that could not be opened, with the reason.
    damaged: RwLock<BTreeMap<String, String>>,
    /// Held while the set of catalogs changes.
    changing: tokio::sync::Mutex<()>,
    max_catalogs: usize,
    max_open: usize,
    /// Counts requests for catalogs.
    clock: AtomicU64,
}

impl Registry {
    /// The catalogs of `data`, none of them open yet.
    pub fn new(
        data: DataDir,
        embedders: &[Arc<dyn Embedder>],
        limits: &Limits,
        metrics: Arc<Metrics>,
    ) -> Self {
        let opener = Opener {
            data,
            embedders: embedders.to_vec(),
            metrics,
            write_places: limits.write_line,
            cached: limits.cached_queries,
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

    /// The catalog of this name, opened if need be.
    ///
    /// # Errors
    /// 404 when there is none, 500 when it cannot be opened, 503 when all that may be open are in
    /// use.
    pub async fn get(&self, name: &str) -> ApiResult<Arc<OpenCatalog>> {
        if let Some(open) = self.find(name) {
            return Ok(open);
        }
        let _changing = self.changing.lock().await;
        if let Some(open) = self.find(name) {
            return Ok(open);
        }
        self.make_room().await?;
        let opener = Arc::clone(&self.opener);
        let wanted = name.to_owned();
        match blocking(move || opener.open(&wanted)).await? {
            Ok(open) => Ok(self.keep(open)),
            // A name that cannot be a catalog's is not one either.
            Err(Error::InvalidCatalogName { .. }) => Err(unknown_catalog(name)),
            Err(error) => {
                self.note_failure(name, &error);
                Err(error.into())
            }
        }
    }

    /// The catalog of this name, made if need be, and whether it was.
    ///
    /// # Errors
    /// 422 for a name that cannot be one, 429 when there are as many catalogs as the server keeps.
    pub async fn create(&self, name: &str) -> ApiResult<(Arc<OpenCatalog>, Created)> {
        let _changing = self.changing.lock().await;
        if let Some(open) = self.find(name) {
            return Ok((open, Created::Before));
        }
        self.make_room().await?;
        let (opener, wanted, bound) =
            (Arc::clone(&self.opener), name.to_owned(), self.max_catalogs);
        match blocking(move || opener.create(&wanted, bound)).await? {
            Ok((open, created)) => Ok((self.keep(open), created)),
            Err(NotOpened::Engine(error)) => {
                self.note_failure(name, &error);
                Err(error.into())
            }
            Err(NotOpened::TooMany(error)) => Err(error),
        }
    }

    /// Deletes a catalog and all it holds, after the changes that are in its line.
    ///
    /// # Errors
    /// 404 when there is none, 503 while another process writes to it.
    pub async fn delete(&self, name: &str) -> ApiResult<()> {
        let _changing = self.changing.lock().await;
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
                open.writes.close();
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

    /// Opens as many catalogs as may be open, so that no first search waits. One that cannot be
    /// opened is logged and answers with its error; the others serve.
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

    /// The catalogs that are open.
    pub fn all_open(&self) -> Vec<Arc<OpenCatalog>> {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Finishes the changes in every line and ends the writer threads.
    ///
    /// # Errors
    /// 500 when a thread cannot be waited for.
    pub async fn close(&self) -> ApiResult<()> {
        let open = self.all_open();
        blocking(move || open.iter().for_each(|catalog| catalog.writes.close())).await
    }

    /// Closes catalogs until there is room for one more, after the changes in their lines. Only
    /// while `changing` is held, so that none is opened again before it is closed.
    async fn make_room(&self) -> ApiResult<()> {
        while self
            .open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
            >= self.max_open
        {
            let Some(idlest) = self.take_idlest() else {
                let message = format!(
                    "{} catalogs are in use, the most this server opens; try again soon",
                    self.max_open
                );
                return Err(ApiError::busy(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "catalogs_in_use",
                    message,
                ));
            };
            blocking(move || idlest.writes.close()).await?;
        }
        Ok(())
    }

    /// Takes out the catalog that was used longest ago, of those that nobody holds; one that is
    /// still being embedded only if there is no other.
    fn take_idlest(&self) -> Option<Arc<OpenCatalog>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let unused = open
            .values()
            .filter(|catalog| Arc::strong_count(catalog) == 1);
        let idlest = unused.min_by_key(|catalog| {
            let is_pending = catalog.searcher().pending_embeddings() > 0;
            (is_pending, catalog.used.load(Ordering::Relaxed))
        });
        let name = idlest?.name.clone();
        open.remove(&name)
    }

    /// The catalogs that could not be opened when they were last asked for, with the reason.
    pub fn damaged(&self) -> BTreeMap<String, String> {
        self.damaged
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note_failure(&self, name: &str, error: &Error) {
        match error {
            // Deleted by another process while it was open.
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

    /// An open catalog that is still there: another process may have deleted it.
    fn find(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        let open = self
            .open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        open.filter(|open| open.catalog.is_there())
            .inspect(|catalog| self.note_use(catalog))
    }

    fn note_use(&self, catalog: &OpenCatalog) {
        catalog.used.store(
            self.clock.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    fn keep(&self, open: OpenCatalog) -> Arc<OpenCatalog> {
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

/// Whether a catalog was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// Made by this request.
    Now,
    /// It was there.
    Before,
}

/// Why a catalog was not made.
enum NotOpened {
    Engine(Error),
    TooMany(ApiError),
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        NotOpened::Engine(error)
    }
}

/// What opening a catalog takes. Its methods block.
struct Opener {
    data: DataDir,
    embedders: Vec<Arc<dyn Embedder>>,
    metrics: Arc<Metrics>,
    write_places: usize,
    cached: usize,
}

impl Opener {
    fn open(&self, name: &str) -> toolscout_index::Result<OpenCatalog> {
        let catalog = self.data.open(name, self.options())?;
        self.serve(name, catalog)
    }

    fn create(&self, name: &str, max_catalogs: usize) -> Result<(OpenCatalog, Created), NotOpened> {
        let names = self.data.catalogs()?;
        if names.iter().any(|there| there == name) {
            return Ok((self.open(name)?, Created::Before));
        }
        if names.len() >= max_catalogs {
            let message = format!(
                "there are {max_catalogs} catalogs, the most this server keeps; delete one first"
            );
            let error =
                ApiError::invalid(StatusCode::TOO_MANY_REQUESTS, "too_many_catalogs", message);
            return Err(NotOpened::TooMany(error));
        }
        let catalog = self.data.open_or_create(name, self.options())?;
        Ok((self.serve(name, catalog)?, Created::Now))
    }

    fn serve(&self, name: &str, catalog: Catalog) -> toolscout_index::Result<OpenCatalog> {
        let folder = catalog.path().to_owned();
        let settings = RwLock::new(CatalogSettings::load(&folder)?);
        let vectors = catalog.searcher().damaged_vectors();
        if vectors > 0 {
            tracing::warn!(
                catalog = name,
                vectors,
                "stored vectors are damaged and are computed anew"
            );
        }
        if let Some(problem) = catalog.memory().problem() {
            tracing::warn!(catalog = name, problem, "the usage memory is damaged");
        }
        let depth = self.metrics.write_queue.clone();
        let writes = WriteQueue::start(name, catalog.clone(), self.write_places, depth)
            .map_err(|source| Error::io("start a writer thread for", &folder, source))?;
        Ok(OpenCatalog {
            name: name.to_owned(),
            writes,
            catalog,
            settings,
            folder,
            used: AtomicU64::default(),
        })
    }

    /// A cache for each catalog: what one tenant asks must not make another one's answer faster.
    fn options(&self) -> Options {
        let cached = |embedder: &Arc<dyn Embedder>| -> Arc<dyn Embedder> {
            if embedder.is_instant() {
                return Arc::clone(embedder);
            }
            Arc::new(CachedEmbedder::new(
                Arc::clone(embedder),
                self.cached,
                self.metrics.cache.clone(),
            ))
        };
        Options {
            embedders: self.embedders.iter().map(cached).collect(),
        }
    }
}

/// What is wrong with a catalog, for clients: where it lies is for the log only.
fn without_folder(error: &Error) -> String {
    match error {
        Error::Store { path, problem } => {
            let folder = path.parent().unwrap_or(path).display().to_string();
            problem.to_string().replace(&format!("{folder}/"), "")
        }
        _ => "it cannot be opened; the server's log says why".to_owned(),
    }
}

/// Runs what blocks on the disk off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(ApiError::internal)
}
