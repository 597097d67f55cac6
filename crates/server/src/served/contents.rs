//! What a catalog has, wherever its tools are: in a snapshot of this node, in the store, or in an external engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolscout_index::{Filter, Searcher, Tool, ToolId};

use super::catalog::OpenCatalog;
use crate::request::error::{ApiError, ApiResult};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_state::shared::PageOf;

/// A page ends early when its tools reach this size. It has at least one tool.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// A page of tools.
pub struct Page {
    /// The tools, sorted by id.
    pub tools: Vec<Arc<Tool>>,
    /// Whether there are more after them.
    pub has_more: bool,
    /// Number of items of the listed kinds in the catalog.
    pub total: usize,
    /// The generation of the catalog that the page shows.
    pub generation: u64,
}

/// Sizes of a catalog.
pub struct Sizes {
    /// Number of tools.
    pub tools: usize,
    /// Servers with the number of their tools.
    pub servers: Vec<(String, usize)>,
    /// Embedders with the number of their vectors.
    pub vectors: Vec<(String, usize)>,
    /// Tools that have no vectors yet.
    pub pending_embeddings: usize,
    /// The last commit.
    pub generation: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

impl OpenCatalog {
    /// Whether its snapshots have all of its tools. Otherwise tools and texts are read some at a time.
    pub fn has_all_tools(&self) -> bool {
        self.pushed().is_none()
    }

    /// The newest snapshot, for work that needs all tools here. `instead` says what to do where that is impossible.
    ///
    /// # Errors
    /// 422 if the snapshot does not have them.
    pub fn with_all_tools(&self, work: &str, instead: &str) -> ApiResult<Arc<Searcher>> {
        let Some(pushed) = self.pushed() else {
            return Ok(self.searcher());
        };
        let message = format!(
            "the tools of the catalog {:?} are looked for in {}, and {work} needs them here; {instead}",
            self.name,
            pushed.place()
        );
        Err(ApiError::unprocessable("pushed_down", message))
    }

    /// Tools that the dense legs cannot find yet; `None` if only [`OpenCatalog::sizes`] knows this.
    pub fn pending_embeddings(&self) -> Option<usize> {
        self.has_all_tools()
            .then(|| self.searcher().pending_embeddings())
    }

    /// A page of its tools.
    ///
    /// # Errors
    /// 503 where the tools are elsewhere and that is away, and while too much CPU work waits.
    pub async fn page(&self, cpu_pool: &CpuPool, page: PageOf) -> ApiResult<Page> {
        let Some(pushed) = self.pushed() else {
            let searcher = self.searcher();
            return Ok(cpu_pool.run(move || page_of(&searcher, &page)).await?);
        };
        let found = pushed.page(&page).await?;
        Ok(Page {
            tools: found.tools.into_iter().map(Arc::new).collect(),
            has_more: found.has_more,
            total: found.total,
            generation: found.generation,
        })
    }

    /// The ids of the tools that pass a filter.
    ///
    /// # Errors
    /// As [`OpenCatalog::page`].
    pub async fn ids_passing(&self, cpu_pool: &CpuPool, filter: Filter) -> ApiResult<Vec<ToolId>> {
        if let Some(pushed) = self.pushed() {
            return pushed.ids_passing(&filter).await;
        }
        let searcher = self.searcher();
        let passing = move || -> Vec<ToolId> { searcher.ids_passing(&filter).cloned().collect() };
        Ok(cpu_pool.run(passing).await?)
    }

    /// Its servers with the number of their tools.
    ///
    /// # Errors
    /// As [`OpenCatalog::page`].
    pub async fn servers(&self, cpu_pool: &CpuPool) -> ApiResult<BTreeMap<String, usize>> {
        if let Some(pushed) = self.pushed() {
            return Ok(pushed.stats().await?.servers.into_iter().collect());
        }
        let searcher = self.searcher();
        // Counting goes through all tools.
        let count = move || {
            let mut servers = BTreeMap::new();
            for id in searcher.ids_passing(&Filter::default()) {
                // Nearly all neighbours in the order of ids are of one server.
                match servers.get_mut(id.server()) {
                    Some(tools) => *tools += 1,
                    None => _ = servers.insert(id.server().to_owned(), 1),
                }
            }
            servers
        };
        Ok(cpu_pool.run(count).await?)
    }

    /// Its most frequent tags with the number of their tools, and how many different tags there are.
    ///
    /// # Errors
    /// As [`OpenCatalog::page`].
    pub async fn tags(
        &self,
        cpu_pool: &CpuPool,
        limit: usize,
    ) -> ApiResult<(Vec<(String, usize)>, usize)> {
        if let Some(pushed) = self.pushed() {
            return pushed.tags(limit).await;
        }
        let searcher = self.searcher();
        let tags = move || {
            let tags = searcher.tags();
            (tags.iter().take(limit).cloned().collect(), tags.len())
        };
        Ok(cpu_pool.run(tags).await?)
    }

    /// Its sizes, which are read from the disk.
    ///
    /// # Errors
    /// As [`OpenCatalog::page`], and 500 when the disk cannot be read.
    pub async fn sizes(self: Arc<Self>, cpu_pool: &CpuPool) -> ApiResult<Sizes> {
        let Some(pushed) = self.pushed() else {
            let stats = cpu_pool.run(move || self.catalog.stats()).await??;
            return Ok(Sizes {
                tools: stats.tools,
                servers: stats.servers,
                vectors: stats.vectors,
                pending_embeddings: stats.pending_embeddings,
                generation: stats.generation,
                disk_bytes: stats.disk_bytes,
            });
        };
        let stats = pushed.stats().await?;
        // The embedder that is farthest behind decides.
        let mut pending_embeddings = 0;
        for (_, embedded) in &stats.vectors {
            pending_embeddings = pending_embeddings.max(stats.items.saturating_sub(*embedded));
        }
        Ok(Sizes {
            tools: stats.tools,
            servers: stats.servers,
            vectors: stats.vectors,
            pending_embeddings,
            generation: stats.generation,
            disk_bytes: stats.bytes,
        })
    }
}

/// A page of a snapshot.
fn page_of(searcher: &Searcher, page: &PageOf) -> Page {
    let kinds: Filter = page.kinds.iter().copied().collect();
    let (mut tools, mut bytes, mut has_more) = (Vec::new(), 0, false);
    for id in searcher.ids_after(page.after.as_deref()) {
        if !is_listed(searcher, &kinds, page, id) {
            continue;
        }
        // Without a further tool there is no next page, even if the page is full. The size is checked
        // before a tool is added, so a page has at least one.
        if tools.len() == page.limit || bytes >= MAX_PAGE_BYTES {
            has_more = true;
            break;
        }
        if let Some(tool) = searcher.tool(id) {
            bytes += json_bytes(&tool);
            tools.push(tool);
        }
    }
    Page {
        tools,
        has_more,
        total: count(searcher, &kinds),
        generation: searcher.generation(),
    }
}

fn is_listed(searcher: &Searcher, kinds: &Filter, page: &PageOf, id: &ToolId) -> bool {
    let kind = searcher.kind(id);
    if !kind.is_some_and(|kind| kinds.accepts_kind(kind)) {
        return false;
    }
    if let Some(server) = &page.server
        && id.server() != server
    {
        return false;
    }
    if !page.part.is_empty() && !id.as_str().to_lowercase().contains(&page.part) {
        return false;
    }
    // Last, since it reads the tool.
    match &page.tag {
        Some(tag) => searcher
            .tool(id)
            .is_some_and(|tool| tool.tags.contains(tag)),
        None => true,
    }
}

/// The number of items of the kinds that a filter accepts.
fn count(searcher: &Searcher, kinds: &Filter) -> usize {
    let counts = searcher.count_by_kind().into_iter();
    let accepted = counts.filter(|(kind, _)| kinds.accepts_kind(*kind));
    accepted.map(|(_, count)| count).sum()
}

/// The size of a tool as JSON, counted without writing it.
fn json_bytes(tool: &Tool) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut counter, tool);
    counter.0
}
