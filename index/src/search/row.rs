//! A tool of a snapshot.

use std::sync::{Arc, OnceLock};

use crate::ranker::ToolProfile;
use crate::store::StoredTool;
use crate::tool::{Tool, ToolId};

/// A tool as it was stored; parsed and profiled on first use.
pub(crate) struct Row {
    pub(crate) stored: StoredTool,
    // A search reads few of a catalog's tools, so opening parses none.
    parsed: OnceLock<Option<Arc<Tool>>>,
    profile: OnceLock<ToolProfile>,
}

impl Row {
    pub(crate) fn new(stored: StoredTool) -> Self {
        Row {
            stored,
            parsed: OnceLock::new(),
            profile: OnceLock::new(),
        }
    }

    /// The parsed tool. `None` if the stored JSON is not a tool, which the store's writer rules
    /// out.
    pub(crate) fn tool(&self) -> Option<Arc<Tool>> {
        self.parsed
            .get_or_init(|| self.stored.parse().ok().map(Arc::new))
            .clone()
    }

    /// The ranker's view of the tool; computed on first use, in some 50 microseconds.
    pub(super) fn profile(&self) -> &ToolProfile {
        self.profile.get_or_init(|| {
            self.tool()
                .map(|tool| ToolProfile::new(&tool))
                .unwrap_or_default()
        })
    }

    pub(super) fn id(&self) -> ToolId {
        self.stored.id.clone()
    }
}
