//! Code of a library's user around a run: before and after each call of the model and of a tool.

use std::sync::Arc;

use async_trait::async_trait;

use toolscout_gate::gate::{Call, Caller};
use toolscout_gate::llm::ChatRequest;
use toolscout_gate::llm::reply::Reply;
use toolscout_gate::tools::ToolResult;

/// Stops a run, which fails with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stop(pub String);

impl Stop {
    /// With a reason for the user.
    pub fn new(reason: impl Into<String>) -> Self {
        Stop(reason.into())
    }
}

/// Code around a run. Hooks run in the order in which they were added, each with what the one before
/// has changed. A run waits for them within its time to live.
///
/// ```
/// use async_trait::async_trait;
/// use toolscout_agent::hooks::{Hook, Stop};
/// use toolscout_gate::gate::{Call, Caller};
/// use toolscout_gate::tools::ToolResult;
///
/// /// Answers calls of one tool from a cache, and stops runs that call another one.
/// struct Cached;
///
/// #[async_trait]
/// impl Hook for Cached {
///     async fn before_call(&self, _: &Caller, call: &mut Call) -> Result<Option<ToolResult>, Stop> {
///         match call.tool.id.name() {
///             "get_time" => Ok(Some(ToolResult::ok("12:00".into()))),
///             "launch" => Err(Stop::new("nothing is launched today")),
///             _ => Ok(None),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Hook: Send + Sync {
    /// Before the model is asked. Messages and tools may be changed for this request; the next one
    /// is made from the conversation again.
    ///
    /// # Errors
    /// [`Stop`] ends the run.
    async fn before_model(&self, _caller: &Caller, _request: &mut ChatRequest) -> Result<(), Stop> {
        Ok(())
    }

    /// After the model has answered. Its text was streamed already; what is changed here is what
    /// the run goes on with and what is stored.
    ///
    /// # Errors
    /// [`Stop`] ends the run.
    async fn after_model(&self, _caller: &Caller, _reply: &mut Reply) -> Result<(), Stop> {
        Ok(())
    }

    /// Before a tool is called, and before the gate: changed arguments are judged as if the model
    /// had written them. With a result, neither the gate nor the tool is asked. Calls of one answer
    /// run in parallel.
    ///
    /// # Errors
    /// [`Stop`] ends the run.
    async fn before_call(
        &self,
        _caller: &Caller,
        _call: &mut Call,
    ) -> Result<Option<ToolResult>, Stop> {
        Ok(None)
    }

    /// After a call, whether it was made, refused or failed.
    ///
    /// # Errors
    /// [`Stop`] ends the run.
    async fn after_call(
        &self,
        _caller: &Caller,
        _call: &Call,
        _result: &mut ToolResult,
    ) -> Result<(), Stop> {
        Ok(())
    }
}

/// The hooks of an agent, in order.
#[derive(Clone, Default)]
pub(super) struct Hooks(pub Vec<Arc<dyn Hook>>);

impl Hooks {
    pub async fn before_model(
        &self,
        caller: &Caller,
        request: &mut ChatRequest,
    ) -> Result<(), Stop> {
        for hook in &self.0 {
            hook.before_model(caller, request).await?;
        }
        Ok(())
    }

    pub async fn after_model(&self, caller: &Caller, reply: &mut Reply) -> Result<(), Stop> {
        for hook in &self.0 {
            hook.after_model(caller, reply).await?;
        }
        Ok(())
    }

    /// The first result that a hook gives; the hooks after it do not see the call.
    pub async fn before_call(
        &self,
        caller: &Caller,
        call: &mut Call,
    ) -> Result<Option<ToolResult>, Stop> {
        for hook in &self.0 {
            if let Some(result) = hook.before_call(caller, call).await? {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }

    pub async fn after_call(
        &self,
        caller: &Caller,
        call: &Call,
        result: &mut ToolResult,
    ) -> Result<(), Stop> {
        for hook in &self.0 {
            hook.after_call(caller, call, result).await?;
        }
        Ok(())
    }
}
