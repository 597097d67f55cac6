//! What the readers of a set's files share.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{EvalError, Result, read_text};

/// Reads a file with one JSON object per line. Blank lines are ignored.
pub(super) fn each_object<T>(
    path: &Path,
    mut read: impl FnMut(usize, Value) -> Result<T>,
) -> Result<Vec<T>> {
    let text = read_text(path)?;
    let mut objects = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(content) {
            Ok(value) => objects.push(read(line, value)?),
            Err(error) => return Err(EvalError::malformed(path, line, error.to_string())),
        }
    }
    Ok(objects)
}

pub(super) fn text_of(value: &Value, names: &[&str]) -> Option<String> {
    names
        .iter()
        .find_map(|name| text_of_value(value.get(name)?))
}

pub(super) fn text_of_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(EvalError::failed_to("read", folder))? {
        let entry = entry.map_err(EvalError::failed_to("read", folder))?;
        let path = entry.path();
        // Editors and file managers leave hidden files behind.
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.is_file() && !is_hidden {
            files.push(path);
        }
    }
    // The system lists files in any order, and figures must not depend on it.
    files.sort();
    Ok(files)
}

pub(super) fn not_a_set(path: &Path, reason: &str) -> EvalError {
    EvalError::NotASet {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
