//! The engine's one error type. Every variant carries the value that was wrong, and its message
//! names the next step.

use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tool that cannot be registered as it is.
    #[error("invalid tool {tool}: {reason}")]
    InvalidTool {
        /// The tool's name, or its position where it has none.
        tool: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Input that is not in any accepted format.
    #[error("{source_name}{}: {reason}", place(.line, .column))]
    Parse {
        /// The file, URL or stream that was read.
        source_name: String,
        /// 1-based line, where known.
        line: Option<usize>,
        /// 1-based column, where known.
        column: Option<usize>,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// One id twice in one batch.
    #[error(
        "tool id {id} occurs twice in the input (items {first} and {second}); ids must be unique, rename one or give each file its own --server"
    )]
    DuplicateTool {
        /// The id in question.
        id: String,
        /// 1-based position of the first occurrence.
        first: usize,
        /// 1-based position of the second occurrence.
        second: usize,
    },
    /// A catalog name that cannot be a folder's name.
    #[error(
        "invalid catalog name {name:?}: use 1 to 64 letters, digits, `-`, `_` or `.`, starting with a letter or digit"
    )]
    InvalidCatalogName {
        /// The name given.
        name: String,
    },
    /// A catalog that does not exist.
    #[error("no catalog {name:?} in {}; `toolscout add` creates it", data_dir.display())]
    UnknownCatalog {
        /// The name given.
        name: String,
        /// Where it was looked for.
        data_dir: PathBuf,
    },
    /// Another process is writing to the catalog.
    #[error("catalog {} is being written by another process; wait for it to finish, or stop it (searching goes on meanwhile)", path.display())]
    Locked {
        /// The catalog's folder.
        path: PathBuf,
    },
    /// A query that cannot be answered.
    #[error("invalid query: {reason}")]
    InvalidQuery {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A setting out of its range.
    #[error("the setting {setting} is {value}, it must be from {lo} to {hi}")]
    InvalidSetting {
        /// Which one.
        setting: &'static str,
        /// The value given.
        value: f32,
        /// Least allowed value.
        lo: f32,
        /// Largest allowed value.
        hi: f32,
    },
    /// Vectors of another length than the embedder promises.
    #[error(
        "embedder {embedder} gave {received} dimensions where {expected} were expected; the model's files do not belong together, fetch them anew with `toolscout models pull --force`"
    )]
    DimensionMismatch {
        /// The embedder's id.
        embedder: String,
        /// What it promises.
        expected: usize,
        /// What came.
        received: usize,
    },
    /// The embedding model cannot be loaded or failed.
    #[error("embedding model {model}: {reason}")]
    Embedder {
        /// The model's name or path.
        model: String,
        /// What went wrong and what to do.
        reason: String,
    },
    /// The database is damaged or was written by a newer version.
    #[error("the catalog database {} cannot be used: {reason}", path.display())]
    Store {
        /// The database file.
        path: PathBuf,
        /// What went wrong and what to do.
        reason: String,
    },
    /// A derived index could not be built or read.
    #[error("the {index} index in {} cannot be used: {reason}; it is derived data and can be deleted", path.display())]
    Derived {
        /// `lexical` or `graph`.
        index: &'static str,
        /// Its folder.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A ranker file cannot be used.
    #[error("the ranker {} cannot be used: {reason}; the previous one stays, `toolscout tune --ranker --apply` makes it anew, and it can be deleted", path.display())]
    Ranker {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file system said no.
    #[error("{action} {}: {source}{}", path.display(), next_step(source))]
    Io {
        /// What was tried, as a verb (`read`, `create`).
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an I/O error with what was tried and where.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// An [`Error::InvalidTool`] for the tool of this name.
    pub fn invalid_tool(tool: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::InvalidTool {
            tool: tool.into(),
            reason: reason.into(),
        }
    }
}

fn next_step(source: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; make its folder readable and writable, or choose another with --data"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; free some space, nothing was changed"
        }
        _ => "",
    }
}

fn place(line: &Option<usize>, column: &Option<usize>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(":{line}:{column}"),
        (Some(line), None) => format!(":{line}"),
        _ => String::new(),
    }
}
