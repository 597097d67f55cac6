//! Why a hit stands where it stands.

use super::{LegScores, RequestScores, RequestTexts, Search};
use crate::document::{Field, field_head};
use crate::hit::{Explain, LegScore, MatchedField};
use crate::text;
use crate::tool::Tool;

/// Bytes of a field in which matches are looked for.
const MAX_EXPLAINED_BYTES: usize = 64 << 10;

/// Tells how a tool came to its score for a request. Costs a pass over the leg's scores, so only on
/// request.
pub(super) fn explain(
    search: &Search<'_>,
    tool: usize,
    request: &RequestTexts,
    evidence: &RequestScores,
) -> Explain {
    let terms: Vec<&str> = evidence
        .terms
        .iter()
        .flat_map(|terms| terms.terms())
        .collect();
    let fuzzy = evidence.terms[0].fuzzy.clone();
    let matched = search.searcher.rows[tool]
        .tool()
        .map(|tool| matched_fields(&tool, &terms))
        .unwrap_or_default();
    let leg_score = |leg: &LegScores| leg_score(search, tool, leg);
    Explain {
        name_match: evidence.named.get(&(tool as u32)).copied(),
        lexical: leg_score(&evidence.lexical).filter(|score| score.raw > 0.0),
        dense: evidence
            .dense
            .iter()
            .filter_map(|result| Some((result.id.clone(), leg_score(&result.scores)?)))
            .collect(),
        matched,
        fuzzy,
        clauses: request.clauses().to_vec(),
        best_clause: best_clause(tool, evidence),
        dense_weight: evidence.dense_weight,
        fused: evidence.fused[tool],
        ranker: evidence
            .ranker_output
            .as_ref()
            .and_then(|ranker_output| ranker_output.explain(search, evidence, tool)),
        memory: evidence.memory_scores.get(&tool).copied(),
    }
}

fn leg_score(search: &Search<'_>, tool: usize, leg: &LegScores) -> Option<LegScore> {
    let raw = leg.raw[tool];
    raw.is_finite().then(|| LegScore {
        rank: search.place(&leg.raw, tool),
        raw,
        normalised: leg.by_text[0][tool],
    })
}

fn matched_fields(tool: &Tool, terms: &[&str]) -> Vec<MatchedField> {
    let fields = Field::ALL.into_iter().map(|field| {
        let mut found: Vec<String> = text::terms(&field_head(tool, field, MAX_EXPLAINED_BYTES))
            .into_iter()
            .map(|term| term.term)
            .collect();
        found.retain(|term| terms.contains(&term.as_str()));
        found.sort_unstable();
        found.dedup();
        MatchedField {
            field: field.name(),
            terms: found,
        }
    });
    fields.filter(|field| !field.terms.is_empty()).collect()
}

/// The clause for which the legs together score the tool highest.
fn best_clause(tool: usize, evidence: &RequestScores) -> Option<usize> {
    let clauses = 1..evidence.lexical.by_text.len();
    let score = |clause: usize| {
        let lexical = evidence.lexical.by_text[clause][tool];
        let dense: f32 = evidence
            .dense
            .iter()
            .filter_map(|result| Some(result.scores.by_text.get(clause)?[tool].max(0.0)))
            .sum();
        lexical + dense
    };
    clauses
        .max_by(|&a, &b| score(a).total_cmp(&score(b)).then(b.cmp(&a)))
        .map(|clause| clause - 1)
}
