//! Vectors of slow embedders are computed once for all nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use toolscout::store::{PostgresStore, SharedEmbedder};
use toolscout_index::embed::Hashing;
use toolscout_index::{Embedder, EmbedderProfile, Result};

use super::postgres::Postgres;

/// Takes its time, and counts.
struct Slow {
    inner: Hashing,
    texts: Arc<AtomicUsize>,
}

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("slow'; DROP TABLE vectors; --", 32)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.texts.fetch_add(texts.len(), Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        self.inner.embed_tools(texts)
    }
}

/// As the writer of a catalog does: a batch that another node is embedding is tried again.
fn embed_batch(node: &SharedEmbedder, batch: &[&str]) -> Vec<Vec<f32>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match node.embed_tools(batch) {
            Ok(vectors) => return vectors,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_text_is_embedded_by_one_node() {
    let mut postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let computed = Arc::new(AtomicUsize::new(0));
    let node = || {
        let store = PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap();
        let slow = Slow {
            inner: Hashing::new(32),
            texts: Arc::clone(&computed),
        };
        SharedEmbedder::new(Arc::new(slow), store)
    };
    let nodes = [node(), node(), node()];
    let texts: Vec<String> = (0..320).map(|number| format!("text {number}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = Hashing::new(32).embed_tools(&texts).unwrap();
    let embed = |node: &SharedEmbedder| -> Vec<Vec<f32>> {
        let batches = texts.chunks(32);
        batches.flat_map(|batch| embed_batch(node, batch)).collect()
    };
    std::thread::scope(|scope| {
        let embedding = nodes.each_ref().map(|node| scope.spawn(|| embed(node)));
        for vectors in embedding {
            assert_eq!(vectors.join().unwrap(), expected);
        }
    });
    assert_eq!(computed.load(Ordering::SeqCst), texts.len());
    assert_eq!(postgres.query("SELECT count(*) FROM toolscout.claims"), "0");

    // A vector that is not what was stored is computed again, by one node and once.
    for damage in [
        "set_byte(vector, 0, get_byte(vector, 0) # 1)",
        "substr(vector, 1, 40)",
        "vector || '\\x00'",
        "''",
    ] {
        postgres.query(&format!("UPDATE toolscout.vectors SET vector = {damage}"));
        let before = computed.load(Ordering::SeqCst);
        for node in &nodes {
            assert_eq!(node.embed_tools(&texts[..3]).unwrap(), expected[..3]);
        }
        let again = computed.load(Ordering::SeqCst) - before;
        assert_eq!(again, 3, "after {damage}");
    }
    let kept = postgres.query("SELECT count(*) FROM toolscout.vectors WHERE vector <> ''");
    assert_eq!(kept, "3");
    // A claim of a node that is gone counts for nothing.
    postgres.query("TRUNCATE toolscout.vectors");
    postgres.query(
        "INSERT INTO toolscout.claims SELECT 'slow''; DROP TABLE vectors; --', 32, '\\x00', 'gone', now() - interval '1 s'",
    );
    assert_eq!(nodes[0].embed_tools(&texts[..3]).unwrap(), expected[..3]);
    // Without the store a node helps itself.
    postgres.stop();
    assert_eq!(nodes[1].embed_tools(&texts[..3]).unwrap(), expected[..3]);
}
