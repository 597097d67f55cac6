//! What a write has changed.

use pyo3::prelude::*;
use toolscout_index::{Changes as EngineChanges, ToolId};
use toolscout_native::input;

use crate::convert::quoted;

/// An item that is no valid tool, and was left out.
#[pyclass(module = "toolscout", frozen, get_all)]
pub struct Skipped {
    /// Its position in the input, from 1.
    position: Option<usize>,
    /// Its name, where it has one.
    name: Option<String>,
    /// Why it is no valid tool.
    error: String,
}

impl From<input::Skipped> for Skipped {
    fn from(skipped: input::Skipped) -> Self {
        Skipped {
            position: skipped.position,
            name: skipped.name,
            error: skipped.error,
        }
    }
}

#[pymethods]
impl Skipped {
    fn __repr__(&self, py: Python<'_>) -> String {
        let position = self
            .position
            .map_or("None".to_owned(), |position| position.to_string());
        format!(
            "Skipped(position={position}, error={})",
            quoted(py, &self.error)
        )
    }
}

/// The effect of a write: ids, sorted, and counts.
#[pyclass(module = "toolscout", frozen, get_all)]
pub struct Changes {
    /// New tools.
    added: Vec<String>,
    /// Replaced tools.
    changed: Vec<String>,
    /// Removed tools.
    removed: Vec<String>,
    /// Number of tools that were already stored as they are.
    unchanged: usize,
    /// Items that were left out, with `skip_invalid`.
    skipped: Vec<Py<Skipped>>,
    /// Number of texts that were embedded.
    embedded: usize,
    /// The generation of the catalog that has the changes.
    generation: u64,
}

impl Changes {
    /// Changes that are in this generation.
    pub fn new(changes: EngineChanges, skipped: Vec<Py<Skipped>>, generation: u64) -> Self {
        Changes {
            added: texts(changes.added),
            changed: texts(changes.changed),
            removed: texts(changes.removed),
            unchanged: changes.unchanged,
            skipped,
            embedded: 0,
            generation,
        }
    }

    /// The same after this many texts were embedded, which makes a new generation.
    pub fn embedded(mut self, texts: usize, generation: u64) -> Self {
        self.embedded = texts;
        self.generation = generation;
        self
    }
}

fn texts(mut ids: Vec<ToolId>) -> Vec<String> {
    ids.sort_unstable();
    ids.iter().map(ToString::to_string).collect()
}

#[pymethods]
impl Changes {
    fn __repr__(&self) -> String {
        format!(
            "Changes(added={}, changed={}, removed={}, unchanged={}, skipped={}, embedded={}, generation={})",
            self.added.len(),
            self.changed.len(),
            self.removed.len(),
            self.unchanged,
            self.skipped.len(),
            self.embedded,
            self.generation
        )
    }
}
