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
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let value = serde_json::from_str(line)
                .map_err(|error| EvalError::malformed(path, index + 1, error.to_string()))?;
            read(index + 1, value)
        })
        .collect()
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
    let read = |source| EvalError::io("read", folder, source);
    let entries = std::fs::read_dir(folder)
        .map_err(read)?
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(read)?;
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.retain(|path| {
        !path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    });
    files.sort();
    Ok(files)
}

pub(super) fn not_a_set(path: &Path, reason: &str) -> EvalError {
    EvalError::NotASet {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
