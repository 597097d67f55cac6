//! What each leg says of a request: scores by tool and text, as they are and scaled.

use std::sync::Arc;

use crate::dense::{ALL_VIEWS, Graph, Vectors};
use crate::embed::{Embedder, Scripts};
use crate::fuse;
use crate::variant::Parts;

/// From this share of CJK on, a request gets nothing from a model that knows Latin script only:
/// with its say the Chinese set falls from 90.0 to 84.1 nDCG@10.
const MAX_CJK_SHARE_FOR_LATIN_MODELS: f32 = 0.3;

/// One embedder's vectors.
pub(crate) struct DenseLeg {
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) vectors: Vectors,
    pub(crate) graph: Option<Graph>,
    /// Tools without all of their vectors.
    pub(crate) pending: usize,
    /// Vectors in the database that are not what was written.
    pub(crate) damaged: usize,
    /// Vectors of an instant embedder that were computed and are not in its file.
    pub(crate) unsaved: usize,
}

/// What one dense leg was asked, and its scores by text.
pub(super) struct LegScan<'a> {
    leg: &'a DenseLeg,
    queries: &'a [Vec<f32>],
    /// Views of a tool that are looked at.
    views: usize,
    scores: Vec<Vec<f32>>,
    pub(super) is_rough: bool,
}

/// What one dense leg says of one request.
pub(super) struct LegResult {
    /// The embedder's id.
    pub(super) id: String,
    /// Its part of the dense score, as a proportion to the others'.
    pub(super) share: f32,
    /// The vector of the whole request.
    pub(super) query: Vec<f32>,
    pub(super) scores: LegScores,
}

/// What one leg says of one request.
#[derive(Default)]
pub(super) struct LegScores {
    /// As the leg gives them, for the whole request.
    pub(super) raw: Vec<f32>,
    /// The best of these that may be a hit.
    pub(super) best: f32,
    /// The best scaled score over the clauses; none where the leg was not asked about any.
    pub(super) clauses: Option<Vec<f32>>,
    /// The scaled scores of each text; only the first where the leg was not asked about clauses.
    pub(super) by_text: Vec<Vec<f32>>,
}

impl DenseLeg {
    /// True for a request in a script it knows; for every request without the gate.
    pub(super) fn knows_script_of(&self, cjk_share: f32, parts: Parts) -> bool {
        !parts.script_gate
            || self.embedder.scripts() == Scripts::Any
            || cjk_share <= MAX_CJK_SHARE_FOR_LATIN_MODELS
    }

    /// Asks it; the whole request first.
    pub(super) fn scan<'a>(&'a self, queries: &'a [Vec<f32>], parts: Parts) -> LegScan<'a> {
        let views = if parts.views { ALL_VIEWS } else { 1 };
        let (scores, is_rough) = match &self.graph {
            Some(graph) if parts.views => (self.vectors.scores_by(graph, queries), false),
            _ => (
                self.vectors.rough_scores(queries, views),
                self.vectors.is_rough(),
            ),
        };
        LegScan {
            leg: self,
            queries,
            views,
            scores,
            is_rough,
        }
    }

    /// True when it is wanted and has something to say.
    pub(super) fn takes_part(&self, parts: Parts) -> bool {
        let wanted = if self.embedder.is_instant() {
            parts.instant_embedders
        } else {
            parts.slow_embedders
        };
        wanted && !self.vectors.is_empty()
    }
}

impl LegScan<'_> {
    /// Scores these tools again where they were scored roughly.
    pub(super) fn refine(&mut self, tools: &[usize]) {
        self.leg
            .vectors
            .refine(self.queries, self.views, tools, &mut self.scores);
        self.is_rough = false;
    }

    /// What the leg says by its scores.
    pub(super) fn result(&self, allowed: Option<&[bool]>) -> LegResult {
        let scores = LegScores::new(self.scores.clone(), farthest, allowed);
        let query = self.queries.first().cloned().unwrap_or_default();
        let embedder = &self.leg.embedder;
        LegResult {
            id: embedder.id().to_owned(),
            share: embedder.share(),
            query,
            scores,
        }
    }
}

impl LegScores {
    /// From raw scores by text, the whole request first. `floor` gives the score of a tool without
    /// any likeness, by the lowest and the highest score there are.
    pub(super) fn new(
        mut by_text: Vec<Vec<f32>>,
        floor: impl Fn((f32, f32)) -> f32,
        allowed: Option<&[bool]>,
    ) -> Self {
        let raw = by_text[0].clone();
        let scale = |scores: &mut Vec<f32>| {
            let bounds = fuse::bounds(scores);
            let best = allowed.map_or(bounds.1, |allowed| best_allowed(scores, allowed));
            fuse::min_max(scores, floor(bounds), best);
            best
        };
        let bests: Vec<f32> = by_text.iter_mut().map(scale).collect();
        let clauses = by_text[1..].split_first().map(|(first, others)| {
            let mut best = first.clone();
            for scores in others {
                best.iter_mut()
                    .zip(scores)
                    .for_each(|(best, &score)| *best = if score > *best { score } else { *best });
            }
            best
        });
        LegScores {
            raw,
            best: bests[0],
            clauses,
            by_text,
        }
    }

    /// The scaled scores of the request as a whole.
    pub(super) fn whole(&self) -> &[f32] {
        &self.by_text[0]
    }
}

/// The worst score of any tool that has one; where all are equal, as for the only tool there is,
/// nothing is near or far by comparison and what is above 0 counts.
fn farthest((low, high): (f32, f32)) -> f32 {
    if low < high { low } else { low.min(0.0) }
}

/// The best score of the tools that may be hits.
fn best_allowed(scores: &[f32], allowed: &[bool]) -> f32 {
    let scores = scores
        .iter()
        .zip(allowed)
        .filter(|(score, allowed)| **allowed && score.is_finite());
    scores
        .map(|(&score, _)| score)
        .fold(f32::NEG_INFINITY, f32::max)
}
