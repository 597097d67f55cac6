//! Finding tools for a model: the search it is given as a tool, and the tools it holds afterwards.
//!
//! [`ToolSearch`] is what the agent and the MCP gateway need of the index. [`meta_tools`] defines
//! `tool_search` and `call_tool`, [`model_names`] the names under which a model sees tools, and
//! [`Toolbox`](toolbox::Toolbox) holds what a search injected, within a budget of tokens.

pub mod model_names;
pub mod search;
pub mod snapshot;
pub mod toolbox;
pub mod meta_tools;

pub use meta_tools::Style;
pub use search::ToolSearch;
pub use toolbox::{Eviction, ToolboxConfig};
