//! Embedders: the trait, and the models that implement it.

pub mod encoder;
mod hashing;
pub mod minilm;
pub mod multilingual;
pub mod table;

pub use encoder::Encoder;
pub use hashing::Hashing;
pub use minilm::MiniLm;
pub use multilingual::MultilingualTable;
pub use table::StaticTable;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use toolscout_encoder::to_unit_length;

use crate::document::View;
use crate::error::{Error, Result};
use crate::language::Language;

/// The languages for which an embedder scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Languages {
    /// English requests for English tools.
    English,
    /// Requests in another language, and tools in another language.
    OtherThanEnglish,
    /// All.
    All,
}

impl Languages {
    /// True where a request in one language is scored against a tool in the other.
    pub fn include(self, request: Language, tool: Language) -> bool {
        let is_english = request == Language::English && tool == Language::English;
        match self {
            Languages::English => is_english,
            Languages::OtherThanEnglish => !is_english,
            Languages::All => true,
        }
    }
}

/// Bytes of a scan for one request from which on a graph takes less time.
// With the built-in encoder (96 bytes a vector), one search at a time takes as long by graph as by scan
// at 16 MB, and on two processors a scan is still faster there, since it is divided among them. At twice
// that size a graph is faster both ways: `benches/nearest.rs`, BENCHMARKS.md.
const GRAPH_MIN_SCANNED_BYTES: usize = 32 << 20;

/// How similar texts have to be to say that they mean something alike. Cosines of embedders differ,
/// and those of one differ by the languages of request and tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastCosines<'a> {
    /// By the languages of request and tool.
    pub pairs: &'a [(Language, Language, f32)],
    /// For all other pairs.
    pub otherwise: f32,
    /// For a request that is most likely no word of any language; `None` for an embedder that
    /// knows more languages than the engine does.
    pub nonsense: Option<f32>,
}

impl LeastCosines<'_> {
    /// For an embedder that was not measured.
    pub const UNMEASURED: LeastCosines<'static> = LeastCosines {
        pairs: &[],
        otherwise: 0.25,
        nonsense: None,
    };

    /// The least cosine of a request in one language with a tool in the other.
    pub fn of(&self, request: Language, tool: Language) -> f32 {
        for &(of_request, of_tool, cosine) in self.pairs {
            if of_request == request && of_tool == tool {
                return cosine;
            }
        }
        self.otherwise
    }
}

/// What the engine has to know of an embedder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedderProfile<'a> {
    /// The model and its exact weights; part of the key under which vectors are stored.
    pub id: &'a str,
    /// Length of every vector.
    pub dimensions: usize,
    /// How many dimensions, counted from the first, carry most of the information. Large catalogs
    /// are scanned by these, and only the best tools by all. Equal to `dimensions` where no
    /// dimension matters more than another.
    pub leading_dimensions: usize,
    /// The languages for which it scores.
    pub languages: Languages,
    /// The views of a tool that are embedded.
    pub views: &'a [View],
    /// Weight in the dense score beside other embedders; only the proportion counts.
    pub share: f32,
    /// True when embedding a tool takes no longer than indexing its words. A commit then embeds at
    /// once, and only this embedder gets the clauses of a request when slower ones take part too.
    pub is_instant: bool,
    /// From which cosine on a tool is a match by itself.
    pub least_cosines: LeastCosines<'a>,
}

impl<'a> EmbedderProfile<'a> {
    /// From how many vectors on a graph finds the nearest sooner than a scan of the leading
    /// dimensions, which reads one byte for each.
    pub fn graph_min_vectors(&self) -> usize {
        GRAPH_MIN_SCANNED_BYTES / self.leading_dimensions.max(1)
    }

    /// An embedder for all languages that embeds tools whole and by name, in its own time.
    pub fn new(id: &'a str, dimensions: usize) -> Self {
        EmbedderProfile {
            id,
            dimensions,
            leading_dimensions: dimensions,
            languages: Languages::All,
            views: &[View::Everything, View::Name],
            share: 1.0,
            is_instant: false,
            least_cosines: LeastCosines::UNMEASURED,
        }
    }
}

/// Turns texts into unit vectors.
///
/// The same text must give the same vector for as long as the id stays the same: vectors are stored
/// under it and never computed again.
pub trait Embedder: Send + Sync {
    /// What the engine has to know of it. Must not change during its life.
    fn profile(&self) -> EmbedderProfile<'_>;
    /// Embeds search requests.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the model fails.
    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
    /// As [`Embedder::embed_queries`], for a search that can wait no longer than this. An embedder
    /// that may have to wait for others fails once the time is over; one that only computes need
    /// not look at the clock.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the model fails or the time is over.
    fn embed_queries_within(
        &self,
        texts: &[&str],
        _limit: Option<Duration>,
    ) -> Result<Vec<Vec<f32>>> {
        self.embed_queries(texts)
    }
    /// Embeds the texts of tools.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the model fails.
    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>>;
    /// How many texts of tools are embedded by one call, and then stored. With the default a
    /// killed process loses a second's work at 30 texts a second.
    fn batch(&self) -> usize {
        32
    }
    /// The id of its profile.
    fn id(&self) -> &str {
        self.profile().id
    }
    /// Length of every vector.
    fn dimensions(&self) -> usize {
        self.profile().dimensions
    }
    /// See [`EmbedderProfile::leading_dimensions`].
    fn leading_dimensions(&self) -> usize {
        self.profile().leading_dimensions
    }
    /// See [`EmbedderProfile::languages`].
    fn languages(&self) -> Languages {
        self.profile().languages
    }
    /// See [`EmbedderProfile::views`].
    fn views(&self) -> &[View] {
        self.profile().views
    }
    /// See [`EmbedderProfile::share`].
    fn share(&self) -> f32 {
        self.profile().share
    }
    /// See [`EmbedderProfile::least_cosines`].
    fn least_cosines(&self) -> LeastCosines<'_> {
        self.profile().least_cosines
    }
    /// See [`EmbedderProfile::is_instant`].
    fn is_instant(&self) -> bool {
        self.profile().is_instant
    }
}

/// The error about a file that is part of the program.
fn unusable_part(model: &str, reason: impl fmt::Display) -> Error {
    Error::Embedder {
        model: model.to_owned(),
        reason: format!("{reason}; put back the file that came with this program"),
    }
}

/// A bundled table, read the first time it is asked for.
fn read_once<T>(table: &OnceLock<Arc<T>>, read: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    if let Some(table) = table.get() {
        return Ok(Arc::clone(table));
    }
    // Two threads may both read it; the first result stays. `OnceLock` cannot initialise with an
    // error yet.
    let fresh = Arc::new(read()?);
    Ok(Arc::clone(table.get_or_init(|| fresh)))
}

/// The id of a built-in file: its name, and the beginning of its checksum.
fn id_with_checksum(name: &str, checksum: &[u8]) -> String {
    let beginning: String = checksum[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{name}/{beginning}")
}
