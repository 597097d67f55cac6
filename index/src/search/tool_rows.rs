//! Which rows of a snapshot are tools, and which are items of other kinds.

use std::sync::Arc;

use super::Row;

/// Counted once for a snapshot, since every search asks.
pub(crate) struct ToolRows {
    count: usize,
    /// True by position for tools; `None` if every row is one.
    by_position: Option<Vec<bool>>,
}

impl ToolRows {
    pub(crate) fn of(rows: &[Arc<Row>]) -> Self {
        let by_position: Vec<bool> = rows.iter().map(|row| row.kind.is_tool()).collect();
        let count = by_position.iter().filter(|is_tool| **is_tool).count();
        ToolRows {
            count,
            by_position: (count < rows.len()).then_some(by_position),
        }
    }

    /// Number of tools.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// True by position for tools; `None` if every row is one.
    pub(super) fn by_position(&self) -> Option<&[bool]> {
        self.by_position.as_deref()
    }
}
