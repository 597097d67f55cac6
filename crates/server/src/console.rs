//! The console: a page that shows what is searched and found, and its files, which are part of the
//! program. Everything that it does goes through the API.

pub mod pages;
mod accept;
mod assets;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use crate::request::error::ApiError;
use assets::Asset;

/// Stored files are used only after the server has said that they are still the same, so a newer
/// program never runs with files of an older one.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The routes of the page and its files.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(page))
        .route("/console/{*path}", get(file))
        .layer(middleware::map_response(pages::with_policy))
}

/// The page for browsers; other clients are told what there is.
async fn page(headers: HeaderMap) -> Response {
    let mut response = if accept::prefers_html(&headers) {
        answer(assets::page(), &headers)
    } else {
        Json(contents()).into_response()
    };
    // Caches must keep the page for browsers and the addresses for programs apart.
    let accept = HeaderValue::from_static("accept");
    response.headers_mut().append(header::VARY, accept);
    response
}

/// The addresses to begin with.
fn contents() -> Value {
    json!({
        "name": "toolscout",
        "version": env!("CARGO_PKG_VERSION"),
        "console": "/ in a browser",
        "docs": "/docs",
        "search": "POST /v1/search",
        "mcp": "/mcp",
    })
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    match assets::find(&path) {
        Some(asset) => answer(asset, &headers),
        None => {
            let message = format!("the console has no file {path:?}; its page is GET /");
            ApiError::not_found("not_found", message).into_response()
        }
    }
}

/// The file, compressed for a client that takes that, or 304 for a client that has it already.
fn answer(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let gzip = match accept::takes_gzip(headers) {
        true => asset.gzip(),
        false => None,
    };
    // The compressed file has another tag, so that caches keep both forms apart.
    let tag = asset.entity_tag(gzip.is_some());
    let mut response = if has(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        content(asset, gzip)
    };
    let answered = response.headers_mut();
    answered.insert(header::CACHE_CONTROL, REVALIDATE);
    let accept_encoding = HeaderValue::from_static("accept-encoding");
    answered.append(header::VARY, accept_encoding);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answered.insert(header::ETAG, tag);
    }
    response
}

fn content(asset: &Asset, gzip: Option<&'static [u8]>) -> Response {
    let content_type = HeaderValue::from_static(asset.content_type);
    let body = gzip.unwrap_or(asset.bytes);
    let mut response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
    if gzip.is_some() {
        let gzip = HeaderValue::from_static("gzip");
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, gzip);
    }
    response
}

/// Whether the client has the file with this tag. Proxies may have marked the tag as weak.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    accept::items(headers, header::IF_NONE_MATCH)
        .iter()
        .any(|given| *given == "*" || given.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_file_that_the_client_has_is_not_sent_again() {
        for given in ["\"a\"", "\"b\", \"a\"", "W/\"a\"", "*"] {
            assert!(
                has(&headers(header::IF_NONE_MATCH, given), "\"a\""),
                "{given}"
            );
        }
        assert!(!has(&headers(header::IF_NONE_MATCH, "\"b\""), "\"a\""));
        assert!(!has(&HeaderMap::new(), "\"a\""));
    }

    #[tokio::test]
    async fn browsers_get_the_page_and_programs_the_addresses() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let response = page(headers(header::ACCEPT, browser)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], assets::HTML);
        let varies: Vec<_> = response.headers().get_all(header::VARY).iter().collect();
        assert_eq!(varies, ["accept-encoding", "accept"]);
        let response = page(headers(header::ACCEPT, "*/*")).await;
        assert_eq!(response.status(), StatusCode::OK);
        let content_type = &response.headers()[header::CONTENT_TYPE];
        assert_eq!(content_type, "application/json");
    }
}
