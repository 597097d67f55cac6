//! Errors of the engine as errors of JavaScript: their text is `code: message`, which the package takes apart.

use std::fmt::Display;

use napi::{Error, Status};
use toolscout_native::Error as NativeError;

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
    fn or_reject(self) -> napi::Result<T>;
}

impl<T, E: Into<NativeError>> OrReject<T> for Result<T, E> {
    fn or_reject(self) -> napi::Result<T> {
        self.map_err(|failure| {
            let NativeError { code, message } = failure.into();
            error(code, message)
        })
    }
}
