//! The one error of the API: what it says, how it is sent, and what the engine's errors become.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use toolscout_index::Error;
use utoipa::ToSchema;

use super::wire;
use crate::hints;

/// A result whose error is [`ApiError`].
pub type ApiResult<T> = Result<T, ApiError>;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// The request: sending it again as it is gives the same error.
    InvalidRequest,
    /// Who sends it.
    Auth,
    /// A defect of the server.
    Internal,
    /// The server's state at the moment: the same request may succeed later.
    System,
}

/// An error answer. The request's id is added when it is sent.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// Names the error for programs; never changes its meaning.
    pub code: &'static str,
    /// Tells people what was wrong, where, and what to do.
    pub message: String,
    /// Whose fault it is.
    pub kind: ErrorType,
    /// After how many seconds to try again.
    pub retry_after_s: Option<u32>,
    /// What is for the log only.
    pub detail: Option<String>,
}

/// An error as it is sent.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// What an error says.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorFields {
    /// Names the error for programs.
    #[schema(example = "unknown_catalog")]
    pub code: &'static str,
    /// Tells people what was wrong and what to do.
    pub message: String,
    /// Whose fault it is.
    #[serde(rename = "type")]
    pub kind: ErrorType,
    /// The id of the request, as in the `X-Request-Id` header and in the server's log.
    pub request_id: String,
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
        }
    }

    /// A request that can be read and asks for something impossible.
    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        ApiError::invalid(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// Something that is not there.
    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        ApiError::invalid(StatusCode::NOT_FOUND, code, message)
    }

    /// A request without the right to what it asks for.
    pub fn auth(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            kind: ErrorType::Auth,
            ..ApiError::invalid(status, code, message)
        }
    }

    /// A bound was reached; worth trying again after a second.
    pub fn busy(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            kind: ErrorType::System,
            retry_after_s: Some(1),
            ..ApiError::invalid(status, code, message)
        }
    }

    /// The server is ending.
    pub fn shutting_down() -> Self {
        ApiError::busy(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting_down",
            "the server is shutting down; try again later",
        )
    }

    /// A defect. `detail` is logged and not sent.
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

    /// The body under this request's id.
    pub fn body(&self, request_id: &str) -> ErrorBody {
        ErrorBody {
            error: ErrorFields {
                code: self.code,
                message: self.message.clone(),
                kind: self.kind,
                request_id: request_id.to_owned(),
            },
        }
    }

    /// What a status stands for that some layer below the handlers gave without a word.
    pub fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => ApiError::invalid(
                status,
                "method_not_allowed",
                "this route does not take this method; the Allow header names those it takes",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => {
                ApiError::invalid(status, "body_too_large", "the body is too large")
            }
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

    fn unavailable(detail: &Error) -> Self {
        ApiError {
            detail: Some(detail.to_string()),
            ..ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "embedder_failed",
                "the embedding model failed; search with mode `lexical` meanwhile",
            )
        }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidTool { .. } => ApiError::unprocessable("invalid_tool", error.to_string()),
            Error::DuplicateTool { .. } => {
                ApiError::unprocessable("duplicate_tool", error.to_string())
            }
            Error::InvalidQuery(_) | Error::UnknownName { .. } | Error::InvalidMemoryEntry(_) => {
                ApiError::unprocessable("invalid_query", error.to_string())
            }
            Error::InvalidSetting { .. } => {
                ApiError::unprocessable("invalid_settings", error.to_string())
            }
            Error::InvalidCatalogName { .. } => {
                ApiError::unprocessable("invalid_catalog_name", error.to_string())
            }
            Error::Parse { .. } => ApiError::invalid(
                StatusCode::BAD_REQUEST,
                "unreadable_tools",
                error.to_string(),
            ),
            Error::UnknownCatalog { name, .. } => unknown_catalog(&name),
            Error::Locked { .. } => ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "catalog_locked",
                "another process is writing to this catalog; try again later (searching goes on)",
            ),
            Error::Embedder { .. } | Error::DimensionMismatch { .. } => {
                ApiError::unavailable(&error)
            }
            _ => ApiError::internal(hints::describe(&error)),
        }
    }
}

/// The error for a catalog that is not there; the same words for every reason.
pub fn unknown_catalog(name: &str) -> ApiError {
    ApiError::not_found(
        "unknown_catalog",
        format!("no catalog {name:?}; create it with PUT /v1/catalogs/{{name}}"),
    )
}

impl IntoResponse for ApiError {
    /// Without a body: [`super::envelope`] writes it, since only that knows the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some(seconds) = self.retry_after_s {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// What a single item of a bulk request is told.
impl From<&ApiError> for wire::ItemError {
    fn from(error: &ApiError) -> Self {
        wire::ItemError {
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
    fn internal_detail_is_kept_for_the_log() {
        let path = PathBuf::from("/secret/place");
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
