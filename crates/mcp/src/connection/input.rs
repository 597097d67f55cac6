//! Calls whose server asks for input by a result (`input_required`), after which the call is made again
//! with the answers.
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, GetPromptRequestParams, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, ReadResourceRequestParams, ServerResult,
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::questions::{CallAtWork, check_form, from_server};
use super::{CallContext, CallError, Connection};
use crate::outcome::lenient_result;

/// Most times that a server asks for input during one call.
const MAX_ROUNDS: usize = 10;
/// Most questions of a server at once.
const MAX_QUESTIONS: usize = 16;
/// Before a call is made again for which the server needs no answer, only time.
const PAUSE: Duration = Duration::from_millis(500);

/// What a client gives to a call that it makes again, and how it takes questions.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The answers, by the keys of the questions.
    pub responses: Option<InputResponses>,
    /// What the server gave with its questions.
    pub state: Option<String>,
    /// Whether the client makes a call again with the answers. Any other is asked while it waits.
    pub is_repeated: bool,
}

/// What a server answers to a request that may need input.
pub(super) enum Answered<T> {
    /// The result.
    Complete(T),
    /// It asks for input first.
    Asked(InputRequiredResult),
}

/// The parameters of a request that may need input.
pub(super) trait TakesInput: Clone {
    /// Sets the answers, and what the server gave with its questions.
    fn set_input(&mut self, responses: Option<InputResponses>, state: Option<String>);

    /// Takes the answers out, and what the server gave with its questions.
    fn take_input(&mut self) -> (Option<InputResponses>, Option<String>);
}

impl TakesInput for CallToolRequestParams {
    fn set_input(&mut self, responses: Option<InputResponses>, state: Option<String>) {
        (self.input_responses, self.request_state) = (responses, state);
    }

    fn take_input(&mut self) -> (Option<InputResponses>, Option<String>) {
        (self.input_responses.take(), self.request_state.take())
    }
}

impl TakesInput for GetPromptRequestParams {
    fn set_input(&mut self, responses: Option<InputResponses>, state: Option<String>) {
        (self.input_responses, self.request_state) = (responses, state);
    }

    fn take_input(&mut self) -> (Option<InputResponses>, Option<String>) {
        (self.input_responses.take(), self.request_state.take())
    }
}

impl TakesInput for ReadResourceRequestParams {
    fn set_input(&mut self, responses: Option<InputResponses>, state: Option<String>) {
        (self.input_responses, self.request_state) = (responses, state);
    }

    fn take_input(&mut self) -> (Option<InputResponses>, Option<String>) {
        (self.input_responses.take(), self.request_state.take())
    }
}

impl Connection {
    /// Makes a call, and makes it again with the answers of a client that is asked while it waits.
    pub(super) async fn call_with_input(
        &self,
        params: CallToolRequestParams,
        at_work: &CallAtWork,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let call = |params| async move {
            match self.call_once(params, at_work, context).await? {
                ServerResult::CallToolResult(result) => Ok(Answered::Complete(result)),
                ServerResult::InputRequiredResult(asked) => Ok(Answered::Asked(asked)),
                // Servers answer so only clients that take it.
                ServerResult::CreateTaskResult(task) => {
                    let result = serde_json::to_value(task).unwrap_or_default();
                    Err(CallError::AnswersLater { result })
                }
                // The call was made, so what can be read of its result is passed on.
                other => {
                    let result = serde_json::to_value(other).unwrap_or_default();
                    Ok(Answered::Complete(lenient_result(result)))
                }
            }
        };
        match self.with_input(params, context, call).await? {
            Answered::Complete(result) => Ok(result),
            Answered::Asked(asked) => {
                let result = serde_json::to_value(asked).unwrap_or_default();
                Err(CallError::NeedsInput { result })
            }
        }
    }

    /// Makes a request, and makes it again with the answers of a client that is asked while it waits. Any
    /// other client gets the question.
    pub(super) async fn with_input<P, T, F>(
        &self,
        mut params: P,
        context: &CallContext,
        request: impl Fn(P) -> F,
    ) -> Result<Answered<T>, CallError>
    where
        P: TakesInput,
        F: Future<Output = Result<Answered<T>, CallError>>,
    {
        for _ in 0..MAX_ROUNDS {
            let mut asked = match request(params.clone()).await? {
                Answered::Asked(asked) => asked,
                complete => return Ok(complete),
            };
            if context.input.is_repeated {
                self.prepare_for_client(&mut asked)?;
                return Ok(Answered::Asked(asked));
            }
            let responses = match asked.input_requests {
                Some(requests) => Some(self.answers(requests, context).await?),
                None => {
                    sleep(PAUSE).await;
                    None
                }
            };
            params.set_input(responses, asked.request_state);
        }
        Err(refused(
            "the request was not made, since the server asks for more input again and again",
        ))
    }

    /// Makes the questions of a server fit to be passed on, as the client that is asked during a call gets
    /// them.
    ///
    /// # Errors
    /// For a form that asks for a secret, and a question for folders that are not passed on.
    pub(super) fn prepare_for_client(
        &self,
        asked: &mut InputRequiredResult,
    ) -> Result<(), CallError> {
        for (_, request) in asked.input_requests.iter_mut().flatten() {
            match request {
                InputRequest::Elicitation(form) => {
                    check_form(&form.params).map_err(|error| refused(&error.message))?;
                    self.name_as_asker(&mut form.params);
                }
                InputRequest::ListRoots(_) if !self.handler.roots.are_passed() => {
                    return Err(refused(
                        "it asks for the folders of the client, which are not passed on",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Names the server in its question, so that the person knows who asks.
    fn name_as_asker(&self, question: &mut ElicitRequestParams) {
        match question {
            ElicitRequestParams::FormElicitationParams { message, .. }
            | ElicitRequestParams::UrlElicitationParams { message, .. } => {
                *message = from_server(&self.server, message);
            }
            _ => {}
        }
    }

    /// What the server is told that a client can do. It is not told of folders that are not passed on, because
    /// some servers open the folders of one client to all.
    pub(super) fn capabilities_to_tell(
        &self,
        mut client: ClientCapabilities,
    ) -> ClientCapabilities {
        if !self.handler.roots.are_passed() {
            client.roots = None;
        }
        client
    }

    async fn answers(
        &self,
        requests: InputRequests,
        context: &CallContext,
    ) -> Result<InputResponses, CallError> {
        if requests.len() > MAX_QUESTIONS {
            return Err(refused("the tool asks for too much at once"));
        }
        let mut answers = InputResponses::new();
        for (key, request) in requests {
            // A client that never answers must not hold the server's calls.
            let answering = timeout(self.limits.call.total, self.answer(request, context));
            let answered = tokio::select! {
                () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
                answered = answering => answered,
            };
            let answered = answered.unwrap_or_else(|_| {
                let message = "the client did not answer the tool's question in time";
                Err(ErrorData::internal_error(message, None))
            });
            let answer = answered.map_err(|error| CallError::Refused {
                code: error.code.0,
                message: error.message.into_owned(),
                data: error.data,
            })?;
            answers.insert(key, answer);
        }
        Ok(answers)
    }

    async fn answer(
        &self,
        request: InputRequest,
        context: &CallContext,
    ) -> Result<Value, ErrorData> {
        let client = context.client.as_ref();
        let answer = match request {
            InputRequest::Elicitation(request) => {
                check_form(&request.params)?;
                let answer = match client {
                    Some(client) => client.elicit(&self.server, request.params).await?,
                    // Nobody answers for a person.
                    None => ElicitResult::new(ElicitationAction::Cancel),
                };
                serde_json::to_value(answer)
            }
            InputRequest::CreateMessage(request) => {
                let Some(client) = client else {
                    let message = "there is no client with a model";
                    return Err(ErrorData::invalid_request(message, None));
                };
                serde_json::to_value(client.create_message(&self.server, request.params).await?)
            }
            InputRequest::ListRoots(_) => serde_json::to_value(self.handler.roots.list().await?),
            _ => {
                let message = "the tool asks for input of an unknown kind";
                return Err(ErrorData::invalid_request(message, None));
            }
        };
        answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

fn refused(message: &str) -> CallError {
    CallError::Refused {
        code: -32603,
        message: message.to_owned(),
        data: None,
    }
}
