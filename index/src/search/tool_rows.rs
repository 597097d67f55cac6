//! Which rows of a snapshot are tools, and which are items of other kinds.

use std::sync::Arc;

use super::{Row, Rows};
use crate::moves::Moves;

/// Counted once for a snapshot, since every search asks.
pub(crate) struct ToolRows {
    count: usize,
    /// True by position for tools; `None` if every row is one.
    by_position: Option<Vec<bool>>,
}

impl ToolRows {
    pub(crate) fn of(rows: &Rows) -> Self {
        ToolRows::by_position_of(rows.iter().map(|row| row.kind.is_tool()).collect())
    }

    fn by_position_of(by_position: Vec<bool>) -> Self {
        let count = by_position.iter().filter(|is_tool| **is_tool).count();
        ToolRows {
            count,
            by_position: (count < by_position.len()).then_some(by_position),
        }
    }

    /// The same after these moves.
    pub(crate) fn moved(&self, moves: &Moves, added: &[Arc<Row>]) -> Self {
        let is_tool = |number: usize| added[number].kind.is_tool();
        let all_are_tools = (0..added.len()).all(is_tool);
        match &self.by_position {
            None if all_are_tools => ToolRows {
                count: moves.len(),
                by_position: None,
            },
            None => ToolRows::by_position_of(moves.applied(&vec![true; moves.before()], is_tool)),
            Some(by_position) => ToolRows::by_position_of(moves.applied(by_position, is_tool)),
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
