//! Vectors of slow embedders in the store: a text is embedded by one node, and all others read its
//! vector. So their answers are the same, even where their processors compute differently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolscout_index::tools_db::{opened_vector, sealed_vector, text_hash};
use toolscout_index::{Embedder, EmbedderProfile, Error, Result};

use super::error::StoreError;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// How long a claim counts. It is renewed while its texts are embedded, so it ends only where the
/// node is gone.
const LEASE_S: f64 = 60.0;
const RENEWAL: Duration = Duration::from_secs(20);
/// How long a batch waits for texts that another node has claimed, and how often it looks. The
/// writer of the catalog waits as long; then the batch is tried again later.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);

pub(super) type TextHash = [u8; 16];

/// An embedder whose vectors of tools' texts are those of the store. Requests are embedded as ever.
/// While the store is away, so are the texts of tools.
pub struct SharedEmbedder {
    inner: Arc<dyn Embedder>,
    store: Arc<PostgresStore>,
}

impl SharedEmbedder {
    /// Wraps a slow embedder.
    pub fn new(inner: Arc<dyn Embedder>, store: Arc<PostgresStore>) -> Self {
        SharedEmbedder { inner, store }
    }

    /// The vectors of these texts, from the store or computed.
    async fn shared(
        &self,
        texts: &HashMap<TextHash, &str>,
    ) -> Result<HashMap<TextHash, Vec<f32>>, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        let mut found = HashMap::new();
        loop {
            let missing = missing(texts, &found);
            found.extend(self.stored(&missing).await?);
            let missing = self::missing(texts, &found);
            if missing.is_empty() {
                return Ok(found);
            }
            // Only claimed texts are embedded here, so that no two nodes embed the same text.
            let mut claimed = self.claim(&missing).await?;
            if !claimed.is_empty() {
                // The former holder of the claims may have stored vectors since they were looked up.
                let late = self.stored(&claimed).await?;
                if !late.is_empty() {
                    let hashes: Vec<TextHash> = late.keys().copied().collect();
                    self.release(&hashes).await?;
                    claimed.retain(|hash| !late.contains_key(hash));
                    found.extend(late);
                }
                if !claimed.is_empty() {
                    found.extend(self.compute(texts, claimed).await?);
                }
            } else if Instant::now() >= deadline {
                let texts = missing.len();
                return Err(StoreError::Catalog(Error::Embedder {
                    model: self.id().to_owned(),
                    reason: format!("{texts} texts are being embedded by another node"),
                }));
            } else {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// The vectors that the store has. Damaged ones are deleted, so that they are computed again.
    async fn stored(&self, texts: &[TextHash]) -> Result<HashMap<TextHash, Vec<f32>>, StoreError> {
        let read = self.store.ask(READ_LIMIT, self.read(texts)).await?;
        if !read.damaged.is_empty() {
            let vectors = read.damaged.len();
            tracing::warn!(
                embedder = self.id(),
                vectors,
                "vectors of the store are damaged and are computed again"
            );
            let delete = self.delete(&read.damaged);
            self.store.ask(READ_LIMIT, delete).await?;
        }
        Ok(read.intact)
    }

    async fn read(&self, texts: &[TextHash]) -> Result<ReadVectors, StoreError> {
        let texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
        let rows: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(
            "SELECT text, vector FROM vectors
             WHERE embedder = $1 AND dimensions = $2 AND text = ANY($3)",
        )
        .bind(self.id())
        .bind(self.dimensions() as i32)
        .bind(texts)
        .fetch_all(&self.store.pool)
        .await?;
        let mut read = ReadVectors::default();
        for (text, sealed) in rows {
            let Ok(hash) = TextHash::try_from(text.as_slice()) else {
                continue;
            };
            match opened(self.id(), self.dimensions(), &hash, &sealed) {
                Some(vector) => drop(read.intact.insert(hash, vector)),
                None => read.damaged.push((text, sealed)),
            }
        }
        Ok(read)
    }

    /// Deletes these vectors where they are still what was read.
    async fn delete(&self, damaged: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreError> {
        let (texts, vectors): (Vec<&[u8]>, Vec<&[u8]>) = damaged
            .iter()
            .map(|(text, vector)| (text.as_slice(), vector.as_slice()))
            .unzip();
        sqlx::query(
            "DELETE FROM vectors WHERE embedder = $1 AND dimensions = $2
               AND (text, vector) IN (SELECT * FROM unnest($3::bytea[], $4::bytea[]))",
        )
        .bind(self.id())
        .bind(self.dimensions() as i32)
        .bind(texts)
        .bind(vectors)
        .execute(&self.store.pool)
        .await?;
        Ok(())
    }

    /// Those of the texts that this node is to embed.
    async fn claim(&self, texts: &[TextHash]) -> Result<Vec<TextHash>, StoreError> {
        let claim = async {
            // Sorted, and skipping rows that another node holds, so that two nodes cannot deadlock.
            let mut texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
            texts.sort_unstable();
            let new = "INSERT INTO claims (embedder, dimensions, text, node, until)
                 SELECT $1, $2, text, $3, now() + make_interval(secs => $4)
                 FROM unnest($5::bytea[]) AS text ORDER BY text
                 ON CONFLICT DO NOTHING RETURNING text";
            let old = "UPDATE claims SET node = $3, until = now() + make_interval(secs => $4)
                 WHERE embedder = $1 AND dimensions = $2 AND text IN (
                     SELECT text FROM claims
                     WHERE embedder = $1 AND dimensions = $2 AND text = ANY($5)
                       AND (until < now() OR node = $3)
                     FOR UPDATE SKIP LOCKED
                 ) RETURNING text";
            let mut claimed: Vec<Vec<u8>> = Vec::new();
            // Old claims first: new ones would otherwise be returned by both statements.
            for sql in [old, new] {
                let rows = sqlx::query_scalar(sql)
                    .bind(self.id())
                    .bind(self.dimensions() as i32)
                    .bind(&self.store.node.instance)
                    .bind(LEASE_S)
                    .bind(&texts)
                    .fetch_all(&self.store.pool)
                    .await?;
                claimed.extend(rows);
            }
            let hashes = claimed.into_iter().map(TextHash::try_from);
            Ok(hashes.filter_map(Result::ok).collect())
        };
        self.store.ask(READ_LIMIT, claim).await
    }

    /// Embeds what this node has claimed, and gives it to the others.
    async fn compute(
        &self,
        texts: &HashMap<TextHash, &str>,
        claimed: Vec<TextHash>,
    ) -> Result<HashMap<TextHash, Vec<f32>>, StoreError> {
        let renewing = self.keep_claims(&claimed);
        let batch: Vec<&str> = claimed
            .iter()
            .filter_map(|hash| texts.get(hash).copied())
            .collect();
        let computed = self.inner.embed_tools(&batch);
        renewing.abort();
        let vectors = match computed {
            Ok(vectors) => vectors,
            Err(error) => {
                // Another node may succeed.
                let _ = self.release(&claimed).await;
                return Err(error.into());
            }
        };
        let vectors: HashMap<TextHash, Vec<f32>> = claimed.into_iter().zip(vectors).collect();
        self.upload(&vectors).await
    }

    fn keep_claims(&self, claimed: &[TextHash]) -> tokio::task::JoinHandle<()> {
        let store = Arc::clone(&self.store);
        let (embedder, dimensions) = (self.id().to_owned(), self.dimensions() as i32);
        let texts: Vec<Vec<u8>> = claimed.iter().map(|hash| hash.to_vec()).collect();
        self.store.runtime.spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                let renew = async {
                    sqlx::query(
                        "UPDATE claims SET until = now() + make_interval(secs => $5)
                         WHERE embedder = $1 AND dimensions = $2 AND text = ANY($3) AND node = $4",
                    )
                    .bind(&embedder)
                    .bind(dimensions)
                    .bind(&texts)
                    .bind(&store.node.instance)
                    .bind(LEASE_S)
                    .execute(&store.pool)
                    .await?;
                    Ok(())
                };
                // If a claim is lost, another node embeds the same texts, and nothing else happens.
                let _ = store.ask(READ_LIMIT, renew).await;
            }
        })
    }

    async fn release(&self, texts: &[TextHash]) -> Result<(), StoreError> {
        let texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
        let release = async {
            sqlx::query(
                "DELETE FROM claims
                 WHERE embedder = $1 AND dimensions = $2 AND text = ANY($3) AND node = $4",
            )
            .bind(self.id())
            .bind(self.dimensions() as i32)
            .bind(texts)
            .bind(&self.store.node.instance)
            .execute(&self.store.pool)
            .await?;
            Ok(())
        };
        self.store.ask(READ_LIMIT, release).await
    }

    /// Stores vectors. Where another node was first, its vectors are returned in place of these.
    async fn upload(
        &self,
        vectors: &HashMap<TextHash, Vec<f32>>,
    ) -> Result<HashMap<TextHash, Vec<f32>>, StoreError> {
        // Sorted, so that two nodes that store the same texts cannot deadlock.
        let mut texts: Vec<TextHash> = vectors.keys().copied().collect();
        texts.sort_unstable();
        let mut sealed = Vec::with_capacity(texts.len());
        for text in &texts {
            sealed.push(self::sealed(self.id(), text, &vectors[text]));
        }
        let upload = async {
            let texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
            let stored = sqlx::query(
                "INSERT INTO vectors (embedder, dimensions, text, vector)
                 SELECT $1, $2, * FROM unnest($3::bytea[], $4::bytea[])
                 ON CONFLICT DO NOTHING",
            )
            .bind(self.id())
            .bind(self.dimensions() as i32)
            .bind(texts)
            .bind(&sealed)
            .execute(&self.store.pool)
            .await?;
            Ok(stored.rows_affected() as usize)
        };
        let stored = self.store.ask(WRITE_LIMIT, upload).await?;
        // The claims are no longer needed. If this fails, they expire.
        let _ = self.release(&texts).await;
        let mut all = vectors.clone();
        // Some were stored by another node. All nodes use those, since processors may compute
        // differently.
        if stored < texts.len() {
            all.extend(self.stored(&texts).await?);
        }
        Ok(all)
    }
}

/// The texts whose vectors were not found.
fn missing(texts: &HashMap<TextHash, &str>, found: &HashMap<TextHash, Vec<f32>>) -> Vec<TextHash> {
    let mut missing: Vec<TextHash> = texts.keys().copied().collect();
    missing.retain(|hash| !found.contains_key(hash));
    missing
}

/// What the store has for some texts.
#[derive(Default)]
struct ReadVectors {
    intact: HashMap<TextHash, Vec<f32>>,
    /// Text and vector of rows that are not what was stored.
    damaged: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A vector as it is stored.
pub(super) fn sealed(embedder: &str, text: &TextHash, vector: &[f32]) -> Vec<u8> {
    sealed_vector(vector, &[embedder.as_bytes(), text])
}

/// The vector that [`sealed`] made; `None` where it is not what was stored.
pub(super) fn opened(
    embedder: &str,
    dimensions: usize,
    text: &TextHash,
    sealed: &[u8],
) -> Option<Vec<f32>> {
    opened_vector(sealed, dimensions, &[embedder.as_bytes(), text])
}

impl Embedder for SharedEmbedder {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_queries_within(
        &self,
        texts: &[&str],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries_within(texts, limit)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let hashes: Vec<TextHash> = texts.iter().map(|text| text_hash(text)).collect();
        let by_hash: HashMap<TextHash, &str> =
            hashes.iter().copied().zip(texts.iter().copied()).collect();
        let vectors = match self.store.runtime.block_on(self.shared(&by_hash)) {
            Ok(vectors) => vectors,
            Err(StoreError::Catalog(error)) => return Err(error),
            // The store cannot be asked, so this node embeds for itself.
            Err(_) => return self.inner.embed_tools(texts),
        };
        let vectors = hashes.iter().filter_map(|hash| vectors.get(hash).cloned());
        Ok(vectors.collect())
    }

    fn batch(&self) -> usize {
        self.inner.batch()
    }
}
