//! The servers of a catalog: their connections, and replacing all tools of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::Tool;
use utoipa::ToSchema;

use super::changes::undecided;
use super::tools::body::{BulkBodies, all_valid};
use super::tools::load::runs_as_task;
use super::tools::{LoadParams, to_strings};
use crate::access::{Reading, Writing};
use crate::default_catalog::DefaultCatalog;
use crate::request::error::ApiResult;
use crate::request::extract::{Json, Path};
use crate::request::threads::blocking;
use crate::request::wire::ToolWarning;
use crate::served::OpenCatalog;
use crate::tasks::{self, Tasks};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_mcp::pool::{ConnectionState, Status};
use toolscout_state::approved::Undecided;
use toolscout_state::catalog_writer::Change;

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
    /// What of the tools is left out or will not work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ToolWarning>,
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

/// The servers of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerList {
    /// The servers, sorted by name.
    servers: Vec<ServerBody>,
}

/// A server.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Server)]
pub struct ServerBody {
    /// Its name; empty for tools without a server.
    name: String,
    /// Number of its tools in the catalog.
    tools: usize,
    /// Its connection, if this program was told to connect to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<ConnectionBody>,
    /// Number of its tools that changed since they were approved.
    changes: usize,
    /// Number of its tools that are blocked.
    blocked: usize,
}

/// The connection to an MCP server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerConnection)]
pub struct ConnectionBody {
    /// How it is connected.
    state: ConnectionState,
    /// Since when, in Unix milliseconds.
    since_ms: i64,
    /// Why its tools cannot be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// When its list of tools was last written to the catalog, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    synced_ms: Option<i64>,
}

/// Lists the servers of a catalog. Those of the default catalog may be connected: with a connection,
/// its state, and why it is not usable.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/servers", operation_id = "list_servers", tag = "servers",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = ServerList, description = "The servers"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(default_catalog): State<Arc<DefaultCatalog>>,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Json<ServerList>> {
    let mut servers = Servers::default();
    if let Some(pool) = default_catalog.pool_of(&catalog) {
        servers.add_connections(pool.statuses());
    }
    let own = Arc::clone(&catalog);
    servers.add_changes(&blocking(move || undecided(&own)).await??);
    servers.add_tools(catalog.servers(&cpu_pool).await?);
    Ok(Json(servers.listed()))
}

/// Servers by their names, while they are collected.
#[derive(Default)]
struct Servers(BTreeMap<String, ServerBody>);

impl Servers {
    /// The server with this name.
    fn of(&mut self, name: &str) -> &mut ServerBody {
        self.0.entry(name.to_owned()).or_default()
    }

    fn add_connections(&mut self, statuses: Vec<Status>) {
        for status in statuses {
            let name = status.server.clone();
            self.of(&name).connection = Some(status.into());
        }
    }

    /// Counts changes that nobody has decided about. This may add servers whose tools are all blocked, so that they
    /// have none in the catalog.
    fn add_changes(&mut self, changes: &Undecided) {
        for (id, change) in changes {
            let server = self.of(id.server());
            server.changes += 1;
            server.blocked += usize::from(change.blocked_by.is_some());
        }
    }

    fn add_tools(&mut self, tools: BTreeMap<String, usize>) {
        for (name, tools) in tools {
            self.of(&name).tools = tools;
        }
    }

    fn listed(self) -> ServerList {
        let mut servers = Vec::with_capacity(self.0.len());
        for (name, server) in self.0 {
            servers.push(ServerBody { name, ..server });
        }
        ServerList { servers }
    }
}

impl From<Status> for ConnectionBody {
    fn from(status: Status) -> Self {
        ConnectionBody {
            state: status.state,
            since_ms: unix_ms(status.since),
            reason: status.reason,
            synced_ms: status.synced_at.map(unix_ms),
        }
    }
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
    State(bodies): State<Arc<BulkBodies>>,
    State(tasks): State<Arc<Tasks>>,
    Path(ServerPath { server, .. }): Path<ServerPath>,
    request: Request,
) -> ApiResult<Response> {
    let options = LoadParams::of_server(&server).read_options();
    // Cloned, since reading the body consumes the request.
    let headers = request.headers().clone();
    let parsed = bodies.read(request, options).await?;
    let warnings: Vec<ToolWarning> = parsed.warnings.iter().map(ToolWarning::from).collect();
    // Tools that are not in the body are removed, so an invalid item must not be skipped.
    let tools = all_valid(parsed)?;
    if runs_as_task(tools.len(), &headers) {
        return start_sync(&tasks, catalog, server, tools, warnings).await;
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
        warnings,
        generation: written.generation,
    };
    Ok(Json(answer).into_response())
}

/// The task writes one change, so that no state in between is visible. It can be cancelled until
/// the write starts.
async fn start_sync(
    tasks: &Arc<Tasks>,
    catalog: Arc<OpenCatalog>,
    server: String,
    tools: Vec<Tool>,
    warnings: Vec<ToolWarning>,
) -> ApiResult<Response> {
    let total = tools.len();
    let task = tasks.start(&catalog.name.clone(), total, move |task| async move {
        task.update(|body| body.warnings = warnings);
        // This is the last chance: a change in the writer's queue cannot be cancelled.
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
    Ok(tasks.accepted(&task).await)
}
