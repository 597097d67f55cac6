//! The companions of the first hits, behind them.

use super::scores::{Found, RequestScores};
use super::{RequestTexts, Rows, Search, Searcher};
use crate::companions::{self, Companion, Definitions, Interface};
use crate::hit::{CompanionOf, ToolCompanion};
use crate::tool::ToolId;

/// Hits whose companions are looked for. Only that of the first one may take the place of a hit: if
/// that of the second one may too, recall@5 falls by .005 on requests in people's words.
const MAX_NEEDING: usize = 3;
/// Hits that keep their places. Of the hits behind them, none is right with a probability above .3.
const KEPT: usize = 2;
/// The least confidence of an answer in which a companion takes the place of a hit. Below it the first
/// hit is wrong so often that what it needs is of no use.
const MIN_CONFIDENCE: f32 = 0.5;

impl Definitions for Rows {
    fn count(&self) -> usize {
        self.len()
    }

    fn id(&self, tool: u32) -> &ToolId {
        &self[tool as usize].stored.id
    }

    fn is_tool(&self, tool: u32) -> bool {
        self[tool as usize].kind.is_tool()
    }

    fn interface(&self, tool: u32) -> &Interface {
        self[tool as usize].interface()
    }
}

impl Searcher {
    /// The tools that find what a tool needs, the most needed first: at most four. Empty for a tool
    /// that is not there, and where the snapshot has only some of the catalog's tools.
    pub fn companions(&self, id: &ToolId) -> Vec<ToolCompanion> {
        let Some(tool) = self.position(id) else {
            return Vec::new();
        };
        let mut companions = Vec::new();
        for companion in self.companions_of(tool) {
            companions.push(ToolCompanion {
                id: self.rows[companion.tool as usize].id(),
                parameter: companion.parameter.clone(),
                reason: companion.reason.clone(),
            });
        }
        companions
    }

    fn companions_of(&self, tool: usize) -> &[Companion] {
        // The companion may be among the tools that are not here.
        match self.words.whole() {
            Some(_) => &[],
            None => self.companions.of(tool as u32, &self.rows),
        }
    }
}

/// True if a request names a tool, or if the owner's pins put it among the hits.
fn asks_for(scores: &RequestScores, tool: usize) -> bool {
    scores.named.contains_key(&(tool as u32))
        || scores.pinned.iter().any(|pinned| pinned.tool == tool)
}

impl Search<'_> {
    /// Puts the companions of the first hits behind them. The hits behind those move down, and the last
    /// one is left out where there are `k` already. Scores stay in order: a companion has the score of
    /// the tool before it.
    pub(super) fn place_companions(
        &self,
        found: &mut Vec<Found>,
        requests: &[RequestTexts],
        all_scores: &[RequestScores],
    ) {
        if !self.parameters.companions {
            return;
        }
        // Listed before any is placed, so that a companion brings none of its own.
        let mut needing = Vec::with_capacity(MAX_NEEDING);
        for hit in found.iter().take(MAX_NEEDING) {
            needing.push((hit.tool, hit.found_by.first().copied().unwrap_or(0)));
        }
        for (rank, (tool, number)) in needing.into_iter().enumerate() {
            let (Some(request), Some(scores)) = (requests.get(number), all_scores.get(number))
            else {
                continue;
            };
            if let Some(companion) = self.missing_companion(tool, request, scores, found)
                && (found.len() < self.parameters.k
                    || (rank == 0 && self.leaves_last_out(found, scores, all_scores)))
            {
                self.place_companion(found, tool, companion, number);
            }
        }
    }

    /// The companion that a hit needs most, unless it is a hit already. What the request itself gives
    /// needs no companion.
    fn missing_companion(
        &self,
        tool: usize,
        request: &RequestTexts,
        scores: &RequestScores,
        found: &[Found],
    ) -> Option<&Companion> {
        let companions = self.searcher.companions_of(tool);
        if companions.is_empty() {
            return None;
        }
        let given = companions::given(request.whole_text());
        let companion = companions.get(given)?;
        let position = companion.tool as usize;
        if !self.is_shown(scores, position) || self.is_flagged(position) {
            return None;
        }
        for hit in found {
            // A near-duplicate serves as well.
            if hit.tool == position || self.duplicates(hit.tool).contains(&companion.tool) {
                return None;
            }
        }
        Some(companion)
    }

    /// Leaves the last hit out; false where it has to stay.
    fn leaves_last_out(
        &self,
        found: &mut Vec<Found>,
        scores: &RequestScores,
        all_scores: &[RequestScores],
    ) -> bool {
        let is_confident = matches!(scores.confidence(), Some(sure) if sure >= MIN_CONFIDENCE);
        if !is_confident || found.len() <= KEPT {
            return false;
        }
        let Some(last) = found.last() else {
            return false;
        };
        let is_asked_for = all_scores.iter().any(|scores| asks_for(scores, last.tool));
        if last.companion_of.is_some() || is_asked_for {
            return false;
        }
        found.pop();
        true
    }

    /// Puts a companion behind the hit that needs it.
    fn place_companion(
        &self,
        found: &mut Vec<Found>,
        tool: usize,
        companion: &Companion,
        number: usize,
    ) {
        let place_of_hit = found.iter().position(|found| found.tool == tool);
        let mut place = (place_of_hit.unwrap_or(0) + 1).max(KEPT).min(found.len());
        // Behind those of earlier hits, which are needed first.
        while let Some(next) = found.get(place)
            && next.companion_of.is_some()
        {
            place += 1;
        }
        let score = match found.get(place.saturating_sub(1)) {
            Some(before) => before.score,
            None => 0.0,
        };
        let companion = Found {
            tool: companion.tool as usize,
            score,
            found_by: vec![number],
            companion_of: Some(CompanionOf {
                id: self.searcher.rows[tool].id(),
                parameter: companion.parameter.clone(),
                reason: companion.reason.clone(),
            }),
        };
        found.insert(place, companion);
    }
}
