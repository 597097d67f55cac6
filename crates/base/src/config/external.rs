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
const FORM: &str = "write elasticsearch://HOST:PORT/INDEX, opensearch://HOST:PORT/INDEX, qdrant://HOST:PORT/COLLECTION or pgvector://HOST:PORT/DATABASE/TABLE; \
                    without TLS, write elasticsearch+http, opensearch+http, qdrant+http or pgvector+plain before it";

/// What runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExternalProduct {
    /// Elasticsearch 8 or 9.
    Elasticsearch,
    /// OpenSearch 2 or 3.
    OpenSearch,
    /// Qdrant.
    Qdrant,
    /// A table of PostgreSQL with vectors of pgvector.
    Pgvector,
}

impl ExternalProduct {
    /// All of them.
    pub const ALL: [ExternalProduct; 4] = [
        ExternalProduct::Elasticsearch,
        ExternalProduct::OpenSearch,
        ExternalProduct::Qdrant,
        ExternalProduct::Pgvector,
    ];

    /// As its makers write it.
    pub fn name(self) -> &'static str {
        match self {
            ExternalProduct::Elasticsearch => "Elasticsearch",
            ExternalProduct::OpenSearch => "OpenSearch",
            ExternalProduct::Qdrant => "Qdrant",
            ExternalProduct::Pgvector => "PostgreSQL with pgvector",
        }
    }

    /// What an address has behind its scheme where it speaks without TLS.
    fn without_tls(self) -> &'static str {
        match self {
            ExternalProduct::Pgvector => "plain",
            _ => "http",
        }
    }

    /// The scheme of an address.
    fn scheme(self) -> &'static str {
        match self {
            ExternalProduct::Elasticsearch => "elasticsearch",
            ExternalProduct::OpenSearch => "opensearch",
            ExternalProduct::Qdrant => "qdrant",
            ExternalProduct::Pgvector => "pgvector",
        }
    }

    fn of_scheme(scheme: &str) -> Option<Self> {
        let mut all = ExternalProduct::ALL.into_iter();
        all.find(|product| product.scheme() == scheme)
    }
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
    /// Whether it speaks with TLS.
    pub has_tls: bool,
    /// The index, or an alias of one; of pgvector the database and the table, with `/` between them.
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
        let (name, suffix) = scheme.split_once('+').unwrap_or((scheme, ""));
        let product = ExternalProduct::of_scheme(name);
        let product =
            product.filter(|product| matches!(suffix, "") || suffix == product.without_tls());
        let Some(product) = product else {
            bail!("it has the unknown scheme {scheme:?}; {FORM}");
        };
        let has_tls = suffix.is_empty();
        let transport = match (product, has_tls) {
            (ExternalProduct::Pgvector, _) => "postgres",
            (_, true) => "https",
            (_, false) => "http",
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
        match product {
            ExternalProduct::Qdrant => check_collection(index)?,
            ExternalProduct::Pgvector => check_table(index, servers.len())?,
            _ => check_index(index)?,
        }
        Ok(ExternalIndex {
            product,
            servers,
            has_tls,
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

/// The rules that Elasticsearch and OpenSearch have for the name of an index, without those for patterns.
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

/// A part of what Qdrant allows, which needs no escaping in a path.
fn check_collection(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if !begins_well || name.len() > MAX_INDEX_BYTES || !name.chars().all(legal) {
        bail!(
            "its collection {name:?} has another form than 1 to {MAX_INDEX_BYTES} letters, digits, `-`, `_` or `.`, \
             beginning with a letter, a digit or `_`"
        );
    }
    Ok(())
}

/// A database and a table, whose names are quoted later.
fn check_table(name: &str, servers: usize) -> Result<()> {
    let legal = |part: &str| {
        !part.is_empty() && part.len() <= 128 && !part.contains(['"', '%', '/', '\0', '\\'])
    };
    let is_legal = name
        .split_once('/')
        .is_some_and(|(database, table)| legal(database) && table.split('.').all(legal));
    if !is_legal {
        bail!("its table {name:?} has another form than DATABASE/TABLE or DATABASE/SCHEMA.TABLE");
    }
    if servers > 1 {
        bail!("it names {servers} servers; name one, or a proxy before them");
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
        let index = match self.store.read() {
            Ok(index) => index,
            Err(problem) => bail!("store is {}: {problem}", self.store),
        };
        if index.product == ExternalProduct::Pgvector {
            self.check_of_table()?;
        }
        if index.product == ExternalProduct::Qdrant && self.user.is_some() {
            bail!("Qdrant knows no users; set key_env instead of user and password_env");
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
            fields.check(index.product)?;
        }
        Ok(())
    }

    /// What toolscout only reads has names of columns.
    fn check_of_table(&self) -> Result<()> {
        if self.mode == ExternalMode::Write {
            bail!(
                "mode is \"write\", and toolscout only reads tables of pgvector; set it to \"read\", or use --store for \
                 tables that toolscout writes"
            );
        }
        if self.key_env.is_some() {
            bail!("PostgreSQL knows no keys; set user and password_env instead of key_env");
        }
        if self.fields.is_none() {
            bail!("the table fields is missing; name the columns of the table in it");
        }
        Ok(())
    }
}

impl FieldMapping {
    fn check(&self, product: ExternalProduct) -> Result<()> {
        if self.name.is_empty() {
            bail!("fields.name is missing; name the keyword field with the name of a tool");
        }
        // A table may have vectors alone.
        let needs_words = product != ExternalProduct::Pgvector || self.vector.is_none();
        if (self.search.is_empty() && needs_words) || self.search.len() > MAX_SEARCHED {
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
