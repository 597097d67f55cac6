//! What is recorded of a model's searches.

use toolscout_index::formats::Emit;
use toolscout_index::{Tool, ToolId};

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
    let was_searched =
        |hit: &&super::search::FoundTool| hit.query.is_some() || hit.companion_of.is_some();
    let id = |tool: &Tool| tool.id.clone();
    let hits = found.hits.iter().filter(was_searched);
    let hits: Vec<_> = hits.map(|hit| id(&hit.tool)).collect();
    let more: Vec<_> = found.more.iter().map(|tool| id(tool)).collect();
    compare(usage, &origin, request, found, (&hits, &more));
    let nearest = hits.first().or(more.first()).cloned();
    let suggested = found.no_match.as_ref().map(|no_match| &no_match.nearest);
    let sent = sent.map(|format| {
        let tools = found.hits.iter().map(|hit| hit.tool.clone());
        (format, tools.collect())
    });
    let texts = request.queries.iter().map(String::as_str);
    let texts = texts.filter(|_| !found.is_of_request);
    usage.searched(SearchUse {
        origin,
        matched,
        nearest: nearest.or_else(|| suggested?.first().cloned()),
        hits,
        more,
        sent,
        queries: usage.queries(texts),
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
