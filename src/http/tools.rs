//! Tools of a catalog: list, bulk upsert, one by its id, delete by filter.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use toolscout_index::formats::{self, Parsed, ReadOptions};
use toolscout_index::{Changes, Filter, Searcher, Tool, ToolId};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::access::{Reading, Writing};
use super::error::{ApiError, ApiResult};
use super::extract::{self, Json, Path, QueryString, RawBody};
use super::registry::OpenCatalog;
use super::stream;
use super::tasks::{self, MAX_LISTED_FAILURES, Task};
use super::wire::{ChangeCounts, ItemError, ItemResult, ItemStatus, ToolBody, status_of};
use super::write_queue::{Change, Written};

/// Tools of a page when the request does not say.
const DEFAULT_LIMIT: usize = 100;
/// Most tools of a page.
const MAX_LIMIT: usize = 1000;
/// A page ends early at this size, with one tool at least.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// Loads of more tools than this become tasks.
const MAX_TOOLS_IN_REQUEST: usize = 1000;
/// Tools that a task commits at once, so that other changes come between.
const TASK_STEP: usize = 500;

/// Which page of the tools.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most tools of the page.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Only tools of this server.
    server: Option<String>,
}

/// A page of tools.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolPage {
    /// By id.
    pub tools: Vec<ToolBody>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Tools in the catalog.
    pub total: usize,
    /// The commit that the page shows.
    pub generation: u64,
}

/// How tools in a body are taken.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LoadParams {
    /// The server of every tool, whatever the body says.
    server: Option<String>,
    /// The server where the body names none.
    default_server: Option<String>,
}

impl LoadParams {
    /// Every tool is of this server.
    pub(super) fn of_server(server: &str) -> Self {
        LoadParams {
            server: Some(server.to_owned()),
            default_server: None,
        }
    }

    /// What the parser is told.
    pub(super) fn read_options(self) -> ReadOptions {
        ReadOptions {
            source_name: "request body".into(),
            server: self.server,
            default_server: self.default_server,
            ..ReadOptions::default()
        }
    }
}

/// What a bulk upsert did.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpsertAnswer {
    /// In numbers.
    pub result: ChangeCounts,
    /// A result for each item, in the order of the request.
    pub items: Vec<ItemResult>,
    /// The commit that holds the change.
    pub generation: u64,
}

/// What a change to one tool did.
#[derive(Debug, Serialize, ToSchema)]
pub struct PutAnswer {
    /// The tool's id.
    pub id: String,
    /// What became of it.
    pub status: ItemStatus,
    /// The commit that holds the change.
    pub generation: u64,
}

/// Which tools to delete: those for which all of it holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteParams {
    /// Tools of this server.
    server: Option<String>,
    /// Tools with this tag.
    tag: Option<String>,
    /// Tools whose read-only hint is this.
    read_only: Option<bool>,
    /// Tools whose destructive hint is this.
    destructive: Option<bool>,
}

/// What a delete did.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeleteAnswer {
    /// Ids of the tools taken out.
    pub removed: Vec<String>,
    /// The commit that holds the change.
    pub generation: u64,
}

/// Lists the tools of a catalog, page by page.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/tools", operation_id = "list_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ListParams),
    responses((status = 200, body = ToolPage))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(app): State<App>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<ToolPage>> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit is {limit}, it must be from 1 to {MAX_LIMIT}");
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    let after = params.cursor.as_deref().map(read_cursor).transpose()?;
    let searcher = catalog.searcher();
    app.pool
        .run(move || page(&searcher, after.as_deref(), params.server.as_deref(), limit))
        .await
        .map(Json)
}

/// Adds or replaces many tools, in any accepted format.
///
/// JSON in one body is one change: all valid items or none. A body with more than 1000 invalid
/// items is refused. More than 1000 tools, or `Prefer: respond-async`, answer 202 with a task.
/// NDJSON is committed as it comes, and answered with NDJSON: a result for each line.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/tools", operation_id = "upsert_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), LoadParams),
    request_body(content(
        (serde_json::Value = "application/json"), (String = "application/x-ndjson"), (serde_json::Value = "application/yaml")
    )),
    responses(
        (status = 200, content((UpsertAnswer = "application/json"), (String = "application/x-ndjson"))),
        (status = 202, body = tasks::TaskBody)
    )
)]
pub async fn upsert(
    Writing(catalog): Writing,
    State(app): State<App>,
    QueryString(params): QueryString<LoadParams>,
    request: Request,
) -> ApiResult<Response> {
    let options = params.read_options();
    match extract::media_type(request.headers())?.as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            Ok(stream::upsert(app, catalog, options, request.into_body()))
        }
        _ => {
            let headers = request.headers().clone();
            let parsed = read_tools(&app, request, options).await?;
            upsert_parsed(&app, &catalog, parsed, &headers).await
        }
    }
}

/// Gives one tool.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/tools/{id}", operation_id = "show_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id; `/` may be written as it is")),
    responses((status = 200, body = ToolBody))
)]
pub async fn show(
    Reading(catalog): Reading,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<Json<ToolBody>> {
    let tool = ToolId::parse(&id)
        .ok()
        .and_then(|id| catalog.searcher().tool(&id));
    let tool = tool.ok_or_else(|| unknown_tool(&id, &catalog.name))?;
    Ok(Json(ToolBody::from(&*tool)))
}

/// Adds or replaces one tool, in any accepted format; its name has to be the one in the path.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/tools/{id}", operation_id = "put_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id; `/` may be written as it is")),
    request_body = Object,
    responses((status = 200, body = PutAnswer), (status = 201, body = PutAnswer))
)]
pub async fn put(
    Writing(catalog): Writing,
    State(app): State<App>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
    request: Request,
) -> ApiResult<Response> {
    let id = ToolId::parse(&id)?;
    let options = LoadParams::of_server(id.server()).read_options();
    let tool = only_tool(read_tools(&app, request, options).await?, &id)?;
    let Written {
        changes,
        generation,
    } = catalog.writes.try_write(Change::Upsert(vec![tool])).await?;
    let status = status_of(&id, &changes);
    let code = if status == ItemStatus::Added {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((
        code,
        Json(PutAnswer {
            id: id.to_string(),
            status,
            generation,
        }),
    )
        .into_response())
}

/// Deletes one tool.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/tools/{id}", operation_id = "delete_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id; `/` may be written as it is")),
    responses((status = 204, description = "It is gone"))
)]
pub async fn remove(
    Writing(catalog): Writing,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<StatusCode> {
    let parsed = ToolId::parse(&id).map_err(|_| unknown_tool(&id, &catalog.name))?;
    let written = catalog
        .writes
        .try_write(Change::Remove(vec![parsed]))
        .await?;
    match written.changes.removed.is_empty() {
        true => Err(unknown_tool(&id, &catalog.name)),
        false => Ok(StatusCode::NO_CONTENT),
    }
}

/// Deletes the tools that a filter accepts. An empty filter is refused: delete the catalog instead.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/tools", operation_id = "delete_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), DeleteParams),
    responses((status = 200, body = DeleteAnswer))
)]
pub async fn remove_matching(
    Writing(catalog): Writing,
    State(app): State<App>,
    QueryString(params): QueryString<DeleteParams>,
) -> ApiResult<Json<DeleteAnswer>> {
    let filter = Filter {
        servers: params.server.into_iter().collect(),
        tags: params.tag.into_iter().collect(),
        read_only: params.read_only,
        destructive: params.destructive,
        ..Filter::default()
    };
    if filter.is_empty() {
        let message = "say which tools: server, tag, read_only or destructive; to delete all, delete the catalog";
        return Err(ApiError::unprocessable("empty_filter", message));
    }
    let searcher = catalog.searcher();
    let ids = move || {
        searcher
            .tools()
            .filter(|tool| filter.accepts(tool))
            .map(|tool| tool.id.clone())
            .collect()
    };
    let written = catalog
        .writes
        .try_write(Change::Remove(app.pool.run(ids).await?))
        .await?;
    Ok(Json(DeleteAnswer {
        removed: texts(&written.changes.removed),
        generation: written.generation,
    }))
}

/// A catalog and a tool of it.
#[derive(Debug, Deserialize)]
pub struct ItemPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    id: String,
}

/// Reads the tools in a body, of which few may be large at one time.
///
/// # Errors
/// 503 when too many are, 415 for another type, 400 for a body in no known format.
pub(super) async fn read_tools(
    app: &App,
    request: Request,
    options: ReadOptions,
) -> ApiResult<Parsed> {
    let media_type = extract::media_type(request.headers())?;
    let yaml = ["application/yaml", "application/x-yaml", "text/yaml"];
    if !extract::is_json(&media_type) && !yaml.contains(&media_type.as_str()) {
        return Err(extract::unsupported(
            "application/json, application/yaml or application/x-ndjson",
        ));
    }
    let _place = app.bulk_bodies.try_acquire().map_err(|_| {
        app.metrics.rejected("bulk_bodies");
        ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "too many large bodies are being read; try again later",
        )
    })?;
    let RawBody(bytes) = RawBody::from_request(request, &()).await?;
    Ok(app
        .pool
        .run(move || formats::parse(&bytes, &options))
        .await??)
}

/// Refuses a body with any item that is no valid tool; for changes that must be whole.
///
/// # Errors
/// 422 with the first bad item.
pub(super) fn all_valid(parsed: Parsed) -> ApiResult<Vec<Tool>> {
    match parsed.skipped.into_iter().next() {
        Some(skipped) => Err(ApiError::from(skipped.error)),
        None => Ok(parsed.tools),
    }
}

/// True for loads that go on after the answer.
pub(super) fn is_large(tools: usize, headers: &HeaderMap) -> bool {
    let asked = headers
        .get("prefer")
        .and_then(|prefer| prefer.to_str().ok())
        .is_some_and(|prefer| {
            prefer
                .split(',')
                .any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
        });
    asked || tools > MAX_TOOLS_IN_REQUEST
}

/// Ids as text.
pub(super) fn texts(ids: &[ToolId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// The error for a tool that is not there.
pub(super) fn unknown_tool(id: &str, catalog: &str) -> ApiError {
    ApiError::not_found(
        "unknown_tool",
        format!("no tool {id:?} in the catalog {catalog:?}"),
    )
}

fn page(searcher: &Searcher, after: Option<&str>, server: Option<&str>, limit: usize) -> ToolPage {
    let mut ids = searcher
        .ids_after(after)
        .filter(|id| server.is_none_or(|server| id.server() == server))
        .peekable();
    let (mut tools, mut bytes, mut last) = (Vec::new(), 0, None);
    while tools.len() < limit && bytes < MAX_PAGE_BYTES {
        let Some(id) = ids.next() else { break };
        last = Some(id);
        if let Some(tool) = searcher.tool(id) {
            bytes += size(&tool);
            tools.push(ToolBody::from(&*tool));
        }
    }
    let next_cursor = last
        .filter(|_| ids.peek().is_some())
        .map(|id| cursor(id.as_str()));
    ToolPage {
        tools,
        next_cursor,
        total: searcher.len(),
        generation: searcher.generation(),
    }
}

/// Bytes of a tool as JSON.
fn size(tool: &Tool) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut count, tool);
    count.0
}

/// Cursors are opaque, so that what they hold may change. A tool that is deleted between two pages
/// leaves them valid.
fn cursor(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR_VERSION}{id}"))
}

const CURSOR_VERSION: char = '1';

fn read_cursor(cursor: &str) -> ApiResult<String> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let id = bytes.and_then(|bytes| {
        String::from_utf8(bytes)
            .ok()?
            .strip_prefix(CURSOR_VERSION)
            .map(str::to_owned)
    });
    id.ok_or_else(|| {
        let message = format!(
            "cursor {cursor:?} is none of ours; give next_cursor of the page before, or none"
        );
        ApiError::invalid(StatusCode::BAD_REQUEST, "invalid_cursor", message)
    })
}

async fn upsert_parsed(
    app: &App,
    catalog: &Arc<OpenCatalog>,
    parsed: Parsed,
    headers: &HeaderMap,
) -> ApiResult<Response> {
    if is_large(parsed.tools.len(), headers) {
        return start_upsert(app, catalog, parsed);
    }
    let (ids, failures) = outline(&parsed);
    let Written {
        changes,
        generation,
    } = catalog
        .writes
        .try_write(Change::Upsert(parsed.tools))
        .await?;
    let mut result = ChangeCounts {
        failed: failures.len(),
        ..ChangeCounts::default()
    };
    result.add(&changes);
    Ok(Json(UpsertAnswer {
        result,
        items: item_results(ids, failures, &changes),
        generation,
    })
    .into_response())
}

fn start_upsert(app: &App, catalog: &Arc<OpenCatalog>, parsed: Parsed) -> ApiResult<Response> {
    let (_, mut failures) = outline(&parsed);
    let catalog = Arc::clone(catalog);
    let task = app.tasks.start(
        &catalog.name.clone(),
        parsed.tools.len(),
        move |task| async move {
            task.update(|body| {
                body.result.failed = failures.len();
                failures.truncate(MAX_LISTED_FAILURES);
                body.failures = failures;
            });
            upsert_stepwise(&task, &catalog, parsed.tools).await
        },
    )?;
    Ok(tasks::accepted(&task))
}

async fn upsert_stepwise(task: &Task, catalog: &OpenCatalog, tools: Vec<Tool>) -> ApiResult<()> {
    for step in tools.chunks(TASK_STEP) {
        if task.is_cancelled() {
            return Ok(());
        }
        let written = catalog.writes.write(Change::Upsert(step.to_vec())).await?;
        task.update(|body| {
            body.done += step.len();
            body.result.add(&written.changes);
        });
    }
    Ok(())
}

/// The valid tools' ids with their positions, and the results of the bad items.
fn outline(parsed: &Parsed) -> (Vec<(usize, ToolId)>, Vec<ItemResult>) {
    let failures: Vec<ItemResult> = parsed.skipped.iter().map(failed_item).collect();
    let items = parsed.tools.len() + failures.len();
    let mut bad = failures.iter().map(|failure| failure.item).peekable();
    let positions = (1..=items).filter(|position| bad.next_if_eq(position).is_none());
    let ids = positions
        .zip(&parsed.tools)
        .map(|(position, tool)| (position, tool.id.clone()))
        .collect();
    (ids, failures)
}

pub(super) fn failed_item(skipped: &formats::Skipped) -> ItemResult {
    ItemResult {
        item: skipped.line.unwrap_or(skipped.index),
        id: skipped.name.clone(),
        status: ItemStatus::Failed,
        error: Some(item_error(&skipped.error)),
    }
}

fn item_error(error: &toolscout_index::Error) -> ItemError {
    let code = match error {
        toolscout_index::Error::DuplicateTool { .. } => "duplicate_tool",
        toolscout_index::Error::Parse { .. } => "unreadable_tools",
        _ => "invalid_tool",
    };
    ItemError {
        code: code.to_owned(),
        message: error.to_string(),
    }
}

fn item_results(
    ids: Vec<(usize, ToolId)>,
    failures: Vec<ItemResult>,
    changes: &Changes,
) -> Vec<ItemResult> {
    let good = ids.into_iter().map(|(item, id)| {
        let status = status_of(&id, changes);
        ItemResult {
            item,
            id: Some(id.to_string()),
            status,
            error: None,
        }
    });
    let mut results: Vec<ItemResult> = good.chain(failures).collect();
    results.sort_by_key(|result| result.item);
    results
}

fn only_tool(parsed: Parsed, id: &ToolId) -> ApiResult<Tool> {
    let mut tools = all_valid(parsed)?;
    let count = tools.len();
    let tool = tools.pop().filter(|_| count == 1).ok_or_else(|| {
        ApiError::unprocessable(
            "invalid_tool",
            format!("the body holds {count} tools; this route takes one"),
        )
    })?;
    if tool.id != *id {
        let message = format!(
            "the tool in the body is {:?}, the path says {:?}; make them equal",
            tool.id, id
        );
        return Err(ApiError::unprocessable("id_mismatch", message));
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_others_refused() {
        assert_eq!(read_cursor(&cursor("a/ä b")).unwrap(), "a/ä b");
        for bad in ["", "x", "!!", "AAAA"] {
            assert_eq!(
                read_cursor(bad).unwrap_err().code,
                "invalid_cursor",
                "{bad:?}"
            );
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let body = br#"[{"name":"a"},{"nome":"b"},{"name":"c"},{"name":"a"}]"#;
        let (ids, failures) = outline(&formats::parse(body, &ReadOptions::default()).unwrap());
        let changes = Changes {
            added: vec![ToolId::parse("a").unwrap()],
            ..Changes::default()
        };
        let results = item_results(ids, failures, &changes);
        let statuses: Vec<_> = results
            .iter()
            .map(|result| (result.item, result.status))
            .collect();
        use ItemStatus::{Added, Failed, Unchanged};
        assert_eq!(
            statuses,
            [(1, Added), (2, Failed), (3, Unchanged), (4, Failed)]
        );
        assert_eq!(results[3].error.as_ref().unwrap().code, "duplicate_tool");
    }
}
