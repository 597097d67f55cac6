//! The stored conversations, and what of them runs on this server or on another node.

use crate::request::error::ApiResult;
use crate::request::threads::blocking;
use toolscout_agent::Agent;
use toolscout_base::principal::OwnerScope;
use toolscout_state::session::{ConversationId, DEFAULT_AGENT, SessionError, Sessions, Turn};

/// A conversation as it is stored, and whether a run continues it.
pub struct StoredConversation {
    /// The agent that answers in it.
    pub agent: String,
    /// Its turns, oldest first.
    pub turns: Vec<Turn>,
    /// Whether a run of this server or of another node answers in it.
    pub is_running: bool,
}

/// Reads a conversation; `None` if there is none in this scope.
///
/// # Errors
/// Those of the stored conversations.
pub async fn read(
    agent: &Agent,
    scope: OwnerScope,
    id: &ConversationId,
) -> ApiResult<Option<StoredConversation>> {
    // Asked before and after, since a run may begin or end while the turns are read.
    let ran_before = agent.is_running(&scope, id);
    let (wanted, within) = (id.clone(), scope.clone());
    let stored = with_sessions(agent, move |sessions| {
        // Before the turns too: if the lease of a lost node ends between the two, the turn would still
        // be running in a conversation in which nothing runs.
        let before = sessions.runs_elsewhere(&within, &wanted)?;
        let turns = sessions.turns(&within, &wanted)?;
        let name = sessions.agent_of(&within, &wanted)?;
        let elsewhere = before || sessions.runs_elsewhere(&within, &wanted)?;
        Ok((turns, name, elsewhere))
    });
    let (turns, name, elsewhere) = stored.await?;
    // Every conversation has a turn.
    if turns.is_empty() {
        return Ok(None);
    }
    Ok(Some(StoredConversation {
        agent: name.unwrap_or_else(|| DEFAULT_AGENT.to_owned()),
        turns,
        is_running: ran_before || elsewhere || agent.is_running(&scope, id),
    }))
}

/// Stops the run of a conversation. Returns whether there was one; `None` if there is no such conversation in this
/// scope.
///
/// # Errors
/// Those of the stored conversations.
pub async fn stop(
    agent: &Agent,
    scope: OwnerScope,
    id: &ConversationId,
) -> ApiResult<Option<bool>> {
    if agent.stop(&scope, id) {
        return Ok(Some(true));
    }
    // The run may be on another node, which is told through the store.
    let id = id.clone();
    let asked = with_sessions(agent, move |sessions| {
        let stopped = sessions.stop_elsewhere(&scope, &id)?;
        Ok((stopped, sessions.contains(&scope, &id)?))
    });
    let (stopped, exists) = asked.await?;
    Ok(exists.then_some(stopped))
}

/// Works on the stored conversations off the async threads.
///
/// # Errors
/// Those of the work.
pub async fn with_sessions<T: Send + 'static>(
    agent: &Agent,
    work: impl FnOnce(&Sessions) -> Result<T, SessionError> + Send + 'static,
) -> ApiResult<T> {
    let sessions = agent.sessions().clone();
    Ok(blocking(move || work(&sessions)).await??)
}
