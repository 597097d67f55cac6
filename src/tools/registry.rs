//! Tools implemented in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolscout_index::{Tool, ToolId};

use crate::tools::{Callable, Toolset, UserTool};

/// User tools by id.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<ToolId, (Tool, Arc<dyn Callable>)>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds a tool, replacing one with the same id.
    pub fn with(mut self, tool: impl UserTool + 'static) -> Self {
        let definition = tool.definition();
        self.tools
            .insert(definition.id.clone(), (definition, Arc::new(tool)));
        self
    }

    /// Adds the tools of another registry, replacing those with the same id.
    pub fn joined(mut self, other: Registry) -> Self {
        self.tools.extend(other.tools);
        self
    }

    /// All definitions in the order of ids, for adding them to a catalog.
    pub fn definitions(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values().map(|(definition, _)| definition)
    }
}

impl Toolset for Registry {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.tools.get(id).map(|(_, callable)| callable.clone())
    }
}
