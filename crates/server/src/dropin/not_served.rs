//! Paths of the providers' APIs that are no routes of this server, though clients ask there.

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;

use super::model_routes;
use super::{DropInEndpoint, Problem, serves_models};
use toolscout_base::printable::excerpt;
use toolscout_dropin::{Dialect, Failure};

/// The routes, for messages.
const ROUTES: &str = "POST /v1/chat/completions, /v1/responses, /v1/responses/input_tokens, /v1/messages, \
                      /v1/messages/count_tokens, /v1/embeddings, \
                      /v1beta/models/{model}:generateContent and /model/{model}/converse, GET /v1/models, and the routes of stored responses, \
                      files and batches";
/// What the paths of OpenAI's API begin with.
const OPENAI: [&str; 23] = [
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "containers",
    "conversations",
    "edits",
    "embeddings",
    "engines",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "models",
    "moderations",
    "organization",
    "realtime",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];
/// What the paths of Anthropic's API begin with, where OpenAI has no such paths.
const ANTHROPIC: [&str; 3] = ["complete", "messages", "organizations"];
/// Most characters of a path in a message.
const MAX_PATH_CHARS: usize = 200;

/// The answer to a path of a provider's API that is no route here, or to a method that the route
/// does not have, as that provider tells its errors; `None` for any other path.
pub fn not_served(
    endpoint: &DropInEndpoint,
    status: StatusCode,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Response> {
    if !serves_models(endpoint) {
        return None;
    }
    let dialect = dialect_of(uri.path(), headers)?;
    let path = excerpt(uri.path(), MAX_PATH_CHARS);
    let failure = if status == StatusCode::METHOD_NOT_ALLOWED {
        let message =
            format!("{path} does not support {method}; the Allow header lists what it supports");
        Failure::new(405, "method_not_allowed", message)
    } else {
        let message = format!(
            "{method} {path} is no route of this server; of the providers' APIs it has {ROUTES}. Ask the provider \
             itself for others"
        );
        Failure::new(404, "not_found", message)
    };
    Some(Problem::Failure(failure).into_response(dialect))
}

/// The API that such a path belongs to.
fn dialect_of(path: &str, headers: &HeaderMap) -> Option<Dialect> {
    let below = model_routes::below_base(path).trim_start_matches('/');
    let resource = below.split('/').next().unwrap_or_default();
    if path.starts_with("/v1beta/") {
        return Some(Dialect::Gemini);
    }
    if path.starts_with("/model/") {
        return Some(Dialect::Converse);
    }
    // These headers come from the SDKs of the providers. Anthropic's SDK sends both, so it goes first.
    if headers.contains_key("anthropic-version") || ANTHROPIC.contains(&resource) {
        Some(Dialect::Messages)
    } else if headers.contains_key("x-stainless-lang") || OPENAI.contains(&resource) {
        Some(Dialect::Chat)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_api_that_has_its_like() {
        let none = HeaderMap::new();
        for path in [
            "/v1/embeddings",
            "/v1/chat/completion",
            "/v1/responses/resp_1",
            "/completions",
            "/v1/v1/completions",
        ] {
            assert_eq!(dialect_of(path, &none), Some(Dialect::Chat), "{path}");
        }
        for path in ["/v1/messages/msg_1", "/v1/complete", "/messages/batches"] {
            assert_eq!(dialect_of(path, &none), Some(Dialect::Messages), "{path}");
        }
        for path in ["/", "/v1", "/v1/catalog", "/favicon.ico"] {
            assert_eq!(dialect_of(path, &none), None, "{path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", "2023-06-01".parse().unwrap());
        assert_eq!(dialect_of("/v1/files", &headers), Some(Dialect::Messages));
    }
}
