//! The headers by which a client of the model's API chooses how its tools are searched.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::has_our_key;
use crate::access::profiles::PROFILE;
use crate::request::error::{ApiError, ApiResult};
use toolscout_base::printable;
use toolscout_dropin::{CONVERSATION_HEADER, DeferChoice, DropIn, X_GOOG_API_KEY};

/// Chooses which tools are deferred: `off`, or the number of tokens from which on they are.
const DEFER: HeaderName = HeaderName::from_static("x-toolscout-defer");
/// Names a catalog that is searched besides the tools of the request.
pub const CATALOG: HeaderName = HeaderName::from_static("x-toolscout-catalog");
/// Names the conversation that a request continues.
const CONVERSATION: HeaderName = HeaderName::from_static(CONVERSATION_HEADER);
/// In an answer: headers of the request that look like these and are not known.
pub const IGNORED: HeaderName = HeaderName::from_static("x-toolscout-ignored");
/// What the names of such headers begin with.
const OWN: &str = "x-toolscout-";
/// Most names in the answer.
const MAX_IGNORED: usize = 8;

/// Which tools are deferred.
///
/// # Errors
/// 400 for a value that is neither `off` nor a number.
pub fn defer_choice(headers: &HeaderMap) -> ApiResult<DeferChoice> {
    let Some(value) = headers.get(DEFER) else {
        return Ok(DeferChoice::OfServer);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text.eq_ignore_ascii_case("off") {
        return Ok(DeferChoice::Off);
    }
    if let Ok(tokens) = text.parse() {
        return Ok(DeferChoice::Above(tokens));
    }
    let message = format!(
        "X-Toolscout-Defer is {text:?}; send `off`, or the number of tokens from which on tools are deferred"
    );
    let status = StatusCode::BAD_REQUEST;
    Err(ApiError::invalid(status, "invalid_header", message))
}

/// Checks the headers of a question to our agent, which searches the catalog of the server.
///
/// # Errors
/// 400 for a value that would be refused of a model too, and for a catalog.
pub fn check_for_agent(headers: &HeaderMap) -> ApiResult<()> {
    defer_choice(headers)?;
    if !headers.contains_key(CATALOG) {
        return Ok(());
    }
    let message = "our agent searches the catalog of the server; leave out X-Toolscout-Catalog, or name a profile of \
                   another catalog with X-Toolscout-Profile";
    Err(ApiError::invalid(
        StatusCode::BAD_REQUEST,
        "invalid_header",
        message,
    ))
}

/// Whether a client of Google asks, at a path that other APIs have too.
pub fn speaks_gemini(headers: &HeaderMap) -> bool {
    headers.contains_key(X_GOOG_API_KEY) || headers.contains_key("x-goog-api-client")
}

/// The names of headers that look like these and are not known, for the client; the log is told of
/// each once.
pub fn ignored(dropin: Option<&DropIn>, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut names = Vec::new();
    for name in headers.keys() {
        let is_known = [DEFER, CATALOG, CONVERSATION, PROFILE].contains(name);
        if name.as_str().starts_with(OWN) && !is_known {
            names.push(printable::name(name.as_str()));
        }
    }
    // Bounded, so that a client cannot fill the log or the answer with invented names.
    names.truncate(MAX_IGNORED);
    for header in &names {
        if dropin.is_none_or(|dropin| dropin.is_said_first(&format!("header {header}"))) {
            tracing::warn!(
                header,
                "a header of a request is not known; there are X-Toolscout-Defer, X-Toolscout-Catalog, \
                 X-Toolscout-Conversation and X-Toolscout-Profile"
            );
        }
    }
    let value = HeaderValue::from_str(&names.join(", ")).ok()?;
    (!names.is_empty()).then_some(value)
}

/// Clients may send the key of their provider in the address, and no key stays there. A key of this server
/// counts in a header alone, since proxies log addresses.
pub fn with_key_in_header(mut request: Request) -> Request {
    let Some(query) = request.uri().query() else {
        return request;
    };
    let (keys, others): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .partition(|field| field.starts_with("key="));
    let Some(key) = keys.last().and_then(|key| key.strip_prefix("key=")) else {
        return request;
    };
    let value = HeaderValue::from_str(key);
    let path = request.uri().path();
    let uri = match others.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", others.join("&")),
    };
    if let (Ok(mut value), Ok(uri)) = (value, uri.parse()) {
        value.set_sensitive(true);
        if !has_our_key(&value) {
            // The header counts if there is one already.
            request.headers_mut().entry(X_GOOG_API_KEY).or_insert(value);
        }
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_key_in_the_address_moves_to_a_header() {
        let of = |uri: &str| {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            let request = with_key_in_header(request);
            let key = request.headers().get(X_GOOG_API_KEY).cloned();
            let key = key.map(|key| key.to_str().unwrap().to_owned());
            (request.uri().to_string(), key)
        };
        let path = "/v1beta/models/m:generateContent";
        let (uri, key) = of(&format!("{path}?key=secret"));
        assert_eq!((uri.as_str(), key.as_deref()), (path, Some("secret")));
        let (uri, key) = of(&format!("{path}?alt=sse&key=secret&x=1"));
        assert_eq!(uri, format!("{path}?alt=sse&x=1"));
        assert_eq!(key.as_deref(), Some("secret"));
        assert_eq!(of(path).1, None);
    }
}
