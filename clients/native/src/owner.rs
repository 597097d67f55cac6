//! What the owner of a catalog says about it, and what it has learned: settings, words and usage
//! memory, in the JSON of the HTTP API.

use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use toolscout::printable::short_floats;
use toolscout_index::memory::{Deletion, MAX_ENTRIES, Source, Switch};
use toolscout_index::{OwnerWords, SearchOptions, Settings, ToolId};

use crate::error::{Error, Result};
use crate::opening::Open;

/// Remembers that a tool was used for a request. False while the usage memory is off.
///
/// # Errors
/// `tool_not_in_answer` and those of the engine.
pub fn remember(open: &Open, queries: &[String], hits: &[String], tool: &str) -> Result<bool> {
    let id = ToolId::parse(tool)?;
    if !hits.iter().any(|hit| hit == tool) {
        let message = format!("the tool {tool:?} is not among the hits of this answer");
        return Err(Error::new("tool_not_in_answer", message));
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = elapsed.unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut remembered = false;
    for query in queries {
        let memory = open.catalog.memory();
        remembered |= memory.remember(query, &id, now, &Source::command_line())?;
    }
    Ok(remembered)
}

/// The entries of the usage memory.
///
/// # Errors
/// Those of the engine.
pub fn memory(open: &Open) -> Result<Value> {
    let memory = open.catalog.memory();
    let mut entries = Vec::new();
    for entry in memory.entries(None, MAX_ENTRIES)? {
        entries.push(json!({
            "query": entry.query,
            "tool": entry.tool.as_str(),
            "times": entry.times,
            "at_ms": entry.at_ms,
            "taught_by": entry.taught_by,
        }));
    }
    Ok(Value::Array(entries))
}

/// Switches the usage memory on or off.
///
/// # Errors
/// Those of the engine.
pub fn set_memory(open: &Open, enabled: bool) -> Result<Value> {
    let switch = if enabled { Switch::On } else { Switch::Off };
    open.catalog.memory().set_switch(switch)?;
    Ok(json!({ "enabled": enabled }))
}

/// Deletes the entries of a tool or of a request, or all of them.
///
/// # Errors
/// `invalid_value` where both are given, and those of the engine.
pub fn forget(open: &Open, tool: Option<String>, query: Option<String>) -> Result<Value> {
    let what = match (tool, query) {
        (Some(tool), None) => Deletion::Tool(ToolId::parse(&tool)?),
        (None, Some(query)) => Deletion::Query(query),
        (None, None) => Deletion::All,
        (Some(_), Some(_)) => {
            let message = "give `tool` or `query`, or neither to delete every entry";
            return Err(Error::new("invalid_value", message));
        }
    };
    let forgotten = open.catalog.memory().forget(&what)?;
    Ok(json!({ "forgotten": forgotten }))
}

/// The owner's words.
///
/// # Errors
/// Those of the engine.
pub fn words(open: &Open) -> Result<Value> {
    let searcher = open.newest()?;
    let words = searcher.owner_words().cloned().unwrap_or_default();
    Ok(json!({
        "words": words,
        "generation": searcher.generation(),
        "without_tool": searcher.entries_without_tool(&words),
    }))
}

/// Replaces the owner's words, or changes them by a JSON merge patch.
///
/// # Errors
/// `invalid_owner_words` that names the entry, and those of the engine.
pub fn set_words(open: &Open, document: &str, is_patch: bool) -> Result<Value> {
    let mut writer = open.catalog.writer()?;
    let changed = match is_patch {
        true => writer
            .owner_words()?
            .patched(&serde_json::from_str(document)?)?,
        false => OwnerWords::read(document.as_bytes())?,
    };
    writer.set_owner_words(&changed)?;
    writer.commit()?;
    writer.embed_pending(&mut |_| ControlFlow::Continue(()))?;
    drop(writer);
    words(open)
}

/// The servers of the catalog, with the number of their tools.
///
/// # Errors
/// Those of the engine.
pub fn servers(open: &Open) -> Result<Value> {
    open.newest()?;
    let servers = open.catalog.stats()?.servers.into_iter();
    Ok(servers
        .map(|(name, tools)| json!({ "name": name, "tools": tools }))
        .collect())
}

/// The settings of the catalog: the defaults of its searches.
///
/// # Errors
/// Those of the engine.
pub fn settings(open: &Open) -> Result<Value> {
    let searcher = open.newest()?;
    Ok(written(searcher.settings()))
}

fn written(settings: &Settings) -> Value {
    let mut flat = Map::new();
    flat.insert("description".into(), settings.description.clone().into());
    if let Value::Object(search) = short_floats(&settings.search) {
        flat.extend(search);
    }
    let companions = settings.search.companions.into();
    flat.insert("companions".into(), companions);
    let folds = settings.search.fold_duplicates.into();
    flat.insert("fold_duplicates".into(), folds);
    let graph = settings.graph_min_vectors.into();
    flat.insert("graph_min_vectors".into(), graph);
    Value::Object(flat)
}

/// Replaces the settings of the catalog.
///
/// # Errors
/// `invalid_settings` that names the setting, and those of the engine.
pub fn set_settings(open: &Open, document: &str) -> Result<Value> {
    let invalid = |failure: serde_json::Error| Error::new("invalid_settings", failure.to_string());
    let mut flat: Map<String, Value> = serde_json::from_str(document).map_err(invalid)?;
    let description = flat.shift_remove("description").unwrap_or_default();
    let description: Option<String> = serde_json::from_value(description).map_err(invalid)?;
    let graph = flat.shift_remove("graph_min_vectors").unwrap_or_default();
    let graph_min_vectors = serde_json::from_value(graph).map_err(invalid)?;
    let search: SearchOptions = serde_json::from_value(flat.into()).map_err(invalid)?;
    let mut writer = open.catalog.writer()?;
    let settings = Settings {
        description: description.unwrap_or_default(),
        search,
        graph_min_vectors,
        ..writer.settings()?
    };
    writer.set_settings(&settings)?;
    writer.commit()?;
    Ok(written(&settings))
}
