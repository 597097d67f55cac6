//! One call, contained: whatever a tool does, one result comes of it, in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::tools::{Arguments, Callable, ErrorCode, ToolResult};

/// Calls a tool in a task of its own, which contains its panics and ends with its time or with this
/// future.
pub async fn execute(
    callable: Arc<dyn Callable>,
    arguments: Arguments,
    limit: Duration,
) -> ToolResult {
    let started = Instant::now();
    let result = timeout(limit, contained(callable, arguments))
        .await
        .unwrap_or_else(|_| {
            let message = format!(
                "no result within {} ms; try less at once, or go on without",
                limit.as_millis()
            );
            ToolResult::error(ErrorCode::Timeout, message)
        });
    result.took_ms(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
}

async fn contained(callable: Arc<dyn Callable>, arguments: Arguments) -> ToolResult {
    // A set of one: dropped, it takes its task with it.
    let mut task = JoinSet::new();
    task.spawn(async move { callable.call(arguments).await });
    match task.join_next().await {
        Some(Ok(Ok(data))) => ToolResult::ok(data),
        Some(Ok(Err(failure))) => ToolResult::error(ErrorCode::Failed, failure.message),
        Some(Err(error)) => {
            tracing::error!(%error, "a tool panicked");
            ToolResult::error(
                ErrorCode::Panicked,
                "the tool crashed; this is its fault, not that of the arguments",
            )
        }
        None => ToolResult::error(ErrorCode::Failed, "the call gave no result"),
    }
}
