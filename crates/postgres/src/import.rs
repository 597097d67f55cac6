//! Brings the catalogs of a data directory into the store.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use toolscout_index::tools_db::ToolsDb;
use toolscout_index::{Changes, DataDir, Options, Searcher, Tool, ToolId};

use super::error::StoreError;
use super::row::tool_id;
use super::vectors::{TextHash, sealed};
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::catalog_writer::{Change, WordsChange};
use toolscout_state::shared::CreatedCatalog;

/// Tools, and vectors, in one transaction.
const CHUNK: usize = 2000;

/// What is done where the store has a catalog of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Refuse,
    /// Its tools become exactly the imported ones, and so do its settings and the owner's words.
    Replace,
    /// It gets the imported tools. Others, its settings and the owner's words stay.
    Merge,
}

/// What an import did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Imported {
    /// Tools that were added.
    pub added: usize,
    /// Tools that were replaced.
    pub changed: usize,
    /// Tools that were there as they are.
    pub unchanged: usize,
    /// Tools that were removed.
    pub removed: usize,
    /// Vectors of slow embedders that the store did not have.
    pub vectors: u64,
    /// Tools with an enrichment that the store has now.
    pub enrichments: usize,
}

/// A catalog of a data directory.
struct Source {
    searcher: Arc<Searcher>,
    database: ToolsDb,
    /// Tells it from any other one.
    identity: String,
}

impl Source {
    fn open(data: &DataDir, name: &str) -> Result<Self, StoreError> {
        let catalog = data.open(name, Options::default())?;
        let database = ToolsDb::open_read_only(&catalog.path().join("tools.db"))?;
        Ok(Source {
            searcher: catalog.searcher(),
            identity: database.state()?.identity,
            database,
        })
    }

    fn tools(&self) -> Vec<Tool> {
        let items = self.searcher.items();
        items.map(|tool| Tool::clone(&tool)).collect()
    }

    fn ranker(&self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.searcher.ranker() {
            Some(ranker) if self.searcher.has_own_ranker() => {
                Ok(Some(ranker.to_bytes(Path::new("to be imported"))?))
            }
            _ => Ok(None),
        }
    }
}

impl PostgresStore {
    /// Brings one catalog of a data directory into the store, under its name. An import that was
    /// interrupted goes on when it is asked for again, and writes what is missing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the name is taken.
    pub async fn import(
        &self,
        data: &DataDir,
        name: &str,
        existing: Existing,
    ) -> Result<Imported, StoreError> {
        let source = Source::open(data, name)?;
        let (id, existing) = self.begin_import(name, &source.identity, existing).await?;
        let mut imported = Imported {
            // Vectors come first, so that no node embeds these texts again.
            vectors: self.import_vectors(&source.database).await?,
            ..Imported::default()
        };
        // Before the tools, whose texts depend on the words.
        if existing == Existing::Replace {
            let words = source.searcher.owner_words().cloned().unwrap_or_default();
            let change = Change::OwnerWords(WordsChange::Replace(Arc::new(words)));
            self.commit(id, &[&change], &[]).await?;
        }
        let tools = source.tools();
        for chunk in tools.chunks(CHUNK) {
            let change = Change::Upsert(chunk.to_vec());
            imported.count(self.commit(id, &[&change], &[]).await?.0);
        }
        imported.enrichments = self
            .import_enrichments(id, &source.searcher, existing)
            .await?;
        if existing == Existing::Replace {
            // Only after the imported tools are stored, so that searches find tools all the time.
            let wanted: HashSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
            let mut others = self.ids(id).await?;
            others.retain(|other| !wanted.contains(other));
            for chunk in others.chunks(CHUNK) {
                let change = Change::Remove(chunk.to_vec());
                imported.count(self.commit(id, &[&change], &[]).await?.0);
            }
            let ranker = Some(source.ranker()?);
            self.put_settings(id, source.searcher.settings(), ranker)
                .await?;
        }
        // Until this is stored, the import counts as interrupted and can be run again.
        self.set_importing(id, None).await?;
        Ok(imported)
    }

    /// The catalog to import into, and what is done with what it has.
    async fn begin_import(
        &self,
        name: &str,
        identity: &str,
        existing: Existing,
    ) -> Result<(i64, Existing), StoreError> {
        match self.create(name, usize::MAX).await? {
            CreatedCatalog::Now(created) => {
                self.set_importing(created.id, Some(identity)).await?;
                Ok((created.id, Existing::Replace))
            }
            CreatedCatalog::Before(found) if existing == Existing::Refuse => {
                // It was created by an interrupted import of the same catalog, so replacing it loses
                // nothing.
                if self.importing(found.id).await?.as_deref() == Some(identity) {
                    return Ok((found.id, Existing::Replace));
                }
                Err(StoreError::Refused(format!(
                    "the store has a catalog {name:?}; --merge adds these tools to it, and --replace makes it the same as \
                     the imported one"
                )))
            }
            CreatedCatalog::Before(found) => Ok((found.id, existing)),
            CreatedCatalog::TooMany => Err(StoreError::Refused(
                "the store has as many catalogs as it may have".to_owned(),
            )),
        }
    }

    async fn set_importing(&self, catalog: i64, identity: Option<&str>) -> Result<(), StoreError> {
        let set = async {
            sqlx::query("UPDATE catalogs SET importing = $2 WHERE id = $1")
                .bind(catalog)
                .bind(identity)
                .execute(&self.pool)
                .await?;
            Ok(())
        };
        self.ask(WRITE_LIMIT, set).await
    }

    async fn importing(&self, catalog: i64) -> Result<Option<String>, StoreError> {
        let read = async {
            let importing = sqlx::query_scalar("SELECT importing FROM catalogs WHERE id = $1");
            let importing = importing.bind(catalog).fetch_optional(&self.pool).await?;
            Ok(importing.flatten())
        };
        self.ask(READ_LIMIT, read).await
    }

    /// Stores the enrichments of imported tools, and forgets others where they are to be the same.
    /// Returns how many are stored.
    async fn import_enrichments(
        &self,
        catalog: i64,
        searcher: &Searcher,
        existing: Existing,
    ) -> Result<usize, StoreError> {
        let mut ids: Vec<&ToolId> = searcher.ids_after(None).collect();
        ids.retain(|id| searcher.enrichment(id).is_some());
        let mut stored = 0;
        for chunk in ids.chunks(CHUNK) {
            let mut enriched = Vec::with_capacity(chunk.len());
            for id in chunk {
                if let (Some(tool), Some(one)) = (searcher.tool(id), searcher.enrichment(id)) {
                    enriched.push((tool, one.clone()));
                }
            }
            let change = Change::Enrich(enriched);
            let (changes, _) = self.commit(catalog, &[&change], &[]).await?;
            for changes in changes {
                stored += changes.changed.len();
            }
        }
        if existing == Existing::Replace {
            let imported = ids.into_iter().collect();
            let others = self.enriched_besides(catalog, &imported).await?;
            if !others.is_empty() {
                self.commit(catalog, &[&Change::ForgetTexts(others)], &[])
                    .await?;
            }
        }
        Ok(stored)
    }

    /// The tools of a catalog.
    async fn ids(&self, catalog: i64) -> Result<Vec<ToolId>, StoreError> {
        let read = async {
            let rows: Vec<(String, String)> = sqlx::query_as(
                "SELECT id, server FROM tools WHERE catalog = $1 AND json IS NOT NULL",
            )
            .bind(catalog)
            .fetch_all(&self.pool)
            .await?;
            rows.iter()
                .map(|(id, server)| tool_id(id, server))
                .collect()
        };
        self.ask(WRITE_LIMIT, read).await
    }

    /// Stores the vectors that the store lacks. Returns how many those were.
    async fn import_vectors(&self, database: &ToolsDb) -> Result<u64, StoreError> {
        let mut stored = 0;
        for (embedder, dimensions) in database.models()? {
            let Some(model) = database.model(&embedder, dimensions)? else {
                continue;
            };
            let (vectors, _) = database.vectors(model, dimensions)?;
            // Sorted, so that two imports cannot deadlock.
            let mut vectors: Vec<(TextHash, Vec<f32>)> = vectors.into_iter().collect();
            vectors.sort_unstable_by_key(|(text, _)| *text);
            for chunk in vectors.chunks(CHUNK) {
                stored += self.put_vectors(&embedder, dimensions, chunk).await?;
            }
        }
        Ok(stored)
    }

    async fn put_vectors(
        &self,
        embedder: &str,
        dimensions: usize,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<u64, StoreError> {
        let put = async {
            let texts: Vec<&[u8]> = vectors.iter().map(|(text, _)| text.as_slice()).collect();
            let sealed: Vec<Vec<u8>> = vectors
                .iter()
                .map(|(text, vector)| sealed(embedder, text, vector))
                .collect();
            let stored = sqlx::query(
                "INSERT INTO vectors (embedder, dimensions, text, vector)
                 SELECT $1, $2, * FROM unnest($3::bytea[], $4::bytea[])
                 ON CONFLICT DO NOTHING",
            )
            .bind(embedder)
            .bind(dimensions as i32)
            .bind(texts)
            .bind(sealed)
            .execute(&self.pool)
            .await?;
            Ok(stored.rows_affected())
        };
        self.ask(WRITE_LIMIT, put).await
    }
}

impl Imported {
    fn count(&mut self, changes: Vec<Changes>) {
        for changes in changes {
            self.added += changes.added.len();
            self.changed += changes.changed.len();
            self.unchanged += changes.unchanged;
            self.removed += changes.removed.len();
        }
    }
}
