//! The figures of this server by minute, hour and day, kept over restarts.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::figure_keeper::FigureKeeper;
use super::stats::milliseconds;
use crate::access::Grant;
use crate::request::error::ApiResult;
use crate::request::extract::{Json, QueryString};
use toolscout_base::telemetry::latencies::Buckets;
use toolscout_state::kept_figures::{Figures, Step};

/// Which periods to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryParams {
    /// The length of a period; `hour` by default.
    #[serde(default)]
    #[param(inline)]
    step: Step,
}

/// What the server did, period by period.
#[derive(Debug, Serialize, ToSchema)]
pub struct History {
    /// The length of a period.
    step: Step,
    /// The length of a period in seconds.
    step_s: u64,
    /// Most periods that are kept.
    most_periods: u32,
    /// The periods, the oldest first; the last one is not over yet. Those in which the server did not run are absent.
    periods: Vec<Period>,
}

/// What the server did in a minute, an hour or a day.
#[derive(Debug, Serialize, ToSchema)]
pub struct Period {
    /// When it began, in milliseconds since 1970.
    start_ms: i64,
    /// Number of searches.
    searches: u64,
    /// Those without a good enough match.
    no_match: u64,
    /// Those that lacked something.
    degraded: u64,
    /// Half of the searches took no longer, in milliseconds; null without any.
    p50_ms: Option<f64>,
    /// 95 of 100 searches took no longer.
    p95_ms: Option<f64>,
    /// Number of requests over HTTP.
    requests: u64,
    /// Those that the server answered with an error of its own (5xx).
    errors: u64,
    /// Tokens of tool definitions that search saved.
    saved_tokens: u64,
    /// The most memory that the process had, in bytes; null if the system does not tell it.
    memory_bytes: Option<u64>,
}

/// Shows what the server did by minute, hour or day, also before its last start. Of several nodes, each shows its own
/// figures. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/stats/history", operation_id = "server_history", tag = "service",
    params(HistoryParams),
    responses((status = 200, body = History, description = "The periods"))
)]
pub async fn show(
    grant: Grant,
    State(keeper): State<FigureKeeper>,
    QueryString(HistoryParams { step }): QueryString<HistoryParams>,
) -> ApiResult<Json<History>> {
    grant.operates()?;
    let read = keeper.read(step).await?;
    let mut periods = Vec::with_capacity(read.len());
    for (start_ms, figures) in read {
        periods.push(Period::of(start_ms, &figures));
    }
    Ok(Json(History {
        step,
        step_s: step.duration().as_secs(),
        most_periods: step.kept(),
        periods,
    }))
}

impl Period {
    fn of(start_ms: i64, figures: &Figures) -> Self {
        let percentile = |searches: &Buckets, share| searches.percentile_s(share).map(milliseconds);
        Period {
            start_ms,
            searches: figures.searches.len(),
            no_match: figures.no_match,
            degraded: figures.degraded,
            p50_ms: percentile(&figures.searches, 0.5),
            p95_ms: percentile(&figures.searches, 0.95),
            requests: figures.requests,
            errors: figures.errors,
            saved_tokens: figures.saved_tokens,
            memory_bytes: Some(figures.memory_bytes).filter(|bytes| *bytes > 0),
        }
    }
}
