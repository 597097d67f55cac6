//! Why a search found nothing, and the names nearest to what was asked.

use std::collections::BTreeSet;

use super::hits::merged;
use super::scoring::highest_confidence;
use super::{RequestScores, Search, Searcher};
use crate::hit::{NoMatch, NoMatchReason, UnknownName};
use crate::query::Filter;
use crate::suggest;

/// Names offered when nothing matches.
const NEAREST_NAMES: usize = 3;
/// Unknown names of a filter that an answer tells.
const MAX_UNKNOWN: usize = 3;

impl Search<'_> {
    pub(super) fn no_match(&self, all_scores: &[RequestScores]) -> NoMatch {
        let reason = self.no_match_reason(all_scores);
        // Nothing was asked for that a tool could be near to.
        let nearest = match reason {
            NoMatchReason::NoContent => Vec::new(),
            _ => self.nearest(all_scores),
        };
        NoMatch {
            reason,
            nearest: nearest
                .into_iter()
                .map(|tool| self.searcher.rows[tool].id())
                .collect(),
        }
    }

    fn no_match_reason(&self, all_scores: &[RequestScores]) -> NoMatchReason {
        let (min_confidence, min_score) =
            (self.parameters.min_confidence, self.parameters.min_score);
        if self.searcher.catalog_len() == 0 {
            return NoMatchReason::EmptyCatalog;
        }
        if let Some(allowed) = &self.allowed
            && !allowed.contains(&true)
        {
            let unknown = self.searcher.unknown_names(&self.query.filter);
            return NoMatchReason::Filter { unknown };
        }
        if all_scores.iter().all(|scores| scores.has_no_content) {
            return NoMatchReason::NoContent;
        }
        match highest_confidence(all_scores) {
            Some(confidence) if confidence < min_confidence => NoMatchReason::Confidence {
                confidence,
                min_confidence,
            },
            _ if min_score > 0.0 => NoMatchReason::Score { min_score },
            _ => NoMatchReason::NothingSimilar,
        }
    }

    /// The best tools over all requests, each once, by its best score.
    fn nearest(&self, all_scores: &[RequestScores]) -> Vec<usize> {
        // The ranking before the thresholds, which have emptied the answer.
        let mut nearest = merged(all_scores.iter().flat_map(|scores| self.top(scores)));
        nearest.truncate(NEAREST_NAMES);
        nearest.into_iter().map(|(tool, _)| tool).collect()
    }
}

impl Searcher {
    /// What a filter names and no tool has; empty if the names of all tools are elsewhere.
    fn unknown_names(&self, filter: &Filter) -> Vec<UnknownName> {
        if self.words.whole().is_some() {
            return Vec::new();
        }
        let ids: BTreeSet<&str> = self.rows.iter().map(|row| row.stored.id.as_str()).collect();
        let mut unknown = Vec::new();
        add_unknown(&mut unknown, "tool", &filter.ids, &ids);
        // A filter by ids may be that of a profile. It hides the servers and tags of all other tools.
        let rows = self.rows.iter().filter(|row| {
            let id = row.stored.id.as_str();
            filter.ids.is_empty() || filter.ids.contains(id)
        });
        let servers = rows.clone().map(|row| row.stored.id.server()).collect();
        add_unknown(&mut unknown, "server", &filter.servers, &servers);
        if !filter.tags.is_empty() {
            let tags = rows.flat_map(|row| row.labels().tags.iter());
            let tags = tags.map(String::as_str).collect();
            add_unknown(&mut unknown, "tag", &filter.tags, &tags);
        }
        unknown
    }
}

fn add_unknown(
    unknown: &mut Vec<UnknownName>,
    kind: &'static str,
    wanted: &BTreeSet<String>,
    known: &BTreeSet<&str>,
) {
    let missing = wanted.iter().filter(|name| !known.contains(name.as_str()));
    for name in missing.take(MAX_UNKNOWN - unknown.len()) {
        let similar = suggest::similar(name, known.iter().copied());
        unknown.push(UnknownName {
            kind,
            name: name.clone(),
            similar: similar.into_iter().map(str::to_owned).collect(),
        });
    }
}
