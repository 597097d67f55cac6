//! The toolscout retrieval engine.

pub mod database;
pub mod error;
pub mod files;
pub mod tool;
pub mod formats;
pub mod variant;
mod cost;
pub mod query;
pub mod hit;
pub mod text;
pub mod document;
pub mod exact_names;
pub mod duplicates;
mod top_k;
mod quantization;
pub mod lexical;
pub mod embed;
pub mod dense;
pub mod fuse;
pub mod clauses;
pub mod ranker;
pub mod memory;
pub mod settings;
pub mod store;
pub mod search;
mod snapshot;
pub mod catalog;

pub use catalog::{Catalog, Changes, DataDir, EmbedProgress, Options, Stats, Writer};
pub use embed::{Embedder, Scripts};
pub use error::{Error, MemoryEntryProblem, QueryProblem, Result, StoreProblem};
pub use hit::{
    Degraded, DegradedCause, Explain, Hit, Moved, NoMatch, NoMatchReason, Reranked, Results,
    Signals, Timings,
};
pub use memory::Memory;
pub use query::{Filter, Fusion, Mode, Query};
pub use ranker::Ranker;
pub use search::Searcher;
pub use settings::Settings;
pub use tool::{Annotations, Tool, ToolId};
pub use variant::{Parts, Variant};
