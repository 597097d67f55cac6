//! Tools implemented in this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolscout_index::{Tool, ToolId};

use crate::tools::attribute::DeclaredTool;
use crate::tools::{Callable, Toolset, UserTool};

/// User tools by id.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<ToolId, (Tool, Arc<dyn Callable>)>,
}

/// Why the tools of a program cannot be collected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// A tool is not valid.
    #[error("the tool at {place}: {source}")]
    Invalid {
        /// File and line of its function.
        place: &'static str,
        /// What is wrong with it.
        source: toolscout_index::Error,
    },
    /// Two tools have one id.
    #[error(
        "the tools at {first} and {second} are both called {id}; give one of them another `name` or `server`"
    )]
    SameId {
        /// The id.
        id: ToolId,
        /// File and line of one function.
        first: &'static str,
        /// File and line of the other.
        second: &'static str,
    },
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// All tools of the program that `#[toolscout::tool]` declares, in whichever crate.
    ///
    /// The linker leaves out a crate of which the program uses nothing, and its tools with it.
    ///
    /// # Errors
    /// [`CollectError`] for a tool that is not valid, or two with one id.
    pub fn collect() -> Result<Self, CollectError> {
        Registry::of(&DeclaredTool::all())
    }

    fn of(declared: &[&DeclaredTool]) -> Result<Self, CollectError> {
        let mut places: BTreeMap<ToolId, &str> = BTreeMap::new();
        let mut registry = Registry::new();
        for tool in declared {
            let place = tool.place();
            let (definition, callable) = match tool.make() {
                Ok(made) => made,
                Err(source) => return Err(CollectError::Invalid { place, source }),
            };
            let id = definition.id.clone();
            // Either could be meant, so neither is taken.
            if let Some(first) = places.insert(id.clone(), place) {
                return Err(CollectError::SameId {
                    id,
                    first,
                    second: place,
                });
            }
            registry.tools.insert(id, (definition, callable));
        }
        Ok(registry)
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
        let (_, callable) = self.tools.get(id)?;
        Some(callable.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::attribute::{MadeTool, declared};

    fn named(name: &str) -> MadeTool {
        declared("", name, "Does something", [None; 2], |(): ()| async {
            Ok(())
        })
    }

    #[test]
    fn what_cannot_be_collected_is_named_with_its_place() {
        let one = DeclaredTool::new("a.rs:3", || named("read"));
        let same = DeclaredTool::new("b.rs:7", || named("read"));
        let nameless = DeclaredTool::new("c.rs:9", || named(" "));
        let refused = |tools: &[&DeclaredTool]| match Registry::of(tools) {
            Ok(_) => panic!("collected"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            refused(&[&one, &same]),
            "the tools at a.rs:3 and b.rs:7 are both called read; give one of them another `name` or `server`"
        );
        let message = refused(&[&one, &nameless]);
        assert!(
            message.starts_with("the tool at c.rs:9: ") && message.contains("name is empty"),
            "{message}"
        );
    }
}
