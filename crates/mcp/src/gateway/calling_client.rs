//! The client of a call, as the server that works on the call may ask it.
#![expect(deprecated, reason = "clients of these versions have no other way")]

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceError};

use super::elicitation::{asks_by_result, takes_forms};
use crate::connection::{CallingClient, ModelAnswer, ModelQuestion};
use toolscout_base::printable::excerpt;

/// Most characters of a server's message to the person.
const MESSAGE_CHARS: usize = 4_000;

/// A client that can be asked while it waits for the result of its call.
pub struct WaitingClient {
    peer: Peer<RoleServer>,
    session: String,
    /// How long a person may take.
    within: Duration,
    takes_forms: bool,
    takes_urls: bool,
    has_model: bool,
}

impl fmt::Debug for WaitingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingClient")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl WaitingClient {
    /// The client of a request. `None` for one that takes no requests while it waits.
    pub fn of(
        context: &RequestContext<RoleServer>,
        session: String,
        within: Duration,
    ) -> Option<Self> {
        if asks_by_result(context) {
            return None;
        }
        let capabilities = context.client_capabilities()?;
        let elicitation = capabilities.elicitation.as_ref();
        Some(WaitingClient {
            peer: context.peer.clone(),
            session,
            within,
            takes_forms: takes_forms(context),
            takes_urls: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
            has_model: capabilities.sampling.is_some(),
        })
    }
}

#[async_trait]
impl CallingClient for WaitingClient {
    fn session(&self) -> &str {
        &self.session
    }

    async fn elicit(
        &self,
        server: &str,
        mut question: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let (message, is_taken) = match &mut question {
            ElicitRequestParams::FormElicitationParams { message, .. } => {
                (message, self.takes_forms)
            }
            ElicitRequestParams::UrlElicitationParams { message, .. } => (message, self.takes_urls),
            _ => return Ok(ElicitResult::new(ElicitationAction::Cancel)),
        };
        if !is_taken {
            // Nobody was asked, so nobody has declined.
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        }
        // The person must know that it is not this program that asks.
        *message = format!("{server:?} asks: {}", excerpt(message, MESSAGE_CHARS));
        let asking = self
            .peer
            .create_elicitation_with_timeout(question, Some(self.within));
        asking.await.map_err(failure)
    }

    async fn create_message(&self, question: ModelQuestion) -> Result<ModelAnswer, ErrorData> {
        if !self.has_model {
            let message = "the client of this call offers no model (sampling)";
            return Err(ErrorData::invalid_request(message, None));
        }
        self.peer.create_message(question).await.map_err(failure)
    }
}

fn failure(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(excerpt(&other.to_string(), 200), None),
    }
}
