//! What the stages of a search hand on: the scores of a request, and the tools that were found.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::legs::{LegResult, LegScores};
use crate::hit::{CompanionOf, Match, NameMatch, Signals};
use crate::language::Language;
use crate::ranker::Ranker;
use crate::ranker::features::Candidates;

/// The hits that the confidence is about: as many as `success at 5` of the measurements counts.
const FIRST_HITS: usize = 5;
/// The highest confidence in an answer to a request that says nothing. Chosen by hand.
const NONSENSE_CONFIDENCE: f32 = 0.05;

/// Everything known about one request before its hits are chosen.
#[derive(Default)]
pub(super) struct RequestScores {
    pub(super) language: Language,
    pub(super) is_nonsense: bool,
    pub(super) has_no_content: bool,
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
    pub(super) signals: Signals,
    /// The ranker's output, where it took part.
    pub(super) ranker_output: Option<RankerOutput>,
    /// One score per tool with the ranker's and the memory's part, without the name tier; `None`
    /// where neither took part.
    pub(super) reranked: Option<Vec<f32>>,
    /// The memory's weight by position, 0 to 1, for tools that remembered requests led to.
    pub(super) memory_scores: HashMap<usize, f32>,
    /// One score per tool with the owner's boosts besides; `None` without any.
    pub(super) boosted: Option<Vec<f32>>,
    /// The tools that the owner's pins put at a place, of those that pass the filter.
    pub(super) pinned: Vec<Pinned>,
    /// The tools that they hide.
    pub(super) hidden: Vec<usize>,
}

impl RequestScores {
    /// One score per tool, without the name tier.
    pub(super) fn by_tool(&self) -> &[f32] {
        self.boosted.as_deref().unwrap_or(self.before_boosts())
    }

    /// One score per tool, without the owner's boosts and the name tier.
    pub(super) fn before_boosts(&self) -> &[f32] {
        self.reranked.as_deref().unwrap_or(&self.fused)
    }

    /// The probability that one of the first five hits is right; 1 for a tool that was asked for by
    /// name, or that the owner's pins put among them.
    pub(super) fn confidence(&self) -> Option<f32> {
        if self.is_certain() {
            return Some(1.0);
        }
        let confidence = self.ranker_output.as_ref()?.confidence?;
        Some(if self.is_nonsense || self.has_no_content {
            // The forest has learned from requests that somebody meant.
            confidence.min(NONSENSE_CONFIDENCE)
        } else {
            confidence
        })
    }

    /// How well the best tools serve the request.
    pub(super) fn matched(&self) -> Match {
        if self.is_certain() {
            return Match::Good;
        }
        let by_content = match &self.ranker_output {
            _ if self.is_nonsense || self.has_no_content => Match::None,
            Some(output) => output.matched,
            None => Match::Possible,
        };
        // A tool that was called after a similar request is not far from this one.
        if self.memory_scores.is_empty() {
            by_content
        } else {
            by_content.max(Match::Possible)
        }
    }

    /// True if the request names a tool, or if the owner's pins put one among the first hits.
    fn is_certain(&self) -> bool {
        self.pinned.iter().any(|pinned| pinned.place <= FIRST_HITS)
            || self.named.values().any(|name| *name >= NameMatch::Alias)
    }

    /// Number of the clauses it was split into; 0 where it was taken whole.
    pub(super) fn clauses(&self) -> usize {
        self.lexical.by_text.len().saturating_sub(1)
    }

    /// What a tool's score gains for being asked for by name.
    pub(super) fn name_bonus(&self, tool: usize) -> f32 {
        match self.named.get(&(tool as u32)) {
            None => 0.0,
            // Scores by content end at 1, so steps of 1 keep the kinds of matches apart. An alias and the
            // end of a name are kept apart as far as scores by content differ by less than a half.
            Some(NameMatch::Suffix) => 1.0,
            Some(NameMatch::Alias) => 1.5,
            Some(NameMatch::Exact) => 2.0,
            Some(NameMatch::Verbatim) => 3.0,
        }
    }
}

/// The ranker's result for one request.
pub(super) struct RankerOutput {
    pub(super) ranker: Arc<Ranker>,
    pub(super) legs: Vec<String>,
    pub(super) candidates: Candidates,
    /// The forest's score of each candidate.
    pub(super) forest_scores: Vec<f64>,
    /// Their weight beside the formula's scores; 0 where the formula decides alone.
    pub(super) mix: f32,
    /// The probability that one of the first five hits is right; `None` where the ranker's model was
    /// trained with another embedder.
    pub(super) confidence: Option<f32>,
    /// What the confidence says about the answer.
    pub(super) matched: Match,
    /// One score per tool, without the memory's part; computed for explanations only.
    pub(super) by_tool: OnceLock<Vec<f32>>,
}

/// A tool that was put at a place for a request.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    pub(super) tool: usize,
    /// From 1.
    pub(super) place: usize,
    /// The query of the pin.
    pub(super) query: String,
}

/// A tool found by one or more requests.
pub(super) struct Found {
    pub(super) tool: usize,
    /// Its best score over the requests.
    pub(super) score: f32,
    /// The requests that found it, by number; the one with the best score first.
    pub(super) found_by: Vec<usize>,
    /// Set for a tool that is here for another hit.
    pub(super) companion_of: Option<CompanionOf>,
}

/// How well an answer to several requests serves them: good if it serves each of them well, none if it
/// serves none.
pub(super) fn match_of_all(all: &[RequestScores]) -> Match {
    let matches: Vec<Match> = all.iter().map(RequestScores::matched).collect();
    let best = matches.iter().copied().max().unwrap_or(Match::None);
    if matches.iter().all(|matched| *matched == best) {
        best
    } else {
        best.min(Match::Possible)
    }
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
    for scores in all {
        let Signals { coverage, cosine } = scores.signals;
        strongest.coverage = strongest.coverage.max(coverage);
        strongest.cosine = match (strongest.cosine, cosine) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
    }
    strongest
}

/// The ids of the embedders that scored any request, sorted.
pub(super) fn contributing_embedders(all: &[RequestScores]) -> Vec<String> {
    let mut ids = Vec::new();
    for scores in all {
        for result in &scores.dense {
            ids.push(result.id.clone());
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}
