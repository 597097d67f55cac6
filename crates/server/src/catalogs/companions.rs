//! The companions of a tool: the tools that find what it needs.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::tools::{ItemPath, find_tool};
use crate::access::Reading;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path};
use crate::served::OpenCatalog;
use toolscout_base::cpu_pool::CpuPool;

/// What stands behind the id in the path of the default catalog. axum has no wildcard with something
/// behind it.
const ENDING: &str = "/companions";

/// A tool of the default catalog.
#[derive(Debug, Deserialize)]
pub struct ToolPath {
    id: String,
}

/// The tools that find what a tool needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompanionsAnswer {
    /// The most needed first; empty where the tool needs nothing that another tool of its server finds.
    pub companions: Vec<CompanionTool>,
}

/// A tool that finds what another tool needs.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompanionTool {
    /// The id of the tool that finds it.
    #[schema(example = "crm/search_people")]
    pub id: String,
    /// The parameter of the other tool that it finds a value for.
    #[schema(example = "person_id")]
    pub parameter: String,
    /// Why it is thought to.
    pub reason: String,
}

/// Lists the companions of a tool: the tools of its server that find what it needs.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/companions/{*id}", operation_id = "list_companions", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 200, body = CompanionsAnswer, description = "The companions"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<Json<CompanionsAnswer>> {
    answer(&cpu_pool, &catalog, &id).await
}

/// Lists the companions of a tool of the default catalog.
#[utoipa::path(
    get, path = "/v1/tools/{*id}", operation_id = "list_companions_default_catalog", tag = "tools",
    params(("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 200, body = CompanionsAnswer, description = "The companions"))
)]
pub async fn list_default(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(ToolPath { id }): Path<ToolPath>,
) -> ApiResult<Json<CompanionsAnswer>> {
    // Tools themselves are at another path, so the error names it.
    let Some(id) = id.strip_suffix(ENDING) else {
        return Err(ApiError::not_found(
            "not_found",
            format!(
                "there is no /v1/tools/{id}; a tool is at /v1/catalogs/{}/tools/{id}",
                catalog.name
            ),
        ));
    };
    answer(&cpu_pool, &catalog, id).await
}

/// The path of a route as it is documented.
pub fn documented(route: &str) -> String {
    match route {
        "/v1/tools/{*id}" => format!("/v1/tools/{{id}}{ENDING}"),
        other => other.replace("{*", "{"),
    }
}

async fn answer(
    cpu_pool: &CpuPool,
    catalog: &OpenCatalog,
    id: &str,
) -> ApiResult<Json<CompanionsAnswer>> {
    let tool = find_tool(cpu_pool, catalog, id).await?;
    let (searcher, id) = (catalog.searcher(), tool.id.clone());
    // The first question about a server reads its tools.
    let companions = cpu_pool.run(move || searcher.companions(&id)).await?;
    let companions = companions.into_iter().map(CompanionTool::from).collect();
    Ok(Json(CompanionsAnswer { companions }))
}

impl From<toolscout_index::ToolCompanion> for CompanionTool {
    fn from(companion: toolscout_index::ToolCompanion) -> Self {
        CompanionTool {
            id: companion.id.to_string(),
            parameter: companion.parameter,
            reason: companion.reason,
        }
    }
}
