//! Catalogs that are too large for nodes to hold. Their tools are looked for in the database
//! ("push-down"), some hundreds for each query, and the engine scores those as if it had all.
//!
//! - `tables` has the tables of one such catalog: what the engine keeps of a tool to find it.
//! - `write` keeps them in step, in the transaction of each commit.
//! - `lists` chooses which lists of tools are read for the words of a query.
//! - `candidates` finds the tools of a query, and makes a searcher of them.
//! - `page` lists tools without reading all.
//! - `texts` reads tools with what was written about them.
//! - `keeper` fills the tables of a catalog that has grown too large, and embeds.

pub(super) mod tables;
mod lists;
pub(super) mod write;
mod candidates;
mod page;
mod texts;
mod keeper;

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use candidates::KnownTerms;

/// Searches that ask the database at a time. Each holds a connection; the others are for writes and
/// for what nodes follow.
const MAX_SEARCHES: usize = 5;

/// What a node knows of catalogs that are pushed down.
pub(super) struct PushDown {
    /// The most tools of a catalog that nodes have copies of.
    above: u64,
    /// Tools that are looked for, for each query.
    candidates: usize,
    searches: Semaphore,
    /// Frequencies that were read, by the number of the catalog.
    known_terms: Mutex<HashMap<i64, KnownTerms>>,
}

impl PushDown {
    pub(super) fn new(above: u64, candidates: usize) -> Self {
        PushDown {
            above,
            candidates,
            searches: Semaphore::new(MAX_SEARCHES),
            known_terms: Mutex::default(),
        }
    }
}
