//! What is compared on live searches with what answers them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use toolscout_index::{OwnerWords, Ranker, SearchOptions, Settings};

use super::{EmbedderKind, EndpointSettings};
use crate::regular_file;

/// The share of the searches that get a second answer where the settings do not say.
const DEFAULT_SHARE: f64 = 0.1;
/// The ranker's name for none.
const NO_RANKER: &str = "none";
/// Settings of a catalog that have a key of their own, or change no answer.
const NOT_CHANGED: [&str; 3] = ["embedder", "description", "tuned_on"];

/// The table `[shadow]` of the settings: what would differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShadowSettings {
    /// The catalog; without it the one to use.
    pub catalog: Option<String>,
    /// The share of its searches that get a second answer; without it .1.
    pub share: Option<f64>,
    /// Other embedders.
    #[serde(deserialize_with = "embedder")]
    pub embedder: Option<EmbedderKind>,
    /// The file of another ranker, or `none`.
    pub ranker: Option<PathBuf>,
    /// The file of other owner's words.
    pub words: Option<PathBuf>,
    /// Other settings of the catalog, or a file of them in JSON.
    pub settings: Option<SettingsChange>,
}

/// Settings of a catalog that are changed: a table, or a file of one in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the path of a file, or a table")]
pub enum SettingsChange {
    /// A file.
    File(PathBuf),
    /// The settings by their names.
    Table(Map<String, Value>),
}

/// What a shadow has in place of what its catalog has, read from the files that the settings name.
#[derive(Clone, Debug, Default)]
pub struct ShadowChanges {
    /// Other embedders.
    pub embedder: Option<EmbedderKind>,
    /// Another ranker.
    pub ranker: Option<RankerChange>,
    /// Other owner's words.
    pub words: Option<OwnerWords>,
    /// Other settings.
    pub settings: Option<Map<String, Value>>,
}

/// Another ranker.
#[derive(Clone, Debug)]
pub enum RankerChange {
    /// Hits stay in the order of their scores.
    Without,
    /// This one.
    Other(Box<Ranker>),
}

fn embedder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<EmbedderKind>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

impl ShadowSettings {
    /// The share of the searches that get a second answer.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(DEFAULT_SHARE)
    }

    /// Fails for values that cannot be. Does not read the files.
    ///
    /// # Errors
    /// A share out of range, an unknown embedder, and a table that changes nothing.
    pub fn check(&self, endpoints: &BTreeMap<String, EndpointSettings>) -> Result<()> {
        let share = self.share();
        if !(0.0..=1.0).contains(&share) {
            bail!("shadow.share is {share}, it must be from 0 to 1");
        }
        if self.differences().is_empty() {
            bail!(
                "shadow changes nothing; give it one of embedder, ranker, words and settings, or remove the table"
            );
        }
        if let Some(embedder) = &self.embedder {
            embedder.check(endpoints).context("shadow.embedder")?;
        }
        if let Some(SettingsChange::Table(table)) = &self.settings {
            changed(&Settings::default(), table).context("shadow.settings")?;
        }
        Ok(())
    }

    /// What differs, each in a few words.
    pub fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        if let Some(embedder) = &self.embedder {
            differences.push(format!("embedder {}", embedder.shown()));
        }
        if let Some(path) = &self.ranker {
            differences.push(format!("ranker {}", path.display()));
        }
        if let Some(path) = &self.words {
            differences.push(format!("words {}", path.display()));
        }
        match &self.settings {
            Some(SettingsChange::File(path)) => {
                differences.push(format!("settings {}", path.display()));
            }
            Some(SettingsChange::Table(table)) => {
                differences.push(format!("settings {}", Value::Object(table.clone())));
            }
            None => {}
        }
        differences
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, or does not hold what it should. The message names its key.
    pub fn read(&self) -> Result<ShadowChanges> {
        Ok(ShadowChanges {
            embedder: self.embedder.clone(),
            ranker: self.ranker.as_deref().map(read_ranker).transpose()?,
            words: self.words.as_deref().map(read_words).transpose()?,
            settings: self.settings.as_ref().map(read_settings).transpose()?,
        })
    }
}

fn read_ranker(path: &Path) -> Result<RankerChange> {
    if path == Path::new(NO_RANKER) {
        return Ok(RankerChange::Without);
    }
    let ranker = Ranker::load(path).context(
        "shadow.ranker, a file that `toolscout tune` or scripts/ranker wrote, or \"none\"",
    )?;
    Ok(RankerChange::Other(Box::new(ranker)))
}

fn read_words(path: &Path) -> Result<OwnerWords> {
    let place = || format!("shadow.words, {}", path.display());
    let bytes = regular_file::read(path).with_context(place)?;
    OwnerWords::read(&bytes).with_context(place)
}

fn read_settings(change: &SettingsChange) -> Result<Map<String, Value>> {
    let path = match change {
        SettingsChange::Table(table) => return Ok(table.clone()),
        SettingsChange::File(path) => path,
    };
    let place = || format!("shadow.settings, {}", path.display());
    let bytes = regular_file::read(path).with_context(place)?;
    let mut table: Map<String, Value> = serde_json::from_slice(&bytes).with_context(place)?;
    // `catalogs settings --json` writes them too.
    table.retain(|name, value| !(value.is_null() || NOT_CHANGED.contains(&name.as_str())));
    changed(&Settings::default(), &table).with_context(place)?;
    Ok(table)
}

/// Settings with these in place of their own, by the names of `toolscout catalogs settings --json`.
///
/// # Errors
/// A name that is no setting, a value of another type or out of its range.
pub fn changed(settings: &Settings, table: &Map<String, Value>) -> Result<Settings> {
    let mut fields = serde_json::to_value(settings)?;
    // Stored settings leave these out where they are not set.
    let mut search = serde_json::to_value(SearchOptions::default())?;
    search["companions"] = Value::Null;
    search["fold_duplicates"] = Value::Null;
    for (name, value) in table {
        if NOT_CHANGED.contains(&name.as_str()) {
            bail!("{name} cannot be changed here");
        }
        // A default of searches wins over the weight of the same name.
        let path = match search.get(name) {
            Some(_) => format!("/search/{name}"),
            None => format!("/{}", name.replace('.', "/")),
        };
        match (fields.pointer_mut(&path), value) {
            (Some(Value::Object(parts)), Value::Object(changed)) => merge(parts, changed, name)?,
            (Some(field), value) if !field.is_object() => *field = value.clone(),
            (Some(_), _) => bail!("{name} is {value}, it must be a table"),
            (None, value) if search.get(name).is_some() => {
                fields["search"][name.as_str()] = value.clone();
            }
            (None, _) => bail!("{}", unknown(name, &fields, &search)),
        }
    }
    let changed: Settings = serde_json::from_value(fields)?;
    changed.validate()?;
    Ok(changed)
}

fn merge(parts: &mut Map<String, Value>, changed: &Map<String, Value>, place: &str) -> Result<()> {
    for (name, value) in changed {
        let place = format!("{place}.{name}");
        match (parts.get_mut(name), value) {
            (Some(Value::Object(parts)), Value::Object(changed)) => merge(parts, changed, &place)?,
            (Some(part), value) => *part = value.clone(),
            (None, _) => bail!("{place} is no setting of a catalog"),
        }
    }
    Ok(())
}

fn unknown(name: &str, fields: &Value, search: &Value) -> String {
    let mut known = Vec::new();
    for fields in [search, fields] {
        known.extend(fields.as_object().into_iter().flat_map(Map::keys));
    }
    // These are refused too, so they must not be suggested.
    known.retain(|name| *name != "search" && !NOT_CHANGED.contains(&name.as_str()));
    known.dedup();
    let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
    format!(
        "{name:?} is no setting of a catalog; use {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(toml: &str) -> Result<ShadowSettings, String> {
        toml::from_str(toml).map_err(|error| error.to_string())
    }

    fn problem(toml: &str) -> String {
        let checked = read(toml).map(|shadow| shadow.check(&BTreeMap::new()));
        match checked {
            Err(error) => error,
            Ok(checked) => format!("{:#}", checked.unwrap_err()),
        }
    }

    #[test]
    fn a_shadow_that_cannot_be_is_refused_with_the_value_and_the_place() {
        for (toml, expected) in [
            ("", "shadow changes nothing"),
            ("share = 1.5\nembedder = 'none'", "shadow.share is 1.5"),
            ("share = nan\nembedder = 'none'", "shadow.share is NaN"),
            ("embedder = 'gpt'", "unknown embedder \"gpt\""),
            ("ranking = 'none'", "unknown field `ranking`"),
            ("settings = 7", "the path of a file, or a table"),
            (
                "settings = { kk = 7 }",
                "\"kk\" is no setting of a catalog; use k, mode",
            ),
            ("settings = { k = 51 }", "k is 51, it must be from 1 to 50"),
            (
                "settings = { lexical = { k2 = 1 } }",
                "lexical.k2 is no setting",
            ),
            (
                "settings = { embedder = 'none' }",
                "embedder cannot be changed here",
            ),
        ] {
            let problem = problem(toml);
            assert!(problem.contains(expected), "{toml}: {problem}");
        }
    }

    #[test]
    fn settings_are_changed_by_their_names_and_the_others_stay() {
        let mut before = Settings::default();
        before.search.k = Some(3);
        let table = json!({
            "mode": "lexical", "dense_weight": 0.3, "companions": false, "lexical.k1": 2.0,
            "lexical": { "b": 0.5 }, "joint_dense_weight": 0.4
        });
        let after = changed(&before, table.as_object().unwrap()).unwrap();
        assert_eq!(after.search.k, Some(3));
        assert_eq!(after.search.mode, Some(toolscout_index::Mode::Lexical));
        assert_eq!(after.search.companions, Some(false));
        assert_eq!(after.search.dense_weight, Some(0.3));
        assert_eq!((after.lexical.k1, after.lexical.b), (2.0, 0.5));
        assert_eq!(after.joint_dense_weight, 0.4);
        assert_eq!(after.dense_weight, before.dense_weight);
    }

    #[test]
    fn files_are_read_and_what_is_wrong_with_one_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let shadow = ShadowSettings {
            ranker: Some("none".into()),
            words: Some(file("w.json", r#"{"aliases":{"a/b":["c"]}}"#)),
            settings: Some(SettingsChange::File(file(
                "s.json",
                r#"{"k":7,"embedder":null,"description":"x"}"#,
            ))),
            ..ShadowSettings::default()
        };
        let changes = shadow.read().unwrap();
        assert!(matches!(changes.ranker, Some(RankerChange::Without)));
        assert!(!changes.words.unwrap().is_empty());
        assert_eq!(Value::Object(changes.settings.unwrap()), json!({ "k": 7 }));
        for (shadow, expected) in [
            (
                ShadowSettings {
                    words: Some("/nowhere/w.json".into()),
                    ..ShadowSettings::default()
                },
                "shadow.words, /nowhere/w.json",
            ),
            (
                ShadowSettings {
                    ranker: Some(file("r.json", "{}")),
                    ..ShadowSettings::default()
                },
                "shadow.ranker",
            ),
            (
                ShadowSettings {
                    settings: Some(SettingsChange::File(file("bad.json", r#"{"kk":7}"#))),
                    ..ShadowSettings::default()
                },
                "no setting",
            ),
        ] {
            let problem = format!("{:#}", shadow.read().unwrap_err());
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
