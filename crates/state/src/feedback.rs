//! Feedback: which tool was used for which search. One database for all catalogs of a data
//! directory, with the secret that signs the answers to searches.

mod local;
mod token;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use toolscout_base::clock::unix_ms;

use local::LocalFeedback;
pub use token::{MAX_BYTES as MAX_TOKEN_BYTES, SearchContext, Signer, VerifiedAnswer};

/// Most records of a catalog, about 200 bytes each. New ones replace the oldest.
const MAX_RECORDS: usize = 100_000;

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

impl Outcome {
    /// The outcome as it is written in JSON and in databases.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Used => "used",
            Outcome::Helpful => "helpful",
            Outcome::NotHelpful => "not_helpful",
        }
    }
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

/// Why feedback cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    /// The database of the data directory failed.
    #[error(
        "the database of feedback cannot be used: {0}; check the file and the space on its disk"
    )]
    Database(#[from] rusqlite::Error),
    /// The store that several nodes share cannot be asked.
    #[error("the store of feedback cannot be used now: {reason}")]
    Unavailable {
        /// What the store answered, or why it did not.
        reason: String,
    },
}

/// Where feedback is stored: in a data directory, or in the store that several nodes share. Methods
/// block.
pub trait FeedbackTable: Send + Sync {
    /// As [`FeedbackStore::called`].
    ///
    /// # Errors
    /// [`FeedbackError`].
    fn called(&self, catalog: &str) -> Result<Vec<(String, Vec<String>)>, FeedbackError>;

    /// As [`FeedbackStore::forget`].
    ///
    /// # Errors
    /// [`FeedbackError`].
    fn forget(&self, catalog: &str) -> Result<(), FeedbackError>;

    /// Stores a record, and deletes the catalog's oldest beyond `max_records`.
    ///
    /// # Errors
    /// [`FeedbackError`].
    fn insert(
        &self,
        catalog: &str,
        record: &FeedbackRecord,
        at_ms: i64,
        max_records: usize,
    ) -> Result<(), FeedbackError>;
}

/// The feedback of one data directory, or of a store. Cheap to clone.
#[derive(Clone)]
pub struct FeedbackStore {
    local: Arc<LocalFeedback>,
    /// The store that several nodes share, in place of the data directory.
    shared: Option<Arc<dyn FeedbackTable>>,
    max_records: usize,
    /// Signs the answers to searches.
    signer: Arc<RwLock<Signer>>,
}

impl FeedbackStore {
    /// Opens the feedback of a data directory; creates the file if necessary.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let (local, secret) = LocalFeedback::open(data_dir)?;
        Ok(FeedbackStore {
            local: Arc::new(local),
            shared: None,
            max_records: MAX_RECORDS,
            signer: Arc::new(RwLock::new(Signer::new(secret))),
        })
    }

    /// Stores feedback in this table; what the data directory has stays there. Its secret signs until
    /// [`FeedbackStore::set_secret`] was called.
    pub fn over(self, table: Arc<dyn FeedbackTable>) -> Self {
        FeedbackStore {
            shared: Some(table),
            ..self
        }
    }

    /// True when a data directory has feedback.
    pub fn exists(data_dir: &Path) -> bool {
        LocalFeedback::exists(data_dir)
    }

    /// The signer of the answers to searches.
    pub fn signer(&self) -> Signer {
        self.signer.read().clone()
    }

    /// Signs with this secret from now on, also after a restart.
    ///
    /// # Errors
    /// [`FeedbackError::Database`].
    pub fn set_secret(&self, secret: [u8; 32]) -> Result<(), FeedbackError> {
        // Stored first, so that answers signed from now on are still accepted after a restart.
        self.local.set_secret(&secret)?;
        let mut signer = self.signer.write();
        *signer = Signer::new(secret);
        Ok(())
    }

    /// The queries in the feedback of a catalog, each with the ids of the tools that were used or
    /// helpful. A tool may have been removed since.
    ///
    /// # Errors
    /// [`FeedbackError`].
    pub fn called(&self, catalog: &str) -> Result<Vec<(String, Vec<String>)>, FeedbackError> {
        self.table().called(catalog)
    }

    /// Deletes the feedback of a catalog, from the database's write-ahead log too. Blocks.
    ///
    /// # Errors
    /// [`FeedbackError`].
    pub fn forget(&self, catalog: &str) -> Result<(), FeedbackError> {
        self.table().forget(catalog)
    }

    /// Stores a record, and deletes the catalog's oldest where it has too many. Blocks.
    ///
    /// # Errors
    /// [`FeedbackError`].
    pub fn insert(
        &self,
        catalog: &str,
        record: &FeedbackRecord,
        now: SystemTime,
    ) -> Result<(), FeedbackError> {
        let at_ms = unix_ms(now);
        self.table()
            .insert(catalog, record, at_ms, self.max_records)
    }

    fn table(&self) -> &dyn FeedbackTable {
        match &self.shared {
            Some(shared) => &**shared,
            None => &*self.local,
        }
    }
}

/// The tools of each query, of pairs that are sorted by query.
///
/// # Errors
/// The first one of the pairs.
pub fn by_query<E>(
    pairs: impl Iterator<Item = Result<(String, String), E>>,
) -> Result<Vec<(String, Vec<String>)>, E> {
    let mut called: Vec<(String, Vec<String>)> = Vec::new();
    for pair in pairs {
        let (query, tool) = pair?;
        match called.last_mut().filter(|(known, _)| *known == query) {
            Some((_, tools)) => tools.push(tool),
            None => called.push((query, vec![tool])),
        }
    }
    Ok(called)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

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
        store.local.with(read).unwrap()
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
