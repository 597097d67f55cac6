//! A catalog whose tools are elsewhere: they are looked for in the store, or in a search engine that somebody else
//! runs.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use toolscout_index::{Filter, Query, Searcher, Tool, ToolId};

use super::catalog::{Home, OpenCatalog};
use crate::request::error::{
    ApiResult, elsewhere_refused, elsewhere_unavailable, pushed_down_unavailable,
};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::enrich;
use toolscout_finder::finder::search::UsedTool;
use toolscout_finder::finder::snapshot::SnapshotSource;
use toolscout_state::shared::{ListedTools, PageOf, PushedStats, PushedTools, StoreError, TextsOf};

/// The tools of a catalog, where they are elsewhere.
pub(super) struct Pushed<'a> {
    tools: &'a dyn PushedTools,
    runtime: &'a Handle,
    /// True for an external engine.
    is_external: bool,
}

impl OpenCatalog {
    /// Its tools, if they are elsewhere.
    pub(super) fn pushed(&self) -> Option<Pushed<'_>> {
        match &self.home {
            Home::Local => None,
            Home::Store(shared) => shared.catalog.is_pushed_down().then(|| Pushed {
                tools: &*shared.catalog,
                runtime: shared.store.runtime(),
                is_external: false,
            }),
            Home::External(external) => Some(Pushed {
                tools: &*external.tools,
                runtime: &external.runtime,
                is_external: true,
            }),
        }
    }

    /// Number of tools.
    pub fn tool_count(&self) -> usize {
        match self.pushed() {
            Some(pushed) => pushed.tools.total(),
            None => self.searcher().tool_count(),
        }
    }

    /// What answers a query: the newest snapshot, or one with the tools that may be hits.
    ///
    /// # Errors
    /// 422 for an invalid query; 503 where the tools are in the store and that is away.
    pub async fn searcher_for(&self, query: &Query) -> ApiResult<Arc<Searcher>> {
        match self.pushed() {
            Some(pushed) => pushed.searcher_for(&self.searcher(), query).await,
            None => Ok(self.searcher()),
        }
    }

    /// The same on a thread that may block.
    ///
    /// # Errors
    /// As [`OpenCatalog::searcher_for`].
    pub fn wait_for_searcher(&self, query: &Query) -> ApiResult<Arc<Searcher>> {
        let base = self.searcher();
        match self.pushed() {
            Some(pushed) => ServedSnapshots::wait(&pushed, pushed.searcher_for(&base, query)),
            None => Ok(base),
        }
    }

    /// The tool with this id.
    ///
    /// # Errors
    /// 503 where the tools are in the store and that is away.
    pub async fn tool(&self, id: &ToolId) -> ApiResult<Option<Arc<Tool>>> {
        match self.pushed() {
            Some(pushed) => {
                let tool = pushed.tool(id).await?;
                Ok(tool.map(|tool| self.with_owner_texts(tool)))
            }
            None => Ok(self.searcher().tool(id)),
        }
    }

    /// Tools with what was written about them, to be read: the newest snapshot, which has all, or one with these
    /// alone.
    ///
    /// # Errors
    /// 503 where the tools are in the store and that is away.
    pub async fn with_texts(&self, of: TextsOf) -> ApiResult<Arc<Searcher>> {
        match self.pushed() {
            Some(pushed) => {
                let base = self.searcher();
                let read = pushed.tools.tools_with_texts(&base, &of).await;
                Ok(Arc::new(pushed.answered(read)?))
            }
            None => Ok(self.searcher()),
        }
    }

    /// How many tools have texts for their present definitions.
    ///
    /// # Errors
    /// 503 where the tools are in the store and that is away.
    pub async fn count_texts(&self, pool: &CpuPool) -> ApiResult<usize> {
        match self.pushed() {
            Some(pushed) => pushed.answered(pushed.tools.count_texts().await),
            None => {
                let searcher = self.searcher();
                let count = move || enrich::ids_with_texts(&searcher, &[]).count();
                Ok(pool.run(count).await?)
            }
        }
    }

    /// A tool of the store, with what the owner says of it.
    fn with_owner_texts(&self, tool: Tool) -> Arc<Tool> {
        Arc::new(self.searcher().with_owner_texts(tool))
    }
}

impl Pushed<'_> {
    async fn searcher_for(&self, base: &Arc<Searcher>, query: &Query) -> ApiResult<Arc<Searcher>> {
        self.answered(self.tools.searcher_for(base, query).await)
    }

    async fn tool(&self, id: &ToolId) -> ApiResult<Option<Tool>> {
        self.answered(self.tools.tool(id).await)
    }

    /// A page of them.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn page(&self, page: &PageOf) -> ApiResult<ListedTools> {
        self.answered(self.tools.page(page).await)
    }

    /// The ids of those that pass a filter.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn ids_passing(&self, filter: &Filter) -> ApiResult<Vec<ToolId>> {
        self.answered(self.tools.ids_passing(filter).await)
    }

    /// Their most frequent tags, with the number of tools, and how many different ones there are.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn tags(&self, limit: usize) -> ApiResult<(Vec<(String, usize)>, usize)> {
        self.answered(self.tools.tags(limit).await)
    }

    /// Sizes.
    ///
    /// # Errors
    /// 503 without the store.
    pub async fn stats(&self) -> ApiResult<PushedStats> {
        self.answered(self.tools.stats().await)
    }

    fn answered<T>(&self, answer: Result<T, StoreError>) -> ApiResult<T> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        Err(match error {
            StoreError::Deleted | StoreError::Catalog(_) => error.into(),
            // A refused key or a missing index is no outage, and trying again is no help.
            StoreError::Refused(reason) if self.is_external => elsewhere_refused(reason),
            StoreError::Unreachable(reason) | StoreError::ReadOnly(reason) if self.is_external => {
                elsewhere_unavailable(reason)
            }
            // Whether the store is away or needs a person is in the log. A client can only try again.
            error => pushed_down_unavailable(error),
        })
    }

    /// Where they are, in a message.
    pub fn place(&self) -> &'static str {
        match self.is_external {
            true => "a search engine",
            false => "the store",
        }
    }
}

/// Snapshots of a served catalog for those who cannot wait asynchronously: the agent, the gateway.
/// Cheap to clone.
#[derive(Clone)]
pub struct ServedSnapshots {
    catalog: Arc<RwLock<Arc<OpenCatalog>>>,
    pool: CpuPool,
}

impl ServedSnapshots {
    /// The snapshots of this catalog, searched on the threads of this pool.
    pub fn of(catalog: Arc<OpenCatalog>, pool: CpuPool) -> Self {
        ServedSnapshots {
            catalog: Arc::new(RwLock::new(catalog)),
            pool,
        }
    }

    /// Takes the catalog as the last request found it: it may have been deleted and made anew.
    pub fn renew(&self, catalog: Arc<OpenCatalog>) {
        *self.catalog.write() = catalog;
    }

    /// The catalog itself.
    pub fn catalog(&self) -> Arc<OpenCatalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Waits for the store, on a thread that may block or on one of the server's runtime.
    fn wait<T>(pushed: &Pushed<'_>, work: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
        block_in_place(|| pushed.runtime.block_on(work))
    }
}

impl SnapshotSource for ServedSnapshots {
    fn snapshot(&self) -> Arc<Searcher> {
        self.catalog().searcher()
    }

    fn snapshot_for(&self, query: &Query) -> Result<Arc<Searcher>, String> {
        let found = self.catalog().wait_for_searcher(query);
        found.map_err(|error| error.message)
    }

    fn find_tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let catalog = self.catalog();
        let Some(pushed) = catalog.pushed() else {
            return catalog.searcher().tool(id);
        };
        // If the store is away, the tool counts as unknown.
        let tool = Self::wait(&pushed, pushed.tool(id)).ok().flatten()?;
        Some(catalog.with_owner_texts(tool))
    }

    fn tool_count(&self) -> usize {
        self.catalog().tool_count()
    }

    /// None if the catalog is pushed down: its searches wait for the store, and would keep threads
    /// from those that compute.
    fn cpu_pool(&self) -> Option<CpuPool> {
        self.catalog().pushed().is_none().then(|| self.pool.clone())
    }

    fn has_tools(&self) -> bool {
        self.catalog().pushed().is_none()
    }

    fn has_memory(&self) -> bool {
        self.catalog().memory().is_active()
    }

    fn remember(&self, used_tool: &UsedTool) -> Result<(), String> {
        let catalog = self.catalog();
        // Checked first, so that a call does not wait until the store's time limit.
        if let Some(problem) = catalog.store_problem() {
            return Err(problem);
        }
        let UsedTool { query, tool, .. } = used_tool;
        let at_ms = unix_ms(SystemTime::now());
        let remembered = catalog.remember(query, tool, at_ms, &used_tool.source());
        remembered.map(drop).map_err(|error| error.message)
    }
}
