//! Replacing all tools of one server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::Tool;
use utoipa::ToSchema;

use super::App;
use super::access::Writing;
use super::error::ApiResult;
use super::extract::{Json, Path};
use super::registry::OpenCatalog;
use super::tasks;
use super::tools::body::{all_valid, read_tools};
use super::tools::load::runs_as_task;
use super::tools::{LoadParams, to_strings};
use crate::catalog_writer::Change;

/// What a sync changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct SyncAnswer {
    /// The ids of new tools.
    pub added: Vec<String>,
    /// The ids of tools that replaced one with the same id.
    pub changed: Vec<String>,
    /// The ids of removed tools.
    pub removed: Vec<String>,
    /// Number of tools that were stored already, exactly as they are.
    pub unchanged: usize,
    /// The generation of the catalog that holds the change.
    pub generation: u64,
}

/// The path of a server.
#[derive(Debug, Deserialize)]
pub struct ServerPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    server: String,
}

/// Makes the tools of a server exactly those of the body, in any accepted format.
///
/// One invalid item fails the request, and nothing changes. More than 1000 tools, or `Prefer:
/// respond-async`, are answered with 202 and a task.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/servers/{server}/tools", operation_id = "sync_server_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("server" = String, Path, description = "The server's name")),
    request_body(content((serde_json::Value = "application/json"), (serde_json::Value = "application/yaml"))),
    responses(
        (status = 200, body = SyncAnswer, description = "What changed"),
        (status = 202, body = tasks::TaskBody, description = "The task that writes the tools")
    )
)]
pub async fn sync(
    Writing(catalog): Writing,
    State(app): State<App>,
    Path(ServerPath { server, .. }): Path<ServerPath>,
    request: Request,
) -> ApiResult<Response> {
    let options = LoadParams::of_server(&server).read_options();
    let headers = request.headers().clone();
    let tools = all_valid(read_tools(&app, request, options).await?)?;
    if runs_as_task(tools.len(), &headers) {
        return start_sync(&app, catalog, server, tools);
    }
    let written = catalog
        .writer
        .try_write(Change::Sync { server, tools })
        .await?;
    let changes = &written.changes;
    let answer = SyncAnswer {
        added: to_strings(&changes.added),
        changed: to_strings(&changes.changed),
        removed: to_strings(&changes.removed),
        unchanged: changes.unchanged,
        generation: written.generation,
    };
    Ok(Json(answer).into_response())
}

/// The task writes one change, so that no state in between is visible. It can be cancelled until
/// the write starts.
fn start_sync(
    app: &App,
    catalog: Arc<OpenCatalog>,
    server: String,
    tools: Vec<Tool>,
) -> ApiResult<Response> {
    let total = tools.len();
    let task = app
        .tasks
        .start(&catalog.name.clone(), total, move |task| async move {
            if task.is_cancelled() {
                return Ok(());
            }
            let written = catalog.writer.write(Change::Sync { server, tools }).await?;
            task.update(|body| {
                body.done = total;
                body.result.add(&written.changes);
            });
            Ok(())
        })?;
    Ok(tasks::accepted(&task))
}
