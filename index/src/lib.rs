//! The toolscout retrieval engine.

#[doc(hidden)]
pub mod database;
mod error;
#[doc(hidden)]
pub mod files;
mod tool;
pub mod formats;
mod variant;
mod cost;
pub mod query;
pub mod hit;
#[doc(hidden)]
pub mod text;
mod document;
mod exact_names;
mod duplicates;
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
pub mod store;
mod search;
mod snapshot;
mod catalog;

pub use catalog::{Catalog, Changes, DataDir, EmbedProgress, Options, Stats, Writer};
pub use database::DatabaseError;
pub use document::{View, Weights};
pub use embed::{Embedder, Scripts};
pub use error::{Error, MemoryEntryProblem, QueryProblem, Result, StoreProblem};
pub use hit::{
    Degraded, DegradedCause, Explain, Hit, Moved, NoMatch, NoMatchReason, Reranked, Results,
    Signals, Timings,
};
pub use lexical::LexicalSettings;
pub use memory::Memory;
pub use query::{Filter, Fusion, Mode, Query};
pub use ranker::Ranker;
pub use search::{RankerSample, Searcher};
pub use settings::Settings;
pub use store::Version;
pub use tool::{Annotations, Tool, ToolId};
pub use variant::{Parts, Variant};
