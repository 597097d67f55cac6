//! Requests to routes of the providers' APIs that no model answers: files, batches, stored answers and single
//! models. They pass to the provider as they came.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;

use super::bodies::HeldBody;
use super::own_models::OwnModel;
use super::{
    DropInEndpoint, Problem, Sender, agent_names, azure, configured, has_agent, headers, query_for,
    response_of, with_ignored,
};
use crate::dropin::model_routes::below_base;
use toolscout_dropin::{AnswerBody, Dialect, DropInAnswer, PassedRequest, Target, Upstream};

/// A route that passes on, with its entry in the OpenAPI document.
macro_rules! passed {
    ($($(#[doc = $doc:literal])+ $method:tt $path:tt $name:ident;)+) => {
        $(
            $(#[doc = $doc])+
            #[utoipa::path(
                $method, path = $path, tag = "model",
                responses(
                    (status = 200, body = Object, description = "The provider's answer"),
                    (status = "default", body = Object, description = "An error, as the provider tells its own"),
                )
            )]
            pub async fn $name(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
                respond(&endpoint, request).await
            }
        )+
    };
}

passed! {
    /// Shows a stored answer of OpenAI's responses, as the provider has it.
    get "/v1/responses/{id}" show_response;
    /// Deletes a stored answer of OpenAI's responses.
    delete "/v1/responses/{id}" delete_response;
    /// Cancels an answer of OpenAI's responses that the provider makes in the background.
    post "/v1/responses/{id}/cancel" cancel_response;
    /// Lists the input of a stored answer of OpenAI's responses.
    get "/v1/responses/{id}/input_items" list_response_input;
    /// Lists the provider's batches of OpenAI's API.
    get "/v1/batches" list_batches;
    /// Begins a batch of OpenAI's API. Its requests are not searched.
    post "/v1/batches" create_batch;
    /// Shows a batch of OpenAI's API.
    get "/v1/batches/{id}" show_batch;
    /// Cancels a batch of OpenAI's API.
    post "/v1/batches/{id}/cancel" cancel_batch;
    /// Lists the provider's files.
    get "/v1/files" list_files;
    /// Uploads a file to the provider.
    post "/v1/files" create_file;
    /// Shows a file of the provider.
    get "/v1/files/{id}" show_file;
    /// Deletes a file of the provider.
    delete "/v1/files/{id}" delete_file;
    /// Downloads a file of the provider.
    get "/v1/files/{id}/content" file_content;
    /// Lists the provider's batches of Anthropic's messages.
    get "/v1/messages/batches" list_message_batches;
    /// Begins a batch of Anthropic's messages. Its requests are not searched.
    post "/v1/messages/batches" create_message_batch;
    /// Shows a batch of Anthropic's messages.
    get "/v1/messages/batches/{id}" show_message_batch;
    /// Deletes a batch of Anthropic's messages.
    delete "/v1/messages/batches/{id}" delete_message_batch;
    /// Cancels a batch of Anthropic's messages.
    post "/v1/messages/batches/{id}/cancel" cancel_message_batch;
    /// Downloads the results of a batch of Anthropic's messages.
    get "/v1/messages/batches/{id}/results" message_batch_results;
    /// Shows one model: an agent or an embedder of this server, or a model of the provider.
    get "/v1/models/{id}" show_model;
}

async fn respond(endpoint: &DropInEndpoint, request: Request) -> Response {
    let (mut parts, body) = headers::with_key_in_header(request).into_parts();
    let dialect = dialect_of(&parts.uri, &parts.headers);
    let answered = async {
        let sender = Sender::of(endpoint, &mut parts).await?;
        if let Some(model) = own_model(endpoint, &parts.uri) {
            return Ok(json_answer(model));
        }
        let body = HeldBody::of_request(&endpoint.bodies, &parts, body).await?;
        let target = target(endpoint, dialect, &parts.uri);
        pass_on(endpoint, dialect, target, sender, parts, body).await
    };
    match answered.await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

/// Where such a request goes.
pub(super) fn target(endpoint: &DropInEndpoint, dialect: Dialect, uri: &Uri) -> Target {
    let target = azure::target(endpoint, dialect, uri);
    match target.upstream {
        Upstream::Azure => target,
        _ => Target {
            path: below_base(uri.path()).to_owned(),
            ..target
        },
    }
}

/// Passes a request on to the provider.
pub(super) async fn pass_on(
    endpoint: &DropInEndpoint,
    dialect: Dialect,
    target: Target,
    sender: Sender,
    parts: Parts,
    body: Option<HeldBody>,
) -> Result<DropInAnswer, Problem> {
    let dropin = configured(endpoint, None)?;
    let ignored = headers::ignored(Some(&dropin), &parts.headers);
    let (body, reserved) = match body {
        Some(HeldBody { bytes, reserved }) => (Some(bytes), Some(reserved)),
        None => (None, None),
    };
    let answer = dropin.pass_on(PassedRequest {
        dialect,
        owner: sender.owner,
        method: parts.method,
        upstream: target.upstream,
        query: query_for(&target, &parts.uri),
        path: target.path,
        headers: parts.headers,
        key: sender.key,
        body,
        reserved,
    });
    Ok(with_ignored(answer.await?, ignored))
}

/// The API of such a path. Several providers have files and models.
fn dialect_of(uri: &Uri, headers: &HeaderMap) -> Dialect {
    if below_base(uri.path()).starts_with("/models") && headers::speaks_gemini(headers) {
        return Dialect::Gemini;
    }
    let is_messages = below_base(uri.path()).starts_with("/messages/");
    match is_messages || headers.contains_key("anthropic-version") {
        true => Dialect::Messages,
        false => Dialect::Chat,
    }
}

/// The model of this server that a path names.
fn own_model(endpoint: &DropInEndpoint, uri: &Uri) -> Option<Bytes> {
    let model = below_base(uri.path()).strip_prefix("/models/")?;
    // Some clients encode the slashes of a name.
    let model = model.replace("%2F", "/").replace("%2f", "/");
    if let Some(embedder) = OwnModel::named(&model) {
        return Some(embedder.entry());
    }
    match has_agent(endpoint) {
        true => toolscout_dropin::agent_alone(&model, agent_names(endpoint)),
        false => None,
    }
}

/// An answer of this server.
pub(super) fn json_answer(body: Bytes) -> DropInAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    DropInAnswer {
        status: 200,
        headers,
        body: AnswerBody::Whole(body),
    }
}
