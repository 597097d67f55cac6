//! Catalogs whose tools are in a search engine that somebody else runs: the tables `[catalogs.NAME]`.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use reqwest::Url;
use serde::{Deserialize, Serialize, Serializer};

use super::{ApiKey, Environment, masked};

/// Most servers of one address.
const MAX_SERVERS: usize = 8;
/// Most catalogs with a table of their own.
const MAX_CATALOGS: usize = 1000;
/// Tools that are looked for, for each query, and within which it may be set.
const DEFAULT_CANDIDATES: usize = 500;
const CANDIDATES: std::ops::RangeInclusive<usize> = 50..=2000;
/// Milliseconds that one request of a search may take.
const DEFAULT_TIMEOUT_MS: u64 = 2000;
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 50..=60_000;
/// Fields that words are looked for in, and the longest name of one.
const MAX_SEARCHED: usize = 16;
const MAX_FIELD_CHARS: usize = 200;
/// Longest name of an index: one that toolscout writes gets a suffix, and 255 bytes are the limit.
const MAX_INDEX_BYTES: usize = 200;
const FORM: &str = "write elasticsearch://HOST:PORT/INDEX or opensearch://HOST:PORT/INDEX, \
                    or elasticsearch+http://HOST:PORT/INDEX without TLS";

/// What runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExternalProduct {
    /// Elasticsearch 8 or 9.
    Elasticsearch,
    /// OpenSearch 2 or 3.
    OpenSearch,
}

/// Who fills the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExternalMode {
    /// Somebody else, or another toolscout: this one only searches it.
    #[default]
    Read,
    /// `toolscout external write`, from the catalog in the data directory.
    Write,
}

/// The address of an index, as `elasticsearch://a:9200,b:9200/index`. A user or a password in it is refused.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ExternalAddress(String);

/// An address, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIndex {
    /// What runs there.
    pub product: ExternalProduct,
    /// Its servers.
    pub servers: Vec<Url>,
    /// The index, or an alias of one.
    pub index: String,
}

impl ExternalAddress {
    /// Whatever was given; [`ExternalAddress::read`] says what is wrong with it.
    pub fn new(text: impl Into<String>) -> Self {
        ExternalAddress(text.into())
    }

    /// Its parts.
    ///
    /// # Errors
    /// What is wrong with it, without the address.
    pub fn read(&self) -> Result<ExternalIndex> {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            bail!("it is not a URL; {FORM}");
        };
        let (product, transport) = match scheme {
            "elasticsearch" => (ExternalProduct::Elasticsearch, "https"),
            "elasticsearch+http" => (ExternalProduct::Elasticsearch, "http"),
            "opensearch" => (ExternalProduct::OpenSearch, "https"),
            "opensearch+http" => (ExternalProduct::OpenSearch, "http"),
            _ => bail!("it has the unknown scheme {scheme:?}; {FORM}"),
        };
        if rest.contains(['@', '?', '#']) {
            bail!(
                "it has a user, a query or a fragment; use key_env, or user with password_env; {FORM}"
            );
        }
        let Some((hosts, index)) = rest.trim_end_matches('/').split_once('/') else {
            bail!("it names no index; {FORM}");
        };
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            match Url::parse(&format!("{transport}://{host}/")) {
                Ok(url) if !host.is_empty() && url.host_str().is_some() => servers.push(url),
                _ => bail!("its server {host:?} is none; {FORM}"),
            }
        }
        if servers.len() > MAX_SERVERS {
            bail!(
                "it names {} servers; name {MAX_SERVERS} at most",
                servers.len()
            );
        }
        check_index(index)?;
        Ok(ExternalIndex {
            product,
            servers,
            index: index.to_owned(),
        })
    }
}

impl ExternalIndex {
    /// Whether both are the same index: they share its name and a server.
    fn is_same(&self, other: &ExternalIndex) -> bool {
        self.index == other.index && self.servers.iter().any(|url| other.servers.contains(url))
    }
}

/// The rules that both products have for the name of an index, without those for patterns.
fn check_index(index: &str) -> Result<()> {
    let legal =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let begins_well = index.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !begins_well || index.len() > MAX_INDEX_BYTES || !index.chars().all(legal) {
        bail!(
            "its index {index:?} has another form than 1 to {MAX_INDEX_BYTES} small letters, digits, `-`, `_` or `.`, \
             beginning with a letter or a digit"
        );
    }
    Ok(())
}

impl fmt::Display for ExternalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for ExternalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ExternalAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The fields of an index that somebody else fills.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldMapping {
    /// The keyword field with the name, which is unique within its server.
    pub name: String,
    /// The keyword field with the server.
    pub server: Option<String>,
    /// The server of documents without that field; none by default.
    pub default_server: String,
    /// The field with the description.
    pub description: Option<String>,
    /// The field with the title.
    pub title: Option<String>,
    /// The field with the JSON Schema of the arguments, as an object or as text.
    pub schema: Option<String>,
    /// The keyword field with the tags.
    pub tags: Option<String>,
    /// The text fields that words are looked for in, each with a weight behind `^` if it has one.
    pub search: Vec<String>,
    /// The field with a vector of the document.
    pub vector: Option<String>,
    /// The embedder whose model made these vectors, by the id that `toolscout stats` shows.
    pub vector_embedder: Option<String>,
}

/// The table `[catalogs.NAME]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalSettings {
    /// The index.
    pub store: ExternalAddress,
    /// Who fills it.
    #[serde(default)]
    pub mode: ExternalMode,
    /// The environment variable with an API key.
    pub key_env: Option<String>,
    /// The user of a password.
    pub user: Option<String>,
    /// The environment variable with the password.
    pub password_env: Option<String>,
    /// Read from these variables.
    #[serde(skip)]
    pub secret: Option<ApiKey>,
    /// Tools that are looked for, for each query.
    #[serde(default = "default_candidates")]
    pub candidates: usize,
    /// Milliseconds that one request of a search may take.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// The fields of an index that toolscout did not write.
    pub fields: Option<FieldMapping>,
}

fn default_candidates() -> usize {
    DEFAULT_CANDIDATES
}

fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

impl ExternalSettings {
    /// An index that toolscout has written, at this address, without a key.
    pub fn new(store: &str) -> Self {
        ExternalSettings {
            store: ExternalAddress::new(store),
            mode: ExternalMode::Read,
            key_env: None,
            user: None,
            password_env: None,
            secret: None,
            candidates: DEFAULT_CANDIDATES,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            fields: None,
        }
    }

    /// What one request of a search may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// The variable that holds the secret, if one is named.
    pub fn secret_env(&self) -> Option<&str> {
        self.key_env.as_deref().or(self.password_env.as_deref())
    }

    /// Reads the secret from its variable.
    pub(super) fn read_secret(&mut self, environment: Environment<'_>) {
        let value = self.secret_env().and_then(environment);
        let value = value.and_then(|value| value.into_string().ok());
        let value = value.filter(|value| !value.is_empty());
        self.secret = value.as_deref().map(ApiKey::from);
    }

    fn check(&self) -> Result<()> {
        if let Err(problem) = self.store.read() {
            bail!("store is {}: {problem}", self.store);
        }
        if self.user.is_some() != self.password_env.is_some() {
            bail!("user and password_env need each other; set both or none");
        }
        if self.key_env.is_some() && self.user.is_some() {
            bail!("it has both key_env and user; keep one of them");
        }
        let (candidates, timeout_ms) = (self.candidates, self.timeout_ms);
        if !CANDIDATES.contains(&candidates) {
            let (least, most) = CANDIDATES.into_inner();
            bail!("candidates is {candidates}, it must be from {least} to {most}");
        }
        if !TIMEOUT_MS.contains(&timeout_ms) {
            let (least, most) = TIMEOUT_MS.into_inner();
            bail!("timeout_ms is {timeout_ms}, it must be from {least} to {most}");
        }
        if let Some(fields) = &self.fields {
            if self.mode == ExternalMode::Write {
                bail!(
                    "mode is \"write\", for which toolscout chooses the fields; remove the table fields"
                );
            }
            fields.check()?;
        }
        Ok(())
    }
}

impl FieldMapping {
    fn check(&self) -> Result<()> {
        if self.name.is_empty() {
            bail!("fields.name is missing; name the keyword field with the name of a tool");
        }
        if self.search.is_empty() || self.search.len() > MAX_SEARCHED {
            bail!(
                "fields.search has {} fields; name 1 to {MAX_SEARCHED} text fields",
                self.search.len()
            );
        }
        let optional = [
            &self.server,
            &self.description,
            &self.title,
            &self.schema,
            &self.tags,
            &self.vector,
        ];
        let named = optional.into_iter().flatten().chain([&self.name]);
        for field in named.chain(&self.search) {
            if field.is_empty() || field.len() > MAX_FIELD_CHARS || field.contains(['*', '"', '\\'])
            {
                bail!("fields names {field:?}; write the name of one field");
            }
        }
        if self.vector.is_some() != self.vector_embedder.is_some() {
            bail!("fields.vector and fields.vector_embedder need each other; set both or none");
        }
        Ok(())
    }
}

/// Checks the tables.
///
/// # Errors
/// A message with the key and its value.
pub(super) fn validate<'a>(
    tables: impl ExactSizeIterator<Item = (&'a String, &'a ExternalSettings)>,
) -> Result<()> {
    if tables.len() > MAX_CATALOGS {
        bail!(
            "catalogs has {} tables; {MAX_CATALOGS} is the most",
            tables.len()
        );
    }
    let mut written: Vec<(&String, ExternalIndex)> = Vec::new();
    for (name, settings) in tables {
        if let Err(problem) = settings.check() {
            bail!("catalogs.{name}: {problem}");
        }
        if settings.mode != ExternalMode::Write {
            continue;
        }
        let index = settings.store.read()?;
        if let Some((other, _)) = written.iter().find(|(_, before)| before.is_same(&index)) {
            bail!(
                "catalogs.{name} and catalogs.{other} write the same index {:?}; name another index in one of them",
                index.index
            );
        }
        written.push((name, index));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(store: &str) -> String {
        let settings = ExternalSettings::new(store);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn an_address_names_servers_and_an_index() {
        let address = ExternalAddress::new("opensearch+http://a:9200,b.example/tools-1/");
        let read = address.read().unwrap();
        assert_eq!(read.product, ExternalProduct::OpenSearch);
        let servers: Vec<&str> = read.servers.iter().map(Url::as_str).collect();
        assert_eq!(servers, ["http://a:9200/", "http://b.example/"]);
        assert_eq!(read.index, "tools-1");
        let secure = ExternalAddress::new("elasticsearch://a/tools")
            .read()
            .unwrap();
        assert_eq!(secure.servers[0].as_str(), "https://a/");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_next_step() {
        for (store, said) in [
            ("tools", "not a URL"),
            ("solr://a/tools", "unknown scheme \"solr\""),
            ("elasticsearch://a", "names no index"),
            ("elasticsearch://,b/tools", "server \"\""),
            ("elasticsearch://a/Tools", "index \"Tools\""),
            ("elasticsearch://a/tools*", "index \"tools*\""),
            ("elasticsearch://u:p@a/tools", "key_env"),
        ] {
            let problem = problem(store);
            assert!(problem.contains(said), "{store}: {problem}");
        }
        assert!(!problem("elasticsearch://u:secret@a/tools").contains("secret"));
    }

    #[test]
    fn two_catalogs_do_not_write_the_same_index() {
        let writes = |store: &str| ExternalSettings {
            mode: ExternalMode::Write,
            ..ExternalSettings::new(store)
        };
        let (one, two) = ("one".to_owned(), "two".to_owned());
        let first = writes("elasticsearch://a,b/tools");
        for (second, is_refused) in [
            (writes("elasticsearch://b/tools"), true),
            (writes("elasticsearch://b/tools-2"), false),
            (writes("elasticsearch://c/tools"), false),
            (ExternalSettings::new("elasticsearch://a/tools"), false),
        ] {
            let checked = validate([(&one, &first), (&two, &second)].into_iter());
            assert_eq!(checked.is_err(), is_refused, "{}", second.store);
        }
    }
}
