//! The APIs of model providers, with tool search in front: chat completions, responses and messages.

pub mod model_routes;
mod agent;
mod azure;
pub mod bedrock;
mod bodies;
mod calls;
pub mod embeddings;
pub mod gemini;
mod headers;
mod not_served;
mod own_models;
pub mod passed;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, FromRequestParts as _, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use self::bodies::HeldBody;
use self::model_routes::AZURE;
use crate::access::profiles::PROFILE;
use crate::access::{Access, Grant, ProfileGrant};
use crate::agent::AgentRuns;
use crate::catalogs::calls::ToolCalls;
use crate::mcp::HasOwnErrorBody;
use crate::request::error::{ApiError, ApiResult};
use crate::request::id::RequestId;
use crate::request::threads::blocking;
use crate::served::{ServedCatalogs, ServedSnapshots};
use toolscout_agent::Agents;
use toolscout_dropin::{
    self, API_KEY, AgentQuestion, AnswerBody, Dialect, DropIn, DropInAnswer, DropInRequest,
    ExtraCatalog, Failure, PassedRequest, ProviderKey, Target, Upstream, X_API_KEY, X_GOOG_API_KEY,
};
use toolscout_gate::usage::{Place, Recorder};
use toolscout_state::keys::{self, KeyStore, Scope};
use toolscout_state::session::DEFAULT_AGENT;

pub use agent::KnownConversations;
pub use bodies::BodyBudget;
pub use not_served::not_served;

/// Bytes of a request: conversations hold images, and lists of tools are long.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// The headers in which clients send keys.
const KEY_HEADERS: [HeaderName; 4] = [header::AUTHORIZATION, X_API_KEY, X_GOOG_API_KEY, API_KEY];

/// What answers requests to models: a provider, and the agents of this server.
pub struct DropInEndpoint {
    /// Passes requests to the provider; without one only agents answer.
    pub provider: Option<DropIn>,
    /// The agents as models.
    pub agents: Arc<AgentRuns>,
    /// What clients know of their conversations with agents.
    pub conversations: KnownConversations,
    /// The memory for bodies of requests.
    pub bodies: BodyBudget,
    /// Decides who may send them.
    pub access: Arc<Access>,
    /// Those that a request may name, to be searched besides its own tools.
    pub catalogs: Arc<ServedCatalogs>,
    /// Calls the tools of such a catalog.
    pub calls: Arc<ToolCalls>,
    /// Records the use of tools.
    pub usage: Recorder,
}

impl FromRef<DropInEndpoint> for Arc<Access> {
    fn from_ref(endpoint: &DropInEndpoint) -> Self {
        Arc::clone(&endpoint.access)
    }
}

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
pub async fn chat_completions(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    respond(&endpoint, Dialect::Chat, request).await
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
pub async fn responses(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    respond(&endpoint, Dialect::Responses, request).await
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
pub async fn messages(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    respond(&endpoint, Dialect::Messages, request).await
}

/// Counts the tokens of a request of Anthropic's messages, with the tools that the model would see.
///
/// The provider counts; where it has no such route, the tokens are counted here, which is about right.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", operation_id = "count_message_tokens", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As Anthropic describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or `input_tokens` alone"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn count_message_tokens(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    counted(&endpoint, Dialect::Messages, request).await
}

/// Counts the tokens of a request of OpenAI's responses, as `/v1/messages/count_tokens` does.
#[utoipa::path(
    post, path = "/v1/responses/input_tokens", operation_id = "count_response_tokens", tag = "model",
    request_body(content = Object, content_type = "application/json", description = "As OpenAI describes it"),
    responses(
        (status = 200, body = Object, description = "The provider's answer, or `input_tokens` alone"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn count_response_tokens(
    State(endpoint): State<Arc<DropInEndpoint>>,
    request: Request,
) -> Response {
    counted(&endpoint, Dialect::Responses, request).await
}

async fn counted(endpoint: &DropInEndpoint, dialect: Dialect, request: Request) -> Response {
    let target = Target::of(dialect);
    match answer(endpoint, dialect, target, Wanted::Tokens, request).await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

/// What a client wants to know of a request to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The model's answer.
    Answer,
    /// The number of tokens of its prompt.
    Tokens,
}

/// Lists the provider's models.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "list_models", tag = "model",
    responses(
        (status = 200, body = Object, description = "The provider's list"),
        (status = "default", body = Object, description = "An error, as the provider tells its own"),
    )
)]
pub async fn models(State(endpoint): State<Arc<DropInEndpoint>>, request: Request) -> Response {
    let (mut parts, _) = headers::with_key_in_header(request).into_parts();
    let azure = azure::azure_path(&endpoint, &parts.uri);
    // The providers list their models at this path, in different formats. Clients of the Anthropic API say
    // which version of it they speak.
    let dialect = if headers::speaks_gemini(&parts.headers) {
        Dialect::Gemini
    } else if parts.headers.contains_key("anthropic-version") {
        Dialect::Messages
    } else {
        Dialect::Chat
    };
    let listed = async {
        let sender = Sender::of(&endpoint, &mut parts).await?;
        listed_models(&endpoint, dialect, azure, &sender, &parts).await
    };
    match listed.await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

/// The provider's models, and our agent where somebody chose its model.
async fn listed_models(
    endpoint: &DropInEndpoint,
    dialect: Dialect,
    azure: Option<String>,
    sender: &Sender,
    parts: &Parts,
) -> Result<DropInAnswer, Problem> {
    let has_agent = has_agent(endpoint);
    // If `--llm` is a script, there is no provider, and the agents are the only models.
    if endpoint.provider.is_none() && has_agent {
        let agents = toolscout_dropin::agents_alone(agent_names(endpoint));
        return Ok(passed::json_answer(agents));
    }
    let request = PassedRequest {
        dialect,
        owner: sender.owner.clone(),
        method: Method::GET,
        // Azure needs the version of its API.
        query: match &azure {
            Some(_) => parts.uri.query().map(str::to_owned),
            None => None,
        },
        upstream: match &azure {
            Some(_) => Upstream::Azure,
            None => Upstream::of(dialect),
        },
        path: azure.unwrap_or_else(|| "/models".to_owned()),
        headers: parts.headers.clone(),
        key: sender.key.clone(),
        body: None,
        reserved: None,
    };
    let mut listed = configured(endpoint, None)?.models(request).await?;
    // An error of the provider is passed on unchanged.
    if let AnswerBody::Whole(list) = &listed.body
        && has_agent
        && listed.status == 200
    {
        listed.body = AnswerBody::Whole(toolscout_dropin::add_agents(list, agent_names(endpoint)));
    }
    Ok(listed)
}

async fn respond(endpoint: &DropInEndpoint, dialect: Dialect, request: Request) -> Response {
    let target = azure::target(endpoint, dialect, request.uri());
    match answer(endpoint, dialect, target, Wanted::Answer, request).await {
        Ok(answer) => response_of(answer),
        Err(problem) => problem.into_response(dialect),
    }
}

async fn answer(
    endpoint: &DropInEndpoint,
    dialect: Dialect,
    target: Target,
    wanted: Wanted,
    request: Request,
) -> Result<DropInAnswer, Problem> {
    let (mut parts, body) = request.into_parts();
    let sender = Sender::of(endpoint, &mut parts).await?;
    let (headers, query) = (parts.headers.clone(), query_for(&target, &parts.uri));
    let id = parts.extensions.get::<RequestId>().cloned();
    let HeldBody {
        bytes: body,
        reserved,
    } = HeldBody::read(&endpoint.bodies, &parts, body).await?;
    // The model that the body names decides who answers: our agent, or a provider.
    if let Some(question) = AgentQuestion::read(dialect, &sender.owner, &body)? {
        headers::check_for_agent(&headers)?;
        // A provider does not know the agent, so the tokens are counted here.
        if wanted == Wanted::Tokens {
            return Ok(
                toolscout_dropin::counted_here(&endpoint.calls.cpu_pool, dialect, body).await?,
            );
        }
        let answer = agent::answer(endpoint, &sender, &headers, question).await?;
        let ignored = headers::ignored(endpoint.provider.as_ref(), &headers);
        return Ok(with_ignored(answer, ignored));
    }
    let dropin = configured(endpoint, Some(&body))?;
    let ignored = headers::ignored(Some(&dropin), &headers);
    toolscout_dropin::check_path(&target.path)?;
    let request = DropInRequest {
        dialect,
        target,
        id: id.map(|RequestId(id)| id).unwrap_or_default(),
        defer: headers::defer_choice(&headers)?,
        extra: extra_catalog(endpoint, &dropin, &sender.grant, &headers).await?,
        owner: sender.owner,
        key: sender.key,
        headers,
        query,
        body,
        reserved: Some(reserved),
    };
    let answer = match wanted {
        Wanted::Answer => dropin.answer(request).await?,
        Wanted::Tokens => dropin.count(request).await?,
    };
    Ok(with_ignored(answer, ignored))
}

/// The query of a request that goes to this service. The version of Azure's API is for Azure alone.
fn query_for(target: &Target, uri: &Uri) -> Option<String> {
    let is_of_azure = uri.path().starts_with(AZURE);
    if is_of_azure && target.upstream != Upstream::Azure {
        return None;
    }
    uri.query().map(str::to_owned)
}

/// The answer, with the names of headers that are not known.
fn with_ignored(mut answer: DropInAnswer, ignored: Option<HeaderValue>) -> DropInAnswer {
    if let Some(ignored) = ignored {
        answer.headers.insert(headers::IGNORED, ignored);
    }
    answer
}

/// What passes requests to a provider. `body` is that of the request, if it names a model.
fn configured(endpoint: &DropInEndpoint, body: Option<&Bytes>) -> Result<DropIn, Problem> {
    if let Some(dropin) = &endpoint.provider {
        return Ok(dropin.clone());
    }
    if has_agent(endpoint)
        && let Some(model) = body.and_then(toolscout_dropin::requested_model)
    {
        let message = format!(
            "there is no model {model:?} here: --llm is a script, and {}; name it, or start the server with --llm URL",
            only_models(endpoint)
        );
        return Err(Failure::new(404, "model_not_found", message).into());
    }
    if has_agent(endpoint) && body.is_some() {
        let message = format!(
            "the body is no JSON object with a `model`; {} here",
            only_models(endpoint)
        );
        return Err(Failure::new(400, "invalid_request", message).into());
    }
    let message = "this server has no model to pass requests to; start it with --llm URL";
    Err(ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "no_model", message).into())
}

/// The names of the agents, each of which is a model; `None` for the one that needs no name.
fn agent_names(endpoint: &DropInEndpoint) -> impl Iterator<Item = Option<&str>> {
    let agents = endpoint
        .agents
        .default_catalog
        .agents()
        .into_iter()
        .flat_map(Agents::iter);
    let names = agents.map(|served| served.agent.name());
    names.map(|name| (name != DEFAULT_AGENT).then_some(name))
}

/// That our agents are the only models, in words.
fn only_models(endpoint: &DropInEndpoint) -> String {
    let models: Vec<String> = agent_names(endpoint)
        .map(toolscout_dropin::model_of)
        .collect();
    match &models[..] {
        [only] => format!("{only:?} is the only model"),
        models => format!("the only models are {}", models.join(", ")),
    }
}

/// Whether our agent answers as a model: somebody chose its own.
fn has_agent(endpoint: &DropInEndpoint) -> bool {
    match endpoint.agents.default_catalog.agent() {
        Some(agent) => agent.config().model_is_chosen,
        None => false,
    }
}

/// Whether any model answers here.
fn serves_models(endpoint: &DropInEndpoint) -> bool {
    endpoint.provider.is_some() || has_agent(endpoint)
}

/// The headers of answers that are ours.
pub fn answer_headers() -> impl Iterator<Item = HeaderName> {
    toolscout_dropin::header_names().chain([headers::IGNORED])
}

/// Warns where requests with a key of ours would go to the provider without any key.
pub async fn warn_of_missing_keys(provider: Option<&DropIn>, keys: &KeyStore) {
    let keyless = provider.map(DropIn::keyless_providers);
    let keyless = keyless.unwrap_or_default();
    if keyless.is_empty() {
        return;
    }
    let keys = keys.clone();
    // Without keys here, clients send the provider's key themselves.
    let in_use = blocking(move || keys.is_in_use()).await;
    if !matches!(in_use, Ok(Ok(true))) {
        return;
    }
    for provider in keyless {
        tracing::warn!(
            provider,
            "requests to the model go to this provider without a key, since the keys of clients are this server's: \
             give it the provider's key (--llm-key, or the flag of its own, as --llm-messages-key), or let clients bring \
             it in the other of the headers Authorization and X-API-Key (--llm-key-from-client)"
        );
    }
}

/// Who sent a request, and the key that it goes to the provider with.
struct Sender {
    grant: Grant,
    owner: String,
    key: ProviderKey,
}

impl Sender {
    async fn of(endpoint: &DropInEndpoint, parts: &mut Parts) -> Result<Self, Problem> {
        let config = endpoint.provider.as_ref().map(DropIn::config);
        let brings_own_key = config.is_some_and(|config| config.key_from_client);
        let credentials = take_credentials(&mut parts.headers);
        name_our_key(&mut parts.headers);
        if !brings_own_key {
            // If keys are needed, a key of another kind is refused here. A signature of AWS is no key.
            for (name, value) in &credentials {
                if !toolscout_dropin::is_signature(value) {
                    parts.headers.insert(name.clone(), value.clone());
                }
            }
        }
        let ProfileGrant(grant) = ProfileGrant::from_request_parts(parts, endpoint).await?;
        grant.allows(Scope::Llm)?;
        let owner = match grant.key() {
            Some(_) => grant.sender(),
            None => owner_by_credentials(&credentials),
        };
        // A key of ours must not reach the provider.
        for name in KEY_HEADERS {
            parts.headers.remove(name);
        }
        let key = if credentials.is_empty() {
            ProviderKey::OfServer
        } else if brings_own_key {
            ProviderKey::OfClient(credentials)
        } else if grant.key().is_none() {
            // They are no key of this server, so they are for the provider.
            ProviderKey::OfServerElseClient(credentials)
        } else {
            ProviderKey::OfServer
        };
        Ok(Sender { grant, owner, key })
    }
}

/// Takes out the headers with a key that is not ours.
fn take_credentials(headers: &mut HeaderMap) -> HeaderMap {
    let mut credentials = HeaderMap::new();
    for name in KEY_HEADERS {
        if let Some(value) = headers.get(&name)
            && !has_our_key(value)
            && let Some(mut value) = headers.remove(&name)
        {
            // Marked, so that no log of headers shows it.
            value.set_sensitive(true);
            credentials.insert(name, value);
        }
    }
    credentials
}

/// Puts our key where all routes read it. What is left in the headers of other APIs is ours.
fn name_our_key(headers: &mut HeaderMap) {
    for name in [X_GOOG_API_KEY, API_KEY] {
        if let Some(value) = headers.remove(name) {
            headers.entry(X_API_KEY).or_insert(value);
        }
    }
}

/// With a scheme before it, or alone.
fn has_our_key(value: &HeaderValue) -> bool {
    let text = value.to_str().unwrap_or_default();
    text.split_whitespace().any(keys::is_token)
}

/// Clients without a key of ours are told apart by the provider's key that they send. Only a hash
/// of it is kept.
fn owner_by_credentials(credentials: &HeaderMap) -> String {
    if credentials.is_empty() {
        return "http".to_owned();
    }
    let mut hasher = blake3::Hasher::new_derive_key("toolscout owner of a model request");
    // Separated by a byte that no header has, so that no two lists give the same hash.
    for (name, value) in credentials {
        hasher.update(name.as_str().as_bytes());
        hasher.update(&[0]);
        // A signature is another one for every request, and begins with the name of its key.
        let ends = match toolscout_dropin::is_signature(value) {
            true => value.as_bytes().iter().position(|byte| *byte == b'/'),
            false => None,
        };
        let lasting = ends.unwrap_or(value.len());
        hasher.update(&value.as_bytes()[..lasting]);
        hasher.update(&[0]);
    }
    format!("client:{}", hasher.finalize().to_hex())
}

/// The catalog that the header names, or the part of one that a profile names. The key must be for it.
async fn extra_catalog(
    endpoint: &DropInEndpoint,
    dropin: &DropIn,
    grant: &Grant,
    headers: &HeaderMap,
) -> ApiResult<Option<ExtraCatalog>> {
    if headers.contains_key(PROFILE) {
        return extra_profile(endpoint, dropin, grant, headers).await;
    }
    let Some(name) = headers.get(headers::CATALOG) else {
        return Ok(None);
    };
    // A key that is bound to profiles must not search a whole catalog.
    if !grant.profiles().is_empty() {
        let message = format!(
            "this key is for the profiles {}; send X-Toolscout-Profile in place of X-Toolscout-Catalog",
            grant.profile_names()
        );
        return Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "profile_key",
            message,
        ));
    }
    let name = name.to_str().unwrap_or_default();
    grant.reads(name)?;
    let catalog = endpoint.catalogs.get(name).await?;
    let caller = calls::caller(&endpoint.calls, dropin, grant, Arc::clone(&catalog), None)?;
    let place = Place {
        catalog: Some(name.to_owned()),
        profile: None,
    };
    Ok(Some(ExtraCatalog {
        search: Arc::new(ServedSnapshots::of(
            catalog,
            endpoint.calls.cpu_pool.clone(),
        )),
        caller,
        usage: endpoint.usage.clone(),
        origin: grant.origin(place),
    }))
}

async fn extra_profile(
    endpoint: &DropInEndpoint,
    dropin: &DropIn,
    grant: &Grant,
    headers: &HeaderMap,
) -> ApiResult<Option<ExtraCatalog>> {
    // One of the two would have to be ignored silently.
    if headers.contains_key(headers::CATALOG) {
        let message = "the request has both X-Toolscout-Profile and X-Toolscout-Catalog; a profile names its catalog, so \
                       leave out the other";
        let status = StatusCode::BAD_REQUEST;
        return Err(ApiError::invalid(status, "invalid_header", message));
    }
    let Some(chosen) = endpoint.agents.profiles.chosen_by_header(grant, headers)? else {
        return Ok(None);
    };
    let open = chosen.open(grant).await?;
    let caller = calls::caller(
        &endpoint.calls,
        dropin,
        grant,
        open.snapshots.catalog(),
        Some(&open),
    )?;
    Ok(Some(ExtraCatalog {
        search: open.search,
        caller,
        usage: endpoint.usage.clone(),
        origin: grant.origin(open.profile.place()),
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
                // The envelope does not log answers that have an error body of their own.
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

fn response_of(answer: DropInAnswer) -> Response {
    let body = match answer.body {
        AnswerBody::Whole(bytes) => Body::from(bytes),
        AnswerBody::Stream(stream) => {
            use futures_util::StreamExt as _;
            Body::from_stream(stream.map(|part| part.map_err(|failure| failure.message)))
        }
    };
    // The client expects the provider's own status and headers.
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = answer.headers;
    response.extensions_mut().insert(HasOwnErrorBody);
    response
}
