//! Rows: what is read of them, checked, and what is written.

use std::fmt;

use sqlx::Row;
use sqlx::postgres::PgRow;
use toolscout_index::{Enrichment, Error, OwnerWords, Settings, Tool, ToolId};

use super::error::StoreError;

/// A generation of a catalog, and which one of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredGeneration {
    pub generation: u64,
    pub mark: u64,
}

/// The id of a row.
pub(super) fn tool_id(id: &str, server: &str) -> Result<ToolId, StoreError> {
    let tool_id = match name_in(id, server) {
        Some(name) => ToolId::new(server, name).ok(),
        None => None,
    };
    match tool_id {
        Some(tool_id) => Ok(tool_id),
        None => Err(StoreError::Refused(format!(
            "the store has a tool {id:?} of {server:?}"
        ))),
    }
}

/// The part of an id after its server.
fn name_in<'a>(id: &'a str, server: &str) -> Option<&'a str> {
    if server.is_empty() {
        return Some(id);
    }
    id.strip_prefix(server)?.strip_prefix('/')
}

/// A tool whose row is as it was written.
pub(super) fn tool(id: &str, json: &str, hash: Vec<u8>) -> Result<Tool, StoreError> {
    // The hash is compared first: a damaged text may still parse as a tool.
    if blake3::hash(json.as_bytes()).as_bytes() != hash.as_slice() {
        return Err(damaged(id, "it is not what was written"));
    }
    match serde_json::from_str::<Tool>(json) {
        Ok(tool) if tool.id.as_str() == id => Ok(tool),
        Ok(tool) => Err(damaged(id, format_args!("it is {:?}", tool.id.as_str()))),
        Err(error) => Err(damaged(id, error)),
    }
}

fn damaged(id: &str, reason: impl fmt::Display) -> StoreError {
    StoreError::Refused(format!(
        "the store has a tool {id:?} that cannot be used: {reason}"
    ))
}

/// A tool as its row has it: the hash of its text, and its text.
pub(super) fn tool_json(tool: &Tool) -> Result<([u8; 32], String), Error> {
    let json = serde_json::to_string(tool)
        .map_err(|error| Error::invalid_tool(tool.id.to_string(), error.to_string()))?;
    Ok((*blake3::hash(json.as_bytes()).as_bytes(), json))
}

/// The owner's words in a row; none where there are none.
pub(super) fn parse_owner_words(json: Option<String>) -> Result<OwnerWords, StoreError> {
    let Some(json) = json else {
        return Ok(OwnerWords::default());
    };
    match OwnerWords::read(json.as_bytes()) {
        Ok(words) => Ok(words),
        Err(error) => Err(StoreError::Refused(format!(
            "the store has words that cannot be read: {error}"
        ))),
    }
}

/// A tool of a row with its id, its hash and its text.
pub(super) fn tool_of(row: &PgRow) -> Result<Tool, StoreError> {
    let (id, json): (String, String) = (row.try_get("id")?, row.try_get("json")?);
    tool(&id, &json, row.try_get("hash")?)
}

/// The settings in a row; the engine's where there are none.
pub(super) fn parse_settings(json: Option<String>) -> Result<Settings, StoreError> {
    let Some(json) = json else {
        return Ok(Settings::default());
    };
    let settings: Settings = match serde_json::from_str(&json) {
        Ok(settings) => settings,
        Err(error) => {
            return Err(StoreError::Refused(format!(
                "the store has settings that cannot be read: {error}"
            )));
        }
    };
    // Another version may have written what this one does not allow.
    settings.validate()?;
    Ok(settings)
}

/// A count in a row, which PostgreSQL has no unsigned type for.
pub(super) fn unsigned(row: &PgRow, column: &str) -> Result<u64, StoreError> {
    let number: i64 = row.try_get(column)?;
    Ok(number as u64)
}

/// A text as PostgreSQL can store it, which has none with the character of number 0.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

pub(super) fn texts<'a>(all: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    all.into_iter().map(|one| text(one)).collect()
}

/// The enrichment of a row. A damaged one counts as forgotten: it can be written again.
pub fn enrichment(id: &str, row: &PgRow) -> Result<Option<Enrichment>, StoreError> {
    let model: Option<String> = row.try_get("model")?;
    let texts: Option<Vec<String>> = row.try_get("texts")?;
    let sum: Option<Vec<u8>> = row.try_get("checksum")?;
    // All three are NULL for a tool whose texts were forgotten.
    let (Some(model), Some(texts), Some(sum)) = (model, texts, sum) else {
        return Ok(None);
    };
    if sum == enrichment_checksum(id, &model, &texts)
        && let Ok(enrichment) = Enrichment::new(texts, model)
    {
        return Ok(Some(enrichment));
    }
    tracing::warn!(
        tool = id,
        "what was written about a tool is damaged in the store"
    );
    Ok(None)
}

/// Tells what was written about a tool from anything else.
pub fn enrichment_checksum(tool: &str, model: &str, texts: &[String]) -> [u8; 32] {
    // As JSON, so that no two lists of texts have the same bytes.
    let all = serde_json::json!([tool, model, texts]);
    *blake3::hash(all.to_string().as_bytes()).as_bytes()
}
