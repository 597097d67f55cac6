//! Which node lets a model write texts, and the tokens of the day. One writes at a time, since several
//! would pay for the same texts.

use super::error::StoreError;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// How long a node has the right without a word from it. An answer may take five minutes.
const LEASE: &str = "10 minutes";
/// The tokens of this day, in UTC.
const TODAY: &str = "CASE WHEN day = (now() AT TIME ZONE 'UTC')::date THEN tokens ELSE 0 END";

impl PostgresStore {
    /// Takes the right to write. Returns the tokens of the day; `None` while another node has it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn begin_enriching(&self) -> Result<Option<usize>, StoreError> {
        self.claim(0, "(node IS NULL OR leased_until < now() OR node = $1)")
            .await
    }

    /// Counts tokens, and keeps the right. False once another node has it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_enriching(&self, tokens: usize) -> Result<bool, StoreError> {
        let kept = self.claim(tokens, "node = $1").await?;
        Ok(kept.is_some())
    }

    /// Gives the right back.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end_enriching(&self) -> Result<(), StoreError> {
        let end = async {
            sqlx::query("UPDATE enriching SET node = NULL, leased_until = NULL WHERE node = $1")
                .bind(&self.node.instance)
                .execute(&self.pool)
                .await?;
            Ok(())
        };
        self.ask(WRITE_LIMIT, end).await
    }

    /// The tokens of the day, of all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn enriching_tokens(&self) -> Result<usize, StoreError> {
        let read = async {
            let sql = format!("SELECT {TODAY} FROM enriching");
            let tokens: Option<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .fetch_optional(&self.pool)
                .await?;
            Ok(tokens.unwrap_or(0) as usize)
        };
        self.ask(READ_LIMIT, read).await
    }

    async fn claim(&self, tokens: usize, allowed: &str) -> Result<Option<usize>, StoreError> {
        let claim = async {
            // One statement, so that only one of two nodes that ask at the same time gets the right.
            let sql = format!(
                "UPDATE enriching
                 SET node = $1, leased_until = now() + interval '{LEASE}', tokens = {TODAY} + $2,
                     day = (now() AT TIME ZONE 'UTC')::date
                 WHERE {allowed} RETURNING tokens"
            );
            let counted: Option<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .bind(&self.node.instance)
                .bind(tokens as i64)
                .fetch_optional(&self.pool)
                .await?;
            Ok(counted.map(|tokens| tokens as usize))
        };
        self.ask(WRITE_LIMIT, claim).await
    }
}
