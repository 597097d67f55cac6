//! The memory for bodies of requests to a model's provider, which all of them share: they are long,
//! and held until the model has answered.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::MAX_BODY_BYTES;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::RawBody;
use toolscout_base::telemetry::Metrics;

/// The bytes of one permit.
const UNIT: u64 = 1024;

/// The memory for bodies, of a bounded size.
pub struct BodyBudget {
    permits: Arc<Semaphore>,
    units: u32,
    /// Longest wait of a request for the bodies of others.
    patience: Duration,
    /// Count requests that were refused.
    metrics: Arc<Metrics>,
}

impl BodyBudget {
    /// Room for bodies of this many bytes together.
    pub fn new(bytes: u64, patience: Duration, metrics: Arc<Metrics>) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        BodyBudget {
            permits: Arc::new(Semaphore::new(units as usize)),
            units,
            patience,
            metrics,
        }
    }

    /// Reserves memory for the body of a request with these headers.
    ///
    /// # Errors
    /// 503 when the bodies of others leave no room for too long.
    pub async fn reserve(&self, headers: &HeaderMap) -> ApiResult<OwnedSemaphorePermit> {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        // A body that comes in chunks may be as long as any.
        let units = self.units_of(length.unwrap_or(MAX_BODY_BYTES as u64));
        // The semaphore is fair, so a long body does not starve behind short ones.
        let reserving = Arc::clone(&self.permits).acquire_many_owned(units);
        match timeout(self.patience, reserving).await {
            Ok(Ok(reserved)) => Ok(reserved),
            _ => {
                self.metrics.rejected("model_bodies");
                Err(ApiError::busy(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "overloaded",
                    "the server holds as many and as long requests to the model as its memory allows; try again later",
                ))
            }
        }
    }

    /// Gives back what was reserved beyond the length that a body has.
    pub fn fit(&self, reserved: &mut OwnedSemaphorePermit, bytes: usize) {
        let needed = self.units_of(bytes as u64) as usize;
        drop(reserved.split(reserved.num_permits().saturating_sub(needed)));
    }

    /// No body needs more than there is: one that is as long has to wait for all others.
    fn units_of(&self, bytes: u64) -> u32 {
        let bytes = bytes.min(MAX_BODY_BYTES as u64);
        u32::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .clamp(1, self.units)
    }
}

/// A body, with the memory that it takes.
pub struct HeldBody {
    pub bytes: Bytes,
    pub reserved: OwnedSemaphorePermit,
}

impl HeldBody {
    /// Reads the body of a request that may have none.
    ///
    /// # Errors
    /// As [`HeldBody::read`].
    pub async fn of_request(
        budget: &BodyBudget,
        parts: &Parts,
        body: Body,
    ) -> ApiResult<Option<Self>> {
        let has_body = parts.headers.contains_key(header::CONTENT_LENGTH)
            || parts.headers.contains_key(header::TRANSFER_ENCODING);
        Ok(match has_body && parts.method == Method::POST {
            true => Some(HeldBody::read(budget, parts, body).await?),
            false => None,
        })
    }

    /// Reads the body of a request with these parts. Its memory is reserved before, by the length that
    /// the request announces.
    ///
    /// # Errors
    /// 503 when the bodies of others leave no room, 413 for one that is too long.
    pub async fn read(budget: &BodyBudget, parts: &Parts, body: Body) -> ApiResult<Self> {
        let mut reserved = budget.reserve(&parts.headers).await?;
        let request = Request::from_parts(parts.clone(), body);
        let read = RawBody::from_request(request, &()).await;
        let RawBody(bytes) = read.map_err(body_error)?;
        budget.fit(&mut reserved, bytes.len());
        Ok(HeldBody { bytes, reserved })
    }
}

/// As for any body, with what to do where a request to a model is too long.
fn body_error(error: ApiError) -> ApiError {
    if error.status != StatusCode::PAYLOAD_TOO_LARGE {
        return error;
    }
    let message = format!(
        "the request is longer than {} MiB; send fewer tools, or images by their addresses",
        MAX_BODY_BYTES >> 20
    );
    ApiError { message, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(length: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
        }
        headers
    }

    #[tokio::test]
    async fn bodies_share_the_memory_and_give_it_back() {
        let budget = BodyBudget::new(
            10 * UNIT,
            Duration::from_millis(5),
            Arc::new(Metrics::new()),
        );
        let most = budget.reserve(&headers(Some("9000"))).await.unwrap();
        let refused = budget.reserve(&headers(Some("4096"))).await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (503, "overloaded"));
        assert_eq!(refused.retry_after_s, Some(1));
        drop(most);
        // Of unknown length, and longer than all there is.
        let mut all = budget.reserve(&headers(None)).await.unwrap();
        assert_eq!(all.num_permits(), 10);
        budget.fit(&mut all, 2000);
        assert_eq!(all.num_permits(), 2);
        assert!(budget.reserve(&headers(Some("8192"))).await.is_ok());
    }
}
