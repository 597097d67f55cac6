//! What is wrong with a document, so that a tool or all of it cannot be read.

use std::collections::BTreeSet;

use thiserror::Error;

/// Files that a message lists.
const MAX_LISTED: usize = 10;

/// Why an operation is no tool, or a document cannot be read.
#[derive(Debug, Error)]
pub(in super::super) enum DocumentError {
    #[error("its path item is no object")]
    PathItem,
    #[error("its operation is no object")]
    Operation,
    #[error("one of its parameters has no `name` or no `in`")]
    NamelessParameter,
    #[error("its references go in a circle, or through more than {most} others")]
    Circle { most: usize },
    #[error("{0:?} lies outside the document and its folder; bundle it into one file")]
    Outside(String),
    #[error("it refers to {0:?}, which is not in the document")]
    Missing(String),
    #[error("it refers to {reference:?}, which cannot be read: {reason}")]
    Unreadable { reference: String, reason: String },
    #[error("the document's schemas expand to more than {most} nodes; include fewer paths or tags")]
    TooLarge { most: usize },
    #[error("no files are read here")]
    NoFiles,
    #[error("it refers to the file {file:?}, and {limit}; bundle what is needed into one file")]
    FileLimit { file: String, limit: FileLimit },
    #[error(
        "it refers to {}, without which its tools are not whole: {}; `toolscout add --follow-refs` reads \
         files beside the document and below its folder, or bundle them into one",
        if .0.len() == 1 { "another file" } else { "other files" },
        listed(.0)
    )]
    OtherFiles(BTreeSet<String>),
}

/// A bound of the files that a document refers to.
#[derive(Debug, Error)]
pub(in super::super) enum FileLimit {
    #[error("to more than {0} files in all")]
    Count(usize),
    #[error("more than {0} files name each other in a row")]
    Chain(usize),
    #[error("its files have more than {0} MiB together")]
    Mebibytes(usize),
}

fn listed(files: &BTreeSet<String>) -> String {
    let first: Vec<&str> = files.iter().take(MAX_LISTED).map(String::as_str).collect();
    let listed = first.join(", ");
    match files.len().saturating_sub(MAX_LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
