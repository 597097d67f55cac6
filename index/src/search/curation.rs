//! What the words of the catalog's owner do to the ranking: boosts, pins, hidden tools.

use super::hits::Found;
use super::{RequestScores, RequestTexts, Search, Searcher};
use crate::hit::{NameMatch, OwnerEffect};
use crate::owner_words::{Boosts, FACTORS, PinAction};

/// The factors of the owner's boosts.
pub(crate) struct Boosted {
    /// By position.
    factors: Vec<f32>,
    /// The largest of them, and at least 1: scores are divided by it, so that they stay from 0 to 1.
    largest: f32,
}

/// A tool that was put at a place for a request.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    pub(super) tool: usize,
    /// From 1.
    pub(super) place: usize,
    /// The query of the pin.
    query: String,
}

impl Boosted {
    fn new(searcher: &Searcher, boosts: &Boosts) -> Self {
        let factor = |tool: usize| {
            let factor: f32 = searcher
                .boosts_of(boosts, tool)
                .map(|(_, factor)| factor)
                .product();
            let [least, most] = FACTORS;
            factor.clamp(least, most)
        };
        let factors: Vec<f32> = (0..searcher.rows.len()).map(factor).collect();
        let largest = factors.iter().copied().fold(1.0, f32::max);
        Boosted { factors, largest }
    }
}

impl Searcher {
    fn boosted(&self) -> Option<&Boosted> {
        let words = self.owner_words()?;
        let make = || (!words.boosts.is_empty()).then(|| Boosted::new(self, &words.boosts));
        self.boosted.get_or_init(make).as_ref()
    }

    /// The boosts of a tool, each with what was boosted.
    fn boosts_of<'a>(
        &'a self,
        boosts: &'a Boosts,
        tool: usize,
    ) -> impl Iterator<Item = (String, f32)> {
        let row = &self.rows[tool];
        let id = &row.stored.id;
        let of_tool = boosts.tools.get(id.as_str());
        let of_server = boosts.servers.get(id.server());
        // Its definition is read for its tags.
        let tags = match boosts.tags.is_empty() {
            true => &[][..],
            false => &row.labels().tags,
        };
        let of_tags = tags.iter().filter_map(|tag| {
            let factor = boosts.tags.get(tag)?;
            Some((format!("tag {tag}"), *factor))
        });
        let of_tool = of_tool.map(|factor| (format!("tool {id}"), *factor));
        let of_server = of_server.map(|factor| (format!("server {}", id.server()), *factor));
        of_tool.into_iter().chain(of_server).chain(of_tags)
    }
}

impl Search<'_> {
    /// Applies the boosts, and notes what is pinned or hidden for a request.
    pub(super) fn curate(&self, request: &RequestTexts, scores: &mut RequestScores) {
        let Some(words) = &self.searcher.owner_words else {
            return;
        };
        if let Some(Boosted { factors, largest }) = self.searcher.boosted() {
            let before = scores.before_boosts().iter();
            let boosted = before.zip(factors).map(|(score, factor)| {
                // A score below 0 is made smaller by a small factor.
                match *score < 0.0 {
                    true => score / factor / largest,
                    false => score * factor / largest,
                }
            });
            scores.boosted = Some(boosted.collect());
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
            let position = found.iter().position(|found| found.tool == pinned.tool);
            let own = position.map(|position| found.remove(position));
            // Its near-duplicates are shown by it.
            let duplicates = self.duplicates(pinned.tool);
            found.retain(|found| !duplicates.contains(&(found.tool as u32)));
            let own = own.unwrap_or_else(|| Found {
                tool: pinned.tool,
                score: by_content,
                found_by: vec![number],
                companion_of: None,
            });
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
        let synonyms = request.synonyms().iter();
        let mut effects: Vec<OwnerEffect> = synonyms
            .map(|found| OwnerEffect::Synonym {
                phrase: found.phrase.clone(),
                words: found.synonyms.iter().map(|one| one.text.clone()).collect(),
            })
            .collect();
        if scores.named.get(&(tool as u32)) == Some(&NameMatch::Alias) {
            let mut named = words.named(request.whole_text());
            let alias = named.find(|(aliased, _)| *aliased == id);
            effects.extend(alias.map(|(_, name)| OwnerEffect::Alias {
                name: name.to_owned(),
            }));
        }
        if words.texts_of(id).description().is_some() {
            effects.push(OwnerEffect::Description);
        }
        let boosts = self.searcher.boosts_of(&words.words().boosts, tool);
        effects.extend(boosts.map(|(of, factor)| OwnerEffect::Boost { of, factor }));
        let pin = scores.pinned.iter().find(|pinned| pinned.tool == tool);
        effects.extend(pin.map(|pinned| OwnerEffect::Pin {
            place: pinned.place,
            query: pinned.query.clone(),
        }));
        effects
    }
}

/// Moves the score at this place between those of its neighbours.
fn keep_scores_in_order(found: &mut [Found], place: usize) {
    let above = place.checked_sub(1).map(|above| found[above].score);
    let below = found.get(place + 1).map(|below| below.score);
    let score = &mut found[place].score;
    if let Some(below) = below
        && *score <= below
    {
        *score = below.next_up();
    }
    if let Some(above) = above {
        *score = score.min(above);
    }
}
