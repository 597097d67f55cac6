//! Feedback: which tool was used for which search. One database for all catalogs of a data
//! directory, with the secret that signs the answers to searches.

mod token;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use toolscout_index::database;
use utoipa::ToSchema;

use crate::clock::unix_ms;

pub use token::{MAX_BYTES as MAX_TOKEN_BYTES, SearchContext, Signer, VerifiedAnswer};

/// The database of feedback, beside the catalogs in the data directory.
const FILE_NAME: &str = "feedback.db";

/// Its name in earlier versions.
const FORMER_FILE_NAME: &str = "feedback.sqlite";

/// Most records of a catalog, about 200 bytes each. New ones replace the oldest.
const MAX_RECORDS: usize = 100_000;

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

/// The outcome of a found tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was called.
    #[default]
    Used,
    /// It was the right tool.
    Helpful,
    /// It was not the right tool.
    NotHelpful,
}

/// Feedback on one tool of an answer.
#[derive(Clone, Debug)]
pub struct FeedbackRecord {
    /// The id of the request that was answered.
    pub request_id: String,
    /// The id of the tool.
    pub tool: String,
    /// How useful it was.
    pub outcome: Outcome,
    /// The query, if the client wants it stored.
    pub query: Option<String>,
}

impl FeedbackRecord {
    /// The query that a usage memory learns from: of a tool that served a request, not of one that
    /// did not. [`FeedbackStore::called`] selects the same ones.
    pub fn learned_query(&self) -> Option<&str> {
        let query = self.query.as_deref()?;
        (self.outcome != Outcome::NotHelpful && !query.trim().is_empty()).then_some(query)
    }
}

/// The feedback of one data directory.
#[derive(Clone)]
pub struct FeedbackStore {
    connection: Arc<Mutex<Connection>>,
    max_records: usize,
    /// Signs the answers to searches.
    signer: Signer,
}

impl FeedbackStore {
    /// Opens the feedback of a data directory; creates the file if necessary.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let path: PathBuf = data_dir.join(FILE_NAME);
        let opened = database::open_renamed(&path, &data_dir.join(FORMER_FILE_NAME), MIGRATIONS)
            .and_then(|connection| Ok((secret(&connection)?, connection)));
        let (secret, connection) =
            opened.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        Ok(FeedbackStore {
            connection: Arc::new(Mutex::new(connection)),
            max_records: MAX_RECORDS,
            signer: Signer::new(secret),
        })
    }

    /// True when a data directory has feedback.
    pub fn exists(data_dir: &Path) -> bool {
        [FILE_NAME, FORMER_FILE_NAME]
            .iter()
            .any(|name| data_dir.join(name).exists())
    }

    /// The signer of the answers to searches.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The queries in the feedback of a catalog, each with the ids of the tools that were used or
    /// helpful. A tool may have been removed since.
    ///
    /// # Errors
    /// When the database fails.
    pub fn called(&self, catalog: &str) -> rusqlite::Result<Vec<(String, Vec<String>)>> {
        self.with(|connection| {
            let mut rows = connection.prepare(
                "SELECT DISTINCT trim(query), tool FROM feedback
                 WHERE catalog = ?1 AND outcome <> 'not_helpful' AND trim(coalesce(query, '')) <> '' ORDER BY 1, 2",
            )?;
            let mut called: Vec<(String, Vec<String>)> = Vec::new();
            for row in rows.query_map([catalog], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))? {
                let (query, tool) = row?;
                // The rows are sorted by query.
                match called.last_mut().filter(|(known, _)| *known == query) {
                    Some((_, tools)) => tools.push(tool),
                    None => called.push((query, vec![tool])),
                }
            }
            Ok(called)
        })
    }

    /// Deletes the feedback of a catalog, from the database's write-ahead log too. Blocks.
    ///
    /// # Errors
    /// When the database fails.
    pub fn forget(&self, catalog: &str) -> rusqlite::Result<()> {
        self.with(|connection| {
            connection.execute("DELETE FROM feedback WHERE catalog = ?1", [catalog])?;
            // While another process reads, the log is truncated by a later checkpoint.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
    }

    /// Stores a record, and deletes the catalog's oldest where it has too many. Blocks.
    ///
    /// # Errors
    /// When the database fails.
    pub fn insert(
        &self,
        catalog: &str,
        record: &FeedbackRecord,
        now: SystemTime,
    ) -> rusqlite::Result<()> {
        let at_ms = unix_ms(now);
        let outcome = serde_json::to_value(record.outcome)
            .ok()
            .and_then(|outcome| Some(outcome.as_str()?.to_owned()));
        self.with(|connection| {
            let change = connection.transaction()?;
            change.prepare_cached(
                "INSERT INTO feedback (catalog, at_ms, request_id, tool, outcome, query) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![catalog, at_ms, record.request_id, record.tool, outcome, record.query])?;
            change.prepare_cached(
                "DELETE FROM feedback WHERE catalog = ?1 AND id <= (
                     SELECT id FROM feedback WHERE catalog = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            )?
            .execute(params![catalog, self.max_records as i64])?;
            change.commit()
        })
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        work(
            &mut self
                .connection
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// The secret that signs answers. The first server of a data directory creates it, and all use it.
fn secret(connection: &Connection) -> rusqlite::Result<[u8; 32]> {
    connection.query_row("SELECT secret FROM signer", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(
        request_id: &str,
        tool: &str,
        outcome: Outcome,
        query: Option<&str>,
    ) -> FeedbackRecord {
        FeedbackRecord {
            request_id: request_id.into(),
            tool: tool.into(),
            outcome,
            query: query.map(str::to_owned),
        }
    }

    fn rows(store: &FeedbackStore) -> Vec<String> {
        let read = |connection: &mut Connection| {
            let mut rows = connection
                .prepare("SELECT catalog || request_id || outcome FROM feedback ORDER BY id")?;
            rows.query_map([], |row| row.get(0))?.collect()
        };
        store.with(read).unwrap()
    }

    #[test]
    fn called_lists_the_useful_tools_of_each_query_of_one_catalog() {
        let dir = tempfile::tempdir().unwrap();
        let store = FeedbackStore::open(dir.path()).unwrap();
        let called = |tool, outcome, query| record("r", tool, outcome, query);
        for (catalog, feedback) in [
            ("a", called("s/t", Outcome::Used, Some("mail it "))),
            ("a", called("s/t", Outcome::Used, Some("mail it"))),
            ("a", called("s/u", Outcome::Helpful, Some("mail it"))),
            ("a", called("s/v", Outcome::NotHelpful, Some("mail it"))),
            ("a", called("s/t", Outcome::Used, None)),
            ("b", called("s/w", Outcome::Used, Some("other"))),
        ] {
            store.insert(catalog, &feedback, SystemTime::now()).unwrap();
        }
        assert_eq!(
            store.called("a").unwrap(),
            [(
                "mail it".to_owned(),
                vec!["s/t".to_owned(), "s/u".to_owned()]
            )]
        );
        assert!(store.called("none").unwrap().is_empty());
    }

    #[test]
    fn new_records_replace_the_oldest_of_their_own_catalog() {
        let dir = tempfile::tempdir().unwrap();
        let store = FeedbackStore {
            max_records: 2,
            ..FeedbackStore::open(dir.path()).unwrap()
        };
        for (catalog, id) in [("b", "0"), ("a", "1"), ("a", "2"), ("a", "3")] {
            let record = record(id, "s/t", Outcome::NotHelpful, Some("q"));
            store.insert(catalog, &record, SystemTime::now()).unwrap();
        }
        assert_eq!(
            rows(&store),
            ["b0not_helpful", "a2not_helpful", "a3not_helpful"]
        );
        store.forget("a").unwrap();
        assert_eq!(rows(&store), ["b0not_helpful"]);
    }
}
