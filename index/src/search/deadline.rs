//! The time budget of a search.

use std::time::Instant;

use super::scores::RequestScores;
use super::{Search, ms_since, rerank};
use crate::hit::{Degraded, DegradedCause};
use crate::query::Effort;
use crate::ranker::features::CANDIDATES;
use crate::top_k;

/// When a search has used up its budget.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    started: Instant,
    /// `None` for a search without a budget.
    budget_ms: Option<f64>,
}

impl Deadline {
    pub(super) fn of(effort: Effort, started: Instant) -> Self {
        let budget_ms = match effort {
            Effort::BudgetMs(budget_ms) => Some(budget_ms),
            Effort::All | Effort::Variant(_) => None,
        };
        Deadline { started, budget_ms }
    }

    fn is_over(self) -> bool {
        match self.budget_ms {
            Some(budget_ms) => ms_since(self.started) >= budget_ms,
            None => false,
        }
    }

    /// What an answer reports that had no time left for ranking.
    pub(super) fn missed(self) -> Degraded {
        Degraded {
            cause: DegradedCause::BudgetExceeded {
                budget_ms: self.budget_ms.unwrap_or_default(),
            },
            pending_embeddings: 0,
        }
    }
}

impl Search<'_> {
    /// Computes the words of the tools that the ranker needs. False when the budget is used up before
    /// all are done; the finished ones are stored, so that the next search gets further.
    pub(super) fn is_in_time_to_rank(&self, scores: &RequestScores, deadline: Deadline) -> bool {
        if deadline.budget_ms.is_none() || !rerank::applies(self, scores) {
            return true;
        }
        // The ranker's own candidates. Their words are the only step of ranking that can take
        // long: some 50 microseconds each, on first use.
        let candidates = top_k::above(0.0, &scores.fused, CANDIDATES, |tool| self.is_allowed(tool));
        for (tool, _) in candidates {
            if deadline.is_over() {
                return false;
            }
            self.searcher.rows[tool].words();
        }
        true
    }
}
