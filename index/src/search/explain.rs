//! How a hit got its score.

use super::legs::LegScores;
use super::scores::RequestScores;
use super::{RequestTexts, Search};
use crate::document::{Field, field_head};
use crate::hit::{EverydayWords, Explain, FuzzyEdit, LegScore, MatchedField, Moved};
use crate::lexical::Origin;
use crate::text;
use crate::tool::Tool;

/// Bytes of each field that are searched for matches.
const MAX_EXPLAINED_BYTES: usize = 64 << 10;

/// Explains a tool's score for a request. Costs a pass over each leg's scores, so only on request.
pub(super) fn explain(
    search: &Search<'_>,
    tool: usize,
    request: &RequestTexts,
    scores: &RequestScores,
) -> Explain {
    let mut terms: Vec<&str> = Vec::new();
    for text in &request.terms {
        terms.extend(text.terms().chain(text.added_terms()));
    }
    let matched = match search.searcher.rows[tool].tool() {
        Some(tool) => matched_fields(&tool, &terms),
        None => Vec::new(),
    };
    let ranker = match &scores.ranker_output {
        Some(output) => output.explain(search, scores, tool),
        None => None,
    };
    let mut dense = Vec::new();
    for result in &scores.dense {
        if let Some(score) = leg_score(search, tool, &result.scores) {
            dense.push((result.id.clone(), score));
        }
    }
    Explain {
        name_match: scores.named.get(&(tool as u32)).copied(),
        // A tool without any of the words has no lexical score to explain.
        lexical: leg_score(search, tool, &scores.lexical).filter(|score| score.raw > 0.0),
        dense,
        matched,
        fuzzy: corrections(request),
        everyday: everyday_words(request),
        clauses: request.clauses().to_vec(),
        translation: request.translation().map(str::to_owned),
        best_clause: search.best_clause(tool, scores),
        dense_weight: search.dense_weight_of(scores, tool),
        fused: scores.fused[tool],
        ranker,
        memory: scores.memory_scores.get(&tool).copied(),
        memory_moved: memory_moved(search, tool, scores),
        owner_words: search.owner_effects(tool, request, scores),
    }
}

/// The corrected words of a request. A long one is corrected in its parts only.
fn corrections(request: &RequestTexts) -> Vec<FuzzyEdit> {
    let mut corrections: Vec<FuzzyEdit> = Vec::new();
    for terms in &request.terms {
        for edit in &terms.fuzzy {
            if !corrections.contains(edit) {
                corrections.push(edit.clone());
            }
        }
    }
    corrections
}

/// The everyday phrases of a request, with the words that were added for them.
fn everyday_words(request: &RequestTexts) -> Vec<EverydayWords> {
    let mut everyday = Vec::new();
    for added in &request.terms[0].added {
        // The owner's synonyms are listed with the other effects of the owner's words.
        if added.origin == Origin::Everyday {
            everyday.push(EverydayWords {
                said: added.said.clone(),
                words: added.words.iter().map(|word| word.word.clone()).collect(),
            });
        }
    }
    everyday
}

/// How the memory changed the tool's rank; `None` where it took no part in the request.
fn memory_moved(search: &Search<'_>, tool: usize, scores: &RequestScores) -> Option<Moved> {
    if scores.memory_scores.is_empty() {
        return None;
    }
    let before = match &scores.ranker_output {
        Some(output) => search.rank_of(output.scores(&scores.fused), tool),
        None => search.rank_of(&scores.fused, tool),
    };
    Some(Moved {
        before,
        after: search.rank_of(scores.before_boosts(), tool),
    })
}

fn leg_score(search: &Search<'_>, tool: usize, leg: &LegScores) -> Option<LegScore> {
    let raw = leg.raw()[tool];
    // A tool without a vector has no score.
    if !raw.is_finite() {
        return None;
    }
    Some(LegScore {
        rank: search.rank_of(leg.raw(), tool),
        raw,
        normalised: leg.by_text[0][tool],
    })
}

/// The fields that contain any of these terms, with the terms.
fn matched_fields(tool: &Tool, terms: &[&str]) -> Vec<MatchedField> {
    let mut matched = Vec::new();
    for field in Field::ALL {
        let mut found = Vec::new();
        for term in text::terms(&field_head(tool, field, MAX_EXPLAINED_BYTES)) {
            if terms.contains(&term.term.as_str()) {
                found.push(term.term);
            }
        }
        found.sort_unstable();
        found.dedup();
        if !found.is_empty() {
            matched.push(MatchedField {
                field: field.name(),
                terms: found,
            });
        }
    }
    matched
}
