//! Feedback: which tool was used for which search. It is accepted only with the token of an answer
//! that this server gave to the same key, with that tool among its hits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::State;
use axum::http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolscout_index::memory::Source;
use toolscout_index::query::MAX_QUERY_BYTES;
use toolscout_index::{Searcher, ToolId};
use utoipa::ToSchema;

use crate::access::{Grant, Reading};
use crate::catalogs::tools::find_tool;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::Json;
use crate::request::threads::blocking;
use crate::served::OpenCatalog;
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::Metrics;
use toolscout_gate::usage::{Place, Recorder};
use toolscout_state::feedback::{
    FeedbackRecord, FeedbackStore, MAX_TOKEN_BYTES, Outcome, SearchContext, Signer, VerifiedAnswer,
};

/// Most feedback from one key within [`RATE_WINDOW`]: far more than an agent calls tools, and far
/// less than would fill a usage memory.
const MAX_RATE: u32 = 60;
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// The feedback of all catalogs.
pub struct Feedback {
    stored: FeedbackStore,
    rate: RateLimit,
    metrics: Arc<Metrics>,
}

impl Feedback {
    /// Feedback that is kept here.
    pub fn new(stored: FeedbackStore, metrics: Arc<Metrics>) -> Self {
        Feedback {
            stored,
            rate: RateLimit::default(),
            metrics,
        }
    }

    /// Signs answers to searches, and knows them again.
    pub fn signer(&self) -> Signer {
        self.stored.signer()
    }

    /// Stores feedback, and lets the catalog's usage memory learn from it. Returns whether the
    /// memory stored it.
    ///
    /// # Errors
    /// 500 when a database fails.
    async fn keep(
        &self,
        cpu_pool: &CpuPool,
        catalog: Arc<OpenCatalog>,
        record: FeedbackRecord,
        tool: &ToolId,
        source: Source,
    ) -> ApiResult<bool> {
        let learned = record.learned_query().map(str::to_owned);
        let (feedback, name) = (self.stored.clone(), catalog.name.clone());
        let stored = blocking(move || feedback.insert(&name, &record, SystemTime::now())).await?;
        stored?;
        let mut remembered = false;
        if let Some(query) = learned {
            let (tool, at_ms) = (tool.clone(), unix_ms(SystemTime::now()));
            let learn =
                move |catalog: &OpenCatalog| catalog.remember(&query, &tool, at_ms, &source);
            remembered = catalog.change_memory(cpu_pool, learn).await?;
        }
        self.metrics.feedback.inc();
        Ok(remembered)
    }
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
    /// Whether the usage memory of the catalog stored it too: the memory is on, and the feedback
    /// has the query.
    remembered: bool,
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
    State(feedback): State<Arc<Feedback>>,
    State(cpu_pool): State<CpuPool>,
    State(usage): State<Recorder>,
    Json(request): Json<FeedbackRequest>,
) -> ApiResult<(StatusCode, Json<FeedbackAnswer>)> {
    feedback.rate.count(grant.key(), Instant::now())?;
    request.validate()?;
    // Verified first, so that only holders of a token can make this node ask the store.
    let verified = request.verified_id(&feedback.signer(), &catalog, &grant);
    if verified.is_ok() && !request.names_tool_of(&catalog) {
        // Another node may have answered from a state that this one does not have yet.
        catalog.catch_up().await?;
    }
    let tool = find_tool(&cpu_pool, &catalog, &request.tool).await?;
    let request_id = verified?;
    if request.outcome != Outcome::NotHelpful {
        let place = Place {
            catalog: Some(catalog.name.clone()),
            profile: None,
        };
        usage.used(&place, &request_id, &tool.id);
    }
    let record = request.into_record(request_id);
    let source = grant.memory_source();
    let remembered = feedback.keep(&cpu_pool, catalog, record, &tool.id, source);
    let remembered = remembered.await?;
    let answer = FeedbackAnswer {
        recorded: true,
        remembered,
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

impl FeedbackRequest {
    fn into_record(self, request_id: String) -> FeedbackRecord {
        FeedbackRecord {
            request_id,
            tool: self.tool,
            outcome: self.outcome,
            query: self.query,
        }
    }

    fn validate(&self) -> ApiResult<()> {
        if !(1..=MAX_TOKEN_BYTES).contains(&self.feedback_token.len()) {
            return Err(bad_length("feedback_token", MAX_TOKEN_BYTES));
        }
        if let Some(query) = &self.query
            && query.len() > MAX_QUERY_BYTES
        {
            return Err(bad_length("query", MAX_QUERY_BYTES));
        }
        Ok(())
    }

    /// True for a tool that searches of this node see.
    fn names_tool_of(&self, catalog: &OpenCatalog) -> bool {
        ToolId::parse(&self.tool).is_ok_and(|id| catalog.searcher().tool(&id).is_some())
    }

    /// The id of the request whose answer this is about, once it is verified.
    fn verified_id(
        &self,
        signer: &Signer,
        catalog: &OpenCatalog,
        grant: &Grant,
    ) -> ApiResult<String> {
        let answer = self.verify(signer, catalog, grant)?;
        Ok(answer.request_id().to_owned())
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
            catalog: [&catalog.name, identity(&searcher)],
            key: grant.key(),
            // Not compared: the token carries it.
            request_id: "",
        };
        let answer = match signer.verify(&self.feedback_token, &context, SystemTime::now()) {
            Ok(answer) => answer,
            Err(reason) => {
                let message = format!("feedback_token is not valid: {reason}");
                return Err(ApiError::unprocessable("invalid_feedback_token", message));
            }
        };
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

/// What tells a catalog from another one of the same name, on every node that has it.
pub fn identity(searcher: &Searcher) -> &str {
    match searcher.followed() {
        // All nodes name the same source, while each copy has an identity of its own.
        Some(followed) => &followed.source,
        None => &searcher.version().identity,
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
        let mut windows = self.windows.lock();
        // Ended windows are dropped here, so that the map holds only active keys.
        windows.retain(|_, (begun, _)| now.duration_since(*begun) < RATE_WINDOW);
        let (begun, count) = windows.entry(key.map(str::to_owned)).or_insert((now, 0));
        if *count < MAX_RATE {
            *count += 1;
            return Ok(());
        }
        // Rounded up, so that a client that waits this long is not refused again.
        let rest = RATE_WINDOW.saturating_sub(now.duration_since(*begun));
        let rest = rest.as_secs() as u32 + 1;
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

#[cfg(test)]
mod tests {
    use super::*;

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
            rate.windows.lock().len(),
            1,
            "windows that ended are dropped"
        );
    }
}
