//! Calls that a server answers later: tasks (`io.modelcontextprotocol/tasks`).

use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientCapabilities, ClientRequest, GetTaskParams,
    GetTaskRequest, GetTaskResult, RequestMetaObject, ServerResult, UpdateTaskParams,
    UpdateTaskRequest,
};
use rmcp::service::{PeerRequestOptions, ServiceError};

use super::{CallError, Connection};

/// What a client asks about a task of a server.
#[derive(Clone, Debug)]
pub enum TaskQuestion {
    /// Its state, and its result.
    State(GetTaskParams),
    /// To take the answers to its questions.
    Answers(UpdateTaskParams),
    /// To end it.
    End(CancelTaskParams),
}

/// What the server answers.
#[derive(Debug)]
pub enum TaskAnswer {
    /// The state.
    State(Box<GetTaskResult>),
    /// It has taken note.
    Done,
}

impl TaskQuestion {
    /// The id of the task.
    pub fn id(&self) -> &str {
        match self {
            TaskQuestion::State(params) => &params.task_id,
            TaskQuestion::Answers(params) => &params.task_id,
            TaskQuestion::End(params) => &params.task_id,
        }
    }

    /// Sets the id of the task.
    pub fn set_id(&mut self, id: String) {
        match self {
            TaskQuestion::State(params) => params.task_id = id,
            TaskQuestion::Answers(params) => params.task_id = id,
            TaskQuestion::End(params) => params.task_id = id,
        }
    }
}

impl Connection {
    /// Asks the server about a task, for a client that can do this.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn task(
        &self,
        question: TaskQuestion,
        client: ClientCapabilities,
    ) -> Result<TaskAnswer, CallError> {
        // What the server logs meanwhile may contain what this client asked for, and is for nobody.
        let _at_work = self.handler.calls.begin(None);
        let request = match question {
            TaskQuestion::State(params) => {
                ClientRequest::GetTaskRequest(GetTaskRequest::new(params))
            }
            TaskQuestion::Answers(params) => {
                ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(params))
            }
            TaskQuestion::End(params) => {
                ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params))
            }
        };
        let mut meta = RequestMetaObject::new();
        meta.set_client_capabilities(self.capabilities_to_tell(client));
        let options = PeerRequestOptions::with_timeout(self.limits.call.idle).with_meta(meta);
        let asking = async {
            let sent = self.peer.send_request_with_option(request, options).await?;
            match sent.await_response().await? {
                ServerResult::GetTaskResult(state) => Ok(TaskAnswer::State(Box::new(state))),
                ServerResult::TaskAckResult(_) | ServerResult::EmptyResult(_) => {
                    Ok(TaskAnswer::Done)
                }
                _ => Err(ServiceError::UnexpectedResponse),
            }
        };
        self.in_time(asking).await
    }
}
