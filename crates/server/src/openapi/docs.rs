//! `/openapi.json`, and `/docs`: Swagger UI, whose files are part of the program. The page loads
//! nothing from other hosts.

use axum::{Router, middleware};
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::console::pages;

/// The routes of the OpenAPI document and of the page that shows it.
pub fn routes<S: Clone + Send + Sync + 'static>(description: OpenApi) -> Router<S> {
    let config = Config::default()
        .try_it_out_enabled(true)
        .display_request_duration(true)
        .doc_expansion("none")
        // By default the page asks validator.swagger.io about the document.
        .validator_url("none");
    let viewer = SwaggerUi::new("/docs")
        .url("/openapi.json", description)
        .config(config);
    Router::from(viewer).layer(middleware::map_response(pages::with_policy))
}
