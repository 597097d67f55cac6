//! Errors of a set, a plan or a baseline. Every message names the value, the place and the next
//! step.

use std::path::{Path, PathBuf};

use toolscout_base::printable::counted;
use toolscout_base::regular_file;

/// A result whose error is [`EvalError`].
pub type Result<T, E = EvalError> = std::result::Result<T, E>;

/// Everything that makes an evaluation impossible or its figures misleading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A folder in which tools, queries or judgements cannot be found.
    #[error(
        "{} is not an evaluation set: {reason}; a set has tools.jsonl (or tools.json, tools.yaml, a folder tools/) and queries.jsonl with lines {{\"id\",\"query\",\"relevant\":[ids]}}, or is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv)",
        path.display()
    )]
    NotASet {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A line with a missing or invalid value.
    #[error("{}:{line}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong, and what is valid.
        reason: String,
    },
    /// One query id twice.
    #[error("{}:{second}: query id {id:?} was already used in line {first}; ids must be unique, rename one", path.display())]
    DuplicateQuery {
        /// The file.
        path: PathBuf,
        /// The id in question.
        id: String,
        /// 1-based line of its first use.
        first: usize,
        /// 1-based line of its second use.
        second: usize,
    },
    /// One tool id twice.
    #[error("{}: tool id {id:?} occurs twice; ids must be unique, rename one or give its tool a server", path.display())]
    DuplicateTool {
        /// The file or folder.
        path: PathBuf,
        /// The id in question.
        id: String,
    },
    /// A query without relevant tools.
    #[error("query {id:?} in {} has no relevant tools; name at least one, or add `\"kind\":\"none\"` if no tool can serve it", path.display())]
    EmptyRelevance {
        /// The file.
        path: PathBuf,
        /// The query's id.
        id: String,
    },
    /// A judgement about a tool that the set does not have.
    #[error(
        "query {query:?} in {} names the relevant tool {tool:?}, which is not among the set's {tools} tools{}",
        path.display(), hint(.nearest)
    )]
    UnknownRelevant {
        /// The file of the judgement.
        path: PathBuf,
        /// The query's id.
        query: String,
        /// The unknown id.
        tool: String,
        /// Number of tools.
        tools: usize,
        /// An id with the same name, if any.
        nearest: Option<String>,
    },
    /// A set without tools or queries.
    #[error("{} has no {what}, so there is nothing to measure", path.display())]
    Empty {
        /// The set.
        path: PathBuf,
        /// `tools`, `queries` or `judged queries`.
        what: &'static str,
    },
    /// A cut-off beyond the size of the catalog: every metric there would be trivially 1.
    #[error(
        "metrics at k = {k} mean nothing with {}; use --k with values up to {tools}",
        counted(*.tools, "tool")
    )]
    DepthExceedsCatalog {
        /// The number of tools.
        tools: usize,
        /// The depth asked for.
        k: usize,
    },
    /// Too few queries to tune with.
    #[error(
        "tuning needs at least {needed} queries in each half of the tools, and the {half} half of {set} has {found} of its {queries}{}; judge more queries, at least {}",
        because_of(*.across),
        2 * .needed
    )]
    TooFewQueries {
        /// The set.
        set: String,
        /// Its number of queries.
        queries: usize,
        /// `train` or `test`.
        half: &'static str,
        /// The number of queries in that half.
        found: usize,
        /// Queries that need tools of both halves, and are in neither.
        across: usize,
        /// The least number of queries in a half.
        needed: usize,
    },
    /// A set without queries that need several tools.
    #[error(
        "none of the {queries} queries of {set} needs several tools, so there is nothing to simulate; choose a set whose queries name several relevant tools"
    )]
    NothingToPlay {
        /// The set.
        set: String,
        /// Its number of queries.
        queries: usize,
    },
    /// The agent did not answer.
    #[error("the agent did not answer query {query:?} of {set}: {reason}")]
    Play {
        /// The set.
        set: String,
        /// The query's id.
        query: String,
        /// The error of the agent.
        reason: String,
    },
    /// An invalid value of an option.
    #[error("{option} {value:?}: {reason}")]
    Option {
        /// The option as it is written.
        option: &'static str,
        /// The value.
        value: String,
        /// What is wrong, and what is valid.
        reason: String,
    },
    /// A dense arm without an embedder.
    #[error(
        "arm {arm} needs an embedding model and none is loaded; run `toolscout doctor`, or measure with --arms lexical"
    )]
    NoEmbedder {
        /// The arm.
        arm: String,
    },
    /// Vectors are missing, so dense metrics would be too low.
    #[error(
        "{pending} of {tools} tools of {set} have no vectors; run the command again, or use --arms lexical"
    )]
    PendingEmbeddings {
        /// The set.
        set: String,
        /// Tools without vectors.
        pending: usize,
        /// All tools.
        tools: usize,
    },
    /// A baseline that cannot be compared with this run.
    #[error("baseline {} cannot be compared: {reason}", path.display())]
    Baseline {
        /// The baseline's file.
        path: PathBuf,
        /// The difference, and the next step.
        reason: String,
    },
    /// An error of the file system.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An error of the engine.
    #[error(transparent)]
    Index(#[from] toolscout_index::Error),
}

impl EvalError {
    /// Whether the command line is at fault, and not a file, a set or an endpoint.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            EvalError::Option { .. } | EvalError::DepthExceedsCatalog { .. }
        )
    }

    /// Wraps an I/O error with the operation and the path.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        EvalError::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// As [`EvalError::io`], for `map_err`.
    pub(crate) fn failed_to(
        action: &'static str,
        path: &Path,
    ) -> impl Fn(std::io::Error) -> EvalError {
        move |source| EvalError::io(action, path, source)
    }

    /// A line with a missing or invalid value.
    pub fn malformed(path: impl AsRef<Path>, line: usize, reason: impl Into<String>) -> Self {
        EvalError::Malformed {
            path: path.as_ref().to_owned(),
            line,
            reason: reason.into(),
        }
    }

    /// A set without tools or queries.
    pub(crate) fn empty(path: impl AsRef<Path>, what: &'static str) -> Self {
        EvalError::Empty {
            path: path.as_ref().to_owned(),
            what,
        }
    }

    /// An invalid value of an option.
    pub fn option(
        option: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        EvalError::Option {
            option,
            value: value.into(),
            reason: reason.into(),
        }
    }
}

/// Reads a file whole.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    regular_file::read(path).map_err(EvalError::failed_to("read", path))
}

/// Reads a file of text whole.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let text = regular_file::read_to_string(path).map_err(EvalError::failed_to("read", path))?;
    // A mark of the byte order, as some editors and spreadsheets write it.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Writes a file whole.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(EvalError::failed_to("write", path))
}

fn because_of(queries: usize) -> String {
    match queries {
        0 => String::new(),
        some => format!(
            ", because {} need tools of both halves and are left out",
            counted(some, "query")
        ),
    }
}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(id) => format!("; did you mean {id:?}?"),
        None => {
            "; add the tool, correct the id, or leave such judgements out (`--skip-unknown` of \
                 `toolscout eval`)"
                .into()
        }
    }
}
