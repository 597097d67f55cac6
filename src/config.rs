//! Settings: read from flags, environment and file, in that order of precedence, and validated
//! once.
//!
//! Every setting has one key. `search.k` in the file is `TOOLSCOUT_SEARCH_K` in the environment. A
//! key that does not exist is an error that names it, since a misspelt setting would otherwise be
//! silently ignored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use directories::ProjectDirs;
use serde::{Deserialize, Serialize};
use toolscout_index::{Fusion, Mode};

/// The catalog that is used when none is named.
pub const DEFAULT_CATALOG: &str = "default";

/// Reads one environment variable; injected so that tests need not touch the process's own
/// environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Every setting, complete and within its range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The directory under which catalogs are kept.
    pub data: PathBuf,
    /// The directory under which models and the ONNX Runtime are kept.
    pub cache: PathBuf,
    /// The catalog to work on.
    pub catalog: String,
    /// What embeds.
    pub embedder: EmbedderKind,
    /// What a search does when its flags do not say.
    pub search: Search,
    /// The bounds of fetching a URL.
    pub fetch: Fetch,
    /// Where models and the ONNX Runtime may also be, as other programs name it.
    #[serde(skip)]
    pub places: Places,
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
}

/// What turns texts into vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmbedderKind {
    /// The built-in table, and all-MiniLM-L6-v2 beside it where its files are.
    #[default]
    Auto,
    /// The built-in table alone, whatever files there are.
    Table,
    /// The built-in table and all-MiniLM-L6-v2 on the ONNX Runtime; answers without it count as
    /// degraded.
    Minilm,
    /// None: every search is lexical.
    None,
    /// Hashed words: deterministic, needs no files and knows no meaning. For tests.
    Hashing,
}

impl FromStr for EmbedderKind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(EmbedderKind::Auto),
            "table" => Ok(EmbedderKind::Table),
            "minilm" => Ok(EmbedderKind::Minilm),
            "none" => Ok(EmbedderKind::None),
            "hashing" => Ok(EmbedderKind::Hashing),
            _ => bail!("unknown embedder {text:?}; use auto, table, minilm or none"),
        }
    }
}

/// Defaults of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Search {
    /// Hits.
    pub k: usize,
    /// Retrieval legs.
    pub mode: Mode,
    /// How the legs' scores become one.
    pub fusion: Fusion,
    /// The share of the dense legs; the engine's own when not set.
    pub dense_weight: Option<f32>,
    /// Hits below this score are left out.
    pub min_score: f32,
}

/// Bounds of fetching a URL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fetch {
    /// The whole transfer, connecting included.
    pub timeout_s: u64,
    /// Most bytes accepted, in MiB.
    pub max_mb: u64,
}

impl Fetch {
    /// The bound on the whole transfer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// The bound on the body, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_mb << 20
    }
}

/// Places set through the variables of other programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// `HF_HOME`: the hub cache that replaces ours for models.
    pub hf_home: Option<PathBuf>,
    /// `ORT_DYLIB_PATH`: the ONNX Runtime library.
    pub ort_dylib: Option<PathBuf>,
    /// `LD_LIBRARY_PATH`: more directories to look for libraries in.
    pub library_path: Vec<PathBuf>,
}

/// One source of settings; what it does not say is left to the next one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    /// See [`Settings::data`].
    pub data: Option<PathBuf>,
    /// See [`Settings::cache`].
    pub cache: Option<PathBuf>,
    /// See [`Settings::catalog`].
    pub catalog: Option<String>,
    /// See [`Settings::embedder`].
    pub embedder: Option<EmbedderKind>,
    /// See [`Settings::search`].
    pub search: SearchLayer,
    /// See [`Settings::fetch`].
    pub fetch: FetchLayer,
}

/// The part of a [`Layer`] about searching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchLayer {
    /// See [`Search::k`].
    pub k: Option<usize>,
    /// See [`Search::mode`].
    pub mode: Option<Mode>,
    /// See [`Search::fusion`].
    pub fusion: Option<Fusion>,
    /// See [`Search::dense_weight`].
    pub dense_weight: Option<f32>,
    /// See [`Search::min_score`].
    pub min_score: Option<f32>,
}

/// The part of a [`Layer`] about fetching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FetchLayer {
    /// See [`Fetch::timeout_s`].
    pub timeout_s: Option<u64>,
    /// See [`Fetch::max_mb`].
    pub max_mb: Option<u64>,
}

impl Settings {
    /// Joins flags, environment and file, fills in the defaults and checks every value.
    ///
    /// `config` is the file named by a flag. Without one `TOOLSCOUT_CONFIG` names it, else
    /// `config.toml` in the platform's configuration directory is read if it is there.
    ///
    /// # Errors
    /// A file that cannot be read or holds an unknown key, a variable that cannot be parsed, a
    /// value out of its range: each named.
    pub fn resolve(
        flags: Layer,
        config: Option<&Path>,
        environment: Environment<'_>,
    ) -> Result<Self> {
        let (file, from_file) = read_file(config, environment)?;
        let layers = flags
            .or(Layer::from_environment(environment)?)
            .or(from_file);
        let settings = layers.complete(file, environment)?;
        settings.validate()?;
        Ok(settings)
    }

    fn validate(&self) -> Result<()> {
        let Search {
            k,
            dense_weight,
            min_score,
            ..
        } = self.search;
        if !(1..=toolscout_index::query::MAX_K).contains(&k) {
            bail!(
                "search.k is {k}, it must be from 1 to {}",
                toolscout_index::query::MAX_K
            );
        }
        if let Some(weight) = dense_weight.filter(|weight| !(0.0..=1.0).contains(weight)) {
            bail!("search.dense_weight is {weight}, it must be from 0 to 1");
        }
        if min_score.is_nan() {
            bail!("search.min_score is not a number");
        }
        if !(1..=3600).contains(&self.fetch.timeout_s) {
            bail!(
                "fetch.timeout_s is {}, it must be from 1 to 3600",
                self.fetch.timeout_s
            );
        }
        if !(1..=4096).contains(&self.fetch.max_mb) {
            bail!(
                "fetch.max_mb is {}, it must be from 1 to 4096",
                self.fetch.max_mb
            );
        }
        Ok(())
    }
}

impl Layer {
    fn from_environment(environment: Environment<'_>) -> Result<Self> {
        let env = Variables(environment);
        Ok(Layer {
            data: env.path("TOOLSCOUT_DATA"),
            cache: env.path("TOOLSCOUT_CACHE"),
            catalog: env.parse("TOOLSCOUT_CATALOG")?,
            embedder: env.parse("TOOLSCOUT_EMBEDDER")?,
            search: SearchLayer {
                k: env.parse("TOOLSCOUT_SEARCH_K")?,
                mode: env.parse("TOOLSCOUT_SEARCH_MODE")?,
                fusion: env.parse("TOOLSCOUT_SEARCH_FUSION")?,
                dense_weight: env.parse("TOOLSCOUT_SEARCH_DENSE_WEIGHT")?,
                min_score: env.parse("TOOLSCOUT_SEARCH_MIN_SCORE")?,
            },
            fetch: FetchLayer {
                timeout_s: env.parse("TOOLSCOUT_FETCH_TIMEOUT_S")?,
                max_mb: env.parse("TOOLSCOUT_FETCH_MAX_MB")?,
            },
        })
    }

    /// What this layer says, and where it is silent what the other one says.
    fn or(self, other: Layer) -> Layer {
        let (search, fetch) = (self.search, self.fetch);
        Layer {
            data: self.data.or(other.data),
            cache: self.cache.or(other.cache),
            catalog: self.catalog.or(other.catalog),
            embedder: self.embedder.or(other.embedder),
            search: SearchLayer {
                k: search.k.or(other.search.k),
                mode: search.mode.or(other.search.mode),
                fusion: search.fusion.or(other.search.fusion),
                dense_weight: search.dense_weight.or(other.search.dense_weight),
                min_score: search.min_score.or(other.search.min_score),
            },
            fetch: FetchLayer {
                timeout_s: fetch.timeout_s.or(other.fetch.timeout_s),
                max_mb: fetch.max_mb.or(other.fetch.max_mb),
            },
        }
    }

    fn complete(self, file: Option<PathBuf>, environment: Environment<'_>) -> Result<Settings> {
        let env = Variables(environment);
        Ok(Settings {
            data: self
                .data
                .map_or_else(|| platform(ProjectDirs::data_dir, "--data"), Ok)?,
            cache: self
                .cache
                .map_or_else(|| platform(ProjectDirs::cache_dir, "--cache"), Ok)?,
            catalog: self.catalog.unwrap_or_else(|| DEFAULT_CATALOG.to_owned()),
            embedder: self.embedder.unwrap_or_default(),
            search: Search {
                k: self.search.k.unwrap_or(toolscout_index::query::DEFAULT_K),
                mode: self.search.mode.unwrap_or_default(),
                fusion: self.search.fusion.unwrap_or_default(),
                dense_weight: self.search.dense_weight,
                min_score: self.search.min_score.unwrap_or(0.0),
            },
            fetch: Fetch {
                timeout_s: self.fetch.timeout_s.unwrap_or(60),
                max_mb: self.fetch.max_mb.unwrap_or(64),
            },
            places: Places {
                hf_home: env.path("HF_HOME"),
                ort_dylib: env.path("ORT_DYLIB_PATH"),
                library_path: env.paths("LD_LIBRARY_PATH"),
            },
            file,
        })
    }
}

/// The environment, with errors that name the variable. An empty variable counts as not set.
struct Variables<'a>(Environment<'a>);

impl Variables<'_> {
    fn path(&self, name: &str) -> Option<PathBuf> {
        (self.0)(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    }

    fn paths(&self, name: &str) -> Vec<PathBuf> {
        (self.0)(name)
            .map(|list| std::env::split_paths(&list).collect())
            .unwrap_or_default()
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = (self.0)(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let Some(text) = value.to_str() else {
            bail!("{name} is not valid UTF-8")
        };
        text.parse()
            .map(Some)
            .map_err(|error| anyhow::anyhow!("{name} is {text:?}: {error}"))
    }
}

fn read_file(
    named: Option<&Path>,
    environment: Environment<'_>,
) -> Result<(Option<PathBuf>, Layer)> {
    let named = named
        .map(Path::to_owned)
        .or_else(|| Variables(environment).path("TOOLSCOUT_CONFIG"));
    let path = match named {
        Some(path) => path,
        None => match project_dirs().map(|dirs| dirs.config_dir().join("config.toml")) {
            Some(path) if path.exists() => path,
            _ => return Ok((None, Layer::default())),
        },
    };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("read the configuration {}", path.display()))?;
    let layer = toml::from_str(&text).map_err(|error| located(&path, &text, &error))?;
    Ok((Some(path), layer))
}

/// One line that says file, line and column, since toml's own message draws a picture over several.
fn located(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .count()
        + 1;
    let message = error.message().replace('\n', "; ");
    anyhow::anyhow!("{}:{line}:{column}: {message}", path.display())
}

fn platform(pick: fn(&ProjectDirs) -> &Path, flag: &str) -> Result<PathBuf> {
    let dirs = project_dirs()
        .with_context(|| format!("there is no home directory; name a directory with {flag}"))?;
    Ok(pick(&dirs).to_owned())
}

fn project_dirs() -> Option<ProjectDirs> {
    ProjectDirs::from("", "", "toolscout")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: Layer, file: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let environment = |name: &str| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Settings::resolve(flags, Some(&path), &environment)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let file = "data = '/file'\ncache = '/file'\ncatalog = 'file'\n[search]\nk = 7";
        let variables = [
            ("TOOLSCOUT_DATA", "/env"),
            ("TOOLSCOUT_CACHE", "/env"),
            ("TOOLSCOUT_SEARCH_MODE", "dense"),
        ];
        let flags = Layer {
            data: Some("/flag".into()),
            ..Layer::default()
        };
        let settings = resolve(flags, file, &variables).unwrap();
        assert_eq!(settings.data, Path::new("/flag"));
        assert_eq!(settings.cache, Path::new("/env"));
        assert_eq!(settings.catalog, "file");
        assert_eq!((settings.search.k, settings.search.mode), (7, Mode::Dense));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        let message = resolve(Layer::default(), "data = '/d'\n[search]\nkk = 7", &[])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("c.toml:3:1") && message.contains("`kk`"),
            "{message}"
        );
    }

    #[test]
    fn a_value_out_of_its_range_or_type_is_named() {
        for (file, variable, expected) in [
            (
                "[search]\nk = 51",
                ("X", ""),
                "search.k is 51, it must be from 1 to 50",
            ),
            (
                "[search]\ndense_weight = 1.5",
                ("X", ""),
                "search.dense_weight is 1.5",
            ),
            ("[fetch]\ntimeout_s = 0", ("X", ""), "fetch.timeout_s is 0"),
            (
                "",
                ("TOOLSCOUT_SEARCH_K", "many"),
                "TOOLSCOUT_SEARCH_K is \"many\"",
            ),
            (
                "",
                ("TOOLSCOUT_EMBEDDER", "gpt"),
                "use auto, table, minilm or none",
            ),
        ] {
            let message = resolve(Layer::default(), file, &[variable])
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let settings = resolve(
            Layer::default(),
            "catalog = 'c'",
            &[("TOOLSCOUT_CATALOG", "")],
        )
        .unwrap();
        assert_eq!(settings.catalog, "c");
    }

    #[test]
    fn a_named_file_that_is_not_there_is_an_error() {
        let error = Settings::resolve(Layer::default(), Some(Path::new("/nowhere.toml")), &|_| {
            None
        })
        .unwrap_err();
        assert!(error.to_string().contains("/nowhere.toml"), "{error}");
    }
}
