//! Catalogs on disk: open, write, search.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::embed::Embedder;
use crate::error::Result;
use crate::search::Searcher;
use crate::tool::{Tool, ToolId};

/// The directory under which catalogs live side by side, each in its own folder.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// Names a data directory; nothing is created until a catalog is.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        DataDir { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the catalogs in it, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn catalogs(&self) -> Result<Vec<String>> {
        unimplemented!()
    }

    /// Opens a catalog that exists.
    ///
    /// # Errors
    /// [`crate::Error::UnknownCatalog`], [`crate::Error::Store`].
    pub fn open(&self, _name: &str, _options: Options) -> Result<Catalog> {
        unimplemented!()
    }

    /// Opens a catalog, created empty when it is not there.
    ///
    /// # Errors
    /// [`crate::Error::InvalidCatalogName`], [`crate::Error::Store`], [`crate::Error::Io`].
    pub fn open_or_create(&self, _name: &str, _options: Options) -> Result<Catalog> {
        unimplemented!()
    }

    /// Deletes a catalog and all it holds.
    ///
    /// # Errors
    /// [`crate::Error::UnknownCatalog`], [`crate::Error::Locked`] while it is being written.
    pub fn delete(&self, _name: &str) -> Result<()> {
        unimplemented!()
    }
}

/// How a catalog is opened.
#[derive(Clone, Default)]
pub struct Options {
    /// The dense legs; none means lexical search.
    pub embedders: Vec<Arc<dyn Embedder>>,
}

/// An open catalog. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Catalog {}

impl Catalog {
    /// The newest published snapshot of this process. Never blocks on a writer.
    pub fn searcher(&self) -> Arc<Searcher> {
        unimplemented!()
    }

    /// Publishes what other processes have committed since, and returns the newest snapshot.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn refresh(&self) -> Result<Arc<Searcher>> {
        unimplemented!()
    }

    /// Becomes the one writer.
    ///
    /// # Errors
    /// [`crate::Error::Locked`] while another writer exists, in this process or another.
    pub fn writer(&self) -> Result<Writer> {
        unimplemented!()
    }

    /// Sizes on disk and in memory.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn stats(&self) -> Result<Stats> {
        unimplemented!()
    }
}

/// The one writer of a catalog. Changes gather in a transaction; [`Writer::commit`] makes them durable and visible,
/// dropping the writer without a commit undoes them.
pub struct Writer {}

impl Writer {
    /// Adds tools, or replaces those whose id is there.
    ///
    /// # Errors
    /// [`crate::Error::DuplicateTool`] for one id twice, [`crate::Error::Store`].
    pub fn upsert(&mut self, _tools: &[Tool]) -> Result<Changes> {
        unimplemented!()
    }

    /// Removes tools; ids that are not there are ignored.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn remove(&mut self, _ids: &[ToolId]) -> Result<Changes> {
        unimplemented!()
    }

    /// Makes a server's tools exactly these.
    ///
    /// # Errors
    /// [`crate::Error::InvalidTool`] for a tool of another server, else as [`Writer::upsert`].
    pub fn sync(&mut self, _server: &str, _tools: &[Tool]) -> Result<Changes> {
        unimplemented!()
    }

    /// Makes the changes durable, serves them lexically (and densely where vectors are kept), and returns the new
    /// generation. Does not embed.
    ///
    /// # Errors
    /// [`crate::Error::Store`], [`crate::Error::Derived`].
    pub fn commit(&mut self) -> Result<u64> {
        unimplemented!()
    }

    /// Embeds what is committed and has no vectors yet, batch by batch, each kept as soon as it is there, and publishes
    /// a snapshot at the end. Ends early when `progress` breaks. Returns how many texts were embedded.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`], [`crate::Error::Store`].
    pub fn embed_pending(&mut self, _progress: &mut dyn FnMut(EmbedProgress) -> ControlFlow<()>) -> Result<usize> {
        unimplemented!()
    }
}

/// How far embedding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedProgress {
    /// Texts embedded so far.
    pub done: usize,
    /// Texts to embed in all.
    pub total: usize,
}

/// What a write did, by id, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// New tools.
    pub added: Vec<ToolId>,
    /// Tools that differ from what was there.
    pub changed: Vec<ToolId>,
    /// Tools taken out.
    pub removed: Vec<ToolId>,
    /// Tools that came again as they were.
    pub unchanged: usize,
}

/// A catalog in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Tools.
    pub tools: usize,
    /// Servers, with the number of their tools.
    pub servers: Vec<(String, usize)>,
    /// The last commit.
    pub generation: u64,
    /// Embedder ids with the number of their vectors.
    pub vectors: Vec<(String, usize)>,
    /// Tools that the dense legs cannot find yet.
    pub pending_embeddings: usize,
    /// Bytes on disk: database, lexical index, graph.
    pub disk_bytes: u64,
}
