//! The agent over HTTP: questions, answered as a stream of server-sent events, and stored
//! conversations.

pub mod approvals;
mod ag_ui;
pub mod agents;
mod conversations;
mod runs;
mod sse;
mod started;
pub mod token;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use self::approvals::decision_of;
use crate::access::profiles::PROFILE;
use crate::access::{Access, Grant, ProfileGrant};
use crate::default_catalog::DefaultCatalog;
use crate::request::error::{ApiError, ApiResult, store_unavailable};
use crate::request::extract::{self, Json, Path, QueryString, RawBody, parse_json};
use conversations::{StoredConversation, with_sessions};
pub use runs::Runs;
use sse::{Dialect, Format};
pub use started::{AgentRuns, StartedRun};
pub use token::PageToken;
use toolscout_agent::{Agent, Agents, Event, Question, StartError};
use toolscout_base::media_type::is_json;
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::Style;
use toolscout_gate::gate::OpenApproval;
use toolscout_state::keys::Scope;
use toolscout_state::session::{ConversationId, SessionError, Summary, Turn, TurnEvents};

/// The header with the conversation of an answer.
pub const CONVERSATION_ID: HeaderName = HeaderName::from_static("x-conversation-id");
/// Conversations in a page of the list, unless the request has a limit.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;
/// Characters of a model's name that are told.
const MAX_MODEL_CHARS: usize = 200;

/// A question.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// The question.
    #[schema(min_length = 1, example = "Will it rain in Bergen tomorrow?")]
    query: String,
    /// The conversation to continue; a new one by default.
    #[serde(default)]
    #[schema(max_length = 256)]
    conversation: Option<String>,
    /// Continue the run even when the client disconnects.
    #[serde(default)]
    detached: bool,
    /// The user on whose behalf tools are called. The holder of the key is responsible for it.
    #[serde(default)]
    identity: Option<String>,
    /// The agent that answers, of those of `GET /v1/agents`; that of the conversation by default.
    #[serde(default)]
    agent: Option<String>,
}

/// The answer to an `approval_required` event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// The event's `id`.
    id: String,
    /// Whether to make the call.
    approve: bool,
    /// The reason of a refusal, for the model.
    #[serde(default)]
    reason: String,
}

/// The decision that was recorded.
#[derive(Debug, Serialize, ToSchema)]
pub struct Approved {
    approved: bool,
}

/// The query string of a question.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChatParams {
    /// The format of the events.
    #[serde(default)]
    #[param(inline)]
    protocol: Dialect,
    /// The agent that answers, as in the body.
    #[serde(default)]
    agent: Option<String>,
}

/// A question in a query string, for the `EventSource` of browsers.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// The question.
    #[param(min_length = 1)]
    query: String,
    /// The conversation to continue; a new one by default.
    #[serde(rename = "conversationId", default)]
    #[param(max_length = 256)]
    conversation: Option<String>,
    /// The format of the events.
    #[serde(default)]
    #[param(inline)]
    protocol: Dialect,
    /// The user on whose behalf tools are called.
    #[serde(default)]
    identity: Option<String>,
    /// The agent that answers, of those of `GET /v1/agents`; that of the conversation by default.
    #[serde(default)]
    agent: Option<String>,
    /// The token of `POST /v1/agent/token`; required without a key.
    #[serde(default)]
    token: String,
}

/// An event of a stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "axum writes events; this only describes them")]
pub struct ServerSentEvent {
    /// The number of the event, from 1.
    id: Option<String>,
    /// An `AgentEvent` as JSON, or an AG-UI event.
    data: String,
}

/// A conversation to stop.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Its id.
    #[schema(min_length = 1, max_length = 256)]
    conversation: String,
}

/// Whether a run was stopped.
#[derive(Debug, Serialize, ToSchema)]
pub struct Stopped {
    stopped: bool,
}

/// A page of the list of conversations.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most conversations in the page, 50 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Conversations to skip before it.
    #[serde(default)]
    offset: usize,
}

/// Stored conversations, the most recently used first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversations {
    conversations: Vec<Summary>,
}

/// A stored conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    id: String,
    /// The agent that answers in it.
    agent: String,
    /// Its turns, oldest first.
    turns: Vec<Turn>,
    /// True while this server answers a question in it, or another one that shares its store. A turn
    /// with the status `running` that no server answers was left by a process that ended.
    running: bool,
    /// The calls of its run that wait for approval; empty unless the key is the one that asked.
    approvals: Vec<OpenApproval>,
}

/// What happened in a turn, as far as it is kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventsOfTurn {
    /// In their order.
    #[schema(value_type = Vec<Event>)]
    events: Vec<Value>,
    /// True when the turn had more events, or longer texts, than are kept.
    truncated: bool,
}

impl From<TurnEvents> for EventsOfTurn {
    fn from(kept: TurnEvents) -> Self {
        EventsOfTurn {
            events: kept.events,
            truncated: kept.truncated,
        }
    }
}

/// What answers questions here.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct AgentInfo {
    /// Whether questions are taken at all.
    available: bool,
    /// The name of the model; `null` where nobody chose one.
    model: Option<String>,
    /// Most tokens of all tools that the model sees; `null` where found tools are not in its list.
    tool_budget_tokens: Option<usize>,
}

/// A request that may use the agent: its key is for the agent's catalog, or for the profile that it
/// names.
pub struct AgentAccess {
    agent: Agent,
    grant: Grant,
}

impl<S: Send + Sync> FromRequestParts<S> for AgentAccess
where
    Arc<Access>: FromRef<S>,
    Arc<DefaultCatalog>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let ProfileGrant(grant) = ProfileGrant::from_request_parts(parts, state).await?;
        let default_catalog = Arc::<DefaultCatalog>::from_ref(state);
        // For a request with a profile, access is checked when the profile is opened.
        if grant.profiles().is_empty() && !parts.headers.contains_key(PROFILE) {
            grant.reads(default_catalog.name())?;
        }
        Ok(AgentAccess {
            agent: configured(&default_catalog)?.default_agent().clone(),
            grant,
        })
    }
}

impl AgentAccess {
    fn question(&self, text: String, identity: Option<String>) -> Question {
        let question = Question::new(text).asked_by(self.grant.sender());
        match identity {
            Some(identity) => question.on_behalf_of(identity),
            None => question,
        }
    }
}

/// The agents, where there are any and the server has started.
fn configured(default_catalog: &DefaultCatalog) -> ApiResult<&Agents> {
    match default_catalog.agents() {
        Some(agents) => Ok(agents),
        None => Err(ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "agent_not_ready",
            "the agent is not available: the server is starting, or was started without one",
        )),
    }
}

/// Says whether there is an agent, and which model answers.
#[utoipa::path(
    get, path = "/v1/agent", operation_id = "show_agent", tag = "agent",
    responses((status = 200, body = AgentInfo, description = "The agent"))
)]
pub async fn show(
    ProfileGrant(grant): ProfileGrant,
    State(default_catalog): State<Arc<DefaultCatalog>>,
) -> ApiResult<Json<AgentInfo>> {
    // A key that is bound to profiles may use the agent within them.
    if grant.profiles().is_empty() {
        grant.reads(default_catalog.name())?;
    }
    let Some(agent) = default_catalog.agent() else {
        return Ok(Json(AgentInfo::default()));
    };
    let config = agent.config();
    let chosen = config.model_is_chosen;
    // Only in this style do found tools join the model's list, which the budget bounds.
    let injects = config.run.style == Style::Inject;
    Ok(Json(AgentInfo {
        available: true,
        model: chosen.then(|| excerpt(agent.model_name(), MAX_MODEL_CHARS)),
        tool_budget_tokens: injects.then_some(config.toolbox.budget_tokens),
    }))
}

/// Answers a question as server-sent events.
///
/// The `data` of each event is an `AgentEvent`, and its `id` the number of the event. The last
/// event has the type `done`. The header `X-Toolscout-Profile` limits the answer to the tools of a profile. A client that disconnects stops its run unless it is detached. With
/// `?protocol=ag-ui` the body is an AG-UI `RunAgentInput` and the events are those of AG-UI.
#[utoipa::path(
    post, path = "/v1/agent/chat", tag = "agent",
    params(ChatParams, ("x-toolscout-profile" = Option<String>, Header, description = "The profile whose tools alone are used")),
    request_body = ChatRequest,
    responses((status = 200, body = ServerSentEvent, content_type = "text/event-stream", description = "The run's events",
        headers(("x-conversation-id" = String, description = "The conversation, for the next question"))))
)]
pub async fn chat(
    access: AgentAccess,
    State(runs): State<Arc<AgentRuns>>,
    QueryString(params): QueryString<ChatParams>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> ApiResult<Response> {
    // A form on a page of another site cannot send this type.
    if !is_json(&extract::media_type(&headers)?) {
        return Err(extract::unsupported("application/json"));
    }
    // AG-UI clients also send a body of their own.
    let (request, run_id) = match params.protocol {
        Dialect::Own => (parse_json::<ChatRequest>(&body)?, None),
        Dialect::AgUi => from_ag_ui(&body)?,
    };
    let mut question = access.question(request.query, request.identity);
    if request.detached {
        question = question.detached();
    }
    let question = question.limited_to(runs.question_tools(&access.grant, &headers).await?);
    let wanted = Wanted {
        conversation: request.conversation,
        agent: one_agent(request.agent, params.agent)?,
    };
    let format = params.protocol.into();
    start_run(&runs, &access, question, wanted, format, run_id).await
}

/// The agent that body and query name.
fn one_agent(body: Option<String>, query: Option<String>) -> ApiResult<Option<String>> {
    match (body, query) {
        (Some(body), Some(query)) if body != query => {
            let message = format!(
                "the body names the agent {body:?} and the query {query:?}; name one of them"
            );
            Err(ApiError::unprocessable("two_agents", message))
        }
        (body, query) => Ok(body.or(query)),
    }
}

/// Answers a question from a query string as server-sent events, for the `EventSource` of browsers.
///
/// A GET needs a key, or on a server without keys the `token` of `POST /v1/agent/token`, which only
/// pages of the server's own and of the allowed origins can read. So a page of another site cannot
/// start a run. The events are those of `POST /v1/agent/chat`, but for `reference` and `recommend`: there
/// `content` is a text of JSON, as clients of this route parse it.
#[utoipa::path(
    get, path = "/agent/chat/stream", tag = "agent",
    params(StreamParams),
    responses((status = 200, body = ServerSentEvent, content_type = "text/event-stream", description = "The run's events",
        headers(("x-conversation-id" = String, description = "The conversation, for the next question"))))
)]
pub async fn chat_by_query(
    access: AgentAccess,
    State(runs): State<Arc<AgentRuns>>,
    State(page_token): State<Arc<PageToken>>,
    QueryString(params): QueryString<StreamParams>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    // A page of another site does not know the key, so a request with a key needs no token.
    if access.grant.key().is_none() {
        page_token.require(&params.token)?;
    }
    let question = access.question(params.query, params.identity);
    let question = question.limited_to(runs.question_tools(&access.grant, &headers).await?);
    let wanted = Wanted {
        conversation: params.conversation,
        agent: params.agent,
    };
    let format = match params.protocol {
        Dialect::Own => Format::Compatible,
        Dialect::AgUi => Format::AgUi,
    };
    start_run(&runs, &access, question, wanted, format, None).await
}

/// Approves or refuses a call that waits for approval. A key with the scope `approve` decides about
/// its own runs, an admin key for all catalogs about every run.
#[utoipa::path(
    post, path = "/v1/agent/approve", operation_id = "approve_call", tag = "agent",
    request_body = ApproveRequest,
    responses((status = 200, body = Approved, description = "The decision was recorded"))
)]
pub async fn approve(
    AgentAccess { agent, grant }: AgentAccess,
    Json(request): Json<ApproveRequest>,
) -> ApiResult<Json<Approved>> {
    grant.allows(Scope::Approve)?;
    let decision = decision_of(&grant, request.approve, request.reason);
    let scope = grant.owner_scope();
    let answered = agent.answer_approval_anywhere(&scope, &request.id, decision);
    if answered.await.map_err(store_unavailable)? {
        return Ok(Json(Approved {
            approved: request.approve,
        }));
    }
    let message = "no call with this id waits for this key: it was decided, it expired, its run has ended, or it belongs \
                   to a run of another key, which only that key or an admin key for all catalogs can approve";
    Err(ApiError::not_found("unknown_approval", message))
}

/// Stops the run of a conversation. The text so far is stored.
#[utoipa::path(
    post, path = "/v1/agent/stop", operation_id = "stop_conversation", tag = "agent",
    request_body = StopRequest,
    responses((status = 200, body = Stopped, description = "Whether a run was stopped"))
)]
pub async fn stop(
    AgentAccess { agent, grant }: AgentAccess,
    Json(request): Json<StopRequest>,
) -> ApiResult<Json<Stopped>> {
    let id = ConversationId::new(request.conversation)?;
    match conversations::stop(&agent, grant.owner_scope(), &id).await? {
        Some(stopped) => Ok(Json(Stopped { stopped })),
        None => Err(unknown(id.as_str())),
    }
}

/// Lists the conversations of the key, the most recently used first. An admin key for all catalogs
/// lists those of every key.
#[utoipa::path(
    get, path = "/v1/agent/conversations", operation_id = "list_conversations", tag = "agent",
    params(ListParams),
    responses((status = 200, body = Conversations, description = "A page of conversations"))
)]
pub async fn list(
    AgentAccess { agent, grant }: AgentAccess,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<Conversations>> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit is {limit}, it must be from 1 to {MAX_LIMIT}");
        return Err(ApiError::unprocessable("invalid_limit", message));
    }
    let scope = grant.owner_scope();
    let conversations = with_sessions(&agent, move |sessions| {
        sessions.list(&scope, limit, params.offset)
    });
    Ok(Json(Conversations {
        conversations: conversations.await?,
    }))
}

/// Shows a conversation with all its turns.
#[utoipa::path(
    get, path = "/v1/agent/conversations/{id}", operation_id = "show_conversation", tag = "agent",
    params(("id" = String, Path, description = "The conversation's id")),
    responses((status = 200, body = Conversation, description = "The conversation"))
)]
pub async fn read(
    AgentAccess { agent, grant }: AgentAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<Conversation>> {
    let conversation = ConversationId::new(id.clone())?;
    let stored = conversations::read(&agent, grant.owner_scope(), &conversation).await?;
    let Some(StoredConversation {
        agent: name,
        turns,
        is_running,
    }) = stored
    else {
        return Err(unknown(&id));
    };
    Ok(Json(Conversation {
        id,
        agent: name,
        turns,
        running: is_running,
        approvals: agent.open_approvals(&grant.sender(), &conversation).await,
    }))
}

/// Shows what happened in a turn.
///
/// The events are those of its stream, without secrets in arguments, with the beginnings of results,
/// and without what the turn itself has: the answer, sources, recommended questions and figures. At
/// most 64 KiB of them are kept; `truncated` says that there was more. Of a turn that runs, these are
/// the events so far.
#[utoipa::path(
    get, path = "/v1/agent/conversations/{id}/turns/{number}/events", operation_id = "show_turn_events", tag = "agent",
    params(
        ("id" = String, Path, description = "The conversation's id"),
        ("number" = i64, Path, minimum = 1, description = "The turn's number within it"),
    ),
    responses((status = 200, body = EventsOfTurn, description = "The events of the turn"))
)]
pub async fn events(
    AgentAccess { agent, grant }: AgentAccess,
    Path((id, number)): Path<(String, i64)>,
) -> ApiResult<Json<EventsOfTurn>> {
    let (conversation, scope) = (ConversationId::new(id.clone())?, grant.owner_scope());
    // A run of this server has events that are not stored yet.
    if let Some(events) = agent.running_events(&scope, &conversation, number) {
        return Ok(Json(events.into()));
    }
    let stored = with_sessions(&agent, move |sessions| {
        let events = sessions.events(&scope, &conversation, number)?;
        Ok((events, sessions.contains(&scope, &conversation)?))
    });
    match stored.await? {
        (Some(events), _) => Ok(Json(events.into())),
        (None, true) => {
            let message = format!(
                "conversation {id:?} has no turn {number}; GET /v1/agent/conversations/{{id}} lists its turns"
            );
            Err(ApiError::not_found("unknown_turn", message))
        }
        // A conversation of another key gets the same answer, so that ids cannot be guessed.
        (None, false) => Err(unknown(&id)),
    }
}

/// Stops the run of a conversation and deletes it.
#[utoipa::path(
    delete, path = "/v1/agent/conversations/{id}", operation_id = "delete_conversation", tag = "agent",
    params(("id" = String, Path, description = "The conversation's id")),
    responses((status = 204, description = "The conversation was deleted"))
)]
pub async fn delete(
    AgentAccess { agent, grant }: AgentAccess,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let (conversation, scope) = (ConversationId::new(id.clone())?, grant.owner_scope());
    // Stop the run first, so that it does not store a turn of a deleted conversation.
    agent.stop(&scope, &conversation);
    let deleted = with_sessions(&agent, move |sessions| {
        sessions.delete(&scope, &conversation)
    });
    if deleted.await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown(&id))
    }
}

/// What a question asks for: a conversation, and an agent.
struct Wanted {
    conversation: Option<String>,
    agent: Option<String>,
}

/// Starts the run of a question and answers with its events.
async fn start_run(
    runs: &AgentRuns,
    access: &AgentAccess,
    question: Question,
    wanted: Wanted,
    format: Format,
    run_id: Option<String>,
) -> ApiResult<Response> {
    access.grant.allows(runs.scope)?;
    let conversation = wanted.conversation.filter(|id| !id.is_empty());
    let conversation = conversation.map(ConversationId::new).transpose()?;
    let agent = wanted.agent.filter(|name| !name.is_empty());
    let run = runs.start(&access.grant, question, agent, conversation);
    let run = run.await?;
    // Clients choose ids freely, so an id may not fit into a header.
    let id = HeaderValue::from_str(run.conversation().as_str()).ok();
    let mut response = sse::respond(run, format, run_id, runs.heartbeat).into_response();
    if let Some(id) = id {
        response.headers_mut().insert(CONVERSATION_ID, id);
    }
    Ok(response)
}

/// Reads a `RunAgentInput` of AG-UI, as a question and the run's id: the thread is the
/// conversation, and the last user message the question.
fn from_ag_ui(body: &Bytes) -> ApiResult<(ChatRequest, Option<String>)> {
    let input: ag_ui::RunInput = parse_json(body)?;
    let Some(query) = input.question() else {
        let message = "messages has no message with the role user and a text; add one";
        return Err(ApiError::unprocessable("no_question", message));
    };
    let identity = input.identity();
    let request = ChatRequest {
        query,
        conversation: Some(input.thread_id),
        detached: false,
        identity,
        agent: None,
    };
    Ok((request, Some(input.run_id)))
}

fn unknown(id: &str) -> ApiError {
    let message =
        format!("no conversation {id:?}; GET /v1/agent/conversations lists those of this key");
    ApiError::not_found("unknown_conversation", message)
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::NotOwned(conversation) => unknown(conversation.as_str()),
            StartError::Busy(_) => {
                ApiError::busy(StatusCode::CONFLICT, "conversation_busy", error.to_string())
            }
            StartError::Empty => ApiError::unprocessable("empty_question", error.to_string()),
            StartError::TooLong { .. } => ApiError::invalid(
                StatusCode::PAYLOAD_TOO_LARGE,
                "question_too_long",
                error.to_string(),
            ),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::NotOwned { conversation } => unknown(&conversation),
            SessionError::Busy { .. } => {
                ApiError::busy(StatusCode::CONFLICT, "conversation_busy", error.to_string())
            }
            SessionError::OtherAgent { .. } => {
                ApiError::invalid(StatusCode::CONFLICT, "other_agent", error.to_string())
            }
            // The reason may name the store's address, so it goes to the log.
            SessionError::Unavailable { reason } => store_unavailable(reason),
            SessionError::InvalidId { .. } => {
                ApiError::unprocessable("invalid_conversation_id", error.to_string())
            }
            _ => ApiError::internal(error),
        }
    }
}

#[cfg(test)]
mod tests;
