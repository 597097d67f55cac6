//! Errors of the engine as errors of JavaScript: their text is `code: message`, which the package takes apart.

use std::fmt::Display;

use napi::{Error, Result, Status};
use toolscout::eval::EvalError;

/// An error with a code and a message.
pub fn error(code: &str, message: impl Display) -> Error {
    Error::new(Status::GenericFailure, format!("{code}: {message}"))
}

/// An error for a value that no query may have.
pub fn invalid_query(message: impl Display) -> Error {
    error("invalid_query", message)
}

/// Turns an error into one of JavaScript.
pub trait OrReject<T> {
    /// The value, or the error.
    fn or_reject(self) -> Result<T>;
}

impl<T> OrReject<T> for toolscout_index::Result<T> {
    fn or_reject(self) -> Result<T> {
        self.map_err(|failure| error(failure.code(), &failure))
    }
}

impl<T> OrReject<T> for std::result::Result<T, EvalError> {
    fn or_reject(self) -> Result<T> {
        self.map_err(|failure| error("invalid_queries", failure))
    }
}

/// Settings that cannot be read.
impl<T> OrReject<T> for anyhow::Result<T> {
    fn or_reject(self) -> Result<T> {
        self.map_err(|failure| error("invalid_settings", format!("{failure:#}")))
    }
}

impl<T> OrReject<T> for serde_json::Result<T> {
    fn or_reject(self) -> Result<T> {
        self.map_err(|failure| error("internal", failure))
    }
}
