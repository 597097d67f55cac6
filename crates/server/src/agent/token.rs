//! The token that a GET needs to start a run on a server without keys.
//!
//! A GET needs no script: an image or a frame on any page sends one. But only a page of the
//! server's own or of an allowed origin can read the answer of another request. So a token from
//! such an answer proves the origin of the page.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use super::AgentAccess;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::Json;
use toolscout_state::keys::{KeyError, random_secret};

/// A random token, valid until the process ends.
pub struct PageToken(String);

impl PageToken {
    /// A new token.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn random() -> Result<Self, KeyError> {
        Ok(PageToken(random_secret()?))
    }

    /// Passes if this is the token. Takes constant time, so that nobody can guess it byte by byte.
    ///
    /// # Errors
    /// 403 for any other token.
    pub fn require(&self, token: &str) -> ApiResult<()> {
        if bool::from(self.0.as_bytes().ct_eq(token.as_bytes())) {
            return Ok(());
        }
        let message = "a GET starts a run only with the `token` of POST /v1/agent/token; clients that are not browsers \
                       use POST /v1/agent/chat";
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "missing_token",
            message,
        ))
    }
}

/// The token for questions by GET.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenBody {
    /// For the query string of `/agent/chat/stream`; valid until the server restarts.
    token: String,
}

/// Returns the token that `EventSource` needs on a server without keys. With keys, the key is
/// needed instead.
#[utoipa::path(
    post, path = "/v1/agent/token", operation_id = "agent_token", tag = "agent",
    responses((status = 200, body = TokenBody, description = "The token"))
)]
pub async fn show(_: AgentAccess, State(token): State<Arc<PageToken>>) -> Json<TokenBody> {
    Json(TokenBody {
        token: token.0.clone(),
    })
}
