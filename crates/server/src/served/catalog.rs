//! A catalog that is open, with its writer and its settings.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use toolscout_index::memory::{Deletion, Source, Switch};
use toolscout_index::{Catalog, Memory, Searcher, ToolId};

use super::counted_bytes::CountedBytes;
use super::held::HeldTexts;
use crate::request::error::{ApiResult, generation_not_reached};
use crate::request::threads::blocking;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_state::approved::ApprovedPlace;
use toolscout_state::catalog_writer::CatalogWriter;
use toolscout_state::shared::{PushedTools, SharedCatalog, SharedStore};

/// How long a search waits for the generation that it asks for.
const REACH_PATIENCE: Duration = Duration::from_secs(5);

/// A catalog that is served.
pub struct OpenCatalog {
    /// The name under `/v1/catalogs/`.
    pub name: String,
    /// Applies changes.
    pub writer: CatalogWriter,
    /// Texts of its tools that nobody has read.
    pub held: HeldTexts,
    pub(super) catalog: Catalog,
    pub(super) folder: PathBuf,
    pub(super) home: Home,
    pub(super) bytes: Arc<CountedBytes>,
    /// Its place among the open catalogs.
    pub(super) slot: OnceLock<OwnedSemaphorePermit>,
    /// When it was last requested, and its number, by the clock and the count of [`super::open::OpenCatalogs`].
    pub(super) last_used: AtomicU64,
    pub(super) instance: AtomicU64,
}

impl OpenCatalog {
    /// The newest snapshot. Of a catalog whose tools are elsewhere it has none:
    /// [`OpenCatalog::searcher_for`] has those of one query.
    pub fn searcher(&self) -> Arc<Searcher> {
        self.catalog.searcher()
    }

    /// The catalog's folder in the data directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its usage memory. It is changed by the methods of the catalog.
    pub fn memory(&self) -> &Memory {
        self.catalog.memory()
    }

    /// Where the approved definitions of its tools are.
    pub fn approved(&self) -> ApprovedPlace {
        match &self.home {
            Home::Store(shared) => shared.catalog.approved(),
            Home::Local | Home::External(_) => self.folder().into(),
        }
    }

    /// As [`Memory::remember`], on all nodes. Blocks.
    ///
    /// # Errors
    /// Those of [`Memory::remember`]; 503 without the store.
    pub fn remember(
        &self,
        query: &str,
        tool: &ToolId,
        at_ms: i64,
        source: &Source,
    ) -> ApiResult<bool> {
        match &self.home {
            Home::Store(shared) => Ok(shared.catalog.remember((query, tool), at_ms, source)?),
            Home::Local | Home::External(_) => {
                Ok(self.memory().remember(query, tool, at_ms, source)?)
            }
        }
    }

    /// As [`Memory::set_switch`], on all nodes. Blocks.
    ///
    /// # Errors
    /// Those of [`Memory::set_switch`]; 503 without the store.
    pub fn switch_memory(&self, switch: Switch) -> ApiResult<()> {
        match &self.home {
            Home::Store(shared) => Ok(shared.catalog.switch_memory(switch)?),
            Home::Local | Home::External(_) => Ok(self.memory().set_switch(switch)?),
        }
    }

    /// As [`Memory::forget`], on all nodes. Blocks.
    ///
    /// # Errors
    /// Those of [`Memory::forget`]; 503 without the store.
    pub fn forget_memory(&self, what: &Deletion) -> ApiResult<usize> {
        match &self.home {
            Home::Store(shared) => Ok(shared.catalog.forget_memory(what)?),
            Home::Local | Home::External(_) => Ok(self.memory().forget(what)?),
        }
    }

    /// Changes its usage memory: on a thread for CPU work, since requests are embedded, or on one that may wait
    /// for the store.
    ///
    /// # Errors
    /// Those of the change; 503 while too much CPU work waits.
    pub async fn change_memory<T: Send + 'static>(
        self: Arc<Self>,
        cpu_pool: &CpuPool,
        change: impl FnOnce(&OpenCatalog) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let waits_for_store = matches!(self.home, Home::Store(_));
        let change = move || change(&self);
        match waits_for_store {
            true => blocking(change).await?,
            false => cpu_pool.run(change).await?,
        }
    }

    /// Returns once searches see this generation.
    ///
    /// # Errors
    /// 503 when they do not soon: with a store after some seconds, else at once.
    pub async fn reach(&self, generation: u64) -> ApiResult<()> {
        if self.searcher().generation() >= generation {
            return Ok(());
        }
        match &self.home {
            Home::Store(shared) => {
                shared.store.hurry();
                // Whether it was reached is checked below.
                let _ = timeout(REACH_PATIENCE, self.writer.reaches(generation)).await;
            }
            Home::Local | Home::External(_) => {
                let catalog = self.catalog.clone();
                blocking(move || catalog.refresh()).await??;
            }
        }
        match self.searcher().generation() {
            reached if reached >= generation => Ok(()),
            reached => Err(generation_not_reached(generation, reached)),
        }
    }

    /// Returns once searches see what the store has now; without a store, or where it cannot tell, at
    /// once.
    ///
    /// # Errors
    /// As [`OpenCatalog::reach`].
    pub async fn catch_up(&self) -> ApiResult<()> {
        let Home::Store(shared) = &self.home else {
            return Ok(());
        };
        let (store, name) = (Arc::clone(&shared.store), self.name.clone());
        match blocking(move || store.block_on(store.summary(&name))).await? {
            Ok(Some(stored)) => self.reach(stored.generation).await,
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Why searches may lack what others have written, if the store or the engine with the tools is away.
    pub fn store_problem(&self) -> Option<String> {
        match &self.home {
            Home::Local => None,
            Home::Store(shared) => shared.store.problem(),
            Home::External(external) => external.tools.problem(),
        }
    }

    /// Finishes the changes in its write queue, and takes no more. Blocks.
    pub(super) fn close(&self) {
        self.writer.close();
        self.bytes.set(0);
    }

    /// False once another process or another node has deleted it.
    pub(super) fn exists(&self) -> bool {
        if let Home::Store(shared) = &self.home
            && shared.catalog.is_deleted()
        {
            return false;
        }
        self.catalog.exists()
    }
}

/// Where the truth about a catalog is, its tools above all.
pub(super) enum Home {
    /// In its folder.
    Local,
    /// In the store that several nodes share. The folder has a copy, which lacks the tools of a catalog that is
    /// pushed down.
    Store(Shared),
    /// In its folder, but for the tools: an external engine has them.
    External(ToolsElsewhere),
}

/// A catalog of the store, and the store.
pub(super) struct Shared {
    pub(super) store: Arc<dyn SharedStore>,
    pub(super) catalog: Arc<dyn SharedCatalog>,
}

/// The tools of a catalog that an external engine has.
pub(super) struct ToolsElsewhere {
    pub(super) tools: Arc<dyn PushedTools>,
    pub(super) runtime: Handle,
}
