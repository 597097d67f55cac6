//! Where the other files of a document are within it, and what their references are called.

use serde_json::Value;

/// The key of the document under which the other files are put, by their names.
pub(super) const FILES_KEY: &str = "x-toolscout-files";
/// The key of a file that cannot be read, under which the reason is.
pub(super) const UNREADABLE: &str = "x-unreadable";

/// A reference as its document has it: the file first.
pub(super) fn as_declared(reference: &str) -> String {
    let Some(inner) = within_files(reference) else {
        return reference.to_owned();
    };
    let (name, pointer) = match inner.find('/') {
        Some(at) => inner.split_at(at),
        None => (inner, ""),
    };
    let name = name
        .replace("%25", "%")
        .replace("~1", "/")
        .replace("~0", "~");
    match pointer {
        "" => name,
        pointer => format!("{name}#{pointer}"),
    }
}

/// What a reference into the other files has after their key.
fn within_files(reference: &str) -> Option<&str> {
    let rest = reference.strip_prefix("#/")?.strip_prefix(FILES_KEY)?;
    rest.strip_prefix('/')
}

/// Why the file of a reference cannot be read, where that is so.
pub(super) fn unreadable<'a>(root: &'a Value, reference: &str) -> Option<&'a str> {
    let declared = as_declared(reference);
    let file = declared.split('#').next()?;
    root.get(FILES_KEY)?.get(file)?.get(UNREADABLE)?.as_str()
}
