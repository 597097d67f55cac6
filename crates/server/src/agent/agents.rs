//! The agents of a server: which there are, and which of them answers a question.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::MAX_MODEL_CHARS;
use crate::access::ProfileGrant;
use crate::default_catalog::DefaultCatalog;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::Json;
use toolscout_agent::{Agent, Agents, ServedAgent};
use toolscout_base::printable::excerpt;
use toolscout_state::session::{ConversationId, DEFAULT_AGENT, SessionError};

/// The agents of a server.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentList {
    /// The agents; that of questions that choose none is the first.
    agents: Vec<AgentEntry>,
}

/// An agent that a question may choose.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentEntry {
    /// The name by which a question chooses it.
    name: String,
    /// What it is for.
    description: String,
    /// The name of the model; `null` where nobody chose one.
    model: Option<String>,
    /// Whether it has everything that it needs.
    ready: bool,
    /// What it needs and does not have, each with how to get it.
    missing: Vec<String>,
}

impl From<&ServedAgent> for AgentEntry {
    fn from(served: &ServedAgent) -> Self {
        let agent = &served.agent;
        let chosen = agent.config().model_is_chosen;
        AgentEntry {
            name: agent.name().to_owned(),
            description: served.description.clone(),
            model: chosen.then(|| excerpt(agent.model_name(), MAX_MODEL_CHARS)),
            ready: served.missing.is_empty(),
            missing: served.missing.clone(),
        }
    }
}

/// Lists the agents that a question may choose with `agent`.
#[utoipa::path(
    get, path = "/v1/agents", operation_id = "list_agents", tag = "agent",
    responses((status = 200, body = AgentList, description = "The agents"))
)]
pub async fn list(
    ProfileGrant(grant): ProfileGrant,
    State(default_catalog): State<Arc<DefaultCatalog>>,
) -> ApiResult<Json<AgentList>> {
    if grant.profiles().is_empty() {
        grant.reads(default_catalog.name())?;
    }
    let agents = default_catalog.agents().into_iter().flat_map(Agents::iter);
    Ok(Json(AgentList {
        agents: agents.map(AgentEntry::from).collect(),
    }))
}

/// The agent of a question that begins a conversation.
///
/// # Errors
/// 404 for a name that no agent has.
pub fn chosen(agents: &Agents, wanted: Option<&str>) -> ApiResult<Agent> {
    let name = wanted.unwrap_or(DEFAULT_AGENT);
    if let Some(agent) = agents.named(name) {
        return Ok(agent.clone());
    }
    let message = format!(
        "this server has no agent {:?}; it has {}, as GET /v1/agents lists",
        excerpt(name, MAX_MODEL_CHARS),
        agents.names()
    );
    Err(ApiError::not_found("unknown_agent", message))
}

/// The agent of a question in a conversation that this one answers in.
///
/// # Errors
/// 404 for a name that no agent has, 409 for another agent than that of the conversation, and where
/// the server does not have that.
pub fn of_conversation(
    agents: &Agents,
    wanted: Option<&str>,
    conversation: &ConversationId,
    stored: String,
) -> ApiResult<Agent> {
    // A conversation stays with one agent: another one may not have the tools of its history.
    if let Some(wanted) = wanted {
        let agent = chosen(agents, Some(wanted))?;
        if agent.name() != stored {
            let error = SessionError::OtherAgent {
                conversation: conversation.to_string(),
                agent: stored,
            };
            return Err(error.into());
        }
        return Ok(agent);
    }
    if let Some(agent) = agents.named(&stored) {
        return Ok(agent.clone());
    }
    let message = format!(
        "conversation {conversation} is with the agent {stored:?}, which this server does not have; it has {}. Start \
         it with --agent-profile {stored}, or begin a new conversation",
        agents.names()
    );
    let status = axum::http::StatusCode::CONFLICT;
    Err(ApiError::invalid(status, "agent_gone", message))
}
