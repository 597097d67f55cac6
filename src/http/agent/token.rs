//! The token without which no GET starts a run on a server without keys.
//!
//! A GET needs no script: an image or a frame of any page sends one. Only a page whose origin is
//! the server's own, or listed, can read the answer of another request, so what is in such an
//! answer proves the origin.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use super::Asking;
use crate::http::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::Json;
use crate::keys::{KeyError, random_secret};

/// A random text that lives as long as the process.
pub struct PageToken(String);

impl PageToken {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn random() -> Result<Self, KeyError> {
        Ok(PageToken(random_secret()?))
    }

    /// Whether this is the token, in a time that says nothing of it.
    ///
    /// # Errors
    /// 403 when it is not.
    pub fn require(&self, token: &str) -> ApiResult<()> {
        if bool::from(self.0.as_bytes().ct_eq(token.as_bytes())) {
            return Ok(());
        }
        let message = "a GET starts a run only with the `token` that POST /v1/agent/token gives to pages of this server; \
                       others ask with POST /v1/agent/chat";
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "missing_token",
            message,
        ))
    }
}

/// What lets a page of this server ask with a GET.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenBody {
    /// Goes into the query string of `/agent/chat/stream`; good until the server ends.
    token: String,
}

/// Gives the token with which `EventSource` may ask where no keys are in use; where they are, the
/// key is needed instead.
#[utoipa::path(post, path = "/v1/agent/token", tag = "agent", responses((status = 200, body = TokenBody)))]
pub async fn show(_: Asking, State(app): State<App>) -> Json<TokenBody> {
    Json(TokenBody {
        token: app.page_token.0.clone(),
    })
}
