//! The toolscout retrieval engine: a durable catalog of tool definitions, and hybrid search in it.
//!
//! ```
//! use toolscout_index::embed::StaticTable;
//! use toolscout_index::{DataDir, Options, Query, Tool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! // The table of word embeddings is part of the crate. Without an embedder
//! // (`Options::default()`) a catalog is searched by words only.
//! let options = Options::new(vec![StaticTable::bundled()?]);
//! let catalog = DataDir::new(folder).open_or_create("default", options)?;
//!
//! let mut writer = catalog.writer()?;
//! writer.upsert(&[
//!     Tool::new("github", "create_issue")?.with_description("Opens an issue in a repository."),
//!     Tool::new("weather", "get_forecast")?.with_description("Forecast for the coming days."),
//! ])?;
//! writer.commit()?;
//!
//! let results = catalog.searcher().search(&Query::new("report a bug").k(1))?;
//! assert_eq!(results.hits[0].id.as_str(), "github/create_issue");
//! # Ok(())
//! # }
//! ```
//!
//! Five types carry most of the work:
//!
//! - [`Tool`]: a definition, checked before it is stored. [`formats`] reads tools from OpenAI,
//!   Anthropic, MCP and OpenAPI documents, and writes them.
//! - [`Catalog`]: an open catalog, by [`DataDir`]. Cheap to clone; all clones share one state.
//! - [`Writer`]: the one writer of a catalog. What it wrote is durable and visible after
//!   [`Writer::commit`].
//! - [`Searcher`]: an immutable snapshot of a catalog. Any number of threads search it.
//! - [`Query`]: what is looked for, how many hits, in which mode, among which tools. The answer is
//!   [`Results`].
//!
//! The crate opens no socket and starts no async runtime. The modules are listed in the order of
//! data flow; a module imports only modules above it.

#[doc(hidden)]
pub mod database;
mod error;
mod files;
mod checked_file;
mod moves;
mod schema;
mod kind;
mod tool;
mod enrichment;
pub mod formats;
mod variant;
mod cost;
pub mod query;
pub mod hit;
#[doc(hidden)]
pub mod text;
pub mod owner_words;
mod everyday;
#[doc(hidden)]
pub mod language;
pub mod suggest;
mod document;
mod exact_names;
mod duplicates;
mod companions;
mod by_processor;
mod top_k;
mod quantization;
#[doc(hidden)]
pub mod lexical;
pub mod embed;
#[doc(hidden)]
pub mod dense;
mod fuse;
#[doc(hidden)]
pub mod clauses;
pub mod ranker;
pub mod memory;
mod settings;
#[doc(hidden)]
pub mod tools_db;
mod search;
mod snapshot;
#[doc(hidden)]
pub mod pushdown;
mod catalog;

pub use catalog::{
    Catalog, Changes, DataDir, EmbedProgress, Listing, Stats, Summary, Writer, check_server,
    check_tools,
};
pub use database::DatabaseError;
pub use document::{View, Weights, views};
pub use embed::{Embedder, EmbedderProfile, Languages};
pub use enrichment::{Enrichment, MAX_ENRICHMENT_CHARS, MAX_ENRICHMENT_TEXTS};
pub use error::{
    EnrichmentProblem, Error, MemoryEntryProblem, OutOfRange, QueryProblem, Result, StoreProblem,
};
pub use hit::{
    CompanionOf, Degraded, DegradedCause, Explain, Hit, HitTool, Match, Moved, NearTool, NoMatch,
    NoMatchReason, OwnerEffect, Reranked, Results, Signals, Timings, ToolCompanion, UnknownName,
};
pub use kind::Kind;
pub use lexical::LexicalSettings;
pub use memory::Memory;
pub use owner_words::OwnerWords;
pub use query::{Filter, Fusion, Mode, Query, SearchOptions};
pub use ranker::Ranker;
pub use search::{RankerSample, Searcher};
pub use settings::{Options, Settings};
pub use tool::{Annotations, OwnerTexts, Tool, ToolId};
pub use tools_db::{Followed, Version};
pub use variant::{CountedTexts, Parts, Variant};
