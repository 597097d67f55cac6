//! Reads tools of a catalog that is pushed down with what was written about them.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use toolscout_index::Searcher;
use toolscout_index::pushdown::{name_key, to_be_read};

use super::candidates::{ToolRow, end, part_tools};
use super::tables::Tables;
use crate::error::StoreError;
use crate::row::{text, texts};
use crate::{BEGIN_READING, PostgresStore, READ_LIMIT};
use toolscout_state::shared::TextsOf;

impl PostgresStore {
    /// These tools of a catalog that is pushed down, with their texts, in place of those of `base`. They are
    /// there to be read: no search finds them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tools_with_texts(
        &self,
        catalog: i64,
        base: &Arc<Searcher>,
        of: &TextsOf,
    ) -> Result<Searcher, StoreError> {
        let rows = self
            .ask(READ_LIMIT, self.read_texts(Tables { catalog }, of))
            .await?;
        let base = Arc::clone(base);
        let read = self.on_cpu(move || Ok(to_be_read(part_tools(rows)?, &base)));
        read.await?
    }

    async fn read_texts(&self, tables: Tables, of: &TextsOf) -> Result<Vec<ToolRow>, StoreError> {
        let mut transaction = self.pool.begin_with(BEGIN_READING).await?;
        let order = match of.is_sample {
            // The same tools each time, from all over the catalog.
            true => "md5(t.id)",
            false => "t.id",
        };
        let sql = format!(
            "SELECT tools.id, hash, tools.json, model, texts, checksum
             FROM {} AS t JOIN tools ON tools.catalog = $1 AND tools.id = t.id
                  LEFT JOIN enrichments ON enrichments.catalog = $1 AND enrichments.tool = t.id
             WHERE tools.json IS NOT NULL AND t.id > $2
                   AND (cardinality($3::text[]) = 0 OR t.server = ANY($3))
                   AND ($4::text[] IS NULL OR t.id = ANY($4) OR t.name_key = ANY($5))
                   AND ($6::boolean IS NULL OR (texts IS NOT NULL) = $6)
             ORDER BY {order} LIMIT $7",
            tables.tools()
        );
        let mut names = Vec::new();
        if of.with_namesakes {
            for id in of.tools.iter().flatten() {
                if let Some((_, name)) = id.split_once('/') {
                    names.push(name_key(&text(name)));
                }
            }
        }
        let rows = sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(tables.catalog)
            .bind(text(of.after.as_deref().unwrap_or_default()))
            .bind(texts(&of.servers))
            .bind(of.tools.as_ref().map(texts))
            .bind(names)
            .bind(of.have_texts)
            .bind(of.limit as i64)
            .fetch_all(&mut *transaction)
            .await?;
        end(transaction).await;
        rows.iter().map(ToolRow::read).collect()
    }

    /// How many tools of a catalog have texts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn count_texts(&self, catalog: i64) -> Result<usize, StoreError> {
        let count = async {
            let mut connection = self.pool.acquire().await?;
            Tables { catalog }.count_enriched(&mut connection).await
        };
        Ok(self.ask(READ_LIMIT, count).await? as usize)
    }
}
