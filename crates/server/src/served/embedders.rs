//! The embedders of each catalog: those of the server, or those that the catalog's settings name.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolscout_index::Options;

/// Loads embedders by the name that a catalog's settings give.
pub type EmbedderSource = Box<dyn Fn(&str) -> Options + Send + Sync>;

/// How long embedders of which one was missing are not looked for again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The embedders by name, each loaded once.
pub struct EmbeddersOf {
    default: Options,
    source: Option<EmbedderSource>,
    loaded: Mutex<BTreeMap<String, Loaded>>,
}

struct Loaded {
    options: Options,
    tried: Instant,
}

impl Loaded {
    /// True where a model was missing that may have been fetched since.
    fn is_outdated(&self) -> bool {
        self.options.missing_embedder.is_some() && self.tried.elapsed() > RETRY_AFTER
    }
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
        // Locked while a model is loaded: it is large, and two catalogs may name the same one.
        let mut loaded = self.loaded.lock();
        // A model that was missing may have been fetched since.
        loaded.retain(|_, loaded| !loaded.is_outdated());
        let load = || Loaded {
            options: source(name),
            tried: Instant::now(),
        };
        let known = loaded.entry(name.to_owned()).or_insert_with(load);
        known.options.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn embedders_are_loaded_once_and_again_only_where_one_was_missing() {
        static LOADS: AtomicUsize = AtomicUsize::new(0);
        let source: EmbedderSource = Box::new(|name| {
            LOADS.fetch_add(1, Ordering::Relaxed);
            Options {
                missing_embedder: (name == "missing").then(|| "it is not there".to_owned()),
                ..Options::default()
            }
        });
        let embedders = EmbeddersOf::new(Options::default(), Some(source));
        for name in ["there", "there", "missing", "missing"] {
            embedders.get(Some(name));
        }
        assert_eq!(LOADS.load(Ordering::Relaxed), 2);
        let earlier = Instant::now().checked_sub(2 * RETRY_AFTER).unwrap();
        for loaded in embedders.loaded.lock().values_mut() {
            loaded.tried = earlier;
        }
        for name in ["there", "missing", "missing"] {
            embedders.get(Some(name));
        }
        assert_eq!(LOADS.load(Ordering::Relaxed), 3);
    }
}
