//! Media types, as the header `Content-Type` has them.

/// The media type of a header without its parameters, as it is written.
pub fn without_parameters(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Whether this is JSON or a `+json` type, in lower case.
pub fn is_json(media_type: &str) -> bool {
    media_type == "application/json"
        || (media_type.starts_with("application/") && media_type.ends_with("+json"))
}
