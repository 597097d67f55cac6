//! The versions of profiles: what each profile of a settings file said, and which of them is in use.
//!
//! A change of the file becomes a version when a program applies the file. A roll-back is a further version
//! with the rules of an earlier one. The newest version is in use. A roll-back therefore lasts until the file
//! changes what it says about the profile, also over restarts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use toolscout_base::clock::unix_ms;
use toolscout_base::config::ProfileSettings;
use toolscout_index::database::{self, DatabaseError};

/// The database in the data directory.
pub const FILE_NAME: &str = "profiles.db";
/// Versions of a profile that are kept; the oldest are removed.
pub const MAX_VERSIONS: u64 = 50;
/// Characters of a digest.
const DIGEST_CHARS: usize = 16;

const LAYOUT: &[&str] = &["
    CREATE TABLE versions (
        file TEXT NOT NULL,
        profile TEXT NOT NULL,
        number INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        digest TEXT NOT NULL,
        rolled_back_to INTEGER,
        settings TEXT NOT NULL,
        PRIMARY KEY (file, profile, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE applied (
        file TEXT NOT NULL,
        profile TEXT NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (file, profile)
    ) STRICT, WITHOUT ROWID;"];

/// Why versions cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum VersionsError {
    /// The database cannot be used.
    #[error("{}: {source}; check the file and the space on its disk", path.display())]
    Database {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: DatabaseError,
    },
    /// A version that is not kept.
    #[error(
        "profile {profile:?} has no version {number}; `toolscout profiles history {profile}` lists those that are kept"
    )]
    UnknownVersion {
        /// The profile.
        profile: String,
        /// The version.
        number: u64,
    },
    /// A version that another program wrote.
    #[error(
        "version {number} of profile {profile:?} cannot be read: {reason}; take another version"
    )]
    Unreadable {
        /// The profile.
        profile: String,
        /// The version.
        number: u64,
        /// Why.
        reason: String,
    },
}

/// A version of a profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileVersion {
    /// Its number, from 1.
    pub version: u64,
    /// When it came into use, in Unix milliseconds.
    pub at_ms: u64,
    /// The beginning of the SHA-256 of its settings.
    pub digest: String,
    /// The version whose settings it has, if it is a roll-back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<u64>,
    /// What the profile says.
    pub settings: ProfileSettings,
}

/// The digest of the settings of a profile.
pub fn digest(settings: &ProfileSettings) -> String {
    let mut digest = hex::encode(Sha256::digest(json(settings)));
    digest.truncate(DIGEST_CHARS);
    digest
}

fn json(settings: &ProfileSettings) -> String {
    // Names of fields and texts always become JSON.
    serde_json::to_string(settings).unwrap_or_default()
}

/// The versions of the profiles of one settings file, in a data directory. Methods block.
pub struct ProfileVersions {
    connection: Mutex<Connection>,
    path: PathBuf,
    /// The settings file: two files may have profiles of one name.
    file: String,
}

impl ProfileVersions {
    /// Opens the versions of this settings file; creates the database if it does not exist.
    ///
    /// # Errors
    /// [`VersionsError::Database`].
    pub fn open(data: &Path, file: Option<&Path>) -> Result<Self, VersionsError> {
        let path = data.join(FILE_NAME);
        let file = file.map(|file| file.canonicalize().unwrap_or_else(|_| file.to_owned()));
        let file = file.unwrap_or_default().to_string_lossy().into_owned();
        match database::open(&path, LAYOUT) {
            Ok(connection) => Ok(ProfileVersions {
                connection: Mutex::new(connection),
                path,
                file,
            }),
            Err(source) => Err(VersionsError::Database { path, source }),
        }
    }

    /// As [`ProfileVersions::open`], without creating anything; `None` if there is no database.
    ///
    /// # Errors
    /// [`VersionsError::Database`].
    pub fn open_existing(data: &Path, file: Option<&Path>) -> Result<Option<Self>, VersionsError> {
        match data.join(FILE_NAME).exists() {
            true => ProfileVersions::open(data, file).map(Some),
            false => Ok(None),
        }
    }

    /// Applies the profiles of the file: one that the file has changed since it was last applied gets a
    /// version. Returns the versions in use.
    ///
    /// # Errors
    /// [`VersionsError::Database`], [`VersionsError::Unreadable`].
    pub fn apply(
        &self,
        profiles: &BTreeMap<String, ProfileSettings>,
    ) -> Result<BTreeMap<String, ProfileVersion>, VersionsError> {
        self.change(|change| {
            for (profile, settings) in profiles {
                let digest = digest(settings);
                let is_applied = self.applied(change, profile)?.as_deref() == Some(&digest);
                // What another program wrote must not keep this one from starting: the file is applied again.
                if is_applied && self.has_readable_newest(change, profile)? {
                    continue;
                }
                self.add(change, profile, settings, None)?;
                change.execute(
                    "INSERT OR REPLACE INTO applied VALUES (?1, ?2, ?3)",
                    params![self.file, profile, digest],
                )?;
            }
            Ok(())
        })?;
        let mut in_use = BTreeMap::new();
        for profile in profiles.keys() {
            if let Some(newest) = self.history(profile, 1)?.into_iter().next() {
                in_use.insert(profile.clone(), newest);
            }
        }
        Ok(in_use)
    }

    /// The version that a program with these settings of a profile uses, without applying them; `None` if
    /// they are not applied yet.
    ///
    /// # Errors
    /// As [`ProfileVersions::apply`].
    pub fn in_use(
        &self,
        profile: &str,
        settings: &ProfileSettings,
    ) -> Result<Option<ProfileVersion>, VersionsError> {
        let applied = self.read(|connection| self.applied(connection, profile))?;
        if applied.as_deref() != Some(&digest(settings)) {
            return Ok(None);
        }
        Ok(self.history(profile, 1)?.into_iter().next())
    }

    /// The newest versions of a profile, the newest first.
    ///
    /// # Errors
    /// [`VersionsError::Database`], [`VersionsError::Unreadable`].
    pub fn history(&self, profile: &str, most: u64) -> Result<Vec<ProfileVersion>, VersionsError> {
        let rows = self.read(|connection| self.newest(connection, profile, most))?;
        rows.into_iter().map(|row| read(profile, row)).collect()
    }

    fn newest(
        &self,
        connection: &Connection,
        profile: &str,
        most: u64,
    ) -> rusqlite::Result<Vec<Raw>> {
        let mut rows = connection.prepare_cached(
            "SELECT number, at_ms, digest, rolled_back_to, settings FROM versions
             WHERE file = ?1 AND profile = ?2 ORDER BY number DESC LIMIT ?3",
        )?;
        let rows = rows.query_map(params![self.file, profile, most as i64], raw)?;
        rows.collect()
    }

    fn has_readable_newest(
        &self,
        connection: &Connection,
        profile: &str,
    ) -> rusqlite::Result<bool> {
        let newest = self.newest(connection, profile, 1)?.into_iter().next();
        match newest.map(|row| read(profile, row)) {
            Some(Err(error)) => {
                tracing::warn!(%error, "the settings file takes the place of this version");
                Ok(false)
            }
            newest => Ok(newest.is_some()),
        }
    }

    /// A version of a profile.
    ///
    /// # Errors
    /// [`VersionsError::UnknownVersion`], and those of [`ProfileVersions::history`].
    pub fn version(&self, profile: &str, number: u64) -> Result<ProfileVersion, VersionsError> {
        let row = self.read(|connection| {
            let mut rows = connection.prepare_cached(
                "SELECT number, at_ms, digest, rolled_back_to, settings FROM versions
                 WHERE file = ?1 AND profile = ?2 AND number = ?3",
            )?;
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            rows.query_row(params![self.file, profile, number], raw)
                .optional()
        })?;
        match row {
            Some(row) => read(profile, row),
            None => Err(VersionsError::UnknownVersion {
                profile: profile.to_owned(),
                number,
            }),
        }
    }

    /// Takes an earlier version of a profile into use, as a new version.
    ///
    /// # Errors
    /// As [`ProfileVersions::version`].
    pub fn roll_back(&self, profile: &str, number: u64) -> Result<ProfileVersion, VersionsError> {
        let earlier = self.version(profile, number)?;
        self.change(|change| self.add(change, profile, &earlier.settings, Some(number)))?;
        let newest = self.history(profile, 1)?.into_iter().next();
        newest.ok_or_else(|| VersionsError::UnknownVersion {
            profile: profile.to_owned(),
            number,
        })
    }

    /// A number that changes when another connection writes.
    ///
    /// # Errors
    /// [`VersionsError::Database`].
    pub fn data_version(&self) -> Result<i64, VersionsError> {
        self.read(|connection| connection.query_row("PRAGMA data_version", [], |row| row.get(0)))
    }

    fn applied(&self, connection: &Connection, profile: &str) -> rusqlite::Result<Option<String>> {
        connection
            .prepare_cached("SELECT digest FROM applied WHERE file = ?1 AND profile = ?2")?
            .query_row(params![self.file, profile], |row| row.get(0))
            .optional()
    }

    fn add(
        &self,
        change: &Transaction<'_>,
        profile: &str,
        settings: &ProfileSettings,
        rolled_back_to: Option<u64>,
    ) -> rusqlite::Result<()> {
        change.execute(
            "INSERT INTO versions SELECT ?1, ?2, coalesce(max(number), 0) + 1, ?3, ?4, ?5, ?6
             FROM versions WHERE file = ?1 AND profile = ?2",
            params![
                self.file,
                profile,
                unix_ms(SystemTime::now()) as i64,
                digest(settings),
                rolled_back_to.map(|number| number as i64),
                json(settings),
            ],
        )?;
        change.execute(
            "DELETE FROM versions WHERE file = ?1 AND profile = ?2 AND number <= (
                 SELECT max(number) FROM versions WHERE file = ?1 AND profile = ?2) - ?3",
            params![self.file, profile, MAX_VERSIONS as i64],
        )?;
        Ok(())
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, VersionsError> {
        let connection = self.connection.lock();
        work(&connection).map_err(|error| self.failed(error))
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, VersionsError> {
        let mut connection = self.connection.lock();
        let done = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|change| {
                let done = work(&change)?;
                change.commit()?;
                Ok(done)
            });
        done.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> VersionsError {
        VersionsError::Database {
            path: self.path.clone(),
            source: error.into(),
        }
    }
}

/// A version as stored: number, time, digest, roll-back, settings.
type Raw = (i64, i64, String, Option<i64>, String);

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<Raw> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
    ))
}

fn read(profile: &str, row: Raw) -> Result<ProfileVersion, VersionsError> {
    let (number, at_ms, digest, rolled_back_to, settings) = row;
    let version = number.unsigned_abs();
    match serde_json::from_str(&settings) {
        Ok(settings) => Ok(ProfileVersion {
            version,
            at_ms: at_ms.unsigned_abs(),
            digest,
            rolled_back_to: rolled_back_to.map(i64::unsigned_abs),
            settings,
        }),
        Err(error) => Err(VersionsError::Unreadable {
            profile: profile.to_owned(),
            number: version,
            reason: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles(limit: usize) -> BTreeMap<String, ProfileSettings> {
        let settings = ProfileSettings {
            limit: Some(limit),
            ..ProfileSettings::default()
        };
        BTreeMap::from([("team".to_owned(), settings)])
    }

    #[test]
    fn a_roll_back_lasts_until_the_file_changes() {
        let data = tempfile::tempdir().unwrap();
        let versions = ProfileVersions::open(data.path(), None).unwrap();
        let in_use = |limit: usize| {
            let version = versions.apply(&profiles(limit)).unwrap().remove("team");
            let version = version.unwrap();
            (version.version, version.settings.limit)
        };
        assert_eq!(in_use(1), (1, Some(1)));
        assert_eq!(in_use(1), (1, Some(1)));
        assert_eq!(in_use(2), (2, Some(2)));
        let rolled_back = versions.roll_back("team", 1).unwrap();
        assert_eq!(
            (rolled_back.version, rolled_back.rolled_back_to),
            (3, Some(1))
        );
        assert_eq!(rolled_back.digest, digest(&profiles(1)["team"]));
        // The file still says 2, as when it was last applied.
        assert_eq!(in_use(2), (3, Some(1)));
        assert_eq!(in_use(1), (4, Some(1)));
        assert_eq!(in_use(3), (5, Some(3)));
        let error = versions.roll_back("team", 9).unwrap_err().to_string();
        assert!(error.contains("profiles history team"), "{error}");
    }

    #[test]
    fn versions_are_bounded_and_belong_to_their_file() {
        let data = tempfile::tempdir().unwrap();
        let versions = ProfileVersions::open(data.path(), None).unwrap();
        for limit in 1..=60 {
            versions.apply(&profiles(limit)).unwrap();
        }
        let history = versions.history("team", 100).unwrap();
        let numbers: Vec<u64> = history.iter().map(|version| version.version).collect();
        assert_eq!(numbers, (11..=60).rev().collect::<Vec<u64>>());
        let file = Path::new("other.toml");
        let other = ProfileVersions::open(data.path(), Some(file)).unwrap();
        assert!(other.history("team", 100).unwrap().is_empty());
        let before = versions.data_version().unwrap();
        other.apply(&profiles(1)).unwrap();
        assert_ne!(versions.data_version().unwrap(), before);
        assert_eq!(other.in_use("team", &profiles(2)["team"]).unwrap(), None);
    }

    #[test]
    fn a_version_that_cannot_be_read_holds_up_no_other() {
        let data = tempfile::tempdir().unwrap();
        let versions = ProfileVersions::open(data.path(), None).unwrap();
        let spoil = |number: u64| {
            let spoil = "UPDATE versions SET settings = '{\"later\": 1}' WHERE number = ?1";
            let changed = versions.connection.lock().execute(spoil, [number as i64]);
            assert_eq!(changed.unwrap(), 1);
        };
        for limit in 1..=3 {
            versions.apply(&profiles(limit)).unwrap();
        }
        spoil(2);
        assert_eq!(versions.roll_back("team", 1).unwrap().version, 4);
        let error = versions.roll_back("team", 2).unwrap_err().to_string();
        assert!(error.contains("version 2 of profile \"team\""), "{error}");
        // The newest one too: then the file counts.
        spoil(4);
        let in_use = versions.apply(&profiles(3)).unwrap();
        assert_eq!(
            (in_use["team"].version, in_use["team"].settings.limit),
            (5, Some(3))
        );
    }
}
