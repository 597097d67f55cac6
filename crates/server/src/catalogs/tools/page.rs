//! A page of the tools of a catalog.

use toolscout_index::{Filter, Kind, Searcher, Tool, ToolId};

use super::ToolPage;
use crate::request::error::ApiResult;
use crate::request::paging;
use crate::request::wire::ToolBody;
use crate::served::Pushed;
use toolscout_state::shared::PageOf;

/// A page ends early when its tools reach this size. It has at least one tool.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Which tools a list has.
pub struct Listed {
    /// The kinds alone.
    kinds: Filter,
    server: Option<String>,
    tag: Option<String>,
    /// In small letters; empty for every name.
    part: String,
}

impl Listed {
    /// The items of these kinds, of a server, with a tag, and whose ids have a part, each where it is given.
    pub fn new(
        kinds: Vec<Kind>,
        server: Option<String>,
        tag: Option<String>,
        part: Option<&str>,
    ) -> Self {
        Listed {
            kinds: kinds.into_iter().collect(),
            server,
            tag,
            part: part.unwrap_or_default().trim().to_lowercase(),
        }
    }

    fn has(&self, searcher: &Searcher, id: &ToolId) -> bool {
        if !searcher
            .kind(id)
            .is_some_and(|kind| self.kinds.accepts_kind(kind))
        {
            return false;
        }
        if let Some(server) = &self.server
            && id.server() != server
        {
            return false;
        }
        if !self.part.is_empty() && !id.as_str().to_lowercase().contains(&self.part) {
            return false;
        }
        // Last, since it reads the tool.
        match &self.tag {
            Some(tag) => searcher
                .tool(id)
                .is_some_and(|tool| tool.tags.contains(tag)),
            None => true,
        }
    }
}

/// The listed tools after this id, at most `limit`.
pub fn page(searcher: &Searcher, after: Option<&str>, listed: &Listed, limit: usize) -> ToolPage {
    let (mut tools, mut bytes) = (Vec::new(), 0);
    let (mut last, mut next_cursor) = (None, None);
    for id in searcher.ids_after(after) {
        if !listed.has(searcher, id) {
            continue;
        }
        // Without a further tool there is no next page, even if the page is full. The size is checked
        // before a tool is added, so a page has at least one.
        if tools.len() == limit || bytes >= MAX_PAGE_BYTES {
            next_cursor = last.map(paging::cursor_after);
            break;
        }
        last = Some(id.as_str());
        if let Some(tool) = searcher.tool(id) {
            bytes += json_bytes(&tool);
            tools.push(ToolBody::from(&*tool));
        }
    }
    ToolPage {
        tools,
        next_cursor,
        total: count(searcher, &listed.kinds),
        generation: searcher.generation(),
    }
}

/// The number of items of the kinds that a filter accepts.
fn count(searcher: &Searcher, kinds: &Filter) -> usize {
    let counts = searcher.count_by_kind().into_iter();
    let accepted = counts.filter(|(kind, _)| kinds.accepts_kind(*kind));
    accepted.map(|(_, count)| count).sum()
}

/// As [`page`], of a catalog that is pushed down.
///
/// # Errors
/// 503 without the store.
pub async fn of_store(
    pushed: &Pushed<'_>,
    after: Option<String>,
    listed: &Listed,
    limit: usize,
) -> ApiResult<ToolPage> {
    let page = PageOf {
        kinds: listed.kinds.kinds.clone(),
        after,
        server: listed.server.clone(),
        tag: listed.tag.clone(),
        part: listed.part.clone(),
        limit,
    };
    let found = pushed.page(&page).await?;
    Ok(ToolPage {
        next_cursor: match found.tools.last() {
            Some(last) if found.has_more => Some(paging::cursor_after(last.id.as_str())),
            _ => None,
        },
        tools: found.tools.iter().map(ToolBody::from).collect(),
        total: found.total,
        generation: found.generation,
    })
}

/// The size of a tool as JSON, counted without writing it.
fn json_bytes(tool: &Tool) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut counter, tool);
    counter.0
}
