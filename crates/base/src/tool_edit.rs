//! What an owner changes of one tool: in a file of servers for everyone, in a profile for its clients.

mod fields;
pub mod schema;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use fields::Fields;

/// Longest description, in bytes; a server's own may be as long.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// What the owner changes of one tool. `Debug` shows no values of arguments, which may be secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolEdit {
    /// The name under which it is found and called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// It is neither found nor called.
    #[serde(skip_serializing_if = "is_false")]
    pub hide: bool,
    /// Whether it is always in the tool lists of models; by default as the server asks for it.
    #[serde(alias = "alwaysLoad", skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,
    /// Arguments of every call. Models neither see nor change them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Value>,
    /// Arguments of the calls that do not give them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub defaults: Map<String, Value>,
    /// The fields of its results that clients get, as paths with dots; all of them if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl fmt::Debug for ToolEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<&String> = self.arguments.keys().collect();
        f.debug_struct("ToolEdit")
            .field("name", &self.name)
            .field("hide", &self.hide)
            .field("pin", &self.pin)
            .field("arguments", &arguments)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

impl ToolEdit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == ToolEdit::default()
    }

    /// Whether it changes what models read of the tool.
    pub fn changes_definition(&self) -> bool {
        let has_texts = self.title.is_some() || self.description.is_some();
        has_texts || !self.arguments.is_empty() || !self.defaults.is_empty()
    }

    /// Checks it. `place` is its path in the file.
    ///
    /// # Errors
    /// What is wrong, with the place.
    pub fn check(&self, place: &str) -> Result<(), String> {
        if let Some(description) = &self.description
            && description.len() > MAX_DESCRIPTION_BYTES
        {
            return Err(format!(
                "`{place}.description` has {} bytes, {MAX_DESCRIPTION_BYTES} are allowed",
                description.len()
            ));
        }
        let mut fixed = self.arguments.keys();
        if let Some(twice) = fixed.find(|key| self.defaults.contains_key(*key)) {
            return Err(format!(
                "`{place}`: {twice:?} is in `arguments` and in `defaults`; keep one"
            ));
        }
        if let Some(field) = self.fields.iter().find(|field| fields::is_invalid(field)) {
            return Err(format!(
                "`{place}.fields`: {field:?} is no path; write names of fields with dots between them, as in user.login"
            ));
        }
        Ok(())
    }

    /// Adds the owner's arguments to those of a call.
    pub fn fill(&self, arguments: &mut Map<String, Value>) {
        for (argument, value) in &self.defaults {
            if !arguments.contains_key(argument) {
                arguments.insert(argument.clone(), value.clone());
            }
        }
        // Whatever a model gives in their place.
        arguments.extend(self.arguments.clone());
    }

    /// The strings among its arguments whose names say that they are secret, or that of an object in which
    /// they are the only string.
    pub fn secrets(&self, is_secret: &impl Fn(&str) -> bool) -> Vec<&str> {
        let mut secrets = Vec::new();
        for (name, value) in self.arguments.iter().chain(&self.defaults) {
            add_secrets(value, is_secret(name), is_secret, &mut secrets);
        }
        secrets
    }
}

/// Adds the strings of a value that are secret: those in fields with such names. Of an object in such a
/// field, which may also say what the secret is for, these are the strings with such names, and its only
/// string.
fn add_secrets<'a>(
    value: &'a Value,
    is_in_secret: bool,
    is_secret: &impl Fn(&str) -> bool,
    secrets: &mut Vec<&'a str>,
) {
    match value {
        Value::String(text) if is_in_secret => secrets.push(text),
        Value::Array(items) => {
            for item in items {
                add_secrets(item, is_in_secret, is_secret, secrets);
            }
        }
        Value::Object(fields) => {
            let strings = fields.values().filter(|value| value.is_string());
            let has_one_string = strings.count() == 1;
            for (name, value) in fields {
                let may_be = match value {
                    Value::String(_) => has_one_string,
                    value => value.is_object(),
                };
                let is_named = is_secret(name);
                let is_in_secret = is_named || is_in_secret && may_be;
                add_secrets(value, is_in_secret, is_secret, secrets);
            }
        }
        _ => {}
    }
}
