//! What a search finds among the tools of a request and in the other catalog, and what of it can be shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolscout_index::formats::model_name;
use toolscout_index::{Match, Searcher, Tool};

use crate::extra::ExtraCatalog;
use crate::tools::tool_list::ToolList;
use toolscout_finder::finder::ToolSearch as _;
use toolscout_finder::finder::search::{self, SearchRequest};
use toolscout_finder::finder::snapshot::CurrentSnapshot;

/// Searches among the request's tools, and in the other catalog if there is one.
pub fn search_both(
    searcher: Arc<Searcher>,
    extra: Option<&ExtraCatalog>,
    list: &ToolList,
    request: SearchRequest,
) -> Searched {
    let (mut hits, mut more, mut learns) = (Vec::new(), Vec::new(), false);
    if let Some(extra) = extra {
        learns = extra.search.learns();
        (hits, more) = extra_hits(extra, list, &request);
    }
    let own = CurrentSnapshot(move || Arc::clone(&searcher));
    Searched {
        own: own.search(&request),
        extra: hits,
        extra_more: more,
        queries: learns.then_some(request.queries),
    }
}

/// Tools of the other catalog that can be shown: those that the client has too, and those that can be
/// called here.
fn extra_hits(
    extra: &ExtraCatalog,
    list: &ToolList,
    request: &SearchRequest,
) -> (Vec<FoundTool>, Vec<MoreTool>) {
    let (hits, more) = extra.useful_hits(request, |tool| shown_name(extra, list, tool).is_some());
    let mut found = Vec::with_capacity(hits.len());
    for hit in &hits {
        found.extend(FoundTool::of_catalog(extra, list, hit));
    }
    let mut next = Vec::with_capacity(more.len());
    for tool in more {
        if let Some((name, _)) = shown_name(extra, list, &tool) {
            next.push(MoreTool { name, tool });
        }
    }
    (found, next)
}

/// What a search found.
pub struct Searched {
    /// Among the request's tools.
    pub own: search::Found,
    /// In the other catalog.
    pub extra: Vec<FoundTool>,
    /// In the other catalog after these.
    pub extra_more: Vec<MoreTool>,
    /// Its queries, where the other catalog learns from calls.
    pub queries: Option<Vec<String>>,
}

/// A tool after the hits, with the name that the model sees.
pub struct MoreTool {
    pub name: String,
    pub tool: Arc<Tool>,
}

impl MoreTool {
    pub fn of_request(tool: &Arc<Tool>) -> Self {
        MoreTool {
            name: tool.id.name().to_owned(),
            tool: Arc::clone(tool),
        }
    }
}

/// A tool that was found.
pub struct FoundTool {
    /// The name that the model sees.
    pub name: String,
    pub tool: Arc<Tool>,
    /// Whether it is not the client's.
    pub is_foreign: bool,
    /// The position of the query that found it.
    pub query: Option<usize>,
    /// Whether other queries found it too.
    pub is_of_several: bool,
}

impl FoundTool {
    pub fn of_request(hit: &search::FoundTool) -> Self {
        FoundTool {
            name: hit.tool.id.name().to_owned(),
            tool: Arc::clone(&hit.tool),
            is_foreign: false,
            query: hit.query,
            is_of_several: hit.is_of_several,
        }
    }

    /// A tool of the request that comes after the hits.
    pub fn of_next(tool: Arc<Tool>) -> Self {
        FoundTool {
            name: tool.id.name().to_owned(),
            tool,
            is_foreign: false,
            query: None,
            is_of_several: false,
        }
    }

    /// A tool of the other catalog, if it can be shown.
    fn of_catalog(extra: &ExtraCatalog, list: &ToolList, hit: &search::FoundTool) -> Option<Self> {
        let (name, is_foreign) = shown_name(extra, list, &hit.tool)?;
        Some(FoundTool {
            name,
            tool: Arc::clone(&hit.tool),
            is_foreign,
            query: hit.query,
            is_of_several: hit.is_of_several,
        })
    }
}

/// The name under which a tool of the other catalog can be shown, and whether it is not the client's.
fn shown_name(extra: &ExtraCatalog, list: &ToolList, tool: &Tool) -> Option<(String, bool)> {
    let name = model_name(&tool.id);
    // A client that has the tool too calls it itself.
    for own in [name.as_str(), tool.id.name()] {
        if list.deferred_tokens(own).is_some() {
            return Some((own.to_owned(), false));
        }
    }
    (extra.can_call(&tool.id) && list.leaves_free(&name)).then_some((name, true))
}

/// The hits that can be loaded, with the names of those that the model sees already put here.
///
/// Tools that come next take their places. After a good match, a query whose first hit the model sees needs nothing else: what
/// it found besides gets a line. A hit of several queries does not tell whether it is what each of them looks for.
pub fn without_visible(
    own: &mut search::Found,
    list: &ToolList,
    visible: &mut Vec<String>,
) -> Vec<FoundTool> {
    own.more.retain(|tool| !list.is_visible(tool.id.name()));
    let (mut hits, mut served, mut found_visible) = (Vec::new(), BTreeSet::new(), 0);
    let mut lines = Vec::new();
    for hit in &own.hits {
        // The query that alone found it.
        let query = hit.query.filter(|_| !hit.is_of_several);
        let is_first = !hits
            .iter()
            .any(|other: &FoundTool| other.is_of_several || other.query == hit.query);
        if list.is_visible(hit.tool.id.name()) {
            found_visible += 1;
            visible.push(hit.tool.id.name().to_owned());
            if is_first && own.matched == Some(Match::Good) {
                served.extend(query);
            }
        } else if query.is_some_and(|query| served.contains(&query)) {
            lines.push(Arc::clone(&hit.tool));
        } else {
            hits.push(FoundTool::of_request(hit));
        }
    }
    // Nothing tells which query the tools that come next belong to.
    if served.is_empty() {
        let next = own.more.drain(..found_visible.min(own.more.len()));
        hits.extend(next.map(FoundTool::of_next));
    }
    own.more.splice(..0, lines);
    hits
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use toolscout_finder::finder::search::doubles;

    use super::*;
    use crate::dialect::Dialect;
    use crate::tools::tool_list::{Deferral, ListId};

    #[test]
    fn a_visible_tool_serves_only_the_query_that_alone_found_it() {
        let deferral = Deferral {
            above_tokens: 0,
            own_tokens: 0,
            beside_other_search: false,
            pins: vec!["seen".into()],
            max_tools: 9,
        };
        let tools: Vec<String> = ["seen", "first", "second", "next"]
            .iter()
            .map(|name| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#))
            .collect();
        let tools = Bytes::from(format!("[{}]", tools.join(",")));
        let id = ListId::of("o", Dialect::Chat, &deferral, &tools);
        let list = ToolList::read(id, "o", Dialect::Chat.protocol(), &deferral, &tools).unwrap();
        // Which tools are loaded; a query of `None` stands for several.
        let loaded = |hits: &[(&str, Option<usize>)]| {
            let ids: Vec<String> = hits.iter().map(|(name, _)| format!("s/{name}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut found = doubles::found(&ids);
            found.matched = Some(Match::Good);
            found.more = vec![doubles::tool("s/next", "comes next")];
            for (hit, (_, query)) in found.hits.iter_mut().zip(hits) {
                hit.query = query.or(Some(0));
                hit.is_of_several = query.is_none();
            }
            let (mut visible, mut names) = (Vec::new(), Vec::new());
            for hit in without_visible(&mut found, &list, &mut visible) {
                names.push(hit.name);
            }
            assert_eq!(visible, ["seen"]);
            names
        };
        assert_eq!(
            loaded(&[("seen", Some(0)), ("first", Some(0)), ("second", Some(1))]),
            ["second"]
        );
        for query in [None, Some(0)] {
            let found = [("seen", None), ("first", query), ("second", Some(1))];
            assert_eq!(loaded(&found), ["first", "second", "next"], "{query:?}");
        }
        let found = [("seen", Some(0)), ("first", None), ("second", Some(0))];
        assert_eq!(loaded(&found), ["first"]);
        let found = [("first", None), ("seen", Some(1)), ("second", Some(1))];
        assert_eq!(loaded(&found), ["first", "second", "next"]);
    }
}
