//! How far a node is with the usage memory of a catalog that it has open.

use std::sync::atomic::{AtomicBool, AtomicI64};

use parking_lot::Mutex;
use toolscout_index::Catalog;

/// The generation of a memory that this process has not looked at.
const UNKNOWN: i64 = -1;

/// The usage memory of a catalog that follows the store.
pub(super) struct FollowedMemory {
    pub(super) catalog: Catalog,
    pub(super) generation: AtomicI64,
    /// Held while it follows.
    pub(super) following: Mutex<()>,
    /// True while it follows because the store has something new.
    pub(super) is_busy: AtomicBool,
}

impl FollowedMemory {
    pub(super) fn new(catalog: Catalog) -> Self {
        FollowedMemory {
            catalog,
            generation: AtomicI64::new(UNKNOWN),
            following: Mutex::default(),
            is_busy: AtomicBool::new(false),
        }
    }
}
