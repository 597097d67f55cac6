//! The embedders of each catalog: those of the server, or those that the catalog's settings name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use toolscout_index::Options;

/// Loads embedders by the name that a catalog's settings give.
pub type EmbedderSource = Box<dyn Fn(&str) -> Options + Send + Sync>;

/// The embedders by name, each loaded once.
pub struct EmbeddersOf {
    default: Options,
    source: Option<EmbedderSource>,
    loaded: Mutex<BTreeMap<String, Options>>,
}

impl EmbeddersOf {
    /// `default` serves catalogs that name none, and all without a source.
    pub fn new(default: Options, source: Option<EmbedderSource>) -> Self {
        EmbeddersOf {
            default,
            source,
            loaded: Mutex::default(),
        }
    }

    /// The embedders of a catalog whose settings name these. Blocks while they are loaded.
    pub fn get(&self, name: Option<&str>) -> Options {
        let (Some(name), Some(source)) = (name, &self.source) else {
            return self.default.clone();
        };
        // Held while they are loaded: a model is large, and two catalogs may name the same.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded
            .entry(name.to_owned())
            .or_insert_with(|| source(name))
            .clone()
    }
}
