//! Requests with several needs: which need a tool serves, and a place among the hits for each.

use super::Search;
use super::scores::RequestScores;
use crate::query::Fusion;

/// What a need that no earlier hit serves adds to a tool's score. With .1, completeness at 5 rises by
/// half a point where requests have several right tools, and nDCG@10 stays; with .6, nDCG@10 falls.
/// A place kept for each need whatever its tools' scores costs 2 points of completeness, since many
/// clauses ask for nothing.
const NEED_WEIGHT: f32 = 0.1;
/// The hits of a request with several needs are chosen among this many times as many tools.
const DEPTH: usize = 4;
const MIN_DEPTH: usize = 50;

/// The number of tools among which `k` hits are chosen.
pub(super) fn depth(k: usize) -> usize {
    (DEPTH * k).max(MIN_DEPTH)
}

/// A tool that may become a hit.
struct Candidate {
    tool: usize,
    score: f32,
    /// Its score for each clause.
    by_clause: Vec<f32>,
}

impl Search<'_> {
    /// True if the hits of a request are chosen by its needs: not where tools were asked for by name,
    /// which come first, and not by ranks, whose scores differ by less than a need adds.
    pub(super) fn covers_needs(&self, scores: &RequestScores) -> bool {
        scores.clauses() > 1 && scores.named.is_empty() && self.parameters.fusion != Fusion::Rrf
    }

    /// The clause that a tool serves best, the first on a tie; `None` if it serves none.
    pub(super) fn best_clause(&self, tool: usize, scores: &RequestScores) -> Option<usize> {
        let mut best = None;
        let mut best_score = 0.0;
        for clause in 0..scores.clauses() {
            let score = self.clause_score(scores, clause, tool);
            if score > best_score {
                (best, best_score) = (Some(clause), score);
            }
        }
        best
    }

    /// The hits among a request's best tools: each is chosen by its own score and by how much better
    /// it serves a clause than the hits before it. Scores stay from 0 to 1 and in order.
    pub(super) fn cover_needs(
        &self,
        scores: &RequestScores,
        ranked: Vec<(usize, f32)>,
    ) -> Vec<(usize, f32)> {
        let mut candidates = Vec::with_capacity(ranked.len());
        for (tool, score) in ranked {
            let mut by_clause = Vec::with_capacity(scores.clauses());
            for clause in 0..scores.clauses() {
                by_clause.push(self.clause_score(scores, clause, tool));
            }
            candidates.push(Candidate {
                tool,
                score,
                by_clause,
            });
        }
        let mut served = vec![0.0; scores.clauses()];
        let mut hits = Vec::new();
        while hits.len() < self.parameters.k
            && let Some((place, value)) = best_next(&candidates, &served)
        {
            let chosen = candidates.remove(place);
            for (served, score) in served.iter_mut().zip(chosen.by_clause) {
                *served = score.max(*served);
            }
            // Divided by the most that a value can be.
            hits.push((chosen.tool, value / (1.0 + NEED_WEIGHT)));
        }
        hits
    }
}

/// The candidate of the highest value and that value; the first on a tie. Values of later choices
/// are never higher, since what is served only grows.
fn best_next(candidates: &[Candidate], served: &[f32]) -> Option<(usize, f32)> {
    let mut best: Option<(usize, f32)> = None;
    for (place, candidate) in candidates.iter().enumerate() {
        let gains = candidate.by_clause.iter().zip(served);
        let gain: f32 = gains.map(|(score, served)| (score - served).max(0.0)).sum();
        let value = candidate.score + NEED_WEIGHT * gain / served.len() as f32;
        let is_better = match best {
            Some((_, known)) => value > known,
            None => true,
        };
        if is_better {
            best = Some((place, value));
        }
    }
    best
}
