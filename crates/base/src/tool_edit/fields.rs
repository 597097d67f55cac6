//! The fields of a value that the owner wants.

use std::collections::BTreeMap;

use serde_json::Value;

/// Longest path of a field.
const MAX_PATH_BYTES: usize = 512;

/// Whether this is no path of a field.
pub fn is_invalid(path: &str) -> bool {
    path.len() > MAX_PATH_BYTES || path.split('.').any(str::is_empty)
}

/// Fields by name, and which parts of them; all of a field that has none.
#[derive(Default)]
pub struct Fields(BTreeMap<String, Fields>);

impl Fields {
    /// The fields with these paths.
    pub fn of(paths: &[String]) -> Self {
        let mut fields = Fields::default();
        for path in paths {
            let mut at = &mut fields;
            for name in path.split('.') {
                at = at.0.entry(name.to_owned()).or_default();
            }
        }
        fields
    }

    /// Whether a value has one of the fields; a list, if an element of it has.
    fn has_any_of(&self, value: &Value) -> bool {
        match value {
            Value::Object(object) => self.0.keys().any(|name| object.contains_key(name)),
            Value::Array(items) => items.iter().any(|item| self.has_any_of(item)),
            _ => false,
        }
    }

    /// Leaves these fields of a value; all of one that has none of them.
    pub fn keep_in(&self, value: &mut Value) {
        if self.has_any_of(value) {
            self.keep(value);
        }
    }

    fn keep(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::Object(object) => {
                object.retain(|name, _| self.0.contains_key(name));
                for (name, value) in object.iter_mut() {
                    self.0[name].keep(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.keep(item)),
            _ => {}
        }
    }

    /// A text that is JSON with the fields alone; `None` if it stays as it is.
    pub fn kept_text(&self, text: &str) -> Option<String> {
        if !text.trim_start().starts_with(['{', '[']) {
            return None;
        }
        let mut value = serde_json::from_str(text).ok()?;
        if !self.has_any_of(&value) {
            return None;
        }
        self.keep(&mut value);
        Some(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_no_empty_part() {
        assert!(is_invalid("") && is_invalid("a.") && is_invalid(".a") && is_invalid("a..b"));
        assert!(!is_invalid("a") && !is_invalid("a.b-c"));
    }
}
