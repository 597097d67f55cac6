//! Changes of what a catalog says about its tools, each in one commit with its line in the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use toolscout_index::{Enrichment, OwnerWords, Settings, Tool, ToolId};
use toolscout_state::catalog_writer::{Change, WordsChange};

use super::error::StoreError;
use super::row::{enrichment, tool_of};
use super::write::Commit;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// What the owner of a catalog can say in it, at the moment of a commit.
#[derive(Clone, Debug)]
pub struct OwnContent {
    /// Its settings.
    pub settings: Settings,
    /// The owner's words.
    pub words: OwnerWords,
    /// Texts of when to use a tool, of the tools that were asked for.
    pub texts: BTreeMap<ToolId, Enrichment>,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub struct StoredImprovement {
    /// Its number in the catalog, from 1.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The generation of the catalog with it.
    pub generation: u64,
    /// What was done, in JSON.
    pub what: String,
}

impl PostgresStore {
    /// Commits what `change` makes of a catalog's present content, together with a line of the log. Only texts
    /// of `tools` may change. Returns the line's number.
    ///
    /// # Errors
    /// As [`PostgresStore::commit`].
    pub async fn improve(
        &self,
        catalog: i64,
        tools: &[ToolId],
        (at_ms, what): (i64, &str),
        change: impl FnOnce(&OwnContent) -> OwnContent,
    ) -> Result<u64, StoreError> {
        let improve = async {
            let mut transaction = self.pool.begin().await?;
            let mut commit = Commit::begin(&mut transaction, catalog, &[]).await?;
            let (before, definitions) = own_content(&mut commit, tools).await?;
            let after = change(&before);
            commit.replace_settings(after.settings)?;
            let words = WordsChange::Replace(Arc::new(after.words));
            commit.apply(&Change::OwnerWords(words)).await?;
            let mut forgotten: Vec<ToolId> = before.texts.keys().cloned().collect();
            forgotten.retain(|id| !after.texts.contains_key(id));
            commit.apply(&Change::ForgetTexts(forgotten)).await?;
            let mut written = Vec::new();
            for (id, texts) in after.texts {
                // A tool that is gone has no place for its texts.
                if before.texts.get(&id) != Some(&texts)
                    && let Some(tool) = definitions.get(&id)
                {
                    written.push((Arc::clone(tool), texts));
                }
            }
            commit.apply(&Change::Enrich(written)).await?;
            let generation = commit.end().await?;
            // The catalog's row is locked, so no other line gets this number.
            let id: i64 = sqlx::query_scalar(
                "INSERT INTO improvements (catalog, id, at_ms, generation, what)
                 SELECT $1, coalesce(max(id), 0) + 1, $2, $3, $4 FROM improvements WHERE catalog = $1
                 RETURNING id",
            )
            .bind(catalog)
            .bind(at_ms)
            .bind(generation.current() as i64)
            .bind(what)
            .fetch_one(&mut *transaction)
            .await?;
            match generation.is_new() {
                true => self.publish(transaction, catalog, &generation).await?,
                // Nothing was left to take back; the line says that it was tried.
                false => transaction.commit().await?,
            }
            Ok(id as u64)
        };
        self.ask(WRITE_LIMIT, improve).await
    }

    /// The log of a catalog, the oldest line first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn improvements(&self, catalog: i64) -> Result<Vec<StoredImprovement>, StoreError> {
        let read = async {
            let rows: Vec<(i64, i64, i64, String)> = sqlx::query_as(
                "SELECT id, at_ms, generation, what FROM improvements WHERE catalog = $1 ORDER BY id",
            )
            .bind(catalog)
            .fetch_all(&self.pool)
            .await?;
            let mut lines = Vec::with_capacity(rows.len());
            for (id, at_ms, generation, what) in rows {
                lines.push(StoredImprovement {
                    id: id as u64,
                    at_ms,
                    generation: generation as u64,
                    what,
                });
            }
            Ok(lines)
        };
        self.ask(READ_LIMIT, read).await
    }
}

/// The present content with the texts of these tools, and their definitions.
async fn own_content(
    commit: &mut Commit<'_>,
    tools: &[ToolId],
) -> Result<(OwnContent, HashMap<ToolId, Arc<Tool>>), StoreError> {
    let ids: Vec<&str> = tools.iter().map(ToolId::as_str).collect();
    let rows = sqlx::query(
        "SELECT id, hash, json, model, texts, checksum FROM tools
         LEFT JOIN enrichments ON enrichments.catalog = tools.catalog AND tool = id
         WHERE tools.catalog = $1 AND id = ANY($2) AND json IS NOT NULL",
    )
    .bind(commit.catalog)
    .bind(ids)
    .fetch_all(&mut *commit.connection)
    .await?;
    let (mut texts, mut definitions) = (BTreeMap::new(), HashMap::new());
    for row in &rows {
        let tool = tool_of(row)?;
        if let Some(enrichment) = enrichment(tool.id.as_str(), row)? {
            texts.insert(tool.id.clone(), enrichment);
        }
        definitions.insert(tool.id.clone(), Arc::new(tool));
    }
    let content = OwnContent {
        settings: commit.settings().clone(),
        words: commit.owner_words().await?,
        texts,
    };
    Ok((content, definitions))
}
