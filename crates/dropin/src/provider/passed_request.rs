//! A request that passes to the provider as it came, because no model answers it: about files,
//! batches, stored answers, models and embeddings.

use std::fmt;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderMap;
use tokio::sync::OwnedSemaphorePermit;

use crate::dialect::Dialect;
use crate::provider::upstream::Upstream;
use crate::wire::failure::Failure;

/// The key that a request goes to the provider with.
#[derive(Clone)]
pub enum ProviderKey {
    /// The one of the settings.
    OfServer,
    /// The headers with which the client brought its own.
    OfClient(HeaderMap),
    /// The one of the settings, or that of the client if the settings have none for the service.
    OfServerElseClient(HeaderMap),
}

impl fmt::Debug for ProviderKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProviderKey::OfServer => "OfServer",
            ProviderKey::OfClient(_) => "OfClient",
            ProviderKey::OfServerElseClient(_) => "OfServerElseClient",
        })
    }
}

/// A request that passes as it came.
#[derive(Debug)]
pub struct PassedRequest {
    /// The API it speaks.
    pub dialect: Dialect,
    /// The service that it goes to.
    pub upstream: Upstream,
    /// Who sent it.
    pub owner: String,
    /// Its method.
    pub method: Method,
    /// Its path below the base URL of the API, percent-encoded.
    pub path: String,
    /// The query of its address.
    pub query: Option<String>,
    /// Its headers, of which only some go on to the provider.
    pub headers: HeaderMap,
    /// The key for the provider.
    pub key: ProviderKey,
    /// Its body, if it has one.
    pub body: Option<Bytes>,
    /// The memory that was reserved for the body.
    pub reserved: Option<OwnedSemaphorePermit>,
}

/// Checks that a path stays below the base URL of the API: a URL is read without `.` and `..`.
///
/// # Errors
/// 400 for any other path.
pub fn check_path(path: &str) -> Result<(), Failure> {
    let leads_elsewhere = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    // A backslash is a slash in a URL.
    if !path.contains('\\') && !path.split('/').any(leads_elsewhere) {
        return Ok(());
    }
    let message =
        "the path has `.`, `..` or a backslash, which no id of the provider is; send the id alone";
    Err(Failure::new(400, "invalid_path", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in [
            "/files/..",
            "/files/%2e%2E/content",
            "/responses/./cancel",
            "/batches/a\\b",
        ] {
            let refused = check_path(path).unwrap_err();
            assert_eq!(
                (refused.status, refused.code),
                (400, "invalid_path"),
                "{path}"
            );
        }
        for path in ["/files", "/files/file-1.a..b/content", "/models/a%2Fb"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
    }
}
