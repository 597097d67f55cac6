//! What a node has of the keys of the store: those that were valid when it last asked. So a request
//! does not ask the store, and known keys go on working for a while when it is away.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use toolscout_index::database;

use super::local::{LocalKeys, NAMES, PROFILES, SCHEMA, find, put};
use super::{KeyError, StoredKey};
use toolscout_base::clock::unix_s;

/// How long known keys are accepted while the store is away: a key may have been revoked meanwhile.
pub const TRUST: Duration = Duration::from_secs(60 * 60);
/// How often the time of the last answer is stored, for a node that starts while the store is away.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// The state of the store that the copy has.
const FOLLOWED: &str = "
    CREATE TABLE followed (
        once INTEGER PRIMARY KEY CHECK (once = 1),
        source TEXT NOT NULL,
        generation INTEGER NOT NULL,
        is_in_use INTEGER NOT NULL,
        confirmed_at INTEGER NOT NULL
    ) STRICT;";

/// Keys that were copied before they had profiles may be bound to some: all are copied anew.
const COPIED_ANEW: &str = "DELETE FROM keys; DELETE FROM followed;";

/// A node's copy of the keys of the store.
pub struct KeyCopy {
    keys: LocalKeys,
    confirmed: Mutex<Confirmed>,
}

/// When the store last said what is valid.
struct Confirmed {
    at: Option<Instant>,
    /// When that was stored.
    noted: Option<Instant>,
    /// True once this process has asked the store, whether it answered or not: what was valid when
    /// the process before ended may have been revoked since.
    is_asked: bool,
}

impl KeyCopy {
    /// Opens the copy in a folder; creates it if necessary.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Database`].
    pub fn open(folder: &Path) -> Result<Self, KeyError> {
        let steps = [SCHEMA, FOLLOWED, PROFILES, COPIED_ANEW, NAMES];
        let keys = LocalKeys::open_with(folder, |path| database::open(path, &steps))?;
        let confirmed_at = keys.with(|connection| {
            connection
                .query_row("SELECT confirmed_at FROM followed", [], |row| row.get(0))
                .optional()
        })?;
        Ok(KeyCopy {
            keys,
            confirmed: Mutex::new(Confirmed {
                at: confirmed_at.and_then(instant_of),
                noted: None,
                is_asked: false,
            }),
        })
    }

    /// The generation of this source that it has; `None` if it has none.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn generation(&self, source: &str) -> Result<Option<i64>, KeyError> {
        self.keys.with(|connection| {
            connection
                .prepare_cached("SELECT generation FROM followed WHERE source = ?1")?
                .query_row([source], |row| row.get(0))
                .optional()
        })
    }

    /// Takes the keys that have changed up to a generation of the source. `is_whole` says that there
    /// are no others.
    ///
    /// # Errors
    /// [`KeyError::Database`]; nothing is changed then.
    pub fn apply(
        &self,
        source: &str,
        generation: i64,
        changed: &[StoredKey],
        is_whole: bool,
    ) -> Result<(), KeyError> {
        // All keys are checked against the same time.
        let now = SystemTime::now();
        self.keys.with(|connection| {
            let transaction = connection.transaction()?;
            if is_whole {
                transaction.execute("DELETE FROM keys", [])?;
            }
            for stored in changed {
                remove(&transaction, &stored.key.id)?;
                // An invalid key is not copied, so that the store is asked and the refusal has its
                // reason.
                if stored.key.is_valid(now) {
                    put(&transaction, stored)?;
                }
            }
            // Once there was a key, the server stays locked, even if all keys are revoked. Only another
            // store starts over.
            transaction.execute(
                "INSERT INTO followed VALUES (1, ?1, ?2, ?3, ?4)
                 ON CONFLICT (once) DO UPDATE SET source = ?1, generation = ?2, confirmed_at = ?4,
                     is_in_use = max(?3, is_in_use * (source = ?1))",
                params![source, generation, !changed.is_empty(), unix_s(now)],
            )?;
            transaction.commit()
        })?;
        self.confirm()
    }

    /// The store has answered, and has nothing that this copy lacks.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn confirm(&self) -> Result<(), KeyError> {
        let now = Instant::now();
        {
            let mut confirmed = self.lock();
            confirmed.at = Some(now);
            confirmed.is_asked = true;
            if let Some(noted) = confirmed.noted
                && noted.elapsed() < NOTE_EVERY
            {
                return Ok(());
            }
            confirmed.noted = Some(now);
        }
        // Stored as time of day: an `Instant` means nothing to the next process.
        let confirmed_at = unix_s(SystemTime::now());
        self.keys.with(|connection| {
            connection.execute("UPDATE followed SET confirmed_at = ?1", [confirmed_at])
        })?;
        Ok(())
    }

    /// The store was asked, and does not answer: the copy counts until it does.
    pub fn note_away(&self) {
        self.lock().is_asked = true;
    }

    /// A valid key; `None` for any other, and for all once the store has been away for [`TRUST`].
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn find(&self, id: &str) -> Result<Option<StoredKey>, KeyError> {
        if !self.is_trusted() {
            return Ok(None);
        }
        let found = self.keys.with(|connection| find(connection, id))?;
        Ok(found.filter(|stored| stored.key.is_valid(SystemTime::now())))
    }

    fn is_trusted(&self) -> bool {
        let confirmed = self.lock();
        match confirmed.at {
            Some(at) => confirmed.is_asked && at.elapsed() < TRUST,
            None => false,
        }
    }

    /// Whether there was a key; `None` where the store has to be asked. Once there was one, there
    /// always is. A cluster without keys stays open while the store is away.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn is_in_use(&self) -> Result<Option<bool>, KeyError> {
        let is_in_use: Option<bool> = self.keys.with(|connection| {
            connection
                .prepare_cached("SELECT is_in_use FROM followed")?
                .query_row([], |row| row.get(0))
                .optional()
        })?;
        let is_asked = self.lock().is_asked;
        Ok(is_in_use.filter(|is_in_use| *is_in_use || is_asked))
    }

    /// Adds a key that this node has created, before it follows.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn add(&self, stored: &StoredKey) -> Result<(), KeyError> {
        self.keys.with(|connection| {
            let transaction = connection.transaction()?;
            // In one transaction, so that the server is never open while the key exists.
            transaction.execute("UPDATE followed SET is_in_use = 1", [])?;
            remove(&transaction, &stored.key.id)?;
            put(&transaction, stored)?;
            transaction.commit()
        })
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn forget(&self, id: &str) -> Result<(), KeyError> {
        self.keys
            .with(|connection| remove(connection, id))
            .map(drop)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Confirmed> {
        self.confirmed.lock()
    }
}

/// The instant of a Unix time; `None` for one to come, since the clock was wrong then or is now.
fn instant_of(confirmed_at: u64) -> Option<Instant> {
    let age = unix_s(SystemTime::now()).checked_sub(confirmed_at)?;
    Instant::now().checked_sub(Duration::from_secs(age))
}

fn remove(connection: &Connection, id: &str) -> rusqlite::Result<usize> {
    connection.execute("DELETE FROM keys WHERE id = ?1", [id])
}
