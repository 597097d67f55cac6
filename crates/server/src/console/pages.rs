//! What every page of this server is sent with: a policy under which a page runs and loads only
//! files of the server.

use axum::http::{HeaderValue, header};
use axum::response::Response;

/// Only files of this server, no inline scripts and no inline style sheets. Swagger UI draws its
/// icons from `data:` URLs. `guard` forbids frames on
/// every answer, and scripts on every answer that is no page.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'",
);

/// Adds the policy. No page tells another server its address, which may hold what was searched for.
pub async fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}
