//! A catalog that follows one of a store, as a server gives it to its pool.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::metrics::gauge::Gauge;
use toolscout::approved::ApprovedPlace;
use toolscout::catalog_writer::{CatalogStore as _, CatalogWriter};
use toolscout::mcp::CatalogSink;
use toolscout::shared::CreatedCatalog;
use toolscout::store::{FollowedCatalog, FollowingStore, PostgresStore};
use toolscout_index::{Catalog, Changes, Searcher, Tool};

use super::shared_store;

/// Most syncs that wait for the writer.
const WRITE_QUEUE: usize = 64;

pub struct FollowedSink {
    store: Arc<PostgresStore>,
    followed: Arc<FollowedCatalog>,
    catalog: Catalog,
    writer: CatalogWriter,
}

impl FollowedSink {
    /// Follows a new catalog of the store with this one.
    pub fn new(store: &Arc<PostgresStore>, catalog: Catalog) -> Self {
        shared_store::blocking(|| {
            let created = store.block_on(store.create("default", 1));
            let Ok(CreatedCatalog::Now(stored)) = created else {
                panic!("{created:?}");
            };
            let mut following = FollowingStore::new(Arc::clone(store), catalog.clone(), &stored);
            following.refresh().expect("what the store has");
            let followed = Arc::clone(following.followed());
            let writer = CatalogWriter::start_over(
                Box::new(following),
                "MCP tools",
                catalog.clone(),
                WRITE_QUEUE,
                Gauge::default(),
                Box::new(|_| ()),
            );
            FollowedSink {
                store: Arc::clone(store),
                followed,
                catalog,
                writer: writer.expect("threads that write"),
            }
        })
    }
}

#[async_trait]
impl CatalogSink for FollowedSink {
    fn searcher(&self) -> Arc<Searcher> {
        self.catalog.searcher()
    }

    fn folder(&self) -> PathBuf {
        self.catalog.path().to_owned()
    }

    fn approved(&self) -> ApprovedPlace {
        self.store.approved(&self.followed)
    }

    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String> {
        let synced = self.writer.sync(server, tools).await;
        synced.map_err(|error| error.to_string())
    }
}
