//! The scores of one leg for one request, by tool and text: raw and scaled.

use std::sync::Arc;

use super::LegVectors;
use crate::dense::{ALL_VIEWS, Graph};
use crate::embed::Embedder;
use crate::fuse;
use crate::variant::{CountedTexts, Parts};

/// One embedder's vectors.
pub(crate) struct DenseLeg {
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) vectors: LegVectors,
    pub(crate) graph: Option<Graph>,
    /// Tools without the vectors of all of their views.
    pub(crate) pending: usize,
    /// Tools of which any vector is missing, also of their enrichment or their aliases.
    pub(crate) lacking: usize,
    /// Vectors in the database that fail their checksum.
    pub(crate) damaged: usize,
    /// Vectors of an instant embedder that were computed and are not yet in its file.
    pub(crate) unsaved: usize,
    /// True where the vectors are looked for elsewhere, so that it needs none of its own.
    pub(crate) is_elsewhere: bool,
}

/// A scan of one dense leg, by which its scores are refined.
pub(super) struct LegScan<'a> {
    leg: &'a DenseLeg,
    queries: &'a [Vec<f32>],
    /// Views of each tool that are scored.
    views: usize,
    texts: CountedTexts,
    /// True where the scores are by the leading dimensions only.
    pub(super) is_rough: bool,
}

/// One dense leg's result for one request.
pub(super) struct LegResult {
    /// The embedder's id.
    pub(super) id: String,
    /// Its part of the dense score, relative to the other legs' shares.
    pub(super) share: f32,
    /// The vector of the whole request.
    pub(super) query: Vec<f32>,
    pub(super) scores: LegScores,
    /// True by position for the tools that it scores for the request; `None` for all.
    pub(super) scored: Option<Vec<bool>>,
}

/// One leg's scores for one request.
#[derive(Default)]
pub(super) struct LegScores {
    /// Unscaled, by text, the whole request first.
    raws: Vec<Vec<f32>>,
    /// The best of those of the whole request among the tools that pass the filter.
    pub(super) best: f32,
    /// The best scaled score over the clauses; `None` where the leg did not score any.
    pub(super) clauses: Option<Vec<f32>>,
    /// The scaled scores of each text; only the first where the leg did not score clauses.
    pub(super) by_text: Vec<Vec<f32>>,
}

impl DenseLeg {
    /// A leg that has every vector of its tools, in its file too, and no graph.
    pub(crate) fn new(embedder: &Arc<dyn Embedder>, vectors: impl Into<LegVectors>) -> Self {
        DenseLeg {
            embedder: Arc::clone(embedder),
            vectors: vectors.into(),
            graph: None,
            pending: 0,
            lacking: 0,
            damaged: 0,
            unsaved: 0,
            is_elsewhere: false,
        }
    }

    /// Scores every tool for each of these vectors.
    ///
    /// A search that narrows the catalog scans even where there is a graph: the graph returns the nearest
    /// of all items, among which a narrow filter may leave none.
    pub(super) fn scan<'a>(
        &'a self,
        queries: &'a [Vec<f32>],
        scored: Option<Vec<bool>>,
        parts: Parts,
        narrows: bool,
        allowed: Option<&[bool]>,
    ) -> (LegScan<'a>, LegResult) {
        let views = if parts.views { ALL_VIEWS } else { 1 };
        let vectors = self.vectors.get();
        let few = match &scored {
            Some(scored) => vectors.few(scored),
            None => None,
        };
        let (mut scores, is_rough) = match (few, &self.graph) {
            // Rough, so that what words and other legs find besides is scored exactly too.
            (Some(few), _) => (vectors.scores_of_few(queries, views, &few), true),
            (None, Some(graph)) if parts.views && !narrows => {
                (vectors.scores_by(graph, queries), true)
            }
            _ => (vectors.rough_scores(queries, views), vectors.is_rough()),
        };
        vectors.leave_out(parts.texts, queries, &mut scores);
        let result = LegResult {
            id: self.embedder.id().to_owned(),
            share: self.embedder.share(),
            query: queries.first().cloned().unwrap_or_default(),
            scores: LegScores::new(scores, farthest, allowed),
            scored,
        };
        let scan = LegScan {
            leg: self,
            queries,
            views,
            texts: parts.texts,
            is_rough,
        };
        (scan, result)
    }

    /// True when these parts of the pipeline include the leg and it has vectors.
    pub(super) fn takes_part(&self, parts: Parts) -> bool {
        let wanted = if self.embedder.is_instant() {
            parts.instant_embedders
        } else {
            parts.slow_embedders
        };
        // Without vectors the request would be embedded for nothing.
        wanted && (self.is_elsewhere || !self.vectors.is_empty())
    }
}

impl LegScan<'_> {
    /// Replaces the rough scores of these tools by exact ones.
    pub(super) fn refine(&self, tools: &[usize], scores: &mut LegScores, allowed: Option<&[bool]>) {
        let vectors = self.leg.vectors.get();
        vectors.refine(self.queries, self.views, tools, &mut scores.raws);
        vectors.leave_out(self.texts, self.queries, &mut scores.raws);
        scores.scale(farthest, allowed);
    }
}

impl LegResult {
    /// Its embedder's id and share, and the vector of the whole request.
    pub(super) fn query_vector(&self) -> (&str, f32, &[f32]) {
        (&self.id, self.share, &self.query)
    }

    /// The best raw score of the tools that it scores for the request.
    pub(super) fn best_scored(&self) -> f32 {
        match &self.scored {
            // The best of the tools that pass the filter.
            None => self.scores.best,
            Some(scored) => best_allowed(self.scores.raw(), scored).min(self.scores.best),
        }
    }

    /// True if the leg scores this tool for the request.
    pub(super) fn scores_tool(&self, tool: usize) -> bool {
        match &self.scored {
            Some(scored) => scored[tool],
            None => true,
        }
    }
}

impl LegScores {
    /// From raw scores by text, the whole request first. `floor` gives the score of a tool without
    /// any similarity, from the lowest and the highest score.
    pub(super) fn new(
        raws: Vec<Vec<f32>>,
        floor: impl Fn((f32, f32)) -> f32,
        allowed: Option<&[bool]>,
    ) -> Self {
        let mut scores = LegScores {
            by_text: vec![Vec::new(); raws.len()],
            raws,
            ..LegScores::default()
        };
        scores.scale(floor, allowed);
        scores
    }

    /// Scales the raw scores, over the tools that pass the filter.
    fn scale(&mut self, floor: impl Fn((f32, f32)) -> f32, allowed: Option<&[bool]>) {
        for (text, (raw, scaled)) in self.raws.iter().zip(&mut self.by_text).enumerate() {
            // The floor is that of all tools, filtered or not: the only tool that passes a filter
            // is still a match. The best is that of the tools that pass.
            let bounds = fuse::bounds(raw);
            let best = match allowed {
                Some(allowed) => best_allowed(raw, allowed),
                None => bounds.1,
            };
            fuse::min_max(raw, floor(bounds), best, scaled);
            if text == 0 {
                self.best = best;
            }
        }
        self.clauses = best_of_each(&self.by_text[1..]);
    }

    /// The unscaled scores of the request as a whole.
    pub(super) fn raw(&self) -> &[f32] {
        self.raws.first().map_or(&[], Vec::as_slice)
    }

    /// The scaled scores of the request as a whole.
    pub(super) fn whole(&self) -> &[f32] {
        &self.by_text[0]
    }
}

/// The best score of each tool over several texts; `None` without texts.
fn best_of_each(by_text: &[Vec<f32>]) -> Option<Vec<f32>> {
    let (first, others) = by_text.split_first()?;
    let mut best = first.clone();
    for scores in others {
        for (best, &score) in best.iter_mut().zip(scores) {
            if score > *best {
                *best = score;
            }
        }
    }
    Some(best)
}

/// The lowest score of any tool that has one. Where all are equal, as for a single tool, there is
/// no scale to be near or far on, and every score above 0 counts.
fn farthest((low, high): (f32, f32)) -> f32 {
    if low < high { low } else { low.min(0.0) }
}

/// The best score of the tools that pass the filter.
fn best_allowed(scores: &[f32], allowed: &[bool]) -> f32 {
    let mut best = f32::NEG_INFINITY;
    for (&score, &allowed) in scores.iter().zip(allowed) {
        if allowed && score.is_finite() {
            best = best.max(score);
        }
    }
    best
}
