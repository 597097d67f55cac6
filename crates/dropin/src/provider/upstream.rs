//! The services that requests go to, each with its address and its key.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::dialect::Dialect;

/// Where a key may stand besides `Authorization`.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Where clients of Google send theirs.
pub const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// Where clients of Azure send theirs.
pub const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// A service of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Upstream {
    /// That of OpenAI's APIs, and of Anthropic's if there is no other.
    Main,
    /// That of Anthropic's messages.
    Messages,
    /// That of Google's Gemini.
    Gemini,
    /// Azure OpenAI.
    Azure,
    /// Amazon Bedrock.
    Bedrock,
}

impl Upstream {
    /// The service of an API.
    pub fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Chat | Dialect::Responses => Upstream::Main,
            Dialect::Messages => Upstream::Messages,
            Dialect::Gemini => Upstream::Gemini,
            Dialect::Converse => Upstream::Bedrock,
        }
    }

    /// The flag of `serve` that gives its address.
    pub fn flag(self) -> &'static str {
        match self {
            Upstream::Main => "--llm",
            Upstream::Messages => "--llm-messages",
            Upstream::Gemini => "--llm-gemini",
            Upstream::Azure => "--llm-azure",
            Upstream::Bedrock => "--llm-bedrock",
        }
    }

    /// The header with a key of the settings.
    pub(crate) fn key_header(self, key: &str) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self {
            Upstream::Main | Upstream::Bedrock => (AUTHORIZATION, format!("Bearer {key}")),
            Upstream::Messages => (X_API_KEY, key.to_owned()),
            Upstream::Gemini => (X_GOOG_API_KEY, key.to_owned()),
            Upstream::Azure => (API_KEY, key.to_owned()),
        };
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }

    /// The headers of a client's own key, as this service reads them.
    pub(crate) fn credentials(self, given: &HeaderMap) -> HeaderMap {
        let names: &[HeaderName] = match self {
            Upstream::Main | Upstream::Messages => &[AUTHORIZATION, X_API_KEY],
            Upstream::Gemini => &[AUTHORIZATION, X_GOOG_API_KEY],
            Upstream::Azure => &[AUTHORIZATION, API_KEY],
            Upstream::Bedrock => &[AUTHORIZATION],
        };
        let mut headers = HeaderMap::new();
        for name in names {
            if let Some(value) = given.get(name)
                // A signature is for the address that the client knows, and for its bytes.
                && !is_signature(value)
            {
                headers.insert(name.clone(), value.clone());
            }
        }
        // A client of Azure may speak with another service of OpenAI's API.
        if self == Upstream::Main
            && headers.is_empty()
            && let Some(key) = given.get(API_KEY)
            && let Some((name, value)) = self.key_header(key.to_str().unwrap_or_default())
        {
            headers.insert(name, value);
        }
        headers
    }
}

/// Whether a client of AWS has signed its request in this header, in place of sending a key.
pub fn is_signature(value: &HeaderValue) -> bool {
    value.as_bytes().starts_with(b"AWS4-")
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The service.
    pub upstream: Upstream,
    /// The path below its base URL, percent-encoded.
    pub path: String,
    /// Whether the answer is a stream, where the path says so and not the body.
    pub streams: Option<bool>,
}

impl Target {
    /// That of an API with one path.
    pub fn of(dialect: Dialect) -> Self {
        Target {
            upstream: Upstream::of(dialect),
            path: dialect.path().to_owned(),
            streams: None,
        }
    }
}
