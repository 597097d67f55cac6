//! Catalogs: create, list, delete, settings, stats. A catalog is a tenant's wall.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
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
    /// What its searches default to.
    #[serde(default, deserialize_with = "extract::object")]
    settings: CatalogSettings,
}

/// The catalogs the key is for.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogList {
    /// By name.
    catalogs: Vec<CatalogBody>,
}

/// A catalog in short.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Catalog)]
pub struct CatalogBody {
    /// Its name.
    name: String,
    /// Number of tools.
    tools: usize,
    /// The last commit.
    generation: u64,
    /// Tools that cannot be found densely yet.
    pending_embeddings: usize,
    /// What its searches default to.
    settings: CatalogSettings,
    /// Why it cannot be opened; it then seems to have no tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

/// A catalog in numbers.
#[derive(Debug, Serialize, ToSchema)]
pub struct CatalogStats {
    /// Number of tools.
    tools: usize,
    /// Servers with the number of their tools.
    servers: Vec<Count>,
    /// Embedding models with the number of their vectors.
    vectors: Vec<Count>,
    /// Tools that cannot be found densely yet.
    pending_embeddings: usize,
    /// The last commit.
    generation: u64,
    /// Bytes on disk.
    disk_bytes: u64,
}

/// A name with a number.
#[derive(Debug, Serialize, ToSchema)]
pub struct Count {
    /// What is counted.
    name: String,
    /// How many.
    count: usize,
}

/// Lists the catalogs the key is for.
#[utoipa::path(get, path = "/v1/catalogs", operation_id = "list_catalogs", tag = "catalogs", responses((status = 200, body = CatalogList)))]
pub async fn list(grant: Grant, State(app): State<App>) -> ApiResult<Json<CatalogList>> {
    let mut catalogs = Vec::new();
    for name in app
        .catalogs
        .names()
        .await?
        .into_iter()
        .filter(|name| grant.sees(name))
    {
        match app.catalogs.get(&name).await {
            Ok(catalog) => catalogs.push(CatalogBody::of(&catalog)),
            Err(error) if error.kind == ErrorType::System => return Err(error),
            // One that was deleted just now is not there any more.
            Err(_) => {
                let damaged = app.catalogs.damaged().remove(&name);
                catalogs.extend(damaged.map(|reason| CatalogBody::damaged(name, reason)));
            }
        }
    }
    Ok(Json(CatalogList { catalogs }))
}

/// Creates a catalog.
#[utoipa::path(
    post, path = "/v1/catalogs", operation_id = "create_catalog", tag = "catalogs",
    request_body = CreateRequest,
    responses((status = 201, body = CatalogBody))
)]
pub async fn create(
    grant: Grant,
    State(app): State<App>,
    Json(CreateRequest { name, settings }): Json<CreateRequest>,
) -> ApiResult<Response> {
    grant.writes(&name)?;
    settings.validate()?;
    let (catalog, created) = app.catalogs.create(&name).await?;
    if created == Created::Before {
        let message = format!("the catalog {name:?} is there already");
        return Err(ApiError::invalid(
            StatusCode::CONFLICT,
            "catalog_exists",
            message,
        ));
    }
    save_settings(&catalog, settings).await?;
    Ok(made(&catalog))
}

/// Shows a catalog.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}", operation_id = "show_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogBody))
)]
pub async fn show(Reading(catalog): Reading) -> Json<CatalogBody> {
    Json(CatalogBody::of(&catalog))
}

/// Makes sure that a catalog is there.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}", operation_id = "ensure_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogBody), (status = 201, body = CatalogBody))
)]
pub async fn ensure(
    grant: Grant,
    State(app): State<App>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    grant.writes(&name)?;
    match app.catalogs.create(&name).await? {
        (catalog, Created::Now) => Ok(made(&catalog)),
        (catalog, Created::Before) => Ok(Json(CatalogBody::of(&catalog)).into_response()),
    }
}

/// Deletes a catalog and all it holds, and what its users have asked.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}", operation_id = "delete_catalog", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 204, description = "It is gone"))
)]
pub async fn delete(
    grant: Grant,
    State(app): State<App>,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    grant.writes(&name)?;
    let deleted = app.catalogs.delete(&name).await;
    // Of a catalog that is not there, too: an earlier delete may have been cut short between the
    // two.
    if deleted
        .as_ref()
        .map_or_else(|error| error.status == StatusCode::NOT_FOUND, |()| true)
    {
        app.feedback.forget(&name).await?;
    }
    deleted.map(|()| StatusCode::NO_CONTENT)
}

/// Shows a catalog's settings.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/settings", operation_id = "catalog_settings", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogSettings))
)]
pub async fn settings(Reading(catalog): Reading) -> Json<CatalogSettings> {
    Json(catalog.settings())
}

/// Replaces a catalog's settings.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/settings", operation_id = "set_catalog_settings", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = CatalogSettings,
    responses((status = 200, body = CatalogSettings))
)]
pub async fn set_settings(
    Writing(catalog): Writing,
    Json(settings): Json<CatalogSettings>,
) -> ApiResult<Json<CatalogSettings>> {
    settings.validate()?;
    save_settings(&catalog, settings).await?;
    Ok(Json(catalog.settings()))
}

/// Shows a catalog in numbers.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/stats", operation_id = "catalog_stats", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = CatalogStats))
)]
pub async fn stats(
    Reading(catalog): Reading,
    State(app): State<App>,
) -> ApiResult<Json<CatalogStats>> {
    let stats = app.pool.run(move || catalog.stats()).await??;
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
    fn of(catalog: &OpenCatalog) -> Self {
        let searcher = catalog.searcher();
        CatalogBody {
            name: catalog.name.clone(),
            tools: searcher.len(),
            generation: searcher.generation(),
            pending_embeddings: searcher.pending_embeddings(),
            settings: catalog.settings(),
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

fn made(catalog: &OpenCatalog) -> Response {
    let mut response = (StatusCode::CREATED, Json(CatalogBody::of(catalog))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/catalogs/{}", catalog.name)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn save_settings(catalog: &Arc<OpenCatalog>, settings: CatalogSettings) -> ApiResult<()> {
    let catalog = Arc::clone(catalog);
    let saved = tokio::task::spawn_blocking(move || catalog.set_settings(settings));
    Ok(saved.await.map_err(ApiError::internal)??)
}

fn counts(pairs: Vec<(String, usize)>) -> Vec<Count> {
    pairs
        .into_iter()
        .map(|(name, count)| Count { name, count })
        .collect()
}
