//! Every route of the API, and the layers around them.

mod models;

use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::routing::any;
use axum::{Router, middleware};
use tower_http::cors::{AllowHeaders, CorsLayer};
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use crate::access::{audit, key_watch};
use crate::admin::{history, keys, own_key, service, stats, usage};
use crate::agent::approvals;
use crate::catalogs::{
    calls, changes, companions, enrich, memory, servers, tags, texts, tools, words,
};
use crate::evaluations::judgings;
use crate::layers::{envelope, guard, mask};
use crate::openapi::docs;
use crate::search::feedback;
use crate::state::App;
use crate::{agent, catalogs, console, dropin, evaluations, mcp, openapi, request, search, tasks};

/// Every route of the API with its layers.
pub fn router(app: App) -> Router {
    let limits = &app.limits;
    let (routes, description) = api_routes(limits.bulk_body_bytes).split_for_parts();
    let routes = routes
        .merge(docs::routes(openapi::complete(description)))
        .merge(console::routes())
        .merge(models::below_other_bases())
        .merge(mcp_routes())
        .fallback(service::unmatched)
        .method_not_allowed_fallback(service::other_method);
    // From the inside out: a request meets the last layer first. Masking is outermost, so that it
    // covers all answers. The envelope comes next, so that it measures and logs all requests. The guard
    // comes before CORS and everything else, so that nothing is done for a foreign page.
    routes
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .layer(RequestBodyTimeoutLayer::new(limits.body_stall))
        .layer(middleware::from_fn_with_state(
            app.clone(),
            key_watch::end_with_key,
        ))
        .layer(cors(&app.allowed.origins))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .layer(middleware::from_fn_with_state(
            app.clone(),
            envelope::envelope,
        ))
        .layer(middleware::map_response(mask::mask_secrets))
        .with_state(app)
}

/// The OpenAPI document of the API.
#[cfg(test)]
pub fn description() -> utoipa::openapi::OpenApi {
    let (_, description) = api_routes(0).split_for_parts();
    openapi::complete(description)
}

/// The routes that the OpenAPI document describes. Their paths and methods are those of the
/// handlers' `utoipa::path` attributes.
fn api_routes(bulk_body_bytes: usize) -> OpenApiRouter<App> {
    let bulk = DefaultBodyLimit::max(bulk_body_bytes);
    let model = DefaultBodyLimit::max(dropin::MAX_BODY_BYTES);
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(search::search, search::search_by_query))
        .routes(routes!(search::search_default))
        .routes(routes!(catalogs::list, catalogs::create))
        .routes(routes!(catalogs::show, catalogs::ensure, catalogs::delete))
        .routes(routes!(catalogs::settings, catalogs::set_settings))
        .routes(
            routes!(words::show, words::replace, words::patch)
                .layer(DefaultBodyLimit::max(words::MAX_BODY_BYTES)),
        )
        .routes(routes!(catalogs::stats))
        .routes(routes!(tools::list, tools::upsert, tools::remove_matching).layer(bulk))
        .routes(routes!(tools::show, tools::put, tools::remove).layer(bulk))
        .routes(routes!(companions::list))
        .routes(routes!(companions::list_default))
        .routes(routes!(texts::list, texts::take, texts::remove_all).layer(bulk))
        .routes(routes!(texts::show, texts::put, texts::remove))
        .routes(routes!(texts::ask))
        .routes(routes!(enrich::state, enrich::start))
        .routes(routes!(enrich::measured))
        .routes(routes!(servers::sync).layer(bulk))
        .routes(routes!(servers::list))
        .routes(routes!(changes::list, changes::review))
        .routes(routes!(calls::call))
        .routes(routes!(tags::list))
        .routes(routes!(feedback::record))
        .routes(routes!(memory::list, memory::switch, memory::forget))
        .routes(routes!(memory::export))
        .routes(
            routes!(evaluations::list, evaluations::start)
                .layer(DefaultBodyLimit::max(evaluations::MAX_BODY_BYTES)),
        )
        .routes(
            routes!(evaluations::send).layer(DefaultBodyLimit::max(evaluations::MAX_REPORT_BYTES)),
        )
        .routes(routes!(evaluations::show, evaluations::delete))
        .routes(routes!(evaluations::queries))
        .routes(
            routes!(judgings::list, judgings::begin)
                .layer(DefaultBodyLimit::max(judgings::MAX_BODY_BYTES)),
        )
        .routes(routes!(judgings::show, judgings::delete))
        .routes(routes!(judgings::pooled))
        .routes(
            routes!(judgings::export, judgings::judge)
                .layer(DefaultBodyLimit::max(judgings::MAX_BODY_BYTES)),
        )
        .routes(routes!(judgings::agreement))
        .routes(routes!(evaluations::report))
        .routes(routes!(tasks::show, tasks::cancel))
        .routes(routes!(agent::show))
        .routes(routes!(agent::agents::list))
        .routes(routes!(agent::chat))
        .routes(routes!(agent::chat_by_query))
        .routes(routes!(agent::token::show))
        .routes(routes!(agent::stop))
        .routes(routes!(agent::approve))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::decide))
        .routes(routes!(agent::list))
        .routes(routes!(agent::read, agent::delete))
        .routes(routes!(agent::events))
        .routes(routes!(dropin::chat_completions).layer(model))
        .routes(routes!(dropin::responses).layer(model))
        .routes(routes!(dropin::messages).layer(model))
        .routes(routes!(dropin::count_message_tokens).layer(model))
        .routes(routes!(dropin::count_response_tokens).layer(model))
        .routes(routes!(dropin::models))
        .routes(routes!(dropin::embeddings::create).layer(model))
        .merge(models::described().layer(model))
        .routes(routes!(dropin::gemini::generate, dropin::gemini::show_model).layer(model))
        .routes(routes!(dropin::gemini::list_models))
        .routes(routes!(dropin::bedrock::converse).layer(model))
        .routes(routes!(dropin::bedrock::converse_stream).layer(model))
        .routes(routes!(dropin::bedrock::invoke).layer(model))
        .routes(routes!(dropin::bedrock::invoke_stream).layer(model))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::show, keys::revoke))
        .routes(routes!(own_key::show))
        .routes(routes!(audit::list))
        .routes(routes!(audit::checked, audit::check))
        .routes(routes!(stats::show))
        .routes(routes!(history::show))
        .routes(routes!(usage::overview))
        .routes(routes!(usage::list))
        .routes(routes!(usage::unused))
        .routes(routes!(usage::missed, usage::forget_missed))
        .routes(routes!(usage::shadow))
        .routes(routes!(service::livez))
        .routes(routes!(service::readyz))
        .routes(routes!(service::healthz))
        .routes(routes!(service::version))
        .routes(routes!(service::metrics))
}

/// The routes of the MCP gateway, each with and without a slash at its end: some clients add one.
fn mcp_routes() -> Router<App> {
    let mut routes = Router::new();
    for path in [mcp::PATH, mcp::PROFILE_PATH] {
        routes = routes
            .route(path, any(mcp::serve))
            .route(&format!("{path}/"), any(mcp::serve));
    }
    routes
}

/// Response headers that pages may read.
fn exposed_headers() -> Vec<HeaderName> {
    let own = [
        request::id::REQUEST_ID,
        agent::CONVERSATION_ID,
        mcp::SESSION_ID,
        header::LOCATION,
        header::RETRY_AFTER,
    ];
    own.into_iter().chain(dropin::answer_headers()).collect()
}

/// Lets pages of these origins call the API. Without any, only the server's own pages may.
fn cors(origins: &[String]) -> CorsLayer {
    let mut allowed: Vec<HeaderValue> = Vec::with_capacity(origins.len());
    for origin in origins {
        // An origin that does not fit into a header is never sent by a browser.
        if let Ok(origin) = origin.parse() {
            allowed.push(origin);
        }
    }
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ])
        // SDKs of the providers send headers of their own, and new ones with each version.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed_headers())
}
