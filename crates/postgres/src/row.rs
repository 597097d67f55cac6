//! Rows: what is read of them, checked, and what is written.

use sqlx::Row;
use sqlx::postgres::PgRow;
use toolscout_index::{Enrichment, Error, OwnerWords, Settings, Tool, ToolId};

use super::error::StoreError;

/// A generation of a catalog, and which one of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub generation: u64,
    pub mark: u64,
}

/// The id of a row.
pub(super) fn tool_id(id: &str, server: &str) -> Result<ToolId, StoreError> {
    let name = match server {
        "" => Some(id),
        server => id
            .strip_prefix(server)
            .and_then(|rest| rest.strip_prefix('/')),
    };
    let damaged = || StoreError::Refused(format!("the store has a tool {id:?} of {server:?}"));
    ToolId::new(server, name.ok_or_else(damaged)?).map_err(|_| damaged())
}

/// A tool whose row is as it was written.
pub(super) fn tool(id: &str, json: &str, hash: Vec<u8>) -> Result<Tool, StoreError> {
    let damaged = |reason: String| {
        StoreError::Refused(format!(
            "the store has a tool {id:?} that cannot be used: {reason}"
        ))
    };
    if blake3::hash(json.as_bytes()).as_bytes() != hash.as_slice() {
        return Err(damaged("it is not what was written".to_owned()));
    }
    let tool: Tool = serde_json::from_str(json).map_err(|error| damaged(error.to_string()))?;
    if tool.id.as_str() != id {
        return Err(damaged(format!("it is {:?}", tool.id.as_str())));
    }
    Ok(tool)
}

/// A tool as its row has it: the hash of its text, and its text.
pub(super) fn tool_json(tool: &Tool) -> Result<([u8; 32], String), Error> {
    let json = serde_json::to_string(tool)
        .map_err(|error| Error::invalid_tool(tool.id.to_string(), error.to_string()))?;
    Ok((*blake3::hash(json.as_bytes()).as_bytes(), json))
}

/// The owner's words in a row; none where there are none.
pub(super) fn parse_owner_words(json: Option<String>) -> Result<OwnerWords, StoreError> {
    let words = json.map(|json| OwnerWords::read(json.as_bytes()));
    words
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|error| {
            StoreError::Refused(format!("the store has words that cannot be read: {error}"))
        })
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
    let settings: Settings = serde_json::from_str(&json).map_err(|error| {
        StoreError::Refused(format!(
            "the store has settings that cannot be read: {error}"
        ))
    })?;
    settings.validate()?;
    Ok(settings)
}

/// A text as PostgreSQL can store it, which has none with the character of number 0.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// The enrichment of a row. A damaged one counts as forgotten: it can be written again.
pub fn enrichment(id: &str, row: &PgRow) -> Result<Option<Enrichment>, StoreError> {
    let model: Option<String> = row.try_get("model")?;
    let texts: Option<Vec<String>> = row.try_get("texts")?;
    let sum: Option<Vec<u8>> = row.try_get("checksum")?;
    let (Some(model), Some(texts), Some(sum)) = (model, texts, sum) else {
        return Ok(None);
    };
    let is_intact = sum == enrichment_checksum(id, &model, &texts);
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

/// Tells what was written about a tool from anything else.
pub fn enrichment_checksum(tool: &str, model: &str, texts: &[String]) -> [u8; 32] {
    let all = serde_json::json!([tool, model, texts]);
    *blake3::hash(all.to_string().as_bytes()).as_bytes()
}
