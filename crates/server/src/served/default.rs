//! The search of the default catalog, which is built before the catalog is open.

use std::sync::{Arc, OnceLock};

use toolscout_index::{Searcher, Tool, ToolId, Version};

use super::{OpenCatalog, ServedSnapshots};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::finder::ToolSearch;
use toolscout_finder::finder::search::{Found, SearchRequest, UsedTool};
use toolscout_finder::finder::snapshot::SnapshotSource as _;

/// Searches the default catalog. The agents and the gateway have it from the start, since a server
/// listens before its catalogs are open. Until then it has no tools. Cheap to clone.
#[derive(Clone)]
pub struct DefaultSearch {
    opened: Arc<OnceLock<ServedSnapshots>>,
    pool: CpuPool,
}

impl DefaultSearch {
    /// Searches on the threads of this pool.
    pub fn new(pool: CpuPool) -> Self {
        DefaultSearch {
            opened: Arc::default(),
            pool,
        }
    }

    /// Searches this catalog from now on. The first one counts.
    pub(crate) fn open(&self, catalog: Arc<OpenCatalog>) {
        let open = || ServedSnapshots::of(catalog, self.pool.clone());
        self.opened.get_or_init(open);
    }

    /// False until the catalog is open, and for good if it is damaged.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    fn get<T>(&self, of: impl FnOnce(&ServedSnapshots) -> T) -> Option<T> {
        self.opened.get().map(of)
    }
}

/// A search over snapshots of a served catalog.
pub trait ServedSearch: ToolSearch {
    /// The newest snapshot; `None` until the catalog is open.
    fn newest(&self) -> Option<Arc<Searcher>>;
}

impl ServedSearch for ServedSnapshots {
    fn newest(&self) -> Option<Arc<Searcher>> {
        Some(self.snapshot())
    }
}

impl ServedSearch for DefaultSearch {
    fn newest(&self) -> Option<Arc<Searcher>> {
        self.get(ServedSnapshots::snapshot)
    }
}

impl ToolSearch for DefaultSearch {
    fn search(&self, request: &SearchRequest) -> Found {
        match self.opened.get() {
            Some(search) => ToolSearch::search(search, request),
            None => Found::nothing("the catalog is being opened; try again in a moment"),
        }
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.opened.get()?.tool(id)
    }

    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.opened.get()?.item(id)
    }

    fn items(&self) -> Vec<Arc<Tool>> {
        self.get(ToolSearch::items).unwrap_or_default()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.get(ToolSearch::tools).unwrap_or_default()
    }

    fn ids(&self) -> Vec<ToolId> {
        self.get(ToolSearch::ids).unwrap_or_default()
    }

    fn named(&self, name: &str) -> Vec<Arc<Tool>> {
        self.get(|search| search.named(name)).unwrap_or_default()
    }

    fn lists_tools(&self) -> bool {
        self.get(ToolSearch::lists_tools).unwrap_or(true)
    }

    fn indexed(&self) -> Option<Arc<Searcher>> {
        self.get(ToolSearch::indexed).flatten()
    }

    fn cpu_pool(&self) -> Option<CpuPool> {
        self.get(ToolSearch::cpu_pool).flatten()
    }

    fn count(&self) -> usize {
        self.get(ToolSearch::count).unwrap_or_default()
    }

    fn version(&self) -> Version {
        self.get(ToolSearch::version).unwrap_or_default()
    }

    fn learns(&self) -> bool {
        self.get(ToolSearch::learns).unwrap_or_default()
    }

    fn used(&self, used_tool: &UsedTool) {
        self.get(|search| search.used(used_tool));
    }
}
