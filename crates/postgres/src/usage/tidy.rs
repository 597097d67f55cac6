//! Removes what is too old, and what is left of deleted catalogs, in bounded steps.

use std::time::SystemTime;

use toolscout_base::clock::{day_of, unix_ms};

use super::OwnRecord;
use crate::error::StoreError;
use crate::{PostgresStore, WRITE_LIMIT};

/// Rows that a statement removes.
const STEP: i64 = 10_000;
/// Most statements for each table; the rest follows with the next look.
const MAX_STEPS: usize = 50;
/// The tables with a row for each day.
const BY_DAY: [&str; 3] = ["usage_tools", "usage_callers", "usage_shadows"];
const MS_A_DAY: i64 = 24 * 3600 * 1000;

impl PostgresStore {
    /// Removes days that this node no longer has, and those of every node beyond the days that it keeps: a
    /// node that is gone for good removes nothing.
    pub(super) async fn remove_old_usage(
        &self,
        record: &OwnRecord,
        node: i32,
    ) -> Result<(), StoreError> {
        let today = day_of(unix_ms(SystemTime::now()));
        let first = today - i64::from(record.local().keep_days) + 1;
        // A record with too many rows gives up its oldest days before they are too old.
        let own = record.with(|database| database.days(0)).await?;
        let own = own.first().copied().unwrap_or(first);
        for table in BY_DAY {
            let rule = "day < $1 OR (node = $2 AND day < $3)";
            self.remove_rows(table, rule, [first, node.into(), own])
                .await?;
        }
        let rule = "at_ms < $1 OR (node = $2 AND at_ms < $3)";
        let times = [first * MS_A_DAY, node.into(), own * MS_A_DAY];
        self.remove_rows("usage_missed", rule, times).await?;
        Ok(())
    }

    /// Removes rows of catalogs that were deleted.
    pub(super) async fn remove_gone_usage(&self) -> Result<(), StoreError> {
        let read = async {
            let gone: Option<i64> = sqlx::query_scalar("SELECT catalog FROM usage_gone LIMIT 1")
                .fetch_optional(&self.pool)
                .await?;
            Ok(gone)
        };
        let Some(gone) = self.ask(WRITE_LIMIT, read).await? else {
            return Ok(());
        };
        let mut is_done = true;
        for table in BY_DAY
            .into_iter()
            .chain(["usage_missed", "usage_forgotten"])
        {
            // All three numbers are used, so that each statement has the same parameters.
            let rule = "catalog = $1 AND $2::bigint = $3::bigint";
            is_done &= self.remove_rows(table, rule, [gone, 0, 0]).await?;
        }
        if is_done {
            let forget = async {
                sqlx::query("DELETE FROM usage_gone WHERE catalog = $1")
                    .bind(gone)
                    .execute(&self.pool)
                    .await?;
                Ok(())
            };
            self.ask(WRITE_LIMIT, forget).await?;
        }
        Ok(())
    }

    /// Removes the rows of a rule. False if some are left.
    async fn remove_rows(
        &self,
        table: &str,
        rule: &str,
        numbers: [i64; 3],
    ) -> Result<bool, StoreError> {
        // Both are texts of this module.
        let statement = format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {rule} LIMIT {STEP}))"
        );
        for _ in 0..MAX_STEPS {
            let remove = async {
                let [one, two, three] = numbers;
                let removed = sqlx::query(sqlx::AssertSqlSafe(statement.clone()))
                    .bind(one)
                    .bind(two)
                    .bind(three)
                    .execute(&self.pool)
                    .await?;
                Ok(removed.rows_affected())
            };
            if self.ask(WRITE_LIMIT, remove).await? < STEP as u64 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
