//! The client of a call, as the server that works on the call may ask it.
#![expect(deprecated, reason = "clients of these versions have no other way")]

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientCapabilities, CustomRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::elicitation::asks_by_result;
use crate::connection::{
    CallingClient, ELICITATION, ModelAnswer, ModelQuestion, from_server, question_from, takes_forms,
};
use crate::masking;
use crate::pool::Pool;
use toolscout_base::printable::excerpt;

/// Questions that wait for the task of the call.
const MAX_WAITING: usize = 16;

/// A client that can be asked while it waits for the result of its call.
///
/// The question is asked by the task that handles the call: the SDK sends a request from there on the
/// stream of the call, and from elsewhere on a stream that the client need not have.
pub struct WaitingClient {
    session: String,
    key: String,
    takes_forms: bool,
    takes_urls: bool,
    has_model: bool,
    questions: mpsc::Sender<Question>,
    pool: Pool,
}

/// The questions to a client during its call, in the task of the call.
pub struct Questions {
    peer: Peer<RoleServer>,
    /// How long a person may take.
    within: Duration,
    waiting: Option<mpsc::Receiver<Question>>,
}

/// A question, and where its answer goes.
enum Question {
    OfPerson(Box<ElicitRequestParams>, Reply<ElicitResult>),
    OfModel(Box<ModelQuestion>, Reply<ModelAnswer>),
    /// A form that this program cannot read.
    Unread(Value, Reply<Value>),
}

type Reply<T> = oneshot::Sender<Result<T, ErrorData>>;

impl fmt::Debug for WaitingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingClient")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl WaitingClient {
    /// The client of a request, and the questions to it.
    pub fn of(
        context: &RequestContext<RoleServer>,
        (key, session): (String, String),
        within: Duration,
        pool: &Pool,
    ) -> (Self, Questions) {
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let questions = Questions {
            peer: context.peer.clone(),
            within,
            waiting: Some(waiting),
        };
        // A client of the newest protocol takes no requests while it waits.
        let capabilities = match context.client_capabilities() {
            Some(capabilities) if !asks_by_result(context) => capabilities,
            _ => ClientCapabilities::default(),
        };
        let elicitation = capabilities.elicitation.as_ref();
        let client = WaitingClient {
            session,
            key,
            takes_forms: takes_forms(&capabilities),
            takes_urls: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
            has_model: capabilities.sampling.is_some(),
            questions: sender,
            pool: pool.clone(),
        };
        (client, questions)
    }

    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, ErrorData> {
        let (reply, answer) = oneshot::channel();
        // Both fail once the task of the call is gone.
        if self.questions.send(question(reply)).await.is_ok()
            && let Ok(answer) = answer.await
        {
            return answer;
        }
        Err(ErrorData::internal_error("the call has ended", None))
    }
}

impl Questions {
    /// Asks the client what comes while this work runs, and returns its result.
    pub async fn while_running<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut open = FuturesUnordered::new();
        loop {
            let next = async {
                match &mut self.waiting {
                    Some(waiting) => waiting.recv().await,
                    None => None,
                }
            };
            tokio::select! {
                biased;
                done = &mut work => return done,
                Some(()) = open.next() => {}
                Some(question) = next => {
                    open.push(question.ask(self.peer.clone(), self.within));
                }
                // No further question: the work and the open ones go on.
                else => return work.await,
            }
        }
    }
}

impl Question {
    /// Asks the client. Who waits for the answer may have left.
    async fn ask(self, peer: Peer<RoleServer>, within: Duration) {
        match self {
            Question::OfPerson(question, reply) => {
                let asked = peer.create_elicitation_with_timeout(*question, Some(within));
                let _ = reply.send(asked.await.map_err(failure));
            }
            Question::OfModel(question, reply) => {
                let _ = reply.send(peer.create_message(*question).await.map_err(failure));
            }
            Question::Unread(question, reply) => {
                let _ = reply.send(elicit_unread(&peer, question, within).await);
            }
        }
    }
}

#[async_trait]
impl CallingClient for WaitingClient {
    fn session(&self) -> &str {
        &self.session
    }

    fn key(&self) -> &str {
        &self.key
    }

    async fn elicit(
        &self,
        server: &str,
        question: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let question = question_from(server, question, self.takes_forms, self.takes_urls);
        let Some(question) = question else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let question = Box::new(masking::asked(question, &self.pool.masking(server)));
        self.ask(|reply| Question::OfPerson(question, reply)).await
    }

    async fn elicit_unread(&self, server: &str, mut question: Value) -> Result<Value, ErrorData> {
        if !self.takes_forms {
            return Ok(json!({ "action": "cancel" }));
        }
        let message = question.get("message").and_then(Value::as_str);
        let message = from_server(server, message.unwrap_or_default());
        question["message"] = message.into();
        self.pool.masking(server).question(&mut question);
        self.ask(|reply| Question::Unread(question, reply)).await
    }

    async fn create_message(
        &self,
        server: &str,
        question: ModelQuestion,
    ) -> Result<ModelAnswer, ErrorData> {
        if !self.has_model {
            let message = "the client of this call offers no model (sampling)";
            return Err(ErrorData::invalid_request(message, None));
        }
        let question = Box::new(masking::asked(question, &self.pool.masking(server)));
        self.ask(|reply| Question::OfModel(question, reply)).await
    }
}

async fn elicit_unread(
    peer: &Peer<RoleServer>,
    question: Value,
    within: Duration,
) -> Result<Value, ErrorData> {
    let request = CustomRequest::new(ELICITATION, Some(question));
    let options = PeerRequestOptions::with_timeout(within);
    let sent = peer.send_request_with_option(request.into(), options).await;
    let answer = sent.map_err(failure)?.await_response().await;
    let answer = answer.map_err(failure)?;
    serde_json::to_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn failure(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(excerpt(&other.to_string(), 200), None),
    }
}
