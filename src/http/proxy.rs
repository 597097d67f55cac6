//! The APIs of model providers, with tool search in front: chat completions, responses and messages.

mod agent;
mod calls;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest as _, FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::App;
use super::access::Grant;
use super::envelope::RequestId;
use super::error::{ApiError, ApiResult};
use super::extract::RawBody;
use super::mcp::HasOwnErrorBody;
use super::registry::ServedSnapshots;
use crate::keys::{self, Scope};
use crate::proxy::{
    self, AgentQuestion, AnswerBody, DeferChoice, Dialect, ExtraCatalog, Failure, ProviderKey,
    Proxy, ProxyAnswer, ProxyRequest,
};

pub use agent::KnownConversations;

/// Bytes of a request: conversations hold images, and lists of tools are long.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// Chooses which tools are deferred: `off`, or the number of tokens from which on they are.
const DEFER: HeaderName = HeaderName::from_static("x-toolscout-defer");
/// Names a catalog that is searched besides the tools of the request.
const CATALOG: HeaderName = HeaderName::from_static("x-toolscout-catalog");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Answers a request of OpenAI's chat completions with the provider's model.
///
/// Of many tools the model sees some and `tool_search`, which is answered here. The body, the answer
/// and its errors are those of the provider.
#[utoipa::path(
    post, path = "/v1/chat/completions", operation_id = "create_chat_completion", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As OpenAI describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or its stream of events"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn chat_completions(State(app): State<App>, request: Request) -> Response {
    respond(&app, Dialect::Chat, request).await
}

/// Answers a request of OpenAI's responses with the provider's model, as `/v1/chat/completions` does.
#[utoipa::path(
    post, path = "/v1/responses", operation_id = "create_response", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As OpenAI describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or its stream of events"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn responses(State(app): State<App>, request: Request) -> Response {
    respond(&app, Dialect::Responses, request).await
}

/// Answers a request of Anthropic's messages with the provider's model, as `/v1/chat/completions`
/// does.
#[utoipa::path(
    post, path = "/v1/messages", operation_id = "create_message", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As Anthropic describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or its stream of events"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn messages(State(app): State<App>, request: Request) -> Response {
    respond(&app, Dialect::Messages, request).await
}

/// Lists the provider's models.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "list_models", tag = "model",
    responses(
        (status = 200, body = Object, description = "The provider's list"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn models(State(app): State<App>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    // Clients of the Anthropic API say which version of it they speak.
    let dialect = match parts.headers.contains_key("anthropic-version") {
        true => Dialect::Messages,
        false => Dialect::Chat,
    };
    let listed = async {
        let sender = Sender::of(&app, &mut parts).await?;
        listed_models(&app, dialect, &sender, &parts.headers).await
    };
    match listed.await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

/// The provider's models, and our agent where somebody chose its model.
async fn listed_models(
    app: &App,
    dialect: Dialect,
    sender: &Sender,
    headers: &HeaderMap,
) -> Result<ProxyAnswer, Problem> {
    let agent = app.agent.get();
    let has_agent = agent.is_some_and(|agent| agent.config().model_is_chosen);
    if app.proxy.is_none() && has_agent {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        return Ok(ProxyAnswer {
            status: 200,
            headers,
            body: AnswerBody::Whole(proxy::agent_alone()),
        });
    }
    let mut listed = configured(app)?
        .models(dialect, headers, &sender.key)
        .await?;
    if let AnswerBody::Whole(list) = &listed.body
        && has_agent
        && listed.status == 200
    {
        listed.body = AnswerBody::Whole(proxy::add_agent(list));
    }
    Ok(listed)
}

async fn respond(app: &App, dialect: Dialect, request: Request) -> Response {
    match answer(app, dialect, request).await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

async fn answer(app: &App, dialect: Dialect, request: Request) -> Result<ProxyAnswer, Problem> {
    let (mut parts, body) = request.into_parts();
    let sender = Sender::of(app, &mut parts).await?;
    let (headers, query) = (parts.headers.clone(), parts.uri.query().map(str::to_owned));
    let id = parts.extensions.get::<RequestId>().cloned();
    let RawBody(body) = RawBody::from_request(Request::from_parts(parts, body), app).await?;
    if let Some(question) = AgentQuestion::read(dialect, &sender.owner, &body)? {
        return agent::answer(app, &sender, question).await;
    }
    let proxy = configured(app)?;
    let request = ProxyRequest {
        dialect,
        id: id.map(|RequestId(id)| id).unwrap_or_default(),
        defer: defer_choice(&headers)?,
        extra: extra_catalog(app, &proxy, &sender.grant, &headers).await?,
        owner: sender.owner,
        key: sender.key,
        headers,
        query,
        body,
    };
    Ok(proxy.answer(request).await?)
}

fn configured(app: &App) -> ApiResult<Proxy> {
    app.proxy.clone().ok_or_else(|| {
        let message = "this server has no model to pass requests to; start it with --llm URL";
        ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "no_model", message)
    })
}

/// Who sent a request, and the key that it goes to the provider with.
struct Sender {
    grant: Grant,
    owner: String,
    key: ProviderKey,
}

impl Sender {
    async fn of(app: &App, parts: &mut Parts) -> Result<Self, Problem> {
        let config = app.proxy.as_ref().map(Proxy::config);
        let brings_own_key = config.is_some_and(|config| config.key_from_client);
        let credentials = take_credentials(&mut parts.headers);
        if !brings_own_key {
            // A key that is not ours is refused where keys are needed.
            parts.headers.extend(credentials.clone());
        }
        let grant = Grant::from_request_parts(parts, app).await?;
        grant.allows(Scope::Llm)?;
        let owner = match grant.key() {
            Some(_) => grant.sender(),
            None => owner_by_credentials(&credentials),
        };
        for name in [header::AUTHORIZATION, X_API_KEY] {
            parts.headers.remove(name);
        }
        let has_key = config.is_some_and(|config| {
            config.upstream.key.is_some() || config.upstream.messages_key.is_some()
        });
        let takes_theirs = brings_own_key || (grant.key().is_none() && !has_key);
        let key = if takes_theirs && !credentials.is_empty() {
            ProviderKey::OfClient(credentials)
        } else {
            ProviderKey::OfServer
        };
        Ok(Sender { grant, owner, key })
    }
}

/// Takes out the headers with a key that is not ours.
fn take_credentials(headers: &mut HeaderMap) -> HeaderMap {
    let mut credentials = HeaderMap::new();
    for name in [header::AUTHORIZATION, X_API_KEY] {
        let is_ours = |value: &HeaderValue| {
            let text = value.to_str().unwrap_or_default();
            text.split_whitespace().any(keys::is_token)
        };
        if headers.get(&name).is_some_and(|value| !is_ours(value))
            && let Some(mut value) = headers.remove(&name)
        {
            value.set_sensitive(true);
            credentials.insert(name, value);
        }
    }
    credentials
}

/// Clients without a key of ours are told apart by the provider's key that they send. Only a hash
/// of it is kept.
fn owner_by_credentials(credentials: &HeaderMap) -> String {
    if credentials.is_empty() {
        return "http".to_owned();
    }
    let mut hasher = blake3::Hasher::new_derive_key("toolscout owner of a model request");
    for (name, value) in credentials {
        hasher.update(name.as_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(value.as_bytes());
        hasher.update(&[0]);
    }
    format!("client:{}", hasher.finalize().to_hex())
}

fn defer_choice(headers: &HeaderMap) -> ApiResult<DeferChoice> {
    let Some(value) = headers.get(DEFER) else {
        return Ok(DeferChoice::OfServer);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text.eq_ignore_ascii_case("off") {
        return Ok(DeferChoice::Off);
    }
    text.parse().map(DeferChoice::Above).map_err(|_| {
        let message = format!(
            "X-Toolscout-Defer is {text:?}; send `off`, or the number of tokens from which on tools are deferred"
        );
        ApiError::invalid(StatusCode::BAD_REQUEST, "invalid_header", message)
    })
}

/// The catalog that the header names. The key must be for it.
async fn extra_catalog(
    app: &App,
    proxy: &Proxy,
    grant: &Grant,
    headers: &HeaderMap,
) -> ApiResult<Option<ExtraCatalog>> {
    let Some(name) = headers.get(CATALOG) else {
        return Ok(None);
    };
    let name = name.to_str().unwrap_or_default();
    grant.reads(name)?;
    let catalog = app.catalogs.get(name).await?;
    let caller = match proxy.config().calls_tools {
        true => Some(calls::caller(app, grant, Arc::clone(&catalog))?),
        false => None,
    };
    Ok(Some(ExtraCatalog {
        search: Arc::new(ServedSnapshots(catalog)),
        caller,
    }))
}

/// Why there is no answer.
enum Problem {
    Api(ApiError),
    Failure(Failure),
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        Problem::Api(error)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem::Failure(failure)
    }
}

impl Problem {
    /// The error as the provider would tell it.
    fn into_response(self, dialect: Dialect) -> Response {
        let (failure, retry_after_s) = match self {
            Problem::Failure(failure) => (failure, None),
            Problem::Api(error) => {
                if let Some(detail) = &error.detail {
                    tracing::error!(code = error.code, detail, "request failed");
                }
                let status = error.status.as_u16();
                let failure = Failure::new(status, error.code, error.message);
                (failure, error.retry_after_s)
            }
        };
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut response = (status, Body::from(dialect.error_body(&failure))).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(HasOwnErrorBody);
        response
    }
}

fn response_of(answer: ProxyAnswer) -> Response {
    let body = match answer.body {
        AnswerBody::Whole(bytes) => Body::from(bytes),
        AnswerBody::Stream(stream) => {
            use futures_util::StreamExt as _;
            Body::from_stream(stream.map(|part| part.map_err(|failure| failure.message)))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = answer.headers;
    response.extensions_mut().insert(HasOwnErrorBody);
    response
}
