//! A search under way, and what its stages ask it about a tool.

use std::borrow::Cow;

use super::Searcher;
use super::scores::RequestScores;
use crate::query::{Mode, Query, SearchParameters};
use crate::variant::{Parts, Variant};

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) searcher: &'a Searcher,
    pub(super) query: &'a Query,
    pub(super) parameters: SearchParameters,
    /// The mode that answers: the one asked for, or the one that is possible.
    pub(super) mode: Mode,
    /// How much of the pipeline the time budget allows, and which parts that leaves.
    pub(super) variant: Variant,
    pub(super) parts: Parts,
    /// True by position for tools that pass the filter; `None` without a filter.
    pub(super) allowed: Option<Cow<'a, [bool]>>,
    /// True by position for tools that the owner has switched off; `None` without any. Not a part of the
    /// filter, with which a search would have to scan where it has a graph.
    pub(super) off: Option<&'a [bool]>,
}

impl Search<'_> {
    /// Whether a person has to decide on a tool.
    pub(super) fn is_flagged(&self, tool: usize) -> bool {
        self.searcher.rows[tool].is_flagged()
    }

    pub(super) fn is_allowed(&self, tool: usize) -> bool {
        if self.off.is_some_and(|off| off[tool]) {
            return false;
        }
        match &self.allowed {
            Some(allowed) => allowed[tool],
            None => true,
        }
    }

    /// The rank of a tool among those that pass the filter, from 1.
    pub(super) fn rank_of(&self, scores: &[f32], tool: usize) -> usize {
        let score = scores[tool];
        let mut rank = 1;
        for (other, &other_score) in scores.iter().enumerate() {
            // Equal scores are ranked by position, as in the list of hits.
            let is_ahead = other_score > score || (other_score == score && other < tool);
            rank += usize::from(is_ahead && self.is_allowed(other));
        }
        rank
    }

    /// False for tools that the filter or a pin leaves out, or that are switched off.
    pub(super) fn is_shown(&self, scores: &RequestScores, tool: usize) -> bool {
        self.is_allowed(tool) && !scores.hidden.contains(&tool)
    }

    /// A tool and its near-duplicates; empty if it has none or if folding was not asked for.
    pub(super) fn duplicates(&self, tool: usize) -> &[u32] {
        if self.parameters.fold_duplicates {
            self.searcher.duplicates().of(tool as u32)
        } else {
            &[]
        }
    }
}
