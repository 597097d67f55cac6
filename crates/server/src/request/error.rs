//! The error type of the API, and the answers that errors of other modules become.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use toolscout_index::Error;
use utoipa::ToSchema;

use super::wire::{ItemError, ItemResult};
use crate::hints;
use toolscout_state::approved::ApprovedError;
use toolscout_state::catalog_writer::WriteError;
use toolscout_state::feedback::FeedbackError;
use toolscout_state::keys::KeyError;
use toolscout_state::shared::StoreError;

/// A result whose error is [`ApiError`].
pub type ApiResult<T> = Result<T, ApiError>;

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// The request. Sent again unchanged, it fails again.
    InvalidRequest,
    /// The key, host or origin of the request.
    Auth,
    /// A failure of the server.
    Internal,
    /// The current state of the server. The same request may succeed later.
    System,
}

/// An error answer. [`crate::layers::envelope`] adds the request id.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// A stable code for programs.
    pub code: &'static str,
    /// An explanation for people: what is wrong, where, and what to do.
    pub message: String,
    /// The cause.
    pub kind: ErrorType,
    /// Seconds after which to try again.
    pub retry_after_s: Option<u32>,
    /// What is logged and never sent.
    pub detail: Option<String>,
    /// The failed items of a bulk request that was refused as a whole.
    pub items: Vec<ItemResult>,
}

/// The body of an error answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// An error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorFields {
    /// A stable code for programs.
    #[schema(example = "unknown_catalog")]
    pub code: &'static str,
    /// An explanation for people: what is wrong, where, and what to do.
    pub message: String,
    /// The cause.
    #[serde(rename = "type")]
    pub kind: ErrorType,
    /// The id of the request, as in the `X-Request-Id` header and in the server's log.
    pub request_id: String,
    /// The failed items of a bulk request that was refused as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemResult>,
}

impl ApiError {
    /// An error of the request.
    pub fn invalid(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            status,
            code,
            message: message.into(),
            kind: ErrorType::InvalidRequest,
            retry_after_s: None,
            detail: None,
            items: Vec::new(),
        }
    }

    /// A well-formed request with an invalid value.
    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        ApiError::invalid(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// A resource that does not exist.
    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        ApiError::invalid(StatusCode::NOT_FOUND, code, message)
    }

    /// A request that is not allowed.
    pub fn auth(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            kind: ErrorType::Auth,
            ..ApiError::invalid(status, code, message)
        }
    }

    /// A limit was reached; the client should try again after a second.
    pub fn busy(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            kind: ErrorType::System,
            retry_after_s: Some(1),
            ..ApiError::invalid(status, code, message)
        }
    }

    /// The server is shutting down.
    pub fn shutting_down() -> Self {
        ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting_down",
            "the server is shutting down; try again later",
        )
    }

    /// A failure of the server. `detail` is logged and not sent.
    pub fn internal(detail: impl ToString) -> Self {
        ApiError {
            kind: ErrorType::Internal,
            detail: Some(detail.to_string()),
            ..ApiError::invalid(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the server failed; its log has the reason under this request_id",
            )
        }
    }

    /// The body of the answer to this request.
    pub fn body(&self, request_id: &str) -> ErrorBody {
        ErrorBody {
            error: ErrorFields {
                code: self.code,
                message: self.message.clone(),
                kind: self.kind,
                request_id: request_id.to_owned(),
                items: self.items.clone(),
            },
        }
    }

    /// The error for a status that a layer of the framework answered without a body.
    pub fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => ApiError::invalid(
                status,
                "method_not_allowed",
                "this route does not support this method; the Allow header lists those it supports",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::invalid(
                status,
                "body_too_large",
                "the body is too large; send its parts in several requests",
            ),
            // No layer should do this by itself, so it is logged.
            _ if status.is_server_error() => {
                ApiError::internal(format!("a layer answered {status}"))
            }
            _ => ApiError::invalid(
                status,
                "invalid_request",
                status.canonical_reason().unwrap_or("invalid request"),
            ),
        }
    }

    /// The answer while an embedding model does not work. `reason` is for clients.
    fn unavailable(detail: &Error, reason: &str) -> Self {
        ApiError {
            detail: Some(detail.to_string()),
            ..ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "embedder_failed",
                format!("{reason}; search with mode `lexical` meanwhile"),
            )
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // Read before the match, which moves parts of the error.
        let code = error.code();
        match error {
            Error::InvalidTool { .. }
            | Error::DuplicateTool { .. }
            | Error::InvalidQuery(_)
            | Error::UnknownName { .. }
            | Error::InvalidMemoryEntry(_)
            | Error::InvalidSetting(_)
            | Error::InvalidOwnerWords { .. }
            | Error::InvalidCatalogName { .. } => ApiError::unprocessable(code, error.to_string()),
            Error::Parse { .. } => {
                ApiError::invalid(StatusCode::BAD_REQUEST, code, error.to_string())
            }
            Error::UnknownCatalog { name, .. } => unknown_catalog(&name),
            Error::Locked { .. } => ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                code,
                "another process is writing to this catalog; try again later (searches are not affected)",
            ),
            // The reason may name an address or a folder, which clients need not know.
            Error::Embedder { .. } => ApiError::unavailable(
                &error,
                "the embedding model failed; the server's log says why",
            ),
            Error::DimensionMismatch { .. } => ApiError::unavailable(&error, &error.to_string()),
            // Damaged data and invalid stored settings are not the fault of the request.
            _ => ApiError::internal(hints::describe(&error)),
        }
    }
}

/// The error for a catalog that does not exist, or whose name cannot be one.
pub fn unknown_catalog(name: &str) -> ApiError {
    ApiError::not_found(
        "unknown_catalog",
        format!("no catalog {name:?}; create it with PUT /v1/catalogs/{{name}}"),
    )
}

/// The error while the server starts.
pub fn not_ready() -> ApiError {
    ApiError::busy(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_ready",
        "the catalogs are being opened; try again in a moment",
    )
}

/// Searches do not see this generation yet.
pub fn generation_not_reached(wanted: u64, reached: u64) -> ApiError {
    ApiError::busy(
        StatusCode::SERVICE_UNAVAILABLE,
        "generation_not_reached",
        format!(
            "min_generation is {wanted} and the catalog is at generation {reached} here; send the same request again in a \
             moment, or without min_generation"
        ),
    )
}

/// The store of several nodes cannot be used now; `detail` is logged and not sent.
pub fn store_unavailable(detail: impl ToString) -> ApiError {
    ApiError {
        detail: Some(detail.to_string()),
        ..ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the store of the catalogs cannot be written to or reached now; send the same request again in a moment (searches go \
             on); the server's log says why",
        )
    }
}

/// The store does not answer, and the tools of this catalog are nowhere else.
pub fn pushed_down_unavailable(detail: impl ToString) -> ApiError {
    ApiError {
        detail: Some(detail.to_string()),
        ..ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the tools of this catalog are looked for in the store, which cannot be reached now; send the same request again in \
             a moment",
        )
    }
}

/// The engine that somebody else runs does not answer, and the tools of this catalog are nowhere else. The reason has no
/// key.
pub fn elsewhere_unavailable(reason: String) -> ApiError {
    let message = format!(
        "the search engine with the tools of this catalog does not answer now; send the same request again in a moment: \
         {reason}"
    );
    ApiError {
        detail: Some(reason),
        ..ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            message,
        )
    }
}

/// The engine that somebody else runs refuses what is asked, or has not what the settings say. The reason has no key.
pub fn elsewhere_refused(reason: String) -> ApiError {
    let message =
        format!("the search engine with the tools of this catalog cannot be used: {reason}");
    ApiError {
        detail: Some(reason),
        ..ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            message,
        )
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        WriteError::from(error).into()
    }
}

impl From<FeedbackError> for ApiError {
    fn from(error: FeedbackError) -> Self {
        match error {
            FeedbackError::Unavailable { reason } => store_unavailable(reason),
            error => ApiError::internal(error),
        }
    }
}

impl From<ApprovedError> for ApiError {
    fn from(error: ApprovedError) -> Self {
        match error {
            ApprovedError::Unavailable { reason } => store_unavailable(reason),
            error => ApiError::internal(error),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Unavailable { reason } => store_unavailable(reason),
            error => ApiError::internal(error),
        }
    }
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::QueueFull => ApiError::busy(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_writes",
                error.to_string(),
            ),
            WriteError::Closed => ApiError::shutting_down(),
            WriteError::Panicked => ApiError::internal(error),
            WriteError::Deleted => ApiError::not_found("unknown_catalog", error.to_string()),
            WriteError::Elsewhere => {
                ApiError::invalid(StatusCode::CONFLICT, "tools_elsewhere", error.to_string())
            }
            WriteError::Unavailable(reason) => store_unavailable(reason),
            WriteError::Catalog(error) => error.into(),
        }
    }
}

impl IntoResponse for ApiError {
    /// Without a body: [`crate::layers::envelope`] adds it, since only that knows the request id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some(seconds) = self.retry_after_s {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // The envelope takes the error from here.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<&ApiError> for ItemError {
    fn from(error: &ApiError) -> Self {
        ItemError {
            code: error.code.to_owned(),
            message: error.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use toolscout_index::StoreProblem;

    use super::*;

    #[test]
    fn internal_detail_is_not_sent() {
        let path = PathBuf::from("/secret/path");
        let failures = [
            Error::Store {
                path: path.clone(),
                problem: StoreProblem::Missing,
            },
            Error::UnknownCatalog {
                name: "c".into(),
                data_dir: path.clone(),
            },
            Error::Locked { path },
        ];
        for failure in failures {
            let body = serde_json::to_string(&ApiError::from(failure).body("r-1")).unwrap();
            assert!(!body.contains("secret"), "{body}");
            assert!(body.contains("\"request_id\":\"r-1\""), "{body}");
        }
    }
}
