//! Starting a run for a request, whichever API it comes by, and reading its events.

use axum::http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::agents::{chosen, of_conversation};
use super::{configured_agents, unknown, with_sessions};
use crate::App;
use crate::access::Grant;
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use toolscout_agent::{Agent, Event, Question, RunStream, StartError};
use toolscout_base::principal::OwnerScope;
use toolscout_state::session::ConversationId;

/// Starts the run of a question, by this agent and in this conversation if there is one. The run counts among those of
/// the key to its end, even after the client has disconnected.
///
/// # Errors
/// 404 or 403 for a conversation of another owner, 404 for an unknown agent, 409 for another one than
/// that of the conversation, 409 while a run of it goes on, here or on another
/// node, 429 when the key or the server has as many runs as it may, 503 without an agent.
pub async fn start(
    app: &App,
    grant: &Grant,
    mut question: Question,
    agent: Option<String>,
    conversation: Option<ConversationId>,
) -> ApiResult<StartedRun> {
    let (agents, wanted) = (configured_agents(app)?, agent.as_deref());
    let mut stored = None;
    if let Some(id) = &conversation {
        stored = require_free(agents.default_agent(), grant, id).await?;
        question = question.in_conversation(id.clone());
    }
    let agent = match (conversation, stored) {
        (Some(id), Some(stored)) => of_conversation(agents, wanted, &id, stored)?,
        _ => chosen(agents, wanted)?,
    };
    let permit = match app.runs.admit(grant.key()) {
        Ok(permit) => permit,
        Err(error) => {
            app.metrics.rejected("runs");
            return Err(error);
        }
    };
    let over = CancellationToken::new();
    // The run keeps both until it ends, which may be long after the request.
    let guard = (permit, over.clone().drop_guard());
    let run = match agent.start_with_guard(question, guard) {
        Ok(run) => run,
        Err(StartError::NotOwned(conversation)) => {
            return Err(not_owned(grant, conversation.as_str()));
        }
        Err(error) => return Err(error.into()),
    };
    let (stopped, id) = (agent.clone(), run.conversation().clone());
    app.key_watch.at_end(grant.key(), over, async move {
        stopped.stop(&OwnerScope::All, &id);
    });
    Ok(StartedRun {
        run,
        agent,
        shutdown: app.shutdown.clone(),
        is_stopped: false,
    })
}

/// Passes if the sender may continue the conversation and no other node runs it. A run of this node
/// is known at once, and refused when the question starts. Returns the agent of the conversation, if
/// that exists.
async fn require_free(
    agent: &Agent,
    grant: &Grant,
    id: &ConversationId,
) -> ApiResult<Option<String>> {
    let (wanted, owner) = (id.clone(), grant.sender());
    let asked = with_sessions(agent, move |sessions| {
        let is_own = sessions.may_continue(&wanted, &owner)?;
        let runs_elsewhere = sessions.runs_elsewhere(&OwnerScope::All, &wanted)?;
        let agent = sessions.agent_of(&OwnerScope::All, &wanted)?;
        Ok((is_own, runs_elsewhere, agent))
    });
    match asked.await? {
        (false, ..) => Err(not_owned(grant, id.as_str())),
        (true, true, _) => Err(StartError::Busy(id.clone()).into()),
        (true, false, agent) => Ok(agent),
    }
}

/// The error for a conversation of another owner: 403 for a key that may see it, else as if it did
/// not exist.
fn not_owned(grant: &Grant, conversation: &str) -> ApiError {
    match grant.owner_scope() {
        OwnerScope::Own(_) => unknown(conversation),
        OwnerScope::All => {
            let message = format!(
                "conversation {conversation:?} belongs to another key; this key may read, stop and delete it"
            );
            ApiError::auth(StatusCode::FORBIDDEN, "not_your_conversation", message)
        }
    }
}

/// A run whose events are read. It is stopped when this is dropped, unless it is detached, and at
/// shutdown, so that its last event still comes.
pub struct StartedRun {
    run: RunStream,
    agent: Agent,
    shutdown: Shutdown,
    is_stopped: bool,
}

impl StartedRun {
    /// The conversation of the run.
    pub fn conversation(&self) -> &ConversationId {
        self.run.conversation()
    }

    /// The next event; `None` after the last one. No event is lost if this is not awaited to its end.
    pub async fn next(&mut self) -> Option<Event> {
        if !self.is_stopped {
            // Events that are ready go first, so that a stopped run still sends what it has.
            tokio::select! {
                biased;
                next = self.run.next() => return next.map(|(_, event)| event),
                () = self.shutdown.triggered() => {
                    self.is_stopped = true;
                    self.agent.stop(&OwnerScope::All, self.run.conversation());
                }
            }
        }
        self.run.next().await.map(|(_, event)| event)
    }
}
