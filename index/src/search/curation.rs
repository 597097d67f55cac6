//! What the words of the catalog's owner do to the ranking: boosts, pins, hidden tools.

use super::scores::{Found, Pinned, RequestScores};
use super::{RequestTexts, Search, Searcher};
use crate::hit::{NameMatch, OwnerEffect};
use crate::owner_words::{Boosts, FACTORS, OFF, PinAction};
use crate::tool::ToolId;

/// The factors of the owner's boosts.
pub(crate) struct Boosted {
    /// By position.
    factors: Vec<f32>,
    /// The largest of them, and at least 1: scores are divided by it, so that they stay from 0 to 1.
    largest: f32,
    /// By position, the tools that are switched off; `None` without any.
    off: Option<Vec<bool>>,
}

impl Boosted {
    fn new(searcher: &Searcher, boosts: &Boosts) -> Self {
        let [least, most] = FACTORS;
        let mut largest: f32 = 1.0;
        let mut factors = Vec::with_capacity(searcher.rows.len());
        let mut off = None;
        for tool in 0..searcher.rows.len() {
            let mut product = 1.0;
            for (_, factor) in searcher.boosts_of(boosts, tool) {
                product *= factor;
            }
            if product == OFF {
                let all = || vec![false; searcher.rows.len()];
                off.get_or_insert_with(all)[tool] = true;
            }
            // Several boosts together may do no more than a single one.
            let factor: f32 = product.clamp(least, most);
            largest = largest.max(factor);
            factors.push(factor);
        }
        Boosted {
            factors,
            largest,
            off,
        }
    }
}

impl Searcher {
    fn boosted(&self) -> Option<&Boosted> {
        let boosts = &self.owner_words()?.boosts;
        let boosted = self.boosted.get_or_init(|| match boosts.is_empty() {
            true => None,
            false => Some(Boosted::new(self, boosts)),
        });
        boosted.as_ref()
    }

    /// By position, the tools that the owner has switched off; `None` without any.
    pub(super) fn switched_off(&self) -> Option<&[bool]> {
        self.boosted()?.off.as_deref()
    }

    /// Whether the owner's words switch a tool off, so that no search finds it.
    pub fn is_switched_off(&self, id: &ToolId) -> bool {
        match (self.position(id), self.switched_off()) {
            (Some(tool), Some(off)) => off[tool],
            _ => false,
        }
    }

    /// The boosts of a tool, each with what was boosted.
    fn boosts_of(&self, boosts: &Boosts, tool: usize) -> Vec<(String, f32)> {
        let row = &self.rows[tool];
        let id = &row.stored.id;
        let mut all = Vec::new();
        if let Some(factor) = boosts.tools.get(id.as_str()) {
            all.push((format!("tool {id}"), *factor));
        }
        if let Some(factor) = boosts.servers.get(id.server()) {
            all.push((format!("server {}", id.server()), *factor));
        }
        // Only boosts of tags need the tool's definition.
        if boosts.tags.is_empty() {
            return all;
        }
        for tag in &row.labels().tags {
            if let Some(factor) = boosts.tags.get(tag) {
                all.push((format!("tag {tag}"), *factor));
            }
        }
        all
    }
}

impl Search<'_> {
    /// Applies the boosts, and notes what is pinned or hidden for a request.
    pub(super) fn curate(&self, request: &RequestTexts, scores: &mut RequestScores) {
        let Some(words) = &self.searcher.owner_words else {
            return;
        };
        if let Some(Boosted {
            factors, largest, ..
        }) = self.searcher.boosted()
        {
            let mut boosted = scores.before_boosts().to_vec();
            for (score, factor) in boosted.iter_mut().zip(factors) {
                // A score below 0 is made smaller by a small factor.
                *score = match *score < 0.0 {
                    true => *score / factor / largest,
                    false => *score * factor / largest,
                };
            }
            scores.boosted = Some(boosted);
        }
        for pin in words.pins(request.whole_text()) {
            let Some(tool) = self.searcher.position(pin.tool) else {
                continue;
            };
            match pin.action {
                PinAction::Hide => scores.hidden.push(tool),
                PinAction::PutAt(place) if self.is_allowed(tool) && !self.is_flagged(tool) => {
                    scores.pinned.push(Pinned {
                        tool,
                        place,
                        query: pin.query.to_owned(),
                    })
                }
                PinAction::PutAt(_) => {}
            }
        }
    }

    /// Puts the pinned tools at their places. Scores stay in order.
    pub(super) fn place_pinned(&self, found: &mut Vec<Found>, all_scores: &[RequestScores]) {
        let mut pins: Vec<(&Pinned, usize)> = Vec::new();
        for (number, scores) in all_scores.iter().enumerate() {
            for pinned in &scores.pinned {
                // The first of several pins for a tool counts.
                let is_new = pins.iter().all(|(other, _)| other.tool != pinned.tool);
                if is_new && !scores.hidden.contains(&pinned.tool) {
                    pins.push((pinned, number));
                }
            }
        }
        // A stable sort: pins for one place stay in the order of the document.
        pins.sort_by_key(|(pinned, _)| pinned.place);
        let mut placed: Vec<(usize, Found)> = Vec::with_capacity(pins.len());
        for (pinned, number) in pins {
            let by_content = all_scores[number].by_tool()[pinned.tool];
            let own = match found.iter().position(|found| found.tool == pinned.tool) {
                Some(position) => found.remove(position),
                None => Found {
                    tool: pinned.tool,
                    score: by_content,
                    found_by: vec![number],
                    companion_of: None,
                },
            };
            // Its near-duplicates are listed with it, and are no hits of their own.
            let duplicates = self.duplicates(pinned.tool);
            found.retain(|found| !duplicates.contains(&(found.tool as u32)));
            placed.push((pinned.place, own));
        }
        let mut next = 0;
        for (place, own) in placed {
            let place = (place - 1).max(next).min(found.len());
            found.insert(place, own);
            keep_scores_in_order(found, place);
            next = place + 1;
        }
    }

    /// What the owner's words did to a hit.
    pub(super) fn owner_effects(
        &self,
        tool: usize,
        request: &RequestTexts,
        scores: &RequestScores,
    ) -> Vec<OwnerEffect> {
        let Some(words) = &self.searcher.owner_words else {
            return Vec::new();
        };
        let id = &self.searcher.rows[tool].stored.id;
        let mut effects = Vec::new();
        for found in request.synonyms() {
            effects.push(OwnerEffect::Synonym {
                phrase: found.phrase.clone(),
                words: found.synonyms.iter().map(|one| one.text.clone()).collect(),
            });
        }
        // Only where no better kind of match has placed the hit.
        if scores.named.get(&(tool as u32)) == Some(&NameMatch::Alias) {
            let mut named = words.named(request.whole_text());
            if let Some((_, name)) = named.find(|(aliased, _)| *aliased == id) {
                let name = name.to_owned();
                effects.push(OwnerEffect::Alias { name });
            }
        }
        if words.texts_of(id).description().is_some() {
            effects.push(OwnerEffect::Description);
        }
        for (of, factor) in self.searcher.boosts_of(&words.words().boosts, tool) {
            effects.push(OwnerEffect::Boost { of, factor });
        }
        if let Some(pinned) = scores.pinned.iter().find(|pinned| pinned.tool == tool) {
            effects.push(OwnerEffect::Pin {
                place: pinned.place,
                query: pinned.query.clone(),
            });
        }
        effects
    }
}

/// Moves the score at this place between those of its neighbours.
fn keep_scores_in_order(found: &mut [Found], place: usize) {
    let mut score = found[place].score;
    if let Some(below) = found.get(place + 1)
        && score <= below.score
    {
        score = below.score.next_up();
    }
    // The score above wins where there is no room between the two.
    if place > 0 {
        score = score.min(found[place - 1].score);
    }
    found[place].score = score;
}
