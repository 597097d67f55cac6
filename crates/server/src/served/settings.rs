//! The settings of a catalog in the API.

use serde::{Deserialize, Serialize};
use toolscout_index::{Catalog, Error, Fusion, Mode, SearchOptions, Settings, search_options_of};
use utoipa::ToSchema;

use toolscout_state::catalog_writer::Change;

/// The settings of a catalog: defaults of its searches, which a request overrides. Every interface
/// obeys them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CatalogSettings {
    /// What the catalog is for.
    #[schema(max_length = 2000)]
    pub description: String,
    /// Most hits of a search.
    #[schema(minimum = 1, maximum = 50)]
    pub k: Option<usize>,
    /// The retrieval legs.
    pub mode: Option<Mode>,
    /// How the scores of the legs are combined.
    pub fusion: Option<Fusion>,
    /// The share of the dense legs in the score; the engine's default when not set.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub dense_weight: Option<f32>,
    /// Omits hits below this score.
    pub min_score: Option<f32>,
    /// Answers `no_match` below this confidence.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_confidence: Option<f32>,
    /// Whether a tool that finds what a hit needs is put behind that hit; true when not set.
    pub companions: Option<bool>,
    /// Whether near-duplicates of a tool on several servers are folded into one hit; false when not set.
    pub fold_duplicates: Option<bool>,
    /// From how many vectors on searches use a graph instead of a scan; what was measured for each
    /// embedder when not set.
    #[schema(minimum = 1)]
    pub graph_min_vectors: Option<usize>,
}

impl CatalogSettings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`].
    pub fn validate(&self) -> Result<(), Error> {
        let settings = Settings {
            description: self.description.clone(),
            search: self.search_options(),
            graph_min_vectors: self.graph_min_vectors,
            ..Settings::default()
        };
        settings.validate()
    }

    /// The change that stores them.
    pub fn into_change(self) -> Change {
        Change::Settings {
            search: self.search_options(),
            description: self.description,
            graph_min_vectors: self.graph_min_vectors,
        }
    }

    fn search_options(&self) -> SearchOptions {
        search_options_of!(self)
    }
}

impl From<&Settings> for CatalogSettings {
    fn from(settings: &Settings) -> Self {
        let search = settings.search;
        CatalogSettings {
            description: settings.description.clone(),
            k: search.k,
            mode: search.mode,
            fusion: search.fusion,
            dense_weight: search.dense_weight,
            min_score: search.min_score,
            min_confidence: search.min_confidence,
            companions: search.companions,
            fold_duplicates: search.fold_duplicates,
            graph_min_vectors: settings.graph_min_vectors,
        }
    }
}

/// Where earlier versions stored the settings, in the catalog's folder.
const FORMER_FILE: &str = "search-defaults.json";

/// Moves settings that an earlier version stored in a file of their own into the catalog. Until
/// that succeeds, the file stays.
///
/// # Errors
/// [`Error::Parse`] for a file that cannot be read as settings, and the errors of a write.
pub fn adopt_former_file(catalog: &Catalog) -> Result<(), Error> {
    let path = catalog.path().join(FORMER_FILE);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", path, error)),
    };
    let former: CatalogSettings = serde_json::from_slice(&bytes).map_err(|error| Error::Parse {
        source_name: FORMER_FILE.to_owned(),
        line: Some(error.line()),
        column: Some(error.column()),
        reason: format!("{error}; correct the file or delete it"),
    })?;
    let mut writer = catalog.writer()?;
    writer.set_settings(&Settings {
        description: former.description.clone(),
        search: former.search_options(),
        graph_min_vectors: former.graph_min_vectors,
        ..writer.settings()?
    })?;
    writer.commit()?;
    std::fs::remove_file(&path).map_err(|error| Error::io("delete", path, error))
}

#[cfg(test)]
mod tests {
    use toolscout_index::{DataDir, Mode, Options};

    use super::*;

    #[test]
    fn settings_of_an_earlier_version_are_moved_into_the_catalog() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(dir.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let file = catalog.path().join(FORMER_FILE);
        for damaged in ["{", r#"{"k":0}"#] {
            std::fs::write(&file, damaged).unwrap();
            adopt_former_file(&catalog).unwrap_err();
            assert!(file.exists(), "nothing is lost");
        }
        std::fs::write(&file, r#"{"description":"mail","k":7,"mode":"lexical"}"#).unwrap();
        adopt_former_file(&catalog).unwrap();
        assert!(!file.exists());
        let expected = SearchOptions {
            k: Some(7),
            mode: Some(Mode::Lexical),
            ..SearchOptions::default()
        };
        let searcher = catalog.searcher();
        assert_eq!(searcher.settings().search, expected);
        assert_eq!(searcher.settings().description, "mail");
    }
}
