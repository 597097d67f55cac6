//! Texts to vectors: what an embedder promises, and the embedders there are.

mod hashing;
pub mod minilm;
mod pool;
pub mod table;

pub use hashing::Hashing;
pub use minilm::MiniLm;
pub use table::StaticTable;

use crate::document::View;
use crate::error::Result;

/// The scripts an embedding model has learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripts {
    /// Latin script only: requests in another script get no say from this model.
    Latin,
    /// Any script.
    Any,
}

/// Turns texts into unit vectors.
///
/// The same text must give the same vector for as long as the id stays the same: vectors are kept
/// under it and never computed again.
pub trait Embedder: Send + Sync {
    /// Names the model and its exact weights; part of the key under which vectors are kept.
    fn id(&self) -> &str;
    /// Length of every vector.
    fn dimensions(&self) -> usize;
    /// How many of them, from the first on, say most of what all say, so that the others only need
    /// to be looked at for tools that come near by these; all where none says more than another.
    fn leading_dimensions(&self) -> usize {
        self.dimensions()
    }
    /// The scripts it serves.
    fn scripts(&self) -> Scripts;
    /// The views of a tool it embeds.
    fn views(&self) -> &[View] {
        &[View::Everything, View::Name]
    }
    /// Its say in the dense score beside other embedders; only the proportion counts.
    fn share(&self) -> f32 {
        1.0
    }
    /// True when embedding a tool takes no longer than indexing its words. A commit then embeds at
    /// once, and the clauses of a request are left to this embedder where slower ones stand beside
    /// it.
    fn is_instant(&self) -> bool {
        false
    }
    /// Embeds what users ask.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the model fails.
    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
    /// Embeds what tools say of themselves.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the model fails.
    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
}
