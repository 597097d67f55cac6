//! The owner's words in the database of a catalog, as one document with its checksum.

use super::{ToolsDb, checked_texts, searched};
use crate::error::Result;
use crate::owner_words::OwnerWords;
use crate::tool::ToolId;

/// The key of the document: the checksum, a space, and the JSON.
const KEY: &str = "owner_words";

impl ToolsDb {
    /// The document as it is stored; `None` without one. Equal texts are equal words.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn stored_owner_words(&self) -> Result<Option<String>> {
        self.meta(KEY)
    }

    /// Reads what [`ToolsDb::stored_owner_words`] returned.
    ///
    /// # Errors
    /// [`crate::Error::Store`] when it is not what was written.
    pub fn read_owner_words(&self, stored: &str) -> Result<OwnerWords> {
        let Some(json) = intact(stored) else {
            return Err(self.damaged("the owner's words are not what was written"));
        };
        match OwnerWords::read(json.as_bytes()) {
            Ok(words) => Ok(words),
            Err(e) => Err(self.damaged(format!("the owner's words cannot be read ({e})"))),
        }
    }

    /// The owner's words; `None` for none.
    ///
    /// # Errors
    /// As [`ToolsDb::read_owner_words`].
    pub fn owner_words(&self) -> Result<Option<OwnerWords>> {
        let Some(stored) = self.stored_owner_words()? else {
            return Ok(None);
        };
        Ok(Some(self.read_owner_words(&stored)?))
    }

    /// Replaces the owner's words, which must be valid. Returns the keys that tools with other texts had
    /// and have now.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub fn set_owner_words(&self, words: &OwnerWords) -> Result<Vec<(u64, u64)>> {
        let before = self.owner_words()?.unwrap_or_default();
        if words.is_empty() {
            self.execute("DELETE FROM meta WHERE key = ?1", [KEY])?;
        } else {
            let json = words.to_json();
            let sum = blake3::hash(json.as_bytes()).to_hex();
            self.set_meta(KEY, &format!("{sum} {json}"))?;
        }
        let mut keys = Vec::new();
        for id in words.tools_with_other_texts(&before) {
            keys.extend(self.write_texts_anew(&id, words)?);
        }
        Ok(keys)
    }

    /// Writes a tool again with its new texts. Gives its old and its new key; `None` where there is no
    /// such tool.
    fn write_texts_anew(&self, id: &ToolId, words: &OwnerWords) -> Result<Option<(u64, u64)>> {
        let Some((old, hash)) = self.key_and_hash(id)? else {
            return Ok(None);
        };
        let stored = self.tool(old)?;
        let enrichment = self.enrichment(old)?;
        let tool = stored.parse()?;
        let texts = checked_texts(&searched(&tool, Some(words)));
        // Under a new key: a snapshot takes a row with a key that it knows for unchanged.
        self.delete(old, &hash)?;
        let new = self.insert(id, &hash, &texts, &stored.json)?;
        // The definition that it was written for is the same.
        if let Some(stored) = enrichment {
            self.put_enrichment(new, &stored.enrichment)?;
        }
        Ok(Some((old, new)))
    }
}

/// The JSON of a stored document; `None` if it does not have its checksum.
fn intact(stored: &str) -> Option<&str> {
    let (sum, json) = stored.split_once(' ')?;
    if sum != blake3::hash(json.as_bytes()).to_hex().as_str() {
        return None;
    }
    Some(json)
}
