//! The interface of the agent to the index: one trait, implemented for the engine's catalog in
//! `finder/snapshot`.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use toolscout_base::cpu_pool::{CpuPool, PoolError};
use toolscout_gate::tools::AbsentServer;
use toolscout_index::Version;
use toolscout_index::memory::Source;
use toolscout_index::{CompanionOf, Filter, Match, Query, Searcher, Tool, ToolId};

use crate::finder::model_names;

/// Most servers that an answer names as absent.
const MAX_ABSENT: usize = 5;

/// Searches tools. Called on threads for blocking work, so implementations may block.
pub trait ToolSearch: Send + Sync {
    /// Runs one search. A failure is a no-match with its reason, so that the model can react.
    fn search(&self, request: &SearchRequest) -> Found;

    /// The tool of this id.
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>>;

    /// The item of this id, which may be of any kind.
    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.tool(id)
    }

    /// All items of all kinds in the order of ids.
    fn items(&self) -> Vec<Arc<Tool>> {
        self.tools()
    }

    /// All tools in the order of ids.
    fn tools(&self) -> Vec<Arc<Tool>>;

    /// The ids of all tools, in order. Reads no definition where the implementation can do without.
    fn ids(&self) -> Vec<ToolId> {
        self.tools().iter().map(|tool| tool.id.clone()).collect()
    }

    /// The tools that this name may call, in the order of ids.
    fn named(&self, name: &str) -> Vec<Arc<Tool>> {
        let mut tools = self.tools();
        tools.retain(|tool| model_names::denotes(name, &tool.id));
        tools
    }

    /// False where `tools` has none of them, since they are kept in a store.
    fn lists_tools(&self) -> bool {
        true
    }

    /// The newest snapshot, if there is one and it has all tools.
    fn indexed(&self) -> Option<Arc<Searcher>> {
        None
    }

    /// The threads that searches run on, if they are bounded.
    fn cpu_pool(&self) -> Option<CpuPool> {
        None
    }

    /// Number of tools.
    fn count(&self) -> usize;

    /// Changes whenever the tools do.
    fn version(&self) -> Version;

    /// Whether it learns from what is called: see [`ToolSearch::used`].
    fn learns(&self) -> bool {
        false
    }

    /// Learns that a tool that it found was called with success.
    fn used(&self, _used_tool: &UsedTool) {}
}

/// Runs a search off the async threads: on those of its pool, if it has one.
///
/// # Errors
/// [`PoolError`] if too many searches wait already, or if the search panicked.
pub async fn off_async_threads<T: Send + 'static>(
    search: &Arc<dyn ToolSearch>,
    work: impl FnOnce(&dyn ToolSearch) -> T + Send + 'static,
) -> Result<T, PoolError> {
    let (search, pool) = (Arc::clone(search), search.cpu_pool());
    let work = move || work(&*search);
    match pool {
        Some(pool) => pool.run(work).await,
        None => {
            let done = spawn_blocking(work).await;
            done.map_err(|error| PoolError::Panicked(error.to_string()))
        }
    }
}

/// What a model is told if a search could not be made.
pub fn why_not_searched(error: &PoolError) -> &'static str {
    match error {
        PoolError::Full => "the server is busy with other searches; try again in a moment",
        PoolError::Panicked(_) => {
            tracing::error!(%error, "a search failed");
            "the search failed; try other words"
        }
    }
}

/// A query whose hit was called with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedTool {
    /// The query.
    pub query: String,
    /// The tool.
    pub tool: ToolId,
    /// Who called it, as the audit log names callers.
    pub who: String,
}

impl UsedTool {
    /// Who teaches the memory. A key has one vote, whatever else it may do: that a model called a tool for
    /// it is not the word of the catalog's owner.
    pub fn source(&self) -> Source {
        match self.who.split_once(':') {
            Some(("key", key)) => Source::key(key),
            // A server without keys cannot tell its callers apart, so they share one vote.
            _ if self.who.starts_with("http") => Source::keyless(),
            _ => Source::command_line(),
        }
    }
}

/// One search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchRequest {
    /// Queries in natural language. Each is ranked on its own, and the hits are merged.
    pub queries: Vec<String>,
    /// Tools selected by name: ids, bare names, or names as shown to models.
    pub select: Vec<String>,
    /// Most hits for the queries, not counting selected tools; if not set, the catalog's default.
    pub limit: Option<usize>,
    /// Most tools after the hits that are named in a line each.
    pub more: usize,
    /// Which tools may be found.
    pub filter: Filter,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The selected tools, then the hits, best first.
    pub hits: Vec<FoundTool>,
    /// The hits that are no tools, with their places among all hits.
    pub items: Vec<FoundItem>,
    /// The tools that come after the hits, best first.
    pub more: Vec<Arc<Tool>>,
    /// Why a requested tool is not among the hits.
    pub no_match: Option<NoMatch>,
    /// How well the hits serve the queries; `None` if tools were selected by name only.
    pub matched: Option<Match>,
    /// The words of the queries that no hit has anything to do with.
    pub unmatched: Vec<String>,
    /// Tools with the required arguments that their queries do not name, a line each.
    pub needs: Vec<String>,
    /// The number of tools that fit better than the hits, and that the filter leaves out.
    pub better_hidden: usize,
    /// Whether the answer says nothing about the tools: no tool passes the filter, or nothing was asked.
    pub is_of_request: bool,
    /// How many searches before it found the same tools, since a tool was called.
    pub repeats: usize,
    /// Servers whose tools may be missing here, or cannot be called.
    pub absent_servers: Vec<AbsentServer>,
    /// The query that the catalog answered, if all of its hits are here.
    pub answered: Option<Query>,
}

impl Found {
    /// Nothing, with the reason.
    pub fn nothing(reason: &str) -> Self {
        Found {
            no_match: Some(NoMatch {
                reason: reason.to_owned(),
                nearest: Vec::new(),
            }),
            matched: Some(Match::None),
            ..Found::default()
        }
    }

    /// What a model is told about the queries before the tools: how well the hits serve them, and the
    /// words that nothing matched.
    pub fn verdict(&self) -> Map<String, Value> {
        let mut verdict = Map::new();
        if let Some(matched) = self.matched {
            verdict.insert("match".into(), matched.as_str().into());
            verdict.insert("advice".into(), matched.advice(self.better_hidden).into());
        }
        if !self.unmatched.is_empty() {
            verdict.insert("unmatched".into(), self.unmatched.clone().into());
        }
        if !self.needs.is_empty() {
            verdict.insert("needs".into(), self.needs.clone().into());
        }
        if self.better_hidden > 0 {
            let tools = match self.better_hidden {
                1 => "1 tool fits".to_owned(),
                count => format!("{count} tools fit"),
            };
            // Without their names, which the caller may not be allowed to know.
            let hidden = format!("{tools} better, outside what this search may find");
            verdict.insert("hidden".into(), hidden.into());
        }
        if let Some(advice) = self.advice_on_repeats() {
            verdict.insert("repeated".into(), advice.into());
        }
        if !self.absent_servers.is_empty() {
            let lines = self.absent_servers.iter().take(MAX_ABSENT);
            let mut lines: Vec<String> = lines.map(AbsentServer::to_string).collect();
            let others = self.absent_servers.len() - lines.len();
            if others > 0 {
                lines.push(format!("{others} more"));
            }
            verdict.insert("servers_away".into(), lines.into());
        }
        verdict
    }

    /// What a model is told that searches in circles.
    fn advice_on_repeats(&self) -> Option<&'static str> {
        let finds_none = self.matched == Some(Match::None);
        match self.repeats {
            0 => None,
            1 if finds_none => Some("An earlier search of this conversation ended like this one."),
            1 => Some("An earlier search of this conversation found the same tools."),
            _ if finds_none => Some(
                "Several searches have ended like this one. Stop searching: say that no tool here does it.",
            ),
            _ => Some(
                "Several searches have found the same tools. Stop searching: call one of them, or answer with \
                 what you have.",
            ),
        }
    }

    /// Notes which of these servers matter to the search: those that it asked for, those of its hits, and
    /// all of them if it asked for none and is not answered well.
    pub fn note_absent(&mut self, filter: &Filter, mut servers: Vec<AbsentServer>) {
        let is_open = filter.servers.is_empty() && self.matched != Some(Match::Good);
        // If it is, any of them may have what was looked for.
        if !is_open {
            servers.retain(|AbsentServer { server, .. }| {
                filter.servers.contains(server) || self.has_hit_of(server)
            });
        }
        self.absent_servers = servers;
    }

    fn has_hit_of(&self, server: &str) -> bool {
        self.hits.iter().any(|hit| hit.tool.id.server() == server)
    }
}

/// Why something was not found.
#[derive(Clone, Debug, PartialEq)]
pub struct NoMatch {
    /// The reason, in one sentence.
    pub reason: String,
    /// The ids nearest to the request, best first. They are suggestions, not hits.
    pub nearest: Vec<ToolId>,
}

impl From<toolscout_index::NoMatch> for NoMatch {
    fn from(no_match: toolscout_index::NoMatch) -> Self {
        NoMatch {
            reason: no_match.reason.to_string(),
            nearest: no_match.nearest,
        }
    }
}

/// A hit.
#[derive(Clone, Debug)]
pub struct FoundTool {
    /// The tool as registered in the catalog.
    pub tool: Arc<Tool>,
    /// Its score, comparable within one answer only.
    pub score: f32,
    /// The position of the query that found it; `None` for a tool that was selected by name, or is a
    /// companion of another hit.
    pub query: Option<usize>,
    /// Whether other queries found it too.
    pub is_of_several: bool,
    /// Set for a tool that is here because another hit needs what it finds.
    pub companion_of: Option<CompanionOf>,
}

/// A hit that is no tool.
#[derive(Clone, Debug)]
pub struct FoundItem {
    /// The item as registered in the catalog.
    pub item: Arc<Tool>,
    /// Its place among the hits of all kinds, from 1; `None` if it was selected by its id.
    pub rank: Option<usize>,
}

/// Searches and tools for tests.
#[cfg(any(test, feature = "testing"))]
pub mod doubles {
    use super::*;
    use crate::finder::model_names;

    /// Tools in memory, ranked by the number of words that they share with the query.
    pub struct ListedTools(pub Vec<Arc<Tool>>);

    impl ListedTools {
        /// Tools given as pairs of id and description.
        pub fn of(tools: &[(&str, &str)]) -> Self {
            ListedTools(
                tools
                    .iter()
                    .map(|(id, description)| tool(id, description))
                    .collect(),
            )
        }
    }

    /// Random numbers below a bound, reproducible by the seed (xorshift).
    pub fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move |bound| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % bound as u64) as usize
        }
    }

    /// A tool without parameters.
    pub fn tool(id: &str, description: &str) -> Arc<Tool> {
        let id = ToolId::parse(id).unwrap();
        Arc::new(
            Tool::new(id.server(), id.name())
                .unwrap()
                .with_description(description),
        )
    }

    /// Hits with these ids, in order.
    pub fn found(ids: &[&str]) -> Found {
        let hits = ids
            .iter()
            .map(|id| FoundTool {
                tool: tool(id, "does it"),
                score: 1.0,
                query: Some(0),
                is_of_several: false,
                companion_of: None,
            })
            .collect();
        Found {
            hits,
            ..Found::default()
        }
    }

    fn overlap(tool: &Tool, query: &str) -> usize {
        let text = format!("{} {}", tool.id, tool.description).to_lowercase();
        query
            .to_lowercase()
            .split_whitespace()
            .filter(|word| text.contains(word))
            .count()
    }

    impl ToolSearch for ListedTools {
        fn search(&self, request: &SearchRequest) -> Found {
            let allowed = || self.0.iter().filter(|tool| request.filter.accepts(tool));
            let (mut hits, mut more) = (Vec::<FoundTool>::new(), Vec::new());
            let mut missing = Vec::new();
            for name in &request.select {
                match allowed().find(|tool| model_names::denotes(name, &tool.id)) {
                    Some(tool) => hits.push(FoundTool {
                        tool: tool.clone(),
                        score: 2.0,
                        query: None,
                        is_of_several: false,
                        companion_of: None,
                    }),
                    None => missing.push(name.clone()),
                }
            }
            for (number, query) in request.queries.iter().enumerate() {
                let mut ranked: Vec<_> =
                    allowed().map(|tool| (overlap(tool, query), tool)).collect();
                ranked.retain(|(shared, _)| *shared > 0);
                ranked.sort_by_key(|(shared, tool)| (std::cmp::Reverse(*shared), tool.id.clone()));
                let after = ranked.split_off(ranked.len().min(request.limit.unwrap_or(5)));
                more.extend(after.into_iter().map(|(_, tool)| tool.clone()));
                hits.extend(ranked.into_iter().map(|(shared, tool)| FoundTool {
                    tool: tool.clone(),
                    score: shared as f32,
                    query: Some(number),
                    is_of_several: false,
                    companion_of: None,
                }));
            }
            let nearest: Vec<ToolId> = self.0.iter().take(2).map(|tool| tool.id.clone()).collect();
            let reason = match (missing.is_empty(), hits.is_empty()) {
                (false, _) => Some(format!("no tool is called {}", missing.join(", "))),
                (true, true) => Some("no tool shares a word with the request".to_owned()),
                (true, false) => None,
            };
            more.truncate(request.more);
            Found {
                hits,
                more,
                no_match: reason.map(|reason| NoMatch { reason, nearest }),
                ..Found::default()
            }
        }

        fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
            self.0.iter().find(|tool| tool.id == *id).cloned()
        }

        fn tools(&self) -> Vec<Arc<Tool>> {
            self.0.clone()
        }

        fn count(&self) -> usize {
            self.0.len()
        }

        fn version(&self) -> Version {
            Version::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::metrics::gauge::Gauge;

    use super::doubles::ListedTools;
    use super::*;

    /// A search on the threads of a pool.
    struct Pooled(ListedTools, CpuPool);

    impl ToolSearch for Pooled {
        fn search(&self, request: &SearchRequest) -> Found {
            self.0.search(request)
        }

        fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
            self.0.tool(id)
        }

        fn tools(&self) -> Vec<Arc<Tool>> {
            self.0.tools()
        }

        fn cpu_pool(&self) -> Option<CpuPool> {
            Some(self.1.clone())
        }

        fn count(&self) -> usize {
            self.0.count()
        }

        fn version(&self) -> Version {
            self.0.version()
        }
    }

    #[tokio::test]
    async fn searches_take_turns_on_the_threads_of_their_pool() {
        for (threads, expected) in [(1, Ok(1)), (0, Err(PoolError::Full))] {
            let pool = CpuPool::new(threads, 0, Duration::ZERO, Gauge::default());
            let tools = ListedTools::of(&[("mail/send", "sends mail")]);
            let search: Arc<dyn ToolSearch> = Arc::new(Pooled(tools, pool));
            let found = off_async_threads(&search, |search| search.tools().len()).await;
            assert_eq!(found, expected);
        }
        let search: Arc<dyn ToolSearch> = Arc::new(ListedTools::of(&[]));
        let found = off_async_threads(&search, |_| panic!("a fault")).await;
        let error = found.map(|()| "it panics").unwrap_err();
        assert!(matches!(error, PoolError::Panicked(_)));
        assert_eq!(
            why_not_searched(&error),
            "the search failed; try other words"
        );
    }
}
