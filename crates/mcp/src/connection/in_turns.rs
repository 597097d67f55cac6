//! Calls of clients that take no questions while they wait (2026-07-28), at servers that ask during a call. The
//! same goes for requests of prompts and resources, which are calls here too.
//!
//! Such a call runs in a task of its own. If the server asks, the result of the client's request is the question,
//! and the task waits until the client makes the call again with the answer.
#![expect(
    deprecated,
    reason = "servers of these versions have no other way to ask a model"
)]

use std::any::Any;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lru::LruCache;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, CreateMessageRequest, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, InputRequest,
    InputRequiredResult, InputResponses, ListRootsRequest,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::input::{Answered, TakesInput};
use super::questions::{CallingClient, ModelAnswer, ModelQuestion, question_from, takes_forms};
use super::roots::ListedRoots;
use super::{CallContext, CallError, Connection, Input, Progress};
use toolscout_gate::gate::definition::digest;

/// Most calls of a server that wait for clients to make them again: half of the requests that a server may have
/// open, so that others can be made. A new one replaces the oldest, which is cancelled.
const MAX_WAITING: NonZeroUsize = NonZeroUsize::new(32).expect("is not zero");
/// Questions and reports of progress of one call that wait to be read.
const MAX_UNREAD: usize = 16;
/// What the states of these calls begin with.
const STATE: &str = "call:";

/// The calls that wait for clients to make them again, by their states.
pub(super) struct CallsInTurns(Mutex<LruCache<String, RunningCall>>);

impl Default for CallsInTurns {
    fn default() -> Self {
        CallsInTurns(Mutex::new(LruCache::new(MAX_WAITING)))
    }
}

/// A call that its server works on.
struct RunningCall {
    /// Who makes which call: only the same call with the same key gets on with it.
    about: [u8; 32],
    running: Running,
    questions: mpsc::Receiver<Question>,
    progress: mpsc::Receiver<Progress>,
    /// Where the answers to the questions go that the client has.
    open: BTreeMap<String, Reply>,
    asked: usize,
}

type Reply = oneshot::Sender<Result<Value, ErrorData>>;

/// A question to the client, and where its answer goes.
struct Question {
    request: InputRequest,
    reply: Reply,
}

/// The task of a call, which ends with this: nobody else waits for its result.
struct Running(JoinHandle<Result<Ended, CallError>>);

/// The result of a call, of the type that its request has.
type Ended = Box<dyn Any + Send>;

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What comes next of a call.
enum Next {
    Ended(Result<Ended, CallError>),
    Asked(InputRequiredResult),
}

impl Connection {
    /// Whether a call can come back with a question of its server, and is made again with the answer.
    pub(super) fn goes_in_turns(&self, context: &CallContext) -> bool {
        context.input.is_repeated && self.has_session()
    }

    /// Calls a tool, or gets on with the call if the client answers a question of its server.
    ///
    /// # Errors
    /// [`CallError::NeedsInput`] with a question.
    pub(super) async fn call_in_turns(
        self: &Arc<Self>,
        params: CallToolRequestParams,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let about = json!(["tools/call", params.name, params.arguments]);
        let call = |connection: Arc<Connection>, params, context: CallContext| async move {
            let at_work = connection.handler.calls.begin(context.client.clone());
            connection.call_with_input(params, &at_work, &context).await
        };
        match self.in_turns(params, about, context, call).await? {
            Answered::Complete(result) => Ok(result),
            Answered::Asked(asked) => {
                let result = serde_json::to_value(asked).unwrap_or_default();
                Err(CallError::NeedsInput { result })
            }
        }
    }

    /// Makes a request, or gets on with it if the client answers a question of its server. `about` has the
    /// method and the parameters.
    ///
    /// # Errors
    /// Those of the request, and [`CallError::Refused`] for an answer that belongs to no open question.
    pub(super) async fn in_turns<P, T, F>(
        self: &Arc<Self>,
        mut params: P,
        about: Value,
        context: &CallContext,
        request: impl FnOnce(Arc<Connection>, P, CallContext) -> F,
    ) -> Result<Answered<T>, CallError>
    where
        P: TakesInput,
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        let (responses, state) = params.take_input();
        let key = context.client.as_ref().map(|client| client.key());
        let about = digest(&mut json!([key, about]));
        let mut call = match state {
            Some(state) => {
                let mut call = self.waiting(&state, about).ok_or_else(no_such_question)?;
                call.answer(responses.unwrap_or_default());
                call
            }
            None => {
                // The client has given up the former call, whose question nobody answers any more.
                drop(self.former(about));
                let begin = |context| {
                    let running = request(Arc::clone(self), params, context);
                    async move { running.await.map(|result| Box::new(result) as Ended) }
                };
                self.begin(context, about, begin)
            }
        };
        match call.next(context).await {
            // The method is a part of what the call is about, so the result has the type of the request.
            Next::Ended(result) => match result?.downcast::<T>() {
                Ok(result) => Ok(Answered::Complete(*result)),
                Err(_) => Err(no_such_question()),
            },
            Next::Asked(mut asked) => {
                let state = format!("{STATE}{}", Uuid::new_v4());
                asked.request_state = Some(state.clone());
                self.keep(state, call);
                Ok(Answered::Asked(asked))
            }
        }
    }

    /// Keeps a call until its client answers.
    fn keep(&self, state: String, call: RunningCall) {
        let mut waiting = self.in_turns.0.lock();
        let mut ended = Vec::new();
        if waiting.len() == MAX_WAITING.get() {
            // The results of those whose questions were not answered in time go first.
            for (state, other) in waiting.iter() {
                if other.running.0.is_finished() {
                    ended.push(state.clone());
                }
            }
        }
        for state in &ended {
            waiting.pop(state);
        }
        let replaced = waiting.push(state, call);
        // One that makes room is cancelled without the lock.
        drop(waiting);
        drop(replaced);
    }

    /// Takes the call that waits and is the same as one that its client now makes from the beginning.
    fn former(&self, about: [u8; 32]) -> Option<RunningCall> {
        let mut waiting = self.in_turns.0.lock();
        let mut calls = waiting.iter();
        let (state, _) = calls.find(|(_, call)| call.about == about)?;
        let state = state.clone();
        waiting.pop(&state)
    }

    /// Takes the call that waits for the answers to this question.
    fn waiting(&self, state: &str, about: [u8; 32]) -> Option<RunningCall> {
        let mut waiting = self.in_turns.0.lock();
        match waiting.peek(state) {
            Some(call) if call.about == about => waiting.pop(state),
            _ => None,
        }
    }

    fn begin<F>(
        &self,
        context: &CallContext,
        about: [u8; 32],
        call: impl FnOnce(CallContext) -> F,
    ) -> RunningCall
    where
        F: Future<Output = Result<Ended, CallError>> + Send + 'static,
    {
        let (ask, questions) = mpsc::channel(MAX_UNREAD);
        let (report, progress) = mpsc::channel(MAX_UNREAD);
        let client = context.client.as_ref().map(|client| {
            let client = ClientInTurns {
                session: client.session().to_owned(),
                key: client.key().to_owned(),
                capabilities: context.capabilities.clone().unwrap_or_default(),
                within: context.answer_within.unwrap_or(self.limits.call.total),
                questions: ask,
            };
            Arc::new(client) as Arc<dyn CallingClient>
        });
        let context = CallContext {
            progress: Some(report),
            // The first request of the client ends with the first question.
            cancelled: CancellationToken::new(),
            client,
            input: Input::default(),
            ..context.clone()
        };
        RunningCall {
            about,
            running: Running(tokio::spawn(call(context))),
            questions,
            progress,
            open: BTreeMap::new(),
            asked: 0,
        }
    }
}

impl RunningCall {
    /// Passes the answers of the client on to the server.
    fn answer(&mut self, mut responses: InputResponses) {
        for (name, reply) in std::mem::take(&mut self.open) {
            let answer = responses.remove(&name).ok_or_else(|| {
                let message = format!("the client gave no answer to its question {name:?}");
                ErrorData::invalid_request(message, None)
            });
            // The server may have given up.
            let _ = reply.send(answer);
        }
    }

    /// Waits for the result, or for a question.
    async fn next(&mut self, context: &CallContext) -> Next {
        loop {
            tokio::select! {
                biased;
                ended = &mut self.running.0 => return Next::Ended(ended.unwrap_or_else(|error| {
                    tracing::error!(%error, "a call ended without a result");
                    Err(CallError::Cancelled)
                })),
                () = context.cancelled.cancelled() => return Next::Ended(Err(CallError::Cancelled)),
                Some(done) = self.progress.recv() => {
                    if let Some(listener) = &context.progress {
                        // Progress is only informative: a full queue must not slow down the call.
                        let _ = listener.try_send(done);
                    }
                }
                Some(question) = self.questions.recv() => return Next::Asked(self.asked(question)),
            }
        }
    }

    /// The result with this question, and others that wait.
    fn asked(&mut self, first: Question) -> InputRequiredResult {
        let mut requests = BTreeMap::new();
        let mut next = Some(first);
        while let Some(Question { request, reply }) = next {
            self.asked += 1;
            let name = format!("question_{}", self.asked);
            self.open.insert(name.clone(), reply);
            requests.insert(name, request);
            next = self.questions.try_recv().ok();
        }
        InputRequiredResult::new(Some(requests), None)
    }
}

/// A client that gets a question as the result of its request.
#[derive(Debug)]
struct ClientInTurns {
    session: String,
    key: String,
    capabilities: ClientCapabilities,
    /// How long an answer may take.
    within: Duration,
    questions: mpsc::Sender<Question>,
}

impl ClientInTurns {
    async fn ask<T: DeserializeOwned>(&self, request: InputRequest) -> Result<T, ErrorData> {
        let asking = timeout(self.within, self.ask_and_wait(request));
        asking.await.unwrap_or_else(|_| {
            let message = "the client did not answer the question in time";
            Err(ErrorData::internal_error(message, None))
        })
    }

    async fn ask_and_wait<T: DeserializeOwned>(
        &self,
        request: InputRequest,
    ) -> Result<T, ErrorData> {
        let (reply, answer) = oneshot::channel();
        // Both fail once nobody waits for the call.
        if self
            .questions
            .send(Question { request, reply })
            .await
            .is_ok()
            && let Ok(answer) = answer.await
        {
            return serde_json::from_value(answer?).map_err(|error| {
                let message = format!("the client's answer cannot be read: {error}");
                ErrorData::invalid_request(message, None)
            });
        }
        Err(ErrorData::internal_error("the call has ended", None))
    }
}

#[async_trait]
impl CallingClient for ClientInTurns {
    fn session(&self) -> &str {
        &self.session
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn answers_by_calling_again(&self) -> bool {
        true
    }

    async fn elicit(
        &self,
        server: &str,
        question: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let has_pages = match &self.capabilities.elicitation {
            Some(elicitation) => elicitation.url.is_some(),
            None => false,
        };
        let has_forms = takes_forms(&self.capabilities);
        let Some(question) = question_from(server, question, has_forms, has_pages) else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let request = InputRequest::Elicitation(ElicitRequest::new(question));
        self.ask(request).await
    }

    async fn elicit_unread(&self, server: &str, _: Value) -> Result<Value, ErrorData> {
        tracing::warn!(
            server,
            "a question was cancelled: a form of this kind cannot be the result of a call"
        );
        Ok(json!({ "action": "cancel" }))
    }

    async fn create_message(
        &self,
        _: &str,
        question: ModelQuestion,
    ) -> Result<ModelAnswer, ErrorData> {
        if self.capabilities.sampling.is_none() {
            let message = "the client of this call offers no model (sampling)";
            return Err(ErrorData::invalid_request(message, None));
        }
        let request = InputRequest::CreateMessage(CreateMessageRequest::new(question));
        self.ask(request).await
    }

    async fn roots(&self) -> Option<Result<ListedRoots, ErrorData>> {
        self.capabilities.roots.as_ref()?;
        let request = InputRequest::ListRoots(ListRootsRequest::default());
        Some(self.ask(request).await)
    }
}

fn no_such_question() -> CallError {
    CallError::Refused {
        code: rmcp::model::ErrorCode::INVALID_PARAMS.0,
        message:
            "the answer belongs to no open question of this call; make the call again without it"
                .into(),
        data: None,
    }
}
