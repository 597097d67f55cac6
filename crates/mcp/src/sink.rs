//! The catalog that the tools of MCP servers are written to.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::OnceCell;
use toolscout_index::{Catalog, Changes, Enrichment, Searcher, Tool, ToolId};

use toolscout_finder::finder::search::UsedTool;
use toolscout_finder::finder::snapshot::SnapshotSource;
use toolscout_state::approved::ApprovedPlace;
use toolscout_state::catalog_writer::{CatalogWriter, Change};

/// Most syncs that wait for the writer.
const WRITE_QUEUE: usize = 64;

/// A catalog as the [`Pool`](crate::Pool) needs it.
#[async_trait]
pub trait CatalogSink: Send + Sync {
    /// The newest snapshot; may read the disk for a moment.
    fn searcher(&self) -> Arc<Searcher>;

    /// The catalog's folder.
    fn folder(&self) -> PathBuf;

    /// Where the approved definitions are: in the folder, unless nodes share them.
    fn approved(&self) -> ApprovedPlace {
        ApprovedPlace::Folder(self.folder())
    }

    /// Makes a server's tools exactly these.
    ///
    /// # Errors
    /// A message for the log; the pool tries again later.
    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String>;
}

/// A catalog of the data directory, written by one [`CatalogWriter`]. Commits of other processes
/// are visible at the next search. New tools are found by their words at once, and by meaning once
/// they are embedded, which happens while nothing is being written.
#[derive(Clone)]
pub struct SingleWriterSink {
    catalog: Catalog,
    /// Started by the first sync: without MCP servers nothing is written.
    writer: Arc<OnceCell<CatalogWriter>>,
}

impl SingleWriterSink {
    /// A sink that writes to this catalog.
    pub fn new(catalog: Catalog) -> Self {
        SingleWriterSink {
            catalog,
            writer: Arc::default(),
        }
    }

    /// Stores what was written about these definitions. Returns the tools of which it was stored.
    ///
    /// # Errors
    /// A message for the log.
    pub async fn enrich(
        &self,
        written: Vec<(Arc<Tool>, Enrichment)>,
    ) -> Result<Vec<ToolId>, String> {
        Ok(self.write(Change::Enrich(written)).await?.changed)
    }

    async fn write(&self, change: Change) -> Result<Changes, String> {
        let start = || async {
            let catalog = self.catalog.clone();
            CatalogWriter::start("MCP tools", catalog, WRITE_QUEUE, Gauge::default())
        };
        let writer = self
            .writer
            .get_or_try_init(start)
            .await
            .map_err(|error| format!("start the threads that write: {error}"))?;
        let written = writer.write(change).await;
        written
            .map(|written| written.changes)
            .map_err(|error| error.to_string())
    }
}

impl SnapshotSource for SingleWriterSink {
    fn snapshot(&self) -> Arc<Searcher> {
        self.searcher()
    }

    fn has_memory(&self) -> bool {
        self.catalog.has_memory()
    }

    fn remember(&self, used_tool: &UsedTool) -> Result<(), String> {
        self.catalog.remember(used_tool)
    }
}

#[async_trait]
impl CatalogSink for SingleWriterSink {
    fn searcher(&self) -> Arc<Searcher> {
        self.catalog
            .refresh()
            // The last snapshot is better than none; the next write reports what is wrong.
            .unwrap_or_else(|_| self.catalog.searcher())
    }

    fn folder(&self) -> PathBuf {
        self.catalog.path().to_owned()
    }

    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String> {
        let change = Change::Sync {
            server: server.to_owned(),
            tools,
        };
        self.write(change).await
    }
}
