//! Runs one call in isolation: it always gives one result, in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::tools::{Arguments, Callable, Called, ErrorCode, OwnResult, ToolFailure, ToolResult};
use toolscout_base::clock::millis;

/// Calls a tool in its own task, so that a panic becomes an error. The task ends at the time limit,
/// unless the tool [limits itself](Callable::limits_itself), or when this future is dropped. The second
/// value is the answer in the tool's own form.
pub async fn execute(
    callable: Arc<dyn Callable>,
    arguments: Arguments,
    limit: Duration,
) -> (ToolResult, Option<OwnResult>) {
    let started = Instant::now();
    let (result, own) = if callable.limits_itself() {
        // Such a tool knows of its progress, which extends the time.
        call_in_task(callable, arguments).await
    } else {
        // A tool that ignores its abortion until its next await may run on; its result is dropped.
        let called = timeout(limit, call_in_task(callable, arguments)).await;
        called.unwrap_or_else(|_| (too_slow(limit), None))
    };
    (result.took_ms(millis(started.elapsed())), own)
}

fn too_slow(limit: Duration) -> ToolResult {
    let limit_s = limit.as_secs_f64();
    ToolResult::error(
        ErrorCode::Timeout,
        format!("no result within {limit_s} s; try less at once, or go on without"),
    )
}

async fn call_in_task(
    callable: Arc<dyn Callable>,
    arguments: Arguments,
) -> (ToolResult, Option<OwnResult>) {
    // A `JoinSet` aborts its task when dropped, unlike the handle of `tokio::spawn`.
    let mut task = JoinSet::new();
    task.spawn(async move { callable.call_in_own_form(arguments).await });
    match task.join_next().await {
        Some(Ok(Called { outcome, own })) => (result_of(outcome), own),
        Some(Err(error)) => {
            tracing::error!(%error, "a tool panicked");
            let message = "the tool crashed; this is a bug in the tool, not in the arguments";
            (ToolResult::error(ErrorCode::Panicked, message), None)
        }
        None => {
            let message = "the call gave no result";
            (ToolResult::error(ErrorCode::Failed, message), None)
        }
    }
}

fn result_of(outcome: Result<Value, ToolFailure>) -> ToolResult {
    match outcome {
        Ok(data) => ToolResult::ok(data),
        Err(failure) => ToolResult::error(ErrorCode::Failed, failure.message),
    }
}
