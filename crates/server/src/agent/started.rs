//! Starting a run for a request, whichever API it comes by, and reading its events.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;

use super::agents::{chosen, of_conversation};
use super::{Runs, configured, unknown, with_sessions};
use crate::access::Grant;
use crate::access::key_watch::KeyWatch;
use crate::access::profiles::Profiles;
use crate::default_catalog::DefaultCatalog;
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use toolscout_agent::{Agent, Event, Question, QuestionTools, RunStream, StartError};
use toolscout_base::principal::OwnerScope;
use toolscout_base::telemetry::Metrics;
use toolscout_finder::finder::ToolSearch;
use toolscout_state::keys::Scope;
use toolscout_state::session::ConversationId;

/// Starts runs of the agents for requests, whichever API they come by.
pub struct AgentRuns {
    /// Its agents answer.
    pub default_catalog: Arc<DefaultCatalog>,
    /// A request may be limited to the tools of one.
    pub profiles: Profiles,
    /// The runs that go on.
    pub running: Runs,
    /// Ends runs whose key is no longer valid.
    pub key_watch: KeyWatch,
    /// Count runs that were refused.
    pub metrics: Arc<Metrics>,
    /// Ends all runs.
    pub shutdown: Shutdown,
    /// The scope of keys that may ask the agents.
    pub scope: Scope,
    /// Interval of signs of life on a stream without events.
    pub heartbeat: Duration,
}

impl AgentRuns {
    /// The tools of the profile of a request; `None` for those of the agent.
    ///
    /// # Errors
    /// 404 and 403 for a profile that the request may not use, and those of opening its catalog.
    pub async fn question_tools(
        &self,
        grant: &Grant,
        headers: &HeaderMap,
    ) -> ApiResult<Option<QuestionTools>> {
        let Some(chosen) = self.profiles.chosen_by_header(grant, headers)? else {
            grant.reads(self.default_catalog.name())?;
            return Ok(None);
        };
        let open = chosen.open(grant).await?;
        // The agent already searches the default catalog, so only another one is passed on.
        let is_other = open.snapshots.catalog().name != self.default_catalog.name();
        Ok(Some(QuestionTools {
            profile: open.profile,
            search: open.search,
            other_catalog: is_other.then(|| Arc::new(open.snapshots) as Arc<dyn ToolSearch>),
        }))
    }

    /// Starts the run of a question, by this agent and in this conversation if there is one. The run counts among those of
    /// the key to its end, even after the client has disconnected.
    ///
    /// # Errors
    /// 404 or 403 for a conversation of another owner, 404 for an unknown agent, 409 for another one than
    /// that of the conversation, 409 while a run of it goes on, here or on another
    /// node, 429 when the key or the server has as many runs as it may, 503 without an agent.
    pub async fn start(
        &self,
        grant: &Grant,
        mut question: Question,
        agent: Option<String>,
        conversation: Option<ConversationId>,
    ) -> ApiResult<StartedRun> {
        let (agents, wanted) = (configured(&self.default_catalog)?, agent.as_deref());
        let mut stored = None;
        if let Some(id) = &conversation {
            stored = require_free(agents.default_agent(), grant, id).await?;
            question = question.in_conversation(id.clone());
        }
        let agent = match (conversation, stored) {
            (Some(id), Some(stored)) => of_conversation(agents, wanted, &id, stored)?,
            _ => chosen(agents, wanted)?,
        };
        let permit = match self.running.admit(grant.key()) {
            Ok(permit) => permit,
            Err(error) => {
                self.metrics.rejected("runs");
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
        self.key_watch.at_end(grant.key(), over, async move {
            stopped.stop(&OwnerScope::All, &id);
        });
        Ok(StartedRun {
            run,
            agent,
            shutdown: self.shutdown.clone(),
            is_stopped: false,
        })
    }
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
