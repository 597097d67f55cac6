//! The service about itself: health, version, metrics, its description and a page to read it.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::access::Grant;
use super::descriptors;
use super::error::{ApiError, ApiResult};
use super::extract::Json;

const DOCS: &str = include_str!("docs.html");
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A sign of life.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    status: &'static str,
    /// Catalogs that cannot be opened, where there are any; `GET /v1/catalogs` names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_catalogs: Option<usize>,
}

/// What is running.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    /// The program.
    name: &'static str,
    /// Its version.
    version: &'static str,
}

/// The process is alive.
#[utoipa::path(get, path = "/livez", tag = "service", responses((status = 200, body = Health)))]
pub async fn livez() -> Json<Health> {
    Json(Health {
        status: "ok",
        damaged_catalogs: None,
    })
}

/// The catalogs are open, there are descriptors left, and the server is not about to end: send
/// requests here.
#[utoipa::path(get, path = "/readyz", tag = "service", responses((status = 200, body = Health)))]
pub async fn readyz(State(app): State<App>) -> ApiResult<Json<Health>> {
    if app.shutdown.is_triggered() {
        return Err(ApiError::shutting_down());
    }
    app.require_ready()?;
    if app
        .limits
        .descriptors
        .is_some_and(descriptors::are_nearly_used)
    {
        let message =
            "the file descriptors of the server are nearly used up; raise its limit (`ulimit -n`)";
        return Err(ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "descriptors_low",
            message,
        ));
    }
    let damaged = app.catalogs.damaged().len();
    Ok(Json(Health {
        status: "ok",
        damaged_catalogs: (damaged > 0).then_some(damaged),
    }))
}

/// The same as `/readyz`, under the name that some expect.
#[utoipa::path(get, path = "/healthz", tag = "service", responses((status = 200, body = Health)))]
pub async fn healthz(app: State<App>) -> ApiResult<Json<Health>> {
    readyz(app).await
}

/// What is running.
#[utoipa::path(get, path = "/version", tag = "service", responses((status = 200, body = Version)))]
pub async fn version() -> Json<Version> {
    Json(Version {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Metrics for Prometheus. Where keys are in use, for admin keys of all catalogs.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"))
)]
pub async fn metrics(grant: Grant, State(app): State<App>) -> ApiResult<Response> {
    grant.operates()?;
    app.measure_catalogs();
    Ok(([(header::CONTENT_TYPE, PROMETHEUS)], app.metrics.encode()).into_response())
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "service", responses((status = 200, body = Object)))]
pub async fn openapi() -> Response {
    axum::Json(super::openapi::description()).into_response()
}

/// A page that shows this description; it fetches nothing from elsewhere.
#[utoipa::path(
    get, path = "/docs", tag = "service",
    responses((status = 200, body = String, content_type = "text/html"))
)]
pub async fn docs() -> Response {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'";
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(DOCS)).into_response()
}

/// The answer to a path that is no route.
pub async fn no_route() -> ApiError {
    ApiError::not_found("not_found", "no such route; GET /openapi.json lists them")
}
