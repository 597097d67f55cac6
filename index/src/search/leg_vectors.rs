//! The vectors of a leg, which may stay in their file until a request needs them.

use std::sync::OnceLock;

use crate::dense::Vectors;

/// The vectors of a leg.
pub(crate) enum LegVectors {
    InMemory(Vectors),
    Saved {
        saved: SavedVectors,
        read: OnceLock<Vectors>,
    },
}

/// Vectors in a file.
pub(crate) struct SavedVectors {
    /// Number of vectors.
    pub(crate) len: usize,
    /// Bytes in memory once they are read.
    pub(crate) memory_bytes: usize,
    /// Reads them, or computes them. Must not wait for the thread pool: its threads may all be
    /// waiting for these vectors.
    pub(crate) read: Box<dyn Fn() -> Vectors + Send + Sync>,
}

impl LegVectors {
    /// The vectors, read now if they have not been.
    pub(crate) fn get(&self) -> &Vectors {
        match self {
            LegVectors::InMemory(vectors) => vectors,
            LegVectors::Saved { saved, read } => read.get_or_init(|| (saved.read)()),
        }
    }

    /// Number of vectors.
    pub(crate) fn len(&self) -> usize {
        match self {
            LegVectors::InMemory(vectors) => vectors.len(),
            LegVectors::Saved { saved, .. } => saved.len,
        }
    }

    /// True without vectors.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory once they are read.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            LegVectors::InMemory(vectors) => vectors.memory_bytes(),
            LegVectors::Saved { saved, .. } => saved.memory_bytes,
        }
    }
}

impl From<Vectors> for LegVectors {
    fn from(vectors: Vectors) -> Self {
        LegVectors::InMemory(vectors)
    }
}

impl From<SavedVectors> for LegVectors {
    fn from(saved: SavedVectors) -> Self {
        LegVectors::Saved {
            saved,
            read: OnceLock::new(),
        }
    }
}
