//! Adds up what nodes recorded. A node that reads leaves out its own rows: its record is newer.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::postgres::PgRow;
use toolscout_base::telemetry::latencies::{BOUNDS_S, Buckets};
use toolscout_gate::usage::missed::{MissedRequest, Why};
use toolscout_gate::usage::shadow::ShadowFigures;
use toolscout_gate::usage::{CallerDay, CallerFigures, CallerKey, ToolFigures};
use toolscout_state::shared::{UseOfNodes, UseOfOthers};

use crate::error::StoreError;
use crate::row::{text, unsigned};
use crate::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// Most missed requests that are read, the newest.
const MAX_MISSED: i64 = 10_000;

impl PostgresStore {
    /// The days since this one on which other nodes recorded use.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage_nodes(&self, of: &UseOfOthers) -> Result<UseOfNodes, StoreError> {
        let read = async {
            let rows: Vec<Vec<i32>> = sqlx::query_scalar(
                "SELECT ARRAY(SELECT day FROM unnest(days) AS day WHERE day >= $2) FROM usage_nodes
                 WHERE record IS DISTINCT FROM $1",
            )
            .bind(&of.record)
            .bind(of.since as i32)
            .fetch_all(&self.pool)
            .await?;
            let mut nodes = UseOfNodes::default();
            for days in rows {
                nodes.nodes += usize::from(!days.is_empty());
                nodes.days.extend(days.into_iter().map(i64::from));
            }
            Ok(nodes)
        };
        self.ask(READ_LIMIT, read).await
    }

    /// The use of the tools of a catalog on other nodes, by their ids.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage_tools(
        &self,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<BTreeMap<String, ToolFigures>, StoreError> {
        let mut buckets = Vec::new();
        for bucket in 1..=BOUNDS_S.len() + 1 {
            buckets.push(format!("coalesce(sum(latencies[{bucket}]), 0)::bigint"));
        }
        let sums = format!(
            "SELECT tool, sum(searches)::bigint AS searches, sum(first)::bigint AS first,
                 sum(places)::bigint AS places, sum(more)::bigint AS more, sum(injections)::bigint AS injections,
                 sum(calls)::bigint AS calls, sum(successes)::bigint AS successes,
                 ARRAY[{}] AS latencies, sum(latency_sum_s) AS latency_sum_s,
                 sum(definition_tokens)::bigint AS definition_tokens,
                 sum(result_tokens)::bigint AS result_tokens,
                 coalesce(min(nullif(first_ms, 0)), 0) AS first_ms, max(last_ms) AS last_ms
             FROM usage_tools WHERE {OF_CATALOG} GROUP BY tool",
            buckets.join(", ")
        );
        let errors = format!(
            "SELECT tool, code, sum(times::bigint)::bigint AS times
             FROM usage_tools, jsonb_each_text(errors) AS failed (code, times)
             WHERE {OF_CATALOG} AND errors IS NOT NULL GROUP BY tool, code"
        );
        let read = async {
            let mut tools = BTreeMap::new();
            for row in self.usage_rows(sums, of, catalog).await? {
                tools.insert(row.try_get("tool")?, tool(&row)?);
            }
            for row in self.usage_rows(errors, of, catalog).await? {
                let tool: String = row.try_get("tool")?;
                let figures: &mut ToolFigures = tools.entry(tool).or_default();
                figures
                    .errors
                    .insert(row.try_get("code")?, unsigned(&row, "times")?);
            }
            Ok(tools)
        };
        self.ask(READ_LIMIT, read).await
    }

    /// What callers did in all catalogs on other nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage_callers(&self, of: &UseOfOthers) -> Result<Vec<CallerDay>, StoreError> {
        let read = async {
            let rows = sqlx::query(
                "SELECT day, catalogs.name AS name, profile, who, sum(usage_callers.searches)::bigint AS searches,
                     sum(good)::bigint AS good, sum(possible)::bigint AS possible, sum(none)::bigint AS none,
                     sum(calls)::bigint AS calls, sum(errors)::bigint AS errors
                 FROM usage_callers
                 JOIN catalogs ON catalogs.id = catalog
                 JOIN usage_nodes ON usage_nodes.node = usage_callers.node
                 WHERE record IS DISTINCT FROM $1 AND day >= $2
                 GROUP BY day, catalogs.name, profile, who ORDER BY day, catalogs.name, profile, who",
            )
            .bind(&of.record)
            .bind(of.since as i32)
            .fetch_all(&self.pool)
            .await?;
            rows.iter().map(caller).collect()
        };
        self.ask(READ_LIMIT, read).await
    }

    /// The newest requests to a catalog that no tool served, of other nodes, in the order of time.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage_missed(
        &self,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<Vec<MissedRequest>, StoreError> {
        let select = format!(
            "SELECT * FROM (
                 SELECT at_ms, why, request, nearest FROM usage_missed
                 WHERE catalog = (SELECT id FROM catalogs WHERE name = $1) AND at_ms >= $2::bigint * 86400000
                     AND node NOT IN (SELECT node FROM usage_nodes WHERE record = $3)
                 ORDER BY at_ms DESC LIMIT {MAX_MISSED}) AS newest
             ORDER BY at_ms"
        );
        let read = async {
            let rows = self.usage_rows(select, of, catalog).await?;
            rows.iter().map(missed).collect()
        };
        self.ask(READ_LIMIT, read).await
    }

    /// The figures of a shadow of a catalog on other nodes, by day.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn usage_shadow(
        &self,
        of: &UseOfOthers,
        catalog: &str,
        shadow: &str,
    ) -> Result<Vec<(i64, ShadowFigures)>, StoreError> {
        let read = async {
            let select = format!(
                "SELECT * FROM usage_shadows WHERE {OF_CATALOG} AND shadow = $4 ORDER BY day"
            );
            let rows = sqlx::query(sqlx::AssertSqlSafe(select))
                .bind(text(catalog))
                .bind(of.since as i32)
                .bind(&of.record)
                .bind(text(shadow))
                .fetch_all(&self.pool)
                .await?;
            rows.iter().map(shadow_day).collect()
        };
        self.ask(READ_LIMIT, read).await
    }

    /// Deletes the requests to a catalog that no tool served, of all nodes. Returns how many other nodes had
    /// sent.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_missed(
        &self,
        record: Option<&str>,
        catalog: &str,
    ) -> Result<usize, StoreError> {
        let forget = async {
            let mut transaction = self.pool.begin().await?;
            // Each node deletes its own when it sees the number.
            sqlx::query(
                "INSERT INTO usage_forgotten (catalog, times) SELECT id, 1 FROM catalogs WHERE name = $1
                 ON CONFLICT (catalog) DO UPDATE SET times = usage_forgotten.times + 1",
            )
            .bind(text(catalog))
            .execute(&mut *transaction)
            .await?;
            let others: i64 = sqlx::query_scalar(
                "WITH deleted AS (
                     DELETE FROM usage_missed WHERE catalog = (SELECT id FROM catalogs WHERE name = $1)
                     RETURNING node
                 )
                 SELECT count(*) FROM deleted WHERE node NOT IN (SELECT node FROM usage_nodes WHERE record = $2)",
            )
            .bind(text(catalog))
            .bind(record)
            .fetch_one(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(others as usize)
        };
        self.ask(WRITE_LIMIT, forget).await
    }

    async fn usage_rows(
        &self,
        // One of this module.
        select: String,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<Vec<PgRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(select))
            .bind(text(catalog))
            .bind(of.since as i32)
            .bind(&of.record)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows)
    }
}

/// Rows of the catalog `$1` since the day `$2`, but for those of the record `$3`.
const OF_CATALOG: &str = "catalog = (SELECT id FROM catalogs WHERE name = $1) AND day >= $2
     AND node NOT IN (SELECT node FROM usage_nodes WHERE record = $3)";

fn tool(row: &PgRow) -> Result<ToolFigures, StoreError> {
    let counts: Vec<i64> = row.try_get("latencies")?;
    let mut latency = Buckets {
        sum_s: row.try_get("latency_sum_s")?,
        ..Buckets::default()
    };
    for (bucket, count) in latency.counts.iter_mut().zip(counts) {
        *bucket = count as u64;
    }
    Ok(ToolFigures {
        searches: unsigned(row, "searches")?,
        first: unsigned(row, "first")?,
        places: unsigned(row, "places")?,
        more: unsigned(row, "more")?,
        injections: unsigned(row, "injections")?,
        calls: unsigned(row, "calls")?,
        successes: unsigned(row, "successes")?,
        errors: BTreeMap::new(),
        latency,
        definition_tokens: unsigned(row, "definition_tokens")?,
        result_tokens: unsigned(row, "result_tokens")?,
        first_ms: row.try_get("first_ms")?,
        last_ms: row.try_get("last_ms")?,
    })
}

fn caller(row: &PgRow) -> Result<CallerDay, StoreError> {
    let day: i32 = row.try_get("day")?;
    Ok(CallerDay {
        day: day.into(),
        key: CallerKey {
            catalog: row.try_get("name")?,
            profile: row.try_get("profile")?,
            who: row.try_get("who")?,
        },
        figures: CallerFigures {
            searches: unsigned(row, "searches")?,
            good: unsigned(row, "good")?,
            possible: unsigned(row, "possible")?,
            none: unsigned(row, "none")?,
            calls: unsigned(row, "calls")?,
            errors: unsigned(row, "errors")?,
        },
    })
}

fn missed(row: &PgRow) -> Result<MissedRequest, StoreError> {
    let why: String = row.try_get("why")?;
    Ok(MissedRequest {
        at_ms: row.try_get("at_ms")?,
        // A reason that this version does not know.
        why: Why::named(&why).unwrap_or(Why::NoMatch),
        text: row.try_get("request")?,
        nearest: row.try_get("nearest")?,
    })
}

fn shadow_day(row: &PgRow) -> Result<(i64, ShadowFigures), StoreError> {
    let day: i32 = row.try_get("day")?;
    let figures = ShadowFigures {
        searches: unsigned(row, "searches")?,
        overlap: row.try_get("overlap")?,
        overlap_squares: row.try_get("overlap_squares")?,
        same_first: unsigned(row, "same_first")?,
        calls: unsigned(row, "calls")?,
        absent: unsigned(row, "absent")?,
        live_first: unsigned(row, "live_first")?,
        second_first: unsigned(row, "second_first")?,
        first_moved: unsigned(row, "first_moved")?,
        live_reciprocal: row.try_get("live_reciprocal")?,
        second_reciprocal: row.try_get("second_reciprocal")?,
        reciprocal_squares: row.try_get("reciprocal_squares")?,
    };
    Ok((day.into(), figures))
}
