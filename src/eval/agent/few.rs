//! What is played with beside the set's catalog: a catalog of a few tools, and tools that always
//! work.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use toolscout_index::Version;
use toolscout_index::{Tool, ToolId};

use crate::finder::ToolSearch;
use crate::finder::search::{Found, SearchRequest};
use crate::tools::{Arguments, Callable, ToolFailure, Toolset};

/// What every tool gives. One word, so that the figures are those of tools, searches and questions.
const RESULT: &str = "done";

/// A few tools, all shown and none searched for.
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
        Version::default()
    }
}

/// Every tool there is, each giving the same.
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
