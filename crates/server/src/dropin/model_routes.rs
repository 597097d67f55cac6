//! The routes of a model provider's API, whose answers may take as long as a model does.

use std::time::Duration;

/// From a request to the start of its answer: rounds that are hidden come before it.
pub const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Where the routes are too, for base URLs with one `/v1` too few or too many.
pub const OTHER_BASES: [&str; 2] = ["", "/v1/v1"];

/// What the paths of Azure OpenAI begin with.
pub const AZURE: &str = "/openai";

/// Whether this is one of the routes.
pub fn contain(route: &str) -> bool {
    let mut beginnings = ["/v1beta/", "/openai/", "/model/"].into_iter();
    if beginnings.any(|beginning| route.starts_with(beginning)) {
        return true;
    }
    let below = below_base(route);
    let resource = below.trim_start_matches('/').split('/').next();
    below == "/chat/completions"
        || matches!(
            resource,
            Some("responses" | "messages" | "models" | "embeddings" | "files" | "batches")
        )
}

/// A path below the base URL of the API, whichever of them it has.
pub fn below_base(path: &str) -> &str {
    let mut below = path.strip_prefix(AZURE).unwrap_or(path);
    // At most two: a third `/v1` is not a base that is served.
    for _ in 0..2 {
        below = match below.strip_prefix("/v1") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => below,
        };
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_known_below_every_base() {
        for base in OTHER_BASES.into_iter().chain(["/v1"]) {
            assert!(contain(&format!("{base}/chat/completions")), "{base}");
        }
        for other in ["/v1/search", "/v1messages", "/v1/v1/v1/models", "unmatched"] {
            assert!(!contain(other), "{other}");
        }
    }
}
