//! A cache of query vectors, so that several arms over one set embed each query once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use toolscout_index::document::View;
use toolscout_index::{Embedder, Result, Scripts};

/// Most cached vectors: those of the largest public query file with its clauses, 200 MB at 384
/// dimensions.
const CAPACITY: usize = 1 << 17;

/// An embedder with a cache of query vectors, which is off while latency is measured.
///
/// Its id is that of the inner embedder, because the vectors are the same.
pub struct QueryCache {
    inner: Arc<dyn Embedder>,
    vectors: Mutex<HashMap<Box<str>, Vec<f32>>>,
    is_enabled: AtomicBool,
}

impl QueryCache {
    /// Adds a cache to an embedder.
    pub fn new(inner: Arc<dyn Embedder>) -> Self {
        QueryCache {
            inner,
            vectors: Mutex::default(),
            is_enabled: AtomicBool::new(true),
        }
    }

    /// Switches the cache off: every vector is computed, as in a service without a cache.
    pub fn suspend(&self) {
        self.is_enabled.store(false, Ordering::Release);
    }

    /// Switches the cache on.
    pub fn resume(&self) {
        self.is_enabled.store(true, Ordering::Release);
    }

    /// Clears the cache: another set has other queries.
    pub fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Vec<f32>>> {
        // A poisoned lock is safe: vectors are inserted complete.
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, texts: &[&str], computed: &[Vec<f32>]) {
        let mut vectors = self.lock();
        for (text, vector) in texts
            .iter()
            .zip(computed)
            .take(CAPACITY.saturating_sub(vectors.len()))
        {
            vectors.insert((*text).into(), vector.clone());
        }
    }
}

impl Embedder for QueryCache {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn dimensions(&self) -> usize {
        self.inner.dimensions()
    }

    fn leading_dimensions(&self) -> usize {
        self.inner.leading_dimensions()
    }

    fn scripts(&self) -> Scripts {
        self.inner.scripts()
    }

    fn views(&self) -> &[View] {
        self.inner.views()
    }

    fn share(&self) -> f32 {
        self.inner.share()
    }

    fn is_instant(&self) -> bool {
        self.inner.is_instant()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        if !self.is_enabled.load(Ordering::Acquire) {
            return self.inner.embed_queries(texts);
        }
        let mut known: Vec<Option<Vec<f32>>> = {
            let vectors = self.lock();
            texts
                .iter()
                .map(|text| vectors.get(*text).cloned())
                .collect()
        };
        let missing: Vec<&str> = texts
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none())
            .map(|(text, _)| *text)
            .collect();
        if !missing.is_empty() {
            let computed = self.inner.embed_queries(&missing)?;
            self.store(&missing, &computed);
            let gaps = known.iter_mut().filter(|known| known.is_none());
            gaps.zip(computed)
                .for_each(|(gap, vector)| *gap = Some(vector));
        }
        Ok(known.into_iter().flatten().collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Embedder for Counting {
        fn id(&self) -> &str {
            "counting"
        }
        fn dimensions(&self) -> usize {
            1
        }
        fn scripts(&self) -> Scripts {
            Scripts::Any
        }
        fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            self.0.fetch_add(texts.len(), Ordering::Relaxed);
            Ok(texts.iter().map(|text| vec![text.len() as f32]).collect())
        }
        fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            self.embed_queries(texts)
        }
    }

    #[test]
    fn only_uncached_texts_are_embedded_and_order_is_kept() {
        let counting = Arc::new(Counting::default());
        let cached = QueryCache::new(counting.clone());
        let embed = |texts: &[&str]| cached.embed_queries(texts).unwrap().concat();
        assert_eq!(embed(&["a", "ccc"]), [1.0, 3.0]);
        assert_eq!(embed(&["bb", "a", "dddd", "ccc"]), [2.0, 1.0, 4.0, 3.0]);
        assert_eq!(counting.0.load(Ordering::Relaxed), 4);
        cached.suspend();
        assert_eq!(embed(&["a"]), [1.0]);
        assert_eq!(counting.0.load(Ordering::Relaxed), 5);
        cached.resume();
        embed(&["a"]);
        assert_eq!(counting.0.load(Ordering::Relaxed), 5);
        cached.forget();
        embed(&["a"]);
        assert_eq!(counting.0.load(Ordering::Relaxed), 6);
    }
}
