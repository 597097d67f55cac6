//! Google's Gemini. The path names the model and what is asked of it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::response::Response;

use super::bodies::HeldBody;
use super::headers::with_key_in_header;
use super::passed::pass_on;
use super::{DropInEndpoint, Problem, Sender, Wanted, answer, response_of};
use toolscout_base::printable::excerpt;
use toolscout_dropin::{Dialect, DropInAnswer, Failure, Target, Upstream};

/// What the paths begin with.
const BASE: &str = "/v1beta";
/// Most characters of a path in a message.
const MAX_PATH_CHARS: usize = 200;

/// Answers a request of Gemini with the provider's model, as `/v1/chat/completions` does.
///
/// The path ends with the model and a method: `gemini-2.5-flash:generateContent`,
/// `:streamGenerateContent` (events with `alt=sse`, else one list of chunks) or `:countTokens`.
/// `:embedContent`, `:batchEmbedContents` and `:batchGenerateContent` pass to the provider.
#[utoipa::path(
    post, path = "/v1beta/models/{model}", operation_id = "generate_content", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As Google describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or its stream"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn generate(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    told(generated(&endpoint, request).await)
}

/// As `/v1beta/models/{model}`, for clients of the first version of Gemini's API.
#[utoipa::path(
    post, path = "/v1/models/{id}", operation_id = "generate_content_v1", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As Google describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or its stream"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn generate_v1(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    told(generated(&endpoint, request).await)
}

/// Shows one of the models of Gemini's provider.
#[utoipa::path(
    get, path = "/v1beta/models/{model}", operation_id = "show_gemini_model", tag = "model",
    responses(
        (status = 200, body = Object, description = "The provider's answer"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn show_model(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    told(passed(&endpoint, request).await)
}

/// Lists the models of Gemini's provider.
#[utoipa::path(
    get, path = "/v1beta/models", operation_id = "list_gemini_models", tag = "model",
    responses(
        (status = 200, body = Object, description = "The provider's list"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn list_models(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    told(passed(&endpoint, request).await)
}

fn told(answered: Result<DropInAnswer, Problem>) -> Response {
    match answered {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(Dialect::Gemini),
    }
}

async fn generated(endpoint: &DropInEndpoint, request: Request) -> Result<DropInAnswer, Problem> {
    let request = with_key_in_header(request);
    let path = below(request.uri());
    let method = path.rsplit_once(':').map(|(_, method)| method.to_owned());
    let (wanted, streams) = match method.as_deref() {
        Some("generateContent") => (Wanted::Answer, false),
        Some("streamGenerateContent") => (Wanted::Answer, true),
        Some("countTokens") => (Wanted::Tokens, false),
        Some("embedContent" | "batchEmbedContents" | "batchGenerateContent") => {
            return passed(endpoint, request).await;
        }
        _ => {
            // Who has no key learns nothing about routes.
            let (mut parts, _) = request.into_parts();
            Sender::of(endpoint, &mut parts).await?;
            let message = format!(
                "{} is no route of this server; of Gemini's methods it has generateContent, streamGenerateContent, \
                 countTokens, embedContent, batchEmbedContents and batchGenerateContent",
                excerpt(parts.uri.path(), MAX_PATH_CHARS)
            );
            return Err(Failure::new(404, "not_found", message).into());
        }
    };
    let target = Target {
        upstream: Upstream::Gemini,
        path,
        streams: Some(streams),
    };
    answer(endpoint, Dialect::Gemini, target, wanted, request).await
}

async fn passed(endpoint: &DropInEndpoint, request: Request) -> Result<DropInAnswer, Problem> {
    let (mut parts, body) = with_key_in_header(request).into_parts();
    let sender = Sender::of(endpoint, &mut parts).await?;
    let body = HeldBody::of_request(&endpoint.bodies, &parts, body).await?;
    let target = Target {
        upstream: Upstream::Gemini,
        path: below(&parts.uri),
        streams: None,
    };
    pass_on(endpoint, Dialect::Gemini, target, sender, parts, body).await
}

/// The path below the base URL of the API.
fn below(uri: &Uri) -> String {
    let mut path = uri.path();
    while let Some(rest) = path.strip_prefix(BASE).or(path.strip_prefix("/v1")) {
        path = rest;
    }
    path.replace("%3A", ":").replace("%3a", ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_taken_off_the_path() {
        for path in [
            "/v1beta/models/m:x",
            "/v1beta/v1beta/models/m%3Ax",
            "/v1/models/m:x",
        ] {
            assert_eq!(below(&path.parse().unwrap()), "/models/m:x");
        }
    }
}
