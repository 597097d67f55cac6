//! The vectors of a leg, which may stay in their file until a request needs them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::Row;
use crate::dense::Vectors;
use crate::embed::Embedder;
use crate::snapshot::{computed, vector_file};

/// The vectors of a leg.
pub(crate) enum LegVectors {
    InMemory(Vectors),
    Saved {
        saved: SavedVectors,
        read: OnceLock<Vectors>,
    },
}

/// Vectors of an instant embedder in a file that has exactly those of these rows.
pub(crate) struct SavedVectors {
    pub(crate) path: PathBuf,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) rows: Vec<Arc<Row>>,
    /// Number of vectors.
    pub(crate) len: usize,
}

impl LegVectors {
    /// The vectors, read now if they have not been. Where the file has since been damaged, or
    /// replaced by that of another commit, they are computed.
    pub(crate) fn get(&self) -> &Vectors {
        match self {
            LegVectors::InMemory(vectors) => vectors,
            LegVectors::Saved { saved, read } => read.get_or_init(|| saved.read()),
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
            LegVectors::Saved { saved, .. } => {
                Vectors::bytes_of(saved.rows.len(), saved.len, saved.embedder.dimensions())
            }
        }
    }
}

impl SavedVectors {
    fn read(&self) -> Vectors {
        let texts = self
            .rows
            .iter()
            .map(|row| row.stored.embedded_texts(self.embedder.views()));
        let Some(file) = vector_file(&self.path, self.embedder.as_ref()) else {
            // A damaged file looks good until it is read; without one the next opening writes it.
            let _ = std::fs::remove_file(&self.path);
            return self.computed();
        };
        file.into_vectors_of(texts)
            .unwrap_or_else(|_| self.computed())
    }

    /// The vectors computed anew, by this thread alone: those of the pool may all be waiting for them.
    fn computed(&self) -> Vectors {
        let embedder = self.embedder.as_ref();
        let (dimensions, leading) = (embedder.dimensions(), embedder.leading_dimensions());
        let mut vectors = Vectors::with_leading(dimensions, leading);
        for row in &self.rows {
            // No instant embedder is known to fail. A tool without vectors is found by words.
            for (text, vector) in computed(embedder, row).unwrap_or_default() {
                let _ = vectors.push(embedder.id(), text, &vector);
            }
            vectors.end_tool();
        }
        vectors
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
