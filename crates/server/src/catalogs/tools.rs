//! The tools of a catalog: list, bulk upsert, delete by filter, and single tools by id.

pub mod body;
pub mod load;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::formats::{KnownServers, ReadOptions};
use toolscout_index::{Filter, Kind, Tool, ToolId};
use utoipa::{IntoParams, ToSchema};

use self::body::BulkBodies;
use super::stream::Streams;
use crate::access::{Reading, Writing};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{self, Json, Path, QueryString};
use crate::request::paging;
use crate::request::wire::{ChangeCounts, ItemResult, ItemStatus, ToolBody, ToolWarning};
use crate::served::OpenCatalog;
use crate::served::contents::Page;
use crate::tasks::{self, Tasks};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::finder::model_names;
use toolscout_state::catalog_writer::{Change, Written};
use toolscout_state::shared::PageOf;

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
    /// The kinds of items that are listed, separated by commas; tools alone by default.
    #[param(style = Form, explode = false, inline)]
    #[serde(default, deserialize_with = "extract::kinds")]
    kind: Vec<Kind>,
    /// Only tools of this server.
    server: Option<String>,
    /// Only tools with this tag.
    tag: Option<String>,
    /// Only tools whose id has this part, in large or small letters.
    #[param(max_length = 256)]
    name: Option<String>,
}

/// Longest part of an id to look for, in bytes: longer than the ids of tools are.
const MAX_NAME_BYTES: usize = 256;

impl ListParams {
    /// # Errors
    /// 422 for a limit or a cursor that is not valid, and for a part of an id that is too long to be one.
    fn page(self) -> ApiResult<PageOf> {
        let part = self.name.unwrap_or_default();
        let limit = paging::limit(self.limit)?;
        let after = paging::after(self.cursor.as_deref())?;
        if part.len() > MAX_NAME_BYTES {
            let message =
                format!("name is longer than {MAX_NAME_BYTES} bytes; give a part of an id");
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        Ok(PageOf {
            kinds: self.kind.into_iter().collect(),
            after,
            server: self.server,
            tag: self.tag,
            part: part.trim().to_lowercase(),
            limit,
        })
    }
}

/// A page of tools.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolPage {
    /// The tools, sorted by id.
    pub tools: Vec<ToolBody>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of tools in the catalog, or of items of the listed kinds.
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
    pub(crate) fn of_server(server: &str) -> Self {
        LoadParams {
            server: Some(server.to_owned()),
            ..LoadParams::default()
        }
    }

    /// The options of the parser.
    pub(crate) fn read_options(self) -> ReadOptions {
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
    /// What of the valid tools is left out or will not work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ToolWarning>,
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

impl From<Page> for ToolPage {
    fn from(page: Page) -> Self {
        ToolPage {
            next_cursor: match page.tools.last() {
                Some(last) if page.has_more => Some(paging::cursor_after(last.id.as_str())),
                _ => None,
            },
            tools: page
                .tools
                .iter()
                .map(|tool| ToolBody::from(&**tool))
                .collect(),
            total: page.total,
            generation: page.generation,
        }
    }
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
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<ToolPage>> {
    let page = catalog.page(&cpu_pool, params.page()?).await?;
    Ok(Json(ToolPage::from(page)))
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
    State(bodies): State<Arc<BulkBodies>>,
    State(streams): State<Arc<Streams>>,
    State(tasks): State<Arc<Tasks>>,
    QueryString(params): QueryString<LoadParams>,
    request: Request,
) -> ApiResult<Response> {
    let skip_invalid = params.skip_invalid.unwrap_or_default();
    // An OpenAPI document keeps the server name that an earlier version gave it.
    let searcher = catalog.searcher();
    let options = ReadOptions {
        known_servers: KnownServers::by(move |server| searcher.has_server(server)),
        ..params.read_options()
    };
    match extract::media_type(request.headers())?.as_str() {
        // A stream may be longer than any body, and each line is answered on its own.
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
            streams.upsert(catalog, options, request.into_body())
        }
        _ => {
            // Cloned, since reading the body consumes the request.
            let headers = request.headers().clone();
            let parsed = bodies.read(request, options).await?;
            if !skip_invalid {
                body::require_valid_item(&parsed)?;
            }
            load::upsert(&tasks, &catalog, parsed, &headers).await
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
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<Json<ToolBody>> {
    let tool = find_tool(&cpu_pool, &catalog, &id).await?;
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
    State(bodies): State<Arc<BulkBodies>>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
    request: Request,
) -> ApiResult<Response> {
    let id = ToolId::parse(&id)?;
    // The server is taken from the path, whatever the body says.
    let options = LoadParams::of_server(id.server()).read_options();
    let tool = body::only_tool(bodies.read(request, options).await?, &id)?;
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
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<StatusCode> {
    // To a client, an invalid id is just an unknown tool.
    let Ok(parsed) = ToolId::parse(&id) else {
        return Err(unknown_tool(&cpu_pool, &catalog, &id).await);
    };
    let written = catalog
        .writer
        .try_write(Change::Remove(vec![parsed]))
        .await?;
    if written.changes.removed.is_empty() {
        Err(unknown_tool(&cpu_pool, &catalog, &id).await)
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
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<DeleteParams>,
) -> ApiResult<Json<DeleteAnswer>> {
    let filter = Filter {
        // Whatever it is: a server that is deleted leaves nothing behind.
        kinds: BTreeSet::from(Kind::ALL),
        servers: params.server.into_iter().collect(),
        tags: params.tag.into_iter().collect(),
        read_only: params.read_only,
        destructive: params.destructive,
        ..Filter::default()
    };
    // A forgotten filter must not delete every tool.
    if filter.servers.is_empty() && !filter.reads_content() {
        let message = "the filter is empty; give server, tag, read_only or destructive, or delete the catalog to delete every tool";
        return Err(ApiError::unprocessable("empty_filter", message));
    }
    let ids = catalog.ids_passing(&cpu_pool, filter).await?;
    let written = catalog.writer.try_write(Change::Remove(ids)).await?;
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
    pub(crate) id: String,
}

/// The ids as strings.
pub(crate) fn to_strings(ids: &[ToolId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// The tool with this id.
///
/// # Errors
/// 404 when the catalog has none.
pub(crate) async fn find_tool(
    cpu_pool: &CpuPool,
    catalog: &OpenCatalog,
    id: &str,
) -> ApiResult<Arc<Tool>> {
    let found = match ToolId::parse(id) {
        Ok(id) => catalog.tool(&id).await?,
        Err(_) => None,
    };
    match found {
        Some(tool) => Ok(tool),
        None => Err(unknown_tool(cpu_pool, catalog, id).await),
    }
}

async fn unknown_tool(cpu_pool: &CpuPool, catalog: &OpenCatalog, id: &str) -> ApiError {
    let (searcher, wanted) = (catalog.searcher(), id.to_owned());
    // Off the async threads: the id is compared with that of every tool.
    let nearest = cpu_pool.run(move || {
        let ids = searcher.ids_after(None).map(ToolId::as_str);
        let nearest = model_names::nearest(&wanted, ids, 1);
        let nearest = nearest.first()?;
        Some(format!("did you mean {nearest:?}?"))
    });
    let name = &catalog.name;
    let hint = match nearest.await {
        Ok(Some(hint)) => hint,
        // If the server is too busy to compare names, the message goes without the hint.
        Ok(None) | Err(_) => format!("GET /v1/catalogs/{name}/tools lists them"),
    };
    let message = format!("no tool {id:?} in the catalog {name:?}; {hint}");
    ApiError::not_found("unknown_tool", message)
}
