//! Tools in this process.

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

    /// The registry with one more tool; a tool of the same id is replaced.
    pub fn with(mut self, tool: impl UserTool + 'static) -> Self {
        let definition = tool.definition();
        self.tools
            .insert(definition.id.clone(), (definition, Arc::new(tool)));
        self
    }

    /// The registry with the tools of another one.
    pub fn joined(mut self, other: Registry) -> Self {
        self.tools.extend(other.tools);
        self
    }

    /// Every definition by id, to be put into a catalog.
    pub fn definitions(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values().map(|(definition, _)| definition)
    }
}

impl Toolset for Registry {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.tools.get(id).map(|(_, callable)| callable.clone())
    }
}
