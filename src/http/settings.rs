//! The search defaults of a catalog, stored in its folder.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toolscout_index::query::MAX_K;
use toolscout_index::{Error, StoreProblem, files};
use utoipa::ToSchema;

use super::error::{ApiError, ApiResult};
use super::wire::SearchMode;

/// Separate from the engine's settings, which are about the index and not about requests.
const FILE_NAME: &str = "search-defaults.json";
const MAX_DESCRIPTION_CHARS: usize = 2000;

/// The settings of a catalog: defaults of its searches, which a request overrides.
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
    pub mode: Option<SearchMode>,
    /// The share of the dense legs in the score; the engine's default when not set.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub dense_weight: Option<f32>,
    /// Omits hits below this score.
    pub min_score: Option<f32>,
    /// Answers `no_match` below this confidence.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_confidence: Option<f32>,
}

impl CatalogSettings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// 422 naming the value and its range.
    pub fn validate(&self) -> ApiResult<()> {
        self.check()
            .map_err(|reason| ApiError::unprocessable("invalid_settings", reason))
    }

    /// Checks the ranges; the error names the value and its range.
    fn check(&self) -> Result<(), String> {
        if let Some(k) = self.k
            && !(1..=MAX_K).contains(&k)
        {
            return Err(format!("k is {k}, it must be from 1 to {MAX_K}"));
        }
        for (name, share) in [
            ("dense_weight", self.dense_weight),
            ("min_confidence", self.min_confidence),
        ] {
            if let Some(share) = share
                && !(0.0..=1.0).contains(&share)
            {
                return Err(format!("{name} is {share}, it must be from 0 to 1"));
            }
        }
        if self.description.chars().count() > MAX_DESCRIPTION_CHARS {
            return Err(format!(
                "the description is longer than {MAX_DESCRIPTION_CHARS} characters"
            ));
        }
        Ok(())
    }

    /// Reads the settings in a catalog's folder; the defaults if there are none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Store`] for a file that is malformed or has a value out of range.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(CatalogSettings::default());
            }
            Err(error) => return Err(Error::io("read", path, error)),
        };
        // A value out of range would fail every search, as if the request had it.
        let read = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let checked =
            read.and_then(|settings: CatalogSettings| settings.check().map(|()| settings));
        checked.map_err(|reason| Error::Store {
            path,
            problem: StoreProblem::Settings {
                file: FILE_NAME,
                reason,
            },
        })
    }

    /// Writes the settings into a catalog's folder; a crash leaves the old or the new ones.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(FILE_NAME);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::io("write", &path, error.into()))?;
        files::replace(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_settings_are_loaded_and_damaged_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            CatalogSettings::load(dir.path()).unwrap(),
            CatalogSettings::default()
        );
        let settings = CatalogSettings {
            k: Some(7),
            mode: Some(SearchMode::Lexical),
            ..CatalogSettings::default()
        };
        settings.save(dir.path()).unwrap();
        assert_eq!(CatalogSettings::load(dir.path()).unwrap(), settings);
        for (damaged, expected) in [("{", "line 1 column 1"), (r#"{"k":0}"#, "k is 0")] {
            std::fs::write(dir.path().join(FILE_NAME), damaged).unwrap();
            let error = CatalogSettings::load(dir.path()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            // Not the client's fault, who may have sent a correct search.
            assert_eq!(ApiError::from(error).status.as_u16(), 500);
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        let bad = CatalogSettings {
            dense_weight: Some(1.5),
            ..CatalogSettings::default()
        };
        assert!(bad.validate().unwrap_err().message.contains("1.5"));
        let bad = CatalogSettings {
            k: Some(0),
            ..CatalogSettings::default()
        };
        assert!(bad.validate().unwrap_err().message.contains("k is 0"));
    }
}
