//! Forgets what was removed long ago. Nodes learn of a removal by what is left of the tool; a node that
//! was away for longer makes its copy anew.

use std::time::{Duration, Instant};

use super::error::StoreError;
use super::{PostgresStore, WRITE_LIMIT};

/// How often a node looks for what can be forgotten.
const PAUSE: Duration = Duration::from_secs(600);
/// Most catalogs that are tidied at a time; the others are a little later.
const MAX_CATALOGS: i64 = 100;

impl PostgresStore {
    /// Forgets, if that is due.
    pub(super) async fn forget_removed(&self) -> Result<(), StoreError> {
        if !self.hub.is_due(Instant::now(), PAUSE) {
            return Ok(());
        }
        self.ask(WRITE_LIMIT, self.forget()).await.map(drop)
    }

    /// Forgets removed tools and generations from before the days that the store remembers. Returns how
    /// many tools that were.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget(&self) -> Result<u64, StoreError> {
        // The newest of the old generations stays, since a node may still be at it and ask what changed
        // after it.
        let old: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT catalog, max(generation) FROM generations
             WHERE committed_at < now() - make_interval(days => $1)
             GROUP BY catalog HAVING count(*) > 1 ORDER BY catalog LIMIT $2",
        )
        .bind(self.memory_days as i32)
        .bind(MAX_CATALOGS)
        .fetch_all(&self.pool)
        .await?;
        let mut forgotten = 0;
        for (catalog, generation) in old {
            forgotten += self.forget_until(catalog, generation).await?;
        }
        Ok(forgotten)
    }

    /// A node that has this generation needs to know what was removed after it, and none before.
    async fn forget_until(&self, catalog: i64, generation: i64) -> Result<u64, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // The same lock as a write takes, so that the two cannot deadlock. A catalog that is being
        // written is skipped until the next time.
        let is_locked: Option<i32> =
            sqlx::query_scalar("SELECT 1 FROM catalogs WHERE id = $1 FOR UPDATE SKIP LOCKED")
                .bind(catalog)
                .fetch_optional(&mut *transaction)
                .await?;
        if is_locked.is_none() {
            return Ok(0);
        }
        let removed = sqlx::query(
            "DELETE FROM tools WHERE catalog = $1 AND generation <= $2 AND json IS NULL",
        )
        .bind(catalog)
        .bind(generation)
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM enrichments WHERE catalog = $1 AND generation <= $2 AND texts IS NULL",
        )
        .bind(catalog)
        .bind(generation)
        .execute(&mut *transaction)
        .await?;
        sqlx::query("DELETE FROM generations WHERE catalog = $1 AND generation < $2")
            .bind(catalog)
            .bind(generation)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(removed.rows_affected())
    }
}
