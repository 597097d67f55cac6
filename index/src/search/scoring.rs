//! Scores of a request: by leg, fused into one score a tool, and with what the memory adds.

use std::collections::HashMap;
use std::time::Instant;

use super::legs::{LegResult, LegScan, LegScores};
use super::request::{QueryVectors, RequestTexts};
use super::scores::RequestScores;
use super::{DenseLeg, Search, Searcher, ms_since};
use crate::dense::UNKNOWN;
use crate::fuse;
use crate::hit::{NameMatch, Signals, Timings};
use crate::language::Language;
use crate::lexical::Scored;
use crate::memory::Memory;
use crate::query::{Fusion, Mode};
use crate::tool::ToolId;
use crate::top_k;

/// The share of the clauses in a request's score; the rest is the request as a whole. Equal shares were chosen by
/// hand. "What each part is worth" in BENCHMARKS.md has what clauses add: .015 of nDCG@10 by table.
const CLAUSES_SHARE: f32 = 0.5;
/// The weight of the dense legs for a tool in another language than the request: the words they
/// share are names. This weight and the next three were chosen by hand.
const CROSS_LANGUAGE_DENSE_WEIGHT: f32 = 0.9;
/// The same for an English request: the names of tools are often English where their descriptions
/// are not.
const FROM_ENGLISH_DENSE_WEIGHT: f32 = 0.75;
/// The same for Chinese, Japanese and Korean where both are in one language. Characters and pairs of
/// them are worth more than words are elsewhere.
const CJK_DENSE_WEIGHT: f32 = 0.5;
/// The same for other languages.
const OTHER_DENSE_WEIGHT: f32 = 0.6;
/// What a request that was asked before, word for word, adds to its tool's score; less, the less
/// similar it is. Above 1, so that the tool called for the very same request comes before the best
/// match by content; by how much was chosen by hand.
const MEMORY_WEIGHT: f32 = 1.2;
/// The best tools by rough scores that are scored again exactly: several times the ranker's
/// candidates and the most hits of a query by the formula, and for each leg as many as its features
/// read.
const LIKELY: usize = 256;
const LIKELY_BY_LEG: usize = 64;
/// The worst tools of each leg by rough scores, which are scored again exactly too: all scores are
/// scaled from that of the worst. How many was chosen by hand.
const LEAST_SIMILAR: usize = 32;

impl Searcher {
    /// The tools that a request names, by their own names or by aliases, each with its best kind of
    /// match.
    fn named(&self, request: &str) -> HashMap<u32, NameMatch> {
        let found = self
            .names
            .find(request, |tool| self.rows[tool as usize].id());
        let mut named: HashMap<u32, NameMatch> = found.into_iter().collect();
        for id in self.aliased(request) {
            // The owner may have named a tool that is no longer there.
            if let Some(tool) = self.position(&id) {
                let known = named.entry(tool as u32).or_insert(NameMatch::Alias);
                *known = NameMatch::Alias.max(*known);
            }
        }
        named
    }

    /// The leg that a result is of.
    pub(super) fn leg_of(&self, result: &LegResult) -> Option<&DenseLeg> {
        let mut legs = self.legs.iter();
        legs.find(|leg| leg.embedder.id() == result.id)
    }
}

/// The lexical leg's result for one request.
struct LexicalResult {
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
        let by_words = Instant::now();
        let lexical = self.score_words(request);
        timings.lexical_ms += ms_since(by_words);
        let by_meaning = Instant::now();
        let dense = self.score_dense(request, number, vectors, &lexical.scores);
        timings.dense_ms += ms_since(by_meaning);
        let fusing = Instant::now();
        let mut named = self.searcher.named(request.whole_text());
        named.retain(|&tool, _| self.is_allowed(tool as usize));
        let scores = RequestScores {
            language: request.language,
            is_nonsense: request.is_nonsense,
            has_no_content: request.has_no_content,
            fused: self.fuse(request.language, &lexical.scores, &dense),
            named,
            signals: signals(lexical.limit, &lexical.scores, &dense),
            lexical: lexical.scores,
            gains: lexical.gains,
            limit: lexical.limit,
            dense,
            ..RequestScores::default()
        };
        timings.fuse_ms += ms_since(fusing);
        scores
    }

    /// Scores every text of a request by BM25.
    fn score_words(&self, request: &RequestTexts) -> LexicalResult {
        let mut scored: Vec<Scored> = Vec::new();
        for terms in &request.terms {
            scored.push(self.searcher.with_words(|words| words.score(terms)));
        }
        // Gains and limit describe the whole request, which is the first text.
        let gains = std::mem::take(&mut scored[0].gains);
        let limit = scored[0].limit;
        let raw = scored.into_iter().map(|scored| scored.by_tool).collect();
        LexicalResult {
            gains,
            limit,
            scores: LegScores::new(raw, |_| 0.0, self.allowed.as_deref()),
        }
    }

    /// The results of the dense legs that have vectors of the request and score its language. Where
    /// one has scored roughly, the tools that may become hits by all scores so far are scored again
    /// exactly.
    fn score_dense(
        &self,
        request: &RequestTexts,
        number: usize,
        vectors: &QueryVectors,
        lexical: &LegScores,
    ) -> Vec<LegResult> {
        let allowed = self.allowed.as_deref();
        let (scans, mut results) = self.dense_scans(request, number, vectors);
        if scans.iter().all(|scan| !scan.is_rough) {
            return results;
        }
        let fused = self.fuse(request.language, lexical, &results);
        let likely = self.likely(&fused, &results);
        for (scan, result) in scans.iter().zip(&mut results) {
            if scan.is_rough {
                scan.refine(&likely, &mut result.scores, allowed);
            }
        }
        results
    }

    /// Scans the dense legs that have vectors of the request and score its language.
    fn dense_scans<'a>(
        &'a self,
        request: &RequestTexts,
        number: usize,
        vectors: &'a QueryVectors,
    ) -> (Vec<LegScan<'a>>, Vec<LegResult>) {
        let mut scans = Vec::new();
        let narrows = !self.query.filter.is_empty() || !self.searcher.is_mostly_tools();
        for (place, leg) in self.searcher.legs.iter().enumerate() {
            let Some(queries) = vectors.of(place, number) else {
                continue;
            };
            let (searcher, parts) = (self.searcher, self.parts);
            if !searcher.takes_part(leg, request.language, self.mode, parts) {
                continue;
            }
            let scored = searcher.scored_tools(leg, request.language, parts);
            scans.push(leg.scan(queries, scored, parts, narrows, self.allowed.as_deref()));
        }
        scans.into_iter().unzip()
    }

    /// The tools that may become hits by these scores: the best of the formula and of each dense
    /// leg. With them the worst of each leg, which the scores are scaled by.
    fn likely(&self, fused: &[f32], results: &[LegResult]) -> Vec<usize> {
        let is_allowed = |tool| self.is_allowed(tool);
        let mut best = top_k::unordered_above(UNKNOWN, fused, LIKELY, is_allowed);
        for result in results {
            let raw = result.scores.raw();
            let of_leg = top_k::unordered_above(UNKNOWN, raw, LIKELY_BY_LEG, is_allowed);
            best.extend(of_leg);
            best.extend(least_similar(raw));
        }
        let mut likely: Vec<usize> = best.into_iter().map(|(tool, _)| tool).collect();
        // The same tool is among the best of several legs.
        likely.sort_unstable();
        likely.dedup();
        likely
    }

    /// Adds the scores of remembered requests.
    pub(super) fn add_memory_scores(&self, request: &RequestTexts, scores: &mut RequestScores) {
        let Some(memory) = &self.searcher.memory else {
            return;
        };
        if !memory.is_active() {
            return;
        }
        let mut recalled = memory.recall(scores.dense.iter().map(LegResult::query_vector));
        if request.is_rewritten() {
            // What was remembered is what was asked, with its mistakes and in its language.
            for (id, weight) in self.recall_as_written(memory, request, scores) {
                let known = recalled.entry(id).or_insert(0.0);
                *known = known.max(weight);
            }
        }
        // The more confident the answer is without the memory, the less it is changed by requests
        // that are merely similar. The very same request (weight 1) keeps its full weight.
        let confidence = match &scores.ranker_output {
            Some(output) => output.confidence.unwrap_or_default(),
            None => 0.0,
        };
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
        let mut by_tool = match scores.reranked.take() {
            Some(reranked) => reranked,
            None => scores.fused.clone(),
        };
        for score in &mut by_tool {
            *score *= scale;
        }
        for (&tool, weight) in &scores.memory_scores {
            by_tool[tool] += MEMORY_WEIGHT * weight * scale;
        }
        scores.reranked = Some(by_tool);
    }

    /// What the memory recalls for a request as it was written.
    fn recall_as_written(
        &self,
        memory: &Memory,
        request: &RequestTexts,
        scores: &RequestScores,
    ) -> HashMap<ToolId, f32> {
        let mut written = Vec::new();
        for result in &scores.dense {
            let Some(leg) = self.searcher.leg_of(result) else {
                continue;
            };
            // A slow one would embed a second time, outside of the time limit.
            if leg.embedder.is_instant()
                && let Ok(vectors) = leg.embedder.embed_queries(&[request.whole_text()])
            {
                for vector in vectors {
                    written.push((result, vector));
                }
            }
        }
        let vectors = written.iter();
        memory.recall(
            vectors.map(|(result, vector)| (result.id.as_str(), result.share, vector.as_slice())),
        )
    }

    /// The weight of this many dense legs together, for a tool in a language.
    fn dense_weight(&self, legs: usize, request: Language, tool: Language) -> f32 {
        let settings = &self.searcher.settings;
        if legs == 0 {
            return 0.0;
        }
        if self.mode == Mode::Dense {
            return 1.0;
        }
        self.parameters
            .dense_weight
            .unwrap_or(match (request, tool) {
                (Language::English, Language::English) if legs == 1 => settings.dense_weight,
                (Language::English, Language::English) => settings.joint_dense_weight,
                (Language::English, _) => FROM_ENGLISH_DENSE_WEIGHT,
                _ if request != tool => CROSS_LANGUAGE_DENSE_WEIGHT,
                _ if request.is_cjk() => CJK_DENSE_WEIGHT,
                _ => OTHER_DENSE_WEIGHT,
            })
    }

    /// One score per tool, 0 to 1: half by the request as a whole, half by its clauses where it has
    /// several. The share of a leg without clause scores goes to the legs that have them.
    fn fuse(&self, request: Language, lexical: &LegScores, dense: &[LegResult]) -> Vec<f32> {
        let mut fused = self.fuse_part(request, lexical.whole(), &Part::of_each(dense, 0));
        let Some(lexical_clauses) = &lexical.clauses else {
            return fused;
        };
        let clauses: Vec<Part<'_>> = dense.iter().filter_map(Part::clauses).collect();
        let clauses = self.fuse_part(request, lexical_clauses, &clauses);
        for (fused, clauses) in fused.iter_mut().zip(clauses) {
            *fused = fuse::convex(*fused, clauses, CLAUSES_SHARE);
        }
        fused
    }

    /// Fuses the legs' scores, each with its share, for one part of a request. A tool without a
    /// vector is scored by its words alone.
    fn fuse_part(&self, request: Language, lexical: &[f32], dense: &[Part<'_>]) -> Vec<f32> {
        if self.parameters.fusion == Fusion::Rrf && !dense.is_empty() {
            return self.fuse_ranks(request, lexical, dense);
        }
        if request != Language::English || dense.iter().any(|part| part.leg.scored.is_some()) {
            return self.fuse_by_language(request, lexical, dense);
        }
        let dense_weight = self.dense_weight(dense.len(), request, request);
        let mut fused = fuse::weighted(lexical, 1.0 - dense_weight);
        let shares: f32 = dense.iter().map(|part| part.leg.share).sum();
        for part in dense {
            // Shares are relative: a leg that takes no part leaves its share to the others.
            let weight = dense_weight * part.leg.share / shares;
            fuse::add_weighted(&mut fused, part.scores, lexical, weight);
        }
        fused
    }

    /// As [`Search::fuse_part`], where the legs and their weights depend on the tool's language.
    fn fuse_by_language(&self, request: Language, lexical: &[f32], dense: &[Part<'_>]) -> Vec<f32> {
        (0..lexical.len())
            .map(|tool| self.fuse_tool(request, tool, lexical, dense))
            .collect()
    }

    fn fuse_tool(
        &self,
        request: Language,
        tool: usize,
        lexical: &[f32],
        dense: &[Part<'_>],
    ) -> f32 {
        let by_words = lexical[tool];
        let Some((legs, by_meaning)) = score_by_meaning(tool, dense) else {
            return by_words;
        };
        let weight = self.dense_weight(legs, request, self.searcher.languages.by_tool[tool]);
        fuse::convex(by_words, by_meaning, weight)
    }

    /// The fused score of a tool for one of a request's clauses, 0 to 1.
    pub(super) fn clause_score(&self, scores: &RequestScores, clause: usize, tool: usize) -> f32 {
        // The first text is the whole request.
        let text = clause + 1;
        let dense = Part::of_each(&scores.dense, text);
        self.fuse_tool(scores.language, tool, &scores.lexical.by_text[text], &dense)
    }

    /// The weight of the dense legs that scored a tool for a request.
    pub(super) fn dense_weight_of(&self, scores: &RequestScores, tool: usize) -> f32 {
        let dense = scores.dense.iter();
        let legs = dense.filter(|leg| leg.scores_tool(tool)).count();
        self.dense_weight(legs, scores.language, self.searcher.languages.by_tool[tool])
    }

    /// As [`Search::fuse_part`], by reciprocal rank.
    fn fuse_ranks(&self, request: Language, lexical: &[f32], dense: &[Part<'_>]) -> Vec<f32> {
        // One list for all legs together: in the list of a leg that scores only a few tools, all of
        // them would be among the first.
        let mut most_legs = 0;
        let mut by_meaning = vec![0.0; lexical.len()];
        for (tool, score) in by_meaning.iter_mut().enumerate() {
            if let Some((legs, joint)) = score_by_meaning(tool, dense) {
                most_legs = most_legs.max(legs);
                *score = joint;
            }
        }
        let dense_weight = self.dense_weight(most_legs, request, request);
        let lists = [
            (lexical, 1.0 - dense_weight),
            (by_meaning.as_slice(), dense_weight),
        ];
        fuse::reciprocal_rank(&lists, 0.0, lexical.len())
    }
}

/// The tools with the lowest known scores, each with its distance.
fn least_similar(scores: &[f32]) -> Vec<(usize, f32)> {
    let distances: Vec<f32> = scores
        .iter()
        .map(|score| if score.is_finite() { -score } else { UNKNOWN })
        .collect();
    top_k::unordered_above(UNKNOWN, &distances, LEAST_SIMILAR, |_| true)
}

/// How many legs score a tool, and their joint score by their shares; `None` where no leg does.
fn score_by_meaning(tool: usize, dense: &[Part<'_>]) -> Option<(usize, f32)> {
    let (mut legs, mut shares, mut by_meaning) = (0, 0.0, 0.0);
    for part in dense {
        if part.leg.scores_tool(tool) && part.scores[tool].is_finite() {
            legs += 1;
            shares += part.leg.share;
            by_meaning += part.leg.share * part.scores[tool];
        }
    }
    match legs {
        0 => None,
        _ => Some((legs, by_meaning / shares)),
    }
}

/// A leg's scaled scores for one part of a request: the whole of it, or its clauses.
struct Part<'a> {
    leg: &'a LegResult,
    scores: &'a [f32],
}

impl<'a> Part<'a> {
    fn clauses(leg: &'a LegResult) -> Option<Self> {
        let scores = leg.scores.clauses.as_deref()?;
        Some(Part { leg, scores })
    }

    /// The scores of the legs that scored a text; text 0 is the whole request.
    fn of_each(legs: &'a [LegResult], text: usize) -> Vec<Self> {
        let mut parts = Vec::with_capacity(legs.len());
        for leg in legs {
            if let Some(scores) = leg.scores.by_text.get(text) {
                parts.push(Part { leg, scores });
            }
        }
        parts
    }
}

/// The strongest signals among the legs' scores; `limit` is the highest possible lexical score.
fn signals(limit: f32, lexical: &LegScores, dense: &[LegResult]) -> Signals {
    let coverage = if limit > 0.0 {
        // Words beside everyday phrases are no part of the limit.
        (lexical.best.max(0.0) / limit).min(1.0)
    } else {
        0.0
    };
    let cosine = dense.iter().map(LegResult::best_scored).reduce(f32::max);
    Signals { coverage, cosine }
}
