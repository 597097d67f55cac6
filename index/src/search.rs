//! An immutable snapshot that answers queries.

use std::sync::Arc;

use crate::error::Result;
use crate::hit::Results;
use crate::query::Query;
use crate::tool::{Tool, ToolId};

/// One state of a catalog; answers queries from any number of threads and never changes.
pub struct Searcher {}

impl Searcher {
    /// Answers a query.
    ///
    /// # Errors
    /// [`crate::Error::InvalidQuery`] for a query out of its ranges.
    pub fn search(&self, _query: &Query) -> Result<Results> {
        unimplemented!()
    }

    /// The tool of this id.
    pub fn tool(&self, _id: &ToolId) -> Option<Arc<Tool>> {
        unimplemented!()
    }

    /// Every tool, by id.
    pub fn tools(&self) -> impl Iterator<Item = Arc<Tool>> + '_ {
        std::iter::empty()
    }

    /// The ids after this one (exclusive), in order: the page of a cursor list.
    pub fn ids_after<'a>(&'a self, _after: Option<&str>) -> impl Iterator<Item = &'a ToolId> + 'a {
        std::iter::empty()
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// True without tools.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The commit this snapshot shows.
    pub fn generation(&self) -> u64 {
        unimplemented!()
    }

    /// Tools that the dense legs cannot find yet.
    pub fn pending_embeddings(&self) -> usize {
        unimplemented!()
    }
}
