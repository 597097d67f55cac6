//! Query embedding for many callers at once: vectors that were computed before are kept, and what
//! callers ask for at the same time is computed in one call.
//!
//! [`CachedEmbedder`] belongs to one catalog, so that nobody can tell from an answer's timing what users of another
//! one ask; [`BatchingEmbedder`] is shared by all, in front of the model.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use prometheus_client::metrics::counter::Counter;
use toolscout_index::View;
use toolscout_index::{Embedder, Error, Result, Scripts};

/// Most texts in one call. Larger batches gain little and make the first caller wait longer.
const MAX_BATCH: usize = 32;

/// How often the cache had the vector.
#[derive(Clone, Debug, Default)]
pub struct CacheCounters {
    /// Texts answered from the cache.
    pub hits: Counter,
    /// Texts that had to be embedded.
    pub misses: Counter,
}

/// Keeps the vectors of the queries asked last. Tools pass through.
pub struct CachedEmbedder {
    inner: Arc<dyn Embedder>,
    vectors: Mutex<LruCache<String, Vec<f32>>>,
    /// Texts kept; about 2 KB each.
    capacity: usize,
    counters: CacheCounters,
}

impl CachedEmbedder {
    /// Wraps an embedder with room for this many texts.
    pub fn new(inner: Arc<dyn Embedder>, capacity: usize, counters: CacheCounters) -> Self {
        // Unbounded, since a bounded one reserves all its memory at once; `keep` holds the bound.
        CachedEmbedder {
            inner,
            vectors: Mutex::new(LruCache::unbounded()),
            capacity,
            counters,
        }
    }

    fn keep(&self, texts: Vec<&str>, vectors: &[Vec<f32>]) {
        let mut kept = lock(&self.vectors);
        for (text, vector) in texts.into_iter().zip(vectors) {
            kept.put(text.to_owned(), vector.clone());
            if kept.len() > self.capacity {
                kept.pop_lru();
            }
        }
    }
}

impl Embedder for CachedEmbedder {
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
        let mut found: Vec<Option<Vec<f32>>> = {
            let mut kept = lock(&self.vectors);
            texts.iter().map(|text| kept.get(*text).cloned()).collect()
        };
        let missing: Vec<&str> = texts
            .iter()
            .zip(&found)
            .filter(|(_, vector)| vector.is_none())
            .map(|(text, _)| *text)
            .collect();
        self.counters
            .hits
            .inc_by((texts.len() - missing.len()) as u64);
        self.counters.misses.inc_by(missing.len() as u64);
        if !missing.is_empty() {
            let vectors = self.inner.embed_queries(&missing)?;
            self.keep(missing, &vectors);
            let mut fresh = vectors.into_iter();
            found
                .iter_mut()
                .filter(|vector| vector.is_none())
                .for_each(|vector| *vector = fresh.next());
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }
}

/// Joins the queries of callers on several threads into one call of the model.
///
/// There is no added delay: the first caller embeds at once, and whoever comes meanwhile goes into
/// the next batch, which one of them embeds for all.
pub struct BatchingEmbedder {
    inner: Arc<dyn Embedder>,
    line: Mutex<Line>,
}

/// Callers whose texts are not being embedded yet.
#[derive(Default)]
struct Line {
    waiting: Vec<Job>,
    /// True while some caller embeds. It hands over to the first one waiting.
    busy: bool,
}

struct Job {
    texts: Vec<String>,
    seat: Arc<Seat>,
}

/// Where one caller waits.
#[derive(Default)]
struct Seat {
    call: Mutex<Option<Call>>,
    called: Condvar,
}

/// What a waiting caller is told.
enum Call {
    /// Its vectors are there.
    Done(Result<Vec<Vec<f32>>>),
    /// The next batch is its to embed.
    Lead,
}

impl BatchingEmbedder {
    /// Wraps an embedder.
    pub fn new(inner: Arc<dyn Embedder>) -> Self {
        BatchingEmbedder {
            inner,
            line: Mutex::default(),
        }
    }

    /// Joins the line; true for the caller who has to embed now.
    fn join(&self, job: Job) -> bool {
        let mut line = lock(&self.line);
        line.waiting.push(job);
        !std::mem::replace(&mut line.busy, true)
    }

    /// Embeds the batch at the head of the line and hands over, also when the model panics.
    fn lead(&self) {
        let mut batch = Batch {
            embedder: self,
            jobs: self.next_batch(),
        };
        let texts: Vec<&str> = batch
            .jobs
            .iter()
            .flat_map(|job| &job.texts)
            .map(String::as_str)
            .collect();
        let outcome = self.inner.embed_queries(&texts);
        batch.deliver(outcome);
    }

    fn next_batch(&self) -> Vec<Job> {
        let mut line = lock(&self.line);
        let mut texts = 0;
        let within = line.waiting.iter().take_while(|job| {
            texts += job.texts.len();
            texts <= MAX_BATCH
        });
        // A job larger than a batch goes alone.
        let jobs = within.count().max(1);
        line.waiting.drain(..jobs).collect()
    }

    fn hand_over(&self) {
        let mut line = lock(&self.line);
        match line.waiting.first() {
            Some(next) => next.seat.call(Call::Lead),
            None => line.busy = false,
        }
    }

    fn failed(&self, reason: String) -> Error {
        Error::Embedder {
            model: self.inner.id().to_owned(),
            reason,
        }
    }
}

impl Embedder for BatchingEmbedder {
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
        let seat = Arc::new(Seat::default());
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        if self.join(Job {
            texts,
            seat: Arc::clone(&seat),
        }) {
            self.lead();
        }
        loop {
            match seat.wait() {
                Call::Done(outcome) => return outcome,
                Call::Lead => self.lead(),
            }
        }
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_tools(texts)
    }
}

impl Seat {
    fn call(&self, call: Call) {
        *lock(&self.call) = Some(call);
        self.called.notify_one();
    }

    fn wait(&self) -> Call {
        let mut call = lock(&self.call);
        loop {
            match call.take() {
                Some(call) => return call,
                None => {
                    call = self
                        .called
                        .wait(call)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }
}

/// Callers whose texts are being embedded. Dropping it tells those that were not served, so that
/// nobody waits for a thread that panicked, and hands over.
struct Batch<'a> {
    embedder: &'a BatchingEmbedder,
    jobs: Vec<Job>,
}

impl Batch<'_> {
    fn deliver(&mut self, outcome: Result<Vec<Vec<f32>>>) {
        let mut vectors = match outcome {
            Ok(vectors) => vectors.into_iter(),
            Err(error) => return self.fail(&error.to_string()),
        };
        for job in self.jobs.drain(..) {
            let own = vectors.by_ref().take(job.texts.len()).collect();
            job.seat.call(Call::Done(Ok(own)));
        }
    }

    fn fail(&mut self, reason: &str) {
        for job in self.jobs.drain(..) {
            job.seat
                .call(Call::Done(Err(self.embedder.failed(reason.to_owned()))));
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.fail("it ended while embedding; see the log");
        self.embedder.hand_over();
    }
}

/// A panic while the lock is held leaves the value as it was before or after one whole change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Gives a text's length as its vector, tells which texts it was called with, and waits to be
    /// let go.
    struct Gated {
        calls: Mutex<Sender<Vec<String>>>,
        gate: Mutex<Receiver<()>>,
    }

    impl Gated {
        fn new() -> (Arc<Self>, Receiver<Vec<String>>, Sender<()>) {
            let (calls, called) = channel();
            let (open, gate) = channel();
            (
                Arc::new(Gated {
                    calls: Mutex::new(calls),
                    gate: Mutex::new(gate),
                }),
                called,
                open,
            )
        }
    }

    impl Embedder for Gated {
        fn id(&self) -> &str {
            "gated"
        }

        fn dimensions(&self) -> usize {
            1
        }

        fn scripts(&self) -> Scripts {
            Scripts::Any
        }

        fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            lock(&self.calls)
                .send(texts.iter().map(|text| (*text).to_owned()).collect())
                .unwrap();
            lock(&self.gate).recv().unwrap();
            assert!(!texts.contains(&"panic"), "asked to");
            Ok(texts.iter().map(|text| vec![text.len() as f32]).collect())
        }

        fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
            self.embed_queries(texts)
        }
    }

    fn wait_until_in_line(batching: &BatchingEmbedder, jobs: usize) {
        while lock(&batching.line).waiting.len() < jobs {
            std::thread::yield_now();
        }
    }

    #[test]
    fn callers_that_come_meanwhile_share_the_next_call() {
        let (model, called, open) = Gated::new();
        let batching = BatchingEmbedder::new(model);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| batching.embed_queries(&["a"]).unwrap());
            assert_eq!(called.recv().unwrap(), ["a"]);
            let others: Vec<_> = ["bb", "ccc", "dddd"]
                .map(|text| scope.spawn(|| batching.embed_queries(&[text]).unwrap()))
                .into();
            wait_until_in_line(&batching, 3);
            open.send(()).unwrap();
            assert_eq!(called.recv().unwrap().len(), 3);
            open.send(()).unwrap();
            assert_eq!(first.join().unwrap(), [[1.0]]);
            let lengths: Vec<_> = others
                .into_iter()
                .map(|other| other.join().unwrap()[0][0])
                .collect();
            assert_eq!(lengths, [2.0, 3.0, 4.0]);
        });
        assert!(!lock(&batching.line).busy);
    }

    #[test]
    fn nobody_waits_for_a_caller_that_panicked() {
        let (model, called, open) = Gated::new();
        let batching = BatchingEmbedder::new(model);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| batching.embed_queries(&["panic"]));
            called.recv().unwrap();
            let second = scope.spawn(|| batching.embed_queries(&["fine"]));
            wait_until_in_line(&batching, 1);
            open.send(()).unwrap();
            assert!(first.join().is_err());
            open.send(()).unwrap();
            assert_eq!(second.join().unwrap().unwrap(), [[4.0]]);
        });
    }

    #[test]
    fn a_text_is_embedded_once_while_it_is_kept() {
        let (model, called, open) = Gated::new();
        let counters = CacheCounters::default();
        let cache = CachedEmbedder::new(model, 2, counters.clone());
        for _ in 0..4 {
            open.send(()).unwrap();
        }
        assert_eq!(cache.embed_queries(&["a", "bb"]).unwrap(), [[1.0], [2.0]]);
        assert_eq!(
            cache.embed_queries(&["bb", "ccc", "a"]).unwrap(),
            [[2.0], [3.0], [1.0]]
        );
        assert_eq!(cache.embed_queries(&["bb"]).unwrap(), [[2.0]]);
        drop(cache);
        let calls: Vec<_> = called.iter().collect();
        assert_eq!(calls, [vec!["a", "bb"], vec!["ccc"], vec!["bb"]]);
        assert_eq!((counters.hits.get(), counters.misses.get()), (2, 4));
    }
}
