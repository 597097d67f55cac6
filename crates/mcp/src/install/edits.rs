//! Edits of JSON and TOML that leave everything else as it is written.

use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, RawString, Table};

use super::ENTRY_NAME;
use crate::config::jsonc;

/// The key under which a file of servers lists them, and the servers. As the file is read: `servers`
/// alone is VS Code's.
pub(super) fn servers_of(text: &str) -> (&'static str, Map<String, Value>) {
    let file: Value = match CstRootNode::parse(text, &jsonc()) {
        Ok(root) => root.to_serde_value().unwrap_or_default(),
        // An edit of such a file fails, and says what is wrong with it.
        Err(_) => Value::Null,
    };
    let is_of_vs_code = file.get("mcpServers").is_none() && file.get("servers").is_some();
    let key = match is_of_vs_code {
        true => "servers",
        false => "mcpServers",
    };
    let listed = file.get(key).and_then(Value::as_object).cloned();
    (key, listed.unwrap_or_default())
}

/// Edits the servers under `key` of a JSON document, with or without comments. The rest stays byte
/// for byte, and so does the whole if the edit changes nothing.
pub(super) fn edit_json(
    text: &str,
    key: &str,
    edit: impl FnOnce(&CstObject),
) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(text, &jsonc())
        .map_err(|error| format!("it is not valid JSON ({error})"))?;
    let before = root.to_serde_value();
    let settings = root.object_value().ok_or("it is not a JSON object")?;
    let Some(servers) = settings.object_value_or_create(key) else {
        return Err(format!("its {key:?} is not an object"));
    };
    edit(&servers);
    if root.to_serde_value() == before {
        return Ok(text.to_owned());
    }
    let merged = root.to_string();
    Ok(if merged.ends_with('\n') {
        merged
    } else {
        merged + "\n"
    })
}

/// Sets the entry of a server. One that has this value stays as it is written.
pub(super) fn set_server(listed: &CstObject, name: &str, entry: &Value) {
    match listed.get(name) {
        Some(present) if present.to_serde_value().as_ref() == Some(entry) => {}
        Some(outdated) => outdated.set_value(json_input(entry)),
        None => {
            listed.append(name, json_input(entry));
        }
    }
}

fn json_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(json_input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), json_input(value)))
                .collect(),
        ),
    }
}

/// Sets the table `key.toolscout` of a TOML document in the place of these servers, so that comments
/// and order stay.
pub(super) fn merge_toml(
    text: &str,
    key: &str,
    entry: &Value,
    servers: &[String],
) -> Result<String, String> {
    let mut settings = match text.parse::<DocumentMut>() {
        Ok(settings) => settings,
        Err(error) => return Err(format!("it is not valid TOML ({})", error.message())),
    };
    let listed = settings.entry(key).or_insert_with(|| {
        let mut listed = Table::new();
        // Its servers have headers of their own.
        listed.set_implicit(true);
        Item::Table(listed)
    });
    let Some(listed) = listed.as_table_like_mut() else {
        return Err(format!("its {key:?} is not a table"));
    };
    let mut comments = String::new();
    for server in servers {
        let removed = listed.remove(server);
        // What stands above a table belongs to it, also at the beginning of the file.
        let above = match &removed {
            Some(Item::Table(table)) => table.decor().prefix(),
            _ => None,
        };
        let above = above.and_then(RawString::as_str).unwrap_or_default();
        if above.contains('#') {
            comments.push_str(above);
        }
    }
    let mut item = toml_item(entry);
    if let Some(table) = item.as_table_mut()
        && !comments.is_empty()
    {
        table.decor_mut().set_prefix(comments);
    }
    listed.insert(ENTRY_NAME, item);
    Ok(settings.to_string())
}

fn toml_item(value: &Value) -> Item {
    match value {
        Value::Object(fields) => {
            let mut table = Table::new();
            for (name, value) in fields {
                table.insert(name, toml_item(value));
            }
            Item::Table(table)
        }
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
            toml_edit::value(toml_edit::Array::from_iter(texts))
        }
        Value::Bool(value) => toml_edit::value(*value),
        value => toml_edit::value(value.as_str().unwrap_or_default()),
    }
}

/// Switches a server on or off. One that is off is `"disabled": true`, and one that is on has no such
/// key.
pub(super) fn switch(server: &CstObjectProp, is_on: bool) {
    let Some(entry) = server.object_value() else {
        return;
    };
    match entry.get("disabled") {
        Some(disabled) if is_on => disabled.remove(),
        Some(disabled) => disabled.set_value(CstInputValue::Bool(true)),
        None if is_on => {}
        None => {
            entry.append("disabled", CstInputValue::Bool(true));
        }
    }
}
