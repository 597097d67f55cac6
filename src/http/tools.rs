//! The tools of a catalog: list, bulk upsert, delete by filter, and single tools by id.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::formats::{self, Parsed, ReadOptions};
use toolscout_index::{Changes, Filter, Searcher, Tool, ToolId};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::access::{Reading, Writing};
use super::error::{ApiError, ApiResult};
use super::extract::{self, Json, Path, QueryString, RawBody};
use super::registry::OpenCatalog;
use super::tasks::{self, MAX_LISTED_FAILURES, Task};
use super::wire::{ChangeCounts, ItemError, ItemResult, ItemStatus, ToolBody};
use super::{paging, stream};
use crate::catalog_writer::{Change, Written};

/// A page ends early when its tools reach this size. It has at least one tool.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// A body with more tools than this becomes a task.
const MAX_TOOLS_IN_REQUEST: usize = 1000;
/// Tools in one commit of a task. Other changes are written between two commits.
const TASK_STEP: usize = 500;

/// A page of the list of tools.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most tools in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only tools of this server.
    server: Option<String>,
}

/// A page of tools.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolPage {
    /// The tools, sorted by id.
    pub tools: Vec<ToolBody>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of tools in the catalog.
    pub total: usize,
    /// The generation of the catalog that the page shows.
    pub generation: u64,
}

/// How the tools of a body are read.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LoadParams {
    /// The server of every tool, in place of the one in the body.
    server: Option<String>,
    /// The server of tools for which the body has none.
    default_server: Option<String>,
    /// Accepts a body without any valid item: the answer is then 200 and lists the failures. By
    /// default it is 422. A body with some valid items is always accepted, and so is NDJSON.
    skip_invalid: Option<bool>,
}

impl LoadParams {
    /// Puts every tool on this server.
    pub(super) fn of_server(server: &str) -> Self {
        LoadParams {
            server: Some(server.to_owned()),
            ..LoadParams::default()
        }
    }

    /// The options of the parser.
    pub(super) fn read_options(self) -> ReadOptions {
        ReadOptions {
            source_name: "request body".into(),
            server: self.server,
            default_server: self.default_server,
            ..ReadOptions::default()
        }
    }
}

/// The result of a bulk upsert.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpsertAnswer {
    /// The number of tools by outcome.
    pub result: ChangeCounts,
    /// The outcome of each item, in the order of the request.
    pub items: Vec<ItemResult>,
    /// The generation of the catalog that holds the change.
    pub generation: u64,
}

/// The result of a change to one tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct PutAnswer {
    /// The tool's id.
    pub id: String,
    /// The outcome.
    pub status: ItemStatus,
    /// The generation of the catalog that holds the change.
    pub generation: u64,
}

/// Which tools to delete: those that pass every filter.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteParams {
    /// Tools of this server.
    server: Option<String>,
    /// Tools with this tag.
    tag: Option<String>,
    /// Tools with this read-only hint.
    read_only: Option<bool>,
    /// Tools with this destructive hint.
    destructive: Option<bool>,
}

/// The result of a delete.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeleteAnswer {
    /// The ids of the deleted tools.
    pub removed: Vec<String>,
    /// The generation of the catalog that holds the change.
    pub generation: u64,
}

/// Lists the tools of a catalog, page by page.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/tools", operation_id = "list_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ListParams),
    responses((status = 200, body = ToolPage, description = "A page of tools"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(app): State<App>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<ToolPage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = match &params.cursor {
        Some(cursor) => Some(paging::read_cursor(cursor)?),
        None => None,
    };
    let searcher = catalog.searcher();
    let page = app
        .search_pool
        .run(move || page(&searcher, after.as_deref(), params.server.as_deref(), limit));
    page.await.map(Json)
}

/// Adds or replaces many tools, in any accepted format.
///
/// A JSON body is one change: its valid items are written together, and its invalid ones are
/// listed as failed. A body with items of which none is valid, or more than 1000 are invalid, is
/// refused. More than 1000 tools, or `Prefer: respond-async`, are answered with 202 and a task.
/// NDJSON is committed as it arrives, and answered with NDJSON: a result for each line.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/tools", operation_id = "upsert_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), LoadParams),
    request_body(content(
        (serde_json::Value = "application/json"), (String = "application/x-ndjson"), (serde_json::Value = "application/yaml")
    )),
    responses(
        (status = 200, description = "The outcome of each item", content((UpsertAnswer = "application/json"), (String = "application/x-ndjson"))),
        (status = 202, body = tasks::TaskBody, description = "The task that writes the tools")
    )
)]
pub async fn upsert(
    Writing(catalog): Writing,
    State(app): State<App>,
    QueryString(params): QueryString<LoadParams>,
    request: Request,
) -> ApiResult<Response> {
    let skip_invalid = params.skip_invalid.unwrap_or_default();
    let options = params.read_options();
    match extract::media_type(request.headers())?.as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            Ok(stream::upsert(app, catalog, options, request.into_body()))
        }
        _ => {
            let headers = request.headers().clone();
            let parsed = read_tools(&app, request, options).await?;
            if !skip_invalid {
                require_valid_item(&parsed)?;
            }
            upsert_parsed(&app, &catalog, parsed, &headers).await
        }
    }
}

/// Shows one tool.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/tools/{*id}", operation_id = "show_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 200, body = ToolBody, description = "The tool"))
)]
pub async fn show(
    Reading(catalog): Reading,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<Json<ToolBody>> {
    let tool = find_tool(&catalog, &id)?;
    Ok(Json(ToolBody::from(&*tool)))
}

/// Adds or replaces one tool, in any accepted format. Its name must be the one in the path.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/tools/{*id}", operation_id = "put_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    request_body = Object,
    responses(
        (status = 200, body = PutAnswer, description = "The tool existed"),
        (status = 201, body = PutAnswer, description = "The tool is new")
    )
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
    } = catalog.writer.try_write(Change::Upsert(vec![tool])).await?;
    let status = ItemStatus::of(&id, &changes);
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
    delete, path = "/v1/catalogs/{catalog}/tools/{*id}", operation_id = "delete_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 204, description = "The tool was deleted"))
)]
pub async fn remove(
    Writing(catalog): Writing,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<StatusCode> {
    let parsed = ToolId::parse(&id).map_err(|_| unknown_tool(&id, &catalog.name))?;
    let written = catalog
        .writer
        .try_write(Change::Remove(vec![parsed]))
        .await?;
    if written.changes.removed.is_empty() {
        Err(unknown_tool(&id, &catalog.name))
    } else {
        Ok(StatusCode::NO_CONTENT)
    }
}

/// Deletes the tools that pass a filter. An empty filter is refused; to delete every tool, delete
/// the catalog.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/tools", operation_id = "delete_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), DeleteParams),
    responses((status = 200, body = DeleteAnswer, description = "The deleted tools"))
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
        let message = "the filter is empty; give server, tag, read_only or destructive, or delete the catalog to delete every tool";
        return Err(ApiError::unprocessable("empty_filter", message));
    }
    let searcher = catalog.searcher();
    let matching = app.search_pool.run(move || {
        searcher
            .tools()
            .filter(|tool| filter.accepts(tool))
            .map(|tool| tool.id.clone())
            .collect()
    });
    let written = catalog
        .writer
        .try_write(Change::Remove(matching.await?))
        .await?;
    Ok(Json(DeleteAnswer {
        removed: to_strings(&written.changes.removed),
        generation: written.generation,
    }))
}

/// The path of a tool.
#[derive(Debug, Deserialize)]
pub struct ItemPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    id: String,
}

/// Reads the tools of a body. A bounded number of bodies is read at one time, since they may be
/// large.
///
/// # Errors
/// 415 for another media type, 503 while too many bodies are read, 400 for an unknown format.
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
    let _permit = app.bulk_bodies.try_acquire().map_err(|_| {
        app.metrics.rejected("bulk_bodies");
        ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "the server is reading as many bodies of tools as it can; try again later",
        )
    })?;
    let RawBody(bytes) = RawBody::from_request(request, &()).await?;
    Ok(app
        .search_pool
        .run(move || formats::parse(&bytes, &options))
        .await??)
}

/// The tools of a body in which every item must be valid.
///
/// # Errors
/// 422 with the first invalid item.
pub(super) fn all_valid(parsed: Parsed) -> ApiResult<Vec<Tool>> {
    match parsed.skipped.into_iter().next() {
        Some(skipped) => Err(ApiError::from(skipped.error)),
        None => Ok(parsed.tools),
    }
}

/// Whether the load is answered with 202 and runs as a task: large ones do, and those of clients
/// that ask for it.
pub(super) fn runs_as_task(tools: usize, headers: &HeaderMap) -> bool {
    tools > MAX_TOOLS_IN_REQUEST || prefers_async(headers)
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let Some(prefer) = headers.get("prefer").and_then(|value| value.to_str().ok()) else {
        return false;
    };
    prefer
        .split(',')
        .any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
}

/// The ids as strings.
pub(super) fn to_strings(ids: &[ToolId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// The tool with this id.
///
/// # Errors
/// 404 when the catalog has none.
pub(super) fn find_tool(catalog: &OpenCatalog, id: &str) -> ApiResult<Arc<Tool>> {
    ToolId::parse(id)
        .ok()
        .and_then(|id| catalog.searcher().tool(&id))
        .ok_or_else(|| unknown_tool(id, &catalog.name))
}

fn unknown_tool(id: &str, catalog: &str) -> ApiError {
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
    // The size is checked before a tool is added, so a page has at least one.
    while tools.len() < limit && bytes < MAX_PAGE_BYTES {
        let Some(id) = ids.next() else { break };
        last = Some(id);
        if let Some(tool) = searcher.tool(id) {
            bytes += json_bytes(&tool);
            tools.push(ToolBody::from(&*tool));
        }
    }
    let next_cursor = last
        // Without further tools there is no next page, even if the page is full.
        .filter(|_| ids.peek().is_some())
        .map(|id| paging::cursor_after(id.as_str()));
    ToolPage {
        tools,
        next_cursor,
        total: searcher.len(),
        generation: searcher.generation(),
    }
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

async fn upsert_parsed(
    app: &App,
    catalog: &Arc<OpenCatalog>,
    parsed: Parsed,
    headers: &HeaderMap,
) -> ApiResult<Response> {
    if runs_as_task(parsed.tools.len(), headers) {
        return start_upsert(app, catalog, parsed);
    }
    let (ids, failures) = positions(&parsed);
    let Written {
        changes,
        generation,
    } = catalog
        .writer
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
    let (_, mut failures) = positions(&parsed);
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
            upsert_in_steps(&task, &catalog, parsed.tools).await
        },
    )?;
    Ok(tasks::accepted(&task))
}

async fn upsert_in_steps(task: &Task, catalog: &OpenCatalog, tools: Vec<Tool>) -> ApiResult<()> {
    for step in tools.chunks(TASK_STEP) {
        if task.is_cancelled() {
            return Ok(());
        }
        let written = catalog.writer.write(Change::Upsert(step.to_vec())).await?;
        task.update(|body| {
            body.done += step.len();
            body.result.add(&written.changes);
        });
    }
    Ok(())
}

/// Refuses a body that has items, none of them valid.
///
/// # Errors
/// 422 with the error of each item.
fn require_valid_item(parsed: &Parsed) -> ApiResult<()> {
    if !parsed.tools.is_empty() || parsed.skipped.is_empty() {
        return Ok(());
    }
    let items: Vec<ItemResult> = parsed.skipped.iter().map(failed_item).collect();
    let message = match items.len() {
        1 => "the item of the body is not a valid tool; error.items has the reason".to_owned(),
        count => format!(
            "none of the {count} items of the body is a valid tool; error.items has the reasons"
        ),
    };
    Err(ApiError {
        items,
        ..ApiError::unprocessable("no_valid_tools", message)
    })
}

/// The ids of the valid tools with their positions in the body, and the results of invalid items.
fn positions(parsed: &Parsed) -> (Vec<(usize, ToolId)>, Vec<ItemResult>) {
    let failures: Vec<ItemResult> = parsed.skipped.iter().map(failed_item).collect();
    let items = parsed.tools.len() + failures.len();
    // The parser keeps tools and invalid items apart, both in order: the tools have the positions
    // that no invalid item has.
    let mut invalid = failures.iter().map(|failure| failure.item).peekable();
    let ids = (1..=items)
        .filter(|position| invalid.next_if_eq(position).is_none())
        .zip(&parsed.tools)
        .map(|(position, tool)| (position, tool.id.clone()))
        .collect();
    (ids, failures)
}

/// The result of an item that the parser skipped.
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
    let mut results = failures;
    for (item, id) in ids {
        results.push(ItemResult {
            item,
            status: ItemStatus::of(&id, changes),
            id: Some(id.to_string()),
            error: None,
        });
    }
    results.sort_by_key(|result| result.item);
    results
}

fn only_tool(parsed: Parsed, id: &ToolId) -> ApiResult<Tool> {
    let mut tools = all_valid(parsed)?;
    let count = tools.len();
    let tool = tools.pop().filter(|_| count == 1).ok_or_else(|| {
        ApiError::unprocessable(
            "invalid_tool",
            format!("the body has {count} tools, this route takes exactly one"),
        )
    })?;
    if tool.id != *id {
        let message = format!(
            "the tool in the body is {:?} and the path is of {:?}; make them equal",
            tool.id, id
        );
        return Err(ApiError::unprocessable("id_mismatch", message));
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &[u8]) -> Parsed {
        formats::parse(body, &ReadOptions::default()).unwrap()
    }

    #[test]
    fn a_body_needs_a_valid_item_unless_it_is_empty() {
        let error = require_valid_item(&parse(br#"[{"nome":"a"},{"nome":"b"}]"#)).unwrap_err();
        assert_eq!((error.code, error.items.len()), ("no_valid_tools", 2));
        assert!(error.message.contains("2 items"), "{}", error.message);
        assert!(require_valid_item(&parse(br#"[{"nome":"a"},{"name":"b"}]"#)).is_ok());
        assert!(require_valid_item(&parse(b"[]")).is_ok());
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let body = br#"[{"name":"a"},{"nome":"b"},{"name":"c"},{"name":"a"}]"#;
        let (ids, failures) = positions(&parse(body));
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
