//! Catalogs whose tools are in an engine that a company already runs: Elasticsearch,
//! OpenSearch, Qdrant, or a table of pgvector.
//!
//! toolscout keeps its own part: it analyses the request, scores the tools, ranks them and explains. The other
//! engine gives *candidates*: it is an [`ExternalCandidates`](toolscout_index::pushdown::ExternalCandidates).
//!
//! - [`ExternalCatalog`] is one such catalog, as a server asks for it.
//! - [`Engine`] is what each of the engines can do; [`open()`] opens the one of an address. [`Elastic`], [`Qdrant`]
//!   and [`PgVector`] implement it. `client` sends the requests of the first two.
//! - `layout` says which field of a document is what: in an index that toolscout has written, and in one that
//!   somebody else fills.
//! - `sketch` counts how many tools have a word, which those engines do not tell cheaply.
//! - [`write()`] brings an index to the state of a catalog.

mod failure;
mod deadline;
mod client;
mod layout;
mod engine;
mod elastic;
mod qdrant;
mod pgvector;
mod opening;
mod sketch;
mod write;
mod catalog;

#[cfg(any(test, feature = "testing"))]
pub mod double;
#[cfg(test)]
mod tests;

pub use catalog::ExternalCatalog;
pub use elastic::Elastic;
pub use engine::{Engine, Which, Writable};
pub use failure::{Cause, Failure};
pub use opening::open;
pub use pgvector::PgVector;
pub use qdrant::Qdrant;
pub use write::{Written, write};
