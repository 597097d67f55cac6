//! Keys in SQLite: those of a data directory, and a node's copy of those of the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use toolscout_index::database;

use super::{
    Catalogs, Key, KeyError, KeyTable, Scopes, StoredKey, profiles_as_text, profiles_of_text,
};

/// The database of keys, beside the catalogs in the data directory.
pub const FILE_NAME: &str = "keys.db";

/// Its name in earlier versions.
const FORMER_FILE_NAME: &str = "keys.sqlite";

pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS keys (
        id TEXT PRIMARY KEY,
        hash BLOB NOT NULL,
        scope TEXT NOT NULL,
        catalogs TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) STRICT;";

/// The profiles that a key is bound to.
pub(super) const PROFILES: &str = "ALTER TABLE keys ADD COLUMN profiles TEXT NOT NULL DEFAULT '';";

/// What a key is called, and when it was last used.
pub(super) const NAMES: &str =
    "ALTER TABLE keys ADD COLUMN name TEXT; ALTER TABLE keys ADD COLUMN last_used_at INTEGER;";

/// The columns of a key without its hash.
const COLUMNS: &str =
    "id, name, scope, catalogs, profiles, created_at, expires_at, revoked_at, last_used_at";

/// Number of keys that are accepted at `:now`, as [`Key::is_valid`] says.
const COUNT_VALID: &str =
    "SELECT count(*) FROM keys WHERE revoked_at IS NULL AND coalesce(expires_at > :now, 1)";

/// Revokes a key unless it is the last that is accepted at `:now` and may do everything, as
/// [`Key::operates`] says. One statement, so that of two requests for the last two keys one is
/// refused.
const REVOKE_UNLESS_LAST: &str = "
    WITH operators AS (
        SELECT id FROM keys
        WHERE revoked_at IS NULL AND coalesce(expires_at > :now, 1) AND catalogs = '*'
            AND profiles = '' AND instr(',' || scope || ',', ',admin,') > 0)
    UPDATE keys SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id
        AND (id NOT IN operators OR EXISTS (SELECT 1 FROM operators WHERE id <> :id))";

/// The keys of one data directory.
pub(super) struct LocalKeys {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl LocalKeys {
    pub(super) fn open(data_dir: &Path) -> Result<Self, KeyError> {
        let former = data_dir.join(FORMER_FILE_NAME);
        LocalKeys::open_with(data_dir, |path| {
            database::open_renamed(path, &former, &[SCHEMA, PROFILES, NAMES])
        })
    }

    /// Opens the file in a folder, which is created if necessary.
    pub(super) fn open_with(
        folder: &Path,
        open: impl FnOnce(&Path) -> Result<Connection, database::DatabaseError>,
    ) -> Result<Self, KeyError> {
        if let Err(source) = database::create_private_dir(folder) {
            let path = folder.to_owned();
            return Err(KeyError::Io { path, source });
        }
        let path = folder.join(FILE_NAME);
        match open(&path) {
            Ok(connection) => Ok(LocalKeys {
                path,
                connection: Mutex::new(connection),
            }),
            Err(source) => Err(KeyError::Database { path, source }),
        }
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, KeyError> {
        match work(&mut self.connection.lock()) {
            Ok(value) => Ok(value),
            Err(source) => Err(KeyError::Database {
                path: self.path.clone(),
                source: source.into(),
            }),
        }
    }
}

impl KeyTable for LocalKeys {
    fn insert(&self, stored: &StoredKey) -> Result<(), KeyError> {
        self.with(|connection| put(connection, stored)).map(drop)
    }

    fn list(&self) -> Result<Vec<Key>, KeyError> {
        self.with(|connection| {
            let sql = format!("SELECT {COLUMNS} FROM keys ORDER BY created_at, id");
            let mut statement = connection.prepare_cached(&sql)?;
            statement.query_map([], key_of)?.collect()
        })
    }

    fn find(&self, id: &str) -> Result<Option<StoredKey>, KeyError> {
        self.with(|connection| find(connection, id))
    }

    fn revoke(&self, id: &str, now_s: u64) -> Result<bool, KeyError> {
        let update = "UPDATE keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";
        let found = self.with(|connection| connection.execute(update, params![id, now_s]));
        Ok(found? > 0)
    }

    fn revoke_unless_last(&self, id: &str, now_s: u64) -> Result<bool, KeyError> {
        let parameters = named_params! { ":id": id, ":now": now_s };
        let changed = self.with(|connection| connection.execute(REVOKE_UNLESS_LAST, parameters));
        Ok(changed? > 0)
    }

    fn count_valid(&self, now_s: u64) -> Result<usize, KeyError> {
        self.with(|connection| {
            connection
                .prepare_cached(COUNT_VALID)?
                .query_row(named_params! { ":now": now_s }, |row| row.get(0))
        })
    }

    fn note_uses(&self, uses: &BTreeMap<String, u64>) -> Result<(), KeyError> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            for (id, used_at) in uses {
                transaction
                    .prepare_cached(
                        "UPDATE keys SET last_used_at = ?2
                         WHERE id = ?1 AND coalesce(last_used_at, 0) < ?2",
                    )?
                    .execute(params![id, used_at])?;
            }
            transaction.commit()
        })
    }

    fn is_in_use(&self) -> Result<bool, KeyError> {
        self.with(|connection| {
            connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM keys)")?
                .query_row([], |row| row.get(0))
        })
    }
}

/// Adds a key.
pub(super) fn put(connection: &Connection, stored: &StoredKey) -> rusqlite::Result<usize> {
    // `revoked_at` stays NULL.
    let StoredKey { key, hash } = stored;
    connection.execute(
        "INSERT INTO keys (id, hash, scope, catalogs, profiles, created_at, expires_at, name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            key.id,
            hash,
            key.scopes.to_string(),
            key.catalogs.to_string(),
            profiles_as_text(&key.profiles),
            key.created_at,
            key.expires_at,
            key.name
        ],
    )
}

pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<StoredKey>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS}, hash FROM keys WHERE id = ?1"))?
        .query_row([id], |row| {
            Ok(StoredKey {
                key: key_of(row)?,
                hash: row.get("hash")?,
            })
        })
        .optional()
}

fn key_of(row: &Row<'_>) -> rusqlite::Result<Key> {
    let scopes: String = row.get("scope")?;
    let catalogs: String = row.get("catalogs")?;
    let profiles: String = row.get("profiles")?;
    Ok(Key {
        id: row.get("id")?,
        name: row.get("name")?,
        scopes: Scopes::read(&scopes),
        catalogs: Catalogs::read(&catalogs),
        profiles: profiles_of_text(&profiles),
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        revoked_at: row.get("revoked_at")?,
        last_used_at: row.get("last_used_at")?,
    })
}
