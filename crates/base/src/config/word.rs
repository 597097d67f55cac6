//! Words that settings and flags choose among.

use thiserror::Error;

/// A word that is none of those that there are.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("use {0}")]
pub struct UnknownWord(String);

impl UnknownWord {
    /// With those that there are, in words.
    pub fn new(known: impl Into<String>) -> Self {
        UnknownWord(known.into())
    }
}
