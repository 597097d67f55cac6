//! The usage memory of a catalog: enable or disable it, and list, export and delete its entries.
//! Requests of other users are not search results, so all of it needs a key that may write.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::ToolId;
use toolscout_index::memory::{Deletion, Entry, MAX_ENTRIES, Switch};
use utoipa::{IntoParams, ToSchema};

use crate::access::Writing;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, QueryString};
use crate::request::paging;
use crate::served::OpenCatalog;
use toolscout_base::cpu_pool::CpuPool;

/// A page of the list of entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Most entries in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The entries to delete; all of them without a filter.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForgetParams {
    /// Entries of this tool.
    tool: Option<String>,
    /// Entries of this request.
    query: Option<String>,
}

/// The switch of a usage memory.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySwitch {
    /// True stores feedback in the memory and uses the memory in searches.
    enabled: bool,
}

/// A page of a usage memory.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryPage {
    /// Whether the memory is on.
    enabled: bool,
    /// The entries, sorted by request and tool.
    entries: Vec<MemoryEntry>,
    /// Number of all entries.
    total: usize,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A request and the tool that was called for it.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryEntry {
    /// The request.
    query: String,
    /// The tool's id.
    tool: String,
    /// How often it was reported.
    times: u64,
    /// When it was last reported, in milliseconds since 1970.
    at_ms: i64,
    /// The senders of the feedback: `cli`, `http` for a server without keys, `admin:ID` or `key:ID`
    /// for a key, `unknown` for entries of an earlier version. Three different keys together count
    /// as much as any other sender.
    taught_by: Vec<String>,
}

/// The result of a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub struct Forgotten {
    /// Number of deleted entries.
    forgotten: usize,
}

/// Lists the entries of a catalog's usage memory, page by page.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/memory", operation_id = "list_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name"), PageParams),
    responses((status = 200, body = MemoryPage, description = "A page of entries"))
)]
pub async fn list(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<PageParams>,
) -> ApiResult<Json<MemoryPage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<(String, String)> = paging::after(params.cursor.as_deref())?;
    let page = cpu_pool.run(move || page(&catalog, after, limit));
    Ok(Json(page.await??))
}

/// Enables or disables a catalog's usage memory. Its entries stay until they are deleted.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/memory", operation_id = "switch_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = MemorySwitch,
    responses((status = 200, body = MemorySwitch, description = "The new state"))
)]
pub async fn switch(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Json(MemorySwitch { enabled }): Json<MemorySwitch>,
) -> ApiResult<Json<MemorySwitch>> {
    let switch = if enabled { Switch::On } else { Switch::Off };
    let switching = move |catalog: &OpenCatalog| catalog.switch_memory(switch);
    catalog.change_memory(&cpu_pool, switching).await?;
    Ok(Json(MemorySwitch { enabled }))
}

/// Exports all entries of a catalog's usage memory as NDJSON.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/memory/export", operation_id = "export_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, content_type = "application/x-ndjson", body = String, description = "One entry per line"))
)]
pub async fn export(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Response> {
    // All at once, since a memory has a bounded number of entries.
    let entries = cpu_pool
        .run(move || catalog.memory().entries(None, MAX_ENTRIES))
        .await??;
    let mut lines = String::new();
    for entry in &entries {
        // Structs of strings and numbers always serialise.
        lines += &serde_json::to_string(entry).unwrap_or_default();
        lines.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

/// Deletes the entries of a tool or of a request, or all entries.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/memory", operation_id = "forget_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name"), ForgetParams),
    responses((status = 200, body = Forgotten, description = "The number of deleted entries"))
)]
pub async fn forget(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<ForgetParams>,
) -> ApiResult<Json<Forgotten>> {
    let what = match (params.tool, params.query) {
        (Some(tool), None) => Deletion::Tool(ToolId::parse(&tool)?),
        (None, Some(query)) => Deletion::Query(query),
        (None, None) => Deletion::All,
        // It is not clear whether both have to match, and a deletion must not be a guess.
        (Some(_), Some(_)) => {
            let message = "give `tool` or `query`, or neither to delete every entry";
            return Err(ApiError::unprocessable("invalid_value", message));
        }
    };
    let forgetting = move |catalog: &OpenCatalog| catalog.forget_memory(&what);
    let forgotten = catalog.change_memory(&cpu_pool, forgetting).await?;
    Ok(Json(Forgotten { forgotten }))
}

fn page(
    catalog: &OpenCatalog,
    after: Option<(String, String)>,
    limit: usize,
) -> toolscout_index::Result<MemoryPage> {
    let memory = catalog.memory();
    let after = after.as_ref();
    let after = after.map(|(query, tool)| (query.as_str(), tool.as_str()));
    // One more than the page has, to know whether there is a next page.
    let mut entries = memory.entries(after, limit + 1)?;
    let has_more = entries.len() > limit;
    entries.truncate(limit);
    let next_cursor = match entries.last() {
        Some(last) if has_more => Some(paging::cursor_after(&(&last.query, &last.tool))),
        _ => None,
    };
    Ok(MemoryPage {
        enabled: memory.switch()? == Switch::On,
        entries: entries.into_iter().map(MemoryEntry::from).collect(),
        total: memory.len()?,
        next_cursor,
    })
}

impl From<Entry> for MemoryEntry {
    fn from(entry: Entry) -> Self {
        MemoryEntry {
            query: entry.query,
            tool: entry.tool.to_string(),
            times: entry.times,
            at_ms: entry.at_ms,
            taught_by: entry.taught_by.iter().map(ToString::to_string).collect(),
        }
    }
}
