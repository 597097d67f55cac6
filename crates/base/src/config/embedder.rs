//! The settings of embedding: what is built in, models by name, and endpoints.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Environment, masked};
use crate::known_models::{KnownModel, check_revision};
use crate::known_secrets;

/// The name of the endpoint that the table `[embedder]` describes.
const UNNAMED_ENDPOINT: &str = "endpoint";
/// Separates names that are used together.
const TOGETHER: char = '+';
/// Names that stand for something built in, and so cannot be given to an endpoint.
const BUILT_IN: [&str; 6] = ["auto", "table", "encoder", "minilm", "none", "hashing"];

/// Most texts in one request to an endpoint.
const MAX_BATCH: usize = 2048;
/// Most requests to an endpoint at a time.
const MAX_CONCURRENCY: usize = 64;
/// Longest vectors that are accepted.
const MAX_DIMENSIONS: usize = 16_384;

/// Which embedders are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EmbedderKind {
    /// The built-in tables and the built-in encoder.
    #[default]
    Auto,
    /// The built-in tables alone.
    Table,
    /// The built-in tables and all-MiniLM-L6-v2; an answer without the model is degraded.
    Minilm,
    /// None: every search is lexical.
    None,
    /// Hashed words: deterministic, without files and without meaning. For tests.
    Hashing,
    /// The built-in tables and these: `encoder`, `minilm`, models by name, endpoints by name or
    /// URL.
    Models(Vec<String>),
}

impl EmbedderKind {
    /// What it stands for, with its name on the command line, in the environment and in the file.
    pub fn describe(&self) -> String {
        match self {
            EmbedderKind::Auto => "auto: the built-in tables and encoder".into(),
            EmbedderKind::Table => "table: the built-in tables alone".into(),
            EmbedderKind::Minilm => "minilm: the built-in tables and all-MiniLM-L6-v2".into(),
            EmbedderKind::None => "none: searches are lexical".into(),
            EmbedderKind::Hashing => "hashing: hashed words without meaning, for tests only".into(),
            EmbedderKind::Models(names) => {
                let models = all_masked(names).join(" and ");
                format!("{}: the built-in tables and {models}", self.shown())
            }
        }
    }

    /// As it may be shown: without what may be a key in an address.
    pub fn shown(&self) -> String {
        match self {
            EmbedderKind::Models(names) => all_masked(names).join(&TOGETHER.to_string()),
            other => other.to_string(),
        }
    }

    /// As it may be shown beside others: with the tables, which are part of every combination.
    pub fn label(&self) -> String {
        match self {
            EmbedderKind::Minilm | EmbedderKind::Models(_) => {
                format!("table{TOGETHER}{}", self.shown())
            }
            other => other.to_string(),
        }
    }

    /// As the settings of a catalog keep it.
    ///
    /// # Errors
    /// An address that may hold a key, which is not to be stored.
    pub fn stored(&self) -> Result<String> {
        let shown = self.shown();
        if shown == self.to_string() {
            return Ok(shown);
        }
        bail!(
            "{shown} has a user or a query in its address, which may be a key, and is not stored with a catalog; give the endpoint a name in [embedders] of the configuration file, and use the name"
        )
    }

    /// Checks that every name is one of something.
    ///
    /// # Errors
    /// A name that is unknown, with those that it could be.
    pub fn check(&self, endpoints: &BTreeMap<String, EndpointSettings>) -> Result<()> {
        let EmbedderKind::Models(names) = self else {
            return Ok(());
        };
        for name in names {
            let is_known = matches!(name.as_str(), "encoder" | "minilm")
                || is_url(name)
                || endpoints.contains_key(name)
                || KnownModel::find(name).is_some();
            // An address may have an `@` before its host.
            if is_known && !is_url(name) {
                check_revision(name)?;
            }
            if !is_known {
                bail!(
                    "unknown embedder {name:?}; use auto, table, encoder, minilm, none, an endpoint's URL, a name of \
                     [embedders] in the configuration file, or a model that `toolscout models list --all` shows"
                );
            }
        }
        Ok(())
    }
}

impl fmt::Display for EmbedderKind {
    /// As it is written on the command line, in the environment and in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmbedderKind::Auto => f.write_str("auto"),
            EmbedderKind::Table => f.write_str("table"),
            EmbedderKind::Minilm => f.write_str("minilm"),
            EmbedderKind::None => f.write_str("none"),
            EmbedderKind::Hashing => f.write_str("hashing"),
            EmbedderKind::Models(names) => f.write_str(&names.join("+")),
        }
    }
}

impl Serialize for EmbedderKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for EmbedderKind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => return Ok(EmbedderKind::Auto),
            "table" => return Ok(EmbedderKind::Table),
            "minilm" => return Ok(EmbedderKind::Minilm),
            "none" => return Ok(EmbedderKind::None),
            "hashing" => return Ok(EmbedderKind::Hashing),
            _ => {}
        }
        let mut names: Vec<String> = Vec::new();
        for name in text.split(TOGETHER).map(str::trim) {
            match with_short_name(name) {
                "" => bail!("the embedder {text:?} has an empty name"),
                // Each of these stands for all of the embedding, or for none of it.
                "auto" | "none" | "hashing" => {
                    bail!("{name} cannot be used together with other embedders")
                }
                // Part of every combination.
                "table" => {}
                name if names.iter().any(|other| other == name) => {
                    bail!("the embedder {name:?} is named twice")
                }
                name => names.push(name.to_owned()),
            }
        }
        // What has a kind of its own is that kind, however it was written.
        Ok(match names.as_slice() {
            [] => EmbedderKind::Table,
            [only] if only == "minilm" => EmbedderKind::Minilm,
            _ => EmbedderKind::Models(names),
        })
    }
}

/// The names, of which addresses may have a key in them.
fn all_masked(names: &[String]) -> Vec<String> {
    names.iter().map(|name| masked(name)).collect()
}

/// The name of a built-in embedder by which it is chosen; answers and `stats` call it otherwise.
fn with_short_name(name: &str) -> &str {
    match name {
        "static-table" => "table",
        "tool-encoder" => "encoder",
        other => other,
    }
}

/// True for what is an address and no name.
pub fn is_url(name: &str) -> bool {
    name.starts_with("http://") || name.starts_with("https://")
}

/// The setting `embedder` of one source: names, or in the file the table of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum EmbedderLayer {
    /// Names.
    Named(EmbedderKind),
    /// The one endpoint that embeds.
    Endpoint(Box<EndpointSettings>),
}

impl EmbedderLayer {
    /// The embedders by name; an endpoint without one is added to those that have names.
    pub fn into_kind(self, endpoints: &mut BTreeMap<String, EndpointSettings>) -> EmbedderKind {
        match self {
            EmbedderLayer::Named(kind) => kind,
            EmbedderLayer::Endpoint(endpoint) => {
                endpoints.insert(UNNAMED_ENDPOINT.to_owned(), *endpoint);
                EmbedderKind::Models(vec![UNNAMED_ENDPOINT.to_owned()])
            }
        }
    }
}

impl<'de> Deserialize<'de> for EmbedderLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand: the error of an untagged enum names no key.
        deserializer.deserialize_any(LayerVisitor)
    }
}

struct LayerVisitor;

impl<'de> Visitor<'de> for LayerVisitor {
    type Value = EmbedderLayer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or a table with the url of an endpoint")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<EmbedderLayer, E> {
        let kind = text.parse().map_err(E::custom)?;
        Ok(EmbedderLayer::Named(kind))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EmbedderLayer, A::Error> {
        let endpoint = EndpointSettings::deserialize(MapAccessDeserializer::new(map))?;
        if endpoint.url.is_empty() {
            return Err(A::Error::custom("missing field `url`"));
        }
        Ok(EmbedderLayer::Endpoint(Box::new(endpoint)))
    }
}

/// An OpenAI-compatible endpoint that embeds texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndpointSettings {
    /// Its base URL, as `http://127.0.0.1:11434` or `https://models.example/v1`.
    #[serde(serialize_with = "serialize_masked")]
    pub url: String,
    /// The model's name there; the only one that the endpoint lists when not set.
    pub model: Option<String>,
    /// The length of its vectors; asked for once when not set.
    pub dimensions: Option<usize>,
    /// Whether the endpoint is asked for vectors of this length.
    pub request_dimensions: bool,
    /// The environment variable with the key, sent as a bearer token.
    pub key_env: Option<String>,
    /// Its value.
    #[serde(skip)]
    pub key: Option<ApiKey>,
    /// Written before each request.
    pub query_prefix: String,
    /// Written before each text of a tool.
    pub passage_prefix: String,
    /// Further fields of the body when requests are embedded, as `{ input_type = "query" }`.
    pub query_parameters: Map<String, Value>,
    /// Further fields of the body when tools are embedded.
    pub passage_parameters: Map<String, Value>,
    /// Most texts of tools in one request.
    pub batch: usize,
    /// Most requests at a time.
    pub concurrency: usize,
    /// Characters read of a text.
    pub max_chars: usize,
    /// Seconds that a batch of tools may take.
    pub timeout_s: u64,
    /// Milliseconds that a search waits.
    pub query_timeout_ms: u64,
    /// Seconds in which a batch is tried again while the endpoint is busy or down.
    pub patience_s: u64,
    /// Weight of the model beside other embedders; the table has .35.
    pub weight: f32,
    /// Price of a million tokens, for `eval`.
    pub price_per_million_tokens: Option<f64>,
}

impl Default for EndpointSettings {
    fn default() -> Self {
        EndpointSettings {
            url: String::new(),
            model: None,
            dimensions: None,
            request_dimensions: false,
            key_env: None,
            key: None,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            query_parameters: Map::new(),
            passage_parameters: Map::new(),
            batch: 32,
            concurrency: 2,
            // About 500 tokens of English, the most that many models read.
            max_chars: 2000,
            timeout_s: 60,
            query_timeout_ms: 1000,
            patience_s: 120,
            weight: 0.65,
            price_per_million_tokens: None,
        }
    }
}

impl EndpointSettings {
    /// An endpoint by its address, with the model after `#`.
    pub fn of_url(url: &str) -> Self {
        let (url, model) = url.split_once('#').unwrap_or((url, ""));
        EndpointSettings {
            url: url.to_owned(),
            model: (!model.is_empty()).then(|| model.to_owned()),
            ..EndpointSettings::default()
        }
    }

    /// Reads the key from the variable that `key_env` names.
    pub(super) fn read_key(&mut self, environment: Environment<'_>) {
        self.key = None;
        // A variable that is set to nothing counts as none.
        if let Some(variable) = &self.key_env
            && let Some(value) = environment(variable)
            && let Ok(key) = value.into_string()
            && !key.is_empty()
        {
            self.key = Some(ApiKey::from(key.as_str()));
        }
    }

    /// The time that a batch of tools may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// The time that a search waits.
    pub fn query_timeout(&self) -> Duration {
        Duration::from_millis(self.query_timeout_ms)
    }

    /// The time in which a batch is tried again.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s)
    }
}

/// Checks an endpoint of the file.
///
/// # Errors
/// A name that means something else, or a value out of its range.
pub(super) fn validate(name: &str, endpoint: &EndpointSettings) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(legal) || BUILT_IN.contains(&name) {
        bail!(
            "embedders.{name}: use another name, of letters, digits, `-`, `_` or `.`, and none of {}",
            BUILT_IN.join(", ")
        );
    }
    if !is_url(&endpoint.url) {
        bail!(
            "embedders.{name}.url is {:?}, it must start with http:// or https://",
            masked(&endpoint.url)
        );
    }
    let in_range = |key: &str, value: u64, low: u64, high: u64| {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        bail!("embedders.{name}.{key} is {value}, it must be from {low} to {high}")
    };
    // Dimensions that are not set are asked for, so there is nothing to check.
    let dimensions = endpoint.dimensions.unwrap_or(1);
    in_range("dimensions", dimensions as u64, 1, MAX_DIMENSIONS as u64)?;
    if endpoint.request_dimensions && endpoint.dimensions.is_none() {
        bail!("embedders.{name}.request_dimensions needs embedders.{name}.dimensions");
    }
    in_range("batch", endpoint.batch as u64, 1, MAX_BATCH as u64)?;
    let concurrency = endpoint.concurrency as u64;
    in_range("concurrency", concurrency, 1, MAX_CONCURRENCY as u64)?;
    in_range("max_chars", endpoint.max_chars as u64, 1, 1_000_000)?;
    in_range("timeout_s", endpoint.timeout_s, 1, 3600)?;
    in_range("query_timeout_ms", endpoint.query_timeout_ms, 1, 600_000)?;
    in_range("patience_s", endpoint.patience_s, 0, 86_400)?;
    // Written so that NaN fails too.
    if !(endpoint.weight > 0.0 && endpoint.weight <= 100.0) {
        bail!(
            "embedders.{name}.weight is {}, it must be above 0 and at most 100",
            endpoint.weight
        );
    }
    match endpoint.price_per_million_tokens {
        Some(price) if !(price >= 0.0 && price.is_finite()) => {
            bail!("embedders.{name}.price_per_million_tokens is {price}, it must be from 0")
        }
        _ => Ok(()),
    }
}

/// Settings are serialized to be shown.
fn serialize_masked<S: Serializer>(address: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&masked(address))
}

/// A key, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key itself, to be sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ApiKey {
    fn from(key: &str) -> Self {
        known_secrets::add(key);
        ApiKey(key.to_owned())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::super::{Layer, Settings};
    use super::*;

    fn resolve(file: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let environment = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::resolve(Layer::default(), Some(Path::new(&path)), &environment)
    }

    fn models(names: &[&str]) -> EmbedderKind {
        EmbedderKind::Models(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn names_are_parsed_and_written_alike() {
        for (text, kind) in [
            ("auto", EmbedderKind::Auto),
            ("table+minilm", EmbedderKind::Minilm),
            ("bge-m3+table", models(&["bge-m3"])),
            ("bge-m3", models(&["bge-m3"])),
            ("minilm+bge-m3", models(&["minilm", "bge-m3"])),
            // As answers name them.
            ("static-table+tool-encoder", models(&["encoder"])),
            ("http://h:1#m", models(&["http://h:1#m"])),
        ] {
            let parsed: EmbedderKind = text.parse().unwrap();
            assert_eq!(parsed, kind, "{text}");
            assert_eq!(parsed.to_string().parse::<EmbedderKind>().unwrap(), kind);
        }
        for (text, label) in [
            ("minilm", "table+minilm"),
            ("bge-m3+table", "table+bge-m3"),
            ("auto", "auto"),
        ] {
            assert_eq!(text.parse::<EmbedderKind>().unwrap().label(), label);
        }
        for (text, expected) in [
            ("auto+bge-m3", "auto cannot be used together"),
            ("bge-m3+bge-m3", "named twice"),
            ("bge-m3+", "empty name"),
        ] {
            let error = text.parse::<EmbedderKind>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_endpoint_is_a_table_of_its_own_or_has_a_name() {
        let file = "[embedder]\nurl = 'http://h:1'\nmodel = 'm'\nkey_env = 'K'";
        let settings = resolve(file, &[("K", "secret")]).unwrap();
        assert_eq!(settings.embedder, models(&["endpoint"]));
        let endpoint = &settings.embedders["endpoint"];
        assert_eq!(endpoint.model.as_deref(), Some("m"));
        assert_eq!(endpoint.key.as_ref().map(ApiKey::expose), Some("secret"));
        let shown = format!("{settings:?} {}", serde_json::json!(settings));
        assert!(!shown.contains("secret"), "{shown}");

        // Logs and answers mask it from now on.
        let settings = resolve(file, &[("K", "key-of-the-embedder")]).unwrap();
        assert!(settings.embedders["endpoint"].key.is_some());
        let masked = known_secrets::mask("refused: key-of-the-embedder");
        assert!(!masked.contains("key-of-the-embedder"), "{masked}");

        let file = "embedder = 'ours'\n[embedders.ours]\nurl = 'http://h:1'\nbatch = 7";
        let settings = resolve(file, &[]).unwrap();
        assert_eq!(settings.embedder, models(&["ours"]));
        assert_eq!(settings.embedders["ours"].batch, 7);
        let settings = resolve(file, &[("TOOLSCOUT_EMBEDDER", "table")]).unwrap();
        assert_eq!(settings.embedder, EmbedderKind::Table);
    }

    #[test]
    fn what_is_wrong_with_an_endpoint_is_named() {
        for (file, expected) in [
            ("[embedder]\nmodel = 'm'", "missing field `url`"),
            ("[embedder]\nurl = 'http://h'\nmodle = 'm'", "`modle`"),
            ("[embedders.a]\nurl = 'h:1'", "embedders.a.url is \"h:1\""),
            (
                "[embedders.a]\nurl = 'http://h'\nbatch = 0",
                "embedders.a.batch is 0",
            ),
            ("[embedders.auto]\nurl = 'http://h'", "use another name"),
            (
                "[embedders.a]\nurl = 'http://h'\nrequest_dimensions = true",
                "needs",
            ),
            ("embedder = 'ours'", "unknown embedder \"ours\""),
            ("embedder = 7", "a name, or a table"),
        ] {
            let message = resolve(file, &[]).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn the_model_of_a_url_follows_a_hash() {
        let endpoint = EndpointSettings::of_url("http://h:1/v1#org/m");
        assert_eq!(endpoint.url, "http://h:1/v1");
        assert_eq!(endpoint.model.as_deref(), Some("org/m"));
        assert_eq!(EndpointSettings::of_url("http://h:1#").model, None);
    }
}
