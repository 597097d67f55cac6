//! Lists what an external engine has: pages of tools, ids, tags and sizes.

use serde_json::Value;
use toolscout_index::pushdown::SwitchedOff;
use toolscout_index::{Filter, ToolId};
use toolscout_state::shared::{ListedTools, PageOf, PushedStats, StoreError, TextsOf};

use super::{ExternalCatalog, ReadTool, State, read_tool};
use crate::engine::{After, Listed, Passing};
use crate::failure::Failure;
use crate::layout::{Label, Layout};

/// Ids that are read by one request, and in all.
const PAGE: usize = 1000;
const MAX_IDS: usize = 100_000;
/// Requests for one page of tools, if documents that are no tools lie between them.
const MAX_REQUESTS: usize = 20;
/// Requests for all ids.
const MAX_ID_REQUESTS: usize = 2 * MAX_IDS / PAGE;
/// Servers and tags that are listed.
const MAX_NAMES: usize = 1000;

impl ExternalCatalog {
    /// A page of tools.
    pub(super) async fn list(&self, page: &PageOf) -> Result<ListedTools, StoreError> {
        let state = self.0.state(None).await?;
        let filter = Filter {
            kinds: page.kinds.clone(),
            servers: page.server.iter().cloned().collect(),
            tags: page.tag.iter().cloned().collect(),
            ..Filter::default()
        };
        // One more than the page has says whether there is another.
        let wanted = page.limit + 1;
        let mut next = None;
        let mut tools = Vec::with_capacity(wanted);
        for _ in 0..MAX_REQUESTS {
            let listed = Listed {
                passing: passing(&filter),
                part: &page.part,
                ids: None,
                after: after(next.as_ref(), page.after.as_deref()),
                size: wanted,
            };
            let read = self.read_page(&state, &listed).await?;
            let read_tools = read.tools.into_iter().map(|read| read.tool);
            tools.extend(read_tools.filter(|tool| filter.accepts(tool)));
            next = read.next;
            if tools.len() >= wanted || next.is_none() {
                break;
            }
        }
        // If there were too many documents between them, the next page goes on behind the last tool of this one.
        let has_more = tools.len() > page.limit || (next.is_some() && !tools.is_empty());
        tools.truncate(page.limit);
        Ok(ListedTools {
            has_more,
            tools,
            total: state.tools as usize,
            generation: state.generation,
        })
    }

    /// The tools of some documents in their order.
    async fn read_page(&self, state: &State, listed: &Listed<'_>) -> Result<ReadPage, Failure> {
        let (layout, engine) = (&state.layout, &self.0.engine);
        let mut size = listed.size;
        let page = loop {
            let listed = Listed { size, ..*listed };
            match engine.page(layout, &listed, engine.timeout()).await {
                // Large documents come in smaller pages.
                Err(failure) if failure.is_too_large && size > 1 => size = (size / 4).max(1),
                page => break page?,
            }
        };
        let mut tools = Vec::with_capacity(page.documents.len());
        for document in page.documents {
            tools.extend(read_tool(layout, document));
        }
        Ok(ReadPage {
            tools,
            next: page.next,
        })
    }

    /// The tools that are asked for, to be read.
    pub(super) async fn to_be_read(&self, of: &TextsOf) -> Result<Vec<ReadTool>, StoreError> {
        // All of them have no texts.
        if of.have_texts == Some(true) {
            return Ok(Vec::new());
        }
        let state = self.0.state(None).await?;
        let filter = Filter {
            servers: of.servers.iter().cloned().collect(),
            ..Filter::default()
        };
        let ids: Option<Vec<ToolId>> = of.tools.as_ref().map(|tools| {
            let ids = tools.iter();
            ids.filter_map(|id| ToolId::parse(id).ok()).collect()
        });
        if ids.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let listed = Listed {
            passing: passing(&filter),
            part: "",
            ids: ids.as_deref(),
            after: after(None, of.after.as_deref()),
            size: of.limit,
        };
        Ok(self.read_page(&state, &listed).await?.tools)
    }

    /// The ids of the tools that pass a filter.
    pub(super) async fn list_ids(&self, filter: &Filter) -> Result<Vec<ToolId>, StoreError> {
        let state = self.0.state(None).await?;
        let mut ids = Vec::new();
        let mut next = None;
        for _ in 0..MAX_ID_REQUESTS {
            let listed = Listed {
                passing: passing(filter),
                part: "",
                ids: None,
                after: after(next.as_ref(), None),
                size: PAGE,
            };
            let read = self.read_page(&state, &listed).await?;
            for read in read.tools {
                if filter.accepts(&read.tool) {
                    ids.push(read.tool.id);
                }
            }
            next = read.next;
            if next.is_none() {
                return Ok(ids);
            }
            if ids.len() >= MAX_IDS {
                break;
            }
        }
        let reason = format!("more than {MAX_IDS} tools may pass the filter; narrow it");
        Err(StoreError::Refused(reason))
    }

    /// The most frequent tags, with the number of their tools, and how many there are, up to a bound.
    pub(super) async fn list_tags(
        &self,
        limit: usize,
    ) -> Result<(Vec<(String, usize)>, usize), StoreError> {
        let state = self.0.state(None).await?;
        let engine = &self.0.engine;
        let limit_of_time = engine.timeout();
        let tags = engine.values(&state.layout, Label::Tag, MAX_NAMES, limit_of_time);
        let mut tags = tags.await?;
        let count = tags.len();
        tags.truncate(limit);
        Ok((tags, count))
    }

    /// Sizes.
    pub(super) async fn sizes(&self) -> Result<PushedStats, StoreError> {
        let state = self.0.state(None).await?;
        let engine = &self.0.engine;
        let servers = engine.values(&state.layout, Label::Server, MAX_NAMES, engine.timeout());
        let mut servers = servers.await?;
        servers.sort_unstable();
        let items = state.sketch.total as usize;
        let mut vectors = Vec::new();
        if let Layout::Own(own) = &state.layout {
            vectors.extend(own.embedders.iter().map(|kept| (kept.id.clone(), items)));
        }
        let bytes = engine.bytes(engine.timeout()).await;
        Ok(PushedStats {
            tools: state.tools as usize,
            items,
            generation: state.generation,
            servers,
            vectors,
            bytes: bytes.unwrap_or_default(),
        })
    }
}

/// Tools of some documents.
struct ReadPage {
    tools: Vec<ReadTool>,
    /// Where the next page begins; `None` if there is none.
    next: Option<Value>,
}

/// The documents that pass a filter.
fn passing(filter: &Filter) -> Passing<'_> {
    static NONE: SwitchedOff = SwitchedOff {
        tools: Vec::new(),
        servers: Vec::new(),
        tags: Vec::new(),
    };
    Passing { filter, off: &NONE }
}

/// Where the next page begins: behind the one before, or behind a tool.
fn after<'a>(next: Option<&'a Value>, tool: Option<&'a str>) -> After<'a> {
    match (next, tool) {
        (Some(next), _) => After::Page(next),
        (None, Some(tool)) => After::Tool(tool),
        (None, None) => After::Nothing,
    }
}
