//! Feedback: which tool was used for which search. It is accepted only with the token of an answer
//! that this server gave to the same key, with that tool among its hits.

mod token;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use toolscout_index::database;
use utoipa::ToSchema;

use super::App;
use super::access::{Grant, Reading};
use super::error::{ApiError, ApiResult};
use super::extract::Json;
use super::memory;
use super::registry::OpenCatalog;
use super::tools::find_tool;
use token::VerifiedAnswer;
pub use token::{SearchContext, Signer};

/// The database of feedback, beside the catalogs in the data directory.
pub const FILE_NAME: &str = "feedback.sqlite";

/// Most records of a catalog, about 200 bytes each. New ones replace the oldest.
const MAX_RECORDS: usize = 100_000;
const MAX_QUERY_BYTES: usize = 8 << 10;
/// Most feedback from one key within [`RATE_WINDOW`]: far more than an agent calls tools, and far
/// less than would fill a usage memory.
const MAX_RATE: u32 = 60;
const RATE_WINDOW: Duration = Duration::from_secs(60);

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

/// Feedback on a search.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedbackRequest {
    /// `feedback_token` of the answer to the search. Valid for seven days, for the key that
    /// searched.
    #[schema(min_length = 1, max_length = 8192)]
    feedback_token: String,
    /// The id of the tool, one of the hits.
    #[schema(example = "github/create_issue")]
    tool: String,
    /// How useful it was.
    #[serde(default)]
    outcome: Outcome,
    /// The query of the search, unchanged. Searches themselves do not store their queries; with
    /// this the query is stored.
    #[schema(max_length = 8192)]
    query: Option<String>,
}

/// The answer to feedback.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackAnswer {
    /// Always true; feedback that is not stored is an error.
    recorded: bool,
}

/// Records which tool was used for a search.
///
/// With `query`, it also goes into the usage memory of the catalog, if that is on. Feedback of an
/// admin key counts at once; that of other keys gains weight with each key that sends it. A key may
/// send 60 a minute.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/feedback", operation_id = "record_feedback", tag = "feedback",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = FeedbackRequest,
    responses((status = 201, body = FeedbackAnswer, description = "The feedback was stored"))
)]
pub async fn record(
    grant: Grant,
    Reading(catalog): Reading,
    State(app): State<App>,
    Json(request): Json<FeedbackRequest>,
) -> ApiResult<(StatusCode, Json<FeedbackAnswer>)> {
    app.feedback.rate.count(grant.key(), Instant::now())?;
    request.validate()?;
    let tool = find_tool(&catalog, &request.tool)?;
    let request_id = {
        let answer = request.verify(&app.feedback.signer, &catalog, &grant)?;
        answer.request_id().to_owned()
    };
    // The memory learns from tools that served a request, not from those that did not.
    let learned = request
        .query
        .clone()
        .filter(|query| request.outcome != Outcome::NotHelpful && !query.trim().is_empty());
    app.feedback
        .store(catalog.name.clone(), request_id, request)
        .await?;
    if let Some(query) = learned {
        memory::remember(&app, catalog, query, tool.id.clone(), grant.teacher()).await?;
    }
    app.metrics.feedback.inc();
    Ok((StatusCode::CREATED, Json(FeedbackAnswer { recorded: true })))
}

impl FeedbackRequest {
    fn validate(&self) -> ApiResult<()> {
        if !(1..=token::MAX_BYTES).contains(&self.feedback_token.len()) {
            return Err(bad_length("feedback_token", token::MAX_BYTES));
        }
        if self
            .query
            .as_ref()
            .is_some_and(|query| query.len() > MAX_QUERY_BYTES)
        {
            return Err(bad_length("query", MAX_QUERY_BYTES));
        }
        Ok(())
    }

    /// Checks the token, and that tool and query belong to the answer that it is of.
    fn verify<'a>(
        &self,
        signer: &'a Signer,
        catalog: &OpenCatalog,
        grant: &Grant,
    ) -> ApiResult<VerifiedAnswer<'a>> {
        let searcher = catalog.searcher();
        let context = SearchContext {
            catalog: [&catalog.name, &searcher.version().identity],
            key: grant.key(),
            // Not compared: the token carries it.
            request_id: "",
        };
        let answer = signer
            .verify(&self.feedback_token, &context, SystemTime::now())
            .map_err(|reason| {
                let message = format!("feedback_token is not valid: {reason}");
                ApiError::unprocessable("invalid_feedback_token", message)
            })?;
        if !answer.has_hit(&self.tool) {
            let message = format!(
                "the tool {:?} is not among the hits of this answer",
                self.tool
            );
            return Err(ApiError::unprocessable("tool_not_in_answer", message));
        }
        if let Some(query) = &self.query
            && !query.trim().is_empty()
            && !answer.has_query(query)
        {
            let message =
                "query is not the query of this answer; send it unchanged, or leave it out";
            return Err(ApiError::unprocessable("query_not_of_answer", message));
        }
        Ok(answer)
    }
}

fn bad_length(field: &str, most: usize) -> ApiError {
    ApiError::unprocessable(
        "invalid_value",
        format!("{field} is empty or longer than {most} bytes"),
    )
}

/// The rate limit of feedback. Holds one window for each key that sent any within the last minute.
#[derive(Default)]
struct RateLimit {
    /// When the window of a key started, and the feedback since.
    windows: Mutex<HashMap<Option<String>, (Instant, u32)>>,
}

impl RateLimit {
    /// Counts one feedback of the key.
    ///
    /// # Errors
    /// 429 with the time to wait, when the key has sent as much as it may.
    fn count(&self, key: Option<&str>, now: Instant) -> ApiResult<()> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended windows are dropped here, so that the map holds only active keys.
        windows.retain(|_, (begun, _)| now.duration_since(*begun) < RATE_WINDOW);
        let (begun, count) = windows.entry(key.map(str::to_owned)).or_insert((now, 0));
        if *count < MAX_RATE {
            *count += 1;
            return Ok(());
        }
        let rest = RATE_WINDOW
            .saturating_sub(now.duration_since(*begun))
            .as_secs() as u32
            + 1;
        let message = format!(
            "this key has sent feedback {MAX_RATE} times within a minute; try again in {rest} s"
        );
        let busy = ApiError::busy(StatusCode::TOO_MANY_REQUESTS, "too_much_feedback", message);
        Err(ApiError {
            retry_after_s: Some(rest),
            ..busy
        })
    }
}

/// The feedback of one data directory.
#[derive(Clone)]
pub struct FeedbackStore {
    connection: Arc<Mutex<Connection>>,
    max_records: usize,
    /// Signs the answers to searches.
    signer: Signer,
    rate: Arc<RateLimit>,
}

impl FeedbackStore {
    /// Opens the feedback of a data directory; creates the file if necessary.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let path: PathBuf = data_dir.join(FILE_NAME);
        let opened = database::open(&path, MIGRATIONS)
            .and_then(|connection| Ok((secret(&connection)?, connection)));
        let (secret, connection) =
            opened.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        Ok(FeedbackStore {
            connection: Arc::new(Mutex::new(connection)),
            max_records: MAX_RECORDS,
            signer: Signer::new(secret),
            rate: Arc::default(),
        })
    }

    /// The signer of the answers to searches.
    pub(super) fn signer(&self) -> &Signer {
        &self.signer
    }

    async fn store(
        &self,
        catalog: String,
        request_id: String,
        feedback: FeedbackRequest,
    ) -> ApiResult<()> {
        let store = self.clone();
        let stored = tokio::task::spawn_blocking(move || {
            store.insert(&catalog, &request_id, &feedback, SystemTime::now())
        });
        stored
            .await
            .map_err(ApiError::internal)?
            .map_err(ApiError::internal)
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

    /// Deletes the feedback of a catalog.
    ///
    /// # Errors
    /// 500 when the database fails.
    pub async fn delete_of(&self, catalog: &str) -> ApiResult<()> {
        let (store, catalog) = (self.clone(), catalog.to_owned());
        let deleted = tokio::task::spawn_blocking(move || store.forget_now(&catalog));
        deleted
            .await
            .map_err(ApiError::internal)?
            .map_err(ApiError::internal)
    }

    /// Deletes the feedback of a catalog, from the database's write-ahead log too. Blocks.
    ///
    /// # Errors
    /// When the database fails.
    pub fn forget_now(&self, catalog: &str) -> rusqlite::Result<()> {
        self.with(|connection| {
            connection.execute("DELETE FROM feedback WHERE catalog = ?1", [catalog])?;
            // While another process reads, the log is truncated by a later checkpoint.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
    }

    fn insert(
        &self,
        catalog: &str,
        request_id: &str,
        feedback: &FeedbackRequest,
        now: SystemTime,
    ) -> rusqlite::Result<()> {
        let at_ms = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis() as i64;
        let outcome = serde_json::to_value(feedback.outcome)
            .ok()
            .and_then(|outcome| Some(outcome.as_str()?.to_owned()));
        self.with(|connection| {
            let change = connection.transaction()?;
            change.prepare_cached(
                "INSERT INTO feedback (catalog, at_ms, request_id, tool, outcome, query) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![catalog, at_ms, request_id, feedback.tool, outcome, feedback.query])?;
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

    fn feedback() -> FeedbackRequest {
        FeedbackRequest {
            feedback_token: "t".into(),
            tool: "s/t".into(),
            outcome: Outcome::NotHelpful,
            query: Some("q".into()),
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
        let called = |tool: &str, outcome, query: Option<&str>| FeedbackRequest {
            feedback_token: "t".into(),
            tool: tool.into(),
            outcome,
            query: query.map(str::to_owned),
        };
        for (catalog, feedback) in [
            ("a", called("s/t", Outcome::Used, Some("mail it "))),
            ("a", called("s/t", Outcome::Used, Some("mail it"))),
            ("a", called("s/u", Outcome::Helpful, Some("mail it"))),
            ("a", called("s/v", Outcome::NotHelpful, Some("mail it"))),
            ("a", called("s/t", Outcome::Used, None)),
            ("b", called("s/w", Outcome::Used, Some("other"))),
        ] {
            store
                .insert(catalog, "r", &feedback, SystemTime::now())
                .unwrap();
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

    #[tokio::test]
    async fn new_records_replace_the_oldest_of_their_own_catalog() {
        let dir = tempfile::tempdir().unwrap();
        let store = FeedbackStore {
            max_records: 2,
            ..FeedbackStore::open(dir.path()).unwrap()
        };
        for (catalog, id) in [("b", "0"), ("a", "1"), ("a", "2"), ("a", "3")] {
            store
                .insert(catalog, id, &feedback(), SystemTime::now())
                .unwrap();
        }
        assert_eq!(
            rows(&store),
            ["b0not_helpful", "a2not_helpful", "a3not_helpful"]
        );
        store.delete_of("a").await.unwrap();
        assert_eq!(rows(&store), ["b0not_helpful"]);
    }

    #[test]
    fn each_key_has_a_rate_limit_of_its_own() {
        let (rate, now) = (RateLimit::default(), Instant::now());
        for _ in 0..MAX_RATE {
            rate.count(Some("a"), now).unwrap();
        }
        let error = rate
            .count(Some("a"), now + Duration::from_secs(20))
            .unwrap_err();
        assert_eq!(
            (error.status, error.retry_after_s),
            (StatusCode::TOO_MANY_REQUESTS, Some(41))
        );
        rate.count(Some("b"), now).unwrap();
        rate.count(Some("a"), now + RATE_WINDOW).unwrap();
        assert_eq!(
            rate.windows.lock().unwrap().len(),
            1,
            "windows that ended are dropped"
        );
    }
}
