//! Work off the async threads.

use axum::http::StatusCode;

use super::error::{ApiError, ApiResult};
use toolscout_base::cpu_pool::PoolError;

/// Runs blocking work off the async threads.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(ApiError::internal)
}

impl From<PoolError> for ApiError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Full => ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                error.to_string(),
            ),
            PoolError::Panicked(_) => ApiError::internal(error),
        }
    }
}
