//! What is recorded of a model's searches.

use toolscout_index::ToolId;
use toolscout_index::formats::Emit;

use super::search::{Found, SearchRequest};
use super::snapshot::repeated;
use toolscout_gate::usage::shadow::{ComparedSearch, Shown};
use toolscout_gate::usage::{Origin, Recorder, SearchUse};

/// Records a search. `sent` is the format in which the answer has the definitions of the hits, if it
/// has them. Tools that were selected by name were not searched for.
pub fn searched(
    usage: &Recorder,
    origin: Origin,
    request: &SearchRequest,
    found: &Found,
    sent: Option<Emit>,
) {
    let Some(matched) = found.matched else { return };
    let mut hits = Vec::new();
    for hit in &found.hits {
        if hit.query.is_some() || hit.companion_of.is_some() {
            hits.push(hit.tool.id.clone());
        }
    }
    let more: Vec<ToolId> = found.more.iter().map(|tool| tool.id.clone()).collect();
    compare(usage, &origin, request, found, (&hits, &more));
    let mut nearest = hits.first().or(more.first());
    if nearest.is_none()
        && let Some(no_match) = &found.no_match
    {
        nearest = no_match.nearest.first();
    }
    let nearest = nearest.cloned();
    let sent = sent.map(|format| {
        let tools = found.hits.iter().map(|hit| hit.tool.clone());
        (format, tools.collect())
    });
    // Where the answer says nothing about the tools, the queries do not show what is missing.
    let texts: &[String] = match found.is_of_request {
        true => &[],
        false => request.queries.as_slice(),
    };
    usage.searched(SearchUse {
        origin,
        matched,
        nearest,
        hits,
        more,
        sent,
        queries: usage.queries(texts.iter().map(String::as_str)),
    });
}

/// Hands over a search for a second answer, if it is drawn.
fn compare(
    usage: &Recorder,
    origin: &Origin,
    request: &SearchRequest,
    found: &Found,
    (hits, more): (&[ToolId], &[ToolId]),
) {
    let Some(query) = &found.answered else { return };
    if !usage.is_compared(&origin.place) {
        return;
    }
    // The second search runs later and on another thread, so it gets its own query.
    let (query, lines) = (query.clone(), request.more);
    usage.compare(ComparedSearch {
        origin: origin.clone(),
        request: None,
        shown: Shown {
            hits: hits.to_vec(),
            more: more.to_vec(),
        },
        repeat: Box::new(move |second| repeated(query, lines, second)),
    });
}
