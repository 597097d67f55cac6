//! A tool of a server, as the agent and the gateway call it.

use async_trait::async_trait;
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::task::spawn_blocking;
use toolscout_index::ToolId;

use super::Pool;
use crate::connection::{CallContext, CallError};
use crate::masking::{self, Masking};
use crate::outcome::Outcome;
use crate::tool_edits::ResultView;
use toolscout_base::long_work;
use toolscout_gate::tools::{Arguments, Callable, Called, ToolFailure};

/// JSON-RPC's code of an error of this program.
const INTERNAL_ERROR: i32 = -32603;

/// What a server answers to a call: the form of its own that a call of an MCP tool keeps.
pub type ServerAnswer = Result<CallToolResult, CallError>;

/// A tool of a server, as the agent and the gateway call it.
pub(super) struct UpstreamTool {
    pub(super) pool: Pool,
    pub(super) id: ToolId,
    pub(super) calling: CallContext,
}

#[async_trait]
impl Callable for UpstreamTool {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        self.call_in_own_form(arguments).await.outcome
    }

    async fn call_in_own_form(&self, arguments: Arguments) -> Called {
        let answer = self.pool.call(&self.id, arguments, &self.calling).await;
        Called {
            outcome: data_of(&answer),
            own: Some(Box::new(answer)),
        }
    }

    fn sent(&self, given: &Arguments) -> Option<Arguments> {
        let server = self.pool.shared.servers.get(self.id.server())?;
        let call = server.config.edits.call(self.id.name(), given.clone());
        Some(call.ok()?.arguments)
    }

    /// The server's limits extend with its progress.
    fn limits_itself(&self) -> bool {
        true
    }
}

/// The result as clients get it: with the fields that the owner of the server file wants, and without
/// secrets.
pub(super) async fn finished(
    view: Option<ResultView>,
    masking: &Masking,
    mut result: CallToolResult,
) -> ServerAnswer {
    let is_masked = !masking.is_empty();
    let Some(view) = view else {
        if is_masked {
            let bytes = masking::length(&result);
            long_work::read(bytes, || masking.result(&mut result)).await;
        }
        return Ok(result);
    };
    let masking = masking.clone();
    let finishing = spawn_blocking(move || {
        let mut result = view.of(result);
        if is_masked {
            masking.result(&mut result);
        }
        result
    });
    match finishing.await {
        Ok(result) => Ok(result),
        Err(error) => {
            tracing::error!(%error, "reading a result panicked");
            Err(CallError::Refused {
                code: INTERNAL_ERROR,
                message: "the tool was called, and its result cannot be shown".into(),
                data: None,
            })
        }
    }
}

/// The part of a result that a view leaves.
///
/// # Errors
/// [`CallError::Refused`] if reading the result panicked.
pub async fn viewed(view: ResultView, result: CallToolResult) -> ServerAnswer {
    finished(Some(view), &Masking::default(), result).await
}

/// The answer as data for a model.
fn data_of(answer: &ServerAnswer) -> Result<Value, ToolFailure> {
    let result = match answer {
        Ok(result) => result,
        Err(error) => return Err(ToolFailure::new(error.to_string())),
    };
    let outcome = Outcome::of(result);
    if outcome.is_error {
        return Err(ToolFailure::new(outcome.failure()));
    }
    Ok(outcome.to_value())
}
