//! The state of the service: health, version and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::gauges::Gauges;
use crate::access::{Access, Grant};
use crate::dropin::{self, DropInEndpoint};
use crate::process::descriptors;
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::Json;
use crate::served::ServedCatalogs;
use toolscout_state::shared::SharedStore;

const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The health of the service.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    status: &'static str,
    /// Number of catalogs that cannot be opened, if any; `GET /v1/catalogs` lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_catalogs: Option<usize>,
    /// `away` while the store of the catalogs cannot be reached: searches go on, writes do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
}

/// Looks at the health of the server. Cheap to clone.
#[derive(Clone)]
pub struct HealthCheck {
    /// Knows whether the catalogs are open.
    pub access: Arc<Access>,
    /// Knows which of them are damaged.
    pub catalogs: Arc<ServedCatalogs>,
    /// The store of the catalogs, if several nodes share one.
    pub store: Option<Arc<dyn SharedStore>>,
    /// File descriptors that the process may open.
    pub descriptors: Option<u64>,
    /// From then on no request is taken.
    pub shutdown: Shutdown,
}

impl HealthCheck {
    /// Passes if the server takes requests.
    ///
    /// # Errors
    /// 503 until the catalogs are open, during the shutdown, and when file descriptors run out.
    fn require_ready(&self) -> ApiResult<()> {
        if self.shutdown.is_triggered() {
            return Err(ApiError::shutting_down());
        }
        self.access.require_ready()?;
        // Without descriptors nothing can be accepted or opened, so load balancers should use another
        // server.
        if let Some(limit) = self.descriptors
            && descriptors::are_nearly_used(limit)
        {
            let message =
                "the server has nearly used up its file descriptors; raise its limit (`ulimit -n`)";
            return Err(ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "descriptors_low",
                message,
            ));
        }
        Ok(())
    }

    fn health(&self) -> Health {
        let damaged = self.catalogs.damaged().len();
        let store = self.store.as_ref();
        let is_away = store.is_some_and(|store| store.problem().is_some());
        Health {
            status: "ok",
            damaged_catalogs: (damaged > 0).then_some(damaged),
            // The reason is left out: anyone may ask for the health, and it may name the store's address.
            store: is_away.then_some("away"),
        }
    }
}

/// The running program.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    /// Its name.
    name: &'static str,
    /// Its version.
    version: &'static str,
}

/// The process is alive.
#[utoipa::path(get, path = "/livez", tag = "service", responses((status = 200, body = Health, description = "The process is alive")))]
pub async fn livez() -> Json<Health> {
    Json(Health {
        status: "ok",
        damaged_catalogs: None,
        store: None,
    })
}

/// Ready for requests: the catalogs are open, file descriptors are left, and the server is not
/// shutting down.
#[utoipa::path(get, path = "/readyz", tag = "service", responses((status = 200, body = Health, description = "The server takes requests")))]
pub async fn readyz(State(check): State<HealthCheck>) -> ApiResult<Json<Health>> {
    check.require_ready()?;
    Ok(Json(check.health()))
}

/// The same as `/readyz`, under the name that some load balancers expect.
#[utoipa::path(get, path = "/healthz", tag = "service", responses((status = 200, body = Health, description = "The server takes requests")))]
pub async fn healthz(check: State<HealthCheck>) -> ApiResult<Json<Health>> {
    readyz(check).await
}

/// The name and version of the running program.
#[utoipa::path(get, path = "/version", tag = "service", responses((status = 200, body = Version, description = "Name and version")))]
pub async fn version() -> Json<Version> {
    Json(Version {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Metrics for Prometheus. Where keys are in use, this needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    responses((status = 200, body = String, content_type = "application/openmetrics-text", description = "The metrics"))
)]
pub async fn metrics(grant: Grant, State(gauges): State<Gauges>) -> ApiResult<Response> {
    grant.operates()?;
    gauges.measure_catalogs();
    gauges.measure_servers();
    let figures = gauges.metrics.encode();
    Ok(([(header::CONTENT_TYPE, PROMETHEUS)], figures).into_response())
}

/// Answers a path that is not a route, in the words of the API whose clients ask there.
pub async fn unmatched(
    State(endpoint): State<Arc<DropInEndpoint>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match dropin::not_served(&endpoint, StatusCode::NOT_FOUND, &method, &uri, &headers) {
        Some(of_provider) => of_provider,
        None => no_route().into_response(),
    }
}

/// Answers a method that the route does not have, in the words of the API whose clients ask there.
pub async fn other_method(
    State(endpoint): State<Arc<DropInEndpoint>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    match dropin::not_served(&endpoint, status, &method, &uri, &headers) {
        Some(of_provider) => of_provider,
        None => ApiError::of_status(status).into_response(),
    }
}

/// The error for a path that is not a route.
pub fn no_route() -> ApiError {
    ApiError::not_found(
        "not_found",
        "no such route; GET /openapi.json lists the routes",
    )
}
