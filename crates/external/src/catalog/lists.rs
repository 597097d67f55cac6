//! Lists what an external engine has: pages of tools, ids, tags and sizes.

use reqwest::Method;
use serde_json::{Value, json};
use toolscout_index::pushdown::SwitchedOff;
use toolscout_index::{Filter, ToolId};
use toolscout_state::shared::{ListedTools, PageOf, PushedStats, StoreError, TextsOf};

use super::{ExternalCatalog, ReadTool, State, read_tool};
use crate::client::Body;
use crate::elastic::next_page;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::query::{self, Passing};

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
        let mut filters = vec![clause(&state.layout, &filter)];
        if !page.part.is_empty() {
            let pattern = format!("*{}*", escaped(&page.part));
            filters.push(json!({ "wildcard": { state.layout.order(): {
                "value": pattern, "case_insensitive": true,
            } } }));
        }
        // One more than the page has says whether there is another.
        let wanted = page.limit + 1;
        let mut after = sort_values(&state.layout, page.after.as_deref());
        let mut tools = Vec::with_capacity(wanted);
        for _ in 0..MAX_REQUESTS {
            let read = self
                .read_page(&state, &filters, after.as_ref(), wanted)
                .await?;
            let read_tools = read.tools.into_iter().map(|read| read.tool);
            tools.extend(read_tools.filter(|tool| filter.accepts(tool)));
            after = read.next;
            if tools.len() >= wanted || after.is_none() {
                break;
            }
        }
        // If there were too many documents between them, the next page goes on behind the last tool of this one.
        let has_more = tools.len() > page.limit || (after.is_some() && !tools.is_empty());
        tools.truncate(page.limit);
        Ok(ListedTools {
            has_more,
            tools,
            total: state.tools as usize,
            generation: state.generation,
        })
    }

    /// The tools of some documents in their order.
    async fn read_page(
        &self,
        state: &State,
        filters: &[Value],
        after: Option<&Value>,
        limit: usize,
    ) -> Result<ReadPage, Failure> {
        let (layout, elastic) = (&state.layout, &self.0.elastic);
        let source = json!(layout.source());
        let search = query::page(
            layout,
            json!({ "bool": { "filter": filters } }),
            after,
            limit,
            &source,
        );
        let mut answer = elastic.search_one(search, elastic.timeout()).await?;
        let Value::Array(hits) = answer["hits"]["hits"].take() else {
            return Err(Failure::answer("hits"));
        };
        let is_last = hits.len() < limit;
        let next = next_page(&hits)?.filter(|_| !is_last);
        let mut tools = Vec::with_capacity(hits.len());
        for mut hit in hits {
            tools.extend(read_tool(layout, hit["_source"].take()));
        }
        Ok(ReadPage { tools, next })
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
        let mut filters = vec![clause(&state.layout, &filter)];
        if let Some(tools) = &of.tools {
            let ids: Vec<ToolId> = tools
                .iter()
                .filter_map(|id| ToolId::parse(id).ok())
                .collect();
            // The engines take a clause without alternatives for one that all documents match.
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let of_ids = query::of_ids(&state.layout, &ids);
            filters.push(of_ids["query"].clone());
        }
        let after = sort_values(&state.layout, of.after.as_deref());
        let read = self
            .read_page(&state, &filters, after.as_ref(), of.limit)
            .await?;
        Ok(read.tools)
    }

    /// The ids of the tools that pass a filter.
    pub(super) async fn list_ids(&self, filter: &Filter) -> Result<Vec<ToolId>, StoreError> {
        let state = self.0.state(None).await?;
        let filters = vec![clause(&state.layout, filter)];
        let mut ids = Vec::new();
        let mut after = None;
        for _ in 0..MAX_ID_REQUESTS {
            let read = self
                .read_page(&state, &filters, after.as_ref(), PAGE)
                .await?;
            for read in read.tools {
                if filter.accepts(&read.tool) {
                    ids.push(read.tool.id);
                }
            }
            after = read.next;
            if after.is_none() {
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
        let field = match &state.layout {
            Layout::Own(_) => Some("tags"),
            Layout::Mapped(fields) => fields.tags.as_deref(),
        };
        let all = json!({ "match_all": {} });
        let mut tags = self.counted(field, &all, MAX_NAMES).await?;
        let count = tags.len();
        tags.truncate(limit);
        Ok((tags, count))
    }

    /// Sizes.
    pub(super) async fn sizes(&self) -> Result<PushedStats, StoreError> {
        let state = self.0.state(None).await?;
        let field = match &state.layout {
            Layout::Own(_) => Some("server"),
            Layout::Mapped(fields) => fields.server.as_deref(),
        };
        let only_tools = query::only_tools(&state.layout);
        let mut servers = self.counted(field, &only_tools, MAX_NAMES).await?;
        servers.sort_unstable();
        let items = state.sketch.total as usize;
        let mut vectors = Vec::new();
        if let Layout::Own(own) = &state.layout {
            vectors.extend(own.embedders.iter().map(|kept| (kept.id.clone(), items)));
        }
        let elastic = &self.0.elastic;
        let path = format!("{}/_stats/store", elastic.index());
        let asked = elastic
            .client
            .ask(Method::GET, &path, &Body::None, elastic.timeout());
        // A key that may only read the index may not see its size.
        let sizes = asked.await.unwrap_or_default();
        let bytes = sizes["_all"]["primaries"]["store"]["size_in_bytes"].as_u64();
        Ok(PushedStats {
            tools: state.tools as usize,
            items,
            generation: state.generation,
            servers,
            vectors,
            bytes: bytes.unwrap_or_default(),
        })
    }

    /// The most frequent values of a field in the documents that match, each with the number of these.
    async fn counted(
        &self,
        field: Option<&str>,
        of: &Value,
        limit: usize,
    ) -> Result<Vec<(String, usize)>, Failure> {
        let Some(field) = field else {
            return Ok(Vec::new());
        };
        let elastic = &self.0.elastic;
        let search = json!({ "size": 0, "query": of, "aggs": { "values": { "terms": {
            "field": field, "size": limit.max(1), "order": [{ "_count": "desc" }, { "_key": "asc" }],
        } } } });
        let answer = elastic.search_one(search, elastic.timeout()).await?;
        let buckets = answer["aggregations"]["values"]["buckets"].as_array();
        let mut counts = Vec::new();
        for bucket in buckets.into_iter().flatten() {
            if let (Some(key), Some(count)) = (bucket["key"].as_str(), bucket["doc_count"].as_u64())
            {
                counts.push((key.to_owned(), count as usize));
            }
        }
        Ok(counts)
    }
}

/// Tools of some documents.
struct ReadPage {
    tools: Vec<ReadTool>,
    /// The sort values behind which the next documents are; `None` if there are no more.
    next: Option<Value>,
}

/// The sort values of the tool with this id.
fn sort_values(layout: &Layout, after: Option<&str>) -> Option<Value> {
    after.map(|after| json!([key_of(layout, after)]))
}

fn clause(layout: &Layout, filter: &Filter) -> Value {
    let off = SwitchedOff::default();
    let passing = Passing {
        layout,
        filter,
        off: &off,
    };
    passing.clause()
}

/// What a tool is listed by.
fn key_of<'a>(layout: &Layout, id: &'a str) -> &'a str {
    match layout {
        Layout::Own(_) => id,
        Layout::Mapped(_) => id.split_once('/').map_or(id, |(_, name)| name),
    }
}

/// A text in which the engine's wildcards stand for themselves.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
