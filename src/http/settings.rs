//! What searches of a catalog default to, kept in its folder.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toolscout_index::{Error, Result, StoreProblem, files};
use utoipa::ToSchema;

use super::error::{ApiError, ApiResult};
use super::wire::SearchMode;

/// Beside the engine's own settings, which are about the index and not about requests.
const FILE_NAME: &str = "search-defaults.json";
const MAX_DESCRIPTION_CHARS: usize = 2000;

/// Settings of a catalog. What a search says itself goes before them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CatalogSettings {
    /// What the catalog is for; for people.
    #[schema(max_length = 2000)]
    pub description: String,
    /// Hits of a search that does not say.
    #[schema(minimum = 1, maximum = 50)]
    pub k: Option<usize>,
    /// Retrieval legs of a search that does not say.
    pub mode: Option<SearchMode>,
    /// The share of the dense legs; the engine's own when not set.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub dense_weight: Option<f32>,
    /// Hits below this score are left out.
    pub min_score: Option<f32>,
    /// Answers below this confidence are `no_match`.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_confidence: Option<f32>,
}

impl CatalogSettings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// 422 naming the value and its range.
    pub fn validate(&self) -> ApiResult<()> {
        let invalid = |message: String| Err(ApiError::unprocessable("invalid_settings", message));
        let most = toolscout_index::query::MAX_K;
        match (self.k, self.dense_weight) {
            (Some(k), _) if !(1..=most).contains(&k) => {
                invalid(format!("k is {k}, it must be from 1 to {most}"))
            }
            (_, Some(weight)) if !(0.0..=1.0).contains(&weight) => {
                invalid(format!("dense_weight is {weight}, it must be from 0 to 1"))
            }
            _ if self
                .min_confidence
                .is_some_and(|confidence| !(0.0..=1.0).contains(&confidence)) =>
            {
                invalid(format!(
                    "min_confidence is {}, it must be from 0 to 1",
                    self.min_confidence.unwrap_or_default()
                ))
            }
            _ if self.description.chars().count() > MAX_DESCRIPTION_CHARS => invalid(format!(
                "the description is longer than {MAX_DESCRIPTION_CHARS} characters"
            )),
            _ => Ok(()),
        }
    }

    /// Reads the settings in a catalog's folder; the defaults where there are none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Store`].
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(CatalogSettings::default());
            }
            Err(error) => return Err(Error::io("read", path, error)),
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::Store {
            path,
            problem: StoreProblem::Damaged {
                found: error.to_string(),
            },
        })
    }

    /// Writes the settings into a catalog's folder; a crash leaves the old or the new ones.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, folder: &Path) -> Result<()> {
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
    fn what_is_saved_is_loaded() {
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
        std::fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert!(
            CatalogSettings::load(dir.path())
                .unwrap_err()
                .to_string()
                .contains("line 1 column 1")
        );
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
