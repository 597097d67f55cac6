//! The tools of one server: made exactly what its owner says they are.

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
use super::tools::{LoadParams, all_valid, is_large, read_tools, texts};
use super::write_queue::Change;

/// How a server's tools differ from what was there.
#[derive(Debug, Serialize, ToSchema)]
pub struct SyncAnswer {
    /// Ids of new tools.
    pub added: Vec<String>,
    /// Ids of tools that differ from what was there.
    pub changed: Vec<String>,
    /// Ids of tools taken out.
    pub removed: Vec<String>,
    /// Number of tools that came again as they were.
    pub unchanged: usize,
    /// The commit that holds the change.
    pub generation: u64,
}

/// A catalog and a server in it.
#[derive(Debug, Deserialize)]
pub struct ServerPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    server: String,
}

/// Makes a server's tools exactly those of the body, in any accepted format, and says what changed.
/// All or nothing: one bad item, and nothing changes. More than 1000 tools, or `Prefer:
/// respond-async`, answer 202 with a task.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/servers/{server}/tools", operation_id = "sync_server_tools", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("server" = String, Path, description = "The server's name")),
    request_body(content((serde_json::Value = "application/json"), (serde_json::Value = "application/yaml"))),
    responses((status = 200, body = SyncAnswer), (status = 202, body = tasks::TaskBody))
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
    if is_large(tools.len(), &headers) {
        return start_sync(&app, catalog, server, tools);
    }
    let written = catalog
        .writes
        .try_write(Change::Sync { server, tools })
        .await?;
    let changes = &written.changes;
    let answer = SyncAnswer {
        added: texts(&changes.added),
        changed: texts(&changes.changed),
        removed: texts(&changes.removed),
        unchanged: changes.unchanged,
        generation: written.generation,
    };
    Ok(Json(answer).into_response())
}

/// One change as a whole, so that there is no state between; it can be cancelled until it begins.
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
            let written = catalog.writes.write(Change::Sync { server, tools }).await?;
            task.update(|body| {
                body.done = total;
                body.result.add(&written.changes);
            });
            Ok(())
        })?;
    Ok(tasks::accepted(&task))
}
