//! What is read of a row, checked.

use toolscout_index::{Settings, ToolId};

use super::error::StoreError;

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
