//! The tools of a request: which of them the model sees, which are found by a search, and their catalogs.

pub mod client_search;
pub mod client_results;
pub mod not_deferred;
pub mod own_tools;
pub mod search_tool;
pub mod shown;
pub mod tool_list;
pub mod catalogs;
