//! The tags of a catalog, for filters.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Count, counts};
use crate::access::Reading;
use crate::request::error::ApiResult;
use crate::request::extract::{Json, QueryString};
use crate::request::paging;
use toolscout_base::cpu_pool::CpuPool;

/// How many tags are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TagParams {
    /// Most tags, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The tags of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct TagList {
    /// The tags with the number of their tools: the most frequent first, equal ones by name.
    tags: Vec<Count>,
    /// Number of different tags in the catalog.
    total: usize,
}

/// Lists the tags of a catalog with the number of their tools.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/tags", operation_id = "list_tags", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name"), TagParams),
    responses((status = 200, body = TagList, description = "The tags"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<TagParams>,
) -> ApiResult<Json<TagList>> {
    let limit = paging::limit(params.limit)?;
    let (tags, total) = catalog.tags(&cpu_pool, limit).await?;
    Ok(Json(TagList {
        tags: counts(tags),
        total,
    }))
}
