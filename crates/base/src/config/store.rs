//! The address of the store that several nodes share, and how a node is known there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use reqwest::Url;
use serde::{Deserialize, Serialize, Serializer};

use super::masked;
use super::word::UnknownWord;
use crate::known_secrets;

/// The schema that holds the tables, unless a setting names another.
pub const DEFAULT_SCHEMA: &str = "toolscout";
/// For how many days the store remembers what was removed, unless a setting says otherwise.
const DEFAULT_MEMORY_DAYS: u32 = 7;
/// Most days that a setting may say.
const MAX_MEMORY_DAYS: u32 = 3650;

/// The most tools of a catalog that nodes have copies of, unless a setting says otherwise: some
/// gigabytes of memory.
const DEFAULT_ABOVE: u64 = 300_000;
/// Tools that are looked for, for each query, in a catalog that is pushed down, unless a setting says
/// otherwise, and within which it may be set.
const DEFAULT_CANDIDATES: usize = 300;
const CANDIDATES: std::ops::RangeInclusive<usize> = 50..=2000;

/// What an address may have after `?`. Anything else is refused: PostgreSQL's client would write it
/// to the log, and it may be a secret under a wrong name.
const PARAMETERS: [&str; 13] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

/// The parameter that says which of several servers is wanted.
const WANTED_SERVER: &str = "target_session_attrs";
/// Its values that name the primary, where everything but reading has to go.
const PRIMARY: [&str; 2] = ["read-write", "primary"];
/// Most servers of one address. All are asked at once for the primary.
const MAX_SERVERS: usize = 8;

/// The URL of a PostgreSQL database. It may have a password, so it is shown only masked.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StoreAddress(String);

impl StoreAddress {
    /// Whatever was given; [`StoreSettings::check`] says what is wrong with it.
    pub fn new(text: impl Into<String>) -> Self {
        StoreAddress(text.into())
    }

    /// The URL with its password, for the connection alone.
    pub fn secret(&self) -> &str {
        // From here on it may turn up in errors and logs, where its password has to be masked.
        for server in self.servers().into_iter().flatten() {
            known_secrets::add(server.url.password().unwrap_or_default());
        }
        &self.0
    }

    /// Its servers: `postgres://u@a:5432,b:5432/d` names two, as with PostgreSQL's own clients.
    /// `None` where it is not a URL.
    pub fn servers(&self) -> Option<Vec<StoreServer>> {
        let (scheme, rest) = self.0.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let mut url = Url::parse(&format!("{scheme}://{user}{host}{tail}")).ok()?;
            leave_out(&mut url, WANTED_SERVER);
            let name = host.to_owned();
            servers.push(StoreServer { name, url });
        }
        Some(servers)
    }

    /// Whether it has a password in it.
    pub fn has_password(&self) -> bool {
        let Some(servers) = self.servers() else {
            // What cannot be read may have one.
            return self.0.contains('@');
        };
        servers.iter().any(StoreServer::has_password)
    }

    fn check(&self) -> Result<()> {
        let form = "write postgres://USER@HOST:PORT/DATABASE";
        let Some(servers) = self.servers() else {
            bail!("store {self} is not a URL; {form}");
        };
        if servers.len() > MAX_SERVERS {
            let count = servers.len();
            bail!("store {self} names {count} servers; name {MAX_SERVERS} at most");
        }
        // A single server may be named by the parameter `host`.
        if servers.len() > 1 && servers.iter().any(|server| server.name.is_empty()) {
            bail!("store {self} has a server without a name between its commas; {form}");
        }
        for server in &servers {
            self.check_server(server, form)?;
        }
        Ok(())
    }

    fn check_server(&self, server: &StoreServer, form: &str) -> Result<()> {
        let url = &server.url;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            bail!("store {self} is not the address of a PostgreSQL database; {form}");
        }
        for (key, value) in url.query_pairs() {
            if !PARAMETERS.contains(&&*key) {
                let known = PARAMETERS.join(", ");
                bail!("store {self} has the unknown parameter {key:?}; known are {known}");
            }
            if matches!(&*key, "host" | "hostaddr" | "port") && value.contains(',') {
                bail!(
                    "store {self} has several values of {key:?}; name several servers before the database, as in \
                     postgres://USER@HOST:PORT,HOST:PORT/DATABASE"
                );
            }
        }
        self.check_wanted_server()
    }

    /// Writes need the primary, so there is nothing to choose.
    fn check_wanted_server(&self) -> Result<()> {
        let Some((_, query)) = self.0.split_once('?') else {
            return Ok(());
        };
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        match pairs.find(|(key, _)| *key == WANTED_SERVER) {
            Some((_, value)) if !PRIMARY.contains(&value) => bail!(
                "store {self} has the {WANTED_SERVER} {value:?}; writes need read-write. To read from a standby set \
                 store_reads = \"standby\""
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.rsplit_once('@') {
            // Not a URL, and still perhaps with a password.
            Some((_, rest)) if !self.0.contains("://") => write!(f, "***@{rest}"),
            _ => f.write_str(&masked(&self.0)),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StoreAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One server of an address.
#[derive(Clone, Debug)]
pub struct StoreServer {
    /// Host and port, as they were written.
    pub name: String,
    /// The address with this server alone. It may have a password.
    pub url: Url,
}

impl StoreServer {
    fn has_password(&self) -> bool {
        let mut parameters = self.url.query_pairs();
        self.url.password().is_some() || parameters.any(|(key, _)| key == "password")
    }
}

fn leave_out(url: &mut Url, parameter: &str) {
    let mut kept = Vec::new();
    for (key, value) in url.query_pairs() {
        if key != parameter {
            kept.push((key.into_owned(), value.into_owned()));
        }
    }
    // Without parameters there must be no `?` at the end either.
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
}

/// Where nodes read what has changed. Writes always go to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreReads {
    /// From the primary.
    #[default]
    Primary,
    /// From a standby that has it; otherwise from the primary.
    Standby,
}

impl FromStr for StoreReads {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "primary" => Ok(StoreReads::Primary),
            "standby" => Ok(StoreReads::Standby),
            _ => Err(UnknownWord::new("primary or standby")),
        }
    }
}

/// The store of several nodes; without an address there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoreSettings {
    /// The database.
    pub store: Option<StoreAddress>,
    /// A file with the password, in place of one in the address or the environment.
    pub store_password_file: Option<PathBuf>,
    /// The schema of the tables. Clusters with different ones may share a database.
    pub store_schema: Option<String>,
    /// Where nodes read what has changed; without it from the primary.
    pub store_reads: Option<StoreReads>,
    /// For how many days the store remembers what was removed; without it 7. The copy of a node that
    /// was away for longer is made anew.
    pub store_memory_days: Option<u32>,
    /// Catalogs of more tools than this are pushed down: nodes have no copies of them, and tools are
    /// looked for in the store. Without it those of more than 300,000.
    pub push_down_above: Option<u64>,
    /// How many tools of such a catalog are looked for, for each query; without it 300.
    pub push_down_candidates: Option<usize>,
    /// The name of this node in `toolscout store status`; the machine's name without one.
    pub node: Option<String>,
}

impl StoreSettings {
    /// These values; absent ones from the other ones.
    pub fn or(self, other: StoreSettings) -> Self {
        StoreSettings {
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

    /// For how many days the store remembers what was removed.
    pub fn memory_days(&self) -> u32 {
        self.store_memory_days.unwrap_or(DEFAULT_MEMORY_DAYS)
    }

    /// The most tools of a catalog that nodes have copies of.
    pub fn above(&self) -> u64 {
        self.push_down_above.unwrap_or(DEFAULT_ABOVE)
    }

    /// How many tools are looked for, for each query, in a catalog that is pushed down.
    pub fn candidates(&self) -> usize {
        self.push_down_candidates.unwrap_or(DEFAULT_CANDIDATES)
    }

    /// The schema of the tables.
    pub fn schema(&self) -> &str {
        self.store_schema.as_deref().unwrap_or(DEFAULT_SCHEMA)
    }

    /// Checks every value.
    ///
    /// # Errors
    /// Names the value without a password, and what would be right.
    pub fn check(&self) -> Result<()> {
        if let Some(store) = &self.store {
            store.check()?;
        }
        let schema = self.schema();
        // It becomes a part of PostgreSQL's `search_path`, without quotation marks.
        let is_plain = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
        let starts_well = schema.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts_well || schema.len() > 40 || !schema.chars().all(is_plain) {
            bail!(
                "store_schema is {schema:?}; use 1 to 40 small letters, digits or `_`, starting with a letter"
            );
        }
        let days = self.memory_days();
        if !(1..=MAX_MEMORY_DAYS).contains(&days) {
            bail!("store_memory_days is {days}, it must be from 1 to {MAX_MEMORY_DAYS}");
        }
        let candidates = self.candidates();
        if !CANDIDATES.contains(&candidates) {
            let (least, most) = (CANDIDATES.start(), CANDIDATES.end());
            bail!("push_down_candidates is {candidates}, it must be from {least} to {most}");
        }
        if let Some(node) = &self.node
            && (node.trim().is_empty()
                || node.chars().count() > 100
                || node.chars().any(char::is_control))
        {
            bail!("node is {node:?}; use 1 to 100 printable characters");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(store: &str) -> StoreSettings {
        StoreSettings {
            store: Some(StoreAddress::new(store)),
            ..StoreSettings::default()
        }
    }

    #[test]
    fn a_password_is_noticed_and_never_shown() {
        for (address, has_password) in [
            ("postgres://u@h/d", false),
            ("postgres://u:secret@h/d", true),
            ("postgres://h/d?user=u&password=secret", true),
            ("postgres://h/d?sslmode=require", false),
            ("postgres://u@a:1,b:2/d", false),
            ("postgres://u:secret@a:1,b:2/d", true),
            ("postgres://u@a,b/d?target_session_attrs=read-write", false),
        ] {
            let address = StoreAddress::new(address);
            assert_eq!(address.has_password(), has_password, "{address}");
            let shown = format!("{address} {address:?} {}", serde_json::json!(address));
            assert!(!shown.contains("secret"), "{shown}");
            settings(address.secret()).check().unwrap();
        }
    }

    #[test]
    fn an_address_names_one_server_or_several() {
        let address =
            "postgres://u:p%40@a:1,[::1]:2,c/d?sslmode=require&target_session_attrs=read-write";
        let address = StoreAddress::new(address);
        settings(address.secret()).check().unwrap();
        let servers = address.servers().unwrap();
        let found: Vec<(&str, &str)> = servers
            .iter()
            .map(|server| (server.name.as_str(), server.url.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("a:1", "postgres://u:p%40@a:1/d?sslmode=require"),
                ("[::1]:2", "postgres://u:p%40@[::1]:2/d?sslmode=require"),
                ("c", "postgres://u:p%40@c/d?sslmode=require"),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (address, expected) in [
            ("mysql://u:secret@h/d", "PostgreSQL"),
            ("u:secret@h", "not a URL"),
            ("", "not a URL"),
            ("postgres://u@h/d?passwd=secret", "unknown parameter"),
            ("postgres://a,,b/d", "without a name"),
            ("postgres://u:secret@a,,b/d", "not a URL"),
            ("postgres://u:secret@a:1,b:x/d", "not a URL"),
            ("postgres://u@a,b,c,d,e,f,g,h,i/d", "9 servers"),
            ("postgres://u@h/d?host=a,b", "several values"),
            (
                "postgres://u@a,b/d?target_session_attrs=standby",
                "store_reads",
            ),
        ] {
            let message = settings(address).check().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        for schema in ["", "Tools", "1a", "a-b", "a\"; DROP TABLE x"] {
            let settings = StoreSettings {
                store_schema: Some(schema.to_owned()),
                ..StoreSettings::default()
            };
            let message = settings.check().unwrap_err().to_string();
            assert!(message.contains("store_schema"), "{message}");
        }
    }
}
