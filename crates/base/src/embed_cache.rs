//! A cache of the vectors of search requests, in front of an embedder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
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

/// The vectors of the most recent requests, of any number of embedders. Each finds its own only: if
/// two catalogs shared them, the time of an answer would tell the users of one what those of the
/// other ask.
pub struct QueryVectors {
    vectors: Mutex<LruCache<(u64, String), Vec<f32>>>,
    /// Most texts, about 2 KB each with a model of 384 dimensions.
    capacity: usize,
    last_owner: AtomicU64,
}

impl QueryVectors {
    /// Room for this many texts in all.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(QueryVectors {
            // Unbounded, since a bounded one reserves all its memory at once; `store` keeps the
            // bound.
            vectors: Mutex::new(LruCache::unbounded()),
            capacity,
            last_owner: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<(u64, String), Vec<f32>>> {
        // Never held while a model embeds, which takes long.
        self.vectors.lock()
    }
}

/// Stores the vectors of the most recent requests. Texts of tools pass through.
pub struct CachedEmbedder {
    inner: Arc<dyn Embedder>,
    stored: Arc<QueryVectors>,
    /// Its number among those that share the cache.
    owner: u64,
    counters: CacheCounters,
    is_bypassed: AtomicBool,
}

impl CachedEmbedder {
    /// Wraps an embedder with room for this many texts.
    pub fn new(inner: Arc<dyn Embedder>, capacity: usize, counters: CacheCounters) -> Self {
        CachedEmbedder::sharing(inner, QueryVectors::new(capacity), counters)
    }

    /// Wraps an embedder whose texts take their room among those of others.
    pub fn sharing(
        inner: Arc<dyn Embedder>,
        stored: Arc<QueryVectors>,
        counters: CacheCounters,
    ) -> Self {
        CachedEmbedder {
            inner,
            owner: stored.last_owner.fetch_add(1, Ordering::Relaxed),
            stored,
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

    /// Removes all its vectors.
    pub fn clear(&self) {
        let mut stored = self.stored.lock();
        let mut own = Vec::new();
        for (key, _) in stored.iter() {
            if key.0 == self.owner {
                own.push(key.clone());
            }
        }
        for key in own {
            stored.pop(&key);
        }
    }

    fn key(&self, text: &str) -> (u64, String) {
        (self.owner, text.to_owned())
    }

    fn store(&self, texts: Vec<&str>, vectors: &[Vec<f32>]) {
        let mut stored = self.stored.lock();
        for (text, vector) in texts.into_iter().zip(vectors) {
            stored.put(self.key(text), vector.clone());
            if stored.len() > self.stored.capacity {
                stored.pop_lru();
            }
        }
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
            let mut stored = self.stored.lock();
            texts
                .iter()
                .map(|text| stored.get(&self.key(text)).cloned())
                .collect()
        };
        let mut missing = Vec::new();
        for (text, vector) in texts.iter().zip(&found) {
            if vector.is_none() {
                missing.push(*text);
            }
        }
        let hits = texts.len() - missing.len();
        self.counters.hits.inc_by(hits as u64);
        self.counters.misses.inc_by(missing.len() as u64);
        if !missing.is_empty() {
            let vectors = self.inner.embed_queries_within(&missing, limit)?;
            self.store(missing, &vectors);
            // The embedder gives one vector for each text, in their order.
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
            self.0.lock().push(call);
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
        let calls = model.0.lock().clone();
        assert_eq!(calls, [vec!["a", "bb"], vec!["ccc"], vec!["bb"]]);
        assert_eq!((counters.hits.get(), counters.misses.get()), (2, 4));
    }

    #[test]
    fn embedders_that_share_room_share_no_vectors() {
        let model = Arc::new(Recording::default());
        let stored = QueryVectors::new(3);
        let [a, b] = [(); 2].map(|()| {
            CachedEmbedder::sharing(model.clone(), Arc::clone(&stored), CacheCounters::default())
        });
        let calls = || model.0.lock().len();
        for (cache, text, expected) in [
            (&a, "x", 1),
            (&b, "x", 2),
            (&a, "x", 2),
            (&b, "y", 3),
            // The one used longest ago makes room, whose ever it is: that of `b`.
            (&a, "z", 4),
            (&a, "x", 4),
            (&b, "x", 5),
        ] {
            cache.embed_queries(&[text]).unwrap();
            assert_eq!(calls(), expected, "{text}");
        }
        a.clear();
        b.embed_queries(&["x"]).unwrap();
        assert_eq!(calls(), 5, "only its own are removed");
    }

    #[test]
    fn a_bypassed_or_cleared_cache_embeds_again() {
        let model = Arc::new(Recording::default());
        let cache = CachedEmbedder::new(model.clone(), 10, CacheCounters::default());
        let calls = || model.0.lock().len();
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
