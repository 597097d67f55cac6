//! Pages of a list: their size, and the cursor where the next one begins.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, ApiResult};

const DEFAULT_LIMIT: usize = 100;
/// The largest page.
pub const MAX_LIMIT: usize = 1000;

/// The size of a page, 100 unless the request has one.
///
/// # Errors
/// 422 unless it is from 1 to 1000.
pub fn limit(requested: Option<usize>) -> ApiResult<usize> {
    let limit = requested.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("limit is {limit}, it must be from 1 to {MAX_LIMIT}");
    Err(ApiError::unprocessable("invalid_value", message))
}

/// The cursor after this item. It is opaque to clients, so that its content may change. Since it
/// names an item and not a position, it stays valid when items come or go between two pages.
pub fn cursor_after<T: Serialize + ?Sized>(item: &T) -> String {
    // Strings and tuples of strings always serialise.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(item).unwrap_or_default())
}

/// The item that a page begins after, by the cursor of its request; `None` for the first page.
///
/// # Errors
/// 400 unless [`cursor_after`] made the cursor.
pub fn after<T: DeserializeOwned>(cursor: Option<&str>) -> ApiResult<Option<T>> {
    cursor.map(read_cursor).transpose()
}

fn read_cursor<T: DeserializeOwned>(cursor: &str) -> ApiResult<T> {
    if let Ok(bytes) = URL_SAFE_NO_PAD.decode(cursor)
        && let Ok(item) = serde_json::from_slice(&bytes)
    {
        return Ok(item);
    }
    let message = format!(
        "cursor {cursor:?} is not valid; use next_cursor of the previous page, or none for the first page"
    );
    let status = StatusCode::BAD_REQUEST;
    Err(ApiError::invalid(status, "invalid_cursor", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_anything_else_is_refused() {
        let cursor = cursor_after("a/ä b");
        assert_eq!(read_cursor::<String>(&cursor).unwrap(), "a/ä b");
        for bad in ["", "x", "!!", "AAAA"] {
            let error = read_cursor::<String>(bad).unwrap_err();
            assert_eq!(error.code, "invalid_cursor", "{bad:?}");
        }
    }

    #[test]
    fn a_limit_is_from_1_to_1000() {
        assert_eq!(limit(None).unwrap(), 100);
        assert_eq!(limit(Some(1000)).unwrap(), 1000);
        for bad in [0, 1001] {
            assert_eq!(limit(Some(bad)).unwrap_err().code, "invalid_value");
        }
    }
}
