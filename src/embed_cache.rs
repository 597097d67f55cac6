//! A cache of the vectors of search requests, in front of an embedder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use prometheus_client::metrics::counter::Counter;
use toolscout_index::{Embedder, EmbedderProfile, Result};

/// Texts found in caches and texts that had to be embedded.
#[derive(Clone, Debug, Default)]
pub struct CacheCounters {
    /// Texts answered from the cache.
    pub hits: Counter,
    /// Texts that had to be embedded.
    pub misses: Counter,
}

/// Stores the vectors of the most recent requests. Texts of tools pass through.
///
/// Give every catalog a cache of its own: the time of an answer would otherwise tell the users of
/// one catalog what those of another ask.
pub struct CachedEmbedder {
    inner: Arc<dyn Embedder>,
    vectors: Mutex<LruCache<String, Vec<f32>>>,
    /// Most texts, about 2 KB each with a model of 384 dimensions.
    capacity: usize,
    counters: CacheCounters,
    is_bypassed: AtomicBool,
}

impl CachedEmbedder {
    /// Wraps an embedder with room for this many texts.
    pub fn new(inner: Arc<dyn Embedder>, capacity: usize, counters: CacheCounters) -> Self {
        CachedEmbedder {
            inner,
            // Unbounded, since a bounded one reserves all its memory at once; `store` keeps the
            // bound.
            vectors: Mutex::new(LruCache::unbounded()),
            capacity,
            counters,
            is_bypassed: AtomicBool::new(false),
        }
    }

    /// Embeds every text from now on, as without a cache. For measuring latency.
    pub fn bypass(&self) {
        self.is_bypassed.store(true, Ordering::Release);
    }

    /// Uses the cache again.
    pub fn resume(&self) {
        self.is_bypassed.store(false, Ordering::Release);
    }

    /// Removes all vectors.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn store(&self, texts: Vec<&str>, vectors: &[Vec<f32>]) {
        let mut stored = self.lock();
        for (text, vector) in texts.into_iter().zip(vectors) {
            stored.put(text.to_owned(), vector.clone());
            if stored.len() > self.capacity {
                stored.pop_lru();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Vec<f32>>> {
        // Vectors are inserted whole, so a panic elsewhere leaves the cache valid.
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Embedder for CachedEmbedder {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_queries_within(texts, None)
    }

    fn embed_queries_within(
        &self,
        texts: &[&str],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<f32>>> {
        if self.is_bypassed.load(Ordering::Acquire) {
            return self.inner.embed_queries_within(texts, limit);
        }
        let mut found: Vec<Option<Vec<f32>>> = {
            let mut stored = self.lock();
            texts
                .iter()
                .map(|text| stored.get(*text).cloned())
                .collect()
        };
        let missing: Vec<&str> = texts
            .iter()
            .zip(&found)
            .filter(|(_, vector)| vector.is_none())
            .map(|(text, _)| *text)
            .collect();
        let hits = texts.len() - missing.len();
        self.counters.hits.inc_by(hits as u64);
        self.counters.misses.inc_by(missing.len() as u64);
        if !missing.is_empty() {
            let vectors = self.inner.embed_queries_within(&missing, limit)?;
            self.store(missing, &vectors);
            let gaps = found.iter_mut().filter(|vector| vector.is_none());
            for (gap, vector) in gaps.zip(vectors) {
                *gap = Some(vector);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }

    fn batch(&self) -> usize {
        self.inner.batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Embeds a text as its length, and records each call.
    #[derive(Default)]
    struct Recording(Mutex<Vec<Vec<String>>>);

    impl Embedder for Recording {
        fn profile(&self) -> EmbedderProfile<'_> {
            EmbedderProfile::new("recording", 1)
        }

        fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            let call = texts.iter().map(|text| (*text).to_owned()).collect();
            self.0.lock().unwrap().push(call);
            Ok(texts.iter().map(|text| vec![text.len() as f32]).collect())
        }

        fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            self.embed_queries(texts)
        }
    }

    #[test]
    fn only_texts_that_are_not_stored_are_embedded() {
        let model = Arc::new(Recording::default());
        let counters = CacheCounters::default();
        let cache = CachedEmbedder::new(model.clone(), 2, counters.clone());
        let embed = |texts: &[&str]| cache.embed_queries(texts).unwrap().concat();
        assert_eq!(embed(&["a", "bb"]), [1.0, 2.0]);
        // The third text takes the place of the one used longest ago.
        assert_eq!(embed(&["bb", "ccc", "a"]), [2.0, 3.0, 1.0]);
        assert_eq!(embed(&["bb"]), [2.0]);
        let calls = model.0.lock().unwrap().clone();
        assert_eq!(calls, [vec!["a", "bb"], vec!["ccc"], vec!["bb"]]);
        assert_eq!((counters.hits.get(), counters.misses.get()), (2, 4));
    }

    #[test]
    fn a_bypassed_or_cleared_cache_embeds_again() {
        let model = Arc::new(Recording::default());
        let cache = CachedEmbedder::new(model.clone(), 10, CacheCounters::default());
        let calls = || model.0.lock().unwrap().len();
        for expected in [1, 1] {
            cache.embed_queries(&["a"]).unwrap();
            assert_eq!(calls(), expected);
        }
        cache.bypass();
        cache.embed_queries(&["a"]).unwrap();
        assert_eq!(calls(), 2);
        cache.resume();
        cache.embed_queries(&["a"]).unwrap();
        assert_eq!(calls(), 2);
        cache.clear();
        cache.embed_queries(&["a"]).unwrap();
        assert_eq!(calls(), 3);
    }
}
