//! The engine's catalog as the agent searches it.

use std::sync::Arc;

use toolscout_index::{Catalog, NoMatch, Query, Searcher, Tool, ToolId};

use crate::agent::names;
use crate::agent::search::{Found, FoundTool, SearchRequest, ToolSearch};

/// Nearest names offered for one that no tool has.
const MAX_NEAREST: usize = 5;

impl ToolSearch for Catalog {
    fn search(&self, request: &SearchRequest) -> Found {
        let searcher = self.searcher();
        let mut found = Found::default();
        let mut reasons = Vec::new();
        for name in &request.select {
            match named(&searcher, name, request) {
                Some(tool) => found.hits.push(FoundTool { tool, score: 1.0 }),
                None => reasons.push(unknown(&searcher, name)),
            }
        }
        if !request.queries.is_empty() {
            let query = Query::any_of(&request.queries).k(request.limit).filter(request.filter.clone());
            match searcher.search(&query) {
                Ok(results) => {
                    let hits = results.hits.into_iter().map(|hit| FoundTool { tool: hit.tool, score: hit.score });
                    found.hits.extend(hits);
                    reasons.extend(results.no_match);
                }
                Err(error) => reasons.push(NoMatch { reason: error.to_string(), nearest: Vec::new() }),
            }
        }
        found.no_match = joined(reasons);
        found
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.searcher().tool(id)
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.searcher().tools().collect()
    }

    fn count(&self) -> usize {
        self.searcher().len()
    }

    fn generation(&self) -> u64 {
        self.searcher().generation()
    }
}

/// The tool of exactly this name: by id, else the first by id that it denotes.
fn named(searcher: &Searcher, name: &str, request: &SearchRequest) -> Option<Arc<Tool>> {
    let allowed = |tool: &Arc<Tool>| request.filter.accepts(tool);
    let by_id = ToolId::parse(name).ok().and_then(|id| searcher.tool(&id)).filter(allowed);
    by_id.or_else(|| searcher.tools().find(|tool| names::denotes(name, &tool.id) && allowed(tool)))
}

fn unknown(searcher: &Searcher, name: &str) -> NoMatch {
    let tools: Vec<Arc<Tool>> = searcher.tools().collect();
    let nearest = names::nearest(name, tools.iter().map(|tool| tool.id.as_str()), MAX_NEAREST);
    let nearest = nearest.into_iter().filter_map(|id| ToolId::parse(id).ok()).collect();
    NoMatch { reason: format!("no tool is called {:?}", crate::llm::excerpt(name, 100)), nearest }
}

fn joined(reasons: Vec<NoMatch>) -> Option<NoMatch> {
    reasons.into_iter().reduce(|mut all, next| {
        all.reason = format!("{}; {}", all.reason, next.reason);
        all.nearest.extend(next.nearest);
        all
    })
}
