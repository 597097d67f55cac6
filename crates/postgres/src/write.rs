//! Commits changes to a catalog of the store: one transaction under the lock of the catalog's row,
//! which gives the generation. What is written goes in arrays, not a statement a tool.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::{PgConnection, Postgres, Row, Transaction};
use toolscout_index::{
    Changes, Embedder, Error, OwnerWords, Settings, Tool, ToolId, check_server, check_tools,
};

use super::error::StoreError;
use super::push::write::PushedWriter;
use super::row::{parse_owner_words, parse_settings, tool_id, tool_json, tool_of};
use super::{PostgresStore, WRITE_LIMIT};
use toolscout_state::catalog_writer::{Change, SearchDefaults, WordsChange};

/// Most tools, and most bytes of tools, in one statement.
const MAX_ROWS: usize = 2000;
const MAX_BYTES: usize = 4 << 20;

impl PostgresStore {
    /// Commits these changes together, or none. Returns what each did, and the generation that has
    /// all of them; where nothing changes, nothing is committed. Of a catalog that is pushed down, those
    /// of `embedders` that are instant embed its new tools.
    ///
    /// # Errors
    /// [`StoreError::Catalog`] for a change that cannot be made, [`StoreError::Deleted`], or the store
    /// cannot be used. After [`StoreError::Unreachable`] the changes may have been made.
    pub async fn commit(
        &self,
        catalog: i64,
        changes: &[&Change],
        embedders: &[Arc<dyn Embedder>],
    ) -> Result<(Vec<Changes>, u64), StoreError> {
        // Checked before the lock is taken, so that an invalid change does not make others wait.
        for change in changes {
            check(change)?;
        }
        let commit = async {
            let mut transaction = self.pool.begin().await?;
            let mut commit = Commit::begin(&mut transaction, catalog, embedders).await?;
            let mut all = Vec::with_capacity(changes.len());
            for change in changes {
                all.push(commit.apply(change).await?);
            }
            let generation = commit.end().await?;
            self.publish(transaction, catalog, &generation).await?;
            Ok((all, generation.current()))
        };
        self.ask(WRITE_LIMIT, commit).await
    }

    /// Replaces all settings of a catalog, beyond those that [`Change::Settings`] has.
    ///
    /// # Errors
    /// As [`PostgresStore::commit`].
    pub async fn set_settings(&self, catalog: i64, settings: &Settings) -> Result<(), StoreError> {
        self.put_settings(catalog, settings, None).await
    }

    /// Replaces all settings of a catalog, and its ranker where another one is given.
    pub(super) async fn put_settings(
        &self,
        catalog: i64,
        settings: &Settings,
        new_ranker: Option<Option<Vec<u8>>>,
    ) -> Result<(), StoreError> {
        settings.validate()?;
        let put = async {
            let mut transaction = self.pool.begin().await?;
            let mut commit = Commit::begin(&mut transaction, catalog, &[]).await?;
            commit.replace_settings(settings.clone())?;
            commit.new_ranker = new_ranker;
            let generation = commit.end().await?;
            self.publish(transaction, catalog, &generation).await
        };
        self.ask(WRITE_LIMIT, put).await
    }

    /// Commits a new generation, and tells all nodes of it.
    pub(super) async fn publish(
        &self,
        mut transaction: Transaction<'_, Postgres>,
        catalog: i64,
        generation: &Generation,
    ) -> Result<(), StoreError> {
        // Otherwise nothing was written, and dropping the transaction gives the lock back.
        if let Some(generation) = generation.new {
            let announced = format!("{catalog} {generation}");
            self.announce(&mut transaction, &announced).await?;
            transaction.commit().await?;
        }
        Ok(())
    }
}

/// What can be said of a change without the catalog.
fn check(change: &Change) -> Result<(), Error> {
    match change {
        Change::Upsert(tools) => check_tools(tools),
        Change::Sync { server, tools } => {
            check_server(server, tools)?;
            check_tools(tools)
        }
        Change::Settings {
            description,
            search,
            ..
        } => {
            let settings = Settings {
                description: description.clone(),
                search: *search,
                ..Settings::default()
            };
            settings.validate()
        }
        Change::OwnerWords(WordsChange::Replace(words)) => words.validate(),
        // What a patch leads to is checked with what it changes.
        Change::OwnerWords(WordsChange::Patch(_))
        | Change::Remove(_)
        | Change::Ranker(_)
        | Change::Enrich(_)
        | Change::ForgetTexts(_) => Ok(()),
    }
}

/// A transaction of changes to one catalog, whose row is locked.
pub(super) struct Commit<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) catalog: i64,
    before: u64,
    settings: Settings,
    has_new_settings: bool,
    new_ranker: Option<Option<Vec<u8>>>,
    new_owner_words: Option<OwnerWords>,
    /// By how many the tools became more.
    growth: i64,
    has_new_tools: bool,
    pub(super) has_new_enrichments: bool,
    /// Of a catalog that is pushed down, or is about to be.
    pub(super) pushed: Option<PushedWriter<'a>>,
}

pub(super) struct Generation {
    before: u64,
    /// `None` where nothing was changed.
    new: Option<u64>,
}

impl Generation {
    /// The generation after the commit.
    pub(super) fn current(&self) -> u64 {
        self.new.unwrap_or(self.before)
    }

    /// Whether anything was changed.
    pub(super) fn is_new(&self) -> bool {
        self.new.is_some()
    }
}

/// A tool as it is stored.
struct StoredRow<'a> {
    tool: &'a Tool,
    hash: [u8; 32],
    json: String,
}

impl<'a> Commit<'a> {
    pub(super) async fn begin(
        connection: &'a mut PgConnection,
        catalog: i64,
        embedders: &'a [Arc<dyn Embedder>],
    ) -> Result<Self, StoreError> {
        let row = sqlx::query("SELECT generation, settings FROM catalogs WHERE id = $1 FOR UPDATE")
            .bind(catalog)
            .fetch_optional(&mut *connection)
            .await?
            .ok_or(StoreError::Deleted)?;
        let before: i64 = row.try_get("generation")?;
        let settings = parse_settings(row.try_get("settings")?)?;
        let pushed = PushedWriter::begin(connection, catalog, &settings, embedders).await?;
        Ok(Commit {
            connection,
            catalog,
            before: before as u64,
            settings,
            pushed,
            has_new_settings: false,
            new_ranker: None,
            new_owner_words: None,
            growth: 0,
            has_new_tools: false,
            has_new_enrichments: false,
        })
    }

    /// The generation that the changes get.
    pub(super) fn next(&self) -> i64 {
        self.before as i64 + 1
    }

    /// The settings, with the changes of this commit.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Replaces all settings.
    pub(super) fn replace_settings(&mut self, settings: Settings) -> Result<(), StoreError> {
        settings.validate()?;
        self.has_new_settings |= self.settings != settings;
        self.settings = settings;
        Ok(())
    }

    pub(super) async fn apply(&mut self, change: &Change) -> Result<Changes, StoreError> {
        match change {
            Change::Upsert(tools) => self.upsert(tools).await,
            Change::Remove(ids) => self.remove(ids).await,
            Change::Enrich(enriched) => self.enrich(enriched).await,
            Change::ForgetTexts(ids) => self.forget_texts(ids).await,
            Change::Sync { server, tools } => {
                let mut changes = self.upsert(tools).await?;
                let gone = self.others_of(server, tools).await?;
                changes.removed = self.remove(&gone).await?.removed;
                Ok(changes)
            }
            Change::Settings {
                description,
                search,
                graph_min_vectors,
            } => {
                let defaults = SearchDefaults {
                    description,
                    search: *search,
                    graph_min_vectors: *graph_min_vectors,
                };
                if let Some(after) = defaults.applied_to(&self.settings) {
                    self.settings = after;
                    self.has_new_settings = true;
                }
                Ok(Changes::default())
            }
            Change::Ranker(ranker) => {
                let bytes = match ranker {
                    Some(ranker) => Some(ranker.to_bytes(Path::new("of the store"))?),
                    None => None,
                };
                self.new_ranker = Some(bytes);
                Ok(Changes::default())
            }
            Change::OwnerWords(change) => {
                // An earlier change of this commit may have changed them.
                let before = match &self.new_owner_words {
                    Some(words) => words.clone(),
                    None => self.owner_words().await?,
                };
                if let Some(after) = change.applied_to(&before)? {
                    self.new_owner_words = Some(after);
                }
                Ok(Changes::default())
            }
        }
    }

    pub(super) async fn owner_words(&mut self) -> Result<OwnerWords, StoreError> {
        let json = sqlx::query_scalar("SELECT owner_words FROM catalogs WHERE id = $1")
            .bind(self.catalog)
            .fetch_one(&mut *self.connection)
            .await?;
        parse_owner_words(json)
    }

    async fn upsert(&mut self, tools: &[Tool]) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for chunk in tools.chunks(MAX_ROWS) {
            let ids: Vec<&str> = chunk.iter().map(|tool| tool.id.as_str()).collect();
            let known = self.hashes(&ids).await?;
            for tool in chunk {
                let (hash, json) = tool_json(tool)?;
                let row = StoredRow { tool, hash, json };
                match known.get(tool.id.as_str()) {
                    // Writing it again would make every node read, index and embed it again.
                    Some(Some(hash)) if *hash == row.hash => {
                        changes.unchanged += 1;
                        continue;
                    }
                    Some(Some(_)) => changes.changed.push(tool.id.clone()),
                    // The tool is new, or was removed before.
                    Some(None) | None => changes.added.push(tool.id.clone()),
                }
                bytes += row.json.len();
                rows.push(row);
                if rows.len() >= MAX_ROWS || bytes >= MAX_BYTES {
                    self.put(&std::mem::take(&mut rows)).await?;
                    bytes = 0;
                }
            }
        }
        self.put(&rows).await?;
        self.growth += changes.added.len() as i64;
        self.has_new_tools |= changes.unchanged < tools.len();
        // Sorted by id, as the engine sorts its changes.
        changes.added.sort_unstable();
        changes.changed.sort_unstable();
        Ok(changes)
    }

    /// The hashes of these tools, where the store has them; `None` within for a removed one.
    pub(super) async fn hashes(
        &mut self,
        ids: &[&str],
    ) -> Result<HashMap<String, Option<Vec<u8>>>, StoreError> {
        let rows = sqlx::query("SELECT id, hash FROM tools WHERE catalog = $1 AND id = ANY($2)")
            .bind(self.catalog)
            .bind(ids)
            .fetch_all(&mut *self.connection)
            .await?;
        let mut hashes = HashMap::with_capacity(rows.len());
        for row in rows {
            hashes.insert(row.try_get("id")?, row.try_get("hash")?);
        }
        Ok(hashes)
    }

    async fn put(&mut self, rows: &[StoredRow<'_>]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut new: Vec<&Tool> = Vec::with_capacity(rows.len());
        let (mut ids, mut servers) = (Vec::new(), Vec::new());
        let (mut hashes, mut json) = (Vec::new(), Vec::new());
        for row in rows {
            new.push(row.tool);
            ids.push(row.tool.id.as_str());
            servers.push(row.tool.id.server());
            hashes.push(row.hash.as_slice());
            json.push(row.json.as_str());
        }
        // Read before they are replaced, since their counts and vectors have to be removed.
        let old = self.old(&ids).await?;
        // Texts about the former definition are deleted: they may be wrong for the new one.
        sqlx::query(
            "WITH of_other_definitions AS (
                 DELETE FROM enrichments WHERE catalog = $1 AND tool = ANY($3)
             )
             INSERT INTO tools (catalog, generation, id, server, hash, json)
             SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::bytea[], $6::text[])
             ON CONFLICT (catalog, id) DO UPDATE
             SET generation = excluded.generation, server = excluded.server,
                 hash = excluded.hash, json = excluded.json",
        )
        .bind(self.catalog)
        .bind(self.next())
        .bind(ids)
        .bind(servers)
        .bind(hashes)
        .bind(json)
        .execute(&mut *self.connection)
        .await?;
        self.push(&old, &new).await
    }

    /// These tools as they are before this change, if something else is kept of them.
    async fn old(&mut self, ids: &[&str]) -> Result<Vec<Tool>, StoreError> {
        if self.pushed.is_none() {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(
            "SELECT id, hash, json FROM tools WHERE catalog = $1 AND id = ANY($2) AND json IS NOT NULL",
        )
        .bind(self.catalog)
        .bind(ids)
        .fetch_all(&mut *self.connection)
        .await?;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows {
            tools.push(tool_of(&row)?);
        }
        Ok(tools)
    }

    /// Changes what is kept of these tools to find them.
    async fn push(&mut self, old: &[Tool], new: &[&Tool]) -> Result<(), StoreError> {
        match &self.pushed {
            Some(pushed) => pushed.replace(self.connection, old, new).await,
            None => Ok(()),
        }
    }

    async fn remove(&mut self, ids: &[ToolId]) -> Result<Changes, StoreError> {
        let mut changes = Changes::default();
        for chunk in ids.chunks(MAX_ROWS) {
            let ids: Vec<&str> = chunk.iter().map(ToolId::as_str).collect();
            let old = self.old(&ids).await?;
            // The row stays with its generation, so that nodes learn that the tool is gone.
            let removed: Vec<(String, String)> = sqlx::query_as(
                "WITH of_removed AS (
                     DELETE FROM enrichments WHERE catalog = $1 AND tool = ANY($3)
                 )
                 UPDATE tools SET json = NULL, hash = NULL, generation = $2
                 WHERE catalog = $1 AND id = ANY($3) AND json IS NOT NULL
                 RETURNING id, server",
            )
            .bind(self.catalog)
            .bind(self.next())
            .bind(ids)
            .fetch_all(&mut *self.connection)
            .await?;
            self.push(&old, &[]).await?;
            for (id, server) in removed {
                changes.removed.push(tool_id(&id, &server)?);
            }
        }
        self.growth -= changes.removed.len() as i64;
        self.has_new_tools |= !changes.removed.is_empty();
        changes.removed.sort_unstable();
        Ok(changes)
    }

    /// The tools of a server that are none of these.
    async fn others_of(&mut self, server: &str, tools: &[Tool]) -> Result<Vec<ToolId>, StoreError> {
        if server.contains('\0') {
            // PostgreSQL stores no text with this character, so no tool has such a server.
            return Ok(Vec::new());
        }
        let wanted: Vec<&str> = tools.iter().map(|tool| tool.id.as_str()).collect();
        let others: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM tools
             WHERE catalog = $1 AND server = $2 AND json IS NOT NULL AND id <> ALL($3)",
        )
        .bind(self.catalog)
        .bind(server)
        .bind(wanted)
        .fetch_all(&mut *self.connection)
        .await?;
        let ids = others.iter().map(|id| tool_id(id, server));
        ids.collect()
    }

    /// Stores what belongs to the catalog as a whole.
    pub(super) async fn end(self) -> Result<Generation, StoreError> {
        let before = self.before;
        let has_changed = self.has_new_tools
            || self.has_new_settings
            || self.new_ranker.is_some()
            || self.new_owner_words.is_some()
            || self.has_new_enrichments;
        if !has_changed {
            return Ok(Generation { before, new: None });
        }
        let next = self.next();
        sqlx::query(
            "WITH head AS (
                 UPDATE catalogs SET generation = $2, tools = tools + $3, mark = $4 WHERE id = $1
             )
             INSERT INTO generations (catalog, generation, mark) VALUES ($1, $2, $4)",
        )
        .bind(self.catalog)
        .bind(next)
        .bind(self.growth)
        .bind(random_mark())
        .execute(&mut *self.connection)
        .await?;
        if self.has_new_settings {
            let settings = serde_json::to_string(&self.settings).unwrap_or_default();
            sqlx::query(
                "UPDATE catalogs SET settings = $2, settings_generation = $3 WHERE id = $1",
            )
            .bind(self.catalog)
            .bind(settings)
            .bind(next)
            .execute(&mut *self.connection)
            .await?;
        }
        if let Some(ranker) = &self.new_ranker {
            sqlx::query("UPDATE catalogs SET ranker = $2, ranker_generation = $3 WHERE id = $1")
                .bind(self.catalog)
                .bind(ranker)
                .bind(next)
                .execute(&mut *self.connection)
                .await?;
        }
        if let Some(words) = &self.new_owner_words {
            // NULL if there are no words, as in a catalog that never had any.
            let json = match words.is_empty() {
                true => None,
                false => Some(words.to_json()),
            };
            sqlx::query(
                "UPDATE catalogs SET owner_words = $2, owner_words_generation = $3 WHERE id = $1",
            )
            .bind(self.catalog)
            .bind(json)
            .bind(next)
            .execute(&mut *self.connection)
            .await?;
        }
        if self.has_new_enrichments {
            sqlx::query("UPDATE catalogs SET enrichments_generation = $2 WHERE id = $1")
                .bind(self.catalog)
                .bind(next)
                .execute(&mut *self.connection)
                .await?;
        }
        Ok(Generation {
            before,
            new: Some(next as u64),
        })
    }
}

/// Tells this state from any other one of the same generation.
fn random_mark() -> i64 {
    uuid::Uuid::new_v4().as_u64_pair().0 as i64
}
