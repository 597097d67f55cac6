//! Enrichments of tools, in a table of their own.
//!
//! A row belongs to a key, and a changed tool gets a new key: an enrichment is never used for another
//! definition than the one it was written for. Versions without this table ignore it; a row that one
//! of them leaves behind belongs to a key that is never given again.

use std::collections::HashMap;

use rusqlite::params;

use super::ToolsDb;
use crate::dense::TextHash;
use crate::enrichment::Enrichment;
use crate::error::Result;
use crate::files::{self, CHECKSUM_BYTES};
use crate::tool::{Tool, ToolId};
use crate::tools_db::text_hash;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS enrichments (
        tool INTEGER PRIMARY KEY,
        checksum BLOB NOT NULL,
        model TEXT NOT NULL,
        texts TEXT NOT NULL
    )";

/// The checksum of an enrichment and its place: equal ones have equal content.
pub type EnrichmentSum = [u8; CHECKSUM_BYTES];

/// An enrichment as stored.
#[derive(Clone, Debug)]
pub struct StoredEnrichment {
    /// Tells it from another one of the same tool.
    pub sum: EnrichmentSum,
    /// Its texts and model.
    pub enrichment: Enrichment,
    /// The texts that are embedded for it.
    pub hashes: Vec<TextHash>,
}

impl StoredEnrichment {
    /// The enrichment of the tool of this key.
    pub fn new(key: u64, enrichment: Enrichment) -> Self {
        let texts = texts_as_json(&enrichment);
        let sum = checksum(key, enrichment.model(), &texts);
        StoredEnrichment::with_sum(sum, enrichment)
    }

    fn with_sum(sum: EnrichmentSum, enrichment: Enrichment) -> Self {
        let texts = enrichment.texts().iter().map(String::as_str);
        StoredEnrichment {
            hashes: texts.map(text_hash).collect(),
            sum,
            enrichment,
        }
    }
}

impl ToolsDb {
    /// Creates the table in a catalog of an earlier version.
    pub(super) fn add_enrichments(&self) -> Result<()> {
        if self.has_enrichments()? {
            return Ok(());
        }
        self.execute(TABLE, [])
    }

    /// False in a catalog that only earlier versions have written to.
    fn has_enrichments(&self) -> Result<bool> {
        let mut statement =
            self.sql("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'enrichments'")?;
        self.named(statement.exists([]))
    }

    /// The checksums of all enrichments, by the key of their tool. Whether a row is intact shows when
    /// it is read.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn enrichment_sums(&self) -> Result<HashMap<u64, EnrichmentSum>> {
        if !self.has_enrichments()? {
            return Ok(HashMap::new());
        }
        let mut statement = self.sql("SELECT tool, checksum FROM enrichments")?;
        let mut rows = self.named(statement.query([]))?;
        let mut sums = HashMap::new();
        while let Some(row) = self.named(rows.next())? {
            // A row with values of other types is damaged, and so no enrichment.
            if let (Ok(tool), Ok(sum)) = (row.get(0), row.get(1)) {
                sums.insert(tool, sum);
            }
        }
        Ok(sums)
    }

    /// The enrichment of the tool of this key; `None` without one, and for a damaged one: it
    /// only helps to find the tool, and can be written again.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn enrichment(&self, key: u64) -> Result<Option<StoredEnrichment>> {
        let mut statement =
            self.sql("SELECT checksum, model, texts FROM enrichments WHERE tool = ?1")?;
        let mut rows = self.named(statement.query([key]))?;
        match self.named(rows.next())? {
            Some(row) => Ok(intact(row, key)),
            None => Ok(None),
        }
    }

    /// Stores the enrichment of a tool, unless the tool is gone or is no longer this one. True if it
    /// was stored.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn set_enrichment(&self, tool: &Tool, enrichment: &Enrichment) -> Result<bool> {
        let Some((key, _)) = self.key_and_hash(&tool.id)? else {
            return Ok(false);
        };
        // The texts were written for one definition and may be wrong for another.
        if self.tool(key)?.parse()? != *tool {
            return Ok(false);
        }
        self.put_enrichment(key, enrichment)?;
        Ok(true)
    }

    /// Stores the enrichment of a key.
    pub(super) fn put_enrichment(&self, key: u64, enrichment: &Enrichment) -> Result<()> {
        let texts = texts_as_json(enrichment);
        let sum = checksum(key, enrichment.model(), &texts);
        self.execute(
            "INSERT OR REPLACE INTO enrichments VALUES (?1, ?2, ?3, ?4)",
            params![key, sum, enrichment.model(), texts],
        )
    }

    /// Deletes the enrichment of a tool. True if it had one.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn clear_enrichment(&self, id: &ToolId) -> Result<bool> {
        match self.key_and_hash(id)? {
            Some((key, _)) => self.delete_enrichment(key),
            None => Ok(false),
        }
    }

    /// Deletes the enrichment of a key. True if there was one.
    pub(super) fn delete_enrichment(&self, key: u64) -> Result<bool> {
        let mut statement = self.sql("DELETE FROM enrichments WHERE tool = ?1")?;
        let deleted = self.named(statement.execute([key]))?;
        Ok(deleted > 0)
    }
}

/// The enrichment of a row; `None` if it is damaged.
fn intact(row: &rusqlite::Row<'_>, key: u64) -> Option<StoredEnrichment> {
    let sum: EnrichmentSum = row.get(0).ok()?;
    let (model, texts): (String, String) = (row.get(1).ok()?, row.get(2).ok()?);
    if checksum(key, &model, &texts) != sum {
        return None;
    }
    let texts: Vec<String> = serde_json::from_str(&texts).ok()?;
    let enrichment = Enrichment::new(texts, model).ok()?;
    Some(StoredEnrichment::with_sum(sum, enrichment))
}

fn texts_as_json(enrichment: &Enrichment) -> String {
    serde_json::Value::from(enrichment.texts()).to_string()
}

fn checksum(key: u64, model: &str, texts: &str) -> EnrichmentSum {
    files::checksum(&[&key.to_le_bytes(), model.as_bytes(), texts.as_bytes()])
}
