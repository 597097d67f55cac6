//! The engine's error type. Every variant carries the value that was wrong; its message names the
//! value, the place and, where there is one, the next step.

use std::io;
use std::path::{Path, PathBuf};

use crate::database::{DatabaseError, is_permission_denied, next_step};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Gives I/O errors the operation and the path, as [`Error::io`] does.
pub(crate) trait IoResult<T> {
    fn named(self, action: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> IoResult<T> for io::Result<T> {
    fn named(self, action: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::io(action, path, source))
    }
}

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
    #[error("{source_name}{}: {reason}", position(.line, .column))]
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
        "tool id {id} occurs twice in the input (items {first} and {second}); ids must be unique, rename one or give it another server"
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
    #[error("no catalog {name:?} in {}", data_dir.display())]
    UnknownCatalog {
        /// The name given.
        name: String,
        /// The data directory that was searched.
        data_dir: PathBuf,
    },
    /// Another process is writing to the catalog.
    #[error("catalog {} is being written by another process; wait for it to finish, or stop it (searches still work)", path.display())]
    Locked {
        /// The catalog's folder.
        path: PathBuf,
    },
    /// A change to a catalog that follows another one, and would no longer be the same.
    #[error("catalog {} follows the one of a store and is changed there; send the change to a server that was started with that store", path.display())]
    Followed {
        /// The catalog's folder.
        path: PathBuf,
    },
    /// A query with a value out of its range.
    #[error("invalid query: {0}")]
    InvalidQuery(QueryProblem),
    /// A name that is none of those known, such as that of a search mode.
    #[error("unknown {kind} {name:?}; use {known}")]
    UnknownName {
        /// What the name should be of.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that are known.
        known: String,
    },
    /// A request that the usage memory cannot store.
    #[error("{0}")]
    InvalidMemoryEntry(MemoryEntryProblem),
    /// An enrichment that cannot be stored.
    #[error("invalid enrichment: {0}")]
    InvalidEnrichment(EnrichmentProblem),
    /// An entry of a catalog's words that cannot be used.
    #[error("invalid words: {entry}: {reason}")]
    InvalidOwnerWords {
        /// The place in the document, such as `synonyms.k8s.words[1]`.
        entry: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A setting out of its range.
    #[error("invalid settings: {0}")]
    InvalidSetting(OutOfRange),
    /// Vectors of another length than the embedder promises.
    #[error(
        "embedder {embedder} returned {received} dimensions where {expected} were expected; the model's files do not belong together, replace them"
    )]
    DimensionMismatch {
        /// The embedder's id.
        embedder: String,
        /// The length it promises.
        expected: usize,
        /// The length it returned.
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
    /// The catalog's database cannot be used.
    #[error("the catalog database {} cannot be used: {problem}", path.display())]
    Store {
        /// The database file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        problem: StoreProblem,
    },
    /// The file of the usage memory cannot be used.
    #[error("the usage memory {} cannot be used: {source}; deleting the file fixes this and forgets every request", path.display())]
    Memory {
        /// The path of `usage.db`.
        path: PathBuf,
        /// What is wrong.
        source: DatabaseError,
    },
    /// A derived index could not be built or read.
    #[error("the {index} index in {} cannot be used: {reason}; it is derived data and can be deleted", path.display())]
    Derived {
        /// `lexical` or `graph`.
        index: &'static str,
        /// The folder of the index, which can be deleted.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A ranker file cannot be used.
    #[error("the ranker {} cannot be used: {reason}; the previous ranker stays in use, and the file can be deleted", path.display())]
    Ranker {
        /// The path of `ranker.json`.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file system operation failed.
    #[error("{action} {}: {source}{}", path.display(), next_step(source))]
    Io {
        /// The operation, as a verb (`read`, `create`).
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What is wrong with a query.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryProblem {
    /// No text, or only blank ones.
    #[error("the query is empty; describe in a few words what the tool should do")]
    Empty,
    /// More texts than allowed.
    #[error("{count} query texts, {max} are allowed; search for the others in another query")]
    TooManyTexts {
        /// Texts given.
        count: usize,
        /// Most texts allowed.
        max: usize,
    },
    /// A number out of its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// A number out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, it must be {range}")]
pub struct OutOfRange {
    /// Which number.
    pub name: &'static str,
    /// The value given.
    pub value: String,
    /// The allowed values, in words.
    pub range: String,
}

impl OutOfRange {
    pub(crate) fn new(name: &'static str, value: impl ToString, range: impl Into<String>) -> Self {
        OutOfRange {
            name,
            value: value.to_string(),
            range: range.into(),
        }
    }
}

/// Why the usage memory cannot store a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryEntryProblem {
    /// A blank request.
    #[error("an empty request cannot be remembered")]
    Empty,
    /// A request longer than a search reads.
    #[error("a request of {bytes} bytes cannot be remembered, {max} are allowed; shorten it")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest allowed.
        max: usize,
    },
}

/// What is wrong with an enrichment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnrichmentProblem {
    /// No text, or too many.
    #[error("a tool has 1 to {max} texts")]
    Count {
        /// Most texts allowed.
        max: usize,
    },
    /// An empty or overlong text.
    #[error("{what} has {chars} characters, it must have 1 to {max}")]
    Length {
        /// Which text.
        what: String,
        /// Its length.
        chars: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A control character.
    #[error("{what} contains the control character {control:?}")]
    Control {
        /// Which text.
        what: String,
        /// The character.
        control: char,
    },
}

/// What is wrong with a catalog's database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// It holds data that was never written to it.
    #[error(
        "{found}, it is damaged; restore it from a backup, or delete the catalog and add the tools again"
    )]
    Damaged {
        /// What was found.
        found: String,
    },
    /// It is gone, and data derived from it remains.
    #[error(
        "it is missing or empty, but an index of its tools exists; restore it from a backup, or delete the catalog and add the tools again"
    )]
    Missing,
    /// Another version wrote it.
    #[error(
        "it has layout {found} and this version reads layout {known}; use the version that wrote it, or add the tools to a new catalog"
    )]
    Layout {
        /// The layout that the file has.
        found: u32,
        /// The layout that this version reads.
        known: u32,
    },
    /// Its log holds changes, which cannot be read without write permission.
    #[error(
        "{} holds changes that can only be read with write permission; open the catalog once where its folder is writable, or copy the folder with its log to such a place",
        log.display()
    )]
    UnreadableLog {
        /// The write-ahead log, `tools.db-wal`.
        log: PathBuf,
    },
    /// SQLite or the file system failed.
    #[error("{source}{}", source.next_step())]
    Database {
        /// What SQLite or the system reported.
        #[from]
        source: DatabaseError,
    },
}

impl From<rusqlite::Error> for StoreProblem {
    fn from(source: rusqlite::Error) -> Self {
        StoreProblem::Database {
            source: source.into(),
        }
    }
}

impl From<io::Error> for StoreProblem {
    fn from(source: io::Error) -> Self {
        StoreProblem::Database {
            source: source.into(),
        }
    }
}

/// Characters of a tool's name that an error has.
const MAX_SHOWN_NAME: usize = 120;

impl Error {
    /// Wraps an I/O error with the operation and the path.
    // There is no `From<io::Error>`: an I/O error without its path does not help anybody.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Error::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// An [`Error::InvalidTool`] for the tool of this name.
    pub fn invalid_tool(tool: impl Into<String>, reason: impl Into<String>) -> Self {
        // A name that is refused for its length would hide the reason.
        let mut tool = tool.into();
        if let Some((end, _)) = tool.char_indices().nth(MAX_SHOWN_NAME) {
            tool.truncate(end);
            tool.push('…');
        }
        Error::InvalidTool {
            tool,
            reason: reason.into(),
        }
    }

    /// An [`Error::InvalidOwnerWords`] for the entry at this place.
    pub(crate) fn invalid_owner_words(entry: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::InvalidOwnerWords {
            entry: entry.into(),
            reason: reason.into(),
        }
    }

    /// Names the kind of error for programs. A code keeps its meaning over versions.
    pub fn code(&self) -> &'static str {
        match self {
            Error::InvalidTool { .. } => "invalid_tool",
            Error::Parse { .. } => "unreadable_tools",
            Error::DuplicateTool { .. } => "duplicate_tool",
            Error::InvalidCatalogName { .. } => "invalid_catalog_name",
            Error::UnknownCatalog { .. } => "unknown_catalog",
            Error::Locked { .. } => "catalog_locked",
            Error::Followed { .. } => "catalog_followed",
            Error::InvalidQuery(_) | Error::UnknownName { .. } | Error::InvalidMemoryEntry(_) => {
                "invalid_query"
            }
            Error::InvalidEnrichment(_) => "invalid_enrichment",
            Error::InvalidOwnerWords { .. } => "invalid_words",
            Error::InvalidSetting(_) => "invalid_settings",
            Error::DimensionMismatch { .. } | Error::Embedder { .. } => "embedder_failed",
            Error::Store { .. } => "store_unusable",
            Error::Memory { .. } => "memory_unusable",
            Error::Derived { .. } => "index_unusable",
            Error::Ranker { .. } => "ranker_unusable",
            Error::Io { .. } => "io_failed",
        }
    }

    /// True where a file or its folder may not be read or written: another data directory would
    /// help.
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Error::Io { source, .. } => is_permission_denied(source),
            Error::Store {
                problem: StoreProblem::Database { source },
                ..
            }
            | Error::Memory { source, .. } => source.is_permission_denied(),
            _ => false,
        }
    }
}

fn position(line: &Option<usize>, column: &Option<usize>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(":{line}:{column}"),
        (Some(line), None) => format!(":{line}"),
        _ => String::new(),
    }
}
