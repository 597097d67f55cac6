//! Test doubles of a simulation: a catalog of a few tools, and tools that always succeed.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use toolscout_index::Version;
use toolscout_index::{Tool, ToolId};

use toolscout_finder::finder::ToolSearch;
use toolscout_finder::finder::search::{Found, SearchRequest};
use toolscout_gate::tools::{Arguments, Callable, ToolFailure, Toolset};

/// The result of every tool: one word, so that results hardly add to the token counts.
const RESULT: &str = "done";

/// A few tools, all visible, without search.
pub struct Few(pub Vec<Arc<Tool>>);

impl ToolSearch for Few {
    fn search(&self, _: &SearchRequest) -> Found {
        Found::default()
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.0.iter().find(|tool| tool.id == *id).cloned()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.clone()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn version(&self) -> Version {
        // These tools never change.
        Version::default()
    }
}

/// Every tool, each with the same result.
#[derive(Clone, Copy)]
pub struct Obliging;

#[async_trait]
impl Callable for Obliging {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(RESULT.into())
    }
}

impl Toolset for Obliging {
    fn find(&self, _: &ToolId) -> Option<Arc<dyn Callable>> {
        Some(Arc::new(Obliging))
    }
}
