//! Why a file is no ranker.

use thiserror::Error;

use super::VERSION;
use super::trees::ForestProblem;

/// What is wrong with the file of a ranker.
#[derive(Debug, Error)]
pub(super) enum RankerProblem {
    #[error("its {bytes} bytes are not a ranker file")]
    NoRanker { bytes: usize },
    #[error("it has version {0} and this program reads version {VERSION}")]
    Version(String),
    #[error("it is damaged: checksum {found}, expected {expected}")]
    Checksum { found: String, expected: String },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it has {found} {what}, {name:?} among them; this program has {known}")]
    UnknownColumn {
        what: &'static str,
        found: usize,
        name: String,
        known: usize,
    },
    #[error("it has {found} {what}, in another order; this program has {known}")]
    OtherOrder {
        what: &'static str,
        found: usize,
        known: usize,
    },
    #[error("mix is {0}, it must be from 0 to 1")]
    Mix(f32),
    #[error("its bounds of confidence are not in order from 0 to 1")]
    Bounds,
    #[error(transparent)]
    Forest(#[from] ForestProblem),
}
