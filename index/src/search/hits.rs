//! From scores to hits: the best tools of every request in one order, with near-duplicates folded.

use std::collections::{HashMap, HashSet};

use super::legs::{LegResult, LegScores};
use super::scores::{Found, RequestScores};
use super::{RequestTexts, Search, explain, needs};
use crate::embed::Languages;
use crate::hit::{Definition as _, Hit, HitTool, NearTool, NoMatch, Signals, ranked};
use crate::language::Language;
use crate::tool::ToolId;
use crate::top_k::{TopK, by_rank};

/// The tools that the best are chosen among.
#[derive(Clone, Copy)]
enum Among {
    All,
    Unflagged,
    Flagged,
}

/// The tools of several requests, each once with its best score, best first.
pub(super) fn merged(found: Vec<(usize, f32)>) -> Vec<(usize, f32)> {
    let mut best: HashMap<usize, f32> = HashMap::new();
    for (tool, score) in found {
        let known = best.entry(tool).or_insert(score);
        *known = known.max(score);
    }
    let mut merged: Vec<(usize, f32)> = best.into_iter().collect();
    merged.sort_unstable_by(by_rank);
    merged
}

impl Search<'_> {
    /// Merges the tools of all requests into one list of hits.
    pub(super) fn rank(
        &self,
        requests: &[RequestTexts],
        all_scores: &[RequestScores],
    ) -> (Vec<Hit>, Option<NoMatch>) {
        let mut found = self.found(all_scores);
        found.sort_unstable_by(|a, b| ranked((a.score, a.tool), (b.score, b.tool)));
        self.put_flagged_last(&mut found);
        // Each request has folded its own duplicates; two requests may still have found two of one
        // group. The first in order stays.
        let mut folded = HashSet::new();
        found.retain(|found| match self.duplicates(found.tool).first() {
            Some(first) => folded.insert(*first),
            None => true,
        });
        self.place_pinned(&mut found, all_scores);
        found.truncate(self.parameters.k);
        // After the cut, so that companions are those of tools that are shown.
        self.place_companions(&mut found, requests, all_scores);
        if found.is_empty() {
            return (Vec::new(), Some(self.no_match(all_scores)));
        }
        let mut hits = Vec::with_capacity(found.len());
        for found in found {
            hits.push(self.hit(found, requests, all_scores));
        }
        (hits, None)
    }

    /// Puts tools that a person has to decide on behind all others. Scores stay in order.
    fn put_flagged_last(&self, found: &mut [Found]) {
        found.sort_by_key(|found| self.is_flagged(found.tool));
        let mut least = f32::INFINITY;
        for found in found {
            found.score = found.score.min(least);
            least = found.score;
        }
    }

    /// The tools that come after the hits, as many as the query asks for. None without hits: what is
    /// near is then named as no match.
    pub(super) fn near(&self, hits: &[Hit], all_scores: &[RequestScores]) -> Vec<NearTool> {
        let count = self.query.near;
        if count == 0 || hits.is_empty() {
            return Vec::new();
        }
        let mut best = Vec::new();
        for scores in all_scores {
            if self.is_match(scores) {
                // With room for the hits, which are left out below.
                best.extend(self.best(scores, hits.len() + count));
            }
        }
        let mut best = merged(best);
        best.sort_by_key(|(tool, _)| self.is_flagged(*tool));
        let mut shown: HashSet<&str> = HashSet::new();
        for hit in hits {
            shown.insert(hit.id.as_str());
            shown.extend(hit.also_on.iter().map(ToolId::as_str));
        }
        let mut near = Vec::new();
        for (tool, _) in best {
            if near.len() == count {
                break;
            }
            let row = &self.searcher.rows[tool];
            if !shown.contains(row.stored.id.as_str()) {
                near.push(NearTool {
                    id: row.id(),
                    tool: HitTool::new(row.clone()),
                });
            }
        }
        near
    }

    /// The best tools of every request that has a match, each tool once.
    fn found(&self, all_scores: &[RequestScores]) -> Vec<Found> {
        let mut by_tool: HashMap<usize, Found> = HashMap::new();
        for (number, scores) in all_scores.iter().enumerate() {
            if !self.is_match(scores) {
                continue;
            }
            for (tool, score) in self.top(scores) {
                let found = by_tool.entry(tool).or_insert(Found {
                    tool,
                    score,
                    found_by: Vec::new(),
                    companion_of: None,
                });
                if score > found.score {
                    found.score = score;
                    found.found_by.insert(0, number);
                } else {
                    found.found_by.push(number);
                }
            }
        }
        // By the best score of a tool, whichever request gave it.
        let mut found: Vec<Found> = by_tool.into_values().collect();
        found.retain(|found| found.score >= self.parameters.min_score);
        found
    }

    fn hit(&self, found: Found, requests: &[RequestTexts], all_scores: &[RequestScores]) -> Hit {
        let Found {
            tool,
            score,
            found_by,
            companion_of,
        } = found;
        let row = &self.searcher.rows[tool];
        let best = found_by.first().copied().unwrap_or(0);
        let mut matched_queries = found_by;
        matched_queries.sort_unstable();
        let (request, scores) = (&requests[best], &all_scores[best]);
        let explain = match self.query.explain {
            true => Some(explain::explain(self, tool, request, scores)),
            false => None,
        };
        let mut also_on = Vec::new();
        for &other in self.duplicates(tool) {
            let other = other as usize;
            if other != tool && self.is_allowed(other) {
                also_on.push(self.searcher.rows[other].id());
            }
        }
        let clause = self.best_clause(tool, scores);
        let serves = clause.map(|clause| request.clauses()[clause].clone());
        Hit {
            kind: row.kind,
            tool: HitTool::new(row.clone()),
            id: row.id(),
            score,
            matched_queries,
            serves,
            also_on,
            companion_of,
            flagged: match row.is_flagged() {
                true => row.read().flags(),
                false => Vec::new(),
            },
            explain,
        }
    }

    /// The hits of one request, best first.
    pub(super) fn top(&self, scores: &RequestScores) -> Vec<(usize, f32)> {
        let k = self.parameters.k;
        if self.covers_needs(scores) {
            return self.cover_needs(scores, self.best(scores, needs::depth(k)));
        }
        self.best(scores, k)
    }

    /// The best tools of one request by score, best first; flagged ones if no others are left.
    fn best(&self, scores: &RequestScores, count: usize) -> Vec<(usize, f32)> {
        let best = self.best_of(scores, count, Among::All);
        // All tools are asked only if one of the best is flagged: it reads every definition once.
        if !best.iter().any(|(tool, _)| self.is_flagged(*tool)) {
            return best;
        }
        let mut best = self.best_of(scores, count, Among::Unflagged);
        let left = count - best.len();
        if left > 0 {
            best.extend(self.best_of(scores, left, Among::Flagged));
        }
        best
    }

    /// The best of some tools by score, best first.
    fn best_of(&self, scores: &RequestScores, count: usize, among: Among) -> Vec<(usize, f32)> {
        let by_tool = scores.by_tool();
        let mut named = Vec::with_capacity(scores.named.len());
        for &tool in scores.named.keys() {
            let tool = tool as usize;
            if self.is_shown(scores, tool) && self.is_among(tool, among) {
                named.push((tool, by_tool[tool] + scores.name_bonus(tool)));
            }
        }
        // Named tools are offered with their bonus, so they are no matches by content here.
        let matches = |tool: usize| {
            let found = scores.fused[tool] > 0.0 || scores.memory_scores.contains_key(&tool);
            found
                && self.is_shown(scores, tool)
                && !scores.named.contains_key(&(tool as u32))
                && self.is_among(tool, among)
        };
        let mut best = TopK::new(count);
        if self.parameters.fold_duplicates {
            // Duplicates must be folded before the best are taken, or they would take up its
            // places.
            let mut scored = named;
            let by_content = by_tool.iter().copied().enumerate();
            scored.extend(by_content.filter(|(tool, _)| matches(*tool)));
            self.fold(&mut scored);
            for (tool, score) in scored {
                best.offer(tool, score);
            }
        } else {
            for (tool, score) in named {
                best.offer(tool, score);
            }
            best.offer_all(by_tool, matches);
        }
        best.into_ranked()
    }

    fn is_among(&self, tool: usize, among: Among) -> bool {
        match among {
            Among::All => true,
            Among::Unflagged => !self.is_flagged(tool),
            Among::Flagged => self.is_flagged(tool),
        }
    }

    /// Keeps the best of each group of near-duplicates.
    fn fold(&self, scored: &mut Vec<(usize, f32)>) {
        let mut best: HashMap<u32, (usize, f32)> = HashMap::new();
        scored.retain(|&(tool, score)| {
            // A group is named by its first tool.
            let Some(&first) = self.duplicates(tool).first() else {
                return true;
            };
            let known = best.entry(first).or_insert((tool, score));
            if ranked((score, tool), (known.1, known.0)).is_lt() {
                *known = (tool, score);
            }
            false
        });
        scored.extend(best.into_values());
    }

    /// False when neither the words nor the embedding of a request is close to any tool, or when
    /// the confidence is too low.
    fn is_match(&self, scores: &RequestScores) -> bool {
        if !scores.named.is_empty() || !scores.memory_scores.is_empty() {
            return true;
        }
        if scores.has_no_content {
            return false;
        }
        // Words first: whether a leg finds a tool near may take asking for every tool.
        if !self.has_words(scores) && !scores.dense.iter().any(|leg| self.is_near(leg, scores)) {
            return false;
        }
        match scores.confidence() {
            Some(confidence) => confidence >= self.parameters.min_confidence,
            // Without the ranker there is no confidence to compare.
            None => true,
        }
    }

    /// True if a tool has enough of the words of a request that means something.
    fn has_words(&self, scores: &RequestScores) -> bool {
        let Signals { coverage, cosine } = scores.signals;
        let least_coverage = match cosine {
            Some(_) => self.searcher.settings.no_match_coverage,
            // Without a dense leg any word in common counts.
            None => f32::MIN_POSITIVE,
        };
        // Letters that mean nothing are translated into some words all the same.
        !scores.is_nonsense && coverage >= least_coverage
    }

    /// True if a leg finds a tool near enough, by what is near for its embedder in the two languages.
    fn is_near(&self, result: &LegResult, scores: &RequestScores) -> bool {
        let Some(leg) = self.searcher.leg_of(result) else {
            return false;
        };
        // A translation of letters that mean nothing is near to something all the same.
        let reads_translation =
            scores.language != Language::English && leg.embedder.languages() == Languages::English;
        if scores.is_nonsense && reads_translation {
            return false;
        }
        let least = leg.embedder.least_cosines();
        if scores.is_nonsense
            && let Some(of_nonsense) = least.nonsense
        {
            return result.best_scored() >= of_nonsense;
        }
        let by_tool = &self.searcher.languages.by_tool;
        for (tool, (&cosine, &language)) in result.scores.raw().iter().zip(by_tool).enumerate() {
            if cosine >= least.of(scores.language, language)
                && self.is_allowed(tool)
                && result.scores_tool(tool)
            {
                return true;
            }
        }
        false
    }

    /// The number of tools that the filter leaves out, and that match a request better by every leg than
    /// any tool that passes.
    pub(super) fn better_hidden(&self, all_scores: &[RequestScores]) -> usize {
        let Some(allowed) = &self.allowed else {
            return 0;
        };
        // Without a filter only other kinds are left out, and they hide nothing.
        if self.query.filter.is_empty() {
            return 0;
        }
        let mut hidden = HashSet::new();
        for scores in all_scores {
            let mut legs = vec![&scores.lexical];
            for leg in &scores.dense {
                legs.push(&leg.scores);
            }
            for (tool, is_allowed) in allowed.iter().enumerate() {
                // A kind that nobody asks for hides nothing either.
                let kind = self.searcher.rows[tool].kind;
                let is_hidden = !is_allowed && self.query.filter.accepts_kind(kind);
                if is_hidden && is_better_than_allowed(tool, &legs) {
                    hidden.insert(tool);
                }
            }
        }
        hidden.len()
    }
}

/// True for a tool that is better by each of these legs than all that pass the filter.
fn is_better_than_allowed(tool: usize, legs: &[&LegScores]) -> bool {
    // Scaled scores end at the best tool that passes, so these are the unscaled ones.
    legs.iter().all(|leg| leg.raw()[tool] > leg.best.max(0.0))
}
