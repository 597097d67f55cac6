//! Lists the tools of a catalog that is pushed down, without reading all of them.

use sqlx::{AssertSqlSafe, PgConnection, Row};
use toolscout_index::{Filter, Kind, Tool, ToolId};

use super::candidates::{Passing, end, kind_names};
use super::tables::Tables;
use crate::error::StoreError;
use crate::row::{text, tool_id, tool_of};
use crate::{BEGIN_READING, PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::shared::{ListedTools, PageOf, PushedStats};

/// A page ends early when its tools reach this size. It has at least one tool.
const MAX_PAGE_BYTES: i64 = 8 << 20;
/// Servers and tags that are listed.
const MAX_NAMES: i64 = 1000;

impl PostgresStore {
    /// A page of the tools of a catalog that is pushed down.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page_of(&self, catalog: i64, page: &PageOf) -> Result<ListedTools, StoreError> {
        self.ask(READ_LIMIT, self.read_page(Tables { catalog }, page))
            .await
    }

    async fn read_page(&self, tables: Tables, page: &PageOf) -> Result<ListedTools, StoreError> {
        let mut transaction = self.pool.begin_with(BEGIN_READING).await?;
        let Head {
            tools, generation, ..
        } = head(&mut transaction, tables).await?;
        let kinds = kind_names(&page.kinds.iter().copied().collect());
        let total = match kinds.as_slice() {
            [kind] if *kind == Kind::Tool.as_str() => tools,
            _ => count(&mut transaction, tables, &kinds).await?,
        };
        // One more than the page has says whether there is another.
        let sql = format!(
            "SELECT id, hash, json, found FROM (
                 SELECT id, hash, json, count(*) OVER () AS found,
                        sum(octet_length(json)) OVER (ORDER BY id) - octet_length(json) AS bytes_before
                 FROM (
                     SELECT tools.id, hash, json FROM {} AS t JOIN tools ON catalog = $1 AND tools.id = t.id
                     WHERE t.id > $2 AND ($3::text IS NULL OR t.server = $3) AND ($4::text IS NULL OR t.tags @> ARRAY[$4])
                           AND ($5 = '' OR strpos(lower(t.id), $5) > 0) AND t.kind = ANY($8)
                     ORDER BY t.id LIMIT $6
                 ) AS wanted
             ) AS sized
             WHERE bytes_before < $7 ORDER BY id",
            tables.tools()
        );
        // Not prepared: a generic plan could not use that most of these conditions are off.
        let rows = sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(tables.catalog)
            .bind(text(page.after.as_deref().unwrap_or_default()))
            .bind(page.server.as_deref().map(text))
            .bind(page.tag.as_deref().map(text))
            .bind(text(&page.part))
            .bind(page.limit as i64 + 1)
            .bind(MAX_PAGE_BYTES)
            .bind(kinds)
            .fetch_all(&mut *transaction)
            .await?;
        let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get("found"))?;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows.iter().take(page.limit) {
            tools.push(tool_of(row)?);
        }
        end(transaction).await;
        Ok(ListedTools {
            has_more: found as usize > tools.len(),
            tools,
            total,
            generation,
        })
    }

    /// A tool of a catalog, whether nodes have copies of that or not.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tool_of(&self, catalog: i64, id: &ToolId) -> Result<Option<Tool>, StoreError> {
        if id.as_str().contains('\0') {
            // PostgreSQL stores no text with this character, so nothing can be found.
            return Ok(None);
        }
        let read = async {
            let sql = "SELECT id, hash, json FROM tools WHERE catalog = $1 AND id = $2 AND json IS NOT NULL";
            let row = sqlx::query(sql)
                .bind(catalog)
                .bind(id.as_str())
                .fetch_optional(&self.pool)
                .await?;
            row.as_ref().map(tool_of).transpose()
        };
        self.ask(READ_LIMIT, read).await
    }

    /// The ids of the tools of a catalog that is pushed down which pass a filter.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ids_passing(
        &self,
        catalog: i64,
        filter: &Filter,
    ) -> Result<Vec<ToolId>, StoreError> {
        let read = async {
            let passing = Passing::new(Tables { catalog }, filter);
            let mut connection = self.pool.acquire().await?;
            let rows = passing.ids(&mut connection).await?;
            let mut ids = Vec::with_capacity(rows.len());
            for (id, server) in &rows {
                ids.push(tool_id(id, server)?);
            }
            Ok(ids)
        };
        self.ask(WRITE_LIMIT, read).await
    }

    /// The most frequent tags of a catalog that is pushed down, with the number of their tools, and how
    /// many different ones there are.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tags_of(
        &self,
        catalog: i64,
        limit: usize,
    ) -> Result<(Vec<(String, usize)>, usize), StoreError> {
        let read = async {
            let sql = format!(
                "SELECT tag, count(DISTINCT key) AS tools, count(*) OVER () AS total
                 FROM {}, unnest(tags) AS tag GROUP BY tag ORDER BY tools DESC, tag COLLATE \"C\" LIMIT $1",
                Tables { catalog }.tools()
            );
            let rows = sqlx::query(AssertSqlSafe(sql))
                .bind(limit as i64)
                .fetch_all(&self.pool)
                .await?;
            let total: i64 = rows.first().map_or(Ok(0), |row| row.try_get("total"))?;
            Ok((named_counts(&rows, "tag")?, total as usize))
        };
        self.ask(READ_LIMIT, read).await
    }

    /// Sizes of a catalog that is pushed down.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn pushed_stats(&self, catalog: i64) -> Result<PushedStats, StoreError> {
        self.ask(READ_LIMIT, self.read_stats(Tables { catalog }))
            .await
    }

    async fn read_stats(&self, tables: Tables) -> Result<PushedStats, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let Head {
            tools,
            items,
            generation,
        } = head(&mut connection, tables).await?;
        let table = tables.tools();
        let sql = format!(
            "SELECT server, count(*) AS tools FROM {table} WHERE kind = '{}'
             GROUP BY server ORDER BY server LIMIT $1",
            Kind::Tool.as_str()
        );
        let servers = sqlx::query(AssertSqlSafe(sql))
            .bind(MAX_NAMES)
            .fetch_all(&mut *connection)
            .await?;
        let embedders = tables.embedders(&mut connection).await?;
        // `pg_total_relation_size` includes the indexes.
        let names = tables.all(&embedders);
        let bytes: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint
             FROM unnest($1::text[]) AS name",
        )
        .bind(names)
        .fetch_one(&mut *connection)
        .await?;
        Ok(PushedStats {
            tools,
            items,
            generation,
            servers: named_counts(&servers, "server")?,
            vectors: embedders
                .into_iter()
                .map(|embedder| (embedder.id, embedder.tools as usize))
                .collect(),
            bytes: bytes as u64,
        })
    }
}

/// What the catalog's own rows say.
struct Head {
    /// Items that are tools.
    tools: usize,
    items: usize,
    generation: u64,
}

async fn head(connection: &mut PgConnection, tables: Tables) -> Result<Head, StoreError> {
    let head: Option<(i64, i64, i64)> = sqlx::query_as(
        "SELECT catalogs.tools - coalesce(others, 0), catalogs.tools, generation
         FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id WHERE id = $1",
    )
    .bind(tables.catalog)
    .fetch_optional(connection)
    .await?;
    let (tools, items, generation) = head.ok_or(StoreError::Deleted)?;
    Ok(Head {
        tools: tools as usize,
        items: items as usize,
        generation: generation as u64,
    })
}

/// The number of items of these kinds.
async fn count(
    connection: &mut PgConnection,
    tables: Tables,
    kinds: &[&str],
) -> Result<usize, StoreError> {
    let sql = format!(
        "SELECT count(*) FROM {} WHERE kind = ANY($1)",
        tables.tools()
    );
    let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(kinds)
        .fetch_one(connection)
        .await?;
    Ok(count as usize)
}

fn named_counts(
    rows: &[sqlx::postgres::PgRow],
    name: &str,
) -> Result<Vec<(String, usize)>, StoreError> {
    let mut counts = Vec::with_capacity(rows.len());
    for row in rows {
        let tools: i64 = row.try_get("tools")?;
        counts.push((row.try_get(name)?, tools as usize));
    }
    Ok(counts)
}
