//! The address of the store that several nodes share, and how a node is known there.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};
use reqwest::Url;
use serde::{Deserialize, Serialize, Serializer};

use super::masked;

/// The schema that holds the tables, unless a setting names another.
pub const DEFAULT_SCHEMA: &str = "toolscout";

/// What an address may have after `?`. Anything else is refused: PostgreSQL's client would write it
/// to the log, and it may be a secret under a wrong name.
const PARAMETERS: [&str; 12] = [
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
    "user",
];

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
        &self.0
    }

    /// Whether it has a password in it.
    pub fn has_password(&self) -> bool {
        match Url::parse(&self.0) {
            Ok(url) => {
                url.password().is_some() || url.query_pairs().any(|(key, _)| key == "password")
            }
            // What cannot be read may have one.
            Err(_) => self.0.contains('@'),
        }
    }

    fn check(&self) -> Result<()> {
        let form = "write postgres://USER@HOST:PORT/DATABASE";
        let Ok(url) = Url::parse(&self.0) else {
            bail!("store {self} is not a URL; {form}");
        };
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            bail!("store {self} is not the address of a PostgreSQL database; {form}");
        }
        let is_known = |key: &str| PARAMETERS.contains(&key);
        if let Some((key, _)) = url.query_pairs().find(|(key, _)| !is_known(key)) {
            let known = PARAMETERS.join(", ");
            bail!("store {self} has the unknown parameter {key:?}; known are {known}");
        }
        Ok(())
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

/// The store of several nodes; without an address there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoreSettings {
    /// The database.
    pub store: Option<StoreAddress>,
    /// A file with the password, in place of one in the address or the environment.
    pub store_password_file: Option<PathBuf>,
    /// The schema of the tables. Clusters with different ones may share a database.
    pub store_schema: Option<String>,
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
            node: self.node.or(other.node),
        }
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
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts_well = schema.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts_well || schema.len() > 40 || !schema.chars().all(is_plain) {
            bail!(
                "store_schema is {schema:?}; use 1 to 40 small letters, digits or `_`, starting with a letter"
            );
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
        ] {
            let address = StoreAddress::new(address);
            assert_eq!(address.has_password(), has_password, "{address}");
            let shown = format!("{address} {address:?} {}", serde_json::json!(address));
            assert!(!shown.contains("secret"), "{shown}");
            settings(address.secret()).check().unwrap();
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (address, expected) in [
            ("mysql://u:secret@h/d", "PostgreSQL"),
            ("u:secret@h", "not the address"),
            ("", "not a URL"),
            ("postgres://u@h/d?passwd=secret", "unknown parameter"),
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
