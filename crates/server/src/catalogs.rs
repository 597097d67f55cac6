//! Catalogs: create, list, delete, settings, stats. Keys are limited to catalogs, so a catalog can
//! be a tenant.

pub mod calls;
pub mod changes;
pub mod companions;
pub mod enrich;
pub mod memory;
pub mod servers;
pub mod stream;
pub mod tags;
pub mod texts;
pub mod tools;
pub mod words;

use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::Summary;
use utoipa::{IntoParams, ToSchema};

use super::access::{Grant, Reading, Writing};
use super::served::{Created, OpenCatalog, ServedCatalogs};
use crate::request::error::{ApiError, ApiResult, ErrorType};
use crate::request::extract::{self, Json, Path, QueryString};
use crate::request::paging;
use crate::request::threads::blocking;
use crate::served::settings::CatalogSettings;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_gate::usage::Recorder;
use toolscout_state::feedback::FeedbackStore;

/// A catalog to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// 1 to 64 letters, digits, `-`, `_` or `.`, starting with a letter or digit.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", example = "team-a")]
    name: String,
    /// The defaults of its searches.
    #[serde(default, deserialize_with = "extract::object")]
    settings: CatalogSettings,
}

/// Which part of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most catalogs, 1 to 1,000; 1,000 by default.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of the catalogs that the key is for.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogList {
    /// The catalogs, sorted by name.
    catalogs: Vec<CatalogBody>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A catalog.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Catalog)]
pub struct CatalogBody {
    /// Its name.
    name: String,
    /// Number of tools.
    tools: usize,
    /// The number of its last commit.
    generation: u64,
    /// Tools that have no vectors yet; absent in a list while the catalog is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_embeddings: Option<usize>,
    /// The defaults of its searches.
    settings: CatalogSettings,
    /// Why it cannot be opened; its numbers are then 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

/// Statistics of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogStats {
    /// Number of tools.
    tools: usize,
    /// The number of tools of each server.
    servers: Vec<Count>,
    /// The number of vectors of each embedding model.
    vectors: Vec<Count>,
    /// Tools that have no vectors yet.
    pending_embeddings: usize,
    /// The number of its last commit.
    generation: u64,
    /// Bytes on disk.
    disk_bytes: u64,
}

/// A number of things under one name.
#[derive(Debug, Serialize, ToSchema)]
pub struct Count {
    /// The name.
    name: String,
    /// The number.
    count: usize,
}

/// Lists the catalogs that the key is for. One that is closed stays closed.
#[utoipa::path(
    get, path = "/v1/catalogs", operation_id = "list_catalogs", tag = "catalogs",
    params(ListParams),
    responses((status = 200, body = CatalogList, description = "A page of catalogs"))
)]
pub async fn list(
    grant: Grant,
    State(catalogs): State<Arc<ServedCatalogs>>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<CatalogList>> {
    let limit = paging::limit(params.limit.or(Some(paging::MAX_LIMIT)))?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let names = catalogs.names().await?;
    let from = match after {
        Some(after) => Bound::Excluded(after),
        None => Bound::Unbounded,
    };
    let visible = names
        .range((from, Bound::Unbounded))
        .filter(|name| grant.sees(name));
    // One more than the page has tells whether another follows.
    let mut listed: Vec<String> = visible.take(limit + 1).cloned().collect();
    let has_more = listed.len() > limit;
    listed.truncate(limit);
    let next_cursor = match listed.last() {
        Some(last) if has_more => Some(paging::cursor_after(last)),
        _ => None,
    };
    let mut bodies = Vec::with_capacity(listed.len());
    for name in &listed {
        bodies.extend(CatalogBody::of_named(&catalogs, name).await?);
    }
    Ok(Json(CatalogList {
        catalogs: bodies,
        next_cursor,
    }))
}

/// Creates a catalog.
#[utoipa::path(
    post, path = "/v1/catalogs", operation_id = "create_catalog", tag = "catalogs",
    request_body = CreateRequest,
    responses((status = 201, body = CatalogBody, description = "The catalog was created"))
)]
pub async fn create(
    grant: Grant,
    State(catalogs): State<Arc<ServedCatalogs>>,
    Json(CreateRequest { name, settings }): Json<CreateRequest>,
) -> ApiResult<Response> {
    grant.creates(&name)?;
    settings.validate()?;
    let (catalog, created) = catalogs.create(&name).await?;
    // Clients that do not mind use PUT.
    if created == Created::Before {
        let message = format!("the catalog {name:?} exists already");
        return Err(ApiError::invalid(
            StatusCode::CONFLICT,
            "catalog_exists",
            message,
        ));
    }
    // If this fails, the catalog exists without the settings, and they can be set again.
    save_settings(&catalog, settings).await?;
    Ok(created_response(&catalog))
}

/// Shows a catalog.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}", operation_id = "show_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogBody, description = "The catalog"))
)]
pub async fn show(Reading(catalog): Reading) -> Json<CatalogBody> {
    Json(CatalogBody::of(&catalog))
}

/// Creates a catalog unless it exists.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}", operation_id = "ensure_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses(
        (status = 200, body = CatalogBody, description = "The catalog existed"),
        (status = 201, body = CatalogBody, description = "The catalog was created")
    )
)]
pub async fn ensure(
    grant: Grant,
    State(catalogs): State<Arc<ServedCatalogs>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    grant.creates(&name)?;
    match catalogs.create(&name).await? {
        (catalog, Created::Now) => Ok(created_response(&catalog)),
        (catalog, Created::Before) => Ok(Json(CatalogBody::of(&catalog)).into_response()),
    }
}

/// Deletes a catalog with its tools, its usage memory and the feedback on its searches.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}", operation_id = "delete_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 204, description = "The catalog was deleted"))
)]
pub async fn delete(
    grant: Grant,
    State(catalogs): State<Arc<ServedCatalogs>>,
    State(feedback): State<FeedbackStore>,
    State(usage): State<Recorder>,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    grant.writes(&name)?;
    let deleted = catalogs.delete(&name).await;
    let is_gone = match &deleted {
        Ok(()) => true,
        // Feedback that an interrupted delete has left is deleted even then.
        Err(error) => error.status == StatusCode::NOT_FOUND,
    };
    // If the catalog is still there, its feedback stays too.
    if is_gone {
        let forget = move || {
            usage.forget(&name);
            feedback.forget(&name)
        };
        blocking(forget).await??;
    }
    deleted?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows a catalog's settings.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/settings", operation_id = "catalog_settings", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogSettings, description = "The settings"))
)]
pub async fn settings(Reading(catalog): Reading) -> Json<CatalogSettings> {
    Json(catalog.searcher().settings().into())
}

/// Replaces a catalog's settings.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/settings", operation_id = "set_catalog_settings", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = CatalogSettings,
    responses((status = 200, body = CatalogSettings, description = "The new settings"))
)]
pub async fn set_settings(
    Writing(catalog): Writing,
    Json(settings): Json<CatalogSettings>,
) -> ApiResult<Json<CatalogSettings>> {
    settings.validate()?;
    save_settings(&catalog, settings.clone()).await?;
    // Answers with the settings of this request: another request may have replaced them by now.
    Ok(Json(settings))
}

/// Shows statistics of a catalog.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/stats", operation_id = "catalog_stats", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogStats, description = "The statistics"))
)]
pub async fn stats(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Json<CatalogStats>> {
    let sizes = catalog.sizes(&cpu_pool).await?;
    Ok(Json(CatalogStats {
        tools: sizes.tools,
        servers: counts(sizes.servers),
        vectors: counts(sizes.vectors),
        pending_embeddings: sizes.pending_embeddings,
        generation: sizes.generation,
        disk_bytes: sizes.disk_bytes,
    }))
}

impl CatalogBody {
    /// The catalog with this name, also a damaged one; `None` if it was deleted since the names were
    /// read. Does not open it, so that a list closes no other.
    async fn of_named(catalogs: &ServedCatalogs, name: &str) -> ApiResult<Option<Self>> {
        if let Some(catalog) = catalogs.opened(name) {
            return Ok(Some(CatalogBody::of(&catalog)));
        }
        match catalogs.summary(name).await {
            Ok(summary) => {
                let damage = catalogs.damage(name);
                Ok(Some(CatalogBody::closed(name, summary, damage)))
            }
            Err(error) if error.kind == ErrorType::System => Err(error),
            // The catalog was deleted or is damaged. The list still has the others.
            Err(_) => {
                let damage = catalogs.damage(name);
                Ok(damage.map(|reason| CatalogBody::damaged(name, reason)))
            }
        }
    }

    fn closed(name: &str, summary: Summary, damage: Option<String>) -> Self {
        if let Some(reason) = damage {
            return CatalogBody::damaged(name, reason);
        }
        CatalogBody {
            name: name.to_owned(),
            tools: summary.tools,
            generation: summary.generation,
            pending_embeddings: None,
            settings: (&summary.settings).into(),
            damaged: None,
        }
    }

    fn of(catalog: &OpenCatalog) -> Self {
        let searcher = catalog.searcher();
        CatalogBody {
            name: catalog.name.clone(),
            tools: catalog.tool_count(),
            generation: searcher.generation(),
            pending_embeddings: catalog.pending_embeddings(),
            settings: searcher.settings().into(),
            damaged: None,
        }
    }

    fn damaged(name: &str, reason: String) -> Self {
        CatalogBody {
            name: name.to_owned(),
            tools: 0,
            generation: 0,
            pending_embeddings: Some(0),
            settings: CatalogSettings::default(),
            damaged: Some(reason),
        }
    }
}

/// 201 with the catalog and its location.
fn created_response(catalog: &OpenCatalog) -> Response {
    let location = [(header::LOCATION, format!("/v1/catalogs/{}", catalog.name))];
    (
        StatusCode::CREATED,
        location,
        Json(CatalogBody::of(catalog)),
    )
        .into_response()
}

async fn save_settings(catalog: &OpenCatalog, settings: CatalogSettings) -> ApiResult<()> {
    catalog.writer.try_write(settings.into_change()).await?;
    Ok(())
}

/// Pairs of a name and a number.
pub(super) fn counts(pairs: Vec<(String, usize)>) -> Vec<Count> {
    let mut counts = Vec::with_capacity(pairs.len());
    for (name, count) in pairs {
        counts.push(Count { name, count });
    }
    counts
}
