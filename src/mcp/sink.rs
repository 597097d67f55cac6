//! Where the tools of MCP servers are put, so that they can be found.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::task::spawn_blocking;
use toolscout_index::{Catalog, Changes, Error, Searcher, Tool};

/// A catalog as the [`Pool`](crate::mcp::Pool) needs it.
#[async_trait]
pub trait CatalogSink: Send + Sync {
    /// The newest snapshot; may read the disk for a moment.
    fn searcher(&self) -> Arc<Searcher>;

    /// The catalog's folder, where what was approved is remembered.
    fn folder(&self) -> PathBuf;

    /// Makes a server's tools exactly these.
    ///
    /// # Errors
    /// In words, for the log; it is tried again later.
    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String>;
}

/// A catalog of the data directory. Other processes may write to it too, which is seen at the next
/// search. New tools are found by words at once, and by meaning as soon as they are embedded, which
/// is done when no server has anything to write.
#[derive(Clone)]
pub struct SingleWriterSink {
    catalog: Catalog,
    writing: Arc<Writing>,
}

#[derive(Default)]
struct Writing {
    /// One writer at a time.
    turn: Mutex<()>,
    /// Writes that are under way or wait for their turn.
    waiting: AtomicUsize,
}

impl SingleWriterSink {
    /// Puts tools into this catalog.
    pub fn new(catalog: Catalog) -> Self {
        SingleWriterSink {
            catalog,
            writing: Arc::default(),
        }
    }

    fn write(&self, server: &str, tools: &[Tool]) -> Result<Changes, Error> {
        let turn = self
            .writing
            .turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut writer = self.catalog.writer()?;
        let changes = writer.sync(server, tools)?;
        if !changes.added.is_empty() || !changes.changed.is_empty() || !changes.removed.is_empty() {
            writer.commit()?;
        }
        drop(turn);
        Ok(changes)
    }

    /// Embeds what has no vectors yet, until somebody wants to write.
    fn embed(&self) {
        let Ok(_turn) = self.writing.turn.try_lock() else {
            return;
        };
        let wanted = || self.writing.waiting.load(Ordering::Relaxed) > 0;
        let embedded = self.catalog.writer().and_then(|mut writer| {
            writer.embed_pending(&mut |_| {
                if wanted() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        });
        if let Err(error) = embedded {
            tracing::warn!(%error, "tools of MCP servers are not embedded; they are found by words only");
        }
    }
}

#[async_trait]
impl CatalogSink for SingleWriterSink {
    fn searcher(&self) -> Arc<Searcher> {
        self.catalog
            .refresh()
            .unwrap_or_else(|_| self.catalog.searcher())
    }

    fn folder(&self) -> PathBuf {
        self.catalog.path().to_owned()
    }

    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String> {
        let (sink, server) = (self.clone(), server.to_owned());
        self.writing.waiting.fetch_add(1, Ordering::Relaxed);
        let written = spawn_blocking(move || {
            let written = sink.write(&server, &tools);
            sink.writing.waiting.fetch_sub(1, Ordering::Relaxed);
            written
        });
        let changes = written
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        let sink = self.clone();
        spawn_blocking(move || sink.embed());
        Ok(changes)
    }
}
