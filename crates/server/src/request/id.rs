//! The id of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use uuid::Uuid;

use super::error::ApiError;

/// The header with the id of a request, in requests and answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id accepted from a client; a longer one is replaced.
const MAX_ID_BYTES: usize = 128;

/// The id of a request in answers and in the log: the client's own if it sent one, else a new one.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

impl RequestId {
    /// The one of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        if let Some(given) = headers.get(REQUEST_ID)
            && let Ok(id) = given.to_str()
            && (1..=MAX_ID_BYTES).contains(&id.len())
        {
            return RequestId(id.to_owned());
        }
        RequestId(Uuid::now_v7().to_string())
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(id) => Ok(RequestId::clone(id)),
            None => Err(ApiError::internal("the envelope layer did not run")),
        }
    }
}
