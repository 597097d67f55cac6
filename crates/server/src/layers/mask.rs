//! Masks the secrets that the process knows in every answer, as in a provider's error that repeats
//! our key.

use std::borrow::Cow;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::stream::{self, StreamExt as _};

use toolscout_base::known_secrets::{self, StreamMask, mask_bytes};
use toolscout_base::long_work;

/// Masks secrets in headers and body. Lengths stay.
pub async fn mask_secrets(response: Response) -> Response {
    if known_secrets::is_empty() || is_own_page(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // Headers of providers are passed on, so they may have secrets too.
    for value in parts.headers.values_mut() {
        if let Cow::Owned(masked) = mask_bytes(value.as_bytes())
            && let Ok(masked) = HeaderValue::from_bytes(&masked)
        {
            *value = masked;
        }
    }
    let body = if body.size_hint().exact().is_some() {
        // The body is in memory already.
        let whole = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let masked = long_work::read(whole.len(), || mask_bytes(&whole)).await;
        match masked {
            Cow::Borrowed(_) => whole.into(),
            Cow::Owned(masked) => masked.into(),
        }
    } else {
        masked_stream(body)
    };
    Response::from_parts(parts, body)
}

/// Whether this is a page or a script of the server itself. What others send has none of these types.
fn is_own_page(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ["text/html", "text/css", "text/javascript", "image/"]
        .iter()
        .any(|own| kind.starts_with(own))
}

fn masked_stream(body: Body) -> Body {
    let state = Some((body.into_data_stream(), StreamMask::default()));
    Body::from_stream(stream::unfold(state, |state| async {
        let (mut parts, mut mask) = state?;
        loop {
            match parts.next().await {
                Some(Ok(part)) => {
                    let passed = long_work::read(part.len(), || mask.next(&part)).await;
                    // The end of a part is held back, since it may be the beginning of a secret.
                    if !passed.is_empty() {
                        return Some((Ok(Bytes::from(passed)), Some((parts, mask))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), None)),
                None => return Some((Ok(mask.end().into()), None)),
            }
        }
    }))
}
