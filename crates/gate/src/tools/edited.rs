//! A tool whose calls an owner changes before they reach what calls it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{Arguments, Callable, Called, ToolFailure};
use toolscout_base::tool_edit::{Fields, ToolEdit};

/// A tool whose calls get the arguments of an edit, and whose results lose what the edit leaves out.
pub struct EditedTool {
    inner: Arc<dyn Callable>,
    edit: Arc<ToolEdit>,
}

impl EditedTool {
    /// This tool with an edit.
    pub fn new(inner: Arc<dyn Callable>, edit: Arc<ToolEdit>) -> Self {
        EditedTool { inner, edit }
    }

    fn filled(&self, given: &Arguments) -> Arguments {
        let mut arguments = given.clone();
        self.edit.fill(&mut arguments);
        arguments
    }

    /// The part of a result that the profile wants. Results in the form of a protocol are left to who
    /// knows the protocol.
    async fn part_of(&self, outcome: Result<Value, ToolFailure>) -> Result<Value, ToolFailure> {
        let mut value = outcome?;
        if self.edit.fields.is_empty() {
            return Ok(value);
        }
        let edit = Arc::clone(&self.edit);
        let cutting = spawn_blocking(move || {
            let fields = Fields::of(&edit.fields);
            match &value {
                Value::String(text) => {
                    if let Some(kept) = fields.kept_text(text) {
                        value = Value::String(kept);
                    }
                }
                _ => fields.keep_in(&mut value),
            }
            value
        });
        cutting.await.map_err(|error| {
            tracing::error!(%error, "reading a result panicked");
            ToolFailure::new("the tool was called, and its result cannot be shown")
        })
    }
}

#[async_trait]
impl Callable for EditedTool {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let outcome = self.inner.call(self.filled(&arguments)).await;
        self.part_of(outcome).await
    }

    async fn call_in_own_form(&self, arguments: Arguments) -> Called {
        let Called { outcome, own } = self.inner.call_in_own_form(self.filled(&arguments)).await;
        Called {
            outcome: self.part_of(outcome).await,
            own,
        }
    }

    fn sent(&self, given: &Arguments) -> Option<Arguments> {
        let filled = self.filled(given);
        let sent = self.inner.sent(&filled);
        Some(sent.unwrap_or(filled))
    }

    fn limits_itself(&self) -> bool {
        self.inner.limits_itself()
    }
}
