//! Why a request was not answered, in a form that each dialect can tell.

use bytes::Bytes;

use toolscout_base::cpu_pool::PoolError;
use toolscout_base::printable::excerpt;

/// Most characters of a provider's answer in a message.
const MAX_EXCERPT_CHARS: usize = 200;

/// A request that was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status of the answer, if it has not begun.
    pub status: u16,
    /// A stable code for programs.
    pub code: &'static str,
    /// What is wrong, where, and what to do.
    pub message: String,
    /// What a client may read to go on in another way, as JSON.
    pub details: Option<&'static str>,
    /// The provider's own event, which is passed on instead of one of ours.
    pub event: Option<Bytes>,
}

impl Failure {
    /// A failure with this status.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Failure {
            status,
            code,
            message: message.into(),
            details: None,
            event: None,
        }
    }

    /// No connection to the provider.
    pub fn unreachable(address: &str, reason: &str) -> Self {
        let message = format!(
            "the model's provider at {address} cannot be reached ({reason}); is it running, and is --llm its base URL?"
        );
        Failure::new(502, "upstream_unreachable", message)
    }

    /// Nothing came from the provider within the time.
    pub fn timed_out(waited_ms: u64) -> Self {
        let message = format!("the model's provider sent nothing for {waited_ms} ms; ask again");
        Failure::new(504, "upstream_timeout", message)
    }

    /// The provider's answer ended before the model did.
    pub fn cut_off(reason: &str) -> Self {
        let message =
            format!("the answer of the model's provider was cut off ({reason}); ask again");
        Failure::new(502, "upstream_cut_off", message)
    }

    /// The provider's answer is not what its API says.
    pub fn malformed(what: &str, answer: &str) -> Self {
        let message = format!(
            "the answer of the model's provider is not what its API says ({what}): {}",
            excerpt(answer.trim(), MAX_EXCERPT_CHARS)
        );
        Failure::new(502, "upstream_malformed", message)
    }

    /// The provider's answer is longer than answers may be.
    pub fn too_long(what: &str) -> Self {
        let message =
            format!("the answer of the model's provider is too long ({what}); ask for less");
        Failure::new(502, "answer_too_long", message)
    }

    /// The provider's answer has more calls than answers may have.
    pub fn too_many_calls(most: usize) -> Self {
        Failure::too_long(&format!(
            "it has more than {most} calls; --max-answer-calls sets the bound"
        ))
    }

    /// An error that the provider reported in the stream.
    pub fn reported(event: Bytes, message: &str) -> Self {
        Failure {
            event: Some(event),
            ..Failure::new(502, "upstream_error", excerpt(message, 500))
        }
    }

    /// The kind of the error, as both providers name it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.status {
            400 | 405 | 408 | 411 | 415 | 422 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            _ => "api_error",
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Full => Failure::new(503, "overloaded", error.to_string()),
            PoolError::Panicked(_) => Failure::new(500, "internal", error.to_string()),
        }
    }
}
