//! What is recorded of a model's searches.

use toolscout_index::Tool;
use toolscout_index::formats::Emit;

use super::search::Found;
use toolscout_gate::usage::{Origin, Recorder, SearchUse};

/// Records a search. `sent` is the format in which the answer has the definitions of the hits, if it
/// has them. Tools that were selected by name were not searched for.
pub fn searched(
    usage: &Recorder,
    origin: Origin,
    queries: &[String],
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
    let nearest = hits.first().or(more.first()).cloned();
    let suggested = found.no_match.as_ref().map(|no_match| &no_match.nearest);
    let sent = sent.map(|format| {
        let tools = found.hits.iter().map(|hit| hit.tool.clone());
        (format, tools.collect())
    });
    let texts = queries.iter().map(String::as_str);
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
