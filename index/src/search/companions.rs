//! The companions of the first hits, behind them.

use std::sync::Arc;

use super::hits::Found;
use super::row::Row;
use super::{RequestScores, RequestTexts, Search, Searcher};
use crate::companions::{self, Companion, Definitions, Profile};
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

impl Definitions for Vec<Arc<Row>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn id(&self, tool: u32) -> &ToolId {
        &self[tool as usize].stored.id
    }

    fn profile(&self, tool: u32) -> &Profile {
        self[tool as usize].companion_profile()
    }
}

impl Searcher {
    /// The tools that find what a tool needs, the most needed first: at most four. Empty for a tool
    /// that is not there, and where the snapshot has only some of the catalog's tools.
    pub fn companions(&self, id: &ToolId) -> Vec<ToolCompanion> {
        let Some(tool) = self.position(id) else {
            return Vec::new();
        };
        let companions = self.companions_of(tool).iter();
        companions
            .map(|companion| ToolCompanion {
                id: self.rows[companion.tool as usize].id(),
                parameter: companion.parameter.clone(),
                reason: companion.reason.clone(),
            })
            .collect()
    }

    fn companions_of(&self, tool: usize) -> &[Companion] {
        // The companion may be among the tools that are not here.
        match self.words.whole() {
            Some(_) => &[],
            None => self.companions.of(tool as u32, &self.rows),
        }
    }
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
        let needing: Vec<(usize, usize)> = found
            .iter()
            .take(MAX_NEEDING)
            .map(|found| (found.tool, found.found_by.first().copied().unwrap_or(0)))
            .collect();
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
        let is_found = |found: &Found| {
            found.tool == position || self.duplicates(found.tool).contains(&companion.tool)
        };
        let may_be_shown = self.is_shown(scores, position)
            && !self.is_flagged(position)
            && !found.iter().any(is_found);
        may_be_shown.then_some(companion)
    }

    /// Leaves the last hit out; false where it has to stay.
    fn leaves_last_out(
        &self,
        found: &mut Vec<Found>,
        scores: &RequestScores,
        all_scores: &[RequestScores],
    ) -> bool {
        let is_confident = scores
            .confidence()
            .is_some_and(|confidence| confidence >= MIN_CONFIDENCE);
        let is_asked_for = |tool: usize| {
            all_scores.iter().any(|scores| {
                scores.named.contains_key(&(tool as u32))
                    || scores.pinned.iter().any(|pinned| pinned.tool == tool)
            })
        };
        let may_displace = is_confident
            && found.len() > KEPT
            && found
                .last()
                .is_some_and(|last| last.companion_of.is_none() && !is_asked_for(last.tool));
        if may_displace {
            found.pop();
        }
        may_displace
    }

    fn place_companion(
        &self,
        found: &mut Vec<Found>,
        tool: usize,
        companion: &Companion,
        number: usize,
    ) {
        let place_of_hit = found
            .iter()
            .position(|found| found.tool == tool)
            .unwrap_or(0);
        let mut place = (place_of_hit + 1).max(KEPT).min(found.len());
        while found
            .get(place)
            .is_some_and(|found| found.companion_of.is_some())
        {
            place += 1;
        }
        let before = found.get(place.saturating_sub(1));
        let companion = Found {
            tool: companion.tool as usize,
            score: before.map_or(0.0, |before| before.score),
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
