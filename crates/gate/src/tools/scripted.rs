//! Tools with scripted results, for use with the scripted model.

use std::collections::HashMap;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use toolscout_index::ToolId;

use crate::llm::script::ToolOutcome;
use crate::tools::{Arguments, Callable, ToolFailure, Toolset};

/// The tools of a script, by id.
#[derive(Clone, Default)]
pub struct ScriptedTools {
    tools: HashMap<String, Arc<ScriptedTool>>,
}

impl ScriptedTools {
    /// Tools that give these outcomes, one per call. The last outcome repeats.
    pub fn new(outcomes: HashMap<String, Vec<ToolOutcome>>) -> Self {
        let mut tools = HashMap::new();
        for (id, outcomes) in outcomes {
            let calls = AtomicUsize::new(0);
            tools.insert(id, Arc::new(ScriptedTool { outcomes, calls }));
        }
        ScriptedTools { tools }
    }
}

impl Toolset for ScriptedTools {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let tool = self.tools.get(id.as_str())?;
        Some(tool.clone())
    }
}

struct ScriptedTool {
    outcomes: Vec<ToolOutcome>,
    calls: AtomicUsize,
}

#[async_trait]
impl Callable for ScriptedTool {
    async fn call(&self, _arguments: Arguments) -> Result<Value, ToolFailure> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.outcomes.get(call).or(self.outcomes.last()) {
            Some(ToolOutcome::Result(result)) => Ok(result.clone()),
            Some(ToolOutcome::Error(message)) => Err(ToolFailure::new(message.clone())),
            Some(ToolOutcome::Hang) => future::pending().await,
            None => Err(ToolFailure::new(
                "the script gives no outcome for this tool",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outcomes_come_in_order_and_the_last_one_repeats() {
        let outcomes = vec![
            ToolOutcome::Error("busy".into()),
            ToolOutcome::Result(7.into()),
        ];
        let tools = ScriptedTools::new(HashMap::from([("a/b".to_owned(), outcomes)]));
        let tool = tools.find(&ToolId::parse("a/b").unwrap()).unwrap();
        let mut given = Vec::new();
        for _ in 0..3 {
            given.push(tool.call(Arguments::new()).await);
        }
        assert_eq!(
            given,
            [Err(ToolFailure::new("busy")), Ok(7.into()), Ok(7.into())]
        );
        assert!(tools.find(&ToolId::parse("a/c").unwrap()).is_none());
    }
}
