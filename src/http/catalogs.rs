//! Catalogs: create, list, delete, settings, stats. Keys are limited to catalogs, so a catalog can
//! be a tenant.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::access::{Grant, Reading, Writing};
use super::error::{ApiError, ApiResult, ErrorType};
use super::extract::{self, Json, Path};
use super::registry::{Created, OpenCatalog};
use super::settings::CatalogSettings;

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

/// The catalogs that the key is for.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogList {
    /// The catalogs, sorted by name.
    catalogs: Vec<CatalogBody>,
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
    /// Tools that have no vectors yet.
    pending_embeddings: usize,
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

/// Lists the catalogs that the key is for.
#[utoipa::path(
    get, path = "/v1/catalogs", operation_id = "list_catalogs", tag = "catalogs",
    responses((status = 200, body = CatalogList, description = "The catalogs"))
)]
pub async fn list(grant: Grant, State(app): State<App>) -> ApiResult<Json<CatalogList>> {
    let mut catalogs = Vec::new();
    for name in app.catalogs.names().await? {
        if !grant.sees(&name) {
            continue;
        }
        catalogs.extend(CatalogBody::of_named(&app, name).await?);
    }
    Ok(Json(CatalogList { catalogs }))
}

/// Creates a catalog.
#[utoipa::path(
    post, path = "/v1/catalogs", operation_id = "create_catalog", tag = "catalogs",
    request_body = CreateRequest,
    responses((status = 201, body = CatalogBody, description = "The catalog was created"))
)]
pub async fn create(
    grant: Grant,
    State(app): State<App>,
    Json(CreateRequest { name, settings }): Json<CreateRequest>,
) -> ApiResult<Response> {
    grant.creates(&name)?;
    settings.validate()?;
    let (catalog, created) = app.catalogs.create(&name).await?;
    if created == Created::Before {
        let message = format!("the catalog {name:?} exists already");
        return Err(ApiError::invalid(
            StatusCode::CONFLICT,
            "catalog_exists",
            message,
        ));
    }
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
    State(app): State<App>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    grant.creates(&name)?;
    match app.catalogs.create(&name).await? {
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
    State(app): State<App>,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    grant.writes(&name)?;
    app.delete_catalog(name).await?;
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
    // The request's own settings: those of the catalog may be another request's by now.
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
    State(app): State<App>,
) -> ApiResult<Json<CatalogStats>> {
    let stats = app.cpu_pool.run(move || catalog.stats()).await??;
    Ok(Json(CatalogStats {
        tools: stats.tools,
        servers: counts(stats.servers),
        vectors: counts(stats.vectors),
        pending_embeddings: stats.pending_embeddings,
        generation: stats.generation,
        disk_bytes: stats.disk_bytes,
    }))
}

impl CatalogBody {
    /// The catalog with this name, also a damaged one; `None` if it was deleted since the names were
    /// read.
    async fn of_named(app: &App, name: String) -> ApiResult<Option<Self>> {
        match app.catalogs.get(&name).await {
            Ok(catalog) => Ok(Some(CatalogBody::of(&catalog))),
            Err(error) if error.kind == ErrorType::System => Err(error),
            Err(_) => {
                let damaged = app.catalogs.damaged().remove(&name);
                Ok(damaged.map(|reason| CatalogBody::damaged(name, reason)))
            }
        }
    }

    fn of(catalog: &OpenCatalog) -> Self {
        let searcher = catalog.searcher();
        CatalogBody {
            name: catalog.name.clone(),
            tools: searcher.len(),
            generation: searcher.generation(),
            pending_embeddings: searcher.pending_embeddings(),
            settings: searcher.settings().into(),
            damaged: None,
        }
    }

    fn damaged(name: String, reason: String) -> Self {
        CatalogBody {
            name,
            tools: 0,
            generation: 0,
            pending_embeddings: 0,
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
    pairs
        .into_iter()
        .map(|(name, count)| Count { name, count })
        .collect()
}
