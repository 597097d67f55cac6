//! Scores of a request: by leg, fused into one score a tool, and with what the memory adds.

use std::collections::HashMap;

use super::legs::{LegResult, LegScan, LegScores};
use super::request::{QueryVectors, RequestTexts};
use super::rerank::RankerOutput;
use super::{Search, timed};
use crate::dense::UNKNOWN;
use crate::fuse;
use crate::hit::{NameMatch, Signals, Timings};
use crate::lexical::{QueryTerms, Scored};
use crate::query::{Fusion, Mode};
use crate::text;
use crate::top_k;

/// The share of the clauses in a request's score; the rest is the request as a whole.
const CLAUSES_SHARE: f32 = 0.5;
/// What a request that was asked before, word for word, adds to its tool's score; less, the less
/// similar it is. Above 1, so that the tool called for the very same request comes before the best
/// match by content.
const MEMORY_WEIGHT: f32 = 1.2;
/// The best tools by rough scores that are scored again exactly: several times the ranker's
/// candidates and the most hits of a query by the formula, and for each leg as many as its features
/// read.
const LIKELY: usize = 256;
const LIKELY_BY_LEG: usize = 64;

/// Everything known about one request before its hits are chosen.
#[derive(Default)]
pub(super) struct RequestScores {
    /// By text.
    pub(super) terms: Vec<QueryTerms>,
    pub(super) lexical: LegScores,
    /// The dense legs that scored the request.
    pub(super) dense: Vec<LegResult>,
    /// The tools whose names were asked for.
    pub(super) named: HashMap<u32, NameMatch>,
    /// The BM25 score of a full match of each of the whole request's terms.
    pub(super) gains: Vec<f32>,
    /// The BM25 score of a full match of all of them.
    pub(super) limit: f32,
    /// One score per tool by the formula, without the name tier.
    pub(super) fused: Vec<f32>,
    pub(super) dense_weight: f32,
    pub(super) signals: Signals,
    /// The ranker's output, where it took part.
    pub(super) ranker_output: Option<RankerOutput>,
    /// One score per tool with the ranker's and the memory's part, without the name tier; `None`
    /// where neither took part.
    pub(super) reranked: Option<Vec<f32>>,
    /// The memory's weight by position, 0 to 1, for tools that remembered requests led to.
    pub(super) memory_scores: HashMap<usize, f32>,
}

impl RequestScores {
    /// One score per tool, without the name tier.
    pub(super) fn by_tool(&self) -> &[f32] {
        self.reranked.as_deref().unwrap_or(&self.fused)
    }

    /// The probability that one of the first five hits is right; 1 for a tool that was asked for by
    /// name.
    pub(super) fn confidence(&self) -> Option<f32> {
        if self.named.values().any(|name| *name >= NameMatch::Exact) {
            return Some(1.0);
        }
        self.ranker_output.as_ref()?.confidence
    }

    /// What a tool's score gains for being asked for by name.
    pub(super) fn name_bonus(&self, tool: usize) -> f32 {
        match self.named.get(&(tool as u32)) {
            None => 0.0,
            // Scores by content end at 1, so steps of 1 keep the kinds of matches apart.
            Some(NameMatch::Suffix) => 1.0,
            Some(NameMatch::Exact) => 2.0,
            Some(NameMatch::Verbatim) => 3.0,
        }
    }
}

/// The lexical leg's result for one request.
struct LexicalResult {
    terms: Vec<QueryTerms>,
    gains: Vec<f32>,
    limit: f32,
    scores: LegScores,
}

impl Search<'_> {
    /// Scores a request by every leg and fuses the scores. `number` is its position in the query.
    pub(super) fn score(
        &self,
        request: &RequestTexts,
        number: usize,
        vectors: &QueryVectors,
        timings: &mut Timings,
    ) -> RequestScores {
        let lexical = timed(&mut timings.lexical_ms, || self.score_words(request));
        let dense = timed(&mut timings.dense_ms, || {
            let scans = self.dense_scans(request, number, vectors);
            self.score_dense(scans, &lexical.scores)
        });
        timed(&mut timings.fuse_ms, || {
            let searcher = self.searcher;
            let named = searcher.names.find(request.whole_text(), |tool| {
                searcher.rows[tool as usize].id()
            });
            RequestScores {
                fused: self.fuse(&lexical.scores, &dense),
                named: named.into_iter().collect(),
                dense_weight: self.dense_weight(dense.len()),
                signals: signals(lexical.limit, &lexical.scores, &dense),
                terms: lexical.terms,
                lexical: lexical.scores,
                gains: lexical.gains,
                limit: lexical.limit,
                dense,
                ..RequestScores::default()
            }
        })
    }

    /// Scores every text of a request by BM25.
    fn score_words(&self, request: &RequestTexts) -> LexicalResult {
        let mut terms = Vec::new();
        let mut scored: Vec<Scored> = Vec::new();
        for text in &request.texts {
            let analyzed = text::terms(text);
            let resolved = self.searcher.with_words(|words| words.resolve(&analyzed));
            scored.push(self.searcher.with_words(|words| words.score(&resolved)));
            terms.push(resolved);
        }
        // Gains and limit describe the whole request, which is the first text.
        let gains = std::mem::take(&mut scored[0].gains);
        let limit = scored[0].limit;
        let raw = scored.into_iter().map(|scored| scored.by_tool).collect();
        LexicalResult {
            terms,
            gains,
            limit,
            scores: LegScores::new(raw, |_| 0.0, self.allowed.as_deref()),
        }
    }

    /// Scans the dense legs that have vectors of the request and know its script. In dense mode
    /// every leg takes part, as there are no words to fall back on.
    fn dense_scans<'a>(
        &'a self,
        request: &RequestTexts,
        number: usize,
        vectors: &'a QueryVectors,
    ) -> Vec<LegScan<'a>> {
        let mut scans = Vec::new();
        for (place, leg) in self.searcher.legs.iter().enumerate() {
            let Some(queries) = vectors.of(place, number) else {
                continue;
            };
            if self.mode == Mode::Dense || leg.knows_script_of(request.cjk_share, self.parts) {
                scans.push(leg.scan(queries, self.parts, self.allowed.as_deref()));
            }
        }
        scans
    }

    /// The results of the dense legs. Where one has scored roughly, the tools that may become hits
    /// by all scores so far are scored again exactly.
    fn score_dense(&self, mut scans: Vec<LegScan<'_>>, lexical: &LegScores) -> Vec<LegResult> {
        let allowed = self.allowed.as_deref();
        let mut results: Vec<LegResult> = scans.iter().map(|scan| scan.result(allowed)).collect();
        if scans.iter().any(|scan| scan.is_rough) {
            let likely = self.likely(&self.fuse(lexical, &results), &results);
            for (scan, result) in scans.iter_mut().zip(&mut results) {
                if scan.is_rough {
                    scan.refine(&likely);
                    *result = scan.result(allowed);
                }
            }
        }
        results
    }

    /// The tools that may become hits by these scores: the best of the formula and of each dense
    /// leg.
    fn likely(&self, fused: &[f32], results: &[LegResult]) -> Vec<usize> {
        let mut likely = Vec::new();
        let mut add_best = |scores: &[f32], count: usize| {
            let best = top_k::above(UNKNOWN, scores, count, |tool| self.is_allowed(tool));
            likely.extend(best.into_iter().map(|(tool, _)| tool));
        };
        add_best(fused, LIKELY);
        for result in results {
            add_best(&result.scores.raw, LIKELY_BY_LEG);
        }
        likely.sort_unstable();
        likely.dedup();
        likely
    }

    /// Adds the scores of remembered requests.
    pub(super) fn add_memory_scores(&self, scores: &mut RequestScores) {
        let Some(memory) = &self.searcher.memory else {
            return;
        };
        if !memory.is_active() {
            return;
        }
        let recalled = memory.recall(
            scores
                .dense
                .iter()
                .map(|result| (result.id.as_str(), result.share, result.query.as_slice())),
        );
        // The more confident the answer is without the memory, the less it is changed by requests
        // that are merely similar. The very same request (weight 1) keeps its full weight.
        let confidence = scores
            .ranker_output
            .as_ref()
            .and_then(|output| output.confidence)
            .unwrap_or_default();
        for (id, weight) in recalled {
            if let Some(tool) = self.searcher.position(&id) {
                let damped = weight * (1.0 - confidence * (1.0 - weight));
                scores.memory_scores.insert(tool, damped);
            }
        }
        if scores.memory_scores.is_empty() {
            return;
        }
        // Scaled, so that scores stay from 0 to 1.
        let scale = 1.0 / (1.0 + MEMORY_WEIGHT);
        let mut by_tool = scores
            .reranked
            .take()
            .unwrap_or_else(|| scores.fused.clone());
        for score in &mut by_tool {
            *score *= scale;
        }
        for (&tool, weight) in &scores.memory_scores {
            by_tool[tool] += MEMORY_WEIGHT * weight * scale;
        }
        scores.reranked = Some(by_tool);
    }

    /// The weight of this many dense legs together.
    fn dense_weight(&self, legs: usize) -> f32 {
        let settings = &self.searcher.settings;
        match (self.mode, legs) {
            (_, 0) => 0.0,
            (Mode::Dense, _) => 1.0,
            (_, 1) => self
                .parameters
                .dense_weight
                .unwrap_or(settings.dense_weight),
            _ => self
                .parameters
                .dense_weight
                .unwrap_or(settings.joint_dense_weight),
        }
    }

    /// One score per tool, 0 to 1: half by the request as a whole, half by its clauses where it has
    /// several. The share of a leg without clause scores goes to the legs that have them.
    fn fuse(&self, lexical: &LegScores, dense: &[LegResult]) -> Vec<f32> {
        let whole: Vec<(&[f32], f32)> = dense
            .iter()
            .map(|result| (result.scores.whole(), result.share))
            .collect();
        let mut fused = self.fuse_part(lexical.whole(), &whole);
        let Some(lexical_clauses) = &lexical.clauses else {
            return fused;
        };
        let clauses: Vec<(&[f32], f32)> = dense
            .iter()
            .filter_map(|result| Some((result.scores.clauses.as_deref()?, result.share)))
            .collect();
        let clauses = self.fuse_part(lexical_clauses, &clauses);
        for (fused, clauses) in fused.iter_mut().zip(clauses) {
            *fused = fuse::convex(*fused, clauses, CLAUSES_SHARE);
        }
        fused
    }

    /// Fuses the legs' scores, each with its share, for one part of a request. A tool without a
    /// vector is scored by its words alone.
    fn fuse_part(&self, lexical: &[f32], dense: &[(&[f32], f32)]) -> Vec<f32> {
        let dense_weight = self.dense_weight(dense.len());
        let shares: f32 = dense.iter().map(|(_, share)| share).sum();
        let weighted = dense
            .iter()
            // Shares are relative: a leg that takes no part leaves its share to the others.
            .map(|&(scores, share)| (scores, dense_weight * share / shares));
        if self.parameters.fusion == Fusion::Rrf && !dense.is_empty() {
            let lists: Vec<(&[f32], f32)> = [(lexical, 1.0 - dense_weight)]
                .into_iter()
                .chain(weighted)
                .collect();
            return fuse::reciprocal_rank(&lists, 0.0, lexical.len());
        }
        let mut fused: Vec<f32> = lexical
            .iter()
            .map(|score| score * (1.0 - dense_weight))
            .collect();
        for (scores, weight) in weighted {
            for ((fused, &score), &by_words) in fused.iter_mut().zip(scores).zip(lexical) {
                *fused += weight * if score.is_finite() { score } else { by_words };
            }
        }
        fused
    }
}

/// The strongest signals among the legs' scores; `limit` is the highest possible lexical score.
fn signals(limit: f32, lexical: &LegScores, dense: &[LegResult]) -> Signals {
    let coverage = if limit > 0.0 {
        lexical.best.max(0.0) / limit
    } else {
        0.0
    };
    let cosine = dense
        .iter()
        .map(|result| result.scores.best)
        .reduce(f32::max);
    Signals { coverage, cosine }
}

/// The highest confidence of any request.
pub(super) fn highest_confidence(all: &[RequestScores]) -> Option<f32> {
    all.iter()
        .filter_map(RequestScores::confidence)
        .reduce(f32::max)
}

/// The strongest signals of any request.
pub(super) fn strongest_signals(all: &[RequestScores]) -> Signals {
    let mut strongest = Signals::default();
    for Signals { coverage, cosine } in all.iter().map(|scores| scores.signals) {
        strongest.coverage = strongest.coverage.max(coverage);
        strongest.cosine = [strongest.cosine, cosine]
            .into_iter()
            .flatten()
            .reduce(f32::max);
    }
    strongest
}

/// The ids of the embedders that scored any request, sorted.
pub(super) fn contributing_embedders(all: &[RequestScores]) -> Vec<String> {
    let mut ids: Vec<String> = all
        .iter()
        .flat_map(|scores| &scores.dense)
        .map(|result| result.id.clone())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
