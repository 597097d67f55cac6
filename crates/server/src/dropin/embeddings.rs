//! `POST /v1/embeddings`: vectors of this server's own embedders under names of models, and of any
//! other model by the provider.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::bodies::HeldBody;
use super::own_models::OwnModel;
use super::passed::{json_answer, pass_on, target};
use super::{DropInEndpoint, Problem, Sender, response_of};
use toolscout_dropin::{Dialect, DropInAnswer, Failure, Upstream, requested_model};

/// What the names of this server's models begin with.
const OWN: &str = "toolscout/";

/// Embeds texts. The models `toolscout/table`, `toolscout/languages` and `toolscout/encoder` are this
/// server's own; the provider embeds with every other model.
#[utoipa::path(
    post, path = "/v1/embeddings", operation_id = "create_embedding", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As OpenAI describes it"),
    responses(
        (status = 200, body = Object, description = "The vectors, as OpenAI describes them"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn create(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    match answer(&endpoint, request).await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(Dialect::Chat),
    }
}

async fn answer(endpoint: &DropInEndpoint, request: Request) -> Result<DropInAnswer, Problem> {
    let (mut parts, body) = request.into_parts();
    let sender = Sender::of(endpoint, &mut parts).await?;
    let body = HeldBody::read(&endpoint.bodies, &parts, body).await?;
    let model = requested_model(&body.bytes).unwrap_or_default();
    if let Some(own) = OwnModel::named(&model) {
        return Ok(json_answer(
            own.answer(&endpoint.calls.cpu_pool, &body.bytes).await?,
        ));
    }
    if model.starts_with(OWN) {
        let names: Vec<&str> = OwnModel::ALL.iter().map(|own| own.name()).collect();
        let message = format!(
            "there is no embedding model {model:?}; this server has {}",
            names.join(", ")
        );
        return Err(Failure::new(404, "model_not_found", message).into());
    }
    let mut target = target(endpoint, Dialect::Chat, &parts.uri);
    // A deployment of Azure has the path of another service otherwise.
    if target.upstream == Upstream::Main {
        target.path = "/embeddings".to_owned();
    }
    pass_on(endpoint, Dialect::Chat, target, sender, parts, Some(body)).await
}
