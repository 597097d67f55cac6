//! The next step after an error or a degraded answer of the engine, in terms of this program. The
//! engine is a library and knows no commands; the command line, the HTTP API and the logs add these.

use serde_json::{Value, json};
use toolscout_index::{Degraded, DegradedCause, Error};

use crate::samples;
use toolscout_base::config::DEFAULT_CATALOG;

/// What to do about an error, if the program has a command or flag for it.
pub fn for_error(error: &Error) -> Option<&'static str> {
    match error {
        Error::DuplicateTool { .. } => Some("`--server` gives each file a server of its own"),
        Error::UnknownCatalog { name, .. } if name == DEFAULT_CATALOG => {
            Some("`toolscout add FILE` creates it, and `toolscout demo` one of sample tools")
        }
        Error::UnknownCatalog { name, .. } if name == samples::CATALOG => {
            Some("`toolscout demo` makes it of sample tools")
        }
        Error::UnknownCatalog { .. } => Some("`toolscout add` creates it"),
        Error::DimensionMismatch { .. } => {
            Some("`toolscout models pull --force` fetches the model again")
        }
        Error::Ranker { .. } => Some("`toolscout tune --ranker --apply` makes a new one"),
        Error::Store {
            problem: toolscout_index::StoreProblem::Missing,
            ..
        } => Some("`toolscout catalogs delete` deletes it"),
        _ if error.is_permission_denied() => Some("or choose another folder with --data"),
        _ => None,
    }
}

/// An error's message with its next step.
pub fn describe(error: &Error) -> String {
    with_hint(error.to_string(), for_error(error))
}

/// The reason for a degraded answer with its next step.
pub fn degraded_reason(degraded: &Degraded) -> String {
    degraded_reason_with(degraded, "`toolscout embed` continues")
}

/// As [`degraded_reason`], of a server's answer.
pub fn degraded_reason_of_server(degraded: &Degraded) -> String {
    degraded_reason_with(degraded, "the server embeds them in the background")
}

fn degraded_reason_with(degraded: &Degraded, about_embedding: &'static str) -> String {
    let hint = match &degraded.cause {
        DegradedCause::NoEmbedder => Some("`embedder = \"auto\"` uses what is built in"),
        DegradedCause::DamagedVectors { .. } => Some("`toolscout embed` computes them again"),
        DegradedCause::PartlyEmbedded { .. } | DegradedCause::NotEmbedded { .. } => {
            Some(about_embedding)
        }
        DegradedCause::Ranker(_) => Some("`toolscout tune --ranker --apply` makes a new one"),
        _ => None,
    };
    with_hint(degraded.cause.to_string(), hint)
}

/// A degraded answer's fields as JSON, with the next step in `reason`.
pub fn degraded_json(degraded: &Degraded) -> Value {
    json!({
        "code": degraded.cause.code(),
        "reason": degraded_reason(degraded),
        "pending_embeddings": degraded.pending_embeddings,
    })
}

fn with_hint(message: String, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}; {hint}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_error_names_the_next_command() {
        let error = Error::UnknownCatalog {
            name: "shop".to_owned(),
            data_dir: PathBuf::from("/data"),
        };
        assert_eq!(
            describe(&error),
            "no catalog \"shop\" in /data; `toolscout add` creates it"
        );
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let message = describe(&Error::io("read", "/data", denied));
        assert!(
            message.ends_with("or choose another folder with --data"),
            "{message}"
        );
    }

    #[test]
    fn a_degraded_answer_names_the_next_command() {
        let degraded = Degraded {
            cause: DegradedCause::NotEmbedded { pending: 1 },
            pending_embeddings: 1,
        };
        assert_eq!(
            degraded_reason(&degraded),
            "1 tool is not embedded yet and found by words only; `toolscout embed` continues"
        );
        assert_eq!(degraded_json(&degraded)["code"], "not_embedded");
    }
}
