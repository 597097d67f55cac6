//! The agent over HTTP: questions answered as a stream of server-sent events, and the kept
//! conversations.

mod ag_ui;
mod runs;
mod sse;
pub mod token;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::access::Grant;
use super::error::{ApiError, ApiResult};
use super::extract::{self, Json, Path, QueryString, RawBody, parse_json};
use crate::agent::{Agent, Question, StartError};
use crate::gate::Answer;
use crate::keys::Scope;
use crate::session::{ConversationId, Reach, SessionError, Sessions, Summary, Turn};
pub use runs::Runs;
use sse::Dialect;

/// The header that names the conversation of an answer.
const CONVERSATION_ID: HeaderName = HeaderName::from_static("x-conversation-id");
/// Conversations in one page of a list.
const PAGE: usize = 50;
/// Most conversations in one page of a list.
const MAX_PAGE: usize = 500;

/// The agent's routes.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/v1/agent/chat", post(chat))
        .route("/v1/agent/token", post(token::show))
        .route("/v1/agent/stop", post(stop))
        .route("/v1/agent/approve", post(approve))
        .route("/v1/agent/conversations", get(list))
        .route("/v1/agent/conversations/{id}", get(read).delete(delete))
        .route("/agent/chat/stream", get(chat_by_query))
}

/// A question.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// What is asked.
    #[schema(min_length = 1, example = "Will it rain in Bergen tomorrow?")]
    query: String,
    /// The conversation to go on with; a new one when left out.
    #[serde(default)]
    #[schema(max_length = 256)]
    conversation: Option<String>,
    /// Answer to the end even when the client leaves.
    #[serde(default)]
    detached: bool,
    /// The user on whose behalf tools are called. Whoever holds the key vouches for it.
    #[serde(default)]
    identity: Option<String>,
}

/// The answer to an `approval_required` event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// The event's `id`.
    id: String,
    /// Yes or no.
    approve: bool,
    /// Why not, for the model.
    #[serde(default)]
    reason: String,
}

/// That the answer was taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct Approved {
    approved: bool,
}

/// The protocol of the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChatParams {
    /// Whose events are sent.
    #[serde(default)]
    #[param(inline)]
    protocol: Dialect,
}

/// A question in a query string, as browsers' `EventSource` needs it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// What is asked.
    #[param(min_length = 1)]
    query: String,
    /// The conversation to go on with; a new one when left out.
    #[serde(rename = "conversationId", default)]
    #[param(max_length = 256)]
    conversation: Option<String>,
    /// Whose events are sent.
    #[serde(default)]
    #[param(inline)]
    protocol: Dialect,
    /// The user on whose behalf tools are called.
    #[serde(default)]
    identity: Option<String>,
    /// What `POST /v1/agent/token` gave; needed where no key is sent.
    #[serde(default)]
    token: String,
}

/// One of the events of a stream, as it is described.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is written by axum and only described here")]
pub struct ServerSentEvent {
    /// The event's number, from 1.
    id: Option<String>,
    /// An `AgentEvent` as JSON, or one of AG-UI's.
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

/// Whether there was something to stop.
#[derive(Debug, Serialize, ToSchema)]
pub struct Stopped {
    stopped: bool,
}

/// A page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Conversations in the page, by default 50.
    #[serde(default)]
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Conversations left out before it.
    #[serde(default)]
    offset: usize,
}

/// The kept conversations, the last used first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversations {
    conversations: Vec<Summary>,
}

/// A kept conversation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    id: String,
    /// Its turns, oldest first.
    turns: Vec<Turn>,
}

/// An agent that the sender may ask: its key has to be for the agent's catalog.
pub struct Asking {
    agent: Agent,
    grant: Grant,
}

impl FromRequestParts<App> for Asking {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let grant = Grant::from_request_parts(parts, app).await?;
        grant.reads(&app.default_catalog)?;
        Ok(Asking {
            agent: configured(app)?,
            grant,
        })
    }
}

impl Asking {
    fn question(&self, text: String, identity: Option<String>) -> Question {
        let question = Question::new(text).asked_by(self.grant.sender());
        match identity {
            Some(identity) => question.on_behalf_of(identity),
            None => question,
        }
    }

    /// The error for a conversation of another owner: for those who see it that it is not theirs,
    /// for others as if it were not there.
    fn not_owned(&self, conversation: &str) -> ApiError {
        match self.grant.reach() {
            Reach::Own(_) => unknown(conversation),
            Reach::All => {
                let message = format!(
                    "conversation {conversation:?} is another one's; you may read, stop and delete it"
                );
                ApiError::auth(StatusCode::FORBIDDEN, "not_your_conversation", message)
            }
        }
    }
}

fn configured(app: &App) -> ApiResult<Agent> {
    let message = "the agent is not ready; the server is starting or was started without one";
    let missing = || ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "agent_not_ready", message);
    app.agent.get().cloned().ok_or_else(missing)
}

/// Answers a question as server-sent events.
///
/// Each event's `data` is an `AgentEvent`, its `id` the event's number; the last one is of the type
/// `done`. A client that leaves stops its run unless it is detached. With `?protocol=ag-ui` the
/// body is AG-UI's `RunAgentInput` and the events are AG-UI's.
#[utoipa::path(
    post, path = "/v1/agent/chat", tag = "agent",
    params(ChatParams),
    request_body = ChatRequest,
    responses((status = 200, body = ServerSentEvent, content_type = "text/event-stream", description = "The run's events",
        headers(("x-conversation-id" = String, description = "The conversation, for the next question"))))
)]
pub async fn chat(
    asking: Asking,
    State(app): State<App>,
    QueryString(params): QueryString<ChatParams>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> ApiResult<Response> {
    // What a form of another site can send is none of these.
    if !extract::is_json(&extract::media_type(&headers)?) {
        return Err(extract::unsupported("application/json"));
    }
    let (request, run) = match params.protocol {
        Dialect::Own => (parse_json::<ChatRequest>(&body)?, None),
        Dialect::AgUi => from_ag_ui(&body)?,
    };
    let mut question = asking.question(request.query, request.identity);
    if request.detached {
        question = question.detached();
    }
    answer(
        &app,
        &asking,
        question,
        request.conversation,
        params.protocol,
        run,
    )
    .await
}

/// Answers a question from a query string as server-sent events, for browsers' `EventSource`.
///
/// A GET needs a key, or where none are in use the `token` that `POST /v1/agent/token` gives to
/// pages of the server's own and of the listed origins: so a page of another site can neither ask
/// nor choose conversation and identity.
#[utoipa::path(
    get, path = "/agent/chat/stream", tag = "agent",
    params(StreamParams),
    responses((status = 200, body = ServerSentEvent, content_type = "text/event-stream", description = "The run's events",
        headers(("x-conversation-id" = String, description = "The conversation, for the next question"))))
)]
pub async fn chat_by_query(
    asking: Asking,
    State(app): State<App>,
    QueryString(params): QueryString<StreamParams>,
) -> ApiResult<Response> {
    if asking.grant.key().is_none() {
        app.page_token.require(&params.token)?;
    }
    let question = asking.question(params.query, params.identity);
    answer(
        &app,
        &asking,
        question,
        params.conversation,
        params.protocol,
        None,
    )
    .await
}

/// Answers a call that waits for approval: one of the key's own runs, with the scope `approve`;
/// with an admin key for all catalogs that of any run.
#[utoipa::path(
    post, path = "/v1/agent/approve", operation_id = "approve_call", tag = "agent",
    request_body = ApproveRequest,
    responses((status = 200, body = Approved))
)]
pub async fn approve(
    asking: Asking,
    Json(request): Json<ApproveRequest>,
) -> ApiResult<Json<Approved>> {
    asking.grant.allows(Scope::Approve)?;
    let by = asking.grant.sender();
    let answer = match request.approve {
        true => Answer::Approved { by },
        false => Answer::Refused {
            by,
            reason: request.reason,
        },
    };
    if asking
        .agent
        .answer_approval_within(&asking.grant.reach(), &request.id, answer)
    {
        return Ok(Json(Approved {
            approved: request.approve,
        }));
    }
    let message = "no call waits under this id for this key: it was answered, its time was up, its run has ended, or it is \
                   of another key's run, which only that key or an admin key for all catalogs can approve";
    Err(ApiError::not_found("unknown_approval", message))
}

/// Stops what a conversation is answering; what was said is kept.
#[utoipa::path(
    post, path = "/v1/agent/stop", operation_id = "stop_conversation", tag = "agent",
    request_body = StopRequest,
    responses((status = 200, body = Stopped))
)]
pub async fn stop(
    Asking { agent, grant }: Asking,
    Json(request): Json<StopRequest>,
) -> ApiResult<Json<Stopped>> {
    let (id, reach) = (ConversationId::new(request.conversation)?, grant.reach());
    let stopped = agent.stop_within(&reach, &id);
    if !stopped {
        let conversation = id.clone();
        let is_kept = kept(&agent, move |sessions| {
            sessions.contains(&reach, &conversation)
        })
        .await?;
        if !is_kept {
            return Err(unknown(id.as_str()));
        }
    }
    Ok(Json(Stopped { stopped }))
}

/// Lists the kept conversations of the key, the last used first; everybody's for an admin key for
/// all catalogs.
#[utoipa::path(
    get, path = "/v1/agent/conversations", operation_id = "list_conversations", tag = "agent",
    params(ListParams),
    responses((status = 200, body = Conversations))
)]
pub async fn list(
    Asking { agent, grant }: Asking,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<Conversations>> {
    let limit = params.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        let message = format!("limit is {limit}, it must be from 1 to {MAX_PAGE}");
        return Err(ApiError::unprocessable("invalid_limit", message));
    }
    let reach = grant.reach();
    let conversations = kept(&agent, move |sessions| {
        sessions.list(&reach, limit, params.offset)
    })
    .await?;
    Ok(Json(Conversations { conversations }))
}

/// Shows a conversation with all its turns.
#[utoipa::path(
    get, path = "/v1/agent/conversations/{id}", operation_id = "show_conversation", tag = "agent",
    params(("id" = String, Path, description = "The conversation's id")),
    responses((status = 200, body = Conversation))
)]
pub async fn read(
    Asking { agent, grant }: Asking,
    Path(id): Path<String>,
) -> ApiResult<Json<Conversation>> {
    let (conversation, reach) = (ConversationId::new(id.clone())?, grant.reach());
    let turns = kept(&agent, move |sessions| {
        sessions.turns_within(&reach, &conversation)
    })
    .await?;
    if turns.is_empty() {
        return Err(unknown(&id));
    }
    Ok(Json(Conversation { id, turns }))
}

/// Deletes a conversation, stopping it first.
#[utoipa::path(
    delete, path = "/v1/agent/conversations/{id}", operation_id = "delete_conversation", tag = "agent",
    params(("id" = String, Path, description = "The conversation's id")),
    responses((status = 204, description = "It is gone"))
)]
pub async fn delete(
    Asking { agent, grant }: Asking,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let (conversation, reach) = (ConversationId::new(id.clone())?, grant.reach());
    agent.stop_within(&reach, &conversation);
    match kept(&agent, move |sessions| {
        sessions.delete(&reach, &conversation)
    })
    .await?
    {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown(&id)),
    }
}

async fn answer(
    app: &App,
    asking: &Asking,
    question: Question,
    conversation: Option<String>,
    dialect: Dialect,
    run: Option<String>,
) -> ApiResult<Response> {
    let agent = &asking.agent;
    let conversation = conversation
        .filter(|id| !id.is_empty())
        .map(ConversationId::new)
        .transpose()?;
    let question = match conversation {
        Some(id) => {
            let (wanted, owner) = (id.clone(), asking.grant.sender());
            if !kept(agent, move |sessions| {
                sessions.may_continue(&wanted, &owner)
            })
            .await?
            {
                return Err(asking.not_owned(id.as_str()));
            }
            question.in_conversation(id)
        }
        None => question,
    };
    let place = app
        .runs
        .admit(asking.grant.key())
        .inspect_err(|_| app.metrics.rejected("runs"))?;
    let stream = agent
        .start_holding(question, place)
        .map_err(|error| match error {
            StartError::NotOwned(conversation) => asking.not_owned(conversation.as_str()),
            error => error.into(),
        })?;
    let id = HeaderValue::from_str(stream.conversation().as_str()).ok();
    let stop = {
        let (agent, conversation) = (agent.clone(), stream.conversation().clone());
        move || {
            agent.stop(&conversation);
        }
    };
    let mut response = sse::respond(stream, dialect, run, app, stop).into_response();
    if let Some(id) = id {
        response.headers_mut().insert(CONVERSATION_ID, id);
    }
    Ok(response)
}

/// Reads AG-UI's `RunAgentInput`: the thread is the conversation, the last user message the
/// question.
fn from_ag_ui(body: &Bytes) -> ApiResult<(ChatRequest, Option<String>)> {
    let input: ag_ui::RunInput = parse_json(body)?;
    let query = input.question().ok_or_else(|| {
        ApiError::unprocessable(
            "no_question",
            "messages has no message of the role user with text in it; add one",
        )
    })?;
    let identity = input.identity();
    let request = ChatRequest {
        query,
        conversation: Some(input.thread_id),
        detached: false,
        identity,
    };
    Ok((request, Some(input.run_id)))
}

/// Works on the kept conversations off the async threads.
async fn kept<T: Send + 'static>(
    agent: &Agent,
    work: impl FnOnce(&Sessions) -> Result<T, SessionError> + Send + 'static,
) -> ApiResult<T> {
    let sessions = agent.sessions().clone();
    let outcome = tokio::task::spawn_blocking(move || work(&sessions)).await;
    Ok(outcome.map_err(ApiError::internal)??)
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found("unknown_conversation", format!("no conversation {id:?}"))
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
            SessionError::InvalidId { .. } => {
                ApiError::unprocessable("invalid_conversation_id", error.to_string())
            }
            _ => ApiError::internal(error),
        }
    }
}

#[cfg(test)]
mod tests;
