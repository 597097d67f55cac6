//! What a conversation's searches have shown, so that a call that succeeds can be told to the catalog's
//! usage memory: which query had found the tool.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use toolscout_index::ToolId;

use super::search::{Found, ToolSearch, UsedTool};

/// Searches of a conversation that are kept, the newest ones.
const MAX_SEARCHES: usize = 32;
/// Pairs of query and tool that were told, so that none counts twice in a conversation.
const MAX_TOLD: usize = 256;
/// Longest query that is kept: a longer one is a document, and no request like it comes again.
const MAX_QUERY_BYTES: usize = 1_000;
/// Most bytes of a conversation, about.
const MAX_BYTES: usize = 32 << 10;
/// Conversations that are kept, those used last.
const MAX_CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// The searches of one conversation.
#[derive(Clone, Debug, Default)]
pub struct SearchTrail {
    /// The newest last.
    searches: VecDeque<Search>,
    /// Hashes of queries and tools, the newest last.
    told: VecDeque<blake3::Hash>,
}

/// The hits of one search.
#[derive(Clone, Debug)]
struct Search {
    queries: Vec<String>,
    /// Each with the position of the query that found it.
    tools: Vec<(ToolId, usize)>,
}

impl Search {
    fn bytes(&self) -> usize {
        let queries: usize = self.queries.iter().map(String::len).sum();
        let tools = self.tools.iter();
        let tools: usize = tools.map(|(id, _)| id.as_str().len() + 32).sum();
        queries + tools
    }

    fn query_of(&self, tool: &ToolId) -> Option<&String> {
        let (_, query) = self.tools.iter().find(|(shown, _)| shown == tool)?;
        self.queries.get(*query)
    }
}

impl SearchTrail {
    /// True before the first search.
    pub fn is_empty(&self) -> bool {
        self.searches.is_empty()
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        let searches: usize = self.searches.iter().map(Search::bytes).sum();
        searches + size_of_val(&self.told) * self.told.len()
    }

    /// Notes the hits of a search, each with the position of the query that found it. Tools that were
    /// selected by name were not searched for.
    pub fn searched<'a>(
        &mut self,
        queries: &[String],
        hits: impl Iterator<Item = (&'a ToolId, Option<usize>)>,
    ) {
        let mut tools = Vec::new();
        for (id, query) in hits {
            if let Some(position) = query
                && let Some(text) = queries.get(position)
                && text.len() <= MAX_QUERY_BYTES
            {
                tools.push((id.clone(), position));
            }
        }
        if tools.is_empty() {
            return;
        }
        let mut kept = Vec::with_capacity(queries.len());
        for query in queries {
            kept.push(match query.len() <= MAX_QUERY_BYTES {
                true => query.clone(),
                // Something stands in its place, since tools have the positions of their queries.
                false => String::new(),
            });
        }
        self.searches.push_back(Search {
            queries: kept,
            tools,
        });
        while self.searches.len() > MAX_SEARCHES || self.bytes() > MAX_BYTES {
            self.searches.pop_front();
        }
    }

    /// Notes what a search found.
    pub fn found(&mut self, queries: &[String], found: &Found) {
        let hits = found.hits.iter().map(|hit| (&hit.tool.id, hit.query));
        // Which of several queries a tool after the hits is for, is not known.
        let query = (queries.len() == 1).then_some(0);
        let more = found.more.iter().map(|tool| (&tool.id, query));
        self.searched(queries, hits.chain(more));
    }

    /// The query of the last search that showed this tool, which was called with success; `None` where
    /// none did, and where that was told before.
    pub fn called(&mut self, tool: &ToolId) -> Option<String> {
        let mut searches = self.searches.iter().rev();
        let query = searches.find_map(|search| search.query_of(tool))?;
        let pair = blake3::hash(format!("{query}\0{tool}").as_bytes());
        if self.told.contains(&pair) {
            return None;
        }
        let query = query.clone();
        self.told.push_back(pair);
        if self.told.len() > MAX_TOLD {
            self.told.pop_front();
        }
        Some(query)
    }
}

/// The trails of many conversations.
pub struct SearchTrails(Mutex<LruCache<String, SearchTrail>>);

impl Default for SearchTrails {
    fn default() -> Self {
        SearchTrails(Mutex::new(LruCache::new(MAX_CONVERSATIONS)))
    }
}

impl SearchTrails {
    /// Notes what a search in a conversation of this caller found.
    pub fn found(&self, (who, conversation): (&str, &str), queries: &[String], found: &Found) {
        let mut trails = self.0.lock();
        let trail = trails.get_or_insert_mut(key(who, conversation), SearchTrail::default);
        trail.found(queries, found);
    }

    /// What is to be told of a call that succeeded.
    pub fn called(&self, (who, conversation): (&str, &str), tool: &ToolId) -> Option<UsedTool> {
        let mut trails = self.0.lock();
        let query = trails.get_mut(&key(who, conversation))?.called(tool)?;
        Some(UsedTool {
            query,
            tool: tool.clone(),
            who: who.to_owned(),
        })
    }
}

/// Tells the catalog of calls that succeeded, and waits until it has learned of them.
pub async fn teach(search: Arc<dyn ToolSearch>, used_tools: Vec<UsedTool>) {
    if used_tools.is_empty() {
        return;
    }
    // The memory is in a store, and writing to it may block.
    let teaching = spawn_blocking(move || {
        for used_tool in &used_tools {
            search.used(used_tool);
        }
    });
    if let Err(error) = teaching.await {
        tracing::error!(%error, "remembering a call panicked");
    }
}

/// The length keeps names with spaces apart, so that no caller can choose another one's conversation.
pub(super) fn key(who: &str, conversation: &str) -> String {
    format!("{} {who} {conversation}", who.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ToolId {
        ToolId::parse(text).unwrap()
    }

    fn searched(trail: &mut SearchTrail, query: &str, tools: &[&str]) {
        let ids: Vec<ToolId> = tools.iter().map(|tool| id(tool)).collect();
        trail.searched(&[query.to_owned()], ids.iter().map(|id| (id, Some(0))));
    }

    #[test]
    fn a_call_belongs_to_the_last_search_that_showed_its_tool_and_counts_once() {
        let mut trail = SearchTrail::default();
        assert_eq!(trail.called(&id("mail/send")), None);
        searched(&mut trail, "write to Ana", &["mail/send", "chat/post"]);
        searched(&mut trail, "send a mail", &["mail/send"]);
        searched(&mut trail, "weather", &["weather/get"]);
        assert_eq!(
            trail.called(&id("mail/send")).as_deref(),
            Some("send a mail")
        );
        assert_eq!(trail.called(&id("mail/send")), None);
        assert_eq!(
            trail.called(&id("chat/post")).as_deref(),
            Some("write to Ana")
        );
        assert_eq!(trail.called(&id("no/such")), None);
        searched(&mut trail, "mail it again", &["mail/send"]);
        assert_eq!(
            trail.called(&id("mail/send")).as_deref(),
            Some("mail it again")
        );
    }

    #[test]
    fn a_tool_that_was_selected_by_name_was_not_searched_for() {
        let mut trail = SearchTrail::default();
        let queries = ["a".to_owned(), "b".to_owned()];
        let tools = [id("x/selected"), id("x/found")];
        trail.searched(
            &queries,
            [(&tools[0], None), (&tools[1], Some(1))].into_iter(),
        );
        assert_eq!(trail.called(&tools[0]), None);
        assert_eq!(trail.called(&tools[1]).as_deref(), Some("b"));
    }

    #[test]
    fn a_trail_is_bounded_and_keeps_no_documents() {
        let mut trail = SearchTrail::default();
        for number in 0..1_000 {
            searched(
                &mut trail,
                &format!("{number} {}", "x".repeat(900)),
                &["mail/send"],
            );
        }
        searched(&mut trail, &"y".repeat(MAX_QUERY_BYTES + 1), &["chat/post"]);
        assert!(trail.bytes() <= MAX_BYTES && trail.searches.len() <= MAX_SEARCHES);
        assert!(trail.called(&id("mail/send")).unwrap().starts_with("999 "));
        assert_eq!(trail.called(&id("chat/post")), None);
        for number in 0..1_000 {
            let tool = format!("t/{number}");
            searched(&mut trail, "q", &[&tool]);
            assert!(trail.called(&id(&tool)).is_some());
        }
        assert!(trail.told.len() <= MAX_TOLD);
    }

    #[test]
    fn conversations_and_callers_are_kept_apart() {
        let trails = SearchTrails::default();
        let found = super::super::search::doubles::found(&["mail/send"]);
        trails.found(("key:a", "1"), &["mail it".to_owned()], &found);
        let send = id("mail/send");
        assert_eq!(trails.called(("key:b", "1"), &send), None);
        assert_eq!(trails.called(("key:a", "2"), &send), None);
        let used_tool = trails.called(("key:a", "1"), &send).unwrap();
        assert_eq!(
            (used_tool.query.as_str(), used_tool.who.as_str()),
            ("mail it", "key:a")
        );
        assert_eq!(trails.called(("key:a", "1"), &send), None);
    }
}
