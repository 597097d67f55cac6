//! Settings: read from flags, environment and file, in that order of precedence, and validated
//! once.
//!
//! Every setting has one key: `search.k` in the file is `TOOLSCOUT_SEARCH_K` in the environment. An
//! unknown key is an error, because a misspelt setting would otherwise be ignored silently.

mod word;
mod address;
mod agent;
mod embedder;
mod enrich;
mod external;
mod profile;
mod shadow;
mod store;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use directories::ProjectDirs;
use serde::{Deserialize, Serialize};
use toolscout_index::{DataDir, SearchOptions};

use crate::regular_file;

pub use address::masked;
pub use agent::{
    AgentSettings, AgentSettingsError, CALLS, COUNT, Eviction, Limits, MORE_CHARS, MORE_TOOLS,
    ModelParameters, ROUNDS, ReasoningEffort, ResultFormat, SECONDS, SIZE,
};
pub use embedder::{ApiKey, EmbedderKind, EmbedderLayer, EndpointSettings, is_url};
pub use enrich::{EnrichMode, EnrichSettings};
pub use external::{
    ExternalAddress, ExternalIndex, ExternalMode, ExternalProduct, ExternalSettings, FieldMapping,
};
pub use profile::{ProfileClass, ProfileDetail, ProfileSettings, ProfileTools};
pub use shadow::{RankerChange, SettingsChange, ShadowChanges, ShadowSettings, changed};
pub use store::{DEFAULT_SCHEMA, StoreAddress, StoreReads, StoreServer, StoreSettings};
pub use usage::UsageSettings;
pub use word::UnknownWord;

/// The catalog of runs that name none.
pub const DEFAULT_CATALOG: &str = "default";

/// The file that is empty.
const NULL_DEVICE: &str = "/dev/null";

/// The environment variables whose values are paths.
pub const PATH_VARIABLES: [&str; 6] = [
    "HF_HOME",
    "ORT_DYLIB_PATH",
    "TOOLSCOUT_CACHE",
    "TOOLSCOUT_CONFIG",
    "TOOLSCOUT_DATA",
    "TOOLSCOUT_MODELS_DIR",
];

/// The other environment variables of the settings.
pub const VALUE_VARIABLES: [&str; 19] = [
    "HF_ENDPOINT",
    "TOOLSCOUT_CATALOG",
    "TOOLSCOUT_EMBEDDER",
    "TOOLSCOUT_ENRICH",
    "TOOLSCOUT_ENRICH_LANGUAGES",
    "TOOLSCOUT_ENRICH_TOKENS_A_DAY",
    "TOOLSCOUT_FETCH_MAX_MB",
    "TOOLSCOUT_FETCH_TIMEOUT_S",
    "TOOLSCOUT_SEARCH_COMPANIONS",
    "TOOLSCOUT_SEARCH_DENSE_WEIGHT",
    "TOOLSCOUT_SEARCH_FOLD_DUPLICATES",
    "TOOLSCOUT_SEARCH_FUSION",
    "TOOLSCOUT_SEARCH_K",
    "TOOLSCOUT_SEARCH_MIN_CONFIDENCE",
    "TOOLSCOUT_SEARCH_MIN_SCORE",
    "TOOLSCOUT_SEARCH_MODE",
    "TOOLSCOUT_USAGE_ENABLED",
    "TOOLSCOUT_USAGE_KEEP_DAYS",
    "TOOLSCOUT_USAGE_QUERIES",
];

/// The environment variables of a node of several, which may have a password and are for nobody
/// else.
pub const STORE_VARIABLES: [&str; 8] = [
    "TOOLSCOUT_NODE",
    "TOOLSCOUT_PUSH_DOWN_ABOVE",
    "TOOLSCOUT_PUSH_DOWN_CANDIDATES",
    "TOOLSCOUT_STORE",
    "TOOLSCOUT_STORE_MEMORY_DAYS",
    "TOOLSCOUT_STORE_PASSWORD_FILE",
    "TOOLSCOUT_STORE_READS",
    "TOOLSCOUT_STORE_SCHEMA",
];

/// Reads one environment variable; a parameter, so that tests leave the environment of the process
/// alone.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// All settings, complete and within their ranges.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The data directory, which holds the catalogs.
    pub data: PathBuf,
    /// The cache directory, which holds models and the ONNX Runtime.
    pub cache: PathBuf,
    /// A folder of models in the layout of the hub's cache, searched before the others.
    pub models_dir: Option<PathBuf>,
    /// The catalog to use.
    pub catalog: String,
    /// The embedders.
    pub embedder: EmbedderKind,
    /// True where a flag names the embedders, which then win over those of a catalog.
    #[serde(skip)]
    pub is_embedder_forced: bool,
    /// The endpoints that embed, by name.
    pub embedders: BTreeMap<String, EndpointSettings>,
    /// Parts of catalogs for clients that see no more, by name.
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// Catalogs whose tools are in a search engine that somebody else runs, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub catalogs: BTreeMap<String, ExternalSettings>,
    /// What an agent does where neither a flag nor its profile says otherwise.
    pub agent: AgentSettings,
    /// Whether a server lets its model write texts of tools.
    pub enrich: EnrichSettings,
    /// What is recorded of the use of tools.
    pub usage: UsageSettings,
    /// What is compared on live searches, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowSettings>,
    /// The defaults of a search on the command line; they override those of the catalog.
    pub search: SearchOptions,
    /// The limits of fetching a URL.
    pub fetch: Fetch,
    /// The store that several nodes share, of `serve` alone.
    #[serde(flatten)]
    pub store: StoreSettings,
    /// Further locations of models and the ONNX Runtime, from the variables of other programs.
    #[serde(skip)]
    pub places: Places,
    /// The configuration file, if one was read.
    pub file: Option<PathBuf>,
}

/// The limits of fetching a URL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fetch {
    /// Seconds for the whole transfer, connecting included.
    pub timeout_s: u64,
    /// Size limit of the body, in MiB.
    pub max_mb: u64,
}

impl Fetch {
    /// The time limit of the whole transfer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// The size limit of the body, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_mb << 20
    }
}

/// Locations from the environment variables of other programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// `HF_HOME`: the hub cache, which replaces ours for models.
    pub hf_home: Option<PathBuf>,
    /// `ORT_DYLIB_PATH`: the ONNX Runtime library.
    pub ort_dylib: Option<PathBuf>,
    /// `HF_ENDPOINT`: the address of the model hub.
    pub hub: Option<String>,
    /// `LD_LIBRARY_PATH`: further directories of libraries.
    pub library_path: Vec<PathBuf>,
}

/// One source of settings. Absent values come from the next source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    /// See [`Settings::data`].
    pub data: Option<PathBuf>,
    /// See [`Settings::cache`].
    pub cache: Option<PathBuf>,
    /// See [`Settings::models_dir`].
    pub models_dir: Option<PathBuf>,
    /// See [`Settings::catalog`].
    pub catalog: Option<String>,
    /// See [`Settings::embedder`]; in the file also a table, which describes an endpoint.
    pub embedder: Option<EmbedderLayer>,
    /// See [`Settings::embedders`].
    pub embedders: BTreeMap<String, EndpointSettings>,
    /// See [`Settings::profiles`].
    pub profiles: BTreeMap<String, ProfileSettings>,
    /// See [`Settings::catalogs`].
    pub catalogs: BTreeMap<String, ExternalSettings>,
    /// See [`Settings::agent`].
    pub agent: AgentSettings,
    /// See [`Settings::enrich`].
    pub enrich: EnrichSettings,
    /// See [`Settings::usage`].
    pub usage: UsageSettings,
    /// See [`Settings::shadow`].
    pub shadow: Option<ShadowSettings>,
    /// See [`Settings::search`].
    pub search: SearchOptions,
    /// See [`Settings::fetch`].
    pub fetch: FetchLayer,
    /// See [`StoreSettings::store`].
    pub store: Option<StoreAddress>,
    /// See [`StoreSettings::store_password_file`].
    pub store_password_file: Option<PathBuf>,
    /// See [`StoreSettings::store_schema`].
    pub store_schema: Option<String>,
    /// See [`StoreSettings::store_reads`].
    pub store_reads: Option<StoreReads>,
    /// See [`StoreSettings::store_memory_days`].
    pub store_memory_days: Option<u32>,
    /// See [`StoreSettings::push_down_above`].
    pub push_down_above: Option<u64>,
    /// See [`StoreSettings::push_down_candidates`].
    pub push_down_candidates: Option<usize>,
    /// See [`StoreSettings::node`].
    pub node: Option<String>,
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
    /// Merges flags, environment and file, fills in the defaults and checks every value.
    ///
    /// `config` is the file of a flag. Without one, `TOOLSCOUT_CONFIG` names the file; otherwise
    /// `config.toml` in the platform's configuration directory is read if it exists.
    ///
    /// # Errors
    /// A file that cannot be read or has an unknown key, a variable that cannot be parsed, a value
    /// out of range. The message names it.
    pub fn resolve(
        flags: Layer,
        config: Option<&Path>,
        environment: Environment<'_>,
    ) -> Result<Self> {
        let (file, from_file) = read_file(config, environment)?;
        let is_embedder_forced = flags.embedder.is_some();
        let layers = flags
            .or(Layer::from_environment(environment)?)
            .or(from_file);
        let settings = Settings {
            is_embedder_forced,
            ..layers.complete(file, environment)?
        };
        settings.validate()?;
        Ok(settings)
    }

    /// The embedders that the catalog of the settings names, unless a flag names others.
    pub fn embedder_of_catalog(&self) -> Option<EmbedderKind> {
        if self.is_embedder_forced {
            return None;
        }
        // A catalog that cannot be read is reported by whoever opens it.
        let own = DataDir::new(&self.data).settings(&self.catalog).ok()?;
        own.embedder?.parse().ok()
    }

    fn validate(&self) -> Result<()> {
        if let Err(problem) = self.search.validate() {
            bail!("search.{problem}");
        }
        for (name, endpoint) in &self.embedders {
            embedder::validate(name, endpoint)?;
        }
        self.embedder.check(&self.embedders)?;
        for (name, profile) in &self.profiles {
            profile::validate(name, profile)?;
        }
        external::validate(self.catalogs.iter())?;
        if let Err(problem) = self.agent.check() {
            bail!("agent.{problem}");
        }
        self.enrich.check()?;
        self.usage.check()?;
        if let Some(shadow) = &self.shadow {
            shadow.check(&self.embedders)?;
            if !self.usage.is_enabled() {
                bail!(
                    "shadow needs usage.enabled, which is false; set it to true, or remove the table [shadow]"
                );
            }
        }
        self.store.check()?;
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
            models_dir: env.path("TOOLSCOUT_MODELS_DIR"),
            catalog: env.parse("TOOLSCOUT_CATALOG")?,
            embedder: env.parse("TOOLSCOUT_EMBEDDER")?.map(EmbedderLayer::Named),
            embedders: BTreeMap::new(),
            profiles: BTreeMap::new(),
            catalogs: BTreeMap::new(),
            agent: AgentSettings::default(),
            enrich: EnrichSettings {
                mode: env.parse("TOOLSCOUT_ENRICH")?,
                tokens_a_day: env.parse("TOOLSCOUT_ENRICH_TOKENS_A_DAY")?,
                languages: env.list("TOOLSCOUT_ENRICH_LANGUAGES")?,
            },
            usage: UsageSettings {
                enabled: env.parse("TOOLSCOUT_USAGE_ENABLED")?,
                keep_days: env.parse("TOOLSCOUT_USAGE_KEEP_DAYS")?,
                queries: env.parse("TOOLSCOUT_USAGE_QUERIES")?,
            },
            shadow: None,
            search: SearchOptions {
                k: env.parse("TOOLSCOUT_SEARCH_K")?,
                mode: env.parse("TOOLSCOUT_SEARCH_MODE")?,
                fusion: env.parse("TOOLSCOUT_SEARCH_FUSION")?,
                dense_weight: env.parse("TOOLSCOUT_SEARCH_DENSE_WEIGHT")?,
                min_score: env.parse("TOOLSCOUT_SEARCH_MIN_SCORE")?,
                min_confidence: env.parse("TOOLSCOUT_SEARCH_MIN_CONFIDENCE")?,
                companions: env.parse("TOOLSCOUT_SEARCH_COMPANIONS")?,
                fold_duplicates: env.parse("TOOLSCOUT_SEARCH_FOLD_DUPLICATES")?,
            },
            fetch: FetchLayer {
                timeout_s: env.parse("TOOLSCOUT_FETCH_TIMEOUT_S")?,
                max_mb: env.parse("TOOLSCOUT_FETCH_MAX_MB")?,
            },
            // Not parsed: the error would show it, and it may have a password.
            store: env.text("TOOLSCOUT_STORE")?.map(StoreAddress::new),
            store_password_file: env.path("TOOLSCOUT_STORE_PASSWORD_FILE"),
            store_schema: env.text("TOOLSCOUT_STORE_SCHEMA")?,
            store_reads: env.parse("TOOLSCOUT_STORE_READS")?,
            store_memory_days: env.parse("TOOLSCOUT_STORE_MEMORY_DAYS")?,
            push_down_above: env.parse("TOOLSCOUT_PUSH_DOWN_ABOVE")?,
            push_down_candidates: env.parse("TOOLSCOUT_PUSH_DOWN_CANDIDATES")?,
            node: env.text("TOOLSCOUT_NODE")?,
        })
    }

    /// The values of this layer; absent ones from the other layer.
    fn or(self, other: Layer) -> Layer {
        let fetch = self.fetch;
        Layer {
            data: self.data.or(other.data),
            cache: self.cache.or(other.cache),
            models_dir: self.models_dir.or(other.models_dir),
            catalog: self.catalog.or(other.catalog),
            embedder: self.embedder.or(other.embedder),
            // Flags and variables describe none.
            embedders: other.embedders,
            profiles: other.profiles,
            catalogs: other.catalogs,
            agent: self.agent.or(other.agent),
            enrich: self.enrich.or(other.enrich),
            usage: self.usage.or(other.usage),
            shadow: self.shadow.or(other.shadow),
            search: self.search.or(other.search),
            fetch: FetchLayer {
                timeout_s: fetch.timeout_s.or(other.fetch.timeout_s),
                max_mb: fetch.max_mb.or(other.fetch.max_mb),
            },
            store: self.store.or(other.store),
            store_password_file: self.store_password_file.or(other.store_password_file),
            store_schema: self.store_schema.or(other.store_schema),
            store_reads: self.store_reads.or(other.store_reads),
            store_memory_days: self.store_memory_days.or(other.store_memory_days),
            push_down_above: self.push_down_above.or(other.push_down_above),
            push_down_candidates: self.push_down_candidates.or(other.push_down_candidates),
            node: self.node.or(other.node),
        }
    }

    fn complete(self, file: Option<PathBuf>, environment: Environment<'_>) -> Result<Settings> {
        let env = Variables(environment);
        let mut embedders = self.embedders;
        let embedder = self
            .embedder
            .map(|layer| layer.into_kind(&mut embedders))
            .unwrap_or_default();
        for endpoint in embedders.values_mut() {
            endpoint.read_key(environment);
        }
        let mut catalogs = self.catalogs;
        for settings in catalogs.values_mut() {
            settings.read_secret(environment);
        }
        Ok(Settings {
            data: self
                .data
                .map_or_else(|| platform(ProjectDirs::data_dir, "--data"), Ok)?,
            cache: self
                .cache
                .map_or_else(|| platform(ProjectDirs::cache_dir, "--cache"), Ok)?,
            models_dir: self.models_dir,
            catalog: self.catalog.unwrap_or_else(|| DEFAULT_CATALOG.to_owned()),
            embedder,
            is_embedder_forced: false,
            embedders,
            profiles: self.profiles,
            catalogs,
            agent: self.agent,
            enrich: self.enrich,
            usage: self.usage,
            shadow: self.shadow,
            search: self.search,
            fetch: Fetch {
                timeout_s: self.fetch.timeout_s.unwrap_or(60),
                max_mb: self.fetch.max_mb.unwrap_or(64),
            },
            store: StoreSettings {
                store: self.store,
                store_password_file: self.store_password_file,
                store_schema: self.store_schema,
                store_reads: self.store_reads,
                store_memory_days: self.store_memory_days,
                push_down_above: self.push_down_above,
                push_down_candidates: self.push_down_candidates,
                node: self.node,
            },
            places: Places {
                hf_home: env.path("HF_HOME"),
                ort_dylib: env.path("ORT_DYLIB_PATH"),
                hub: env.parse("HF_ENDPOINT")?,
                library_path: env.paths("LD_LIBRARY_PATH"),
            },
            file,
        })
    }
}

/// The environment, with errors that name the variable. An empty variable counts as unset.
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

    fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(value) = (self.0)(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.into_string() {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("{name} is not valid UTF-8"),
        }
    }

    /// Values separated by commas.
    fn list(&self, name: &str) -> Result<Vec<String>> {
        let text = self.text(name)?.unwrap_or_default();
        let values = text
            .split(',')
            .map(str::trim)
            .filter(|value| !value.is_empty());
        Ok(values.map(str::to_owned).collect())
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
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
    // People name it for no configuration at all.
    if path == Path::new(NULL_DEVICE) {
        return Ok((Some(path), Layer::default()));
    }
    let text = regular_file::read_to_string(&path)
        .with_context(|| format!("read the configuration {}", path.display()))?;
    let mut layer = parse(&path, &text)?;
    // An endpoint stays known by its name where a flag or a variable chooses another embedder.
    layer.embedder = layer
        .embedder
        .map(|embedder| EmbedderLayer::Named(embedder.into_kind(&mut layer.embedders)));
    Ok((Some(path), layer))
}

fn parse(path: &Path, text: &str) -> Result<Layer> {
    let reader =
        toml::Deserializer::parse(text).map_err(|error| located(path, text, "", &error))?;
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let key = match error.path().to_string() {
            path if path == "." => String::new(),
            path => format!("{path}: "),
        };
        located(path, text, &key, error.inner())
    })
}

/// The error in one line with file, line, column and key; toml's own message spans several lines.
fn located(path: &Path, text: &str, key: &str, error: &toml::de::Error) -> anyhow::Error {
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
    let message = error.message().replace('\n', ", ");
    anyhow::anyhow!("{}:{line}:{column}: {key}{message}", path.display())
}

fn platform(pick: fn(&ProjectDirs) -> &Path, flag: &str) -> Result<PathBuf> {
    let dirs = project_dirs()
        .with_context(|| format!("there is no home directory; choose a directory with {flag}"))?;
    Ok(pick(&dirs).to_owned())
}

fn project_dirs() -> Option<ProjectDirs> {
    ProjectDirs::from("", "", "toolscout")
}

#[cfg(test)]
mod tests {
    use toolscout_index::Mode;

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
    fn every_variable_that_is_read_is_listed() {
        let read = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let environment = |name: &str| {
            read.borrow_mut().insert(name.to_owned());
            None
        };
        Settings::resolve(Layer::default(), None, &environment).unwrap();
        // Set by the system for every program, so a client need not be given it.
        read.borrow_mut().remove("LD_LIBRARY_PATH");
        let listed = PATH_VARIABLES
            .iter()
            .chain(&VALUE_VARIABLES)
            .chain(&STORE_VARIABLES);
        assert_eq!(read.into_inner(), listed.map(ToString::to_string).collect());
    }

    #[test]
    fn flags_override_the_environment_which_overrides_the_file() {
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
        assert_eq!(
            (settings.search.k, settings.search.mode),
            (Some(7), Some(Mode::Dense))
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_its_position() {
        let message = resolve(Layer::default(), "data = '/d'\n[search]\nkk = 7", &[])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("c.toml:3:1") && message.contains("`kk`"),
            "{message}"
        );
    }

    #[test]
    fn a_value_out_of_range_or_of_a_wrong_type_is_named() {
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
                "unknown embedder \"gpt\"; use auto, table, encoder, minilm, none",
            ),
        ] {
            let message = resolve(Layer::default(), file, &[variable])
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_profile_that_names_nothing_or_something_wrong_is_refused() {
        for (file, expected) in [
            ("[profiles.a]", "profiles.a names nothing"),
            ("[profiles.a]\nlimit = 3", "profiles.a names nothing"),
            ("[profiles.a]\nservers = []", "profiles.a.servers is empty"),
            ("[profiles.a]\ntools = [' ']", "has an empty pattern"),
            ("[profiles.a]\nclasses = []", "profiles.a.classes is empty"),
            (
                "[profiles.a]\nclasses = ['safe']",
                "profiles.a.classes[0]: unknown variant `safe`",
            ),
            (
                "[profiles.a]\ntags = ['x']\nlimit = 51",
                "profiles.a.limit is 51, it must be from 1 to 50",
            ),
            ("[profiles.'a b']\ntags = ['x']", "use another name"),
            (
                "[profiles.a]\nserver = ['x']",
                "profiles.a.server: unknown field `server`",
            ),
        ] {
            let message = resolve(Layer::default(), file, &[])
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
        let file = "[profiles.team]\nservers = ['mail*']\nclasses = ['read_only']";
        let settings = resolve(Layer::default(), file, &[]).unwrap();
        let servers = settings.profiles["team"].servers.as_deref();
        assert_eq!(servers, Some(&["mail*".to_owned()][..]));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let settings = resolve(
            Layer::default(),
            "catalog = 'c'",
            &[("TOOLSCOUT_CATALOG", "")],
        )
        .unwrap();
        assert_eq!(settings.catalog, "c");
    }

    #[test]
    fn the_null_device_is_an_empty_file() {
        let of_flag = Settings::resolve(Layer::default(), Some(Path::new(NULL_DEVICE)), &|_| None);
        assert_eq!(of_flag.unwrap().catalog, DEFAULT_CATALOG);
    }

    #[test]
    fn a_missing_named_file_is_an_error() {
        let error = Settings::resolve(Layer::default(), Some(Path::new("/nowhere.toml")), &|_| {
            None
        })
        .unwrap_err();
        assert!(error.to_string().contains("/nowhere.toml"), "{error}");
    }
}
