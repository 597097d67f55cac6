//! The toolscout retrieval engine.

pub mod catalog;
pub mod clauses;
pub mod dense;
pub mod document;
pub mod embed;
pub mod error;
pub mod formats;
pub mod fuse;
pub mod hit;
pub mod lexical;
pub mod names;
pub mod query;
pub mod search;
pub mod settings;
mod snapshot;
pub mod store;
pub mod text;
pub mod tool;

pub use catalog::{Catalog, Changes, DataDir, EmbedProgress, Options, Stats, Writer};
pub use embed::{Embedder, Scripts};
pub use error::{Error, Result};
pub use hit::{Degraded, Explain, Hit, NoMatch, Results, Timings};
pub use query::{Filter, Fusion, Mode, Query};
pub use search::Searcher;
pub use settings::Settings;
pub use tool::{Annotations, Tool, ToolId};
