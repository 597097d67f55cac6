//! Why a connection or a request failed, in words: the SDK's messages may hold whole values as the
//! compiler would print them.

use rmcp::service::ClientInitializeError;
use serde::Serialize;

use super::QUOTED_CHARS;
use super::redirects::Redirected;
use crate::authorized::HttpError;
use toolscout_base::printable::excerpt;

/// The reason for a server that exited before it answered, however that was noticed.
const ENDED_EARLY: &str = "it ended before the handshake";

/// Why a connection was not made.
pub fn of_handshake(error: &ClientInitializeError) -> String {
    let reason = match error {
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refuses the handshake: {}", error.message)
        }
        ClientInitializeError::ConnectionClosed(_) => ENDED_EARLY.to_owned(),
        ClientInitializeError::TransportError { error, .. }
            if is_broken_pipe(error.error.as_ref()) =>
        {
            ENDED_EARLY.to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => causes(error.error.as_ref()),
        ClientInitializeError::ExpectedInitResponse(message) => no_handshake(message.as_ref()),
        ClientInitializeError::ExpectedInitResult(result) => no_handshake(result.as_ref()),
        ClientInitializeError::NoCompatibleProtocolVersion {
            server_supported, ..
        } => {
            let versions: Vec<&str> = server_supported
                .iter()
                .map(|version| version.as_str())
                .collect();
            let versions = versions.join(", ");
            format!("it speaks other versions of the protocol than this program: {versions}")
        }
        error => error.to_string(),
    };
    excerpt(&reason, QUOTED_CHARS)
}

fn no_handshake(answer: Option<&impl Serialize>) -> String {
    let text = answer.and_then(|answer| serde_json::to_string(answer).ok());
    match text {
        Some(text) => format!("its answer is not the result of a handshake: {text}"),
        None => ENDED_EARLY.to_owned(),
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// An error with its causes. For HTTP only the causes name the problem.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(message) = own_words(error) {
        return excerpt(&message, QUOTED_CHARS);
    }
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // It says all there is to say, and the causes around it repeat the URL.
        if let Some(redirected) = error.downcast_ref::<Redirected>() {
            return redirected.to_string();
        }
        let more = error.to_string();
        // Some errors quote their cause.
        if !message.contains(&more) {
            message = format!("{message}: {more}");
        }
        cause = error.source();
    }
    excerpt(&message, QUOTED_CHARS)
}

/// What this program says in place of the SDK.
fn own_words(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    Some(match error.downcast_ref::<HttpError>()? {
        HttpError::UnexpectedContentType(kind) => format!(
            "it answers with {}, where JSON or a stream of events is expected; check its URL",
            kind.as_deref().unwrap_or("content of no type")
        ),
        HttpError::SessionExpired => "its session has ended".to_owned(),
        HttpError::ReinitializationFailed(error) => {
            format!(
                "its session has ended, and it refuses a new one: {}",
                error.message
            )
        }
        HttpError::Client(error) => causes(error),
        HttpError::UnexpectedServerResponse(reason) => reason.clone().into_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ErrorData, ServerJsonRpcMessage, ServerResult};

    use super::*;

    #[test]
    fn no_message_holds_a_value_as_the_compiler_prints_it() {
        let refused = ServerJsonRpcMessage::error(ErrorData::invalid_params("no", None), None);
        let handshakes = [
            ClientInitializeError::ExpectedInitResponse(Some(refused)),
            ClientInitializeError::ExpectedInitResponse(None),
            ClientInitializeError::ExpectedInitResult(Some(ServerResult::empty(()))),
            ClientInitializeError::NoCompatibleProtocolVersion {
                client_supported: vec![rmcp::model::ProtocolVersion::V_2025_06_18],
                server_supported: vec![rmcp::model::ProtocolVersion::V_2024_11_05],
            },
        ];
        let requests = [
            HttpError::UnexpectedContentType(Some("text/html".into())),
            HttpError::UnexpectedContentType(None),
            HttpError::SessionExpired,
            HttpError::ReinitializationFailed(ErrorData::invalid_params("full", None)),
        ];
        let handshakes = handshakes.iter().map(of_handshake);
        for message in handshakes.chain(requests.iter().map(|error| causes(error))) {
            for dump in ["Some(", "None", "Ok(", "Err(", "{ ", "\\\""] {
                assert!(!message.contains(dump), "{message}");
            }
        }
    }
}
