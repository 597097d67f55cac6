//! The outermost layer around every request: its id, time limit, log line and metrics, and the body
//! of error answers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument as _;

use super::unread_body::UnreadBody;
use crate::catalogs::calls;
use crate::dropin::model_routes;
use crate::mcp;
use crate::process::limits::Limits;
use crate::request::error::ApiError;
use crate::request::id::{REQUEST_ID, RequestId};
use toolscout_base::printable::excerpt;
use toolscout_base::telemetry::{Metrics, traces};

/// The route of a path that is none.
const UNMATCHED: &str = "unmatched";
/// Most characters of such a path in the log.
const MAX_PATH_CHARS: usize = 200;

/// The outermost layer.
pub async fn envelope(
    State(metrics): State<Arc<Metrics>>,
    State(limits): State<Arc<Limits>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = RequestId::of(request.headers());
    let method = method_name(request.method());
    // The pattern and not the path: each id in a path would become a label of the metrics.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or(UNMATCHED, MatchedPath::as_str)
        .to_owned();
    // The path goes only to the log, never to the metrics.
    let path = (route == UNMATCHED).then(|| excerpt(request.uri().path(), MAX_PATH_CHARS));
    let span = traces::request_span(method, &route, &id.0, request.headers());
    request.extensions_mut().insert(id.clone());
    let (request, unread) = UnreadBody::of(request);

    metrics.in_flight.inc();
    // The answer to a tool call starts when the call has ended (over MCP, without a session), and
    // calls have limits of their own.
    let limit = if route == calls::PATH || mcp::contains(&route) {
        mcp::TIMEOUT
    } else if model_routes::contain(&route) {
        model_routes::TIMEOUT
    } else {
        limits.request_timeout
    };
    let response = answer(&metrics, limit, request, next)
        .instrument(span.clone())
        .await;
    metrics.in_flight.dec();

    let response = with_error_body(response, &id);
    traces::record_status(&span, response.status().as_u16());
    let elapsed = started.elapsed();
    metrics.request(
        method,
        &route,
        response.status().as_u16(),
        elapsed.as_secs_f64(),
    );
    // Whole microseconds: the rest is noise of the floating point.
    let elapsed_ms = elapsed.as_micros() as f64 / 1000.0;
    tracing::info!(
        request_id = id.0,
        method,
        route,
        path,
        status = response.status().as_u16(),
        elapsed_ms,
        "request"
    );
    // Closing the connection while the client still sends could lose the answer.
    if response.status().is_client_error() {
        unread.discard().await;
    }
    with_id(response, &id)
}

/// The answer of the inner layers, or an error if they panicked or took too long.
async fn answer(metrics: &Metrics, limit: Duration, request: Request, next: Next) -> Response {
    // The locks do not poison, so a panic leaves the shared state usable.
    let work = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(limit, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            ApiError::internal(format!("a handler panicked: {}", panic_message(&*panic)))
                .into_response()
        }
        Err(_) => {
            metrics.rejected("timeout");
            let message = format!(
                "the request took longer than {} s; a change that it asked for may still be made, so look before \
                 you send it again; else try again later, or ask for less",
                limit.as_secs()
            );
            ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "timeout", message).into_response()
        }
    }
}

/// Adds the body to error answers, including those of the framework, and logs their details.
fn with_error_body(response: Response, id: &RequestId) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let own_body: Option<&mcp::HasOwnErrorBody> = response.extensions().get();
    if !is_error || own_body.is_some() {
        return response;
    }
    // Errors of the framework may have a text body, which is replaced.
    let (mut parts, _) = response.into_parts();
    let error = match parts.extensions.remove::<ApiError>() {
        Some(error) => error,
        None => ApiError::of_status(status),
    };
    // Details go to the log only: they may name files and other machines.
    if let Some(detail) = &error.detail {
        tracing::error!(
            request_id = id.0,
            code = error.code,
            detail,
            "request failed"
        );
    }
    // A struct of strings always serialises.
    let body = serde_json::to_vec(&error.body(&id.0)).unwrap_or_default();
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    // Required with 401 (RFC 9110).
    if status == StatusCode::UNAUTHORIZED {
        parts
            .headers
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Response::from_parts(parts, Body::from(body))
}

fn with_id(mut response: Response, id: &RequestId) -> Response {
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        // The id of a model's provider stays: clients report problems with it.
        response.headers_mut().entry(REQUEST_ID).or_insert(value);
    }
    response
}

/// The name of a standard method. Others share one name, so that clients cannot create metric
/// labels.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    // `panic!` with arguments carries a `String`, and without arguments a `&str`.
    if let Some(text) = panic.downcast_ref::<String>() {
        return text;
    }
    panic
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("no message")
}
