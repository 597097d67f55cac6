//! A registered catalog that is searched besides the tools of a request.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use toolscout_index::Tool;

use crate::finder::ToolSearch;

/// A catalog, and what calls its tools.
#[derive(Clone)]
pub struct ExtraCatalog {
    /// Searches it.
    pub search: Arc<dyn ToolSearch>,
    /// Calls its tools; without it only tools that the client has too are offered.
    pub caller: Option<Arc<dyn ToolCaller>>,
}

impl fmt::Debug for ExtraCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraCatalog")
            .field("calls", &self.caller.is_some())
            .finish_non_exhaustive()
    }
}

/// Calls tools that are not the client's.
#[async_trait]
pub trait ToolCaller: Send + Sync {
    /// Makes a call, and returns the text for the model, also where it is refused.
    async fn call(&self, tool: &Arc<Tool>, arguments: &str) -> String;
}
