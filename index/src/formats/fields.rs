//! The fields of one object, taken out one by one with their types checked.

use serde_json::{Map, Value};

use super::cut;
use crate::error::{Error, Result};

/// An object's fields, removed and checked one by one; `null` counts as missing.
pub(super) struct Fields {
    pub map: Map<String, Value>,
    /// The tool's name as it is in the input.
    pub name: String,
}

impl Fields {
    pub fn new(mut map: Map<String, Value>, position: &str) -> Result<Self> {
        match map.shift_remove("name") {
            Some(Value::String(name)) if !name.trim().is_empty() => Ok(Fields { map, name }),
            None | Some(Value::Null | Value::String(_)) => Err(not_a_tool(position, "{")),
            Some(other) => {
                let reason = format!(
                    "its `name` is {}; it must be a string",
                    cut(&other.to_string(), 80)
                );
                Err(Error::invalid_tool(position, reason))
            }
        }
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, &other, "a string")),
        }
    }

    pub fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.wrong(field, &other, "an object")),
        }
    }

    pub fn texts(&mut self, field: &str) -> Result<Vec<String>> {
        let Some(value) = self.take(field) else {
            return Ok(Vec::new());
        };
        match serde_json::from_value(value.clone()) {
            Ok(texts) => Ok(texts),
            Err(_) => Err(self.wrong(field, &value, "a list of strings")),
        }
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        self.map
            // Keeps the order of the other fields, in which an export writes them.
            .shift_remove(field)
            .filter(|value| !value.is_null())
    }

    pub fn wrong(&self, field: &str, value: &Value, expected: &str) -> Error {
        let reason = format!(
            "its `{field}` is {}; it must be {expected}",
            cut(&value.to_string(), 80)
        );
        Error::invalid_tool(format!("{:?}", self.name), reason)
    }
}

/// The error for a list entry that is not a tool.
pub(super) fn not_a_tool(position: &str, text: &str) -> Error {
    let reason = match text.starts_with('{') {
        true => match hosted_tool(text) {
            Some(kind) => format!(
                "it is the tool {kind:?} that a provider runs itself, and has no definition to search; leave it out"
            ),
            None => "it has no name; every tool needs a `name`".to_owned(),
        },
        false => format!("it is {} where an object was expected", cut(text, 80)),
    };
    Error::invalid_tool(position, reason)
}

/// The kind of a tool of a provider, such as `{"type": "web_search"}`.
fn hosted_tool(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let kind = value.get("type")?.as_str()?;
    let is_hosted = !matches!(kind, "function" | "custom" | "object");
    (is_hosted && value.get("name").is_none()).then(|| cut(kind, 80))
}
