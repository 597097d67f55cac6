//! Why a search found nothing, and the names nearest to what was asked.

use std::collections::BTreeSet;

use super::hits::merged;
use super::scores::{RequestScores, highest_confidence};
use super::{Search, Searcher};
use crate::hit::{NoMatch, NoMatchReason, UnknownName};
use crate::kind::Kind;
use crate::query::Filter;
use crate::suggest;
use crate::tool::ToolId;

/// Names offered when nothing matches.
const NEAREST_NAMES: usize = 3;
/// Unknown names of a filter that an answer tells.
const MAX_UNKNOWN: usize = 3;

impl Search<'_> {
    pub(super) fn no_match(&self, all_scores: &[RequestScores]) -> NoMatch {
        let reason = self.no_match_reason(all_scores);
        let nearest = match reason {
            // Nothing was asked for that a tool could be near to.
            NoMatchReason::NoContent => Vec::new(),
            _ => self.nearest(all_scores),
        };
        NoMatch { reason, nearest }
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
            if let Some(present) = self.searcher.only_other_kinds(&self.query.filter) {
                return NoMatchReason::Kinds { present };
            }
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
    fn nearest(&self, all_scores: &[RequestScores]) -> Vec<ToolId> {
        // The ranking before the thresholds, which have emptied the answer.
        let mut best = Vec::new();
        for scores in all_scores {
            best.extend(self.top(scores));
        }
        let mut nearest = Vec::with_capacity(NEAREST_NAMES);
        for (tool, _) in merged(best).into_iter().take(NEAREST_NAMES) {
            nearest.push(self.searcher.rows[tool].id());
        }
        nearest
    }
}

impl Searcher {
    /// The kinds of all items where the filter accepts none of them.
    fn only_other_kinds(&self, filter: &Filter) -> Option<BTreeSet<Kind>> {
        // The other items of such a catalog are elsewhere.
        if self.words.whole().is_some() {
            return None;
        }
        let present: BTreeSet<Kind> = self.rows.iter().map(|row| row.kind).collect();
        let accepts_none = !present.iter().any(|&kind| filter.accepts_kind(kind));
        accepts_none.then_some(present)
    }

    /// What a filter names and no tool has; empty if the names of all tools are elsewhere.
    fn unknown_names(&self, filter: &Filter) -> Vec<UnknownName> {
        if self.words.whole().is_some() {
            return Vec::new();
        }
        let (mut ids, mut servers, mut tags) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for row in self.rows.iter() {
            let id = &row.stored.id;
            ids.insert(id.as_str());
            // A filter by ids may be that of a profile. It hides the servers and tags of all other tools.
            if !filter.ids.is_empty() && !filter.ids.contains(id.as_str()) {
                continue;
            }
            servers.insert(id.server());
            // Reading a tool's tags may mean parsing it.
            if !filter.tags.is_empty() {
                tags.extend(row.labels().tags.iter().map(String::as_str));
            }
        }
        let mut unknown = Vec::new();
        add_unknown(&mut unknown, "tool", &filter.ids, &ids);
        add_unknown(&mut unknown, "server", &filter.servers, &servers);
        add_unknown(&mut unknown, "tag", &filter.tags, &tags);
        unknown
    }
}

fn add_unknown(
    unknown: &mut Vec<UnknownName>,
    kind: &'static str,
    wanted: &BTreeSet<String>,
    known: &BTreeSet<&str>,
) {
    for name in wanted {
        if known.contains(name.as_str()) || unknown.len() == MAX_UNKNOWN {
            continue;
        }
        let similar = suggest::similar(name, known.iter().copied());
        unknown.push(UnknownName {
            kind,
            name: name.clone(),
            similar: similar.into_iter().map(str::to_owned).collect(),
        });
    }
}
