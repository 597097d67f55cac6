//! Protection against foreign web pages: the `Host` header is checked against DNS rebinding, and
//! `Origin` and fetch metadata against pages of other sites.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::request::error::{ApiError, ApiResult};

/// The site that a browser's request comes from, relative to the server: `same-origin`,
/// `same-site`, `cross-site`, or `none` for an address that a person typed. Pages cannot set these
/// headers. Browsers before 2023 and other programs do not send them.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The mode of a browser's request; `navigate` loads a page.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// What a browser's request is for; `empty` for a script that reads the answer.
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// For browsers without fetch metadata, and for frames of the server's own pages.
const NO_FRAMES: HeaderValue = HeaderValue::from_static("frame-ancestors 'none'");
/// What a provider, a tool or a client wrote may be in any answer. If a browser shows the answer as a page, the page
/// loads nothing, runs no scripts and has no origin.
const NO_PAGE: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// The names of this server, and the pages that may call it.
pub struct AllowedSites {
    /// Host names of this server, besides `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Origins whose pages may call the API.
    pub origins: Vec<String>,
}

/// The layer that refuses foreign hosts, origins and pages.
///
/// In a DNS rebinding attack, a page points its own host name at this server, so the browser sends
/// that name in `Host`. IP addresses and `localhost` pass, and other names must be listed.
pub async fn guard(
    State(allowed): State<Arc<AllowedSites>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match check(
        request.uri(),
        request.headers(),
        &allowed.hosts,
        &allowed.origins,
    ) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Only the server's own pages have a policy already. Browsers enforce all policies of an answer.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(NO_PAGE);
    headers.append(header::CONTENT_SECURITY_POLICY, NO_FRAMES);
    response
}

fn check(uri: &Uri, headers: &HeaderMap, hosts: &[String], origins: &[String]) -> ApiResult<()> {
    // An absolute request target has the host; otherwise it is in the header.
    let authority = match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => named_host(headers),
    };
    let Some(authority) = authority.filter(is_whole) else {
        return Err(ApiError::invalid(
            StatusCode::BAD_REQUEST,
            "invalid_host",
            "the Host header is missing or malformed; send the host that you connect to",
        ));
    };
    if !host_allowed(authority.host(), hosts) {
        let message = format!(
            "host {:?} is not allowed; start the server with --allow-host to add it",
            authority.host()
        );
        return Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "host_not_allowed",
            message,
        ));
    }
    let origin = headers.get(header::ORIGIN);
    if let Some(origin) = origin
        && !origin_allowed(origin.as_bytes(), &authority, origins)
    {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        let message = format!(
            "origin {origin:?} is not allowed; start the server with --allow-origin to add it"
        );
        return Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            message,
        ));
    }
    // Images, frames and navigations are refused here, with and without an Origin. A fetch with an
    // allowed Origin passes.
    let may_pass = match origin {
        Some(_) => is_fetch(headers),
        None => opens_console(uri, headers),
    };
    if is_foreign(headers) && !may_pass {
        let message = "pages of other sites may not load, embed or open this address; open it directly, or start the \
                       server with --allow-origin for a page that fetches it with CORS";
        return Err(ApiError::auth(StatusCode::FORBIDDEN, "cross_site", message));
    }
    Ok(())
}

fn named_host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

/// False where the host is a part of the name only: that of `[::1].evil.example` would be `[::1]`.
fn is_whole(authority: &Authority) -> bool {
    match authority.as_str().strip_prefix(authority.host()) {
        Some(rest) => rest.is_empty() || rest.starts_with(':'),
        None => false,
    }
}

/// Whether the request comes from a page of another origin. A page on another port of this machine
/// is `same-site` and just as foreign. Unknown values count as foreign.
fn is_foreign(headers: &HeaderMap) -> bool {
    let sites = headers.get_all(FETCH_SITE);
    sites
        .iter()
        .any(|site| site != "same-origin" && site != "none")
}

/// Whether a script reads the answer, which CORS governs: no page, frame or image.
fn is_fetch(headers: &HeaderMap) -> bool {
    // If a header comes twice, all its values must be harmless.
    let mut modes = headers.get_all(FETCH_MODE).iter();
    let mut destinations = headers.get_all(FETCH_DEST).iter();
    modes.all(|mode| mode != "navigate") && destinations.all(|purpose| purpose == "empty")
}

/// Whether a person follows a link to the console. Its page is the same for everyone, runs nothing
/// but its own scripts and is shown in no frame, so a link may lead to it as to any public page.
fn opens_console(uri: &Uri, headers: &HeaderMap) -> bool {
    let is = |name: HeaderName, value: &str| headers.get_all(name).iter().eq([value]);
    uri.path() == "/" && is(FETCH_MODE, "navigate") && is(FETCH_DEST, "document")
}

fn host_allowed(host: &str, allowed: &[String]) -> bool {
    // IPv6 addresses are in brackets.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok()
        || allowed.iter().any(|name| name.eq_ignore_ascii_case(bare))
}

/// Whether the origin is the server's own, or listed.
fn origin_allowed(origin: &[u8], authority: &Authority, allowed: &[String]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else {
        return false;
    };
    // The scheme is not compared: a proxy may have terminated TLS.
    if let Some((_, host)) = origin.split_once("://")
        && host.eq_ignore_ascii_case(authority.as_str())
    {
        return true;
    }
    allowed.iter().any(|listed| listed == origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(host: &str, origin: Option<&str>) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        checked(&headers)
    }

    fn checked(headers: &HeaderMap) -> Option<&'static str> {
        checked_at("/v1/search", headers)
    }

    fn checked_at(path: &'static str, headers: &HeaderMap) -> Option<&'static str> {
        let listed = ["tools.example".to_owned()];
        let origins = ["https://app.example".to_owned()];
        check(&Uri::from_static(path), headers, &listed, &origins)
            .err()
            .map(|error| error.code)
    }

    #[test]
    fn hosts_that_are_not_listed_are_refused() {
        for host in [
            "localhost:7700",
            "127.0.0.1",
            "[::1]:7700",
            "10.1.2.3:80",
            "Tools.Example",
        ] {
            assert_eq!(code(host, None), None, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
        ] {
            assert_eq!(code(host, None), Some("host_not_allowed"), "{host}");
        }
        for host in [
            "two words",
            "[::1].evil.example",
            "[::1]evil.example:7700",
            "[127.0.0.1].evil.example",
            "evil@localhost",
            "evil.example@127.0.0.1:7700",
        ] {
            assert_eq!(code(host, None), Some("invalid_host"), "{host}");
        }
    }

    #[test]
    fn origins_are_the_servers_own_or_listed() {
        assert_eq!(code("localhost:7700", Some("http://localhost:7700")), None);
        assert_eq!(code("localhost:7700", Some("https://app.example")), None);
        for origin in ["http://localhost:3000", "null", "https://evil.example"] {
            assert_eq!(
                code("localhost:7700", Some(origin)),
                Some("origin_not_allowed"),
                "{origin}"
            );
        }
    }

    #[test]
    fn pages_of_other_origins_may_only_fetch_and_only_from_a_listed_origin() {
        let from = |site: &'static str,
                    mode: &'static str,
                    destination: &'static str,
                    origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            let sent = [
                (header::HOST, "localhost:7700"),
                (FETCH_SITE, site),
                (FETCH_MODE, mode),
                (FETCH_DEST, destination),
            ];
            let sent = sent
                .into_iter()
                .chain(origin.map(|origin| (header::ORIGIN, origin)));
            headers.extend(sent.map(|(name, value)| (name, HeaderValue::from_static(value))));
            checked(&headers)
        };
        let listed = Some("https://app.example");
        assert_eq!(from("none", "navigate", "document", None), None);
        assert_eq!(from("same-origin", "cors", "empty", None), None);
        assert_eq!(from("same-origin", "navigate", "document", None), None);
        assert_eq!(from("cross-site", "cors", "empty", listed), None);
        for site in ["cross-site", "same-site", "never-heard-of"] {
            assert_eq!(
                from(site, "cors", "empty", None),
                Some("cross_site"),
                "{site}"
            );
            assert_eq!(
                from(site, "no-cors", "image", listed),
                Some("cross_site"),
                "{site}"
            );
            assert_eq!(
                from(site, "navigate", "document", listed),
                Some("cross_site"),
                "{site}"
            );
            assert_eq!(
                from(site, "websocket", "websocket", listed),
                Some("cross_site"),
                "{site}"
            );
        }
    }

    #[test]
    fn a_link_leads_to_the_console_and_to_no_other_route() {
        let follow = |path: &'static str, destination: &'static str| {
            let mut headers = HeaderMap::new();
            let sent = [
                (header::HOST, "localhost:7700"),
                (FETCH_SITE, "cross-site"),
                (FETCH_MODE, "navigate"),
                (FETCH_DEST, destination),
            ];
            headers.extend(sent.map(|(name, value)| (name, HeaderValue::from_static(value))));
            checked_at(path, &headers)
        };
        assert_eq!(follow("/", "document"), None);
        assert_eq!(follow("/", "iframe"), Some("cross_site"));
        for path in ["/docs", "/console/app.js", "/v1/catalogs", "//"] {
            assert_eq!(follow(path, "document"), Some("cross_site"), "{path}");
        }
    }
}
