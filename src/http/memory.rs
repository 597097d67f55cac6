//! Usage memory: switch it on or off, list, export and forget what is remembered. What others asked
//! is no search result, so all of it needs a key that may write.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use toolscout_index::ToolId;
use toolscout_index::memory::{Entry, Forget, MAX_ENTRIES, Switch, Teacher};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::access::Writing;
use super::error::{ApiError, ApiResult};
use super::extract::{Json, QueryString};
use super::registry::OpenCatalog;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// Which page of the memory to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Most entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// What is to be forgotten; everything where neither is given.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForgetParams {
    /// What led to this tool.
    tool: Option<String>,
    /// This request, whatever tool it led to.
    query: Option<String>,
}

/// Whether a catalog remembers.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySwitch {
    /// True remembers what feedback says, and asks it in searches.
    enabled: bool,
}

/// A page of a catalog's memory.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryPage {
    /// Whether it remembers and is asked.
    enabled: bool,
    /// By request and tool.
    entries: Vec<MemoryEntry>,
    /// Number of all entries.
    total: usize,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A request and the tool that was then called.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemoryEntry {
    /// What was asked.
    query: String,
    /// The tool's id.
    tool: String,
    /// How often.
    times: u64,
    /// When last, in milliseconds since 1970.
    at_ms: i64,
    /// Who said so: `cli`, `http` for a server without keys, `admin:ID` or `key:ID` for a key,
    /// `unknown` for what an earlier version remembered. Three different keys count as much as
    /// anyone else.
    taught_by: Vec<String>,
}

/// What was forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub struct Forgotten {
    /// Number of entries.
    forgotten: usize,
}

/// Lists what a catalog remembers, page by page.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/memory", operation_id = "list_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name"), PageParams),
    responses((status = 200, body = MemoryPage))
)]
pub async fn list(
    Writing(catalog): Writing,
    State(app): State<App>,
    QueryString(params): QueryString<PageParams>,
) -> ApiResult<Json<MemoryPage>> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit is {limit}, it must be from 1 to {MAX_LIMIT}");
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    let after = params.cursor.as_deref().map(read_cursor).transpose()?;
    Ok(Json(
        app.pool.run(move || page(&catalog, after, limit)).await??,
    ))
}

/// Switches a catalog's memory on or off. What is remembered stays until it is forgotten.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/memory", operation_id = "switch_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = MemorySwitch,
    responses((status = 200, body = MemorySwitch))
)]
pub async fn switch(
    Writing(catalog): Writing,
    State(app): State<App>,
    Json(MemorySwitch { enabled }): Json<MemorySwitch>,
) -> ApiResult<Json<MemorySwitch>> {
    let switch = if enabled { Switch::On } else { Switch::Off };
    app.pool
        .run(move || catalog.memory().set_switch(switch))
        .await??;
    Ok(Json(MemorySwitch { enabled }))
}

/// Gives all that a catalog remembers as NDJSON.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/memory/export", operation_id = "export_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, content_type = "application/x-ndjson", body = String))
)]
pub async fn export(Writing(catalog): Writing, State(app): State<App>) -> ApiResult<Response> {
    let entries = app
        .pool
        .run(move || catalog.memory().entries(None, MAX_ENTRIES))
        .await??;
    let lines = entries
        .iter()
        .map(|entry| serde_json::to_string(entry).unwrap_or_default() + "\n");
    Ok((
        [(header::CONTENT_TYPE, "application/x-ndjson")],
        lines.collect::<String>(),
    )
        .into_response())
}

/// Forgets: what led to a tool, a request, or everything.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/memory", operation_id = "forget_memory", tag = "memory",
    params(("catalog" = String, Path, description = "The catalog's name"), ForgetParams),
    responses((status = 200, body = Forgotten))
)]
pub async fn forget(
    Writing(catalog): Writing,
    State(app): State<App>,
    QueryString(params): QueryString<ForgetParams>,
) -> ApiResult<Json<Forgotten>> {
    let what = match (params.tool, params.query) {
        (Some(tool), None) => Forget::Tool(ToolId::parse(&tool)?),
        (None, Some(query)) => Forget::Query(query),
        (None, None) => Forget::All,
        (Some(_), Some(_)) => {
            let message = "give a tool or a query, or neither to forget everything";
            return Err(ApiError::unprocessable("invalid_value", message));
        }
    };
    let forgotten = app
        .pool
        .run(move || catalog.memory().forget(&what))
        .await??;
    Ok(Json(Forgotten { forgotten }))
}

/// Remembers what feedback says, where the catalog does.
///
/// # Errors
/// 500 when the file cannot be written.
pub async fn remember(
    app: &App,
    catalog: Arc<OpenCatalog>,
    query: String,
    tool: ToolId,
    teacher: Teacher,
) -> ApiResult<()> {
    let at_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as i64;
    app.pool
        .run(move || catalog.memory().remember(&query, &tool, at_ms, &teacher))
        .await??;
    Ok(())
}

fn page(
    catalog: &OpenCatalog,
    after: Option<(String, String)>,
    limit: usize,
) -> toolscout_index::Result<MemoryPage> {
    let memory = catalog.memory();
    let after = after
        .as_ref()
        .map(|(query, tool)| (query.as_str(), tool.as_str()));
    let mut entries = memory.entries(after, limit + 1)?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next_cursor = entries.last().filter(|_| more).map(cursor);
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

fn cursor(last: &Entry) -> String {
    let place = serde_json::to_vec(&(&last.query, &last.tool)).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(place)
}

fn read_cursor(cursor: &str) -> ApiResult<(String, String)> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .ok_or_else(|| {
            let message = format!(
                "cursor {cursor:?} is none of ours; give next_cursor of the page before, or none"
            );
            ApiError::invalid(StatusCode::BAD_REQUEST, "invalid_cursor", message)
        })
}
