//! Feedback in the store, with the secret that signs the answers of all nodes: what one node has
//! answered, another takes feedback on.

use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use super::row::text;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::feedback::{FeedbackError, FeedbackRecord, FeedbackTable, by_query};

/// The feedback of a store.
pub struct SharedFeedback {
    store: Arc<PostgresStore>,
}

impl SharedFeedback {
    /// The feedback of this store.
    pub fn new(store: Arc<PostgresStore>) -> Self {
        SharedFeedback { store }
    }

    fn ask<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, FeedbackError> {
        match self.store.runtime.block_on(self.store.ask(limit, work)) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(FeedbackError::Unavailable {
                reason: error.to_string(),
            }),
        }
    }
}

impl FeedbackTable for SharedFeedback {
    fn called(&self, catalog: &str) -> Result<Vec<(String, Vec<String>)>, FeedbackError> {
        self.ask(READ_LIMIT, async {
            // Sorted by bytes as in SQLite, so that the result does not depend on the database.
            let pairs: Vec<(String, String)> = sqlx::query_as(
                "SELECT DISTINCT trim(query) COLLATE \"C\", tool COLLATE \"C\" FROM feedback
                 WHERE catalog = $1 AND outcome <> 'not_helpful' AND trim(coalesce(query, '')) <> ''
                 ORDER BY 1, 2",
            )
            .bind(text(catalog))
            .fetch_all(&self.store.pool)
            .await?;
            by_query(pairs.into_iter().map(Ok))
        })
    }

    fn forget(&self, catalog: &str) -> Result<(), FeedbackError> {
        self.ask(WRITE_LIMIT, async {
            sqlx::query("DELETE FROM feedback WHERE catalog = $1")
                .bind(text(catalog))
                .execute(&self.store.pool)
                .await?;
            Ok(())
        })
    }

    fn insert(
        &self,
        catalog: &str,
        record: &FeedbackRecord,
        at_ms: i64,
        max_records: usize,
    ) -> Result<(), FeedbackError> {
        self.ask(WRITE_LIMIT, async {
            let mut transaction = self.store.pool.begin().await?;
            sqlx::query(
                "INSERT INTO feedback (catalog, at_ms, request_id, tool, outcome, query)
                 VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(text(catalog))
            .bind(at_ms)
            .bind(text(&record.request_id))
            .bind(text(&record.tool))
            .bind(record.outcome.name())
            .bind(record.query.as_deref().map(text))
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "DELETE FROM feedback WHERE catalog = $1 AND id <= (
                     SELECT id FROM feedback WHERE catalog = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
            )
            .bind(text(catalog))
            .bind(max_records as i64)
            .execute(&mut *transaction)
            .await?;
            Ok(transaction.commit().await?)
        })
    }
}

impl PostgresStore {
    /// The secret that signs the answers of all nodes.
    pub(super) async fn signing_secret(&self) -> Result<[u8; 32], StoreError> {
        let secret: Vec<u8> = sqlx::query_scalar("SELECT secret FROM signer")
            .fetch_one(&self.pool)
            .await?;
        match <[u8; 32]>::try_from(secret) {
            Ok(secret) => Ok(secret),
            Err(secret) => Err(StoreError::Refused(format!(
                "the store has a signing secret of {} bytes, it must have 32",
                secret.len()
            ))),
        }
    }
}
