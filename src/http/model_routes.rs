//! The routes of a model provider's API, whose answers may take as long as a model does.

use std::time::Duration;

/// From a request to the start of its answer: rounds that are hidden come before it.
pub const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Whether this is one of the routes.
pub fn contain(route: &str) -> bool {
    matches!(
        route,
        "/v1/chat/completions" | "/v1/responses" | "/v1/messages" | "/v1/models"
    )
}
