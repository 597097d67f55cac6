//! Who may speak to the server at all: the Host and Origin of a request, against DNS rebinding.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::error::{ApiError, ApiResult};

/// The layer that refuses foreign hosts and origins.
///
/// A page that was made to point its own name at this server carries that name in `Host`. So IP addresses and
/// `localhost` pass, and other names have to be listed.
pub async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match check(request.uri(), request.headers(), &app.allowed_hosts, &app.allowed_origins) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(uri: &Uri, headers: &HeaderMap, hosts: &[String], origins: &[String]) -> ApiResult<()> {
    let authority = match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok()),
    };
    let Some(authority) = authority else {
        return Err(ApiError::invalid(
            StatusCode::BAD_REQUEST,
            "invalid_host",
            "the Host header is missing or unreadable",
        ));
    };
    if !host_allowed(authority.host(), hosts) {
        let message =
            format!("host {:?} is not allowed; start the server with --allow-host to add it", authority.host());
        return Err(ApiError::auth(StatusCode::FORBIDDEN, "host_not_allowed", message));
    }
    match headers.get(header::ORIGIN) {
        Some(origin) if !origin_allowed(origin.as_bytes(), &authority, origins) => {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let message = format!("origin {origin:?} is not allowed; start the server with --allow-origin to add it");
            Err(ApiError::auth(StatusCode::FORBIDDEN, "origin_not_allowed", message))
        }
        _ => Ok(()),
    }
}

fn host_allowed(host: &str, allowed: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok()
        || allowed.iter().any(|name| name.eq_ignore_ascii_case(bare))
}

/// The server's own pages, and what was listed.
fn origin_allowed(origin: &[u8], authority: &Authority, allowed: &[String]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let own = origin.split_once("://").is_some_and(|(_, host)| host.eq_ignore_ascii_case(authority.as_str()));
    own || allowed.iter().any(|listed| listed == origin)
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
        let listed = ["tools.example".to_owned()];
        let origins = ["https://app.example".to_owned()];
        check(&Uri::from_static("/v1/search"), &headers, &listed, &origins).err().map(|error| error.code)
    }

    #[test]
    fn names_that_are_not_ours_are_refused() {
        for host in ["localhost:7700", "127.0.0.1", "[::1]:7700", "10.1.2.3:80", "Tools.Example"] {
            assert_eq!(code(host, None), None, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"] {
            assert_eq!(code(host, None), Some("host_not_allowed"), "{host}");
        }
        assert_eq!(code("two words", None), Some("invalid_host"));
    }

    #[test]
    fn origins_are_the_own_one_or_listed() {
        assert_eq!(code("localhost:7700", Some("http://localhost:7700")), None);
        assert_eq!(code("localhost:7700", Some("https://app.example")), None);
        for origin in ["http://localhost:3000", "null", "https://evil.example"] {
            assert_eq!(code("localhost:7700", Some(origin)), Some("origin_not_allowed"), "{origin}");
        }
    }
}
