//! What language models wrote about when to use tools, for all nodes.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, Row};
use toolscout_index::{Enrichment, Tool, ToolId};

use super::error::StoreError;
use super::row;
use super::write::Commit;
use super::{READ_LIMIT, SharedStore, WRITE_LIMIT};

/// Enrichments in a page, and in one statement.
const PAGE: usize = 1000;

/// A tool, and what was written about it.
pub struct Enriched {
    /// With the definition that it is about.
    pub tool: Tool,
    /// `None` where it was forgotten.
    pub enrichment: Option<Enrichment>,
}

impl SharedStore {
    /// Stores what was written about these tools. Tells of each whether the catalog has this very
    /// definition of it; where it has another one, or none, nothing is stored.
    ///
    /// # Errors
    /// As [`SharedStore::commit`].
    pub async fn enrich(
        &self,
        catalog: i64,
        enriched: &[(&Tool, &Enrichment)],
    ) -> Result<Vec<bool>, StoreError> {
        let enrich = async {
            let mut transaction = self.pool.begin().await?;
            let mut commit = Commit::begin(&mut transaction, catalog, &[]).await?;
            let mut are_stored = Vec::with_capacity(enriched.len());
            for chunk in enriched.chunks(PAGE) {
                are_stored.extend(enrich(&mut commit, chunk).await?);
            }
            let generation = commit.end().await?;
            self.publish(transaction, catalog, &generation).await?;
            Ok(are_stored)
        };
        self.ask(WRITE_LIMIT, enrich).await
    }

    /// Forgets what was written about these tools. Returns how many there were.
    ///
    /// # Errors
    /// As [`SharedStore::commit`].
    pub async fn forget_enrichments(
        &self,
        catalog: i64,
        tools: &[ToolId],
    ) -> Result<usize, StoreError> {
        let forget = async {
            let mut transaction = self.pool.begin().await?;
            let mut commit = Commit::begin(&mut transaction, catalog, &[]).await?;
            let mut forgotten = 0;
            for chunk in tools.chunks(PAGE) {
                forgotten += forget(&mut commit, chunk).await?;
            }
            let generation = commit.end().await?;
            self.publish(transaction, catalog, &generation).await?;
            Ok(forgotten)
        };
        self.ask(WRITE_LIMIT, forget).await
    }

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
            let ids: Vec<ToolId> = ids.collect::<Result<_, _>>()?;
            Ok(ids.into_iter().filter(|id| !tools.contains(id)).collect())
        };
        self.ask(READ_LIMIT, read).await
    }
}

async fn enrich(
    commit: &mut Commit<'_>,
    enriched: &[(&Tool, &Enrichment)],
) -> Result<Vec<bool>, StoreError> {
    let ids: Vec<&str> = enriched.iter().map(|(tool, _)| tool.id.as_str()).collect();
    let known = commit.hashes(&ids).await?;
    let mut are_stored = Vec::with_capacity(enriched.len());
    // By id, since no statement may write a row twice.
    let mut rows = HashMap::new();
    for (tool, enrichment) in enriched {
        let (hash, _) = row::tool_json(tool)?;
        let is_known = known.get(tool.id.as_str());
        let is_current = is_known.is_some_and(|known| known.as_deref() == Some(&hash[..]));
        if is_current {
            rows.insert(tool.id.as_str(), *enrichment);
        }
        are_stored.push(is_current);
    }
    let (mut ids, mut models, mut texts, mut sums) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (id, enrichment) in rows {
        ids.push(id);
        models.push(enrichment.model());
        // An array of arrays would need equal lengths.
        texts.push(serde_json::Value::from(enrichment.texts()).to_string());
        sums.push(checksum(id, enrichment.model(), enrichment.texts()).to_vec());
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
    .bind(commit.catalog)
    .bind(commit.next())
    .bind(ids)
    .bind(models)
    .bind(texts)
    .bind(sums)
    .execute(&mut *commit.connection)
    .await?;
    commit.has_new_enrichments |= written.rows_affected() > 0;
    Ok(are_stored)
}

async fn forget(commit: &mut Commit<'_>, tools: &[ToolId]) -> Result<usize, StoreError> {
    let ids: Vec<&str> = tools.iter().map(ToolId::as_str).collect();
    let forgotten = sqlx::query(
        "UPDATE enrichments SET model = NULL, texts = NULL, checksum = NULL, generation = $2
         WHERE catalog = $1 AND tool = ANY($3) AND texts IS NOT NULL",
    )
    .bind(commit.catalog)
    .bind(commit.next())
    .bind(ids)
    .execute(&mut *commit.connection)
    .await?;
    commit.has_new_enrichments |= forgotten.rows_affected() > 0;
    Ok(forgotten.rows_affected() as usize)
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
        EnrichmentPage {
            // Behind every tool of that generation.
            after: (
                generation.map_or(0, |known| known as i64 + 1),
                String::new(),
            ),
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

/// The enrichment of a row. A damaged one counts as forgotten: it can be written again.
fn enrichment(id: &str, row: &sqlx::postgres::PgRow) -> Result<Option<Enrichment>, StoreError> {
    let model: Option<String> = row.try_get("model")?;
    let texts: Option<Vec<String>> = row.try_get("texts")?;
    let sum: Option<Vec<u8>> = row.try_get("checksum")?;
    let (Some(model), Some(texts), Some(sum)) = (model, texts, sum) else {
        return Ok(None);
    };
    let is_intact = sum == checksum(id, &model, &texts);
    let enrichment = is_intact
        .then(|| Enrichment::new(texts, model).ok())
        .flatten();
    if enrichment.is_none() {
        tracing::warn!(
            tool = id,
            "what was written about a tool is damaged in the store"
        );
    }
    Ok(enrichment)
}

fn checksum(tool: &str, model: &str, texts: &[String]) -> [u8; 32] {
    let all = serde_json::json!([tool, model, texts]);
    *blake3::hash(all.to_string().as_bytes()).as_bytes()
}
