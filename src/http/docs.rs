//! `/openapi.json`, and `/docs`: Swagger UI, whose files are part of the program. The page loads
//! nothing from other hosts.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::{Router, middleware};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::state::App;

/// Only files of this server, no inline scripts and no inline style sheets. Swagger UI draws its
/// icons from `data:` URLs.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'",
);

/// The routes of the OpenAPI document and of the page that shows it.
pub fn routes(description: OpenApi) -> Router<App> {
    let config = Config::default()
        .try_it_out_enabled(true)
        .display_request_duration(true)
        .doc_expansion("none")
        // By default the page asks validator.swagger.io about the document.
        .validator_url("none");
    let viewer = SwaggerUi::new("/docs")
        .url("/openapi.json", description)
        .config(config);
    Router::from(viewer).layer(middleware::map_response(with_security_policy))
}

async fn with_security_policy(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    response
}
