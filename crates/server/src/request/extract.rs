//! Extractors of bodies, query strings and path parameters, whose errors name the field.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toolscout_index::Kind;

use super::error::{ApiError, ApiResult};
use toolscout_base::media_type::{is_json, without_parameters};

/// A JSON body of a request or an answer.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !is_json(&media_type(request.headers())?) {
            return Err(unsupported("application/json"));
        }
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        parse_json(&bytes).map(Json)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// The bytes of a body, within the size limit of the route.
#[derive(Debug)]
pub struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        require_length(request.headers())?;
        Bytes::from_request(request, state)
            .await
            .map(RawBody)
            .map_err(body_error)
    }
}

/// A query string.
#[derive(Debug)]
pub struct QueryString<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for QueryString<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(QueryString(value)),
            Err(QueryRejection::FailedToDeserializeQueryString(error)) => Err(data_error(
                "query string",
                &without_prefix(&error.body_text()),
            )),
            Err(other) => Err(ApiError::invalid(
                StatusCode::BAD_REQUEST,
                "invalid_query_string",
                other.body_text(),
            )),
        }
    }
}

/// Path parameters, percent-decoded.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<_, PathRejection> =
            axum::extract::Path::from_request_parts(parts, state).await;
        match path {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(rejection) => Err(ApiError::invalid(
                StatusCode::BAD_REQUEST,
                "invalid_path",
                rejection.body_text(),
            )),
        }
    }
}

/// The `Content-Type` without its parameters, lower case; empty when there is none.
///
/// # Errors
/// 415 for a header that is not ASCII.
pub fn media_type(headers: &HeaderMap) -> ApiResult<String> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(String::new());
    };
    match value.to_str() {
        Ok(text) => Ok(without_parameters(text).to_ascii_lowercase()),
        Err(_) => Err(unsupported("application/json")),
    }
}

/// The error for a body of another type than one of these.
pub fn unsupported(accepted: &str) -> ApiError {
    let message =
        format!("this route needs a body of type {accepted}; set the Content-Type header");
    ApiError::invalid(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        message,
    )
}

/// The error for a body that could not be read completely.
pub fn broken_body(error: &(dyn std::error::Error + 'static)) -> ApiError {
    // Layers wrap the error, so the cause is somewhere in the chain of sources.
    let mut cause = Some(error);
    while let Some(current) = cause {
        if current.is::<LengthLimitError>() {
            return too_large();
        }
        if current.is::<tower_http::timeout::TimeoutError>() {
            let message = "the body arrived too slowly; send it without pauses";
            return ApiError::invalid(StatusCode::REQUEST_TIMEOUT, "body_timeout", message);
        }
        cause = current.source();
    }
    ApiError::invalid(
        StatusCode::BAD_REQUEST,
        "incomplete_body",
        "the body ended before it was complete",
    )
}

/// Reads JSON.
///
/// # Errors
/// 400 for malformed JSON, with line and column; 422 for an unknown field or a wrong type, with the
/// path.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let value = match object(tracked) {
        Ok(value) => value,
        Err(error) => return Err(json_error(&track.path().to_string(), &error)),
    };
    // Anything after the value is an error too: it would be ignored silently.
    match reader.end() {
        Ok(()) => Ok(value),
        Err(error) => Err(json_error(".", &error)),
    }
}

/// Deserialises a struct from an object. Serde's derived code would also accept an array of the
/// field values.
///
/// # Errors
/// Those of the deserialiser.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(Fields(PhantomData))
}

/// As [`object`], or null.
///
/// # Errors
/// Those of the deserialiser.
pub fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let given: Option<Object<T>> = Deserialize::deserialize(deserializer)?;
    Ok(given.map(|Object(value)| value))
}

/// Kinds of items in a query string, separated by commas.
///
/// # Errors
/// For a kind that there is not, naming those that there are.
pub fn kinds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Kind>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let names = text.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names
        .map(|name| name.parse().map_err(serde::de::Error::custom))
        .collect()
}

/// As [`object`], in a list.
///
/// # Errors
/// Those of the deserialiser.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let given: Vec<Object<T>> = Deserialize::deserialize(deserializer)?;
    Ok(given.into_iter().map(|Object(value)| value).collect())
}

#[derive(Deserialize)]
#[serde(transparent, bound = "T: Deserialize<'de>")]
struct Object<T>(#[serde(deserialize_with = "object")] T);

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

fn json_error(path: &str, error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        return ApiError::invalid(
            StatusCode::BAD_REQUEST,
            "malformed_json",
            format!("malformed JSON: {error}"),
        );
    }
    let message = error.to_string();
    // `.` is the body as a whole.
    match path {
        "." => data_error("body", &message),
        _ => {
            let name = path.rsplit('.').next().unwrap_or(path);
            // Serde names only the field, and the client needs the whole path.
            match message.strip_prefix(&format!("unknown field `{name}`")) {
                Some(expected) => ApiError::unprocessable(
                    "unknown_field",
                    format!("unknown field `{path}`{expected}"),
                ),
                None => data_error(&format!("field `{path}`"), &message),
            }
        }
    }
}

fn data_error(place: &str, message: &str) -> ApiError {
    // Serde's errors have no kind, only a text.
    let code = if message.contains("unknown field") {
        "unknown_field"
    } else if message.contains("missing field") {
        "missing_field"
    } else {
        "invalid_value"
    };
    // Types of Rust are replaced by words that clients know.
    let mut message = message.replace("invalid digit found in string", "not a whole number");
    for integer in ["expected usize", "expected u64"] {
        message = message.replace(integer, "expected a whole number, 0 or more");
    }
    ApiError::unprocessable(code, format!("{place}: {message}"))
}

/// Refuses a request without a body: a body has a length or comes in chunks.
fn require_length(headers: &HeaderMap) -> ApiResult<()> {
    if headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING)
    {
        return Ok(());
    }
    let message = "this route needs a body; send one with a Content-Length";
    Err(ApiError::invalid(
        StatusCode::LENGTH_REQUIRED,
        "length_required",
        message,
    ))
}

fn body_error(rejection: BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    broken_body(&rejection)
}

fn too_large() -> ApiError {
    let message =
        "the body is larger than this route accepts; send it in parts, or tools as NDJSON";
    ApiError::invalid(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn without_prefix(message: &str) -> String {
    message
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(message)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code, reason = "read by serde alone")]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code, reason = "read by serde alone")]
        k: u8,
    }

    #[test]
    fn json_errors_name_the_field_or_the_line() {
        for (body, status, code, expected) in [
            (
                r#"{"inner":[{"k":"x"}]}"#,
                422,
                "invalid_value",
                "field `inner[0].k`: invalid type: string \"x\"",
            ),
            (
                r#"{"inner":[{"k":1,"q":2}]}"#,
                422,
                "unknown_field",
                "unknown field `inner[0].q`, expected `k`",
            ),
            ("[[]]", 422, "invalid_value", "expected an object"),
            (r#"{}"#, 422, "missing_field", "missing field `inner`"),
            ("{\"inner\":\n[}", 400, "malformed_json", "line 2 column 2"),
            ("", 400, "malformed_json", "line 1 column 0"),
            (
                r#"{"inner":[]} x"#,
                400,
                "malformed_json",
                "trailing characters",
            ),
        ] {
            let error = parse_json::<Outer>(body.as_bytes()).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.code),
                (status, code),
                "{body}"
            );
            assert!(error.message.contains(expected), "{}", error.message);
        }
    }
}
