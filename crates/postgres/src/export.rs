//! Writes catalogs of the store into a data directory, as a single machine serves them.

use std::collections::HashMap;

use sqlx::Row;
use toolscout_index::tools_db::{ToolsDb, text_hash};
use toolscout_index::{Catalog, DataDir, Error, Options, Writer};

use super::error::StoreError;
use super::read::{Part, Since, ToolsOf};
use super::vectors::{TextHash, opened};
use super::{PostgresStore, READ_LIMIT};
use toolscout_state::shared::StoredCatalog;

/// Texts whose vectors are asked for at a time.
const CHUNK: usize = 1000;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Exported {
    /// Tools.
    pub tools: usize,
    /// Vectors of slow embedders.
    pub vectors: usize,
}

/// Vectors by their embedder and its dimensions.
type ByEmbedder = HashMap<(String, usize), Vec<(TextHash, Vec<f32>)>>;

impl PostgresStore {
    /// Writes one catalog of the store into a data directory, which must have none of the name: its
    /// tools, settings, words of the owner, ranker, enrichments and vectors. A failed export leaves nothing of it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the name is taken.
    pub async fn export(&self, data: &DataDir, name: &str) -> Result<Exported, StoreError> {
        // An export never adds to a catalog that is there already.
        if data.catalogs()?.iter().any(|existing| existing == name) {
            return Err(StoreError::Refused(format!(
                "{} has a catalog {name:?}; name a new folder",
                data.path().display()
            )));
        }
        let stored = self.find(name).await?.ok_or(StoreError::Deleted)?;
        let exported = self.export_into(data, name, &stored).await;
        // Half a catalog would look like a whole one, and the next export would be refused because of
        // it.
        if exported.is_err() {
            match data.delete(name) {
                Ok(()) | Err(Error::UnknownCatalog { .. }) => {}
                Err(error) => tracing::warn!(catalog = name, %error, "a part of it stays"),
            }
        }
        exported
    }

    async fn export_into(
        &self,
        data: &DataDir,
        name: &str,
        stored: &StoredCatalog,
    ) -> Result<Exported, StoreError> {
        let catalog = data.open_or_create(name, Options::default())?;
        let mut writer = catalog.writer()?;
        let everything = Since {
            state: None,
            least: 0,
            with_ranker: true,
            tools: ToolsOf::All,
        };
        let mut write_part = |part| write(&mut writer, part);
        let source = (stored.id, stored.source.as_str());
        self.changes_since(source, everything, &mut write_part)
            .await?;
        // Commit first: the next step reads from the database which texts need vectors.
        writer.commit()?;
        let vectors = self.export_vectors(&catalog, &mut writer).await?;
        writer.commit()?;
        Ok(Exported {
            tools: catalog.searcher().len(),
            vectors,
        })
    }

    /// Stores the vectors of the texts of this catalog. Returns how many there are.
    async fn export_vectors(
        &self,
        catalog: &Catalog,
        writer: &mut Writer,
    ) -> Result<usize, StoreError> {
        let database = ToolsDb::open_read_only(&catalog.path().join("tools.db"))?;
        let mut texts: Vec<TextHash> = Vec::new();
        database.for_each_tool(|tool| {
            texts.extend(tool.texts);
            texts.extend(tool.enrichment.into_iter().flat_map(|one| one.hashes));
        })?;
        let searcher = catalog.searcher();
        if let Some(words) = searcher.owner_words() {
            for alias in words.aliases.values().flatten() {
                texts.push(text_hash(alias));
            }
        }
        // Tools share texts, and each vector is asked for once.
        texts.sort_unstable();
        texts.dedup();
        let mut count = 0;
        for chunk in texts.chunks(CHUNK) {
            for ((embedder, dimensions), vectors) in self.vectors_of(chunk).await? {
                count += vectors.len();
                writer.put_vectors(&embedder, dimensions, &vectors)?;
            }
        }
        Ok(count)
    }

    /// What the store has for these texts. Damaged vectors are left out: they are computed again.
    async fn vectors_of(&self, texts: &[TextHash]) -> Result<ByEmbedder, StoreError> {
        let read = async {
            let texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
            let rows = sqlx::query(
                "SELECT embedder, dimensions, text, vector FROM vectors
                 JOIN (SELECT DISTINCT embedder, dimensions FROM vectors) all_embedders
                 USING (embedder, dimensions) WHERE text = ANY($1)",
            )
            .bind(texts)
            .fetch_all(&self.pool)
            .await?;
            let mut vectors = ByEmbedder::new();
            for row in rows {
                let embedder: String = row.try_get("embedder")?;
                let dimensions = row.try_get::<i32, _>("dimensions")? as usize;
                let (text, sealed): (Vec<u8>, Vec<u8>) =
                    (row.try_get("text")?, row.try_get("vector")?);
                let Ok(text) = TextHash::try_from(text) else {
                    continue;
                };
                if let Some(vector) = opened(&embedder, dimensions, &text, &sealed) {
                    let of_embedder = vectors.entry((embedder, dimensions)).or_default();
                    of_embedder.push((text, vector));
                }
            }
            Ok(vectors)
        };
        self.ask(READ_LIMIT, read).await
    }
}

fn write(writer: &mut Writer, part: Part) -> Result<(), StoreError> {
    match part {
        Part::Everything | Part::Removed(_) => {}
        Part::Tools(tools) => drop(writer.upsert(&tools)?),
        Part::Settings(settings) => writer.set_settings(&settings)?,
        Part::OwnerWords(words) => writer.set_owner_words(&words)?,
        Part::Ranker(ranker) => writer.set_ranker(ranker.as_ref())?,
        Part::Enrichments(all) => {
            for enriched in all {
                if let Some(enrichment) = enriched.enrichment {
                    writer.set_enrichment(&enriched.tool, &enrichment)?;
                }
            }
        }
    }
    Ok(())
}
