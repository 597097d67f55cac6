//! The error of both packages: a code for programs, and a message for people.

use toolscout::eval::EvalError;

/// A result whose error is [`struct@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an exception of Python or an error of JavaScript is made of.
#[derive(Debug)]
pub struct Error {
    /// Names the kind of error.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Error {
    /// An error with a code and a message.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Error {
            code,
            message: message.into(),
        }
    }
}

impl From<toolscout_index::Error> for Error {
    fn from(failure: toolscout_index::Error) -> Self {
        Error::new(failure.code(), failure.to_string())
    }
}

impl From<EvalError> for Error {
    fn from(failure: EvalError) -> Self {
        Error::new("invalid_queries", failure.to_string())
    }
}

/// An answer that cannot be written.
impl From<serde_json::Error> for Error {
    fn from(failure: serde_json::Error) -> Self {
        Error::new("internal", failure.to_string())
    }
}
