//! Tasks in the store: each node says how its own are, and any node shows and cancels them. A task
//! whose node died has failed once its lease ends.

use std::time::Duration;

use serde_json::Value;
use sqlx::Row;
use tokio::time::timeout;

use super::error::StoreError;
use super::row::text;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::shared::StoredTask;

/// How long a task belongs to a node without a word from it, and how often that says a word.
const LEASE_S: f64 = 15.0;
const REPORT: Duration = Duration::from_secs(2);
/// Most tasks that are kept.
const MAX_STORED: i64 = 10_000;
/// How long a task is kept that nobody has said anything of.
const KEPT: &str = "7 days";

impl PostgresStore {
    /// Says how a task of this node is. Returns whether it should be cancelled.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn save_task(
        &self,
        id: &str,
        catalog: &str,
        body: &Value,
        is_running: bool,
    ) -> Result<bool, StoreError> {
        let save = async {
            let is_cancelled = sqlx::query_scalar(
                "INSERT INTO tasks (id, catalog, body, node, leased_until)
                 VALUES ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))
                 ON CONFLICT (id) DO UPDATE
                 SET body = excluded.body, leased_until = excluded.leased_until, saved_at = now()
                 WHERE tasks.leased_until IS NOT NULL
                 RETURNING is_cancelled",
            )
            .bind(id)
            .bind(text(catalog))
            .bind(body.to_string())
            .bind(&self.node.instance)
            // NULL for a task that has ended: the sum with it is NULL too.
            .bind(is_running.then_some(LEASE_S))
            .fetch_optional(&self.pool)
            .await?;
            // No row: a late report of a task that has ended changes nothing.
            Ok(is_cancelled.unwrap_or(false))
        };
        self.ask(WRITE_LIMIT, save).await
    }

    /// Deletes tasks that ended long ago, and the oldest beyond a bound.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_tasks(&self) -> Result<(), StoreError> {
        let forget = async {
            let sql = format!("DELETE FROM tasks WHERE saved_at < now() - interval '{KEPT}'");
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .execute(&self.pool)
                .await?;
            // The oldest, since ids begin with the time. One that runs stays.
            sqlx::query(
                "DELETE FROM tasks WHERE id <= (SELECT id FROM tasks ORDER BY id DESC LIMIT 1 OFFSET $1)
                 AND (leased_until IS NULL OR leased_until < now())",
            )
            .bind(MAX_STORED)
            .execute(&self.pool)
            .await?;
            Ok(())
        };
        self.ask(WRITE_LIMIT, forget).await
    }

    /// The task with this id, of any node.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn find_task(&self, id: &str) -> Result<Option<StoredTask>, StoreError> {
        if id.contains('\0') {
            // PostgreSQL stores no text with this character, so nothing can be found.
            return Ok(None);
        }
        let find = async {
            let row = sqlx::query(
                "SELECT catalog, body, coalesce(leased_until < clock_timestamp(), false) AS is_lost
                 FROM tasks WHERE id = $1",
            )
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
            let Some(row) = row else {
                return Ok(None);
            };
            let body: String = row.try_get("body")?;
            Ok(Some(StoredTask {
                catalog: row.try_get("catalog")?,
                body: serde_json::from_str(&body).unwrap_or_default(),
                is_lost: row.try_get("is_lost")?,
            }))
        };
        self.ask(READ_LIMIT, find).await
    }

    /// Asks the node of a task to cancel it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn cancel_task(&self, id: &str) -> Result<(), StoreError> {
        let cancel = async {
            let mut transaction = self.pool.begin().await?;
            sqlx::query("UPDATE tasks SET is_cancelled = true WHERE id = $1")
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            self.tell(&mut transaction, &message(id)).await?;
            Ok(transaction.commit().await?)
        };
        self.ask(WRITE_LIMIT, cancel).await
    }

    /// Returns when a task of this node should be reported again; sooner when it is to be cancelled.
    pub async fn report_due(&self, id: &str) {
        let (mut told, wanted) = (self.listen_in(), message(id));
        let heard = async {
            // A receiver that lagged behind returns an error, and then looks too.
            while told.recv().await.is_ok_and(|message| message != wanted) {}
        };
        let _ = timeout(REPORT, heard).await;
    }
}

/// What nodes are told of a task that should be cancelled.
fn message(id: &str) -> String {
    format!("cancel {id}")
}
