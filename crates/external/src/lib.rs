//! Catalogs whose tools are in a search engine that a company already runs: Elasticsearch or OpenSearch.
//!
//! toolscout keeps its own part: it analyses the request, scores the tools, ranks them and explains. The other
//! engine gives *candidates*: it is an [`ExternalCandidates`](toolscout_index::pushdown::ExternalCandidates).
//!
//! - [`ExternalCatalog`] is one such catalog, as a server asks for it.
//! - [`Elastic`] asks the servers: `client` sends requests, `query` writes what is asked.
//! - `layout` says which field of a document is what: in an index that toolscout has written, and in one that
//!   somebody else fills.
//! - `sketch` counts how many tools have a word, which those engines do not tell cheaply.
//! - [`write()`] brings an index to the state of a catalog.

mod failure;
mod client;
mod layout;
mod query;
mod elastic;
mod sketch;
mod write;
mod catalog;

#[cfg(any(test, feature = "testing"))]
pub mod double;
#[cfg(test)]
mod tests;

pub use catalog::ExternalCatalog;
pub use elastic::{Elastic, IndexState, Server};
pub use failure::{Cause, Failure};
pub use write::{Written, write};
