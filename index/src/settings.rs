//! A catalog's settings, stored with it, and how it is opened.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::embed::Embedder;
use crate::error::{Error, OutOfRange, Result};
use crate::lexical::LexicalSettings;
use crate::query::SearchOptions;
use crate::ranker::SeenQueries;

/// Most characters of a catalog's description.
const MAX_DESCRIPTION_CHARS: usize = 2000;
/// Most characters of the name of its embedders.
const MAX_EMBEDDER_CHARS: usize = 500;

/// How a catalog is opened.
#[derive(Clone, Default)]
pub struct Options {
    /// The dense legs; none means lexical search.
    pub embedders: Vec<Arc<dyn Embedder>>,
    /// Why an embedder that belongs here could not be loaded. Searches by meaning report it as
    /// degraded.
    pub missing_embedder: Option<String>,
}

impl Options {
    /// With these dense legs, and none missing.
    pub fn new(embedders: Vec<Arc<dyn Embedder>>) -> Self {
        Options {
            embedders,
            missing_embedder: None,
        }
    }
}

/// A catalog's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What the catalog is for, at most 2,000 characters. Not searched.
    pub description: String,
    /// The defaults of its searches, which a query overrides.
    pub search: SearchOptions,
    /// The name of its embedders, for the program that opens it; the engine does not read it.
    // Left out where there is none, so that earlier versions can read the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedder: Option<String>,
    /// Field weights, k1 and b.
    pub lexical: LexicalSettings,
    /// The share of the dense leg in a hybrid score, 0 to 1.
    pub dense_weight: f32,
    /// The same for several dense legs, which together are more reliable than one.
    pub joint_dense_weight: f32,
    /// A search has no match if the best tool contains less than this share of the request's words,
    /// by weight, and no cosine reaches that of its embedder ([`crate::embed::LeastCosines`]). Without
    /// a dense leg any shared word is a match.
    pub no_match_coverage: f32,
    /// What earlier versions wrote: one least cosine for all embedders. Not read.
    #[doc(hidden)]
    #[serde(skip_serializing)]
    pub no_match_cosine: IgnoredAny,
    /// From this many vectors on, unfiltered searches use a graph instead of a scan; `None` for what
    /// was measured for each embedder ([`crate::EmbedderProfile::graph_min_vectors`]).
    pub graph_min_vectors: Option<usize>,
    /// The queries that these settings or the catalog's ranker were tuned to: figures on them are
    /// in-sample. The engine does not read them.
    #[serde(skip_serializing_if = "SeenQueries::is_empty")]
    pub tuned_on: SeenQueries,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            description: String::new(),
            search: SearchOptions::default(),
            embedder: None,
            lexical: LexicalSettings::default(),
            dense_weight: 0.6,
            joint_dense_weight: 0.7,
            // Low enough that almost any shared word is a match: by default no answerable request
            // should lose its hits (at .1 and .3 it emptied 11% of them on metatool). BENCHMARKS.md
            // has the trade-off.
            no_match_coverage: 0.02,
            no_match_cosine: IgnoredAny,
            graph_min_vectors: None,
            tuned_on: SeenQueries::default(),
        }
    }
}

impl Settings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] naming the setting and its range.
    pub fn validate(&self) -> Result<()> {
        let weights = &self.lexical.weights;
        let in_range = |name: &'static str, value: f32, lo: f32, hi: f32| {
            if (lo..=hi).contains(&value) {
                return Ok(());
            }
            let range = format!("from {lo} to {hi}");
            Err(Error::InvalidSetting(OutOfRange::new(name, value, range)))
        };
        self.search.validate().map_err(Error::InvalidSetting)?;
        let length = self.description.chars().count();
        if length > MAX_DESCRIPTION_CHARS {
            let range = format!("at most {MAX_DESCRIPTION_CHARS} characters");
            let problem = OutOfRange::new("the length of description", length, range);
            return Err(Error::InvalidSetting(problem));
        }
        let length = self.embedder.iter().flat_map(|name| name.chars()).count();
        if length > MAX_EMBEDDER_CHARS {
            let range = format!("at most {MAX_EMBEDDER_CHARS} characters");
            let problem = OutOfRange::new("the length of embedder", length, range);
            return Err(Error::InvalidSetting(problem));
        }
        for field in crate::document::Field::ALL {
            in_range(field.name(), weights.of(field), 0.0, 20.0)?;
        }
        in_range("k1", self.lexical.k1, 0.0, 10.0)?;
        in_range("b", self.lexical.b, 0.0, 1.0)?;
        in_range("dense_weight", self.dense_weight, 0.0, 1.0)?;
        in_range("joint_dense_weight", self.joint_dense_weight, 0.0, 1.0)?;
        in_range("no_match_coverage", self.no_match_coverage, 0.0, 1.0)?;
        if self.graph_min_vectors == Some(0) {
            let problem = OutOfRange::new("graph_min_vectors", 0, "at least 1".to_owned());
            return Err(Error::InvalidSetting(problem));
        }
        Ok(())
    }
}
