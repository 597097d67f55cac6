//! Feedback in the database of a data directory.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rusqlite::{Connection, params};
use toolscout_index::database::{self, DatabaseError};

use super::{FeedbackError, FeedbackRecord, FeedbackTable, by_query};

/// The database of feedback, beside the catalogs in the data directory.
const FILE_NAME: &str = "feedback.db";

/// Its name in earlier versions.
const FORMER_FILE_NAME: &str = "feedback.sqlite";

/// The migrations of the database.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE IF NOT EXISTS feedback (
        id INTEGER PRIMARY KEY,
        catalog TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        request_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        outcome TEXT NOT NULL,
        query TEXT
    ) STRICT;
    CREATE INDEX IF NOT EXISTS feedback_by_catalog ON feedback (catalog, id);",
    "
    CREATE TABLE IF NOT EXISTS signer (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL) STRICT;
    INSERT OR IGNORE INTO signer VALUES (1, randomblob(32));",
];

/// The feedback of one data directory.
pub(super) struct LocalFeedback {
    connection: Mutex<Connection>,
}

impl LocalFeedback {
    /// Opens the file, created if necessary, and reads the secret that signs answers. The first server
    /// of a data directory creates it, and all use it.
    pub(super) fn open(data_dir: &Path) -> anyhow::Result<(Self, [u8; 32])> {
        let path: PathBuf = data_dir.join(FILE_NAME);
        let former = data_dir.join(FORMER_FILE_NAME);
        let opened = database::open_renamed(&path, &former, MIGRATIONS).and_then(with_secret);
        match opened {
            Ok((connection, secret)) => {
                let connection = Mutex::new(connection);
                Ok((LocalFeedback { connection }, secret))
            }
            Err(error) => Err(anyhow::anyhow!("{}: {error}", path.display())),
        }
    }

    pub(super) fn exists(data_dir: &Path) -> bool {
        data_dir.join(FILE_NAME).exists() || data_dir.join(FORMER_FILE_NAME).exists()
    }

    pub(super) fn set_secret(&self, secret: &[u8; 32]) -> Result<(), FeedbackError> {
        self.with(|connection| {
            connection
                .execute("UPDATE signer SET secret = ?1", [secret])
                .map(drop)
        })
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, FeedbackError> {
        let mut connection = self.connection.lock();
        Ok(work(&mut connection)?)
    }
}

fn with_secret(connection: Connection) -> Result<(Connection, [u8; 32]), DatabaseError> {
    let secret = connection.query_row("SELECT secret FROM signer", [], |row| row.get(0))?;
    Ok((connection, secret))
}

impl FeedbackTable for LocalFeedback {
    fn called(&self, catalog: &str) -> Result<Vec<(String, Vec<String>)>, FeedbackError> {
        self.with(|connection| {
            let mut rows = connection.prepare(
                "SELECT DISTINCT trim(query), tool FROM feedback
                 WHERE catalog = ?1 AND outcome <> 'not_helpful' AND trim(coalesce(query, '')) <> '' ORDER BY 1, 2",
            )?;
            let pairs = rows.query_map([catalog], |row| Ok((row.get(0)?, row.get(1)?)))?;
            by_query(pairs)
        })
    }

    fn forget(&self, catalog: &str) -> Result<(), FeedbackError> {
        self.with(|connection| {
            // Deleted rows stay readable in the write-ahead log until it is truncated.
            connection.execute("DELETE FROM feedback WHERE catalog = ?1", [catalog])?;
            // While another process reads, the log is truncated by a later checkpoint.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
    }

    fn insert(
        &self,
        catalog: &str,
        record: &FeedbackRecord,
        at_ms: i64,
        max_records: usize,
    ) -> Result<(), FeedbackError> {
        self.with(|connection| {
            let change = connection.transaction()?;
            change.prepare_cached(
                "INSERT INTO feedback (catalog, at_ms, request_id, tool, outcome, query) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![catalog, at_ms, record.request_id, record.tool, record.outcome.name(), record.query])?;
            change.prepare_cached(
                "DELETE FROM feedback WHERE catalog = ?1 AND id <= (
                     SELECT id FROM feedback WHERE catalog = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            )?
            .execute(params![catalog, max_records as i64])?;
            change.commit()
        })
    }
}
