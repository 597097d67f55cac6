//! Amazon Bedrock's Converse. The path names the model and what is asked of it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::bodies::HeldBody;
use super::passed::pass_on;
use super::{DropInEndpoint, Problem, Sender, Wanted, answer, response_of};
use toolscout_dropin::{Dialect, DropInAnswer, Target, Upstream};

/// Answers a request of Bedrock's Converse with the provider's model, as `/v1/chat/completions` does.
#[utoipa::path(
    post, path = "/model/{model}/converse", operation_id = "converse", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As AWS describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn converse(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    let target = target(&request, Some(false));
    told(
        answer(
            &endpoint,
            Dialect::Converse,
            target,
            Wanted::Answer,
            request,
        )
        .await,
    )
}

/// As `/model/{model}/converse`, with the answer as a stream of AWS.
#[utoipa::path(
    post, path = "/model/{model}/converse-stream", operation_id = "converse_stream", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As AWS describes it"),
    responses(
        (status = 200, content_type = "application/vnd.amazon.eventstream", description = "The provider's stream"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn converse_stream(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    let target = target(&request, Some(true));
    told(
        answer(
            &endpoint,
            Dialect::Converse,
            target,
            Wanted::Answer,
            request,
        )
        .await,
    )
}

/// Passes a request in the form of the model's maker to Bedrock. Its tools are not searched.
#[utoipa::path(
    post, path = "/model/{model}/invoke", operation_id = "invoke_model", tag = "model",
    responses(
        (status = 200, body = Object, description = "The provider's answer"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn invoke(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    told(passed(&endpoint, request).await)
}

/// As `/model/{model}/invoke`, with the answer as a stream of AWS.
#[utoipa::path(
    post, path = "/model/{model}/invoke-with-response-stream", operation_id = "invoke_model_stream", tag = "model",
    responses(
        (status = 200, content_type = "application/vnd.amazon.eventstream", description = "The provider's stream"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn invoke_stream(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    told(passed(&endpoint, request).await)
}

/// Where a request goes: the provider has the same paths.
fn target(request: &Request, streams: Option<bool>) -> Target {
    Target {
        upstream: Upstream::Bedrock,
        path: request.uri().path().to_owned(),
        streams,
    }
}

fn told(answered: Result<DropInAnswer, Problem>) -> Response {
    match answered {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(Dialect::Converse),
    }
}

async fn passed(endpoint: &DropInEndpoint, request: Request) -> Result<DropInAnswer, Problem> {
    let target = target(&request, None);
    let (mut parts, body) = request.into_parts();
    let sender = Sender::of(endpoint, &mut parts).await?;
    let body = HeldBody::of_request(&endpoint.bodies, &parts, body).await?;
    pass_on(endpoint, Dialect::Converse, target, sender, parts, body).await
}
