//! Runs one call in isolation: it always gives one result, in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::tools::{Arguments, Callable, ErrorCode, ToolResult};
use toolscout_base::clock::millis;

/// Calls a tool in its own task, so that a panic becomes an error. The task ends at the time limit,
/// unless the tool [limits itself](Callable::limits_itself), or when this future is dropped.
pub async fn execute(
    callable: Arc<dyn Callable>,
    arguments: Arguments,
    limit: Duration,
) -> ToolResult {
    let started = Instant::now();
    // Such a tool knows of its progress, which extends the time.
    if callable.limits_itself() {
        let result = call_in_task(callable, arguments).await;
        return result.took_ms(millis(started.elapsed()));
    }
    // A tool that ignores its abortion until its next await may run on; its result is dropped.
    let result = match timeout(limit, call_in_task(callable, arguments)).await {
        Ok(result) => result,
        Err(_) => ToolResult::error(
            ErrorCode::Timeout,
            format!(
                "no result within {} s; try less at once, or go on without",
                limit.as_secs_f64()
            ),
        ),
    };
    result.took_ms(millis(started.elapsed()))
}

async fn call_in_task(callable: Arc<dyn Callable>, arguments: Arguments) -> ToolResult {
    // A `JoinSet` aborts its task when dropped, unlike the handle of `tokio::spawn`.
    let mut task = JoinSet::new();
    task.spawn(async move { callable.call(arguments).await });
    match task.join_next().await {
        Some(Ok(Ok(data))) => ToolResult::ok(data),
        Some(Ok(Err(failure))) => ToolResult::error(ErrorCode::Failed, failure.message),
        Some(Err(error)) => {
            tracing::error!(%error, "a tool panicked");
            ToolResult::error(
                ErrorCode::Panicked,
                "the tool crashed; this is a bug in the tool, not in the arguments",
            )
        }
        None => ToolResult::error(ErrorCode::Failed, "the call gave no result"),
    }
}
