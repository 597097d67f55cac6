//! Finds tools for a model: the search that the model calls as a tool, and the tools that are
//! visible to it afterwards.
//!
//! [`ToolSearch`] is the interface of the agent and the MCP gateway to the index. [`meta_tools`]
//! defines `tool_search` and `call_tool`, [`model_names`] the names of tools as a model sees them,
//! and [`Toolbox`](toolbox::Toolbox) holds the injected tools within a token budget.

pub mod model_names;
pub mod search;
mod needs;
pub mod recorded;
pub mod snapshot;
pub mod trail;
pub mod repeats;
pub mod toolbox;
pub mod items;
pub mod meta_tools;

pub use meta_tools::Style;
pub use repeats::{SearchHistories, SearchHistory};
pub use search::ToolSearch;
pub use toolbox::{Eviction, ToolboxConfig};
pub use trail::{SearchTrail, SearchTrails};
