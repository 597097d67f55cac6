//! Feedback: which tool was used for which search, kept for later use. It takes the proof that the
//! search was answered here, to whoever sends it, with that tool among its hits.

mod token;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use toolscout_index::ToolId;
use toolscout_index::database;
use utoipa::ToSchema;

use super::App;
use super::access::{Grant, Reading};
use super::error::{ApiError, ApiResult};
use super::extract::Json;
use super::memory;
use super::registry::OpenCatalog;
use super::tools::unknown_tool;
use token::Proof;
pub use token::{Answer, Signer};

/// The database of feedback, beside the catalogs in the data directory.
pub const FILE_NAME: &str = "feedback.sqlite";

/// Records kept for a catalog; the oldest make room. About 200 bytes each.
const MAX_RECORDS: usize = 100_000;
const MAX_QUERY_BYTES: usize = 8 << 10;
/// Feedback taken of one key within [`RATE_WINDOW`]: far more than an agent calls tools, far less
/// than fills a memory.
const MAX_RATE: u32 = 60;
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// The steps of the database's layout.
const LAYOUT: &[&str] = &[
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

/// How a found tool did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was called.
    #[default]
    Used,
    /// It was the right one.
    Helpful,
    /// It was found and was not the right one.
    NotHelpful,
}

/// Which tool was used for which search.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FeedbackRequest {
    /// `feedback_token` of the answer to the search. Good for seven days, for the key that
    /// searched.
    #[schema(min_length = 1, max_length = 8192)]
    feedback_token: String,
    /// The tool's id; one of the answer's hits.
    #[schema(example = "github/create_issue")]
    tool: String,
    /// How it did.
    #[serde(default)]
    outcome: Outcome,
    /// What was asked, as it was, for those who want it kept; searches themselves are not.
    #[schema(max_length = 8192)]
    query: Option<String>,
}

/// Feedback that was kept.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedbackAnswer {
    /// Always true; a record that is not kept is an error.
    recorded: bool,
}

/// Records which tool was used for a search. A catalog whose memory is on remembers it, if `query`
/// says what was asked: at once where an admin key says so, else a little more with each key that
/// does. A key may send 60 a minute.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/feedback", operation_id = "record_feedback", tag = "feedback",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = FeedbackRequest,
    responses((status = 201, body = FeedbackAnswer))
)]
pub async fn record(
    grant: Grant,
    Reading(catalog): Reading,
    State(app): State<App>,
    Json(request): Json<FeedbackRequest>,
) -> ApiResult<(StatusCode, Json<FeedbackAnswer>)> {
    app.feedback.rate.take(grant.key(), Instant::now())?;
    request.validate()?;
    let known = ToolId::parse(&request.tool)
        .ok()
        .and_then(|id| catalog.searcher().tool(&id));
    let Some(tool) = known else {
        return Err(unknown_tool(&request.tool, &catalog.name));
    };
    let request_id = {
        let proof = request.proof(&app.feedback.signer, &catalog, &grant)?;
        request.check(&proof)?;
        proof.request_id().to_owned()
    };
    let called = request
        .query
        .clone()
        .filter(|query| request.outcome != Outcome::NotHelpful && !query.trim().is_empty());
    app.feedback
        .keep(catalog.name.clone(), request_id, request)
        .await?;
    if let Some(query) = called {
        memory::remember(&app, catalog, query, tool.id.clone(), grant.teacher()).await?;
    }
    app.metrics.feedback.inc();
    Ok((StatusCode::CREATED, Json(FeedbackAnswer { recorded: true })))
}

impl FeedbackRequest {
    fn validate(&self) -> ApiResult<()> {
        let too_long = |field: &str, most: usize| {
            Err(ApiError::unprocessable(
                "invalid_value",
                format!("{field} is empty or longer than {most} bytes"),
            ))
        };
        match self {
            _ if !(1..=token::MAX_BYTES).contains(&self.feedback_token.len()) => {
                too_long("feedback_token", token::MAX_BYTES)
            }
            _ if self
                .query
                .as_ref()
                .is_some_and(|query| query.len() > MAX_QUERY_BYTES) =>
            {
                too_long("query", MAX_QUERY_BYTES)
            }
            _ => Ok(()),
        }
    }

    fn proof<'a>(
        &self,
        signer: &'a Signer,
        catalog: &OpenCatalog,
        grant: &Grant,
    ) -> ApiResult<Proof<'a>> {
        let searcher = catalog.searcher();
        let answer = Answer {
            catalog: [&catalog.name, &searcher.version().identity],
            key: grant.key(),
            // The token says which.
            request_id: "",
        };
        signer
            .read(&self.feedback_token, &answer, SystemTime::now())
            .map_err(|reason| {
                let message = format!("feedback_token cannot be used: {reason}");
                ApiError::unprocessable("invalid_feedback_token", message)
            })
    }

    fn check(&self, proof: &Proof<'_>) -> ApiResult<()> {
        if !proof.names(&self.tool) {
            let message = format!(
                "the tool {:?} is not among the hits of this answer",
                self.tool
            );
            return Err(ApiError::unprocessable("tool_not_in_answer", message));
        }
        match self
            .query
            .as_deref()
            .filter(|query| !query.trim().is_empty() && !proof.answers(query))
        {
            Some(_) => {
                let message = "query is not what was asked when this answer was given; send it as it was, or leave it out";
                Err(ApiError::unprocessable("query_not_of_answer", message))
            }
            None => Ok(()),
        }
    }
}

/// How much feedback each key has sent lately. Holds as many as there are keys that sent any.
#[derive(Default)]
struct Rate {
    /// When the window of a key began, and what came since.
    windows: Mutex<HashMap<Option<String>, (Instant, u32)>>,
}

impl Rate {
    /// Counts one more.
    ///
    /// # Errors
    /// 429 with the time to wait, when the key has sent as much as it may.
    fn take(&self, key: Option<&str>, now: Instant) -> ApiResult<()> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
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
            "this key has sent {MAX_RATE} feedbacks within a minute; try again in {rest} seconds"
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
    rate: Arc<Rate>,
}

impl FeedbackStore {
    /// Opens the feedback of a data directory; the file is made when it is not there.
    ///
    /// # Errors
    /// What SQLite says, with the file.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let path: PathBuf = data_dir.join(FILE_NAME);
        let opened = database::open(&path, LAYOUT)
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

    /// What signs the answers to searches.
    pub(super) fn signer(&self) -> &Signer {
        &self.signer
    }

    async fn keep(
        &self,
        catalog: String,
        request_id: String,
        feedback: FeedbackRequest,
    ) -> ApiResult<()> {
        let store = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            store.insert(&catalog, &request_id, &feedback, SystemTime::now())
        });
        kept.await
            .map_err(ApiError::internal)?
            .map_err(ApiError::internal)
    }

    /// The requests of a catalog that were given with feedback, each with the tools that were used
    /// or right for it, ids as they were then.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn called(&self, catalog: &str) -> rusqlite::Result<Vec<(String, Vec<String>)>> {
        self.with(|connection| {
            let mut rows = connection.prepare(
                "SELECT DISTINCT trim(query), tool FROM feedback
                 WHERE catalog = ?1 AND outcome <> 'not_helpful' AND trim(coalesce(query, '')) <> '' ORDER BY 1, 2",
            )?;
            let mut called: Vec<(String, Vec<String>)> = Vec::new();
            for row in rows.query_map([catalog], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))? {
                let (query, tool) = row?;
                match called.last_mut().filter(|(known, _)| *known == query) {
                    Some((_, tools)) => tools.push(tool),
                    None => called.push((query, vec![tool])),
                }
            }
            Ok(called)
        })
    }

    /// Deletes what was kept for a catalog.
    ///
    /// # Errors
    /// 500 when the database fails.
    pub async fn forget(&self, catalog: &str) -> ApiResult<()> {
        let (store, catalog) = (self.clone(), catalog.to_owned());
        let forgotten = tokio::task::spawn_blocking(move || store.forget_now(&catalog));
        forgotten
            .await
            .map_err(ApiError::internal)?
            .map_err(ApiError::internal)
    }

    /// Deletes what was kept for a catalog, from the database's log too.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn forget_now(&self, catalog: &str) -> rusqlite::Result<()> {
        self.with(|connection| {
            connection.execute("DELETE FROM feedback WHERE catalog = ?1", [catalog])?;
            // While somebody reads, the log stays until the next time.
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

/// The secret that signs answers: the same for all servers of a data directory, made by the first.
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
    fn what_was_called_for_a_request_is_told_by_catalog() {
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
    async fn the_oldest_make_room_and_other_catalogs_are_left_alone() {
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
        store.forget("a").await.unwrap();
        assert_eq!(rows(&store), ["b0not_helpful"]);
    }

    #[test]
    fn a_key_may_send_so_many_a_minute_and_others_are_left_alone() {
        let (rate, now) = (Rate::default(), Instant::now());
        for _ in 0..MAX_RATE {
            rate.take(Some("a"), now).unwrap();
        }
        let error = rate
            .take(Some("a"), now + Duration::from_secs(20))
            .unwrap_err();
        assert_eq!(
            (error.status, error.retry_after_s),
            (StatusCode::TOO_MANY_REQUESTS, Some(41))
        );
        rate.take(Some("b"), now).unwrap();
        rate.take(Some("a"), now + RATE_WINDOW).unwrap();
        assert_eq!(
            rate.windows.lock().unwrap().len(),
            1,
            "what is over is not held"
        );
    }
}
