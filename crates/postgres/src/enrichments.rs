//! What language models wrote about when to use tools, for all nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::{PgConnection, Row};
use toolscout_index::{Changes, Enrichment, Tool, ToolId};

use super::error::StoreError;
use super::row::{self, enrichment, enrichment_checksum};
use super::write::Commit;
use super::{PostgresStore, READ_LIMIT};

/// Enrichments in a page, and in one statement.
const PAGE: usize = 1000;

/// A tool, and what was written about it.
pub struct Enriched {
    /// With the definition that it is about.
    pub tool: Tool,
    /// `None` where it was forgotten.
    pub enrichment: Option<Enrichment>,
}

impl PostgresStore {
    /// The tools that something was written about, without these.
    pub(super) async fn enriched_besides(
        &self,
        catalog: i64,
        tools: &HashSet<&ToolId>,
    ) -> Result<Vec<ToolId>, StoreError> {
        let read = async {
            let rows: Vec<(String, String)> = sqlx::query_as(
                "SELECT tools.id, tools.server FROM enrichments
                 JOIN tools ON tools.catalog = enrichments.catalog AND tools.id = enrichments.tool
                 WHERE enrichments.catalog = $1 AND texts IS NOT NULL",
            )
            .bind(catalog)
            .fetch_all(&self.pool)
            .await?;
            let ids = rows.iter().map(|(id, server)| row::tool_id(id, server));
            let mut ids: Vec<ToolId> = ids.collect::<Result<_, _>>()?;
            ids.retain(|id| !tools.contains(id));
            Ok(ids)
        };
        self.ask(READ_LIMIT, read).await
    }
}

impl Commit<'_> {
    /// Stores what was written about these tools, where the catalog has this very definition of them.
    pub(super) async fn enrich(
        &mut self,
        enriched: &[(Arc<Tool>, Enrichment)],
    ) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        for chunk in enriched.chunks(PAGE) {
            self.enrich_page(chunk, &mut changes).await?;
        }
        Ok(changes)
    }

    async fn enrich_page(
        &mut self,
        enriched: &[(Arc<Tool>, Enrichment)],
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let ids: Vec<&str> = enriched.iter().map(|(tool, _)| tool.id.as_str()).collect();
        // If a tool was changed while the model wrote about it, its hash is another one.
        let known = self.hashes(&ids).await?;
        // Keyed by id, since one statement must not write a row twice.
        let mut rows = HashMap::new();
        for (tool, enrichment) in enriched {
            let (hash, _) = row::tool_json(tool)?;
            let known = known.get(tool.id.as_str());
            if known.is_some_and(|known| known.as_deref() == Some(&hash[..])) {
                rows.insert(tool.id.as_str(), enrichment);
                changes.changed.push(tool.id.clone());
            } else {
                changes.unchanged += 1;
            }
        }
        let (mut ids, mut models, mut texts, mut sums) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (&id, enrichment) in &rows {
            ids.push(id);
            models.push(enrichment.model());
            // Sent as JSON, since an array of arrays would need equal lengths.
            texts.push(serde_json::Value::from(enrichment.texts()).to_string());
            sums.push(enrichment_checksum(id, enrichment.model(), enrichment.texts()).to_vec());
        }
        let written = sqlx::query(
            "INSERT INTO enrichments (catalog, generation, tool, model, texts, checksum)
             SELECT $1, $2, tool, model, ARRAY(SELECT json_array_elements_text(texts::json)), checksum
             FROM unnest($3::text[], $4::text[], $5::text[], $6::bytea[]) AS written (tool, model, texts, checksum)
             ON CONFLICT (catalog, tool) DO UPDATE
             SET generation = excluded.generation, model = excluded.model, texts = excluded.texts,
                 checksum = excluded.checksum
             WHERE enrichments.checksum IS DISTINCT FROM excluded.checksum",
        )
        .bind(self.catalog)
        .bind(self.next())
        .bind(ids)
        .bind(models)
        .bind(texts)
        .bind(sums)
        .execute(&mut *self.connection)
        .await?;
        self.has_new_enrichments |= written.rows_affected() > 0;
        match &self.pushed {
            Some(pushed) => pushed.put_texts(self.connection, &rows).await,
            None => Ok(()),
        }
    }

    /// Forgets what was written about these tools.
    pub(super) async fn forget_texts(&mut self, tools: &[ToolId]) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        for chunk in tools.chunks(PAGE) {
            let ids: Vec<&str> = chunk.iter().map(ToolId::as_str).collect();
            let forgotten: Vec<String> = sqlx::query_scalar(
                "UPDATE enrichments SET model = NULL, texts = NULL, checksum = NULL, generation = $2
                 WHERE catalog = $1 AND tool = ANY($3) AND texts IS NOT NULL
                 RETURNING tool",
            )
            .bind(self.catalog)
            .bind(self.next())
            .bind(ids)
            .fetch_all(&mut *self.connection)
            .await?;
            if let Some(pushed) = &self.pushed {
                pushed.forget_texts(self.connection, &forgotten).await?;
            }
            let forgotten: HashSet<&str> = forgotten.iter().map(String::as_str).collect();
            // The answer keeps the order of the request: the database returns rows in any order.
            let (gone, others): (Vec<&ToolId>, Vec<&ToolId>) =
                chunk.iter().partition(|id| forgotten.contains(id.as_str()));
            changes.changed.extend(gone.into_iter().cloned());
            changes.unchanged += others.len();
        }
        self.has_new_enrichments |= !changes.changed.is_empty();
        Ok(changes)
    }
}

/// Goes through what was written or forgotten, in the order of generation and tool.
pub(super) struct EnrichmentPage {
    after: (i64, String),
    /// A node that has nothing needs not know what was forgotten.
    with_forgotten: bool,
    is_last: bool,
}

impl EnrichmentPage {
    /// What is after this generation, or everything.
    pub(super) fn after(generation: Option<u64>) -> Self {
        let after = match generation {
            // Starts behind every tool of that generation.
            Some(known) => known as i64 + 1,
            None => 0,
        };
        EnrichmentPage {
            after: (after, String::new()),
            with_forgotten: generation.is_some(),
            is_last: false,
        }
    }

    /// The next ones; `None` at the end.
    pub(super) async fn next(
        &mut self,
        connection: &mut PgConnection,
        catalog: i64,
    ) -> Result<Option<Vec<Enriched>>, StoreError> {
        if self.is_last {
            return Ok(None);
        }
        let rows = sqlx::query(
            "SELECT tool, enrichments.generation, model, texts, checksum, hash, json
             FROM enrichments
             JOIN tools ON tools.catalog = enrichments.catalog AND tools.id = enrichments.tool
             WHERE enrichments.catalog = $1 AND (enrichments.generation, tool) > ($2, $3)
               AND json IS NOT NULL AND (texts IS NOT NULL OR $4)
             ORDER BY enrichments.generation, tool LIMIT $5",
        )
        .bind(catalog)
        .bind(self.after.0)
        .bind(&self.after.1)
        .bind(self.with_forgotten)
        .bind(PAGE as i64)
        .fetch_all(connection)
        .await?;
        self.is_last = rows.len() < PAGE;
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let (id, json): (String, String) = (row.try_get("tool")?, row.try_get("json")?);
            all.push(Enriched {
                tool: row::tool(&id, &json, row.try_get("hash")?)?,
                enrichment: enrichment(&id, row)?,
            });
            self.after = (row.try_get("generation")?, id);
        }
        Ok(Some(all))
    }
}
