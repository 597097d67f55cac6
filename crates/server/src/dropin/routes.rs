//! Paths at which clients of the providers' APIs ask, beyond the routes of this server.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{MAX_BODY_BYTES, Problem, embeddings, gemini, passed, serves_models};
use crate::App;
use crate::dropin::model_routes::{self, OTHER_BASES};
use toolscout_base::printable::excerpt;
use toolscout_dropin::{Dialect, Failure};

/// The routes, for messages.
const ROUTES: &str = "POST /v1/chat/completions, /v1/responses, /v1/responses/input_tokens, /v1/messages, \
                      /v1/messages/count_tokens, /v1/embeddings, \
                      /v1beta/models/{model}:generateContent and /model/{model}/converse, GET /v1/models, and the routes of stored responses, \
                      files and batches";
/// What the paths of OpenAI's API begin with.
const OPENAI: [&str; 23] = [
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "containers",
    "conversations",
    "edits",
    "embeddings",
    "engines",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "models",
    "moderations",
    "organization",
    "realtime",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];
/// What the paths of Anthropic's API begin with, where OpenAI has no such paths.
const ANTHROPIC: [&str; 3] = ["complete", "messages", "organizations"];
/// Most characters of a path in a message.
const MAX_PATH_CHARS: usize = 200;

/// The routes again, for base URLs with one `/v1` too few or too many: the SDKs of one provider add
/// it themselves, and those of the other do not.
pub fn below_other_bases() -> Router<App> {
    let mut router = Router::new();
    for base in OTHER_BASES {
        router = router
            .route(
                &format!("{base}/chat/completions"),
                post(super::chat_completions),
            )
            .route(&format!("{base}/responses"), post(super::responses))
            .route(
                &format!("{base}/responses/input_tokens"),
                post(super::count_response_tokens),
            )
            .route(&format!("{base}/messages"), post(super::messages))
            .route(
                &format!("{base}/messages/count_tokens"),
                post(super::count_message_tokens),
            )
            .route(&format!("{base}/models"), get(super::models))
            .merge(passed_routes(base));
    }
    router = router
        .merge(models_with_slashes("/v1"))
        .merge(azure_routes())
        .merge(gemini_below_other_bases());
    router.layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// The routes that the OpenAPI document describes.
pub fn described() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(passed::show_response, passed::delete_response))
        .routes(routes!(passed::cancel_response))
        .routes(routes!(passed::list_response_input))
        .routes(routes!(passed::list_batches, passed::create_batch))
        .routes(routes!(passed::show_batch))
        .routes(routes!(passed::cancel_batch))
        .routes(routes!(passed::list_files, passed::create_file))
        .routes(routes!(passed::show_file, passed::delete_file))
        .routes(routes!(passed::file_content))
        .routes(routes!(
            passed::list_message_batches,
            passed::create_message_batch
        ))
        .routes(routes!(
            passed::show_message_batch,
            passed::delete_message_batch
        ))
        .routes(routes!(passed::cancel_message_batch))
        .routes(routes!(passed::message_batch_results))
        .routes(routes!(passed::show_model, gemini::generate_v1))
}

/// The routes again below another base URL.
fn passed_routes(base: &str) -> Router<App> {
    let routes: [(&str, MethodRouter<App>); 15] = [
        (
            "/responses/{id}",
            get(passed::show_response).delete(passed::delete_response),
        ),
        ("/responses/{id}/cancel", post(passed::cancel_response)),
        (
            "/responses/{id}/input_items",
            get(passed::list_response_input),
        ),
        (
            "/batches",
            get(passed::list_batches).post(passed::create_batch),
        ),
        ("/batches/{id}", get(passed::show_batch)),
        ("/batches/{id}/cancel", post(passed::cancel_batch)),
        ("/files", get(passed::list_files).post(passed::create_file)),
        (
            "/files/{id}",
            get(passed::show_file).delete(passed::delete_file),
        ),
        ("/files/{id}/content", get(passed::file_content)),
        (
            "/messages/batches",
            get(passed::list_message_batches).post(passed::create_message_batch),
        ),
        (
            "/messages/batches/{id}",
            get(passed::show_message_batch).delete(passed::delete_message_batch),
        ),
        (
            "/messages/batches/{id}/cancel",
            post(passed::cancel_message_batch),
        ),
        (
            "/messages/batches/{id}/results",
            get(passed::message_batch_results),
        ),
        (
            "/models/{id}",
            get(passed::show_model).post(gemini::generate_v1),
        ),
        ("/embeddings", post(embeddings::create)),
    ];
    let mut router = Router::new();
    for (path, methods) in routes {
        router = router.route(&format!("{base}{path}"), methods);
    }
    router.merge(models_with_slashes(base))
}

/// Names of models may have slashes, which some clients do not encode.
fn models_with_slashes(base: &str) -> Router<App> {
    let mut router = Router::new();
    for path in ["/models/{id}/{name}", "/models/{id}/{name}/{variant}"] {
        router = router.route(&format!("{base}{path}"), get(passed::show_model));
    }
    router
}

/// The routes again, for base URLs that have the version already.
fn gemini_below_other_bases() -> Router<App> {
    Router::new()
        .route(
            "/v1beta/v1beta/models/{model}",
            post(gemini::generate).get(gemini::show_model),
        )
        .route("/v1beta/v1beta/models", get(gemini::list_models))
}

/// The routes. They have the handlers of OpenAI's paths.
fn azure_routes() -> Router<App> {
    let mut router = Router::new();
    for base in ["/openai/deployments/{deployment}", "/openai/v1"] {
        router = router
            .route(
                &format!("{base}/chat/completions"),
                post(super::chat_completions),
            )
            .route(&format!("{base}/responses"), post(super::responses));
    }
    router
        .route(
            "/openai/deployments/{deployment}/embeddings",
            post(embeddings::create),
        )
        .route("/openai/responses", post(super::responses))
        .route("/openai/v1/models", get(super::models))
        .merge(passed_routes("/openai/v1"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// The answer to a path of a provider's API that is no route here, or to a method that the route
/// does not have, as that provider tells its errors; `None` for any other path.
pub fn not_served(
    app: &App,
    status: StatusCode,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Response> {
    if !serves_models(app) {
        return None;
    }
    let dialect = dialect_of(uri.path(), headers)?;
    let path = excerpt(uri.path(), MAX_PATH_CHARS);
    let failure = if status == StatusCode::METHOD_NOT_ALLOWED {
        let message =
            format!("{path} does not support {method}; the Allow header lists what it supports");
        Failure::new(405, "method_not_allowed", message)
    } else {
        let message = format!(
            "{method} {path} is no route of this server; of the providers' APIs it has {ROUTES}. Ask the provider \
             itself for others"
        );
        Failure::new(404, "not_found", message)
    };
    Some(Problem::Failure(failure).into_response(dialect))
}

/// The API that such a path belongs to.
fn dialect_of(path: &str, headers: &HeaderMap) -> Option<Dialect> {
    let below = model_routes::below_base(path).trim_start_matches('/');
    let resource = below.split('/').next().unwrap_or_default();
    if path.starts_with("/v1beta/") {
        return Some(Dialect::Gemini);
    }
    if path.starts_with("/model/") {
        return Some(Dialect::Converse);
    }
    // These headers come from the SDKs of the providers. Anthropic's SDK sends both, so it goes first.
    if headers.contains_key("anthropic-version") || ANTHROPIC.contains(&resource) {
        Some(Dialect::Messages)
    } else if headers.contains_key("x-stainless-lang") || OPENAI.contains(&resource) {
        Some(Dialect::Chat)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_api_that_has_its_like() {
        let none = HeaderMap::new();
        for path in [
            "/v1/embeddings",
            "/v1/chat/completion",
            "/v1/responses/resp_1",
            "/completions",
            "/v1/v1/completions",
        ] {
            assert_eq!(dialect_of(path, &none), Some(Dialect::Chat), "{path}");
        }
        for path in ["/v1/messages/msg_1", "/v1/complete", "/messages/batches"] {
            assert_eq!(dialect_of(path, &none), Some(Dialect::Messages), "{path}");
        }
        for path in ["/", "/v1", "/v1/catalog", "/favicon.ico"] {
            assert_eq!(dialect_of(path, &none), None, "{path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", "2023-06-01".parse().unwrap());
        assert_eq!(dialect_of("/v1/files", &headers), Some(Dialect::Messages));
    }
}
