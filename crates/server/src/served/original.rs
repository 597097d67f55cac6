//! A served catalog, as its shadow sees it.

use std::path::Path;
use std::sync::{Arc, Weak};

use toolscout_index::{Memory, Options, Searcher};

use super::{OpenCatalog, ServedCatalogs};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::shadow::{Original, Surroundings};

impl Original for OpenCatalog {
    fn snapshot(&self) -> Arc<Searcher> {
        self.searcher()
    }

    fn folder(&self) -> &Path {
        OpenCatalog::folder(self)
    }

    fn options(&self) -> Options {
        self.catalog.options()
    }

    fn memory(&self) -> &Memory {
        OpenCatalog::memory(self)
    }

    fn is_pushed_down(&self) -> bool {
        !self.has_all_tools()
    }
}

/// The catalog that a shadow is of, among those that are served. A shadow opens it not, and keeps it not
/// open: while it is closed, nobody searches it.
pub struct ShadowedCatalog {
    catalogs: Weak<ServedCatalogs>,
    name: String,
    cpu_pool: CpuPool,
}

impl ShadowedCatalog {
    /// The catalog of this name; searches run on the threads of this pool.
    pub fn new(catalogs: &Arc<ServedCatalogs>, name: &str, cpu_pool: &CpuPool) -> Self {
        ShadowedCatalog {
            catalogs: Arc::downgrade(catalogs),
            name: name.to_owned(),
            cpu_pool: cpu_pool.clone(),
        }
    }
}

impl Surroundings for ShadowedCatalog {
    fn original(&self) -> Option<Arc<dyn Original>> {
        let open = self.catalogs.upgrade()?.opened(&self.name)?;
        Some(open)
    }

    fn is_idle(&self) -> bool {
        self.cpu_pool.has_free_thread()
    }
}
