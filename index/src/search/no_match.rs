//! Why a search found nothing, and the names nearest to what was asked.

use super::hits::merged;
use super::scoring::highest_confidence;
use super::{RequestScores, Search};
use crate::hit::{NoMatch, NoMatchReason};

/// Names offered when nothing matches.
const NEAREST_NAMES: usize = 3;

impl Search<'_> {
    pub(super) fn no_match(&self, all_scores: &[RequestScores]) -> NoMatch {
        let reason = self.no_match_reason(all_scores);
        // Nothing was asked for that a tool could be near to.
        let nearest = match reason {
            NoMatchReason::NoContent => Vec::new(),
            _ => self.nearest(all_scores),
        };
        NoMatch {
            reason,
            nearest: nearest
                .into_iter()
                .map(|tool| self.searcher.rows[tool].id())
                .collect(),
        }
    }

    fn no_match_reason(&self, all_scores: &[RequestScores]) -> NoMatchReason {
        let (min_confidence, min_score) =
            (self.parameters.min_confidence, self.parameters.min_score);
        if self.searcher.catalog_len() == 0 {
            return NoMatchReason::EmptyCatalog;
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(&true)
        {
            return NoMatchReason::Filter;
        }
        if all_scores.iter().all(|scores| scores.has_no_content) {
            return NoMatchReason::NoContent;
        }
        match highest_confidence(all_scores) {
            Some(confidence) if confidence < min_confidence => NoMatchReason::Confidence {
                confidence,
                min_confidence,
            },
            _ if min_score > 0.0 => NoMatchReason::Score { min_score },
            _ => NoMatchReason::NothingSimilar,
        }
    }

    /// The best tools over all requests, each once, by its best score.
    fn nearest(&self, all_scores: &[RequestScores]) -> Vec<usize> {
        // The ranking before the thresholds, which have emptied the answer.
        let mut nearest = merged(all_scores.iter().flat_map(|scores| self.top(scores)));
        nearest.truncate(NEAREST_NAMES);
        nearest.into_iter().map(|(tool, _)| tool).collect()
    }
}
