//! The routes of the providers' APIs, below every base URL that clients take for theirs.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::dropin::model_routes::OTHER_BASES;
use crate::dropin::{self, MAX_BODY_BYTES, embeddings, gemini, passed};
use crate::state::App;

/// The routes again, for base URLs with one `/v1` too few or too many: the SDKs of one provider add
/// it themselves, and those of the other do not.
pub fn below_other_bases() -> Router<App> {
    let mut router = Router::new();
    for base in OTHER_BASES {
        router = router
            .route(
                &format!("{base}/chat/completions"),
                post(dropin::chat_completions),
            )
            .route(&format!("{base}/responses"), post(dropin::responses))
            .route(
                &format!("{base}/responses/input_tokens"),
                post(dropin::count_response_tokens),
            )
            .route(&format!("{base}/messages"), post(dropin::messages))
            .route(
                &format!("{base}/messages/count_tokens"),
                post(dropin::count_message_tokens),
            )
            .route(&format!("{base}/models"), get(dropin::models))
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
                post(dropin::chat_completions),
            )
            .route(&format!("{base}/responses"), post(dropin::responses));
    }
    router
        .route(
            "/openai/deployments/{deployment}/embeddings",
            post(embeddings::create),
        )
        .route("/openai/responses", post(dropin::responses))
        .route("/openai/v1/models", get(dropin::models))
        .merge(passed_routes("/openai/v1"))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}
