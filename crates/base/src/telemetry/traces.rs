//! Spans for an OpenTelemetry collector, over OTLP. Off unless an endpoint is set. No span contains
//! the text of a query, and secrets that the process knows are masked.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::Status;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as Exporter, Tracer};
use toolscout_index::Results;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::known_secrets;

/// The target of every exported span. It separates spans from log lines.
pub const TARGET: &str = "toolscout::traces";

/// Longest wait for the collector, for one batch and at shutdown.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connection to the collector. Dropping it sends the buffered spans.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Sends spans as `http/protobuf` to `endpoint`, a base URL to which `/v1/traces` is added.
    ///
    /// # Errors
    /// When the endpoint is not an HTTP URL.
    pub fn to(endpoint: &str) -> anyhow::Result<Self> {
        let url =
            reqwest::Url::parse(endpoint).with_context(|| format!("OTLP endpoint {endpoint:?}"))?;
        anyhow::ensure!(
            matches!(url.scheme(), "http" | "https"),
            "OTLP endpoint {endpoint:?} has the scheme {:?}; use a URL like http://127.0.0.1:4318",
            url.scheme()
        );
        // The exporter has a client of its own.
        crate::tls::provide();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(PATIENCE)
            .build()
            .with_context(|| format!("OTLP endpoint {endpoint:?}"))?;
        // The builder reads OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which take precedence.
        let resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource,
            None => resource.with_service_name("toolscout"),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Masked(exporter))
            .with_resource(resource.build())
            .build();
        Ok(Traces { provider })
    }

    /// The receiver of the spans of `tracing`.
    pub(super) fn tracer(&self) -> Tracer {
        self.provider.tracer("toolscout")
    }
}

/// An exporter that masks known secrets, such as one in the request id of a client.
#[derive(Debug)]
struct Masked<E>(E);

impl<E: Exporter> Exporter for Masked<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        if !known_secrets::is_empty() {
            for span in &mut batch {
                mask_span(span);
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn mask_span(span: &mut SpanData) {
    span.name = known_secrets::mask(&span.name).into_owned().into();
    mask_values(&mut span.attributes);
    for event in &mut span.events.events {
        event.name = known_secrets::mask(&event.name).into_owned().into();
        mask_values(&mut event.attributes);
    }
    for link in &mut span.links.links {
        mask_values(&mut link.attributes);
    }
    if let Status::Error { description } = &mut span.status {
        *description = known_secrets::mask(description).into_owned().into();
    }
}

/// Texts, and lists as text.
fn mask_values(attributes: &mut [KeyValue]) {
    for KeyValue { value, .. } in attributes {
        if matches!(value, Value::String(_) | Value::Array(_)) {
            let text = value.as_str().into_owned();
            // Borrowed means that no secret was found, and lists stay lists.
            if let Cow::Owned(masked) = known_secrets::mask(&text) {
                *value = masked.into();
            }
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(PATIENCE) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

/// The span of a request, a child of the caller's span if the headers name one (`traceparent`).
pub fn request_span(
    method: &'static str,
    route: &str,
    request_id: &str,
    headers: &HeaderMap,
) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        request_id,
    );
    // Without a collector the headers need not be read.
    if !span.is_disabled() {
        let caller = TraceContextPropagator::new().extract(&Headers(headers));
        // It fails only without a collector, where the parent does not matter.
        let _ = span.set_parent(caller);
    }
    span
}

/// Records the status of a request in its span.
pub fn record_status(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    // An error of the client is none of the server, by the conventions of OpenTelemetry.
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a request to a model whose tools are deferred; `proxy` adds its
/// figures.
pub fn model_span(dialect: &'static str) -> Span {
    tracing::info_span!(
        target: TARGET,
        "model_request",
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        toolscout.dialect = dialect,
        toolscout.outcome = Empty,
        toolscout.rounds = Empty,
        toolscout.searches = Empty,
        toolscout.tools_offered = Empty,
        toolscout.tools_shown = Empty,
        toolscout.tokens_saved = Empty,
        toolscout.model_ms = Empty,
    )
}

/// The span of a search; [`record_search`] adds the outcome.
pub fn search_span() -> Span {
    tracing::info_span!(
        target: TARGET,
        "search",
        search.mode = Empty,
        search.hits = Empty,
        search.degraded = Empty,
        search.embed_ms = Empty,
        search.lexical_ms = Empty,
        search.dense_ms = Empty,
        search.fuse_ms = Empty,
        search.rank_ms = Empty,
    )
}

/// Records the outcome of a search in its span, with the time of each stage.
pub fn record_search(span: &Span, results: &Results) {
    let timings = &results.timings;
    span.record("search.mode", results.mode.name());
    span.record("search.hits", results.hits.len());
    span.record("search.degraded", results.degraded.is_some());
    span.record("search.embed_ms", timings.embed_ms);
    span.record("search.lexical_ms", timings.lexical_ms);
    span.record("search.dense_ms", timings.dense_ms);
    span.record("search.fuse_ms", timings.fuse_ms);
    span.record("search.rank_ms", timings.rank_ms);
}

/// Lets the propagator read HTTP headers.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_secrets_leave_in_no_attribute() {
        let secret = "traced/secret+4711";
        known_secrets::add(secret);
        let encoded = "dHJhY2VkL3NlY3JldCs0NzEx";
        let mut attributes = [
            KeyValue::new("request_id", secret),
            KeyValue::new("in_a_text", format!("Bearer {secret}!")),
            KeyValue::new("in_base64", encoded),
            KeyValue::new("percent", "traced%2Fsecret%2B4711"),
            KeyValue::new(
                "a_list",
                Value::Array(vec![opentelemetry::StringValue::from(secret)].into()),
            ),
            KeyValue::new("number", 4711),
            KeyValue::new("harmless", "search"),
        ];
        mask_values(&mut attributes);
        let shown = format!("{attributes:?}");
        for form in [secret, encoded, "%2Fsecret"] {
            assert!(!shown.contains(form), "{shown}");
        }
        assert!(
            shown.contains("4711") && shown.contains("search"),
            "{shown}"
        );
    }
}
